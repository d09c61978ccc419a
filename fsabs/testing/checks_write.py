"""Checks of writing: contents, modes, what a written file can and can't do, and many files in one call."""

from __future__ import annotations

import array
import functools
import io
import itertools
import pickle
import time
from collections.abc import Iterator
from errno import EEXIST, EISDIR, ENOENT, ENOTDIR
from typing import Any

import pytest

from ..core.writing import WRITE_BUFFER_SIZE
from .asserts import Interruption, assert_error, assert_named, assert_raises, assert_same, assert_tree
from .kit import check
from .subjects import Subject
from .trees import TREE, noise

_SIZES = (0, 1, WRITE_BUFFER_SIZE - 1, WRITE_BUFFER_SIZE, WRITE_BUFFER_SIZE + 1, 3_000_001)
_TEXT = "first\nsecond\r\nthird\rünïcödé 日本 😀\n" * 3
_MANY = {f"{n:02}.bin": noise(1000 * (n % 7)) for n in range(24)}  # more than are under way at once
_CONCURRENCIES = (None, 1, 2, 8)


@check("write-contents", needs=("write",))
def contents_arrive_whole(subject: Subject) -> None:
    files = {f"{way}-{size}": noise(size) for way, size in itertools.product(("once", "pieces", "bytes"), _SIZES)}
    with subject.create() as fs:
        for name, data in files.items():
            if name.startswith("bytes"):
                assert fs.write_bytes(name, data) == len(data)
                continue
            step = len(data) or 1 if name.startswith("once") else 70_001
            with fs.open(name, "wb") as file:
                for offset in range(0, len(data), step):
                    part = data[offset : offset + step]
                    assert file.write(part) == len(part)
                    assert file.tell() == offset + len(part)
    assert_same(subject.files(fs), files)


@check("write-contents", needs=("write",))
def anything_with_a_buffer_is_written(subject: Subject) -> None:
    numbers, reused = array.array("H", range(1000)), bytearray(noise(WRITE_BUFFER_SIZE))
    with subject.create() as fs:
        with fs.open("mixed", "wb", 16) as file:
            file.write(b"bytes")
            file.write(bytearray(b"bytearray"))
            file.write(memoryview(b"a memoryview")[2:])
            assert file.write(numbers) == 2000
            file.write(b"")
            file.writelines([b"li", b"nes"])
            assert_raises(TypeError, file.write, "text")
        assert fs.write_bytes("array", numbers) == 2000
        with fs.open("reused", "wb") as file:
            file.write(memoryview(reused)[:5])
            file.write(reused)
            reused[:] = bytes(len(reused))
    mixed, data = b"bytesbytearraymemoryview" + numbers.tobytes() + b"lines", noise(WRITE_BUFFER_SIZE)
    assert_same(subject.files(fs), {"mixed": mixed, "array": numbers.tobytes(), "reused": data[:5] + data})


@check("write-text", "text-whole", needs=("write",))
def text_is_written_as_textiowrapper_does(subject: Subject) -> None:
    files = {}
    with subject.create() as fs:
        arguments = itertools.product(("utf-8", "utf-16", "utf-8-sig"), (None, "", "\n", "\r", "\r\n"))
        for number, (encoding, newline) in enumerate(arguments):
            reference = io.BytesIO()
            with io.TextIOWrapper(reference, encoding, newline=newline) as wrapper:
                wrapper.write(_TEXT)
                wrapper.flush()
                files[f"{number}.txt"] = files[f"{number}-whole.txt"] = reference.getvalue()
            with fs.open(f"{number}.txt", "w", encoding=encoding, newline=newline) as file:
                assert file.write(_TEXT) == len(_TEXT)
            assert fs.write_text(f"{number}-whole.txt", _TEXT, encoding, newline=newline) == len(_TEXT)
        with fs.open("errors.txt", "wt", encoding="ascii", errors="xmlcharrefreplace") as file:
            print("ü", file=file)
            assert_raises(TypeError, file.write, b"bytes")
        with fs.open("xt.txt", "x", 1, encoding="ascii") as file:
            file.writelines(["a\n", "b\n"])
        assert_raises(UnicodeEncodeError, fs.write_text, "bad.txt", "ü", "ascii")
        assert_raises(TypeError, fs.write_text, "bad.txt", b"bytes")
    assert subject.files(fs) == {**files, "errors.txt": b"&#252;\n", "xt.txt": b"a\nb\n"}


