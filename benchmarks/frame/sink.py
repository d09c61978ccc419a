"""A store that keeps nothing: it takes writes as fast as they come, and lists keys that are not there.

One thread, and a little work for each request, so that the client's time counts. `start` runs it as a process.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import functools
import itertools
import re
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import cast

from . import serving
from .servers import Certificate

_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_checksum = re.compile(rb"\r\n(x-amz-checksum-[a-z0-9]+: *[^\r]+)", re.IGNORECASE).search
_ENTRY = (
    "<Contents><Key>data/{0:07d}.jpg</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;{0:032x}&quot;</ETag><Size>{0}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
_ITEM = '{{"name":"data/{0:07d}.jpg","size":"{0}","generation":"{0:016d}","updated":"2026-01-01T00:00:00.000Z"}}'
_BLOB = (
    "<Blob><Name>data/{0:07d}.jpg</Name><Properties><Creation-Time>Thu, 01 Jan 2026 00:00:00 GMT</Creation-Time>"
    "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>0x{0:015X}</Etag>"
    "<Content-Length>{0}</Content-Length><Content-Type>application/octet-stream</Content-Type><Content-Encoding />"
    "<Content-Language /><Content-CRC64 /><Content-MD5>{0:022d}==</Content-MD5><Cache-Control /><Content-Disposition />"
    "<BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted>"
    "</Properties><Metadata /><OrMetadata /></Blob>"
)
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def _field_of(name: bytes, start: bytes) -> re.Match[bytes] | None:
    """Return a field of the JSON at the start of a body."""
    return re.search(rb'"%b": *"[^"]*"' % name, start)


_KEY = "data/{0:07d}.jpg"
_QUERIES = {
    "s3": ("max-keys", 1000, "continuation-token", "start-after"),
    "gcs": ("maxResults", 1000, "pageToken", "startOffset"),
    "azure": ("maxresults", 5000, "marker", "startFrom"),
}
"""The parameters of a listing: how many keys, by default so many, after which page, and from which key on."""
_PART = b'ETag: "0123456789abcdef0123456789abcdef"\r\n'
_BEGUN = f"{_HEAD}<InitiateMultipartUploadResult {_NAMESPACE}><Bucket>bucket</Bucket><UploadId>1</UploadId>" + (
    "</InitiateMultipartUploadResult>"
)
_ENDED = f"{_HEAD}<CompleteMultipartUploadResult {_NAMESPACE}><ETag>&quot;0-1&quot;</ETag>" + (
    "</CompleteMultipartUploadResult>"
)


@contextlib.contextmanager
def start(keys: int = 0, delay: float = 0, certificate: Certificate | None = None) -> Iterator[str]:
    """Yield the endpoint of a store with so many keys, that waits for `delay` seconds before each response."""
    files = (str(certificate.chain), str(certificate.key)) if certificate else None
    with serving.started(serve, keys, delay, files) as port:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"


def serve(keys: int, delay: float, files: tuple[str, str] | None) -> None:
    """Print the port, and serve."""
    context = None
    if files is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
    store = _Sink(keys)
    asyncio.run(serving.serve(lambda: _Connection(store, delay), context=context))


_scratch = memoryview(bytearray(1 << 20))
"""What is received is looked at before anything else is."""


class _Connection(asyncio.BufferedProtocol):
    """One connection: what came of a head, and how much of a body is to come."""

    def __init__(self, store: _Sink, delay: float) -> None:
        self._store = store
        self._delay = delay
        self._head = b""
        self._request = b""
        self._start = b""
        self._left = 0
        self._chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _scratch[: self._left or len(_scratch)]

    def buffer_updated(self, nbytes: int) -> None:
        received = _scratch[:nbytes]
        if self._left:
            self._start = self._start or bytes(received[:1024])
            self._left -= nbytes
            if not self._left:
                self._respond()
        elif self._chunked:
            if bytes(received[-4:]) == b"\r\n\r\n":  # after the last chunk the client waits
                self._chunked = False
                self._respond()
        else:
            self._head += received
            end = self._head.find(b"\r\n\r\n")
            if end >= 0:
                self._begin(end)

    def _begin(self, end: int) -> None:
        """Take the head of a request, and what came of its body."""
        self._request, rest = self._head[:end], self._head[end + 4 :]
        self._head, self._start = b"", rest[:1024]
        lower = self._request.lower()
        if b"100-continue" in lower:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if b"\r\ntransfer-encoding: chunked" in lower:
            self._chunked = not rest.endswith(b"\r\n\r\n")
        else:
            found = _length(self._request)
            self._left = (int(found[1]) if found else 0) - len(rest)
        if not (self._left or self._chunked):
            self._respond()

    def _respond(self) -> None:
        response = self._store.response(self._request, self._start)
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._transport.write, response)
        else:
            self._transport.write(response)


class _Sink:
    """The responses of a store of each kind."""

    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._numbers = itertools.count(1)
        self._page = functools.lru_cache(maxsize=2048)(self._made_page)
        for cloud, (_, size, _, _) in _QUERIES.items():
            for first in range(0, min(keys, 100_000), size):  # as many as a client walks through without a delay
                self._page(first, size, cloud)

    def response(self, request: bytes, start: bytes = b"") -> bytes:
        """Return the response to a request, whose body has this `start`."""
        method, target, _ = request.split(b"\r\n", 1)[0].split(b" ")
        azure, google = b"\r\nx-ms-version:" in request.lower(), b"/storage/v1/b/" in target
        if method == b"GET" and (azure or google):
            return self._answer(self._listing(target, "azure" if azure else "gcs"))
        if azure:
            return self._answer(b"", b'ETag: "0x1"\r\n', b"201 Created")
        if google:
            fields = (found[0] for found in map(_field_of, (b"name", b"crc32c"), (start, start)) if found)
            return self._answer(b"{%b}" % b", ".join(fields))
        if method == b"PUT":
            checksum = _checksum(request)
            return self._answer(b"", _PART + (checksum[1] + b"\r\n" if checksum else b""))
        if method == b"HEAD":
            return self._answer(b"", b"", b"404 Not Found")
        if method == b"POST":
            body = (_BEGUN if target.endswith((b"?uploads", b"?uploads=")) else _ENDED).encode()
        else:
            body = self._listing(target, "s3") if b"list-type=2" in target else b""
        return self._answer(body, b"Content-Type: application/xml\r\n")

    def _answer(self, body: bytes, headers: bytes = b"", status: bytes = b"200 OK") -> bytes:
        """Return a response, with a header that differs from one to the next, as that of every store does."""
        number, length = next(self._numbers), len(body)
        return b"HTTP/1.1 %b\r\nx-amz-request-id: %016X\r\n%bContent-Length: %d\r\n\r\n%b" % (
            status, number, headers, length, body,
        )  # fmt: skip

    def _listing(self, target: bytes, cloud: str) -> bytes:
        """Return the page that a query asks for."""
        size, most, token, start = _QUERIES[cloud]
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target.decode()).query))
        most = int(query.get(size, most))
        if token in query:
            return self._page(int(query[token]), most, cloud)
        if cloud == "s3" and (prefix := query.get("prefix", "")):  # of what was written, which isn't kept
            empty = self._page(self._keys, most, cloud)
            return empty.replace(b"<Prefix></Prefix>", f"<Prefix>{prefix}</Prefix>".encode())
        bisect_at = bisect.bisect_right if cloud == "s3" else bisect.bisect_left  # S3 lists what comes after a key
        return self._page(bisect_at(range(self._keys), query.get(start, ""), key=_KEY.format), most, cloud)

    def _made_page(self, first: int, most: int, cloud: str) -> bytes:
        end = min(first + most, self._keys)
        if cloud == "gcs":
            items = ",".join(map(_ITEM.format, range(first, end)))
            more = f', "nextPageToken": "{end}"' if end < self._keys else ""
            return f'{{"kind": "storage#objects", "items": [{items}]{more}}}'.encode()
        if cloud == "azure":
            blobs = "".join(map(_BLOB.format, range(first, end)))
            marker = f"<NextMarker>{end}</NextMarker>" if end < self._keys else "<NextMarker />"
            return (
                f'{_HEAD}<EnumerationResults ServiceEndpoint="http://x/" ContainerName="bucket"><Blobs>{blobs}</Blobs>'
                f"{marker}</EnumerationResults>"
            ).encode()
        entries = "".join(map(_ENTRY.format, range(first, end)))
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
        return (
            f"{_HEAD}<ListBucketResult {_NAMESPACE}><Name>bucket</Name><Prefix></Prefix>"
            f"<KeyCount>{end - first}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><EncodingType>url</EncodingType>"
            f"{more if end < self._keys else '<IsTruncated>false</IsTruncated>'}{entries}</ListBucketResult>"
        ).encode()
