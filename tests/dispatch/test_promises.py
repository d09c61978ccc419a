"""What a job keeps when a worker, a store or a database fails: the rows of the table in docs/dispatch.md."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fsabs.dispatch import JobFailedError, TaskDataService, TaskDispatcher, TaskType
from fsabs.readers.data import AbstractDataReader
from tests.dispatch.databases import listening
from tests.servers.fixtures import require
from tests.servers.pgbouncer import PgBouncer, missing
from tests.servers.postgresql import PostgreSQL


class Numbers(AbstractDataReader):
    """Records that are their numbers; each read raises `failure` if there is one."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.failure = failure

    def create_shards(self) -> Any:
        return [("a", 0, 300)]

    def read_records(self, task: Any) -> Iterator[int]:
        if self.failure is not None:
            raise self.failure
        yield from task.numbers()


def create(url: str, count: int = 300, **settings: Any) -> TaskDispatcher:
    settings = {"training": [("a", 0, count)], "records_per_task": 1, "train_end_callback": False, **settings}
    return TaskDispatcher.create(url, **settings)


def drained(dispatcher: TaskDispatcher, worker: str = "w", most: int = 10**9) -> int:
    """Do tasks until the job ends, or so many."""
    done = 0
    while done < most and (dispatch := dispatcher.get(worker)).task.type != TaskType.NONE:
        if dispatch.task.type == TaskType.WAIT:
            time.sleep(0.01)
        elif dispatcher.report(*dispatch):
            done += 1
    return done


# ---- a worker


@pytest.mark.parametrize(
    "failure",
    [
        PermissionError(errno.EACCES, "no credentials"),
        TimeoutError(errno.ETIMEDOUT, "no answer"),
        FileNotFoundError(errno.ENOENT, "not mounted"),
        ModuleNotFoundError("no such library"),
    ],
)
def test_a_worker_that_can_not_read_ends_and_the_others_do_all_tasks(url: str, failure: Exception) -> None:
    dispatcher = create(url, max_failures=0)
    raised: list[BaseException] = []
    ended = threading.Event()

    def work(name: str, reader: Numbers) -> None:
        try:
            with TaskDataService(TaskDispatcher(url), reader, name) as service:
                for _ in service.batches(1):
                    ended.wait(20)  # the one that fails has had its tasks
        except BaseException as exc:
            raised.append(exc)
            ended.set()

    readers = [Numbers(), Numbers(), Numbers(), Numbers(failure)]
    threads = [threading.Thread(target=work, args=(f"w{n}", one), daemon=True) for n, one in enumerate(readers)]
    for thread in threads[:3]:
        thread.start()
    while len(dispatcher.status().workers) < 3:
        time.sleep(0.01)
    threads[3].start()
    for thread in threads:
        thread.join(60)
    assert raised == [failure]
    status = dispatcher.status()
    assert (status.state, status.tasks.done, status.tasks.failed) == ("finished", 300, 0)
    dispatcher.close()


def test_a_task_fails_for_good_when_another_worker_has_failed_on_it_too(url: str) -> None:
    with create(url, 2, max_failures=0) as dispatcher:
        held = dispatcher.get("other")
        for _ in range(3):
            assert dispatcher.report(*dispatcher.get("broken"), error="no such file")
            assert dispatcher.failed() == []
        assert dispatcher.report(*held)
        assert dispatcher.report(*dispatcher.get("other"), error="no such file")
        with pytest.raises(JobFailedError, match="1 tasks of job 'default' failed"):
            dispatcher.get("other")


def test_a_task_that_ends_its_workers_is_named_and_fails_in_the_end(url: str) -> None:
    with create(url, 2) as dispatcher:
        for number in range(10):
            dead = dispatcher.get(f"w{number}")
            assert dead.task.start == 0
            if number == 5:
                assert dispatcher.status().suspects == {"a 0 to 1": 6}
            assert dispatcher.recover(f"w{number}") == 1
        with pytest.raises(JobFailedError, match="a 0 to 1: 10 workers disappeared with it"):
            drained(dispatcher)
        status = dispatcher.status()
        assert (status.tasks.done, status.tasks.failed, status.suspects) == (1, 1, {})
        assert dispatcher.retry_failed() == 1
        assert drained(dispatcher) == 1


