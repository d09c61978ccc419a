"""The one attribution of time: each instant of each process that trains belongs to exactly one of `CAUSES`.

An instant goes to the innermost work of the training thread. Where that thread waits for a batch, or for what is read
ahead, the instant is followed to what those do meanwhile that make batches (*makers*: workers, or threads of the same
process), and divided equally among the makers that work at that moment. A read waits for the requests that are under
way: for their bytes if any arrives, else for a first byte, a connection, a turn (throttle) or the time of a retry, in
this order. While no worker is busy, workers are starting, up to an epoch's first batch and to the beginning of its last
worker, or batches are on their way. The rest is the step itself inside of steps and outside of steps between them; so
that the causes add up to the wall time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .intervals import Array, Collector, Intervals, covered, difference, empty, intersection, joined
from .reading import Columns, Key
from .results import CAUSES, Breakdown, Step
from .schema import METADATA, READS, UPWARD, operation

MADE = ("connect", "first_byte", "transfer", "throttle", "backoff", "list", "disk", "decompress", "decode")
"""The causes of a maker's time."""
_COLUMN = {cause: number for number, cause in enumerate(CAUSES)}
BLOCK = 1 << 16
"""Moments that are divided together."""
STEPS_KEPT = 10_000
WRITES = frozenset(
    {
        "write", "write_bytes", "write_many", "append", "commit", "mkdir", "makedirs", "rename", "remove", "rmdir",
        "copy", "copy_tree", "sync_tree",
    }
)  # fmt: skip
"""Operations of the user's that change something."""
_PARTS_OF_REQUESTS = ("transfer", "throttle", "backoff")
_SHARED = ("request", "transfer", "connect", "throttle", "backoff", "decompress", "cache", "list")
"""What is looked for in the whole process: what a thread waits for, others may do."""


def _sort(key: Key) -> str:
    """Return what an event says of the time of its thread or process; empty for nothing."""
    kind, name = key
    what = operation(name)
    if kind == "fs":
        return "list" if what in METADATA else "read" if what in READS else "write" if what in WRITES else ""
    if kind == "wait":
        if what in _PARTS_OF_REQUESTS:
            return what
        return "next" if name == "steps.next" else "wait"
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


class _Maker(NamedTuple):
    """A thread that makes batches."""

    place: Place
    thread: int
    causes: dict[str, Intervals]
    """By the names of `MADE`."""


class _Loop(NamedTuple):
    """A thread whose time is attributed."""

    place: Place
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
    """For batches, or where no step was marked all of the time."""
    own: dict[str, Intervals]
    """The time of its own reads, writes and fetches, by cause."""
    threads: int
    """Other threads of its process that make batches."""


