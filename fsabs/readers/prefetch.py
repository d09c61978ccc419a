"""Reading ahead in an order that is known: in batches, within a bound on bytes.

`prefetch` is for a data set that knows its sampler's order; `read_ahead` is the same for anything that is read in
batches. The thread behind both (`ahead`) is made where it is first needed, in each process anew. An FS that can use the
order itself (a cache) receives it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..backends.local import Local
from ..backends.memory import Memory
from ..containers.base import Container
from ..core import process
from ..core.errors import CorruptFileError
from ..core.fs import FS, Path
from ..disk import mounts
from .ahead import Ahead, in_lists

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
_CHUNK = 64  # items that a thread hands over at once: each time costs as much as reading some small ones
_CHUNKS = 8  # of a batch, at least: one of them waits beyond the bound, and another one is the consumer's
LARGEST_BATCH = 512  # files of one read_many: enough to keep a store busy, few enough to adapt to their sizes


@runtime_checkable
class TakesOrder(Protocol):
    """An FS that can use the order of coming reads: a cache that evicts what is needed last."""

    def set_order(self, paths: Sequence[Path]) -> None:
        """Receive the files that are read next, in order."""


def hand_over(fs: FS, order: Iterable[Path]) -> None:
    """Set the order of the outermost layer of `fs` that takes one; `order` is not iterated if there is none."""
    layer: Any = fs
    while layer is not None:
        if isinstance(layer, TakesOrder):
            # Absolute, since a layer below has another cwd where this is a subfs; the keys are the same.
            layer.set_order(["/" + fs._key(path, "set_order") for path in order])
            return
        layer = getattr(layer, "inner", None)


def is_immediate(fs: FS) -> bool:
    """Return whether reading from `fs` waits for no other machine, so that reading ahead gains nothing.

    True for a local disk and for memory, and for containers on them; False for all else, layers included.
    """
    while isinstance(fs, Container):
        fs = fs.parent
    if isinstance(fs, Local):
        return not mounts.is_network(mounts.filesystem_of(f"/{fs._root}"))
    return isinstance(fs, Memory)


def prefetch(fs: FS, order: Sequence[Path], *, max_bytes: int = MAX_BYTES) -> process.Resumable[bytes]:
    """The contents of the files `order`, in order, read ahead of the consumer by batches (`read_many`).

    About `max_bytes` bytes are held at most, going by the largest file seen so far; one file is always read, however
    large. The iterator continues in a forked child and after pickling, reading ahead there by itself; `close()` ends it
    early. An error of a file is raised where its content would have come.
    """
    order = list(order)
    return read_ahead(fs.read_many, order, len, max_bytes=max_bytes, begin=functools.partial(hand_over, fs))


def _no_preparation(wanted: Any) -> None:
    """Do nothing."""


def read_ahead(
    read: Callable[[Any], Iterable[T]],
    wanted: Any,
    weigh: Callable[[T], int],
    *,
    max_bytes: int,
    begin: Callable[[Any], object] = _no_preparation,
    largest_batch: int = LARGEST_BATCH,
) -> process.Resumable[T]:
    """Return an iterator of what `read` gives for batches of `wanted`, one item for each, read ahead by a thread.

    `wanted` may be a list, or an array of numbers. `weigh(item)` is an item's size in bytes. `begin` is called with the
    rest of `wanted` in each process that begins.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
    # One half of the bound is for what waits, the other for the batch that is under way.
    half = max(1, max_bytes // 2)
    return process.Resumable(functools.partial(_from_there, read, wanted, weigh, half, begin, largest_batch))


def _from_there(
    read: Callable[[Any], Iterable[T]],
    wanted: Any,
    weigh: Callable[[T], int],
    max_bytes: int,
    begin: Callable[[Any], object],
    largest_batch: int,
    start: int,
) -> Iterator[T]:
    coming = wanted[start:] if start else wanted
    begin(coming)
    chunks = functools.partial(_in_batches, read, coming, weigh, max_bytes, largest_batch)
    return in_lists(Ahead(chunks, max_bytes, lambda chunk: sum(map(weigh, chunk))))


def _in_batches(
    read: Callable[[Any], Iterable[T]],
    wanted: Any,
    weigh: Callable[[T], int],
    max_bytes: int,
    largest_batch: int,
) -> Iterator[list[T]]:
    """Yield the items in lists: those of a list many at once, others one by one as they come."""
    at, largest, batch = 0, 1, 4
    while at < len(wanted):
        asked, given = min(batch, len(wanted) - at), 0
        try:
            items = read(wanted[at : at + asked])
        except CorruptFileError:
            if asked == 1:
                raise
            batch = asked // 2  # the error comes after the items before it
            continue
        for chunk in _chunks(items, max_bytes // largest // _CHUNKS):
            largest = max(largest, *map(weigh, chunk))
            given += len(chunk)
            yield chunk
        if given != asked:
            raise RuntimeError(f"{given} items were read, and not {asked}")
        at += asked
        batch = max(1, min(max_bytes // largest, 4 * batch, largest_batch))


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    if not isinstance(items, list):  # they come one by one
        return ([item] for item in items)
    size = max(1, min(_CHUNK, size))
    return (items[at : at + size] for at in range(0, len(items), size))
