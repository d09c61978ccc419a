"""Signature Version 4 (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html) of requests to one endpoint."""

from __future__ import annotations

import errno
import hashlib
import hmac
import time
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

from ..objects.messages import Body, has_breaks, header_lines, parts_of

if TYPE_CHECKING:
    from _hashlib import HASH

    from .endpoint import Place

SIGV4 = "s3v4"
EXPRESS = "v4-s3express"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_UNSIGNED = "UNSIGNED-PAYLOAD"
_BLOCK = hashlib.sha256().block_size
_MAX_FORMS = 64
"""Sets of headers that are kept for a second; those of a body's checksum are all different."""

Headers = tuple[str, ...]
"""`name:value` each, with names in lower case."""


class _SignedHeaders(NamedTuple):
    """The values that all requests of one second with the same headers and payload share."""

    canonical: str
    """The canonical request after the query."""
    lines: str
    """The header lines up to the signature."""


class _Second:
    """The values that all requests of one second share."""

    def __init__(self, number: int, stamp: str, key: bytes, scope: str, access_key: str, token: str | None) -> None:
        self.number = number
        self.stamp = stamp
        self.token = token
        self.credential = f"{access_key}/{scope}"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        # The two hashes of an HMAC (RFC 2104) that have taken the key, and the string to sign before the digest: copies
        # of them go on in half the time of a new HMAC.
        key = key.ljust(_BLOCK, b"\0")
        self.inner: HASH = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + text.encode())
        self.outer: HASH = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))
        self.forms: dict[tuple[Headers, str], _SignedHeaders] = {}


class Signer:
    """Signs requests to an endpoint with the credentials of the moment, which boto3 renews when it is time."""

    def __init__(self, place: Place) -> None:
        self._credentials = place.credentials
        self._region = place.region
        self._service = place.signing_name
        self._host = place.endpoint.host_header
        self._tls = place.endpoint.tls
        self._sign_payload = place.sign_payload
        express = place.signature == EXPRESS
        self._token_header = "x-amz-s3session-token" if express else "x-amz-security-token"
        self._token_name = "X-Amz-S3session-Token" if express else "X-Amz-Security-Token"
        self._second: _Second | None = None
        self._day_key: tuple[tuple[str, str], bytes] | None = None

    def lines(self, method: str, path: str, query: str = "", headers: Headers = (), body: Body = b"") -> str:
        """Return the header lines that sign a request, `headers` among them.

        Args:
            method: of HTTP.
            path: quoted.
            query: in its canonical form: quoted, sorted by name, each name with a `=`.
            headers: further headers that are signed; those named `x-amz-...` have to be.
            body: hashed, unless TLS and a checksum among `headers` protect it.
        """
        now = int(time.time())
        second = self._second
        if second is None or second.number != now:
            second = self._second = self._begin(now)
        payload = self._payload(headers, body) if body else _EMPTY_SHA256
        form = second.forms.get((headers, payload))
        if form is None:
            form = self._form(second, headers, payload)
            if len(second.forms) < _MAX_FORMS:
                second.forms[headers, payload] = form
        digest = hashlib.sha256(f"{method}\n{path}\n{query}{form.canonical}".encode()).hexdigest()
        inner, outer = second.inner.copy(), second.outer.copy()
        inner.update(digest.encode())
        outer.update(inner.digest())
        return f"{form.lines}{outer.hexdigest()}\r\n"

    def presigned(self, method: str, path: str, query: str, seconds: int) -> str:
        """Return the query of a request that whoever has it may send, for so many seconds; its body is not signed."""
        second = self._begin(int(time.time()))
        parameters = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": second.credential,
            "X-Amz-Date": second.stamp,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": "host",
        }
        if second.token:
            parameters[self._token_name] = second.token
        pairs = [f"{name}={urllib.parse.quote(value, safe='~')}" for name, value in parameters.items()]
        query = "&".join(sorted([*filter(None, query.split("&")), *pairs]))
        canonical = f"{method}\n{path}\n{query}\nhost:{self._host}\n\nhost\n{_UNSIGNED}"
        inner, outer = second.inner.copy(), second.outer.copy()
        inner.update(hashlib.sha256(canonical.encode()).hexdigest().encode())
        outer.update(inner.digest())
        return f"{query}&X-Amz-Signature={outer.hexdigest()}"

    def _payload(self, headers: Headers, body: Body) -> str:
        protected = self._tls and any(header.startswith("x-amz-checksum-") for header in headers)
        sign = not protected if self._sign_payload is None else self._sign_payload
        if not sign:
            return _UNSIGNED
        found = hashlib.sha256()
        for part in parts_of(body):
            found.update(part)
        return found.hexdigest()

    def _begin(self, number: int) -> _Second:
        frozen = self._credentials.get_frozen_credentials()
        if has_breaks(f"{frozen.access_key}{frozen.token or ''}"):
            raise PermissionError(errno.EACCES, "a line break or a NUL in the access key or the session token")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(number))
        day = stamp[:8]
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        return _Second(number, stamp, self._key(frozen.secret_key, day), scope, frozen.access_key, frozen.token)

    def _form(self, second: _Second, headers: Headers, payload: str) -> _SignedHeaders:
        sent = [*headers, f"x-amz-content-sha256:{payload}", f"x-amz-date:{second.stamp}"]
        if second.token:
            sent.append(f"{self._token_header}:{second.token}")
        lines = header_lines(sent)
        ordered = sorted((f"host:{self._host}", *map(_canonical, sent)), key=_name)
        signed = ";".join(map(_name, ordered))
        authorization = f"AWS4-HMAC-SHA256 Credential={second.credential}, SignedHeaders={signed}, Signature="
        return _SignedHeaders("\n".join(["", *ordered, "", signed, payload]), f"{lines}Authorization: {authorization}")

    def _key(self, secret: str, day: str) -> bytes:
        """Return the day's signing key."""
        cached = self._day_key
        if cached is not None and cached[0] == (secret, day):
            return cached[1]
        key = ("AWS4" + secret).encode()
        for part in (day, self._region, self._service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day_key = ((secret, day), key)
        return key


def _name(header: str) -> str:
    return header.partition(":")[0]


def _canonical(header: str) -> str:
    """Return the header with its value's runs of spaces as one."""
    return f"{_name(header)}:{' '.join(header.partition(':')[2].split())}" if " " in header else header
