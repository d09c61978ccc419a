"""The package as executors of Spark import it, and what needs no Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fsabs
from fsabs.prepare.spark import SparkRunner, ship_package, write_package

PROGRAM = "import fsabs, fsabs.prepare.work as work; print(fsabs.__version__, work.__file__)"


def imported(archive: Path, tmp_path: Path) -> tuple[str, str]:
    """Return the version and the file of a module, imported from an archive by a new interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True, timeout=60
    )
    version, file = done.stdout.split()
    return version, file


def test_executors_import_compiled_modules_of_their_own_version_only(tmp_path: Path) -> None:
    archive, other = tmp_path / "a.zip", tmp_path / "b.zip"
    write_package(str(archive))
    assert imported(archive, tmp_path) == (fsabs.__version__, f"{archive}/fsabs/prepare/work.pyc")
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(other, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            target.writestr(info, b"\0\0\r\n" + data[4:] if info.filename.endswith(".pyc") else data)
    assert imported(other, tmp_path) == (fsabs.__version__, f"{other}/fsabs/prepare/work.py")


class Context:
    """Of an application, of which one job runs until its group is cancelled."""

    master = "local[1]"

    def __init__(self) -> None:
        self.applicationId = uuid.uuid4().hex
        self.sent: list[str] = []
        self.waited_for, self.cancelled = threading.Event(), threading.Event()

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's names, here and below
        self.sent.append(path)

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802
        pass

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.set()

    def parallelize(self, *_: object) -> Context:
        return self

    def foreachPartition(self, *_: object) -> None:  # noqa: N802
        self.waited_for.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        self.cancelled.wait(10)


def test_ctrl_c_cancels_the_job_in_the_session_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark.sql")
    context = Context()
    monkeypatch.setattr(pyspark.SparkSession, "getActiveSession", lambda: SimpleNamespace(sparkContext=context))

    def done_units() -> set[int]:
        context.waited_for.set()
        return set()

    output: Any = SimpleNamespace(url="file:///out", done_units=done_units, failed=lambda: None)
    job: Any = SimpleNamespace(output=None, roots=())
    with pytest.raises(KeyboardInterrupt):
        list(SparkRunner(output, None, None).run(job, []))
    assert context.cancelled.is_set()


def test_a_package_whose_writing_was_interrupted_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    earlier: Any = Context()
    ship_package(earlier)
    Path(earlier.sent[0]).unlink()
    context: Any = Context()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(zipfile.ZipFile, "writestr", interrupted)
        ship_package(context)
    ship_package(context)
    assert len(context.sent) == 1
    with zipfile.ZipFile(context.sent[0]) as archive:
        assert archive.testzip() is None
