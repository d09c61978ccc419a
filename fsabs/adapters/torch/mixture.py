"""Mixture: data sets mixed by weights into one, whose order is arithmetic.

An epoch's positions are steps of `readers.data.mixing.Mixing`; a step's sample is a position in the stream of one
source. Where the weights are changed in the middle of an epoch, the samples that are left are mixed anew: the base of
the epoch says how they were mixed before, and which steps of that were done. It is forgotten with the epoch: of sources
that repeat, how far each had come is kept.
"""

from __future__ import annotations

import json
import operator
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.threads import Threads
from ...readers.data.base import LOST
from ...readers.data.mixing import Ending, Mixing, Schedule, Unread, Weights, schedule_of
from ...readers.data.order import Interval
from ...readers.epochs.content import digest
from ...readers.epochs.mixture import Distribution, MixedOrder, described, schedule_in, written
from ...readers.epochs.packing import PackedLane, Packing
from ...readers.epochs.plan import Grid, PassPlan, Stop, remaining
from ...readers.prefetch import SharedThreads
from .datasets import Base, EpochDataset, SamplePlace, Transform
from .map_style import IndexedDataset

MAX_BYTES = 64 << 20
_THREADS = 8
_LEAST_AHEAD = 64 << 10  # bytes of each source
_ENDLESS = 1 << 40  # windows of a packed source