@check("write-file-object", "pickle-writer", "error-attributes", needs=("write",))
def a_written_file_says_what_it_is(subject: Subject) -> None:
    with subject.create() as fs, fs.open("a.txt", "wb") as file:
        assert (file.name, file.mode) == (fs.url("a.txt"), "wb")
        assert (file.readable(), file.writable(), file.seekable()) == (False, True, False)
        for call, arguments in ((file.read, ()), (file.readline, ()), (file.seek, (0,)), (file.truncate, ())):
            assert_raises(io.UnsupportedOperation, call, *arguments)
        assert "r+" in str(assert_raises(OSError, file.seek, 0)), "the error says what to use instead"
        assert_raises(TypeError, pickle.dumps, file)
        file.write(b"x")
        file.flush()
        with fs.open("text.txt", "w", encoding="utf-16-le") as text:
            text.write("abc")
            assert (text.tell(), text.seekable()) == (6, False)
    assert subject.files(fs) == {"a.txt": b"x", "text.txt": b"a\0b\0c\0"}


@check("write-closed", needs=("write",))
def a_written_file_closes_once(subject: Subject) -> None:
    with subject.create() as fs:
        file, text = fs.open("a.txt", "wb"), fs.open("text.txt", "w", encoding="ascii")
        file.write(b"whole")
        text.write("text")
        for one in (file, text):
            one.close()
            one.close()
            assert one.closed
        for call, arguments in ((file.write, (b"x",)), (file.tell, ()), (file.writable, ()), (file.__enter__, ())):
            assert_raises(ValueError, call, *arguments)
        assert_raises(ValueError, text.write, "x")
    assert subject.files(fs) == {"a.txt": b"whole", "text.txt": b"text"}


@check("write-visible", "stat-modified", needs=("live", "write"))
def what_is_written_is_there_at_once(subject: Subject) -> None:
    files: dict[str, bytes] = {}
    with subject.make({}) as fs:
        for number in range(5):
            files[f"{number}.bin"] = noise(1000 * number)
            fs.write_bytes(f"{number}.bin", files[f"{number}.bin"])
            assert_tree(fs, files)
            if fs.capabilities.last_modified:
                assert abs(time.time() - (fs.stat(f"{number}.bin").last_modified or 0)) < 600
    assert subject.files(fs) == files


@check("write-parent", needs=("live", "write", "not implied_directories"))
def a_file_needs_its_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for mode in ("w", "wb", "x"):
            assert_error(ENOENT, fs.url("no/such.txt"), fs.open, "no/such.txt", mode)
            assert_error(ENOTDIR, fs.url("a.txt/x"), fs.open, "a.txt/x", mode)
        assert_error(ENOENT, fs.url("no/such"), fs.copy, "a.txt", "no/such")
        assert not fs.exists("no")
    assert subject.files(fs) == TREE


@check("write-parent", needs=("write", "implied_directories"))
def a_file_brings_its_directory(subject: Subject) -> None:
    files = {"a/b/c.txt": b"deep", "a/d.txt": b"less deep"}
    with subject.create() as fs:
        for name, data in files.items():
            fs.write_bytes(name, data)
        if subject.live:
            assert_tree(fs, files)
    assert subject.files(fs) == files


@check("write-directory", needs=("write",))
def a_directory_is_no_file(subject: Subject) -> None:
    with subject.create() as fs:
        for path in ("a/", "a/.", "./a//"):
            for mode in ("wb", "x"):
                assert_error(EISDIR, fs.url("a"), fs.open, path, mode)
            assert_error(EISDIR, fs.url("a"), fs.write_bytes, path, b"data")
        for path in ("", ".", "a/.."):
            for mode in ("w", "xb"):
                assert_error((EISDIR, EEXIST), fs.url(path), fs.open, path, mode)
        fs.write_bytes("b", b"data")
        if subject.live and not fs.capabilities.implied_directories:
            fs.mkdir("folder")
            for mode in ("w", "wb", "x"):
                assert_error((EISDIR, EEXIST) if mode == "x" else EISDIR, fs.url("folder"), fs.open, "folder", mode)
            assert_tree(fs, {"b": b"data"}, ["folder"])
    assert subject.files(fs) == {"b": b"data"}


