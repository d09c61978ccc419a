"""Multipart uploads that were interrupted: found by their records, compared with the file, and continued.

An upload that this user began on this machine, of a process that has ended (`upload_records.py`), is continued as far
as each of its parts has the bytes of the file, by the MD5 that S3 gives a part as its ETag. A store whose ETags are
something else is written to from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from ...blobs import Blob
from . import upload_records
from .access import BucketAccess
from .buckets import parts_of
from .multipart import Upload, checksum_element, part_size
from .writes import S3Writer

_PIECE = 8 * 1024 * 1024


def resume(fs: BucketAccess, key: str, source: Blob, chunk: int) -> tuple[S3Writer, int]:
    """Return a writer of `key` that continues an upload of the content of `source`, and the offset of its next byte."""
    for record in upload_records.taken_over(fs, key):
        try:
            check = _PartCheck(source, chunk)
            parts = list(itertools.takewhile(check.has_bytes_of_source, parts_of(fs, key, record.upload)))
        except BaseException as exc:
            if getattr(exc, "code", "") != "NoSuchUpload":
                record.release(kept=True)
                raise
            parts = []
        if parts:
            continued = Upload(fs, record, [_element(part, fs.checksum_algorithm) for part in parts])
            return S3Writer(fs, key, False, chunk, continued, kept=True), sum(part["Size"] for part in parts)
        with contextlib.suppress(OSError):
            upload_records.abort(fs, record)  # of another content, or gone
    return S3Writer(fs, key, False, chunk, kept=True), 0


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


def _element(part: dict[str, Any], algorithm: str | None) -> str:
    """Return the element that stands for a part when its upload is completed."""
    checksum = part.get(f"Checksum{algorithm}")
    element = f"<PartNumber>{part['PartNumber']}</PartNumber>"
    if checksum:
        element += checksum_element(str(algorithm), checksum)
    return f"<Part>{element}<ETag>{escape(part['ETag'])}</ETag></Part>"
