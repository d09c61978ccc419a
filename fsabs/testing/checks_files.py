"""Checks of files that are read: binary ones against `io.BytesIO`, by position, and many in one call; text and the
arguments of `open` against `io.TextIOWrapper` and `builtins.open`.
"""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from errno import EINVAL, ENOENT
from typing import Any

from ..core.files import FIRST_WINDOW, ReadFile
from .asserts import assert_error, assert_named, assert_raises, assert_same
from .kit import check
from .subjects import Subject
from .trees import TREE, noise

_STEP = 40_000  # bytes; no divisor of a buffer's size
_SIZES = (0, 1, FIRST_WINDOW - 1, FIRST_WINDOW, FIRST_WINDOW + 1, (1 << 20) + 7)  # about the size of a buffer
_MANY = {f"{n:02}.bin": noise(200 * n) for n in range(24)}  # more than are under way at once
_CONCURRENCIES = (None, 1, 2, 8)


def _filled(readinto: Callable[[bytearray], int]) -> Iterator[bytes]:
    buffer = bytearray(_STEP)
    while size := readinto(buffer):
        yield bytes(buffer[:size])


def _positioned(file: ReadFile) -> Iterator[bytes]:
    for offset in range(0, file.raw.blob.size, _STEP):
        yield file.raw.blob.pread(_STEP, offset)
    assert file.tell() == 0
    file.seek(0, os.SEEK_END)


_WAYS: dict[str, Callable[[ReadFile], Iterable[bytes]]] = {
    "read": lambda file: [file.read()],
    "read in pieces": lambda file: iter(functools.partial(file.read, _STEP), b""),
    "read1": lambda file: iter(functools.partial(file.read1, _STEP), b""),
    "readinto": lambda file: _filled(file.readinto),
    "readinto1": lambda file: _filled(file.readinto1),
    "lines": lambda file: file,
    "pread": _positioned,
}


@check("read-whole", "read-pieces")
def reading_whole_and_in_pieces(subject: Subject) -> None:
    files = {f"{size}.bin": noise(size) for size in _SIZES}
    with subject.make(files) as fs:
        for name, data in files.items():
            assert_same([fs.read_bytes(name), *fs.read_many([name])], [data] * 2)
            assert fs.stat(name).size == len(data)
            for what, way in _WAYS.items():
                with fs.open(name, "rb") as file:
                    pieces = list(way(file))
                    assert_same({(name, what): b"".join(pieces)}, {(name, what): data})
                    assert what != "lines" or all(line.find(b"\n") in (-1, len(line) - 1) for line in pieces)
                    assert file.read() == b"", (name, what)


@check("read-file-object")
def file_object_is_as_bytesio(subject: Subject) -> None:
    data = noise(300_001)
    with subject.make({"data.bin": data}) as fs:
        for seed, (buffering, steps) in enumerate([(-1, 80), (0, 25), (5000, 80)]):
            chance, reference = random.Random(seed), io.BytesIO(data)
            with fs.open("data.bin", "rb", buffering) as file:
                for _ in range(steps):
                    name, arguments = _step(chance, len(data))
                    if hasattr(file, name):  # an unbuffered one has less
                        _assert_step(file, reference, name, *arguments)


def _step(chance: random.Random, size: int) -> tuple[str, tuple[Any, ...]]:
    """Return a method of a file of `size` bytes, and arguments."""
    amount = chance.choice([0, 1, 10, 4999, 5000, 5001, 70_000])
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("read", (amount,)),
        ("read", (amount,)),
        ("read1", (amount,)),
        ("readinto", (amount,)),
        ("readinto1", (amount,)),
        ("readline", ()),
        ("readline", (amount,)),
        ("peek", ()),
        ("seek", (chance.randrange(size + 10),)),
        ("seek", (chance.randrange(-3000, 3000), os.SEEK_CUR)),
        ("seek", (-chance.randrange(size), os.SEEK_END)),
        ("seek", (chance.randrange(100), os.SEEK_END)),
        ("seek", (-1,)),
        ("read", (chance.choice([-1, None]),)),
    ]
    return chance.choice(steps)


