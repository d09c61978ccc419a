"""The one attribution of time: each instant of a job belongs to exactly one of `CAUSES`.

A job is one timeline of all its ranks. Step `k` of the job ends when its last rank ends it, and the time since the end
of the step before is that of one rank, the *critical* one: of those that end the step last, the one that was free for
the least time, as the others wait for it inside of their steps. Its time is divided among the causes:

1. An instant goes to the innermost work of the training thread, by the order of precedence of `divide`.
2. Where that thread waits for a batch, or for what is read ahead, the instant goes to what those do meanwhile that make
   batches (*makers*: workers, or threads of the same process), in equal parts for those that work at that moment.
3. While no maker works, workers are starting, up to an epoch's first batch and to the beginning of its last worker; or
   batches are on their way.
4. The rest is the step itself inside of steps, and outside of steps between them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .intervals import Array, Collector, Intervals, covered, difference, empty, intersection, joined, length
from .reading import Columns, Key
from .results import CAUSES, Breakdown, Lag, Step
from .schema import METADATA, READS, UPWARD, operation

MADE = ("connect", "first_byte", "transfer", "throttle", "backoff", "list", "disk", "decompress", "decode")
"""The causes of a maker's time."""
_COLUMN = {cause: number for number, cause in enumerate(CAUSES)}
BLOCK = 1 << 16
"""Moments that are divided together."""
SLAB = 1 << 12
"""Steps that are divided together."""
STEPS_KEPT = 10_000
TOGETHER = 0.05, 1_000_000
"""Ranks end a step together that do so within this part of it, or so many nanoseconds."""
SHARED = ("request", "transfer", "connect", "throttle", "backoff", "decompress", "cache", "list")
"""Sorts of work that are looked for in the whole process: what a thread waits for, others may do."""
COLLECTIVE = frozenset({"collective", "all_reduce", "barrier"})
"""Spans of the user's that wait for the other ranks."""
WRITES = frozenset(
    {
        "write", "write_bytes", "write_many", "append", "commit", "mkdir", "makedirs", "rename", "remove", "rmdir",
        "copy", "copy_tree", "sync_tree",
    }
)  # fmt: skip
"""Operations of the user's that change something."""


