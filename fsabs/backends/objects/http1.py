"""A parser of HTTP/1.1 responses (RFC 9112) without input or output.

A response is a status line, header fields, and a body that is framed in one of four ways. The parser goes through these
states; everything that the table does not have is a `ProtocolError`.

    state       input                                       next state
    ----------  ------------------------------------------  --------------------------------------------
    HEAD        status 1xx (but not 101)                    HEAD, of the final response
    HEAD        response to HEAD; status 204 or 304         END: there is no body, whatever the headers say
    HEAD        Transfer-Encoding: chunked                  CHUNK_SIZE (a Content-Length is ignored, RFC 9112, 6.3)
    HEAD        Content-Length: n                           FIXED, or END where n is 0
    HEAD        neither                                     UNTIL_CLOSE
    FIXED       n bytes                                     END
    CHUNK_SIZE  a line with a size; 0                       CHUNK_DATA; TRAILER
    CHUNK_DATA  so many bytes, and CRLF                     CHUNK_SIZE
    TRAILER     a field line; an empty line                 TRAILER; END
    UNTIL_CLOSE the end of the connection                   END
    END         more bytes                                  they answer no request: the connection is not reused
    any other   the end of the connection                   ProtocolError: the response is cut short

`parse_head` covers the first state. A `FIXED` body needs no parsing: its bytes are received straight into their buffer,
by the clients. `BodyParser` covers the other states.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

MAX_HEAD_SIZE = 64 * 1024
"""Bytes of a status line with its header fields, and of a chunked body's trailer."""
MAX_INTERIM_RESPONSES = 16
_MAX_CHUNK_LINE = 1024
_VERSIONS = frozenset({b"HTTP/1.1 ", b"HTTP/1.0 "})
_COMMON = {b"HTTP/1.1 200 ": 200, b"HTTP/1.1 206 ": 206}
"""The beginnings of most responses."""
_HEX = frozenset(b"0123456789abcdefABCDEF")


class ProtocolError(Exception):
    """The bytes are not a response as HTTP/1.1 has it, or it is cut short."""


class Framing(enum.Enum):
    """The way in which the end of a body is found."""

    FIXED = "fixed"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


_FIXED = Framing.FIXED  # a member of an enumeration takes longer to look up than a field to find


