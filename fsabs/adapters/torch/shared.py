"""What a data set's workers share with its main process: the epoch that it set, and counts.

A plain `DataLoader` calls nothing of a data set in the main process when a pass begins. What the main process sets
before a pass is all that its workers know: forked or pickled with the data set, or, where they live on, from here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import get_worker_info

from .plan import EpochPlan

_WORKERS = 512


class EpochNotice:
    """The plan that the main process set last, by its serial number, and how many passes workers have begun with it."""

    def __init__(self) -> None:
        self._words = torch.zeros(3, dtype=torch.int64, device="cpu").share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._words.share_memory_()  # a copy has memory of its own, which is shared anew

    def publish(self, serial: int, plan: EpochPlan, whole: bool) -> None:
        """Say which plan is in force, and whether it is that of a whole epoch."""
        self._words[:] = torch.tensor([serial, plan.epoch if whole else -1, 0], dtype=torch.int64)

    def begin_pass(self) -> None:
        """Record that a pass begins; one worker of it does."""
        self._words[2] += 1

    @property
    def serial(self) -> int:
        """The serial number of the plan."""
        return int(self._words[0])

    @property
    def epoch(self) -> int | None:
        """The epoch of the plan; None where the plan is the rest of one."""
        epoch = int(self._words[1])
        return None if epoch < 0 else epoch

    @property
    def passes(self) -> int:
        """How many passes workers have begun with the plan."""
        return int(self._words[2])


class WorkerCounts:
    """A count that the main process and all its workers add to, each in a place of its own, without a lock."""

    def __init__(self) -> None:
        self._counts = torch.zeros(_WORKERS + 1, dtype=torch.int64, device="cpu").share_memory_()  # type: ignore[no-untyped-call]

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
