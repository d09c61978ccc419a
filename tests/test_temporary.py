"""The temporary folder of a test process: its children have it, and it goes with the process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import temporary

pytestmark = pytest.mark.quick
PROGRAM = """
import pathlib, subprocess, sys, tempfile
from tests import temporary
folder = temporary.use()
(folder / "file").write_bytes(b"x")
print(folder)
print(tempfile.mkdtemp(), flush=True)
subprocess.run([sys.executable, "-c", "import tempfile; print(tempfile.mkdtemp())"], check=True)
"""


def test_it_is_used_and_removed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    folder, *made = done.stdout.split()
    assert [str(Path(name).parent) for name in made] == [folder] * 2
    assert not Path(folder).exists()


def test_tests_use_it(tmp_path: Path) -> None:
    assert Path(tempfile.gettempdir()).name.startswith("fsabs-tests-")
    assert Path(tempfile.gettempdir()) not in tmp_path.parents


def test_a_file_system_that_spreads_nothing_is_no_error() -> None:
    temporary.spread(Path("/proc/self"))
