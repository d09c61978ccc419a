"""States: plain data that says what a rank, or one worker of it, has still to consume; and plans from states.

Format 2 names the shards by what they contain (`Content`), wherever they lie. Format 1, of the first release, named
them by the URLs or paths that were given; its states can be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...readers.data.base import ShardContent
from ...readers.data.order import Interval, intervals_of, union
from .plan import EpochPlan, Sharing, WorkerPlace

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
        if theirs["fingerprint"] == self.fingerprint:
            return
        if list(theirs["settings"]) != self._settings:
            raise ValueError(
                f"the state is of another seed, block_size or buffer_size: {theirs['settings']}, not {self._settings}"
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
    def named(place: WorkerPlace) -> str:
        worker = f" (worker {place.worker} of {place.workers})" if place.workers else ""
        return f"rank {place.rank} of {place.ranks}{worker}"

    return ", ".join(named(one.place) for one in states) or "none"
