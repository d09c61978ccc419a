"""The index of an archive: what its central directory says, parsed at once and kept as a few flat buffers.

`load` is all that the rest needs: blob in, immutable `Index` out. The buffers (names, one row of fixed size per entry,
a table of the names' hashes) hold no Python object per entry: a million entries are about 140 MB, opened in about a
second, and a forked process shares the pages. The order of the names, which only listing needs, is found when the
first listing asks for it. Nothing of a member is read here.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ... import keys, process
from ...blobs import Blob
from ...fs import FileStat
from ..tree import NameTree
from . import directory
from .directory import Scan
from .ends import Layout
from .entries import ROW, Entry
from .names import Names, hash_of, hashes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Index:
    """The entries of an archive by key, its layout, and what is wrong with its names; never changed once made."""

    def __init__(self, tree: Tree, refused: Mapping[str, str], layout: Layout) -> None:
        self.tree = tree
        self.layout = layout
        self._refused = refused

    def file(self, key: str) -> Entry:
        """The entry of the file `key`; what `Tree.file` raises, and `PermissionError` for a name that is refused."""
        try:
            return self.tree.file(key)
        except FileNotFoundError:
            if key not in self._refused:
                raise
            reason = f"the archive's entry of this name is refused: {self._refused[key]}"
            raise PermissionError(errno.EACCES, reason) from None

    def stat(self, key: str, version: str | None) -> FileStat:
        """The stat of a file or directory."""
        entry = self.tree.entries.get(key)
        if entry is not None:
            return entry.stat(keys.name(key), version)
        if not self.tree.isdir(key):
            raise self.tree.missing(key)
        return _directory(keys.name(key) + "/", self.tree.entries.get(key + "/"))

    def list(self, key: str, version: str | None) -> Iterator[FileStat]:
        """The members of the directory `key`, in the order of their names."""
        for name, entry in self.tree.children(key):
            yield _directory(name, entry) if entry is None else entry.stat(name, version)

    def walk(self, key: str, version: str | None) -> Iterator[FileStat]:
        """All that is below the directory `key`, names relative to it, a directory before its members."""
        for name, entry in self.tree.below(key):
            yield _directory(name, entry) if entry is None else entry.stat(name, version)


def _directory(name: str, entry: Entry | None) -> FileStat:
    return FileStat.of_directory(name[:-1]) if entry is None else entry.stat(name, None)


# ---- the buffers, and the tree over them


class _Table(Mapping[str, Entry]):
    """The entries by name: a binary search in the sorted hashes, `slots` telling whose they are."""

    def __init__(self, blob: bytes, rows: memoryview, hashes: memoryview, slots: memoryview) -> None:
        self._blob = blob
        self._rows = rows
        self._hashes = hashes
        self._slots = slots
        self._lock = process.Lock()
        self._order: memoryview | None = None

    def entry(self, row: int) -> Entry:
        return Entry._make(ROW.unpack_from(self._rows, row * ROW.size))

    def name(self, row: int) -> bytes:
        start, length = _NAME.unpack_from(self._rows, row * ROW.size + _NAME_AT)
        return self._blob[start : start + length]

    def order(self) -> memoryview:
        """The rows in the order of their names."""
        if self._order is None:
            with self._lock:
                self._order = self._order or self._sorted()
        return self._order

    def _sorted(self) -> memoryview:
        import numpy as np

        rows = sorted(self._slots)
        names = list(map(self.name, rows))
        places = np.array(sorted(range(len(rows)), key=names.__getitem__), np.int64)
        return memoryview(np.array(rows, np.int64)[places].tobytes()).cast("q")

    def __getitem__(self, key: str) -> Entry:
        name = key.encode("utf-8", "surrogatepass")  # a lone surrogate is in no archive, so that it is just not found
        value = hash_of(name)
        at = bisect_left(self._hashes, value)
        while at < len(self._hashes) and self._hashes[at] == value:
            if self.name(self._slots[at]) == name:
                return self.entry(self._slots[at])
            at += 1
        raise KeyError(key)

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[str]:
        return iter(_Sorted(self))


_NAME = struct.Struct("<qL")
_NAME_AT = struct.calcsize("<6q")


class _Sorted(Sequence[str]):
    """The names of a table, in order."""

    def __init__(self, table: _Table) -> None:
        self._table = table

    def __getitem__(self, at: Any) -> Any:
        return self._table.name(self._table.order()[at]).decode()

    def __len__(self) -> int:
        return len(self._table)


class Tree(NameTree[Entry]):
    """The directories of an archive, over a table."""

    def __init__(self, table: _Table) -> None:
        self.entries = self._table = table
        self._names = cast("list[str]", _Sorted(table))

    def _children(self, prefix: str) -> Iterator[tuple[str, Entry | None]]:
        table, names = self._table, self._names
        at, stop = self._range(prefix)
        while at < stop:
            name, slash, rest = names[at][len(prefix) :].partition("/")
            if slash:
                yield name + "/", None if rest else table.entry(table.order()[at])
                at = bisect_left(names, _after(prefix + name + "/"), at)
            else:
                if name:
                    yield name, table.entry(table.order()[at])
                at += 1

    def below(self, key: str) -> Iterator[tuple[str, Entry | None]]:
        """As `children`, but all levels, a directory before its members."""
        self.children(key)
        return self._below(key + "/" if key else "")

    def _below(self, prefix: str) -> Iterator[tuple[str, Entry | None]]:
        table = self._table
        inside = ""  # the directory that was told last
        for row in table.order()[slice(*self._range(prefix))]:
            name = table.name(row).decode()[len(prefix) :]
            cut = name.rfind("/", 0, -1) + 1
            if name[:cut] != inside:
                yield from ((implied, None) for implied in _directories(name[:cut], inside))
                inside = name[:cut]
            if name:
                yield name, table.entry(row)
            if name.endswith("/"):
                inside = name

    def _range(self, prefix: str) -> tuple[int, int]:
        """Where the names that start with `prefix` begin and end in the order."""
        if not prefix:
            return 0, len(self._names)
        return bisect_left(self._names, prefix), bisect_left(self._names, _after(prefix))


def _directories(path: str, told: str) -> Iterator[str]:
    """The directories on the way to `path` that are not on the way to `told`."""
    at = path.find("/") + 1
    while at:
        if not told.startswith(path[:at]):
            yield path[:at]
        at = path.find("/", at) + 1


def _after(directory: str) -> str:
    """What comes behind all that is in a directory: "0" follows "/"."""
    return directory[:-1] + "0"


# ---- from the directory to the buffers


def load(blob: Blob, url: str) -> Index:
    """The index of the archive in `blob`; `CorruptFileError` where it is none, or its directory is damaged."""
    found = directory.scan(blob, url)
    hashes, slots = by_hash(found)
    table = _Table(found.names.blob, found.rows.view("u1").data, hashes.data, slots.data)
    return Index(Tree(table), _refused(found.names), found.layout)


def empty() -> Index:
    """The index of an archive that is not there yet."""
    none = memoryview(b"")
    return Index(Tree(_Table(b"", none, none.cast("Q"), none.cast("q"))), {}, Layout(0, 0, 0, False, 0, b"", 0))


def by_hash(found: Scan) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The entries that count, by the hashes of their names: of several of a name it is the last."""
    import numpy as np

    rows = found.rows
    hashes = hashes_of(found.names.blob, rows["name"], rows["length"].astype(np.int64))
    counts = np.ones(len(rows), bool)
    counts[list(found.names.refused)] = False
    slots = np.argsort(hashes, kind="stable")
    ordered = hashes[slots]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    last: dict[bytes, int] = {}
    for row in np.union1d(slots[same], slots[same + 1]).tolist():
        if not counts[row]:
            continue
        name = found.name(row)
        if name in last:
            counts[last[name]] = False
        last[name] = row
    slots = slots[counts[slots]]
    return hashes[slots], slots


def _refused(found: Names) -> dict[str, str]:
    refused = {}
    for name, reason in found.refused.values():
        try:
            refused[keys.normalize(name)] = f"{name!r}: {reason}"
        except (PermissionError, ValueError):  # no path leads to it, as it stands
            pass
    return refused
