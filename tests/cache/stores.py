"""A store that counts what is asked of it and can be cut off, and a `CachedFS` with small blocks around one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS
from fsabs.cache.disk import EntryKey
from fsabs.core.blobs import Blob
from fsabs.core.fs import FS, FileStat
from fsabs.core.layers import LayerFS

BLOCK = 4096


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

    def _stat(self, key: str) -> FileStat:
        self._check()
        self.asked += 1
        return self.inner._stat(key)

    def _list(self, key: str) -> Iterator[FileStat]:
        self._check()
        return self.inner._list(key)

    def _walk(self, key: str) -> Iterator[FileStat]:
        self._check()
        return self.inner._walk(key)

    def _open_blob(self, key: str) -> Blob:
        self._check()
        self.opened[key] += 1
        return Ranges(self, key, self.inner._open_blob(key))

    def _open_from_start(self, key: str) -> Blob:
        return self._open_blob(key)

    def _read_bytes(self, key: str) -> bytes:
        with self._open_blob(key) as blob:
            return blob.read_all()

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return (data for data, _ in self._read_many_versioned(wanted, concurrency))

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        self._check()
        self.many.append(list(wanted))
        return FS._read_many_versioned(self, wanted, concurrency)

    @property
    def reads(self) -> int:
        """How often something was opened."""
        return sum(self.opened.values())


class Asked(Store):
    """A stat is a request."""

    capabilities = Memory.capabilities._replace(stat_is_request=True, content_versions=False)


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
