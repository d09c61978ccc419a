"""`fsabs tasks` on SQLite and PostgreSQL: each command's whole output, and what it changes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fsabs.cli import main
from fsabs.dispatch import JobFailedError, TaskDispatcher, TaskType
from tests.dispatch.conftest import url as url

SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def create(url: str, job: str = "default") -> TaskDispatcher:
    return TaskDispatcher.create(
        url, job, training=[("a", 0, 10)], records_per_task=4, max_failures=0, train_end_callback=False
    )


@SQLITE
def test_status(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with create(url) as job:
        task, lease = job.get("w1")
        job.report(task, lease)
        job.get("w2")
        assert main(["tasks", "status", url]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "job default: running, epoch 1 of 1",
            "tasks: 1 todo, 1 doing, 1 done, 0 failed; 4 records accounted for",
            "worker w2: 1 tasks",
        ]
        assert main(["tasks", "status", url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "job": "default",
            "state": "running",
            "epoch": 0,
            "num_epochs": 1,
            "tasks": {"todo": 1, "doing": 1, "done": 1, "failed": 0, "records": 4},
            "evaluation": {"todo": 0, "doing": 0, "done": 0, "failed": 0, "records": 0},
            "workers": {"w2": 1},
            "late": 0,
            "suspects": {},
        }


def test_failed_retry_and_watch(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with create(url) as job:
        with pytest.raises(JobFailedError):
            while (dispatch := job.get("w")).task.type == TaskType.TRAINING:
                bad = dispatch.task.start == 4
                job.report(*dispatch, success=not bad, error="no such\nfile" if bad else "")
        assert main(["tasks", "watch", url]) == 1
        assert capsys.readouterr().out == (
            "default: failed, epoch 1 of 1, 2 of 3 tasks done, 0 running, 1 failed, 0 workers\n"
        )
        assert main(["tasks", "failed", url]) == 0
        heading, row = capsys.readouterr().out.splitlines()
        assert heading.split() == ["task", "type", "epoch", "shard", "start", "end", "records", "failures", "reason"]
        assert row.split()[1:] == ["TRAINING", "0", "a", "4", "8", "0", "1", "no", "such", "file"]
        assert main(["tasks", "failed", url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["reason"] == "no such\nfile"
        assert main(["tasks", "retry", url]) == 0
        assert capsys.readouterr().out == "1 tasks put back\n"
        assert job.status().state == "running"
        assert job.report(*job.get("w"))
        assert job.get("w").task.type == TaskType.NONE
        assert main(["tasks", "watch", url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "finished"


@SQLITE
def test_reset_asks(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with create(url, "b") as job:
        job.report(*job.get("w"))
        answer, ask = os.pipe()
        os.write(ask, b"n\n")
        os.close(ask)
        with open(answer) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(["tasks", "reset", url, "--job", "b"]) == 1
        assert "Forget what job 'b' has done (4 records of epoch 0" in capsys.readouterr().err
        assert job.status().tasks.done == 1
        assert main(["tasks", "reset", url, "--job", "b", "--yes"]) == 0
        assert capsys.readouterr().out == "job 'b' begins again\n"
        assert job.status().tasks.todo == 3


@SQLITE
def test_another_job_is_refused_with_the_names_of_those_there(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    create(url, "b").close()
    assert main(["tasks", "status", url]) == 1
    assert "no job is called 'default'; there are 'b'" in capsys.readouterr().err


def test_a_terminal_has_one_line_that_is_redrawn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/job.db"
    parent, child = pty.openpty()
    with create(url) as job:
        command = [sys.executable, "-m", "fsabs", "tasks", "watch", url, "--interval", "0.05"]
        process = subprocess.Popen(command, stdout=child, stderr=child, env={**os.environ, "COLUMNS": "60"})
        os.close(child)
        shown = os.read(parent, 4096)
        _finish(job)
        with contextlib.suppress(OSError):  # the terminal has no process any more
            while True:
                shown += os.read(parent, 4096)
    assert process.wait(30) == 0
    os.close(parent)
    lines = shown.decode().split("\r")
    assert lines[1].startswith("default: running, epoch 1 of 1, 0 of 3 tasks done")
    assert any(line.startswith("default: finished, epoch 1 of 1, 3 of 3 tasks done") for line in lines)
    assert max(map(len, lines)) <= 60
    assert shown.decode().count("\n") == 1


def _finish(job: TaskDispatcher) -> list[bool]:
    accepted = []
    while (dispatch := job.get("w")).task.type == TaskType.TRAINING:
        accepted.append(job.report(*dispatch))
    return accepted
