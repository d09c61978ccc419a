"""Web servers (RFC 9110), by the client of object stores: a file is what a URL has, as it is written, with its query.

Its version is its ETag, or the time of its last change. Redirects are followed; those that are permanent, or that lead
to an address that is signed for a time, are kept.
"""

from __future__ import annotations

import base64
import errno
import functools
import io
import netrc
import os
import re
import time
import urllib.parse
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ..core import errors, identity, keys, redaction
from ..core.blobs import Blob, BytesBlob
from ..core.fs import Capabilities, StoreNotes, StrPath
from ..core.registry import COMPRESSIONS
from .objects import ObjectStore, access
from .objects.access import Access, ConnectionOptions, Endpoint, described, endpoint_at
from .objects.addresses import LONGEST, Addresses, signed_until
from .objects.client import absolute
from .objects.dialect import EPOCH, Dialect
from .objects.failures import Expired, LargeObject, Redirected, is_location_refused, refusal, refused
from .objects.http1 import ResponseHead
from .objects.messages import WHOLE, Body, Found, ObjectPage, PageQuery, Reading, Request, Response, header_lines
from .objects.reading import FIRST, LARGE, StoreBlob, get_many

__all__ = ["Http", "Https"]
_PERMANENT = (301, 308)
_REDIRECTS = (301, 302, 303, 307, 308)
_SAFE = "!$%&'()*+,/:;=?@[]~"
"""What a path or a query has as it is, `%` among them: it is quoted already, but for characters that no URL has."""
_is_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_ends_authority = re.compile(r"[?#\\]").search
"""Finds what ends the authority of a URL for others: they would see another host before it."""
_OURS = frozenset({"accept-encoding", "connection", "content-length", "host", "if-match", "range", "transfer-encoding"})
"""Header fields that `headers` can't have."""
_COMPRESSED = (*(suffix for suffixes in COMPRESSIONS.values() for suffix in suffixes), ".br", ".zip")
"""Ends of the names of files that are compressed: servers take that for an encoding of what they send."""
MAX_DECODED = 1024**3
"""Bytes of content that a server has compressed."""
_NO_HEAD = (400, 403, 405, 501)
"""The statuses by which servers, and signed addresses, refuse a HEAD of what a GET gives."""


class WebOptions(NamedTuple):
    """The options of a client, as those of `Https`."""

    origin: str
    """`https://host[:port]`."""
    user: str = ""
    """`user:password`, of the URL."""
    headers: tuple[tuple[str, str], ...] = ()
    client_certificate: str | tuple[str, str] | None = None
    connection: ConnectionOptions = ConnectionOptions()

    def __repr__(self) -> str:
        return redaction.representation("WebOptions", self._asdict())