class _Activity:
    """Collects the activity of the threads of one process."""

    def __init__(self) -> None:
        self._by_thread: dict[tuple[str, int], Collector] = {}
        self._shared = {sort: Collector() for sort in _SHARED}
        self._steps: dict[int, list[tuple[Array, Array, Array]]] = {}

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        import numpy as np

        sorts = [_sort(key) for key in some.keys]
        for sort in {*sorts} - {""}:
            which = np.array([one == sort for one in sorts])[some.key]
            begin, end = some.begin[which], np.maximum(some.end[which], some.begin[which] + 1)
            if sort in self._shared:
                self._shared[sort].add(begin, end)
            thread = some.thread[which]
            for one in np.unique(thread) if sort not in ("request", "connect", *_PARTS_OF_REQUESTS) else ():
                mine = thread == one
                if sort == "step":
                    self._steps.setdefault(int(one), []).append((begin[mine], end[mine], some.size[which][mine]))
                else:
                    self._by_thread.setdefault((sort, int(one)), Collector()).add(begin[mine], end[mine])

    def _of(self, sort: str, thread: int) -> Intervals:
        found = self._by_thread.get((sort, thread))
        return found.get() if found is not None else empty()

    def _causes(self, thread: int) -> dict[str, Intervals]:
        """Return the time of a thread's own calls and fetches, by cause; no two overlap."""
        found: dict[str, Intervals] = {}
        waiting = joined([self._of("read", thread), self._of("wait", thread)])
        for cause, sort in (("checkpoint", "write"), ("list", "list"), ("decompress", "decompress")):
            found[cause] = difference(self._of(sort, thread), joined(list(found.values())))
        waiting = difference(waiting, joined(list(found.values())))
        for cause, under_way in (
            ("transfer", self._shared["transfer"].get()),
            ("first_byte", self._shared["request"].get()),
            *((cause, self._shared[cause].get()) for cause in ("connect", "throttle", "backoff", "decompress")),
            ("list", self._shared["list"].get()),
            ("disk", self._shared["cache"].get()),
        ):
            found[cause] = joined([found.get(cause, empty()), intersection(waiting, under_way)])
            waiting = difference(waiting, under_way)
        found["disk"] = joined([found["disk"], intersection(waiting, self._of("read", thread))])
        busy = joined([*found.values(), difference(self._of("wait", thread), self._of("read", thread))])
        found["decode"] = difference(self._of("fetch", thread), busy)
        return found

    def _threads(self, *sorts: str) -> list[int]:
        return sorted({thread for sort, thread in self._by_thread if sort in sorts})

    @property
    def is_exact(self) -> bool:
        """False if there was more than is kept apart."""
        return all(one.is_exact for one in (*self._by_thread.values(), *self._shared.values()))

    def makers(self, place: Place) -> list[_Maker]:
        """Return the threads that may make batches: those that fetch for a DataLoader, else those that read."""
        fetching = [thread for thread in self._threads("fetch") if thread not in self._steps]
        if fetching:
            return [_Maker(place, thread, self._causes(thread)) for thread in fetching]
        found = []
        for thread in self._threads("read", "list", "decompress"):
            if thread not in self._steps:
                causes = self._causes(thread)
                times = joined(list(causes.values()))
                alive = times[0][:1], times[1][-1:]
                waits = difference(self._of("wait", thread), self._of("read", thread))
                found.append(_Maker(place, thread, causes | {"decode": difference(alive, joined([times, waits]))}))
        return found

    def loops(self, place: Place, process: int, span: tuple[int, int], main: int) -> list[_Loop]:
        """Return the threads that train; where no step was marked, the main thread, unless it is a worker's."""
        import numpy as np

        readers = {*self._threads("fetch", "read")}
        if not self._steps:
            if place.worker is not None:
                return []
            nothing, whole = np.zeros(0, np.int64), (np.array([span[0]]), np.array([span[1]]))
            own = self._causes(main)
            return [_Loop(place, main, process, span, nothing, nothing, nothing, whole, own, len(readers - {main}))]
        found = []
        for thread, steps in self._steps.items():
            begin, end, number = (np.concatenate(column) for column in zip(*steps, strict=True))
            order = np.argsort(begin, kind="stable")
            begin, end, number = begin[order], end[order], number[order]
            threads = len(readers - self._steps.keys())
            waits = self._of("next", thread)
            found.append(_Loop(place, thread, process, span, begin, end, number, waits, self._causes(thread), threads))
        return found


