"""Checks of errors: the right type, with errno, URL and operation, for each way to be wrong."""

from __future__ import annotations

import errno
import functools
import pickle
from collections.abc import Callable
from typing import Any

from ..backends.memory import Memory
from ..core.fs import FS
from . import expect
from .error_cases import FILES, cases_for
from .kit import check
from .subject import Subject
from .trees import TREE


def _reads(fs: FS) -> list[Callable[[str], Any]]:
    def open_binary(path: str) -> object:
        return fs.open(path, "rb")

    def open_text(path: str) -> object:
        return fs.open(path)

    def read_many(path: str) -> object:
        return list(fs.read_many([path]))

    def copy(path: str) -> None:
        fs.copy(path, "copied", Memory())

    return [open_binary, open_text, fs.read_bytes, read_many, copy]


def _calls(fs: FS) -> list[Callable[..., object]]:
    """The same, and asking and listing."""
    return [*_reads(fs), fs.stat, fs.list]


@check("error-missing", "error-attributes")
def what_is_missing(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("no such", "foo/no such", "no/such/path", "fo", "foo/inside.tx", "a.txt.gz"):
            for call in _calls(fs):
                expect.os_error(FileNotFoundError, errno.ENOENT, (fs, path), call, path)
            asked = (fs.exists(path), fs.isdir(path), fs.isfile(path))
            expect.equal(asked, (False, False, False), f"exists, isdir and isfile of {path!r}, which is not there")
            expect.equal(list(fs.glob(path)), [], f"glob({path!r})")


@check("error-directory", "error-attributes")
def what_is_a_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("foo", "foo/", "foo/deep", ".hidden-dir", "", "."):
            for call in _reads(fs):
                expect.os_error(IsADirectoryError, errno.EISDIR, (fs, path), call, path)


@check("error-file", "error-attributes")
def what_is_a_file(subject: Subject) -> None:
    """Below a file there is nothing; a store without directories can't always tell that a file is in the way."""
    implied = subject.capabilities.implied_directories
    kinds = (NotADirectoryError, FileNotFoundError) if implied else NotADirectoryError
    codes = (errno.ENOTDIR, errno.ENOENT) if implied else errno.ENOTDIR
    with subject.make(TREE) as fs:
        expect.os_error(NotADirectoryError, errno.ENOTDIR, (fs, "a.txt"), functools.partial(fs.list), "a.txt")
        for path in ("a.txt/below", "foo/inside.txt/far/below"):
            for call in _calls(fs):
                expect.os_error(kinds, codes, (fs, path), call, path)
            asked = (fs.exists(path), fs.isdir(path), fs.isfile(path))
            expect.equal(asked, (False, False, False), f"exists, isdir and isfile of {path!r}, below a file")


@check("error-attributes")
def errors_travel_between_processes(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        calls: tuple[tuple[Callable[..., object], str], ...] = (
            (fs.read_bytes, "no such"),
            (fs.read_bytes, "foo"),
            (fs.list, "a.txt"),
            (fs.stat, "../x"),
        )
        for call, path in calls:
            exc = expect.raises(OSError, f"{call.__name__}({path!r})", call, path)
            again = pickle.loads(pickle.dumps(exc))
            expect.equal(type(again), type(exc), "the type of a pickled error")
            mine = (exc.errno, exc.filename, exc.operation)  # type: ignore[attr-defined]
            theirs = (again.errno, again.filename, again.operation)
            expect.equal(theirs, mine, "errno, filename and operation of a pickled error")
            expect.true(exc.filename in str(exc), f"the message names the URL: {exc}")


@check("error-attributes")
def errors_in_a_subfs_name_the_whole_url(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        whole = fs.url("foo/no such")
        for call in _calls(sub):
            expect.os_error(FileNotFoundError, errno.ENOENT, [whole], call, "no such")
        fs.cwd = "foo"
        for call in _calls(fs):
            expect.os_error(FileNotFoundError, errno.ENOENT, [whole], call, "no such")


@check("error-missing", "error-directory", "error-file", "error-attributes")
def the_same_mistake_is_the_same_error(subject: Subject) -> None:
    """What a store of objects would need one more request to see may pass there, as the table says."""
    objects = subject.capabilities.implied_directories and subject.live
    fs: FS | None = subject.make(FILES)
    assert fs is not None
    for case in cases_for(fs.capabilities):
        fs = fs or subject.make(FILES)
        codes = {case.code, *(case.objects if objects else ())}
        try:
            case.call(fs)
        except OSError as exc:
            expect.true(exc.errno in codes, f"the errno, to {case.name}, is {exc.errno} and not of {codes}")
            expect.equal(type(exc), type(OSError(exc.errno, "")), f"the error, to {case.name}")
            expect.true(exc.filename, f"the error names a URL, to {case.name}")
        else:
            expect.true(0 in codes, f"to {case.name} is refused")
            fs.close()
            fs = None
    if fs is not None:
        fs.close()
