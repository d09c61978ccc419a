"""HTTP/1.1 (RFC 9112): a parser without input or output, the response contract, and an exchange over a connection.

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

`parse_head` covers the first state. A `FIXED` body needs no parsing: its bytes are received straight into their buffer.
`BodyParser` covers the other states.

The contract: a response is used only if it says that it is the one to its request. `expected_body` looks at the head,
before a byte of the body is kept, and `check_body` at the body. Each failure closes the connection: it may carry the
responses of other requests.

An `Exchange` sends one request and receives its response, for the blocking client, whose plain connections block, and
for the pipeline. It never waits by itself. The head of a plain connection is received alone, so that a body of known
size is received without a copy: the first one is peeked at, and the next ones most often have the same size.
"""

from __future__ import annotations

import enum
import errno
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...core import errors
from ...core.buffers import BytesBuffer
from .connections import WOULD_BLOCK, Connection
from .failures import LargeObject, Mismatch, ProtocolError, cut_short, hung_up, mismatched
from .messages import Framing, Request, Response, ResponseHead, is_number, parts_of

if TYPE_CHECKING:
    from .dialect import Dialect

MAX_HEAD_SIZE = 64 * 1024
"""Bytes of a status line with its header fields, and of a chunked body's trailer."""
MAX_INTERIM_RESPONSES = 16
_MAX_CHUNK_LINE = 1024
_VERSIONS = frozenset({b"HTTP/1.1 ", b"HTTP/1.0 "})
_COMMON = {b"HTTP/1.1 200 ": 200, b"HTTP/1.1 206 ": 206}
"""The beginnings of most responses."""
_HEX = frozenset(b"0123456789abcdefABCDEF")


_FIXED = Framing.FIXED  # a member of an enumeration takes longer to look up than a field to find


def parse_head(raw: bytes, method: str) -> ResponseHead:
    """Return the head of a response to a request with `method`, from its bytes up to the empty line.

    Raises `ProtocolError`.
    """
    status, lower = _COMMON.get(raw[:13]) or _status(raw), raw.lower()
    at = lower.find(b"\r\nconnection:")
    # Most have no such field, or one line of it.
    plain = at < 0 or (lower.startswith(b" keep-alive\r\n", at + 13) and lower.find(b"\r\nconnection:", at + 13) < 0)
    reusable = plain and raw[7:8] == b"1"
    if not reusable:  # by the version and the Connection fields (RFC 9112, section 9.3)
        options = _values(lower, b"connection")
        reusable = b"close" not in options and (raw[7:8] != b"0" or b"keep-alive" in options)
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
        at = 0  # nothing is cut off before the end: chunks may have a few bytes each
        while at < len(data) and self._state is not _State.END:
            if self._state is _State.CHUNK_DATA:
                piece = data[at : at + self._missing]
                at += len(piece)
                pieces.append(piece)
                self._missing -= len(piece)
                if not self._missing:
                    self._state = _State.CHUNK_END
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                limit = MAX_HEAD_SIZE if self._state is _State.TRAILER else _MAX_CHUNK_LINE
                if len(data) - at > limit:
                    raise ProtocolError("a line of a chunked body without an end")
                break
            self._line(data[at:end])
            at = end + 2
        self._buffer = b"" if self._state is _State.END else data[at:]
        self.excess = self.excess or (self._state is _State.END and at < len(data))
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


# ---- the contract

ExpectedBody = tuple[int, int | None, bool]
"""The bytes that a response's body must have:

- so many bytes that are received and dropped: the store sent the whole object for a range of it;
- the bytes after those; None if only the end of the body shows it;
- whether the content is the whole object, so that the object's checksum is the content's.

A plain tuple, since each response has one.
"""
_ANY: ExpectedBody = (0, None, False)
"""Of a response without an object's content."""


