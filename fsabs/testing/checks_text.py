"""Checks of text files and of `open`'s arguments, held against `io.TextIOWrapper` and `builtins.open`."""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import tempfile
from collections.abc import Callable
from errno import ENOENT
from typing import Any

from .asserts import assert_error, assert_raises
from .kit import check
from .subjects import Subject

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
