"""The figures that the rules of findings look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .schema import Analysis, Row

WORTH = 0.01
"""The least part of the processes' time that is worth reporting."""


class Calls(NamedTuple):
    """The user's calls in one process."""

    label: str
    calls: int
    seconds: float
    begin: int
    """As `ProcessInfo.begin`."""
    end: int

    @property
    def each(self) -> float:
        """Seconds that a call takes."""
        return self.seconds / self.calls

    def ran_beside(self, other: Calls) -> bool:
        """Return whether both ran at the same time for at least half of the shorter one's time."""
        shorter = min(self.end - self.begin, other.end - other.begin)
        return 2 * (min(self.end, other.end) - max(self.begin, other.begin)) >= shorter


class Facts(NamedTuple):
    """The figures that the rules look at."""

    analysis: Analysis
    calls: Sequence[Calls]
    stats_first: int

    def rows(self, kind: str) -> list[Row]:
        """The operations of a kind."""
        return [row for row in self.analysis.operations if row.kind == kind]

    def layers(self, kind: str) -> list[Row]:
        """The layers of a kind."""
        return [row for row in self.analysis.layers if row.kind == kind]

    def matters(self, seconds: float) -> bool:
        """Return whether a finding that costs so many seconds, summed over the processes, is worth reporting."""
        spent = sum(process.end - process.begin for process in self.analysis.processes) / 1e9
        return seconds >= WORTH * spent

    def opens(self) -> int:
        """Return how many times a file was opened to be read."""
        return sum(row.calls for row in self.rows("fs") if row.operation in ("open", "read_bytes", "read_many"))

    def seconds(self, kind: str) -> float:
        """The time in a kind, summed up."""
        return sum(row.seconds for row in self.rows(kind))
