"""Caches of files: `names` in the local folder `path`, of `size` bytes each, all in the cache before the rounds.

What a contestant keeps lies below `$FSABS_CACHE_DIR`, and goes when the process ends.
"""

from __future__ import annotations

from typing import Any

from . import Run, library, whole
from .items import _folder
from .loaders import _ours
from .objects import one_by_one
from .zips import _by_open


def _cached(path: str, **options: Any) -> Any:
    inner = library("fsabs").from_url(path)
    return library("fsabs.cache").CachedFS(inner, _folder(), **options)


def _warmed(read: Any, names: list[str]) -> Any:
    for name in names:
        read(name)
    return read


def fsabs_open(path: str, names: list[str], size: int) -> Run:
    """`CachedFS` as it is without options: `fs.open` and `read`."""
    return one_by_one(_warmed(_by_open(_cached(path).open), names), names, size)


def fsabs_disk(path: str, names: list[str], size: int) -> Run:
    """`CachedFS` without its memory: each hit is read from the disk's cache, and checked."""
    return one_by_one(_warmed(_by_open(_cached(path, memory_bytes=0).open), names), names, size)


def fsabs_many(path: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all, from the disk's cache."""
    fs = _cached(path, memory_bytes=0)
    fs.warm(progress=lambda files, done: None)

    def run() -> None:
        for data in fs.read_many(names):
            whole(data, size)

    return run


def fsspec(path: str, names: list[str], size: int, protocol: str) -> Run:
    """fsspec's `simplecache` or `blockcache` over its local files."""
    fs = library("fsspec").filesystem(protocol, target_protocol="file", cache_storage=_folder())

    def read(name: str) -> bytes:
        with fs.open(f"{path}/{name}", "rb") as file:
            data: bytes = file.read()
            return data

    return one_by_one(_warmed(read, names), names, size)


def epoch_local(path: str, names: list[str], batch: int) -> Run:
    """An epoch of torch's DataLoader, from local files."""
    return _ours(library("fsabs").from_url(path), names, batch)


def epoch_cached(endpoint: str, bucket: str, names: list[str], batch: int) -> Run:
    """Epochs from S3 through a `CachedFS` as it is by default; the round that warms up is the first."""
    keys: dict[str, Any] = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "us-east-1"}
    inner = library("fsabs").from_url(f"s3://{bucket}", endpoint=endpoint, **keys)
    fs = library("fsabs.cache").CachedFS(inner, _folder())
    return _ours(fs, names, batch)
