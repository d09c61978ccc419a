"""The summary at the end of a command that changes or checks files: how many were copied, skipped, failed, retried."""

from __future__ import annotations

import sys
from typing import Any

from ..core import hooks
from .output import CommandOutput, size_text


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


class Retries(hooks.Instrument):
    """Counts the requests that were repeated, and passes everything on to the instrument that was installed before."""

    def __init__(self) -> None:
        self.count = 0
        self._before = hooks.install(self)
        self.calls = self._before is not None and self._before.calls

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
    ) -> None:
        """Pass a span on."""
        if self._before is not None:
            self._before.record_span(kind, name, begin, size, where, error, offset)

    def record_event(self, kind: str, name: str, size: int = 1, where: Any = "") -> None:
        """Count a retry; pass the event on."""
        if kind == "retry":
            self.count += size
        if self._before is not None:
            self._before.record_event(kind, name, size, where)

    def __enter__(self) -> Retries:
        return self

    def __exit__(self, *exc: object) -> None:
        hooks.install(self._before)
