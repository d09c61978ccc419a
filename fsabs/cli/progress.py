"""Progress of a command that moves files, on the standard error: a line that is redrawn, plain lines, or nothing.

On a terminal one line is redrawn; `--progress=plain` writes a line every few seconds, for logs; where the standard
error is no terminal, nothing is written unless `--progress` asks for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import click

from .output import START_OF_LINE, printable, size_text, terminal_columns

ProgressMode = Literal["auto", "line", "plain", "none"]
_SECONDS = {"line": 0.1, "plain": 5.0}


def progress_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--progress` to a command, which gets it as the parameter `progress`."""
    return click.option(
        "--progress",
        type=click.Choice(["auto", "line", "plain", "none"]),
        default="auto",
        show_default=True,
        help="A line that is redrawn, plain lines, or none; auto: a line on a terminal, else none.",
    )(command)


class ProgressDisplay:
    """Shows files, bytes, rate and the time that is left; a context manager, which removes its line at the end.

    `update` may be called as often as is convenient.
    """

    def __init__(self, mode: ProgressMode = "auto", clock: Callable[[], float] = time.monotonic) -> None:
        if mode == "auto":
            mode = "line" if sys.stderr.isatty() else "none"
        self._mode = mode
        self._clock = clock
        self._begin = self._shown = clock()
        self._width = 0

    @property
    def shown(self) -> bool:
        """True if anything is shown."""
        return self._mode != "none"

    def update(
        self,
        files: int,
        size: int,
        total_files: int | None = None,
        total_size: int | None = None,
        note: str = "",
        skipped: int = 0,
    ) -> None:
        """Show what is done so far.

        Totals are given when they are known; `note` stands at the end; `skipped` bytes of `size` took no time.
        """
        now = self._clock()
        if self._mode == "none" or now - self._shown < _SECONDS[self._mode]:
            return
        self._shown = now
        text = progress_text(files, size, total_files, total_size, skipped, now - self._begin)
        self._show(f"{text}  {printable(note)}" if note else text)

    def clear(self) -> None:
        """Remove the line, so that something else can be written."""
        if self._width:
            sys.stderr.write(START_OF_LINE + " " * self._width + START_OF_LINE)
            sys.stderr.flush()
            self._width = 0

    def _show(self, text: str) -> None:
        if self._mode == "plain":
            sys.stderr.write(text + "\n")
        else:
            text = text[: terminal_columns() - 1]
            sys.stderr.write(START_OF_LINE + text.ljust(self._width))
            self._width = len(text)
        sys.stderr.flush()

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()


def progress_text(
    files: int, size: int, total_files: int | None, total_size: int | None, skipped: int, seconds: float
) -> str:
    """Return the progress as one line."""
    rate = (size - skipped) / seconds if seconds > 0 else 0.0
    of_files = f"{files:,}/{total_files:,}" if total_files is not None else f"{files:,}"
    of_size = f"{size_text(size)}/{size_text(total_size)}" if total_size is not None else size_text(size)
    text = f"{of_files} files  {of_size}  {size_text(rate)}/s"
    if total_size is not None and rate > 0:
        left = max(0, round((total_size - size) / rate))
        text += f"  {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
    return text
