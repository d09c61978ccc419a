"""What the rules of findings know of a trace, and the models by which their costs are computed.

A cost is what the advice would have saved. Where batches are made ahead, by workers or threads, a loop that waits is as
fast as they are: if the advice removes a part of their time, it removes as much of the loop's, until nothing is waited
for. Else it removes what the loop lost by that cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.lazy import cached_property
from .results import CAUSES, STORE, WAITS, Analysis, Row
from .schema import operation
from .tables import RequestTable

IN_FLIGHT = 16
"""Requests that `read_many` has in flight."""
LISTINGS = frozenset({"list", "head", "stat"})
"""Operations of requests that find objects."""


class Batches(NamedTuple):
    """The batches that one process made for a DataLoader; where there are few, the user's calls in it."""

    label: str
    calls: int
    seconds: float
    begin: int
    """As `ProcessInfo.begin`."""
    end: int

    @property
    def each(self) -> float:
        """Seconds that a batch takes."""
        return self.seconds / self.calls

    def ran_beside(self, other: Batches) -> bool:
        """Return whether both ran at the same time for at least half of the shorter one's time."""
        shorter = min(self.end - self.begin, other.end - other.begin)
        return 2 * (min(self.end, other.end) - max(self.begin, other.begin)) >= shorter


class Facts:
    """The figures of a trace that rules look at."""

    def __init__(
        self,
        analysis: Analysis,
        batches: Sequence[Batches],
        *,
        stats_first: int,
        missed_again: int,
        for_data: RequestTable,
        cores: int,
    ) -> None:
        self.analysis = analysis
        self.batches = batches
        self.stats_first = stats_first
        """Opens of a file whose stat was asked for since it was last opened."""
        self.missed_again = missed_again
        """Misses of what a cache had missed in an earlier epoch."""
        self.for_data = for_data
        """The requests for data."""
        self.cores = cores
        """CPUs of the machine with the fewest."""
        rows = analysis.breakdown
        self.whole = rows[0] if rows else None
        self.epochs = rows[1:]
        self.inside = {cause: sum(row.causes[cause] for row in self.epochs) for cause in CAUSES}
        """Seconds of each cause inside of steps; all of the time, where no step was marked."""
        if self.whole is not None and not self.epochs:
            self.inside = dict(self.whole.causes)
        self.total = self.whole.seconds if self.whole is not None else 0.0
        self.waits = sum(self.inside[cause] for cause in WAITS)
        self.workers = self.whole.workers if self.whole is not None else 0
        self.threads = self.whole.threads if self.whole is not None else 0

    def rows(self, kind: str) -> list[Row]:
        """Return the operations of a kind."""
        return [row for row in self.analysis.operations if row.kind == kind]

    def count(self, kind: str) -> int:
        """Return how many there were of a kind."""
        return sum(row.calls for row in self.rows(kind))

    def calls(self, *operations: str) -> int:
        """Return how many of the user's calls are one of `operations`."""
        return sum(row.calls for row in self.rows("fs") if row.operation in operations)

    @cached_property
    def opens(self) -> int:
        """How many times a file was opened to be read."""
        return self.calls("open", "read_bytes", "read_many")

    @cached_property
    def requests(self) -> Row | None:
        """The requests for data of the store that took the most time."""
        rows = [row for row in self.rows("request") if operation(row.operation) not in LISTINGS]
        return max(rows, key=lambda row: row.seconds, default=None)

    @property
    def in_flight(self) -> float:
        """Requests of a process in flight while any is."""
        row = self.requests
        return row.seconds / row.busy if row is not None and row.busy > 0 else 0.0

    @property
    def cached(self) -> bool:
        """True if the program reads through a cache."""
        return self.analysis.cache.hit_rate is not None

    def lost(self, *causes: str) -> float:
        """Return the seconds that the steps lose to causes; where no step was marked, the processes."""
        return sum(self.inside[cause] for cause in causes)

    def outside(self, *causes: str) -> float:
        """Return the seconds of causes outside of steps."""
        if self.whole is None or not self.epochs:
            return 0.0
        return sum(self.whole.causes[cause] - self.inside[cause] for cause in causes)

    def saved(self, *causes: str, part: float = 1.0) -> float:
        """Return what is saved if a part of the time of these causes is no longer needed."""
        part = max(0.0, min(1.0, part))
        lost, outside = self.lost(*causes) * part, self.outside(*causes) * part
        if self.workers + self.threads and self.waits and self.epochs:
            busy = sum(row.seconds for row in self.epochs) - self.lost("checkpoint", "startup")
            waits = self.waits - self.lost("startup")
            lost = min(waits, busy * lost / waits) if waits > 0 else lost
        return lost + outside

    def saved_of_store(self, part: float) -> float:
        """Return what is saved if a part of the time of waiting for a store is no longer needed."""
        return self.saved(*STORE, part=part)

    def of_workers(self, workers: int) -> float:
        """Return what is saved with so many workers: waiting is shared by workers, computing by CPUs.

        Each further worker takes as long to start as those that there are.
        """
        old = max(1, self.workers)
        computing = self.lost("decode", "decompress")
        waiting = self.waits - computing - self.lost("startup", "read_ahead")
        shared = 1 - min(old, self.cores) / min(workers, max(old, self.cores))
        if not self.waits:
            return 0.0
        part = ((1 - old / workers) * waiting + max(0.0, shared) * computing) / self.waits
        every = sum(row.seconds for row in self.epochs) if self.epochs else self.total
        starting = self.lost("startup")
        if self.workers:
            saved = min(self.waits - starting, (every - self.lost("checkpoint")) * part)
            return max(0.0, saved - starting * (workers / self.workers - 1))
        step = every - self.waits
        made = (waiting / workers + computing / min(workers, self.cores)) if self.epochs else self.waits
        return max(0.0, every - max(step, made) - starting)


def share(part: float, whole: float) -> float:
    """Return a part of a whole, 0 if there is nothing."""
    return part / whole if whole > 0 else 0.0
