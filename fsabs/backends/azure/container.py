"""A container on Azure Blob Storage (learn.microsoft.com/rest/api/storageservices): its FS and its dialect, and the
directories of accounts that have a hierarchical namespace, which the service of Data Lake Storage renames and removes.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import html
import re
import secrets
import urllib.parse
from collections.abc import Hashable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from ...core import errors, keys
from ...core.errors import StaleFileError
from ...core.fs import FS, FileStat, StoreNotes
from ..objects import ObjectStore, bodies, checksums
from ..objects.access import Access, ConnectionOptions, Endpoint, described, endpoint_at
from ..objects.bodies import query_of, text_of, unescaped, unreadable
from ..objects.client import shared
from ..objects.dialect import Dialect, PartOf, content_type_of
from ..objects.failures import GONE, Expired, code_of, mismatched, refusal_text, refused, with_status
from ..objects.messages import (
    WHOLE,
    Body,
    Found,
    ObjectPage,
    PageQuery,
    Reading,
    Request,
    Response,
    ResponseHead,
    Text,
    is_number,
)
from ..objects.store import PART_SIZE
from ..objects.writing import done_once
from .access import Account, AzureOptions, access_of, account_of, azure_identity, environment, identity_of, of_adlfs

MARK = "fsabs_write"
"""The name of the metadata by which a writer knows its own blob."""
VERSION = "x-ms-version:2021-12-02"
_LISTING_FROM = "x-ms-version:2026-02-06"
"""The version from which listings begin behind a name."""
_LIST = {"restype": "container", "comp": "list", "include": "metadata"}
_TO_RENEW = frozenset({"InvalidAuthenticationInfo", "ExpiredAuthenticationToken", "NoAuthenticationInformation"})
_NOT_PUBLIC = frozenset({"PublicAccessNotPermitted", "ResourceNotFound", "NoAuthenticationInformation"})
"""The codes of refusals of requests without credentials."""
_EXISTS = frozenset({"BlobAlreadyExists", "PathAlreadyExists", "UnauthorizedBlobOverwrite"})
_NO_CONTAINER = frozenset({"ContainerNotFound", "FilesystemNotFound", "ContainerBeingDeleted"})
_ERRNO_OF_CODE = dict.fromkeys(("DirectoryIsNotEmpty", "DirectoryNotEmpty"), errno.ENOTEMPTY) | dict.fromkeys(
    ("LeaseIdMissing", "LeaseIdMismatchWithBlobOperation", "BlobArchived", "BlobBeingRehydrated"), errno.EBUSY
)
_plain = re.compile(
    "<Blob><Name>([^<]*)</Name>(?:<(?:VersionId|IsCurrentVersion)>[^<]*</[^>]*>)*"
    "<Properties>(?:<Creation-Time>[^<]*</Creation-Time>)?<Last-Modified>([^<]*)</Last-Modified><Etag>([^<]*)</Etag>"
    r"(?:<ResourceType>file</ResourceType>)?<Content-Length>(\d+)</Content-Length>"
).findall
"""Finds the entries of a page that has nothing else, which is quicker than to take each apart."""
_has_astral = re.compile("[\U00010000-\U0010ffff]").search
COPY_POLL = 0.2
"""Seconds between two requests for the state of a copy that the store makes."""
MIN_PART_SIZE = 1024**2
_COSTS = (
    "opening: no request",
    "listing: a request for every 5000 names; of accounts with directories, one for each directory",
    "an epoch: a request for each file, more for large ones",
)
_NO_PARENT = "RenameDestinationParentPathNotFound"
_CREDENTIALS = ("account_key", "sas_token", "credential", "client_secret", "anonymous")


@functools.lru_cache(maxsize=4096)
def _seconds(text: str) -> float | None:
    return parsedate_to_datetime(text).timestamp() if text else None


class AzureDialect(Dialect):
    """The container `container` of an account, with the options of `Azure`.

    Args:
        container: its name.
        account: that it is in.
        options: of the FS.
        root: the URL of the container, as the FS shows it.
        public: whether requests go without credentials until one is refused.
    """

    scheme = "az"
    name = "azure"
    sent_with_objects = (b"etag", b"x-ms-request-id")
    keeps_content = True
    has_directories = True
    max_parts = 50_000
    seconds = staticmethod(_seconds)
    max_removed = 256

    def __init__(self, container: str, account: Account, options: AzureOptions, root: str, public: bool) -> None:
        self.bucket = container
        self.account = account
        self.options = options
        self._root = root
        self.public = public
        """Whether requests go without credentials until one is refused."""
        metadata = (f"x-ms-meta-{name}:{value}" for name, value in options.metadata)
        self._copied = (VERSION, *((f"x-ms-access-tier:{options.access_tier}",) if options.access_tier else ()))
        self._written = (*self._copied, *metadata)

    # ---- the store

    def same_client(self) -> Hashable:
        """Return container, account, options and environment."""
        return self.bucket, self.account, self.options, self.public, environment()

    def endpoint(self) -> Endpoint:
        """Return the endpoint of the container."""
        return endpoint_at(self.account.url, f"/{urllib.parse.quote(self.bucket, safe='$')}/", self.options.connection)

    def load(self) -> None:
        """Import the checksums, and what fetches tokens."""
        checksums.load()
        if not (self.options.anonymous or self.account.key or self.account.sas or self.public):
            azure_identity()

    def access(self) -> Access:
        """Return this process's access to the container."""
        return access_of(self.endpoint(), self.account, self.options, self.public)

    def of_directories(self) -> AzureDialect:
        """Return the dialect of the service that knows directories."""
        there = self.account._replace(url=self.account.url.replace(".blob.", ".dfs.", 1))
        return AzureDialect(self.bucket, there, self.options, self._root, self.public)

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a refusal stands for."""
        status, code = head.status, head.header(b"x-ms-error-code") or text_of(body, b"Code")
        message = html.unescape(text_of(body, b"Message")).partition("\n")[0].strip(" .")
        text = refusal_text(status, code or head.reason, message)
        error: OSError | None = None
        if code == "InvalidBlockList":  # its blocks are another list's, perhaps that of the same request before
            code, error = GONE, OSError(errno.EIO, "blocks of the upload are gone: another list was made")
        elif code in _NO_CONTAINER:
            error = FileNotFoundError(errno.ENOENT, f"the container {self.bucket!r} does not exist")
        elif code in _EXISTS:
            error = errors.StaleFileError(errno.ESTALE, "there is a blob already")
        elif code in _ERRNO_OF_CODE:
            error = OSError(_ERRNO_OF_CODE[code], text)
        elif self.public and code in _NOT_PUBLIC:
            error = PermissionError(errno.EACCES, f"{text}; it is not public: give credentials")
            return Expired(with_status(error, status, code))
        elif status in (401, 403) or code in _NOT_PUBLIC - {"ResourceNotFound"}:
            error = PermissionError(errno.EACCES, f"{text}; {self._advice(code)}")
            if code in _TO_RENEW:
                return Expired(with_status(error, status, code))
        return refused(head, code, message, error)

    def _advice(self, code: str) -> str:
        if self.options.anonymous:
            return "the container is not public: give credentials"
        if code == "AuthorizationPermissionMismatch":
            return "ask for the role Storage Blob Data Reader, or Contributor to write"
        if code == "AuthenticationFailed":
            return "check account_name, the key or the end of the shared access signature, and this machine's clock"
        return "check the permissions of these credentials, and the account's network rules"

    def check(self, request: Request, head: ResponseHead, body: bytes) -> Exception | None:
        """Return why a response is no success of its request."""
        if request.method == "PUT" and request.key:
            wanted = 202 if any(header.startswith("x-ms-copy-source:") for header in request.headers) else 201
            block = request.query.startswith("blockid=")
            if head.status != wanted or not (head.header(b"etag") or block or head.header(b"x-ms-request-id")):
                return mismatched(f"status {head.status}: nothing shows that anything was stored")
            for header in request.headers:
                if header.startswith("x-ms-content-crc64:") and not request.query.startswith("comp=blocklist"):
                    stored = head.header(b"x-ms-content-crc64")
                    if stored is not None and stored != header.partition(":")[2]:
                        return mismatched(f"the store has a body with the CRC64 {stored}")
        elif request.method == "DELETE" and head.header(b"x-ms-request-id") is None:
            return mismatched(f"status {head.status}: nothing shows that anything was removed")
        elif request.method == "GET" and "comp=list" in request.query:
            found = text_of(body, b"Marker")
            asked = dict(urllib.parse.parse_qsl(request.query)).get("marker", "")
            if found and unescaped(found) != asked:
                return mismatched(f"a page that begins at {found!r} where {asked!r} was asked for")
        return None

    # ---- reading

    def url(self, key: str) -> str:
        """Return the URL of a blob, in the form in which the container was opened."""
        return f"{self._root}/{keys.to_url_path(key)}"

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a Get Blob."""
        headers = (VERSION, f'if-match:"{wanted.version}"') if wanted.version else (VERSION,)
        return Request("GET", key, "", headers, b"", *wanted)

    def head(self, key: str) -> Request:
        """Return a Get Blob Properties."""
        return Request("HEAD", key, "", (VERSION,))

    def is_directory(self, head: ResponseHead) -> bool:
        """Return whether a blob is a directory, or the mark of one."""
        if head.header(b"x-ms-resource-type") == "directory":
            return True
        return b"\r\nx-ms-meta-hdi_isfolder:" in head.lower and head.header(b"x-ms-meta-hdi_isfolder") == "true"

    def found(self, response: Response, total: int | None = None) -> Found:
        """Return what the head of a blob says."""
        return super().found(response, total)._replace(directory=self.is_directory(response.head))

    # ---- listing

    def page_request(self, query: PageQuery) -> Request:
        """Return a List Blobs."""
        text = query_of(
            **_LIST,
            prefix=query.prefix or None,
            delimiter="/" if query.one_level else None,
            marker=query.token,
            startFrom=query.after or None,
            maxresults=query.most,
        )
        return Request("GET", "", text, (VERSION if query.after is None else _LISTING_FROM,))

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return the page in a response."""
        text = bodies.page_text(response)
        if "<EnumerationResults" not in text or not text.rstrip().endswith("</EnumerationResults>"):
            raise unreadable(f"not a page of a listing: {text[:80]!r}")
        head, _, rest = text.partition("<Blobs>")
        if unescaped(text_of(head.encode(), b"Prefix")) != prefix:
            raise unreadable(f"a page of another prefix where {prefix!r} was asked for")
        listed, folders = _plain(rest), list[str]()
        if len(listed) != rest.count("<Blob>") or "hdi_isfolder>" in rest:
            listed = []
            for entry in rest.split("<Blob>")[1:]:
                if _is_folder(entry):
                    folders.append(unescaped(_name(entry)))
                else:
                    listed.append(_blob(entry))
        if not text.isascii() and _has_astral(text):  # it sorts by UTF-16, and we by code points
            listed.sort(key=lambda entry: unescaped(entry[0]))
        within = rest.split("<BlobPrefix>")[1:] if "</BlobPrefix" in rest else ()
        prefixes = [unescaped(_name(entry)) for entry in within]
        token = unescaped(text_of(rest[-16384:].encode(), b"NextMarker")) or None
        return ObjectPage(listed, prefixes, token, unescaped, folders)

    # ---- writing

    @property
    def checks_writes(self) -> bool:  # type: ignore[override]
        """Whether written bodies carry a CRC64: with the extra `crc64`."""
        return checksums.available("CRC64NVME")

    def _checksum(self, body: Body) -> tuple[str, ...]:
        if not self.checks_writes:
            return ()
        found = checksums.digest("CRC64NVME", checksums.pieces(body))[::-1]
        return (f"x-ms-content-crc64:{base64.b64encode(found).decode()}",)

    def _like(self, key: str, mark: str) -> tuple[str, ...]:
        """Return the header fields of a request that makes a blob."""
        kind = content_type_of(key, self.options.content_type)
        typed = (f"x-ms-blob-content-type:{kind}",) if kind is not None else ()
        return (*self._written, *typed, *((f"x-ms-meta-{MARK}:{mark}",) if mark else ()))

    def put(self, key: str, body: Body, exclusive: bool = False, mark: str = "", version: str = "") -> Request:
        """Return a Put Blob."""
        condition = ("if-none-match:*",) if exclusive else (f'if-match:"{version}"',) if version else ()
        headers = (*self._like(key, mark), "x-ms-blob-type:BlockBlob", *condition, *self._checksum(body))
        return Request("PUT", key, "", headers, body)

    def mark_of(self, response: Response) -> str | None:
        """Return the mark in a blob's metadata."""
        return response.head.header(f"x-ms-meta-{MARK}".encode())

    def remove(self, key: str) -> Request:
        """Return a Delete Blob, of its snapshots, too."""
        return Request("DELETE", key, "", (VERSION, "x-ms-delete-snapshots:include"))

    def remove_many(self, keys: Sequence[str], access: Access) -> tuple[Request | None, Sequence[str]]:
        """Return a batch of deletions, each of which is authorised."""
        if len(keys) < 2:
            return None, keys
        prefix, fields = access.endpoint.path_prefix, ("x-ms-delete-snapshots:include",)
        query = f"?{access.query}" if access.query else ""

        def call(key: str) -> str:
            path = prefix + urllib.parse.quote(key, safe="/~")
            lines = access.authorise("DELETE", path, access.query, fields, b"")
            return f"DELETE {path}{query} HTTP/1.1\r\n{lines}Content-Length: 0"

        field, body = bodies.batch(map(call, keys), "{}")
        return Request("POST", "", "comp=batch&restype=container", (VERSION, field), body), ()

    def can_copy_from(self, source: Dialect) -> bool:
        """Return whether a container is of the same account, and read by the same user."""
        return isinstance(source, AzureDialect) and (source.account, source.options) == (self.account, self.options)

    def copy(self, source: Dialect, src: str, dst: str, like: Response | None = None) -> Request | None:
        """Return a Copy Blob."""
        assert isinstance(source, AzureDialect)
        endpoint, sas = source.endpoint(), source.account.sas
        where = f"{endpoint.url}{endpoint.path_prefix}{urllib.parse.quote(src, safe='/~')}{'?' + sas if sas else ''}"
        return Request("PUT", dst, "", (*self._copied, f"x-ms-copy-source:{where}"), slow=True)

    def copied(self, request: Request, response: Response) -> tuple[Request, float] | None:
        """Return the request for the state of a copy that the store makes."""
        status = response.head.header(b"x-ms-copy-status")
        if status == "success":
            return None
        if status != "pending":
            reason = response.head.header(b"x-ms-copy-status-description") or f"its state is {status}"
            raise OSError(errno.EIO, f"the store has not copied the blob: {reason}")
        return self.head(request.key), COPY_POLL

    # ---- uploads: blocks, whose list makes the blob

    def begin(self, key: str, mark: str, like: Response | None = None, tags: str = "") -> Request | None:
        """Return None: blocks need no beginning. Their ids begin with the mark."""
        return None

    def part(self, part: PartOf, body: Body) -> Request:
        """Return a Put Block."""
        name = f"{part.upload}{part.number:06d}"
        query = query_of(blockid=base64.b64encode(name.encode()).decode(), comp="block")
        return Request("PUT", part.key, query, (VERSION, *self._checksum(body)), body)

    def receipt(self, number: int, request: Request, response: Response) -> str:
        """Return the id of a block."""
        return urllib.parse.unquote(request.query.partition("=")[2].partition("&")[0])

    def complete(self, key: str, upload: str, receipts: Sequence[str], exclusive: bool) -> Request:
        """Return a Put Block List."""
        blocks = "".join(f"<Uncommitted>{receipt}</Uncommitted>" for receipt in receipts)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        headers = (*self._like(key, upload), *(("if-none-match:*",) if exclusive else ()))
        return Request("PUT", key, "comp=blocklist", headers, body, slow=True)

    def abort(self, key: str, upload: str) -> Request | None:
        """Return None: blocks that no list has are removed by the store after a week, and are invisible until then."""
        return None

    # ---- directories, of accounts that have them

    def namespace(self) -> Request:
        """Return the request that finds out whether the account has directories."""
        return Request("GET", "", "comp=properties&restype=account", (VERSION,))

    def make_directory(self, key: str, mark: str = "") -> Request:
        """Return the creation of a directory; `mark` as for `put`."""
        marked = (f"x-ms-properties:{MARK}={base64.b64encode(mark.encode()).decode()}",) if mark else ()
        return Request("PUT", key, "resource=directory", (VERSION, "if-none-match:*", *marked))

    def rename(self, src: str, dst: str) -> Request:
        """Return the rename of a file or directory, which takes one moment."""
        prefix = self.endpoint().path_prefix
        where = f"{prefix}{urllib.parse.quote(src, safe='/~')}{'?' + self.account.sas if self.account.sas else ''}"
        return Request("PUT", dst, "mode=legacy", (VERSION, f"x-ms-rename-source:{where}"))

    def remove_directory(self, key: str, continuation: str) -> Request:
        """Return the removal of a directory and all that is in it, or what goes on with it."""
        query = query_of(recursive="true", continuation=continuation or None)
        return Request("DELETE", key, query, (VERSION,))


