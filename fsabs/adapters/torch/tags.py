"""The tags of the batches of a `ShardedDataset`, of which its state is made.

Only the worker knows how many samples of the data set it took, and only the main process knows which batches were used.
So each batch carries its worker's count, added when it is collated and removed when it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import default_collate, default_convert


class Tag(NamedTuple):
    """The progress of a worker."""

    worker: int
    workers: int
    serial: int
    """The serial number of the plan that it follows."""
    taken: int
    """How many samples it has taken since the pass began."""


class Tagged(NamedTuple):
    """A batch as it comes out of a `DataLoader` with `collate_fn=dataset.tagged(...)`."""

    data: Any
    tag: Tag


class Collate:
    """A `collate_fn` around another, which adds the tag that `tag` returns."""

    def __init__(self, tag: Callable[[], Tag], collate_fn: Callable[[Any], Any] | None) -> None:
        self._tag = tag  # a method of the data set: in a worker, of that which the samples come from, pickled with it
        self._collate = collate_fn

    def __call__(self, samples: Any) -> Tagged:
        collate = self._collate
        if collate is None:  # a list of samples, or one sample where there are no batches
            collate = default_collate if isinstance(samples, list) else default_convert
        return Tagged(collate(samples), self._tag())
