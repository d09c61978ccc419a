"""Members of zips, on S3 and on local disk."""

from __future__ import annotations

import functools
import os
import shutil
import time
from pathlib import Path
from typing import Any

from . import Run, all_whole, by_open, for_each, library, one_by_one
from .stores import ours

# ---- on S3: `bucket/train.zip` at `endpoint`, the members `wanted`, each of `size` bytes


def _many(fs: Any, wanted: list[str], size: int) -> None:
    all_whole(fs.read_many(wanted), len(wanted), size)


def fsabs_s3(endpoint: str, wanted: list[str], size: int, how: str) -> Run:
    """From the URL to the bytes by `read_many`, with no index kept (`first`) or one (`mapped`); or once `open`."""
    kept = Path(os.environ["FSABS_CACHE_DIR"], how)  # of this contestant alone
    os.environ["FSABS_CACHE_DIR"] = str(kept)
    if how == "open":
        return functools.partial(_many, ours(endpoint, path="/train.zip"), wanted, size)

    def run() -> None:
        if how == "first":
            shutil.rmtree(kept, ignore_errors=True)
        with ours(endpoint, path="/train.zip") as fs:
            _many(fs, wanted, size)

    return run


def s3fs(endpoint: str, wanted: list[str], size: int, block_cache: bool = False) -> Run:
    """zipfile over an s3fs file, from the URL to the bytes; with its default read-ahead, or its block cache."""
    zipfile = library("zipfile")

    def run() -> None:
        fs = library("s3fs").S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True)
        kind = {"cache_type": "blockcache"} if block_cache else {}
        with fs.open("bucket/train.zip", "rb", **kind) as file, zipfile.ZipFile(file) as archive:
            one_by_one(archive.read, wanted, size)()

    return run


def pfio_s3(endpoint: str, wanted: list[str], size: int) -> Run:
    """PFIO's `from_url` of a zip, from the URL to the bytes."""

    def run() -> None:
        with library("pfio.v2").from_url("s3://bucket/train.zip", endpoint=endpoint) as fs:
            one_by_one(by_open(fs.open), wanted, size)()

    return run


# ---- on local disk, the archive open


def fsabs_local(path: str, names: list[str], size: int) -> Run:
    """`fs.read_bytes`."""
    return one_by_one(library("fsabs").from_url(path).read_bytes, names, size)


def fsabs_local_first(path: str, names: list[str], size: int) -> Run:
    """`fs.read_bytes` of members that were never asked for: the archive is opened anew, which isn't counted."""

    def run() -> dict[str, float]:
        with library("fsabs").from_url(path) as fs:
            start = time.perf_counter()
            one_by_one(fs.read_bytes, names, size)()
            return {"seconds": time.perf_counter() - start}

    return run


def fsabs_local_many(path: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of batches of 64, as a training loop asks for them."""
    fs = library("fsabs").from_url(path)
    batches = [names[start : start + 64] for start in range(0, len(names), 64)]
    return for_each(lambda batch: _many(fs, batch, size), batches)


def fsabs_local_open(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read`."""
    return one_by_one(by_open(library("fsabs").from_url(path).open), names, size)


def zipfile_local(path: str, names: list[str], size: int) -> Run:
    """`ZipFile.read`."""
    return one_by_one(library("zipfile").ZipFile(path).read, names, size)


def pfio_local(path: str, names: list[str], size: int) -> Run:
    """`fs.open` and `read` of PFIO's zip."""
    return one_by_one(by_open(library("pfio.v2").from_url(path).open), names, size)
