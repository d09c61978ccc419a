"""Checks of errors: the right type, with errno, URL and operation, for each way to be wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from errno import EISDIR, ENOENT, ENOTDIR

from ..backends.memory import Memory
from ..core.fs import FS
from .asserts import assert_error, assert_named, assert_raises
from .error_cases import FILES, cases_for
from .kit import check
from .subjects import Subject
from .trees import TREE


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
        assert (found.errno if found else 0) in codes, case.name
        if found:
            assert_named(found)
    fs.close()
