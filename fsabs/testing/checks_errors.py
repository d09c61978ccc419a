"""Checks of errors: the right type, with errno, URL and operation, for each way to be wrong.

`FILES` and `cases_for` are one table of mistakes, for stores and for containers that are added to.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from errno import EISDIR, ENOENT, ENOTDIR
from typing import NamedTuple

from ..backends.memory import Memory
from ..core.fs import FS, Capabilities
from .asserts import assert_error, assert_named, assert_raises
from .kit import check
from .subjects import Subject
from .trees import TREE

FILES = {"file": b"a file", "dir/inside": b"in a directory", "dir/deep/er": b"further down"}
"""The tree that the calls are made on."""


class ErrorCase(NamedTuple):
    """A call that fails, and how."""

    name: str
    call: Callable[[FS], object]
    code: int
    """The errno; the exception is the class that `OSError` makes of it."""
    path: str
    """The file that the error names."""
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


def _reads(fs: FS) -> list[Callable[[str], object]]:
    return [
        fs.open,
        lambda path: fs.open(path, "rb"),
        fs.read_bytes,
        lambda path: list(fs.read_many([path])),
        lambda path: fs.copy(path, "copied", Memory()),
    ]


def _assert_absent(fs: FS, path: str, codes: tuple[int, ...], url: str | None = None) -> None:
    calls: list[Callable[[str], object]] = [*_reads(fs), fs.stat, fs.list]
    for call in calls:
        assert_error(codes, url or fs.url(path), call, path)
    assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (False, False, False)
    assert list(fs.glob(path)) == []


@check("error-missing", "error-attributes")
def what_is_missing(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("no such", "foo/no such", "no/such/path", "fo", "foo/inside.tx", "a.txt.gz"):
            _assert_absent(fs, path, (ENOENT,))


@check("error-directory", "error-attributes")
def what_is_a_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("foo", "foo/", "foo/deep", ".hidden-dir", "", "."):
            for call in _reads(fs):
                assert_error(EISDIR, fs.url(path), call, path)


@check("error-file", "error-attributes")
def what_is_a_file(subject: Subject) -> None:
    """Below a file there is nothing; a store without directories can't always tell that a file is in the way."""
    codes = (ENOTDIR, ENOENT) if subject.capabilities.implied_directories else (ENOTDIR,)
    with subject.make(TREE) as fs:
        assert_error(ENOTDIR, fs.url("a.txt"), fs.list, "a.txt")
        for path in ("a.txt/below", "foo/inside.txt/far/below"):
            _assert_absent(fs, path, codes)


@check("error-attributes")
def errors_travel_between_processes(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for call, path in ((fs.read_bytes, "no such"), (fs.read_bytes, "foo"), (fs.list, "a.txt"), (fs.stat, "../x")):
            exc = assert_raises(OSError, call, path)
            again = pickle.loads(pickle.dumps(exc))
            assert type(again) is type(exc)
            assert vars(again) == vars(exc)
            assert (again.errno, again.filename) == (exc.errno, exc.filename)
            assert exc.filename in str(exc)


@check("error-attributes")
def errors_in_a_subfs_name_the_whole_url(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        whole = fs.url("foo/no such")
        _assert_absent(fs.subfs("foo"), "no such", (ENOENT,), whole)
        fs.cwd = "foo"
        _assert_absent(fs, "no such", (ENOENT,), whole)


@check("error-missing", "error-directory", "error-file", "error-attributes")
def the_same_mistake_is_the_same_error(subject: Subject) -> None:
    """What a store of objects would need one more request to see may pass there, as the table says."""
    objects = subject.capabilities.implied_directories and subject.live
    fs = subject.make(FILES)
    for case in cases_for(fs.capabilities):
        codes = {case.code, *(case.objects if objects else ())}
        try:
            case.call(fs)
        except OSError as exc:
            found: OSError | None = exc
        else:
            found = None
            fs.close()
            fs = subject.make(FILES)
        assert (found.errno if found else 0) in codes, f"{case.name}: {found!r}, and not {codes}"
        if found:
            assert_named(found)
    fs.close()
