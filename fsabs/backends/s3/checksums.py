"""The checksums that a store sends with a whole object (docs.aws.amazon.com/AmazonS3/latest/userguide/
checking-object-integrity.html): CRC32, CRC32C, SHA-1 and SHA-256 of all of its bytes; and CRC64NVME, which S3 itself
gives an object that came without another, where AWS's own library (`awscrt`) is installed.

A composite one, which is a checksum of the parts' checksums, says nothing that can be checked without the parts.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

from ... import errors
from .http1 import ResponseHead


class Digest(Protocol):
    """As of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Take more of the object."""

    def digest(self) -> bytes:
        """The checksum of what came."""


class _Crc:
    """A CRC of `size` bytes, by a function that goes on from a value."""

    def __init__(self, function: Callable[[bytes, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


@functools.cache
def _crc32_function() -> Callable[[bytes, int], int]:
    """isal's, where it is installed: zlib's takes as long as everything else about an object, or longer."""
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return zlib.crc32
    found: Callable[[bytes, int], int] = crc32
    return found


@functools.cache
def _crc64nvme_function() -> Callable[[bytes, int], int] | None:
    """That of AWS's library, which has it from 0.23.4 on."""
    try:
        return getattr(importlib.import_module("awscrt.checksums"), "crc64nvme", None)
    except ImportError:
        return None


def _crc64nvme() -> Digest | None:
    function = _crc64nvme_function()
    return None if function is None else _Crc(function, 8)


def _crc32c() -> Digest:
    try:
        import google_crc32c
    except ImportError as exc:
        raise errors.MissingDependencyError(
            "the object has a CRC32C: pip install google-crc32c", name="google_crc32c"
        ) from exc
    made: Digest = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    return made


_KINDS: dict[bytes, Callable[[], Digest | None]] = {
    b"crc32": lambda: _Crc(_crc32_function(), 4),
    b"crc32c": _crc32c,
    b"crc64nvme": _crc64nvme,
    b"sha1": lambda: hashlib.sha1(usedforsecurity=False),
    b"sha256": lambda: hashlib.sha256(usedforsecurity=False),
}


def load() -> None:
    """Import the libraries that are installed."""
    _crc32_function()
    _crc64nvme_function()
    with contextlib.suppress(ImportError):
        importlib.import_module("google_crc32c")


def mismatch(head: ResponseHead, chunks: Iterable[bytes]) -> str | None:
    """Return how a whole object's bytes differ from the checksums of the response's head; None if they don't."""
    if (head.header(b"x-amz-checksum-type") or "").upper() == "COMPOSITE":
        return None
    for name, make in _KINDS.items():
        expected = head.header(b"x-amz-checksum-" + name)
        if expected is None or "-" in expected:
            continue
        digest = make()
        if digest is None:
            continue
        for chunk in chunks:
            digest.update(chunk)
        found = base64.b64encode(digest.digest()).decode()
        if found != expected:
            return f"{name.decode().upper()} {found} where the store says {expected}"
    return None
