"""The endpoint at the URL of a store, and the options of connections that dialects share."""

from __future__ import annotations

import importlib.util
import os
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

from ...core import redaction
from .dialect import Endpoint
from .retry import DEFAULT_ATTEMPTS

_DEFAULTS = Endpoint._field_defaults


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
        if value is not None and not value > 0:
            raise ValueError(f"{name} is a number of seconds above 0, not {value}")
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
    parts = urllib.parse.urlsplit(url)
    tls, host = parts.scheme == "https", parts.hostname or ""
    return Endpoint(
        host=host,
        port=parts.port or (443 if tls else 80),
        host_header=parts.netloc,
        tls=tls,
        path_prefix=parts.path + path_prefix,
        connect_timeout=options.connect_timeout or _DEFAULTS["connect_timeout"],
        read_timeout=options.read_timeout or _DEFAULTS["read_timeout"],
        max_attempts=options.max_attempts,
        proxy=_proxy(parts.scheme, parts.netloc, options.proxies),
        verify=_certificates(options.verify),
    )


def _proxy(scheme: str, host: str, given: tuple[tuple[str, str], ...] | None) -> str | None:
    if given is not None:
        return dict(given).get(scheme)
    import urllib.request  # which takes as long to import as a first read of S3

    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)


def _certificates(verify: bool | str | None) -> bool | str:
    """Return the file of trusted certificates, True for those of the system, False to trust any."""
    if verify is False or isinstance(verify, str):
        return verify
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE"):
        return bundle
    found = importlib.util.find_spec("certifi")
    return os.path.join(os.path.dirname(found.origin), "cacert.pem") if found is not None and found.origin else True


def environment(*prefixes: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that a client depends on: those that begin so, of proxies, and of certificates."""
    names = (
        name
        for name in os.environ
        if name.startswith((*prefixes, "REQUESTS_", "SSL_CERT_")) or name.lower().endswith("_proxy")
    )
    return tuple((name, os.environ[name]) for name in sorted(names))


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