def test_workers_that_disappear_after_some_records_cost_a_task_nothing(url: str) -> None:
    with create(url, 30, records_per_task=30) as dispatcher:
        for number in range(25):
            task, lease = dispatcher.get(f"w{number}")
            assert dispatcher.renew(task, lease, records=1)
            dispatcher.recover(f"w{number}")
        assert dispatcher.status().suspects == {}
        assert drained(dispatcher) == 1


def test_a_job_that_is_deleted_under_its_workers(url: str) -> None:
    dispatcher = create(url)
    held = dispatcher.get("w")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for table in ("fsabs_task", "fsabs_shard", "fsabs_worker", "fsabs_job"):
            connection.execute(sa.text(f"DELETE FROM {table}"))
    engine.dispose()
    for call in (lambda: dispatcher.get("w"), lambda: dispatcher.get("new"), dispatcher.status, dispatcher.state_dict):
        with pytest.raises(FileNotFoundError, match="the job was deleted"):
            call()
    assert not dispatcher.report(*held)
    dispatcher.close()


# ---- a database


def test_a_state_restores_a_database_that_is_older(tmp_path: Path) -> None:
    """As a backup, or a standby that was behind: what the state says is laid out and done."""
    path = tmp_path / "tasks.db"
    url = f"sqlite:///{path}"
    with create(url, 1500, num_epochs=2, seed=3, evaluation=[("v", 0, 2)]) as dispatcher:
        assert drained(dispatcher, most=20) == 20
    with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "backup") as target:
        source.backup(target)
    with TaskDispatcher(url) as dispatcher:
        assert drained(dispatcher, most=1600) == 1600
        dispatcher.evaluate(7)
        dispatcher.report(*dispatcher.get("w"))
        state, before = dispatcher.state_dict(), dispatcher.status()
        expected = [list(dispatcher.ledger(epoch)) for epoch in range(2)]
    for left in tmp_path.glob("tasks.db*"):
        left.unlink()
    shutil.copy(tmp_path / "backup", path)
    with TaskDispatcher(url) as dispatcher:
        dispatcher.load_state_dict(state)
        assert dispatcher.status() == before
        assert [list(dispatcher.ledger(epoch)) for epoch in range(2)] == expected
        assert drained(dispatcher) == 3000 + 2 - 1621
        assert dispatcher.status().state == "finished"


WORKER = """
    import signal, sys, time
    from fsabs.dispatch import TaskDataService, TaskDispatcher
    from tests.dispatch.test_promises import Numbers

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the tests' own processes may ignore
    dispatcher = TaskDispatcher(sys.argv[1], outage_seconds=float(sys.argv[2]))
    try:
        with TaskDataService(dispatcher, Numbers(), "w") as service:
            for batch in service.batches(1):
                print("batch", flush=True)
                time.sleep(0.02)
    except BaseException as exc:
        print(type(exc).__name__, flush=True)
"""


def _at_work(url: str, outage_seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), url, str(outage_seconds)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    for _ in range(20):
        assert worker.stdout.readline() == "batch\n"
    return worker


def _last(worker: subprocess.Popen[str]) -> str:
    return worker.communicate(timeout=60)[0].split()[-1]


def test_a_loop_and_its_block_end_with_one_outage(own_postgresql: PostgreSQL) -> None:
    url = own_postgresql.database_url()
    create(url, lease_seconds=3).close()
    worker = _at_work(url, 10)
    own_postgresql.pause()
    begun = time.monotonic()
    assert _last(worker) == "TimeoutError"
    took = time.monotonic() - begun
    print(f"{took:.1f} s of 10")
    assert 8 < took < 15  # it took 1.8 to 3.9 times as long


@contextlib.contextmanager
def _away(url: str, server: PostgreSQL | None, stops: bool) -> Iterator[None]:
    """Have a database be away in the block: locked, ended, or one that takes connections and never answers."""
    if server is None:
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
    elif not stops:
        server.pause()
        yield
    else:
        first = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, others)):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in (first, *map(int, others)):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["locked", "ended", "silent"])
