"""PlannedBatches: a batch sampler that announces to each worker the batches that it will get."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import Sampler

from .sampler import EpochSampler

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


class EpochBatches(NamedTuple):
    """The batches of an epoch that a loader hands out in turns to `workers` workers."""

    order: Numbers
    """The indices of all batches, from the present batch of this worker on."""
    size: int
    workers: int
    following: Callable[[], Numbers] | None = None
    """Returns the order of the next epoch, where it is known."""

    def own(self) -> Numbers:
        """Return the indices of the batches that this worker gets."""
        import numpy as np

        if self.workers == 1:
            return self.order
        turn = self.size * self.workers
        whole = len(self.order) // turn * turn
        rest: Numbers = self.order[whole : whole + self.size]
        return np.concatenate((self.order[:whole].reshape(-1, turn)[:, : self.size].reshape(-1), rest))

    def all(self) -> Iterator[int]:
        """Yield the indices of all workers, then those of the next epoch."""
        yield from self.order.tolist()
        if self.following is not None:
            yield from self.following().tolist()


class AnnouncedBatch(list[int]):
    """The first batch of a worker, with all batches that the loader hands out in the epoch."""

    def __init__(self, indices: Iterable[int], batches: EpochBatches) -> None:
        super().__init__(indices)
        self.batches = batches

    def __reduce__(self) -> tuple[Any, ...]:
        return AnnouncedBatch, (list(self), self.batches)


def announced(
    order: Numbers, size: int, workers: int, following: Callable[[], Numbers] | None = None
) -> Iterator[list[int]]:
    """Yield the batches of an order, of which the first one of each worker announces those that follow."""
    for number, start in enumerate(range(0, len(order), size)):
        batch = order[start : start + size].tolist()
        if number < workers:  # the loader gives every batch to the next worker in turn
            yield AnnouncedBatch(batch, EpochBatches(order[start:], size, workers, following))
        else:
            yield batch


class PlannedBatches(Sampler[list[int]]):
    """Batches of a sampler's indices, as torch's `BatchSampler` makes them, which announce the epoch to each worker.

    Give it to the `DataLoader` as `batch_sampler`, with the loader's own `num_workers`. A data set of this package then
    reads ahead; for any other, the batches are lists. Set the epoch on the sampler, as always. With an `EpochSampler`,
    torchdata's `StatefulDataLoader` resumes exactly.
    """

    def __init__(
        self, sampler: Iterable[int], batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._workers = max(1, num_workers)

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.sampler, EpochSampler):
            return _StatefulBatches(self, self.sampler)
        return self.of(iter(self.sampler))

    def of(self, indices: Iterable[int]) -> Iterator[list[int]]:
        """Yield the batches of these indices."""
        import numpy as np

        order = np.frombuffer(array("q", indices), np.int64)
        size = self.batch_size
        if self.drop_last:
            order = order[: len(order) // size * size]
        following = self.sampler.following() if isinstance(self.sampler, EpochSampler) else None
        return announced(order, size, self._workers, following)

    def __len__(self) -> int:
        total = len(self.sampler)  # type: ignore[arg-type]  # as torch's: a sampler with no length has none
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)


class _StatefulBatches(Iterator[list[int]]):
    """The batches of one epoch of an `EpochSampler`; torchdata asks for the state behind each one that it sends out.

    The pass begins with the first batch: torchdata makes iterators that it drops.
    """

    def __init__(self, batches: PlannedBatches, sampler: EpochSampler) -> None:
        self._batches = batches
        self._sampler = sampler
        self._coming: Iterator[list[int]] | None = None
        self._serial = -1
        self._taken = 0

    def _begin(self, indices: Iterator[int]) -> Iterator[list[int]]:
        self._coming = self._batches.of(indices)
        self._serial = self._sampler.serial
        self._taken = 0
        return self._coming

    def __next__(self) -> list[int]:
        batch = next(self._coming or self._begin(iter(self._sampler)))
        self._taken += len(batch)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return what the epoch has left behind the batches that were given."""
        if self._coming is None:
            self._begin(iter(self._sampler))
        return self._sampler.state_behind(self._taken, self._serial)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make this pass what the state left, which may be nothing."""
        self._begin(self._sampler.rest_of(state_dict))
