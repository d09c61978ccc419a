"""The FS inside a cache: its properties, which decide how the cache reads and checks it, and opening its files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from ..backends.local import Local
from ..containers.base import Container
from ..core.blobs import Blob
from ..core.fs import FS
from ..core.layers import LayerFS


def backend_of(fs: FS) -> FS:
    """Return what is undermost, below layers and containers."""
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs._parent
    return fs


def is_far(fs: FS) -> bool:
    """Return if its files, or the containers that they are in, take requests to a server."""
    if isinstance(fs, LayerFS | Container) and not fs.capabilities.stat_is_request:
        return is_far(fs.inner if isinstance(fs, LayerFS) else fs._parent)
    return fs.capabilities.stat_is_request


def local_folder(fs: FS) -> str | None:
    """Return the folder of local files that it has; None for any other FS, and for a container."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return f"/{fs._root}" if isinstance(fs, Local) else None


class FileOpener:
    """Opens a file in its store: the first time it returns what is open already, if something is."""

    def __init__(self, open_inner: Callable[[str], Blob], opened: Blob | None) -> None:
        self._open_inner = open_inner
        self._opened = opened

    def __call__(self, key: str) -> Blob:
        """Return a blob for the caller to close."""
        opened, self._opened = self._opened, None
        return opened if opened is not None else self._open_inner(key)


READ_AHEAD = 4
"""Files are admitted that follow one that is read, within the part of the store's `max_gap_bytes` that this is: so an
epoch of small files does not read gaps again of which it has the files already."""


def with_neighbours(fs: FS, wanted: Sequence[str], admits: Callable[[str], bool]) -> Sequence[str]:
    """Return the keys `wanted`, each once, in the order in which the files are stored, with neighbours to be admitted.

    Neighbours that `admits` lie in gaps that a request for the others reads over, or close behind one of them.
    """
    order = fs._storage_order()
    if order is None:
        return wanted
    following = [(next(files, None), files) for files in map(order.following, wanted)]
    placed = sorted(((first, files) for first, files in following if first is not None), key=itemgetter(0))
    found: list[str] = []
    for at, ((offset, size, key), files) in enumerate(placed):
        found.append(key)
        ahead = offset + size + order.max_gap_bytes // READ_AHEAD
        gap_stop = placed[at + 1][0][0] if at + 1 < len(placed) else ahead + order.max_gap_bytes + 1
        if gap_stop - ahead <= order.max_gap_bytes:
            found += filter(admits, _before(gap_stop, files))
        else:
            found += itertools.takewhile(admits, _before(ahead, files))
    return found + [key for key, (first, _) in zip(wanted, following, strict=True) if first is None]


def _before(stop: int, files: Iterator[tuple[int, int, str]]) -> Iterator[str]:
    """Yield the keys of the files that end before the offset `stop`."""
    for offset, size, key in files:
        if offset >= stop:
            return
        if offset + size <= stop:
            yield key
