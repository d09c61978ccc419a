"""Two users of one machine: what another user sees and does, in a process of its own. Needs root."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
ALICE, BOB = 54321, 54322
"""Ids of users and of their groups, which need no account."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


def as_user(user: int, function: Callable[[], T], groups: tuple[int, ...] = ()) -> T:
    """Return what `function()` returns in a child process of `user`; its exception is raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        result: tuple[bool, Any]
        try:
            os.close(reader)
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            os.environ["HOME"] = "/nonexistent"
            os.chdir("/")  # the working directory of the tests may be one that only root can enter
            tempfile.tempdir = "/tmp"  # that of the tests is root's
            result = (True, function())
        except BaseException as exc:
            exc.__traceback__ = None
            result = (False, exc)
        try:
            with open(writer, "wb") as file:
                pickle.dump(result, file)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(data)
    if not good:
        raise value
    return value  # type: ignore[no-any-return]


def shared_folder(mode: int = 0o1777) -> Path:
    """Return a new directory that all users can use, as `/tmp` is; it goes with the process of the tests.

    It is not in pytest's own folder, which each start of pytest closes to all other users.
    """
    folder = Path(tempfile.mkdtemp(prefix="shared-"))
    folder.chmod(mode)
    return folder


def access_list(user: int) -> bytes:
    """Return a POSIX access control list: owner and group may do all, `user` may read, others nothing."""
    none = 0xFFFFFFFF
    entries = ((0x01, 7, none), (0x02, 4, user), (0x04, 7, none), (0x10, 7, none), (0x20, 0, none))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
