"""The dialect of web servers (RFC 9110): a file is what a URL has, as it is written, with its query.

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
import time
import urllib.parse
from collections.abc import Hashable
from typing import Any, NamedTuple

from ...core import redaction
from ...core.ranges import Range
from ..objects import access
from ..objects.access import Access, ConnectionOptions, Endpoint, endpoint_at
from ..objects.addresses import LONGEST, Addresses, signed_until
from ..objects.client import absolute
from ..objects.dialect import Dialect
from ..objects.failures import Expired, Redirected, Transient, is_location_refused, refused
from ..objects.http1 import ResponseHead
from ..objects.messages import Body, ObjectPage, PageQuery, Request, Response, header_lines

_PERMANENT = (301, 308)
_REDIRECTS = (301, 302, 303, 307, 308)
_SAFE = "!$%&'()*+,/:;=?@[]~"
"""What a path or a query has as it is, `%` among them: it is quoted already, but for characters that no URL has."""


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
        if self.source == "none" and (user := _user_of(self.endpoint.host)):
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


def _user_of(host: str) -> str:
    """Return user and password for a host, of `$NETRC` or `~/.netrc`; empty if there are none."""
    try:
        found = netrc.netrc(os.environ.get("NETRC") or os.path.expanduser("~/.netrc")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
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
        usual = refused(head, "", "")
        error = usual.error if isinstance(usual, Transient) else usual
        assert isinstance(error, OSError)
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
        return usual

    def _redirect(self, request: Request, head: ResponseHead, error: OSError, location: str) -> Exception:
        """Follow a redirect; keep where it leads if that holds for a time."""
        there = absolute(request.location or f"{self.options.origin}{request.path}", location)
        if there is None:
            return OSError(errno.EREMCHG, f"a redirect ({head.status}) that leads to no address of the web")
        until = time.time() + LONGEST if head.status in _PERMANENT else signed_until(there, head)
        if until is not None:
            self._addresses.put(_name(request), there, until)
        return Redirected(error, there)

    def version(self, head: ResponseHead) -> str | None:
        """Return the ETag, a weak one with its `W/`, or the time of the last change."""
        etag = head.header(b"etag")
        return etag.strip('"') if etag else head.header(b"last-modified")

    # ---- reading

    def url(self, key: str) -> str:
        """Return the URL, with digests in place of secrets."""
        return redaction.distinct_url(f"{self.scheme}://{self.bucket}/{urllib.parse.quote(key, safe=_SAFE + '#')}")

    def _request(self, method: str, key: str, headers: tuple[str, ...] = (), **fields: Any) -> Request:
        path, _, query = urllib.parse.quote(key.partition("#")[0], safe=_SAFE).partition("?")
        request = Request(method, key, query, headers, path=f"/{path}", **fields)
        return request._replace(location=self._addresses.get(_name(request)))

    def read(
        self,
        key: str,
        range: Range | None = None,
        version: str | None = None,
        size: int | None = None,
        into: memoryview | None = None,
        large: int | None = None,
    ) -> Request:
        """Return a GET, on condition of a strong ETag."""
        dated = version is not None and version.endswith(" GMT")
        headers = (f'if-match:"{version}"',) if version and not dated and not version.startswith("W/") else ()
        return self._request("GET", key, headers, range=range, version=version, size=size, into=into, large=large)

    def head(self, key: str) -> Request:
        """Return a HEAD."""
        return self._request("HEAD", key)

    def page_request(self, query: PageQuery) -> Request:
        """Raise `io.UnsupportedOperation`: a web server has no listings."""
        reason = "a web server lists nothing; a manifest of its files does (manifest=)"
        raise io.UnsupportedOperation(errno.EOPNOTSUPP, reason)

    def page(self, prefix: str, response: Response) -> ObjectPage:
        """Return no page; there is no request for one."""
        raise NotImplementedError


def _name(request: Request) -> str:
    return f"{request.path}?{request.query}"