@check("write-modes", needs=("write",))
def modes_that_read_and_write_are_refused(subject: Subject) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        *((ValueError, mode, {}) for mode in ("ww", "wa", "wr", "xw", "wbt", "W")),
        *((ValueError, "wb", keywords) for keywords in ({"encoding": "utf-8"}, {"newline": ""}, {"errors": "ignore"})),
        (ValueError, "w", {"buffering": 0}),
        (LookupError, "w", {"encoding": "no-such-encoding"}),
        (ValueError, "w", {"newline": "x"}),
    ]
    with subject.create() as fs:
        for mode in ("w+", "w+b", "x+", "a+", "ba+"):
            assert_named(assert_raises(io.UnsupportedOperation, fs.open, "a.txt", mode))
        for kind, mode, keywords in wrong:
            assert_raises(kind, functools.partial(fs.open, "a.txt", mode, **keywords))
    assert subject.contents(fs) == {}


@check("write-exclusive", needs=("live", "write"))
def x_makes_new_files_only(subject: Subject) -> None:
    with subject.make({"old.txt": b"old"}) as fs:
        assert_error(EEXIST, fs.url("old.txt"), lambda: fs.open("old.txt", "xb").close())
        with fs.open("new.txt", "xb") as file:
            file.write(b"new")
    assert subject.files(fs) == {"old.txt": b"old", "new.txt": b"new"}


@check("write-exclusive", "close-raises", needs=("live", "write", "exclusive"))
def x_is_decided_at_close(subject: Subject) -> None:
    with subject.make({}) as fs:
        first, second = fs.open("a.txt", "xb"), fs.open("a.txt", "xb")
        first.write(b"first")
        second.write(b"second")
        second.close()
        assert_error(EEXIST, fs.url("a.txt"), first.close)
        assert first.closed
        first.close()
    assert subject.contents(fs) == {"a.txt": b"second"}


@check("write-replace", needs=("live", "write", "replace"))
def w_replaces(subject: Subject) -> None:
    with subject.make({"a.txt": b"old and long"}) as fs:
        versions = [fs.stat("a.txt").version]
        for data in (b"new", b"", b"NEW", b"newer, and longer than the old"):
            with fs.open("a.txt", "wb") as file:
                file.write(data)
            assert_tree(fs, {"a.txt": data})
            versions.append(fs.stat("a.txt").version)
        assert len(set(versions)) == len(versions) or not fs.capabilities.versions
        fs.write_bytes("a.txt", b"by write_bytes")
    assert subject.contents(fs) == {"a.txt": b"by write_bytes"}


@check("write-replace", needs=("write", "not replace"))
def w_replaces_nothing(subject: Subject) -> None:
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"first")
        assert_error(EEXIST, fs.url("a.txt"), fs.write_bytes, "a.txt", b"second")
    assert subject.files(fs) == {"a.txt": b"first"}


@check("append", needs=("live", "append"))
def a_adds_to_the_end(subject: Subject) -> None:
    with subject.make({"old.txt": b"old"}) as fs:
        for name, part in itertools.product(("old.txt", "new.txt"), (b", appended", b", and again")):
            size = fs.stat(name).size if fs.exists(name) else 0
            with fs.open(name, "ab") as file:
                assert (file.mode, file.tell()) == ("ab", size)
                assert file.write(part) == len(part)
                assert file.tell() == size + len(part)
        with fs.open("old.txt", "a", encoding="utf-8", newline="\r\n") as text:
            text.write(" ü\n")
        assert_error(EISDIR, fs.url(""), fs.open, "", "ab")
        files = {"old.txt": "old, appended, and again ü\r\n".encode(), "new.txt": b", appended, and again"}
        assert_tree(fs, files)
    assert subject.files(fs) == files


@check("append", needs=("live", "append"))
def text_is_appended_with_one_mark_at_most(subject: Subject) -> None:
    encodings = ("utf-8-sig", "utf-16", "utf-8")
    expected = {"escaped": b"\xef\xbb\xbf" + b"\xff" * 6}
    with subject.make({f"old-{encoding}": "old".encode(encoding) for encoding in encodings}) as fs:
        for kind, encoding in itertools.product(("old", "new"), encodings):
            with fs.open(f"{kind}-{encoding}", "a", encoding=encoding) as file:
                assert file.tell() == (len("old".encode(encoding)) if kind == "old" else 0)
                file.write("added")
            with fs.open(f"nothing-{encoding}", "a", encoding=encoding):
                pass
            with fs.open("escaped", "a", encoding="utf-8-sig", errors="surrogateescape") as file:
                file.write("\udcff")
            expected[f"{kind}-{encoding}"] = ("oldadded" if kind == "old" else "added").encode(encoding)
            expected[f"nothing-{encoding}"] = b""
    assert subject.files(fs) == expected


