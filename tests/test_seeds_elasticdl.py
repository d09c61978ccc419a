"""ElasticDL's design document on custom data sources, statement by statement, in its order.

Where this library differs on purpose, the test shows what it does; docs/coming-from.md says why. What the tests of
readers hold of every reader is not repeated.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.cli import main
from fsabs.dispatch import TaskDataService, TaskDispatcher, TaskType, get_dataset
from fsabs.dispatch.arguments import JobArguments, add_arguments, create_job
from fsabs.readers import RecordWriter
from fsabs.readers.data import (
    AbstractDataReader,
    RecordIODataReader,
    shards_of,
)
from tests import elasticdl_model

pytestmark = pytest.mark.timeout(120)
MODEL = elasticdl_model.__file__


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A directory with two RecordIO files, of 10 and 20 records."""
    fs = fsabs.from_url(tmp_path / "records", create=True)
    for name, count in (("a", 10), ("b", 20)):
        with RecordWriter(fs, name, max_chunk_bytes=12) as writer:
            for number in range(count):
                writer.write(f"{name} {number}".encode())
    return str(tmp_path / "records")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/job.db"


def job_of(database: str, *given: str) -> JobArguments:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return create_job(parser.parse_args([f"--task_database={database}", *given]))


def consumed(job: TaskDispatcher, reader: Any) -> list[Any]:
    return [record for batch in get_dataset(job, reader, "w", 4) for record in batch]


# ---- RecordIO, and why there is more


