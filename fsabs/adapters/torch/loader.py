"""Loader: torch's DataLoader around a ShardedDataset, with a state; and the tags that it is made of.

Only the worker knows how many samples it took, and only the main process knows which batches were used. So each batch
carries its worker's count, put there when it is collated and taken off when it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import DataLoader, default_collate, default_convert

if TYPE_CHECKING:
    from .sharded import ShardedDataset


class Tag(NamedTuple):
    """How far a worker is."""

    worker: int
    workers: int
    serial: int
    """The edition of the plan that it works on."""
    taken: int
    """How many samples it has given since the iteration began."""


class Tagged(NamedTuple):
    """A batch as it comes out of a `DataLoader` with `collate_fn=dataset.tagged(...)`."""

    data: Any
    tag: Tag


class Collate:
    """A `collate_fn` around another, which adds the tag."""

    def __init__(self, dataset: ShardedDataset, collate_fn: Callable[[Any], Any] | None) -> None:
        self._dataset = dataset  # in a worker, the very object that the samples come from: they are pickled together
        self._collate = collate_fn

    def __call__(self, samples: Any) -> Tagged:
        collate = self._collate
        if collate is None:  # a list of samples, or one sample where there are no batches
            collate = default_collate if isinstance(samples, list) else default_convert
        return Tagged(collate(samples), self._dataset.tag())


class Loader:
    """A `DataLoader` of a `ShardedDataset` that can be stopped after any batch and goes on exactly there.

    `options` are the `DataLoader`'s own. An iteration is one epoch, or what a loaded state left of it; `state_dict()`
    is what remains after the last batch that was handed out, however many were fetched ahead, and `load_state_dict`
    takes it, with any number of workers. See `ShardedDataset` for ranks.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        batch_size: int | None = 1,
        *,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        if collate_fn is None and batch_size is None:
            collate_fn = default_convert
        tagged = dataset.tagged(collate_fn)
        self.loader: DataLoader[Any] = DataLoader(dataset, batch_size, collate_fn=tagged, **options)

    def __iter__(self) -> Iterator[Any]:
        return self.dataset.consumed(self.loader)

    def __len__(self) -> int:
        """The number of batches of a whole epoch: each worker makes its own, of which the last may be short."""
        lengths = self.dataset.lengths(max(1, self.loader.num_workers))
        size = self.loader.batch_size
        if size is None:
            return sum(lengths)
        return sum(length // size if self.loader.drop_last else -(-length // size) for length in lengths)

    def set_epoch(self, epoch: int) -> None:
        """As of the data set."""
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As of the data set."""
        return self.dataset.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """As of the data set."""
        self.dataset.load_state_dict(state_dict)
