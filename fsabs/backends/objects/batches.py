"""Batches: many requests in the body of one, as `multipart/mixed`, whose response has one in each part."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence

_part = re.compile(
    rb"(?:Content-ID: *<?(?:response-)?([0-9]+)>?[^\n]*\n(?:[^\n]*:[^\n]*\n)*\s*)?HTTP/1\.1 ([0-9]{3})", re.IGNORECASE
)


def batch(calls: Iterable[str], name: str) -> tuple[str, bytes]:
    """Return the header field and the body of a batch; a call is a request's line and header lines.

    Each has a `name` with its number, as the store wants it.
    """
    boundary = f"batch_{secrets.token_hex(16)}"
    parts = (
        f"--{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
        f"Content-ID: {name.format(number)}\r\n\r\n{call}\r\n\r\n"
        for number, call in enumerate(calls)
    )
    return f"content-type:multipart/mixed; boundary={boundary}", f"{''.join(parts)}--{boundary}--\r\n".encode()


def failed(keys: Sequence[str], body: bytes) -> list[str]:
    """Return the keys whose call in a batch of removals is not answered, or neither by a success nor by a 404."""
    done = set()
    for position, (number, status) in enumerate(_part.findall(body)):
        if status == b"404" or status.startswith(b"2"):
            done.add(int(number) if number else position)
    return [key for number, key in enumerate(keys) if number not in done]
