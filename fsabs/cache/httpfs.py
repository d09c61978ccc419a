"""HTTPCachedFS: a layer that keeps whole files in a web server, for all machines that reach it.

An item of the server is a frame (see `frames`): its name is the file's identity, whose hash is the item's path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..core import hooks, process
from ..core.blobs import Blob, Hint
from ..core.fs import FS, FileStat
from ..core.layers import LayerFS
from .http import HTTPConnector

CONCURRENCY = 8


class HTTPCachedFS(LayerFS):
    """An FS whose files are looked for in a web server first, and put there when they were not in it.

    Every file is asked for its version where it lies, each time that it is opened, so that what the server has of an
    older one is never given. A file is fetched, from the one or the other, by its first read, whole. What the server
    does wrong is a miss and one warning; while it doesn't answer, this is the inner FS.

    Args:
        url: below which the server keeps items: `http://host/path` or `https://host/path`. Users and datasets may share
            one.
        fs: what is cached. Files of a store that has no versions are not cached.
        max_cache_size: bytes; larger files are neither looked for nor kept.
        bearer_token_path: a file with a token, as of `HTTPConnector`.
        timeout: seconds to connect, and for a whole response to arrive, plus one for each MiB of it.
    """

    def __init__(
        self,
        url: str,
        fs: FS,
        max_cache_size: int = 1024 * 1024 * 1024,
        bearer_token_path: str | os.PathLike[str] | None = None,
        *,
        timeout: float = 3.0,
    ) -> None:
        super().__init__(fs)
        if max_cache_size < 0:
            raise ValueError(f"max_cache_size is a number of bytes, not {max_cache_size}")
        self._max_size = max_cache_size
        self._connector = HTTPConnector(url, bearer_token_path, timeout)

    keeps_content = True

    @property
    def default_concurrency(self) -> int:  # type: ignore[override]
        """The inner FS's, or what a web server can well do at once."""
        return max(CONCURRENCY, self.inner.default_concurrency)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if not self._connector.alive:
            return self.inner._open_blob(key, hint, stat)
        blob = self.inner._open_blob(key)  # the start that the store would send along may not be needed
        if blob.version is None or not 0 < blob.size <= self._max_size:
            return blob
        return SharedBlob(self, key, blob, self._connector)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        if not self._connector.alive:
            return self.inner._read_many(wanted, concurrency, versions)
        return FS._read_many(self, wanted, concurrency, versions)

    def _close(self) -> None:
        self._connector.close()
        super()._close()

    def _abort(self) -> None:
        self._connector.close()
        super()._abort()

    def __repr__(self) -> str:
        return f"HTTPCachedFS({self._connector.url!r}, {self.inner!r})"


class SharedBlob(Blob):
    """A whole file, fetched by the first read: from the server, or from its store and then put there."""

    __slots__ = ("_connector", "_content", "_inner", "_lock")
    _origin: HTTPCachedFS

    def __init__(self, origin: HTTPCachedFS, key: str, inner: Blob, connector: HTTPConnector) -> None:
        super().__init__(origin, key, inner.size, inner.version)
        self._inner = inner
        self._connector = connector
        self._content: bytes | None = None
        self._lock = process.Lock()

    def _pread(self, size: int, offset: int) -> bytes:
        content = self._content
        if content is None:
            with self._lock:
                content = self._content = self._content if self._content is not None else self._fetch()
        return content if size == len(content) else content[offset : offset + size]

    def _fetch(self) -> bytes:
        assert self.version is not None
        identity = self.identity
        assert identity is not None
        name, suffix = identity.encode(), identity.digest()
        strong = self.has_strong_version  # asked before the content is read
        content = self._connector.get_framed(suffix, name, self.size)
        if content is not None and len(content) != self.size:
            content = None
        if (instrument := hooks.active) is not None:
            instrument.record_event("hit" if content is not None else "miss", "http_cache", self.size, self.url)
        if content is None:
            content = self._inner.read_all()
            if strong:
                self._connector.put_framed(suffix, name, content)
        return content

    def fileno(self) -> int:
        """As of the file where it lies."""
        return self._inner.fileno()

    def _close(self) -> None:
        self._content = None
        self._inner.close()
