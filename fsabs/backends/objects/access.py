"""How a store is reached: the endpoint of a bucket, the options of connections, and by which credentials a process
sends its requests there.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import os
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...core import process, redaction
from ...core.errors import ConfigError
from .failures import DEFAULT_ATTEMPTS
from .messages import Body, header_lines

if TYPE_CHECKING:
    import socket

Environment = tuple[tuple[str, str], ...]
"""Names and values of variables of the environment."""
MAX_SECONDS = 1_000_000
"""Of a time limit: the system counts its milliseconds in 31 bits."""
ANONYMOUS = "anonymous=True, or for a command a section of pfio.ini that has it"
"""How requests are sent without credentials, for messages."""
EARLY = 300.0
"""A token is renewed so many seconds before it ends, or when a fifth of its time is left."""


# ---- endpoints


class Transport(Protocol):
    """Carries requests where no connection of ours leads: something else sends them and brings the responses."""

    def connect(self) -> socket.socket:
        """Return a connected socket, at whose other end something answers HTTP/1.1.

        What it can't answer it leaves in the socket's attribute `error`, an exception, and closes its end.
        """


class Endpoint(NamedTuple):
    """The address of a bucket's objects, and the limits of requests to it."""

    host: str
    """The host name or address to connect to, without brackets."""
    port: int
    host_header: str
    tls: bool
    path_prefix: str
    """The path before the quoted key: `/`, `/bucket/`, or `/path/prefix/bucket/`."""
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    max_attempts: int | None = None
    """How often a request is sent at most; None where that is not set."""
    proxy: str | None = None
    """URL of a proxy: `http://[user:password@]host:port`."""
    verify: bool | str = True
    """The file of the certificates that are trusted; True for those of the system, False if none is checked."""
    client_certificate: str | tuple[str, str] | None = None
    """The file of the client's certificate, or those of certificate and key."""
    transport: Transport | None = None
    """What carries the requests, in place of connections to the host."""

    @classmethod
    def at(cls, url: str, path_prefix: str = "/") -> Endpoint:
        """Return the endpoint at a URL, with the usual limits; the URL's path goes before `path_prefix`."""
        parts = urllib.parse.urlsplit(url)
        tls, host_header = parts.scheme == "https", parts.netloc.rpartition("@")[2]
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname or "", port, host_header, tls, parts.path + path_prefix)

    def __repr__(self) -> str:
        return redaction.representation("Endpoint", self._asdict())

    @property
    def bucket_path(self) -> str:
        """The path of requests about the bucket itself, as listings are."""
        return self.path_prefix[:-1] or "/"

    @property
    def url(self) -> str:
        """The URL of the host."""
        return f"http{'s' if self.tls else ''}://{self.host_header}"


class ConnectionOptions(NamedTuple):
    """The options of connections, as those of an FS; None is the default."""

    connect_timeout: float | None = None
    read_timeout: float | None = None
    max_attempts: int | None = None
    verify: bool | str | None = None
    proxies: tuple[tuple[str, str], ...] | None = None

    def __repr__(self) -> str:
        return redaction.representation("ConnectionOptions", self._asdict())

    @classmethod
    def of(
        cls,
        connect_timeout: float | None,
        read_timeout: float | None,
        max_attempts: int | None,
        verify: bool | str | None,
        proxies: Mapping[str, str] | None,
    ) -> ConnectionOptions:
        """Return the options of an FS. Raises `ValueError`."""
        check_settings(connect_timeout, read_timeout, max_attempts)
        urls = tuple(sorted(proxies.items())) if proxies is not None else None
        return cls(connect_timeout, read_timeout, max_attempts, verify, urls)


def check_settings(connect_timeout: float | None, read_timeout: float | None, max_attempts: int | None) -> None:
    """Raise `TypeError` or `ValueError` for a number of seconds or attempts that can't be; None is a default."""
    for name, value in (("connect_timeout", connect_timeout), ("read_timeout", read_timeout)):
        if value is not None and not isinstance(value, int | float):
            raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}")
        if value is not None and not 0 < value <= MAX_SECONDS:
            raise ValueError(f"{name} is a number of seconds above 0, and at most {MAX_SECONDS:,}, not {value}")
    if max_attempts is not None and not isinstance(max_attempts, int):
        raise TypeError(f"max_attempts is an int, not {type(max_attempts).__name__}")
    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts is at least 1, not {max_attempts}")


