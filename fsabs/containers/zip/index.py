"""The index of an archive: its table (`table.py`) as a tree of files and directories, kept for all processes.

`load` is all that the rest needs: blob in, `ZipIndex` out. What takes long to be made, or to be fetched, is kept in the
cache directory by URL, version and size, and mapped: a process that opens an archive of a million entries again reads
nothing of it, and needs a millisecond and no memory of its own. What is kept is never trusted more than the archive:
where they don't go together, the archive is read again.
"""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from ...core import keys, process
from ...core.blobs import Blob
from ...core.fs import FileStat
from ...core.identity import Identity
from ...core.limits import Limits
from ...core.stats import TreeCounts
from ...disk import indexes
from ..base import missing
from . import directory
from .directory import DirectoryScan
from .records import SmallRead, ZipEntry
from .table import KIND, DamagedTableError, ZipTable

KEPT_FROM = 64 * 1024
"""Bytes of directory from which on an index is kept if the archive's bytes are near: that of some 900 entries, which
take some milliseconds to be parsed, and NumPy a tenth of a second to be loaded. Of an archive that is far away every
index is kept: it saves the request for the end of the file, and one or more for a long directory."""
ORDER = "zip-order-1"
"""The kind of the cached index with the order of the names, which is found when something is listed."""
REMEMBERED = 8192
"""Members that were asked for first, and are found again without a search, at half a kilobyte each: an epoch comes
after another. Of more members, others take no one's place: a search is cheaper than a memory that changes all the time.
"""
LONG_ORDER = 10_000
"""Entries from which on their order is kept on the disk; fewer are put into order as soon as they are read."""


