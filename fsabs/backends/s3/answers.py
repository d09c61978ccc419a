"""What is asked of a store over our own connections, and what its answers say: heads, refusals, and what may go better
the next time. Nothing here sends or receives.
"""

from __future__ import annotations

import errno
import random
import ssl
from typing import NamedTuple

from ... import errors
from .boto import refusal

CHECKSUM_MODE = "x-amz-checksum-mode:ENABLED"
"""Asks for the checksum of an object, which AWS sends on request only."""
BACKOFF = 0.1  # seconds that a second attempt waits at most; each further one twice as long
MAX_BACKOFF = 5.0
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_chance = random.SystemRandom()  # a forked child goes its own way, and the user's own seed is left alone


class PlainAnswerMissing(Exception):
    """The answer was not one of those that are understood here: a request for boto3."""


class Transient(Exception):
    """A failure that may be none the next time; `error` is what the user sees if it remains."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Unanswered(Transient):
    """The connection ended before a byte of the answer came: no failure where it had been idle before."""


class Large(Exception):
    """An object that is better read in ranges."""

    def __init__(self, head: bytes, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.head = head
        self.size = size


class Ask(NamedTuple):
    """A GET."""

    key: str
    part: tuple[int, int] | None = None
    """Size and offset; None for the whole object."""
    version: str | None = None
    """The ETag that it must have."""
    total: int | None = None
    """The object's size, where it is known."""
    into: memoryview | None = None
    """Where the bytes are put; else they come as they are."""

    @property
    def strong(self) -> bool:
        """Whether a store can compare the version: a weak ETag matches nothing (RFC 9110, section 13.1.1)."""
        return bool(self.version) and not str(self.version).startswith("W/")

    def lines(self) -> str:
        """The header lines that say so."""
        condition = f'If-Match: "{self.version}"\r\n' if self.strong else ""
        if self.part is None:
            return condition
        size, offset = self.part
        return f"Range: bytes={offset}-{offset + size - 1}\r\n{condition}"


class Answer(NamedTuple):
    """What a plain answer's head says."""

    length: int
    keep: bool
    """Whether the connection may be used again."""
    checksums: bool
    """Whether there are any."""


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures, by chance within a bound that doubles."""
    return min(MAX_BACKOFF, BACKOFF * 2.0 ** (failures - 1)) * _chance.random()


def field(head: bytes, name: bytes) -> bytes | None:
    """The value of the header `name` (lower case)."""
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return None
    at += len(name) + 3
    end = head.find(b"\r\n", at)
    return (head[at:end] if end >= 0 else head[at:]).strip()


def status_of(head: bytes) -> int:
    """The status of an answer; `PlainAnswerMissing` if it isn't HTTP/1.1."""
    if head[:9] != b"HTTP/1.1 " or not head[9:12].isdigit():
        raise PlainAnswerMissing(f"the answer {head[:40]!r}")
    return int(head[9:12])


def parse(head: bytes, status: bytes) -> Answer:
    """Read an answer's head; `PlainAnswerMissing` if it isn't a plain one with the status that was expected."""
    if head[:9] != b"HTTP/1.1 " or head[9:12] != status:
        raise PlainAnswerMissing(f"the answer {head[:40]!r}")
    lower = head.lower()
    if b"\r\ntransfer-encoding:" in lower or b"\r\ncontent-encoding:" in lower:
        raise PlainAnswerMissing("an encoded body")
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        raise PlainAnswerMissing("a body of unknown length")
    end = lower.find(b"\r\n", at + 2)
    digits = lower[at + 17 : end if end >= 0 else len(lower)].strip()
    if not digits.isdigit():
        raise PlainAnswerMissing("a Content-Length that is no number")
    return Answer(int(digits), b"\r\nconnection: close" not in lower, b"\r\nx-amz-checksum-" in lower)


def understood(head: bytes, ask: Ask) -> Answer:
    """Read the head of the answer to `ask`, which must be of that range, size and version.

    Raises `PlainAnswerMissing`, `Transient`, and `StaleFileError` for another version than was asked for, since some
    stores don't know If-Match.
    """
    answer = parse(head, b"200" if ask.part is None else b"206")
    if ask.version:
        etag = field(head, b"etag")
        if etag is not None and etag.strip(b'"') != ask.version.encode("latin-1"):
            raise errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened")
    if ask.part is None:
        if ask.total is not None and answer.length != ask.total:
            raise _wrong(f"an object of {answer.length} bytes where {ask.total} were expected")
        return answer
    size, offset = ask.part
    told = field(head, b"content-range") or b"no range"
    range_, _, total = told.partition(b"/")
    if ask.total is None and total.isdigit():
        size = min(size, int(total) - offset)  # the object may end in it
    if answer.length != size or range_ != b"bytes %d-%d" % (offset, offset + size - 1):
        raise _wrong(f"{told.decode('latin-1')} in {answer.length} bytes where {size} from {offset} were expected")
    if ask.total is not None and total not in (b"*", b"%d" % ask.total):
        raise _wrong(f"a range of {total.decode('latin-1')} bytes where the object had {ask.total}")
    return answer


def _wrong(reason: str) -> Transient:
    return Transient(errors.CorruptFileError(errno.EBADMSG, reason))


def refused(head: bytes, body: bytes) -> Exception:
    """What an answer that is an error means: `Transient`, an `OSError`, or `PlainAnswerMissing`.

    Args:
        head: the answer's.
        body: its body, of which HEAD has none.
    """
    status = status_of(head)
    code, message = _element(body, b"Code"), _element(body, b"Message")
    if status in _TRANSIENT or code == "RequestTimeout":
        reason = head[13 : head.find(b"\r\n")].decode("latin-1") if b"\r\n" in head else ""
        return Transient(refusal(status, code or reason, message))
    missing = status == 404 and (code in ("NoSuchKey", "NoSuchBucket") or not body)
    if missing or status in (412, 416):
        return refusal(status, code, message)
    return PlainAnswerMissing(f"status {status}")


def _element(body: bytes, name: bytes) -> str:
    """The text of an XML element of an error's body."""
    start = body.find(b"<" + name + b">")
    end = body.find(b"</" + name + b">", start)
    return body[start + len(name) + 2 : end].decode("utf-8", "replace") if 0 <= start < end else ""


def hung_up(got: int) -> Transient:
    """The end of a connection after `got` bytes of a head."""
    if got:
        return Transient(ConnectionResetError(errno.ECONNRESET, "the answer ended within its head"))
    return Unanswered(ConnectionResetError(errno.ECONNRESET, "the store closed the connection without an answer"))


def broken(exc: OSError) -> Exception:
    """What an error of a connection means: `Transient` if it is one of the usual ends, else `PlainAnswerMissing`."""
    if isinstance(exc, BlockingIOError | TimeoutError):
        return Transient(TimeoutError(errno.ETIMEDOUT, "the store sent nothing for too long"))
    if isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return Transient(ConnectionResetError(errno.ECONNRESET, "the connection ended within TLS"))
    if isinstance(exc, ConnectionError):
        return Transient(type(exc)(exc.errno or errno.ECONNRESET, exc.strerror or str(exc)))
    return PlainAnswerMissing(f"{type(exc).__name__}: {exc}")


def cut(got: int, length: int) -> Transient:
    """A body that ended too early."""
    return _wrong(f"the body ended after {got} of {length} bytes")
