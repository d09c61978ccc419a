"""What the rules of findings know of a trace, and the models by which their costs are computed.

A cost is what the advice would have saved, in seconds of the job. Where batches are made ahead, by workers or threads,
a loop that waits is as fast as they are: if the advice removes a part of their time, it removes as much of the loop's,
until nothing is waited for. Else it removes what the loop lost by that cause.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core.lazy import cached_property
from .results import CAUSES, STORE, WAITS, Analysis, Finding, Lag, Row
from .schema import operation
from .tables import RequestTable

CROWDED = 0.15
"""The part of computing in which CPUs are waited for, from which on none is free."""
STARTING = 0.5
"""Seconds that workers take to start where there were none."""
IN_FLIGHT = 16
"""Requests that `read_many` has in flight."""
LISTINGS = frozenset({"list", "head", "stat"})
"""Operations of requests that find objects."""


class Batches(NamedTuple):
    """The batches that one process made for a DataLoader; where there are few, the user's calls in it."""

    label: str
    rank: str
    """Of the rank that they are made for."""
    calls: int
    seconds: float
    each: float
    """Seconds of the typical one."""
    first: float
    """Seconds of the first one."""
    begin: int
    """As `ProcessInfo.begin`."""
    end: int
    fetched: bool
    """False for calls."""

    def ran_beside(self, other: Batches) -> bool:
        """Return whether both worked for a rank at the same time, for at least half of the shorter one's time."""
        shorter = min(self.end - self.begin, other.end - other.begin)
        return self.rank == other.rank and 2 * (min(self.end, other.end) - max(self.begin, other.begin)) >= shorter


class Ceiling(NamedTuple):
    """A shared resource that is full."""

    name: str
    text: str
    """Its peak, for people."""
    part: float
    """The part of the time of using it in which it is full."""


class Facts(NamedTuple):
    """The figures that rules look at; see `Analysis` for what it has."""

    analysis: Analysis
    batches: Sequence[Batches]
    missed_again: int
    """Misses of what a cache had missed in an earlier epoch."""
    for_data: RequestTable
    """The requests for data; where there are none, the reads."""
    cores: Mapping[str, int]
    """CPUs of each machine."""
    ranks: Mapping[str, int]
    """Ranks on each machine."""
    lag: Lag | None
    computed: float | None
    """Seconds in which the makers of batches had a CPU; None where that was not recorded."""
    ready: float
    """Seconds in which they were ready for one that others had."""
    makers: float
    """Seconds of own code in all makers."""
    ceiling: Ceiling | None


