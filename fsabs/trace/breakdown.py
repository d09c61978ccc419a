"""The breakdown of training steps: what the time of each epoch went to, in parts that add up to the whole.

A step computes, reads or writes by itself, or waits for its batch. What it waits for is what those do meanwhile who
make batches: *makers*, threads of DataLoader workers or of the same process. Each moment of waiting is divided equally
among the makers that work at that moment: one that reads waits for the store, for the cache, or decompresses; one that
doesn't is in the program's own code (decoding, augmentation, collating). Where none works, workers are starting or the
batch is on its way between processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .intervals import Array, Collector, Intervals, difference, empty, intersection, joined
from .results import (
    PARTS,
    Breakdown,
)
from .schema import (
    METADATA,
    READS,
    operation,
)
from .tables import Columns

MADE = ("storage", "cache", "decompression", "code")
"""The parts of a maker's time."""
_COLUMN = {part: number for number, part in enumerate(PARTS)}
BLOCK = 1 << 16
"""Moments that are divided together."""
_SORTS = {kind: kind for kind in ("request", "cache", "decompress", "hit", "fetch", "step")} | {"connect": "request"}
WRITES = frozenset(
    {
        "write", "write_many", "create", "append", "open_update", "commit", "mkdir", "makedirs", "rename", "remove",
        "remove_tree", "copy",
    }
)  # fmt: skip
"""Operations of the user's that change something."""


class _Process(NamedTuple):
    """The processes of a machine find one another by these."""

    boot: str
    pid: int
    parent: int
    worker: int | None


class _Maker(NamedTuple):
    """A thread that makes batches."""

    process: _Process
    parts: dict[str, Intervals]
    """By the names of `MADE`."""


class _Loop(NamedTuple):
    """A thread that trains."""

    process: _Process
    begin: Array
    end: Array
    first: Array
    """Whether a step is the first one of an epoch."""
    waits: Intervals
    """For its batches."""
    own: dict[str, Intervals]
    """The time of its own reads and writes, by part."""
    alone: _Maker
    """The thread as a maker, where it is the only one."""
    threads: int
    """Other threads of its process that make batches."""


class Activity:
    """Collects the activity of the threads of one process."""

    def __init__(self) -> None:
        self._by_thread: dict[tuple[str, int], Collector] = {}
        self._steps: dict[int, list[tuple[Array, Array, Array]]] = {}
        self._whole: dict[str, Collector] = {name: Collector() for name in ("request", "cache", "decompress", "hit")}

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        import numpy as np

        kinds = np.array([_sort(kind, name) for kind, name in some.keys])[some.key]
        for sort in np.unique(kinds):
            which = kinds == sort
            if sort in self._whole:
                self._whole[sort].add(some.begin[which], np.maximum(some.end[which], some.begin[which] + 1))
            elif sort:
                self._add_by_thread(some, which, str(sort))

    def _add_by_thread(self, some: Columns, which: Array, sort: str) -> None:
        import numpy as np

        for thread in np.unique(some.thread[which]):
            mine = which & (some.thread == thread)
            begin, end = some.begin[mine], some.end[mine]
            if sort == "step":
                self._steps.setdefault(int(thread), []).append((begin, end, some.size[mine]))
            else:
                self._by_thread.setdefault((sort, int(thread)), Collector()).add(begin, end)

    def _of(self, sort: str, thread: int) -> Intervals:
        found = self._by_thread.get((sort, thread))
        return found.get() if found is not None else empty()

    def _reading(self, thread: int) -> dict[str, Intervals]:
        """Return what a thread's reads waited for, by part."""
        reading = joined([self._of("read", thread), self._of("wait", thread)])
        found: dict[str, Intervals] = {}
        for part, sort in (("decompression", "decompress"), ("storage", "request"), ("cache", "cache")):
            under_way = self._whole[sort].get()
            found[part] = intersection(reading, under_way)
            reading = difference(reading, under_way)
        hits = _holds(reading, self._whole["hit"].get()[0])
        found["cache"] = joined([found["cache"], (reading[0][hits], reading[1][hits])])
        found["storage"] = joined([found["storage"], (reading[0][~hits], reading[1][~hits])])
        return found

    def _maker(self, process: _Process, thread: int, making: Intervals) -> _Maker:
        parts = self._reading(thread)
        busy = joined([*parts.values(), self._of("write", thread)])
        return _Maker(process, {**parts, "code": difference(making, busy)})

    def _threads(self, *sorts: str) -> list[int]:
        return sorted({thread for sort, thread in self._by_thread if sort in sorts})

    def makers(self, process: _Process) -> list[_Maker]:
        """Return the threads that made batches, without those of training steps that fetched none."""
        fetching = self._threads("fetch")
        if fetching:
            return [self._maker(process, thread, self._of("fetch", thread)) for thread in fetching]
        reading = [thread for thread in self._threads("read") if thread not in self._steps]
        return [self._maker(process, thread, self._alive(thread)) for thread in reading]

    def _alive(self, thread: int) -> Intervals:
        """Return the time from a thread's first read to the end of its last one."""
        begins, ends = self._of("read", thread)
        return begins[:1], ends[-1:]

    def loops(self, process: _Process) -> list[_Loop]:
        """Return the threads that trained."""
        import numpy as np

        fetching = self._threads("fetch")
        found = []
        for thread, steps in self._steps.items():
            begin, end, number = (np.concatenate(column) for column in zip(*steps, strict=True))
            order = np.argsort(begin, kind="stable")
            waits = self._of("next", thread)
            own = {part: difference(some, waits) for part, some in self._reading(thread).items()}
            own["writing"] = difference(self._of("write", thread), waits)
            alone = self._maker(process, thread, waits)
            others = [one for one in self._threads("read") if one not in (thread, *fetching)]
            found.append(_Loop(process, begin[order], end[order], number[order] == 0, waits, own, alone, len(others)))
        return found


