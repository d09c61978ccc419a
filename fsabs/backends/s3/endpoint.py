"""The endpoint of a bucket: host, path, signing region and name, proxy, certificates and retry settings.

All of it is what boto3 resolves for a real `GetObject` of the bucket, after options, environment, profile and
configuration file: the request is prepared by boto3 and caught by an event handler before it is signed or sent. Nothing
here sends or receives.
"""

from __future__ import annotations

import threading
import urllib.parse
from typing import Any, NamedTuple

from ... import process
from .options import Options, environment

_PROBE_KEY = "k"
_DEFAULT_ATTEMPTS = {"legacy": 5, "standard": 3, "adaptive": 3}
"""botocore's own, where neither its configuration nor the environment says how often a request is sent."""
SIGV4 = "s3v4"
EXPRESS = "v4-s3express"
_SIGNATURES = {"s3v4": SIGV4, "v4": SIGV4, EXPRESS: EXPRESS}


class Endpoint(NamedTuple):
    """The address of a bucket's objects, and the form of their requests.

    Plain data: it belongs to no process and no connection.
    """

    host: str
    """The host name or address to connect to, without brackets."""
    port: int
    host_header: str
    tls: bool
    path_prefix: str
    """The path before the quoted key: `/`, `/bucket/`, or `/path/prefix/bucket/`."""
    region: str
    """The region of the credential scope."""
    signing_name: str
    """The service of the credential scope: `s3`, `s3express`, `s3-outposts`, `s3-object-lambda`."""
    signature: str | None
    """`SIGV4`, `EXPRESS` (with the credentials of a session of S3 Express), or None for unsigned requests."""
    sign_payload: bool | None
    """Whether a body's hash is signed; None: where neither TLS nor a checksum protects it."""
    proxy: str | None
    """URL of the proxy."""
    verify: bool | str
    """The file of the certificates that are trusted; False if certificates are not checked."""
    client_certificate: str | tuple[str, str] | None
    """The file of the client's certificate, or those of certificate and key."""
    max_attempts: int
    """How often a request is sent at most."""
    retry_mode: str
    """`legacy`, `standard` or `adaptive`, as botocore names them."""
    connect_timeout: float
    read_timeout: float
    checksums: bool = True
    """Whether written bodies carry a checksum that the store verifies."""
    credentials: Any = None
    """Credentials of botocore, which refreshes them.

    `get_frozen_credentials()` gives those of the moment; None where there are none.
    """
    attempts_set: bool = False
    """Whether the number of attempts is a setting, and not botocore's default."""

    def same_address(self, other: Endpoint) -> bool:
        """Return whether requests to both go to the same host, with the same path and region."""
        return self[:7] == other[:7]

    @property
    def bucket_path(self) -> str:
        """The path of requests about the bucket itself, as listings are."""
        return self.path_prefix[:-1] or "/"

    @property
    def ordered(self) -> bool:
        """Return whether the store lists keys in their order (directory buckets of S3 Express do not)."""
        return self.signing_name != "s3express"


class UnsupportedEndpoint(Exception):
    """Only boto3 can send requests to this endpoint; the message says why."""


class _CaughtRequest(Exception):
    """Ends a call of boto3 before its request is signed."""

    def __init__(self, request: Any, region: str, signing_name: str, signature: Any) -> None:
        super().__init__()
        context = request.context.get("signing") or {}
        self.request = request
        self.region = context.get("region") or region
        self.signing_name = context.get("signing_name") or signing_name
        self.signature = signature


_resolving = threading.local()
_MAX_REMEMBERED = 64
_remembered: dict[object, Endpoint] = {}
"""The endpoints that are known, without credentials that each process must refresh for itself. A forked child inherits
them: it needs no client of boto3, which takes 20 ms to make."""


def install(client: Any) -> None:
    """Prepare a new client of boto3 for `resolve`: a handler that does nothing in any other call."""
    client.meta.events.register_last("before-sign.s3", _catch)


def _catch(request: Any, signing_name: str, region_name: str, signature_version: Any, **_: Any) -> None:
    if getattr(_resolving, "active", False):
        raise _CaughtRequest(request, region_name, signing_name, signature_version)


def resolve(client: process.PerProcess[Any], bucket: str, options: Options) -> Endpoint:
    """Return where boto3 would send a `GetObject` of `bucket`.

    Args:
        client: the clients of boto3, prepared by `install`.
        bucket: a name, or the ARN of an access point.
        options: those of the clients.

    Raises `UnsupportedEndpoint`, and botocore's exceptions for a configuration that leads nowhere.
    """
    name = (client, bucket, options, environment())
    found = _remembered.get(name)
    if found is None:
        found = _resolved(client.get(), bucket)
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()
        _remembered[name] = found
    if found.signature is None or found.credentials is not None:
        return found
    return found._replace(credentials=_credentials(client.get(), bucket, found))


