"""Receiving one response from a connection: the head, the response contract, and the body into its final buffer.

One `Receiver` serves the blocking client, whose plain connections block, and the pipeline, whose receives return what
has come. The head of a plain connection is received alone, so that a body of known size is received without a copy: the
first one is peeked at, and the next ones most often have the same size.
"""

from __future__ import annotations

import socket
import ssl
import time

from ...core.buffers import BytesBuffer
from . import contract
from .connections import WOULD_BLOCK, Connection
from .dialect import Dialect
from .failures import LargeObject, cut_short, hung_up, mismatched
from .http1 import MAX_HEAD_SIZE, MAX_INTERIM_RESPONSES, BodyParser, Framing, ProtocolError, ResponseHead, parse_head
from .messages import Request, Response
from .retry import REFUSAL_SECONDS, body_seconds

PEEK_SIZE = 2048
MAX_REFUSAL_SIZE = 64 * 1024
MAX_TEXT_SIZE = 64 * 1024 * 1024
"""Bytes of a response that is no object's content: a page of a listing of 1,000 long keys has fewer."""
IN_PLACE = 4 * 1024 * 1024
"""A body of more bytes is received into one buffer; a smaller one in pieces, which are joined in the CPU's cache."""
PIECE = 256 * 1024
TLS_RECORD = 16 * 1024
# As plain integers: operations on flags of `enum` take longer than a receive.
WAITALL, DONTWAIT = int(socket.MSG_WAITALL), int(socket.MSG_DONTWAIT)
_PEEK = int(socket.MSG_PEEK)
_FIXED = Framing.FIXED
_END = b"\r\n\r\n"
SEND_WOULD_BLOCK = (*WOULD_BLOCK, ssl.SSLWantWriteError)


