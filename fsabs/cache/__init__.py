"""Caches: of items, in memory and in files, with PFIO's interface; and of files, behind `from_url(cache=)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import exports

if TYPE_CHECKING:
    from .cachedfs import CachedFS
    from .http import HTTPConnector
    from .httpfs import HTTPCachedFS
    from .items.base import Cache, NaiveCache
    from .items.codecs import Codec
    from .items.files import FileCache, MultiprocessFileCache, ReadOnlyFileCache
    from .items.http import HTTPCache


_HOMES = {
    "Cache": "items.base",
    "CachedFS": "cachedfs",
    "Codec": "items.codecs",
    "FileCache": "items.files",
    "HTTPCache": "items.http",
    "HTTPCachedFS": "httpfs",
    "HTTPConnector": "http",
    "MultiprocessFileCache": "items.files",
    "NaiveCache": "items.base",
    "ReadOnlyFileCache": "items.files",
}

__all__ = [
    "Cache",
    "CachedFS",
    "Codec",
    "FileCache",
    "HTTPCache",
    "HTTPCachedFS",
    "HTTPConnector",
    "MultiprocessFileCache",
    "NaiveCache",
    "ReadOnlyFileCache",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