class Model:
    """The facts of a trace, and what is derived of them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.analysis = facts.analysis
        self.found: list[Finding] = []
        """What was found so far; rules that are general look at it."""
        rows = facts.analysis.breakdown
        self.whole = rows[0] if rows else None
        self.epochs = rows[1:]
        self.inside = {cause: sum(row.causes[cause] for row in self.epochs) for cause in CAUSES}
        """Seconds of each cause inside of steps, but for what ranks wait for one another; all of the time where no step
        was marked."""
        if self.whole is not None and not self.epochs:
            self.inside = dict(self.whole.causes)
        self._leave_lag_out()
        self.total = self.whole.seconds if self.whole is not None else 0.0
        self.waits = sum(self.inside[cause] for cause in WAITS)
        self.workers = self.whole.workers if self.whole is not None else 0
        self.threads = self.whole.threads if self.whole is not None else 0

    def _leave_lag_out(self) -> None:
        """Leave out what the critical ranks wait more than the others: it is the lag's, and no other advice's."""
        lag, waits = self.facts.lag, self.inside if self.epochs else {}
        every = sum(waits.get(cause, 0.0) for cause in WAITS)
        if lag is not None and lag.together and every:
            left = max(0.0, 1 - lag.every / every)
            self.inside |= {cause: self.inside[cause] * left for cause in WAITS}

    # ---- figures

    @cached_property
    def cpus(self) -> int:
        """The CPUs for each rank, on the machine with the fewest."""
        cores, ranks = self.facts.cores, self.facts.ranks
        return max(1, min((cores[machine] // ranks.get(machine, 1) for machine in ranks or cores), default=1))

    @property
    def crowded(self) -> float:
        """The part of computing, 0 to 1, in which the makers of batches are ready for a CPU that others have."""
        return share(self.facts.ready, self.facts.ready + (self.facts.computed or 0.0))

    @cached_property
    def free_cpus(self) -> int:
        """The CPUs that workers of a rank would have: no more than now where others want them, too."""
        return max(1, min(self.cpus, self.workers)) if self.crowded >= CROWDED else self.cpus

    @cached_property
    def computing(self) -> float:
        """The part of the own code's time, 0 to 1, in which it has a CPU, were one free; 1 if that is not known."""
        if self.facts.computed is None:
            return 1.0
        inflated = sum(row.seconds for row in self.rows("decompress"))
        return max(0.0, min(1.0, share(self.facts.computed - inflated, self.facts.makers - self.facts.ready)))

    def rows(self, kind: str) -> list[Row]:
        """Return the operations of a kind."""
        return [row for row in self.analysis.operations if row.kind == kind]

    def count(self, kind: str) -> int:
        """Return how many there were of a kind."""
        return sum(row.calls for row in self.rows(kind))

    def calls(self, *operations: str) -> int:
        """Return how many of the user's calls are one of `operations`."""
        return sum(row.calls for row in self.rows("fs") if row.operation in operations)

    def called(self, *operations: str) -> float:
        """Return the seconds in the user's calls that are one of `operations`."""
        return sum(row.seconds for row in self.rows("fs") if row.operation in operations)

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

    @property
    def in_steps(self) -> float:
        """Seconds inside of steps."""
        return sum(row.seconds for row in self.epochs)

    @cached_property
    def reading(self) -> tuple[str, ...]:
        """The causes that reading counts as: those of a store, or without requests the disk."""
        return STORE if self.requests is not None else ("disk",)

    @cached_property
    def slowest_worker(self) -> tuple[Batches, float] | None:
        """The slowest of the workers that ran side by side, if it takes twice as long, and the median of the others."""
        for slowest in sorted(self.facts.batches, key=lambda one: -one.each)[:1]:
            # Not those of other epochs, where workers are started for each: what they read may have been cached then.
            beside = [one.each for one in self.facts.batches if one is not slowest and one.ran_beside(slowest)]
            median = statistics.median(beside) if beside else 0.0
            return (slowest, median) if 0 < 2 * median <= slowest.each else None
        return None

    @cached_property
    def long_steps(self) -> tuple[int, float]:
        """How many steps compute three times as long as the typical one, and the seconds that these take longer."""
        own = [step.causes.get("step", 0.0) for step in self.analysis.steps]
        typical = statistics.median(own) if own else 0.0
        beyond = [seconds - typical for seconds in own if seconds >= 3 * typical]
        return len(beyond), sum(beyond)

    @cached_property
    def first_batch(self) -> float:
        """The seconds that the first batch of a worker takes longer than its others, as far as a step waits for it."""
        batches = [one for one in self.facts.batches if one.fetched]
        longer = max([one.first - one.each for one in batches], default=0.0 if self.workers else self.total)
        waits = [(step.number, step.wait - step.causes.get("startup", 0.0)) for step in self.analysis.steps]
        typical = statistics.median([wait for _, wait in waits]) if waits else 0.0
        return max(0.0, min(longer, max((wait - typical for number, wait in waits if not number), default=0.0)))

    # ---- models

    def lost(self, *causes: str) -> float:
        """Return the seconds that the steps lose to causes; where no step was marked, the processes."""
        return sum(self.inside[cause] for cause in causes)

    def outside(self, *causes: str) -> float:
        """Return the seconds of causes outside of steps."""
        if self.whole is None or not self.epochs:
            return 0.0
        return sum(self.whole.causes[cause] - sum(row.causes[cause] for row in self.epochs) for cause in causes)

    def saved(self, *causes: str, part: float = 1.0) -> float:
        """Return what is saved if a part of the time of these causes is no longer needed: at most what is waited for,
        which a sum of two of these may exceed.
        """
        part = max(0.0, min(1.0, part))
        lost, outside = self.lost(*causes) * part, self.outside(*causes) * part
        if self.workers + self.threads and self.waits and self.epochs:
            busy = self.in_steps - self.lost("checkpoint", "startup")
            waits = self.waits - self.lost("startup")
            lost = min(waits, busy * lost / waits) if waits > 0 else lost
        return lost + outside

    def by_more_at_once(self, part: float) -> float:
        """Return what is saved of waiting for a store if more is in flight: nothing while what is shared is full."""
        return self.saved(*STORE, part=part * (1 - self.facts.ceiling.part if self.facts.ceiling else 1))

    def of_workers(self, workers: int) -> float:
        """Return what is saved with so many workers: waiting is shared by workers, computing by CPUs.

        What is shared and full is divided by neither. Each further worker takes as long to start as the others, and
        the first ones `STARTING` seconds.
        """
        if not self.waits:
            return 0.0
        old = max(1, self.workers)
        own = self.lost("decode", "decompress")
        computing, full = own * self.computing, self.lost(*self.reading) * (self.facts.ceiling or NO_CEILING).part
        starting = self.lost("startup")
        waiting = max(0.0, self.waits - computing - full - starting - self.lost("read_ahead"))
        every = self.in_steps or self.total
        if self.workers:
            shared = 1 - min(old, self.free_cpus) / min(workers, max(old, self.free_cpus))
            part = ((1 - old / workers) * waiting + max(0.0, shared) * computing) / self.waits
            saved = min(self.waits - starting, (every - self.lost("checkpoint")) * part)
            return max(0.0, saved - starting * (workers / self.workers - 1))
        made = full + (waiting / workers + computing / min(workers, self.free_cpus)) if self.epochs else self.waits
        return max(0.0, every - max(every - self.waits, made) - starting - STARTING)

    @cached_property
    def more_workers(self) -> int:
        """The fewest of twice, four and eight times as many workers that leave next to nothing more to save."""
        old = max(1, self.workers)
        saved = {times * old: self.of_workers(times * old) for times in (2, 4, 8)}
        return min(workers for workers in saved if saved[workers] >= 0.9 * max(saved.values()))


NO_CEILING = Ceiling("", "", 0.0)


def share(part: float, whole: float) -> float:
    """Return a part of a whole, 0 if there is nothing."""
    return part / whole if whole > 0 else 0.0
