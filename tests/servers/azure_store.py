"""Azure Blob Storage in memory, as its documents have it, which can do wrong whatever `HostileStore` can.

Blobs, block lists, batches and copies, with signatures, conditions and checksums; and for an account with a
hierarchical namespace the directories of Data Lake Storage, which the emulator has not. One container, of any name.
What it does not know is a 501: no request is answered by chance.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import re
import threading
import urllib.parse
from email.utils import formatdate
from typing import NamedTuple

from tests.servers.hostile_store import LISTED, Answer, HostileStore, Request

ACCOUNT = "account"
KEY = base64.b64encode(b"the key of the account").decode()
_TIME = "Thu, 01 Jan 2026 00:00:00 GMT"
_PARAMETERS = {"restype", "comp", "include", "prefix", "delimiter", "marker", "startFrom", "maxresults"}
_POLYNOMIAL = 0x9A6C9329AC4BC9B5


class Blob(NamedTuple):
    """A blob, or a directory."""

    content: bytes
    etag: str
    metadata: dict[str, str]
    kind: str = "file"
    modified: str = _TIME


class Refused(Exception):
    """A refusal, with status and code."""

    def __init__(self, status: int, code: str, message: str = "said so") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


class AzureStore(HostileStore):
    """The store, on a port of its own, as the container of `account`.

    Attributes:
        hierarchical: whether the account has directories.
        token: a bearer token that is taken in place of a signature; `any` of them.
        public: whether reads need no credentials.
        missing: whether there is no container.
        pending: how often a copy is under way when it is looked at.
        kept: how often a blob is not removed, by its key.
    """

    sends_checksums = False

    def __init__(
        self, certificate: str | None = None, seed: int = 0, listed: bool = True, hierarchical: bool = False
    ) -> None:
        self.blobs: dict[str, Blob] = {}
        self.blocks: dict[str, dict[str, bytes]] = {}
        self.hierarchical = hierarchical
        self.token = ""
        self.public = False
        self.missing = False
        self.pending = 0
        self.kept: dict[str, int] = {}
        self.page = 10 if listed else 5000
        self.seen: list[Request] = []
        self._listed = listed
        self.answering = threading.RLock()
        """Held while a request is answered."""
        super().__init__(certificate, seed)

    def answer(self, request: Request) -> Answer:
        """The right response, after what it says has been done."""
        with self.answering:
            self.seen.append(request)
            try:
                self._authorise(request)
                if self.missing:
                    raise Refused(404, "ContainerNotFound", "The specified container does not exist.")
                return self._answered(request)
            except Refused as exc:
                return self.refusal(request, exc)

    def refusal(self, request: Request, exc: Refused) -> Answer:
        """Return the response of a refusal."""
        body = f"<Error><Code>{exc.code}</Code><Message>{exc.message}\nRequestId:1</Message></Error>"
        data = b"" if request.method == "HEAD" else body.encode()
        return Answer(exc.status, {**self._ids(), "x-ms-error-code": exc.code}, data, len(data))

    def _ids(self) -> dict[str, str]:
        return {"x-ms-request-id": f"{next(self._numbers):016x}", "x-ms-version": "2021-12-02"}

    def _authorise(self, request: Request, batched: bool = False) -> None:
        sent = request.headers.get("authorization", "")
        if not (batched or request.headers.get("x-ms-version")):
            raise Refused(400, "MissingRequiredHeader")
        if sent.startswith("Bearer ") and self.token in ("any", sent[7:]):
            return
        if sent.startswith("Bearer"):
            raise Refused(401, "InvalidAuthenticationInfo", "Server failed to authenticate the request.")
        if not sent:
            if request.query.get("sig") == "signature" or (self.public and request.method in ("GET", "HEAD")):
                return
            raise Refused(
                404 if request.key else 401, "ResourceNotFound" if request.key else "NoAuthenticationInformation"
            )
        if sent != f"SharedKey {ACCOUNT}:{signature(request)}":
            raise Refused(403, "AuthenticationFailed", "Server failed to authenticate the request.")

    # ---- what is asked

    def _answered(self, request: Request) -> Answer:
        query = {name: value for name, value in request.query.items() if name not in ("sv", "sig")}
        method, key, component = request.method, request.key, query.get("comp")
        if not key:
            if method == "GET" and component == "list":
                return self._page(query)
            if method == "GET" and query.get("restype") == "account":
                return self._said(200, **{"x-ms-is-hns-enabled": str(self.hierarchical).lower()})
            if method == "POST" and component == "batch":
                return self._batch(request)
            raise Refused(501, "NotImplemented", f"{method} {query}")
        if component == "block" and method == "PUT":
            return self._put_block(request, query["blockid"])
        if component == "blocklist" and method == "PUT":
            return self._put_list(request)
        if self.hierarchical and method == "PUT" and ("resource" in query or "mode" in query):
            return self._make_directory(request) if "resource" in query else self._rename(request)
        if self.hierarchical and method == "DELETE" and query.get("recursive") == "true":
            return self._remove_directory(key, query.get("continuation", ""))
        if query:
            raise Refused(501, "NotImplemented", f"{method} {query}")
        if method in ("GET", "HEAD"):
            return self._get_blob(request)
        if method == "DELETE":
            self._existing(key)
            if self._below(key):
                raise Refused(409, "DirectoryIsNotEmpty", "This operation is not permitted on a non-empty directory.")
            self._drop(key)
            return self._said(202)
        if method == "PUT":
            source = request.headers.get("x-ms-copy-source")
            return self._copy(request, source) if source else self._put_blob(request)
        raise Refused(501, "NotImplemented", method)

    def _said(self, status: int, body: bytes = b"", /, **fields: str) -> Answer:
        return Answer(status, {**self._ids(), **fields}, body, len(body))

    def _existing(self, key: str) -> Blob:
        found = self.blobs.get(key)
        if found is None and self._listed and (made := self.object(key)) is not None:
            found = self.blobs[key] = Blob(made, f"0x{hashlib.md5(key.encode()).hexdigest()[:16]}", {})
        if found is None:
            raise Refused(404, "BlobNotFound", "The specified blob does not exist.")
        return found

    def _below(self, key: str) -> list[str]:
        return [name for name in self.blobs if name.startswith(f"{key}/")] if self.hierarchical else []

    def _drop(self, key: str) -> None:
        if self.kept.get(key, 0) > 0:
            self.kept[key] -= 1
            raise Refused(409, "BlobImmutableDueToPolicy", "it is held")
        del self.blobs[key]
        self.written.pop(key, None)

    def put(self, key: str, data: bytes, metadata: dict[str, str] | None = None, kind: str = "file") -> Blob:
        """Make a blob, and the directories that it is in."""
        if self.hierarchical:
            kind = "directory" if key.endswith("/") else kind
            key = key.rstrip("/")
            for at in [place for place, character in enumerate(key) if character == "/"]:
                if key[:at] not in self.blobs:
                    self.put(key[:at], b"", kind="directory")
        etag, now = f"0x{next(self._numbers):016X}", formatdate(usegmt=True)
        found = self.blobs[key] = Blob(data, etag, metadata or {}, kind, now)
        self.written[key] = data
        return found

    def names(self) -> list[str]:
        """Return the names of all blobs; those of directories end in `/`."""
        return [f"{key}/" if blob.kind == "directory" else key for key, blob in self.blobs.items()]

    def content(self, name: str) -> bytes:
        """Return the content of what `names` names."""
        return self.blobs[name.rstrip("/") if self.hierarchical else name].content

    def clear(self) -> None:
        """Forget all blobs and requests."""
        for kept in (self.blobs, self.written, self.blocks, self.seen):
            kept.clear()

    # ---- blobs

    def _get_blob(self, request: Request) -> Answer:
        found = self._existing(request.key)
        wanted = request.headers.get("if-match")
        if wanted and wanted != f'"{found.etag}"':
            raise Refused(
                412, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met."
            )
        fields = {
            "ETag": f'"{found.etag}"',
            "Last-Modified": found.modified,
            "x-ms-blob-type": "BlockBlob",
            **{f"x-ms-meta-{name}": value for name, value in found.metadata.items()},
        }
        if self.hierarchical:
            fields["x-ms-resource-type"] = found.kind
        if self.pending and request.method == "HEAD":
            self.pending -= 1
            fields["x-ms-copy-status"] = "pending" if self.pending else "success"
        whole = found.content
        if request.method == "HEAD":
            return Answer(200, {**self._ids(), **fields}, b"", len(whole))
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if asked is None:
            return Answer(200, {**self._ids(), **fields}, whole, len(whole))
        start, end = int(asked[1]), min(int(asked[2]), len(whole) - 1)
        if start >= len(whole):
            raise Refused(416, "InvalidRange", "The range specified is invalid for the current size of the resource.")
        part = whole[start : end + 1]
        fields["Content-Range"] = f"bytes {start}-{end}/{len(whole)}"
        return Answer(206, {**self._ids(), **fields}, part, len(part))

    def _check(self, request: Request) -> dict[str, str]:
        """Check the conditions and the checksum of a write."""
        there = self.blobs.get(request.key)
        if request.headers.get("if-none-match") == "*" and there is not None:
            raise Refused(409, "BlobAlreadyExists", "The specified blob already exists.")
        if (wanted := request.headers.get("if-match")) and (there is None or wanted != f'"{there.etag}"'):
            raise Refused(412, "ConditionNotMet")
        return self._check_body(request)

    def _check_body(self, request: Request) -> dict[str, str]:
        sent = request.headers.get("x-ms-content-crc64")
        if sent is not None and len(request.body) < 200_000 and sent != crc64(request.body):
            raise Refused(400, "Crc64Mismatch")
        return {"x-ms-content-crc64": sent} if sent is not None else {}

    def _put_blob(self, request: Request) -> Answer:
        if request.headers.get("x-ms-blob-type") != "BlockBlob":
            raise Refused(400, "MissingRequiredHeader")
        fields = self._check(request)
        found = self.put(request.key, request.body, _metadata(request))
        self.blocks.pop(request.key, None)
        return self._said(201, **{"ETag": f'"{found.etag}"', "Last-Modified": found.modified, **fields})

    def _put_block(self, request: Request, block: str) -> Answer:
        fields = self._check_body(request)
        blocks = self.blocks.setdefault(request.key, {})
        if len(base64.b64decode(block)) > 64 or {len(one) for one in blocks} - {len(block)}:
            raise Refused(400, "InvalidBlobOrBlock")
        blocks[block] = request.body
        return self._said(201, **fields)

    def _put_list(self, request: Request) -> Answer:
        self._check(request)
        blocks = self.blocks.get(request.key, {})
        names = re.findall(r"<Uncommitted>([^<]*)</Uncommitted>", request.body.decode())
        if any(name not in blocks for name in names):
            raise Refused(400, "InvalidBlockList", "The specified block list is invalid.")
        found = self.put(request.key, b"".join(blocks[name] for name in names), _metadata(request))
        self.blocks.pop(request.key, None)
        return self._said(201, ETag=f'"{found.etag}"')

    def _copy(self, request: Request, source: str) -> Answer:
        found = self._existing(self.key_of(urllib.parse.urlsplit(source).path))
        made = self.put(request.key, found.content, found.metadata)
        status = "pending" if self.pending else "success"
        return self._said(202, **{"ETag": f'"{made.etag}"', "x-ms-copy-status": status})

    def _batch(self, request: Request) -> Answer:
        boundary = request.headers["content-type"].partition("boundary=")[2]
        parts = request.body.decode().split(f"--{boundary}")[1:-1]
        if len(parts) > 256:
            raise Refused(400, "ExceedsMaxBatchRequestCount")
        answers = []
        for part in reversed(parts):
            head, _, call = part.partition("\r\n\r\n")
            lines = call.strip().split("\r\n")
            method, target, _ = lines[0].split(" ")
            path, _, query = target.partition("?")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            inner = Request(method, self.key_of(path), dict(urllib.parse.parse_qsl(query)), fields, b"", path)
            number = re.search(r"Content-ID: (\d+)", head)
            assert number is not None
            try:
                self._authorise(inner, batched=True)
                status = self._answered(inner).status
            except Refused as exc:
                status = exc.status
            answers.append(
                f"--batchresponse_x\r\nContent-Type: application/http\r\nContent-ID: {number[1]}\r\n\r\n"
                f"HTTP/1.1 {status} Said\r\nx-ms-version: 2021-12-02\r\n\r\n"
            )
        body = f"{''.join(answers)}--batchresponse_x--\r\n".encode()
        return self._said(202, body, **{"Content-Type": "multipart/mixed; boundary=batchresponse_x"})

    # ---- listing

    def _page(self, query: dict[str, str]) -> Answer:
        if unknown := query.keys() - _PARAMETERS:
            raise Refused(400, "InvalidQueryParameterValue", f"{unknown}")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        if self._listed:
            for name in LISTED:
                self._existing(f"listed/{name}")
        start, after = query.get("startFrom", ""), query.get("marker", "")
        most = min(int(query.get("maxresults", "5000")), self.page)
        entries: dict[str, Blob | None] = {}
        for key in sorted(self.blobs):
            if key.startswith(prefix) and key >= start:
                cut = key.find(delimiter, len(prefix)) if delimiter else -1
                name = key if cut < 0 else key[: cut + len(delimiter)]
                found = self.blobs[key]
                if delimiter and found.kind == "directory" and cut < 0:
                    name, cut = f"{key}/", 0
                if name > after:
                    entries[name] = found if cut < 0 else None
        names = sorted(entries)
        text = "".join(self._entry(name, entries[name]) for name in names[:most])
        marker = f"<NextMarker>{html.escape(names[most - 1])}</NextMarker>" if len(names) > most else "<NextMarker />"
        echoed = "".join(
            f"<{element}>{html.escape(query[name])}</{element}>"
            for name, element in (("prefix", "Prefix"), ("marker", "Marker"), ("delimiter", "Delimiter"))
            if query.get(name)
        )
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="c">'
            f"{echoed}<Blobs>{text}</Blobs>{marker}</EnumerationResults>"
        )
        return self._said(200, body.encode())

    def _entry(self, name: str, found: Blob | None) -> str:
        if found is None:
            return f"<BlobPrefix><Name>{html.escape(name, quote=False)}</Name></BlobPrefix>"
        shown = f"<Name>{html.escape(name, quote=False)}</Name>"
        if not name.isprintable():
            shown = f'<Name Encoded="true">{urllib.parse.quote(name)}</Name>'
        kind = f"<ResourceType>{found.kind}</ResourceType>" if self.hierarchical else ""
        metadata = "".join(f"<{key}>{html.escape(value)}</{key}>" for key, value in found.metadata.items())
        return (
            f"<Blob>{shown}<Properties><Creation-Time>{_TIME}</Creation-Time><Last-Modified>{found.modified}</Last-Modified>"
            f"<Etag>{found.etag}</Etag>{kind}<Content-Length>{len(found.content)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><Content-Encoding /><Content-Language />"
            f"<BlobType>BlockBlob</BlobType></Properties><Metadata>{metadata}</Metadata></Blob>"
        )

    # ---- directories

    def _make_directory(self, request: Request) -> Answer:
        if request.key in self.blobs:
            raise Refused(409, "PathAlreadyExists", "The specified path already exists.")
        given = [pair.split("=", 1) for pair in request.headers.get("x-ms-properties", "").split(",") if pair]
        metadata = {name: base64.b64decode(value).decode() for name, value in given}
        self.put(request.key, b"", metadata, kind="directory")
        return self._said(201)

    def _rename(self, request: Request) -> Answer:
        source = self.key_of(request.headers["x-ms-rename-source"].partition("?")[0])
        target, moved = request.key, self.blobs.get(source)
        if moved is None:
            raise Refused(404, "SourcePathNotFound")
        above = target.rpartition("/")[0]
        if above and above not in self.blobs:
            raise Refused(404, "RenameDestinationParentPathNotFound")
        if self._below(target):
            raise Refused(409, "DirectoryNotEmpty")
        for name in [source, *self._below(source)]:
            new = target + name[len(source) :]
            self.blobs[new], self.written[new] = self.blobs.pop(name), self.written.pop(name)
        return self._said(201)

    def _remove_directory(self, key: str, continuation: str) -> Answer:
        self._existing(key)
        names = sorted(self._below(key), reverse=True)
        for name in names[:3]:
            self._drop(name)
        if len(names) > 3:
            return self._said(200, **{"x-ms-continuation": f"after {continuation or 0}"})
        self._drop(key)
        return self._said(200)


def _metadata(request: Request) -> dict[str, str]:
    return {name[10:]: value for name, value in request.headers.items() if name.startswith("x-ms-meta-")}


def signature(request: Request) -> str:
    """Return the signature of a request by the account's key."""
    fields = request.headers
    length = str(len(request.body)) if request.body else ""
    standard = [fields.get("content-encoding", ""), fields.get("content-language", ""), length]
    standard += [fields.get(name, "") for name in ("content-md5", "content-type", "date", "if-modified-since")]
    standard += [fields.get(name, "") for name in ("if-match", "if-none-match", "if-unmodified-since", "range")]
    own = "".join(f"{name}:{fields[name]}\n" for name in sorted(fields) if name.startswith("x-ms-"))
    lower = {name.lower(): value for name, value in request.query.items()}
    parameters = "".join(f"\n{name}:{value}" for name, value in sorted(lower.items()))
    text = "\n".join([request.method, *standard, f"{own}/{ACCOUNT}{request.path}{parameters}"])
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def _table() -> list[int]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return found


_TABLE = _table()


def crc64nvme(data: bytes, value: int = 0) -> int:
    """Return a CRC64NVME, which goes on from that of what is before."""
    value ^= (1 << 64) - 1
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ ((1 << 64) - 1)


def crc64(data: bytes) -> str:
    """Return the CRC64 that Azure has, in base64."""
    return base64.b64encode(crc64nvme(data).to_bytes(8, "little")).decode()
