"""EpochWindows: the windows of token files at positions of an epoch, read many together, and ahead of their use."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from ...readers.ahead import Ahead, SharedThreads, in_lists
from ...readers.data.order import Epoch, Interval
from ...readers.data.tokens import TokenDataReader, samples_of, widened
from .counted import Counted, Weighted, weight

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_LEAST, _MOST = 64, 4096  # windows that are read together


class EpochWindows:
    """The windows of a reader's shards, by their positions in an epoch.

    `max_bytes` of them are read ahead by a thread; None reads them when they are asked for. With `batch_size`, batches
    of so many windows (an array with a row for each, or a dict of such arrays), the last one of a pass fewer.
    """

    def __init__(
        self, reader: TokenDataReader, names: list[str], max_bytes: int | None, batch_size: int | None
    ) -> None:
        self._reader = reader
        self._names = names
        self._max_bytes = max_bytes
        self._batch_size = batch_size

    def read(
        self, order: Epoch, intervals: list[Interval], start: int, threads: SharedThreads | None = None
    ) -> Iterator[Any]:
        """Yield the windows at the positions of `intervals`, from number `start` on."""
        if self._max_bytes is None:
            return self._samples(item for group in self._items(order, intervals, start, 0) for item in group)
        most, shared = (self._max_bytes, None) if threads is None else (threads.most, threads.threads)
        items = functools.partial(self._items, order, intervals, start, most)
        return self._samples(in_lists(Ahead(items, max(1, most // 2), weight, shared=shared)))

    def _samples(self, items: Generator[Any, None, None]) -> Iterator[Any]:
        with contextlib.closing(items):
            for item in items:
                sample = widened(item)
                yield sample if self._batch_size is None else Counted(_rows(sample), 0, sample)

    def _items(self, order: Epoch, intervals: list[Interval], start: int, most: int) -> Iterator[Weighted]:
        """Yield windows or batches, as they are in the files, in lists that are read together."""
        size = self._batch_size or 1
        together = max(size, min(_MOST, most // 8 // (8 * self._reader.length)))
        located = (order.locate(*piece) for piece in order.pieces(intervals, start))
        for shards, windows in _regrouped(located, _LEAST, together, size):
            found = self._reader.take(self._names, shards, windows)
            items = samples_of(found) if self._batch_size is None else _batches(found, size)
            yield Weighted(items, _nbytes(found))


def _regrouped(
    located: Iterator[tuple[Numbers, Numbers]], least: int, most: int, size: int
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the same numbers of shards and windows, a multiple of `size` at once; the rest last.

    At first these are `least` or more, then twice as many each time, up to `most` or more: what was located together,
    as a shuffled buffer, is nearly all read together.
    """
    import numpy as np

    waiting: list[tuple[Numbers, Numbers]] = []
    count = 0
    for one in located:
        waiting.append(one)
        count += len(one[0])
        if count >= least and (whole := count // size * size):
            shards, windows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            yield shards[:whole], windows[:whole]
            waiting = [(shards[whole:], windows[whole:])]
            count -= whole
            least = min(2 * least, max(least, most))
    if count:
        shards, windows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        yield shards, windows


def _batches(found: Any, size: int) -> Iterator[Any]:
    for at in range(0, _rows(found), size):
        rows = slice(at, at + size)
        yield {key: values[rows] for key, values in found.items()} if isinstance(found, dict) else found[rows]


def _rows(batch: Any) -> int:
    return len(batch["tokens"] if isinstance(batch, dict) else batch)


def _nbytes(found: Any) -> int:
    return sum(values.nbytes for values in found.values()) if isinstance(found, dict) else int(found.nbytes)
