"""The checksums that a store sends with a whole object (docs.aws.amazon.com/AmazonS3/latest/userguide/
checking-object-integrity.html): CRC32, CRC32C, SHA-1 and SHA-256 of all of its bytes.

A composite one, which is a checksum of the parts' checksums, says nothing that can be checked without the parts.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

from ... import errors
from .answers import field


class Digest(Protocol):
    """As of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Take more of the object."""

    def digest(self) -> bytes:
        """The checksum of what came."""


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def _crc32c() -> Digest:
    try:
        import google_crc32c
    except ImportError as exc:
        raise errors.MissingDependencyError(
            "the object has a CRC32C: pip install google-crc32c", name="google_crc32c"
        ) from exc
    made: Digest = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    return made


_KINDS: dict[bytes, Callable[[], Digest]] = {
    b"crc32": _Crc32,
    b"crc32c": _crc32c,
    b"sha1": lambda: hashlib.sha1(usedforsecurity=False),
    b"sha256": lambda: hashlib.sha256(usedforsecurity=False),
}


def mismatch(head: bytes, chunks: Iterable[bytes]) -> str | None:
    """What is wrong with a whole object's bytes by the checksums of the answer's head; None if nothing is."""
    if b"x-amz-checksum-" not in head.lower():
        return None
    if (field(head, b"x-amz-checksum-type") or b"").upper() == b"COMPOSITE":
        return None
    for name, make in _KINDS.items():
        told = field(head, b"x-amz-checksum-" + name)
        if told is None or b"-" in told:
            continue
        digest = make()
        for chunk in chunks:
            digest.update(chunk)
        found = base64.b64encode(digest.digest())
        if found != told:
            return f"{name.decode().upper()} {found.decode()} where the store says {told.decode()}"
    return None
