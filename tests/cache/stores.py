"""Stores that count what is asked of them, and a `CachedFS` with small blocks around one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS
from fsabs.cache.disk import EntryKey
from fsabs.core.blobs import Blob
from fsabs.core.fs import FS, LAST_NAME, FileStat, ListPage
from fsabs.core.layers import LayerFS

BLOCK = 4096
PAGE = 1000
REQUESTS = Memory.capabilities._replace(stat_is_request=True)
"""What a store can do of which a stat is a request, as it is of object stores."""


class Store(LayerFS):
    """Counts what is read of the FS that it is around, and can be cut off."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.opened: Counter[str] = Counter()
        self.many: list[list[str]] = []
        self.ranges: list[tuple[int, int]] = []
        self.asked = 0
        self.down = False

    def _check(self) -> None:
        if self.down:
            raise ConnectionRefusedError(111, "nobody there")

    def _stat(self, key: str, *how: Any) -> FileStat:
        self._check()
        self.asked += 1
        return super()._stat(key, *how)

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        self._check()
        return super()._list(key, *how)

    def _walk(self, key: str, *how: Any) -> Iterator[FileStat]:
        self._check()
        return super()._walk(key, *how)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        self._check()
        self.opened[key] += 1
        return Ranges(self, key, super()._open_blob(key, *how))

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        self._check()
        if how[-1:] == (True,):
            self.many.append(list(wanted))
        return super(LayerFS, self)._read_many(wanted, *how)  # by `_open_blob`, of each

    @property
    def reads(self) -> int:
        """How often something was opened."""
        return sum(self.opened.values())


class Ranges(Blob):
    """Notes what is read of it."""

    def __init__(self, origin: Store, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner.size, inner.version)
        self._store, self._inner = origin, inner

    def _pread(self, size: int, offset: int) -> bytes:
        self._store.ranges.append((size, offset))
        return self._inner.pread(size, offset)

    def _close(self) -> None:
        self._inner.close()


class Asked(Store):
    """A stat is a request, and reading a file tells nothing of its version."""

    capabilities = REQUESTS._replace(content_versions=False)


class Far(Store):
    """Each call is a request."""

    default_concurrency = 4
    capabilities = REQUESTS


class Paged(Far):
    """A page of a listing has a thousand names."""

    default_concurrency = 8

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.pages: list[str] = []

    def _list_page(self, key: str, after: str) -> ListPage | None:
        self._check()
        self.pages.append(after)
        members = sorted(super()._walk(key), key=FileStat.listed)
        following = [member for member in members if not member.directory and member.filename > after]
        return ListPage(following[:PAGE], LAST_NAME if len(following) <= PAGE else following[PAGE - 1].filename)

    @property
    def requests(self) -> int:
        return self.asked + self.reads + len(self.pages)

    def forget(self) -> None:
        self.asked, self.pages, self.many, self.ranges = 0, [], [], []
        self.opened.clear()


class Versionless(Memory):
    """A store that tells no version."""

    capabilities = Memory.capabilities._replace(versions=False)

    def _stat(self, key: str, *how: Any) -> FileStat:
        return super()._stat(key, *how)._replace(version=None)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        blob = super()._open_blob(key, *how)
        blob.version = None
        return blob


def entry(name: bytes, url: str) -> EntryKey:
    """The key of an entry of a `DiskCache`."""
    return EntryKey.of(name, url)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size} {seed}").randbytes(size)


def cached(store: FS, folder: str, **options: object) -> CachedFS:
    known: dict[str, object] = {"memory_bytes": 0, "block_size": BLOCK, "whole_file_size": 8000}
    known |= {"max_bytes": 10**8, "min_free": 0, "check_interval": 0.0}
    return CachedFS(store, folder, **{**known, **options})  # type: ignore[arg-type]


NAMES = [f"{number:02}.bin" for number in range(20)]
CONTENTS = [noise(1000, number) for number in range(20)]
