"""Checksums of whole objects, by libraries that may be installed or not."""

from __future__ import annotations

import sys
import zlib
from types import ModuleType

import pytest

from fsabs.backends.s3 import checksums
from fsabs.backends.s3.http1 import parse_head


def crc64nvme(data: bytes, value: int = 0) -> int:
    """CRC-64/NVME, bit by bit (reveng.sourceforge.io/crc-catalogue): stands for AWS's library."""
    value ^= 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x9A6C9329AC4BC9B5 if value & 1 else 0)
    return value ^ 0xFFFFFFFFFFFFFFFF


@pytest.mark.quick
def test_a_crc64nvme_is_checked_where_awss_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert crc64nvme(b"123456789") == 0xAE8B14860A799888
    raw = b"HTTP/1.1 200 OK\r\nx-amz-checksum-type: FULL_OBJECT\r\nX-Amz-Checksum-Crc64nvme: rosUhgp5mIg="
    head = parse_head(raw, "GET")
    library = ModuleType("awscrt.checksums")
    monkeypatch.setitem(sys.modules, "awscrt", ModuleType("awscrt"))
    monkeypatch.setitem(sys.modules, "awscrt.checksums", library)
    try:
        for function, told in ((None, None), (crc64nvme, "CRC64NVME 7NCQmMLIlJQ= where the store says rosUhgp5mIg=")):
            if function is not None:  # a version of the library from before
                monkeypatch.setattr(library, "crc64nvme", function, raising=False)
            checksums._crc64nvme_function.cache_clear()
            assert checksums.mismatch(head, [b"1234", b"56789"]) is None
            assert checksums.mismatch(head, [b"1234", b"5678"]) == told
    finally:
        checksums._crc64nvme_function.cache_clear()


@pytest.mark.quick
def test_a_crc32_needs_no_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"HTTP/1.1 200 OK\r\nx-amz-checksum-crc32: y/Q5Jg=="
    head = parse_head(raw, "GET")
    try:
        for isal in (True, False):
            if not isal:
                monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
            checksums._crc32_function.cache_clear()
            assert (checksums._crc32_function() is zlib.crc32) is not isal
            assert checksums.mismatch(head, [b"1234", b"56789"]) is None
            assert "CRC32" in (checksums.mismatch(head, [b"1234", b"5678"]) or "")
    finally:
        checksums._crc32_function.cache_clear()
