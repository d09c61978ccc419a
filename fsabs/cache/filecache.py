"""Item caches in a file: for the threads and processes of a program, and preserved for the next one."""

from __future__ import annotations

import errno
import logging
import os
import struct
import tempfile
import warnings
from typing import Any

from .. import errors, hooks, index_cache
from . import layout, pfiofile
from .codecs import Bytes, Codec, View
from .engine import RAW, Engine, Outcome
from .flights import MISSING, Flights
from .items import NAME, ItemCache, Key
from .mapped import LARGE, Mapped

NONE, CODED = 2, 3
"""Kinds: None, and what a codec has to decode; RAW is what is given as it is."""

_log = logging.getLogger("fsabs.cache")
_item = layout.ITEM.unpack_from
_bytes = layout.BYTES.unpack_from
_ITEMS, _ENTRY = layout.ITEMS_START, layout.ENTRY_SIZE
_SALT, _FACTOR = layout.salt(RAW), layout.NUMBER_FACTOR
_pread = os.pread


def default_directory() -> str:
    """Where item caches are, unless told: `items` in the cache directory, else the system's temporary folder."""
    directory = index_cache.cache_directory()
    return str(directory / "items") if directory is not None else tempfile.gettempdir()


class _Stored(ItemCache):
    """What file caches share: an engine, or none before a preload and after `close()`."""

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
        self.dir = os.path.abspath(os.fspath(dir)) if dir is not None else default_directory()
        self._fingerprint = fingerprint
        self._full = self._warned = False
        self._nothing()

    def _attach(self, engine: Engine) -> None:
        """Take an engine into use."""
        self._crc = layout.crc32c()[0]
        view = isinstance(self.codec, View)
        # What `get` looks up by itself: bytes, and views that were checked. The rest is `_look`'s.
        self._fd = engine.fd
        self._read_at = engine.read_at
        self._entries = engine.items() if isinstance(self.codec, Bytes) and not view else None
        self._views = engine.layout.length if view and not engine.writable else 0
        self._mapped = Mapped(engine.fd)
        self._flights = Flights(engine, self._claim_timeout)
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
        """Whether nothing can be put any more: it is preserved or preloaded, or the limit was reached."""
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
            found = engine.read(key) if isinstance(key, int) else engine.read_key(_encoded(key))
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
            if engine.put(number, data, kind) is not Outcome.STORED:
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
        """What stands in place of an engine's, where there is none."""
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
        made_anew = ("_crc", "_fd", "_read_at", "_entries", "_views", "_mapped", "_flights", "_view", "_right")
        return {name: value for name, value in self.__dict__.items() if name not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        engine = state.pop("_engine", None)
        self.__dict__.update(state, _flights=Flights(None, state["_claim_timeout"]))
        self._nothing()
        self._hits = self._misses = self._puts = 0
        if engine is not None:
            self._attach(engine)

    def __repr__(self) -> str:
        engine = self._engine
        return f"{type(self).__name__}({self.length}, {engine.path if engine is not None else 'closed'!r})"


class FileCache(_Stored):
    """Items in one file, for all threads and all processes that have the cache: forked, or spawned with it pickled.

    Its file is removed when the last of them closes it (or its object goes); what killed processes leave is removed
    when the next cache is made in the folder. To keep it, see `preserve`.

    Args:
        length: how many numbered items there can be; each takes 32 bytes of disk at once. There can be as many items
            with string keys besides.
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
        claim_timeout: seconds to wait for another thread's or process's `backend_get` of the same item.

    A full disk, like a limit that is reached, makes `put` return False; it is told once, as a `RuntimeWarning`.
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
        claim_timeout: float = 60.0,
    ) -> None:
        super().__init__(length, do_pickle, codec, cache_size_limit, claim_timeout, dir, fingerprint)
        self.verbose = verbose
        engine = Engine.temporary(
            self.dir,
            length=self.length,
            slots=max(64, 2 * self.length),
            align=getattr(self.codec, "align", 1),
            contents=self.codec.name,
            fingerprint=fingerprint,
            limit=self.cache_size_limit,
        )
        self._attach(engine)
        self._tell("cache file: %s", engine.path)

    def put(self, i: Key, data: Any) -> bool:
        """Store an item; False where it is there already, the cache is frozen or closed, or there is no room."""
        key, engine = self._check(i), self._engine
        if engine is None or engine.closed or self._full:
            return False
        if data is None:
            kind, encoded = NONE, b""
        else:
            kind = RAW if isinstance(self.codec, Bytes) else CODED
            encoded = self.codec.encode(data)
        try:
            if isinstance(key, int):
                outcome = engine.put(key, encoded, kind)
            else:
                outcome = engine.put_key(_encoded(key), encoded, kind)
        except OSError as exc:
            self._warn(f"the cache {engine.path} cannot be written: {exc}")
            return False
        if outcome is Outcome.STORED:
            self._puts += 1
            return True
        self._note(engine, outcome, len(encoded))
        return False

    def _note(self, engine: Engine, outcome: Outcome, size: int) -> None:
        """Why an item was not stored, where that is worth knowing."""
        if outcome is Outcome.BUSY:
            self._warn(f"another process has held the cache {engine.path} for too long: an item was not stored")
        if outcome is not Outcome.FULL:
            return
        if engine.limit is not None and engine.state().used + engine.layout.room(size) > engine.limit:
            self._full = True
        else:
            self._warn(f"the disk of the cache {engine.path} is full: an item was not stored")

    def preserve(self, name: str, overwrite: bool = False) -> bool:
        """Keep the cache as the file `name` in its folder, for `preload`; nothing can be put any more, by nobody.

        All or nothing, also through a crash of the machine: what was under that name stays until the new one is whole
        on the disk. False where the name is taken and is not to be overwritten, or the cache is closed. `OSError`
        where the disk fails; the cache goes on as before then.
        """
        engine = self._engine
        if engine is None or engine.closed:
            return False
        path = os.path.join(self.dir, name)
        if not engine.preserve(path, overwrite=overwrite):
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
        engine = self._engine
        if engine is None or engine.closed or self.frozen:
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
        claim_timeout: float = 60.0,
    ) -> None:
        super().__init__(
            length,
            do_pickle=do_pickle,
            dir=dir,
            cache_size_limit=cache_size_limit,
            verbose=verbose,
            trace=trace,
            codec=codec,
            fingerprint=fingerprint,
            claim_timeout=claim_timeout,
        )


class ReadOnlyFileCache(_Stored):
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


def _encoded(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
