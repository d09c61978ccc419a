"""The FS of a bucket on Google Cloud Storage, and its dialect: the JSON API
(cloud.google.com/storage/docs/json_api), and for objects that are written in parts the XML API's uploads, since the
other has none.
"""

from __future__ import annotations

import errno
import json
import re
import secrets
import urllib.parse
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...core.fs import StoreNotes
from ...core.limits import parse_json
from ..objects import ObjectStore, bodies, checksums
from ..objects.access import Access, ConnectionOptions, Endpoint, described, endpoint_at
from ..objects.bodies import query_of, text_of, unreadable
from ..objects.dialect import Dialect, PartOf, content_type_of
from ..objects.failures import GONE, Expired, Throttled, mismatched, refusal_text, refused, retry_after, with_status
from ..objects.messages import (
    WHOLE,
    Body,
    Found,
    ObjectPage,
    PageQuery,
    Pieces,
    Reading,
    Request,
    Response,
    ResponseHead,
    parts_of,
)
from ..objects.store import COSTS, PART_SIZE
from . import access
from .access import EMULATOR, GCSAccess, GCSOptions, environment, google_auth, of_gcsfs, url_of

MARK = "fsabs-write"
"""The name of the metadata by which a writer knows its own object."""
_KEPT = (
    *("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "customTime"),
    "metadata",
)
"""Fields of an object that its copy keeps."""
_ABOUT = f"fields=name,size,generation,updated,storageClass,{','.join(_KEPT)}"
_PAGE_KIND = "storage#objects"
_LISTED = "kind,items(name,size,generation,updated),prefixes,nextPageToken"
_WRITTEN = "name,generation,crc32c"
_ZONAL_CLASS = "RAPID"
_speaks_of_zones = re.compile("zonal|rapid|grpc", re.IGNORECASE).search
_speaks_of_bucket = re.compile("bucket does not exist|NoSuchBucket", re.IGNORECASE).search
_is_of_upload = re.compile("(?:.*&)?upload(?:s|Id=[^&]*)(?:&.*)?").fullmatch
"""Matches the queries of requests of the XML API."""
_speaks_of_payer = re.compile("requester pays|user project", re.IGNORECASE).search
_THROTTLED_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_sent_checksum = re.compile(rb'"crc32c": "([^"]*)"').search
MIN_PART_SIZE = 5 * 1024**2


class GCSDialect(Dialect):
    """The bucket `bucket`, with the options of `GCS`."""

    scheme = "gs"
    name = "gcs"
    safe = "~"
    sent_with_objects = (b"x-goog-generation",)
    keeps_content = True
    accept_encoding = "gzip"  # else objects that are stored so come decompressed, whole, and without a length
    checks_writes = True
    max_removed = 100

    def __init__(self, bucket: str, options: GCSOptions) -> None:
        self.bucket = bucket
        self.options = options
        self.store_url, _ = url_of(options.endpoint)
        """The URL of the store."""
        self._base = urllib.parse.urlsplit(self.store_url).path
        self._bucket_path = f"/storage/v1/b/{_quoted(bucket)}/o"
        self._upload_path = f"{self._base}/upload{self._bucket_path}"
        self._xml_path = f"{self._base}/{_quoted(bucket)}/"
        named = {"storageClass": options.storage_class, "cacheControl": options.cache_control}
        self._resource = {name: value for name, value in named.items() if value is not None}
        self.copies_like = options.storage_class is not None

    # ---- the store

    def same_client(self) -> Hashable:
        """Return bucket, options and environment."""
        return self.bucket, self.options, self.store_url, environment()

    def endpoint(self) -> Endpoint:
        """Return the endpoint of the bucket."""
        return endpoint_at(self.store_url, f"{self._bucket_path}/", self.options.connection)

    def load(self) -> None:
        """Import the checksums, and what fetches tokens."""
        checksums.load()
        if not (self.options.anonymous or self.options.access_token):
            google_auth()

    def access(self) -> GCSAccess:
        """Return this process's access to the bucket."""
        return GCSAccess(self.endpoint(), self.options)

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a refusal stands for."""
        status, (reason, message) = head.status, _reason(body)
        text = refusal_text(status, reason or head.reason, message)
        error: OSError | None = None
        if status == 404 and _speaks_of_bucket(message):
            reason, error = (
                "NoSuchBucket",
                FileNotFoundError(errno.ENOENT, f"the bucket {self.bucket!r} does not exist"),
            )
        elif reason == GONE:
            error = OSError(errno.EIO, "the upload is gone: another client aborted it")
        elif status == 304:
            return refused(head._replace(status=412), reason, message)
        elif reason in _THROTTLED_REASONS:
            return Throttled(with_status(OSError(errno.EBUSY, text), status, reason), retry_after(head))
        elif status in (400, 403) and _speaks_of_payer(message):
            advice = "the reader pays for this bucket: give requester_pays='the project that pays'"
            error = PermissionError(errno.EACCES, f"{text}; {advice}")
        elif status in (400, 403, 405, 412, 501) and _speaks_of_zones(message):
            error = self._zonal(text)
        elif status in (401, 403):
            advice = "give credentials" if self.options.anonymous else "check the permissions of this account"
            error = PermissionError(errno.EACCES, f"{text}; {advice}")
            if status == 401 and not self.options.anonymous:
                return Expired(with_status(error, status, reason))
        return refused(head, reason, message, error)

    def _zonal(self, text: str) -> OSError:
        reason = (
            "is zonal (Rapid), and read by gRPC alone, which this library has not: open it by gcsfs, with fsspec=True"
        )
        return OSError(errno.EOPNOTSUPP, f"{text}: the bucket {self.bucket!r} {reason}")

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        """Return why a response is no success of its request."""
        if request.method == "DELETE" and body.lstrip().startswith(b"<"):
            return mismatched("a page: nothing shows that anything was removed")
        if _is_of_upload(request.query):
            return _check_xml(request, head, body)
        if request.about or request.path == self._upload_path:
            found = _object_of(body)
            if found is None or found.get("name") != request.key:
                return mismatched(f"a response about {'nothing' if found is None else found.get('name')!r}")
            sent = _sent_checksum(bytes(parts_of(request.body)[0])) if not request.about else None
            if sent is not None and found.get("crc32c") != sent[1].decode():
                return mismatched(
                    f"the store has an object with the CRC32C {found.get('crc32c')} for {sent[1].decode()}"
                )
        elif request.method == "GET" and not body.lstrip().startswith(b"{"):
            return mismatched("not a page of a listing")
        return None

    def version(self, head: ResponseHead) -> str | None:
        """Return the generation."""
        return head.header(b"x-goog-generation")

    def has_checksum(self, head: ResponseHead) -> bool:
        """Return whether a response has one."""
        return b"\r\nx-goog-hash:" in head.lower

    def mismatch(self, head: ResponseHead, pieces: Iterable[bytes]) -> str | None:
        """Compare with the checksum of the object."""
        fields = (field for _, value in head.named("x-goog-hash") for field in value.split(","))
        found = dict(field.strip().partition("=")[::2] for field in fields)
        return checksums.mismatch(
            ((name, found[name.decode()]) for name in (b"crc32c", b"md5") if name.decode() in found), pieces
        )

    # ---- reading

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a download."""
        query = f"alt=media&ifGenerationMatch={_quoted(wanted.version)}" if wanted.version else "alt=media"
        return Request("GET", key, query, (), b"", *wanted)

    def head(self, key: str) -> Request:
        """Return a request for an object's resource."""
        return Request("GET", key, _ABOUT, about=True)

    def found(self, response: Response, total: int | None = None) -> Found:
        """Return what an object's resource says."""
        found = _object_of(response.body) or {}
        if found.get("storageClass") == _ZONAL_CLASS:
            raise self._zonal("storage class RAPID")
        try:
            return Found(int(found["size"]), datetime.fromisoformat(found["updated"]), str(found["generation"]))
        except (KeyError, ValueError) as exc:
            raise unreadable(f"an object without {exc}") from exc

    # ---- listing

    def page_request(self, query: PageQuery) -> Request:
        """Return a request for a page."""
        text = query_of(
            prefix=query.prefix or None,
            delimiter="/" if query.one_level else None,
            pageToken=query.token,
            startOffset=query.after or None,
            maxResults=query.most,
            fields=_LISTED,
            prettyPrint="false",
        )
        return Request("GET", "", text)

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return the page in a response."""
        try:
            found = parse_json(bodies.page_text(response))
            if found["kind"] != _PAGE_KIND:  # an empty page has nothing else
                raise ValueError(f"{found['kind']!r}")
            objects = [
                (str(one["name"]), one["updated"], one["generation"], str(one["size"]))
                for one in found.get("items", ())
            ]
            prefixes, token = [*found.get("prefixes", ())], found.get("nextPageToken")
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise unreadable(f"not a page of a listing: {type(exc).__name__}: {exc}") from exc
        for name in (*prefixes[:1], *(entry[0] for entry in objects[:1])):
            if not name.startswith(prefix):
                raise unreadable(f"a page of another prefix where {prefix!r} was asked for")
        return ObjectPage(objects, prefixes, token)

    # ---- writing

    def put(self, key: str, body: Body, exclusive: bool = False, mark: str = "", version: str = "") -> Request:
        """Return an upload of resource and content, on which the store compares the CRC32C."""
        resource: dict[str, Any] = {"crc32c": checksums.value("CRC32C", body), "name": key, **self._resource}
        kind = content_type_of(key, self.options.content_type) or "application/octet-stream"
        metadata = {**dict(self.options.metadata), **({MARK: mark} if mark else {})}
        if metadata:
            resource["metadata"] = metadata
        query = query_of(
            fields=_WRITTEN,
            ifGenerationMatch=0 if exclusive else version or None,
            kmsKeyName=self.options.kms_key_name,
            uploadType="multipart",
        )
        boundary = secrets.token_hex(16)
        described = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{json.dumps(resource)}\r\n"
        start = f"{described}--{boundary}\r\nContent-Type: {kind}\r\n\r\n".encode()
        whole = Pieces((start, *parts_of(body), f"\r\n--{boundary}--\r\n".encode()))
        headers = (f"content-type:multipart/related; boundary={boundary}",)
        return Request("POST", key, query, headers, whole, path=self._upload_path)

    def mark_of(self, response: Response) -> str | None:
        """Return the mark in an object's metadata."""
        metadata = (_object_of(response.body) or {}).get("metadata")
        return metadata.get(MARK) if isinstance(metadata, dict) else None

    def remove(self, key: str) -> Request:
        """Return a deletion."""
        return Request("DELETE", key)

    def remove_many(self, keys: Sequence[str], access: Access) -> tuple[Request | None, Sequence[str]]:
        """Return a batch of deletions."""
        if len(keys) < 2:
            return None, keys
        calls = (f"DELETE {self._bucket_path}/{_quoted(key)} HTTP/1.1" for key in keys)
        field, body = bodies.batch(calls, "<{}>")
        return Request("POST", "", "", (field,), body, path=f"{self._base}/batch/storage/v1"), ()

    def can_copy_from(self, source: Dialect) -> bool:
        """Return whether a bucket is of the same store, and read by the same user."""
        return isinstance(source, GCSDialect) and source.options == self.options and source.store_url == self.store_url

    def copy(self, source: Dialect, src: str, dst: str, like: Response | None = None) -> Request | None:
        """Return a rewrite; to give the copy a storage class is to give it all that it has beside its content."""
        assert isinstance(source, GCSDialect)
        headers: tuple[str, ...] = ()
        body, generation = b"", None
        if like is not None:
            found = _object_of(like.body) or {}
            resource = {name: found[name] for name in _KEPT if name in found}
            body = json.dumps({**resource, "storageClass": self.options.storage_class}).encode()
            headers, generation = ("content-type:application/json",), found.get("generation")
        path = f"{self._base}{source._bucket_path}/{_quoted(src)}/rewriteTo/b/{_quoted(self.bucket)}/o/{_quoted(dst)}"
        query = query_of(
            destinationKmsKeyName=self.options.kms_key_name,
            fields="done,rewriteToken",
            ifSourceGenerationMatch=generation,
        )
        return Request("POST", dst, query, headers, body, slow=True, path=path)

    def copied(self, request: Request, response: Response) -> tuple[Request, float] | None:
        """Return the next step of a rewrite."""
        found = _object_of(response.body)
        if found is None or not isinstance(found.get("done"), bool):
            raise unreadable("a copy that doesn't say whether it is done")
        if found["done"]:
            return None
        query = request.query.partition("&rewriteToken=")[0]
        return request._replace(query=f"{query}&rewriteToken={_quoted(found.get('rewriteToken', ''))}"), 0.0

    # ---- uploads, by the XML API

    def begin(self, key: str, mark: str, like: Response | None = None, tags: str = "") -> Request:
        """Return an initiation."""
        options, kind = self.options, content_type_of(key, self.options.content_type)
        named = {
            "content-type": kind or "application/octet-stream",
            "cache-control": options.cache_control,
            "x-goog-storage-class": options.storage_class,
            "x-goog-encryption-kms-key-name": options.kms_key_name,
        }
        headers = (
            *(f"{name}:{value}" for name, value in named.items() if value is not None),
            *(f"x-goog-meta-{name}:{value}" for name, value in options.metadata),
            f"x-goog-meta-{MARK}:{mark}",
        )
        return self.about_upload("POST", key, "uploads", headers)

    def about_upload(
        self, method: str, key: str, query: str, headers: tuple[str, ...] = (), body: Body = b"", slow: bool = False
    ) -> Request:
        """Return a request of the XML API."""
        path = self._xml_path + urllib.parse.quote(key, safe="/~")
        return Request(method, key, query, headers, body, slow=slow, path=path)

    def part(self, part: PartOf, body: Body) -> Request:
        """Return the request that sends a part."""
        query = query_of(partNumber=part.number, uploadId=part.upload)
        checksum = f"x-goog-hash:crc32c={checksums.value('CRC32C', body)}"
        return self.about_upload("PUT", part.key, query, (checksum,), body)

    def complete(self, key: str, upload: str, receipts: Sequence[str], exclusive: bool) -> Request:
        """Return a completion. The store takes no condition for it: `exclusive` is for the writer to check before."""
        return super().complete(key, upload, receipts, exclusive=False)

    def uploads(self, prefix: str, token: Any) -> Request | None:
        """Return a request for the uploads under way."""
        key, name = token or (None, None)
        query = query_of(prefix=prefix or None, key_marker=key, upload_id_marker=name)
        return Request("GET", "", f"{query}{query and '&'}uploads", path=self._xml_path[:-1])


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="~")


