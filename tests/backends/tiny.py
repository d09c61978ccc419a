"""The smallest store there can be, and its dialect: what `objects.Dialect` asks for, and nothing else.

Objects lie at `/KEY`, with a CRC32C in a field of its own; `GET /?prefix=...` lists them as JSON; a bearer token is all
that authorises. It can do wrong whatever `HostileStore` can.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Hashable, Iterable

import google_crc32c

from fsabs.backends.objects import Access, Dialect, Endpoint, ObjectStore, checksums
from fsabs.backends.objects.failures import mismatched
from fsabs.backends.objects.messages import WHOLE, Body, ObjectPage, PageQuery, Reading, Request, Response, ResponseHead
from fsabs.core.errors import CorruptFileError
from tests.servers import hostile_store
from tests.servers.hostile_store import LISTED, Answer, HostileStore, content

PAGE = 10


class TinyAccess(Access):
    """The access to a store on loopback."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        return "".join(f"{header}\r\n" for header in (*headers, "authorization:Bearer token"))


class TinyDialect(Dialect):
    """The objects at a URL."""

    scheme = name = "tiny"
    bucket = "bucket"
    checks_writes = True

    def __init__(self, url: str, verify: str | bool = True) -> None:
        parts = urllib.parse.urlsplit(url)
        host, port, tls = parts.hostname or "", parts.port or 80, parts.scheme == "https"
        self._endpoint = Endpoint(host, port, parts.netloc, tls, "/bucket/", 2, 0.6, 3, verify=verify)

    def same_client(self) -> Hashable:
        return self._endpoint

    def access(self) -> TinyAccess:
        return TinyAccess(self._endpoint)

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        if request.method == "PUT" and head.header(b"etag") is None:
            return mismatched("nothing shows that anything was stored")
        return None

    def has_checksum(self, head: ResponseHead) -> bool:
        return b"\r\nx-crc32c:" in head.lower

    def mismatch(self, head: ResponseHead, pieces: Iterable[bytes]) -> str | None:
        return checksums.mismatch([(b"crc32c", head.header(b"x-crc32c") or "")], pieces)

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        headers = (f'if-match:"{wanted.version}"',) if wanted.version else ()
        return Request("GET", key, "", headers, b"", *wanted)

    def head(self, key: str) -> Request:
        return Request("HEAD", key)

    def page_request(self, query: PageQuery) -> Request:
        behind = query.token or query.after or ""
        return Request("GET", query=urllib.parse.urlencode({"prefix": query.prefix, "after": behind}))

    def page(self, prefix: str, response: Response) -> ObjectPage:
        try:
            found = json.loads(response.body)
            if found["prefix"] != prefix:
                raise ValueError("of another prefix")
            return ObjectPage([(key, "", "", str(size)) for key, size in found["items"]], [], found["next"])
        except (ValueError, KeyError, TypeError) as exc:
            raise CorruptFileError(74, f"not a page of a listing: {exc}") from exc

    def put(self, key: str, body: Body, exclusive: bool = False, mark: str = "", version: str = "") -> Request:
        return Request("PUT", key, headers=(f"x-crc32c:{checksums.value('CRC32C', body)}",), body=body)

    def remove(self, key: str) -> Request:
        return Request("DELETE", key)


class TinyFS(ObjectStore):
    """The FS of a tiny store."""

    scheme = "tiny"

    def __init__(self, url: str, verify: str | bool = True) -> None:
        super().__init__(TinyDialect(url, verify), part_size=64 << 20)


class TinyStore(HostileStore):
    """The store, on a port of its own."""

    def answer(self, request: hostile_store.Request) -> Answer:
        """The right response, after what it says has been done."""
        if request.headers.get("authorization") != "Bearer token":
            return Answer(401, {}, b"", 0)
        if request.method == "GET" and not request.key:
            prefix, after = request.query.get("prefix", ""), request.query.get("after", "")
            keys = [key for key in (f"listed/{name}" for name in LISTED) if key.startswith(prefix) and key > after]
            last = keys[PAGE - 1] if len(keys) > PAGE else None
            found = {"prefix": prefix, "items": [(key, len(content(key))) for key in keys[:PAGE]], "next": last}
            body = json.dumps(found).encode()
            return Answer(200, {}, body, len(body))
        sent, given = request.headers.get("x-crc32c"), _crc32c(request.body)
        if request.method == "PUT" and sent != given:
            return Answer(400, {}, b"", 0)
        answer = super().answer(request)
        if request.method == "GET" and answer.status == 200:
            answer.headers["x-crc32c"] = _crc32c(answer.body)
        return answer


def _crc32c(data: bytes) -> str:
    return base64.b64encode(int(google_crc32c.value(data)).to_bytes(4, "big")).decode()
