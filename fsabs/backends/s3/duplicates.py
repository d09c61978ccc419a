"""Detection of responses that answer another request: late duplicates, made by a proxy or a store that retries.

A duplicate that has arrived before the next request is sent is seen by the connection pool. A later one is taken for
the response to that request, unless something in it shows otherwise:

- the nonce. A signed GET or HEAD of an object carries `response-cache-control=NONCE`, which S3 and the stores that
  follow it put into the response's header fields. It proves that a response belongs to its request. Whether a store
  does so is learnt from its first responses; from then on a response without the nonce is refused.
- the request identifier (`x-amz-request-id`), or else the whole head: on a connection that was used before, one that
  has been seen already, in the response to another request, is a duplicate. Where a store repeats them (nginx with
  files of one size and time), that is learnt by a request over a new connection, and the check of responses of that
  kind ends; refusals are then asked for again over a new connection.
- the checksum of a body that was written: S3 and some others send it back, which proves what they have stored. Once a
  store has done so, a response without it is refused.
- the version, range and size of an object that is open (`contract.py`), and the key in the body of a refusal.
"""

from __future__ import annotations

import itertools
import os
import re

from ...ranges import Range
from .failures import mismatched, xml_text
from .http1 import ResponseHead
from .messages import Request

QUERY = "response-cache-control="
_checksum = re.compile("(x-amz-checksum-crc[0-9a-z]+):(.*)").fullmatch
_TRIALS = 3
"""A store that has not sent back a nonce by so many responses does not know it."""
_MAX_SEEN = 8192
_Asked = tuple[str, str, Range | None, str]
"""Method, key, range and query of a request."""
_READS = frozenset({"GET", "HEAD"})
_HEAD = 2
_VERSION = "versionId="
_PERMANENT = frozenset({400, 401, 403, 404, 405, 409, 410, 412, 416})


class DuplicateDetector:
    """The state of one endpoint in one process, as its responses have shown it."""

    def __init__(self, nonces: bool) -> None:
        self._prefix = f"fsabs-{os.urandom(6).hex()}"
        self._mark = self._prefix.encode()
        self._numbers = itertools.count()
        self._trials = [_TRIALS if nonces else 0] * 3  # of whole objects, of ranges, of HEADs
        self._echoed = [False] * 3
        self._proven = False  # whether the store has sent back a nonce
        self._seen: dict[int, _Asked] = {}
        self._seen_before: dict[int, _Asked] = {}  # an earlier generation of them
        self._checksums = False  # whether the store sends back the checksums of bodies
        self._repeated: set[tuple[str, str, bool, int]] = set()
        """The kinds of responses of which two have had the same identifier or head."""

    def nonce(self, request: Request) -> str:
        """Return the nonce for a request; empty if it gets none."""
        if self._trials[_HEAD if request.method == "HEAD" else request.range is not None] <= 0:
            return ""
        if request.method not in _READS or not request.key:
            return ""
        if request.query and not request.query.startswith(_VERSION):
            return ""
        return f"{self._prefix}{next(self._numbers):08x}"

    def rejected(self, request: Request) -> None:
        """Take note that the store refuses requests like this one with a nonce."""
        self._trials[_kind(request)] = 0

    def echoes(self, request: Request) -> bool:
        """Return whether the store has sent back the nonce of a request like this one."""
        return self._echoed[_kind(request)]

    def check(self, request: Request, head: ResponseHead, nonce: str, used: bool) -> None:
        """Raise `Mismatch` if the response answers another request.

        Args:
            request: the one that was sent.
            head: the response's.
            nonce: the request's; may be empty.
            used: whether the connection had been used before.
        """
        success = head.status < 300
        if nonce and success and nonce.encode() in head.raw:
            kind = _kind(request)
            self._echoed[kind], self._trials[kind], self._proven = True, _TRIALS, True
            return
        if (nonce or self._proven) and self._mark in head.raw:
            raise mismatched("a response with the nonce of another request")
        if nonce and success:
            kind = _kind(request)
            if self._echoed[kind]:
                raise mismatched("a response without the nonce of its request: it answers another one")
            self._trials[kind] -= 1
        if success and request.method == "PUT":
            self._check_stored(request, head)
        # A response with an identifier is known by it, since a proxy may add fields to a copy; another one by its head.
        raw, at = head.raw, head.lower.find(b"\r\nx-amz-request-id:")
        name = hash(raw) if at < 0 else hash(raw[at + 2 :].partition(b"\r\n")[0])
        asked = (request.method, request.key, request.range, request.query)
        before = self._seen.get(name) or (self._seen_before.get(name) if self._seen_before else None)
        # The first request stays: several connections may each have the same late response.
        self._seen[name] = before or asked
        if len(self._seen) > _MAX_SEEN:
            self._seen, self._seen_before = {}, self._seen
        if before is not None or self._repeated:
            self._check_distinct(request, head.status, used, before, at >= 0)

    def _check_stored(self, request: Request, head: ResponseHead) -> None:
        for header in request.headers:
            if header.startswith("x-amz-checksum-crc") and (sent := _checksum(header)) is not None:
                stored = head.header(sent[1].encode())
                if stored is None and self._checksums:
                    raise mismatched("a response without the checksum of what was written: it answers another request")
                if stored is not None and stored != sent[2]:
                    raise mismatched(f"the store has a body with the {sent[1]} {stored} for {sent[2]}")
                self._checksums = self._checksums or stored is not None

    def check_refusal(self, request: Request, body: bytes) -> None:
        """Raise `Mismatch` if the body of a refusal names another key."""
        key = xml_text(body, b"Key")
        if key and key.isalnum() and request.key and request.key.isalnum() and key != request.key:
            raise mismatched(f"a refusal of the key {key!r}")

    def _check_distinct(
        self, request: Request, status: int, used: bool, before: _Asked | None, identified: bool
    ) -> None:
        """Check a response that has been received before, for the request `before`, unless that is None."""
        kind = (request.method, request.query[:5], request.range is None, status)
        asked = (request.method, request.key, request.range, request.query)
        if kind in self._repeated:
            if used and status in _PERMANENT:  # another object's, perhaps: asked again over a new connection
                raise mismatched("a refusal that may be the response to an earlier request")
        elif before is not None and (before != asked or identified):
            if used:
                raise mismatched("a response that has been received before, for another request")
            if identified or before[1] != request.key:  # a GET and a HEAD of one object may have the same head
                self._repeated.add(kind)


def _kind(request: Request) -> int:
    return _HEAD if request.method == "HEAD" else int(request.range is not None)
