"""Items in a file: `FileCache`, `MultiprocessFileCache` with PFIO's arguments, and `ReadOnlyFileCache`, of a file that
was preserved.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from ...core import errors, hooks
from ...disk.descriptors import open_ours
from ...disk.folders import Folder, cache_directory
from ..frames import checksum
from ..single_flight import MISSING, TIMEOUT, SingleFlight, no_claims
from .base import NAME, ItemCache
from .codecs import Bytes, Codec, View
from .table import (
    BYTES,
    EMPTY,
    NUMBER_FACTOR,
    RAW,
    SLOT,
    SLOT_SIZE,
    SLOTS_START,
    ItemTable,
    PutOutcome,
    check_of,
    salt_of,
)
from .table import fingerprint as fingerprint_of

LARGE = 32 * 1024
"""Bytes from which on the place of a value is checked before it is read."""
NONE, CODED = 2, 3
"""Kinds: None, and what a codec has to decode; RAW is what is given as it is."""

_log = logging.getLogger("fsabs.cache")
_item = SLOT.unpack_from
_bytes = BYTES.unpack_from
_SALT = salt_of(0, RAW)
_pread = os.pread


def default_directory() -> str:
    """Return the default folder of item caches: `items` in the cache directory, else one of this user's alone in the
    system's folder for temporary files; `PermissionError` if it is another one's.
    """
    directory = cache_directory()
    if directory is not None:
        return str(directory / "items")
    private = os.path.join(tempfile.gettempdir(), f"fsabs-{os.geteuid()}")
    Folder(private, create=True, private=True).close()
    return private


class StoredItems(ItemCache):
    """The base class of file caches, which have a table, except before a preload and after `close()`."""

    _table: ItemTable | None = None
    _slots: memoryview | None = None
    _view: memoryview | None = None

    def __init__(
        self,
        length: int,
        do_pickle: bool,
        codec: str | Codec | None,
        cache_size_limit: int | None,
        dir: str | os.PathLike[str] | None,
        fingerprint: str | bytes,
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit)
        self.dir: str = os.path.abspath(os.fspath(dir)) if dir is not None else default_directory()
        self._fingerprint = fingerprint
        self._full = self._warned = False
        self._nothing()

    def _attach(self, table: ItemTable) -> None:
        """Take a table into use."""
        view = isinstance(self.codec, View)
        # What `get` looks up by itself: bytes, and views that were checked. The rest is `_look`'s.
        self._fd = table.fd
        self._read_at = table.read_at
        self._slots = table.slots() if isinstance(self.codec, Bytes) and not view else None
        self._views = table.header.length if view and not table.writable else 0
        self._fetches = SingleFlight(table.claims, TIMEOUT)
        self._view = memoryview(table.map) if not table.writable and table.map is not None else None
        self._right = bytearray(table.header.length if self._view is not None else 0)  # items whose check was right
        before, self._table = self._table, table
        if before is not None:
            before.close()

    @property
    def multiprocess_safe(self) -> bool:
        """Always: forked and spawned processes share the items."""
        return True

    @property
    def frozen(self) -> bool:
        """True if no items can be added: the cache is preserved or preloaded, or its limit was reached."""
        table = self._table
        return self._full or (table is not None and table.sealed)

    # Reading

    def get(self, i: int, default: Any = None) -> Any:
        """The item `i`, or `default` where it isn't there; None can be an item. After `close()`, `default`.

        Plain bytes come back as `bytes`, None as None, all else as the codec gives it. An item whose bytes do not
        have their checksum is not there.
        """
        try:
            if type(i) is int and i >= 0:  # a number of NumPy's may overflow below
                if self._slots is not None:
                    offset, length, check = _bytes(self._slots, i * SLOT_SIZE)
                    data = _pread(self._fd, length, offset) if length < LARGE else self._read_at(length, offset)
                    if (
                        checksum(data) ^ length ^ (_SALT ^ i * NUMBER_FACTOR & 0xFFFFFFFF) == check
                    ):  # false for what is not there, and other kinds
                        self._hits += 1
                        if (instrument := hooks.active) is not None:
                            instrument.record_event("hit", NAME, length)
                        return data
                elif i < self._views and self._right[i]:
                    view: Any = self._view
                    offset, length, _, kind = _item(view, SLOTS_START + i * SLOT_SIZE)
                    if kind == RAW:
                        self._hits += 1
                        if (instrument := hooks.active) is not None:
                            instrument.record_event("hit", NAME, length)
                        return view[offset : offset + length]
        except (TypeError, IndexError, OverflowError, OSError, struct.error):
            pass  # out of range, a closed cache, a disk that fails: all that is not usual is looked at below
        return super().get(i, default)

    def _look(self, i: int) -> Any:
        number, table = self._check(i), self._table
        if table is None or table.closed:
            return MISSING
        if self._view is not None:
            return self._look_frozen(table, number)
        damaged = table.damaged
        try:
            found = table.read(number)
        except OSError as exc:
            self._warn(f"the cache {table.path} cannot be read: {exc}")
            return MISSING
        if table.damaged != damaged:
            self._warn(f"the cache {table.path} has an item that does not have its checksum: {i!r} is not there")
        return MISSING if found is None else self._decoded(*found)

    def _look_frozen(self, table: ItemTable, number: int) -> Any:
        """From the mapping of a file that does not change: nothing is copied, and each item is checked once."""
        view = self._view
        assert view is not None
        offset, length, check, kind = _item(view, SLOTS_START + number * SLOT_SIZE)
        if kind == EMPTY:
            return MISSING
        data = view[offset : offset + length]
        if not self._right[number]:
            if len(data) != length or check_of(bytes(data), kind, number) != check:
                table.damaged += 1
                self._warn(f"the cache {table.path} has an item that does not have its checksum: {number}")
                return MISSING
            self._right[number] = 1
        return self._decoded(kind, data)

    def _decoded(self, kind: int, data: bytes | memoryview) -> Any:
        if kind == NONE:
            return None
        if kind == CODED and isinstance(self.codec, Bytes):
            raise TypeError("the item was stored by another codec")
        return self.codec.decode(data)

    def _warn(self, message: str) -> None:
        """Once for each cache: it goes on, slower."""
        if not self._warned:
            self._warned = True
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    # Preserving

    def _preload(self, name: str) -> None:
        path = os.path.join(self.dir, name)
        try:
            table = ItemTable.preserved(path)
        except errors.CorruptFileError:
            entries = _pfio_entries(path, self.length)
            if entries is None:
                raise
            self._copy_of_pfio(path, entries)
            return
        try:
            self._fits(table)
        except ValueError:
            table.close()
            raise
        self._attach(table)

    def _copy_of_pfio(self, path: str, entries: list[tuple[int, int]]) -> None:
        """Take the items of a file that PFIO preserved, in a file of one's own that goes with the cache."""
        kind = RAW if isinstance(self.codec, Bytes) else CODED
        table = ItemTable.temporary(self.dir, length=self.length, contents=self.codec.name)
        for number, data in _pfio_items(path, entries):
            if table.put(number, data, kind) is not PutOutcome.STORED:
                table.close()
                raise errors.error(errno.ENOSPC, "preload", path, "no room for a copy of PFIO's cache")
        self._attach(table)
        self._full = True

    def _fits(self, table: ItemTable) -> None:
        found, contents = table.header, self.codec.name.encode()
        if found.length != self.length:
            raise ValueError(f"{table.path} is a cache of length {found.length}, and this one has {self.length}")
        if found.contents != contents:
            was = found.contents.decode(errors="replace")
            raise ValueError(f"{table.path} was written with codec {was!r}, and this cache has {self.codec.name!r}")
        if self._fingerprint and found.fingerprint != fingerprint_of(self._fingerprint):
            raise ValueError(f"{table.path} was made from another source: its fingerprint is not the one given")

    # Process

    def close(self) -> None:
        """Leave the cache; its file goes with the process that made it, unless it was preserved. Twice is once."""
        table, self._table = self._table, None
        self._nothing()
        if table is not None:
            table.close()

    def _nothing(self) -> None:
        """Set the fields of a cache without a table."""
        self._slots = None
        self._views = 0
        self._view = None
        self._right = bytearray()

    def stats(self) -> dict[str, int]:
        """As `ItemCache.stats`, and `disk_bytes` and `damaged`: items found to be wrong, by this object."""
        table = self._table
        none = {"entries": 0, "bytes": 0, "disk_bytes": 0, "damaged": 0}
        return {**super().stats(), **(none if table is None else table.usage())}

    def __getstate__(self) -> dict[str, Any]:
        made_anew = ("_fd", "_read_at", "_slots", "_views", "_fetches", "_view", "_right")
        return {name: value for name, value in self.__dict__.items() if name not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        table = state.pop("_table", None)
        self.__dict__.update(state, _fetches=SingleFlight(no_claims))
        self._nothing()
        self._hits = self._misses = self._puts = 0
        if table is not None:
            self._attach(table)

    def __repr__(self) -> str:
        table = self._table
        return f"{type(self).__name__}({self.length}, {table.path if table is not None else 'closed'!r})"


class FileCache(StoredItems):
    """Items in one file, for all threads and all processes that have the cache: forked, or spawned with it pickled.

    Its file is removed when the process that made it closes it (or its object goes); those that have it open go on.
    What killed processes leave is removed when the next cache is made in the folder. To keep it, see `preserve`.

    Args:
        length: how many items there can be; each takes 32 bytes of disk at once.
        multithread_safe: PFIO's; it is in any case.
        do_pickle: items are any objects, and are pickled: `codec="pickle"`.
        dir: the folder, made if it isn't there; by default `default_directory()`. Not on NFS.
        cache_size_limit: bytes that the items may take together. Once an item was refused for it, the cache is
            `frozen` and takes no more. None or 0 is no limit.
        verbose: log, as `fsabs.cache`, where the file is, and why a preload or preserve did nothing.
        trace: PFIO's; an instrument (see `fsabs.hooks`) sees every cache.
        codec: what items are: `"bytes"` (the default), `"memoryview"` (bytes again, without a copy where the cache is
            frozen), `"numpy"` (arrays, without pickle, read-only), `"pickle"`, or an object with `name`, `encode` and
            `decode`.
        fingerprint: what the items are derived from, a URL and version say. It is preserved with the cache, and a
            preload of a cache with another one is a `ValueError`.

    A full disk, like a limit that is reached, makes `put` return False; there is one `RuntimeWarning`.
    """

    def __init__(
        self,
        length: int,
        multithread_safe: bool = False,
        do_pickle: bool = False,
        dir: str | os.PathLike[str] | None = None,
        cache_size_limit: int | None = None,
        verbose: bool = False,
        trace: bool = False,
        *,
        codec: str | Codec | None = None,
        fingerprint: str | bytes = b"",
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit, dir, fingerprint)
        self.verbose = verbose
        table = ItemTable.temporary(
            self.dir,
            length=self.length,
            align=getattr(self.codec, "align", 1),
            contents=self.codec.name,
            fingerprint=fingerprint_of(fingerprint),
            limit=self.cache_size_limit,
        )
        self._attach(table)
        self._tell("cache file: %s", table.path)

    def put(self, i: int, data: Any) -> bool:
        """Store an item; False where it is there already, the cache is frozen or closed, or there is no room."""
        number, table = self._check(i), self._table
        if table is None or table.closed or self._full:
            return False
        if data is None:
            kind, content = NONE, b""
        else:
            kind = RAW if isinstance(self.codec, Bytes) else CODED
            content = self.codec.encode(data)
        try:
            outcome = table.put(number, content, kind)
        except OSError as exc:
            self._warn(f"the cache {table.path} cannot be written: {exc}")
            return False
        if outcome is PutOutcome.STORED:
            self._puts += 1
        elif outcome is PutOutcome.OVER_LIMIT:
            self._full = True
        elif outcome is PutOutcome.FULL:
            self._warn(f"the disk of the cache {table.path} is full: an item was not stored")
        return outcome is PutOutcome.STORED

    def preserve(self, name: str, overwrite: bool = False) -> bool:
        """Keep the cache as the file `name` in its folder, for `preload`. No process can add items afterwards.

        The file is replaced atomically, also if the machine crashes: a file of that name stays until the new one is
        complete on the disk. Returns False if the name is taken and `overwrite` is False, or if the cache is closed.
        Raises `OSError` if the disk fails; the cache then works as before.
        """
        table = self._table
        if table is None or table.closed:
            return False
        path = os.path.join(self.dir, name)
        if not table.preserve(path, overwrite=overwrite):
            self._tell("not preserved: there is a cache %s", path)
            return False
        self._preload(name)
        return True

    def preload(self, name: str) -> bool:
        """Take the items of a preserved cache instead of one's own; nothing can be put any more.

        False where there is no file `name` in the folder, or this cache was preserved or preloaded before.
        `CorruptFileError` where the file is no cache, or was cut off or damaged; `ValueError` where it is of another
        length, codec or fingerprint.
        """
        table = self._table
        if table is None or table.closed or self.frozen:
            self._tell("not preloaded: the cache is frozen or closed")
            return False
        try:
            self._preload(name)
        except FileNotFoundError:
            self._tell("not preloaded: there is no cache %s", name)
            return False
        return True

    def _tell(self, message: str, *values: object) -> None:
        if self.verbose:
            _log.info(message, *values)


class MultiprocessFileCache(FileCache):
    """`FileCache` with PFIO's arguments of this class: every `FileCache` may be used by several processes."""

    def __init__(
        self,
        length: int,
        do_pickle: bool = False,
        dir: str | os.PathLike[str] | None = None,
        cache_size_limit: int | None = None,
        verbose: bool = False,
        trace: bool = False,
        *,
        codec: str | Codec | None = None,
        fingerprint: str | bytes = b"",
    ) -> None:
        given = length, True, do_pickle, dir, cache_size_limit, verbose, trace
        super().__init__(*given, codec=codec, fingerprint=fingerprint)


class ReadOnlyFileCache(StoredItems):
    """The items of a preserved cache; before `preload()` there are none.

    Args:
        length: how many items there are.
        do_pickle, dir, codec, fingerprint: as of the `FileCache` that was preserved; `codec="memoryview"` gives items
            that were stored as bytes without copying them.
        verbose: PFIO's; there is nothing to tell.
    """

    def __init__(
        self,
        length: int,
        do_pickle: bool = False,
        dir: str | os.PathLike[str] | None = None,
        verbose: bool = False,
        *,
        codec: str | Codec | None = None,
        fingerprint: str | bytes = b"",
    ) -> None:
        super().__init__(length, do_pickle, codec, None, dir, fingerprint)

    @property
    def frozen(self) -> bool:
        """Always."""
        return True

    def preload(self, name: str) -> bool:
        """Take the items of a preserved cache; True.

        `FileNotFoundError` where there is none of that name; other errors as of `FileCache.preload`.
        """
        self._preload(name)
        return True

    def put(self, i: int, data: Any) -> bool:
        """`io.UnsupportedOperation`."""
        raise errors.unsupported("put", self.dir, "the cache is read-only")

    def preserve(self, name: str, overwrite: bool = False) -> bool:
        """`io.UnsupportedOperation`."""
        raise errors.unsupported("preserve", self.dir, "the cache is read-only, and preserved already")

    def get_and_cache(self, i: int, backend_get: Any) -> Any:
        """The item, else `backend_get(i)`, which is not stored."""
        value = self.get(i, MISSING)
        return backend_get(i) if value is MISSING else value


# ---- files that PFIO 2 has preserved: a table, and behind it the items' bytes


_PFIO_ENTRY = struct.Struct("=Qq")
"""An item's offset in the file, and its size, -1 for an item that is not there; nothing in the file checks an item."""


def _pfio_entries(path: str, length: int) -> list[tuple[int, int]] | None:
    """Return offsets and sizes of `length` items; None if the file can't be a cache of PFIO's of that length."""
    start = length * _PFIO_ENTRY.size
    with open(open_ours(path, os.O_RDONLY), "rb") as file:
        size, table = os.fstat(file.fileno()).st_size, file.read(start)
    if len(table) != start:
        return None
    found = list(_PFIO_ENTRY.iter_unpack(table))
    ends = start
    for offset, count in sorted(one for one in found if one[1] > 0):
        if offset < ends:
            return None
        ends = offset + count
    sane = all(count == -1 or (count >= 0 and start <= offset <= size) for offset, count in found)
    return found if sane and ends == size else None


def _pfio_items(path: str, table: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each item that is there."""
    with open(open_ours(path, os.O_RDONLY), "rb") as file:
        for number, (offset, size) in enumerate(table):
            if size >= 0:
                yield number, os.pread(file.fileno(), size, offset)