@check("append", needs=("live", "append"))
def two_who_append_lose_nothing(subject: Subject) -> None:
    """A store may have one writer at a time, and refuse the second."""
    with subject.make({"log": b"old"}) as fs:
        first = fs.open("log", "ab")
        first.write(b"1")
        expected = {b"old1"}
        try:
            second = fs.open("log", "ab")
        except OSError as exc:
            assert_named(exc)
        else:
            second.write(b"2")
            second.close()
            expected = {b"old12", b"old21"}
        first.close()
        assert fs.read_bytes("log") in expected


@check("append", needs=("live", "append"))
def appending_never_loses_the_old(subject: Subject) -> None:
    with subject.make({"old.txt": b"old"}) as fs, pytest.raises(Interruption), fs.open("old.txt", "ab") as file:
        file.write(b"appended")
        raise Interruption
    assert subject.files(fs)["old.txt"] in [b"oldappended"[:size] for size in range(3, 12)]


@check("update", needs=("live", "update"))
def r_plus_changes_in_place(subject: Subject) -> None:
    with subject.make({"a.txt": b"0123456789", "b.txt": b"one\ntwo\n"}) as fs:
        with fs.open("a.txt", "r+b") as file:
            assert (file.readable(), file.writable(), file.seekable()) == (True, True, True)
            assert file.read(3) == b"012"
            file.seek(5)
            file.write(b"XY")
            file.seek(0)
            assert file.read() == b"01234XY789"
            file.write(b"end")
        with fs.open("b.txt", "r+", encoding="ascii") as text:
            assert text.readline() == "one\n"
        assert_error(ENOENT, fs.url("no such"), fs.open, "no such", "r+b")
        assert_error(EISDIR, fs.url(""), fs.open, "", "r+b")
    assert subject.files(fs) == {"a.txt": b"01234XY789end", "b.txt": b"one\ntwo\n"}


@check("write-many", needs=("write",))
def many_files_are_written(subject: Subject) -> None:
    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            if fs.capabilities.replace:
                fs.write_many(dict.fromkeys(_MANY, b"old"))
            assert fs.write_many(_MANY.items(), concurrency=concurrency) == len(_MANY)
        assert_same(subject.files(fs), _MANY)


@check("write-many", needs=("write",))
def many_files_of_a_mapping_and_of_buffers(subject: Subject) -> None:
    reused = bytearray(b"....")

    def pairs() -> Iterator[tuple[str, bytearray]]:
        for n in range(20):
            reused[:] = b"%04d" % n
            yield f"{n}.txt", reused

    with subject.create() as fs:
        assert fs.write_many({"a": b"1", "b": b""}) == 2
        assert fs.write_many(pairs()) == 20
        assert fs.write_many([]) == 0
        assert_raises(TypeError, fs.write_many, [("c", "text")])
        for concurrency in (0, -1):
            assert_raises(ValueError, functools.partial(fs.write_many, {"a": b"1"}, concurrency=concurrency))
    assert subject.files(fs) == {"a": b"1", "b": b"", **{f"{n}.txt": b"%04d" % n for n in range(20)}}


@check("write-many", needs=("write",))
def an_error_of_the_contents_ends_write_many(subject: Subject) -> None:
    first = dict(list(_MANY.items())[:10])

    def pairs() -> Iterator[tuple[str, bytes]]:
        yield from first.items()
        raise KeyError("no more")

    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            assert_raises(KeyError, functools.partial(fs.write_many, pairs(), concurrency=concurrency))
        assert_same(subject.files(fs), {} if fs.capabilities.commits else first)


@check("write-many", "error-attributes", needs=("write", "replace", "mkdir"))
def a_failure_is_raised_when_all_under_way_has_ended(subject: Subject) -> None:
    many, wrong = list(_MANY.items()), "directory/inside/below a file"
    pairs = [*many[:12], (wrong, b"2"), *many[12:]]
    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            fs.mkdir("directory")
            fs.write_bytes("directory/inside", b"1")
            written = {"directory/inside": b"1"}
            try:
                fs.write_many(pairs, concurrency=concurrency)
                written.update(pairs)  # a store of keys has no directories that could be in the way
            except OSError as exc:
                assert_named(exc)
                if exc.filename != fs.url(wrong):
                    raise
                written.update(pairs[:12])
        found, whole = subject.files(fs), {"directory/inside": b"1", **dict(pairs)}
        assert written.items() <= found.items() <= whole.items()
