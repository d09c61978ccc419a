"""Checks that a written file is whole or not at all, whatever becomes of who writes it."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from errno import EBUSY, ENOENT, ESTALE
from typing import IO, Any

import pytest

from ..core.errors import StaleFileError
from ..core.fs import FS
from .asserts import Interruption, assert_error, assert_named, assert_raises, assert_same, assert_tree
from .children import forked, started
from .kit import check
from .subjects import Subject
from .trees import noise

_DATA = noise(3_000_001)
_OLD = {"old.txt": b"old"}


@check("whole-exception", needs=("write",))
def an_exception_leaves_nothing(subject: Subject) -> None:
    _raise_while_writing(subject, subject.create(), "lost.bin", {}, ("wb", "w", "xb"))


@check("whole-exception", needs=("live", "write", "replace"))
def an_exception_leaves_the_old(subject: Subject) -> None:
    _raise_while_writing(subject, subject.make(_OLD), "old.txt", _OLD, ("wb", "w"))


def _raise_while_writing(subject: Subject, fs: FS, path: str, before: dict[str, bytes], modes: tuple[str, ...]) -> None:
    with fs:
        for mode in modes:
            for data in (_DATA, b"small") if "b" in mode else ("text " * 500_000,):
                with pytest.raises(Interruption), fs.open(path, mode) as file:
                    file.write(data)
                    file.flush()
                    raise Interruption
                if subject.live:
                    assert_same(subject.contents(fs), before)
                    assert_tree(fs, before)
        fs.write_bytes("kept.bin", _DATA)
    assert_same(subject.contents(fs), {**before, "kept.bin": _DATA})


@check("whole-invisible", needs=("live", "write"))
def nothing_is_seen_before_close(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        with fs.open("new.bin", "wb") as file:
            for _ in range(3):
                assert_tree(fs, _OLD)
                assert_same(subject.files(fs), _OLD)
                file.write(_DATA)
                file.flush()
        assert_tree(fs, {**_OLD, "new.bin": 3 * _DATA})
    assert_same(subject.contents(fs), {**_OLD, "new.bin": 3 * _DATA})


@check("whole-replace", needs=("live", "write", "replace"))
def the_old_is_there_until_close_and_the_last_close_wins(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        one, other = fs.open("old.txt", "wb"), fs.open("old.txt", "wb")
        one.write(_DATA)
        one.flush()
        other.write(b"other")
        assert_tree(fs, _OLD)
        one.write(_DATA)
        other.close()
        assert_tree(fs, {"old.txt": b"other"})
        one.close()
        assert_tree(fs, {"old.txt": 2 * _DATA})
    assert_same(subject.contents(fs), {"old.txt": 2 * _DATA})


@check("fresh-reader", needs=("live", "write", "replace"))
def a_reader_never_mixes(subject: Subject) -> None:
    old, new = noise(1_000_000, 1), noise(1_000_000, 2)
    with subject.make({"a.bin": old}) as fs:
        with fs.open("a.bin", "rb", 4096) as early, fs.open("a.bin", "rb", 4096) as late:
            assert_same(early.read(100_000), old[:100_000])
            fs.write_bytes("a.bin", new)
            _assert_rest_or_error(early, old[100_000:], fs.url("a.bin"), (ESTALE,))
            _assert_rest_or_error(late, old, fs.url("a.bin"), (ESTALE,))
        assert_same(fs.read_bytes("a.bin"), new)


@check("fresh-reader", needs=("live", "write", "replace", "remove", "rename"))
def a_version_is_of_one_content(subject: Subject) -> None:
    old, new = noise(1_000_000, 1), noise(1_000_000, 2)
    for moved in (True, False):
        with subject.make({"a.bin": old, "b.bin": new}) as fs, fs.open("a.bin", "rb", 4096) as reader:
            assert_same(reader.read(100_000), old[:100_000])
            if moved:
                fs.rename("b.bin", "a.bin")
            else:
                fs.remove("a.bin")
                fs.write_bytes("a.bin", new)
            _assert_rest_or_error(reader, old[100_000:], fs.url("a.bin"), (ESTALE,))


@check("fresh-reader", needs=("live", "write", "remove"))
def a_reader_of_a_removed_file(subject: Subject) -> None:
    data = noise(1_000_000)
    with subject.make({"a.bin": data}) as fs, fs.open("a.bin", "rb", 4096) as reader:
        assert_same(reader.read(100_000), data[:100_000])
        fs.remove("a.bin")
        _assert_rest_or_error(reader, data[100_000:], fs.url("a.bin"), (ESTALE, ENOENT))


def _assert_rest_or_error(reader: IO[bytes], rest: bytes, url: str, codes: tuple[int, ...]) -> None:
    try:
        found = reader.read()
    except OSError as exc:
        assert_named(exc)
        right_type = exc.errno != ESTALE or isinstance(exc, StaleFileError)
        if exc.errno not in codes or exc.filename != url or not right_type:
            raise
    else:
        assert_same(found, rest)


@check("whole-dropped", needs=("write",))
def a_file_that_was_not_closed_is_dropped(subject: Subject) -> None:
    fs = subject.create()
    for mode, data in (("wb", _DATA), ("w", "text")):
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            file = fs.open("lost.bin", mode)
            file.write(data)
            file.flush()
            del file
            gc.collect()
        assert printed.getvalue() == f"fsabs: never closed, so not written: {fs.url('lost.bin')}\n"
        if subject.live:
            assert_same(subject.contents(fs), {})
    fs.write_bytes("kept.bin", b"kept")
    if subject.live:
        fs.close()
        assert subject.files(fs) == {"kept.bin": b"kept"}
    else:
        assert assert_raises(OSError, fs.close).errno == EBUSY


@check("close-raises", needs=("live", "write", "remove", "not implied_directories"))
def close_raises_what_went_wrong(subject: Subject) -> None:
    with subject.make({**_OLD, "gone/x": b"x"}) as fs:
        files: list[IO[Any]] = [fs.open("gone/new.bin", "wb"), fs.open("gone/new.txt", "w")]
        files[0].write(_DATA)
        files[1].write("text")
        fs.remove("gone", recursive=True)
        for file, name in zip(files, ("gone/new.bin", "gone/new.txt"), strict=True):
            assert_error(ENOENT, fs.url(name), file.close)
            assert file.closed
            file.close()
        assert_tree(fs, _OLD)
    assert_same(subject.contents(fs), _OLD)


def _write_at_once(file: IO[bytes]) -> None:
    file.write(b"the child's")
    file.flush()


@check("whole-forked", needs=("write",), start_methods=("fork",))
def a_child_has_no_part_in_its_parents_file(subject: Subject) -> None:
    with subject.create() as fs:
        file, text = fs.open("a.bin", "wb"), fs.open("a.txt", "w")
        file.write(_DATA)
        file.write(b"little")
        file.flush()  # a writer may buffer what it is given: the child's copy of that is nothing to be written, either
        text.write("the parent's")

        def child() -> None:
            text.close()
            assert_raises(OSError, _write_at_once, file)
            assert_raises(OSError, file.close)

        def dropping() -> None:
            nonlocal file, text
            del file, text
            gc.collect()

        forked("a child with its parent's written file", [child, dropping], subject.timeout)
        if subject.live:
            assert_same(subject.files(fs), {})
        file.write(b"the parent's")
        file.close()
        text.close()
    assert_same(subject.files(fs), {"a.bin": _DATA + b"littlethe parent's", "a.txt": b"the parent's"})


@check("whole-forked", needs=("live", "update"), start_methods=("fork",))
def a_child_has_no_part_in_what_its_parent_updates(subject: Subject) -> None:
    with subject.make({"a.bin": b"0123456789", "a.txt": b"0123456789"}) as fs:
        files: list[IO[Any]] = [fs.open("a.bin", "r+b"), fs.open("a.txt", "r+")]
        files[0].write(b"abc")
        files[1].write("abc")

        def child() -> None:
            assert_raises(OSError, files[0].write, b"the child's")
            for file in files:
                file.close()

        forked("a child with files that its parent updates", [child, files.clear], subject.timeout)
        for file in files:
            file.close()
    assert subject.files(fs) == {"a.bin": b"abc3456789", "a.txt": b"abc3456789"}


_open_at_exit: list[IO[Any]] = []


def _leave_open(fs: FS) -> bool:
    """Have files open that are never closed: a new one, an old one, and one of text."""
    for path in ("new.bin", "old.txt") if fs.capabilities.replace else ("new.bin",):
        file = fs.open(path, "wb")
        file.write(_DATA)
        file.flush()
        _open_at_exit.append(file)
    text = fs.open("text.txt", "w")
    text.write("text")
    _open_at_exit.append(text)
    sys.stderr = None  # where each has a line when it is dropped
    return True


@check("whole-killed", needs=("live", "write"), start_methods=("fork",))
def a_kill_leaves_nothing(subject: Subject) -> None:
    with subject.make(_OLD) as fs:

        def killed() -> None:
            _leave_open(fs)
            os.kill(os.getpid(), signal.SIGKILL)

        exc = assert_raises(AssertionError, forked, "a child that writes and is killed", [killed], subject.timeout)
        assert "died" in str(exc)
        assert_tree(fs, _OLD)
        assert subject.files(fs) == _OLD


@check("whole-exit", needs=("live", "shared", "write"), slow=True, start_methods=("spawn",))
def an_exit_leaves_nothing(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        assert started("spawn", "a process that exits with files open", _leave_open, (fs,), subject.timeout)
        assert_tree(fs, _OLD)
    assert subject.contents(fs) == _OLD