class ZipIndex:
    """The entries of an archive by key, and its layout."""

    def __init__(self, table: ZipTable, blob: Blob, url: str, limits: Limits) -> None:
        self.table = table
        """What is looked up in; another one from when this is found to be wrong."""
        self._lock = process.Lock()
        self._blob = blob
        self._url = url
        self._limits = limits
        self._names: _Names | None = None
        self._entries: dict[str, ZipEntry] = {}  # of files that were asked for
        self.small_reads: dict[str, SmallRead] = {}
        """Of small members that were read: what `small_read` found."""
        self.layout = table.layout

    # ---- one entry

    def entry(self, key: str) -> ZipEntry | None:
        """The entry of a key; a directory's own ends in `/`."""
        try:
            name = key.encode()
        except UnicodeEncodeError:  # a lone surrogate is in no archive
            return None
        table = self.table
        if table.sound:
            return table.lookup(name)
        try:
            found = table.lookup(name)
        except (DamagedTableError, IndexError, struct.error):
            found = None
        return found or self._sound().lookup(name)

    def file(self, key: str) -> ZipEntry:
        """The entry of the file `key`; `IsADirectoryError`, `FileNotFoundError`, `NotADirectoryError`, and
        `PermissionError` for a name that is refused."""
        entries = self._entries  # before the table: what is put there must not be of an older one
        entry = entries.get(key)
        if entry is not None:
            return entry
        table = self.table
        entry = table.lookup(key.encode()) if table.sound and key.isascii() else self.entry(key)
        if entry is None:
            return self._no_file(key)
        if len(entries) < REMEMBERED:
            entries[key] = entry
        return entry

    def small_read(self, key: str) -> SmallRead | None:
        """Return how a small member is read; None if `file` has to look at it: it is large, odd, or missing."""
        reads = self.small_reads  # before the table, as above
        try:
            read = self.table.small_read(key.encode())
        except (DamagedTableError, IndexError, struct.error, UnicodeEncodeError):
            return None
        if read is not None and len(reads) < REMEMBERED:
            reads[key] = read
        return read

    def following(self, key: str) -> Iterator[tuple[int, int, str]]:
        """As `StorageOrder.following`, of small files, and as far as the directory is in the order of the archive."""
        read = self.small_reads.get(key) or self.small_read(key)
        if read is None:
            return
        yield read[0], read[1], key
        table = self.table
        try:
            offset = (first := self.file(key)).offset
            for row in range(table.row(first) + 1, table.rows):
                name = table.name(row)
                read = None if name.endswith(b"/") else self.small_read(found := name.decode())
                start = table.entry(row).offset if read is None else read[0]
                if start <= offset:
                    return
                offset = start
                if read is not None:
                    yield read[0], read[1], found
        except (DamagedTableError, IndexError, struct.error, OSError):  # found, and mended, when it is read
            return

    def isdir(self, key: str) -> bool:
        """Return whether `key` is a directory."""
        if not key or self.entry(key + "/") is not None:
            return True
        prefix, names = _prefix(key), self._ordered()
        at = bisect_left(names, prefix)
        return at < len(names) and names[at].startswith(prefix)

    def stat(self, key: str, version: str | None) -> FileStat:
        """The stat of a file or directory."""
        entry = self.entry(key) if key else None
        if entry is not None:
            return self._stat(keys.name(key), entry, version)
        if not self.isdir(key):
            raise self._missing(key)
        return self._stat(keys.name(key) + "/", self.entry(key + "/"), version)

    def _stat(self, name: str, entry: ZipEntry | None, version: str | None) -> FileStat:
        if entry is None:
            return FileStat.of_directory(name[:-1])
        return entry.stat(name, version, self.table.modified(entry))

    def _no_file(self, key: str) -> ZipEntry:
        if self.isdir(key):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if key in self.table.refused and isinstance(self._missing(key), FileNotFoundError):
            reason = f"the archive's entry of this name is refused: {self.table.refused[key]}"
            raise PermissionError(errno.EACCES, reason)
        raise self._missing(key)  # in no local, which its traceback would hold, and it that

    def _missing(self, key: str) -> OSError:
        return missing(key, lambda above: self.entry(above) is not None)

    # ---- many

    def list(self, key: str, version: str | None) -> Iterator[FileStat]:
        """The members of the directory `key`, in the order of their names."""
        names = self._directory(key)
        return (self._stat(name, names.entry(row), version) for name, row in _children(names, _prefix(key)))

    def walk(self, key: str, version: str | None) -> Iterator[FileStat]:
        """All that is below the directory `key`, names relative to it, a directory before its members."""
        names = self._directory(key)
        return (self._stat(name, names.entry(row), version) for name, row in _below(names, _prefix(key)))

    def usage(self, key: str) -> TreeCounts:
        """Return what the files below the directory `key` add up to."""
        names = self._directory(key)
        files, size = names.table.usage(names.order[slice(*names.range(_prefix(key)))])
        return TreeCounts(files, bytes=size)

    def walk_names(self, key: str) -> Iterator[str]:
        """Yield the names of what `walk` yields, a directory's with its `/`."""
        return (name for name, _ in _below(self._directory(key), _prefix(key)))

    def _directory(self, key: str) -> _Names:
        """The names, if `key` is a directory."""
        if not self.isdir(key):
            raise (
                NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                if self.entry(key)
                else (self._missing(key))
            )
        return self._ordered()

    def _ordered(self) -> _Names:
        if self._names is None:
            table = self._sound()
            self._names = _Names(table, self._kept_order(table) or table.order())
        return self._names

    def _kept_order(self, table: ZipTable) -> memoryview | None:
        """The order, if it is kept, or can be."""
        blob = self._blob
        if table.kept is None or table.rows < LONG_ORDER:
            return None
        identity = blob.identity and blob.identity._replace(version=f"{blob.version}:{len(table.kept.view)}")
        found = indexes.load(ORDER, identity)
        if found is None and indexes.save(ORDER, identity, [order := table.order()]):
            return order
        return found.cast("I") if found is not None else None

    # ---- what was kept, and may be wrong

    def _sound(self) -> ZipTable:
        """The table, all of it checked; read from the archive again if what was kept is damaged."""
        table = self.table
        try:
            table.check()
        except DamagedTableError:
            with self._lock:
                if self.table is table:
                    self._renew()
        return self.table

    def distrust(self, table: ZipTable) -> bool:
        """Something in the archive isn't what `table` says: whether the index was to blame, and is right now.

        What was kept is compared with the archive, once.
        """
        with self._lock:
            if self.table is table and table.kept is not None:
                self._renew()
            return self.table.view != table.view

    def _renew(self) -> None:
        identity = self._blob.strong_identity
        self.table, self._names = _fresh(self._blob, self._url, self._limits), None
        self._entries, self.small_reads = {}, {}
        self.layout = self.table.layout
        indexes.save(KIND, identity, [self.table.view])


