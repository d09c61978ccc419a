"""Checks of `write_many`: many files in one call."""

from __future__ import annotations

from collections.abc import Iterator

from . import expect
from .kit import check
from .subject import Subject
from .trees import noise

_FILES = {f"{n:02}.bin": noise(1000 * (n % 7)) for n in range(50)}
_CONCURRENCIES = (None, 1, 2, 8)


@check("write-many", needs=("write",))
def many_files_are_written(subject: Subject) -> None:
    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            expect.equal(fs.write_many(_FILES.items(), concurrency=concurrency), 50, "the number of files")
        expect.equal(subject.files(fs), _FILES, f"what write_many(..., concurrency={concurrency}) wrote")


@check("write-many", needs=("write",))
def many_files_of_a_mapping_and_of_buffers(subject: Subject) -> None:
    with subject.create() as fs:
        expect.equal(fs.write_many({"a": b"1", "b": b""}), 2, "the number of files of a mapping")
        reused = bytearray(b"....")

        def pairs() -> Iterator[tuple[str, bytearray]]:
            for n in range(20):
                reused[:] = b"%04d" % n
                yield f"{n}.txt", reused

        expect.equal(fs.write_many(pairs()), 20, "the number of files of one buffer that is used again")
        expect.equal(fs.write_many([]), 0, "the number of no files")
        expect.raises(TypeError, "a str for a content", fs.write_many, [("c", "text")])
        for concurrency in (0, -1):
            expect.raises(ValueError, f"concurrency={concurrency}", _with, fs, concurrency)
    expected = {"a": b"1", "b": b"", **{f"{n}.txt": b"%04d" % n for n in range(20)}}
    expect.equal(subject.files(fs), expected, "what was written")


def _with(fs: object, concurrency: int) -> object:
    return fs.write_many([("a", b"1")], concurrency=concurrency)  # type: ignore[attr-defined]


@check("write-many", needs=("write", "replace"))
def many_files_replace_what_was_there(subject: Subject) -> None:
    with subject.create() as fs:
        fs.write_many(dict.fromkeys(_FILES, b"old"))
        fs.write_many(_FILES)
    expect.equal(subject.files(fs), _FILES, "the files in place of older ones")


@check("write-many", needs=("write",))
def an_error_of_the_contents_ends_write_many(subject: Subject) -> None:
    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            taken: list[str] = []

            def pairs(taken: list[str] = taken) -> Iterator[tuple[str, bytes]]:
                for name, data in list(_FILES.items())[:10]:
                    taken.append(name)
                    yield name, data
                raise KeyError("no more")

            expect.raises(
                KeyError, f"what the iterable raises, concurrency={concurrency}", _write, fs, pairs(), concurrency
            )
        before = {} if fs.capabilities.commits else {name: _FILES[name] for name in taken}
        expect.equal(subject.files(fs), before, "the files before the error")


def _write(fs: object, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> object:
    return fs.write_many(pairs, concurrency=concurrency)  # type: ignore[attr-defined]


@check("write-many", "error-attributes", needs=("write", "replace", "mkdir"))
def a_failure_is_raised_when_all_under_way_has_ended(subject: Subject) -> None:
    for concurrency in _CONCURRENCIES:
        with subject.create() as fs:
            fs.mkdir("directory")
            fs.write_bytes("directory/inside", b"1")
            pairs = [*list(_FILES.items())[:20], ("directory/inside/below a file", b"2"), *list(_FILES.items())[20:]]
            written = {"directory/inside": b"1"}
            try:
                fs.write_many(pairs, concurrency=concurrency)
                written.update(pairs)  # a store of keys has no directories that could be in the way
            except OSError as exc:
                expect.named(exc, "write_many")
                expect.equal(exc.filename, fs.url("directory/inside/below a file"), "the file that failed")
                written.update(pairs[:20])
        found = subject.files(fs)
        expect.equal({name: found.get(name) for name in written}, written, "the files before the failure")
        complete = {name: data for name, data in found.items() if data != dict(pairs).get(name, b"1")}
        expect.equal(complete, {}, "files that are neither whole nor missing")
