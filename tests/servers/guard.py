"""A guard of one test run: kills every process that the run leaves and removes its folder, however the run ends.

`start()` makes the folder of the run, and marks this process: an environment variable that programs it starts inherit,
and an open pipe that forked children inherit. The guard is a process of its own that waits until the marked process has
ended (killed by SIGKILL included), and then kills every process that carries one of the two marks. Servers, spawned
workers and forked children of a run need no other arrangement. A run that is started in another one has both marks, and
a folder in the other one's: it ends with either.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

VARIABLE = "FSABS_TEST_RUN"
"""The marks of the runs that a process is part of, with commas between them."""
FOLDER = "FSABS_TEST_FOLDER"
"""The folder of the innermost of these runs."""
SWEEPS = 40
"""How often the guard looks for processes: one that is forked during a sweep is found by the next."""


def start() -> None:
    """Begin a run of this process and all that it starts."""
    outer = os.environ.get(FOLDER)  # names of sockets below it have room for 107 bytes, and Ray's are long
    folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="" if outer else "fsabs-", dir=outer)
    os.chmod(folder, 0o711)  # PostgreSQL's server runs as another user
    if sys.platform != "linux":
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return
    mark, _ = os.pipe()  # never read or written: its name is the mark
    os.set_inheritable(mark, False)  # forked children have it, programs have the variable
    name = os.readlink(f"/proc/self/fd/{mark}")
    command = [sys.executable, "-S", __file__, str(os.getpid()), name, folder]
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=silent, setsid=True)
    os.environ[VARIABLE] = ",".join(filter(None, (os.environ.get(VARIABLE), name)))


def main(pid: int, name: str, folder: str) -> None:
    """Wait for the end of process `pid`, kill what carries the mark `name`, and remove `folder`."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(pid)
        select.select([ended], [], [])
    for _ in range(SWEEPS):
        killed = [kill(int(entry.name)) for entry in Path("/proc").iterdir() if is_marked(entry, name)]
        if not any(killed):
            break
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def is_marked(process: Path, name: str) -> bool:
    """Return True if a process (its folder in /proc) inherited the mark from the run, and is not this guard."""
    if not process.name.isdigit() or int(process.name) == os.getpid():
        return False
    with contextlib.suppress(OSError):
        for setting in (process / "environ").read_bytes().decode(errors="replace").split("\0"):
            variable, _, marks = setting.partition("=")
            if variable == VARIABLE and name in marks.split(","):
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
    main(int(sys.argv[1]), *sys.argv[2:])
