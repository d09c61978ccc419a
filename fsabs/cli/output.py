"""The output of a command: lines of text or, with `--json`, a JSON object a line; tables, and a line that is redrawn.

Results go to the standard output, everything else (errors, warnings, progress, summaries) to the standard error. Both
are streams of `standard_streams`: what others have named or said reaches a terminal with its control characters quoted.
In what a command writes, secrets that this process knows by their values are replaced by `***` (`redacted`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from ..core import redaction

_BUFFERED_SECONDS = 0.1
_BUFFERED_LINES = 2000
_COLOURS = {"directory": "1;34m", "error": "31m", "good": "32m", "warning": "33m"}
_ESCAPE = f"<{os.urandom(8).hex()}>"
"""Stands for the start of a control sequence of ours: nobody who doesn't know it can have a sequence written."""
START_OF_LINE = f"{_ESCAPE}r"
"""Stands for the control character by which a line is redrawn."""


# Regular expressions, compiled when they are used first. A variable is secret whose name `_SECRET` finds a word in, and
# `_PUBLIC` does not; `_WORDS` is plain text.
_SECRET = r"SECRET|PASS|PWD|TOKEN|CREDENTIAL|CONNECTION_STRING|PRIVATE|SIGNATURE|AUTH|JWT|(^|_)(SAS|PAT)$|KEY(_ID)?$"
_PUBLIC = r"^(OLD)?PWD$|_(FILE|PATH|DIR|URI|URL|ENDPOINT|SOCK|PROFILE|REGION)$"
_WORDS = r"[A-Za-z]+([ _./-]+[A-Za-z0-9]*)*"
_SHORTEST = 6  # characters: a shorter value is found in harmless words, too


class CommandOutput:
    """The standard output of a command."""

    def __init__(self) -> None:
        self.json = False
        self._drawn = 0  # characters of the line that `redraw` wrote last
        self._lines: list[str] = []
        self._flushed = 0.0

    def record(self, values: Mapping[str, Any], text: str) -> None:
        """Write one result: `values` with `--json`, else `text`."""
        self._write(_json(values) if self.json else text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Write rows: an object each with `--json`, else aligned columns below a heading."""
        if self.json:
            for row in rows:
                self._write(_json(dict(zip(columns, row, strict=True))))
            return
        cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            self._write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def line(self, text: str) -> None:
        """Write a line of a long listing as it stands; lines are collected for a moment, the first one is not."""
        self._lines.append(text)
        if len(self._lines) >= _BUFFERED_LINES or time.monotonic() - self._flushed > _BUFFERED_SECONDS:
            self.flush()

    def name(self, text: str, directory: bool = False) -> str:
        """Return a name as it is shown: coloured, and without control characters, on a terminal."""
        if not sys.stdout.isatty():
            return text
        return coloured(printable(text), "directory" if directory else "", sys.stdout)

    def redraw(self, values: Mapping[str, Any], text: str) -> None:
        """Write a state that replaces the one before: on a terminal in the same line, else below it."""
        if self.json or not sys.stdout.isatty():
            self.record(values, text)
            return
        text = redacted(text)[: terminal_columns() - 1]
        sys.stdout.write(START_OF_LINE + text.ljust(self._drawn))
        sys.stdout.flush()
        self._drawn = len(text)

    def flush(self) -> None:
        """Write the lines that were collected."""
        lines, self._lines = self._lines, []
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what was collected, and end a line that was redrawn."""
        self.flush()
        if self._drawn:
            self._drawn = 0
            sys.stdout.write("\n")

    def _write(self, line: str) -> None:
        self.close()
        sys.stdout.write(redacted(line) + "\n")
        sys.stdout.flush()


def coloured(text: str, kind: str, stream: IO[str]) -> str:
    """Return `text` in the colour of `kind`, on a terminal that shows colours; NO_COLOR (no-color.org) turns them off.

    Kinds: `directory`, `error`, `warning`, `good`; an empty one has no colour.
    """
    if kind and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        return f"{_ESCAPE}{_COLOURS[kind]}{text}{_ESCAPE}0m"
    return text


def printable(text: str) -> str:
    """Return `text` with escapes in place of characters that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _quoted(char) for char in text)


def _quoted(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte of a name that is not text
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape", "backslashreplace").decode()


class _PrintedText:
    """A text stream, of which a terminal gets no control characters but line ends, tabs and those of `coloured`."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text as a terminal may show it."""
        if not text.isprintable():
            text = "".join(char if char.isprintable() or char in "\n\t" else _quoted(char) for char in text)
        if _ESCAPE in text:
            text = text.replace(START_OF_LINE, "\r").replace(_ESCAPE, "\033[")
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _ErrorText(_PrintedText):
    """The standard error: without secrets; a command goes on when it is closed."""

    def write(self, text: str) -> int:
        """Write text without secrets, as a terminal may show it."""
        try:
            super().write(redacted(text))
        except OSError:
            to_nowhere(self._stream)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except OSError:
            to_nowhere(self._stream)


def to_nowhere(stream: IO[str]) -> None:
    """Have a standard stream that can't be written to take all; what it has buffered would fail again at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _ClosedStream(io.RawIOBase):
    """In place of a standard stream that was closed before the program began: an error that says so."""

    def __init__(self, name: str) -> None:
        self._name = name

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise OSError(errno.EBADF, f"the standard {self._name} is closed")

    def write(self, data: Any) -> int:
        raise OSError(errno.EBADF, f"the standard {self._name} is closed")


@contextlib.contextmanager
def standard_streams() -> Iterator[IO[str]]:
    """Have a command use streams that are safe to write to, whatever the standard ones are; gives the output's."""
    before = sys.stdin, sys.stdout, sys.stderr
    for descriptor in range(3):  # a file that is opened later must not become one of them
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
    sys.stdin = before[0] or _closed("input")
    output, error = _buffered(before[1] or _closed("output")), before[2] or _closed("error")
    for stream in (output, error):
        _take_any_name(stream)
    sys.stdout = _PrintedText(output) if output.isatty() else output
    sys.stderr = _ErrorText(error)
    try:
        yield output
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _closed(name: str) -> Any:
    raw: Any = _ClosedStream(name)
    return io.TextIOWrapper(raw if name != "input" else io.BufferedReader(raw), write_through=True)


def _buffered(stream: Any) -> Any:
    """Buffer the standard output under `python -u`, where the rest of a write is lost that the disk has no room for."""
    if not isinstance(getattr(stream, "buffer", None), io.FileIO):
        return stream
    buffer = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors)


