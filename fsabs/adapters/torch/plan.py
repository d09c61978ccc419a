"""What a pass through an epoch is to read (`Plan`), how far it is (`Progress`), and how both become a state and back.

A plan is a few intervals of the epoch's positions (see `readers.data.order`). The main process makes it; workers that
live longer than an epoch learn of it through shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from ...readers.data.order import Interval, drop, intervals_of, length, part, take, union

FORMAT = 1
CAPACITY = 4096  # 64-bit words of shared memory: some 2,000 intervals
Uneven = Literal["keep", "drop"]
Scope = Literal["all", "rank", "worker"]
_SCOPES: tuple[Scope, ...] = ("all", "rank", "worker")


class Place(NamedTuple):
    """Which part of the job a process is."""

    rank: int
    ranks: int
    worker: int
    workers: int


class Plan(NamedTuple):
    """What is to be read: all that remains of an epoch for all ranks, for this rank, or for this worker."""

    epoch: int
    scope: Scope
    parts: tuple[tuple[Interval, ...], ...]
    """Of each worker that was; they go on where there are as many again."""

    @classmethod
    def whole(cls, epoch: int, total: int) -> Plan:
        """A whole epoch."""
        return cls(epoch, "all", (((0, total),) if total else (),))

    def of_rank(self, place: Place, uneven: Uneven) -> list[Interval]:
        """What is this rank's."""
        intervals = union(self.parts)
        if self.scope != "all":
            return intervals
        if uneven == "drop":
            total = length(intervals)
            intervals = list(take(intervals, total - total % place.ranks))
        return part(intervals, place.rank, place.ranks)

    def of_worker(self, place: Place, uneven: Uneven) -> list[Interval]:
        """What is this worker's."""
        if self.scope != "all" and len(self.parts) == (place.workers if self.scope == "rank" else 1):
            return list(self.parts[place.worker if self.scope == "rank" else 0])
        return part(self.of_rank(place, uneven), place.worker, place.workers)


class Progress:
    """How far the workers of a rank are with a plan: how many samples of each have been consumed."""

    def __init__(self, plan: Plan, place: Place, uneven: Uneven) -> None:
        """`place` tells the rank and how many workers there are."""
        self.workers = place.workers
        self.taken = [0] * place.workers
        self.last = place.workers - 1
        self._of = [plan.of_worker(place._replace(worker=number), uneven) for number in range(place.workers)]

    def part(self, worker: int) -> list[Interval]:
        """All of a worker's intervals."""
        return self._of[worker]

    def remaining(self, worker: int) -> list[Interval]:
        """What a worker has still to read."""
        return list(drop(self._of[worker], self.taken[worker]))

    def parts(self) -> list[list[Interval]]:
        """What each worker has still to read, the one whose turn it is first."""
        turn = self.last + 1
        return [self.remaining((turn + number) % self.workers) for number in range(self.workers)]


# ---- states


def state_of(
    epoch: int, order: str, place: Place, parts: Sequence[Sequence[Interval]], scope: Scope, ended: bool
) -> dict[str, Any]:
    """The state of a rank, or of one worker of it: plain data, of a few hundred bytes.

    `ended` tells that the iteration has ended, and not only come to its last sample: what follows is the next epoch.
    """
    return {
        "format": FORMAT,
        "epoch": epoch,
        "order": order,
        "rank": [place.rank, place.ranks],
        "worker": [place.worker, place.workers] if scope == "worker" else None,
        "ended": ended,
        "parts": [[list(interval) for interval in one] for one in parts],
    }


def plan_of(states: Sequence[Mapping[str, Any]], order: str, total: int, place: Place, in_worker: bool) -> Plan:
    """The plan that goes on from the states of one rank, or of all; `ValueError` if they don't fit."""
    for state in states:
        _check(state, order)
    own = [state for state in states if _is_own(state, place, in_worker)]
    if len(own) == 1 and (len(states) == 1 or not in_worker):
        scope: Scope = "worker" if own[0]["worker"] else "rank"
        chosen = own
    else:
        _check_complete(states)
        scope, chosen = "all", list(states)
    epochs = {state["epoch"] for state in chosen}
    if len(epochs) != 1:
        raise ValueError(f"the states are of different epochs, {sorted(epochs)}: the ranks must save at one point")
    parts = [intervals_of(one, total) for state in chosen for one in state["parts"]]
    union(parts)  # which must not overlap
    return Plan(epochs.pop(), scope, tuple(map(tuple, parts)))


def _check(state: Mapping[str, Any], order: str) -> None:
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise ValueError(f"no state of a ShardedDataset: {state!r}")
    if state["order"] != order:
        raise ValueError("the state is of other shards, or of another seed, block_size or buffer_size")


def _is_own(state: Mapping[str, Any], place: Place, in_worker: bool) -> bool:
    if tuple(state["rank"]) != (place.rank, place.ranks):
        return False
    worker = state["worker"]
    return worker is None or (in_worker and tuple(worker) == (place.worker, place.workers))


def _check_complete(states: Sequence[Mapping[str, Any]]) -> None:
    """That there is the state of every rank and worker, once."""
    there = [(tuple(state["rank"]), tuple(state["worker"] or ())) for state in states]
    wanted = set()
    for (rank, ranks), worker in there:
        wanted |= {((number, ranks), worker and (0, worker[1])) for number in range(ranks)}
        if worker:
            wanted |= {((rank, ranks), (number, worker[1])) for number in range(worker[1])}
    if set(there) != wanted or len(there) != len(wanted):
        raise ValueError(
            f"to go on with another number of ranks or workers, give the states of all; there are {sorted(there)}"
        )


# ---- plans in shared memory


class SharedPlan:
    """A plan that the main process writes and its workers read, with the number of its edition."""

    def __init__(self) -> None:
        self._words = torch.zeros(CAPACITY, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._words.share_memory_()  # a copy has memory of its own, to be shared anew

    def write(self, serial: int, plan: Plan) -> None:
        """Publish a plan."""
        words = [serial, plan.epoch, _SCOPES.index(plan.scope), len(plan.parts)]
        for one in plan.parts:
            words += [len(one), *(position for interval in one for position in interval)]
        if len(words) > CAPACITY:
            words = [serial, -1]
        self._words[: len(words)] = torch.tensor(words, dtype=torch.int64)

    @property
    def serial(self) -> int:
        """The edition of the plan."""
        return int(self._words[0])

    def read(self) -> Plan:
        """The plan; `RuntimeError` if it is too long for workers that are running."""
        words = iter(self._words.tolist())
        next(words)
        epoch, scope, count = next(words), next(words), next(words)
        if epoch < 0:
            raise RuntimeError(
                "the loaded state has too many intervals for workers that are running: make a new loader"
            )
        parts = []
        for _ in range(count):
            parts.append(tuple((next(words), next(words)) for _ in range(next(words))))
        return Plan(epoch, _SCOPES[scope], tuple(parts))