def _assert_step(file: ReadFile, reference: io.BytesIO, name: str, *arguments: Any) -> None:
    """Assert that a call gives what it gives for an `io.BytesIO`, and leaves the same position."""
    rest = reference.getvalue()[reference.tell() :]
    if name in ("peek", "read1", "readinto1"):  # which may give less than is asked for, but something
        wanted = arguments[0] if arguments else 1
        if name == "readinto1":
            buffer = bytearray(wanted)
            found = bytes(buffer[: file.readinto1(buffer)])
        else:
            found = getattr(file, name)(*arguments)
        assert rest.startswith(found)
        assert found or not wanted or not rest
        reference.seek(0 if name == "peek" else len(found), os.SEEK_CUR)
    elif name == "readinto":
        mine, theirs = bytearray(arguments[0]), bytearray(arguments[0])
        assert file.readinto(mine) == reference.readinto(theirs)
        assert_same(bytes(mine), bytes(theirs))
    else:
        call = (name, arguments)
        assert_same({call: _outcome(file, *call)}, {call: _outcome(reference, *call)})
    assert file.tell() == reference.tell(), (name, arguments)


def _outcome(file: io.BytesIO | ReadFile, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(file, name)(*arguments)
    except (ValueError, OSError):
        # BytesIO alone takes a seek before the start, relative to the position or the end, for one to the start
        return ValueError if arguments[1:] in ((), (os.SEEK_SET,)) else file.seek(0)


@check("read-file-object", "error-attributes")
def a_read_file_says_what_it_is(subject: Subject) -> None:
    with subject.make(TREE) as fs, fs.open("a.txt", "rb") as file:
        assert (file.name, file.mode, file.isatty(), file.closed) == (fs.url("a.txt"), "rb", False, False)
        assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
        assert isinstance(file, io.BufferedIOBase)
        assert_error(EINVAL, fs.url("a.txt"), file.seek, -1)
        assert_error(EINVAL, fs.url("a.txt"), file.seek, -(1 << 20), os.SEEK_END)
        assert_raises(ValueError, file.read, -2)
        for call, argument in ((file.write, b"x"), (file.truncate, 0), (file.writelines, [b"x"])):
            assert_raises(io.UnsupportedOperation, call, argument)
        assert file.read() == TREE["a.txt"]


@check("read-file-object", "read-closed")
def a_closed_file_is_closed(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        with fs.open("a.txt", "rb") as same, same as file:
            assert file is same
        file.close()
        assert file.closed
        calls: list[Callable[..., Any]] = [file.read, file.read1, file.readline, file.readlines, file.tell, file.peek]
        calls += [file.readable, file.seekable, file.fileno, file.__enter__, file.__next__]
        for call in calls:
            assert_raises(ValueError, call)
        assert_raises(ValueError, file.seek, 0)
        assert_raises(ValueError, file.readinto, bytearray(1))
        assert_raises(ValueError, file.raw.blob.pread, 1, 0)
        assert_raises(ValueError, file.raw.blob.pread_many, [(1, 0)])
        with fs.open("a.txt", "rb") as other:
            assert other.read() == TREE["a.txt"]


@check("read-positions")
def every_reader_has_its_position(subject: Subject) -> None:
    data = noise(200_000)
    with subject.make({"data.bin": data}) as fs, fs.open("data.bin", "rb") as one, fs.open("data.bin", "rb") as other:
        assert_same([one.read(1000), other.read(10)], [data[:1000], data[:10]])
        other.seek(150_000)
        assert_same([one.read(140_000), other.read(100)], [data[1000:141_000], data[150_000:150_100]])
        one.close()
        assert_same([other.read(100), fs.read_bytes("data.bin")], [data[150_100:150_200], data])


@check("read-positioned")
def positioned_reads(subject: Subject) -> None:
    data = noise(100_000)
    ranges = [(10, 0), (0, 5), (70_000, 20_000), (10, 99_995), (10, 100_000), (10, 200_000), (200_000, 0)]
    ranges += [(100_000, 0), (10, 99_990), (10, 99_990), (1, 99_999), (0, 100_000), (10, 0)]
    expected = [data[offset : offset + size] for size, offset in ranges]
    with subject.make({"data.bin": data, "empty.bin": b""}) as fs:
        with fs.open("data.bin", "rb") as file:
            blob = file.raw.blob
            assert blob.size == len(data)
            assert_same([blob.pread(size, offset) for size, offset in ranges], expected)
            found = blob.pread_many(ranges)
            assert_same(found, expected)
            assert {type(part) for part in found} == {bytes}
            assert blob.pread_many([]) == []
            for size, offset in ((-1, 0), (1, -1)):
                assert_raises(ValueError, blob.pread, size, offset)
                assert_raises(ValueError, blob.pread_many, [(1, 0), (size, offset)])
            assert_same(blob.read_all(), data)
        with fs.open("empty.bin", "rb") as file:
            assert (file.raw.blob.pread(10, 0), file.raw.blob.pread_many([(10, 0)])) == (b"", [b""])


@check("read-fileno")
def a_descriptor_has_the_same_bytes(subject: Subject) -> None:
    with subject.make(TREE) as fs, fs.open("foo/inside.txt", "rb") as file:
        file.read(2)
        try:
            descriptor = file.fileno()
        except io.UnsupportedOperation as exc:
            assert_named(exc)
            return
        assert os.pread(descriptor, 100, 0) == TREE["foo/inside.txt"]
        os.lseek(descriptor, 0, os.SEEK_SET)
        assert file.read() == TREE["foo/inside.txt"][2:]


@check("read-many")
def many_come_in_order(subject: Subject) -> None:
    names = list(_MANY) + random.Random(1).choices(list(_MANY), k=16)
    random.Random(2).shuffle(names)
    with subject.make(_MANY) as fs:
        for concurrency in _CONCURRENCIES:
            found = list(fs.read_many(names, concurrency=concurrency))
            assert_same(found, [_MANY[name] for name in names])
            assert {type(data) for data in found} == {bytes}
            assert next(fs.read_many(_MANY, concurrency=concurrency)) == _MANY["00.bin"]  # and the rest is left
        assert_same(list(fs.read_many(iter(names[:3]))), found[:3])
        assert_same(list(fs.read_many(["05.bin"] * 5)), [_MANY["05.bin"]] * 5)
        assert list(fs.read_many([])) == []
        both = zip(fs.read_many(_MANY), fs.read_many(reversed(list(_MANY))), strict=True)
        assert_same(list(both), list(zip(_MANY.values(), reversed(_MANY.values()), strict=True)))


@check("read-many", "error-attributes", "error-directory")
def many_with_one_that_cant_be_read(subject: Subject) -> None:
    with subject.make({**_MANY, "folder/x": b"x"}) as fs:
        for concurrency in _CONCURRENCIES:
            for wrong, kind in (("no such file", FileNotFoundError), ("folder", IsADirectoryError)):
                found = fs.read_many(["00.bin", "01.bin", wrong, "02.bin"], concurrency=concurrency)
                assert_same([next(found), next(found)], [_MANY["00.bin"], _MANY["01.bin"]])
                exc = assert_raises(kind, next, found)
                assert_named(exc)
                assert exc.filename == fs.url(wrong)
        for concurrency in (0, -1):
            assert_raises(ValueError, functools.partial(fs.read_many, ["00.bin"], concurrency=concurrency))


_TEXT = "first\nsecond\r\nthird\rfourth, ünïcödé 日本 😀\n\n\r\nlast, with no end" + "x" * 9000 + "\nend\n"
_ENCODINGS = ("utf-8", "utf-16", "latin-1", "utf-8-sig")
_NEWLINES = (None, "", "\n", "\r", "\r\n")
_FILES = {encoding: _TEXT.encode(encoding, "replace") for encoding in _ENCODINGS}


@check("read-text")
def text_is_as_textiowrapper(subject: Subject) -> None:
    ways: list[Callable[[Any], object]] = [lambda file: file.read(), _lines, _with_positions]
    with subject.make(_FILES) as fs:
        for encoding, newline, way in itertools.product(_ENCODINGS, _NEWLINES, ways):
            with fs.open(encoding, "r", encoding=encoding, newline=newline) as file:
                reference = io.TextIOWrapper(io.BytesIO(_FILES[encoding]), encoding, newline=newline)
                assert way(file) == way(reference), (encoding, newline)


def _lines(file: io.TextIOWrapper) -> list[str]:
    return [file.readline(), *file]


def _with_positions(file: io.TextIOWrapper) -> list[object]:
    found: list[object] = [file.read(5)]
    place = file.tell()
    rest = file.read(4000)
    file.seek(place)
    return [*found, rest == file.read(4000), file.readline(), file.seek(0), file.read(10), file.read()]


@check("read-text")
def text_arguments(subject: Subject) -> None:
    broken = b"good \xff\xfe bad"
    with subject.make({"broken.txt": broken, "plain.txt": b"plain\r\nascii"}) as fs:
        for handler in ("ignore", "replace", "backslashreplace", "surrogateescape"):
            with fs.open("broken.txt", encoding="utf-8", errors=handler) as file:
                assert file.read() == broken.decode("utf-8", handler)
        with fs.open("broken.txt", encoding="utf-8") as file:
            assert_raises(UnicodeDecodeError, file.read)
        for file in (fs.open("plain.txt"), fs.open("plain.txt", "rt"), fs.open("plain.txt", "tr", 4096)):
            with file:
                assert isinstance(file, io.TextIOWrapper)
                assert file.read() == "plain\nascii"
                assert_raises(io.UnsupportedOperation, file.write, "x")
            assert_raises(ValueError, file.read)


@check("text-whole")
def texts_are_read_whole(subject: Subject) -> None:
    with subject.make({"utf-8.txt": _TEXT.encode(), "latin.txt": "grün\n".encode("latin-1")}) as fs:
        assert fs.read_text("utf-8.txt", "utf-8") == _TEXT.replace("\r\n", "\n").replace("\r", "\n")
        assert fs.read_text("utf-8.txt", encoding="utf-8", newline="") == _TEXT
        assert fs.read_text("latin.txt", "ascii", "replace") == "gr\ufffdn\n"
        assert_raises(UnicodeDecodeError, fs.read_text, "latin.txt", "utf-8")
        assert_error(ENOENT, fs.url("none.txt"), fs.read_text, "none.txt")


@check("open-arguments")
def arguments_are_refused_as_builtins_open_does(subject: Subject) -> None:
    modes = ("", "rw", "rr", "b", "t", "+", "U", "rbt", "z", "r b", "wx", "rbb", "Rb", "r", "rt", "rb", "br")
    # fmt: off
    arguments: list[dict[str, Any]] = [
        {}, {"buffering": 0}, {"buffering": 4096}, {"buffering": -5}, {"encoding": "utf-8"},
        {"encoding": "no-such-encoding"}, {"errors": "ignore"}, {"newline": "\r\n"}, {"newline": "x"},
    ]
    wrong: list[dict[str, Any]] = [
        {"mode": None}, {"mode": 5}, {"mode": b"rb"}, {"mode": ("r",)}, {"buffering": 1.5}, {"buffering": None},
        {"encoding": 5}, {"errors": 5}, {"newline": b"\n"},
    ]
    # fmt: on
    with tempfile.NamedTemporaryFile() as local, subject.make({"a.txt": b"a\nb"}) as fs:
        local.write(b"a\nb")
        local.flush()
        for mode, keywords in itertools.product(modes, arguments):
            found = _opened(fs.open, "a.txt", mode, keywords)
            assert found == _opened(builtins.open, local.name, mode, keywords), (mode, keywords)
        for keywords in wrong:
            assert_raises(TypeError, functools.partial(fs.open, "a.txt", **keywords))


def _opened(opener: Callable[..., Any], path: str, mode: str, keywords: dict[str, Any]) -> object:
    """Return what is read, or the type of the error."""
    try:
        with opener(path, mode, **keywords) as file:
            return file.mode, file.read()
    except (ValueError, LookupError) as exc:
        return "ValueError" if isinstance(exc, ValueError) else "LookupError"
