"""Caches: of items, in memory and in files, with PFIO's interface; and of files, behind `from_url(cache=)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .cachedfs import CachedFS
    from .codecs import Codec
    from .filecache import FileCache, MultiprocessFileCache, ReadOnlyFileCache
    from .http import HTTPCache, HTTPConnector
    from .httpfs import HTTPCachedFS
    from .items import Cache, NaiveCache
    from .layering import cached, http_cached

_HOMES = {
    "Cache": "items",
    "CachedFS": "cachedfs",
    "Codec": "codecs",
    "FileCache": "filecache",
    "HTTPCache": "http",
    "HTTPCachedFS": "httpfs",
    "HTTPConnector": "http",
    "MultiprocessFileCache": "filecache",
    "NaiveCache": "items",
    "ReadOnlyFileCache": "filecache",
    "cached": "layering",
    "http_cached": "layering",
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
    "cached",
    "http_cached",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
