"""Caches of files: `names` in the local folder `path`, of `size` bytes each, all in the cache before the rounds.

What a contestant keeps lies below `$FSABS_CACHE_DIR`, and goes when the process ends.
"""

from __future__ import annotations

from typing import Any

from . import Run, all_whole, by_open, library, one_by_one, stores
from .items import new_folder
from .loaders import ours


def _cached(path: str, **options: Any) -> Any:
    inner = library("fsabs").from_url(path)
    return library("fsabs.cache").CachedFS(inner, new_folder(), **options)


def _warmed(read: Any, names: list[str]) -> Any:
    for name in names:
        read(name)
    return read


def fsabs_open(path: str, names: list[str], size: int) -> Run:
    """`CachedFS` as it is without options: `fs.open` and `read`."""
    return one_by_one(_warmed(by_open(_cached(path).open), names), names, size)


def fsabs_disk(path: str, names: list[str], size: int) -> Run:
    """`CachedFS` without its memory: each hit is read from the disk's cache, and checked."""
    return one_by_one(_warmed(by_open(_cached(path, memory_bytes=0).open), names), names, size)


def fsabs_many(path: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all, from the disk's cache."""
    fs = _cached(path, memory_bytes=0)
    fs.warm(progress=lambda files, done: None)
    return lambda: all_whole(fs.read_many(names), len(names), size)


def fsspec(path: str, names: list[str], size: int, protocol: str) -> Run:
    """fsspec's `simplecache` or `blockcache` over its local files."""
    fs = library("fsspec").filesystem(protocol, target_protocol="file", cache_storage=new_folder())
    read = by_open(lambda name, mode: fs.open(f"{path}/{name}", mode))
    return one_by_one(_warmed(read, names), names, size)


def epoch_local(path: str, names: list[str], batch: int) -> Run:
    """An epoch of torch's DataLoader, from local files."""
    return ours(library("fsabs").from_url(path), names, batch)


def epoch_cached(endpoint: str, names: list[str], batch: int) -> Run:
    """Epochs from S3 through a `CachedFS` as it is by default; the round that warms up is the first."""
    return ours(library("fsabs.cache").CachedFS(stores.ours(endpoint), new_folder()), names, batch)