class Receiver:
    """One response, as far as it has come.

    Args:
        dialect: of the store.
        request: the request that it is the response to.
        flags: of each receive: `DONTWAIT` or, where it blocks, `WAITALL`; 0 with TLS.
        deadline: when the attempt is given up, on the monotonic clock.
        patience: for how many seconds a store may be silent that works before it answers.
    """

    head: ResponseHead | None = None
    ended = False
    """Whether the response has ended exactly, so that the connection can be used again."""
    silent = False
    """Whether nothing had come after the end when the end was received; False if that is not known."""
    size = 0
    """The bytes of the content that are kept in memory, once the head is known."""
    _buffer = b""  # received and not parsed
    _received = 0  # of the body
    _parser: BodyParser | None = None
    _body: BytesBuffer | None = None
    _view: memoryview | None = None
    _interim = 0
    cut = False
    """Whether the rest of the request was not sent: the connection can't be used again."""
    continued = False
    """Whether the store has asked for the body (RFC 9110, section 15.2.1)."""
    _skip = 0
    _sliced = False

    def __init__(self, dialect: Dialect, request: Request, flags: int, deadline: float, patience: float) -> None:
        self._dialect = dialect
        self.request = request
        self.deadline = deadline
        self._patience = patience if request.slow else 0.0
        self._flags = flags
        self._pieces: list[bytes] = []

    def receive_head(self, connection: Connection) -> ResponseHead:
        """Receive the head and check it; raises what `WOULD_BLOCK` has if it hasn't come completely."""
        request = self.request
        head = parse_head(self._receive_head(connection), request.method)
        while head.status < 200:
            self._interim += 1
            self.continued = self.continued or head.status == 100
            connection.head_size = 0
            if self._interim > MAX_INTERIM_RESPONSES:
                raise ProtocolError(f"more than {MAX_INTERIM_RESPONSES} interim responses")
            head = parse_head(self._receive_head(connection), request.method)
        if head.status >= 300:
            self.deadline = min(self.deadline, time.monotonic() + REFUSAL_SECONDS)
            self._expected = contract.ANY
            self._flags = connection.dontwait
        else:
            self._expected = expected = contract.check(self._dialect, request, head)
            self._skip, size, _ = expected
            self._sliced = head.status == 200 and request.range is not None
            self._view = request.into
            self.size = size = head.length if size is None else size  # 0, if it is not known
            if size > IN_PLACE:
                self._make_room(request, head, size)
        if head.framing is not _FIXED:
            self._parser = BodyParser(head.framing)
        self.head = head
        return head

    def _make_room(self, request: Request, head: ResponseHead, size: int) -> None:
        if request.large is not None and size > request.large and head.framing is _FIXED:
            raise LargeObject(head)
        self.deadline += body_seconds(size)
        if self._view is None:
            self._body = BytesBuffer(size)
            self._view = self._body.view

    def _receive_head(self, connection: Connection) -> bytes:
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

    def receive_body(self, connection: Connection) -> bool:
        """Receive what has come of the body; return whether that is all."""
        head, parser = self.head, self._parser
        assert head is not None
        if parser is not None:
            self._receive_parsed(connection, parser)
            self.ended = parser.ended and not parser.excess and head.reusable and not self.cut
            return True
        length = head.length
        if self._sliced or head.status >= 300:
            self._receive_rest(connection, length)
        else:
            if self._buffer:
                rest = self._buffer[:length]
                self._buffer = self._buffer[len(rest) :]
                self._keep(rest)
            if self._received < length and not self._receive_fixed(connection, length):
                return False
        self.ended = self._received == length and not self._buffer and head.reusable and not self.cut
        return True

    def _receive_fixed(self, connection: Connection, length: int) -> bool:
        """Receive a body of known size; return False if more of it is still to come."""
        sock, flags, view = connection.socket, self._flags, self._view
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
                    return False  # there is no more for now; TLS may hold more than poll knows of
                self._check_deadline()
        return True

    def _receive_rest(self, connection: Connection, length: int) -> None:
        """Receive a body of known size of which some came with the head, or not all is kept."""
        while self._received < length and not self._has_enough():
            piece = (self._buffer or self._receive_some(connection))[: length - self._received]
            self._buffer = self._buffer[len(piece) :]
            if not piece:
                raise cut_short(self._received, length)
            self._keep(piece)
            self._check_deadline()

    def _receive_parsed(self, connection: Connection, parser: BodyParser) -> None:
        while not parser.ended and not self._has_enough():
            data, self._buffer = self._buffer or self._receive_some(connection), b""
            for piece in parser.feed(data):
                self._keep(piece)
            self._check_deadline()

    def _receive_some(self, connection: Connection) -> bytes:
        data = connection.socket.recv(PIECE, self._flags & DONTWAIT)
        if self._patience:  # the store shows that it still works
            self.deadline = max(self.deadline, time.monotonic() + self._patience)
        return data

    def _has_enough(self) -> bool:
        """Return whether the rest of the body is not wanted: of a refusal, or of the whole object for a range."""
        size = self._expected[1]
        if size is None:
            return self._received > MAX_REFUSAL_SIZE and self.head is not None and self.head.status >= 300
        return self._sliced and self._received >= self._skip + size

    def _keep(self, piece: bytes) -> None:
        """Put a piece of the body where it belongs."""
        start = self._received - self._skip
        self._received += len(piece)
        if self._received > MAX_TEXT_SIZE and not self.request.wants_content:
            raise mismatched(f"a response of more than {MAX_TEXT_SIZE} bytes")
        if start < 0:
            piece, start = piece[-start:], 0
        size = self._expected[1]
        if size is not None and start + len(piece) > size:
            if not self._sliced:
                raise contract.too_long(self._received, size)
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
        if head.status >= 300:
            body = b"".join(self._pieces)
            return self._dialect.failure(request, head, body)
        if self._body is not None:
            self._pieces = [self._body.release()]
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        size = len(body) if request.into is None else self._received - self._skip
        contract.check_body(self._dialect, request, head, self._expected, pieces, size)
        if not request.wants_content:
            failure = self._dialect.check(request, head, body)
            if failure is not None:
                return failure
        return Response(head, body)

    def refused_early(self, connection: Connection) -> bool:
        """Return whether a refusal has come before all of the request was sent; nothing is waited for."""
        if self.head is None:
            flags, self._flags = self._flags, connection.dontwait
            try:
                self.receive_head(connection)
            except WOULD_BLOCK:
                return False
            finally:
                self._flags = flags
        return self.refused

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
    def blocking(self) -> bool:
        """True if receives block."""
        return self._flags == WAITALL
