"""Checks of `read_many`: many files in one call."""

from __future__ import annotations

import random

from . import expect
from .kit import check
from .subject import Subject
from .trees import TREE, noise

_FILES = {f"{n:02}.bin": noise(100 * n) for n in range(40)}
_CONCURRENCIES = (None, 1, 2, 8)


@check("read-many")
def many_come_in_order(subject: Subject) -> None:
    names = list(_FILES) + random.Random(1).choices(list(_FILES), k=30)
    random.Random(2).shuffle(names)
    with subject.make(_FILES) as fs:
        for concurrency in _CONCURRENCIES:
            found = list(fs.read_many(names, concurrency=concurrency))
            expect.equal(found, [_FILES[name] for name in names], f"read_many(..., concurrency={concurrency})")
        expect.equal(list(fs.read_many(iter(names[:3]))), [_FILES[name] for name in names[:3]], "of an iterator")
        expect.equal(list(fs.read_many([])), [], "read_many of nothing")
        expect.equal(list(fs.read_many(["05.bin"] * 5)), [_FILES["05.bin"]] * 5, "one file five times")
        expect.true(all(type(data) is bytes for data in fs.read_many(names[:5])), "read_many gives bytes")


@check("read-many")
def many_may_be_left_halfway(subject: Subject) -> None:
    with subject.make(_FILES) as fs:
        for concurrency in _CONCURRENCIES:
            found = fs.read_many(_FILES, concurrency=concurrency)
            expect.equal([next(found), next(found)], [_FILES["00.bin"], _FILES["01.bin"]], "the first two")
            del found
        both = zip(fs.read_many(_FILES), fs.read_many(reversed(list(_FILES))), strict=True)
        expect.equal(list(both), list(zip(_FILES.values(), reversed(_FILES.values()), strict=True)), "two at once")


@check("read-many", "error-attributes")
def many_with_a_missing_one(subject: Subject) -> None:
    with subject.make(_FILES) as fs:
        for concurrency in _CONCURRENCIES:
            found = fs.read_many(["00.bin", "01.bin", "no such file", "02.bin"], concurrency=concurrency)
            expect.equal([next(found), next(found)], [_FILES["00.bin"], _FILES["01.bin"]], "those before a missing one")
            exc = expect.raises(FileNotFoundError, f"a missing file, concurrency={concurrency}", next, found)
            expect.named(exc, "read_many")
            expect.equal(exc.filename, fs.url("no such file"), "the file that is missing")
        for concurrency in (0, -1):
            expect.raises(ValueError, f"concurrency={concurrency}", _with, fs, concurrency)


def _with(fs: object, concurrency: int) -> object:
    return fs.read_many(["00.bin"], concurrency=concurrency)  # type: ignore[attr-defined]


@check("read-many", "error-directory")
def many_with_a_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        found = fs.read_many(["a.txt", "foo"])
        expect.equal(next(found), TREE["a.txt"], "the one before a directory")
        exc = expect.raises(IsADirectoryError, "a directory in read_many", next, found)
        expect.equal(exc.filename, fs.url("foo"), "what is a directory")