def test_ctrl_c_during_an_outage(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = None if kind == "locked" else request.getfixturevalue("own_postgresql")
    url = f"sqlite:///{tmp_path}/tasks.db" if server is None else server.database_url()
    create(url, lease_seconds=3).close()
    worker = _at_work(url, 120)
    with _away(url, server, kind == "silent"):
        time.sleep(2)
        begun = time.monotonic()
        worker.send_signal(signal.SIGINT)
        assert _last(worker) == "KeyboardInterrupt"
        took = time.monotonic() - begun
    print(f"{took:.2f} s")
    assert took < 10  # it waited for minutes


def test_a_standby_that_is_promoted_later_is_waited_for(postgresql: PostgreSQL) -> None:
    url = postgresql.database_url()
    dispatcher = create(url, 2)
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        database = connection.execute(sa.text("SELECT current_database()")).scalar_one()
        connection.execute(sa.text(f"ALTER DATABASE {database} SET default_transaction_read_only = on"))
        dispatcher.close()  # its next connection is read-only

        def promote() -> None:
            connection.execute(sa.text("SET default_transaction_read_only = off"))
            connection.execute(sa.text(f"ALTER DATABASE {database} RESET default_transaction_read_only"))
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))

        later = threading.Timer(1.0, promote)
        later.start()
        assert drained(dispatcher) == 2
        later.join()
    engine.dispose()
    dispatcher.close()


def test_a_database_that_was_never_reached_is_tried_for_some_seconds() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        begun = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            TaskDispatcher(f"postgresql://fsabs@127.0.0.1:{nobody.getsockname()[1]}/x", outage_seconds=300)
        assert time.monotonic() - begun < 60


def test_errors_are_told_apart_by_their_codes(postgresql: PostgreSQL) -> None:
    """A server speaks the language of its machine; here a message has the words of another error."""
    dispatcher = create(postgresql.database_url(), outage_seconds=30)

    def fail(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT fsabs_job") and "password" not in seen:
            seen.append("password")
            cursor.execute(
                "DO $$ BEGIN RAISE EXCEPTION 'password does not exist, full' USING ERRCODE = '57P03'; END $$"
            )

    seen: list[str] = []
    with listening(sa.Engine, "before_cursor_execute", fail):
        assert dispatcher.status().tasks.todo == 300
    assert seen
    dispatcher.close()


def test_a_worker_at_rest_has_one_connection(postgresql: PostgreSQL) -> None:
    url = postgresql.database_url()
    with create(url, 60) as dispatcher:
        with TaskDataService(dispatcher, Numbers(), "w") as service:
            for _ in service.batches(1):
                dispatcher.status()
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            mine = (
                "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
            assert connection.execute(sa.text(f"{mine} AND query LIKE '%fsabs%'")).scalar_one() <= 1
        engine.dispose()


@pytest.mark.parametrize(
    ("mode", "places", "tasks"),
    [
        ("transaction", 2, 100),
        pytest.param("transaction", 4, 1000, marks=pytest.mark.nightly),
        pytest.param("session", 10, 1000, marks=pytest.mark.nightly),
    ],
)
def test_a_job_behind_a_pooler(postgresql: PostgreSQL, mode: str, places: int, tasks: int) -> None:
    """By transactions, more workers than places; by sessions, each worker has a place."""
    require(missing)
    with PgBouncer(postgresql, mode, places) as pooler:
        url = pooler.database_url()
        with create(url, tasks) as dispatcher:
            script = """if True:
                import sys
                from fsabs.dispatch import TaskDispatcher
                from tests.dispatch.test_promises import drained

                print(drained(TaskDispatcher(sys.argv[1]), sys.argv[2]))
            """
            workers = [
                subprocess.Popen([sys.executable, "-c", script, url, f"w{n}"], stdout=subprocess.PIPE, text=True)
                for n in range(4)
            ]
            counts = [int(worker.communicate(timeout=120)[0]) for worker in workers]
            assert sum(counts) == tasks
            assert dispatcher.status().tasks.records == tasks
