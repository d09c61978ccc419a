"""No process outlives a test run, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.guard import VARIABLE

pytestmark = pytest.mark.quick

RUN = """
import os, subprocess, sys, time
from tests.servers import guard
guard.start()
if not os.fork():  # a child that spins, as one does that has lost its parent
    os.setsid()
    while True: pass
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"])
print(os.environ[guard.VARIABLE], flush=True)
time.sleep({sleep})
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_no_process_outlives_a_run(how: signal.Signals | None) -> None:
    settings = {name: value for name, value in os.environ.items() if name != VARIABLE}
    code = RUN.format(sleep=600 if how else 0.2)
    with subprocess.Popen([sys.executable, "-c", code], env=settings, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        name = run.stdout.readline().strip()
        assert name.startswith("pipe:")
        if how:
            assert len(marked(name)) >= 4
            run.send_signal(how)
        run.wait(30)
        deadline = time.monotonic() + 20
        while (left := marked(name)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
