"""Files of a local directory and of HDFS, whole: `names` below `path` or `url`, of `size` bytes each."""

from __future__ import annotations

from typing import Any

from . import Run, library, whole
from .objects import one_by_one
from .zips import _by_open


def fsabs_read_bytes(path: str, names: list[str], size: int) -> Run:
    """`fs.read_bytes`, from a directory or any URL."""
    return one_by_one(library("fsabs").from_url(path).read_bytes, names, size)


def fsabs_open(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read`."""
    return one_by_one(_by_open(library("fsabs").from_url(path).open), names, size)


def fsabs_read_many(path: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all names."""
    fs = library("fsabs").from_url(path)

    def run() -> None:
        count = 0
        for data in fs.read_many(names):
            whole(data, size)
            count += 1
        whole(range(count), len(names))

    return run


def builtin_open(path: str, names: list[str], size: int) -> Run:
    """Python's own."""

    def read(name: str) -> bytes:
        with open(f"{path}/{name}", "rb") as file:
            return file.read()

    return one_by_one(read, names, size)


def pfio(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read` of PFIO v2."""
    return one_by_one(_by_open(library("pfio.v2").from_url(path).open), names, size)


def fsspec(path: str, names: list[str], size: int) -> Run:
    """`cat_file` of its local filesystem."""
    fs = library("fsspec").filesystem("file")

    def read(name: str) -> Any:
        return fs.cat_file(f"{path}/{name}")

    return one_by_one(read, names, size)


def hdfs_native(url: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`Client.read` and `read`: Rust, without a JVM."""
    scheme, _, rest = url.partition("://")
    host, _, folder = rest.partition("/")
    client = library("hdfs_native").Client(f"{scheme}://{host}")

    def read(name: str) -> Any:
        with client.read(f"/{folder}/{name}") as file:
            return file.read()

    return one_by_one(read, names, size, threads)
