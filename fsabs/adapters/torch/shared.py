"""The memory that a data set's workers share with its main process: the plan, and the pass that each worker has begun.

A `DataLoader` makes new workers for each pass (or resumes persistent ones) and calls nothing of the data set in the
main process. So each worker records in shared memory which epoch it begins, and a worker of the next pass continues
from there. Every worker writes only its own slot, so that no lock is needed, and no killed worker can leave one locked.
"""

from __future__ import annotations

import multiprocessing
import re
import time
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from .plan import SCOPES, EpochPlan

CAPACITY = 4096  # 64-bit words for a plan: some 2,000 intervals
_WORKERS = 512
_MASK = 2**63 - 1


class WorkerPass(NamedTuple):
    """The pass that a worker begins: equal for all workers of one pass, except `origin`."""

    seed: int
    """The loader's random seed, which it draws for each pass."""
    origin: int
    """The number of the process among its parent's children, less the worker's: a later pass has a larger one."""
    before: int
    """How many passes this process has begun before."""
    workers: int

    def is_of(self, other: WorkerPass) -> bool:
        """Return whether both are of one pass.

        Other children of the parent may have been started between the workers.
        """
        if self._replace(origin=other.origin) != other:
            return False
        return abs(self.origin - other.origin) < self.workers


def worker_pass(info: Any, before: int) -> WorkerPass:
    """Return the pass that this worker, with torch's `WorkerInfo`, begins after `before` others."""
    # multiprocessing documents the names of processes: "Process-N1:N2:...:Nk", the Nk-th child of its parent.
    number = re.search(r"(\d+)$", multiprocessing.current_process().name)
    origin = int(number[1]) - info.id if number else 0
    return WorkerPass((info.seed - info.id) & _MASK, origin, before, info.num_workers)


class _Slot(NamedTuple):
    serial: int
    sequence: int
    epoch: int
    seed: int
    origin: int
    before: int
    workers: int

    @property
    def begun(self) -> WorkerPass:
        return WorkerPass(self.seed, self.origin, self.before, self.workers)


_SLOT = len(_Slot._fields) + 1  # and a checksum


class SharedPlan:
    """A plan that the main process writes and its workers read, with a serial number; and the passes of the workers."""

    def __init__(self) -> None:
        words = CAPACITY + _WORKERS * _SLOT
        self._words = torch.zeros(words, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._words.share_memory_()  # a copy has memory of its own, which is shared anew

    # ---- the plan

    def write(self, serial: int, plan: EpochPlan) -> None:
        """Publish a plan."""
        words = [serial, plan.epoch, SCOPES.index(plan.scope), len(plan.parts)]
        for one in plan.parts:
            words += [len(one), *(position for interval in one for position in interval)]
        words.append(len(plan.later))
        for epoch, one in plan.later:
            words += [epoch, len(one), *(position for interval in one for position in interval)]
        if len(words) > CAPACITY:
            words = [serial, -1]
        self._words[: len(words)] = torch.tensor(words, dtype=torch.int64)

    @property
    def serial(self) -> int:
        """The serial number of the plan."""
        return int(self._words[0])

    def read(self) -> EpochPlan:
        """Return the plan; `RuntimeError` if it is too long for workers that are running."""
        words = iter(self._words[:CAPACITY].tolist())
        next(words)
        epoch, scope, count = next(words), next(words), next(words)
        if epoch < 0:
            raise RuntimeError(
                "the loaded state has too many intervals for workers that are running: make a new loader"
            )

        def intervals() -> tuple[tuple[int, int], ...]:
            return tuple((next(words), next(words)) for _ in range(next(words)))

        parts = tuple(intervals() for _ in range(count))
        later = tuple((next(words), intervals()) for _ in range(next(words)))
        return EpochPlan(epoch, SCOPES[scope], parts, later)

    # ---- passes of workers

    def begin_pass(self, worker: int, begun: WorkerPass, first: int, epoch: int | None = None) -> int:
        """Record the pass that a worker begins, and return its epoch.

        The first pass after a plan was published is of epoch `first`, and each later pass of the one after that of the
        pass before, unless `epoch` is given (from the worker's own state).
        """
        serial = self.serial
        slots = self._slots(serial)
        same = [slot for slot in slots if slot.begun.is_of(begun)]
        last = max(slots, key=lambda slot: slot.sequence, default=None)
        if same:
            sequence, found = same[0].sequence, same[0].epoch
        else:
            sequence, found = (last.sequence + 1, last.epoch + 1) if last else (0, first)
        slot = _Slot(serial, sequence, found if epoch is None else epoch, *begun)
        if worker >= _WORKERS:
            raise RuntimeError(f"a data set can be read by at most {_WORKERS} workers, not {begun.workers}")
        words = torch.tensor([*slot, _checksum(slot)], dtype=torch.int64)
        self._words[CAPACITY + worker * _SLOT :][:_SLOT] = words
        return slot.epoch

    def last_epoch(self) -> int | None:
        """Return the epoch of the last pass that workers began since the plan was published; None if there is none."""
        last = max(self._slots(self.serial), key=lambda slot: slot.sequence, default=None)
        return None if last is None else last.epoch

    def _slots(self, serial: int) -> list[_Slot]:
        """Return the slots of workers that have begun a pass since the plan was published."""
        for _ in range(200):
            rows = self._words[CAPACITY:].view(_WORKERS, _SLOT)
            used = rows[rows[:, 0] == serial].tolist()
            slots = [_Slot(*row[:-1]) for row in used]
            sound = [slot for slot, row in zip(slots, used, strict=True) if row[-1] == _checksum(slot)]
            if len(sound) == len(used):
                break
            time.sleep(0.001)  # a worker is writing its slot
        return sound  # without the slot of a worker that was killed while it wrote


def _checksum(slot: _Slot) -> int:
    return hash(slot) & _MASK | 1  # integers and tuples of them hash alike in every process


class WorkerCounts:
    """A count that the main process and all its workers add to, each in a place of its own, without a lock."""

    def __init__(self) -> None:
        self._counts = torch.zeros(_WORKERS + 1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._counts.share_memory_()

    def add(self, number: int) -> None:
        """Add to the count of this process."""
        info = get_worker_info()
        self._counts[0 if info is None else 1 + info.id % _WORKERS] += number

    def clear(self) -> None:
        """Begin anew, in the main process."""
        self._counts.zero_()

    @property
    def total(self) -> int:
        """The sum of all processes."""
        return int(self._counts.sum())
