"""The failures of a request, the `OSError` that each of them is for the user, and what follows: how often a request is
sent, how long to wait before the next attempt, and when to give up.

`Transient` is sent again, and carries the error that is raised once it isn't any more. Its subclasses say what is done
before that. A refusal by the store becomes the error of Python's that says the same.

Waits are random up to a bound that doubles with each failure (full jitter), and at least as long as the store asks for
(`Retry-After`). An attempt ends at its deadline, whatever happens.

A store that asks for fewer requests (503, 429) is waited for until the deadline, unless the number of attempts was set,
and all requests of a user on this host to that endpoint share a rate. While the store answers, there is no limit, and
each request costs a look at shared memory. When more than a few responses say "slow down", the rate is halved; each
further second without one raises it again, until there is no limit. The rate is in a small file that all processes map.
Nothing locks it: two processes that write at the same moment lose one update, which the next response makes up for.
Without a file (no writable directory) each process has a rate of its own.

A store that says when its quota is renewed is asked again then. Redirects are no failures.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import random
import socket
import ssl
import struct
import tempfile
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ...core import errors
from ...disk.descriptors import allocate
from ...disk.folders import Folder
from .messages import Request, ResponseHead, is_number

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
_STALE = {
    412: "the object is not the version that was opened",
    416: "the object has become shorter since it was opened",
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

    def final_error(self) -> OSError:
        """Return the error to raise from this, which forgets it: else each would keep the other."""
        error = self.error
        del self.error
        return error


class Unanswered(Transient):
    """The connection ended before a byte of the response: no failure of a connection that was idle before."""


class Mismatch(Transient):
    """The response does not belong to the request. A late response to an earlier request looks like that.

    `instead` has the fields of the request that is sent in the place of one whose response can't be used.
    """

    def __init__(self, error: OSError, **instead: Any) -> None:
        super().__init__(error)
        self.instead = instead


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


def refused(head: ResponseHead, code: str, message: str, error: OSError | None = None) -> Exception:
    """Return the failure that a response with a status of 300 and above stands for, by its status alone.

    Args:
        head: the response's.
        code, message: what its body says; empty where that is nothing.
        error: what the user sees, where the dialect knows more of that than the status says.
    """
    if error is None:
        error = refusal(head.status, code or head.reason, message)
    else:
        with_status(error, head.status, code)
    if head.status in _THROTTLED:
        return Throttled(error, retry_after(head))
    return Transient(error) if head.status in _TRANSIENT else error


def retry_after(head: ResponseHead) -> float:
    """Return the seconds that the store asks to wait; 0 if it does not say."""
    return seconds_to_wait(head.header(b"retry-after") or "")


def seconds_to_wait(value: str) -> float:
    """Return the seconds that a Retry-After stands for, which has them or a date; 0 for anything else."""
    if is_number(value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()) if value else 0.0
    except (ValueError, TypeError):
        return 0.0


def refusal(status: int, code: str, message: str = "") -> OSError:
    """Return the error for a refusal: the response's status, and the code and message of its body.

    The error has `status` and `code` as attributes.
    """
    text = refusal_text(status, code, message)
    if status in _STALE:
        return with_status(errors.StaleFileError(errno.ESTALE, _STALE[status]), status, code)
    if status == 404:
        text = os.strerror(errno.ENOENT)
    elif 300 <= status < 400:
        text += ": a redirect that is not followed, or not any further"
    usual = errno.EREMOTEIO if status >= 500 else errno.EREMCHG if status < 400 else errno.EINVAL
    return with_status(OSError(_ERRNO_OF_STATUS.get(status, usual), text), status, code)


def refusal_text(status: int, code: str, message: str) -> str:
    """Return what a refusal says, in one line."""
    return f"{code} ({status})" + (f": {message}" if message not in ("", code) else "")


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
        found = errors.of_client(exc)
        return Transient(OSError(exc.errno or errno.EIO, exc.strerror or str(exc))) if found is exc else found
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


def mismatched(reason: str, **instead: Any) -> Mismatch:
    """Return the failure for a response that does not belong to its request; `instead` as for `Mismatch`."""
    return Mismatch(errors.CorruptFileError(errno.EBADMSG, reason), **instead)


def error_name(exc: BaseException) -> str:
    """Return the name of the error that the user would see, with the status of a refusal: `OSError 503`."""
    error = exc.error if isinstance(exc, Transient) else exc
    status = getattr(error, "status", None)
    return f"{type(error).__name__} {status}" if status else type(error).__name__


# ---- attempts

DEFAULT_ATTEMPTS = 5
"""How often a request is sent at most, unless that is set."""
BACKOFF = 0.1
"""Seconds that the second attempt waits at most; each further one twice as long."""
MAX_BACKOFF = 5.0
THROTTLE_SECONDS = 60.0
"""How long an operation waits for a store that throttles, at least."""
QUOTA_SECONDS = 900.0
"""How long an operation waits for a quota: several times as long as it takes to be renewed."""
MAX_EXCUSES = 3
"""How often a request may fail for a reason that is not the store's, without an attempt being counted."""
MAX_TURNS = 3
"""How often a request follows its bucket to another place, or is sent with newer credentials."""
MAX_REDIRECTS = 8
"""How often a request follows a redirect."""
_random = random.SystemRandom()  # a forked child has numbers of its own, and the user's seed is left alone


class RetryPolicy(NamedTuple):
    """The settings of an endpoint."""

    attempts: int
    attempts_set: bool
    """Whether the number is the user's own: throttled attempts then count."""
    read_timeout: float
    throttle: Throttle


