"""The plan of a pass through an epoch (`EpochPlan`), how far it is consumed (`Pass`), and the states it resumes from.

A plan is a few intervals of the epoch's positions (see `readers.data.order`). This module does arithmetic only: the
sequence of epochs is in `epochs`.

A state is plain data: the samples that a rank, or one worker of it, has still to consume. States of format 2 name the
shards by what they contain (`Content`), wherever they lie. Format 1, of the first release, named them by the URLs or
paths that were given; its states can be read.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from ...readers.data.base import ShardContent
from ...readers.data.order import Interval, between, drop, intervals_of, length, part, take, union
from .tags import Tag

Uneven = Literal["keep", "drop", "pad", "repeat"]
UNEVEN: tuple[Uneven, ...] = ("keep", "drop", "pad", "repeat")
Scope = Literal["all", "rank", "worker"]
Intervals = tuple[Interval, ...]


class WorkerPlace(NamedTuple):
    """The rank and the worker of a process."""

    rank: int
    ranks: int
    worker: int
    workers: int


class EpochShape(NamedTuple):
    """The positions of an epoch: 0 to `total` - 1. Positions after them stand for no sample: they make ranks even."""

    total: int
    cuts: tuple[int, ...] = ()
    """Where all ranks and workers go from one stretch to the next one together."""


def _unchanged(base: Any, epoch: int) -> Any:
    return base


ShapeOf = Callable[[int, Any], EpochShape]
"""Returns the shape of an epoch of a base."""


class Sharing(NamedTuple):
    """How the samples of an epoch are divided among ranks and workers."""

    uneven: Uneven
    shape_of: ShapeOf
    pruned: Callable[[Any, int], Any] = _unchanged
    """Returns a base without what matters only for epochs before one."""


class EpochPlan(NamedTuple):
    """The samples to be read: the rest of an epoch for all ranks, for this rank, or for this worker."""

    epoch: int
    scope: Scope
    parts: tuple[Intervals, ...]
    """One for each worker that read it before; the same number of workers continues each its own."""
    later: tuple[tuple[int, Intervals], ...] = ()
    """What remains of the epochs that other ranks had begun already, ascending; later epochs than these are whole."""
    batches: int = 0
    """How many batches of the epoch a rank had consumed before."""
    base: Any = None
    """What the epoch's order follows from besides the data set, as its state has it; None for nothing."""

    @classmethod
    def whole(cls, epoch: int, base: Any, sharing: Sharing) -> EpochPlan:
        """Return the plan of a whole epoch."""
        total = sharing.shape_of(epoch, base).total
        return cls(epoch, "all", (((0, total),) if total else (),), base=base)

    def of_epoch(self, epoch: int, sharing: Sharing) -> EpochPlan:
        """Return the plan of this epoch or a later one, which is whole unless some of it was consumed."""
        if epoch == self.epoch:
            return self
        later = tuple(one for one in self.later if one[0] > epoch)
        for number, intervals in self.later:
            if number == epoch:
                return EpochPlan(epoch, self.scope, (intervals,), later, base=self.base)
        return EpochPlan.whole(epoch, self.base, sharing)._replace(later=later)

    def of_rank(self, place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        """Return the share of a rank."""
        return self._share(self.epoch, union(self.parts), place, sharing)

    def later_of_rank(self, place: WorkerPlace, sharing: Sharing) -> list[tuple[int, list[Interval]]]:
        """Return the share of a rank in what remains of later epochs."""
        return [(epoch, self._share(epoch, list(intervals), place, sharing)) for epoch, intervals in self.later]

    def _share(self, epoch: int, intervals: list[Interval], place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        if self.scope != "all":
            return intervals
        total, cuts = sharing.shape_of(epoch, self.base)
        intervals = between(intervals, 0, total)  # without what made other numbers of ranks even
        left = length(intervals)
        if sharing.uneven == "drop":
            intervals = list(take(intervals, left - left % place.ranks))
        elif sharing.uneven != "keep" and left % place.ranks:
            intervals.append((total, total + -left % place.ranks))
        return part(intervals, place.rank, place.ranks, cuts)

    def of_worker(self, place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        """Return the share of a worker."""
        if self.scope != "all" and len(self.parts) == (place.workers if self.scope == "rank" else 1):
            return list(self.parts[place.worker if self.scope == "rank" else 0])
        return part(
            self.of_rank(place, sharing), place.worker, place.workers, sharing.shape_of(self.epoch, self.base).cuts
        )


_MOST_HELD = 8


class Pass:
    """One pass over what remains of an epoch: the positions that were drawn from it, and those that were consumed.

    Each of `workers` parts is read in its order, and a batch is drawn from each in turn. A batch counts as consumed
    when its tag comes back (`consumed`), so that what was fetched ahead, and what an error swallowed, is still to come.
    """

    def __init__(
        self,
        plan: EpochPlan,
        place: WorkerPlace,
        sharing: Sharing,
        serial: int,
        batch_size: int = 1,
        drop_last: bool = False,
        skip: Sequence[range] = (),
    ) -> None:
        """`place` gives the rank and the number of workers; `skip` has steps that are left out."""
        self.plan = plan
        self.place = place
        self.serial = serial
        self.batches = 0
        """How many batches have been consumed."""
        self.parts = [plan.of_worker(place._replace(worker=number), sharing) for number in range(place.workers)]
        self._lengths = list(map(length, self.parts))
        self._drawn = [0] * place.workers
        self.taken = [0] * place.workers  # an iteration over one part adds to it
        self._missing: list[list[Interval]] = [[] for _ in range(place.workers)]  # numbers before `taken`
        self._lately: deque[Tag] = deque(maxlen=_MOST_HELD)  # of the batches that were consumed last
        self._turn = 0
        self._last = place.workers - 1
        self.batch_size = batch_size
        self.least = batch_size if drop_last else 1
        self._skip = skip
        self._step = plan.batches  # of the batch that is drawn next

    def skips(self, step: int) -> bool:
        """Return whether the batch of this number is left out."""
        return any(step in steps for steps in self._skip)

    def leaves_out(self, tag: Tag) -> bool:
        """Return whether the batch that came back with this tag is left out; before it is counted as consumed."""
        return tag.skipped

    @property
    def step(self) -> int:
        """The number of the batch that is handed out next."""
        return self.plan.batches + self.batches

    def draw(self) -> tuple[Tag, Intervals] | None:
        """Return the tag and the positions of the next batch; None if there is none."""
        for _ in self.parts:
            part, self._turn = self._turn, (self._turn + 1) % len(self.parts)
            first = self._drawn[part]
            count = min(self.batch_size, self._lengths[part] - first)
            if count >= self.least:
                self._drawn[part] += count
                self._step += 1
                tag = Tag(self.serial, part, first, count, self.skips(self._step - 1))
                return tag, tuple(take(drop(self.parts[part], first), count))
        return None

    def positions_of(self, step: int) -> Intervals:
        """Return the positions of the batch of a number, by arithmetic; `LookupError` if the pass has none."""
        batches = [size // self.batch_size if self.least > 1 else -(-size // self.batch_size) for size in self._lengths]
        at = step - self.plan.batches
        if not 0 <= at < sum(batches):
            first = self.plan.batches
            raise LookupError(f"step {step} is none of the steps {first} to {first + sum(batches)} of this pass")
        low, high = 0, max(batches)
        while high - low > 1:  # after `low` turns of all parts, as far as they have batches, it is not drawn yet
            middle = (low + high) // 2
            low, high = (middle, high) if sum(min(middle, one) for one in batches) <= at else (low, middle)
        in_turn = [number for number, one in enumerate(batches) if one > low]
        part = in_turn[at - sum(min(low, one) for one in batches)]
        return tuple(take(drop(self.parts[part], low * self.batch_size), self.batch_size))

    def consumed(self, tag: Tag) -> None:
        """Record that a batch was handed to the training loop."""
        part, end = tag.part, tag.first + tag.count
        missing = self._missing[part]
        if tag.first > self.taken[part]:
            missing.append((self.taken[part], tag.first))
        elif tag.first < self.taken[part]:  # batches may come out of order
            cuts = (
                ((start, min(stop, tag.first)) for start, stop in missing),
                ((max(start, end), stop) for start, stop in missing),
            )
            self._missing[part] = sorted({(start, stop) for cut in cuts for start, stop in cut if start < stop})
        self.taken[part] = max(self.taken[part], end)
        self._last = part
        self._lately.append(tag)
        self.batches += 1

    def before(self, count: int) -> Pass:
        """Return a copy of this as it was before the last `count` batches, 8 at most, were consumed."""
        earlier = copy.copy(self)
        earlier._missing = list(map(list, self._missing))
        tags = list(self._lately)[max(0, len(self._lately) - count) :]
        for tag in tags:
            earlier._missing[tag.part].append((tag.first, tag.first + tag.count))
        earlier.batches -= len(tags)
        if tags:
            earlier._last = tags[0].part - 1
        return earlier

    @property
    def begun(self) -> bool:
        """True once a sample has been consumed."""
        return any(self.taken)

    @property
    def exhausted(self) -> bool:
        """True where no batch remains."""
        left = (size - taken for size, taken in zip(self._lengths, self.taken, strict=True))
        return not any(self._missing) and all(count < self.least for count in left)

    @property
    def batches_left(self) -> int:
        """The number of batches that remain."""
        total = 0
        for size, taken, missing in zip(self._lengths, self.taken, self._missing, strict=True):
            left = size - taken
            total += left // self.batch_size if self.least > 1 else -(-left // self.batch_size)
            total += sum(-(-(stop - start) // self.batch_size) for start, stop in missing)
        return total

    def remaining(self) -> list[list[Interval]]:
        """Return what each worker has still to read, first the one that gives the next batch."""
        order = [(self._last + 1 + number) % len(self.parts) for number in range(len(self.parts))]
        return [self._remaining_of(part) for part in order]

    def _remaining_of(self, part: int) -> list[Interval]:
        intervals = self.parts[part]
        failed = (take(drop(intervals, start), stop - start) for start, stop in self._missing[part])
        return [*chain.from_iterable(failed), *drop(intervals, self.taken[part])]


FORMAT = 2
_GROUPS = 128  # in the digests of a state: the number of shards, or groups of them, that can be distinguished

StateDict = Mapping[str, Any]


class Content:
    """The shards and settings that an epoch's order follows from."""

    def __init__(
        self, shards: Sequence[tuple[int, int, ShardContent]], settings: Sequence[Any], first_format: str
    ) -> None:
        """`shards`: first record, count and content of each; `first_format`: fingerprint of format 1."""
        self.first_format = first_format
        self._shards = list(shards)
        self._settings = list(settings)
        self._group = max(1, -(-len(shards) // _GROUPS))
        starts = range(0, len(shards), self._group)
        self._digests = "".join(_digest(self._shards[at : at + self._group], 2) for at in starts)
        self.fingerprint = _digest([self._shards, self._settings], 16)

    def __len__(self) -> int:
        """The number of shards."""
        return len(self._shards)

    def fingerprint_of(self, shards: int) -> str:
        """Return the fingerprint of the first so many shards."""
        if shards == len(self):
            return self.fingerprint
        return _digest([self._shards[:shards], self._settings], 16)

    def described(self) -> dict[str, Any]:
        """Return what a state says of the content."""
        return {
            "fingerprint": self.fingerprint,
            "settings": self._settings,
            "shards": len(self),
            "digests": self._digests,
        }

    def check(self, state: StateDict) -> None:
        """Raise `ValueError` if the state is of other content; it names the first shard that differs.

        Shards may have been added after those that the state knows.
        """
        if state["format"] == 1:
            if state["order"] != self.first_format:
                raise ValueError("the state is of other shards, or of another seed, block_size or buffer_size")
            return
        theirs = state["content"]
        if "fingerprint" not in theirs:
            raise ValueError("the state is that of a mixture")
        if theirs["fingerprint"] == self.fingerprint:
            return
        if list(theirs["settings"]) != self._settings:
            raise ValueError(
                "the state is of another seed or shuffle (block_size, buffer_size, window, chunk_bytes): "
                f"{theirs['settings']}, not {self._settings}"
            )
        if theirs["shards"] < len(self) and theirs["fingerprint"] == self.fingerprint_of(theirs["shards"]):
            return
        if theirs["shards"] != len(self):
            raise ValueError(
                f"the state is of other shards: of {theirs['shards']}, and there are {len(self)}, which do not begin "
                "with those"
            )
        raise ValueError(f"the state is of other shards: the content of {self._first_other(theirs['digests'])} differs")

    def _first_other(self, digests: str) -> str:
        for group in range(0, len(self), self._group):
            at = 4 * (group // self._group)
            if digests[at : at + 4] != self._digests[at : at + 4]:
                names = [content.name for _, _, content in self._shards[group : group + self._group]]
                return names[0] if len(names) == 1 else f"one of {names[0]} to {names[-1]}"
        return "one of the shards"


def _digest(value: Any, size: int) -> str:
    described = json.dumps(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(described, digest_size=size).hexdigest()


class Remainder(NamedTuple):
    """The samples that a rank has still to consume."""

    place: WorkerPlace
    epoch: int
    parts: list[list[Interval]]
    later: list[tuple[int, list[Interval]]]
    batches: int = 0
    """How many batches of the epoch were consumed."""

    @property
    def first(self) -> int:
        """The epoch that is read next."""
        return self.epoch if any(self.parts) else self.epoch + 1

    def of_epoch(self, epoch: int, base: Any, sharing: Sharing) -> list[list[Interval]]:
        """Return what remains of an epoch, by worker."""
        if epoch <= self.epoch:
            return self.parts if epoch == self.epoch else []
        for number, intervals in self.later:
            if number == epoch:
                return [intervals]
        return [EpochPlan.whole(epoch, base, sharing).of_rank(self.place, sharing)]


def state_of(content: Content, remainder: Remainder, in_worker: bool, base: Any = None) -> dict[str, Any]:
    """Return the state of a rank, or of one worker of it: plain data of some hundred bytes."""
    place = remainder.place
    return {
        "format": FORMAT,
        "epoch": remainder.epoch,
        "content": content.described(),
        "rank": [place.rank, place.ranks],
        "worker": [place.worker, place.workers] if in_worker else None,
        "parts": [[list(interval) for interval in one] for one in remainder.parts],
        "later": [[epoch, [list(interval) for interval in one]] for epoch, one in remainder.later],
        "batches": remainder.batches,
        **({} if base is None else {"base": base}),
    }


def state_of_ranks(states: Sequence[StateDict]) -> dict[str, Any]:
    """Return one state that holds those of all ranks."""
    # torch.distributed.checkpoint takes a list of mappings apart, and would load as many as there are ranks now.
    return {"format": FORMAT, "ranks": tuple(states)}


def first_of(states: Any) -> StateDict:
    """Return the first state of several, or the one that is given."""
    return next(iter(_unwrapped([states] if isinstance(states, Mapping) else states)))


def remainders(states: Any, content: Content, sharing: Sharing) -> tuple[list[Remainder], Any]:
    """Return what a state, or each of several, says is left, and the base of all of them.

    `ValueError` for what is no state, or one of other content.
    """
    given = list(_unwrapped([states] if isinstance(states, Mapping) else states))
    for state in given:
        if not isinstance(state, Mapping) or "format" not in state:
            raise ValueError(f"not a state of a data set: {state!r}")
        if state["format"] not in (1, FORMAT):
            raise ValueError(f"a state of format {state['format']}, which a later version of fsabs wrote")
        if not {"epoch", "rank", "parts", "order" if state["format"] == 1 else "content"} <= state.keys():
            raise ValueError(f"not a state of a data set: it has {', '.join(map(str, state))}")
        content.check(state)
    first = min((state["epoch"] for state in given), default=0)
    bases = [sharing.pruned(state.get("base"), first) for state in given]
    if any(base != bases[0] for base in bases):
        raise ValueError("the states are not of one job: they follow from different states or weights")
    base = bases[0] if bases else None
    return [_remainder(state, base, sharing) for state in given], base


def _remainder(state: StateDict, base: Any, sharing: Sharing) -> Remainder:
    place = WorkerPlace(*state["rank"], *(state["worker"] or (0, 0)))  # 0 workers: the state of a whole rank
    ended = state.get("ended") and not state["worker"]  # format 1: what drop_last left is not to be read

    def intervals(value: Any, epoch: int) -> list[Interval]:
        return intervals_of(value, sharing.shape_of(epoch, base).total + place.ranks)  # with what makes ranks even

    parts = [] if ended else [intervals(one, state["epoch"]) for one in state["parts"]]
    later = [(epoch, intervals(one, epoch)) for epoch, one in state.get("later", ())]
    return Remainder(place, state["epoch"], parts, later, state.get("batches", 0))


def _unwrapped(states: Iterable[Any]) -> Iterable[Any]:
    """Replace a state of several by those in it: of all ranks, or of torchdata's `StatefulDataLoader`."""
    for state in states:
        if isinstance(state, Mapping) and "ranks" in state:
            yield from _unwrapped(state["ranks"])
        elif isinstance(state, Mapping) and "_snapshot" in state:
            behind = state.get("_steps_since_snapshot", 0)
            if behind:
                raise ValueError(
                    f"the state is of {behind} batches before the last one that was handed out, and does not say which "
                    "samples those had: load it into a StatefulDataLoader, or save with snapshot_every_n_steps=1"
                )
            workers = state["_snapshot"]["_worker_snapshots"]
            of_data = [workers[f"worker_{number}"]["dataset_state"] for number in range(len(workers))]
            yield from _of_sampler(state["_snapshot"]["_main_snapshot"]) or of_data
        elif isinstance(state, Mapping) and "dataset_state" in state:
            yield from _of_sampler(state) or [state["dataset_state"]]
        else:
            yield state


def _of_sampler(state: StateDict) -> list[StateDict]:
    """Return the state of an `EpochSampler` in one of torchdata's, if it has one."""
    found = state["_sampler_iter_state"]
    return [found] if isinstance(found, Mapping) and "format" in found else []


def plan_of_worker(states: Sequence[Remainder], base: Any, place: WorkerPlace) -> EpochPlan:
    """Return the plan of a worker that continues from its own state, which may leave nothing of the epoch."""
    own = [one for one in states if one.place == place]
    if len(own) != 1 or len(states) != 1:
        raise ValueError(f"worker {place.worker} of {place.workers} needs its own state, not {_places(states)}")
    return EpochPlan(own[0].epoch, "worker", tuple(map(tuple, own[0].parts)), base=base)


def plan_of_rank(states: Sequence[Remainder], base: Any, place: WorkerPlace, sharing: Sharing) -> EpochPlan:
    """Return the plan that continues from the states of this rank, or of all ranks, whose number may have been another.

    `ValueError` for states that are not all of a rank's or of a job's, or that overlap.
    """
    of_ranks = _joined(states)
    own = [one for one in of_ranks if one.place[:2] == place[:2]]
    if len(own) == 1:
        only = own[0]
        first = only.first
        parts = only.parts if first == only.epoch else only.of_epoch(first, base, sharing)
        union(parts)  # raises where they overlap
        later = tuple((epoch, tuple(one)) for epoch, one in only.later if epoch > first)
        batches = only.batches if first == only.epoch else 0
        return EpochPlan(first, "rank", tuple(map(tuple, parts)), later, batches, base)
    return plan_of_all(states, base, place, sharing)


def plan_of_all(states: Sequence[Remainder], base: Any, place: WorkerPlace, sharing: Sharing) -> EpochPlan:
    """Return the plan of all ranks that continues from the states of all ranks; `ValueError` if one is missing."""
    of_ranks = _joined(states)
    there = [one.place[:2] for one in of_ranks]
    if not there or sorted(there) != [(rank, there[0][1]) for rank in range(there[0][1])]:
        raise ValueError(
            f"this is rank {place.rank} of {place.ranks}: give it its own state, or those of all ranks (a Loader with "
            f"gather=True saves them together); there are {_places(states)}"
        )
    first = min(one.first for one in of_ranks)
    last = max([one.epoch for one in of_ranks] + [epoch for one in of_ranks for epoch, _ in one.later])
    if first > last:  # no rank has begun it
        return EpochPlan.whole(first, base, sharing)
    left = [
        [part for one in of_ranks for part in one.of_epoch(epoch, base, sharing)] for epoch in range(first, last + 1)
    ]
    union(left[0])  # raises where they overlap
    later = tuple((first + number, tuple(union(one))) for number, one in enumerate(left[1:], 1))
    batches = max((one.batches for one in of_ranks if one.epoch == first), default=0)
    return EpochPlan(first, "all", tuple(map(tuple, left[0])), later, batches, base)


def _joined(states: Sequence[Remainder]) -> list[Remainder]:
    """Join the states of a rank's workers."""
    by_rank: dict[tuple[int, int], list[Remainder]] = {}
    for one in states:
        by_rank.setdefault((one.place.rank, one.place.ranks), []).append(one)
    found = []
    for group in by_rank.values():
        group.sort(key=lambda one: one.place.worker)
        first = group[0]
        workers = first.place.workers or 1
        wanted = [first.place._replace(worker=number) for number in range(workers)]
        if [one.place for one in group] != wanted or len({one.epoch for one in group}) != 1:
            raise ValueError(f"the states are not those of all workers at one point; there are {_places(states)}")
        parts = [part for one in group for part in one.parts]
        found.append(first._replace(parts=parts, place=first.place._replace(worker=0, workers=0)))
    return found


def _places(states: Sequence[Remainder]) -> str:
    def place_name(place: WorkerPlace) -> str:
        worker = f" (worker {place.worker} of {place.workers})" if place.workers else ""
        return f"rank {place.rank} of {place.ranks}{worker}"

    return ", ".join(place_name(one.place) for one in states) or "none"
