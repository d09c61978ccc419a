"""The one attribution of time: each instant of a job belongs to exactly one of `CAUSES`.

A job is one timeline of all its ranks. Step `k` of the job ends when its last rank ends it, and the time since the end
of the step before is that of one rank, the *critical* one: of those that end the step last, the one that was free for
the least time, as the others wait for it inside of their steps. An instant of its time goes to

1. what the training thread does, or what its process does while it reads: by the first line of `cause_of_thread`
   that holds;
2. where that thread waits for a batch: what those do that make batches (*makers*: workers, or threads of the same
   process), in equal parts for those that work at that moment;
3. where no maker works: starting workers, up to an epoch's first batch and to the beginning of its last worker; else
   batches that are on their way. Where nothing makes batches beside it, its own code makes them (`decode`);
4. the step itself inside of steps, and outside of steps between them: what a rank does before its first step, and
   between epochs, is part of the job's step that follows.

Memory is bounded: the first pass over a trace leaves an `Outline` of each process, which has its steps and not its
other events. These are read again, a slice of the time after the other.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .intervals import Array
from .reading import Columns, Key, TraceSource
from .results import CAUSES, Breakdown, Lag, Step
from .schema import METADATA, READS, UPWARD, operation

SLICE = 1 << 18
"""Events of a slice of the time, all processes together."""
STEPS_KEPT = 10_000
TOGETHER = 0.05, 1_000_000
"""Ranks end a step together that do so within this part of it, or so many nanoseconds."""
COLLECTIVE = frozenset({"collective", "all_reduce", "barrier"})
"""Spans of the user's that wait for the other ranks."""
WRITES = frozenset(
    {
        "write", "write_bytes", "write_many", "append", "commit", "mkdir", "makedirs", "rename", "remove", "rmdir",
        "copy", "copy_tree", "sync_tree",
    }
)  # fmt: skip
"""Operations of the user's that change something."""
_COLUMN = {cause: number for number, cause in enumerate(CAUSES)}
_MADE = _COLUMN["decode"] + 1  # the first causes are those of a maker's time
_NOTHING, _BLOCKED = -1, -2
_SORTS = (
    "write", "list", "decompress", "read", "wait", "fetch", "next", "collective", "step", "transfer", "request",
    "connect", "throttle", "backoff", "cache",
)  # fmt: skip
_NUMBER = {sort: number for number, sort in enumerate(_SORTS)}

UnderWay = Callable[[str], Array]
"""Returns at which moments work of a sort is under way."""


def cause_of_thread(own: UnderWay, process: UnderWay) -> Array:
    """Return the number of the cause of each moment of a thread; -1 for none, -2 where it is blocked.

    A moment belongs to the first line below that covers it:

    1. `checkpoint`, `list`, `decompress`: it writes, lists or opens, decompresses itself.
    2. It reads, or waits for what is read ahead, while in its process, in whatever thread, a body is received
       (`transfer`), a connection is made (`connect`), a request is under way (`first_byte`), a turn is waited for
       (`throttle`), or a retry (`backoff`), something is decompressed or listed, or a cache is filled (`disk`).
    3. `disk`: it reads, and none of this is under way.
    4. Blocked: it waits for what is read ahead, and none of this is under way. That is not its own code: a maker that
       is blocked does not work, and the training thread waits.
    5. `decode`: it makes a batch.
    """
    import numpy as np

    waits = own("read") | own("wait")
    lines = [("checkpoint", own("write")), ("list", own("list")), ("decompress", own("decompress"))]
    lines += [
        (cause, waits & process(sort))
        for cause, sort in (
            ("transfer", "transfer"), ("connect", "connect"), ("first_byte", "request"), ("throttle", "throttle"),
            ("backoff", "backoff"), ("decompress", "decompress"), ("list", "list"), ("disk", "cache"),
        )
    ]  # fmt: skip
    lines += [("disk", own("read")), ("blocked", own("wait")), ("decode", own("fetch"))]
    numbers = {**_COLUMN, "blocked": _BLOCKED}
    causes = [np.int8(numbers[cause]) for cause, _ in lines]
    found: Array = np.select([when for _, when in lines], causes, np.int8(_NOTHING))
    return found


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


