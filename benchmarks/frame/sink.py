"""A store that keeps nothing: it takes writes as fast as they come, and lists keys that are not there.

One thread, and a little work for each request, so that the client's time counts. `start` runs it as a process.
"""

from __future__ import annotations

import asyncio
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
        for cloud, size in (("s3", 1000), ("gcs", 1000), ("azure", 5000)):
            for first in range(0, min(keys, 100_000), size):  # as many as a client walks through without a delay
                self._page(first, size, cloud)

    def response(self, request: bytes, start: bytes = b"") -> bytes:
        """Return the response to a request, whose body has this `start`."""
        method, target, _ = request.split(b"\r\n", 1)[0].split(b" ")
        if b"\r\nx-ms-version:" in request.lower():
            return self._of_azure(method, target, request)
        if b"/storage/v1/b/" in target:
            return self._of_google(method, target, start)
        if method == b"PUT":
            checksum = _checksum(request)
            echoed = checksum[1] + b"\r\n" if checksum else b""
            return b"HTTP/1.1 200 OK\r\n%b%b%bContent-Length: 0\r\n\r\n" % (self._identifier(), _PART, echoed)
        if method == b"HEAD":
            return b"HTTP/1.1 404 Not Found\r\n%bContent-Length: 0\r\n\r\n" % self._identifier()
        if method == b"POST":
            body = (_BEGUN if target.endswith((b"?uploads", b"?uploads=")) else _ENDED).encode()
        elif b"list-type=2" in target:
            body = self._listing(target.decode())
        else:
            body = b""
        kind = b"Content-Type: application/xml\r\n"
        return b"HTTP/1.1 200 OK\r\n%b%bContent-Length: %d\r\n\r\n%b" % (self._identifier(), kind, len(body), body)

    def _of_azure(self, method: bytes, target: bytes, request: bytes) -> bytes:
        if method == b"GET":
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target.decode()).query))
            most = int(query.get("maxresults", 5000))
            first = int(query["marker"]) if "marker" in query else self._behind(query.get("startFrom", ""), True)
            body = self._page(first, most, "azure")
            return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (self._identifier(), len(body), body)
        return b'HTTP/1.1 201 Created\r\n%bETag: "0x1"\r\nContent-Length: 0\r\n\r\n' % self._identifier()

    def _of_google(self, method: bytes, target: bytes, start: bytes) -> bytes:
        if method == b"GET":
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target.decode()).query))
            most = int(query.get("maxResults", 1000))
            first = (
                int(query["pageToken"]) if "pageToken" in query else self._behind(query.get("startOffset", ""), True)
            )
            body = self._page(first, most, "gcs")
        else:
            fields = (found[0] for found in map(_field_of, (b"name", b"crc32c"), (start, start)) if found)
            body = b"{%b}" % b", ".join(fields)
        return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (self._identifier(), len(body), body)

    def _identifier(self) -> bytes:
        """Return a header that differs from response to response, as that of every store does."""
        return b"x-amz-request-id: %016X\r\n" % next(self._numbers)

    def _listing(self, target: str) -> bytes:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        most = int(query.get("max-keys", 1000))
        if "continuation-token" in query:
            return self._page(int(query["continuation-token"]), most, "s3")
        if prefix := query.get("prefix", ""):  # of what was written, which isn't kept
            return self._page(self._keys, most, "s3").replace(
                b"<Prefix></Prefix>", f"<Prefix>{prefix}</Prefix>".encode()
            )
        return self._page(self._behind(query.get("start-after", "")), most, "s3")

    def _behind(self, after: str, itself: bool = False) -> int:
        """Return the number of the first key behind a string, which may be the key `itself`."""
        low, high = 0, self._keys
        while low < high:
            middle = (low + high) // 2
            key = f"data/{middle:07d}.jpg"
            if key < after or (key == after and not itself):
                low = middle + 1
            else:
                high = middle
        return low

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
