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
from .stores import KEY, ours
from .stores import obstore as store_of


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


def fsabs_read_many(
    endpoint: str, names: list[str], size: int, concurrency: int | None = None, cloud: str = "s3"
) -> Run:
    """`fs.read_many` of all names."""
    fs = ours(endpoint, cloud)

    def run() -> None:
        count = 0
        for data in fs.read_many(names, concurrency=concurrency):
            whole(data, size)
            count += 1
        whole(range(count), len(names))

    return run


def fsabs_read_bytes(endpoint: str, names: list[str], size: int, cloud: str = "s3") -> Run:
    """`fs.read_bytes`, one by one."""
    return one_by_one(ours(endpoint, cloud).read_bytes, names, size)


def fsabs_read_after_batch(endpoint: str, names: list[str], size: int, reset: bool) -> Run:
    """`fs.read_bytes` of one object after a batch over 32 connections, which a proxy has `reset` or kept."""
    proxy = library("tests.servers.network").FaultProxy.before(endpoint).__enter__()
    fs = ours(proxy.endpoint)

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
    fs = ours(endpoint)

    def read(name: str) -> Any:
        with fs.open(name, "rb") as file:
            return file.read()

    return one_by_one(read, names, size)


def obstore(endpoint: str, names: list[str], size: int, threads: int = 1, cloud: str = "s3") -> Run:
    """Rust's object_store."""
    store = store_of(endpoint, cloud)
    return one_by_one(lambda name: store.get(name).bytes(), names, size, threads)


def obstore_ranges(endpoint: str, size: int, threads: int, step: int) -> Run:
    """`get_ranges` of `large.bin`: each thread asks for its share of the ranges of `step` bytes."""
    store, pool, starts = store_of(endpoint), ThreadPoolExecutor(threads), range(0, size, step)

    def some(share: range) -> int:
        return sum(map(len, store.get_ranges("large.bin", starts=share, lengths=[step] * len(share))))

    def run() -> None:
        whole(range(sum(pool.map(some, (starts[first::threads] for first in range(threads))))), size)

    return run


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

    return _cats(fs, names, size)


def s3torchconnector(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`get_object` and `read` of AWS's client for torch."""
    client = library("s3torchconnector._s3client").S3Client("us-east-1", endpoint=endpoint)
    return one_by_one(lambda name: client.get_object("bucket", name).read(), names, size, threads)


def gcsfs(endpoint: str, names: list[str], size: int) -> Run:
    """`cat` of many at a time; by HTTP, since gRPC waits for a minute for a server that has none."""
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    fs = library("gcsfs").GCSFileSystem(endpoint_url=endpoint, token="anon", project="p")
    return _cats(fs, names, size)


def adlfs(endpoint: str, names: list[str], size: int) -> Run:
    """`cat` of many at a time."""
    fields = {"AccountName": "account", "AccountKey": KEY, "BlobEndpoint": f"{endpoint}/account"}
    text = ";".join(f"{name}={value}" for name, value in fields.items())
    return _cats(library("adlfs").AzureBlobFileSystem(account_name="account", connection_string=text), names, size)


def _cats(fs: Any, names: list[str], size: int) -> Run:
    def run() -> None:
        for start in range(0, len(names), 64):
            for data in fs.cat([f"bucket/{name}" for name in names[start : start + 64]]).values():
                whole(data, size)

    return run


def multi_storage_client(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """NVIDIA's client with its `rust_client`, which takes an endpoint of one's own for S3 alone."""
    library_ = library("multistorageclient")
    rust = {"allow_http": True}
    options = {"base_path": "bucket", "region_name": "us-east-1", "endpoint_url": endpoint, "rust_client": rust}
    profiles = {"profiles": {"p": {"storage_provider": {"type": "s3", "options": options}}}}
    client = library_.StorageClient(library_.StorageClientConfig.from_dict(profiles, profile="p"))
    return one_by_one(client.read, names, size, threads)


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
    fs = ours(endpoint)
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
    store = store_of(endpoint)

    def run() -> None:
        whole(range(sum(len(piece) for piece in store.get(name).stream(min_chunk_size=step))), size)

    return run


def obstore_reader(endpoint: str, name: str, size: int, step: int) -> Run:
    """`open_reader`: ranges of `step`."""
    library_ = library("obstore")
    store = store_of(endpoint)

    def run() -> None:
        reader = library_.open_reader(store, name, buffer_size=step)
        pieces = iter(lambda: reader.read(step), b"")
        whole(range(sum(len(piece) for piece in itertools.takewhile(len, pieces))), size)

    return run
