"""How `make test` runs: what hangs ends with its stacks, and the run goes on; a run that is killed leaves nothing."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.guard import VARIABLE
from tests.test_guard import left_by

pytestmark = pytest.mark.timeout(180)  # each starts a run of its own, with two processes
ROOT = Path(__file__).parents[1]

HANGS = """
import ctypes, signal

def test_before():
    pass

def test_that_no_signal_reaches():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.PyDLL(None).sleep(600)  # with the interpreter's lock

def test_after():
    pass
"""

WAITS = """
import os, pathlib, subprocess, sys, time

import pytest
from tests.servers import guard

@pytest.mark.parametrize("number", range(2))
def test_with_children(number):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if not os.fork():
        os.setsid()
        time.sleep(600)
    pathlib.Path(os.environ["NOTES"], str(number)).write_text(os.environ[guard.VARIABLE])
    time.sleep(600)
"""


def command(folder: Path, *options: str) -> list[str]:
    """Return the command that runs the tests of a folder as those of this repository are run."""
    of_ours = ["-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *of_ours, "-n", "2", "--dist", "worksteal", *options, str(folder)]


def test_what_hangs_ends_with_its_stacks_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS)
    line = command(tmp_path, "-o", "faulthandler_timeout=3", "--timeout=1")
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 1, output
    assert "1 failed, 2 passed" in output
    assert "crashed while running" in output
    assert "in test_that_no_signal_reaches" in output  # of the stack


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITS)
    notes = tmp_path / "notes"
    notes.mkdir()
    settings = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"NOTES": str(notes)}
    line, output = command(tmp_path), subprocess.DEVNULL
    with subprocess.Popen(line, env=settings, cwd=ROOT, stdout=output, stderr=output, process_group=0) as run:
        try:
            deadline = time.monotonic() + 100
            while len(marks := [path.read_text() for path in notes.iterdir()]) < 2 or "" in marks:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            send = run.send_signal if how == signal.SIGKILL else functools.partial(os.killpg, run.pid)
            send(how)  # to the group, as a terminal does
            try:
                run.wait(40)
            except subprocess.TimeoutExpired:  # Python ignores what a finalizer raises, and so an interrupt in one:
                run.kill()  # as who waits for it will do
                run.wait(10)
        finally:
            run.kill()
    assert len(set(marks)) == 1, "one guard watches the whole run"
    assert not left_by(marks[0])