class WebAccess(Access):
    """The access to a host: header fields, and the user's name and password."""

    def __init__(self, options: WebOptions) -> None:
        self._options = options
        endpoint = endpoint_at(options.origin, "/", options.connection)
        self.endpoint = endpoint._replace(client_certificate=options.client_certificate)
        fields = {name: value for name, value in options.headers if name != "user-agent"}
        self.source = "option headers" if "authorization" in fields else "URL" if options.user else "none"
        user = options.user
        if self.source == "none" and (user := _user_of(self.endpoint.host, self.endpoint.tls)):
            self.source = "netrc"
        if user:
            fields["authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._lines = header_lines([f"{name}:{value}" for name, value in fields.items()])

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request."""
        return header_lines(headers) + self._lines

    def renewed(self) -> Access | None:
        """Look into netrc again."""
        found = WebAccess(self._options)
        return found if found._lines != self._lines else None

    def elsewhere(self, url: str) -> Endpoint:
        """Return the endpoint of another host."""
        return endpoint_at(url, "/", self._options.connection)


def _user_of(host: str, tls: bool) -> str:
    """Return user and password for a host, of `$NETRC` or `~/.netrc`; empty if there are none.

    Those for any host (`default`) are not sent in the clear.
    """
    try:
        entries = netrc.netrc(os.environ.get("NETRC") or os.path.expanduser("~/.netrc"))
    except (OSError, netrc.NetrcParseError):
        return ""
    found = entries.authenticators(host) if tls or host in entries.hosts else None
    return f"{found[0]}:{found[2]}" if found is not None else ""


@functools.lru_cache(maxsize=64)
def _addresses(client: Hashable) -> Addresses:
    return Addresses()


class WebDialect(Dialect):
    """The files of a host."""

    name = "http"
    ordered = False

    def __init__(self, scheme: str, options: WebOptions) -> None:
        self.scheme = scheme
        self.bucket = urllib.parse.urlsplit(options.origin).netloc
        self.options = options
        self.user_agent = dict(options.headers).get("user-agent", "fsabs")
        self._kept: Addresses | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    # ---- the store

    def same_client(self) -> Hashable:
        """Return options and environment."""
        return self.options, access.environment("NETRC")

    def access(self) -> WebAccess:
        """Return this process's access to the host."""
        return WebAccess(self.options)

    @property
    def _addresses(self) -> Addresses:
        if self._kept is None:
            self._kept = _addresses(self.same_client())
        return self._kept

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a status of 300 and above stands for."""
        status = head.status
        error = refusal(status, head.reason)
        if is_location_refused(request, status):
            self._addresses.forget(_name(request))
            return Redirected(error, "", anew=True)
        if status in _REDIRECTS and (location := head.header(b"location")):
            return self._redirect(request, head, error, location)
        if status == 410:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if status == 401:
            advice = "a user and a password are given by ~/.netrc, in the URL, or as headers="
            return Expired(PermissionError(errno.EACCES, f"the server wants to know who asks (401): {advice}"))
        return refused(head, "", "")

    def _redirect(self, request: Request, head: ResponseHead, error: OSError, location: str) -> Exception:
        """Follow a redirect; keep where it leads if that holds for a time."""
        there = absolute(request.location or f"{self.options.origin}{request.path}", location)
        if there is None:
            reason = f"a redirect ({head.status}) that leads to no address of the web, or from https to http"
            return OSError(errno.EREMCHG, reason)
        until = time.time() + LONGEST if head.status in _PERMANENT else signed_until(there, head)
        # What an earlier redirect has led to for this time only is no address of the first URL.
        is_kept = not request.location or request.location == self._addresses.get(_name(request))
        if until is not None and is_kept:
            self._addresses.put(_name(request), there, until)
        return Redirected(error, there)

    def version(self, head: ResponseHead) -> str | None:
        """Return the ETag, or the time of the last change."""
        return super().version(head) or head.header(b"last-modified")

    # ---- reading

    def url(self, key: str) -> str:
        """Return the URL, with digests in place of secrets."""
        return redaction.distinct_url(f"{self.scheme}://{self.bucket}/{urllib.parse.quote(key, safe=_SAFE + '#')}")

    def _request(self, method: str, key: str, wanted: Reading) -> Request:
        path, _, query = urllib.parse.quote(key.partition("#")[0], safe=_SAFE).partition("?")
        request = Request(method, key, query, (), b"", *wanted, path=f"/{path}")
        return request._replace(location=self._addresses.get(_name(request)))

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a GET, on no condition: a weak ETag, which a version may be, meets none (RFC 9110, 13.1.1)."""
        return self._request("GET", key, wanted)

    def head(self, key: str) -> Request:
        """Return a HEAD."""
        return self._request("HEAD", key, WHOLE)

    def page_request(self, query: PageQuery) -> Request:
        """Raise `io.UnsupportedOperation`: a web server has no listings."""
        reason = "a web server lists nothing; a manifest of its files does (manifest=)"
        raise io.UnsupportedOperation(errno.EOPNOTSUPP, reason)

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return no page; there is no request for one."""
        raise NotImplementedError


def _name(request: Request) -> str:
    return f"{request.path}?{request.query}"


class Https(ObjectStore):
    """The files of the web server `authority` below `path`, read only.

    Args:
        authority: `[user:password@]host[:port]`; user and password are sent to that host alone, and shown nowhere.
        path: the FS's root, as it is written in a URL: nothing is decoded, and a query belongs to the name of a file.
        headers: header fields of requests to that host, by name; `authorization` among them.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; None: 5 times.
        verify: the file of trusted certificates, or False to trust any; None: those of the environment.
        client_certificate: the file of the client's certificate, or those of certificate and key.
        proxies: URLs of proxies by scheme; None: those of the environment.

    Without `user:password@` and `authorization` a host's entry of `~/.netrc` (`$NETRC`) is sent. A file is read by
    ranges where the server has them, else whole, once. What a server compresses unasked is decompressed.
    """

    scheme = "https"
    dialect: WebDialect
    default_concurrency = 16
    capabilities = Capabilities(implied_directories=True, last_modified=True, versions=True, stat_is_request=True)
    _splits_authority = True
    _plain_paths = False
    _notes = StoreNotes(
        (
            "opening: no request",
            "listing: none, but of a manifest (manifest=)",
            "an epoch: a request for each file, more for large ones and for redirects",
        ),
        records_requests=True,
    )

    def __init__(
        self,
        authority: str,
        path: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        read_timeout: float | None = None,
        max_attempts: int | None = None,
        verify: bool | str | None = None,
        client_certificate: str | tuple[str, str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        user, _, host = authority.rpartition("@")
        try:
            usual = bool(urllib.parse.urlsplit(f"//{host}").hostname) and urllib.parse.urlsplit(f"//{host}").port != 0
        except ValueError:
            usual = False
        if not usual or not host.isprintable() or _ends_authority(authority):
            wanted = f"{self.scheme}://[user:password@]host/path, all of it percent-encoded"
            raise ValueError(f"a URL of the web names a host: {wanted}, not {redaction.without_secrets(host)!r}")
        certificate: Any = tuple(client_certificate) if isinstance(client_certificate, list) else client_certificate
        options = WebOptions(
            origin=f"{self.scheme}://{host}",
            user=urllib.parse.unquote(user),
            headers=_checked(headers or {}),
            client_certificate=certificate,
            connection=ConnectionOptions.of(connect_timeout, read_timeout, max_attempts, verify, proxies),
        )
        super().__init__(WebDialect(self.scheme, options), path)

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of fsspec's HTTPFileSystem: the header fields in `client_kwargs`."""
        found = dict(options)
        client = dict(found.pop("client_kwargs", None) or {})
        if "headers" in client:
            found["headers"] = client.pop("headers")
        if client:
            raise TypeError(f"client_kwargs can have headers, not {', '.join(sorted(client))}")
        tuning = ("simple_links", "same_scheme", "size_policy", "encoded")
        return {name: value for name, value in found.items() if name not in tuning}

    def _divided_path(self, path: StrPath) -> tuple[str, str]:
        return keys.verbatim(os.fspath(path))  # %2e is a dot to a server, and its path ends before a query

    def _describe_store(self) -> dict[str, str]:
        access = self.dialect.access()
        return {**described(access.endpoint), "credentials": access.source}

    def _principal(self) -> str:
        lines = self.dialect.access().authorise("GET", "/", "", (), b"")
        return identity.digest_of_secret(lines.encode()) if lines else ""

    def _resolved_store(self) -> str:
        return f"web {self.dialect.options.origin}"

    def _is_strong(self, version: str) -> bool:
        if not version.endswith(" GMT"):
            return True
        return identity.is_older_than_a_tick(parsedate_to_datetime(version).timestamp())

    # ---- looking

    def _any_below(self, key: str) -> bool:
        return not key

    def _found(self, key: str) -> Found:
        try:
            response = self.http.send(self.dialect.head(key))
            if not _is_encoded(key, response.head):
                return self.found_in(key, response)
        except errors.UnknownSizeError:
            raise
        except OSError as exc:
            if getattr(exc, "status", 0) not in _NO_HEAD and exc.errno != errno.EBADMSG:
                raise
        with self._open_blob(key) as blob:
            return Found(blob.size, EPOCH, blob.version)

    # ---- reading

    def _whole(self, key: str) -> Response:
        return _decoded(key, self.http.send(self.dialect.read(key)))

    def _open_blob(self, key: str) -> Blob:
        if not key:
            raise self._no_file(key)
        try:
            response = self.http.send(self.dialect.read(key, Reading((FIRST, 0))))
        except errors.StaleFileError:  # a range of an empty file is refused
            response = self._whole(key)
        size, version = response.total, self.dialect.version(response.head)
        whole = size == len(response.body)
        if response.status == 206 and size is not None and not _is_encoded(key, response.head):
            if version is not None:
                return StoreBlob(self, key, size, version, response.body)
        else:
            whole = whole and response.status == 200
        # Without a version nothing shows that two parts are of one content.
        response = _decoded(key, response) if whole else self._whole(key)
        return BytesBlob(self, key, response.body, self.dialect.version(response.head))

    _open_from_start = _open_blob

    def _open_listed(self, key: str, stat: Any) -> Blob:
        return self._open_blob(key)

    def _read_bytes(self, key: str) -> bytes:
        if not key:
            raise self._no_file(key)
        try:
            return _decoded(key, self.http.send(self.dialect.read(key, Reading(large=LARGE)))).body
        except LargeObject as exc:
            head, version = exc.head, self.dialect.version(exc.head)
        if version is None or _is_encoded(key, head) or "bytes" not in (head.header(b"accept-ranges") or "").lower():
            return self._whole(key).body
        return StoreBlob(self, key, head.length, version).read_all()

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return (content for content, _ in self._read_many_versioned(wanted, concurrency))

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        width = min(concurrency or self.default_concurrency, len(wanted))
        if width <= 1 or not all(wanted):
            return map(self._read_versioned, wanted)
        responses = get_many(self, wanted, width, lambda response: response)
        version = self.dialect.version
        return (
            (_decoded(key, response).body, version(response.head))
            for key, response in zip(wanted, responses, strict=True)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url(self._root)!r})"


