"""Checks that a written file is whole or not at all, whatever becomes of who writes it."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import select
import signal
import sys
from typing import IO, Any

from ..core.errors import StaleFileError
from ..core.fs import FS
from . import expect
from .agreement import check_tree
from .children import Child, forked, started
from .kit import check
from .subject import Subject
from .trees import noise

_DATA = noise(3_000_001)
_OLD = {"old.txt": b"old"}


class _Mine(Exception):
    pass


def _interrupted(fs: FS, path: str, mode: str, data: Any) -> None:
    with fs.open(path, mode) as file:
        file.write(data)
        file.flush()
        raise _Mine


@check("whole-exception", needs=("write",))
def an_exception_leaves_nothing(subject: Subject) -> None:
    with subject.create() as fs:
        for mode, data in (("wb", _DATA), ("wb", b"small"), ("w", "text " * 500_000), ("xb", _DATA)):
            what = f"an exception in the with block of mode {mode!r}"
            expect.raises(_Mine, what, _interrupted, fs, "lost.bin", mode, data)
            if subject.live:
                expect.equal(subject.contents(fs), {}, f"what is stored after {what}")
                check_tree(fs, {})
        fs.write_bytes("kept.bin", _DATA)
    expect.equal(subject.files(fs), {"kept.bin": _DATA}, "what is stored after exceptions, and a good file")


@check("whole-exception", needs=("live", "write", "replace"))
def an_exception_leaves_the_old(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        for mode, data in (("wb", _DATA), ("w", "text " * 500_000)):
            expect.raises(_Mine, "an exception in a with block", _interrupted, fs, "old.txt", mode, data)
            check_tree(fs, _OLD)
    expect.equal(subject.contents(fs), _OLD, "what is stored after an exception")


@check("whole-invisible", needs=("live", "write"))
def nothing_is_seen_before_close(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        with fs.open("new.bin", "wb") as file:
            for _ in range(3):
                check_tree(fs, _OLD)
                expect.equal(subject.files(fs), _OLD, "what is stored under a name that listings show")
                file.write(_DATA)
                file.flush()
        check_tree(fs, {**_OLD, "new.bin": 3 * _DATA})
    expect.equal(subject.contents(fs), {**_OLD, "new.bin": 3 * _DATA}, "what is stored")


@check("whole-replace", needs=("live", "write", "replace"))
def the_old_is_there_until_close(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        with fs.open("old.txt", "wb") as file:
            file.write(_DATA)
            file.flush()
            check_tree(fs, _OLD)
        check_tree(fs, {"old.txt": _DATA})
    expect.equal(subject.contents(fs), {"old.txt": _DATA}, "what is stored")


@check("whole-replace", needs=("live", "write", "replace"))
def the_last_close_wins(subject: Subject) -> None:
    with subject.make({}) as fs:
        one, other = fs.open("a.bin", "wb"), fs.open("a.bin", "wb")
        one.write(_DATA)
        other.write(b"other")
        one.write(_DATA)
        other.close()
        check_tree(fs, {"a.bin": b"other"})
        one.close()
        check_tree(fs, {"a.bin": 2 * _DATA})
    expect.equal(subject.contents(fs), {"a.bin": 2 * _DATA}, "what is stored")


@check("fresh-reader", needs=("live", "write", "replace"))
def a_reader_never_mixes(subject: Subject) -> None:
    old, new = noise(1_000_000, 1), noise(1_000_000, 2)
    with subject.make({"a.bin": old, "b.bin": old}) as fs:
        with fs.open("a.bin", "rb", 4096) as early, fs.open("a.bin", "rb", 4096) as late:
            expect.equal(early.read(100_000), old[:100_000], "a reader, before its file is replaced")
            fs.write_bytes("a.bin", new)
            for reader, rest in ((early, old[100_000:]), (late, old)):
                try:
                    found = reader.read()
                except StaleFileError as exc:
                    expect.named(exc, "a reader whose file was replaced")
                    expect.equal(
                        (exc.errno, exc.filename), (errno.ESTALE, fs.url("a.bin")), "the error's errno and URL"
                    )
                else:
                    expect.equal(found, rest, "a reader, after its file was replaced")
        expect.equal(fs.read_bytes("a.bin"), new, "a new reader, after its file was replaced")


@check("fresh-reader", needs=("live", "write", "remove"))
def a_reader_of_a_removed_file(subject: Subject) -> None:
    data = noise(1_000_000)
    with subject.make({"a.bin": data}) as fs, fs.open("a.bin", "rb", 4096) as reader:
        expect.equal(reader.read(100_000), data[:100_000], "a reader, before its file is removed")
        fs.remove("a.bin")
        try:
            found = reader.read()
        except OSError as exc:
            expect.named(exc, "a reader whose file was removed")
            expect.true(exc.errno in (errno.ESTALE, errno.ENOENT), f"a removed file is stale or missing, not {exc!r}")
        else:
            expect.equal(found, data[100_000:], "a reader, after its file was removed")


@check("whole-dropped", needs=("write",))
def a_file_that_was_not_closed_is_dropped(subject: Subject) -> None:
    fs = subject.create()
    for mode, data in (("wb", _DATA), ("w", "text")):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            file = fs.open("lost.bin", mode)
            file.write(data)
            file.flush()
            del file
            gc.collect()
        line = f"fsabs: never closed, so not written: {fs.url('lost.bin')}\n"
        expect.equal(said.getvalue(), line, f"what is said of an unclosed {mode!r} file")
        if subject.live:
            expect.equal(subject.contents(fs), {}, "what is stored after a written file was dropped")
    fs.write_bytes("kept.bin", b"kept")
    if subject.live:
        fs.close()
        expect.equal(subject.files(fs), {"kept.bin": b"kept"}, "what is stored after written files were dropped")
    else:
        exc = expect.raises(OSError, "closing a container with members that were dropped", fs.close)
        expect.equal(exc.errno, errno.EBUSY, "the errno of a container with members that were dropped")


@check("close-raises", needs=("live", "write", "remove", "not implied_directories"))
def close_raises_what_went_wrong(subject: Subject) -> None:
    with subject.make({**_OLD, "gone/x": b"x"}) as fs:
        files: list[IO[Any]] = [fs.open("gone/new.bin", "wb"), fs.open("gone/new.txt", "w")]
        files[0].write(_DATA)
        files[1].write("text")
        fs.remove("gone", recursive=True)
        for file, name in zip(files, ("gone/new.bin", "gone/new.txt"), strict=True):
            expect.os_error(FileNotFoundError, errno.ENOENT, (fs, name), file.close)
            expect.equal(file.closed, True, "whether a file whose close() raised is closed")
            file.close()
        check_tree(fs, _OLD)
    expect.equal(subject.contents(fs), _OLD, "what is stored")


def _write_at_once(file: IO[bytes]) -> None:
    file.write(b"the child's")
    file.flush()


@check("whole-forked", needs=("write",), processes=("fork",))
def a_child_has_no_part_in_its_parents_file(subject: Subject) -> None:
    with subject.create() as fs:
        file, text = fs.open("a.bin", "wb"), fs.open("a.txt", "w")
        file.write(_DATA)
        file.write(b"little")
        file.flush()  # a writer may buffer what it is given: the child's copy of that is nothing to be written, either
        text.write("the parent's")

        def child() -> None:
            text.close()
            expect.raises(OSError, "writing to a file that the parent opened", _write_at_once, file)
            expect.raises(OSError, "closing it after that", file.close)

        def dropping() -> None:
            nonlocal file, text
            del file, text
            gc.collect()

        forked("a child with its parent's written file", [child, dropping], subject.timeout)
        if subject.live:
            expect.equal(subject.files(fs), {}, "what is stored after a child closed its parent's file")
        file.write(b"the parent's")
        file.close()
        text.close()
    expect.equal(
        subject.files(fs), {"a.bin": _DATA + b"littlethe parent's", "a.txt": b"the parent's"}, "what is stored"
    )


@check("whole-forked", needs=("live", "update"), processes=("fork",))
def a_child_has_no_part_in_what_its_parent_updates(subject: Subject) -> None:
    with subject.make({"a.bin": b"0123456789", "a.txt": b"0123456789"}) as fs:
        files: list[IO[Any]] = [fs.open("a.bin", "r+b"), fs.open("a.txt", "r+")]
        files[0].write(b"abc")
        files[1].write("abc")

        def child() -> None:
            expect.raises(OSError, "writing to a file that the parent opened", files[0].write, b"the child's")
            for file in files:
                file.close()

        forked("a child with files that its parent updates", [child, files.clear], subject.timeout)
        for file in files:
            file.close()
    expect.equal(subject.files(fs), {"a.bin": b"abc3456789", "a.txt": b"abc3456789"}, "what is stored")


@check("whole-killed", needs=("live", "write"), processes=("fork",))
def a_kill_leaves_nothing(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        ready, tell = os.pipe()
        names = ["new.bin", "old.txt"] if fs.capabilities.replace else ["new.bin"]

        def write_for_ever() -> None:
            files = [fs.open(name, "wb") for name in names]
            for file in files:
                file.write(_DATA)
                file.flush()
            os.write(tell, b"!")
            signal.pause()

        child = Child("a child that is killed while it writes", write_for_ever, subject.timeout)
        os.close(tell)
        select.select([ready], [], [], subject.timeout)
        os.set_blocking(ready, False)
        written = _read(ready)
        os.close(ready)
        if not written:
            child.result()  # which tells what went wrong with it
        child.kill()
        check_tree(fs, _OLD)
        expect.equal(subject.files(fs), _OLD, "what is stored after a child was killed while it wrote")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1)
    except BlockingIOError:
        return b""


@check("whole-exit", needs=("live", "shared", "write"), slow=True, processes=("spawn",))
def an_exit_leaves_nothing(subject: Subject) -> None:
    with subject.make(_OLD) as fs:
        what = "a process that exits with a file open"
        expect.equal(started("spawn", what, _open_and_exit, (fs, fs.capabilities.replace), subject.timeout), True, what)
        check_tree(fs, _OLD)
    expect.equal(subject.contents(fs), _OLD, "what is stored after a process exited with files open")


_open_for_ever: list[IO[Any]] = []


def _open_and_exit(fs: FS, replace: bool) -> bool:
    sys.stderr = None  # where each that is not closed has a line
    for path in ("new.bin", "old.txt") if replace else ("new.bin",):
        file = fs.open(path, "wb")
        file.write(_DATA)
        _open_for_ever.append(file)
    text = fs.open("text.txt", "w")
    text.write("text")
    _open_for_ever.append(text)
    return True
