"""A system that lacks what only Linux has, as macOS does: `hide()` takes these names from the standard library.

`FSABS_TESTS_HIDE=1` in the environment runs tests so; laptops of those who train are Macs.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import select
import shutil
import socket
import tempfile
from types import ModuleType

NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise", "memfd_create", "eventfd"),
        *("copy_file_range", "splice", "pidfd_open", "getxattr", "setxattr", "listxattr", "removexattr"),
        *("O_TMPFILE", "O_PATH", "O_DIRECT", "MFD_CLOEXEC"),
    ),
    fcntl: ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK", "F_ADD_SEALS", "F_GET_SEALS", "F_GETPIPE_SZ", "F_SETPIPE_SZ"),
    socket: ("TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_CORK", "SO_BINDTODEVICE"),
    resource: ("RUSAGE_THREAD", "prlimit"),
    select: ("epoll",),
    mmap: ("MADV_HUGEPAGE", "MADV_DONTFORK", "MADV_POPULATE_READ"),
}


def hide() -> None:
    """Take the names away, in this process."""
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    shutil._copyxattr = lambda *_, **__: None  # type: ignore[attr-defined]  # as shutil has it there
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
