"""Checks of binary files that are read, held against `io.BytesIO`, and of the positioned reads below them."""

from __future__ import annotations

import errno
import functools
import io
import os
import random
from collections.abc import Callable, Iterator
from typing import IO, Any

from ..core.files import ReadFile
from . import expect
from .kit import check
from .subject import Subject
from .trees import TREE, noise, sized

_STEP = 40_000  # bytes; no divisor of a buffer's size


@check("read-whole", "read-pieces")
def reading_whole_and_in_pieces(subject: Subject) -> None:
    with subject.make(sized()) as fs:
        for name, data in sized().items():
            expect.equal(fs.read_bytes(name), data, f"read_bytes({name!r})")
            expect.equal(next(fs.read_many([name])), data, f"read_many([{name!r}])")
            expect.equal(fs.stat(name).size, len(data), f"stat({name!r}).size")
            for way in (_at_once, _in_reads, _in_read1s, _in_readintos, _in_readinto1s, _in_lines, _in_preads):
                with fs.open(name, "rb") as file:
                    found = b"".join(way(file))
                    expect.equal(found, data, f"{name!r} by {way.__name__[1:]}")
                    expect.equal(file.read(), b"", f"read() at the end of {name!r}, after {way.__name__[1:]}")


def _at_once(file: ReadFile) -> Iterator[bytes]:
    yield file.read()


def _in_reads(file: ReadFile) -> Iterator[bytes]:
    return iter(functools.partial(file.read, _STEP), b"")


def _in_read1s(file: ReadFile) -> Iterator[bytes]:
    return iter(functools.partial(file.read1, _STEP), b"")


def _in_readintos(file: ReadFile) -> Iterator[bytes]:
    buffer = bytearray(_STEP)
    while size := file.readinto(buffer):
        yield bytes(buffer[:size])


def _in_readinto1s(file: ReadFile) -> Iterator[bytes]:
    buffer = bytearray(_STEP)
    while size := file.readinto1(buffer):
        yield bytes(buffer[:size])


def _in_lines(file: ReadFile) -> Iterator[bytes]:
    for line in file:
        expect.true(line.find(b"\n") in (-1, len(line) - 1), "a line has its newline at its end only")
        yield line


def _in_preads(file: ReadFile) -> Iterator[bytes]:
    for offset in range(0, file.raw.blob.size, _STEP):
        yield file.raw.blob.pread(_STEP, offset)
    expect.equal(file.tell(), 0, "the position after positioned reads")
    file.seek(0, os.SEEK_END)


@check("read-file-object")
def file_object_is_as_bytesio(subject: Subject) -> None:
    data = noise(300_001)
    with subject.make({"data.bin": data}) as fs:
        for seed, (buffering, steps) in enumerate([(-1, 80), (0, 25), (5000, 80)]):
            with fs.open("data.bin", "rb", buffering) as file:
                _same_steps(file, data, random.Random(seed), steps)


def _same_steps(file: ReadFile, data: bytes, chance: random.Random, steps: int) -> None:
    reference = io.BytesIO(data)
    for number in range(steps):
        name, arguments = _step(chance, len(data))
        what = f"step {number}, {name}{arguments}"
        if not hasattr(file, name):  # an unbuffered one has less
            continue
        if name == "peek":
            _peek(file, reference, what)
        elif name in ("read1", "readinto1"):
            _short_read(file, reference, name, arguments[0], what)
        elif name == "readinto":
            mine, theirs = bytearray(arguments[0]), bytearray(arguments[0])
            expect.equal(file.readinto(mine), reference.readinto(theirs), what)
            expect.equal(bytes(mine), bytes(theirs), what)
        else:
            expect.equal(_outcome(file, name, arguments), _outcome(reference, name, arguments), what)
        expect.equal(file.tell(), reference.tell(), f"tell() after {what}")


def _step(chance: random.Random, size: int) -> tuple[str, tuple[Any, ...]]:
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


