"""The addresses that redirects have given for objects, kept for as long as they are good.

A redirect costs a request, and often a part of a quota; the address that it gives, signed or not, can be used again
until it ends.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import re
import time
import urllib.parse
from datetime import datetime
from email.utils import parsedate_to_datetime

from .messages import ResponseHead

LONGEST = 3600.0
"""Seconds after which an address is asked for again, whatever it says."""
MARGIN = 30.0
"""Seconds before its end from which an address is not used any more: a request takes its time."""
MAX_KNOWN = 100_000
"""Addresses that a process remembers, of a kilobyte or so each; then it forgets them all."""
MAX_LENGTH = 8 * 1024
"""Characters of an address that is kept."""
_DATE = re.compile(r"\d{8}T\d{6}Z").fullmatch
_SIGNED_FIELDS = re.compile(r"[?&]((?:x-(?:amz|goog)-)?(?:date|expires)|policy)=([^&#]*)", re.IGNORECASE).findall


def signed_until(url: str, head: ResponseHead) -> float | None:
    """Return until when an address is good that came with a response, by this machine's clock; an hour at most.

    The end is what its signature says (of AWS, Google and CloudFront), as the clock of the sender has it; None if it
    has no signature that is known.
    """
    now = time.time()
    end = _end_of({name.lower(): urllib.parse.unquote(value) for name, value in _SIGNED_FIELDS(url)})
    if end is None:
        return None
    theirs = _seconds_of(head.header(b"date") or "")
    return now + min(LONGEST, end - (now if theirs is None else theirs) - MARGIN)


@functools.lru_cache(maxsize=16)
def _seconds_of(date: str) -> float | None:
    """Return the time of a Date field, which many responses have in common."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def _end_of(fields: dict[str, str]) -> float | None:
    """Return when the signature of a query ends, in seconds since 1970; None if it doesn't say."""
    for vendor in ("x-amz-", "x-goog-"):
        begun, seconds = fields.get(f"{vendor}date", ""), fields.get(f"{vendor}expires", "")
        if _DATE(begun) and seconds.isdigit():
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(begun).timestamp() + int(seconds)
    if fields.get("expires", "").isdigit():
        return float(fields["expires"])
    with contextlib.suppress(binascii.Error, ValueError):  # a policy of CloudFront, in its own base64
        policy = base64.b64decode(fields.get("policy", "").translate(str.maketrans("-_~", "+=/")))
        found = re.search(rb'"AWS:EpochTime"\s*:\s*(\d+)', policy)
        return float(found[1]) if found is not None else None
    return None


class Addresses:
    """Addresses by the names of what they are of, for all threads of a process; a forked child has those, too."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}

    def get(self, name: str) -> str:
        """Return the address of what has this name; empty if none is known that is good."""
        url, until = self._known.get(name, ("", 0.0))
        return url if time.time() <= until else ""

    def put(self, name: str, url: str, until: float) -> None:
        """Keep an address, which is good until then, unless it is very long."""
        if len(url) > MAX_LENGTH:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known = {}
        self._known[name] = url, until

    def forget(self, name: str) -> None:
        """Forget an address that is not good any more."""
        self._known.pop(name, None)
