"""Objects written to an S3 store, and listings of many: ours, and the clients that people use.

All write `count` objects of `size` bytes to the bucket `bucket`, each with a content of its own. What costs once (a
client, its first connection) is paid before the first round.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from . import Run, for_each, library, stores, whole
from .stores import obstore, ours


def _contents(count: int, size: int) -> list[tuple[str, bytes]]:
    noise = os.urandom(size + count)
    return [(f"new/{number:05}.bin", noise[number : number + size]) for number in range(count)]


def _each(write: Callable[[str, bytes], Any], pairs: list[tuple[str, bytes]], threads: int = 1) -> Run:
    """Write all, in one thread or shared out to several."""
    write(*pairs[0])
    return for_each(lambda pair: write(*pair), pairs, threads)


def fsabs_write_bytes(endpoint: str, count: int, size: int, cloud: str = "s3") -> Run:
    """`fs.write_bytes`, one by one."""
    return _each(ours(endpoint, cloud).write_bytes, _contents(count, size))


def fsabs_write_many(endpoint: str, count: int, size: int, cloud: str = "s3") -> Run:
    """`fs.write_many` of all."""
    fs, pairs = ours(endpoint, cloud), _contents(count, size)
    fs.write_bytes(*pairs[0])
    return lambda: whole(range(fs.write_many(pairs)), count)


def fsabs_pack(source: str, endpoint: str, count: int, name: str) -> Run:
    """`fsabs.pack` of the bucket at `source` into a container at `endpoint`."""
    tree, target, pack = ours(source), ours(endpoint), library("fsabs").pack
    target.write_bytes("first", b"1")
    return lambda: whole(range(pack(tree, target, name).files), count)


def obstore_put(endpoint: str, count: int, size: int, threads: int = 1, cloud: str = "s3") -> Run:
    """`put`."""
    return _each(obstore(endpoint, cloud).put, _contents(count, size), threads)


def boto3_put(endpoint: str, count: int, size: int) -> Run:
    """`put_object`."""
    client = stores.boto3(endpoint)
    return _each(lambda name, data: client.put_object(Bucket="bucket", Key=name, Body=data), _contents(count, size))


def fsabs_upload(endpoint: str, size: int, cloud: str = "s3") -> Run:
    """`fs.write_bytes` of a large object."""
    return _each(ours(endpoint, cloud).write_bytes, [("large", os.urandom(size))])


def fsabs_upload_file(endpoint: str, size: int, step: int) -> Run:
    """`fs.open`, and writes of `step` bytes."""
    fs, data = ours(endpoint), os.urandom(step)
    fs.write_bytes("first", b"1")

    def run() -> None:
        with fs.open("large", "wb") as file:
            for _ in range(size // step):
                file.write(data)

    return run


def obstore_upload(endpoint: str, size: int, cloud: str = "s3") -> Run:
    """`put`, which sends parts."""
    return _each(obstore(endpoint, cloud).put, [("large", os.urandom(size))])


def boto3_upload(endpoint: str, size: int) -> Run:
    """`upload_fileobj`, which sends parts from ten threads."""
    client = stores.boto3(endpoint)
    return _each(
        lambda name, data: client.upload_fileobj(io.BytesIO(data), "bucket", name), [("large", os.urandom(size))]
    )


# ---- listings


def fsabs_list(endpoint: str, count: int, cloud: str = "s3") -> Run:
    """`fs.list` of names, recursive."""
    fs = ours(endpoint, cloud)
    return lambda: whole([name for name in fs.list(recursive=True) if not name.endswith("/")], count)


def fsabs_list_detail(endpoint: str, count: int, cloud: str = "s3") -> Run:
    """`fs.list` of stats, recursive."""
    fs = ours(endpoint, cloud)
    return lambda: whole([stat for stat in fs.list(recursive=True, detail=True) if not stat.directory], count)


def obstore_list(endpoint: str, count: int, cloud: str = "s3") -> Run:
    """`list`, in chunks of 1,000: dictionaries of path, size, time and ETag."""
    store = obstore(endpoint, cloud)
    return lambda: whole([entry for chunk in store.list(chunk_size=1000) for entry in chunk], count)


def boto3_list(endpoint: str, count: int) -> Run:
    """A paginator: one request after the other."""
    client = stores.boto3(endpoint)

    def run() -> None:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        whole([entry for page in pages for entry in page["Contents"]], count)

    return run
