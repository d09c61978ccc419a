"""Objects of an S3 store, whole: ours, and the clients that people use.

All take `endpoint`, `names` (keys in the bucket `bucket`) and `size`, the bytes of each. What costs once (a client, its
first connection) is paid before the first round.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import Run, all_whole, by_open, for_each, library, one_by_one, stores, whole
from .stores import KEY, ours
from .stores import obstore as store_of


def fsabs_read_many(
    endpoint: str, names: list[str], size: int, concurrency: int | None = None, cloud: str = "s3"
) -> Run:
    """`fs.read_many` of all names."""
    fs = ours(endpoint, cloud)
    return lambda: all_whole(fs.read_many(names, concurrency=concurrency), len(names), size)


def fsabs_read_bytes(endpoint: str, names: list[str], size: int, cloud: str = "s3") -> Run:
    """`fs.read_bytes`, one by one."""
    return one_by_one(ours(endpoint, cloud).read_bytes, names, size)


def fsabs_open(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read`, one by one."""
    return one_by_one(by_open(ours(endpoint).open), names, size)


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
    client = stores.boto3(endpoint)
    return one_by_one(lambda name: client.get_object(Bucket="bucket", Key=name)["Body"].read(), names, size, threads)


def pyarrow(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """`open_input_file` and `read`: AWS's C++ client."""
    fs = stores.pyarrow(endpoint)
    return one_by_one(by_open(lambda name, _: fs.open_input_file(f"bucket/{name}")), names, size, threads)


def pfio(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read` of PFIO v2."""
    return one_by_one(by_open(library("pfio.v2").from_url("s3://bucket/", endpoint=endpoint).open), names, size)


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
    batches = [[f"bucket/{name}" for name in names[start : start + 64]] for start in range(0, len(names), 64)]
    return for_each(lambda batch: all_whole(fs.cat(batch).values(), len(batch), size), batches)


def multi_storage_client(endpoint: str, names: list[str], size: int, threads: int = 1) -> Run:
    """NVIDIA's client with its `rust_client`, which takes an endpoint of one's own for S3 alone."""
    module = library("multistorageclient")
    rust = {"allow_http": True}
    options = {"base_path": "bucket", "region_name": "us-east-1", "endpoint_url": endpoint, "rust_client": rust}
    profiles = {"profiles": {"p": {"storage_provider": {"type": "s3", "options": options}}}}
    client = module.StorageClient(module.StorageClientConfig.from_dict(profiles, profile="p"))
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
    client = stores.boto3(endpoint)
    return _sequential(lambda: client.get_object(Bucket="bucket", Key=name)["Body"], size, step)


def pyarrow_stream(endpoint: str, name: str, size: int, step: int) -> Run:
    """`open_input_stream`."""
    fs = stores.pyarrow(endpoint)
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
    module, store = library("obstore"), store_of(endpoint)

    def run() -> None:
        reader = module.open_reader(store, name, buffer_size=step)
        pieces = itertools.takewhile(len, iter(lambda: reader.read(step), None))
        whole(range(sum(map(len, pieces))), size)

    return run
