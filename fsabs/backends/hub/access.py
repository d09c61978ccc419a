"""How a process reaches the hub: endpoint and token, and what its processes share, addresses and quotas of requests.

The hub counts requests in fixed windows of 5 minutes, for each account, or address without one: some hundreds for its
API, some thousands for files (`resolvers`), and tells with each response how many are left and when the window ends
(`RateLimit: "resolvers";r=4998;t=123`). A request is counted before it is sent; where none is left, it waits for the
end of the window. The counts are in a small file, so that a new process knows them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import struct
import sys
import time
import urllib.parse
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from ...core import errors, identity, process, redaction
from ...disk.folders import cache_directory
from ..objects import access
from ..objects.access import Access, ConnectionOptions, Endpoint, Token, TokenAccess, endpoint_at
from ..objects.addresses import Addresses, SharedFile
from ..objects.http1 import ResponseHead
from ..objects.messages import Request

ENDPOINT = "https://huggingface.co"
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_TRUE = ("1", "ON", "YES", "TRUE")
_is_token = re.compile("[!-~]+").fullmatch
LONGEST = 900.0
"""Seconds from now on after which no window ends."""
WARNED_SECONDS = 5.0
"""A wait that is longer than so many seconds is reported to the user."""
_KINDS = ("api", "resolvers")
_STATE = struct.Struct("=dddd")
"""Requests that are left, the end of the window in seconds since 1970 (0: not known), its requests, its seconds."""
_LEFT = re.compile(r'"(\w+)"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)')
_POLICY = re.compile(r'"(\w+)"\s*;\s*q\s*=\s*(\d+)\s*;\s*w\s*=\s*(\d+)')
_LOCK_TRIES = 20
_LOCK_PAUSE = 0.001


class HubOptions(NamedTuple):
    """The options of a client, as those of `Hub`."""

    url: str
    """The endpoint, `https://host[/path]`."""
    token: str | bool | None = None
    connection: ConnectionOptions = ConnectionOptions()

    def __repr__(self) -> str:
        return redaction.representation("HubOptions", self._asdict())

    @property
    def origin(self) -> str:
        """Scheme and host of the endpoint."""
        return self.url[: len(self.url) - len(self.path)]

    @property
    def path(self) -> str:
        """The path of the endpoint, which most have not."""
        return urllib.parse.urlsplit(self.url).path


class HubAccess(TokenAccess):
    """The access to the hub with `options`."""

    def __init__(self, options: HubOptions) -> None:
        if is_offline():
            raise ConnectionError(
                errno.ENETUNREACH, "HF_HUB_OFFLINE is set: nothing is requested, and no cache has this"
            )
        self._options = options
        token = token_of(options.token)
        endpoint = endpoint_at(options.url, "/", options.connection)
        super().__init__(endpoint, functools.partial(Token, token) if token else None)
        self.quotas = _quotas(options.url, principal_of(token), _folder())

    def renewed(self) -> Access | None:
        """Look for the token again: the file that it is in may have another one."""
        found = HubAccess(self._options)
        return found if found.has_other_token_than(self) else None

    def elsewhere(self, url: str) -> Endpoint:
        """Return the endpoint of where files lie."""
        return endpoint_at(url, "/", self._options.connection)


def is_offline() -> bool:
    """Return whether nothing may be requested from the hub."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def environment() -> access.Environment:
    """Return the variables that a client depends on."""
    return access.environment("HF_", *TOKEN_VARIABLES, "TRANSFORMERS_OFFLINE")


def token_of(token: str | bool | None) -> str:
    """Return the token that requests carry: the given one, else the user's; empty if there is none, or for False.

    That of the user is `$HF_TOKEN`, else what huggingface_hub finds: the file that `hf auth login` writes, for example.
    """
    found = token if isinstance(token, str) else "" if token is False else _found_token(token)
    if found and not _is_token(found.strip()):
        raise ValueError("a token is of printable ASCII characters, without spaces")
    if token is True and not found:
        raise PermissionError(errno.EACCES, "token=True, and there is no token: hf auth login, or HF_TOKEN")
    return found.strip()


def source_of_token(token: str | bool | None) -> str:
    """Return where the token comes from, for people."""
    if isinstance(token, str):
        return "option token"
    named = next((name for name in TOKEN_VARIABLES if os.environ.get(name)), None)
    if token is False or not token_of(token):
        return "none: token=False" if token is False else "none: requests are anonymous, with the smallest quota"
    return f"${named}" if named is not None else "huggingface_hub (hf auth login)"


def _found_token(token: bool | None) -> str:
    if token is None and os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in _TRUE:
        return ""
    oidc = bool(os.environ.get("HF_OIDC_RESOURCE"))
    given = next(filter(None, map(os.environ.get, TOKEN_VARIABLES)), None)
    if given is not None and not oidc:
        return given
    try:
        from huggingface_hub import constants
    except ImportError:
        if token or oidc:
            raise errors.missing("huggingface_hub", "hub", "a token that is not given") from None
        return ""  # what is public needs none
    if not (oidc or os.path.exists(constants.HF_TOKEN_PATH) or "google.colab" in sys.modules):
        return ""  # the rest of it takes as long to import as many files to read
    from huggingface_hub import get_token

    return get_token() or ""