def divide(own: Mapping[str, Intervals], process: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """Divide the time of a thread among causes: an instant belongs to the first line below that covers it.

    1. `checkpoint`, `list`, `decompress`: it writes, lists or opens, decompresses itself.
    2. It reads, or waits for what is read ahead, while in its process, in whatever thread, a body is received
       (`transfer`), a request is under way (`first_byte`), a connection is made (`connect`), a turn is waited for
       (`throttle`), or a retry (`backoff`), something is decompressed or listed, or a cache is filled (`disk`).
    3. `disk`: it reads, and none of this is under way.
    4. None: it waits for what is read ahead, and none of this is under way.
    5. `decode`: it makes a batch.

    Args:
        own: the intervals of the thread: `write`, `list`, `decompress`, `read`, `wait` and `fetch`.
        process: those of its process, by the names of `SHARED`.
    """
    waits = joined([own["read"], own["wait"]])
    lines = [("checkpoint", own["write"]), ("list", own["list"]), ("decompress", own["decompress"])]
    lines += [
        (cause, intersection(waits, process[sort]))
        for cause, sort in (
            ("transfer", "transfer"), ("first_byte", "request"), ("connect", "connect"), ("throttle", "throttle"),
            ("backoff", "backoff"), ("decompress", "decompress"), ("list", "list"), ("disk", "cache"),
        )
    ]  # fmt: skip
    lines += [("disk", own["read"]), ("", own["wait"]), ("decode", own["fetch"])]
    found, taken = collections.defaultdict[str, list[Intervals]](list), empty()
    for cause, some in lines:
        found[cause].append(difference(some, taken))
        taken = joined([taken, some])
    return {cause: joined(parts) for cause, parts in found.items() if cause}


def _sort(key: Key) -> str:
    """Return what an event says of the time of its thread or process; empty for nothing."""
    kind, name = key
    what = operation(name)
    if kind == "fs":
        return "list" if what in METADATA else "read" if what in READS else "write" if what in WRITES else ""
    if kind == "wait":
        return what if what in ("transfer", "throttle", "backoff") else "next" if name == "steps.next" else "wait"
    if kind == "span":
        return "collective" if what in COLLECTIVE else ""
    if kind == "request" and what in UPWARD:
        return ""  # no read waits for what is sent meanwhile, as by a thread that saves
    return kind if kind in ("request", "connect", "cache", "decompress", "fetch", "step") else ""


class Place(NamedTuple):
    """The processes of a machine find one another by these."""

    machine: str
    """Its name, too: containers of one machine, each with pids of its own, have different ones."""
    pid: int
    parent: int
    worker: int | None


class Maker(NamedTuple):
    """A thread that makes batches."""

    place: Place
    thread: int
    causes: Mapping[str, Intervals]
    """By the names of `MADE`."""


class Rank(NamedTuple):
    """A thread that trains; where no step was marked, the main thread of a process."""

    place: Place
    label: str
    thread: int
    process: int
    span: tuple[int, int]
    """The begin and the end of the process."""
    begin: Array
    """Of the steps, in order."""
    end: Array
    number: Array
    """Of each step in its epoch."""
    waits: Intervals
    """For batches; the whole time, where no step was marked."""
    own: Mapping[str, Intervals]
    """The time of its own reads, writes and fetches, by cause."""
    collective: Intervals
    """The time in which it waits for other ranks, as far as that was recorded."""
    threads: int
    """Other threads of its process that make batches."""

    @property
    def epoch(self) -> Array:
        """The epoch of each step, from 0: one begins with each step 0, and with the first one that was traced."""
        import numpy as np

        begins = self.number == 0
        begins[:1] = True
        return np.cumsum(begins) - 1


class _ProcessActivity:
    """Collects what the threads of one process did."""

    def __init__(self) -> None:
        self._by_thread: dict[tuple[str, int], Collector] = {}
        self._shared = {sort: Collector() for sort in SHARED}
        self._steps: dict[int, list[tuple[Array, Array, Array]]] = {}

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        import numpy as np

        sorts = [_sort(key) for key in some.keys]
        for sort in {*sorts} - {""}:
            which = np.array([one == sort for one in sorts])[some.key]
            begin, end = some.begin[which], np.maximum(some.end[which], some.begin[which] + 1)
            if sort in SHARED:
                self._shared[sort].add(begin, end)
            thread = some.thread[which]
            for one in np.unique(thread) if sort in ("list", "decompress") or sort not in SHARED else ():
                mine = thread == one
                if sort == "step":
                    number = some.size[which][mine].clip(0, 1 << 30)
                    self._steps.setdefault(int(one), []).append((begin[mine], end[mine], number))
                else:
                    self._by_thread.setdefault((sort, int(one)), Collector()).add(begin[mine], end[mine])

    def _of(self, sort: str, thread: int) -> Intervals:
        found = self._by_thread.get((sort, thread))
        return found.get() if found is not None else empty()

    def _causes(self, thread: int) -> dict[str, Intervals]:
        own = {sort: self._of(sort, thread) for sort in ("write", "list", "decompress", "read", "wait", "fetch")}
        return divide(own, {sort: some.get() for sort, some in self._shared.items()})

    def _threads(self, *sorts: str) -> list[int]:
        return sorted({thread for sort, thread in self._by_thread if sort in sorts})

    @property
    def is_exact(self) -> bool:
        """False if there was more than is kept apart."""
        return all(one.is_exact for one in (*self._by_thread.values(), *self._shared.values()))

    def makers(self, place: Place) -> Iterator[Maker]:
        """Yield the threads that may make batches: those that fetch for a DataLoader, else those that read."""
        fetching = [thread for thread in self._threads("fetch") if thread not in self._steps]
        for thread in fetching or self._threads("read", "list", "decompress"):
            if thread in self._steps:
                continue
            causes = self._causes(thread)
            if not fetching:  # its own code is all that it does from its first call to its last one
                calls = joined(list(causes.values()))
                waits = difference(self._of("wait", thread), self._of("read", thread))
                causes["decode"] = difference((calls[0][:1], calls[1][-1:]), joined([calls, waits]))
            yield Maker(place, thread, causes)

    def ranks(self, place: Place, label: str, process: int, span: tuple[int, int], main: int) -> Iterator[Rank]:
        """Yield the threads that train; where no step was marked, the main thread, unless it is a worker's."""
        import numpy as np

        readers = {*self._threads("fetch", "read")}
        if not self._steps and place.worker is None:
            none, whole = np.zeros(0, np.int64), (np.array([span[0]]), np.array([span[1]]))
            own, others = self._causes(main), len(readers - {main})
            yield Rank(place, label, main, process, span, none, none, none, whole, own, empty(), others)
        for thread, steps in self._steps.items():
            begin, end, number = (np.concatenate(column) for column in zip(*steps, strict=True))
            order = np.argsort(begin, kind="stable")
            waits, collective = self._of("next", thread), self._of("collective", thread)
            own, others = self._causes(thread), len(readers - self._steps.keys())
            marked = begin[order], end[order], number[order]
            yield Rank(place, label, thread, process, span, *marked, waits, own, collective, others)


class Attributed(NamedTuple):
    """The attributed time of a job."""

    breakdown: list[Breakdown]
    """Of the whole time, and of each epoch."""
    steps: list[Step]
    lag: Lag | None
    """None for one rank."""
    ranks: Mapping[str, int]
    """How many run on each machine."""
    makers: float
    """Seconds of own code in all makers."""


class Attribution:
    """Takes one process after another; after the last one, `attributed` divides the time of the job."""

    def __init__(self) -> None:
        self._activity = _ProcessActivity()
        self._ranks: list[Rank] = []
        self._makers: list[Maker] = []
        self.is_exact: bool = True
        """False if a process did more than is kept apart, and what was between counts as such work, too."""

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        self._activity.add(some)

    def end_process(self, header: Mapping[str, Any], label: str, process: int, span: tuple[int, int]) -> None:
        """Take the process as complete."""
        place = Place(machine(header), header["pid"], header["parent"], header["worker"])
        self._ranks += self._activity.ranks(place, label, process, span, header["main"])
        makers = self._activity.makers(place)
        self._makers += [maker for maker in makers if any(len(some[0]) for some in maker.causes.values())]
        self.is_exact = self.is_exact and self._activity.is_exact
        self._activity = _ProcessActivity()

    def attributed(self) -> Attributed:
        """Divide the time of the job, which goes from the begin of its first rank to the end of its last one."""
        import numpy as np

        marked = [rank for rank in self._ranks if len(rank.begin)]
        ranks = marked or self._roots()
        if not ranks:
            return Attributed([], [], None, {}, 0.0)
        makers = {id(rank): self._makers_of(rank, marked) for rank in ranks}
        epochs = max((int(rank.epoch[-1]) + 1 for rank in marked), default=0)
        whole, rows, counts = np.zeros(len(CAUSES)), np.zeros((epochs, len(CAUSES))), np.zeros(epochs, np.int64)
        steps, lags = list[Step](), list[Lag]()
        until = 0
        for group in _groups(ranks):
            job = _timeline(group, until)
            lags.append(job.lag)
            whole[_COLUMN["outside"]] += max(0, job.begin[0] - until) if until else 0
            until = int(job.end[-1])
            for number, rank in enumerate(group):
                mine = (job.critical == number).nonzero()[0]
                inside, outside = _divided(rank, makers[id(rank)], (job.begin[mine], job.end[mine]))
                whole += inside.sum(axis=0) + outside
                at = mine[mine < len(job.epoch)]  # the last one is what comes after all steps
                np.add.at(rows, job.epoch[at], inside[: len(at)])
                np.add.at(counts, job.epoch[at], 1)
                steps += _steps(rank, job, at, inside)
        workers = [{_worker(one.place) for one in makers[id(rank)] if one.place != rank.place} for rank in ranks]
        common = len(ranks), max(map(len, workers)), max(rank.threads for rank in ranks)
        made = [_row(0, int(counts.sum()), *common, whole)]
        made += [_row(epoch + 1, int(counts[epoch]), *common, rows[epoch]) for epoch in range(epochs)]
        own = sum(length(maker.causes["decode"]) for maker in self._makers) / 1e9
        on = collections.Counter(machine for machine, _ in {(rank.place.machine, rank.place.pid) for rank in ranks})
        lag = max(lags, key=lambda one: one.seconds) if len(ranks) > 1 and marked else None
        return Attributed(made, sorted(steps, key=lambda step: step.begin)[:STEPS_KEPT], lag, on, own)

    def _roots(self) -> list[Rank]:
        """Return the processes that no other traced process started."""
        places = {(rank.place.machine, rank.place.pid) for rank in self._ranks}
        return [rank for rank in self._ranks if (rank.place.machine, rank.place.parent) not in places]

    def _makers_of(self, rank: Rank, marked: Sequence[Rank]) -> list[Maker]:
        """Return what made the batches of a rank: its process and its children, or workers whose parent is a server."""
        trainers = {(one.place.machine, one.place.pid) for one in marked}
        found = []
        for maker in self._makers:
            machine, pid, parent, worker = maker.place
            if (maker.place, maker.thread) == (rank.place, rank.thread):
                continue
            mine = rank.place.pid in (pid, parent)
            served = worker is not None and (machine, parent) not in trainers and (machine, pid) not in trainers
            if machine == rank.place.machine and (mine or served):
                found.append(maker)
        return found


def machine(header: Mapping[str, Any]) -> str:
    """Return what stands for the machine, or the container, of a process."""
    return f"{header['boot']} {header['host']}"


def _worker(place: Place) -> int:
    """Return what stands for a worker of a rank, also where each epoch starts new ones."""
    return place.pid if place.worker is None else -1 - place.worker


# ---- the timeline of a job


class _Timeline(NamedTuple):
    """The steps of a job, which follow one another without a gap; the last one is what comes after all steps."""

    begin: Array
    end: Array
    critical: Array
    """The number of the rank whose time it is."""
    epoch: Array
    number: Array
    lag: Lag


def _groups(ranks: Sequence[Rank]) -> list[list[Rank]]:
    """Return the ranks that run beside one another: a job that is started again follows itself."""
    found: list[list[Rank]] = []
    until = 0
    for rank in sorted(ranks, key=lambda one: one.span):
        begin, end = rank.span
        if found and until - begin >= (min(end, until) - begin) / 2 and until > begin:
            found[-1].append(rank)
        else:
            found.append([rank])
        until = max(until, end)
    return found


def _timeline(ranks: Sequence[Rank], after: int) -> _Timeline:
    """Return the steps of the job: each ends with its last rank, and is the time of the critical one."""
    import numpy as np

    spans = np.array([[min([rank.span[0], *rank.begin[:1]]), max([rank.span[1], *rank.end[-1:]])] for rank in ranks])
    start, stop = max(after, int(spans[:, 0].min())), int(spans[:, 1].max())
    keys = [(rank.epoch << 32) | rank.number for rank in ranks]
    every = np.unique(np.concatenate(keys))
    ends = np.full((len(ranks), len(every) + 1), -1, np.int64)
    for row, key, rank in zip(ends, keys, ranks, strict=True):
        row[np.searchsorted(every, key)] = rank.end
    ends[:, -1] = spans[:, 1]
    end = np.maximum.accumulate(ends.max(axis=0)).clip(start, stop)
    begin = np.concatenate(([start], end[:-1]))
    last = ends >= end - np.maximum(TOGETHER[0] * (end - begin), TOGETHER[1])
    last |= ends == ends.max(axis=0)
    free = np.array([covered(begin, end, _free(rank)) for rank in ranks], np.float64)
    critical = np.where(last, free, np.inf).argmin(axis=0)
    critical[-1] = ends[:, -1].argmax()
    epoch, number = (every >> 32).astype(np.int64), every & 0xFFFFFFFF
    return _Timeline(begin, end, critical, epoch, number, _lag(ranks, ends, last, free, critical))


def _free(rank: Rank) -> Intervals:
    """Return the time in which a rank may wait for others: what it says of that, or all of its steps' own time."""
    if len(rank.collective[0]):
        return rank.collective
    return difference(joined([(rank.begin, rank.end)]), joined([rank.waits, *rank.own.values()]))


def _lag(ranks: Sequence[Rank], ends: Array, last: Array, free: Array, critical: Array) -> Lag:
    """Return for how long the ranks wait for the one that they wait most for.

    Of ranks that end their steps together, the others wait for as long as the typical one is free more than the
    critical one; those that don't, wait at the end.
    """
    import numpy as np

    lost, together = np.zeros(len(ranks)), False
    if len(ranks) > 1 and ends.shape[1] > 1:
        steps = np.arange(ends.shape[1] - 1)
        together = bool(last[:, :-1].sum() - len(steps) >= 0.5 * (len(ranks) - 1) * len(steps))
        if together:
            others = free[:, :-1].copy()
            others[critical[:-1], steps] = np.nan
            waited = np.nanmedian(others, axis=0) - free[critical[:-1], steps]
            np.add.at(lost, critical[:-1], waited.clip(0))
        else:
            done = ends[:, :-1].max(axis=1)
            lost[done.argmax()] = done.max() - np.median(np.delete(done, done.argmax()))
    worst = int(lost.argmax())
    return Lag(ranks[worst].label, float(lost[worst]) / 1e9, float(lost.sum()) / 1e9, together)


def _row(epoch: int, steps: int, processes: int, workers: int, threads: int, nanoseconds: Array) -> Breakdown:
    causes = {cause: float(value) / 1e9 for cause, value in zip(CAUSES, nanoseconds, strict=True)}
    return Breakdown(epoch, steps, sum(causes.values()), processes, workers, threads, causes)


def _steps(rank: Rank, job: _Timeline, at: Array, inside: Array) -> list[Step]:
    """Return the steps of a job whose time is that of a rank."""
    import numpy as np

    causes = list(CAUSES)
    begins = rank.begin[np.searchsorted(rank.end, job.end[at], side="right").clip(1) - 1]
    begins = np.maximum(begins, job.begin[at])
    return [
        Step(
            rank.process, int(job.number[step]), int(begin), float(row.sum()) / 1e9,
            {causes[column]: float(row[column]) / 1e9 for column in row.nonzero()[0]},
        )
        for step, begin, row in zip(at[:STEPS_KEPT], begins, inside, strict=False)
    ]  # fmt: skip


# ---- the time of one rank


def _divided(rank: Rank, makers: list[Maker], windows: Intervals) -> tuple[Array, Array]:
    """Return the nanoseconds of each window and cause inside of a rank's steps, and of each cause outside of them."""
    import numpy as np

    inside, outside = np.zeros((len(windows[0]), len(CAUSES))), np.zeros(len(CAUSES))
    steps, life = joined([(rank.begin, rank.end)]), joined([windows])
    between = difference(life, steps)

    def add(cause: str, some: Intervals) -> None:
        inside[:, _COLUMN[cause]] += covered(*windows, intersection(some, steps))
        outside[_COLUMN[cause]] += length(intersection(some, between))

    busy = joined(list(rank.own.values()))
    waits = difference(intersection(rank.waits, life), busy)
    for cause, some in rank.own.items():
        add(cause, some)
    add("step", difference(steps, joined([busy, waits])))
    outside[_COLUMN["outside"]] += length(difference(between, joined([busy, waits])))
    for at in range(0, len(windows[0]), SLAB):
        part = windows[0][at : at + SLAB], windows[1][at : at + SLAB]
        mine = intersection(_near(waits, part), joined([part]))
        for cause, begin, took in _of_makers(rank, mine, makers, part) if len(mine[0]) else ():
            window = (np.searchsorted(part[0], begin, side="right") - 1).clip(0) + at
            step: Array = np.searchsorted(rank.begin, begin, side="right") - 1
            within = np.zeros(len(begin), bool)
            within[step >= 0] = begin[step >= 0] < rank.end[step[step >= 0]]
            np.add.at(inside[:, _COLUMN[cause]], window[within], took[within])
            outside[_COLUMN[cause]] += took[~within].sum()
    return inside, outside


def _of_makers(
    rank: Rank, waits: Intervals, makers: list[Maker], windows: Intervals
) -> Iterator[tuple[str, Array, Array]]:
    """Yield the causes of moments of waiting, with begins and nanoseconds: what makers do, in equal parts, or none."""
    import numpy as np

    ways = [(0, waits)]
    ways += [(1 + at, _near(one.causes.get(cause, empty()), waits)) for at, cause in enumerate(MADE) for one in makers]
    rest, ends = np.zeros(2 * len(windows[0]), np.int8), np.array((1, -1), np.int8)
    times = np.concatenate([*(side for _, some in ways for side in some), *windows])
    order = np.argsort(times, kind="stable")
    times = times[order]
    channel = np.concatenate([*(np.full(2 * len(some[0]), way, np.int8) for way, some in ways), rest])[order]
    change = np.concatenate([*(np.repeat(ends, len(some[0])) for _, some in ways), rest])[order]
    idle = _idle(rank, rank.waits, makers)
    under_way = np.zeros(1 + len(MADE), np.int64)
    for at in range(0, len(times) - 1, BLOCK):
        block = slice(at, min(at + BLOCK, len(times) - 1))
        counts = np.zeros((block.stop - at, 1 + len(MADE)), np.int64)
        counts[np.arange(len(counts)), channel[block]] = change[block]
        counts = counts.cumsum(axis=0) + under_way
        under_way = counts[-1]
        begin = times[block]
        took = np.where(counts[:, 0] > 0, times[at + 1 : block.stop + 1] - begin, 0)
        busy = counts[:, 1:].sum(axis=1)
        for number, cause in enumerate(MADE):
            yield cause, begin, took * counts[:, 1 + number] / np.maximum(busy, 1)
        for cause, when in idle.items():
            yield cause, begin, np.where(busy == 0, took, 0) * when(begin)


def _idle(rank: Rank, waits: Intervals, makers: list[Maker]) -> dict[str, Callable[[Array], Array]]:
    """Return the causes of waiting while no maker works, and at which times each is the cause."""
    import numpy as np

    if not len(rank.begin):  # no step was marked: it is the program's own time
        return {"outside": lambda times: np.ones(len(times))}
    if not makers:  # a generator, or a data set in the process itself: what it does between its reads is own code
        return {"decode": lambda times: np.ones(len(times))}
    first = rank.begin[np.concatenate(([0], np.diff(rank.epoch).nonzero()[0] + 1))]
    started = waits[1][np.minimum(np.searchsorted(waits[0], first, side="left"), len(waits[0]) - 1)].copy()
    begun = np.array([min(some[0][0] for some in maker.causes.values() if len(some[0])) for maker in makers])
    epoch = np.searchsorted(first, begun, side="right") - 1
    np.maximum.at(started, epoch[epoch >= 0], begun[epoch >= 0])  # the last worker to begin in each epoch

    def early(times: Array) -> Array:
        return (times < started[np.maximum(np.searchsorted(first, times, side="right") - 1, 0)]).astype(float)

    return {"startup": early, "read_ahead": lambda times: 1 - early(times)}


def _near(some: Intervals, near: Intervals) -> Intervals:
    """Return those that lie between the begin of the first one of others and the end of the last one."""
    first, last = some[1].searchsorted(near[0][0], side="right"), some[0].searchsorted(near[1][-1])
    return some[0][first:last], some[1][first:last]