def _sorts(some: Columns) -> Array:
    """Return the number in `_SORTS` of each event, -1 for none."""
    import numpy as np

    return np.array([_NUMBER.get(_sort(key), -1) for key in some.keys] or [-1], np.int8)[some.key]


# ---- what the first pass leaves of a process


class Outline:
    """What is kept of a process: its steps and waits for batches, and which of its threads do what."""

    def __init__(self, source: TraceSource) -> None:
        self.source = source
        self.label = ""
        self.span = (0, 0)
        """The begin and the end of the process."""
        self._spans: dict[tuple[int, int], tuple[int, int]] = {}  # the first begin and the last end, by thread and sort
        self._kept: dict[tuple[int, int], list[tuple[Array, Array, Array]]] = collections.defaultdict(list)

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        import numpy as np

        sorts = _sorts(some)
        for sort in np.unique(sorts[sorts >= 0]).tolist():
            for thread in np.unique(some.thread[sorts == sort]).tolist():
                mine = (sorts == sort) & (some.thread == thread)
                begin, end = some.begin[mine], some.end[mine]
                first, last = self._spans.get((thread, sort), (begin[0], end[0]))
                self._spans[thread, sort] = min(first, int(begin.min())), max(last, int(end.max()))
                if _SORTS[sort] in ("step", "next"):
                    self._kept[thread, sort].append((begin, end, some.size[mine].clip(0, 1 << 30)))

    @property
    def machine(self) -> str:
        """What stands for the machine, or the container, of the process."""
        return machine(self.source.header)

    @property
    def worker(self) -> int:
        """What stands for a worker of a rank, also where each epoch starts new ones."""
        header = self.source.header
        return int(header["pid"]) if header["worker"] is None else -1 - int(header["worker"])

    @property
    def training(self) -> list[int]:
        """The threads that mark steps."""
        return self.threads("step")

    def threads(self, *sorts: str) -> list[int]:
        """Return the threads that do work of one of these sorts."""
        return sorted({thread for thread, sort in self._spans if _SORTS[sort] in sorts})

    def worked(self, thread: int) -> tuple[int, int]:
        """Return the begin of a thread's first work and the end of its last one."""
        sorts = [_NUMBER[sort] for sort in ("write", "list", "decompress", "read", "fetch")]
        spans = [self._spans[thread, sort] for sort in sorts if (thread, sort) in self._spans]
        return min(begin for begin, _ in spans), max(end for _, end in spans)

    def kept(self, thread: int, sort: str) -> tuple[Array, Array, Array]:
        """Return the begins, ends and sizes of the steps of a thread, or of its waits for batches, in order."""
        import numpy as np

        parts = self._kept.get((thread, _NUMBER[sort])) or [(np.zeros(0, np.int64),) * 3]
        begin, end, size = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(begin, kind="stable")
        return begin[order], end[order], size[order]

    def makers(self) -> list[Maker]:
        """Return the threads that may make batches: those that fetch for a DataLoader, else those that read."""
        training = self.training
        fetching = [thread for thread in self.threads("fetch") if thread not in training]
        reading = [thread for thread in self.threads("read", "list", "decompress") if thread not in training]
        return [Maker(self, thread, not fetching, *self.worked(thread)) for thread in fetching or reading]

    def ranks(self, marked: bool) -> list[Rank]:
        """Return the threads that train; if no process marks steps, the main thread, unless it is a worker's."""
        training = self.training
        if not marked:
            training = [self.source.header["main"]] if self.source.header["worker"] is None else []
        others = len({*self.threads("fetch", "read")} - {*training})
        # The size of a step is its number.
        return [Rank(self, thread, *self.kept(thread, "step"), others) for thread in training]


class Maker(NamedTuple):
    """A thread that makes batches."""

    process: Outline
    thread: int
    by_calls: bool
    """True if no fetch says when it works: what it does from its first to its last call is its own code."""
    begin: int
    end: int


