"""CRC-32C, and the hash that keys are looked up by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import cast

_crc: tuple[Callable[[bytes], int], Callable[[int, bytes], int]] | None = None


def crc32c() -> tuple[Callable[[bytes], int], Callable[[int, bytes], int]]:
    """Return google_crc32c's `value` and `extend`; both take `bytes` and nothing else."""
    global _crc
    if _crc is None:
        import google_crc32c

        _crc = cast(
            "tuple[Callable[[bytes], int], Callable[[int, bytes], int]]", (google_crc32c.value, google_crc32c.extend)
        )
    return _crc


def checksum(data: bytes) -> int:
    """Return the CRC-32C."""
    return (_crc or crc32c())[0](data)


def key_hash(key: bytes) -> int:
    """Return 64 bits of a hash, the same in every process."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
