"""The checksums of objects: those that a store sends with a whole object, and those of bodies that are written.

A store may send the CRC32, CRC32C, SHA-1, SHA-256 or MD5 of all bytes of an object; and a CRC64NVME, which is checked
where AWS's own library (`awscrt`) is installed.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator

from ...core import errors
from ...core.blobs import Blob
from .messages import Body, parts_of

Crc = Callable[[bytes, int], int]
"""Goes on from the checksum of what came before, 0 at the start."""
_PIECE = 256 * 1024
_BLOB_PIECE = 8 * 1024 * 1024


def _crc32() -> Crc:
    """isal's, where it is installed: zlib's takes as long as everything else about an object, or longer."""
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return zlib.crc32
    found: Crc = crc32
    return found


def _crc32c() -> Crc:
    import google_crc32c

    extend: Callable[[int, bytes], int] = google_crc32c.extend
    return lambda data, value: extend(value, data)


def _crc64nvme() -> Crc:
    """That of AWS's library, which has it from 0.23.4 on."""
    found: Crc = importlib.import_module("awscrt.checksums").crc64nvme
    return found


_CRCS: dict[str, tuple[int, Callable[[], Crc]]] = {
    "CRC32": (4, _crc32),
    "CRC32C": (4, _crc32c),
    "CRC64NVME": (8, _crc64nvme),
}
_NEEDS = {
    "CRC32C": ("google_crc32c", "the CRC32C of objects needs google-crc32c: pip install google-crc32c"),
    "CRC64NVME": ("awscrt", "a CRC64NVME needs AWS's library, awscrt 0.23.4 or later: pip install fsabs[crc64]"),
}
WRITTEN = tuple(_CRCS)
"""The algorithms of the checksums of bodies that are written."""
DEFAULT = "CRC32C"
READ = (b"crc32", b"crc32c", b"crc64nvme", b"md5", b"sha1", b"sha256")
"""The algorithms of the checksums of objects that are read."""


@functools.cache
def function_of(algorithm: str) -> Crc | None:
    """Return the function that continues a CRC; None if no library that has it is installed."""
    try:
        return _CRCS[algorithm][1]()
    except (ImportError, AttributeError):
        return None


def available(algorithm: str) -> bool:
    """Return whether a library that computes it is installed."""
    return function_of(algorithm) is not None


def require(algorithm: str) -> Crc:
    """Return the function that continues a CRC; `MissingDependencyError`."""
    found = function_of(algorithm)
    if found is None:
        name, text = _NEEDS[algorithm]
        raise errors.MissingDependencyError(text, name=name)
    return found


def load() -> None:
    """Import the libraries that are installed: a child that is forked in the middle of an import can't any more."""
    for algorithm in WRITTEN:
        function_of(algorithm)


def value(algorithm: str, body: Body) -> str:
    """Return the checksum of a body, in base64."""
    return base64.b64encode(digest(algorithm, pieces(body))).decode()


def mismatch(expected: Iterable[tuple[bytes, str]], content: Iterable[bytes]) -> str | None:
    """Return how bytes differ from the first of the checksums, in base64, that can be computed; None if they don't."""
    for name, checksum in expected:
        algorithm = name.decode().upper()
        if algorithm == "CRC64NVME" and not available(algorithm):
            continue
        found = base64.b64encode(digest(algorithm, content)).decode()
        return f"{algorithm} {found} where the store says {checksum}" if found != checksum else None
    return None


def digest(algorithm: str, content: Iterable[bytes]) -> bytes:
    """Return a checksum of bytes, a CRC or one of `hashlib`'s; `MissingDependencyError`."""
    if algorithm in _CRCS:
        function, crc = function_of(algorithm) or require(algorithm), 0
        for piece in content:
            crc = function(piece, crc)
        return crc.to_bytes(_CRCS[algorithm][0], "big")
    found = hashlib.new(algorithm.lower(), usedforsecurity=False)
    for piece in content:
        found.update(piece)
    return found.digest()


def pieces(body: Body) -> Iterator[bytes]:
    """Yield a body in pieces of `bytes`: some libraries take no others."""
    for part in parts_of(body):
        if type(part) is bytes:
            yield part
            continue
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            yield view[start : start + _PIECE].tobytes()


def pieces_of(blob: Blob, start: int, size: int) -> Iterator[bytes]:
    """Yield a range of a blob."""
    for offset in range(start, start + size, _BLOB_PIECE):
        yield blob.pread(min(_BLOB_PIECE, start + size - offset), offset)
