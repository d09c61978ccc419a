"""The temporary folder of a test process, on whose file system thousands of small files are made and removed.

ext4 without a journal takes no inode again that was freed in the last minute, and looks for another one from inode to
inode: after some tests this takes as much CPU time as the tests themselves. New folders in a folder that is marked as
the top of a hierarchy (`chattr +T`) are spread over the disk, each with inodes of its own.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from tests.servers import guard

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS of linux/fs.h
_TOP_OF_HIERARCHY = 0x00020000  # FS_TOPDIR_FL


def spread(folder: Path) -> None:
    """Have the file system spread what is made in `folder`, if it can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            flags = array.array("l", [0])
            fcntl.ioctl(descriptor, _GET_FLAGS, flags)
            flags[0] |= _TOP_OF_HIERARCHY
            fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    finally:
        os.close(descriptor)


def use() -> Path:
    """Make the temporary folder of this process and its children, in that of the run, with which it goes.

    pytest's own, `tmp_path`, stay where they are, since it keeps those of the last runs.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # Not in that of the parent: the paths of sockets are short.
    name = tempfile.mkdtemp(prefix="", dir=os.environ[guard.FOLDER])
    os.chmod(name, 0o711)  # PostgreSQL's server runs as another user
    spread(Path(name))
    os.environ["TMPDIR"] = tempfile.tempdir = name
    return Path(name)
