"""Objects of an S3 store, whole: ours, and the clients that people use.

All take `endpoint`, `names` (keys in the bucket `bucket`) and `size`, the bytes of each. What costs once (a client, its
first connection) is paid before the first round.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import Run, library, whole


def one_by_one(read: Callable[[str], Any], names: list[str], size: int, threads: int = 1) -> Run:
    """Read all, in one thread or shared out to several."""

    def some(share: list[str]) -> None:
        for name in share:
            whole(read(name), size)

    if threads == 1:
        return lambda: some(names)
    pool = ThreadPoolExecutor(threads)
    shares = [names[start::threads] for start in range(threads)]

    def all_of_them() -> None:
        for _ in pool.map(some, shares):
            pass

    return all_of_them


def _ours(endpoint: str) -> Any:
    return library("fsabs").from_url("s3://bucket", endpoint=endpoint, region="us-east-1")


def fsabs_read_many(endpoint: str, names: list[str], size: int, concurrency: int | None = None) -> Run:
    """`fs.read_many` of all names."""
    fs = _ours(endpoint)

    def run() -> None:
        count = 0
        for data in fs.read_many(names, concurrency=concurrency):
            whole(data, size)
            count += 1
        whole(range(count), len(names))

    return run


def fsabs_read_bytes(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.read_bytes`, one by one."""
    return one_by_one(_ours(endpoint).read_bytes, names, size)


def fsabs_read_after_batch(endpoint: str, names: list[str], size: int, reset: bool) -> Run:
    """`fs.read_bytes` of one object after a batch over 32 connections, which a proxy has `reset` or kept."""
    proxy = library("tests.servers.network").FaultProxy.before(endpoint).__enter__()
    fs = _ours(proxy.endpoint)

    def run() -> dict[str, float]:
        whole(list(fs.read_many(names, concurrency=32)), len(names))
        if reset:
            proxy.break_connections()
        time.sleep(0.05)  # until the resets have arrived
        begin = time.perf_counter()
        whole(fs.read_bytes(names[0]), size)
        return {"seconds": time.perf_counter() - begin}

    return run


def fsabs_open(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read`, one by one."""
    fs = _ours(endpoint)

    def read(name: str) -> Any:
        with fs.open(name, "rb") as file:
            return file.read()

    return one_by_one(read, names, size)


def obstore(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """Rust's object_store. It looks for authorities only in its own list: for TLS it is told not to check."""
    plain = endpoint.startswith("http:")
    client = {"allow_http": True} if plain else {"allow_invalid_certificates": True}
    store = library("obstore.store").S3Store("bucket", endpoint=endpoint, region="us-east-1", client_options=client)
    return one_by_one(lambda name: store.get(name).bytes(), names, size, threads)


def boto3(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`get_object` and `read`."""
    client = library("boto3").client("s3", endpoint_url=endpoint)
    return one_by_one(lambda name: client.get_object(Bucket="bucket", Key=name)["Body"].read(), names, size, threads)


def pyarrow(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`open_input_file` and `read`: AWS's C++ client."""
    scheme, _, host = endpoint.partition("://")
    fs = library("pyarrow.fs").S3FileSystem(endpoint_override=host, scheme=scheme, region="us-east-1")

    def read(name: str) -> Any:
        with fs.open_input_file(f"bucket/{name}") as file:
            return file.read()

    return one_by_one(read, names, size, threads)


def pfio(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read` of PFIO v2."""
    fs = library("pfio.v2").from_url("s3://bucket/", endpoint=endpoint)

    def read(name: str) -> Any:
        with fs.open(name, "rb") as file:
            return file.read()

    return one_by_one(read, names, size)


def s3fs(endpoint: str, names: list[str], size: int) -> Run:
    """`cat` of many at a time, which is how s3fs is fast."""
    fs = library("s3fs").S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True, use_listings_cache=False)

    def run() -> None:
        for start in range(0, len(names), 64):
            for data in fs.cat([f"bucket/{name}" for name in names[start : start + 64]]).values():
                whole(data, size)

    return run


def s3torchconnector(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`get_object` and `read` of AWS's client for torch."""
    client = library("s3torchconnector._s3client").S3Client("us-east-1", endpoint=endpoint)
    return one_by_one(lambda name: client.get_object("bucket", name).read(), names, size, threads)


def s3dlio(endpoint: str, names: list[str], size: int) -> Run:
    """`get`, which returns a view of the object's bytes."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    get = library("s3dlio").get
    return one_by_one(lambda name: get(f"s3://bucket/{name}"), names, size)


# ---- one large object, in order


def _sequential(opened: Callable[[], Any], size: int, step: int) -> Run:
    def run() -> None:
        total = 0
        with opened() as file:
            while data := file.read(step):
                total += len(data)
        whole(range(total), size)

    return run


def fsabs_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """`read(step)` until the end."""
    fs = _ours(endpoint)
    return _sequential(lambda: fs.open(name, "rb"), size, step)


def boto3_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """`get_object` and `read(step)` of its body, which is a context manager."""
    client = library("boto3").client("s3", endpoint_url=endpoint)
    return _sequential(lambda: client.get_object(Bucket="bucket", Key=name)["Body"], size, step)


def pyarrow_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """`open_input_stream`."""
    scheme, _, host = endpoint.partition("://")
    fs = library("pyarrow.fs").S3FileSystem(endpoint_override=host, scheme=scheme, region="us-east-1")
    return _sequential(lambda: fs.open_input_stream(f"bucket/{name}"), size, step)


def s3torchconnector_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """Its sequential reader."""
    client = library("s3torchconnector._s3client").S3Client("us-east-1", endpoint=endpoint)
    return _sequential(lambda: client.get_object("bucket", name), size, step)


def obstore_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """`get` and its stream, in pieces of at least `step`."""
    store = library("obstore.store").S3Store(
        "bucket", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
    )

    def run() -> None:
        whole(range(sum(len(piece) for piece in store.get(name).stream(min_chunk_size=step))), size)

    return run


def obstore_reader(endpoint: str, name: str, size: int, step: int) -> Run:
    """`open_reader`: ranges of `step`."""
    library_ = library("obstore")
    store = library("obstore.store").S3Store(
        "bucket", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
    )

    def run() -> None:
        reader = library_.open_reader(store, name, buffer_size=step)
        pieces = iter(lambda: reader.read(step), b"")
        whole(range(sum(len(piece) for piece in itertools.takewhile(len, pieces))), size)

    return run
