"""Signatures of requests are those that botocore makes of the same request at the same moment."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import random
import string
import time
import tracemalloc
import urllib.parse
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fsabs.backends.objects import Endpoint
from fsabs.backends.s3 import endpoint
from fsabs.backends.s3.resolved import EXPRESS, SIGV4, ResolvedBucket
from tests import soak

pytestmark = pytest.mark.quick

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)


def place(
    credentials: Any, *, tls: bool = True, signature: str = SIGV4, sign_payload: bool | None = None
) -> ResolvedBucket:
    endpoint = Endpoint("store.example", 8443, "store.example:8443", tls, "/bucket/")
    return ResolvedBucket(endpoint, "", "eu-central-1", "s3", signature, sign_payload, credentials=credentials)


@pytest.fixture(autouse=True)
def _a_fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None))


def by_botocore(credentials: Credentials, method: str, path: str, query: str, headers: list[str], payload: str) -> str:
    request = AWSRequest(method, f"https://store.example:8443{path}" + (f"?{query}" if query else ""))
    for header in headers:
        name, _, value = header.partition(":")
        request.headers[name] = value
    request.context["payload_signing_enabled"] = False
    auth = botocore.auth.S3SigV4Auth(credentials, "s3", "eu-central-1")
    auth.payload = lambda request: payload  # type: ignore[method-assign]
    auth.add_auth(request)
    return str(request.headers["Authorization"])


def text(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits + " /+=%~-_.", k=chance.randrange(1, 20)))


@pytest.mark.soak
def test_signatures_are_those_of_botocore() -> None:
    seed = soak.seed(1)
    chance = random.Random(seed)
    for _ in range(soak.rounds(200)):
        credentials = Credentials("AKID", text(chance), chance.choice([None, text(chance).strip() or None]))
        signer = endpoint.Signer(place(credentials))
        method = chance.choice(["GET", "HEAD", "PUT", "POST", "DELETE"])
        path = "/bucket/" + urllib.parse.quote(text(chance), safe="/~")
        pairs = {text(chance): text(chance) for _ in range(chance.randrange(4))}
        quoted = sorted(
            (urllib.parse.quote(name, safe="~"), urllib.parse.quote(pairs[name], safe="~")) for name in pairs
        )
        query = "&".join(f"{name}={value}" for name, value in quoted)
        headers = [f"x-amz-meta-{n}:{text(chance).strip() or '-'}" for n in range(chance.randrange(3))]
        headers += chance.choice([[], ["content-type:text/plain"], ["if-none-match:*"]])
        body = chance.randbytes(chance.choice([0, 10]))
        lines = signer.lines(method, path, query, tuple(headers), body)
        sent = dict(line.split(": ", 1) if ": " in line else line.split(":", 1) for line in lines.strip().split("\r\n"))
        payload = hashlib.sha256(body).hexdigest()
        assert sent["x-amz-content-sha256"] == payload
        expected = by_botocore(credentials, method, path, query, headers, payload)
        assert sent["Authorization"] == expected, (seed, method, path, query, headers)


def test_a_body_is_hashed_unless_tls_and_a_checksum_protect_it() -> None:
    for tls, checksum, configured in itertools.product([True, False], [True, False], [None, True, False]):
        signer = endpoint.Signer(place(Credentials("a", "b"), tls=tls, sign_payload=configured))
        headers = ("x-amz-checksum-crc32c:AAAAAA==",) if checksum else ()
        unsigned = "UNSIGNED-PAYLOAD" in signer.lines("PUT", "/k", "", headers, b"body")
        assert unsigned == ((tls and checksum) if configured is None else not configured), (tls, checksum, configured)
        assert "UNSIGNED-PAYLOAD" not in signer.lines("GET", "/k")


def test_the_token_of_a_session_of_express_has_a_header_of_its_own() -> None:
    lines = endpoint.Signer(place(Credentials("a", "b", "TOKEN"), signature=EXPRESS)).lines("GET", "/k")
    assert "x-amz-s3session-token:TOKEN\r\n" in lines
    assert "x-amz-security-token" not in lines


def test_checksums_of_many_bodies_take_no_memory() -> None:
    signer = endpoint.Signer(place(Credentials("a", "b")))

    def sign(numbers: range) -> int:
        for number in numbers:
            signer.lines("PUT", "/k", "", (f"x-amz-checksum-crc32c:{number}",), b"1")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = sign(range(100))
        assert sign(range(100, 3000)) - before < 100_000, "what is kept of each would be more than ten times as much"
    finally:
        tracemalloc.stop()
