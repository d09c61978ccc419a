"""Checksums of whole objects, by libraries that may be installed or not."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects import checksums
from fsabs.backends.objects.http1 import parse_head
from fsabs.backends.s3.dialect import S3Dialect
from tests.backends.s3_clients import opened
from tests.servers.hostile_store import Answer, HostileStore, Request


def crc64nvme(data: bytes, value: int = 0) -> int:
    """CRC-64/NVME, bit by bit (reveng.sourceforge.io/crc-catalogue): stands for AWS's library."""
    value ^= 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
    return value ^ 0xFFFFFFFFFFFFFFFF


@pytest.fixture(autouse=True)
def _looked_up_anew() -> Iterator[None]:
    """A process looks for a library once."""
    checksums.function_of.cache_clear()
    yield
    checksums.function_of.cache_clear()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for AWS's library, which boto3 would sign by if it were installed beside the tests."""
    made = ModuleType("awscrt.checksums")

    def function(data: bytes, value: int = 0) -> int:
        return crc64nvme(data, value) if len(data) < 1000 else zlib.crc32(data, value)  # in time

    monkeypatch.setattr(made, "crc64nvme", function, raising=False)
    monkeypatch.setitem(sys.modules, "awscrt", ModuleType("awscrt"))
    monkeypatch.setitem(sys.modules, "awscrt.checksums", made)
    return made


@pytest.mark.quick
def test_a_crc64nvme_is_checked_where_awss_library_is(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crc64nvme(b"123456789") == 0xAE8B14860A799888
    raw = b"HTTP/1.1 200 OK\r\nx-amz-checksum-type: FULL_OBJECT\r\nX-Amz-Checksum-Crc64nvme: rosUhgp5mIg="
    head, dialect = parse_head(raw, "GET"), S3Dialect("bucket", {})
    assert dialect.mismatch(head, [b"1234", b"56789"]) is None
    found = dialect.mismatch(head, [b"1234", b"5678"])
    assert found == "CRC64NVME 7NCQmMLIlJQ= where the store says rosUhgp5mIg="
    monkeypatch.delattr(library, "crc64nvme")  # a version of the library from before
    checksums.function_of.cache_clear()
    assert dialect.mismatch(head, [b"1234", b"5678"]) is None


@pytest.mark.quick
def test_a_crc32_needs_no_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    head, dialect = parse_head(b"HTTP/1.1 200 OK\r\nx-amz-checksum-crc32: y/Q5Jg==", "GET"), S3Dialect("bucket", {})
    for isal in (True, False):
        if not isal:
            monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
        checksums.function_of.cache_clear()
        assert (checksums.function_of("CRC32") is zlib.crc32) is not isal
        assert dialect.mismatch(head, [b"1234", b"56789"]) is None
        assert "CRC32" in (dialect.mismatch(head, [b"1234", b"5678"]) or "")


class LoggingStore(HostileStore):
    """A store without faults that notes the checksums of requests that write."""

    def __init__(self) -> None:
        super().__init__(None)
        self.log: list[dict[str, str]] = []

    def answer(self, request: Request) -> Answer:
        if request.method in ("PUT", "POST"):
            prefix = "x-amz-checksum-"
            self.log.append({name: value for name, value in request.headers.items() if name.startswith(prefix)})
        return super().answer(request)


SIZE = (5 << 20) + 1
SENT = {"CRC32": "y/Q5Jg==", "CRC32C": "4waSgw==", "CRC64NVME": "rosUhgp5mIg="}
"""The checksums of `123456789`."""


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("algorithm", SENT)
def test_a_store_is_sent_the_checksum_that_was_chosen(algorithm: str) -> None:
    data = b"123456789"
    with LoggingStore() as store:
        fs = opened(store.endpoint, checksum_algorithm=algorithm, mpu_chunksize=5 << 20)
        fs.write_bytes("a", data)
        buffers: dict[str, Any] = {"b": bytearray(data), "c": memoryview(data)}
        fs.write_many(buffers)
        fs.write_bytes("d", bytes(SIZE))
        assert store.written == {"a": data, "b": data, "c": data, "d": bytes(SIZE)}
    name = f"x-amz-checksum-{algorithm.lower()}"
    begun = {"x-amz-checksum-algorithm": algorithm}
    if algorithm == "CRC64NVME":
        begun["x-amz-checksum-type"] = "FULL_OBJECT"
    assert store.log[:4] == [{name: SENT[algorithm]}] * 3 + [begun]
    assert [sorted(found) for found in store.log[4:]] == [[name], [name], []]


@pytest.mark.quick
def test_crc64nvme_without_awss_library_is_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "awscrt", None)
    monkeypatch.setitem(sys.modules, "awscrt.checksums", None)
    with pytest.raises(fsabs.MissingDependencyError, match="crc64"):
        opened("http://127.0.0.1:1", checksum_algorithm="CRC64NVME")
    with pytest.raises(ValueError, match="CRC64NVME"):
        opened("http://127.0.0.1:1", checksum_algorithm="MD5")
