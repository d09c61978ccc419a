"""The dialect of S3, and of the stores that speak it (docs.aws.amazon.com/AmazonS3/latest/API).

Pages of objects are parsed in bulk by a regular expression. A store writes the elements of an entry in an order of its
own: the pattern is made from the order in the first entry, and entries of another form are parsed one by one.
"""

from __future__ import annotations

import errno
import functools
import html
import re
import urllib.parse
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.ranges import Range
from ..objects import bodies, checksums
from ..objects.access import Access
from ..objects.bodies import (
    NAMESPACE,
    entries_of,
    fields_of,
    page_text,
    query_of,
    text_of,
    unescaped,
    unquoted,
    unreadable,
)
from ..objects.dialect import Dialect, PartOf
from ..objects.failures import (
    GONE,
    Expired,
    Mismatch,
    Moved,
    Throttled,
    Transient,
    mismatched,
    refusal_text,
    refused,
    retry_after,
)
from ..objects.http1 import ResponseHead
from ..objects.messages import (
    WHOLE,
    Body,
    ObjectPage,
    PageQuery,
    Reading,
    Request,
    Response,
    Text,
    is_number,
)
from ..objects.writing import part_size
from .endpoint import S3Access, is_aws, needs_no_boto3, resolve
from .options import MARK, S3Options, environment, parse

