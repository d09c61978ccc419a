"""Mixture: data sets mixed by weights into one, whose order is arithmetic and whose state is a few numbers a source.

An epoch's positions are steps of `readers.data.mixing.Mixing`; a step's sample is a position in the stream of one
source. Where the weights are changed in the middle of an epoch, the samples that are left are mixed anew: the base of
the plan (`_Recipe`) says how they were mixed before, and which steps of that were left.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import struct
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ...core.threads import Threads
from ...readers.data import AbstractDataReader, Mode, Shard, Task
from ...readers.data.base import LOST, ShardContent, digest_of
from ...readers.data.mixing import Ending, Mixing, Schedule, Unread, Weights, schedule_of
from ...readers.data.order import Interval, Numbers, RandomOrder, between, length, union
from ...readers.prefetch import SharedThreads
from .epochs import Content, PlanOfAll, StateDict
from .map_style import Transform
from .packing import Packing
from .plan import EpochPlan, EpochShape, Uneven
from .resumable import EpochDataset, SamplePlace
from .sharded import ShardedDataset

MAX_BYTES = 64 << 20
_THREADS = 8
_LEAST_AHEAD = 64 << 10  # bytes of each source
_DIGITS = 7  # of the digest of a source in a state


class _Recipe(TypedDict):
    """A base: what an order of a mixture follows from, besides seed, sources and epoch."""

    weights: list[Any]
    """Steps and weights: see `_written`."""
    shards: str
    """How many shards each source had, with commas between."""
    before: list[Any] | None
    """The epoch in which another recipe was left, the steps of it that were not consumed, and that recipe."""


class Mixture(EpochDataset):
    """The samples of several data sets, mixed by weights.

    At the end of each block of steps (64, or as many as it takes for the rarest source to come once), each source has
    had its share of all samples to within one; within a block, their order is hashed. Which source a step takes, and
    which of its samples, is a function of weights, sizes and seed: the state is what remains of the steps. It can be
    loaded with other weights: those samples of each source that are left are then mixed by them, and each sample still
    comes once an epoch of its source.

    Args:
        sources: data sets by name: `ShardedDataset`, `TokenDataset`, `Mixture`, and map-style ones. Each has its own
            seed, transform, read-ahead and `max_skipped`; rank and number of ranks are the mixture's.
        weights: one for each source, or a list of `(step, weights)`: from which step of an epoch on they hold, counted
            in samples of all ranks, which all go on to the next ones together. By default, the sources' sizes.
        seed: of the order within blocks, and of the shuffles of map-style sources.
        ending: when a source has no more samples, the mixture's epoch ends ("stop"), it begins with its own next epoch
            ("repeat"), or the others go on without it ("leave").
        length: of an epoch whose sources repeat, in samples; by default, until each has been read once. The next epoch
            goes on where the sources are.
        transform: makes a sample of a sample, after the sources' own.
        packing: makes windows of tokens of the samples, which are documents then; see `Packing`.
        max_bytes: so much is read ahead of all sources together, by a few threads; each has its part.

    Else as `ShardedDataset`. `len()` is the number of samples of a rank's epoch.
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
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        padding: Any = None,
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
        self._seed, self._ending, self._length = seed, ending, length
        sizes = [source.total_of(len(source.epochs.content)) for source in self._sources]
        if weights is None:
            weights = dict(zip(self._names, sizes, strict=True))
        schedule = schedule_of(weights, self._names)
        for _, last in schedule:
            for name, size, lower, upper in zip(self._names, sizes, [0, *last], last, strict=False):
                if not size and upper > lower and ending != "leave":
                    raise ValueError(f"the source {name!r} has no samples, and a weight")
        shards = ",".join(str(len(source.epochs.content)) for source in self._sources)
        recipe = _Recipe(weights=_written(schedule), shards=shards, before=None)
        self._recipe = recipe
        self._levels: dict[str, _Level] = {}  # those that were asked for last
        super().__init__(
            _MixtureRecords(self._sources, max_bytes),
            _MixtureContent(
                self._names,
                self._sources,
                [seed, ending, length, *(packing.settings if packing else [])],
                recipe["weights"],
            ),
            transform,
            rank=rank,
            ranks=ranks,
            uneven=uneven,
            padding=padding,
            batch_size=None,
            packing=packing,
            skips=any(source.skips for source in self._sources),
            max_skipped=max_skipped,
            base=recipe,
        )

    # ---- orders

    def order(self, epoch: int, base: Any) -> _Level:
        """Return the order of an epoch."""
        key = json.dumps([epoch, base])
        found = self._levels.get(key)
        if found is None:
            found = self._level(epoch, base)
            self._levels = {**dict(list(self._levels.items())[-3:]), key: found}
        return found

    def shape(self, epoch: int, base: Any) -> EpochShape:
        """Return the shape of an epoch: it has a cut at each change of weights."""
        level = self.order(epoch, base)
        return EpochShape(level.total, tuple(cut for cut in level.mixing.cuts if cut < level.total))

    def total_of(self, shards: int) -> int:
        """Return the number of samples of an epoch."""
        return self.shape(0, self._recipe).total

    def _mixing(self, recipe: _Recipe, sizes: Sequence[int], length: int | None, since: int = 0) -> Mixing:
        return Mixing(_read(recipe["weights"], len(sizes)), self._seed, sizes, self._ending, length, since)

    def _level(self, epoch: int, recipe: _Recipe) -> _Level:
        shards = _counts(recipe["shards"])
        sizes = [source.total_of(count) for source, count in zip(self._sources, shards, strict=True)]
        repeats = self._ending == "repeat"
        before = recipe["before"]
        if before is None or epoch < before[0] or (epoch > before[0] and not repeats):
            mixing = self._mixing(recipe, sizes, self._length)
            first = mixing.counts(mixing.total) * epoch if repeats else mixing.counts(0)
            streams = [_Stream(((0, 0 if repeats else epoch, size),), repeats) for size in sizes]
            return _Level(mixing, mixing.total, 0, [Unread()] * len(sizes), first, streams)
        lower, left = self._level(before[0], before[2]), [(start, end) for start, end in before[1]]
        unread, size_left = lower.unread_of(left), length(left)
        known = _counts(before[2]["shards"])
        streams = [
            stream.grown(known[number], shards[number], sizes[number], unread[number].after)
            for number, stream in enumerate(lower.streams)
        ]
        since = lower.since + lower.total - size_left
        sizes_left = [one.count + size - one.after for one, size in zip(unread, sizes, strict=True)]
        mixing = self._mixing(recipe, sizes if repeats else sizes_left, size_left if repeats else None, since)
        if epoch == before[0]:
            return _Level(mixing, mixing.total, since, unread, mixing.counts(0), streams)
        usual = self._mixing(recipe, sizes, self._length)
        first = mixing.counts(mixing.total) + usual.counts(usual.total) * (epoch - before[0] - 1)
        return _Level(usual, usual.total, 0, unread, first, streams)

    def pruned(self, base: _Recipe, epoch: int) -> Any:
        """Return a base without what matters only for epochs before one."""
        if base["before"] is None or base["before"][0] >= epoch or self._ending == "repeat":
            return base
        return _Recipe(weights=base["weights"], shards=base["shards"], before=None)

    def rebased(self, plan: EpochPlan, of_all: PlanOfAll, state: StateDict) -> EpochPlan:
        """Return the plan with the weights and shards that the mixture has now."""
        theirs: _Recipe = plan.base
        if (theirs["weights"], theirs["shards"]) == (self._recipe["weights"], self._recipe["shards"]):
            return plan
        if self.epochs.place.ranks > 1:
            plan = of_all(self._shape_of)
        if plan.later:
            raise ValueError(
                "the weights or the shards of a source are others, and the states are of different epochs: load them "
                "as they were, and save again when all ranks are in one epoch"
            )
        lower, unit = self.order(plan.epoch, theirs), self._unit
        positions = between(union(plan.parts), 0, lower.total * unit)
        left = union([(start // unit, -(-end // unit))] for start, end in _apart(positions, unit))
        before = [plan.epoch, [list(one) for one in left], theirs]
        base = _Recipe(weights=self._recipe["weights"], shards=self._recipe["shards"], before=before)
        level = self.order(plan.epoch, base)
        whole = [(0, level.total * unit)]
        for consumed in _begun(positions, unit):  # parts of documents that were consumed
            step = level.step_of(*lower.sample(consumed[0] // unit))
            if step is not None:
                shift = step * unit - consumed[0] // unit * unit
                whole = _without(whole, consumed[0] + shift, consumed[1] + shift)
        return EpochPlan(plan.epoch, "all", (tuple(whole),), (), plan.batches, base)

    # ---- the rest of the interface

    def places(self, epoch: int, base: Any, start: int, end: int) -> list[SamplePlace]:
        """Return where the samples at positions of an epoch come from."""
        level, found = self.order(epoch, base), []
        for step in range(start, end):
            source, position = level.sample(step)
            stream = level.streams[source]
            for number, first, last in stream.epochs([(position, position + 1)]):
                for one in self._sources[source].places(number, stream.base or self._sources[source].base, first, last):
                    name = self._names[source]
                    found.append(one._replace(source=f"{name}/{one.source}" if one.source else name))
        return found

    @property
    def name(self) -> str:
        """The names of the sources."""
        return f"Mixture({', '.join(self._names[:5])}{', ...' if len(self._names) > 5 else ''})"

    def begin_counting(self) -> None:
        """Count the records that are skipped from here on, of each source, too."""
        super().begin_counting()
        for source in self._sources:
            source.begin_counting()

    def close(self) -> None:
        """Free what the sources hold in this process."""
        for source in self._sources:
            source.close()


def _source(name: str, given: Any, seed: int) -> EpochDataset:
    source = given if isinstance(given, EpochDataset) else ShardedDataset(_IndexedReader(given), seed=seed)
    if source.packing is not None:
        raise TypeError(
            f"{name!r} packs windows, whose number is not known before they are read: mix the documents, and pack the "
            "mixture (packing=Packing(tokenize, sequence_length)); or mix the windows of prepared files of tokens"
        )
    if source.batch_size is not None:
        raise TypeError(f"{name!r} makes batches: a mixture takes single samples")
    return source


# ---- weights in a state


def _written(schedule: Schedule) -> list[Any]:
    """Return a schedule as a list of steps and texts: cumulative weights, less 1, in 5 characters for each source."""
    return [
        [step, base64.b85encode(struct.pack(f">{len(weights)}I", *(max(0, one - 1) for one in weights))).decode()]
        for step, weights in schedule
    ]


def _read(written: Sequence[Any], sources: int) -> Schedule:
    found = []
    for step, text in written:
        values = struct.unpack(f">{sources}I", base64.b85decode(text))
        found.append((int(step), [value + 1 if value else 0 for value in values]))
    return found


def _counts(shards: str) -> list[int]:
    return list(map(int, shards.split(",")))


class _MixtureContent(Content):
    """The sources that a state of a mixture has to be of; each may have more shards than then."""

    def __init__(
        self,
        names: Sequence[str],
        sources: Sequence[EpochDataset],
        settings: Sequence[Any],
        weights: Sequence[Any],
    ) -> None:
        """`weights` are those of a mixture in another one, whose states do not say how this one was mixed."""
        self._names = names
        self._contents = [source.epochs.content for source in sources]
        self._settings = list(settings)
        described = [self._settings, self._names, weights, [one.fingerprint for one in self._contents]]
        self.fingerprint = hashlib.blake2b(json.dumps(described).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        """One: a mixture has no shards that can be added, but its sources' own."""
        return 1

    def fingerprint_of(self, shards: int) -> str:
        """Return the fingerprint of the mixture."""
        return self.fingerprint

    def described(self) -> dict[str, Any]:
        """Return what a state says of the content."""
        digests = [one.fingerprint[:_DIGITS] for one in self._contents]
        return {"settings": self._settings, "sources": "".join(digests)}

    def check(self, state: StateDict) -> None:
        """Raise `ValueError` if the state is of other content; it names the source."""
        theirs = state.get("content", {})
        if "sources" not in theirs or state.get("base") is None:
            raise ValueError("the state is not that of a mixture")
        if list(theirs["settings"]) != self._settings:
            raise ValueError(
                f"the state is of a mixture of another seed, ending, length or packing: {theirs['settings']}, not "
                f"{self._settings}"
            )
        if len(theirs["sources"]) != _DIGITS * len(self._names):
            raise ValueError(
                f"the state is of {len(theirs['sources']) // _DIGITS} sources, and there are {len(self._names)}"
            )
        counts = _counts(state["base"]["shards"])
        for number, (name, content) in enumerate(zip(self._names, self._contents, strict=True)):
            shards = counts[number]
            known = theirs["sources"][_DIGITS * number : _DIGITS * (number + 1)]
            if shards > len(content) or content.fingerprint_of(shards)[:_DIGITS] != known:
                raise ValueError(f"the content or the settings of the source {name!r} are not those of the state")


# ---- one epoch


class _Stream(NamedTuple):
    """The positions of a source as they follow each other, over its epochs."""

    runs: tuple[tuple[int, int, int], ...]
    """Of epochs of one size: the first position, the number of the epoch there, and the size."""
    repeats: bool
    """False if there is one epoch only."""
    base: Any = None
    """Of the source: in which of its epochs shards were added."""

    def grown(self, known: int, shards: int, size: int, after: int) -> _Stream:
        """Return the stream where there are more than the `known` shards.

        Their samples come at the end of the epoch of position `after`, before which all is read or planned.
        """
        if known == shards:
            return self
        start, epoch, before = self.runs[-1]
        number = (after - start) // before if self.repeats and before else 0
        begin = start + number * before
        planned = begin < after or not self.repeats  # else it is the epoch before that is the last one of those shards
        last = epoch + number - (not planned)
        runs = (*(one for one in self.runs if one[0] < begin), (begin, epoch + number, size))
        return _Stream(runs, self.repeats, [*(self.base or []), [known, last]])

    def epochs(self, positions: Iterable[Interval]) -> Iterator[tuple[int, int, int]]:
        """Yield the epochs of the source, and the positions in them, of some positions."""
        for start, end in positions:
            while start < end:
                number = bisect_right(self.runs, start, key=lambda run: run[0]) - 1
                first, epoch, size = self.runs[number]
                until = min(end, self.runs[number + 1][0]) if number + 1 < len(self.runs) else end
                over, at = divmod(start - first, size) if self.repeats else (0, start - first)
                if self.repeats:
                    until = min(until, start - at + size)
                yield epoch + over, at, at + until - start
                start = until


class _Level(NamedTuple):
    """The order of an epoch."""

    mixing: Mixing
    total: int
    since: int
    """The step of the schedule at which it begins."""
    unread: Sequence[Unread]
    first: Numbers
    """The number of the first sample of each source, in `unread`."""
    streams: Sequence[_Stream]

    def numbers(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the sources that have samples in some steps, and the numbers of these in `unread`."""
        first, last = (self.first + self.mixing.counts(step) for step in (start, end))
        for source, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            if low < high:
                yield source, low, high

    def sample(self, step: int) -> tuple[int, int]:
        """Return the source of a step, and the position of its sample in the source's stream."""
        sources, numbers = next(self.mixing.steps(step, step + 1))
        source = int(sources[0])
        number = int(numbers[0]) + int(self.first[source])
        return source, self.unread[source].positions(number, number + 1)[0][0]

    def step_of(self, source: int, position: int) -> int | None:
        """Return the step that takes a source's sample; None if no step does."""
        step = self.mixing.step_of(source, self.unread[source].number_of(position) - int(self.first[source]))
        return step if step is not None and step < self.total else None

    def unread_of(self, left: Sequence[Interval]) -> list[Unread]:
        """Return what is to be read of each source if these steps are left."""
        runs: list[list[Interval]] = [[] for _ in self.unread]
        for start, end in left:
            for source, low, high in self.numbers(start, end):
                runs[source] += self.unread[source].positions(low, high)
        ends = (self.first + self.mixing.counts(self.total)).tolist()
        return [
            Unread(
                [*own, *before.positions(end, before.count)], max(before.after, before.positions(end, end + 1)[0][0])
            )
            for own, before, end in zip(runs, self.unread, ends, strict=True)
        ]


class _MixtureRecords:
    """Reads the samples of a mixture's sources, all of them ahead by the same few threads."""

    def __init__(self, sources: Sequence[EpochDataset], max_bytes: int) -> None:
        self._sources = sources
        self._max_bytes = max_bytes

    def read(self, order: _Level, intervals: list[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the samples of the steps of `intervals`; `LOST` for a skipped one."""
        runs: dict[int, list[Interval]] = {}
        for first, last in intervals:
            for source, low, high in order.numbers(first, last):
                runs.setdefault(source, []).extend(order.unread[source].positions(low, high))
        pool = Threads[None](_THREADS) if threads is None else threads.threads
        most = self._max_bytes if threads is None else threads.most
        shared = SharedThreads(pool, max(_LEAST_AHEAD, most // len(self._sources)))
        reading = {source: self._of_source(source, order.streams[source], own, shared) for source, own in runs.items()}
        try:
            for first, last in intervals:
                for sources, _ in order.mixing.steps(first, last):
                    for source in sources.tolist():
                        yield next(reading[source])
        finally:
            for one in reading.values():
                one.close()
            if threads is None:
                pool.end()

    def _of_source(
        self, source: int, stream: _Stream, positions: list[Interval], shared: SharedThreads
    ) -> Generator[Any, None, None]:
        dataset = self._sources[source]
        epochs: list[tuple[int, list[Interval]]] = []
        for epoch, start, end in stream.epochs(positions):
            if not epochs or epochs[-1][0] != epoch:
                epochs.append((epoch, []))
            epochs[-1][1].append((start, end))
        for epoch, intervals in epochs:
            records = dataset.read(epoch, stream.base or dataset.base, intervals, shared)
            yield from records if dataset.max_skipped is None else _counted(dataset, records)


def _counted(source: EpochDataset, records: Iterator[Any]) -> Iterator[Any]:
    """Yield the records of a source that may skip only so many."""
    for record in records:
        if record is LOST:
            source.skip()
        yield record


# ---- documents that were consumed in part


def _apart(positions: Iterable[Interval], unit: int) -> Iterator[Interval]:
    """Yield the intervals, widened to whole documents and without what lies in two of them."""
    last = 0
    for start, end in positions:
        start = max(start // unit * unit, last)
        last = -(-end // unit) * unit
        if start < last:
            yield start, last


def _begun(positions: Sequence[Interval], unit: int) -> Iterator[Interval]:
    """Yield the parts of documents that are not in `positions`, of those documents that are in part."""
    for document in sorted({at // unit for one in positions for at in one if at % unit}):
        rest = [(document * unit, (document + 1) * unit)]
        for start, end in between(positions, *rest[0]):
            rest = _without(rest, start, end)
        yield from rest


def _without(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    return [
        piece
        for first, last in intervals
        for piece in ((first, min(last, start)), (max(first, end), last))
        if piece[0] < piece[1]
    ]


# ---- map-style sources


class _IndexedReader(AbstractDataReader):
    """A map-style data set as one shard, whose records are its samples; each epoch has an order of its own."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self._dataset = dataset
        self._shard = Shard(type(dataset).__name__, 0, len(dataset))

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        return [self._shard]

    def content_of(self, shard_name: str) -> ShardContent:
        contents: Any = getattr(self._dataset, "contents", list)()
        return ShardContent(shard_name, self._shard.count, digest_of(repr(contents).encode("utf-8", "surrogatepass")))

    def order(self, shards: Sequence[Shard], seed: int | None, window: int) -> RandomOrder:
        return RandomOrder(shards, seed)

    def read_records(self, task: Task) -> Iterator[Any]:
        return self.read_at(task.shard_name, range(task.start, task.end))

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        many: Any = getattr(self._dataset, "__getitems__", None)
        return iter(many(list(numbers)) if many else map(self._dataset.__getitem__, numbers))

    def close(self) -> None:
        getattr(self._dataset, "close", lambda: None)()
