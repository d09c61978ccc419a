"""The failures of a request, and the `OSError` that each of them is for the user.

`Transient` is sent again, and carries the error that is raised once it isn't any more. Its subclasses say what is done
before that: `retry.py` decides. A refusal by the store becomes the error of Python's that says the same.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ...core import errors

if TYPE_CHECKING:
    from .http1 import ResponseHead

if TYPE_CHECKING:
    from .messages import Request

_TRANSIENT = frozenset({408, 500, 502, 503, 504})
_THROTTLED = frozenset({429, 503})
_ERRNO_OF_STATUS = {
    401: errno.EACCES,
    403: errno.EACCES,
    404: errno.ENOENT,
    408: errno.ETIMEDOUT,
    409: errno.EBUSY,
    429: errno.EBUSY,
    503: errno.EBUSY,
    504: errno.ETIMEDOUT,
}


GONE = "NoSuchUpload"
"""The code of the error for an upload that the store does not have, or no longer."""


class ProtocolError(Exception):
    """What came is no response as HTTP/1.1 has it, or is cut short."""


class Transient(Exception):
    """A failure that may not occur at the next attempt; `error` is what the user sees if it does."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Unanswered(Transient):
    """The connection ended before a byte of the response: no failure of a connection that was idle before."""


class Mismatch(Transient):
    """The response does not belong to the request. A late response to an earlier request looks like that."""


class Throttled(Transient):
    """The store asks for fewer requests, and for a pause of `retry_after` seconds (0: it does not say)."""

    def __init__(self, error: OSError, retry_after: float) -> None:
        super().__init__(error)
        self.retry_after = retry_after


class OutOfQuota(Throttled):
    """The store accepts further requests after `retry_after` seconds, and none before."""


class Moved(Transient):
    """The bucket is elsewhere: at `place`, a name that its dialect knows."""

    def __init__(self, error: OSError, place: str) -> None:
        super().__init__(error)
        self.place = place


class Expired(Transient):
    """The credentials are no longer accepted: there may be newer ones."""


class Redirected(Transient):
    """The request is answered elsewhere: at `location`, a URL that may be relative; an empty one is where requests of
    the object go at first, when an earlier location leads nowhere any more.

    `known` has what the response says of the object, by the names of a request's fields.
    """

    def __init__(self, error: OSError, location: str, **known: Any) -> None:
        super().__init__(error)
        self.location = location
        self.known = known


class LargeObject(Exception):
    """An object that is better read in ranges."""

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(f"{head.length} bytes")
        self.head = head


def is_location_refused(request: Request, status: int) -> bool:
    """Return whether a redirect's location is refused, which may have been good for a time: it is asked for again."""
    return bool(request.location) and not request.anew and 400 <= status < 500 and status not in (408, 416, 429)


def refused(head: ResponseHead, code: str, message: str) -> Exception:
    """Return the failure that a response with a status of 300 and above stands for, by its status alone.

    Args:
        head: the response's.
        code, message: what its body says; empty where that is nothing.
    """
    error = refusal(head.status, code or head.reason, message)
    if head.status in _THROTTLED:
        return Throttled(error, retry_after(head))
    return Transient(error) if head.status in _TRANSIENT else error


def retry_after(head: ResponseHead) -> float:
    """Return the seconds that the store asks to wait; 0 if it does not say."""
    return seconds_to_wait(head.header(b"retry-after") or "")


def seconds_to_wait(value: str) -> float:
    """Return the seconds that a Retry-After stands for, which has them or a date; 0 for anything else."""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()) if value else 0.0
    except (ValueError, TypeError):
        return 0.0


def refusal(status: int, code: str, message: str = "") -> OSError:
    """Return the error for a refusal: the response's status, and the code and message of its body.

    The error has `status` and `code` as attributes.
    """
    text = f"{code} ({status})" + (f": {message}" if message not in ("", code) else "")
    if status == 412:
        return with_status(
            errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened"), status, code
        )
    if status == 416:
        return with_status(
            errors.StaleFileError(errno.ESTALE, "the object has become shorter since it was opened"), status, code
        )
    if status == 404:
        return with_status(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), status, code)
    if 300 <= status < 400:
        error = OSError(errno.EREMCHG, f"{text}: the bucket is in another region or behind another endpoint")
        return with_status(error, status, code)
    number = _ERRNO_OF_STATUS.get(status, errno.EREMOTEIO if status >= 500 else errno.EINVAL)
    return with_status(OSError(number, text), status, code)