def _take_any_name(stream: Any) -> None:
    """Have a stream write a name that is not text in its encoding as the bytes that it is."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="surrogateescape" if stream.encoding.lower() == "utf-8" else "backslashreplace")


def terminal_columns() -> int:
    """Return the width of the terminal, as `shutil.get_terminal_size` does, whose module is slow to import."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):  # there is no standard output, or it is no terminal
            columns = 0
    return columns or 80


def error_text(exc: BaseException) -> str:
    """Return the message of an error as one line."""
    return " ".join(re.sub(r"^\[Errno -?\d+\] ", "", str(exc)).split()) or type(exc).__name__


def size_text(count: float) -> str:
    """Return a readable number of bytes: `1.5 MB`, by powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.95:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} PB"


def confirmed(question: str) -> bool:
    """Ask on the standard error, and return True if the answer is yes."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise ValueError("the standard input has ended, and a question has no answer")
    return answer.strip().lower() in ("y", "yes")


def _json(values: Mapping[str, Any]) -> str:
    import json

    return json.dumps(values)


def _cell(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).split())


def redacted(text: str) -> str:
    """Return `text` with `***` in place of each secret.

    Secrets are the values of environment variables whose names say so, and what `fsabs.redaction` hides of `pfio.ini`,
    but for plain words under other names: those are parts of paths, too. URLs lose what it hides of them.
    """
    for value in _secrets():
        if value in text:
            text = text.replace(value, redaction.HIDDEN)
    return redaction.without_secrets(text)


_Settings = list[tuple[str, Any]]
_known: tuple[_Settings, _Settings, list[str]] = ([], [], [])
"""The environment, the settings and the secrets in them, when the last line was printed."""


def _secrets() -> list[str]:
    """Return the secret values that this process knows, the longest first."""
    global _known
    variables: _Settings = list(os.environ.items())
    config = sys.modules.get("fsabs.urls.config")
    settings: _Settings = list(config.values()) if config is not None else []  # it was not used
    if _known[:2] != (variables, settings):
        _known = (variables, settings, _secrets_of(variables, settings))
    return _known[2]


def _secrets_of(variables: _Settings, settings: _Settings) -> list[str]:
    found = {value for name, value in variables if _says_so(name)}
    for name, value in settings:
        texts = redaction.secrets_of(name, value)
        found |= texts if _says_so(name) else {text for text in texts if not re.fullmatch(_WORDS, text)}
    return sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)


def _says_so(name: str) -> bool:
    secret, public = re.search(_SECRET, name, re.IGNORECASE), re.search(_PUBLIC, name, re.IGNORECASE)
    return secret is not None and public is None