class _Names(Sequence[bytes]):
    """The names of a table, in order."""

    def __init__(self, table: ZipTable, order: memoryview) -> None:
        self.table = table
        self.order = order

    def __getitem__(self, at: Any) -> Any:
        return self.table.name(self.order[at])

    def __len__(self) -> int:
        return len(self.order)

    def entry(self, row: int) -> ZipEntry | None:
        """The entry of a row; of None there is none."""
        return None if row < 0 else self.table.entry(row)

    def range(self, prefix: bytes) -> tuple[int, int]:
        """Return the numbers of the first name that starts with `prefix`, and of the first one after those."""
        if not prefix:
            return 0, len(self)
        start = bisect_left(self, prefix)
        return start, bisect_left(self, _after(prefix), start)


IMPLIED = -1
"""In the place of the row of a directory that has no entry."""


def _children(names: _Names, prefix: bytes) -> Iterator[tuple[str, int]]:
    """The members of a directory: name (a directory's ends in `/`), and row."""
    at, stop = names.range(prefix)
    while at < stop:
        name, slash, rest = names[at][len(prefix) :].partition(b"/")
        if slash:
            yield name.decode() + "/", IMPLIED if rest else names.order[at]
            at = bisect_left(names, _after(prefix + name + b"/"), at)
        else:
            if name:
                yield name.decode(), names.order[at]
            at += 1


def _below(names: _Names, prefix: bytes) -> Iterator[tuple[str, int]]:
    """The same of all levels, a directory before its members."""
    inside, start = "", len(prefix)  # the directory that was yielded last
    rows = names.order[slice(*names.range(prefix))]
    for row, raw in zip(rows, names.table.names(rows), strict=True):
        name = raw[start:].decode()
        cut = name.rfind("/", 0, -1) + 1
        if name[:cut] != inside:
            yield from ((implied, IMPLIED) for implied in _directories(name[:cut], inside))
            inside = name[:cut]
        if name:
            yield name, row
            if name[-1] == "/":
                inside = name


def _directories(path: str, previous: str) -> Iterator[str]:
    """The directories on the way to `path` that are not on the way to `previous`."""
    at = path.find("/") + 1
    while at:
        if not previous.startswith(path[:at]):
            yield path[:at]
        at = path.find("/", at) + 1


def _prefix(key: str) -> bytes:
    """Return the prefix of all names in a directory."""
    return key.encode("utf-8", "surrogatepass") + b"/" if key else b""


def _after(directory: bytes) -> bytes:
    """Return the first name that sorts after all names in a directory: "0" follows "/"."""
    return directory[:-1] + b"0"


# ---- where tables come from


def load(blob: Blob, url: str, limits: Limits, kept_from: int = KEPT_FROM) -> ZipIndex:
    """The index of the archive in `blob`; `CorruptFileError` where it is none, or its directory is damaged.

    It is kept if the directory is of `kept_from` bytes or more.
    """
    identity, strong = blob.identity, blob.has_strong_version  # asked before anything is read
    table = _cached(identity)
    if table is None:
        tail = directory.find(blob, url)
        worthwhile = strong and tail.layout.size >= kept_from
        if worthwhile and indexes.save(KIND, identity, DirectoryScan(tail, limits).parts()):
            table = _cached(identity)
        table = table or in_memory(DirectoryScan(tail, limits))
    return ZipIndex(table, blob, url, limits)


def _cached(identity: Identity | None) -> ZipTable | None:
    found = indexes.lookup(KIND, identity)
    if found is None:
        return None
    try:
        return ZipTable(found.raw, found.start, len(found.view), found)
    except (ValueError, TypeError, KeyError, IndexError, struct.error):  # damaged where it tells what it is
        return None


def _fresh(blob: Blob, url: str, limits: Limits) -> ZipTable:
    return in_memory(DirectoryScan(directory.find(blob, url), limits))


def in_memory(scan: DirectoryScan) -> ZipTable:
    """The table of an archive, kept nowhere."""
    data = scan.table()
    return ZipTable(data, 0, len(data))