def with_status(error: OSError, status: int, code: str) -> OSError:
    """Return an error with the status and the code of the response that it stands for."""
    error.status, error.code = status, code  # type: ignore[attr-defined]
    return error


def code_of(error: BaseException) -> str:
    """Return the code of the response that an error stands for; empty if it stands for none."""
    return str(getattr(error, "code", ""))


def broken(exc: Exception) -> Exception:
    """Return the failure that an exception of a socket or of the parser stands for."""
    if isinstance(exc, PermissionError | IsADirectoryError):  # of a proxy or a provider of credentials; of the contract
        return exc
    if isinstance(exc, ProtocolError):
        return Transient(errors.CorruptFileError(errno.EBADMSG, str(exc)))
    if isinstance(exc, BlockingIOError | TimeoutError):
        return Transient(TimeoutError(errno.ETIMEDOUT, "the store sent nothing for too long"))
    if isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return Transient(ConnectionResetError(errno.ECONNRESET, "the connection ended within TLS"))
    if isinstance(exc, ssl.SSLCertVerificationError):
        return ConnectionError(errno.ECONNABORTED, f"the store's certificate is not accepted: {exc.verify_message}")
    if isinstance(exc, ssl.SSLError) and exc.reason == "WRONG_VERSION_NUMBER":
        reason = "the response is not TLS: the endpoint may be one of http://, or the port another service's"
        return Transient(ConnectionAbortedError(errno.ECONNABORTED, reason))
    if isinstance(exc, ssl.SSLError):
        return Transient(ConnectionAbortedError(errno.ECONNABORTED, f"TLS: {exc.reason or exc}"))
    if isinstance(exc, ConnectionError):
        return Transient(type(exc)(exc.errno or errno.ECONNRESET, exc.strerror or str(exc)))
    if isinstance(exc, socket.gaierror):
        return Transient(ConnectionError(errno.EHOSTUNREACH, f"the host's name can't be resolved: {exc.strerror}"))
    if isinstance(exc, OSError) and exc.errno != errno.ENOMEM:  # of a body that is too large for this process
        return Transient(OSError(exc.errno or errno.EIO, exc.strerror or str(exc)))
    return exc


def not_connected(exc: Exception, endpoint: str) -> Exception:
    """Return the failure to connect to an endpoint. It names the endpoint, which may be another one than was meant."""
    failure = broken(exc)
    error = failure.error if isinstance(failure, Transient) else failure
    if not isinstance(error, OSError):
        return failure
    text = "no connection within the time limit" if isinstance(error, TimeoutError) else error.strerror
    named = type(error)(error.errno, f"{text} (endpoint {endpoint})")
    return Transient(named) if isinstance(failure, Transient) else named


def hung_up(received: int) -> Transient:
    """Return the failure for the end of a connection after `received` bytes of a head."""
    if received:
        return Transient(ConnectionResetError(errno.ECONNRESET, "the response ended within its header fields"))
    return Unanswered(ConnectionResetError(errno.ECONNRESET, "the store closed the connection without a response"))


def cut_short(received: int, length: int) -> Transient:
    """Return the failure for a body that ended too early."""
    reason = f"the body ended after {received} of {length} bytes"
    return Transient(errors.CorruptFileError(errno.EBADMSG, reason))


def mismatched(reason: str) -> Mismatch:
    """Return the failure for a response that does not belong to its request."""
    return Mismatch(errors.CorruptFileError(errno.EBADMSG, reason))


def error_name(exc: BaseException) -> str:
    """Return the name of the error that the user would see."""
    return type(exc.error if isinstance(exc, Transient) else exc).__name__
