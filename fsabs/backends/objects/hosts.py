"""Hosts by their URLs: the endpoint of one, with the proxy and the certificates that the environment names."""

from __future__ import annotations

import importlib.util
import os
import urllib.parse
import urllib.request

from .dialect import Access, Endpoint

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class HostAccess(Access):
    """The access to a host, and to those that its redirects lead to."""

    def elsewhere(self, host: str, port: int, host_header: str, tls: bool) -> Endpoint:
        """Return the endpoint of another host, by the proxy for it."""
        endpoint = super().elsewhere(host, port, host_header, tls)
        return endpoint._replace(proxy=proxy_for(host, tls), verify=certificates(endpoint.verify))


def endpoint_of(
    url: str,
    path_prefix: str = "/",
    *,
    connect_timeout: float,
    read_timeout: float,
    max_attempts: int | None,
    verify: bool | str | None,
) -> Endpoint:
    """Return the endpoint of a URL, whose path stands before `path_prefix`; `ValueError` for what is no URL of a host.

    `verify` is the file of trusted certificates, False to trust any; None: what the environment names, else certifi's
    where that is installed, else the system's.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in parts.netloc:
        raise ValueError(f"the URL of a host is http://host[:port] or https://host[:port], not {parts.netloc!r}")
    tls = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname,
        port=parts.port or (443 if tls else 80),
        host_header=parts.netloc,
        tls=tls,
        path_prefix=parts.path.rstrip("/") + path_prefix,
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_attempts=max_attempts,
        proxy=proxy_for(parts.hostname, tls),
        verify=certificates(verify),
    )


def proxy_for(host: str, tls: bool) -> str | None:
    """Return the URL of the proxy for a host, by `$https_proxy`, `$http_proxy`, `$all_proxy` and `$no_proxy`."""
    proxies = urllib.request.getproxies()
    found = proxies.get("https" if tls else "http") or proxies.get("all")
    if not found or urllib.request.proxy_bypass(host):
        return None
    found = found if "://" in found else f"http://{found}"
    if not found.startswith("http://"):
        kind = found.partition(":")[0]
        raise ValueError(f"{kind}:// is no proxy of HTTP's ($no_proxy names the hosts that need none: {host})")
    return found


def certificates(verify: bool | str | None) -> bool | str:
    """Return the file of the certificates that are trusted; True for those of the system, False if none is checked."""
    if verify is False or isinstance(verify, str):
        return verify
    if named := next(filter(None, map(os.environ.get, CERTIFICATE_VARIABLES)), None):
        return named
    spec = importlib.util.find_spec("certifi")
    if spec is None or spec.origin is None:
        return True
    return os.path.join(os.path.dirname(spec.origin), "cacert.pem")
