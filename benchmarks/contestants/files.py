"""Files of a local directory and of HDFS, whole: `names` below `path` or `url`, of `size` bytes each."""

from __future__ import annotations

from typing import Any

from . import Run, all_whole, by_open, library, one_by_one
from .hdfs import native


def fsabs_read_bytes(path: str, names: list[str], size: int) -> Run:
    """`fs.read_bytes`, from a directory or any URL."""
    return one_by_one(library("fsabs").from_url(path).read_bytes, names, size)


def fsabs_open(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read`."""
    return one_by_one(by_open(library("fsabs").from_url(path).open), names, size)


def fsabs_read_many(path: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all names."""
    fs = library("fsabs").from_url(path)
    return lambda: all_whole(fs.read_many(names), len(names), size)


def builtin_open(path: str, names: list[str], size: int) -> Run:
    """Python's own."""
    return one_by_one(by_open(lambda name, mode: open(f"{path}/{name}", mode)), names, size)


def pfio(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read` of PFIO v2."""
    return one_by_one(by_open(library("pfio.v2").from_url(path).open), names, size)


def fsspec(path: str, names: list[str], size: int) -> Run:
    """`cat_file` of its local filesystem."""
    cat_file: Any = library("fsspec").filesystem("file").cat_file
    return one_by_one(lambda name: cat_file(f"{path}/{name}"), names, size)


def hdfs_native(url: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`Client.read` and `read`: Rust, without a JVM."""
    client, folder = native(url)
    return one_by_one(by_open(lambda name, _: client.read(f"{folder}/{name}")), names, size, threads)