class Rank(NamedTuple):
    """A thread that trains."""

    process: Outline
    thread: int
    begin: Array
    """Of the steps, in order; empty where no step was marked."""
    end: Array
    number: Array
    """Of each step in its epoch."""
    threads: int
    """Other threads of its process that make batches."""

    @property
    def epoch(self) -> Array:
        """The epoch of each step, from 0: one begins with each step 0, and with the first one that was traced."""
        import numpy as np

        begins = self.number == 0
        begins[:1] = True
        return np.cumsum(begins) - 1

    def started(self, makers: Sequence[Maker]) -> tuple[Array, Array]:
        """Return when the first step of each epoch begins, and when its first batch is there and all workers work."""
        import numpy as np

        first = self.begin[np.diff(self.epoch, prepend=-1).nonzero()[0]]
        begins, ends, _ = self.process.kept(self.thread, "next")
        if not len(begins):
            return first, first
        started = ends[np.minimum(np.searchsorted(begins, first, side="left"), len(begins) - 1)].copy()
        begun = np.array([maker.begin for maker in makers])
        epoch = np.searchsorted(first, begun, side="right") - 1
        np.maximum.at(started, epoch[epoch >= 0], begun[epoch >= 0])
        return first, started


# ---- a slice of the time


class _Activity:
    """What the threads of a process do in a slice of the time: at each of `times`, until the next one."""

    def __init__(self, process: Outline, begin: int, end: int) -> None:
        import numpy as np

        parts = [(np.zeros(0, np.int8), *(np.zeros(0, np.int64),) * 3)]
        for some in process.source.between(begin, end):
            sort, ends = _sorts(some), np.maximum(some.end, some.begin + 1)
            near = (sort >= 0) & (some.begin < end) & (ends > begin)
            parts.append((sort[near], some.thread[near], some.begin[near].clip(begin), ends[near].clip(max=end)))
        self._sort, self._thread, first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.times, at = np.unique(np.concatenate((first, last, [begin])), return_inverse=True)
        self._first, self._last = at[: len(first)], at[len(first) : -1]
        self._end = end

    def under_way(self, sort: str, thread: int | None = None) -> Array:
        """Return at which moments work of a sort is under way in a thread, or in any."""
        import numpy as np

        which = self._sort == _NUMBER[sort]
        if thread is not None:
            which &= self._thread == thread
        changes = np.bincount(self._first[which], minlength=len(self.times))
        changes -= np.bincount(self._last[which], minlength=len(self.times))
        under_way: Array = np.cumsum(changes) > 0
        return under_way

    def causes(self, thread: int) -> Array:
        """Return the cause of each moment of a thread."""
        return cause_of_thread(lambda sort: self.under_way(sort, thread), self.under_way)

    def made(self, maker: Maker) -> tuple[Array, int]:
        """Return the cause of each moment of a thread that makes batches, and the nanoseconds of its own code."""
        import numpy as np

        causes = self.causes(maker.thread)
        if maker.by_calls:
            within = (self.times >= maker.begin) & (self.times < maker.end)
            causes[within & (causes == _NOTHING)] = _COLUMN["decode"]
        took = np.diff(self.times, append=self._end)
        return causes, int(took[causes == _COLUMN["decode"]].sum())

    def at(self, times: Array) -> Array:
        """Return which of its moments each time is in."""
        import numpy as np

        return np.searchsorted(self.times, times, side="right") - 1


class _Divided(NamedTuple):
    """The time of a rank in a slice, in nanoseconds."""

    causes: Array
    """By window, 0 outside of steps or 1 inside, and cause."""
    free: Array
    """By window: the time in which it computes or waits for other ranks, which look alike; where spans of `COLLECTIVE`
    tell them apart, the time in these."""