class Attribution:
    """Takes one process after another; after the last one, `rows()` and `steps()` divide their time."""

    def __init__(self) -> None:
        self._activity = _Activity()
        self._loops: list[_Loop] = []
        self._makers: list[_Maker] = []
        self.is_exact: bool = True
        """False if a process did more than is kept apart, and what was between counts as such work, too."""

    def add(self, some: Columns) -> None:
        """Add events of the process."""
        self._activity.add(some)

    def end_process(self, header: dict[str, Any], process: int, span: tuple[int, int]) -> None:
        """Take the process as complete."""
        place = Place(f"{header['boot']} {header['host']}", header["pid"], header["parent"], header["worker"])
        self._loops += self._activity.loops(place, process, span, header["main"])
        makers = self._activity.makers(place)
        self._makers += [maker for maker in makers if any(len(some[0]) for some in maker.causes.values())]
        self.is_exact = self.is_exact and self._activity.is_exact
        self._activity = _Activity()

    def results(self) -> tuple[list[Breakdown], list[Step]]:
        """Return the breakdown of the whole time and of each epoch, and the steps."""
        import numpy as np

        marked = [loop for loop in self._loops if len(loop.begin)]
        loops = marked or self._first_ones()
        if not loops:
            return [], []
        epochs = max((int(_begins_epoch(loop).sum()) for loop in marked), default=0)
        whole, rows = np.zeros(len(CAUSES)), np.zeros((epochs, len(CAUSES)))
        count, steps, workers, threads = np.zeros(epochs, np.int64), list[Step](), set(), 0
        for loop in loops:
            makers = self._makers_of(loop, marked)
            workers |= {_worker(maker.place) for maker in makers if maker.place != loop.place}
            threads = max(threads, loop.threads)
            inside, outside = _divided(loop, makers)
            whole += inside.sum(axis=0) + outside
            epoch = np.cumsum(_begins_epoch(loop)) - 1
            np.add.at(rows, epoch, inside)
            np.add.at(count, epoch, 1)
            steps += _steps(loop, inside, STEPS_KEPT - len(steps))
        made = [_row(0, int(count.sum()), len(loops), len(workers), threads, whole)]
        made += [_row(at + 1, int(count[at]), len(loops), len(workers), threads, rows[at]) for at in range(epochs)]
        return made, sorted(steps, key=lambda step: step.begin)

    def _first_ones(self) -> list[_Loop]:
        """Return the processes that no other traced process started."""
        places = {(loop.place.machine, loop.place.pid) for loop in self._loops}
        return [loop for loop in self._loops if (loop.place.machine, loop.place.parent) not in places]

    def _makers_of(self, loop: _Loop, marked: Sequence[_Loop]) -> list[_Maker]:
        """Return what made the batches of a loop: its process and its children, or workers whose parent is a server."""
        trainers = {(one.place.machine, one.place.pid) for one in marked}
        found = []
        for maker in self._makers:
            machine, pid, parent, worker = maker.place
            if (maker.place, maker.thread) == (loop.place, loop.thread):
                continue
            mine = loop.place.pid in (pid, parent)
            served = worker is not None and (machine, parent) not in trainers and (machine, pid) not in trainers
            if machine == loop.place.machine and (mine or served):
                found.append(maker)
        return found


def _begins_epoch(loop: _Loop) -> Array:
    """Return of each step whether an epoch begins with it; with the first one that was traced, too."""
    begins = loop.number == 0
    begins[:1] = True
    return begins


def _worker(place: Place) -> tuple[str, int]:
    """Return what stands for a worker, also where each epoch starts new ones."""
    return (place.machine, place.pid if place.worker is None else place.worker)


def _row(epoch: int, steps: int, processes: int, workers: int, threads: int, nanoseconds: Array) -> Breakdown:
    causes = {cause: float(value) / 1e9 for cause, value in zip(CAUSES, nanoseconds, strict=True)}
    return Breakdown(epoch, steps, sum(causes.values()), processes, workers, threads, causes)


def _steps(loop: _Loop, inside: Array, most: int) -> list[Step]:
    causes = list(CAUSES)
    return [
        Step(
            loop.process, int(loop.number[at]), int(loop.begin[at]), int(loop.end[at] - loop.begin[at]) / 1e9,
            {causes[column]: float(inside[at, column]) / 1e9 for column in inside[at].nonzero()[0]},
        )
        for at in range(min(most, len(loop.begin)))
    ]  # fmt: skip


def _divided(loop: _Loop, makers: list[_Maker]) -> tuple[Array, Array]:
    """Return the nanoseconds of each step and cause, and those of each cause outside of steps."""
    import numpy as np

    inside, outside = np.zeros((len(loop.begin), len(CAUSES))), np.zeros(len(CAUSES))
    steps = joined([(loop.begin, loop.end)])
    life = np.array([min([loop.span[0], *loop.begin[:1]])]), np.array([max([loop.span[1], *loop.end[-1:]])])
    between = difference(life, steps)

    def add(cause: str, some: Intervals) -> None:
        inside[:, _COLUMN[cause]] += covered(loop.begin, loop.end, some)
        outside[_COLUMN[cause]] += covered(life[0], life[1], intersection(some, between)).sum()

    busy = joined(list(loop.own.values()))
    waits = difference(intersection(loop.waits, life), busy)
    for cause, some in loop.own.items():
        add(cause, some)
    add("step", difference(steps, joined([busy, waits])))
    outside[_COLUMN["outside"]] += covered(life[0], life[1], difference(between, joined([busy, waits]))).sum()
    if len(waits[0]):
        _divide_waits(loop, waits, makers, inside, outside)
    return inside, outside


