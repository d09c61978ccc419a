"""Signature Version 4 of requests without a body (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html)."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _hashlib import HASH

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_BLOCK = hashlib.sha256().block_size


class _Moment(NamedTuple):
    """What all requests of one second with the same headers share."""

    second: int
    canonical: str
    """The canonical request after the path."""
    inner: HASH
    outer: HASH
    """The two hashes of an HMAC (RFC 2104) that have taken the key, and the string to sign before the digest: copies of
    them go on in half the time of a new HMAC."""
    lines: str
    """The header lines up to the signature."""


class Signer:
    """Signs for one host with the credentials of the moment, which boto3 renews when it is time."""

    def __init__(self, credentials: Any, region: str, host: str) -> None:
        self._credentials = credentials
        self._region = region
        self._host = host
        self._moments: dict[str, _Moment] = {}
        self._day_key: tuple[tuple[str, str], bytes] | None = None

    def lines(self, method: str, path: str, extra: str) -> str:
        """The header lines that sign a request for the quoted `path`.

        Args:
            extra: `name:value` of one header that has to be signed, too, or an empty string: its name is lower case,
                begins with `x-amz-`, and comes before `x-amz-content-sha256` in the alphabet.
        """
        second = int(time.time())
        moment = self._moments.get(extra)
        if moment is None or moment.second != second:
            moment = self._moments[extra] = self._moment(second, extra)
        digest = hashlib.sha256(f"{method}\n{path}{moment.canonical}".encode()).hexdigest()
        inner, outer = moment.inner.copy(), moment.outer.copy()
        inner.update(digest.encode())
        outer.update(inner.digest())
        return f"{moment.lines}{outer.hexdigest()}\r\n"

    def _moment(self, second: int, extra: str) -> _Moment:
        frozen = self._credentials.get_frozen_credentials()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        headers = [f"x-amz-content-sha256:{_EMPTY_SHA256}", f"x-amz-date:{stamp}"]
        if extra:
            headers.insert(0, extra)
        if frozen.token:
            headers.append(f"x-amz-security-token:{frozen.token}")
        signed = ";".join(["host", *(header.partition(":")[0] for header in headers)])
        scope = f"{stamp[:8]}/{self._region}/s3/aws4_request"
        canonical = "\n".join(["", "", f"host:{self._host}", *headers, "", signed, _EMPTY_SHA256])
        lines = "".join(f"{header}\r\n" for header in headers)
        credential = f"{frozen.access_key}/{scope}"
        authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature="
        key = self._key(frozen.secret_key, stamp[:8]).ljust(_BLOCK, b"\0")
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        return _Moment(
            second,
            canonical,
            hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + text.encode()),
            hashlib.sha256(bytes(byte ^ 0x5C for byte in key)),
            f"{lines}Authorization: {authorization}",
        )

    def _key(self, secret: str, day: str) -> bytes:
        """The day's signing key."""
        cached = self._day_key
        if cached is not None and cached[0] == (secret, day):
            return cached[1]
        key = ("AWS4" + secret).encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day_key = ((secret, day), key)
        return key
