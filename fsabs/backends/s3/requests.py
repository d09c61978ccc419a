"""Requests about a bucket and whole writes, by the fast client; by boto3's own connections where only they lead there
(a proxy, another signature). Redirects are followed once and remembered.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import re
import time
import urllib.parse
from typing import Any
from xml.sax.saxutils import escape

from ... import errors
from . import contract, endpoint
from .access import BucketAccess
from .boto import translated
from .failures import Throttled, Transient, UnsupportedResponse, refused, xml_text
from .http1 import parse_head
from .messages import Request, Response
from .retry import backoff

ATTEMPTS = 5
"""How often boto3's connections send a request: its own retries are not made for these."""
_NAMES = {"GET": "ListObjectsV2", "PUT": "PutObject", "POST": "CompleteMultipartUpload", "DELETE": "DeleteObject"}


def query_of(**parameters: object) -> str:
    """Return the canonical query string of parameters; `_` in a name stands for `-`, and None leaves one out."""
    pairs = ((name.replace("_", "-"), str(value)) for name, value in parameters.items() if value is not None)
    return "&".join(sorted(f"{name}={urllib.parse.quote(value, safe='~')}" for name, value in pairs))


def send(fs: BucketAccess, request: Request) -> Response:
    """Return the successful response to a request; raises `OSError`, with `status` and `code` for a refusal."""
    client = fs.http
    if client is not None:
        try:
            return client.send(request)
        except UnsupportedResponse as exc:
            if exc.redirected:
                return _redirected(fs, request)
    return by_boto3(fs, request)


def _redirected(fs: BucketAccess, request: Request) -> Response:
    with translated():
        fs.client.head_bucket(Bucket=fs.bucket)  # boto3 learns the bucket's region from what it is answered
    fs.redirected()
    client = fs.http
    if client is not None:
        try:
            return client.send(request)
        except UnsupportedResponse:
            pass
    return by_boto3(fs, request)


def by_boto3(fs: BucketAccess, request: Request) -> Response:
    """As `send`, signed and sent by boto3's own means."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _attempt(fs, request)._replace(attempts=attempt)
        except (Transient, ConnectionError, TimeoutError) as exc:
            if attempt == ATTEMPTS:
                raise (exc.error if isinstance(exc, Transient) else exc) from exc
            time.sleep(max(backoff(attempt), exc.retry_after if isinstance(exc, Throttled) else 0))
    raise AssertionError("ATTEMPTS is at least 1")


def _attempt(fs: BucketAccess, request: Request) -> Response:
    from botocore.awsrequest import AWSRequest

    client: Any = fs.client
    with translated():
        base, context = endpoint.prepared(client, fs.bucket)
        path = urllib.parse.quote(request.key, safe="/~") if request.key else ""
        url = base + path
        if not path and urllib.parse.urlsplit(base).path != "/":  # the bucket is in the path
            url = base.rstrip("/")
        url += f"?{request.query}" if request.query else ""
        sent = AWSRequest(request.method, url, data=bytes(request.body) if request.method in ("PUT", "POST") else None)
        for header in request.headers:
            name, _, value = header.partition(":")
            sent.headers[name] = value
        sent.context.update(context)
        operation = _NAMES.get(request.method, "GetObject")
        client._request_signer.sign(operation, sent)
        prepared = sent.prepare()
        answer = endpoint.answer_of_handler(client, operation, prepared) or client._endpoint.http_session.send(prepared)
        body: bytes = answer.content
    lines = "".join(f"\r\n{name}: {value}" for name, value in answer.headers.items())
    head = parse_head(f"HTTP/1.1 {answer.status_code} {lines}".encode("latin-1", "replace"), request.method)
    if head.status >= 300 or (request.method == "POST" and b"<Error>" in body[:1024]):
        failure = refused(head, body)
        raise failure if not isinstance(failure, UnsupportedResponse) else OSError(121, str(failure))
    contract.check_result(request, body)
    return Response(head, body)


def delete_batch(fs: BucketAccess, names: list[str]) -> None:
    """Remove up to 1,000 objects."""
    for odd in [name for name in names if not name.isprintable()]:  # XML can't carry every character
        send(fs, Request("DELETE", odd, headers=fs.bucket_headers))
    names = [name for name in names if name.isprintable()]
    if not names:
        return
    objects = "".join(f"<Object><Key>{escape(name)}</Key></Object>" for name in names)
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    body = f'<Delete xmlns="{namespace}">{objects}<Quiet>true</Quiet></Delete>'.encode()
    checksum = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    response = send(fs, Request("POST", "", "delete=", (*fs.bucket_headers, f"content-md5:{checksum}"), body))
    failed = re.search(rb"<Error>(.*?)</Error>", response.body, re.DOTALL)
    if failed is not None:
        code, message, key = (html.unescape(xml_text(failed[1], name)) for name in (b"Code", b"Message", b"Key"))
        number = errno.EACCES if code == "AccessDenied" else errno.EIO
        raise errors.error(number, "remove", fs._url(key), f"{code}: {message or 'not removed'}")
