"""ElasticDL's command-line arguments: a job and its readers from them, and what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import fsabs
from fsabs.dispatch import TaskDispatcher, TaskType
from fsabs.dispatch.arguments import JobArguments, add_arguments, create_job
from fsabs.dispatch.service import get_dataset
from fsabs.readers import RecordWriter

MODEL = """
from fsabs.readers.data import AbstractDataReader

class Squares(AbstractDataReader):
    def __init__(self, data_origin, power=2):
        super().__init__()
        self.count, self.power = int(data_origin), power

    def create_shards(self):
        return {"squares": self.count}

    def read_records(self, task):
        return (number**self.power for number in task.numbers())
"""


def job_of(tmp_path: Path, *given: str) -> JobArguments:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return create_job(parser.parse_args([f"--task_database=sqlite:///{tmp_path}/job.db", *given]))


def test_recordio_files(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        with RecordWriter(fsabs.from_url(str(tmp_path / name), create=True), "0.recordio") as writer:
            for number in range(10):
                writer.write(f"{name} {number}".encode())
    given = [f"--training_data={tmp_path}/train", f"--validation_data={tmp_path}/valid", "--records_per_task=4"]
    job = job_of(tmp_path, *given, "--num_epochs=2", "--shuffle_seed=1")
    assert sorted(job.readers) == ["evaluation", "training"]
    assert job.dispatcher.status().num_epochs == 2
    job.dispatcher.close()
    again = job_of(tmp_path, *given, "--num_epochs=2", "--shuffle_seed=1")  # a restarted master
    with again.dispatcher as dispatcher:
        records = [one for batch in get_dataset(dispatcher, again.readers["training"], "w", 4) for one in batch]
        with pytest.raises(FileExistsError, match="has other shards or settings"):
            job_of(tmp_path, *given, "--num_epochs=3", "--shuffle_seed=1")
    assert sorted(records) == sorted(2 * [f"train {number}".encode() for number in range(10)])


def test_a_custom_reader(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    job = job_of(
        tmp_path,
        "--prediction_data=6",
        "--records_per_task=4",
        f"--model_def={tmp_path}/model.py",
        "--custom_data_reader=Squares",
        "--custom_data_reader_params=power=3",
    )
    with job.dispatcher as dispatcher:
        batches = get_dataset(dispatcher, job.readers["prediction"], "w", 10)
        assert [one for batch in batches for one in batch] == [0, 1, 8, 27, 64, 125]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "none of --training_data, --validation_data and --prediction_data is given"),
        (["--training_data=x", "--custom_data_reader=A"], "needs --model_def"),
        (["--training_data=x", "--custom_data_reader_params=a=1"], "needs --model_def"),
        (["--training_data=x", "--model_params=a"], "a parameter is written name=value"),
    ],
)
def test_arguments_that_make_no_sense(tmp_path: Path, given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job_of(tmp_path, "--records_per_task=4", *given)
    assert not (tmp_path / "job.db").exists()


KEYWORDS = """
from fsabs.readers.data import AbstractDataReader

class CustomDataReader(AbstractDataReader):
    def __init__(self, **kwargs):
        self._kwargs = kwargs

    def create_shards(self):
        return {"squares": self._kwargs["count"]}

    def read_records(self, task):
        return (number * number for number in task.numbers())
"""


def test_the_names_of_elasticdls_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Later and earlier ones, by the command: `--training_data_dir`, `--minibatch_size`, parameters without a name."""
    from fsabs.cli import main

    (tmp_path / "model.py").write_text(KEYWORDS)
    for name in ("train", "valid"):
        with RecordWriter(fsabs.from_url(str(tmp_path / name), create=True), "0.recordio") as writer:
            for number in range(100):
                writer.write(f"{name} {number}".encode())
    database = f"--task_database=sqlite:///{tmp_path}/job.db"
    for job, given, tasks in (
        ("a", [f"--training_data_dir={tmp_path}/train", f"--evaluation_data_dir={tmp_path}/valid"], 4),
        ("b", [f"--prediction_data_dir={tmp_path}/valid", "--num_minibatches_per_task=5", "--model_params=a=1"], 5),
        ("c", [f"--model_def={tmp_path}/model.py", "--custom_data_reader_params=count=64"], 2),
    ):
        arguments = ["job", "create", *given, "--minibatch_size=4", database, f"--job_name={job}"]
        assert main(arguments) == main(arguments) == 0
        with TaskDispatcher(f"sqlite:///{tmp_path}/job.db", job) as dispatcher:
            assert dispatcher.status().tasks.todo == tasks
    capsys.readouterr()
    assert main(["job", "create", database]) == 1
    assert main(["job", "create", "--nonesuch", database]) == 2
    assert main(["job", "create", "--help"]) == 0
    shown = capsys.readouterr()
    assert "--minibatch_size" in shown.out
    assert "--nonesuch" in shown.err


def test_a_job_that_has_ended_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command finds yesterday's job, whose workers would get nothing."""
    from fsabs.cli import main

    with RecordWriter(fsabs.from_url(str(tmp_path / "train"), create=True), "0.recordio") as writer:
        writer.write(b"x")
    url = f"sqlite:///{tmp_path}/job.db"
    arguments = ["job", "create", f"--training_data={tmp_path}/train", "--records_per_task=4", f"--task_database={url}"]
    assert main(arguments) == 0
    assert "job 'default': 1 tasks" in capsys.readouterr().out
    with TaskDispatcher(url) as dispatcher:
        while (dispatch := dispatcher.get("w")).task.type != TaskType.NONE:
            dispatcher.report(*dispatch)
    assert main(arguments) == 0
    assert "job 'default' has ended (finished)" in capsys.readouterr().out


def test_records_per_task_is_positive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job_of(tmp_path, "--training_data=x", "--records_per_task=0")
    assert "--records_per_task: it is at least 1, not 0" in capsys.readouterr().err