def test_nothing_is_written_to_disk(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users implement their own reading, and don't have to write RecordIO files to disk."""
    reader = elasticdl_model.EarlierDataReader()
    with TaskDispatcher.create(database, training=reader, records_per_task=7, train_end_callback=False) as job:
        assert len(consumed(job, reader)) == 30
    assert [name for name in os.listdir(tmp_path) if not name.startswith("job.db")] == []


def test_tasks_are_performed_while_data_is_read(database: str) -> None:
    """Tasks are performed while data is read into memory asynchronously."""
    read = threading.Semaphore(0)

    class Reader(AbstractDataReader):
        def create_shards(self) -> dict[str, int]:
            return {"x": 120}

        def read_records(self, task: Any) -> Iterator[int]:
            for number in task.numbers():
                read.release()
                yield number

    reader = Reader()
    with (
        TaskDispatcher.create(database, training=reader, records_per_task=5) as job,
        TaskDataService(job, reader, "w") as service,
    ):
        next(service.get_dataset())
        for _ in range(40):  # read while the first record is worked on
            assert read.acquire(timeout=20)


# ---- what was coupled with RecordIO


def test_directories_are_scanned_for_files_and_their_indexes(records: str, database: str) -> None:
    """Tasks are created of `{file_path: num_records}`, which scanning directories and reading each index gives."""
    found = {name: count for name, _, count in shards_of(RecordIODataReader(records))}
    assert found == {f"{records}/a": 10, f"{records}/b": 20}
    with TaskDispatcher.create(database, training=found, records_per_task=8, train_end_callback=False) as job:
        assert job.status().tasks.todo == 2 + 3


def test_a_worker_starts_a_service(records: str, database: str) -> None:
    """A worker starts a `TaskDataService`, which gives a data set of the records of its tasks."""
    reader = RecordIODataReader(records)
    with (
        TaskDispatcher.create(database, training=reader, records_per_task=8, train_end_callback=False) as job,
        TaskDataService(job, reader, worker_id=0) as service,
    ):
        found = []
        for record in service.get_dataset():
            found.append(record)
            service.report_record_done(1)
        assert len(found) == 30
        assert job.status().state == "finished"


def test_a_tensorflow_data_set(records: str, database: str) -> None:
    """(`tf.data.Dataset`.) The generator is what `tf.data.Dataset.from_generator(service.get_dataset, ...)` takes."""
    reader = RecordIODataReader(records)
    with (
        TaskDispatcher.create(database, training=reader, records_per_task=8, train_end_callback=False) as job,
        TaskDataService(job, reader, "w") as service,
    ):
        assert inspect.isgenerator(made := service.get_dataset())
        assert isinstance(next(made), bytes)
        assert reader.records_output_types == "string"  # the `output_types` of TensorFlow


# ---- the proposal


class Shards(AbstractDataReader):
    """A reader of given shards."""

    def __init__(self, shards: Any) -> None:
        super().__init__()
        self.shards = shards

    def create_shards(self) -> Any:
        return self.shards

    def read_records(self, task: Any) -> Iterator[Any]:
        return iter(task.numbers())


def test_the_abstract_reader() -> None:
    """`AbstractDataReader`: `__init__(**kwargs)` and two abstract methods, `read_records(task)`, `create_shards()`."""
    assert AbstractDataReader.__abstractmethods__ == {"read_records", "create_shards"}
    assert [*inspect.signature(AbstractDataReader.read_records).parameters] == ["self", "task"]
    with pytest.raises(TypeError):
        AbstractDataReader()  # type: ignore[abstract]


def test_the_custom_reader(records: str, database: str) -> None:
    """`CustomDataReader(**kwargs)` takes `data_dir`, lists it, and counts each file's records."""
    for kind in (elasticdl_model.CustomDataReader, elasticdl_model.TuplesDataReader):
        reader = kind(data_dir=records)
        url = database.replace("job.db", f"{kind.__name__}.db")
        with TaskDispatcher.create(url, training=reader, records_per_task=7, train_end_callback=False) as job:
            assert len(consumed(job, reader)) == (30 if kind is elasticdl_model.CustomDataReader else 26)
    assert elasticdl_model.CustomDataReader(data_dir="").create_shards() == {}


def test_an_empty_record_ends_no_task(database: str) -> None:
    """(`if record: yield record` ends at an empty record.) Here an empty record is one, and none are lost silently."""

    class Empty(Shards):
        def read_records(self, task: Any) -> Iterator[bytes]:
            return (b"" for _ in task.numbers())

    class Ends(Shards):
        def read_records(self, task: Any) -> Iterator[bytes]:
            return itertools.islice((b"x" for _ in task.numbers()), 3)

    with TaskDispatcher.create(database, "a", training={"x": 9}, records_per_task=9, train_end_callback=False) as job:
        assert consumed(job, Empty({"x": 9})) == [b""] * 9
    with TaskDispatcher.create(database, "b", training={"x": 9}, records_per_task=9, max_failures=0) as job:
        with pytest.raises(Exception, match="x"):
            consumed(job, Ends({"x": 9}))
        assert job.failed()


# ---- arguments


def test_paths_of_recordio_files(records: str, database: str) -> None:
    """`--training_data`, `--validation_data`, `--prediction_data`: RecordIO files, if there is no custom reader."""
    job = job_of(database, f"--training_data={records}", f"--validation_data={records}", "--records_per_task=5")
    assert sorted(job.readers) == ["evaluation", "training"]
    assert all(isinstance(reader, RecordIODataReader) for reader in job.readers.values())
    job = job_of(database, f"--prediction_data={records}", "--minibatch_size=5", "--job_name=predict")
    assert job.dispatcher.get("w").task.type == TaskType.PREDICTION


def test_parameters_of_the_custom_reader(records: str, database: str) -> None:
    """`--custom_data_reader_params` passes parameters to the constructor of the user-defined `CustomDataReader`."""
    job = job_of(
        database,
        f"--model_def={MODEL}",
        f"--custom_data_reader_params=data_dir={records}",
        "--records_per_task=5",
        "--num_epochs=2",
    )
    with job.dispatcher as dispatcher:
        assert len(consumed(dispatcher, job.readers["training"])) >= 60


def test_parameters_of_the_model(records: str, database: str) -> None:
    """It is similar to `--model_params`, for the model's constructor: taken here, for the training program."""
    job = job_of(database, f"--training_data={records}", "--records_per_task=5", "--model_params=units=8;rate=0.5")
    assert job.model_params == {"units": 8, "rate": 0.5}


def test_a_job_from_the_shell(records: str, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command-line interface creates the job; a worker opens it by the URL of its database."""
    given = [f"--training_data_dir={records}", "--minibatch_size=2", "--num_minibatches_per_task=2"]
    assert main(["job", "create", *given, f"--task_database={database}"]) == 0
    assert "8 tasks" in capsys.readouterr().out
    with TaskDataService(database, RecordIODataReader(records), "w") as service:
        assert sum(map(len, service.batches(2))) == 30
