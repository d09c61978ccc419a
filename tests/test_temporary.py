"""The temporary folder of a test process: its children have it, and it lies in the folder of the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import temporary
from tests.servers import guard

pytestmark = pytest.mark.quick
PROGRAM = """
import subprocess, sys, tempfile
from tests import temporary
print(temporary.use())
print(tempfile.mkdtemp(), flush=True)
subprocess.run([sys.executable, "-c", "import tempfile; print(tempfile.mkdtemp())"], check=True)
"""


def test_children_use_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    folder, *made = done.stdout.split()
    assert [str(Path(name).parent) for name in made] == [folder] * 2
    assert str(Path(folder).parent) == os.environ[guard.FOLDER]


def test_tests_use_it(tmp_path: Path) -> None:
    assert str(Path(tempfile.gettempdir()).parent) == os.environ[guard.FOLDER]
    assert Path(tempfile.gettempdir()) not in tmp_path.parents


def test_a_file_system_that_spreads_nothing_is_no_error() -> None:
    temporary.spread(Path("/proc/self"))