def expected_body(dialect: Dialect, request: Request, head: ResponseHead) -> ExpectedBody:
    """Check the head of a successful response; return the body that has to follow.

    Raises `Mismatch`, and `StaleFileError` for another version than the request's: some stores ignore If-Match.
    """
    status, range_ = head.status, request.range
    if not request.wants_content:
        if request.method == "HEAD":
            if status != 200:
                raise mismatched(f"status {status} for a HEAD")
            if request.key:
                _check_sender(dialect, request, head)
        return _ANY
    _check_sender(dialect, request, head)
    if dialect.has_directories and dialect.is_directory(head):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if request.version is not None:
        found = dialect.version(head)
        if found is None:
            raise mismatched("a response without a version: nothing shows that it is the object's")
        if request.version != found:
            raise errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened")
    length = head.length if head.framing is _FIXED else None
    if status == 206 and (range_ is not None or request.from_start):
        return _expected_range(request, range_, head, length)
    if status != 200:
        raise mismatched(f"status {status} for a {'whole object' if range_ is None else 'range'}")
    if length is None and dialect.keeps_content:
        _check_kept(request, head)
    if range_ is not None:
        return _expected_part(request, range_, length, head.framing)
    if request.size is not None and length not in (None, request.size):
        raise mismatched(f"an object of {length} bytes where {request.size} were expected")
    if head.framing is Framing.UNTIL_CLOSE:
        if request.size is None and not dialect.has_checksum(head):
            raise _endless(request)
        length = request.size
    return (0, length, True)


def _check_sender(dialect: Dialect, request: Request, head: ResponseHead) -> None:
    """Raise `Mismatch` for a response about an object that lacks what its store sends with each of them.

    What a redirect of the store leads to is another's; the redirect has said what is there.
    """
    if request.location and request.size is not None:
        return
    for field in dialect.sent_with_objects:
        if head.lower.find(b"\r\n" + field + b":") < 0:
            reason = f"without {field.decode()}, which the store always sends: perhaps that of a sign-in page"
            raise mismatched(f"a response {reason}")


def _check_kept(request: Request, head: ResponseHead) -> None:
    """Raise `Mismatch` for an object that something on the way has decoded, or encoded: its length is not known then,
    and its ETag, if that is right, a weak one.
    """
    encoded = (head.header(b"content-encoding") or "identity").lower() != "identity"
    if encoded or (head.header(b"etag") or "").startswith("W/"):
        reason = "content without a length that something on the way has encoded or decoded: it is not what was stored"
        raise mismatched(reason, **({} if request.as_stored else {"as_stored": True}))


def _endless(request: Request) -> Mismatch:
    """Return the failure for a body of which neither a length nor chunks say where it ends; a range says so."""
    reason = "a response that doesn't say how long it is: its end can't be told from a lost connection"
    asks = request.range is None and not request.from_start
    return mismatched(reason, **({"from_start": True} if asks else {}))


def _expected_range(
    request: Request, range_: tuple[int, int] | None, head: ResponseHead, length: int | None
) -> ExpectedBody:
    sent = head.header(b"content-range") or "no range"
    bounds, _, total = sent.partition("/")
    if range_ is None and not is_number(total):
        raise mismatched(f"{sent} where all of an object was expected")
    size, offset = range_ or (int(total), 0)
    if request.size is None and is_number(total):
        size = min(size, int(total) - offset)  # the object may end in it
    if length not in (None, size) or bounds != f"bytes {offset}-{offset + size - 1}":
        raise mismatched(f"{sent} in {length} bytes where {size} from {offset} were expected")
    if request.size is not None and total not in ("*", str(request.size)):
        raise mismatched(f"a range of {total} bytes where the object had {request.size}")
    return (0, size, range_ is None)


def _expected_part(request: Request, range_: tuple[int, int], length: int | None, framing: Framing) -> ExpectedBody:
    """Check the whole object, sent for a range of it: used if it is the version that was opened."""
    size, offset = range_
    total = request.size if request.size is not None else length
    if total is None and framing is Framing.UNTIL_CLOSE:
        raise _endless(request)
    if total is None and request.version is None and not offset:
        return (0, None, True)  # nothing says how long it is: all of it is received
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


# ---- an exchange