@functools.lru_cache(maxsize=64)
def principal_of(token: str) -> str:
    """Return digits that stand for the account of a token; empty without one."""
    return identity.digest_of_secret(token.encode()) if token else ""


def _folder() -> str | None:
    directory = cache_directory()
    return f"{directory}/addresses" if directory is not None else None


def addresses_of(options: HubOptions) -> Addresses:
    """Return the addresses of files that the hub has given to this account."""
    return _addresses(options.url, principal_of(token_of(options.token)), _folder())


@functools.lru_cache(maxsize=64)
def _addresses(url: str, principal: str, folder: str | None) -> Addresses:
    return Addresses(folder, f"{url} {principal}")


@functools.lru_cache(maxsize=64)
def _quotas(url: str, principal: str, folder: str | None) -> HubQuotas:
    return HubQuotas(url, folder, f"quotas-{identity.digest(f'{url} {principal}'.encode())[:24]}")


# ---- quotas


class _QuotaFile(SharedFile):
    """The file of an account's quotas."""

    def lock(self) -> bool:
        """Lock the file, unless that takes too long: one that is stopped must not stop others."""
        for _ in range(_LOCK_TRIES if self.fd >= 0 else 0):
            with contextlib.suppress(OSError):
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(_LOCK_PAUSE)
        return False

    def unlock(self) -> None:
        """Unlock the file."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self.fd, fcntl.LOCK_UN)


class HubQuotas:
    """The quotas of an account: in `folder`, in a file of this `name`; without one, of this process alone."""

    def __init__(self, endpoint: str, folder: str | None, name: str) -> None:
        self._endpoint = endpoint
        self._lock = process.Lock()
        self._memory = bytearray(len(_KINDS) * _STATE.size)
        self._warned = 0.0
        self._file = process.PerProcess(functools.partial(_QuotaFile, folder or "", name, os.O_CREAT))

    def delay(self, request: Request) -> float:
        """Return the seconds until a request may be sent; 0 if it may be now, and is then counted."""
        kind = 1 if "/resolve/" in request.path else 0
        with self._state() as memory:
            left, end, limit, window = _STATE.unpack_from(memory, kind * _STATE.size)
            now = time.time()
            if not 0 < end <= now + LONGEST:
                return 0.0
            if end <= now:  # the next window has begun
                left, end = limit, end + window * (1 + (now - end) // window) if window else 0.0
            if left >= 1 or not end:
                _STATE.pack_into(memory, kind * _STATE.size, left - 1, end, limit, window)
                return 0.0
        self._warn(end, end - now)
        return float(end - now)

    def learn(self, request: Request, head: ResponseHead) -> None:
        """Take note of what a response of the hub says is left."""
        field = head.header(b"ratelimit")
        if not field or request.location:
            return
        policies = _POLICY.findall(head.header(b"ratelimit-policy") or "")
        policy = {name: (float(limit), float(window)) for name, limit, window in policies}
        with self._state() as memory:
            for name, remaining, seconds in _LEFT.findall(field):
                if name not in _KINDS:
                    continue
                at = _KINDS.index(name) * _STATE.size
                left, end, limit, window = _STATE.unpack_from(memory, at)
                now = time.time()
                told_end = now + int(seconds)
                same = 0 < end <= now + LONGEST and now < end and abs(told_end - end) < 2
                left = min(left, int(remaining)) if same else float(remaining)
                end = max(end, told_end) if same else told_end
                limit, window = policy.get(name, (limit, window))
                _STATE.pack_into(memory, at, left, end, limit, window)

    @contextlib.contextmanager
    def _state(self) -> Iterator[bytearray]:
        """Give the counts, which are written back at the end of the block."""
        with self._lock:
            file = self._file.get()
            locked = file.lock()
            try:
                if file.fd >= 0:
                    data = os.pread(file.fd, len(self._memory), 0)
                    self._memory[: len(data)] = data
                before = bytes(self._memory)
                yield self._memory
                if file.fd >= 0 and self._memory != before:
                    os.pwrite(file.fd, self._memory, 0)
            except OSError:  # of the file: each process then counts for itself
                self._file.adopt(_QuotaFile("", "", 0))
            finally:
                if locked:
                    file.unlock()

    def _warn(self, end: float, seconds: float) -> None:
        if seconds > WARNED_SECONDS and end > self._warned:
            self._warned = end + 1
            warnings.warn(
                f"the quota of requests to {self._endpoint} is used up: the next one is sent in {seconds:.0f} s. "
                "A token has a larger quota (HF_TOKEN), cache= needs fewer requests, and files in archives fewer still",
                RuntimeWarning,
                stacklevel=2,
            )
