"""ElasticDL's earlier design document on custom data sources: what it says otherwise than the later one, in its order.

What both say is in test_seeds_elasticdl.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.dispatch import TaskDispatcher, TaskType, get_dataset
from fsabs.dispatch.arguments import add_arguments, create_job
from fsabs.readers import RecordWriter
from fsabs.readers.data import Mode, shards_of
from fsabs.readers.data.shards import adopt
from tests import elasticdl_model
from tests.elasticdl_model import EarlierDataReader

pytestmark = [pytest.mark.quick, pytest.mark.timeout(120)]


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/job.db"


def consumed(job: TaskDispatcher, reader: Any) -> list[Any]:
    return [record for batch in get_dataset(job, reader, "w", 4) for record in batch]


def test_a_constructor_of_positional_arguments() -> None:
    """`__init__(self, *kwargs)`: a reader of a class of its own, which no argument is given to, is taken."""
    assert shards_of(adopt(EarlierDataReader("ignored")))[0].name == "train"


@pytest.mark.parametrize(("mode", "count"), [(Mode.TRAINING, 30), (Mode.EVALUATION, 10), (Mode.PREDICTION, 5)])
def test_create_shards_by_mode(mode: str, count: int) -> None:
    """`create_shards(self, mode)`: the mode says where the shards will be used; values are the numbers of records."""
    assert [tuple(one) for one in shards_of(adopt(EarlierDataReader()), mode)] == [
        ({30: "train", 10: "eval", 5: "predict"}[count], 0, count)
    ]


def test_the_custom_reader(database: str) -> None:
    """`CustomDataReader`: `while True: record = self.reader.read(...)`, until there is none."""
    reader = EarlierDataReader()
    with TaskDispatcher.create(database, training=reader, records_per_task=7, train_end_callback=False) as job:
        assert sorted(consumed(job, reader)) == sorted(b"train/%d" % number for number in range(30))


def test_each_mode_has_its_shards(database: str) -> None:
    """A job that trains and evaluates asks for the shards of both modes."""
    reader = EarlierDataReader()
    with TaskDispatcher.create(database, training=reader, evaluation=reader, records_per_task=5) as job:
        job.evaluate(1)
        task = job.get("w").task
        assert (task.type, task.shard_name) == (TaskType.EVALUATION, "eval")


def test_paths_of_recordio_files(tmp_path: Path, database: str) -> None:
    """`--training_data_dir`, `--evaluation_data_dir`, `--prediction_data_dir` stay the paths to RecordIO files."""
    for name in ("train", "eval"):
        with RecordWriter(fsabs.from_url(tmp_path / name, create=True), "0") as writer:
            writer.write(name.encode())
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for job, given, modes in (
        ("a", [f"--training_data_dir={tmp_path}/train", f"--evaluation_data_dir={tmp_path}/eval"], 2),
        ("b", [f"--prediction_data_dir={tmp_path}/eval"], 1),
    ):
        arguments = [*given, "--records_per_task=1", f"--task_database={database}", f"--job_name={job}"]
        assert len(create_job(parser.parse_args(arguments)).readers) == modes


def test_parameters_of_the_custom_reader(database: str, tmp_path: Path) -> None:
    """`--custom_data_reader_params` passes parameters to the constructor, and no other argument names the reader."""
    with RecordWriter(fsabs.from_url(tmp_path / "data", create=True), "0") as writer:
        writer.write(b"x")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = [f"--model_def={elasticdl_model.__file__}", f"--custom_data_reader_params=data_dir={tmp_path}/data"]
    job = create_job(parser.parse_args([*given, "--records_per_task=1", f"--task_database={database}"]))
    assert [mode for mode in job.readers] == ["training"]  # noqa: C416
    assert job.dispatcher.status().tasks.todo == 1
