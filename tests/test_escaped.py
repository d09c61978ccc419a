"""A forked child that raises ends with its test, and the run goes on as if there had been none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = """
import os

def test_whose_child_raises():
    child = os.fork()
    if not child:
        raise OSError("in the child")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

def test_whose_child_returns():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70

def test_that_comes_later():
    with open(os.environ["NOTES"], "a") as file:
        file.write("once\\n")
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_child_never_runs_other_tests(workers: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_children.py").write_text(FILE)
    options = ["-q", "-p", "tests.escaped", "-p", "xdist", "-p", "no:cacheprovider", *workers]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to import
    environment = {**os.environ, **alone, "NOTES": str(tmp_path / "notes"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert (tmp_path / "notes").read_text() == "once\n"
