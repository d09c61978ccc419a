"""The tasks of a job: shards cut into numbered tasks, and the order of the tasks in an epoch.

A task's records follow from its number alone, and the number at each place of an epoch from (seed, epoch, place) alone:
a keyed permutation, computed without a table. So tasks can be laid out in parts, by any process, at any time.
"""

from __future__ import annotations

import bisect
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..readers.data import AbstractDataReader, Shard, shards_of
from ..readers.data import Mode as Mode
from ..readers.data import Task as Task
from ..readers.data import TaskType as TaskType

_MASK = (1 << 64) - 1
_ROUNDS = 6


class Piece(NamedTuple):
    """The records of a task."""

    shard: str
    start: int
    end: int


class ShardTable:
    """Shards, each cut into tasks of `records_per_task` records and a rest."""

    def __init__(self, shards: Iterable[Shard], records_per_task: int) -> None:
        self.shards = list(shards)
        self.records_per_task = records_per_task
        self.first_tasks: list[int] = []
        self.tasks = 0
        for shard in self.shards:
            self.first_tasks.append(self.tasks)
            self.tasks += -(-shard.count // records_per_task)

    def piece(self, number: int) -> Piece:
        """Return the records of task `number`."""
        at = bisect.bisect_right(self.first_tasks, number) - 1
        shard = self.shards[at]
        start = shard.start + (number - self.first_tasks[at]) * self.records_per_task
        return Piece(shard.name, start, min(start + self.records_per_task, shard.end))


def permutation(size: int, seed: int | None, epoch: int) -> Callable[[int], int]:
    """Return the order of an epoch: the function from a place (0 to `size` - 1) to the number of the task there.

    A Feistel network over the next power of four, walked until it falls below `size` (Black and Rogaway, "Ciphers with
    arbitrary finite domains", CT-RSA 2002). None as the seed is the order of the numbers.
    """
    if seed is None or size < 2:
        return lambda place: place
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    keys = [_mixed(_mixed(seed & _MASK) ^ _mixed(epoch * _ROUNDS + number + 1)) for number in range(_ROUNDS)]

    def number_at(place: int) -> int:
        while True:
            left, right = place >> half, place & mask
            for key in keys:
                left, right = right, left ^ (_mixed(right ^ key) & mask)
            place = left << half | right
            if place < size:
                return place

    return number_at


def _mixed(value: int) -> int:
    """Return SplitMix64's output for a state (Steele, Lea, Flood, OOPSLA 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def shuffled_numbers(piece: Piece, seed: int | None, epoch: int, number: int) -> tuple[int, ...]:
    """Return the record numbers of a task in a seeded order, for jobs that shuffle records."""
    size = piece.end - piece.start
    at = permutation(size, _mixed((seed or 0) & _MASK) ^ number, epoch)
    return tuple(piece.start + at(place) for place in range(size))


def checked_shards(source: Any, mode: str) -> list[Shard]:
    """Return the shards of a data reader (or shards in one of the shapes of `create_shards`), checked.

    Raises `ValueError` if there is no record, or if two shards overlap; `TypeError` for an unknown shape. Empty shards
    are left out with a warning.
    """
    reader = source if hasattr(source, "create_shards") else _Given(source)
    found = shards_of(reader, mode)
    empty = [shard.name for shard in found if not shard.count]
    shards = [shard for shard in found if shard.count]
    if not shards:
        raise ValueError(f"there is no record to dispatch: {len(empty)} shards for {mode}, all of them empty")
    if empty:
        warnings.warn(f"{len(empty)} shards have no records and are left out, {empty[0]!r} first", stacklevel=3)
    by_name = defaultdict(list)
    for shard in shards:
        by_name[shard.name].append(shard)
    for same in by_name.values():
        same.sort()
        for one, following in itertools.pairwise(same):
            if following.start < one.end:
                raise ValueError(f"shards overlap: {tuple(one)} and {tuple(following)}")
    return shards


class _Given(AbstractDataReader):
    """A reader of shards that are given as they are."""

    def __init__(self, shards: Any) -> None:
        super().__init__()
        self._shards = shards

    def read_records(self, task: Any) -> Any:
        raise NotImplementedError("shards without a reader have no records")  # pragma: no cover

    def create_shards(self, mode: str = Mode.TRAINING) -> Any:
        return self._shards
