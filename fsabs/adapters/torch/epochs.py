"""The sequence of a rank's epochs, as its main process sees it: plans, passes, and the states made of them.

An epoch ends when its last batch has been consumed, whichever loader made the batches and whether or not the loop over
it has ended: that is known from counts alone. A pass over the data follows the plan; the next pass is of the next
epoch. This module knows no records and no workers; `sharded` and `sampler` do.

A state is plain data: the samples that a rank, or one worker of it, has still to consume. States of format 2 name the
shards by what they contain (`Content`), wherever they lie. Format 1, of the first release, named them by the URLs or
paths that were given; its states can be read.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...readers.data.base import ShardContent
from ...readers.data.order import Interval, drop, intervals_of, length, union
from .plan import UNEVEN, EpochPlan, Pass, ShapeOf, Sharing, WorkerPlace

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


class RankOf:
    """The rank of this process and the number of ranks.

    They are those that are given, else those of `torch.distributed` once it is initialized, else those of the
    environment (`RANK` and `WORLD_SIZE`, as torchrun sets them), else 0 of 1. A copy in a process that has neither
    keeps those of the process where it was pickled.
    """

    def __init__(self, rank: int | None, ranks: int | None) -> None:
        if (rank is None) != (ranks is None):
            raise ValueError("rank and ranks are given together, or neither")
        if rank is not None and ranks is not None and not 0 <= rank < ranks:
            raise ValueError(f"there is no rank {rank} of {ranks}")
        # A state has plain numbers: numpy's are not JSON, and torch.load refuses them.
        self._given = None if rank is None or ranks is None else (operator.index(rank), operator.index(ranks))
        self._inherited = (0, 1)

    def get(self) -> tuple[int, int]:
        """Return the rank and the number of ranks, as they are known now."""
        if self._given is not None:
            return self._given
        import torch.distributed as distributed

        environment = _environments_rank()
        if not (distributed.is_available() and distributed.is_initialized()):
            return environment or self._inherited
        group = distributed.get_rank(), distributed.get_world_size()
        if environment is not None and environment != group:
            warnings.warn(
                "the process group has rank {} of {}, and RANK and WORLD_SIZE say {} of {}: the first counts; give "
                "rank= and ranks= to choose".format(*group, *environment),
                stacklevel=2,
            )
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inherited": self.get()}


def _environments_rank() -> tuple[int, int] | None:
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return (rank, ranks) if 0 <= rank < ranks else None


def _members(ranges: Sequence[range], start: int, stop: int) -> int:
    """Return how many numbers from `start` to `stop` are in any of some ascending ranges."""
    inside = (one[bisect_left(one, start) : bisect_left(one, stop)] for one in ranges)
    return len(set().union(*inside))


PlanOfAll: TypeAlias = Callable[[ShapeOf], EpochPlan]
Rebase: TypeAlias = Callable[[EpochPlan, PlanOfAll, StateDict], EpochPlan]


class Epochs:
    """The plan of the pass that runs or comes next, and which of its samples were consumed.

    Args:
        content: what a state has to be of.
        sharing: how an epoch is divided.
        rank: of this process.
        publish: is called with each new plan, as `publish(serial, plan, whole)`: whether it is that of a whole epoch.
        rebased: returns a plan from a state, which may be of another base, for the present data set; it is called with
            this rank's plan, a function that returns that of all ranks (`ValueError` if their states are not there)
            for the shapes that epochs had when they were saved, and the state.
        base: of plans that follow from no state.
    """

    def __init__(
        self,
        content: Content,
        sharing: Sharing,
        rank: RankOf,
        publish: Callable[[int, EpochPlan, bool], object] = lambda serial, plan, whole: None,
        rebased: Rebase = lambda plan, of_all, state: plan,
        base: Any = None,
    ) -> None:
        if sharing.uneven not in UNEVEN:
            raise ValueError(f"uneven is one of {', '.join(map(repr, UNEVEN))}, not {sharing.uneven!r}")
        self._rank = rank
        self.content = content
        self.sharing = sharing
        self.serial = 0
        """Counts the plans."""
        self.pass_type: type[Pass] = Pass
        self._rebased = rebased
        self._base = base
        self.plan = self.whole(0)
        self.running: Pass | None = None
        """The pass that runs or has ended; None if none has begun with this plan."""
        self._empty = False  # the pass that runs had no batch at all
        self._again = False  # the next pass is of this epoch once more
        self._loaded: int | None = None  # the epoch of the state that was loaded, until a pass begins
        self._loaded_by: WorkerPlace | None = None
        self._publish = publish
        self._set(self.plan)

    def whole(self, epoch: int) -> EpochPlan:
        """Return the plan of a whole epoch, as no state has it."""
        return EpochPlan.whole(epoch, self._base, self.sharing)

    def _set(self, plan: EpochPlan) -> None:
        self.plan = plan
        self.serial += 1
        self.running, self._empty, self._again, self._loaded, self._loaded_by = None, False, False, None, None
        pruned = plan._replace(base=self.sharing.pruned(plan.base, plan.epoch))
        self._publish(self.serial, plan, pruned == self.whole(plan.epoch))

    @property
    def place(self) -> WorkerPlace:
        """The rank of this process."""
        return WorkerPlace(*self._rank.get(), 0, 1)

    @property
    def epoch(self) -> int:
        """The epoch of the pass that runs or has ended; the one that is read next if none has begun."""
        return self.plan.epoch

    @property
    def ended(self) -> bool:
        """Whether all batches of the pass have been consumed."""
        running = self.running
        return self._empty or (running is not None and running.begun and running.exhausted)

    def whole_length(self) -> int:
        """Return how many samples the rank has in a whole epoch."""
        return length(self.whole(0).of_rank(self.place, self.sharing))

    # ---- passes

    def begin(
        self,
        workers: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        skip: Mapping[int, Sequence[range]] | None = None,
    ) -> Pass:
        """Return the pass that begins, in so many parts: of the next epoch if anything of this one was consumed."""
        place = self.place._replace(workers=workers)
        if self._loaded_by not in (None, place._replace(workers=1)):
            raise RuntimeError(
                f"a state was loaded as {self._loaded_by}, and this is rank {place.rank} of {place.ranks} now: load it "
                "after torch.distributed is initialized"
            )
        if self._again:
            self._set(self.whole(self.plan.epoch))
        elif self.ended or (self.running is not None and self.running.begun):
            self._set(self.plan.of_epoch(self.plan.epoch + 1, self.sharing))
        else:
            self._set(self.plan)
        self.running = self.planned(place, batch_size, drop_last, skip)
        return self.running

    def planned(
        self, place: WorkerPlace, batch_size: int, drop_last: bool, skip: Mapping[int, Sequence[range]] | None = None
    ) -> Pass:
        """Return a pass over the present plan, of any rank."""
        steps = (skip or {}).get(self.plan.epoch, ())
        return self.pass_type(self.plan, place, self.sharing, self.serial, batch_size, drop_last, steps)

    def batches(
        self, workers: int, batch_size: int, drop_last: bool, skip: Mapping[int, Sequence[range]] | None = None
    ) -> tuple[int, int]:
        """Return how many batches of the pass that runs or comes next were handed out before, and how many remain."""
        place = self.place._replace(workers=workers)
        running = self.running
        least = batch_size if drop_last else 1
        if running is None or (running.place, running.batch_size, running.least) != (place, batch_size, least):
            plan = self.whole(self.plan.epoch) if self._again else self.plan
            running = self.pass_type(plan, place, self.sharing, self.serial, batch_size, drop_last)
        elif self.ended:
            following = self.plan.of_epoch(self.plan.epoch + 1, self.sharing)
            running = self.pass_type(following, place, self.sharing, 0, batch_size, drop_last)
        step, left = running.step, running.batches_left
        skipped = (skip or {}).get(running.plan.epoch, ())
        before, behind = _members(skipped, 0, step), _members(skipped, step, step + left)
        return step - before, left - behind

    def skip_to(self, epoch: int) -> None:
        """Make `epoch` the next one, which follows passes that were not seen here."""
        self._set(self.plan.of_epoch(epoch, self.sharing) if epoch > self.plan.epoch else self.whole(epoch))

    def check(self, serial: int) -> None:
        """Raise `RuntimeError` if the pass with the plan of this number is not the present one."""
        if serial != self.serial:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")

    def consumed(self, running: Pass, tag: Any) -> None:
        """Record that a batch of a pass was handed to the training loop."""
        self.check(running.serial)
        running.consumed(tag)

    def end(self, running: Pass) -> None:
        """Record that a pass gives no more batches."""
        if running.serial == self.serial:
            self._empty = running.exhausted

    def abandon(self, running: Pass) -> None:
        """Record that the rest of a pass is left out, so that the next one is of the next epoch."""
        if running.serial == self.serial:
            self._empty = True

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass one of `epoch`; what a loaded state left of that epoch stays in force."""
        epoch = operator.index(epoch)
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch == self.plan.epoch:
            if self.ended:
                self._set(self.whole(epoch))
            elif self.running is not None:
                self._again = self.running.begun
        elif epoch == self._loaded:  # all of it had been consumed
            self._set(self._emptied(epoch))
        else:
            if self._loaded == self.plan.epoch:
                warnings.warn(
                    f"epoch {epoch} is set, and what the state that was loaded left of epoch {self.plan.epoch} is not "
                    f"read: the loop counts other epochs than the loader, which is in epoch {self.plan.epoch}",
                    stacklevel=3,
                )
            self.skip_to(epoch)

    def _emptied(self, epoch: int) -> EpochPlan:
        """Return a plan that leaves nothing of an epoch, and continues with the present one."""
        intervals = tuple(interval for part in self.plan.parts for interval in part)
        later = ((self.plan.epoch, tuple(sorted(intervals))), *self.plan.later)
        return EpochPlan(epoch, self.plan.scope, (), later, base=self.plan.base)

    # ---- states

    def state_dict(self, held: int = 0) -> dict[str, Any]:
        """Return what remains of the epoch after the batches that were consumed, but for the last `held` of them."""
        plan, running = self.plan, self.running
        if held and running is not None:
            running = running.before(held)
        elif self.ended:
            return self._state([], 0)
        if running is not None:
            return self._state(running.remaining(), running.step)
        return self._state(list(map(list, plan.parts)) if plan.scope == "rank" else [self._own()], plan.batches)

    def state_after(self, taken: int) -> dict[str, Any]:
        """Return what remains of the epoch after its first `taken` samples, of one worker."""
        left = list(drop(self.plan.of_worker(self.place, self.sharing), taken))
        return self._state([left], 0 if self.ended else self.plan.batches)

    def _own(self) -> list[Interval]:
        return self.plan.of_rank(self.place, self.sharing)

    def _state(self, parts: list[list[Interval]], batches: int) -> dict[str, Any]:
        later = self.plan.later_of_rank(self.place, self.sharing)
        remainder = Remainder(self.place, self.plan.epoch, parts, later, batches)
        return state_of(self.content, remainder, in_worker=False, base=self.plan.base)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from those of all ranks."""
        place = self.place
        left, base = remainders(state_dict, self.content, self.sharing)
        plan = plan_of_rank(left, base, place, self.sharing)

        def of_all(shape_of: ShapeOf) -> EpochPlan:
            return plan_of_all(left, base, place, self.sharing._replace(shape_of=shape_of))

        self._set(self._rebased(plan, of_all, first_of(state_dict)))
        self._loaded = min(one.epoch for one in left)
        self._loaded_by = place
