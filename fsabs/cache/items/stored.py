"""Items in a file: what the caches of it share, and `ReadOnlyFileCache`, of a file that was preserved."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import warnings
from typing import Any

from ... import errors, hooks, index_cache
from ..checksums import crc32c
from ..single_flight import MISSING, SingleFlight
from . import layout, pfiofile
from .base import NAME, ItemCache, Key
from .codecs import Bytes, Codec, View
from .engine import RAW, Engine, PutOutcome
from .mapped import LARGE, Mapped

NONE, CODED = 2, 3
"""Kinds: None, and what a codec has to decode; RAW is what is given as it is."""

_item = layout.ITEM.unpack_from
_bytes = layout.BYTES.unpack_from
_ITEMS, _ENTRY = layout.ITEMS_START, layout.ENTRY_SIZE
_SALT, _FACTOR = layout.salt(RAW), layout.NUMBER_FACTOR
_pread = os.pread


def default_directory() -> str:
    """Return the default folder of item caches: `items` in the cache directory, else the system's temporary folder."""
    directory = index_cache.cache_directory()
    return str(directory / "items") if directory is not None else tempfile.gettempdir()


class StoredItems(ItemCache):
    """The base class of file caches, which have an engine, except before a preload and after `close()`."""

    _engine: Engine | None = None
    _entries: memoryview | None = None
    _view: memoryview | None = None

    def __init__(
        self,
        length: int,
        do_pickle: bool,
        codec: str | Codec | None,
        cache_size_limit: int | None,
        claim_timeout: float,
        dir: str | os.PathLike[str] | None,
        fingerprint: str | bytes,
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit, claim_timeout)
        self.dir: str = os.path.abspath(os.fspath(dir)) if dir is not None else default_directory()
        self._fingerprint = fingerprint
        self._full = self._warned = False
        self._nothing()

    def _attach(self, engine: Engine) -> None:
        """Take an engine into use."""
        self._crc = crc32c()[0]
        view = isinstance(self.codec, View)
        # What `get` looks up by itself: bytes, and views that were checked. The rest is `_look`'s.
        self._fd = engine.fd
        self._read_at = engine.read_at
        self._entries = engine.items() if isinstance(self.codec, Bytes) and not view else None
        self._views = engine.layout.length if view and not engine.writable else 0
        self._mapped = Mapped(engine.fd)
        self._fetches = SingleFlight(engine, self._claim_timeout)
        self._view = memoryview(engine.map) if not engine.writable and engine.map is not None else None
        self._right = bytearray(engine.layout.length if self._view is not None else 0)  # items whose check was right
        before, self._engine = self._engine, engine
        if before is not None:
            before.close()

    @property
    def multiprocess_safe(self) -> bool:
        """Always: forked and spawned processes share the items."""
        return True

    @property
    def frozen(self) -> bool:
        """True if no items can be added: the cache is preserved or preloaded, or its limit was reached."""
        engine = self._engine
        return self._full or (engine is not None and bool(engine.state().sealed))

    # Reading

    def get(self, i: Key, default: Any = None) -> Any:
        """The item `i`, or `default` where it isn't there; None can be an item. After `close()`, `default`.

        Plain bytes come back as `bytes`, None as None, all else as the codec gives it. An item whose bytes do not
        have their checksum is not there.
        """
        try:
            if type(i) is int and i >= 0:  # a number of NumPy's may overflow below
                if self._entries is not None:
                    offset, length, check = _bytes(self._entries, i * _ENTRY)
                    if length < LARGE:
                        data = _pread(self._fd, length, offset)
                    else:
                        data = self._mapped.read(length, offset) or self._read_at(length, offset)
                    if (
                        self._crc(data) ^ length ^ (_SALT ^ i * _FACTOR & 0xFFFFFFFF) == check
                    ):  # false for what is not there, and other kinds
                        self._hits += 1
                        if (instrument := hooks.active) is not None:
                            instrument.record_event("hit", NAME, length)
                        return data
                elif i < self._views and self._right[i]:
                    view: Any = self._view
                    offset, length, _, kind = _item(view, _ITEMS + i * _ENTRY)
                    if kind == RAW:
                        self._hits += 1
                        if (instrument := hooks.active) is not None:
                            instrument.record_event("hit", NAME, length)
                        return view[offset : offset + length]
        except (TypeError, IndexError, OverflowError, OSError, struct.error):
            pass  # out of range, a closed cache, a disk that fails: all that is not usual is looked at below
        return super().get(i, default)

    def _look(self, i: Key) -> Any:
        key, engine = self._check(i), self._engine
        if engine is None or engine.closed:
            return MISSING
        if self._view is not None and isinstance(key, int):
            return self._look_frozen(engine, key)
        damaged = engine.damaged
        try:
            found = engine.read(key) if isinstance(key, int) else engine.read_key(encoded(key))
        except OSError as exc:
            self._warn(f"the cache {engine.path} cannot be read: {exc}")
            return MISSING
        if engine.damaged != damaged:
            self._warn(f"the cache {engine.path} has an item that does not have its checksum: {i!r} is not there")
        return MISSING if found is None else self._decoded(*found)

    def _look_frozen(self, engine: Engine, number: int) -> Any:
        """From the mapping of a file that does not change: nothing is copied, and each item is checked once."""
        view = self._view
        assert view is not None
        offset, length, check, kind = _item(view, _ITEMS + number * _ENTRY)
        if kind == layout.EMPTY:
            return MISSING
        data = view[offset : offset + length]
        if not self._right[number]:
            if len(data) != length or layout.check_of(bytes(data), b"", kind, number) != check:
                engine.damaged += 1
                self._warn(f"the cache {engine.path} has an item that does not have its checksum: {number}")
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
            engine = Engine.preserved(path)
        except errors.CorruptFileError:
            table = pfiofile.entries(path, self.length)
            if table is None:
                raise
            self._copy_of_pfio(path, table)
            return
        try:
            self._fits(engine)
        except ValueError:
            engine.close()
            raise
        self._attach(engine)

    def _copy_of_pfio(self, path: str, table: list[tuple[int, int]]) -> None:
        """Take the items of a file that PFIO preserved, in a file of one's own that goes with the cache."""
        kind = RAW if isinstance(self.codec, Bytes) else CODED
        engine = Engine.temporary(self.dir, length=self.length, contents=self.codec.name)
        for number, data in pfiofile.items(path, table):
            if engine.put(number, data, kind) is not PutOutcome.STORED:
                engine.close()
                raise errors.error(errno.ENOSPC, "preload", path, "no room for a copy of PFIO's cache")
        self._attach(engine)
        self._full = True

    def _fits(self, engine: Engine) -> None:
        found, contents = engine.layout, self.codec.name.encode()
        if found.length != self.length:
            raise ValueError(f"{engine.path} is a cache of length {found.length}, and this one has {self.length}")
        if found.contents != contents:
            was = found.contents.decode(errors="replace")
            raise ValueError(f"{engine.path} was written with codec {was!r}, and this cache has {self.codec.name!r}")
        if self._fingerprint and found.fingerprint != layout.fingerprint(self._fingerprint):
            raise ValueError(f"{engine.path} was made from another source: its fingerprint is not the one given")

    # Process

    def close(self) -> None:
        """Leave the cache; its file goes with the last process that does, unless it was preserved. Twice is once."""
        engine, self._engine = self._engine, None
        self._nothing()
        if engine is not None:
            engine.close()

    def _nothing(self) -> None:
        """Set the fields of a cache without an engine."""
        self._entries = None
        self._views = 0
        self._view = None
        self._right = bytearray()
        self._mapped = Mapped(-1)

    def stats(self) -> dict[str, int]:
        """As `ItemCache.stats`, and `disk_bytes` and `damaged`: items found to be wrong, by this object."""
        engine = self._engine
        none = {"entries": 0, "bytes": 0, "disk_bytes": 0, "damaged": 0}
        return {**super().stats(), **(none if engine is None else engine.usage())}

    def __getstate__(self) -> dict[str, Any]:
        made_anew = ("_crc", "_fd", "_read_at", "_entries", "_views", "_mapped", "_fetches", "_view", "_right")
        return {name: value for name, value in self.__dict__.items() if name not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        engine = state.pop("_engine", None)
        self.__dict__.update(state, _fetches=SingleFlight(None, state["_claim_timeout"]))
        self._nothing()
        self._hits = self._misses = self._puts = 0
        if engine is not None:
            self._attach(engine)

    def __repr__(self) -> str:
        engine = self._engine
        return f"{type(self).__name__}({self.length}, {engine.path if engine is not None else 'closed'!r})"


class ReadOnlyFileCache(StoredItems):
    """The items of a preserved cache; before `preload()` there are none.

    Args:
        length: how many numbered items there are.
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
        super().__init__(length, do_pickle, codec, None, 60.0, dir, fingerprint)

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

    def put(self, i: Key, data: Any) -> bool:
        """`io.UnsupportedOperation`."""
        raise errors.unsupported("put", self.dir, "the cache is read-only")

    def preserve(self, name: str, overwrite: bool = False) -> bool:
        """`io.UnsupportedOperation`."""
        raise errors.unsupported("preserve", self.dir, "the cache is read-only, and preserved already")

    def get_and_cache(self, i: Key, backend_get: Any) -> Any:
        """The item, else `backend_get(i)`, which is not stored."""
        value = self.get(i, MISSING)
        return backend_get(i) if value is MISSING else value


def encoded(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