JOINED_SIZE = 128 * 1024
"""A body of at most so many bytes is sent in one piece with its head."""
MAX_VECTOR = 256
"""Pieces of a body that are sent by one call; a system takes 1,024 or fewer."""
REFUSAL_SECONDS = 2.0
"""How long the body of a refusal is waited for: its status has said what matters."""
MIN_RATE = 64 * 1024
"""A body that is sent or comes by fewer bytes a second than these is given up."""
SLOW_TIMES = 10
"""How many times as long a store is waited for that copies, or puts an object together."""
ASKS_SECONDS = 1.0
"""Seconds after which a body is sent that the store has not asked for (RFC 9110, section 10.1.1)."""
PEEK_SIZE = 2048
MAX_REFUSAL_SIZE = 64 * 1024
MAX_TEXT_SIZE = 64 * 1024 * 1024
"""Bytes of a response that is no object's content: a page of a listing of 1,000 long keys has fewer."""
MAX_UNSIZED = 1024 * 1024 * 1024
"""Bytes of an object whose size nothing says before its end."""
IN_PLACE = 4 * 1024 * 1024
"""A body of more bytes is received into one buffer; a smaller one in pieces, which are joined in the CPU's cache."""
PIECE = 256 * 1024
TLS_RECORD = 16 * 1024
# As plain integers: operations on flags of `enum` take longer than a receive.
WAITALL, DONTWAIT = int(socket.MSG_WAITALL), int(socket.MSG_DONTWAIT)
_PEEK = int(socket.MSG_PEEK)
_IN, _OUT = select.POLLIN, select.POLLOUT
_END = b"\r\n\r\n"


