"""Mistakes, and the error that each is on every FS: one table for stores and for containers that are added to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from ..core.fs import FS, Capabilities

FILES = {"file": b"a file", "dir/inside": b"in a directory", "dir/deep/er": b"further down"}
"""The tree that the calls are made on."""


class ErrorCase(NamedTuple):
    """A call that fails, and how."""

    name: str
    call: Callable[[FS], object]
    code: int
    """The errno; the exception is the class that `OSError` makes of it."""
    path: str
    """What the error names."""
    needs: tuple[str, ...]
    """Capabilities."""
    objects: tuple[int, ...]
    """Other errnos on a store of objects, which has no directories to look at; 0 where the call is carried out."""

    @property
    def kind(self) -> type[OSError]:
        """The class of the exception."""
        return type(OSError(self.code, os.strerror(self.code)))


def _write(fs: FS, path: str) -> None:
    fs.write_bytes(path, b"x")


def _create(fs: FS, path: str) -> None:
    with fs.open(path, "xb") as file:
        file.write(b"x")


def _case(
    name: str, code: int, path: str, call: Callable[[FS, str], object], *needs: str, objects: tuple[int, ...] = ()
) -> ErrorCase:
    return ErrorCase(name, lambda fs: call(fs, path), code, path, needs, objects)


MISSING, DIRECTORY, FILE, EXISTS = errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST
CASES = [
    _case("read what is missing", MISSING, "missing", lambda fs, path: fs.read_bytes(path), "read"),
    _case("read below what is missing", MISSING, "missing/x", lambda fs, path: fs.open(path), "read"),
    _case("read a directory", DIRECTORY, "dir", lambda fs, path: fs.read_bytes(path), "read"),
    _case("read below a file", FILE, "file/x", lambda fs, path: fs.read_bytes(path), "read", objects=(MISSING,)),
    _case("list what is missing", MISSING, "missing", lambda fs, path: list(fs.list(path))),
    _case("list a file", FILE, "file", lambda fs, path: list(fs.list(path))),
    _case("list below a file", FILE, "file/x", lambda fs, path: list(fs.list(path)), objects=(MISSING,)),
    _case("stat what is missing", MISSING, "missing", lambda fs, path: fs.stat(path)),
    _case("stat below a file", FILE, "file/x", lambda fs, path: fs.stat(path), objects=(MISSING,)),
    _case("a path above the root", errno.EACCES, "../x", lambda fs, path: fs.stat(path)),
    _case("write onto a directory", DIRECTORY, "dir", _write, "write", objects=(0,)),
    _case("write below a file", FILE, "file/x", _write, "write", objects=(0,)),
    _case("write to the root", DIRECTORY, "", _write, "write"),
    _case("create what is there", EXISTS, "file", _create, "write", "exclusive"),
    _case("create onto a directory", DIRECTORY, "dir", _create, "write", objects=(0, EXISTS)),
    _case("make a directory of a file", EXISTS, "file", lambda fs, path: fs.mkdir(path), "mkdir"),
    _case("make a directory again", EXISTS, "dir", lambda fs, path: fs.mkdir(path), "mkdir"),
    _case("make a directory below a file", FILE, "file/x", lambda fs, path: fs.mkdir(path), "mkdir", objects=(0,)),
    _case("make directories of a file", EXISTS, "file", lambda fs, path: fs.makedirs(path, exist_ok=True), "mkdir"),
    _case("make directories again", EXISTS, "dir", lambda fs, path: fs.makedirs(path), "mkdir"),
    _case("remove what is missing", MISSING, "missing", lambda fs, path: fs.remove(path), "remove"),
    _case("remove below a file", FILE, "file/x", lambda fs, path: fs.remove(path), "remove", objects=(MISSING,)),
    _case("remove a directory as a file", DIRECTORY, "dir", lambda fs, path: fs.remove(path), "remove"),
    _case("remove a directory that is not empty", errno.ENOTEMPTY, "dir", lambda fs, path: fs.rmdir(path), "remove"),
    _case("remove a file as a directory", FILE, "file", lambda fs, path: fs.rmdir(path), "remove"),
    _case("remove a missing directory", MISSING, "missing", lambda fs, path: fs.rmdir(path), "remove"),
    _case("rename what is missing", MISSING, "missing", lambda fs, path: fs.rename(path, "new"), "rename"),
    _case("rename a file onto a directory", DIRECTORY, "dir", lambda fs, path: fs.rename("file", path), "rename"),
    _case("rename a directory onto a file", FILE, "file", lambda fs, path: fs.rename("dir", path), "rename"),
    _case("rename a directory into itself", errno.EINVAL, "dir/x", lambda fs, path: fs.rename("dir", path), "rename"),
    _case(
        "rename below a file", FILE, "file/x", lambda fs, path: fs.rename("dir/inside", path), "rename", objects=(0,)
    ),
    _case("copy what is missing", MISSING, "missing", lambda fs, path: fs.copy(path, "new"), "read", "write"),
    _case("copy a directory as a file", DIRECTORY, "dir", lambda fs, path: fs.copy(path, "new"), "read", "write"),
]


def cases_for(capabilities: Capabilities) -> list[ErrorCase]:
    """Return the cases whose calls an FS with these capabilities carries out."""
    return [case for case in CASES if all(getattr(capabilities, need) for need in case.needs)]
