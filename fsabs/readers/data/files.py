"""The base of readers whose shards are files, and what is kept of files."""

from __future__ import annotations

import abc
import builtins
import errno
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ...core import errors, process
from ...core.blobs import Blob
from ...core.fs import FS, FileStat
from ...core.threads import in_threads
from ...disk import indexes
from ..locate import Files as Files
from ..locate import Location as Location
from ..locate import expanded
from ..locate import visible as visible
from .base import LOST, AbstractDataReader, Task, numbers_of, shard_name_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("fsabs.readers")
_REPORT_EVERY = 5.0
"""Seconds between two lines of the log, where many files are indexed."""


class Closable(Protocol):
    """A shard that is open."""

    def close(self) -> None:
        """Free what the shard holds."""


S = TypeVar("S", bound=Closable)
Index = TypeVar("Index")


class FileShardsReader(AbstractDataReader, Generic[S, Index]):
    """The base of data readers whose shards are files, some of which are kept open; each process opens its own.

    A file's index is made once, when the files are listed or in a process that has not listed them when it is needed.

    A subclass implements `create_shards`, `_index_of`, `_open_shard`, and `read_at` or `read_available`.
    """

    open_at_once: ClassVar[int] = 16

    def __init__(self, location: Location, *, suffixes: Sequence[str] = ()) -> None:
        super().__init__()
        self._files = Files(location, suffixes=suffixes)
        self._stats: dict[str, FileStat] = {}  # by the names of the files
        self._indexes: dict[str, Index] = {}
        self._shards_open: OrderedDict[str, S] = OrderedDict()
        self._lock = process.Lock()

    @abc.abstractmethod
    def _index_of(self, name: str) -> Index:
        """Return what is known of a file once it was looked through; several threads may ask at once."""

    @abc.abstractmethod
    def _open_shard(self, shard_name: str) -> S:
        """Open a shard; two threads may do so at once."""

    def _list(self, wanted: Callable[[FileStat], bool], what: str) -> builtins.list[FileStat]:
        """List the files that are read, and return all that are there; `FileNotFoundError` if there is no `what`."""
        stats = self._files.list()
        self._stats = {self._files.name(stat.filename): stat for stat in stats if wanted(stat)}
        if not self._stats:
            raise errors.error(errno.ENOENT, "list", self._files.fs.url(), f"there is no {what}")
        return stats

    def _index_all(self) -> dict[str, Index]:
        """Return the indexes of the files that were listed, made for as many at once as the store likes."""
        names = list(self._stats)
        found = in_threads(self._index_of, names, min(self._files.fs.default_concurrency, len(names)))
        self._indexes = dict(zip(names, with_progress(found, len(names), self._files.fs.url()), strict=True))
        return self._indexes

    def _index(self, name: str) -> Index:
        """Return the index of a file."""
        found = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = self._index_of(name)
        return found

    def _stat(self, name: str) -> FileStat:
        """Return the stat of a file: as it was listed, if it was."""
        found = self._stats.get(name)
        if found is None:
            path = self._files.path(name)
            found = self._stats[name] = self._files.fs.stat(path)._replace(filename=path)
        return found

    def _open_listed(self, name: str) -> Blob:
        """Open a file as it was listed; `StaleFileError` if it has changed."""
        stat = self._stat(name)
        blob = self._files.fs.open_blob(stat.filename, stat)
        if (blob.size, blob.version) != (stat.size, stat.version or blob.version):
            blob.close()
            raise errors.stale(blob.url, "the file changed since it was listed", "read_records")
        return blob

    def _is_called(self, *suffixes: str) -> Callable[[FileStat], bool]:
        """Return what decides whether a file is read: it is called as the format's are, or was chosen by the user."""
        return lambda stat: self._files.is_chosen or stat.filename.lower().endswith(suffixes)

    def _shard(self, shard_name: str) -> S:
        """Return an open shard, which is not to be closed."""
        with self._lock:
            shard = self._shards_open.get(shard_name)
            if shard is not None:
                self._shards_open.move_to_end(shard_name)
                return shard
        shard = self._open_shard(shard_name)
        with self._lock:
            self._shards_open[shard_name] = shard
            if len(self._shards_open) > self.open_at_once:
                self._shards_open.popitem(last=False)  # not closed: a thread may be reading it
        return shard

    def _open_shards(self) -> builtins.list[S]:
        """Return the shards that are open, the one used last at the end."""
        with self._lock:
            return list(self._shards_open.values())

    def read_records(self, task: Task) -> Iterator[Any]:
        """The records of a task."""
        return self.read_at(shard_name_of(task), numbers_of(task))

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The records with these numbers, in the order given."""
        return (record for record in self.read_available(shard_name, numbers) if record is not LOST)

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Hand the files of these shards, in order, to a cache below."""
        self._files.set_order(map(self._files.path, shard_names))

    @property
    def reads_ahead(self) -> bool:
        """True unless the files are on a local disk."""
        return self._files.reads_ahead

    def close(self) -> None:
        """Close the shards that are open in this process."""
        with self._lock:
            shards, self._shards_open = list(self._shards_open.values()), OrderedDict()
        for shard in shards:
            shard.close()
        self._files.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards_open": OrderedDict()}


def with_progress(indexes: Iterable[Index], total: int, where: str) -> Iterator[Index]:
    """Yield what is found of `total` files, and log now and then how many there are."""
    reported = time.monotonic()
    for done, index in enumerate(indexes, 1):
        yield index
        if time.monotonic() - reported > _REPORT_EVERY:
            reported = time.monotonic()
            _log.info("%s: %d of %d files are indexed", where, done, total)


def derived(kind: str, blob: Blob, parts: Callable[[], Iterable[Buffer]]) -> memoryview:
    """Return what `parts` makes of a file, kept for its version: one copy, mapped by all processes of the user.

    `parts` may be called twice where it can't be kept.
    """
    identity = None if blob.url.startswith("memory:") else blob.identity
    keeps = blob.has_strong_version  # asked before anything is read
    found = indexes.load(kind, identity)
    if found is None and keeps and indexes.save(kind, identity, parts()):
        found = indexes.load(kind, identity)
    return memoryview(b"".join(parts())) if found is None else found


def is_called(location: Location, suffixes: tuple[str, ...]) -> bool:
    """Return whether a location is of files, or of patterns of files, with one of these endings."""
    return not isinstance(location, FS) and all(text.lower().endswith(suffixes) for text in expanded(location))
