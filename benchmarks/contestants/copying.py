"""Copies and renames of objects by an S3 store: ours, and the clients that people use.

All copy `from/NUMBER.bin` of the bucket `bench`, one after the other; what is renamed is renamed back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Run, library


def _copies(copy: Callable[[str, str], Any], count: int, name: str) -> Run:
    pairs = [(f"from/{number:05}.bin", f"{name}/{number:05}.bin") for number in range(count)]

    def run() -> None:
        for source, target in pairs:
            copy(source, target)

    return run


def _renames(put: Callable[[str, bytes], Any], rename: Callable[[str, str], Any], count: int, name: str) -> Run:
    pairs = [(f"{name}/here/{number:05}.bin", f"{name}/there/{number:05}.bin") for number in range(count // 2)]
    for source, _ in pairs:
        put(source, bytes(100_000))

    def run() -> None:
        for source, target in pairs:
            rename(source, target)
        for source, target in pairs:
            rename(target, source)

    return run


def _ours(endpoint: str) -> Any:
    return library("fsabs").from_url("s3://bench", endpoint=endpoint, region="us-east-1")


def _obstore(endpoint: str) -> Any:
    options = {"allow_http": True}
    return library("obstore.store").S3Store("bench", endpoint=endpoint, region="us-east-1", client_options=options)


def fsabs_copy(endpoint: str, count: int) -> Run:
    """`fs.copy`."""
    return _copies(_ours(endpoint).copy, count, "ours")


def fsabs_rename(endpoint: str, count: int) -> Run:
    """`fs.rename`."""
    fs = _ours(endpoint)
    return _renames(fs.write_bytes, fs.rename, count, "ours")


def obstore_copy(endpoint: str, count: int) -> Run:
    """`copy`."""
    return _copies(_obstore(endpoint).copy, count, "theirs")


def obstore_rename(endpoint: str, count: int) -> Run:
    """`rename`."""
    store = _obstore(endpoint)
    return _renames(store.put, store.rename, count, "theirs")


def boto3_copy(endpoint: str, count: int) -> Run:
    """`copy_object`."""
    client = library("boto3").client("s3", endpoint_url=endpoint)

    def copy(source: str, target: str) -> None:
        client.copy_object(Bucket="bench", Key=target, CopySource={"Bucket": "bench", "Key": source})

    return _copies(copy, count, "botos")
