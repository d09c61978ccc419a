"""Multipart uploads that were interrupted: found in the store, compared with the file, and continued.

Nothing is kept on this machine. An upload of the same key is continued as far as each of its parts has the bytes of the
file, by the MD5 that S3 gives a part as its ETag. A store whose ETags are something else is written to from the start.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from ...blobs import Blob
from .boto import translated
from .buckets import uploads_of
from .writes import S3Writer, Upload, part_size

if TYPE_CHECKING:
    from .bucket import S3

_PIECE = 8 * 1024 * 1024


def resume(fs: S3, key: str, source: Blob, chunk: int) -> tuple[S3Writer, int]:
    """Return a writer of `key` that continues an upload of the content of `source`, and the offset of its next byte."""
    best: tuple[str, list[dict[str, Any]]] = "", []
    for upload in uploads_of(fs, key):
        parts = list(
            itertools.takewhile(_PartCheck(source, chunk).has_bytes_of_source, _parts(fs, key, upload["UploadId"]))
        )
        if len(parts) > len(best[1]):
            best = upload["UploadId"], parts
    begun, parts = best
    if not parts:
        return S3Writer(fs, key, False, chunk), 0
    continued = Upload(fs, key, begun, [_element(part) for part in parts])
    return S3Writer(fs, key, False, chunk, continued), sum(part["Size"] for part in parts)


def etag_is_of(etag: str, blob: Blob, chunk: int) -> bool | None:
    """Return whether an ETag is that of an object with the content of `blob`; None if it does not say.

    That of a single PUT is the MD5 of the object, that of an upload in parts the MD5 of the parts' MD5s and their
    number. The sizes of the parts are not in it: those of this package, and of other common clients, are tried.
    """
    match = re.fullmatch(r"([0-9a-f]{32})(?:-(\d+))?", etag)
    if match is None:
        return None
    if match[2] is None:
        return bool(_md5(blob, 0, blob.size).hexdigest() == match[1])
    count = int(match[2])
    for size in dict.fromkeys((chunk, 5 << 20, 8 << 20, 16 << 20, 32 << 20, 50 << 20, 64 << 20)):
        ends = list(_ends(blob.size, size))
        if len(ends) == count:
            digests = (_md5(blob, start, end - start).digest() for start, end in zip([0, *ends], ends, strict=False))
            if hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest() == match[1]:
                return True
    return None


def _ends(size: int, chunk: int) -> Iterator[int]:
    """Yield where the parts of an upload of `size` bytes end."""
    at = 0
    for number in itertools.count(1):
        at = min(size, at + part_size(number, chunk))
        yield at
        if at >= size:
            return


class _PartCheck:
    """Compares the parts of an upload, from the first on, with the bytes of `source`."""

    def __init__(self, source: Blob, chunk: int) -> None:
        self._source = source
        self._chunk = chunk
        self._number = 0
        self._offset = 0

    def has_bytes_of_source(self, part: dict[str, Any]) -> bool:
        """Return whether the next part has the next bytes."""
        self._number += 1
        size = part_size(self._number, self._chunk)
        if (part["PartNumber"], part["Size"]) != (self._number, size) or self._offset + size > self._source.size:
            return False
        digest = _md5(self._source, self._offset, size).hexdigest()
        self._offset += size
        return bool(digest == part["ETag"].strip('"'))


def _md5(blob: Blob, start: int, size: int) -> Any:
    digest = hashlib.md5(usedforsecurity=False)
    for offset in range(start, start + size, _PIECE):
        digest.update(blob.pread(min(_PIECE, start + size - offset), offset))
    return digest


def _parts(fs: S3, key: str, upload: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of an upload that the store has, by their numbers."""
    marker: dict[str, Any] = fs.objects.boto_bucket()
    while True:
        with translated():
            page = fs.client.list_parts(Bucket=fs.bucket, Key=key, UploadId=upload, **marker)
        yield from page.get("Parts", [])
        if not page.get("IsTruncated"):
            return
        marker |= {"PartNumberMarker": page["NextPartNumberMarker"]}


def _element(part: dict[str, Any]) -> str:
    """Return the element that stands for a part when its upload is completed."""
    checksum = part.get("ChecksumCRC32C")
    element = f"<PartNumber>{part['PartNumber']}</PartNumber>"
    if checksum:
        element += f"<ChecksumCRC32C>{checksum}</ChecksumCRC32C>"
    return f"<Part>{element}<ETag>{escape(part['ETag'])}</ETag></Part>"
