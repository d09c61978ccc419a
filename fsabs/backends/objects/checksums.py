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
from collections.abc import Callable, Iterable

from ...core import errors
from .messages import Body

Crc = Callable[[bytes, int], int]
"""Goes on from the checksum of what came before, 0 at the start."""
_PIECE = 256 * 1024


def _crc32() -> Crc:
    """isal's, where it is installed: zlib's takes as long as everything else about an object, or longer."""
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return zlib.crc32
    found: Crc = crc32
    return found


def _crc32c() -> Crc:
    try:
        import google_crc32c
    except ImportError as exc:
        text = "the CRC32C of objects needs google-crc32c: pip install google-crc32c"
        raise errors.MissingDependencyError(text, name="google_crc32c") from exc
    extend: Callable[[int, bytes], int] = google_crc32c.extend
    return lambda data, value: extend(value, data)


def _crc64nvme() -> Crc:
    """That of AWS's library, which has it from 0.23.4 on."""
    try:
        found: Crc = importlib.import_module("awscrt.checksums").crc64nvme
    except (ImportError, AttributeError) as exc:
        text = "checksum_algorithm='CRC64NVME' needs AWS's library, awscrt 0.23.4 or later: pip install fsabs[crc64]"
        raise errors.MissingDependencyError(text, name="awscrt") from exc
    return found


_CRCS: dict[str, tuple[int, Callable[[], Crc]]] = {
    "CRC32": (4, _crc32),
    "CRC32C": (4, _crc32c),
    "CRC64NVME": (8, _crc64nvme),
}
WRITTEN = tuple(_CRCS)
"""The algorithms of the checksums of bodies that are written."""
DEFAULT = "CRC32C"
READ = (b"crc32", b"crc32c", b"crc64nvme", b"md5", b"sha1", b"sha256")
"""The algorithms of the checksums of objects that are read."""


@functools.cache
def function_of(algorithm: str) -> tuple[int, Crc]:
    """Return the bytes that a checksum has, and the function that continues one; `MissingDependencyError`."""
    size, function = _CRCS[algorithm]
    return size, function()


def load() -> None:
    """Import the libraries that are installed."""
    for algorithm in WRITTEN:
        with contextlib.suppress(errors.MissingDependencyError):
            function_of(algorithm)


def value(algorithm: str, body: Body) -> str:
    """Return the checksum of a body, in base64."""
    if type(body) is bytes:
        return _value(algorithm, (body,))
    view = memoryview(body)  # some libraries take bytes only
    return _value(algorithm, (view[start : start + _PIECE].tobytes() for start in range(0, len(view), _PIECE)))


def mismatch(expected: Iterable[tuple[bytes, str]], chunks: Iterable[bytes]) -> str | None:
    """Return how bytes differ from the first of the checksums, in base64, that can be computed; None if they don't."""
    for name, checksum in expected:
        algorithm = name.decode().upper()
        try:
            found = _value(algorithm, chunks)
        except errors.MissingDependencyError as exc:
            if exc.name == "awscrt":
                continue
            raise
        return f"{algorithm} {found} where the store says {checksum}" if found != checksum else None
    return None


def _value(algorithm: str, chunks: Iterable[bytes]) -> str:
    if algorithm in _CRCS:
        size, function = function_of(algorithm)
        found = 0
        for chunk in chunks:
            found = function(chunk, found)
        return base64.b64encode(found.to_bytes(size, "big")).decode()
    digest = hashlib.new(algorithm.lower(), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return base64.b64encode(digest.digest()).decode()