class ResponseHead(NamedTuple):
    """The status line and the header fields of a response."""

    status: int
    raw: bytes
    """Both, without the empty line that ends them."""
    lower: bytes
    """`raw` in lower case."""
    framing: Framing
    length: int
    """The bytes of a `FIXED` body; 0 for the others."""
    reusable: bool
    """Whether the connection stays open after the body."""

    def header(self, name: bytes) -> str | None:
        """Return the value of the first header field `name` (lower case), None if there is none."""
        at = self.lower.find(b"\r\n" + name + b":")
        if at < 0:
            return None
        at += len(name) + 3
        end = self.raw.find(b"\r\n", at)
        return (self.raw[at:end] if end >= 0 else self.raw[at:]).strip().decode("latin-1")

    def named(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield names, in lower case, and values of the header fields whose names begin with `prefix`."""
        for line in self.raw.decode("latin-1").split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower().startswith(prefix):
                yield name.lower(), value.strip()

    @property
    def reason(self) -> str:
        """The reason phrase of the status line."""
        return self.raw[13:].partition(b"\r\n")[0].decode("latin-1")


def parse_head(raw: bytes, method: str) -> ResponseHead:
    """Return the head of a response to a request with `method`, from its bytes up to the empty line.

    Raises `ProtocolError`.
    """
    status, lower = _COMMON.get(raw[:13]) or _status(raw), raw.lower()
    at = lower.find(b"\r\nconnection:")
    # Most have no such field, or one line of it.
    plain = at < 0 or (lower.startswith(b" keep-alive\r\n", at + 13) and lower.find(b"\r\nconnection:", at + 13) < 0)
    reusable = (plain and raw[7:8] == b"1") or _keeps_alive(raw[7:8], lower)
    if status == 408:  # the response to the request, whose body the store missed, may still come (RFC 9110, 15.5.9)
        reusable = False
    if method == "HEAD" or status < 200 or status == 204 or status == 304:
        return ResponseHead(status, raw, lower, _FIXED, 0, reusable)
    if lower.find(b"\r\ntransfer-encoding:") >= 0:
        values = _values(lower, b"transfer-encoding")
        if values != [b"chunked"]:
            raise ProtocolError(f"the transfer coding {b', '.join(values)!r}")
        # Both lengths in one response may be an attempt at smuggling: it is the connection's last.
        return ResponseHead(status, raw, lower, Framing.CHUNKED, 0, reusable and b"\r\ncontent-length:" not in lower)
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        return ResponseHead(status, raw, lower, Framing.UNTIL_CLOSE, 0, False)
    end = lower.find(b"\r\n", at + 17)
    digits = lower[at + 17 : end if end >= 0 else len(lower)].strip()
    if not digits.isdigit() or len(digits) > 19 or lower.rfind(b"\r\ncontent-length:") != at:
        values = _values(lower, b"content-length")
        if len(set(values)) != 1 or not values[0].isdigit() or len(values[0]) > 19:
            raise ProtocolError(f"the content length {b', '.join(values)!r}")
        digits = values[0]
    return ResponseHead(status, raw, lower, _FIXED, int(digits), reusable)


def _status(raw: bytes) -> int:
    """Return the status of a response from the bytes of its head."""
    if raw[:9] not in _VERSIONS or not raw[9:12].isdigit() or raw[12:13] not in (b" ", b"\r", b""):
        raise ProtocolError(f"the response {raw[:40]!r} is not HTTP/1.1")
    status = int(raw[9:12])
    if status < 100 or status == 101:
        raise ProtocolError(f"status {status}")
    return status


def _keeps_alive(minor: bytes, lower: bytes) -> bool:
    """Return whether a connection stays open by its version and its Connection fields (RFC 9112, section 9.3)."""
    options = _values(lower, b"connection")
    return b"close" not in options and (minor != b"0" or b"keep-alive" in options)


def _values(lower: bytes, name: bytes) -> list[bytes]:
    """Return the comma-separated values of all fields `name`."""
    found = []
    for line in lower.split(b"\r\n")[1:]:
        field, _, value = line.partition(b":")
        if field == name:
            found += [part.strip() for part in value.split(b",")]
    return found


class _State(enum.Enum):
    CHUNK_SIZE = 1
    CHUNK_DATA = 2
    CHUNK_END = 3
    TRAILER = 4
    UNTIL_CLOSE = 5
    END = 6


class BodyParser:
    """The body of a response whose framing is `CHUNKED` or `UNTIL_CLOSE`."""

    def __init__(self, framing: Framing) -> None:
        self._state = _State.CHUNK_SIZE if framing is Framing.CHUNKED else _State.UNTIL_CLOSE
        self._missing = 0  # bytes of the current chunk
        self._trailer = 0  # bytes of the trailer so far
        self._buffer = b""
        self.excess = False
        """Whether bytes came after the end."""

    @property
    def ended(self) -> bool:
        """True if the body is complete."""
        return self._state is _State.END

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received; return the pieces of the content in it. Empty `data` is the connection's end."""
        if not data:
            if self._state is not _State.UNTIL_CLOSE:
                raise ProtocolError("the connection ended within a chunked body")
            self._state = _State.END
            return []
        if self._state is _State.UNTIL_CLOSE:
            return [data]
        pieces: list[bytes] = []
        data = self._buffer + data if self._buffer else data
        while data and self._state is not _State.END:
            if self._state is _State.CHUNK_DATA:
                piece, data = data[: self._missing], data[self._missing :]
                pieces.append(piece)
                self._missing -= len(piece)
                if not self._missing:
                    self._state = _State.CHUNK_END
                continue
            end = data.find(b"\r\n")
            if end < 0:
                limit = MAX_HEAD_SIZE if self._state is _State.TRAILER else _MAX_CHUNK_LINE
                if len(data) > limit:
                    raise ProtocolError("a line of a chunked body without an end")
                break
            self._line(data[:end])
            data = data[end + 2 :]
        self._buffer = b"" if self._state is _State.END else data
        self.excess = self.excess or (self._state is _State.END and bool(data))
        return pieces

    def _line(self, line: bytes) -> None:
        """Take one line between the chunks or of the trailer."""
        if self._state is _State.CHUNK_END:
            if line:
                raise ProtocolError(f"{line[:20]!r} after a chunk")
            self._state = _State.CHUNK_SIZE
        elif self._state is _State.CHUNK_SIZE:
            digits = line.partition(b";")[0].strip(b" \t")
            if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
                raise ProtocolError(f"the size of a chunk {line[:20]!r}")
            self._missing = int(digits, 16)
            self._state = _State.CHUNK_DATA if self._missing else _State.TRAILER
        else:
            self._trailer += len(line) + 2
            if self._trailer > MAX_HEAD_SIZE:
                raise ProtocolError(f"a trailer of more than {MAX_HEAD_SIZE} bytes")
            if not line:
                self._state = _State.END
