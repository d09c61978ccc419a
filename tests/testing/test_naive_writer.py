"""A writer that knows nothing of forks is safe behind the files that FS makes of it; the kit finds where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fsabs.testing import LocalSubject, run

from . import naive

pytestmark = pytest.mark.quick


def test_a_child_that_ends_writes_nothing_of_its_parents(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.testing.naive", os.fspath(tmp_path)]
    subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[2])
    assert (tmp_path / "a.bin").read_bytes() == b"x" * 100 + b"y" * 10


def test_the_kit_holds_a_naive_writer_to_forks() -> None:
    with closing(LocalSubject(opener=naive.NaiveLocal)) as subject:
        report = run(
            subject, only=["whole-forked", "whole-exception", "whole-dropped", "copy", "copy-tree", "as-local"]
        )
    assert report.ok, str(report)


def test_the_kit_finds_a_naive_writer_that_nothing_protects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsabs.core.process.register", lambda holder, resource: None)
    with closing(LocalSubject(opener=naive.NaiveLocal)) as subject:
        report = run(subject, only=["whole-forked"])
    assert [failure.check.name for failure in report.failures] == ["a-child-has-no-part-in-its-parents-file"]
