"""The order of a plain `DataLoader`'s sampler, as far as a map-style data set can predict it.

torch hands a data set one batch of indices at a time and says nothing of the others. But `RandomSampler` asks for the
data set's length just before it draws its seed from torch's default generator: so the main process records, at each
`len()`, the seed that would be drawn next, and the process that gets the first batch of an epoch tries the last of
these. A prediction counts only if that batch is in it, so that a wrong one costs no correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.data import get_worker_info

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_SEEDS = 8  # the last ones that are kept: `len(loader)` records others before the first batch arrives
_CERTAIN = 4  # indices that follow one another in an order, so that it is taken for the sampler's at any position
_LONGEST_WAIT = 1024  # batches


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


class Chosen(Iterable[str]):
    """The paths that all workers read, in order; made when it is iterated, since only a cache wants them."""

    def __init__(self, paths: Sequence[str], batches: EpochBatches) -> None:
        self._paths, self._batches = paths, batches

    def __iter__(self) -> Iterator[str]:
        return (self._paths[index] for index in self._batches.all())


class SamplerSeeds:
    """The seeds that `RandomSampler` may have drawn, recorded by the main process and shared with its workers."""

    def __init__(self) -> None:
        self._words = torch.zeros(1 + _SEEDS, dtype=torch.int64, device="cpu").share_memory_()  # type: ignore[no-untyped-call]
        self._failed = 0  # predictions in a row
        self._wait = 0  # batches until the next one

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._words.share_memory_()

    def record(self) -> None:
        """Record the seed that would be drawn now, in the main process."""
        if get_worker_info() is not None:
            return
        generator = torch.Generator(device="cpu")
        generator.set_state(torch.get_rng_state())  # a copy: the default one is not advanced
        seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item())
        count = int(self._words[0])
        if not count or int(self._words[1 + (count - 1) % _SEEDS]) != seed:
            self._words[1 + count % _SEEDS] = seed
            self._words[0] = count + 1

    def predict(self, batch: Sequence[int], total: int) -> EpochBatches | None:
        """Return the batches of the epoch from `batch` on; None if its indices are in no order that is known."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        batch = list(batch)
        if not batch or not all(0 <= index < total for index in batch):
            return None
        for order in self._orders(batch, total):
            at = _position(order, batch, worker * len(batch))
            if at is not None:
                self._failed = self._wait = 0
                return EpochBatches(order[at:], len(batch), workers)
        return None

    def _orders(self, batch: list[int], total: int) -> Iterator[Numbers]:
        if batch == list(range(batch[0], batch[0] + len(batch))):
            yield torch.arange(total, device="cpu").numpy()
        if self._wait:
            self._wait -= 1
            return
        count, *seeds = self._words.tolist()
        generator = torch.Generator(device="cpu")
        recorded = list(range(count - 1, max(-1, count - 1 - _SEEDS), -1))
        # `RandomSampler` asks for the length once more after its draw: the seed before the last one is tried first.
        for number in recorded[1:2] + recorded[:1] + recorded[2:]:
            generator.manual_seed(seeds[number % _SEEDS])
            yield torch.randperm(total, generator=generator, device="cpu").numpy()
        self._failed += 1
        self._wait = min(2**self._failed, _LONGEST_WAIT)  # a permutation takes time, and the sampler may be another


def _position(order: Numbers, batch: list[int], expected: int) -> int | None:
    """Return the position of a batch in an order: where it is expected, or anywhere if it is long enough to be sure."""
    if order[expected : expected + len(batch)].tolist() == batch:
        return expected
    if len(batch) < _CERTAIN:
        return None
    at = int((order == batch[0]).argmax())
    return at if order[at : at + len(batch)].tolist() == batch else None
