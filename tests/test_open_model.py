"""Files against `builtins.open`: random sequences of calls over all modes, buffer sizes and encodings.

Each sequence runs on two equal local files, one opened by `builtins.open` and one by `FS.open`. Results, positions,
attributes, kinds of error and the stored bytes must be equal, but for what `docs/semantics.md` lists under "How files
differ from those of builtins.open"; each of those differences is asserted here.
"""

from __future__ import annotations

import builtins
import errno
import io
import random
from pathlib import Path
from typing import Any

import pytest

import fsabs
from tests import soak

pytestmark = pytest.mark.quick

ACTIONS = ("r", "w", "x", "a", "r+")
BUFFERS = (-1, 0, 1, 2, 7, 64, 4096)
ENCODINGS = (None, "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "shift_jis", "utf-7")
HANDLERS = (None, "strict", "ignore", "replace", "backslashreplace", "surrogateescape", "xmlcharrefreplace")
NEWLINES = (None, "", "\n", "\r", "\r\n")
CHARACTERS = "ab \n\r\x00é漢😀\ufeff\udc80\x85"
SIZES = (None, -2, -1, 0, 1, 2, 3, 10, 70, 5000)

READS = ("read", "readline", "readlines", "next", "readinto", "read1", "peek")
STATE = ("tell", "seekable", "readable", "writable", "isatty", "closed", "mode", "errors", "line_buffering")

CLOSED = "ValueError", None
"""On a closed file, what its mode forbids is this or `UnsupportedOperation`, which is a `ValueError`, too."""


class Sequence:
    """One random sequence of calls, made on a file of `builtins.open` and on one of an FS."""

    def __init__(self, folder: Path, number: int) -> None:
        self.random = random.Random(number)
        self.folder = folder
        self.action = self.random.choice(ACTIONS)
        self.text = self.random.random() < 0.5
        self.buffering = self.random.choice(BUFFERS)
        self.text = self.text and self.buffering != 0
        self.how: dict[str, Any] = {}
        if self.text:
            self.how = {
                "encoding": self.random.choice(ENCODINGS),
                "errors": self.random.choice(HANDLERS),
                "newline": self.random.choice(NEWLINES),
            }
        self.writes = self.action != "r"
        self.streams = self.action in "wxa"  # written from start to end, by a `WriteFile`
        self.calls: list[object] = []

    def run(self) -> None:
        content = self.content()
        exists = self.random.random() < (0.9 if self.action in ("r", "r+") else 0.5)
        paths = [self.folder / "theirs" / "file", self.folder / "ours" / "file"]
        for path in paths:
            path.unlink(missing_ok=True)
            if exists:
                path.write_bytes(content)
        mode = self.action[0] + ("" if self.text else "b") + self.action[1:]
        arguments = {"buffering": self.buffering, **self.how}
        self.calls.append((mode, arguments, content))
        theirs = _opened(lambda: builtins.open(paths[0], mode, **arguments))  # noqa: SIM115
        ours = _opened(lambda: fsabs.from_url(paths[1].parent).open("file", mode, **arguments))
        if isinstance(theirs, str):
            assert ours == theirs
            return
        for _ in range(self.random.randrange(20)):
            if not self.step(theirs, ours):
                break
        assert _called(ours, "close") == _called(theirs, "close")
        for name in ("read", "tell", "seekable", "readable", "closed")[: 5 if self.buffering else 3]:
            found, expected = _called(ours, name), _called(theirs, name)
            if CLOSED not in (found, expected) or "UnsupportedOperation" not in (found, expected):
                self.same(name, found, expected)
        assert paths[1].read_bytes() == paths[0].read_bytes()

    def content(self) -> bytes:
        if not self.text:
            return self.data()
        encoding, handler = self.how["encoding"] or "utf-8", self.how["errors"] or "strict"
        content = self.string().encode(encoding, "ignore")
        return content[: self.random.randrange(len(content) + 1)] if self.random.random() < 0.2 or handler else content

    def data(self) -> bytes:
        return b"".join(self.random.choices([b"a", b"\n", b"bc", b"\r\n", bytes(9), b"x" * 70], k=self.length()))

    def string(self) -> str:
        return "".join(self.random.choices(CHARACTERS, k=self.length()))

    def length(self) -> int:
        return self.random.choice((0, 1, 5, 40, 3000 if self.random.random() < 0.1 else 100))

    # ---- one call

    def step(self, theirs: Any, ours: Any) -> bool:
        """Make a call on both; return False when they have come to what can't be decoded or encoded."""
        name, arguments = self.call()
        self.calls.append((name, *arguments))
        if name == "tell" and self.text and not self.streams:
            name = "tell and seek"  # the number itself depends on the buffer
        if name in ("read1", "peek"):  # these may return more or less than builtins' do, from the same position
            return self.some(theirs, ours, name)
        if self.streams and name in ("seek", "tell and seek"):
            assert _called(ours, name, *arguments) == "UnsupportedOperation"
            return True
        updates = self.text and self.action == "r+" and name in ("write", "writelines")
        for file in (theirs, ours) if updates else ():  # what is read ahead depends on the size of the buffer
            file.seek(0, 2)
        expected = _called(theirs, name, *arguments)
        found = _called(ours, name, *arguments)
        if self.text and self.action != "r+" and name.startswith("tell") and expected == ("OSError", None):
            return False  # builtins' tell() is disabled by next()
        self.same(name, found, expected)
        for file in (theirs, ours) if updates else ():
            file.seek(0)
        # After a seek that failed, io.BufferedRandom may lose its position.
        return expected not in ("UnicodeError", ("OSError", errno.EINVAL))

    def call(self) -> tuple[str, tuple[Any, ...]]:
        name = self.random.choice([*READS, *STATE, "seek", "seek", "flush"] + ["write", "writelines"] * 3 * self.writes)
        if name == "flush" and self.text and self.action == "r":
            name = "readline"  # in builtins' files, flush() enables tell() after next(), which is wrong then
        size = self.random.choice(SIZES)
        if size == -2 and self.buffering == 0:
            size = -1  # an unbuffered file of builtins.open takes every negative size
        if name in ("read", "readline"):
            return name, (1 if not size and name == "readline" else size,)
        if name == "readlines":
            return name, (self.random.choice((-1, 0, 5)),)
        if name == "readinto":
            return name, (self.random.randrange(30),)
        if name == "seek":
            if self.text:
                return self.random.choice([("seek", (0,)), ("seek", (0, 2)), ("seek", (-1,)), ("tell and seek", ())])
            return name, (self.random.randrange(-5, 90), self.random.randrange(3))
        if name == "write":
            return name, (self.string() if self.text else self.data(),)
        if name == "writelines":
            return name, ([self.string(), self.string()] if self.text else [self.data(), b"\n"],)
        return name, ()

    def some(self, theirs: Any, ours: Any, name: str) -> bool:
        if self.text or self.writes or self.buffering == 0:
            return True
        position = ours.tell()
        found = getattr(ours, name)(5)
        assert ours.tell() == theirs.tell() + (len(found) if name == "read1" else 0)
        rest = theirs.read(len(found))
        assert found == rest
        assert found or not theirs.read(1)
        theirs.seek(position + (len(found) if name == "read1" else 0))
        return True

    def same(self, name: str, found: object, expected: object) -> None:
        if name == "seekable" and self.streams and expected is True:
            expected = False
        if name == "seekable" and self.buffering == 0 and not self.streams:
            return  # io.FileIO forgets that it is seekable when a seek has failed
        if (found, expected) == ("UnsupportedOperation", ("TypeError", None)):
            return  # from 3.13 on, a writer's read() looks at its argument before it refuses
        assert found == expected, name


def _opened(opener: Any) -> Any:
    try:
        return opener()
    except (OSError, ValueError) as exc:
        return type(exc).__name__


def _called(file: Any, name: str, *arguments: Any) -> object:
    """What a call returns, or the kind of error that it raises."""
    try:
        if name == "next":
            return next(file, None)
        if name == "readinto":
            buffer = bytearray(arguments[0])
            return file.readinto(buffer), buffer
        if name == "tell and seek":
            position = file.tell()
            found = file.read(5)
            file.seek(position)
            return found
        found = getattr(file, name)
        return found(*arguments) if callable(found) else found
    except io.UnsupportedOperation:
        return "UnsupportedOperation"
    except UnicodeError:
        return "UnicodeError"
    except (AttributeError, OSError, TypeError, ValueError) as exc:
        return type(exc).__name__, getattr(exc, "errno", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:line buffering:RuntimeWarning")
def test_any_sequence_of_calls_is_as_builtins_open_has_it(folder: Path) -> None:
    rounds, first = soak.rounds(1500), soak.seed(1) * 1_000_000
    for number in range(first, first + rounds):
        sequence = Sequence(folder, number)
        try:
            sequence.run()
        except BaseException as exc:
            exc.add_note(f"sequence {number}: {sequence.calls}")
            raise
    soak.count("sequences of calls on files against builtins.open", rounds)
