"""What tells one file from another in a cache that outlives the process: the store, the URL, the version and the size.

A URL alone doesn't: two S3 endpoints have the same `s3://bucket/key`, and what is in a process's memory is in nobody
else's.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from .. import process
from ..backends.memory import Memory
from ..containers.base import Container
from ..fs import FS, FileStat
from ..layers import LayerFS

SETTLED = 0.05
"""Seconds that a file must be old to be kept: a filesystem's clock ticks slowly (every 10 ms), and two contents that
are written within a tick may have one version."""

_token: process.PerProcess[str] = process.PerProcess(lambda: secrets.token_hex(8))


def backend_of(fs: FS) -> FS:
    """What is undermost, below layers and containers."""
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs._parent
    return fs


def has_slow_clock(fs: FS) -> bool:
    """Whether two contents that are written within a tick of a clock may have one version.

    Where versions are made of times, as they are on filesystems; S3's are made of the content.
    """
    return not isinstance(backend_of(fs), Memory) and fs.scheme != "s3"


def is_asked_by_request(fs: FS) -> bool:
    """Whether to ask what a file is takes a request, which could as well bring the file's start along.

    Not so where one has to know how old a file is.
    """
    return fs.default_concurrency > 1 and not knows_its_members(fs) and not has_slow_clock(fs)


def knows_its_members(fs: FS) -> bool:
    """Whether it is a container, whose list tells what its members are: nothing has to be asked for that."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return isinstance(fs, Container)


def settled(stat: FileStat) -> bool:
    """Whether a file is old enough for its version to be no other content's, where clocks are slow."""
    return stat.last_modified is None or time.time() - stat.last_modified > SETTLED


def store_of(fs: FS) -> str:
    """What names the store that the URLs of `fs` are of, where they don't say it themselves."""
    fs = backend_of(fs)
    if isinstance(fs, Memory):
        return f"process {_token.get()}"
    if fs.scheme == "s3":
        return getattr(getattr(fs, "options", None), "endpoint", None) or ""
    return ""


def name_of(store: str, url: str, version: str, size: int) -> bytes:
    """The name of one content of one file."""
    return f"{store}\0{url}\0{version}\0{size}".encode("utf-8", "surrogateescape")


def digest(name: bytes) -> str:
    """40 hexadecimal digits that stand for a name."""
    return hashlib.blake2b(name, digest_size=20).hexdigest()
