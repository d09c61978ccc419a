"""What is in a commit: listings of its directories as tables that all processes of a machine map, and single files.

A commit never changes, so that nothing here has to be asked for twice. A directory is listed once, whole or one level
of it, and the table is kept in the cache directory. Files that nothing was listed for are known one by one, from the
responses about them; so is where their contents lie, for a time.

A table is its number of files, the ends of their names, their sizes and their digests, and the names, in their order:
all in place, for a search that reads only what it compares.
"""

from __future__ import annotations

import struct
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...core import keys, process
from ...core.identity import Identity
from ...disk import indexes
from ..objects.addresses import Addresses

KIND = "hub-tree-1"
MAX_SINGLE = 100_000
"""Files that are known one by one; more are forgotten."""
HEADS = 4
"""Files of a directory that are asked for one by one; then it is listed."""
_COUNT = struct.Struct("=Q")
_DIGEST = 32


class HubFile(NamedTuple):
    """A file of a commit."""

    size: int
    digest: str
    """The SHA-256 of a large file (64 hexadecimal digits), or the id of a small one in git (40)."""


class Listing(Sequence[bytes]):
    """The files below a directory, by their names in the repository; a directory that was not entered ends in `/`."""

    def __init__(self, payload: memoryview) -> None:
        self._count: int = _COUNT.unpack_from(payload)[0]
        ends = _COUNT.size
        sizes = ends + 8 * self._count
        digests = sizes + 8 * self._count
        names = digests + _DIGEST * self._count
        self._ends = payload[ends:sizes].cast("Q")
        self._sizes = payload[sizes:digests].cast("Q")
        self._digests = payload[digests:names]
        self._names = payload[names:]
        if len(self._names) != (self._ends[-1] if self._count else 0):
            raise ValueError("a table that is cut")

    @staticmethod
    def table(files: Iterable[tuple[str, int, str]]) -> bytes:
        """Return the table of files, given by name, size and digest."""
        found = sorted((name.encode("utf-8", "surrogateescape"), size, digest) for name, size, digest in files)
        count, end, ends = len(found), 0, list[int]()
        for name, _, _ in found:
            end += len(name)
            ends.append(end)
        digests = b"".join([bytes.fromhex(digest).rjust(_DIGEST, b"\0") for _, _, digest in found])
        sizes = struct.pack(f"={count}Q", *[size for _, size, _ in found])
        return b"".join(
            [_COUNT.pack(count), struct.pack(f"={count}Q", *ends), sizes, digests, *[name for name, _, _ in found]]
        )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> bytes:  # type: ignore[override]  # of one name alone
        return bytes(self._names[self._ends[at - 1] if at else 0 : self._ends[at]])

    def file(self, at: int) -> HubFile:
        """Return the size and the digest of a file."""
        raw = bytes(self._digests[_DIGEST * at : _DIGEST * (at + 1)])
        return HubFile(self._sizes[at], (raw if any(raw[:12]) else raw[12:]).hex())

    def find(self, name: bytes) -> HubFile | None:
        """Return a file; None if there is none of this name."""
        at = bisect_left(self, name)
        return self.file(at) if at < self._count and self[at] == name else None


Fetch = Callable[[str, bool], Iterator[tuple[str, int, str]]]
"""Lists a directory: yields names in the repository, sizes and digests, for its key and whether all below is wanted."""


class Tree:
    """The tree of the commit `identity`, as far as it is known; for all threads, and good in a forked child."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.addresses: Addresses = Addresses()
        """Of the contents of files, by their keys."""
        self._lock = process.Lock()
        self._whole: dict[str, Listing] = {}
        self._levels: dict[str, Listing] = {}
        self._single: dict[str, HubFile | None] = {}
        self._asked: dict[str, int] = {}  # names in a directory that were asked for one by one

    def remember(self, key: str, file: HubFile | None) -> None:
        """Take note of a file, or that there is none."""
        if len(self._single) >= MAX_SINGLE:
            self._single = {}
        self._single[key] = file

    def find(self, key: str) -> tuple[bool, HubFile | None]:
        """Return whether it is known if there is such a file, and the file."""
        if key in self._single:
            return True, self._single[key]
        found = self._listed(key)
        return (True, found.find(key.encode("utf-8", "surrogateescape"))) if found is not None else (False, None)

    def has_directory(self, key: str) -> bool | None:
        """Return whether there is a directory; None if that is not known."""
        found = self._listed(key)
        if found is None:
            return None
        below = key.encode("utf-8", "surrogateescape") + b"/"
        at = bisect_left(found, below)
        return at < len(found) and found[at].startswith(below)

    def is_worth_listing(self, key: str) -> bool:
        """Return whether the directory that a name is in is better listed than asked for one more name."""
        folder = keys.parent(key)
        self._asked[folder] = asked = self._asked.get(folder, 0) + 1
        return asked > HEADS

    def _listed(self, key: str) -> Listing | None:
        """Return the listing that has a file, if there is one."""
        level = self._levels.get(keys.parent(key))
        return level if level is not None else self._covering(key)

    def _covering(self, key: str) -> Listing | None:
        """Return the listing of all that is below a directory, or one above it."""
        for above in ("", *keys.ancestors(key), key):
            if (found := self._whole.get(above)) is not None:
                return found
        return None

    def listing(self, key: str, recursive: bool, fetch: Fetch) -> Listing:
        """Return the listing of a directory: of all below it, or of at least one level. Raises as `fetch`."""
        found = self._covering(key) or (None if recursive else self._levels.get(key))
        if found is not None:
            return found
        with self._lock:  # for all threads, one listing
            found = self._covering(key) or (None if recursive else self._levels.get(key))
            if found is not None:
                return found
            found = self._kept(key, True) or (None if recursive else self._kept(key, False))
            if found is None:
                table = Listing.table(fetch(key, recursive))
                indexes.save(KIND, self._name(key, recursive), [table])
                found = Listing(memoryview(table))
                self._keep(key, recursive, found)
            return found

    def _kept(self, key: str, recursive: bool) -> Listing | None:
        """Return a listing of the directory, or for a recursive one of any above it, that is kept on disk."""
        for above in ("", *keys.ancestors(key), key) if recursive and key else (key,):
            view = indexes.load(KIND, self._name(above, recursive))
            if view is not None:
                found = Listing(view)
                self._keep(above, recursive, found)
                return found
        return None

    def _keep(self, key: str, recursive: bool, listing: Listing) -> None:
        if recursive:
            self._whole = {**self._whole, key: listing}
        else:
            self._levels = {**self._levels, key: listing}

    def _name(self, key: str, recursive: bool) -> Identity:
        url = f"{self._identity.url}/{keys.to_url_path(key)}{'' if recursive else '?level'}"
        return self._identity._replace(url=url)


_trees: weakref.WeakValueDictionary[Identity, Tree] = weakref.WeakValueDictionary()


def shared(identity: Identity) -> Tree:
    """Return the tree of a commit, which all FS of this process share."""
    found = _trees.get(identity)
    if found is None:
        found = _trees[identity] = Tree(identity)
    return found