def _divide_waits(loop: _Loop, waits: Intervals, makers: list[_Maker], inside: Array, outside: Array) -> None:
    """Add each moment of waiting to the causes that the makers worked on at that moment."""
    import numpy as np

    sets = [waits, *(_near(maker.causes.get(cause, empty()), waits) for cause in MADE for maker in makers)]
    channels = [0, *(1 + at for at in range(len(MADE)) for _ in makers)]
    times = np.concatenate([side for some in sets for side in some])
    channel = np.concatenate([np.full(2 * len(some[0]), at) for some, at in zip(sets, channels, strict=True)])
    change = np.concatenate([np.repeat((1, -1), len(some[0])) for some in sets])
    order = np.argsort(times, kind="stable")
    times, channel, change = times[order], channel[order], change[order]
    idle = _idle(loop, waits, makers)
    under_way = np.zeros(1 + len(MADE), np.int64)
    for at in range(0, len(times) - 1, BLOCK):
        block = slice(at, min(at + BLOCK, len(times) - 1))
        counts = np.zeros((block.stop - at, 1 + len(MADE)), np.int64)
        counts[np.arange(len(counts)), channel[block]] = change[block]
        counts = counts.cumsum(axis=0) + under_way
        under_way = counts[-1]
        begin = times[block]
        took = np.where(counts[:, 0] > 0, times[at + 1 : block.stop + 1] - begin, 0)
        step = np.searchsorted(loop.begin, begin, side="right") - 1
        within = np.zeros(len(step), bool)
        within[step >= 0] = begin[step >= 0] < loop.end[step[step >= 0]]
        busy = counts[:, 1:].sum(axis=1)
        shares = [(_COLUMN[cause], took * counts[:, 1 + n] / np.maximum(busy, 1)) for n, cause in enumerate(MADE)]
        nobody = np.where(busy == 0, took, 0)
        for column, share in (*shares, *((_COLUMN[cause], nobody * when(begin)) for cause, when in idle.items())):
            np.add.at(inside[:, column], step[within], share[within])
            outside[column] += share[~within].sum()


def _idle(loop: _Loop, waits: Intervals, makers: list[_Maker]) -> dict[str, Callable[[Array], Array]]:
    """Return the causes of waiting while no maker works, and at which times each is the cause."""
    import numpy as np

    if not len(loop.begin):  # no step was marked: it is the program's own time
        return {"outside": lambda times: np.ones(len(times))}
    if not makers:  # a generator, or a data set in the process itself: what it does between its reads is own code
        return {"decode": lambda times: np.ones(len(times))}
    first = loop.begin[_begins_epoch(loop)]
    started = waits[1][np.minimum(np.searchsorted(waits[0], first, side="left"), len(waits[0]) - 1)].copy()
    begun = np.array([min(some[0][0] for some in maker.causes.values() if len(some[0])) for maker in makers])
    epoch = np.searchsorted(first, begun, side="right") - 1
    np.maximum.at(started, epoch[epoch >= 0], begun[epoch >= 0])  # the last worker to begin in each epoch

    def early(times: Array) -> Array:
        return (times < started[np.maximum(np.searchsorted(first, times, side="right") - 1, 0)]).astype(float)

    return {"startup": early, "read_ahead": lambda times: 1 - early(times)}


def _near(some: Intervals, waits: Intervals) -> Intervals:
    near = (some[1] > waits[0][0]) & (some[0] < waits[1][-1])
    return some[0][near], some[1][near]
