"""Requests to a store and its responses: data definitions only."""

from __future__ import annotations

from typing import NamedTuple

from ...ranges import Range
from .http1 import ResponseHead

Body = bytes | bytearray | memoryview


class Request(NamedTuple):
    """One request, for any method, and the response that it expects."""

    method: str
    key: str = ""
    """The object's key; an empty one is the bucket itself."""
    query: str = ""
    """The canonical query string: sorted and percent-encoded."""
    headers: tuple[str, ...] = ()
    """`name:value`, names in lower case. Those that begin with `x-amz-` are signed."""
    body: Body = b""
    range: Range | None = None
    """Size and offset of the bytes that a GET reads; None for the whole object."""
    version: str | None = None
    """The ETag of the object that was opened: another version is an error."""
    size: int | None = None
    """The size of the whole object, if it is known."""
    into: memoryview | None = None
    """The buffer that the body is received into; it has the size of the range. The response's body is then empty."""
    large: int | None = None
    """A GET whose body has more bytes than this is not received: `LargeObject` is raised."""

    @property
    def strong(self) -> bool:
        """Return whether a store can compare the version: a weak ETag matches nothing (RFC 9110, section 13.1.1)."""
        return bool(self.version) and not str(self.version).startswith("W/")


class Response(NamedTuple):
    """A response that fits its request."""

    head: ResponseHead
    body: bytes
    attempts: int = 1
    """How often the request was sent, as far as the store may have received it."""

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status
