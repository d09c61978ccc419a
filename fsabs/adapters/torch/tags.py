"""The tag of a batch, by which the training loop's process knows what was consumed.

A loader draws a batch, sends its tag to a worker with what the worker is to read, and gets it back with the samples. It
counts the batch when it hands it to the training loop, and counts nothing else. `Counted` is a sample that stands for
several positions of an epoch's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


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