def _outcome(file: IO[bytes] | ReadFile, name: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(file, name)(*arguments)
    except (ValueError, OSError):
        # BytesIO alone takes a seek before the start, relative to the position or the end, for one to the start
        return ValueError if arguments[1:] in ((), (os.SEEK_SET,)) else file.seek(0)


def _peek(file: ReadFile, reference: io.BytesIO, what: str) -> None:
    ahead, rest = file.peek(), reference.getvalue()[reference.tell() :]
    expect.true(rest.startswith(ahead), f"{what}: what is peeked at isn't what follows")
    expect.true(ahead or not rest, f"{what}: nothing to peek at before the end")


def _short_read(file: ReadFile, reference: io.BytesIO, name: str, size: int, what: str) -> None:
    """One that may give less than asked for, but something."""
    if name == "read1":
        found = file.read1(size)
    else:
        buffer = bytearray(size)
        found = bytes(buffer[: file.readinto1(buffer)])
    expected = reference.read(len(found))
    expect.equal(found, expected, what)
    if size and not found:
        expect.equal(reference.read(1), b"", f"{what} gave nothing before the end; what follows")


@check("read-file-object", "error-attributes")
def a_read_file_says_what_it_is(subject: Subject) -> None:
    with subject.make(TREE) as fs, fs.open("a.txt", "rb") as file:
        expect.equal(file.name, fs.url("a.txt"), "the file's name")
        expect.os_error(OSError, errno.EINVAL, (fs, "a.txt"), file.seek, -1)
        expect.os_error(OSError, errno.EINVAL, (fs, "a.txt"), file.seek, -(1 << 20), os.SEEK_END)
        expect.raises(ValueError, "reading a size of -2", file.read, -2)
        expect.equal(file.mode, "rb", "the file's mode")
        expect.equal((file.readable(), file.writable(), file.seekable()), (True, False, True), "what the file can do")
        expect.equal(file.isatty(), False, "isatty()")
        expect.equal(file.closed, False, "closed")
        expect.true(isinstance(file, io.BufferedIOBase), "a binary file is an io.BufferedIOBase")
        for call, arguments in ((file.write, (b"x",)), (file.truncate, ()), (file.writelines, ([b"x"],))):
            expect.raises(io.UnsupportedOperation, f"{call.__name__} on a read file", call, *arguments)
        expect.equal(file.read(), TREE["a.txt"], "the file, after what it refused")


@check("read-file-object", "read-closed")
def a_closed_file_is_closed(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        with fs.open("a.txt", "rb") as same, same as file:
            expect.true(file is same, "entering a file gives the file itself")
        reader = file
        reader.close()
        expect.equal(reader.closed, True, "closed")
        calls: list[Callable[..., Any]] = [reader.read, reader.read1, reader.readline, reader.readlines, reader.tell]
        calls += [reader.peek, reader.readable, reader.seekable, reader.fileno, reader.__enter__, reader.__next__]
        for call in calls:
            expect.raises(ValueError, f"{call.__name__}() of a closed file", call)
        expect.raises(ValueError, "seek() of a closed file", reader.seek, 0)
        expect.raises(ValueError, "readinto() of a closed file", reader.readinto, bytearray(1))
        expect.raises(ValueError, "pread() of a closed blob", reader.raw.blob.pread, 1, 0)
        expect.raises(ValueError, "pread_many() of a closed blob", reader.raw.blob.pread_many, [(1, 0)])
        with fs.open("a.txt", "rb") as other:
            expect.equal(other.read(), TREE["a.txt"], "another file, after one was closed")


@check("read-positions")
def every_reader_has_its_position(subject: Subject) -> None:
    data = noise(200_000)
    with subject.make({"data.bin": data}) as fs, fs.open("data.bin", "rb") as one, fs.open("data.bin", "rb") as other:
        expect.equal(one.read(1000), data[:1000], "one reader")
        expect.equal(other.read(10), data[:10], "another reader")
        other.seek(150_000)
        expect.equal(one.read(140_000), data[1000:141_000], "one reader, after another's seek")
        expect.equal(other.read(100), data[150_000:150_100], "another reader")
        one.close()
        expect.equal(other.read(100), data[150_100:150_200], "another reader, after one was closed")
        expect.equal(fs.read_bytes("data.bin"), data, "read_bytes beside a reader")


@check("read-positioned")
def positioned_reads(subject: Subject) -> None:
    data = noise(100_000)
    with subject.make({"data.bin": data, "empty.bin": b""}) as fs:
        with fs.open("data.bin", "rb") as file:
            blob = file.raw.blob
            expect.equal(blob.size, len(data), "the blob's size")
            ranges = [(10, 0), (0, 5), (70_000, 20_000), (10, 99_995), (10, 100_000), (10, 200_000), (200_000, 0)]
            ranges += [(100_000, 0), (10, 99_990), (10, 99_990), (1, 99_999), (0, 100_000), (10, 0)]
            for size, offset in ranges:
                expect.equal(blob.pread(size, offset), data[offset : offset + size], f"pread({size}, {offset})")
            found = blob.pread_many(ranges)
            expect.equal(found, [data[offset : offset + size] for size, offset in ranges], "pread_many")
            expect.equal(blob.pread_many([]), [], "pread_many of nothing")
            expect.true(all(type(part) is bytes for part in found), "pread_many gives bytes")
            for size, offset in ((-1, 0), (1, -1)):
                expect.raises(ValueError, f"pread({size}, {offset})", blob.pread, size, offset)
                expect.raises(ValueError, "pread_many of the same", blob.pread_many, [(1, 0), (size, offset)])
            expect.equal(blob.read_all(), data, "read_all")
        with fs.open("empty.bin", "rb") as file:
            blob = file.raw.blob
            expect.equal((blob.pread(10, 0), blob.pread_many([(10, 0)])), (b"", [b""]), "an empty blob")


@check("read-fileno")
def a_descriptor_has_the_same_bytes(subject: Subject) -> None:
    with subject.make(TREE) as fs, fs.open("foo/inside.txt", "rb") as file:
        file.read(2)
        try:
            descriptor = file.fileno()
        except io.UnsupportedOperation as exc:
            expect.named(exc, "fileno()")
            return
        expect.equal(os.pread(descriptor, 100, 0), TREE["foo/inside.txt"], "the file's descriptor")
        os.lseek(descriptor, 0, os.SEEK_SET)
        expect.equal(file.read(), TREE["foo/inside.txt"][2:], "the file, after its descriptor was moved")
