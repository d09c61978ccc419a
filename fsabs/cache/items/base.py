"""Item caches: what PFIO's caches are (`put`, `get`, `get_and_cache` of item `i`), and the one that lives in memory."""

from __future__ import annotations

import abc
import math
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from ...core import hooks, process
from ..single_flight import MISSING, SingleFlight, no_claims
from .codecs import Codec, codec_of

NAME = "cache.items"
"""The name of item caches in spans and events."""


class Cache(abc.ABC):
    """The interface of item caches. Subclasses implement `get` and `put`; `get_and_cache` is made of them."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of items that there can be: their indexes are 0 to len - 1."""

    @property
    @abc.abstractmethod
    def multiprocess_safe(self) -> bool:
        """True if several processes may use it at once."""

    @property
    @abc.abstractmethod
    def multithread_safe(self) -> bool:
        """True if several threads may use it at once."""

    @abc.abstractmethod
    def put(self, i: Any, data: Any) -> bool:
        """Store an item; return whether it was. An item that is there stays, but in a web server (`HTTPCache`)."""

    @abc.abstractmethod
    def get(self, i: Any) -> Any:
        """The item, or None where it isn't there."""

    def get_and_cache(self, i: Any, backend_get: Callable[[Any], Any]) -> Any:
        """The item, from the cache, else from `backend_get(i)`, and stored then."""
        data = self.get(i)
        if data is None:
            data = backend_get(i)
            self.put(i, data)
        return data

    def close(self) -> None:  # noqa: B027  (a cache may have nothing to free)
        """Free what it holds. Twice is once."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()


class ItemCache(Cache):
    """The base class of this package's item caches: None can be an item, and fetches are single-flight.

    Attributes:
        length: how many items there can be.
        do_pickle: whether items are pickled.
        cache_size_limit: bytes that all items together may take; None for no limit.
    """

    def __init__(
        self,
        length: int,
        do_pickle: bool,
        codec: str | Codec | None,
        cache_size_limit: int | None,
    ) -> None:
        if not 0 < length < 1 << 40:
            raise ValueError(f"length has to be between 1 and 2^40, and is {length}")
        if cache_size_limit is not None and not (isinstance(cache_size_limit, (int, float)) and cache_size_limit >= 0):
            raise ValueError(
                f"cache_size_limit has to be None or 0 (no limit) or positive, and is {cache_size_limit!r}"
            )
        self.length: int = int(length)
        self.codec: Codec = codec_of(codec, do_pickle)
        self.do_pickle: bool = self.codec.name == "pickle"
        limit = None if cache_size_limit == math.inf else cache_size_limit
        self.cache_size_limit: int | None = int(limit) if limit else None
        self._fetches = SingleFlight(no_claims)
        self._hits = self._misses = self._puts = 0

    def __len__(self) -> int:
        return self.length

    @property
    def multithread_safe(self) -> bool:
        """Always."""
        return True

    def get(self, i: int, default: Any = None) -> Any:
        """The item `i`, or `default` where it isn't there.

        None can be an item: where that matters, give another default. `IndexError` for a number that is out of range.
        """
        value = self._look(i)
        if value is MISSING:
            self._miss()
            return default
        self._hit(size_of(value) if hooks.active is not None else 0)
        return value

    def __contains__(self, i: int) -> bool:
        return self.get(i, MISSING) is not MISSING

    def get_and_cache(self, i: int, backend_get: Callable[[Any], Any]) -> Any:
        """The item, from the cache, else from `backend_get(i)`, and stored then.

        All threads that ask for one missing item at once wait for one call; of a cache in a file, all processes, too.
        """
        value = self.get(i, MISSING)
        if value is not MISSING:
            return value

        def fetch(_: Sequence[int]) -> list[Any]:
            made = backend_get(i)
            self.put(i, made)
            return [made]

        [value] = self._fetches.fetch([int(i)], lambda _: self._look(i), fetch)
        return value

    @abc.abstractmethod
    def _look(self, i: int) -> Any:
        """The item or MISSING; counts as no hit and no miss."""

    def _check(self, i: int) -> int:
        """The index, if it is one."""
        try:
            number = i.__index__()
        except AttributeError:
            raise TypeError(f"items have numbers: an int, and not {type(i).__name__}") from None
        if not 0 <= number < self.length:
            raise IndexError(f"index {number} out of range ([0, {self.length - 1}])")
        return number

    def _hit(self, size: int) -> None:
        self._hits += 1
        if (instrument := hooks.active) is not None:
            instrument.record_event("hit", NAME, size)

    def _miss(self) -> None:
        self._misses += 1
        if (instrument := hooks.active) is not None:
            instrument.record_event("miss", NAME)

    def stats(self) -> dict[str, int]:
        """`hits`, `misses` and `puts` of this object in this process, and `entries` and `bytes` of the whole cache.

        Counters of busy threads may be a few short.
        """
        return {"hits": self._hits, "misses": self._misses, "puts": self._puts}


class NaiveCache(ItemCache):
    """Items in the memory of this process; forked and spawned ones get a copy.

    Args:
        length: how many items there can be.
        multithread_safe: PFIO's; it is in any case.
        do_pickle: store pickles, so that each `get` returns an object of its own. Else items are the objects
            themselves: who changes one changes it for all.
        codec: store what a codec makes of items; see `FileCache`.
        cache_size_limit: bytes that items may take together: of buffers and arrays their bytes, of other objects
            `sys.getsizeof`. None or 0 is no limit.
    """

    def __init__(
        self,
        length: int,
        multithread_safe: bool = False,
        do_pickle: bool = False,
        *,
        codec: str | Codec | None = None,
        cache_size_limit: int | None = None,
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit)
        self._coded = do_pickle or codec is not None
        self._items: dict[int, Any] = {}
        self._size = 0
        self._lock = process.Lock()

    @property
    def multiprocess_safe(self) -> bool:
        """Never: each process has its own items."""
        return False

    @property
    def frozen(self) -> bool:
        """Never: what is too large for the limit is refused, what is not is stored."""
        return False

    def put(self, i: int, data: Any) -> bool:
        """Store an item; False where it is there, or the limit is reached."""
        number = self._check(i)
        stored = self.codec.encode(data) if self._coded and data is not None else data
        size = size_of(stored)
        with self._lock:
            full = self.cache_size_limit is not None and self._size + size > self.cache_size_limit
            if number in self._items or full:
                return False
            self._size += size
            self._items[number] = stored
        self._puts += 1
        return True

    def _look(self, i: int) -> Any:
        value = self._items.get(self._check(i), MISSING)
        if value is MISSING or value is None or not self._coded:
            return value
        return self.codec.decode(value)

    def stats(self) -> dict[str, int]:
        """The result of `ItemCache.stats`."""
        return {**super().stats(), "entries": len(self._items), "bytes": self._size}

    def close(self) -> None:
        """Nothing to free: the items stay until the object goes."""


def size_of(value: Any) -> int:
    """Bytes that a value takes: of what has a buffer all of its bytes, whatever its element type."""
    if value is None:
        return 0
    if isinstance(value, bytes):
        return len(value)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    try:
        return memoryview(value).nbytes
    except TypeError:
        return sys.getsizeof(value)
