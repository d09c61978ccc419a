"""A guard of one test run: kills every process that the run leaves, however the run ends.

`start()` marks this process: an environment variable that programs it starts inherit, and an open pipe that forked
children inherit. The guard is a process of its own that waits until the marked process has ended (killed by SIGKILL
included), and then kills every process that carries one of the two marks. Servers, spawned workers and forked children
of a run need no other arrangement.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

VARIABLE = "FSABS_TEST_RUN"
SWEEPS = 40
"""How often the guard looks for processes: one that is forked during a sweep is found by the next."""


def start() -> None:
    """Start a guard of this process, unless it is itself part of a guarded run."""
    if VARIABLE in os.environ or not hasattr(os, "pidfd_open"):
        return
    mark, _ = os.pipe()  # never read or written: its name is the mark
    os.set_inheritable(mark, False)  # forked children have it, programs have the variable
    name = os.readlink(f"/proc/self/fd/{mark}")
    command = [sys.executable, "-S", __file__, str(os.getpid()), name]
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=silent, setsid=True)
    os.environ[VARIABLE] = name


def main(pid: int, name: str) -> None:
    """Wait for the end of process `pid`, and kill what carries the mark `name`."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(pid)
        select.select([ended], [], [])
    for _ in range(SWEEPS):
        killed = [kill(int(entry.name)) for entry in Path("/proc").iterdir() if is_marked(entry, name)]
        if not any(killed):
            return
        time.sleep(0.02)


def is_marked(process: Path, name: str) -> bool:
    """Return True if a process (its folder in /proc) inherited the mark from the run, and is not this guard."""
    if not process.name.isdigit() or int(process.name) == os.getpid():
        return False
    with contextlib.suppress(OSError):
        if f"{VARIABLE}={name}".encode() in (process / "environ").read_bytes().split(b"\0"):
            return True
        return any(os.readlink(descriptor) == name for descriptor in (process / "fd").iterdir())
    return False


def kill(pid: int) -> bool:
    """Kill a process; return False if it has ended."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
