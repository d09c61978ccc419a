"""Access to a store by a bearer token, which is renewed before it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ...core import process
from .dialect import Access, Endpoint, header_lines
from .messages import Body

EARLY = 300.0
"""A token is renewed so many seconds before it ends, or when a fifth of its time is left."""


class Token(NamedTuple):
    """A bearer token."""

    text: str
    ends: float = float("inf")
    """In seconds since 1970."""


class TokenAccess(Access):
    """The access by tokens of `fetch`, which a process calls for itself; without it nothing authorises.

    Args:
        endpoint: of the bucket.
        fetch: returns a token that is valid for as long as one can be, or raises `OSError`.
        fields: header fields of each request, `name:value`.
    """

    def __init__(self, endpoint: Endpoint, fetch: Callable[[], Token] | None, fields: tuple[str, ...] = ()) -> None:
        self.endpoint = endpoint
        self._fetch = fetch
        self._fields = header_lines(fields)
        self._lock = process.Lock()
        self._token = Token("")
        self._renew_at = float("inf")
        self._lines = self._fields
        if fetch is not None:
            self._take(fetch())

    def _take(self, token: Token) -> None:
        now = time.time()
        self._lines = f"{self._fields}{header_lines((f'authorization:Bearer {token.text}',))}"
        self._token, self._renew_at = token, token.ends - min(EARLY, max(0.0, token.ends - now) / 5)

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request, with the token of the moment."""
        if time.time() > self._renew_at:
            self._renew()
        return header_lines(headers) + self._lines

    def _renew(self) -> None:
        """Fetch a new token; if that fails, the old one serves until its end."""
        with self._lock:
            now = time.time()
            if self._fetch is None or now <= self._renew_at:
                return  # another thread was faster
            try:
                self._take(self._fetch())
            except OSError:
                if now >= self._token.ends:
                    raise
                self._renew_at = now + (self._token.ends - now) / 5

    def has_other_token_than(self, access: TokenAccess) -> bool:
        """Return whether the token differs from that of another access."""
        return self._token.text != access._token.text
