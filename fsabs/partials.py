"""Hidden files that local writes go to before they have their names, and what killed writers have left of them.

The name of such a file says which process writes it: a process that looks at a name of its own machine and namespace
of processes knows whether its writer is alive. A file of another machine, on a shared disk, is left alone for a week
after it was last written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from . import owners
from .files import PARTIAL_SUFFIX, is_partial

_NAME = re.compile(rf"\..*\.([0-9a-f]{{12}})-([0-9a-f]+)-[0-9a-f]{{8}}{re.escape(PARTIAL_SUFFIX)}", re.DOTALL)
_WEEK = 7 * 24 * 3600
_MOST_SECONDS = 0.1  # that one writer looks for what others have left: a folder may have millions of files
_MOST_FOLDERS = 10_000

_swept: set[str] = set()


def partial_path(folder: str, name: str) -> str:
    """Return the path of a hidden file beside `name` in `folder`, within the 255 bytes that a name may have."""
    writer = f"{owners.namespace()}-{os.getpid():x}-{os.urandom(4).hex()}"
    return f"{folder}/.{_short(name)}.{writer}{PARTIAL_SUFFIX}"


def _short(name: str) -> str:
    return name if len(name) <= 48 else name.encode("utf-8", "surrogateescape")[:190].decode("utf-8", "ignore")


def kept_path(folder: str, name: str, identity: str) -> str:
    """Return the path of a hidden file that is kept when its writer is killed, to be continued by the next writer.

    It is one for each content, by its identity, and for each start of this machine, whose loss of power may lose bytes
    in the middle of a file. No sweep removes it before a week.
    """
    import hashlib

    digest = hashlib.sha256(f"{identity} {owners.namespace()}".encode()).hexdigest()[:20]
    return f"{folder}/.{_short(name)}.{digest}.kept{PARTIAL_SUFFIX}"


def sweep_once(folder: str) -> None:
    """Sweep `folder` if this process hasn't looked at it yet."""
    if folder not in _swept:
        if len(_swept) >= _MOST_FOLDERS:
            _swept.clear()
        _swept.add(folder)
        with contextlib.suppress(OSError):  # what is wrong with the folder, the write itself will tell
            sweep(folder, _MOST_SECONDS)


def sweep(folder: str, seconds: float) -> int:
    """Remove what killed writers have left in `folder`, looking for it for so long at most; return the number."""
    deadline, removed = time.monotonic() + seconds, 0
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if entry.name[0] == "." and is_partial(entry.name) and _is_left(entry):
                with contextlib.suppress(OSError):
                    os.remove(entry.path)
                    removed += 1
            if number % 1000 == 999 and time.monotonic() > deadline:
                break
    return removed


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Return whether the writer of a hidden file is gone."""
    match = _NAME.fullmatch(entry.name)
    if match is not None and match[1] == owners.namespace():
        return not owners.is_running(int(match[2], 16))
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _WEEK
    except OSError:
        return False
