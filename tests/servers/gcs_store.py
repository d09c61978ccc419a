"""Google Cloud Storage in memory, as its documents have it, which can do wrong whatever `HostileStore` can.

The JSON API for objects (download, resource, list, insert, delete, batch, rewrite) and the XML API's multipart uploads,
with preconditions and checksums; one bucket, of any name. What it does not know is a 501: no request is answered by
chance.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import threading
import urllib.parse
from datetime import UTC, datetime
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import google_crc32c

from tests.servers.hostile_store import LISTED, Answer, HostileStore, Request

PAGE = 1000
_PARAMETERS = {
    *("prefix", "delimiter", "pageToken", "startOffset", "endOffset", "maxResults", "fields", "prettyPrint"),
}


class Stored(NamedTuple):
    """An object."""

    content: bytes
    generation: int
    metadata: dict[str, str]
    resource: dict[str, Any]
    updated: str = "2026-01-01T00:00:00.123Z"


class Refused(Exception):
    """A refusal, with status, reason and message."""

    def __init__(self, status: int, reason: str, message: str = "said so") -> None:
        super().__init__(reason)
        self.status, self.reason, self.message = status, reason, message


class GcsStore(HostileStore):
    """The store, on a port of its own.

    Attributes:
        token: that requests carry; any, or none, if it is empty or `any`.
        missing: whether there is no bucket.
        page: entries of a page.
        rewritten: bytes that one step of a copy takes on.
        kept: how often an object is not removed, by its key.
    """

    def __init__(self, certificate: str | None = None, seed: int = 0, listed: bool = True) -> None:
        self.objects: dict[str, Stored] = {}
        self.token = ""
        self.missing = False
        self.page = 10 if listed else PAGE
        self.rewritten = 1 << 40
        self.kept: dict[str, int] = {}
        self.seen: list[Request] = []
        self._listed = listed
        self._begun: dict[str, tuple[str, dict[str, str], str]] = {}
        self._generations = itertools.count(1_700_000_000_000_000)
        self.answering = threading.RLock()
        """Held while a request is answered."""
        super().__init__(certificate, seed)

    def key_of(self, path: str) -> str:
        """The key in the paths of both APIs."""
        for pattern in (r".*/storage/v1/b/[^/]+/o/(.*)", r"/(?!storage/v1|upload/|batch/)[^/]+/(.+)"):
            if (match := re.fullmatch(pattern, path)) is not None:
                return urllib.parse.unquote(match[1])
        return ""

    def answer(self, request: Request) -> Answer:
        """The right response, after what it says has been done."""
        with self.answering:
            self.seen.append(request)
            try:
                return self._answered(request)
            except Refused as exc:
                return self.refusal(request, exc)

    def refusal(self, request: Request, exc: Refused) -> Answer:
        """Return the response of a refusal, as the API of the request has it."""
        if request.query.get("alt") == "media":
            body = exc.message.encode()
        elif "uploads" in request.query or "uploadId" in request.query:
            body = f"<Error><Code>{exc.reason}</Code><Message>{exc.message}</Message></Error>".encode()
        else:
            errors = [{"reason": exc.reason, "message": exc.message, "domain": "global"}]
            body = json.dumps({"error": {"code": exc.status, "message": exc.message, "errors": errors}}).encode()
        return Answer(exc.status, {"x-guploader-uploadid": f"{next(self._numbers):x}"}, body, len(body))

    def _answered(self, request: Request) -> Answer:
        sent = request.headers.get("authorization", "")
        if self.token not in ("", "any") and sent != f"Bearer {self.token}":
            who = "Invalid Credentials" if sent else "Anonymous caller does not have storage.objects.get access"
            raise Refused(401, "authError" if sent else "required", who)
        if self.missing:
            raise Refused(404, "notFound", "The specified bucket does not exist.")
        if "uploads" in request.query or "uploadId" in request.query:
            return self._in_xml(request)
        if request.path.endswith("/batch/storage/v1"):
            return self._batch(request)
        if "/upload/storage/v1/" in request.path:
            return self._insert(request)
        if (match := re.fullmatch(r"(.*)/rewriteTo/b/([^/]+)/o/(.*)", request.path)) is not None:
            return self._rewrite(request, self.key_of(match[1]), urllib.parse.unquote(match[3]))
        if not request.path.startswith("/storage/v1/b/"):
            raise Refused(501, "notImplemented", request.path)
        if request.method == "DELETE":
            self._existing(request.key)
            if self.kept.get(request.key, 0) > 0:
                self.kept[request.key] -= 1
                raise Refused(403, "forbidden", f"no permission to remove {request.key}")
            del self.objects[request.key]
            self.written.pop(request.key, None)
            return self._plain(204, b"")
        if request.method != "GET":
            raise Refused(501, "notImplemented", request.method)
        if not request.key:
            return self._page(request.query)
        found = self._existing(request.key)
        if request.query.get("alt") == "media":
            return self._download(request, found)
        return self._json(_resource(request.key, found))

    def _existing(self, key: str) -> Stored:
        found = self.objects.get(key)
        if found is None and self._listed and (made := self.object(key)) is not None:
            found = Stored(made, 1 + int.from_bytes(key.encode()[-6:], "big"), {}, {})
            self.objects[key] = found
        if found is None:
            raise Refused(404, "notFound", f"No such object: bucket/{key}")
        return found

    def _json(self, value: object) -> Answer:
        answer = self._plain(200, json.dumps(value).encode())
        answer.headers["Content-Type"] = "application/json; charset=UTF-8"
        return answer

    def _download(self, request: Request, found: Stored) -> Answer:
        if (wanted := request.query.get("ifGenerationMatch")) and wanted != str(found.generation):
            raise Refused(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        crc32c, whole = _crc32c(found.content), found.content
        headers = {
            "x-goog-generation": str(found.generation),
            "x-goog-hash": f"crc32c={crc32c}",
            "ETag": f'"{found.generation}"',
            "x-guploader-uploadid": f"{next(self._numbers):x}",
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if asked is None:
            return Answer(200, headers, whole, len(whole))
        start, end = int(asked[1]), min(int(asked[2]), len(whole) - 1)
        if start >= len(whole):
            raise Refused(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
        part = whole[start : end + 1]
        return Answer(206, {**headers, "Content-Range": f"bytes {start}-{end}/{len(whole)}"}, part, len(part))

    def _page(self, query: dict[str, str]) -> Answer:
        if unknown := query.keys() - _PARAMETERS:
            raise Refused(400, "invalidParameter", f"{unknown}")
        prefix, delimiter, end = query.get("prefix", ""), query.get("delimiter", ""), query.get("endOffset")
        if self._listed:
            for name in LISTED:
                self._existing(f"listed/{name}")
        after = query.get("pageToken", "")
        start, most = query.get("startOffset", ""), min(int(query.get("maxResults", PAGE)), self.page)
        entries: dict[str, dict[str, Any] | None] = {}
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            if key < start or (end and key >= end):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if cut < 0 else key[: cut + len(delimiter)]
            if name > after:
                entries[name] = _resource(key, self.objects[key]) if cut < 0 else None
        names = sorted(entries)
        found: dict[str, Any] = {"kind": "storage#objects"}
        if items := [entries[name] for name in names[:most] if entries[name] is not None]:
            found["items"] = items
        if prefixes := [name for name in names[:most] if entries[name] is None]:
            found["prefixes"] = prefixes
        if len(names) > most:
            found["nextPageToken"] = names[most - 1]
        return self._json(found)

    # ---- writing

    def put(self, key: str, data: bytes, **resource: Any) -> Stored:
        """Make an object."""
        metadata = resource.pop("metadata", {})
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
        found = self.objects[key] = Stored(data, next(self._generations), metadata, resource, now)
        self.written[key] = data
        return found

    def names(self) -> list[str]:
        """Return the names of all objects."""
        return list(self.objects)

    def content(self, name: str) -> bytes:
        """Return the content of an object."""
        return self.objects[name].content

    def clear(self) -> None:
        """Forget all objects and requests."""
        for kept in (self.objects, self.written, self.seen):
            kept.clear()

    def _insert(self, request: Request) -> Answer:
        if request.method != "POST" or request.query.get("uploadType") != "multipart":
            raise Refused(501, "notImplemented", f"{request.query}")
        kind = request.headers["content-type"]
        boundary = kind.partition("boundary=")[2].encode()
        pieces = request.body.split(b"--" + boundary)
        if not kind.startswith("multipart/related; ") or len(pieces) != 4 or pieces[3] != b"--\r\n":
            raise Refused(400, "badContent", "Malformed multipart body.")
        resource = json.loads(pieces[1].partition(b"\r\n\r\n")[2])
        head, _, data = pieces[2].partition(b"\r\n\r\n")
        data = data.removesuffix(b"\r\n")
        key = resource.pop("name")
        condition = request.query.get("ifGenerationMatch")
        there = self.objects.get(key)
        if condition is not None and condition != str(there.generation if there else 0):
            raise Refused(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        if resource.pop("crc32c", None) not in (None, _crc32c(data)):
            raise Refused(400, "invalid", "Provided CRC32C doesn't match calculated CRC32C.")
        resource["contentType"] = re.search(rb"(?i)content-type: ([^\r]+)", head)[1].decode()  # type: ignore[index]
        if "kmsKeyName" in request.query:
            resource["kmsKeyName"] = request.query["kmsKeyName"]
        return self._json(_resource(key, self.put(key, data, **resource)))

    def _batch(self, request: Request) -> Answer:
        boundary = request.headers["content-type"].partition("boundary=")[2]
        parts = request.body.decode().split(f"--{boundary}")[1:-1]
        if len(parts) > 100:
            raise Refused(400, "badRequest", "more than 100 calls")
        answers = []
        for part in reversed(parts):  # in an order of its own
            number, line = re.search(r"Content-ID: <(.*)>", part), re.search(r"\r\n\r\n(.*) (.*) HTTP/1.1\r\n", part)
            assert number is not None
            assert line is not None
            call = Request(line[1], self.key_of(line[2]), {}, {}, b"", line[2])
            try:
                status = self._answered(call).status
            except Refused as exc:
                status = exc.status
            answers.append(
                f"--batch_x\r\nContent-Type: application/http\r\nContent-ID: <response-{number[1]}>\r\n\r\n"
                f"HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n\r\n"
            )
        found = self._plain(200, f"{''.join(answers)}--batch_x--\r\n".encode())
        found.headers["Content-Type"] = "multipart/mixed; boundary=batch_x"
        return found

    def _rewrite(self, request: Request, src: str, dst: str) -> Answer:
        found = self._existing(src)
        if request.query.get("ifSourceGenerationMatch") not in (None, str(found.generation)):
            raise Refused(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
        done = int(request.query.get("rewriteToken", "0")) + self.rewritten
        if done < len(found.content):
            return self._json({"done": False, "rewriteToken": str(done)})
        # Without a resource in the request the copy has that of its original.
        given = json.loads(request.body) if request.body else {**found.resource, "metadata": found.metadata}
        self.put(dst, found.content, **given)
        return self._json({"done": True})

    # ---- the XML API

    def _in_xml(self, request: Request) -> Answer:
        upload = request.query.get("uploadId", "")
        key = escape(request.key)
        if request.method == "POST" and "uploads" in request.query:
            upload = f"upload{next(self._numbers)}"
            self.uploads[upload] = {}
            kept = {name[12:]: value for name, value in request.headers.items() if name.startswith("x-goog-meta-")}
            self._begun[upload] = (request.key, kept, request.headers.get("content-type", ""))
            name = "InitiateMultipartUploadResult"
            return self._plain(200, f"<{name}><Key>{key}</Key><UploadId>{upload}</UploadId></{name}>".encode())
        if request.method == "GET" and not upload:
            entries = "".join(
                f"<Upload><Key>{escape(begun[0])}</Key><UploadId>{name}</UploadId>"
                "<Initiated>2026-01-01T00:00:00Z</Initiated></Upload>"
                for name, begun in self._begun.items()
                if begun[0].startswith(request.query.get("prefix", ""))
            )
            return self._plain(200, f"<ListMultipartUploadsResult>{entries}</ListMultipartUploadsResult>".encode())
        if upload not in self.uploads:
            raise Refused(404, "NoSuchUpload")
        if request.method == "PUT":
            if request.headers.get("x-goog-hash") not in (None, f"crc32c={_crc32c(request.body)}"):
                raise Refused(400, "BadDigest")
            self.uploads[upload][int(request.query["partNumber"])] = request.body
            return self._plain(200, b"", _md5(request.body))
        parts = self.uploads.pop(upload)
        _, metadata, kind = self._begun.pop(upload)
        if request.method == "POST":
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", request.body)]
            content = b"".join(parts[number] for number in numbers)
            made = self.put(request.key, content, metadata=metadata, contentType=kind)
            said = f"<Key>{key}</Key><ETag>&quot;-CN{made.generation}&quot;</ETag>"
            answer = self._plain(200, f"<CompleteMultipartUploadResult>{said}</CompleteMultipartUploadResult>".encode())
            return answer._replace(headers={**answer.headers, "x-goog-generation": str(made.generation)})
        return self._plain(204, b"")


def _resource(key: str, found: Stored) -> dict[str, Any]:
    return {
        "name": key,
        "size": str(len(found.content)),
        "generation": str(found.generation),
        "updated": found.updated,
        "storageClass": "STANDARD",
        "crc32c": _crc32c(found.content),
        **({"metadata": found.metadata} if found.metadata else {}),
        **found.resource,
    }


def _crc32c(data: bytes) -> str:
    return base64.b64encode(int(google_crc32c.value(data)).to_bytes(4, "big")).decode()


def _md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
