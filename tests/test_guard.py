"""No process outlives a test run, and no folder, however the run ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import soak
from tests.servers.guard import VARIABLE

pytestmark = pytest.mark.quick
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
time.sleep({sleep})
"""


def marked(name: str) -> list[int]:
    """Return the processes that carry the mark of a run, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                links = [os.readlink(descriptor) for descriptor in (entry / "fd").iterdir()]
                settings = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                marks = next((one for one in settings if one.startswith(f"{VARIABLE}=")), "")
                if name in links or name in marks.partition("=")[2].split(","):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_outlives_a_run(how: signal.Signals | None) -> None:
    settings = {name: value for name, value in os.environ.items() if name != VARIABLE}
    code = RUN.format(sleep=600 if how else 0.2)
    with subprocess.Popen([sys.executable, "-c", code], env=settings, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        name, folder = run.stdout.readline().split()
        assert name.startswith("pipe:")
        assert Path(folder).is_dir()
        try:
            deadline = time.monotonic() + 20
            while how and len(marked(name)) < 4:  # they are still starting
                assert time.monotonic() < deadline, marked(name)
                time.sleep(0.05)
            if how:
                run.send_signal(how)
            run.wait(30)
            assert not left_by(name)
            assert_removed(folder)
        finally:
            run.kill()


@pytest.mark.soak
def test_no_process_outlives_a_soak(tmp_path: Path) -> None:
    """The soak is killed at random moments, with a test under way that has children of its own."""
    dice, times = random.Random(soak.seed(1)), soak.rounds(1)
    settings = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "FSABS_SOAK_COUNTS")}
    settings |= {"SOAK_STATE": str(tmp_path / "state"), "SOAK_MINUTES": "1"}
    command = [sys.executable, "-u", "-m", "tests.soak", "tests/test_interrupts.py", "-k", "local or memory"]
    for number in range(times):
        with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
            assert run.stdout is not None
            name = run.stdout.readline().rpartition(" ")[2].strip()
            assert name.startswith("pipe:")
            time.sleep(dice.uniform(0, 4))
            run.send_signal(dice.choice([signal.SIGKILL, signal.SIGTERM]))
            run.wait(30)
        assert not left_by(name), f"run {number}"
    soak.count("kills of a soak", times)


def assert_removed(folder: str) -> None:
    """Fail if the folder of a run is there 20 seconds after its end."""
    deadline = time.monotonic() + 20
    while os.path.exists(folder):
        assert time.monotonic() < deadline, os.listdir(folder)
        time.sleep(0.05)


def left_by(name: str) -> list[int]:
    """Return the processes of a run that are there 20 seconds after its end, and kill them."""
    deadline = time.monotonic() + 20
    while (left := marked(name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left
