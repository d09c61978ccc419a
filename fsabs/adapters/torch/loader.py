"""Loader: torch's DataLoader around a data set of this package, with a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, default_convert

from .batches import PlannedBatches
from .sampler import EpochSampler
from .sharded import ShardedDataset

if TYPE_CHECKING:
    from .plan import Uneven
    from .tasks import TaskDataset


class Loader:
    """A `DataLoader` that can be stopped after any batch and continues exactly there.

    `dataset` is a `ShardedDataset`, a `TaskDataset`, or a map-style data set of this package or your own. `options` are
    the `DataLoader`'s. An iteration is one epoch, or what a loaded state left of it; the next one is the next epoch.
    `state_dict()` is what remains after the last batch that was handed out, however many were fetched ahead, and
    `load_state_dict` takes it, with any number of workers.

    Args:
        dataset: what is read. A `ShardedDataset` shuffles by itself; for a map-style data set, the batches come from
            `PlannedBatches` of an `EpochSampler`, so that each worker reads its batches ahead.
        batch_size: samples of a batch; None gives single samples.
        seed: shuffles a map-style data set anew in each epoch; None leaves the order alone.
        rank, ranks, uneven: of `EpochSampler`, for a map-style data set; see `ShardedDataset`.
        collate_fn: makes a batch of a list of samples; torch's own if None.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        seed: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.dataset = dataset
        if options.get("in_order") is False:
            raise ValueError(
                "a Loader hands batches out in order: in_order=False would leave its state without meaning"
            )
        for name in ("shuffle", "sampler", "batch_sampler"):
            if options.get(name):
                raise TypeError(
                    f"a Loader takes no {name}=: seed= shuffles (of the data set, if it is a ShardedDataset); "
                    f"a sampler of yours goes with torch's DataLoader"
                )
        if callable(getattr(dataset, "tagged", None)):
            if (seed, rank, ranks, uneven) != (None, None, None, "keep"):
                raise TypeError(f"seed, rank, ranks and uneven of a {type(dataset).__name__} are given to the data set")
            self._passes: ShardedDataset | TaskDataset | EpochSampler = dataset
            if collate_fn is None and batch_size is None:
                collate_fn = default_convert
            if batch_size is not None or isinstance(dataset, ShardedDataset):
                tagged = dataset.tagged(collate_fn)
            else:
                tagged = dataset.tagged(collate_fn, batched=False)
            self.loader: DataLoader[Any] = DataLoader(dataset, batch_size, collate_fn=tagged, **options)
            return
        self._passes = EpochSampler(dataset, seed=seed, rank=rank, ranks=ranks, uneven=uneven)
        if batch_size is None:
            self.loader = DataLoader(dataset, None, sampler=self._passes, collate_fn=collate_fn, **options)
            return
        drop_last = bool(options.pop("drop_last", False))
        workers = options.get("num_workers", 0)
        batches = PlannedBatches(self._passes, batch_size, num_workers=workers, drop_last=drop_last)
        self.loader = DataLoader(dataset, batch_sampler=batches, collate_fn=collate_fn, **options)

    def __iter__(self) -> Iterator[Any]:
        return self._passes.consumed(self.loader)

    def __len__(self) -> int:
        """The number of batches of a whole epoch: of a `ShardedDataset`, each worker's last one may be short."""
        if isinstance(self._passes, EpochSampler):
            return len(self.loader)
        lengths_of = getattr(self._passes, "lengths", None)
        if lengths_of is None:
            raise TypeError("the number of batches of a job's tasks is not known: other workers take some of them")
        lengths = lengths_of(max(1, self.loader.num_workers))
        size = self.loader.batch_size
        if size is None:
            return sum(lengths)
        return sum(length // size if self.loader.drop_last else -(-length // size) for length in lengths)

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return self._passes.epoch

    @property
    def skipped(self) -> int:
        """The number of damaged samples that were skipped, in all workers, for a data set that counts them."""
        return int(getattr(self.dataset, "skipped", 0))

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch, as plain data."""
        return self._passes.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from a list of those of all ranks."""
        self._passes.load_state_dict(state_dict)
