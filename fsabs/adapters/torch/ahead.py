"""ReadAheadDataset: the base of the map-style data sets, which reads the batches ahead that a process will get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset, get_worker_info

from ...core import process
from .sampler import AnnouncedBatch, EpochBatches

if TYPE_CHECKING:
    from .sampler import Numbers

_CERTAIN = (
    4  # indices that follow one another, so that they are taken for a batch of a sampler in order at any position
)


class ReadAheadDataset(Dataset[Any]):
    """A map-style data set whose batches are read ahead of their use, where it is known which ones come.

    They are known from the first batch of an epoch on where that comes from a `Loader` or `PlannedBatches`, and where
    indices come in order. A subclass implements `_total`, `_fetch` and `_prefetch`.
    """

    def __init__(self, max_bytes: int, predicts: bool) -> None:
        """`predicts`: whether batches in order are read ahead; `max_bytes` of them are, at most."""
        self._max_bytes = max_bytes
        self._predicts = predicts
        self._ahead: _Ahead | None = None

    def _total(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        """Read the contents of samples."""
        raise NotImplementedError

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[Any] | None:
        """Begin to read the contents of `own`, this process's indices, ahead; None where that gains nothing."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._total()

    def read_batch(self, indices: Sequence[int]) -> list[Any]:
        """Return the contents of a batch, which may have been read ahead."""
        if isinstance(indices, AnnouncedBatch):
            self._begin(indices.batches)
        elif self._predicts and not (self._ahead is not None and self._ahead.is_next(indices)):
            self._begin(_in_order(list(indices), self._total()))
        try:
            contents = None if self._ahead is None else self._ahead.batch(indices)
        except BaseException:
            self._leave()  # nothing comes behind an error: the next batch is read when it is asked for
            raise
        if contents is None:
            self._leave()  # the batches are not the ones that were announced
            contents = self._fetch(indices)
        return contents

    def _begin(self, batches: EpochBatches | None) -> None:
        self._leave()
        if batches is None:
            return
        own = batches.own()
        contents = self._prefetch(batches, own)
        if contents is not None:
            self._ahead = _Ahead(contents, own)

    def _leave(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.contents.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}


def _in_order(batch: list[int], total: int) -> EpochBatches | None:
    """Return the batches from this one on, if its indices follow one another as those of a sampler in order do."""
    import numpy as np

    info = get_worker_info()
    worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
    if not batch or batch != list(range(batch[0], batch[0] + len(batch))) or not 0 <= batch[0] < total:
        return None
    if batch[0] != worker * len(batch) and len(batch) < _CERTAIN:
        return None
    return EpochBatches(np.arange(batch[0], total), len(batch), workers)


class _Ahead:
    """The contents of a process's coming batches, being read."""

    def __init__(self, contents: process.Resumable[Any], coming: Numbers) -> None:
        self.contents = contents
        self._coming = coming
        self._at = 0

    def is_next(self, indices: Sequence[int]) -> bool:
        """Return whether `indices` are the next batch."""
        coming: list[int] = self._coming[self._at : self._at + len(indices)].tolist()
        return coming == list(indices)

    def batch(self, indices: Sequence[int]) -> list[Any] | None:
        """Return the contents of the next batch; None if `indices` are not it."""
        if not self.is_next(indices):
            return None
        self._at += len(indices)
        return self.contents.take(len(indices))