def _divided(
    rank: Rank, makers: Sequence[tuple[_Activity, Array]], mine: _Activity, early: tuple[Array, Array],
    windows: Array, until: int,
) -> _Divided:  # fmt: skip
    """Divide the time of a rank among causes, in windows that begin at `windows`, the last one until `until`."""
    import numpy as np

    near = slice(np.searchsorted(rank.end, windows[0]), np.searchsorted(rank.end, until) + 1)
    begins, ends = rank.begin[near], rank.end[near]
    times = np.unique(np.concatenate([mine.times, *(one.times for one, _ in makers), windows, begins, ends]))
    times = times[(times >= windows[0]) & (times < until)]
    took = np.diff(times, append=until)
    step = np.searchsorted(begins, times, side="right") - 1
    inside = np.zeros(len(times), bool)
    inside[step >= 0] = times[step >= 0] < ends[step[step >= 0]]
    row = 2 * (np.searchsorted(windows, times, side="right") - 1) + inside
    at = mine.at(times)
    cause = mine.causes(rank.thread)[at]
    waits = mine.under_way("next", rank.thread)[at] | (not len(rank.begin))
    idle = cause < 0
    cause[idle] = np.where(inside[idle], _COLUMN["step"], _COLUMN["outside"])
    free = inside & idle & ~waits
    if rank.process.threads("collective"):
        free = mine.under_way("collective", rank.thread)[at]

    waiting = (waits & idle).nonzero()[0]
    busy = np.zeros((_MADE, len(waiting)), np.int32)
    for activity, causes in makers:
        made = causes[activity.at(times[waiting])]
        works = ((made >= 0) & (made < _MADE)).nonzero()[0]
        np.add.at(busy, (made[works], works), 1)
    working = busy.sum(axis=0)
    cause[waiting] = _idle(rank, bool(makers), times[waiting], early)
    sums = np.zeros((2 * len(windows), len(CAUSES)))
    made = working > 0
    for number in range(_MADE):
        share = took[waiting[made]] * busy[number, made] / working[made]
        sums[:, number] += np.bincount(row[waiting[made]], share, len(sums))
    alone = np.ones(len(times), bool)
    alone[waiting[made]] = False
    sums += np.bincount((row * len(CAUSES) + cause)[alone], took[alone], sums.size).reshape(sums.shape)
    return _Divided(sums.reshape(len(windows), 2, -1), np.bincount(row // 2, took * free, len(windows)))


def _idle(rank: Rank, made: bool, times: Array, early: tuple[Array, Array]) -> Array:
    """Return the causes of waiting while no maker works."""
    import numpy as np

    if not len(rank.begin):  # no step was marked: it is the program's own time
        return _COLUMN["outside"]
    if not made:  # a generator, or a data set in the process itself: what it does between its reads is own code
        return _COLUMN["decode"]
    first, started = early
    starting = times < started[np.maximum(np.searchsorted(first, times, side="right") - 1, 0)]
    return np.where(starting, _COLUMN["startup"], _COLUMN["read_ahead"])


# ---- the timeline of a job


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


class _Sums:
    """What is added up over the time of a job."""

    def __init__(self, epochs: int) -> None:
        import numpy as np

        self.whole = np.zeros(len(CAUSES))
        self.epochs = np.zeros((epochs, len(CAUSES)))
        self.counts = np.zeros(epochs, np.int64)
        self.steps: list[Step] = []
        self.lags: list[Lag] = []
        self.own = 0


def attributed(processes: Sequence[Outline]) -> Attributed:
    """Divide the time of the job, which goes from the begin of its first rank to the end of its last one."""
    marked = any(process.training for process in processes)
    ranks = [rank for process in processes for rank in process.ranks(marked)]
    if not marked:
        ranks = _roots(ranks)
    if not ranks:
        return Attributed([], [], None, {}, 0.0)
    every = [maker for process in processes for maker in process.makers()]
    makers = {id(rank): _makers_of(rank, every, ranks if marked else []) for rank in ranks}
    sums = _Sums(max(int(rank.epoch[-1]) + 1 if len(rank.begin) else 0 for rank in ranks))
    until = 0
    for group in _groups(ranks):
        job = _Timeline(group, until)
        sums.whole[_COLUMN["outside"]] += max(0, job.begin[0] - until) if until else 0
        until = int(job.end[-1])
        _add(sums, job, [makers[id(rank)] for rank in group])
        sums.lags.append(job.lag())
    workers = [{one.process.worker for one in makers[id(rank)] if one.process is not rank.process} for rank in ranks]
    common = len(ranks), max(map(len, workers)), max(rank.threads for rank in ranks)
    rows = [_row(0, int(sums.counts.sum()), *common, sums.whole)]
    rows += [
        _row(epoch + 1, int(count), *common, causes)
        for epoch, (count, causes) in enumerate(zip(sums.counts, sums.epochs, strict=True))
    ]
    on = collections.Counter(process.machine for process in {id(rank.process): rank.process for rank in ranks}.values())
    lag = max(sums.lags, key=lambda one: one.seconds) if len(ranks) > 1 and marked else None
    return Attributed(rows, sums.steps, lag, on, sums.own / 1e9)


def _roots(ranks: Sequence[Rank]) -> list[Rank]:
    """Return the processes that no other traced process started."""
    places = {(rank.process.machine, rank.process.source.header["pid"]) for rank in ranks}
    return [rank for rank in ranks if (rank.process.machine, rank.process.source.header["parent"]) not in places]


def _makers_of(rank: Rank, every: Sequence[Maker], marked: Sequence[Rank]) -> list[Maker]:
    """Return what made the batches of a rank: its process and its children, or workers whose parent is a server."""
    trainers = {(one.process.machine, one.process.source.header["pid"]) for one in marked}
    place, found = rank.process.machine, []
    for maker in every:
        header = maker.process.source.header
        pid, parent = header["pid"], header["parent"]
        if maker.process.machine != place or (maker.process, maker.thread) == (rank.process, rank.thread):
            continue
        served = header["worker"] is not None and not {(place, pid), (place, parent)} & trainers
        if rank.process.source.header["pid"] in (pid, parent) or served:
            found.append(maker)
    return found


def machine(header: Mapping[str, str]) -> str:
    """Return what stands for the machine, or the container, of a process."""
    return f"{header['boot']} {header['host']}"


def _groups(ranks: Sequence[Rank]) -> list[list[Rank]]:
    """Return the ranks that run beside one another: for at least half of the time of the shorter one.

    A job that is started again follows itself, also where its last process ends late.
    """
    found: list[list[Rank]] = []
    since = until = 0
    for rank in sorted(ranks, key=lambda one: one.process.span):
        begin, end = rank.process.span
        if found and min(end, until) - begin >= min(end - begin, until - since) / 2:
            found[-1].append(rank)
        else:
            found.append([rank])
            since = begin
        until = max(until, end)
    return found


class _Timeline:
    """The steps of a job, which follow one another without a gap; the last one is what comes after all steps."""

    def __init__(self, ranks: Sequence[Rank], after: int) -> None:
        import numpy as np

        self.ranks = ranks
        spans = np.array(
            [[min([one.process.span[0], *one.begin[:1]]), max([one.process.span[1], *one.end[-1:]])] for one in ranks]
        )
        start, stop = max(after, int(spans[:, 0].min())), int(spans[:, 1].max())
        keys = [(rank.epoch << 32) | rank.number for rank in ranks]
        every = np.unique(np.concatenate(keys))
        self._ends = np.full((len(ranks), len(every) + 1), -1, np.int64)
        for row, key, rank in zip(self._ends, keys, ranks, strict=True):
            row[np.searchsorted(every, key)] = rank.end
        self._ends[:, -1] = spans[:, 1]
        self.end = np.maximum.accumulate(self._ends.max(axis=0)).clip(start, stop)
        self.begin = np.concatenate(([start], self.end[:-1]))
        self.epoch, self.number = (every >> 32).astype(np.int64), every & 0xFFFFFFFF
        self._lost, self._ended_last = np.zeros(len(ranks)), 0

    def take_critical(self, window: slice, free: Array) -> Array:
        """Return the rank that each of these steps is the time of: of those that end it last, the one that was free for
        the least time. To be called once for each step, since it adds up what the others wait for that rank.

        They wait for as long as the typical one of them is free more than the critical one.
        """
        import numpy as np

        ends, end = self._ends[:, window], self.end[window]
        last = ends >= end - np.maximum(TOGETHER[0] * (end - self.begin[window]), TOGETHER[1])
        last |= ends == ends.max(axis=0)
        critical: Array = np.where(last, free, np.inf).argmin(axis=0)
        steps = np.arange(len(end))
        if window.stop == len(self.end):
            critical[-1] = ends[:, -1].argmax()
            steps = steps[:-1]
        if len(self.ranks) > 1 and len(steps):
            self._ended_last += int(last[:, steps].sum())
            others = free[:, steps].copy()
            others[critical[steps], steps] = np.nan
            waited = np.nanmedian(others, axis=0) - free[critical[steps], steps]
            np.add.at(self._lost, critical[steps], waited.clip(0))
        return critical

    def lag(self) -> Lag:
        """Return for how long the ranks wait for the one that they wait most for: those that don't end their steps
        together, at the end.
        """
        import numpy as np

        lost, steps = self._lost, len(self.end) - 1
        together = self._ended_last - steps >= 0.5 * (len(self.ranks) - 1) * steps and len(self.ranks) > 1 and steps > 0
        if not together:
            lost = np.zeros(len(self.ranks))
        if not together and len(self.ranks) > 1 and steps:
            done = self._ends[:, :-1].max(axis=1)
            lost[done.argmax()] = done.max() - np.median(np.delete(done, done.argmax()))
        worst = int(lost.argmax())
        return Lag(self.ranks[worst].process.label, float(lost[worst]) / 1e9, float(lost.sum()) / 1e9, bool(together))


def _add(sums: _Sums, job: _Timeline, makers: Sequence[Sequence[Maker]]) -> None:
    """Add the time of a job, a slice after the other; a step that a slice leaves open is the next one's first."""
    import numpy as np

    early = [rank.started(mine) for rank, mine in zip(job.ranks, makers, strict=True)]
    processes = {id(one): one for one in (rank.process for rank in job.ranks)}
    processes |= {id(maker.process): maker.process for mine in makers for maker in mine}
    left, first = None, 0
    for begin, end in _slices(list(processes.values()), int(job.begin[0]), int(job.end[-1])):
        last = int(np.searchsorted(job.end, end, side="right"))  # the first step that isn't over
        window = slice(first, min(last + 1, len(job.end)))
        begins = job.begin[window].clip(begin)
        activities = {key: _Activity(one, begin, end) for key, one in processes.items()}
        made = {
            (id(maker.process), maker.thread): activities[id(maker.process)].made(maker)
            for mine in makers
            for maker in mine
        }
        sums.own += sum(own for _, own in made.values())
        divided = [
            _divided(
                rank,
                [(activities[id(one.process)], made[id(one.process), one.thread][0]) for one in mine],
                activities[id(rank.process)],
                starting,
                begins,
                end,
            )
            for rank, mine, starting in zip(job.ranks, makers, early, strict=True)
        ]
        causes, free = np.stack([one.causes for one in divided]), np.stack([one.free for one in divided]).astype(float)
        if left is not None:
            causes[:, 0] += left.causes
            free[:, 0] += left.free
        over = last - first
        left = _Divided(causes[:, over], free[:, over]) if over < causes.shape[1] else None
        if over:
            _take(sums, job, slice(first, last), causes[:, :over], free[:, :over])
        first = last


def _slices(processes: Sequence[Outline], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield parts of the time, one after the other, in which about `SLICE` events end, by whole chunks."""
    import numpy as np

    ends, counts = np.array([one[2:] for process in processes for one in process.source.index]).reshape(-1, 2).T
    order = np.argsort(ends, kind="stable")
    part = np.cumsum(counts[order]) // SLICE
    cuts = ends[order][:-1][np.diff(part) > 0]
    times = [begin, *np.unique(cuts[(cuts > begin) & (cuts < end)]).tolist(), end]
    yield from itertools.pairwise(times)


def _take(sums: _Sums, job: _Timeline, window: slice, causes: Array, free: Array) -> None:
    """Add steps that are over: the causes of each are those of its critical rank."""
    import numpy as np

    critical = job.take_critical(window, free)
    mine = causes[critical, np.arange(len(critical))]
    sums.whole += mine.sum(axis=(0, 1))
    epoch, number = job.epoch[window], job.number[window]
    np.add.at(sums.epochs, epoch, mine[: len(epoch), 1])  # the last one is what comes after all steps
    np.add.at(sums.counts, epoch, 1)
    names = list(CAUSES)
    for at in range(min(len(epoch), STEPS_KEPT - len(sums.steps))):
        rank, row = job.ranks[critical[at]], mine[at, 1]
        step = max(0, int(np.searchsorted(rank.end, job.end[window][at], side="right")) - 1)
        begin = max(int(rank.begin[step]), int(job.begin[window][at]))
        found = {names[column]: float(row[column]) / 1e9 for column in row.nonzero()[0]}
        sums.steps.append(Step(rank.process.source.number, int(number[at]), begin, float(row.sum()) / 1e9, found))


def _row(epoch: int, steps: int, processes: int, workers: int, threads: int, nanoseconds: Array) -> Breakdown:
    causes = {cause: float(value) / 1e9 for cause, value in zip(CAUSES, nanoseconds, strict=True)}
    return Breakdown(epoch, steps, sum(causes.values()), processes, workers, threads, causes)
