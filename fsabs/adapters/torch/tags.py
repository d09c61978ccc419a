"""What the training loop's process and its workers tell each other: tags of batches, the epoch that is set, and counts.

A loader draws a batch, sends its tag to a worker with what the worker is to read, and gets it back with the samples. It
counts the batch when it hands it to the training loop, and counts nothing else. `Counted` is a sample that stands for
several positions of an epoch's order.

A plain `DataLoader` calls nothing of a data set in the main process when a pass begins. What the main process sets
before a pass is all that its workers know: forked or pickled with the data set, or, where they live on, from
`EpochNotice`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

if TYPE_CHECKING:
    from .plan import EpochPlan


@dataclass(slots=True)  # no tuple: pinning memory would rebuild it
class Tag:
    """A batch's place in a pass."""

    serial: int
    """The serial number of the pass."""
    part: int
    """The number of the part of the pass that it is drawn from: a worker's share."""
    first: int
    """The number of its first sample in that part."""
    count: int
    """How many samples it has."""
    skipped: bool = False
    """It is to be left out."""


class Tagged(NamedTuple):
    """A batch on its way from a worker to the training loop."""

    data: Any
    tag: Any


class Samples(list[Any]):
    """The samples of a batch, with its tag."""

    def __init__(self, samples: Any, tag: Any) -> None:
        super().__init__(samples)
        self.tag = tag


class Collate:
    """A `collate_fn` around another, which keeps the tag of the samples.

    `batched` is False where samples are handed out one by one. A batch whose samples were all skipped is None.
    """

    def __init__(self, collate_fn: Callable[[Any], Any], batched: bool = True) -> None:
        self._collate = collate_fn
        self._batched = batched

    def __call__(self, samples: Samples) -> Tagged:
        if not samples:
            return Tagged(None, samples.tag)
        return Tagged(self._collate(list(samples) if self._batched else samples[0]), samples.tag)


class Counted(NamedTuple):
    """A batch that a data set makes itself, or a packed window."""

    positions: int
    """How many positions of the order it holds."""
    lost: int
    """How many of them are damaged records that were skipped."""
    sample: Any
    """`LOST` where nothing is left."""
    parts: tuple[int, ...] = ()
    """Of packed windows, for each document in them: the number of its first token among the positions that are read."""


_WORKERS = 512


class SharedNumbers:
    """Numbers, all 0 at first, in memory that a main process shares with its workers."""

    def __init__(self, count: int) -> None:
        self._made_in = os.getpid()
        numbers = torch.zeros(count, dtype=torch.int64, device="cpu")
        self._numbers: torch.Tensor = numbers.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, *numbers: int) -> None:
        """Set the numbers, of this main process.

        A rank that got this by a fork, or from torch.multiprocessing, has that in common with the others until now.
        """
        if self._made_in != os.getpid():
            SharedNumbers.__init__(self, len(self._numbers))
        self._numbers[:] = torch.tensor(numbers, dtype=torch.int64)

    def __getitem__(self, at: int) -> int:
        return int(self._numbers[at])

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copy has memory of its own, which is shared anew.
        self._numbers.share_memory_()  # type: ignore[no-untyped-call]


class EpochNotice(SharedNumbers):
    """The plan that the main process set last, by its serial number, and how many passes workers have begun with it."""

    def __init__(self) -> None:
        super().__init__(3)

    def publish(self, serial: int, plan: EpochPlan, whole: bool) -> None:
        """Say which plan is in force, and whether it is that of a whole epoch."""
        self.set(serial, plan.epoch if whole else -1, 0)

    def begin_pass(self) -> None:
        """Record that a pass begins; one worker of it does."""
        self._numbers[2] += 1

    @property
    def serial(self) -> int:
        """The serial number of the plan."""
        return self[0]

    @property
    def epoch(self) -> int | None:
        """The epoch of the plan; None where the plan is the rest of one."""
        return None if self[1] < 0 else self[1]

    @property
    def passes(self) -> int:
        """How many passes workers have begun with the plan."""
        return self[2]


class WorkerCounts(SharedNumbers):
    """A count that the main process and all its workers add to, each in a place of its own, without a lock."""

    def __init__(self) -> None:
        super().__init__(_WORKERS + 1)

    def add(self, number: int) -> None:
        """Add to the count of this process."""
        info = get_worker_info()
        self._numbers[0 if info is None else 1 + info.id % _WORKERS] += number

    def clear(self) -> None:
        """Begin anew, in the main process."""
        self.set(*[0] * len(self._numbers))

    @property
    def total(self) -> int:
        """The sum of all processes."""
        return int(self._numbers.sum())