def _name(entry: str) -> str:
    """Return the name in an entry, escaped as XML."""
    start = entry.find("<Name")
    begin = entry.find(">", start) + 1
    end = entry.find("</Name>", begin)
    if start < 0 or end < 0:
        raise unreadable(f"an entry of a listing without a name: {entry[:80]!r}")
    name = entry[begin:end]
    if entry.startswith(' Encoded="true"', start + 5):  # it has what XML can't carry
        name = html.escape(urllib.parse.unquote(unescaped(name), errors="surrogateescape"), quote=False)
    return name


def _field(entry: str, name: str) -> str:
    start = entry.find(f"<{name}>")
    return entry[start + len(name) + 2 : entry.find("<", start + 1)] if start >= 0 else ""


def _blob(entry: str) -> Text:
    name, size = _name(entry), _field(entry, "Content-Length")
    if not is_number(size):
        raise unreadable(f"an entry of a listing without a size: {entry[:80]!r}")
    return name, _field(entry, "Last-Modified"), _field(entry, "Etag"), size


def _is_folder(entry: str) -> bool:
    return "<ResourceType>directory<" in entry or ("hdi_isfolder>" in entry and _field(entry, "hdi_isfolder") == "true")


class Azure(ObjectStore):
    """The container `container` of an account on Azure, below `prefix`.

    The account is that of the URL (`abfss://container@account.dfs.core.windows.net/path`), of the options, of
    `$AZURE_STORAGE_CONNECTION_STRING`, or of `$AZURE_STORAGE_ACCOUNT_NAME`. Credentials that are not given are those of
    `$AZURE_STORAGE_ACCOUNT_KEY` or `$AZURE_STORAGE_SAS_TOKEN`, else what azure-identity finds: those of the
    environment, a workload's or managed identity, or the login of the Azure CLI. Each process renews its tokens by
    itself.

    Args:
        container: its name; `container@host` names the account, too.
        prefix: the FS's root.
        mpu_chunksize: bytes that are uploaded in one block, at least 1 MiB; a smaller file is one request.
        account_name: of the account.
        endpoint: URL of its blob service, for an emulator or another cloud.
        connection_string: as the portal shows it.
        account_key: the account's key.
        sas_token: a shared access signature, of the account or the container.
        credential: one of azure-identity. To be used in forked children it must not hold connections.
        tenant_id, client_id, client_secret: an application's; `client_id` alone is a managed identity's.
        anonymous: send no credentials.
        access_tier, metadata: of new blobs.
        content_type: of new blobs; `auto` guesses it by the name.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; 5 times unless given, and longer where the store throttles.
        verify: the file of trusted certificates, or False to trust any.
        proxies: URLs of proxies by scheme; those of the environment unless given.

    An account with a hierarchical namespace has directories: they stay when their last file is removed, and are renamed
    and removed in one step.
    """

    scheme = "az"
    dialect: AzureDialect
    _splits_authority = True
    _plain_paths = False
    _notes = StoreNotes(
        _COSTS,
        {
            "list": "Storage Blob Data Reader",
            "read": "Storage Blob Data Reader",
            "write": "Storage Blob Data Contributor",
        },
        True,
    )

    def __init__(
        self,
        container: str,
        prefix: str | None = None,
        *,
        mpu_chunksize: int = PART_SIZE,
        account_name: str | None = None,
        endpoint: str | None = None,
        connection_string: str | None = None,
        account_key: str | None = None,
        sas_token: str | None = None,
        credential: Any = None,
        tenant_id: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        anonymous: bool = False,
        access_tier: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        name, at, host = container.partition("@")
        if not name or "/" in name:
            raise ValueError(f"an Azure URL names a container: az://container/path, not az://{container}/...")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 1 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        options = AzureOptions(
            account_name,
            endpoint,
            connection_string,
            account_key,
            sas_token,
            credential,
            tenant_id,
            client_id,
            client_secret,
            anonymous,
            access_tier,
            content_type,
            tuple(sorted((name.lower(), value) for name, value in (metadata or {}).items())),
            ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies),
        )
        given = [name for name in _CREDENTIALS if getattr(options, name)]
        if len(given) > 1:
            raise ValueError(f"{given[0]}= goes without {given[1]}=")
        if client_secret is not None and not (tenant_id and client_id):
            raise ValueError("client_secret= needs tenant_id= and client_id=")
        if at:
            self.scheme = "abfss"
        public = ".blob." in host  # an address of the web, whose data may be anybody's
        dialect = AzureDialect(name, account_of(host, options), options, f"{self.scheme}://{container}", public)
        super().__init__(dialect, prefix, mpu_chunksize)
        self._directories = shared(self.dialect.of_directories())
        self._hierarchical: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_directories"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._directories = shared(self.dialect.of_directories())

    @classmethod
    def options_of_query(cls, authority: str, paths: list[str], query: dict[str, str]) -> dict[str, Any]:
        """Return the shared access signature that the query of a URL is."""
        if "sig" not in query:
            raise ValueError(f"an Azure URL has no ?{next(iter(query))}=, only a shared access signature")
        return {"sas_token": urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of adlfs."""
        return of_adlfs(options)

    @property
    def container(self) -> str:
        """The container's name."""
        return self.dialect.bucket

    @property
    def options(self) -> AzureOptions:
        """The options."""
        return self.dialect.options

    def _check_key(self, key: str, root: str, operation: str) -> None:
        if "\\" in key:
            raise errors.error(errno.EINVAL, operation, self._url(key), "Azure takes a backslash in a name for a slash")

    def _resolved_store(self) -> str:
        return f"azure {self.dialect.account.url} {self.container}"

    def _principal(self) -> str:
        return identity_of(self.dialect.account, self.options)[0]

    def _describe_store(self) -> dict[str, str]:
        account = self.dialect.account
        return {
            "blob container": self.container,
            "account": account.name,
            **described(self.dialect.endpoint()),
            "endpoint": f"{account.url} ({account.origin})",
            "credentials": identity_of(account, self.options)[1],
        }

    # ---- directories, of accounts that have them

    def _has_directories(self) -> bool:
        """Return whether the account has directories; it is asked once. One that doesn't tell has none."""
        if self._hierarchical is None:
            try:
                found = self.http.send(self.dialect.namespace()).head.header(b"x-ms-is-hns-enabled")
            except (PermissionError, FileNotFoundError):
                found = None
            except OSError as exc:
                if exc.errno != errno.EINVAL:
                    raise
                found = None
            self._hierarchical = (found or "").lower() == "true"
        return self._hierarchical

    def _send_to_directories(self, request: Request) -> Response:
        return self._directories.get().send(request)

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        if not self._has_directories():
            return super()._walk(key, detail, after)
        if after:
            raise self._unsupported("list a tree from behind a name", key)
        return FS._walk(self, key)

    def _mkdir(self, key: str, mode: int) -> None:
        if not key or not self._has_directories():
            super()._mkdir(key, mode)
            return
        mark = secrets.token_hex(12)
        with done_once(self, key, mark, exclusive=True):
            self._send_to_directories(self.dialect.make_directory(key, mark))

    def _rename(self, src: str, dst: str) -> None:
        if not self._has_directories():
            super()._rename(src, dst)
            return
        source = self._stat(src)
        target = self._rename_target(dst, source)
        if target is not None and target.directory:
            self._delete(dst)
        try:
            self._move(source, src, dst)
        except FileNotFoundError as exc:
            if code_of(exc) != _NO_PARENT:
                raise
            with contextlib.suppress(StaleFileError):  # another process was faster
                self._send_to_directories(self.dialect.make_directory(keys.parent(dst)))
            self._move(source, src, dst)

    def _move(self, source: FileStat, src: str, dst: str) -> None:
        """Move in one step, where there is no directory, once, even if the response to a request is lost."""
        try:
            self._send_to_directories(self.dialect.rename(src, dst))
        except FileNotFoundError as exc:
            found = self._head(dst) if code_of(exc) != _NO_PARENT else None
            # A file keeps its version when it is moved; at the target of a directory there was nothing before.
            if found is None or (found.directory, found.version) != (source.directory, source.version):
                raise

    def _remove_members(self, key: str) -> None:
        files = list[str]()
        for member in list(self._in_order(key, self._list(key))):
            path = keys.join(key, member.filename)
            if member.directory:
                self._remove_tree(path)
            else:
                files.append(path)
        self._delete_batch(files)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        if keep and self._has_directories():
            self._remove_members(key)
            return
        if keep or not key or not self._has_directories():
            super()._remove_tree(key, keep)
            if key and not keep:
                self._delete(key)  # the mark of a directory
            return
        continuation: str | None = ""
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            while continuation is not None:
                response = self._send_to_directories(self.dialect.remove_directory(key, continuation))
                continuation = response.head.header(b"x-ms-continuation") or None
