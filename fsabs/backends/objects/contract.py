"""The response contract: a response is used only if it says that it is the one to its request.

`check` looks at the head, before a byte of the body is kept, and `check_body` at the body. Each failure closes the
connection: it may carry the responses of other requests.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from ...core import errors
from .dialect import Dialect
from .failures import mismatched
from .http1 import Framing, ResponseHead
from .messages import Request

ExpectedBody = tuple[int, int | None, bool]
"""The bytes that a response's body must have:

- so many bytes that are received and dropped: the store sent the whole object for a range of it;
- the bytes after those; None if only the end of the body shows it;
- whether the content is the whole object, so that the object's checksum is the content's.

A plain tuple, since each response has one.
"""
ANY: ExpectedBody = (0, None, False)
"""A body that the request says nothing about."""
_FIXED = Framing.FIXED


def check(dialect: Dialect, request: Request, head: ResponseHead) -> ExpectedBody:
    """Check the head of a successful response; return the body that has to follow.

    Raises `Mismatch`, and `StaleFileError` for another version than the request's: some stores ignore If-Match.
    """
    status, range_ = head.status, request.range
    if not request.wants_content:
        if request.method == "HEAD" and status != 200:
            raise mismatched(f"status {status} for a HEAD")
        return ANY
    if dialect.has_directories and dialect.is_directory(head):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if request.version is not None:
        _check_version(request.version, dialect.version(head))
    length = head.length if head.framing is _FIXED else None
    if range_ is None:
        if status != 200:
            raise mismatched(f"status {status} for a whole object")
        if request.size is not None and length not in (None, request.size):
            raise mismatched(f"an object of {length} bytes where {request.size} were expected")
        if length is None and head.framing is Framing.UNTIL_CLOSE:
            if request.size is None and not dialect.has_checksum(head):
                raise mismatched("a response that doesn't say how long it is")
            length = request.size
        return (0, length, True)
    if status == 206:
        return _check_range(request, range_, head, length)
    if status != 200:
        raise mismatched(f"status {status} for a range")
    return _check_whole_for_range(request, range_, length)


def _check_version(expected: str, found: str | None) -> None:
    if found is None:
        raise mismatched("a response without a version: nothing shows that it is the one that was opened")
    if found != expected:
        raise errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened")


def _check_range(request: Request, range_: tuple[int, int], head: ResponseHead, length: int | None) -> ExpectedBody:
    size, offset = range_
    sent = head.header(b"content-range") or "no range"
    bounds, _, total = sent.partition("/")
    if request.size is None and total.isdigit():
        size = min(size, int(total) - offset)  # the object may end in it
    if length not in (None, size) or bounds != f"bytes {offset}-{offset + size - 1}":
        raise mismatched(f"{sent} in {length} bytes where {size} from {offset} were expected")
    if request.size is not None and total not in ("*", str(request.size)):
        raise mismatched(f"a range of {total} bytes where the object had {request.size}")
    return (0, size, False)


def _check_whole_for_range(request: Request, range_: tuple[int, int], length: int | None) -> ExpectedBody:
    """Check the whole object, sent for a range of it: used if it is the version that was opened."""
    size, offset = range_
    total = request.size if request.size is not None else length
    if total is None or (request.size is not None and length not in (None, request.size)):
        raise mismatched(f"an object of {length} bytes where a range of {request.size} was expected")
    if request.version is None and offset:
        raise mismatched("the whole object where a range was expected, of a version that is not known")
    return (offset, min(size, total - offset), False)


def check_body(
    dialect: Dialect, request: Request, head: ResponseHead, expected: ExpectedBody, pieces: Iterable[bytes], size: int
) -> None:
    """Check the content of a response, of `size` bytes in `pieces`. Raises `Mismatch`."""
    _, wanted, whole = expected
    if wanted is not None and size != wanted:
        raise mismatched(f"a body of {size} bytes where {wanted} were expected")
    if whole:
        if request.size is not None and size != request.size:
            raise mismatched(f"an object of {size} bytes where {request.size} were expected")
        if dialect.has_checksum(head) and (wrong := dialect.mismatch(head, pieces)):
            raise mismatched(wrong)
        if request.digest and (wrong := dialect.differs(request.digest, pieces)):
            raise mismatched(wrong)


def too_long(received: int, size: int) -> Exception:
    """Return the failure for a body that goes on after its end."""
    return mismatched(f"a body of {received} bytes and more where {size} were expected")