def _object_of(body: bytes) -> dict[str, Any] | None:
    """Return the object of JSON that a body is; None for anything else."""
    try:
        found = parse_json(body.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _reason(body: bytes) -> tuple[str, str]:
    """Return reason and message of a refusal: those of JSON, code and message of XML, or a line of text."""
    if body.lstrip().startswith(b"<"):
        return text_of(body, b"Code"), " ".join((text_of(body, b"Details") or text_of(body, b"Message")).split())
    error = (_object_of(body) or {}).get("error")
    if isinstance(error, dict):
        reasons = [one.get("reason", "") for one in error.get("errors") or () if isinstance(one, dict)]
        return str(reasons[0] if reasons else ""), " ".join(str(error.get("message", "")).split())
    return "", " ".join(body[:500].decode("utf-8", "replace").split())


def _check_xml(request: Request, head: ResponseHead, body: bytes) -> Exception | None:
    if request.method == "PUT":
        if head.status != 200 or not head.header(b"etag"):
            return mismatched(f"status {head.status} without an ETag: nothing shows that anything was stored")
    elif request.method == "POST":
        return bodies.check_posted(request, body)
    return None


class GCS(ObjectStore):
    """The bucket `bucket` on Google Cloud Storage, below `prefix`.

    Credentials that are not given are those that Google's libraries find: of `$GOOGLE_APPLICATION_CREDENTIALS`, of
    `gcloud auth application-default login`, of workload identity, or of the metadata server. Each process renews its
    tokens by itself, before they end. An emulator at `$STORAGE_EMULATOR_HOST` is asked without.

    Args:
        bucket: its name.
        prefix: the FS's root.
        mpu_chunksize: bytes that are uploaded in one part, at least 5 MiB; a smaller file is one request.
        endpoint: URL of the store; Google's if there is none.
        credentials: the file of a service account's key or of an external account, its content as a mapping, or
            credentials of google-auth.
        impersonate: the service account that these credentials act as.
        access_token: a token as it is, which is not renewed.
        anonymous: send no token.
        requester_pays: the project that pays for requests; True: that of `$GOOGLE_CLOUD_PROJECT`.
        storage_class, cache_control, metadata: of new objects.
        kms_key_name: the key of Cloud KMS that new objects are encrypted by.
        content_type: of new objects; `auto` guesses it by the name.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; 5 times unless given, and longer where the store throttles.
        verify: the file of trusted certificates, or False to trust any.
        proxies: URLs of proxies by scheme; those of the environment unless given.

    A file is read in the generation that was opened. Mode `x` is safe for files that are written by one request. For
    those that are uploaded in parts the store has no condition: an object is looked for just before the last request.
    Objects that are stored compressed (`Content-Encoding: gzip`) are read as they are stored.
    """

    scheme = "gs"
    dialect: GCSDialect
    _notes = StoreNotes(
        COSTS, {"list": "storage.objects.list", "read": "storage.objects.get", "write": "storage.objects.create"}, True
    )

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        *,
        mpu_chunksize: int = PART_SIZE,
        endpoint: str | None = None,
        credentials: Any = None,
        impersonate: str | None = None,
        access_token: str | None = None,
        anonymous: bool = False,
        requester_pays: bool | str = False,
        storage_class: str | None = None,
        kms_key_name: str | None = None,
        content_type: str | None = None,
        cache_control: str | None = None,
        metadata: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        if not bucket or "/" in bucket:
            raise ValueError(f"a URL of Google Cloud Storage names a bucket: gs://bucket/key, not gs://{bucket}/...")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 5 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        given = [name for name, value in (("credentials", credentials), ("access_token", access_token)) if value]
        if len(given) + bool(anonymous) > 1:
            raise ValueError(f"{given[0]}= goes without {'anonymous=' if anonymous else given[1] + '='}")
        _, emulated = url_of(endpoint)
        options = GCSOptions(
            endpoint=endpoint,
            credentials=(json.dumps(dict(credentials), sort_keys=True),)
            if isinstance(credentials, Mapping)
            else credentials,
            impersonate=impersonate,
            access_token=access_token,
            anonymous=anonymous or (emulated and not given),
            requester_pays=requester_pays,
            storage_class=storage_class,
            kms_key_name=kms_key_name,
            content_type=content_type,
            cache_control=cache_control,
            metadata=tuple(sorted((name.lower(), value) for name, value in (metadata or {}).items())),
            connection=ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies),
        )
        super().__init__(GCSDialect(bucket, options), prefix, mpu_chunksize)

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of gcsfs."""
        return of_gcsfs(options)

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.dialect.bucket

    @property
    def options(self) -> GCSOptions:
        """The options."""
        return self.dialect.options

    def _resolved_store(self) -> str:
        return f"gcs {self.dialect.store_url} {self.bucket}"

    def _principal(self) -> str:
        return access.principal(self.options)

    def _describe_store(self) -> dict[str, str]:
        found = {"bucket": self.bucket, **described(self.dialect.endpoint())}
        if self.options.endpoint is not None or url_of(None)[1]:
            found["endpoint"] += f" ({'option endpoint' if self.options.endpoint else f'${EMULATOR}'})"
        found["credentials"] = access.source(self.options)
        if self.options.impersonate:
            found["acting as"] = self.options.impersonate
        if self.options.project_billed:
            found["project that pays"] = self.options.project_billed
        return found