class Http(Https):
    """The files of a web server without TLS."""

    scheme = "http"


def _is_encoded(key: str, head: ResponseHead) -> bool:
    """Return whether content is sent compressed, unasked; a file that is compressed itself may be said to be so."""
    encoding = (head.header(b"content-encoding") or "identity").lower()
    return encoding != "identity" and not keys.verbatim(key)[0].lower().endswith(_COMPRESSED)


def _decoded(key: str, response: Response) -> Response:
    """Return a whole response with its content as it was before the server has compressed it."""
    if not _is_encoded(key, response.head):
        return response
    encoding = (response.head.header(b"content-encoding") or "").lower()
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise errors.CorruptFileError(errno.EBADMSG, f"content in an encoding that was not asked for: {encoding}")
    decoder = zlib.decompressobj(32 + zlib.MAX_WBITS)
    try:
        content = decoder.decompress(response.body, MAX_DECODED)
    except zlib.error as exc:
        raise errors.CorruptFileError(errno.EBADMSG, f"content that is no {encoding}: {exc}") from None
    if not decoder.eof or decoder.unused_data:
        raise errors.CorruptFileError(
            errno.EBADMSG, f"content in {encoding} that is cut, or of more than {MAX_DECODED:,} bytes"
        )
    return response._replace(body=content)


def _checked(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the header fields of an option, by their names in lower case. Raises `ValueError`."""
    for name, value in headers.items():
        if not _is_name(name) or name.lower() in _OURS or not str(value).isprintable():
            raise ValueError(f"headers can't have {name!r}, or not with this value")
    return tuple(sorted((name.lower(), str(value)) for name, value in headers.items()))
