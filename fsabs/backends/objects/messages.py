"""Requests to a store, its responses, and what they say of objects: data definitions, and the lines of header
fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...core import redaction
from ...core.ranges import Range

if TYPE_CHECKING:
    from .http1 import ResponseHead


class Pieces:
    """A body that is sent piece by piece, and never joined; its length is that of all of them."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.parts = [part for part in parts if len(part)]
        """None of them empty."""
        self._size = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self._size


Body = bytes | bytearray | memoryview | Pieces


def parts_of(body: Body) -> Sequence[bytes | bytearray | memoryview]:
    """Return the pieces of a body, one after the other."""
    return body.parts if isinstance(body, Pieces) else (body,)


has_breaks = re.compile("[\r\n\0]").search
"""Finds what a header line can't have."""


def header_lines(headers: Sequence[str]) -> str:
    """Return the lines of header fields; `ValueError` for a value that would be more than one."""
    for header in headers:
        if has_breaks(header):
            raise ValueError(f"a line break or a NUL in the header field {header.partition(':')[0]!r}")
    return "".join([f"{header}\r\n" for header in headers])


class Reading(NamedTuple):
    """The part of an object that is read, and what is known of it: the fields of a `Request` by the same names."""

    range: Range | None = None
    version: str | None = None
    size: int | None = None
    into: memoryview | None = None
    large: int | None = None


WHOLE = Reading()
"""All of an object, of which nothing is known."""


class Request(NamedTuple):
    """One request, for any method, and the response that it expects."""

    method: str
    key: str = ""
    """The object's key; an empty one is the bucket itself."""
    query: str = ""
    """The query string: percent-encoded, in the order in which it is signed."""
    headers: tuple[str, ...] = ()
    """`name:value`, names in lower case. Dialects say which of them are signed."""
    body: Body = b""
    range: Range | None = None
    """Size and offset of the bytes that a GET reads; None for the whole object."""
    version: str | None = None
    """The version of the object that was opened: another one is an error."""
    size: int | None = None
    """The size of the whole object, if it is known."""
    into: memoryview | None = None
    """The buffer that the body is received into; it has the size of the range. The response's body is then empty."""
    large: int | None = None
    """A GET whose body has more bytes than this is not received: `LargeObject` is raised."""
    slow: bool = False
    """Whether the store works long before it answers: it is waited for `SLOW_TIMES` as long."""
    path: str = ""
    """The quoted path, where that is not the endpoint's prefix and the quoted key."""
    location: str = ""
    """The URL that the request goes to, where a redirect has led there; elsewhere it carries no credentials."""
    anew: bool = False
    """Whether an earlier location was refused: a second refusal counts."""
    digest: str = ""
    """The digest of the whole object, as the dialect has it, if it is known: other content is an error."""
    about: bool = False
    """Whether the response to a GET of a key is about the object, and not its content."""
    from_start: bool = False
    """Whether a whole object is asked for as a range, whose response says how long it is."""
    as_stored: bool = False
    """Whether content is accepted in every encoding: what it was stored in is then left as it is."""

    @property
    def wants_content(self) -> bool:
        """Whether the response has an object's content."""
        return self.method == "GET" and not self.about and self.key != ""

    def __repr__(self) -> str:  # header fields may be secret, and so may the query of a file of the web
        asked = redaction.without_secrets(f"://{self.key}?{self.query}".rstrip("?"))[3:]
        return f"Request({self.method!r}, {asked!r}, range={self.range})"


def is_number(text: str) -> bool:
    """Return whether a text of a response is a whole number, of no more digits than that of a size has."""
    return text.isascii() and text.isdigit() and len(text) < 20


class Response(NamedTuple):
    """A response that fits its request."""

    head: ResponseHead
    body: bytes

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status

    @property
    def total(self) -> int | None:
        """The size of the object whose content or range this is; None if that is not known."""
        if self.status == 206:
            text = (self.head.header(b"content-range") or "").rpartition("/")[2]
        else:
            text = self.head.header(b"content-length") or str(len(self.body))
        return int(text) if is_number(text) else None


class Found(NamedTuple):
    """What the head of a response says of an object."""

    size: int
    written: datetime
    version: str | None
    directory: bool = False
    """Whether it is a directory of a store that has them."""


class PageQuery(NamedTuple):
    """The parameters of a request for a page of a listing."""

    prefix: str
    """That the keys begin with."""
    one_level: bool = False
    """Whether keys with a `/` behind the prefix are summed up as common prefixes."""
    token: str | None = None
    """Of the page before."""
    after: str | None = None
    """The key behind which a page of all levels begins; it may begin with that key itself."""
    most: int | None = None
    """How many entries it has at most."""


Text = tuple[str, str, str, str]
"""Key, time, version and size of an object, as a page has them."""


class ObjectPage(NamedTuple):
    """One page of a listing."""

    objects: list[Text]
    prefixes: list[str]
    token: str | None
    """What continues the listing; None if this is the last page."""
    decode: Callable[[str], str] = str
    """Decodes a key."""
    folders: Sequence[str] = ()
    """Keys that are directories by themselves, and stand for no file."""

    def key(self, number: int) -> str:
        """Return the key of an object."""
        return self.decode(self.objects[number][0])

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        return list(map(self.decode, (entry[0] for entry in self.objects)))


class StoredUpload(NamedTuple):
    """An upload that was begun and has not ended."""

    key: str
    name: str
    begun: float
    """By the store's clock, in seconds since 1970."""