def checked_url(url: str) -> str:
    """Return the URL of a store without a `/` at its end. Raises `ValueError` for what is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        usual = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usual = False
    if not usual or "@" in parts.netloc or parts.query or parts.fragment or not url.isprintable() or " " in url:
        shown = redaction.shown("endpoint", url)
        raise ValueError(f"an endpoint is https://host, https://host:port or such with a path, not {shown!r}")
    return url.rstrip("/")


def endpoint_at(url: str, path_prefix: str, options: ConnectionOptions) -> Endpoint:
    """Return the endpoint at a checked URL of a store; the path in it, and `path_prefix`, go before the quoted key."""
    found = Endpoint.at(url, path_prefix)
    return found._replace(
        connect_timeout=options.connect_timeout or found.connect_timeout,
        read_timeout=options.read_timeout or found.read_timeout,
        max_attempts=options.max_attempts,
        proxy=_proxy("https" if found.tls else "http", found.host_header, options.proxies),
        verify=_certificates(options.verify),
    )


def _proxy(scheme: str, host: str, given: tuple[tuple[str, str], ...] | None) -> str | None:
    if given is not None:
        found = dict(given).get(scheme)
    else:
        import urllib.request  # which takes as long to import as a first read of S3

        proxies = urllib.request.getproxies()
        bypassed = urllib.request.proxy_bypass(host) or _is_in_network(host, proxies.get("no", ""))
        found = None if bypassed else proxies.get(scheme)
    return _checked_proxy(found) if found else None


def _is_in_network(host: str, networks: str) -> bool:
    """Return whether a host is an address in one of the networks of a list, as `NO_PROXY` has them: `10.0.0.0/8`."""
    import ipaddress

    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(urllib.parse.urlsplit(f"//{host}").hostname or "")
        for network in networks.split(","):
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(network.strip(), strict=False):
                    return True
    return False


def _checked_proxy(url: str) -> str:
    """Return the URL of a proxy, which may lack its scheme; `ConfigError` for one that is not asked by plain HTTP:
    it would be sent a password in another way than its URL says.
    """
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urllib.parse.urlsplit(url)
        usual = parts.scheme == "http" and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:
        usual = False
    if not usual:
        raise ConfigError(f"a proxy is http://[user:password@]host:port, not {redaction.without_secrets(url)!r}")
    return url


def _certificates(verify: bool | str | None) -> bool | str:
    """Return the file of trusted certificates, True for those of the system, False to trust any."""
    if verify is False or isinstance(verify, str):
        return verify
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or bundled("certifi") or True


def bundled(*packages: str) -> str | None:
    """Return the file of certificates of the first of these packages that is installed; None if none is."""
    for spec in map(importlib.util.find_spec, packages):
        if spec is not None and spec.origin is not None:
            return os.path.join(os.path.dirname(spec.origin), "cacert.pem")
    return None


def environment(*prefixes: str) -> Environment:
    """Return the variables that a client depends on: those that begin so, of proxies, and of certificates."""
    ours = (*prefixes, "REQUESTS_", "SSL_CERT_")
    names = sorted(name for name in os.environ if name.startswith(ours) or name.lower().endswith("_proxy"))
    return tuple((name, os.environ[name]) for name in names)


def described(endpoint: Endpoint) -> dict[str, str]:
    """Return how an endpoint is reached, for people; no secret is in it."""
    found = {"endpoint": endpoint.url, "address": f"{endpoint.host}:{endpoint.port}{endpoint.path_prefix}"}
    found["tls"] = "no" if not endpoint.tls else "yes" if endpoint.verify else "yes, certificates are not checked"
    if isinstance(endpoint.verify, str):
        found["certificates"] = endpoint.verify
    if endpoint.proxy:
        parts = urllib.parse.urlsplit(endpoint.proxy)
        found["proxy"] = f"{parts.hostname}:{parts.port or ''}"
    found["attempts"] = str(endpoint.max_attempts or DEFAULT_ATTEMPTS)
    return found


# ---- access

_LIMITS = ("connect_timeout", "read_timeout", "max_attempts", "proxy")


class Access(abc.ABC):
    """How one process reaches a bucket: its endpoint, and by which credentials."""

    endpoint: Endpoint
    query: str = ""
    """What the query of each request ends with: it authorises, and is no part of any URL that is shown."""
    authorises_ranges: bool = False
    """Whether `authorise` takes the header field for a range with the others."""

    @abc.abstractmethod
    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        r"""Return the header lines of a request, each ended by `\r\n`: `headers`, and those that authorise it.

        Args:
            method: of HTTP.
            path: quoted.
            query: as the request has it.
            headers: `name:value`.
            body: may have to be hashed.
        """

    def renewed(self) -> Access | None:
        """Return the access by credentials that were read anew; None if they are those that were refused."""
        return None

    def moved(self, place: str) -> Access | None:
        """Return the access to a bucket that is at another `place`, as a `Moved` of `failure` names it; None if
        nothing is known of that."""
        return None

    def elsewhere(self, url: str) -> Endpoint:
        """Return the endpoint of a host that a redirect has led to; requests carry no credentials there."""
        here = self.endpoint
        verify = here.verify if here.tls else True  # that of a plain one says nothing
        return Endpoint.at(url)._replace(**{name: getattr(here, name) for name in _LIMITS}, verify=verify)


class Token(NamedTuple):
    """A bearer token."""

    text: str
    ends: float = float("inf")
    """In seconds since 1970."""

    def __repr__(self) -> str:
        return f"Token(***, {self.ends})"


class TokenAccess(Access):
    """The access by tokens of `fetch`, which a process calls for itself; without it nothing authorises.

    Args:
        endpoint: of the bucket.
        fetch: returns a token that is valid for as long as one can be, or raises `OSError`.
        fields: header fields of each request, `name:value`.
    """

    def __init__(self, endpoint: Endpoint, fetch: Callable[[], Token] | None, fields: tuple[str, ...] = ()) -> None:
        self.endpoint = endpoint
        self._fetch = fetch
        self._fields = header_lines(fields)
        self._lock = process.Lock()
        self._token = Token("")
        self._renew_at = float("inf")
        self._lines = self._fields
        if fetch is not None:
            self._take(fetch())

    def _take(self, token: Token) -> None:
        now = time.time()
        self._lines = f"{self._fields}{header_lines((f'authorization:Bearer {token.text}',))}"
        self._token, self._renew_at = token, token.ends - min(EARLY, max(0.0, token.ends - now) / 5)

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request, with the token of the moment."""
        if time.time() > self._renew_at:
            self._renew()
        return header_lines(headers) + self._lines

    def _renew(self) -> None:
        """Fetch a new token; if that fails, the old one serves until its end."""
        with self._lock:
            now = time.time()
            if self._fetch is None or now <= self._renew_at:
                return  # another thread was faster
            try:
                self._take(self._fetch())
            except OSError:
                if now >= self._token.ends:
                    raise
                self._renew_at = now + (self._token.ends - now) / 5

    def has_other_token_than(self, access: TokenAccess) -> bool:
        """Return whether the token differs from that of another access."""
        return self._token.text != access._token.text
