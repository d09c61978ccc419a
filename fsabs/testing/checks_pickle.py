"""Checks of pickling, and of processes that start from a pickle: `spawn` and `forkserver`."""

from __future__ import annotations

import pickle
from typing import IO, Any

from ..core.fs import FS
from .asserts import assert_raises, assert_same, assert_tree
from .checks_fork import DATA, FILES, LINES, HalfUsed, same_rest
from .children import started
from .kit import check
from .subjects import Subject
from .trees import TREE


def _again(thing: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(thing, protocol))


@check("pickle-fs")
def an_fs_pickles(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again: FS = _again(fs, protocol)
            with again:
                assert type(again) is type(fs)
                assert (again.url(), again.cwd) == (fs.url(), fs.cwd)
                assert again.capabilities == fs.capabilities
                assert again.read_bytes("foo/inside.txt") == TREE["foo/inside.txt"]
        used: FS = _again(fs)
        with used:
            assert_tree(used, TREE)
        assert_tree(fs, TREE)


@check("pickle-fs", "path-jail")
def a_pickle_keeps_root_and_cwd(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        sub.cwd = "deep"
        again: FS = _again(sub)
        assert again.cwd == sub.cwd
        assert again.read_bytes("second.txt") == b"2"
        assert again.read_bytes("../inside.txt") == TREE["foo/inside.txt"]
        assert_raises(PermissionError, again.read_bytes, "../../a.txt")
        fs.cwd = "foo"
        with _again(fs) as moved:
            found = moved.read_bytes("inside.txt")
            assert found == TREE["foo/inside.txt"]
            assert moved.read_bytes("../a.txt") == TREE["a.txt"]


@check("pickle-fs", needs=("live", "write"))
def an_unpickled_fs_writes(subject: Subject) -> None:
    with subject.make({}) as fs, _again(fs) as again:
        again.write_bytes("a.txt", b"through the copy")
        reader = again if fs.capabilities.commits else fs
        assert reader.read_bytes("a.txt") == b"through the copy"
    assert_same(subject.files(fs), {"a.txt": b"through the copy"})


@check("pickle-reader")
def open_readers_pickle_with_their_position(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        with fs.open("data.bin", "rb", 5000) as file:
            file.read(1234)
            again: IO[bytes] = _again(file)
            with again:
                assert again.tell() == 1234
                assert again.name == file.name
                assert_same(again.read(), DATA[1234:])
            assert_same(file.read(), DATA[1234:])
        for start in (_read_line, next):
            with fs.open("lines.txt", encoding="utf-8") as text:
                assert [start(text), start(text)] == LINES[:2]
                copy: IO[str] = _again(text)
                with copy:
                    assert list(copy) == LINES[2:], f"the rest of an unpickled text, begun by {start.__name__}"
                assert list(text) == LINES[2:], f"the rest of a text that was pickled, begun by {start.__name__}"
        assert_raises(ValueError, pickle.dumps, file)


def _read_line(text: IO[str]) -> str:
    return text.readline()


@check("pickle-iterator")
def half_used_iterators_pickle(subject: Subject) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)
        again: HalfUsed = _again(half)
        same_rest(again.rest(), "a pickle's copy")
        same_rest(half.rest(), "what was pickled")
        again.close()
        half.close()
        for name, iterator in _again(half.iterators).items():
            assert list(iterator) == [], f"what is left of a used-up {name}, unpickled"


def _elsewhere(half: HalfUsed) -> dict[str, Any]:
    assert_tree(half.fs, FILES)
    rest = half.rest()
    half.close()
    return rest


@check("pickle-process", needs=("read", "shared"), slow=True, processes=("spawn",))
def spawned_processes_go_on(subject: Subject) -> None:
    _go_on(subject, "spawn")


@check("pickle-process", needs=("read", "shared"), slow=True, processes=("forkserver",))
def processes_of_a_forkserver_go_on(subject: Subject) -> None:
    _go_on(subject, "forkserver")


def _go_on(subject: Subject, method: str) -> None:
    with subject.make(FILES) as fs:
        half = HalfUsed(fs)
        rest = started(method, f"a process started by {method}", _elsewhere, (half,), subject.timeout + 20)
        same_rest(rest, f"a process started by {method}")
        same_rest(half.rest(), f"the parent of a process started by {method}")
        half.close()
