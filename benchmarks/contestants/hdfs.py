"""Small operations on HDFS: stats, opens, writes and listings below `url`, by fsabs and by hdfs-native."""

from __future__ import annotations

import itertools
import os
from typing import Any

from . import Run, by_open, for_each, library, one_by_one, whole


def fsabs_stat(url: str, names: list[str]) -> Run:
    """`fs.stat`."""
    return for_each(library("fsabs").from_url(url).stat, names)


def fsabs_list(url: str, entries: int) -> Run:
    """`fs.list(detail=True)`."""
    fs = library("fsabs").from_url(url)
    return lambda: whole(list(fs.list(detail=True)), entries)


def fsabs_write(url: str, count: int, size: int) -> Run:
    """`fs.write_bytes`: under a hidden name, checked, and renamed."""
    fs = library("fsabs").from_url(url, create=True)
    data, numbers = os.urandom(size), itertools.count()
    return for_each(lambda _: fs.write_bytes(f"{os.getpid()}-{next(numbers)}", data), range(count))


def fsabs_write_many(url: str, count: int, size: int) -> Run:
    """`fs.write_many`."""
    fs = library("fsabs").from_url(url, create=True)
    data, numbers = os.urandom(size), itertools.count()
    return lambda: fs.write_many((f"{os.getpid()}-{next(numbers)}", data) for _ in range(count)) and None


def fsabs_read_large(url: str, size: int) -> Run:
    """`fs.read_bytes` of one large file."""
    folder, _, name = url.rpartition("/")
    return one_by_one(library("fsabs").from_url(folder).read_bytes, [name], size)


def native(url: str) -> tuple[Any, str]:
    """Return hdfs-native's client, and the path on it."""
    scheme, _, rest = url.partition("://")
    host, _, folder = rest.partition("/")
    return library("hdfs_native").Client(f"{scheme}://{host}"), f"/{folder}"


def native_stat(url: str, names: list[str]) -> Run:
    """`Client.get_file_info`."""
    client, folder = native(url)
    return for_each(lambda name: client.get_file_info(f"{folder}/{name}"), names)


def native_list(url: str, entries: int) -> Run:
    """`Client.list_status`, and the path, length and time of each."""
    client, folder = native(url)
    return lambda: whole([(s.path, s.length, s.modification_time) for s in client.list_status(folder)], entries)


def native_write(url: str, count: int, size: int) -> Run:
    """`Client.create`, `write` and `close`: in place, and not checked."""
    client, folder = native(url)
    data, numbers = os.urandom(size), itertools.count()

    def write(_: int) -> None:
        with client.create(f"{folder}/{os.getpid()}-{next(numbers)}") as file:
            file.write(data)

    return for_each(write, range(count))


def native_read_large(url: str, size: int) -> Run:
    """`Client.read` and `read` of one large file."""
    client, path = native(url)
    return one_by_one(by_open(lambda name, _: client.read(name)), [path], size)
