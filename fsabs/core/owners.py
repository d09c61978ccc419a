"""The names of processes in files that outlive them: another process of the machine can find out whether the owner of
such a file has ended.

An owner is written `NAMESPACE-PID-START`: the machine since it was booted, with its namespace of processes; and the
process's id and time of start, since ids are used again.
"""

from __future__ import annotations

import functools
import os

from . import process

PATTERN = "[0-9a-f]{12}-[0-9a-f]+-[0-9a-f]*"
"""A regular expression that matches owners."""


def namespace() -> str:
    """Return 12 digits that tell the process ids of this machine, since it was booted, from those of others."""
    return _namespace(process.generation())


@functools.cache
def _namespace(generation: int) -> str:
    import hashlib
    import socket

    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            found = f"{socket.gethostname()} {file.read()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no /proc: nothing is known of other processes
        found = os.urandom(8).hex()
    return hashlib.sha256(found.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def this_process() -> str:
    """Return this process as an owner."""
    return f"{namespace()}-{os.getpid():x}-{_state_and_start(os.getpid())[1]:x}"


def has_ended(owner: str) -> bool | None:
    """Return whether a process has ended; None if that can't be known here, as of one of another machine."""
    where, pid, start = owner.split("-")
    if where != namespace():
        return None
    if not is_running(int(pid, 16)):
        return True
    state, started = _state_and_start(int(pid, 16))
    known = int(start or "0", 16)  # 0 where it could not be found out
    return state in ("Z", "X") or (known != started and 0 not in (known, started))


def is_running(pid: int) -> bool:
    """Return whether there is a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _state_and_start(pid: int) -> tuple[str, int]:
    """Return the state of a process, and when it was started, in the kernel's ticks; `""` and 0 if that is not known.

    See proc(5), /proc/pid/stat: fields 3 and 22.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", 0
