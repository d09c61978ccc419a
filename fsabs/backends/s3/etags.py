"""ETags that are MD5s: whether one is that of a content."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator

from ...core.blobs import Blob
from ..objects.checksums import md5_of
from ..objects.uploads import part_size


def etag_is_of(etag: str, blob: Blob, chunk: int) -> bool | None:
    """Return whether an ETag is that of an object with the content of `blob`; None if it does not say.

    That of a single PUT is the MD5 of the object, that of an upload in parts the MD5 of the parts' MD5s and their
    number. The sizes of the parts are not in it: those of this package, and of other common clients, are tried.
    """
    match = re.fullmatch(r"([0-9a-f]{32})(?:-(\d+))?", etag)
    if match is None:
        return None
    if match[2] is None:
        return bool(md5_of(blob, 0, blob.size).hex() == match[1])
    count = int(match[2])
    for size in dict.fromkeys((chunk, 5 << 20, 8 << 20, 16 << 20, 32 << 20, 50 << 20, 64 << 20)):
        ends = list(_ends(blob.size, size))
        if len(ends) == count:
            digests = (md5_of(blob, start, end - start) for start, end in zip([0, *ends], ends, strict=False))
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
