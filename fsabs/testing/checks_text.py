"""Checks of text files and of `open`'s arguments, held against `io.TextIOWrapper` and `builtins.open`."""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import os
import tempfile
from collections.abc import Callable
from typing import Any

from . import expect
from .kit import check
from .subject import Subject

_TEXT = "first\nsecond\r\nthird\rfourth, ünïcödé 日本 😀\n\n\r\nlast, with no end" + "x" * 9000 + "\nend\n"
_ENCODINGS = ("utf-8", "utf-16", "latin-1", "utf-8-sig")
_NEWLINES = (None, "", "\n", "\r", "\r\n")


def _files() -> dict[str, bytes]:
    return {f"{encoding}.txt": _TEXT.encode(encoding, "replace") for encoding in _ENCODINGS}


@check("read-text")
def text_is_as_textiowrapper(subject: Subject) -> None:
    with subject.make(_files()) as fs:
        for encoding, newline in itertools.product(_ENCODINGS, _NEWLINES):
            name = f"{encoding}.txt"
            ways: dict[str, Callable[[Any], object]] = {
                "read()": _read,
                "lines": _lines,
                "read(n) and tell": _with_positions,
            }
            for what, way in ways.items():
                with fs.open(name, "r", encoding=encoding, newline=newline) as file:
                    reference = io.TextIOWrapper(io.BytesIO(_files()[name]), encoding, newline=newline)
                    expect.equal(way(file), way(reference), f"{name}, newline={newline!r}, by {what}")


def _read(file: io.TextIOWrapper) -> str:
    return file.read()


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
                expect.equal(file.read(), broken.decode("utf-8", handler), f"errors={handler!r}")
        with fs.open("broken.txt", encoding="utf-8") as file:
            expect.raises(UnicodeDecodeError, "reading what is no UTF-8", file.read)
        for file in (fs.open("plain.txt"), fs.open("plain.txt", "rt"), fs.open("plain.txt", "tr", 4096)):
            with file:
                expect.true(isinstance(file, io.TextIOWrapper), f"a text file is an io.TextIOWrapper, not {type(file)}")
                expect.equal(file.read(), "plain\nascii", "text as it is opened by default")
                expect.raises(io.UnsupportedOperation, "writing to a read text file", file.write, "x")
            expect.raises(ValueError, "reading a closed text file", file.read)


@check("open-arguments")
def arguments_are_refused_as_builtins_open_does(subject: Subject) -> None:
    modes = ("", "rw", "rr", "b", "t", "+", "U", "rbt", "z", "r b", "wx", "rbb", "Rb", "r", "rt", "rb", "br")
    arguments: list[dict[str, Any]] = [
        {},
        {"buffering": 0},
        {"encoding": "utf-8"},
        {"encoding": "no-such-encoding"},
        {"errors": "ignore"},
        {"newline": "\r\n"},
        {"newline": "x"},
        {"buffering": 4096},
        {"buffering": -5},
    ]
    wrong: list[dict[str, Any]] = [
        {"mode": None},
        {"mode": 5},
        {"mode": b"rb"},
        {"mode": ("r",)},
        {"buffering": 1.5},
        {"buffering": None},
        {"encoding": 5},
        {"errors": 5},
        {"newline": b"\n"},
    ]
    with tempfile.TemporaryDirectory() as folder, subject.make({"a.txt": b"a\nb"}) as fs:
        local = os.path.join(folder, "a.txt")
        with builtins.open(local, "wb") as out:
            out.write(b"a\nb")
        for mode, how in itertools.product(modes, arguments):
            found, expected = _opened(fs.open, "a.txt", mode, how), _opened(builtins.open, local, mode, how)
            expect.equal(found, expected, f"open('a.txt', {mode!r}, **{how})")
        for how in wrong:
            expect.raises(TypeError, f"open('a.txt', **{how})", functools.partial(fs.open, "a.txt", **how))


def _opened(opener: Callable[..., Any], path: str, mode: str, how: dict[str, Any]) -> object:
    """Return what is read, or the type of the error."""
    try:
        with opener(path, mode, **how) as file:
            return file.mode, file.read()
    except (ValueError, LookupError) as exc:
        return "ValueError" if isinstance(exc, ValueError) else "LookupError"
