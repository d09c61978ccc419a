"""Item caches that are filled: `FileCache`, and `MultiprocessFileCache` with PFIO's arguments of that class."""

from __future__ import annotations

import logging
import os
from typing import Any

from .base import Key
from .codecs import Bytes, Codec
from .engine import RAW, Engine, PutOutcome
from .stored import CODED, NONE, StoredItems, encoded

_log = logging.getLogger("fsabs.cache")


class FileCache(StoredItems):
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
            kind, content = NONE, b""
        else:
            kind = RAW if isinstance(self.codec, Bytes) else CODED
            content = self.codec.encode(data)
        try:
            if isinstance(key, int):
                outcome = engine.put(key, content, kind)
            else:
                outcome = engine.put_key(encoded(key), content, kind)
        except OSError as exc:
            self._warn(f"the cache {engine.path} cannot be written: {exc}")
            return False
        if outcome is PutOutcome.STORED:
            self._puts += 1
            return True
        self._note(engine, outcome, len(content))
        return False

    def _note(self, engine: Engine, outcome: PutOutcome, size: int) -> None:
        """Warn if an item was not stored for a reason that the user can change."""
        if outcome is PutOutcome.BUSY:
            self._warn(f"another process has held the cache {engine.path} for too long: an item was not stored")
        if outcome is not PutOutcome.FULL:
            return
        if engine.limit is not None and engine.state().used + engine.layout.room(size) > engine.limit:
            self._full = True
        else:
            self._warn(f"the disk of the cache {engine.path} is full: an item was not stored")

    def preserve(self, name: str, overwrite: bool = False) -> bool:
        """Keep the cache as the file `name` in its folder, for `preload`. No process can add items afterwards.

        The file is replaced atomically, also if the machine crashes: a file of that name stays until the new one is
        complete on the disk. Returns False if the name is taken and `overwrite` is False, or if the cache is closed.
        Raises `OSError` if the disk fails; the cache then works as before.
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