class Mixture(EpochDataset):
    """The samples of several data sets, mixed by weights.

    At the end of each block of steps (64, or as many as it takes for the rarest source to come once), each source has
    had its share of all samples to within one; within a block, their order is hashed. Which source a step takes, and
    which of its samples, is a function of weights, sizes and seed. A state can be loaded with other weights: those
    samples of each source that are left are then mixed by them, and each sample still comes once an epoch of its
    source.

    Args:
        sources: data sets by name: `ShardedDataset`, `TokenDataset`, `Mixture`, and map-style ones. Each has its own
            seed, transform and read-ahead.
        weights: one for each source, or a list of `(step, weights)`: from which step of an epoch on they hold, counted
            in samples of all ranks, which all go on to the next ones together. By default, the sources' sizes.
        seed: of the order within blocks, and of the shuffles of map-style sources.
        ending: when a source has no more samples, the mixture's epoch ends ("stop"), it begins with its own next epoch
            ("repeat"), or the others go on without it ("leave").
        length: of an epoch whose sources repeat, in samples; by default, until each has been read once. The next epoch
            goes on where the sources are.
        transform: makes a sample of a sample, after the sources' own.
        packing: makes windows of tokens of each source's samples, which are documents then; see `Packing`. Weights are
            of windows, so of tokens; sources that pack by themselves are mixed likewise. Such a mixture has no end.
        max_bytes: so much is read ahead of all sources together, by a few threads; each has its part.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        weights: Weights | None = None,
        *,
        seed: int = 0,
        ending: Ending = "stop",
        length: int | None = None,
        transform: Transform | None = None,
        packing: Packing | None = None,
        max_bytes: int = MAX_BYTES,
        max_skipped: int | None = None,
    ) -> None:
        if not isinstance(sources, Mapping):
            raise TypeError(f"sources are data sets by name, as in {{'web': texts}}, not {type(sources).__name__}")
        if not sources:
            raise ValueError("a mixture needs a source")
        if ending not in ("stop", "repeat", "leave"):
            raise ValueError(f"ending is 'stop', 'repeat' or 'leave', not {ending!r}")
        if length is not None and (ending != "repeat" or length < 1):
            raise ValueError("length is that of an epoch whose sources repeat (ending='repeat'), and at least 1")
        seed, length = operator.index(seed), None if length is None else operator.index(length)
        self._names = list(sources)
        self._sources = [_source(name, source, seed) for name, source in sources.items()]
        packings = [source.packing or packing for source in self._sources]
        if any(packings) and not all(packings):
            raise TypeError("some sources pack windows and others don't: give the mixture packing=")
        super().__init__(transform, None, packings[0], max_skipped)
        self._seed, self._ending, self._length, self._max_bytes = seed, ending, length, max_bytes
        self._sizes = [source.shape(0, source.first_base(1))[0] for source in self._sources]  # of their epochs
        if weights is None:
            weights = dict(zip(self._names, self._sizes, strict=True))
        self._schedule = schedule_of(weights, self._names)
        if packings[0] is None:
            self._check_sizes()
        self._weights = written(self._schedule)
        self._settings = [seed, ending, length, *(packing.settings if packing else [])]
        self.ranks_share_blocks = any(source.ranks_share_blocks for source in self._sources)
        self._starts = np.cumsum([0, *(source.total for source in self._sources)])
        self._levels: dict[str, MixedOrder] = {}  # those that were asked for last

    def _check_sizes(self) -> None:
        for _, last in self._schedule:
            for name, size, lower, upper in zip(self._names, self._sizes, [0, *last], last, strict=False):
                if not size and upper > lower and self._ending != "leave":
                    raise ValueError(f"the source {name!r} has no samples, and a weight")

    # ---- orders: a base is the weights, and from which epoch and samples of the sources on they hold

    def first_base(self, divided: int) -> Base:
        """Return the weights."""
        return {"weights": self._weights, "divided": divided}

    def following(self, epoch: int, base: Base, divided: int) -> Base:
        """Return the weights, and where the sources are that repeat."""
        if self._ending != "repeat" or (base["weights"] == self._weights and "before" not in base):
            kept = {key: base[key] for key in ("since", "starts") if key in base}
            return {**self.first_base(divided), **kept}
        return {
            **self.first_base(divided),
            "since": epoch + 1,
            "starts": described(self.order(epoch, base).unread_of([])),
        }

    def rebased(self, epoch: int, base: Base, stops: Sequence[Stop]) -> Base | None:
        """Return the weights that the mixture has now, for what some stops have left of an epoch."""
        if base["weights"] == self._weights:
            return None
        if not any(stop.steps for stop in stops):
            if self._ending != "repeat" or "before" in base:
                return {**base, "weights": self._weights}
            order = self.order(epoch, base)
            starts = described(order.unread_of([(0, order.total)]))
            return {"weights": self._weights, "divided": base["divided"], "since": epoch, "starts": starts}
        return {
            "weights": self._weights,
            "divided": base["divided"],
            "before": [dict(base), [stop.described() for stop in stops]],
        }

    def shape(self, epoch: int, base: Base) -> tuple[int, tuple[int, ...]]:
        """Return how many samples an epoch has, and where its weights change."""
        order = self.order(epoch, base)
        return order.total, tuple(cut for cut in order.mixing.cuts if cut < order.total)

    def order(self, epoch: int, base: Base) -> MixedOrder:
        """Return the order of an epoch."""
        key = json.dumps([epoch, base])
        found = self._levels.get(key)
        if found is None:
            found = self._made_order(epoch, base)
            self._levels = {**dict(list(self._levels.items())[-3:]), key: found}
        return found

    def _made_order(self, epoch: int, base: Base) -> MixedOrder:
        schedule, repeats = schedule_in(base["weights"], len(self._sizes)), self._ending == "repeat"
        if "before" not in base:
            mixing = Mixing(schedule, self._seed, self._sizes, self._ending, self._length)
            begins = [Unread() for _ in self._sizes]
            if repeats:
                since, starts = base.get("since", 0), base.get("starts", [[[], 0]] * len(self._sizes))
                taken = mixing.counts(mixing.total) * (epoch - since)
                begins = [Unread([tuple(run) for run in runs], after) for runs, after in starts]
            first = taken if repeats else np.zeros(len(self._sizes), np.int64)
            return MixedOrder(self._in_source, epoch, mixing, mixing.total, 0, begins, first)
        lower_base, stops = base["before"]
        lower = self.order(epoch, lower_base)
        cuts = tuple(cut for cut in lower.mixing.cuts if cut < lower.total)
        left = remaining(lower.total, map(Stop.of, stops), cuts)
        unread, size = lower.unread_of(left), sum(end - start for start, end in left)
        since = lower.since + lower.total - size
        sizes = [one.count + max(0, total - one.after) for one, total in zip(unread, self._sizes, strict=True)]
        mixing = Mixing(
            schedule, self._seed, self._sizes if repeats else sizes, self._ending, size if repeats else None, since
        )
        return MixedOrder(self._in_source, epoch, mixing, mixing.total, since, unread, np.zeros(len(sizes), np.int64))

    def _in_source(self, source: int, epoch: int, position: int, end: int) -> Iterator[tuple[int, Interval]]:
        """Yield the epochs of a source, and the positions in them, of a run of its stream."""
        if self._ending != "repeat":
            yield epoch, (position, end)
            return
        size = self._sizes[source]
        while position < end:
            number, at = divmod(position, size)
            until = min(size, at + end - position)
            yield number, (at, until)
            position += until - at

    # ---- content

    def described(self, base: Base) -> dict[str, Any]:
        """Return what a state says of the content."""
        return {"settings": self._settings, "sources": self._digests()}

    def _digests(self) -> dict[str, str]:
        pairs = zip(self._names, self._sources, strict=True)
        bases = [(name, source, source.first_base(1)) for name, source in pairs]
        return {name: digest([source.described(base), base], 4) for name, source, base in bases}

    def check(self, content: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a state's content is another one; it names the source."""
        if "sources" not in content:
            raise ValueError("the state is not that of a mixture")
        if list(content["settings"]) != self._settings:
            raise ValueError(
                f"the state is of a mixture of another seed, ending, length or packing: {content['settings']}, not "
                f"{self._settings}"
            )
        own, theirs = self._digests(), content["sources"]
        if list(own) != list(theirs):
            raise ValueError(
                f"the state is of the sources {', '.join(theirs)}, in this order, and not {', '.join(own)}"
            )
        for name, one in own.items():
            if theirs[name] != one:
                raise ValueError(f"the content or the settings of the source {name!r} are not those of the state")

    # ---- samples

    @property
    def total(self) -> int:
        """The number of samples of all sources, which are numbered in the order of the sources."""
        return int(self._starts[-1])

    @property
    def name(self) -> str:
        """The names of the sources."""
        return f"Mixture({', '.join(self._names[:5])}{', ...' if len(self._names) > 5 else ''})"

    def numbers(self, order: MixedOrder, intervals: Iterable[Interval]) -> list[int]:
        """Return the numbers of the samples at positions."""
        found: list[int] = []
        for source, epoch, interval in order.samples(intervals):
            own = self._sources[source]
            numbers = own.numbers(own.order(epoch, own.first_base(1)), [interval])
            found += [number + int(self._starts[source]) for number in numbers]
        return found

    def fetch(self, numbers: Sequence[int]) -> list[Any]:
        """Return samples of the sources by their numbers."""
        wanted = np.asarray(numbers, np.int64)
        which = self._starts.searchsorted(wanted, side="right") - 1
        found: list[Any] = [LOST] * len(numbers)
        for source in np.unique(which).tolist():
            places = np.flatnonzero(which == source).tolist()
            own = self._sources[source]
            records = own.fetch([int(wanted[place] - self._starts[source]) for place in places])
            for place, sample in zip(places, own._transformed(iter(records)), strict=True):
                found[place] = sample
        return found

    def records(self, order: MixedOrder, intervals: Iterable[Interval], threads: SharedThreads | None) -> Iterator[Any]:
        """Yield the samples at positions; all sources are read ahead by the same few threads."""
        return _mixed(self._sources, order, intervals, threads, self._max_bytes)

    def places(self, order: MixedOrder, intervals: Iterable[Interval]) -> list[SamplePlace]:
        """Return where the samples at positions come from."""
        found = []
        for source, epoch, interval in order.samples(intervals):
            own, name = self._sources[source], self._names[source]
            for one in own.places(own.order(epoch, own.first_base(1)), [interval]):
                found.append(one._replace(source=f"{name}/{one.source}" if one.source else name))
        return found

    def set_order(self, plan: PassPlan) -> None:
        """Do nothing: what each source reads next depends on all of them."""

    def close(self) -> None:
        """Free what the sources hold in this process."""
        self._steps.close()
        for source in self._sources:
            source.close()

    # ---- packed windows

    def lane(
        self, number: int, grid: Grid, place: Sequence[Any] | None = None, threads: SharedThreads | None = None
    ) -> Any:
        """Return a lane of the sources' windows, mixed by weights."""
        if self.packing is None:
            raise TypeError(f"{self.name} packs no windows")
        pool = threads or SharedThreads(Threads[None](_THREADS), self._max_bytes)
        shared = SharedThreads(pool.threads, max(_LEAST_AHEAD, pool.most // len(self._sources)))
        weights, taken, since, places = place or (self._weights, 0, 0, [None] * len(self._sources))
        if weights != self._weights:
            since = taken
        lanes = [
            self._lane_of(source, number, grid, one, shared) for source, one in zip(self._sources, places, strict=True)
        ]
        schedule = [(step // grid.lanes, cumulative) for step, cumulative in self._schedule]
        # Schedules count from the beginning; a mixture with other weights begins where they were changed.
        sizes = [_ENDLESS] * len(lanes)
        mixing = Mixing(_apart(schedule), self._seed ^ number, sizes, "repeat", _ENDLESS, since)
        return _MixedLane(lanes, mixing, (self._weights, taken, since), None if threads else pool.threads)

    def _lane_of(
        self, source: EpochDataset, number: int, grid: Grid, place: Sequence[Any] | None, threads: SharedThreads
    ) -> Any:
        if source.packing is not None or self.packing is None:
            return source.lane(number, grid, place, threads)
        return PackedLane(self.packing, partial(source.documents, number, grid, threads), place or ())

    def _windows(self, epoch: int) -> Iterator[Any]:
        lane = self.lane(0, Grid(1, 1))
        try:
            while True:
                yield lane.window()
        finally:
            lane.close()


def _apart(schedule: Schedule) -> Schedule:
    """Return a schedule without what no step has."""
    return [
        one
        for one, following in zip(schedule, [*schedule[1:], None], strict=True)
        if not following or one[0] < following[0]
    ]


class _MixedLane:
    """The windows of a lane of a mixture."""

    def __init__(
        self, lanes: Sequence[PackedLane], mixing: Mixing, place: tuple[Any, int, int], threads: Threads[None] | None
    ) -> None:
        self._lanes, self._mixing, self._threads = lanes, mixing, threads
        self._weights, self._taken, self._since = place
        self._coming: deque[int] = deque()

    @property
    def place(self) -> list[Any]:
        """Where the next window comes from."""
        return [self._weights, self._taken, self._since, [list(lane.place) for lane in self._lanes]]

    @property
    def lost(self) -> int:
        """How many damaged documents were skipped since this was last set to 0."""
        return sum(lane.lost for lane in self._lanes)

    @lost.setter
    def lost(self, count: int) -> None:
        for lane in self._lanes:
            lane.lost = count

    def window(self) -> dict[str, Any]:
        """Return the next window."""
        if not self._coming:
            at = self._taken - self._since
            for sources, _ in self._mixing.steps(at, at + 64):
                self._coming.extend(sources.tolist())
        window = self._lanes[self._coming[0]].window()
        self._coming.popleft()
        self._taken += 1
        return window

    def close(self) -> None:
        """End reading."""
        for lane in self._lanes:
            lane.close()
        if self._threads is not None:
            self._threads.end()


def _source(name: str, given: Any, seed: int) -> EpochDataset:
    source = given if isinstance(given, EpochDataset) else IndexedDataset(given, seed)
    if source.batch_size is not None:
        raise TypeError(f"{name!r} makes batches: a mixture takes single samples")
    return source


# ---- what is read


def _mixed(
    sources: Sequence[EpochDataset],
    order: MixedOrder,
    intervals: Iterable[Interval],
    threads: SharedThreads | None,
    max_bytes: int,
) -> Iterator[Any]:
    distribution = Distribution(order, intervals, len(sources))
    pool = Threads[None](_THREADS) if threads is None else threads.threads
    most = max_bytes if threads is None else threads.most
    shared = SharedThreads(pool, max(_LEAST_AHEAD, most // len(sources)))
    reading: dict[int, Generator[Any, None, None]] = {}
    try:
        for source in order.sources(distribution.steps()):
            if source not in reading:
                reading[source] = _of_source(sources[source], distribution.of(source), shared)
            yield next(reading[source])
    finally:
        for one in reading.values():
            one.close()
        if threads is None:
            pool.end()


def _of_source(
    dataset: EpochDataset, positions: Iterator[tuple[int, Interval]], shared: SharedThreads
) -> Generator[Any, None, None]:
    base = dataset.first_base(1)
    dataset.skipped = 0
    held = [next(positions, None)]

    def of_epoch(epoch: int) -> Iterator[Interval]:
        while held[0] is not None and held[0][0] == epoch:
            yield held[0][1]
            held[0] = next(positions, None)

    while held[0] is not None:
        epoch = held[0][0]
        samples = dataset.read(dataset.order(epoch, base), of_epoch(epoch), shared)
        yield from samples if dataset.max_skipped is None else _counted(dataset, samples)


def _counted(dataset: EpochDataset, samples: Iterator[Any]) -> Iterator[Any]:
    """Yield the samples of a source that may skip only so many."""
    for sample in samples:
        if sample is LOST:
            dataset.skip(1)
        yield sample
