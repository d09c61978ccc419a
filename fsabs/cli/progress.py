"""Progress of a command on the standard error, and what it has done at its end: a summary, and the requests it made.

On a terminal one line is redrawn; `--progress=plain` writes a line every few seconds, for logs; where the standard
error is no terminal, nothing is written unless `--progress` asks for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Literal

from ..core import hooks
from .output import START_OF_LINE, CommandOutput, printable, size_text, terminal_columns
from .program import argument

ProgressMode = Literal["auto", "line", "plain", "none"]
_TIMED = 20_000  # requests whose times a log keeps at most
_SECONDS = {"line": 0.1, "plain": 5.0}


PROGRESS = argument(
    "--progress",
    choices=["auto", "line", "plain", "none"],
    default="auto",
    help="A line that is redrawn, plain lines, or none; auto: a line on a terminal, else none (default: %(default)s).",
)


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


class Summary:
    """Counts of a command, under the names of what was done (`copied`, `skipped`, `removed`); zeros are not shown.

    `failed` and `retried` are always shown by a command that counts them: pass them to `__init__`.
    """

    def __init__(self, *names: str) -> None:
        self.counts: dict[str, int] = dict.fromkeys(names, 0)
        self.bytes = 0

    def add(self, name: str, count: int = 1, size: int = 0) -> None:
        """Count something that was done."""
        self.counts[name] = self.counts.get(name, 0) + count
        self.bytes += size

    def text(self) -> str:
        """Return the summary as one line: `copied 3 (1.2 MB), skipped 0, failed 0, retried 0`."""
        parts = [f"{name} {count:,}" for name, count in self.counts.items()]
        if parts and self.bytes:
            parts[0] += f" ({size_text(self.bytes)})"
        return ", ".join(parts)

    def write(self, output: CommandOutput, before: str = "") -> None:
        """Write the summary: a line on the standard error, or with `--json` an object on the standard output."""
        if output.json:
            output.record({"summary": {**self.counts, "bytes": self.bytes}}, "")
        else:
            output.flush()
            sys.stderr.write(f"{before}{self.text()}\n")


class RequestLog(hooks.Instrument):
    """Measures the requests that are made while it is open, and their time.

    A context manager, which passes everything on to the instrument that was there before.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.connections = 0
        self.retries = 0
        self.held_back = 0.0
        """Seconds in which requests waited for their turn, or for another attempt, since the store refused some."""
        self.milliseconds: list[float] = []
        """How long each request took, up to some thousands of them."""
        self.seconds = 0.0
        """How long it was open."""
        self._before: hooks.Instrument | None = None

    @property
    def round_trips(self) -> int:
        """The number of requests that waited for one another."""
        spent = sum(self.milliseconds) / 1e3
        return min(self.requests, max(1, round(self.requests * self.seconds / spent))) if spent else self.requests

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
    ) -> None:
        """Count a request, or a connection."""
        if kind == "request":
            self.requests += 1
            self.bytes += size
            if begin and len(self.milliseconds) < _TIMED:
                self.milliseconds.append((time.monotonic_ns() - begin) / 1e6)
        self.connections += kind == "connect"
        if kind == "wait" and begin and name.endswith((".throttle", ".backoff")):
            self.held_back += (time.monotonic_ns() - begin) / 1e9
        if self._before is not None:
            self._before.record_span(kind, name, begin, size, where, error, offset)

    def record_event(self, kind: str, name: str, size: int = 1, where: Any = "") -> None:
        """Count a retry."""
        self.retries += size if kind == "retry" else 0
        if self._before is not None:
            self._before.record_event(kind, name, size, where)

    def __enter__(self) -> RequestLog:
        self._before = hooks.install(self)
        self.calls = self._before is not None and self._before.calls
        self.seconds = -time.monotonic()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds += time.monotonic()
        hooks.install(self._before)
        self._before = None
