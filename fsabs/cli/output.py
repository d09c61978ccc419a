"""The output of a command: lines of text or, with `--json`, a JSON object a line; tables, and a line that is redrawn.

Results go to the standard output, everything else (errors, warnings, progress, summaries) to the standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from .redaction import redacted

_BUFFERED_SECONDS = 0.1
_BUFFERED_LINES = 2000
_COLOURS = {"directory": "\033[1;34m", "error": "\033[31m", "good": "\033[32m", "warning": "\033[33m"}


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
        sys.stdout.write("\r" + text.ljust(self._drawn))
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
        return f"{_COLOURS[kind]}{text}\033[0m"
    return text


def printable(text: str) -> str:
    """Return `text` with escapes in place of characters that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


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


def size_text(count: float) -> str:
    """Return a number of bytes for people: `1.5 MB`, by powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.95:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} PB"


def _json(values: Mapping[str, Any]) -> str:
    import json

    return json.dumps(values)


def _cell(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).split())