def _sort(kind: str, name: str) -> str:
    """Return which collection an event belongs to; an empty string for none."""
    if kind == "fs":
        called = operation(name)
        return "write" if called in WRITES else "read" if called in READS | METADATA | {"as_local"} else ""
    if kind == "wait":
        return "next" if name == "steps.next" else "wait"
    return _SORTS.get(kind, "")


def _holds(some: Intervals, times: Array) -> Array:
    """Return for each interval whether one of the times lies in it."""
    import numpy as np

    begins, ends = some
    return np.searchsorted(times, ends, side="right") > np.searchsorted(times, begins, side="left")


class StepBreakdown:
    """Takes one process after the other."""

    def __init__(self) -> None:
        self._activity = Activity()
        self._loops: list[_Loop] = []
        self._makers: list[_Maker] = []

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        self._activity.add(some)

    def end_process(self, header: dict[str, Any]) -> None:
        """Take the process as complete."""
        process = _Process(header["boot"], header["pid"], header["parent"], header["worker"])
        self._loops += self._activity.loops(process)
        self._makers += self._activity.makers(process)
        self._activity = Activity()

    def rows(self) -> list[Breakdown]:
        """Return the breakdown of all epochs together, and where there are several, that of each."""
        import numpy as np

        if not self._loops:
            return []
        epochs = max(int(loop.first.sum()) for loop in self._loops) or 1
        parts = np.zeros((epochs, len(PARTS)))
        steps, workers, threads = np.zeros(epochs, np.int64), set(), 0
        for loop in self._loops:
            makers = self._makers_of(loop)
            workers |= {_place(maker.process) for maker in makers if maker.process != loop.process}
            threads = max(threads, loop.threads)
            mine = _divided(loop, makers)
            parts[: len(mine)] += mine
            steps[: len(mine)] += np.bincount(_epoch(loop, loop.begin), minlength=len(mine))
        rows = [_row(0, int(steps.sum()), len(workers), threads, parts.sum(axis=0))]
        if epochs > 1:
            rows += [_row(at + 1, int(steps[at]), len(workers), threads, parts[at]) for at in range(epochs)]
        return rows

    def _makers_of(self, loop: _Loop) -> list[_Maker]:
        """Return who made the batches of a loop: its process and its children, or workers whose parent is a server."""
        trainers = {(one.process.boot, one.process.pid) for one in self._loops}
        found = []
        for maker in self._makers:
            boot, pid, parent, worker = maker.process
            mine = loop.process.pid in (pid, parent)
            served = worker is not None and (boot, parent) not in trainers and (boot, pid) not in trainers
            if boot == loop.process.boot and (mine or served):
                found.append(maker)
        return found or [loop.alone]


