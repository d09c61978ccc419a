"""Bad input and databases that can't be used: a clear error, and nothing is lost."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import fsabs
from fsabs.dispatch import Task, TaskDispatcher, TaskType, schema
from tests import scarce

SHARDS = [("a", 0, 4)]


def create(url: str, **settings: Any) -> TaskDispatcher:
    settings = {"training": SHARDS, "records_per_task": 2, "train_end_callback": False, **settings}
    return TaskDispatcher.create(url, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"records_per_task": 0}, "records_per_task is at least 1, not 0"),
        ({"lease_seconds": 0}, "lease_seconds is positive and finite, not 0"),
        ({"lease_seconds": float("nan")}, "lease_seconds is positive and finite"),
        ({"max_failures": -1}, "max_failures is not negative"),
        ({"seed": 2**63}, "seed has at most 63 bits"),
        ({"shuffle_records": True}, "shuffle_records needs a seed"),
        ({"training": None}, "a job needs training, evaluation or prediction shards"),
        ({"prediction": SHARDS}, "a job trains or predicts, not both"),
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with pytest.raises(ValueError, match=message):
        create(url, **settings)
    with create(url) as dispatcher:  # nothing of it was written
        assert dispatcher.status().tasks.todo == 2


def test_urls() -> None:
    with pytest.raises(ValueError, match="not the URL of a database"):
        TaskDispatcher("tasks.db")
    with pytest.raises(ValueError, match="kept in SQLite or PostgreSQL, not in mysql"):
        TaskDispatcher("mysql://host/x")
    with pytest.raises(ValueError, match="a database in memory can't be shared"):
        TaskDispatcher("sqlite://")


def test_a_missing_job(url: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no job was created in this database"):
        TaskDispatcher(url)
    with pytest.raises(FileNotFoundError, match="no job was created in this database"):
        TaskDispatcher(f"sqlite:///{tmp_path}/no/folder/x.db")
    with pytest.raises(FileNotFoundError, match="create the tables"):
        create(f"sqlite:///{tmp_path}/no/folder/x.db")
    assert not list(tmp_path.iterdir())  # opening makes no file


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    """A connection would go on with the file that is gone, and two workers would report one task."""
    path = tmp_path / "odd name#.db"
    url = f"sqlite:///{path}"
    dispatcher = create(url)
    task, lease = dispatcher.get("w")
    for other in (dispatcher, pickle.loads(pickle.dumps(dispatcher))):
        assert other.status().tasks.doing == 1
    (tmp_path / "copy").write_bytes(path.read_bytes())
    (tmp_path / "copy").rename(path)
    for call in (dispatcher.status, lambda: dispatcher.get("w"), lambda: dispatcher.report(task, lease)):
        with pytest.raises(fsabs.StaleFileError, match="replaced by another file"):
            call()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        dispatcher.report(task, lease)
    dispatcher.close()


def test_tasks_that_are_none(url: str) -> None:
    with create(url, evaluation=[("v", 0, 1)]) as dispatcher:
        task, lease = dispatcher.get("w")
        with pytest.raises(ValueError, match="a task of 2 records can't have 3 processed"):
            dispatcher.report(task, lease, records=3)
        with pytest.raises(ValueError, match="a task that failed can't have all of its 2 records processed"):
            dispatcher.report(task, lease, success=False, records=2)
        with pytest.raises(ValueError, match="a task of 2 records can't have -1 processed"):
            dispatcher.renew(task, lease, -1)
        with pytest.raises(TypeError):
            dispatcher.renew(task, lease, 1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            dispatcher.report(task, lease, records=1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="nothing to report on a task of the type WAIT"):
            dispatcher.report(Task(type=TaskType.WAIT), 0)
        assert not dispatcher.report(Task(999, *task[1:]), lease)
        assert not dispatcher.report(task, lease + 1)
        with pytest.raises(ValueError, match="has no tasks of the type PREDICTION"):
            dispatcher.get("w", TaskType.PREDICTION)
        with pytest.raises(ValueError, match="can't ask for tasks of the type"):
            dispatcher.get("w", TaskType.WAIT)
        with pytest.raises(LookupError, match="no worker 'nonesuch' has asked"):
            dispatcher.recover("nonesuch")
        assert dispatcher.report(task, lease)


def test_a_job_that_has_ended(url: str) -> None:
    with create(url, evaluation=[("v", 0, 1)], records_per_task=4) as dispatcher:
        task, lease = dispatcher.get("w")
        assert dispatcher.report(task, lease)
        assert dispatcher.get("w").task.type == TaskType.NONE
        with pytest.raises(ValueError, match="is finished: there is nothing more to evaluate"):
            dispatcher.evaluate(1)
        assert not dispatcher.renew(task, lease)
        assert dispatcher.status().tasks.done == 1
    with create(url, job="plain") as dispatcher, pytest.raises(ValueError, match="has no evaluation shards"):
        dispatcher.evaluate(1)


def test_tables_of_a_newer_version(url: str) -> None:
    create(url).close()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(schema.version.update().values(version=schema.VERSION + 1))
    engine.dispose()
    with pytest.raises(OSError, match="a newer fsabs made them") as caught:
        TaskDispatcher(url)
    assert caught.value.errno == errno.EPROTO
    with pytest.raises(OSError, match="a newer fsabs made them"):
        create(url, exist_ok=True)


def test_tables_of_an_older_version_are_migrated(url: str) -> None:
    with create(url, records_per_task=1) as dispatcher:
        assert dispatcher.report(*dispatcher.get("w"))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "DROP INDEX fsabs_queue",
            "CREATE INDEX fsabs_todo ON fsabs_task (job, type, position) WHERE state = 0",
            "ALTER TABLE fsabs_task DROP COLUMN failed_by",
            "UPDATE fsabs_dispatch SET version = 1",
        ):
            connection.execute(sa.text(statement))
    engine.dispose()
    with pytest.raises(OSError, match=r"TaskDispatcher\.create migrates them"):
        TaskDispatcher(url)
    with create(url, records_per_task=1, exist_ok=True) as dispatcher:
        assert dispatcher.status().tasks.done == 1
        assert dispatcher.report(*dispatcher.get("w"), error="x")
        assert dispatcher.get("w").task.start == 2


def test_a_database_that_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with create(f"sqlite:///{path}") as dispatcher:
        task, lease = dispatcher.get("w")
    with TaskDispatcher(f"sqlite:///file:{path}?mode=ro&uri=true") as dispatcher:
        assert dispatcher.status().tasks.doing == 1
        with pytest.raises(OSError, match="readonly") as caught:
            dispatcher.get("w")
        assert caught.value.errno == errno.EROFS
        with pytest.raises(OSError, match="readonly"):
            dispatcher.report(task, lease)
    with TaskDispatcher(f"sqlite:///{path}") as dispatcher:
        assert dispatcher.report(task, lease)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(os.urandom(10_000))
    with pytest.raises(OSError, match="not a database"):
        create(f"sqlite:///{path}")
    assert path.stat().st_size == 10_000


@pytest.mark.parametrize(
    ("shards", "error", "message"),
    [
        (None, TypeError, r"create_shards\(\) gave None"),
        ([], ValueError, "there is no record to dispatch"),
        ({"a": 0}, ValueError, "1 shards for training, all of them empty"),
        (7, TypeError, r"create_shards\(\) gave 7; a list of"),
        ([("a", 0)], TypeError, r"gave \('a', 0\)"),
        ({"a": "b"}, TypeError, r"gave \('a', 0, 'b'\)"),
        ({"a": (0, -1)}, ValueError, "a negative number"),
        ([("a", 0, 2), ("a", 0, 2)], ValueError, "comes twice"),
        ([("a", 0, 4), ("a", 2, 4)], ValueError, "shards overlap"),
    ],
)
def test_readers_whose_shards_make_no_job(tmp_path: Path, shards: Any, error: type[Exception], message: str) -> None:
    class Reader:
        def create_shards(self) -> Any:
            return shards

        def read_records(self, task: Any) -> Any:
            return iter(())

    with pytest.raises(error, match=message):
        create(f"sqlite:///{tmp_path}/t.db", training=Reader())
    assert not (tmp_path / "t.db").exists()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_postgresql_that_is_read_only(url: str) -> None:
    with create(url) as dispatcher:
        held = dispatcher.get("w")
        separator = "&" if "?" in url else "?"
        options = "%20-c%20default_transaction_read_only%3Don"
        read_only = url + options if "options=" in url else f"{url}{separator}options={options[3:]}"
        with TaskDispatcher(read_only, outage_seconds=1) as reading:
            assert reading.status().tasks.doing == 1
            with pytest.raises(OSError, match="read-only") as caught:  # a standby: it was waited for
                reading.get("w")
            assert caught.value.errno == errno.EROFS
        assert dispatcher.report(*held)


def test_a_file_of_sqlite_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    create(f"sqlite:///{tmp_path}/before.db").close()
    with scarce.no_descriptors(), pytest.raises(OSError, match="Too many open files") as caught:
        create(f"sqlite:///{tmp_path}/x.db")
    assert caught.value.errno == errno.EMFILE
    with create(f"sqlite:///{tmp_path}/x.db") as dispatcher:
        assert dispatcher.status().tasks.todo == 2
