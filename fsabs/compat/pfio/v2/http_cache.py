"""PFIO's `HTTPCachedFS`: whole files in a web server, under the names and in the format that PFIO has there."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import IO, Any

from ....core.blobs import Blob, BytesBlob, Hint
from ....core.layers import LayerFS
from ....core.stats import FileStat
from ..cache import HTTPConnector
from .fs import FS
from .zip import Zip


def _forwarded(name: str) -> Callable[..., Any]:
    """Return a method that calls the one of that name of the inner FS."""

    def method(self: HTTPCachedFS, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the inner FS."""
        return getattr(self.fs, name)(*args, **kwargs)

    method.__name__ = name
    return method


class HTTPCachedFS(FS):
    """An FS whose files are looked for in a web server first, and put there when they were not in it.

    An item of the server is the file's content under its path: after a file has changed, another `url` has to be used,
    or the server be emptied. `fsabs.HTTPCachedFS` knows versions, and keeps items of its own.

    Args:
        url: below which the server keeps items.
        fs: what is cached. Only reading is.
        max_cache_size: bytes; larger files are not cached.
        bearer_token_path: a file with a token, read again as it changes.
    """

    def __init__(
        self,
        url: str,
        fs: FS,
        max_cache_size: int = 1024 * 1024 * 1024,
        bearer_token_path: str | None = None,
    ) -> None:
        if isinstance(fs, HTTPCachedFS):
            raise AssertionError("an HTTPCachedFS of an HTTPCachedFS")
        super().__init__(scheme=fs.scheme)
        self.fs = fs
        self.trace = fs.is_traced
        self.max_cache_size = max_cache_size
        self.conn = HTTPConnector(url, bearer_token_path, trace=self.trace)
        self.url = url if url.endswith("/") else url + "/"
        self.fsabs = _CachedFiles(self)

    @property
    def cwd(self) -> str:
        """The directory that relative paths start from."""
        return self.fs.cwd

    @cwd.setter
    def cwd(self, value: str) -> None:
        self.fs.cwd = value

    def subfs(self, rel_path: str) -> Any:
        """Return a cache of the same server around the inner FS's `subfs`."""
        sub = super().subfs("")
        sub.fs = self.fs.subfs(rel_path)
        sub.fsabs = _CachedFiles(sub)
        return sub

    def _path(self, path: str | None) -> str:
        return self.fs._path(path)

    def open(self, file_path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> IO[Any]:
        """Open a file; the arguments are those of the inner FS's `open`."""
        if "r" not in mode or "+" in mode:
            return self.fs.open(file_path, mode, *args, **kwargs)
        return self.fsabs.open(self._path(file_path), mode, *args, **kwargs)

    list = _forwarded("list")
    stat = _forwarded("stat")
    isdir = _forwarded("isdir")
    mkdir = _forwarded("mkdir")
    makedirs = _forwarded("makedirs")
    exists = _forwarded("exists")
    rename = _forwarded("rename")
    remove = _forwarded("remove")

    def glob(self, pattern: str) -> Any:
        """Return the inner FS's paths that match a pattern."""
        return self.fs.glob(pattern)

    def _canonical_name(self, file_path: str) -> str:
        return self.fs._canonical_name(file_path)


class _CachedFiles(LayerFS):
    """The inner FS, whose files come from the web server."""

    def __init__(self, cached: HTTPCachedFS) -> None:
        super().__init__(cached.fs.fsabs)
        self._cached = cached

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        cached = self._cached
        path = f"/{key}"
        if isinstance(cached.fs, Zip):  # whose names are made of paths from its `cwd`
            path = posixpath.relpath(path, f"/{cached.fs.cwd}")
        name = cached.fs._canonical_name(path)
        content = cached.conn.get(name)
        if content is None:
            blob = self.inner._open_blob(key)
            if blob.size >= cached.max_cache_size:
                return blob
            with blob:
                content = blob.read_all()
            cached.conn.put(name, content)
        return BytesBlob(self, key, content)
