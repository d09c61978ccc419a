"""What a command writes: lines of text or, with `--json`, a JSON object a line; tables, and a line that is redrawn."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any


class Output:
    """The standard output of a command."""

    def __init__(self) -> None:
        self.json = False
        self._drawn = 0  # characters of the line that `redraw` wrote last

    def record(self, values: Mapping[str, Any], text: str) -> None:
        """Write one result: `values` with `--json`, else `text`."""
        self._write(json.dumps(values) if self.json else text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Write rows: an object each with `--json`, else aligned columns below a heading."""
        if self.json:
            for row in rows:
                self._write(json.dumps(dict(zip(columns, row, strict=True))))
            return
        cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            self._write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def redraw(self, values: Mapping[str, Any], text: str) -> None:
        """Write a state that replaces the one before: on a terminal in the same line, else below it."""
        if self.json or not sys.stdout.isatty():
            self.record(values, text)
            return
        text = text[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write("\r" + text.ljust(self._drawn))
        sys.stdout.flush()
        self._drawn = len(text)

    def close(self) -> None:
        """End a line that was redrawn."""
        if self._drawn:
            self._drawn = 0
            sys.stdout.write("\n")

    def _write(self, line: str) -> None:
        self.close()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _cell(value: Any) -> str:
    return "-" if value is None else " ".join(str(value).split())