def _place(process: _Process) -> tuple[str, int]:
    """Return what stands for a worker, also where each epoch starts new ones."""
    return (process.boot, process.pid if process.worker is None else process.worker)


def _row(epoch: int, steps: int, workers: int, threads: int, nanoseconds: Array) -> Breakdown:
    seconds = {part: float(value) / 1e9 for part, value in zip(PARTS, nanoseconds, strict=True)}
    return Breakdown(epoch, steps, sum(seconds.values()), workers, threads, seconds)


def _epoch(loop: _Loop, times: Array) -> Array:
    """Return the number of the epoch, from 0, of each time."""
    import numpy as np

    return np.maximum(np.searchsorted(loop.begin[loop.first], times, side="right") - 1, 0)


def _divided(loop: _Loop, makers: list[_Maker]) -> Array:
    """Return the nanoseconds of each epoch and part."""
    import numpy as np

    found = np.zeros((max(1, int(loop.first.sum())), len(PARTS)))
    steps = joined([(loop.begin, loop.end)])
    waits = intersection(loop.waits, steps)
    own = {part: intersection(some, steps) for part, some in loop.own.items()}
    computing = difference(steps, joined([waits, *own.values()]))
    for part, some in (*own.items(), ("compute", computing)):
        np.add.at(found[:, _COLUMN[part]], _epoch(loop, some[0]), some[1] - some[0])
    _divide_waits(loop, waits, makers, found)
    return found


def _divide_waits(loop: _Loop, waits: Intervals, makers: list[_Maker], found: Array) -> None:
    """Add each moment of waiting to the parts that the makers worked on at that moment."""
    import numpy as np

    if not len(waits[0]):
        return
    sets = [waits, *(_near(maker.parts[part], waits) for part in MADE for maker in makers)]
    channels = [0, *(1 + at for at in range(len(MADE)) for _ in makers)]
    times = np.concatenate([side for some in sets for side in some])
    channel = np.concatenate([np.full(2 * len(some[0]), at) for some, at in zip(sets, channels, strict=True)])
    change = np.concatenate([np.repeat((1, -1), len(some[0])) for some in sets])
    order = np.argsort(times, kind="stable")
    times, channel, change = times[order], channel[order], change[order]
    first_batches = _first_batches(loop, waits)
    under_way = np.zeros(1 + len(MADE), np.int64)
    for at in range(0, len(times) - 1, BLOCK):
        block = slice(at, min(at + BLOCK, len(times) - 1))
        counts = np.zeros((block.stop - at, 1 + len(MADE)), np.int64)
        counts[np.arange(len(counts)), channel[block]] = change[block]
        counts = counts.cumsum(axis=0) + under_way
        under_way = counts[-1]
        took = np.where(counts[:, 0] > 0, times[at + 1 : block.stop + 1] - times[block], 0)
        busy, epoch = counts[:, 1:].sum(axis=1), _epoch(loop, times[block])
        for number, part in enumerate(MADE, 1):
            np.add.at(found[:, _COLUMN[part]], epoch, took * counts[:, number] / np.maximum(busy, 1))
        idle = np.where(busy == 0, took, 0)
        early = times[block] < first_batches[epoch]
        np.add.at(found[:, _COLUMN["startup"]], epoch, np.where(early, idle, 0))
        np.add.at(found[:, _COLUMN["transfer"]], epoch, np.where(early, 0, idle))


def _near(some: Intervals, waits: Intervals) -> Intervals:
    near = (some[1] > waits[0][0]) & (some[0] < waits[1][-1])
    return some[0][near], some[1][near]


def _first_batches(loop: _Loop, waits: Intervals) -> Array:
    """Return when the first batch of each epoch had come."""
    import numpy as np

    begins = loop.begin[loop.first] if loop.first.any() else loop.begin[:1]
    return waits[1][np.minimum(np.searchsorted(waits[0], begins, side="left"), len(waits[0]) - 1)]
