"""Reads by boto3: for what the fast client can't go on with. The response contract is the same."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import Any

from ... import errors
from . import contract
from .access import BucketAccess
from .boto import translated
from .failures import Transient
from .http1 import ProtocolError, ResponseHead, parse_head
from .messages import Request, Response
from .options import version_of
from .retry import backoff

ATTEMPTS = 3
"""boto3 sends again what fails before the body; a body that breaks off is read again here."""


def get(fs: BucketAccess, request: Request) -> bytes:
    """Return the content that a GET requests; raises `OSError`."""
    conditions: dict[str, Any] = _parameters(fs, request.key)
    if request.range is not None:
        size, offset = request.range
        conditions["Range"] = f"bytes={offset}-{offset + size - 1}"
    if request.strong:
        conditions["IfMatch"] = f'"{request.version}"'
    for attempt in range(1, ATTEMPTS + 1):
        try:
            response = _attempt(fs, request, conditions)
            if request.into is not None:
                request.into[:] = response.body
            return response.body
        except Transient as exc:
            if attempt == ATTEMPTS:
                raise exc.error from exc
        except (ConnectionError, TimeoutError, errors.CorruptFileError):
            if attempt == ATTEMPTS:
                raise
        time.sleep(backoff(attempt))
    raise AssertionError("ATTEMPTS is at least 1")


def _attempt(fs: BucketAccess, request: Request, conditions: dict[str, Any]) -> Response:
    with translated():
        answer = fs.client.get_object(Bucket=fs.bucket, Key=request.key, ChecksumMode="ENABLED", **conditions)
        with contextlib.closing(answer["Body"]) as stream:
            head = head_of(answer["ResponseMetadata"])
            expected = contract.check(request, head)
            skip, size, whole = expected
            if size is not None and not whole:
                body: bytes = stream.read(skip + size)[skip:]
            else:
                body = stream.read()
    contract.check_body(request, head, expected, [body], len(body))
    return Response(head, body)


def head_of(metadata: dict[str, Any]) -> ResponseHead:
    """Return the head of a response that boto3 received."""
    lines = "".join(f"\r\n{name}: {value}" for name, value in metadata["HTTPHeaders"].items())
    raw = f"HTTP/1.1 {metadata['HTTPStatusCode']} {lines}".encode("latin-1", "replace")
    try:
        return parse_head(raw, "GET")
    except ProtocolError as exc:
        raise errors.CorruptFileError(errno.EBADMSG, str(exc)) from exc


def head(fs: BucketAccess, key: str) -> ResponseHead:
    """Return the head of the response to a HEAD; raises `OSError`."""
    with translated():
        answer = fs.client.head_object(Bucket=fs.bucket, Key=key, **_parameters(fs, key))
    found = head_of(answer["ResponseMetadata"])
    try:
        contract.check(Request("HEAD", key), found)
    except Transient as exc:
        raise exc.error from exc
    return found


def _parameters(fs: BucketAccess, key: str) -> dict[str, Any]:
    """Return the parameters of boto3 that the FS's options stand for."""
    version = {"VersionId": version_of(fs.versions[key])} if key in fs.versions else {}
    return {**fs.objects.boto_read(), **version}