CHECKSUM_MODE = "x-amz-checksum-mode:ENABLED"
"""Asks for the checksum of an object, which AWS sends on request only."""
MARK_HEADER = f"x-amz-meta-{MARK}"
"""Metadata with a random value: it shows, after a response that was lost, that an object is this writer's."""
_TRANSIENT_CODES = frozenset({"RequestTimeout", "InternalError", "OperationAborted"})
_CONFLICT = "ConditionalRequestConflict"
"""The code for a conditional write while another request changes the object. A PUT is sent again, as AWS wants it; an
upload of parts would have to begin anew."""
_THROTTLED_CODES = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests"}
)
_MOVED_CODES = frozenset({"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "Redirect"})
_EXPIRED_CODES = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"})
_REFUSED_CODES = _EXPIRED_CODES | frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_STATUS_OF_CODE = {
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "SlowDown": 503,
    "PreconditionFailed": 412,
    GONE: 404,
}
"""For an error in the body of a response with status 200."""
_COPIED = "x-amz-copy-source:"
_checksum = re.compile("(x-amz-checksum-(?:crc[0-9a-z]+|sha[0-9]+)):(.*)").fullmatch
_is_of_md5s = re.compile(r"([0-9a-f]{32})(?:-(\d+))?").fullmatch
"""Matches an MD5, or one of the MD5s of parts, with their number: what ETags are, or look as."""
_is_error = re.compile(rb"(<\?xml[^>]*>\s*)?<Error[\s>]").match
_STARTS = {
    "continuation-token": re.compile(rb"<ContinuationToken>([^<]*)</ContinuationToken>"),
    "start-after": re.compile(rb"<StartAfter>([^<]*)</StartAfter>"),
}
"""Where a page of a listing begins: parameters, and the elements by which a store repeats them."""
_KEPT = ("cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires")
"""Header fields of an object that its copy keeps, beside its metadata."""
_FIELDS = ("Key", "LastModified", "ETag", "Size")
_prefixes = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_prefix = re.compile(r"<Prefix>([^<]*)</Prefix>")
_texts = re.compile(r">[^<]*<")
_element = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</\1>")
_MAX_ENTRY = 16 * 1024
"""Characters of the first entry: a key has 1,024 bytes."""


class S3Dialect(Dialect):
    """The bucket `bucket`, with the options of `S3`."""

    scheme = name = "s3"
    sent_with_objects = (b"etag",)
    keeps_content = True

    def __init__(self, bucket: str, options: S3Options) -> None:
        self.bucket = bucket
        self.options, self._headers, self.versions = parse(options)
        self.ordered = not bucket.endswith("--x-s3")  # directory buckets list in an order of their own
        self._bucket_headers, self._read_headers, self._write_headers, self._copy_headers, *_ = self._headers
        self._whole_headers = (*self._read_headers, CHECKSUM_MODE)
        self._algorithm = options.get("checksum_algorithm") or ""
        if self._algorithm:
            checksums.require(self._algorithm)

    # ---- the store

    def same_client(self) -> Hashable:
        """Return bucket, options of clients and environment."""
        return self.bucket, self.options, environment()

    def load(self) -> None:
        """Import boto3, where it has to say where the bucket is, and the checksums."""
        if not needs_no_boto3(self.bucket, self.options):
            from . import boto

            boto.load()
        checksums.load()

    def key_digest(self) -> str:
        """Return digits that stand for the key of the customer."""
        return self._headers.key_digest

    def access(self) -> S3Access:
        """Return this process's access to the bucket."""
        return S3Access(self.bucket, self.options, resolve(self.bucket, self.options))

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a refusal stands for."""
        status, code, message = head.status, text_of(body, b"Code"), text_of(body, b"Message")
        key, copied = text_of(body, b"Key"), any(header.startswith(_COPIED) for header in request.headers)
        if key and key.isalnum() and request.key.isalnum() and key != request.key and not copied:
            return mismatched(f"a refusal of the key {key!r}")
        known = _refusal(request, status, code or head.reason, message)
        failure = refused(head, code, message, known)
        error = failure.error if isinstance(failure, Transient) else failure
        assert isinstance(error, OSError)
        region = head.header(b"x-amz-bucket-region") or text_of(body, b"Region")
        if 300 <= status < 400 or code in _MOVED_CODES or (status == 400 and region):
            return Moved(error, region) if region else error
        if code in _EXPIRED_CODES or (not body and status in (400, 401, 403)):
            return Expired(error)
        if code in _THROTTLED_CODES:
            return Throttled(error, retry_after(head))
        if code in _TRANSIENT_CODES or (code == _CONFLICT and request.method == "PUT"):
            return Transient(error)
        return failure

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        """Return why a response is no success of its request."""
        if body and request.method != "GET" and _is_error(body.lstrip()[:512]):
            # Requests that take long have a status of 200 before it is known how they end.
            status = _STATUS_OF_CODE.get(text_of(body, b"Code"), 400)
            return self.failure(request, head._replace(status=status), body)
        if request.method == "PUT":
            return _check_put(request, head, body)
        if request.method == "DELETE" and (body or head.status not in (200, 204)):
            return mismatched(f"status {head.status} with {len(body)} bytes: nothing shows that anything was removed")
        if request.method == "POST":
            return bodies.check_posted(request, body)
        if request.method == "GET" and not request.key and "list-type=2" in request.query:
            return _check_page(request, body)
        return None

    def has_checksum(self, head: ResponseHead) -> bool:
        """Return whether a response has any."""
        return b"\r\nx-amz-checksum-" in head.lower

    def mismatch(self, head: ResponseHead, pieces: Iterable[bytes]) -> str | None:
        """Compare with the checksum of the object; a composite one, of the parts' checksums, says nothing of bytes."""
        if (head.header(b"x-amz-checksum-type") or "").upper() == "COMPOSITE":
            return None
        found = ((name, head.header(b"x-amz-checksum-" + name)) for name in checksums.READ)
        wrong = checksums.mismatch(((name, value) for name, value in found if value and "-" not in value), pieces)
        if wrong is not None and checksums.digest("MD5", pieces).hex() == self.version(head):
            return None  # a store's copy of an object of parts may have the composite one, and not say so
        return wrong

    # ---- reading

    def url(self, key: str) -> str:
        """Return the URL of an object, or of one version of it."""
        query = self.versions.get(key, "")
        return f"s3://{self.bucket}/{keys.to_url_path(key)}{query and '?' + query}"

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a GET."""
        headers, version = self._whole_headers if wanted.range is None else self._read_headers, wanted.version
        if version:
            headers = (*headers, f'if-match:"{version}"')
        query = self.versions.get(key, "") if self.versions else ""
        return Request("GET", key, query, headers, b"", *wanted)

    def head(self, key: str) -> Request:
        """Return a HEAD."""
        return Request("HEAD", key, self.versions.get(key, ""), self._read_headers)

    # ---- listing

    @property
    def lists_all(self) -> bool:  # type: ignore[override]
        """Whether the store is AWS's own: of others with its interface, some don't."""
        return is_aws(resolve(self.bucket, self.options).store)

    def signed_query(self, key: str) -> str:
        """Return the query of a signed URL before it is signed: the version, and who pays and owns, as fields."""
        named = (header.partition(":") for header in self._bucket_headers)
        fields = (f"{name}={urllib.parse.quote(value, safe='~')}" for name, _, value in named)
        return "&".join(filter(None, (self.versions.get(key, ""), *fields)))

    def page_request(self, query: PageQuery) -> Request:
        """Return a ListObjectsV2."""
        text = query_of(
            list_type=2,
            encoding_type="url",
            prefix=query.prefix,
            delimiter="/" if query.one_level else None,
            continuation_token=query.token,
            start_after=query.after,
            max_keys=query.most,
        )
        return Request("GET", "", text, self._bucket_headers)

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return the page in a response."""
        text = page_text(response)
        found = parse_page(text)
        listed = _prefix.search(text.partition("<Contents>")[0].partition("<CommonPrefixes>")[0])
        # Ceph encodes keys, but not the prefix, and drops what XML can't carry.
        same = listed is None or prefix in (found.decode(listed[1]), unescaped(listed[1]))
        if not same and prefix.isprintable():
            raise unreadable(f"a page of another prefix where {prefix!r} was asked for")
        return found

    # ---- writing

    def check_writable(self, key: str, below: bool = False) -> None:
        """Raise an error for an object that is read in one version: to write it would not change what is read."""
        if not self.versions:
            return
        found = next((pinned for pinned in self.versions if pinned == key or (below and pinned.startswith(key))), None)
        if found is not None:
            raise errors.error(errno.EROFS, "write", self.url(found), "a version of an object can't be changed")

    @property
    def checks_writes(self) -> bool:  # type: ignore[override]
        """Whether written bodies carry a checksum; none if boto3 is configured to send none."""
        return self.checksum_algorithm is not None

    @property
    def checksum_algorithm(self) -> str | None:
        """The algorithm of the checksums of written bodies."""
        if not self._algorithm:
            self._algorithm = checksums.DEFAULT if resolve(self.bucket, self.options).checksums else "none"
        return self._algorithm if self._algorithm != "none" else None

    def _checksum(self, body: Body) -> tuple[str, ...]:
        algorithm = self.checksum_algorithm
        if algorithm is None:
            return ()
        return (f"x-amz-checksum-{algorithm.lower()}:{checksums.value(algorithm, body)}",)

    def put(self, key: str, body: Body, exclusive: bool = False, mark: str = "", version: str = "") -> Request:
        """Return a PutObject; `version` is what If-Match has."""
        headers = (*self._write_headers, *self._headers.of_type(key))
        if exclusive:
            headers = (*headers, "if-none-match:*")
        if version:
            headers = (*headers, f"if-match:{version}")
        if mark:
            headers = (*headers, f"{MARK_HEADER}:{mark}")
        return Request("PUT", key, headers=(*headers, *self._checksum(body)), body=body)

    def mark_of(self, response: Response) -> str | None:
        """Return the mark in an object's metadata."""
        return response.head.header(MARK_HEADER.encode())

    def remove(self, key: str) -> Request:
        """Return a DeleteObject."""
        return Request("DELETE", key, headers=self._bucket_headers)

    def remove_many(self, keys: Sequence[str], access: Access) -> tuple[Request | None, Sequence[str]]:
        """Return a DeleteObjects; XML can't carry every character."""
        plain = [key for key in keys if key.isprintable()]
        odd = [key for key in keys if not key.isprintable()]
        if not plain:
            return None, odd
        objects = "".join(f"<Object><Key>{html.escape(key, quote=False)}</Key></Object>" for key in plain)
        body = f'<Delete xmlns="{NAMESPACE}">{objects}<Quiet>true</Quiet></Delete>'.encode()
        checksum = f"content-md5:{checksums.value('MD5', body)}"
        return Request("POST", "", "delete=", (*self._bucket_headers, checksum), body), odd

    def not_removed(self, keys: Sequence[str], response: Response) -> Sequence[str]:
        """Return the keys of the errors in a response."""
        refused_ones = entries_of(response.body.decode("utf-8", "replace"), "Error")
        found = {unescaped(text_of(entry.encode(), b"Key")) for entry in refused_ones}
        return [key for key in keys if key in found]

    def can_copy_from(self, source: Dialect) -> bool:
        """Return whether a bucket is of the same store, and read by the same user with the same key."""
        if not isinstance(source, S3Dialect) or source.options != self.options:
            return False
        same_key = source.key_digest() == self.key_digest()
        here, there = (resolve(one.bucket, one.options) for one in (self, source))
        return same_key and here.store == there.store and here.region == there.region

    def copy(self, source: Dialect, src: str, dst: str, like: Response | None = None) -> Request | None:
        """Return a CopyObject."""
        assert isinstance(source, S3Dialect)
        return Request("PUT", dst, headers=_merged(self._copy_headers, source.as_source(src)), slow=True)

    def as_source(self, key: str) -> tuple[str, ...]:
        """Return the header fields that name an object as the source of a copy, who pays for it, and whose it is."""
        query = self.versions.get(key, "")
        named = f"{_COPIED}{urllib.parse.quote(f'{self.bucket}/{key}', safe='/~')}{query and '?' + query}"
        return (named, *(field.replace("x-amz-expected-", "x-amz-source-expected-") for field in self._bucket_headers))

    # ---- uploads

    def begin(self, key: str, mark: str, like: Response | None = None, tags: str = "") -> Request:
        """Return a CreateMultipartUpload."""
        algorithm = self.checksum_algorithm
        if like is None:
            headers = (*self._write_headers, *self._headers.of_type(key))
        else:
            kept = ((name, like.head.header(name.encode())) for name in _KEPT)
            headers = (
                *(header for header in self._copy_headers if not header.startswith("x-amz-copy-source-")),
                *(f"{name}:{value}" for name, value in kept if value is not None),
                *(f"{name}:{value}" for name, value in like.head.named("x-amz-meta-") if name != MARK_HEADER),
                *((f"x-amz-tagging:{tags}",) if tags else ()),
            )
        headers = (*headers, f"{MARK_HEADER}:{mark}")
        if algorithm is not None:
            headers = (*headers, f"x-amz-checksum-algorithm:{algorithm}")
        if algorithm == "CRC64NVME":  # S3 has it for whole objects only, not as a checksum of checksums
            headers = (*headers, "x-amz-checksum-type:FULL_OBJECT")
        return Request("POST", key, "uploads=", headers)

    def about_upload(
        self, method: str, key: str, query: str, headers: tuple[str, ...] = (), body: Body = b"", slow: bool = False
    ) -> Request:
        """Return a request about an upload; the customer's key goes with its completion."""
        headers = (*(self._read_headers if method == "POST" else self._bucket_headers), *headers)
        return Request(method, key, query, headers, body, slow=slow)

    def part(self, part: PartOf, body: Body) -> Request:
        """Return an UploadPart."""
        return Request("PUT", part.key, _query_of(part), (*self._read_headers, *self._checksum(body)), body)

    def copied_part(self, source: Dialect, src: str, version: str | None, part: Range, into: PartOf) -> Request:
        """Return an UploadPartCopy."""
        assert isinstance(source, S3Dialect)
        size, offset = part
        headers = (
            *_merged(self._read_headers, source.as_source(src)),
            *(header for header in self._copy_headers if header.startswith("x-amz-copy-source-")),
            f"x-amz-copy-source-range:bytes={offset}-{offset + size - 1}",
            *((f'x-amz-copy-source-if-match:"{version}"',) if version else ()),
        )
        return Request("PUT", into.key, _query_of(into), headers, slow=True)

    def receipt(self, number: int, request: Request, response: Response) -> str:
        """Return the element of a part in the completion."""
        sent = next(filter(None, map(_checksum, request.headers)), None)
        algorithm, checksum = self.checksum_algorithm, sent[2] if sent is not None else ""
        etag = response.head.header(b"etag") or unescaped(text_of(response.body, b"ETag"))
        if algorithm is not None and not checksum:
            checksum = text_of(response.body, f"Checksum{algorithm}".encode())
        return bodies.part_element(number, etag, (algorithm, checksum) if algorithm and checksum else None)

    def uploads(self, prefix: str, token: Any) -> Request | None:
        """Return a ListMultipartUploads."""
        key, name = token or (None, None)
        query = query_of(encoding_type="url", prefix=prefix, key_marker=key, upload_id_marker=name)
        return Request("GET", "", f"{query}&uploads=", self._bucket_headers)

    def tags(self, key: str) -> Request:
        """Return a GetObjectTagging."""
        query = self.versions.get(key, "")
        return Request("GET", key, f"tagging={query and '&' + query}", self._bucket_headers, about=True)

    def tags_of(self, response: Response) -> str:
        """Return an object's tags."""
        pairs = [fields_of(entry) for entry in entries_of(page_text(response), "Tag")]
        return urllib.parse.urlencode([(pair["Key"], pair.get("Value", "")) for pair in pairs])

    # ---- what depends on options

    def has_content(self, version: str, blob: Blob, part_size: int) -> bool | None:
        """Return whether an ETag is that of a content; those of encrypted objects don't say."""
        return None if self.key_digest() else _etag_is_of(version, blob, part_size)

    def has_digest(self, head: ResponseHead) -> bool:
        """Return whether an ETag may be an MD5: those of objects that are encrypted with keys of KMS only look so."""
        return head.header(b"x-amz-server-side-encryption") in (None, "AES256")

    def same_content(self, version: str, other: str) -> bool | None:
        """Return whether two ETags are of equal contents: MD5s say so, others may differ for equal contents."""
        one, two = _is_of_md5s(version), _is_of_md5s(other)
        if one is None or two is None:
            return None
        return version == other or (None if one[2] or two[2] else False)


def _merged(headers: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Return header fields, each once: who pays may be said for both buckets of a copy."""
    return tuple(dict.fromkeys((*headers, *more)))


def _query_of(part: PartOf) -> str:
    return query_of(partNumber=part.number, uploadId=part.upload)


def _refusal(request: Request, status: int, code: str, message: str) -> OSError | None:
    """Return the error for a refusal whose code says more than its status; None for others."""
    text = refusal_text(status, code, message)
    if code in ("PreconditionFailed", _CONFLICT):
        return errors.StaleFileError(errno.ESTALE, "the object is not the version that was opened")
    if code == "NoSuchBucket":
        return FileNotFoundError(errno.ENOENT, "the bucket does not exist")
    if code == GONE:
        return OSError(errno.EIO, "the multipart upload is gone: another client aborted it")
    if status == 403 and "virtual host" in message.lower():
        return PermissionError(errno.EACCES, f"{text}: the option path_style=False has requests name it so")
    if code in _REFUSED_CODES:
        return PermissionError(errno.EACCES, text)
    if code == "RequestTimeout":
        return TimeoutError(errno.ETIMEDOUT, text)
    if 300 <= status < 400:
        return OSError(errno.EREMCHG, f"{text}: the bucket is in another region or behind another endpoint")
    if any(header.startswith(_COPIED) for header in request.headers):
        if code == "NotImplemented":  # as Ceph's copy of encrypted objects is
            return OSError(errno.ENOTSUP, text)
        if code == "EntityTooLarge" or (code == "InvalidRequest" and "larger than" in message):
            return OSError(errno.EFBIG, text)
    return None


def _check_put(request: Request, head: ResponseHead, body: bytes) -> Exception | None:
    """Check that an object, a part or a copy has been stored: a proxy, or another server, may answer as well."""
    if request.key and (head.status != 200 or not (head.header(b"etag") or b"<ETag>" in body)):
        return mismatched(f"status {head.status} without an ETag: nothing shows that anything was stored")
    for header in request.headers:
        if header.startswith("x-amz-checksum-") and (sent := _checksum(header)) is not None:
            stored = head.header(sent[1].encode())
            if stored is not None and stored != sent[2]:
                return mismatched(f"the store has a body with the {sent[1]} {stored} for {sent[2]}")
    return None


def _check_page(request: Request, body: bytes) -> Mismatch | None:
    """Check that a page of a listing begins where it was asked to, as far as it says so."""
    asked = dict(urllib.parse.parse_qsl(request.query))
    for name, element in _STARTS.items():
        found = element.search(body)
        if found is not None and found[1] and asked.get(name, "").isprintable():  # else XML may not have it
            # Some stores encode what they repeat as they encode keys.
            text = unescaped(found[1].decode("utf-8", "replace"))
            if asked.get(name) not in (text, urllib.parse.unquote(text), urllib.parse.unquote_plus(text)):
                return mismatched(f"a page that begins at {name}={text} where {asked.get(name)} was asked for")
    return None


def _etag_is_of(etag: str, blob: Blob, chunk: int) -> bool | None:
    """Return whether an ETag is that of an object with the content of `blob`; None if it does not say.

    That of a single PUT is the MD5 of the object, that of an upload in parts the MD5 of the parts' MD5s and their
    number. The sizes of the parts are not in it: those of this package, and of other common clients, are tried.
    """
    match = _is_of_md5s(etag)
    if match is None:
        return None
    if match[2] is None:
        return checksums.digest("MD5", checksums.pieces_of(blob, 0, blob.size)).hex() == match[1]
    count = int(match[2])
    sizes = (chunk, 5 << 20, 8 << 20, 16 << 20, 32 << 20, 50 << 20, 64 << 20)
    planned = (min(part_size(blob.size, least, S3Dialect.max_parts), blob.size or 1) for least in sizes)
    for size in dict.fromkeys(planned):  # of one part they are the same
        starts = range(0, blob.size or 1, size)
        if len(starts) == count:
            parts = (checksums.pieces_of(blob, start, min(size, blob.size - start)) for start in starts)
            if checksums.digest("MD5", (checksums.digest("MD5", part) for part in parts)).hex() == match[1]:
                return True
    return None


# ---- pages of objects


def parse_page(text: str) -> ObjectPage:
    """Parse a page; `CorruptFileError` for what is none, or is cut short."""
    if "<ListBucketResult" not in text or not text.rstrip().endswith("</ListBucketResult>"):
        raise unreadable(f"not a page of a listing: {text[:80]!r}")
    decode = unquoted if "<EncodingType>url</EncodingType>" in text else unescaped
    token = None
    if "<IsTruncated>true</IsTruncated>" in text:
        found = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", text)
        if found is None:
            raise unreadable("a page of a listing that goes on, without a token")
        token = unescaped(found[1])
    return ObjectPage(_objects(text), [decode(found) for found in _prefixes.findall(text)], token, decode)


def _objects(text: str) -> list[Text]:
    count = text.count("<Contents>")
    if not count:
        return []
    first = next(entries_of(text, "Contents"))
    order = tuple(name for name, _ in _element.findall(first)) if len(first) < _MAX_ENTRY else ()
    if sorted(order) == sorted(_FIELDS):
        found: list[Text] = _pattern(_texts.sub("><", first)).findall(text)
        if len(found) == count:
            places = [order.index(name) for name in _FIELDS]
            if places != [0, 1, 2, 3]:
                found = [(e[places[0]], e[places[1]], e[places[2]], e[places[3]]) for e in found]
            return found
    return [_object(entry) for entry in entries_of(text, "Contents")]


@functools.lru_cache(maxsize=16)
def _pattern(form: str) -> re.Pattern[str]:
    """Return the pattern of entries of this form: an entry without its texts."""
    elements = re.escape(form)
    for name in _FIELDS:
        content = "[0-9]{1,19}" if name == "Size" else "[^<]*"
        elements = elements.replace(f"<{name}></{name}>", f"<{name}>({content})</{name}>")
    elements = elements.replace("></", ">[^<]*</").replace("><", r">\s*<")
    return re.compile(rf"<Contents>\s*{elements}\s*</Contents>")


def _object(entry: str) -> Text:
    found = dict(_element.findall(entry))
    if "Key" not in found or not is_number(found.get("Size", "")):
        raise unreadable(f"an entry of a listing without key or size: {entry[:80]!r}")
    return found["Key"], found.get("LastModified", ""), found.get("ETag", ""), found["Size"]
