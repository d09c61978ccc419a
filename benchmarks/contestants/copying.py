"""Copies and renames of objects by an S3 store: ours, and the clients that people use.

All copy `from/NUMBER.bin` of the bucket, one after the other; what is renamed is renamed back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Run, for_each, stores
from .stores import obstore, ours


def _copies(copy: Callable[[str, str], Any], count: int, name: str) -> Run:
    pairs = [(f"from/{number:05}.bin", f"{name}/{number:05}.bin") for number in range(count)]
    return for_each(lambda pair: copy(*pair), pairs)


def _renames(put: Callable[[str, bytes], Any], rename: Callable[[str, str], Any], count: int, name: str) -> Run:
    pairs = [(f"{name}/here/{number:05}.bin", f"{name}/there/{number:05}.bin") for number in range(count // 2)]
    for source, _ in pairs:
        put(source, bytes(100_000))
    return for_each(lambda pair: rename(*pair), pairs + [(target, source) for source, target in pairs])


def fsabs_copy(endpoint: str, count: int) -> Run:
    """`fs.copy`."""
    return _copies(ours(endpoint).copy, count, "ours")


def fsabs_rename(endpoint: str, count: int) -> Run:
    """`fs.rename`."""
    fs = ours(endpoint)
    return _renames(fs.write_bytes, fs.rename, count, "ours")


def obstore_copy(endpoint: str, count: int) -> Run:
    """`copy`."""
    return _copies(obstore(endpoint).copy, count, "theirs")


def obstore_rename(endpoint: str, count: int) -> Run:
    """`rename`."""
    store = obstore(endpoint)
    return _renames(store.put, store.rename, count, "theirs")


def boto3_copy(endpoint: str, count: int) -> Run:
    """`copy_object`."""
    client = stores.boto3(endpoint)

    def copy(source: str, target: str) -> None:
        client.copy_object(Bucket="bucket", Key=target, CopySource={"Bucket": "bucket", "Key": source})

    return _copies(copy, count, "botos")
