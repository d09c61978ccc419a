"""The failures of a request, and the `OSError` that each of them is for the user.

`Transient` is retried, and carries the error that is raised once it isn't retried any more. `UnsupportedResponse`
leaves the request to boto3. A refusal by the store becomes the error of Python's that says the same.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ... import errors
from .http1 import ProtocolError, ResponseHead

_TRANSIENT = frozenset({500, 502, 503, 504})
_TRANSIENT_CODES = frozenset({"RequestTimeout", "InternalError", "OperationAborted"})
_THROTTLED = frozenset({429, 503})
_THROTTLED_CODES = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}
)
_REDIRECT_CODES = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "Redirect"})
_REJECTED_QUERY_CODES = frozenset({"InvalidRequest", "InvalidArgument", "NotImplemented", "SignatureDoesNotMatch"})
_REFUSED = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
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


class UnsupportedResponse(Exception):
    """The fast client can't go on with this request; boto3 can, or has the words for what is wrong.

    Args:
        redirected: whether the bucket is elsewhere: its endpoint has to be resolved again.
    """

    def __init__(self, reason: str, redirected: bool = False) -> None:
        super().__init__(reason)
        self.redirected = redirected


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


class RejectedNonce(Transient):
    """The store may have refused the request for its nonce."""


class LargeObject(Exception):
    """An object that is better read in ranges."""

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(f"{head.length} bytes")
        self.head = head


def refused(head: ResponseHead, body: bytes, nonce: bool = False) -> Exception:
    """Return the failure that a response with a status of 300 and above stands for.

    Args:
        head: the response's.
        body: its body, as far as it came; the response to a HEAD has none.
        nonce: whether the request had a query that the store may not know.
    """
    status, code, message = head.status, xml_text(body, b"Code"), xml_text(body, b"Message")
    if 300 <= status < 400 or code in _REDIRECT_CODES or (status == 400 and head.header(b"x-amz-bucket-region")):
        return UnsupportedResponse(f"status {status}: the bucket is in another region", redirected=True)
    error = refusal(status, code or ("" if body else head.reason), message)
    if nonce and (code in _REJECTED_QUERY_CODES or status == 501 or (not body and status in (400, 403))):
        return RejectedNonce(error)
    if status in _THROTTLED or code in _THROTTLED_CODES:
        return Throttled(error, retry_after(head))
    if status in _TRANSIENT or status == 408 or code in _TRANSIENT_CODES:
        return Transient(error)
    if status == 400 and not body:
        return UnsupportedResponse("status 400 without a word why", redirected=True)
    return error


def retry_after(head: ResponseHead) -> float:
    """Return the seconds that the store asks to wait; 0 if it does not say."""
    value = head.header(b"retry-after") or ""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()) if value else 0.0
    except (ValueError, TypeError):
        return 0.0


def refusal(status: int, code: str, message: str | None) -> OSError:
    """Return the error for a refusal: the response's status, and the code and message of its body.

    The error has `status` and `code` as attributes.
    """
    error = _refusal(status, code, message)
    error.status, error.code = status, code  # type: ignore[attr-defined]
    return error


def _refusal(status: int, code: str, message: str | None) -> OSError:
    name = message if code.isdigit() else code  # a HEAD has no body to say more than its status
    text = f"{name} ({status})" + (f": {message}" if message not in ("", None, name) else "")
    if status == 412 or code in ("PreconditionFailed", "ConditionalRequestConflict"):
        return errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened")
    if status == 416:
        return errors.StaleFileError(errno.ESTALE, "the object has become shorter since it was opened")
    if code == "NoSuchBucket":
        return FileNotFoundError(errno.ENOENT, "the bucket does not exist")
    if code == "NoSuchUpload":
        return OSError(errno.EIO, "the multipart upload is gone: another client aborted it")
    if code in _REFUSED:
        return PermissionError(errno.EACCES, text)
    if code == "RequestTimeout":
        return TimeoutError(errno.ETIMEDOUT, text)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if 300 <= status < 400:
        return OSError(errno.EREMCHG, f"{text}: the bucket is in another region or behind another endpoint")
    return OSError(_ERRNO_OF_STATUS.get(status, errno.EREMOTEIO if status >= 500 else errno.EINVAL), text)


def xml_text(body: bytes, name: bytes) -> str:
    """Return the text of the first element `name` of an error's body; empty if there is none."""
    start = body.find(b"<" + name + b">")
    end = body.find(b"</" + name + b">", start)
    return body[start + len(name) + 2 : end].decode("utf-8", "replace") if 0 <= start < end else ""


def broken(exc: Exception) -> Exception:
    """Return the failure that an exception of a socket or of the parser stands for."""
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
    if isinstance(exc, OSError):
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
