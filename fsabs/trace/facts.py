"""The figures that the rules of findings look at, and what a finding costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .results import (
    Analysis,
    Breakdown,
    Finding,
    Row,
)

WORTH = 0.01
"""The least part of the time that is worth reporting."""
GRAVITY = {"high": 0.2, "medium": 0.05, "low": 0.0}
"""The part of the time that a finding costs at least, by its severity."""


class Calls(NamedTuple):
    """The batches that one process made for a DataLoader; where there are few, the user's calls in it."""

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
        """Return the operations of a kind."""
        return [row for row in self.analysis.operations if row.kind == kind]

    def layers(self, kind: str) -> list[Row]:
        """Return the layers of a kind."""
        return [row for row in self.analysis.layers if row.kind == kind]

    def opens(self) -> int:
        """Return how many times a file was opened to be read."""
        return sum(row.calls for row in self.rows("fs") if row.operation in ("open", "read_bytes", "read_many"))

    def seconds(self, kind: str) -> float:
        """Return the time in a kind, summed up."""
        return sum(row.seconds for row in self.rows(kind))

    def count(self, kind: str) -> int:
        """Return how many there were of a kind."""
        return sum(row.calls for row in self.rows(kind))

    @property
    def cached(self) -> bool:
        """Return whether the program reads through a cache."""
        return self.analysis.cache.hit_rate is not None

    @property
    def batched(self) -> bool:
        """Return whether the program reads many files by one call."""
        return any(row.operation == "read_many" for row in self.rows("fs"))

    @property
    def epochs(self) -> Sequence[Breakdown]:
        """Return the epochs, where there are several."""
        return self.analysis.breakdown[1:]

    def total(self) -> float:
        """Return the steps' time, or without steps that of the processes."""
        if self.analysis.breakdown:
            return self.analysis.breakdown[0].seconds
        return sum(process.end - process.begin for process in self.analysis.processes) / 1e9

    def lost(self, part: str) -> float:
        """Return how much of `total` a part of the breakdown took; without steps, the time in calls."""
        if self.analysis.breakdown:
            return self.analysis.breakdown[0].parts[part]
        inflating = self.seconds("decompress")
        if part == "storage":
            return max(self.seconds("fs") - inflating, 0.0) if self.rows("fs") else self.seconds("request")
        return inflating if part == "decompression" else 0.0

    def of_storage(self, share: float) -> float:
        """Return the cost of something that takes a share of the time in which a store is waited for."""
        return self.lost("storage") * max(0.0, min(1.0, share))

    def finding(
        self, code: str, seconds: float, title: str, evidence: Mapping[str, float | int | str], advice: str
    ) -> Finding | None:
        """Return a finding that costs so many seconds; None if it isn't worth reporting."""
        share = seconds / self.total() if self.total() else 0.0
        if share < WORTH:
            return None
        severity = next(name for name, least in GRAVITY.items() if share >= least)
        return Finding(code, severity, title, evidence, advice, seconds)


def share(part: float, whole: float) -> float:
    """Return a part of a whole, 0 if there is nothing."""
    return part / whole if whole > 0 else 0.0


Rule = Callable[[Facts], Finding | None]