def invalidate(client: process.PerProcess[Any], bucket: str, options: Options) -> None:
    """Have the next `resolve` ask boto3 again, which has followed a redirect in the meantime."""
    _remembered.pop((client, bucket, options, environment()), None)


def prepared(client: Any, bucket: str) -> tuple[str, dict[str, Any]]:
    """Return the URL before the quoted key, and the context by which boto3 signs requests to it."""
    request = _caught(client, bucket).request
    return request.url[: -len(_PROBE_KEY)], request.context


def _resolved(client: Any, bucket: str) -> Endpoint:
    caught = _caught(client, bucket)
    if answer_of_handler(client, "GetObject", caught.request.prepare()) is not None:
        raise UnsupportedEndpoint("an event handler answers requests in place of the store")
    parts = urllib.parse.urlsplit(caught.request.url)
    session, config = client._endpoint.http_session, client.meta.config
    tls = parts.scheme == "https"
    retries = config.retries or {}
    mode = retries.get("mode", "legacy")
    found = Endpoint(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        host_header=parts.netloc.rpartition("@")[2],
        tls=tls,
        path_prefix=parts.path[: -len(_PROBE_KEY)],
        region=caught.region,
        signing_name=caught.signing_name,
        signature=_signature(caught.signature),
        sign_payload=(config.s3 or {}).get("payload_signing_enabled"),
        proxy=session._proxy_config.proxy_url_for(caught.request.url) or None,
        verify=_certificates(session._verify),
        client_certificate=config.client_cert,
        max_attempts=retries.get("total_max_attempts") or _DEFAULT_ATTEMPTS.get(mode, 5),
        attempts_set=retries.get("total_max_attempts") is not None,
        retry_mode=mode,
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        checksums=config.request_checksum_calculation != "when_required",
    )
    return found._replace(credentials=_inheritable(client, found))


def answer_of_handler(client: Any, operation: str, request: Any) -> Any:
    """Return the response of an event handler that answers a prepared request in place of the store, as moto's mocks
    do; None if there is no such handler.
    """
    return client.meta.events.emit_until_response(f"before-send.s3.{operation}", request=request)[1]


def _inheritable(client: Any, endpoint: Endpoint) -> Any:
    """Return the credentials if a forked child may use them: a class of botocore's that renews them has locks."""
    from botocore.credentials import Credentials

    found = client._request_signer._credentials
    return found if type(found) is Credentials and endpoint.signature == SIGV4 else None


def _credentials(client: Any, bucket: str, endpoint: Endpoint) -> Any:
    """Return the credentials of this process for an endpoint whose requests are signed.

    Those of S3 Express are a session's.
    """
    if endpoint.signature != EXPRESS:
        return client._request_signer._credentials
    context = _caught(client, bucket).request.context["signing"]
    return _SessionCredentials(context["identity_cache"], context["cache_key"])


class _SessionCredentials:
    """The credentials of a session of S3 Express, which boto3 begins (`CreateSession`) when they are first needed."""

    def __init__(self, sessions: Any, bucket: str) -> None:
        self._sessions = sessions
        self._bucket = bucket

    def get_frozen_credentials(self) -> Any:
        """Return those of the moment."""
        return self._sessions.get_credentials(self._bucket).get_frozen_credentials()


def _caught(client: Any, bucket: str) -> _CaughtRequest:
    _resolving.active = True
    try:
        client.get_object(Bucket=bucket, Key=_PROBE_KEY)
    except _CaughtRequest as caught:
        return caught.with_traceback(None)  # its frames would keep the FS that asked
    finally:
        _resolving.active = False
    raise AssertionError("the client was not prepared by install()")


def _signature(version: Any) -> str | None:
    import botocore

    if version is botocore.UNSIGNED:
        return None
    if version not in _SIGNATURES:
        raise UnsupportedEndpoint(f"requests with a signature {version!r}")
    return _SIGNATURES[version]


def _certificates(verify: bool | str | None) -> bool | str:
    """Return the file of trusted certificates that botocore would load; False for none."""
    from botocore.httpsession import get_cert_path

    path: Any = verify if isinstance(verify, str) else verify is not False
    found: Any = get_cert_path(path)
    return bool(found) and str(found)