class Exchange:
    """A request and its response over one connection, as far as they have come.

    `send`, `receive_head` and `receive_body` go as far as they can; where they have to wait for `events` they raise
    what `WOULD_BLOCK` has. Nothing but a response with a status of 300 and above ends a body that is being sent.

    Args:
        dialect: of the store.
        connection: not in use.
        request: what is sent.
        data: the request's bytes, but its body.
        read_timeout: seconds for which the store may be silent.
        pipelined: if no call may block.
        asks: if a body is sent when the store has asked for it (`Expect: 100-continue`).
    """

    head: ResponseHead | None = None
    ended = False
    """Whether the response has ended exactly, so that the connection can be used again."""
    silent = False
    """Whether nothing had come after the end when the end was received; False if that is not known."""
    size = 0
    """The bytes of the content that are kept in memory, once the head is known."""
    events = _IN
    """What it waits for."""
    sending = True
    """Whether there is more of the request to be sent."""
    asks_until = 0.0
    """Until when the store may ask for the body; 0 if it is not waited for."""
    asked_in_vain = False
    """Whether the store has not asked in time, or refuses to be asked."""
    _continued = False  # whether it has (RFC 9110, section 15.2.1)
    _cut = False  # whether the rest of the request was not sent: the connection can't be used again
    _blocked = False  # whether the connection did not take all at once
    _buffer = b""  # received and not parsed
    _received = 0  # of the body
    _parser: BodyParser | None = None
    _body: BytesBuffer | None = None
    _view: memoryview | None = None
    _interim = 0
    _skip = 0
    _sliced = False

    def __init__(
        self,
        dialect: Dialect,
        connection: Connection,
        request: Request,
        data: bytes,
        read_timeout: float,
        pipelined: bool,
        asks: bool = False,
    ) -> None:
        self._dialect = dialect
        self.connection = connection
        self.request = request
        self.silence_limit = read_timeout * SLOW_TIMES if request.slow else read_timeout
        """Seconds for which the store may be silent."""
        now, body = time.monotonic(), request.body
        self.deadline = now + self.silence_limit + len(body) / MIN_RATE
        """When the attempt is given up, on the monotonic clock."""
        self._flags = connection.dontwait if pipelined or connection.tls else WAITALL
        self._withheld: Sequence[bytes | bytearray | memoryview] = ()
        self._unsent: list[bytes | bytearray | memoryview] = [data]
        self._asks = asks
        if asks:
            self._withheld, self.asks_until = parts_of(body), now + min(ASKS_SECONDS, read_timeout / 4)
        elif body and connection.tls and len(body) <= JOINED_SIZE:
            self._unsent = [b"".join((data, *parts_of(body)))]
        elif body:
            self._unsent += parts_of(body)
        self._pieces: list[bytes] = []

    # ---- the request

    def send(self) -> None:
        """Send what the connection takes, and what the store wants: not after a refusal."""
        connection, unsent = self.connection, self._unsent
        waits = 0 if self._flags == WAITALL and not self.request.body else connection.dontwait
        while unsent or self._withheld:
            if self._blocked:
                if self._is_refused():
                    break
                self._blocked = False
            if not unsent:
                if not self._continued and time.monotonic() < self.asks_until:
                    self._blocked, self.events = True, _IN
                    raise BlockingIOError
                self.asked_in_vain, self.asks_until = not self._continued, 0.0
                unsent += self._withheld
                self._withheld = ()
            try:
                if len(unsent) == 1 or connection.tls:
                    sent = connection.socket.send(unsent[0], waits)
                else:
                    sent = connection.socket.sendmsg(unsent[:MAX_VECTOR], (), waits)
            except WOULD_BLOCK:
                self._blocked, self.events = True, _OUT if self.head is not None else _IN | _OUT
                raise
            except ConnectionError:
                if not self._is_refused():
                    raise
                break
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.pop(0))
            if sent:
                unsent[0] = memoryview(unsent[0])[sent:]
        self.sending, self.events = False, _IN
        if self._flags == WAITALL:
            connection.acknowledge()

    def _is_refused(self) -> bool:
        """Return whether a refusal has come before all of the request was sent; nothing is waited for."""
        if self.head is None:
            flags, self._flags = self._flags, self.connection.dontwait
            try:
                self.receive_head()
            except WOULD_BLOCK:
                return False
            finally:
                if not self.refused:
                    self._flags = flags
        self._cut = self.refused
        return self._cut

    # ---- the response

    def receive_head(self) -> None:
        """Receive the head and check it."""
        request = self.request
        head = parse_head(self._receive_head(), request.method)
        while head.status < 200:
            self._interim += 1
            self._continued = self._continued or head.status == 100
            self.connection.head_size = 0
            if self._interim > MAX_INTERIM_RESPONSES:
                raise ProtocolError(f"more than {MAX_INTERIM_RESPONSES} interim responses")
            head = parse_head(self._receive_head(), request.method)
        if head.status >= 300:
            self.deadline = min(self.deadline, time.monotonic() + REFUSAL_SECONDS)
            self._expected = _ANY
            self._flags = self.connection.dontwait
        else:
            self._expected = expected = expected_body(self._dialect, request, head)
            self._skip, size, _ = expected
            self._sliced = head.status == 200 and request.range is not None
            self._view = request.into
            self.size = size = head.length if size is None else size  # 0, if it is not known
            if size > IN_PLACE:
                self._check_size(head, size)
        if head.framing is not _FIXED:
            self._parser = BodyParser(head.framing)
        self.head = head

    def _check_size(self, head: ResponseHead, size: int) -> None:
        request = self.request
        if request.large is not None and size > request.large and head.framing is _FIXED:
            raise LargeObject(head)
        if size > MAX_TEXT_SIZE and not self.request.wants_content:
            raise mismatched(f"a response of {size} bytes where {MAX_TEXT_SIZE} are the limit")
        self.deadline += size / MIN_RATE

    def _receive_head(self) -> bytes:
        connection = self.connection
        sock, flags = connection.socket, self._flags & DONTWAIT
        if not self._buffer:
            if size := connection.head_size:
                seen = sock.recv(size, flags)
                end = seen.find(_END)
                if end == size - 4:
                    return seen[:end]
                connection.head_size = 0
                if not seen:
                    raise hung_up(0)
                self._buffer = seen
            elif not connection.tls:
                seen = sock.recv(PEEK_SIZE, flags | _PEEK)
                end = seen.find(_END)
                if end >= 0:
                    connection.head_size = end + 4
                    sock.recv(end + 4)
                    return seen[:end]
        while (end := self._buffer.find(_END)) < 0:
            if len(self._buffer) > MAX_HEAD_SIZE:
                raise ProtocolError(f"a head of more than {MAX_HEAD_SIZE} bytes")
            more = sock.recv(MAX_HEAD_SIZE, flags)
            if not more:
                raise hung_up(len(self._buffer))
            self._buffer += more
            self._check_deadline()
        raw, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        return raw

    def receive_body(self) -> None:
        """Receive the body after the head, as far as it is wanted."""
        head, parser = self.head, self._parser
        assert head is not None
        if self.size > IN_PLACE and self._view is None:
            self._body = BytesBuffer(self.size)
            self._view = self._body.view
        if parser is not None:
            while not parser.ended and not self._has_enough():
                data, self._buffer = self._buffer or self._receive_some(), b""
                for piece in parser.feed(data):
                    self._keep(piece)
                if not self.size:  # it is not known: each byte brings its time with it
                    self.deadline += len(data) / MIN_RATE
                self._check_deadline()
            exact = parser.ended and not parser.excess
        else:
            if head.length:
                self._receive_fixed(head.length)
            exact = self._received == head.length and not self._buffer
        self.ended = exact and head.reusable and not self._cut

    def _receive_fixed(self, length: int) -> None:
        """Receive a body of known size."""
        parts = self._sliced or self.refused  # of which not all may be kept
        while self._buffer or (parts and self._received < length):
            if self._received == length or self._has_enough():
                return
            piece = (self._buffer or self._receive_some())[: length - self._received]
            self._buffer = self._buffer[len(piece) :]
            if not piece:
                raise cut_short(self._received, length)
            self._keep(piece)
            self._check_deadline()
        sock, flags, view = self.connection.socket, self._flags, self._view
        limit = PIECE if flags == DONTWAIT else length if flags else TLS_RECORD
        while missing := length - self._received:
            if view is not None:
                wanted = missing
                got = sock.recv_into(view[self._received :], missing, flags)
            else:
                # One byte more than are missing, where that doesn't block: it shows whether the connection is silent.
                wanted = missing + 1 if flags == DONTWAIT and missing < limit else min(missing, limit)
                piece = sock.recv(wanted, flags)
                got = len(piece)
                if got > missing:
                    self._buffer, piece, got = piece[missing:], piece[:missing], missing
                self._pieces.append(piece)
                self.silent = got == missing < wanted and not self._buffer
            if not got:
                raise cut_short(self._received, length)
            self._received += got
            if got < wanted and got < missing:
                if flags == DONTWAIT:
                    raise BlockingIOError  # there is no more for now; TLS may hold more than poll knows of
                self._check_deadline()

    def _receive_some(self) -> bytes:
        data = self.connection.socket.recv(PIECE, self._flags & DONTWAIT)
        if self.request.slow:  # the store shows that it still works
            self.deadline = max(self.deadline, time.monotonic() + self.silence_limit)
        return data

    def _has_enough(self) -> bool:
        """Return whether the rest of the body is not wanted: of a refusal, or of the whole object for a range."""
        size = self._expected[1]
        if size is None:
            return self._received > MAX_REFUSAL_SIZE and self.refused
        return self._sliced and self._received >= self._skip + size

    def _keep(self, piece: bytes) -> None:
        """Put a piece of the body where it belongs."""
        start = self._received - self._skip
        self._received += len(piece)
        size = self._expected[1]
        if size is None and self._received > (limit := MAX_UNSIZED if self.request.wants_content else MAX_TEXT_SIZE):
            raise mismatched(f"a response of more than {limit} bytes")
        if start < 0:
            piece, start = piece[-start:], 0
        if size is not None and start + len(piece) > size:
            if not self._sliced:
                raise mismatched(f"a body of {self._received} bytes and more where {size} were expected")
            piece = piece[: size - start]
        if self._view is not None:
            self._view[start : start + len(piece)] = piece
        elif piece:
            self._pieces.append(piece)

    def _check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError

    def outcome(self) -> Response | Exception:
        """Return the response, or the failure that it stands for. Raises `Mismatch`."""
        head, request = self.head, self.request
        assert head is not None
        if head.status == 417 and self._asks:
            self.asked_in_vain = True
            return mismatched("the store refuses Expect: 100-continue")
        if head.status >= 300:
            return self._dialect.failure(request, head, b"".join(self._pieces))
        if self._body is not None:
            self._pieces = [self._body.release()]
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._expected is not _ANY:
            size = len(body) if request.into is None else min(self._received - self._skip, len(request.into))
            check_body(self._dialect, request, head, self._expected, pieces, size)
        elif (failure := self._dialect.check(request, head, body)) is not None:
            return failure
        return Response(head, body)

    @property
    def buffered(self) -> bytes:
        """The bytes of the body that have come with the head."""
        return self._buffer

    @property
    def refused(self) -> bool:
        """True if the response is an error status: its body may be missing."""
        return self.head is not None and self.head.status >= 300

    @property
    def started(self) -> bool:
        """True if any byte has been received."""
        return self.head is not None or bool(self._buffer)

    @property
    def blocks(self) -> bool:
        """True if a receive waits for what it wants."""
        return self._flags == WAITALL and not self.sending
