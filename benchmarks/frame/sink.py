"""A store that keeps nothing: it takes writes as fast as they come, and lists keys that are not there.

One thread, and a little work for each request, so that the client's time counts. `start` runs it as a process.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import re
import select
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator

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
    code = f"from benchmarks.frame import sink; sink.serve({keys}, {delay}, {files})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        finally:
            server.kill()


def serve(keys: int, delay: float, files: tuple[str, str] | None) -> None:
    """Print the port, and serve."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    context = None
    if files is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
    _Sink(listener, context, keys, delay).run()


class _Connection:
    """One connection: what came of a head, and how much of a body is to come."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.head = b""
        self.request = b""
        self.start = b""
        self.left = 0
        self.chunked = False


class _Sink:
    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None, keys: int, delay: float) -> None:
        self._listener = listener
        self._context = context
        self._keys = keys
        self._delay = delay
        self._poll = select.epoll()
        self._poll.register(listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, bytes]] = []
        self._scratch = bytearray(1 << 20)
        self._numbers = itertools.count(1)
        self._page = functools.lru_cache(maxsize=2048)(self._made_page)
        for cloud, size in (("s3", 1000), ("gcs", 1000), ("azure", 5000)):
            for first in range(0, min(keys, 100_000), size):  # as many as a client walks through without a delay
                self._page(first, size, cloud)

    def run(self) -> None:
        """Serve until the process is killed."""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1
            for descriptor, _ in self._poll.poll(wait):
                if descriptor == self._listener.fileno():
                    self._accept()
                    continue
                try:
                    self._read(self._connections[descriptor])
                except (OSError, ValueError):
                    self._close(descriptor)
            while self._due and self._due[0][0] <= time.monotonic():
                _, descriptor, response = heapq.heappop(self._due)
                if descriptor in self._connections:
                    self._connections[descriptor].socket.sendall(response)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            secured = self._context.wrap_socket(accepted, server_side=True) if self._context else accepted
        except OSError:
            accepted.close()
            return
        self._connections[secured.fileno()] = _Connection(secured)
        self._poll.register(secured.fileno(), select.EPOLLIN)

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._connections.pop(descriptor).socket.close()

    def _read(self, connection: _Connection) -> None:
        while True:
            self._read_some(connection)
            if not (isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending()):
                return

    def _read_some(self, connection: _Connection) -> None:
        if connection.left:
            received = connection.socket.recv_into(self._scratch, min(connection.left, len(self._scratch)))
            if not received:
                raise ConnectionError
            if not connection.start:
                connection.start = bytes(self._scratch[: min(received, 1024)])
            connection.left -= received
            if not connection.left:
                self._respond(connection)
            return
        data = connection.socket.recv(65536)
        if not data:
            raise ConnectionError
        if connection.chunked:
            if data.endswith(b"\r\n\r\n"):  # after the last chunk the client waits
                connection.chunked = False
                self._respond(connection)
            return
        connection.head += data
        end = connection.head.find(b"\r\n\r\n")
        if end >= 0:
            self._begin(connection, end)

    def _begin(self, connection: _Connection, end: int) -> None:
        """Take the head of a request, and what came of its body."""
        connection.request, rest = connection.head[:end], connection.head[end + 4 :]
        connection.head, connection.start = b"", rest[:1024]
        lower = connection.request.lower()
        if b"100-continue" in lower:
            connection.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if b"\r\ntransfer-encoding: chunked" in lower:
            connection.chunked = not rest.endswith(b"\r\n\r\n")
            if not connection.chunked:
                self._respond(connection)
            return
        found = _length(connection.request)
        connection.left = (int(found[1]) if found else 0) - len(rest)
        if not connection.left:
            self._respond(connection)

    def _respond(self, connection: _Connection) -> None:
        response = self._response(connection.request, connection.start)
        if self._delay:
            heapq.heappush(self._due, (time.monotonic() + self._delay, connection.socket.fileno(), response))
        else:
            connection.socket.sendall(response)

    def _response(self, request: bytes, start: bytes = b"") -> bytes:
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
            return self._page(int(query["continuation-token"]), most)
        if prefix := query.get("prefix", ""):  # of what was written, which isn't kept
            return self._page(self._keys, most).replace(b"<Prefix></Prefix>", f"<Prefix>{prefix}</Prefix>".encode())
        return self._page(self._behind(query.get("start-after", "")), most)

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

    def _made_page(self, first: int, most: int, cloud: str = "s3") -> bytes:
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
