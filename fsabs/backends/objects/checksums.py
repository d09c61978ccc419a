"""The checksums of objects: those that a store sends with a whole object, and those of bodies that are written.

A store may send the CRC32, CRC32C, SHA-1, SHA-256 or MD5 of all bytes of an object; and a CRC64NVME, which is checked
where AWS's own library (`awscrt`) is installed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ...core import errors
from ...core.blobs import Blob
from .messages import Body


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
def crc64nvme_function() -> Callable[[bytes, int], int] | None:
    """Return that of AWS's library, which has it from 0.23.4 on; None without it."""
    try:
        return getattr(importlib.import_module("awscrt.checksums"), "crc64nvme", None)
    except ImportError:
        return None


def _crc64nvme() -> Digest | None:
    function = crc64nvme_function()
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


def _crc32c_function() -> Callable[[bytes, int], int]:
    try:
        import google_crc32c
    except ImportError as exc:
        raise errors.MissingDependencyError(
            "writing to S3 needs a CRC32C: pip install google-crc32c", name="google_crc32c"
        ) from exc
    extend: Callable[[int, bytes], int] = google_crc32c.extend
    return lambda data, value: extend(value, data)


def _required_crc64nvme() -> Callable[[bytes, int], int]:
    found = crc64nvme_function()
    if found is None:
        raise errors.MissingDependencyError(
            "a CRC64NVME needs AWS's library, awscrt 0.23.4 or later: pip install fsabs[crc64]",
            name="awscrt",
        )
    return found


_WRITTEN: dict[str, tuple[int, Callable[[], Callable[[bytes, int], int]]]] = {
    "CRC32": (4, _crc32_function),
    "CRC32C": (4, _crc32c_function),
    "CRC64NVME": (8, _required_crc64nvme),
}
WRITTEN = tuple(_WRITTEN)
"""The algorithms of the checksums of bodies that are written."""
DEFAULT = "CRC32C"
_PIECE = 256 * 1024
_BLOB_PIECE = 8 * 1024 * 1024


@functools.cache
def function_of(algorithm: str) -> tuple[int, Callable[[bytes, int], int]]:
    """Return the bytes that a checksum has, and the function that continues one; `MissingDependencyError`."""
    size, function = _WRITTEN[algorithm]
    return size, function()


def value(algorithm: str, body: Body) -> str:
    """Return the checksum of a body, in base64."""
    size, function = function_of(algorithm)
    return base64.b64encode(_computed(function, body).to_bytes(size, "big")).decode()


def _computed(function: Callable[[bytes, int], int], body: Body) -> int:
    if type(body) is bytes:
        return function(body, 0)
    found, view = 0, memoryview(body)  # some libraries take bytes only
    for start in range(0, len(view), _PIECE):
        found = function(view[start : start + _PIECE].tobytes(), found)
    return found


def crc64(body: Body) -> int | None:
    """Return the CRC64NVME of a body; None without AWS's library."""
    function = crc64nvme_function()
    return None if function is None else _computed(function, body)


def crc32c(body: Body) -> int:
    """Return the CRC32C of a body."""
    return _computed(_crc32c_function(), body)


def crc32c_of(blob: Blob, start: int, size: int) -> int:
    """Return the CRC32C of a range of a blob."""
    found, function = 0, _crc32c_function()
    for piece in _pieces_of(blob, start, size):
        found = function(piece, found)
    return found


_KINDS: dict[bytes, Callable[[], Digest | None]] = {
    b"crc32": lambda: _Crc(_crc32_function(), 4),
    b"crc32c": _crc32c,
    b"crc64nvme": _crc64nvme,
    b"md5": lambda: hashlib.md5(usedforsecurity=False),
    b"sha1": lambda: hashlib.sha1(usedforsecurity=False),
    b"sha256": lambda: hashlib.sha256(usedforsecurity=False),
}


READ = tuple(_KINDS)
"""The algorithms of the checksums of objects that are read."""


def md5_of(blob: Blob, start: int, size: int) -> Digest:
    """Return the MD5 of a range of a blob."""
    digest = hashlib.md5(usedforsecurity=False)
    for piece in _pieces_of(blob, start, size):
        digest.update(piece)
    return digest


def _pieces_of(blob: Blob, start: int, size: int) -> Iterator[bytes]:
    for offset in range(start, start + size, _BLOB_PIECE):
        yield blob.pread(min(_BLOB_PIECE, start + size - offset), offset)


def load() -> None:
    """Import the libraries that are installed."""
    _crc32_function()
    crc64nvme_function()
    with contextlib.suppress(ImportError):
        importlib.import_module("google_crc32c")


def mismatch(expected: Iterable[tuple[bytes, str]], chunks: Iterable[bytes]) -> str | None:
    """Return how bytes differ from the first of the checksums, in base64, that can be computed; None if they don't."""
    for name, checksum in expected:
        digest = _KINDS[name]()
        if digest is None:
            continue
        for chunk in chunks:
            digest.update(chunk)
        found = base64.b64encode(digest.digest()).decode()
        return f"{name.decode().upper()} {found} where the store says {checksum}" if found != checksum else None
    return None