class Attempts:
    """The attempts of one request, of which the first has failed."""

    __slots__ = ("_begin", "_excuses", "_failures", "_policy", "_redirects", "_throttled", "_turns", "since")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._begin = time.monotonic()
        self._failures = self._throttled = self._excuses = self._turns = self._redirects = 0
        self.since = 0
        """When the request began to wait for its next attempt, in ns; for the instrument."""

    def may_turn(self) -> bool:
        """Return whether the request may go elsewhere, or with other credentials."""
        self._turns += 1
        return self._turns <= MAX_TURNS

    def may_redirect(self) -> bool:
        """Return whether the request may follow one more redirect."""
        self._redirects += 1
        return self._redirects <= MAX_REDIRECTS

    def may_excuse(self) -> bool:
        """Return whether a failure that is not the store's is forgiven."""
        self._excuses += 1
        return self._excuses <= MAX_EXCUSES

    def wait_after(self, failure: Transient) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        policy, elapsed = self._policy, time.monotonic() - self._begin
        if isinstance(failure, OutOfQuota):
            wait = failure.retry_after or BACKOFF
            exhausted = policy.attempts == 1 or elapsed + wait > QUOTA_SECONDS
        elif isinstance(failure, Throttled):
            self._throttled += 1
            policy.throttle.slow_down(failure.retry_after)
            wait = max(failure.retry_after, backoff(self._throttled + 1))
            exhausted = policy.attempts == 1 or elapsed + wait > max(policy.read_timeout, THROTTLE_SECONDS)
        else:
            self._failures += 1
            wait, exhausted = backoff(self._failures), False
        counted = self._failures + (self._throttled if policy.attempts_set else 0)
        if exhausted or counted >= policy.attempts:
            return None
        return wait


def backoff(failures: int) -> float:
    """Return seconds to wait after so many failures: random, within a bound that doubles."""
    return min(MAX_BACKOFF, BACKOFF * 2.0 ** min(failures - 1, 16)) * _random.random()


# ---- the rate

MIN_INTERVAL = 0.0005
"""Seconds between two requests; less is no limit."""
MAX_INTERVAL = 0.1
TOLERATED = 0.1
"""So many of the responses of a window may say "slow down" without any consequence for other requests."""
WINDOW_SECONDS = 1.0
SETTLE_SECONDS = 0.25
"""A rate holds for so long before it is halved again: responses under way say what is known."""
RECOVERY_SECONDS = 1.0
"""The interval is halved in each such time without a "slow down"."""
_STATE = struct.Struct("=dddd")
"""The interval; when it was last changed; when the next request may be sent; until when no request may be sent."""
_MAX_AHEAD = 5.0


class Throttle:
    """The rate of one endpoint. Each request counts as `sent`, and waits for its `delay` if there is a `limit`."""

    def __init__(self, endpoint: str) -> None:
        self._memory = _shared_memory(endpoint)
        self.limit = memoryview(self._memory).cast("d")
        """The first field is not 0 while there is one."""
        self.sent = 0
        """The requests of the window."""
        self._refused = 0
        self._window = time.monotonic()

    def delay(self) -> float:
        """Return how many seconds the next request has to wait; its turn is then taken."""
        interval, changed, turn, blocked_until = _STATE.unpack_from(self._memory)
        now = time.monotonic()
        if now - changed > RECOVERY_SECONDS and now > blocked_until:
            interval, changed = interval * 0.5 ** int((now - changed) / RECOVERY_SECONDS), now
        if changed > now or interval < MIN_INTERVAL:  # a file from before the machine was started; or recovered
            self._write(0.0, 0.0, 0.0, 0.0)
            return 0.0
        turn = min(max(turn + interval, now, blocked_until), max(now, blocked_until) + _MAX_AHEAD)
        self._write(interval, changed, turn, blocked_until)
        return max(0.0, float(turn - now))

    def slow_down(self, retry_after: float) -> None:
        """Take note of a "slow down", and of the pause that came with it."""
        now = time.monotonic()
        elapsed = now - self._window
        self._refused += 1
        mean = elapsed / max(1, self.sent)
        much = self._refused > TOLERATED * self.sent
        if elapsed > WINDOW_SECONDS:
            self._window, self.sent, self._refused = now, 0, 0
        if not much and not retry_after:
            return
        interval, changed, turn, blocked_until = _STATE.unpack_from(self._memory)
        blocked_until = max(blocked_until, now + min(retry_after, 60.0))
        if not 0 <= now - changed < SETTLE_SECONDS or not interval:
            interval, changed = min(max(2 * (interval or mean), MIN_INTERVAL), MAX_INTERVAL), now
        self._write(interval, changed, max(turn, now), blocked_until)

    def _write(self, *state: float) -> None:
        with contextlib.suppress(ValueError):  # closed, at the end of the interpreter
            _STATE.pack_into(self._memory, 0, *state)


@functools.lru_cache(maxsize=64)
def _shared_memory(endpoint: str) -> mmap.mmap | bytearray:
    name = hashlib.sha256(endpoint.encode()).hexdigest()[:24]
    try:
        with Folder(f"{tempfile.gettempdir()}/fsabs-{os.getuid()}", create=True, private=True) as folder:
            fd = folder.open(f"throttle-{name}", os.O_RDWR | os.O_CREAT)
        try:
            allocate(fd, _STATE.size)
            return mmap.mmap(fd, _STATE.size)
        finally:
            os.close(fd)
    except OSError:
        return bytearray(_STATE.size)
