"""No process and no folder outlives a test run that is killed, and a forked child runs no test of its parent's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.servers.guard import VARIABLE

ROOT = Path(__file__).parents[1]
RUN = """
import os, subprocess, sys, time
from tests.servers import guard
guard.start()
if not os.fork():  # a child that spins, as one does that has lost its parent
    os.setsid()
    while True: pass
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"])
print(os.environ[guard.VARIABLE], os.environ[guard.FOLDER], flush=True)
time.sleep(600)
"""
CHILDREN = """
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


def marked(name: str) -> list[int]:
    """Return the processes that carry the mark of a run, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [os.readlink(descriptor) for descriptor in (entry / "fd").iterdir()]
                if name in links or f"{VARIABLE}={name}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_nothing_outlives_a_run_that_is_killed() -> None:
    settings = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen([sys.executable, "-c", RUN], env=settings, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        name, folder = run.stdout.readline().split()
        assert name.startswith("pipe:")
        deadline = time.monotonic() + 40
        while len(marked(name)) < 5 and time.monotonic() < deadline:  # the run and its four: they are still starting
            time.sleep(0.05)
        run.kill()
    while ((left := marked(name)) or os.path.exists(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert not os.path.exists(folder)


def test_a_child_never_runs_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_children.py").write_text(CHILDREN)
    options = ["-q", "-p", "tests.escaped", "-p", "xdist", "-p", "no:cacheprovider", "-n", "1"]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to import
    environment = {**os.environ, **alone, "NOTES": str(tmp_path / "notes"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert (tmp_path / "notes").read_text() == "once\n"
