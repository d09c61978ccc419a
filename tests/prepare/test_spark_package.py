"""The package as executors of Spark import it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.prepare.spark import ship_package, write_package

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


def test_a_package_whose_writing_was_interrupted_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        applicationId = uuid.uuid4().hex  # noqa: N815 - Spark's name

        def addPyFile(self, path: str) -> None:  # noqa: N802
            sent.append(path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    sent: list[str] = []
    context: Any = Context()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(zipfile.ZipFile, "writestr", interrupted)
        ship_package(context)
    ship_package(context)
    assert len(sent) == 1
    with zipfile.ZipFile(sent[0]) as archive:
        assert archive.testzip() is None
