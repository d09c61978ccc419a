"""What only boto3 knows or can do: where requests go in every case, which credentials a provider has, and, as a
transport under our client, requests with other signatures, through unusual proxies, and to mocks.

An inherited client must never be used: parent and child would read each other's answers from the same socket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import re
import secrets
import socket
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...core import errors, process, redaction
from ..objects import checksums
from ..objects.access import Endpoint
from ..objects.failures import Transient, refusal
from .options import CONNECT_TIMEOUT, READ_TIMEOUT, Options, core_session, environment
from .resolved import DEFAULT_REGION, EXPRESS, SIGV4, ResolvedBucket

_MODULES = (
    "boto3",
    "botocore.retries.standard",
    "encodings.idna",  # of host names
)
_READ_METHODS = ("env", "shared-credentials-file", "config-file", "boto-config")
"""Where botocore says that it read credentials which may be newer there."""
_PROBE_KEY = "fsabs-" + secrets.token_hex(16)
_SIGNATURES = {"s3v4": SIGV4, "v4": SIGV4, EXPRESS: EXPRESS}
_FIELDS = """
user-agent x-amz-user-agent x-amz-checksum-mode amz-sdk-invocation-id amz-sdk-request x-amz-sdk-checksum-algorithm
expect accept-encoding
"""
_USUAL_HEADERS = frozenset(_FIELDS.split())
"""Those that boto3 gives a GET by itself."""
_NAMES = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "POST": "CreateMultipartUpload"}
_NAMES["DELETE"] = "DeleteObject"
_descriptions: Any = None
_generations: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The users' sessions, with the process that has used them."""
POOL_SIZE = 64  # connections that are kept open; more than anyone reads with at once


def shared_client(options: Options) -> process.PerProcess[Any]:
    """The holder of this process's client with these options; equal options share one, so that it is made once."""
    return _shared(options, environment())


@functools.lru_cache(maxsize=16)
def _shared(options: Options, settings: tuple[tuple[str, str], ...]) -> process.PerProcess[Any]:
    return process.PerProcess(functools.partial(make_client, options))


def load() -> None:
    """Import all that a read needs: a child that is forked in the middle of an import can't import it any more."""
    try:
        for name in _MODULES:
            importlib.import_module(name)
        checksums.load()
    except ImportError as exc:
        raise errors.MissingDependencyError("S3 needs boto3: pip install boto3", name="boto3") from exc


def forget_credentials(options: Options) -> None:
    """Have the next client look for credentials anew.

    In a session of the user's only those that were read from a file or the environment: others are who the user is, and
    the usual places may have somebody else's; or they renew themselves.
    """
    from botocore.credentials import Credentials

    if options.session is not None:
        core = core_session(options.session)
        found = core.get_credentials()
        if type(found) is Credentials and found.method in _READ_METHODS:
            core._credentials = core.get_component("credential_provider").load_credentials()
    shared_client(options).close()


def make_client(options: Options) -> Any:
    """A new boto3 client."""
    load()
    import botocore
    from botocore.config import Config
    from botocore.exceptions import ProfileNotFound

    usual = core_session(options.session).get_default_client_config() if options.session is not None else None
    style = None if options.path_style is None else "path" if options.path_style else "virtual"
    settings: dict[str, Any] = {
        "max_pool_connections": POOL_SIZE,
        "connect_timeout": options.connect_timeout or (CONNECT_TIMEOUT if usual is None else None),
        "read_timeout": options.read_timeout or (READ_TIMEOUT if usual is None else None),
        "retries": {"total_max_attempts": options.max_attempts} if options.max_attempts else None,
        "signature_version": botocore.UNSIGNED if options.anonymous else None,
        "s3": {"addressing_style": style} if style else None,
        "proxies": dict(options.proxies) if options.proxies is not None else None,
        "client_cert": options.client_certificate,
    }
    try:
        create, region = _session(options)
        url = options.endpoint or os.environ.get("S3_ENDPOINT") or None
        region = options.region or region or DEFAULT_REGION
        config = Config(**{name: value for name, value in settings.items() if value is not None})
        client = create("s3", endpoint_url=url, region_name=region, config=config, verify=options.verify)
    except (ProfileNotFound, ValueError) as exc:  # a ValueError is about the endpoint
        cause = redaction.as_cause(exc.with_traceback(None))  # in its frames are keys
        hint = "; it is http://HOST:PORT or https://HOST" if "Invalid endpoint" in str(exc) else ""
        raise errors.ConfigError(redaction.without_secrets(f"S3: {exc}{hint}")) from cause
    client.meta.events.register_last("before-sign.s3", _catch)
    return client


def _session(options: Options) -> tuple[Callable[..., Any], str | None]:
    """Return the function that makes a client in a session, the user's or a new one, and the session's region."""
    import boto3

    if options.session is not None:
        core = core_session(options.session)
        _renew_lock(core)
        return core.create_client, core.get_config_variable("region")
    session = boto3.Session(
        botocore_session=_core_session(),
        aws_access_key_id=options.aws_access_key_id,
        aws_secret_access_key=options.aws_secret_access_key,
        aws_session_token=options.aws_session_token,
        region_name=options.region,
        profile_name=options.profile,
    )
    return session.client, session.region_name


def _renew_lock(core: Any) -> None:
    """Give the credentials of a session that a child inherits a new lock: another thread may have held theirs."""
    generation = _generations.setdefault(core, process.generation())
    if process.inherited(generation):
        _generations[core] = process.generation()
        credentials = core.get_credentials()
        if hasattr(credentials, "_refresh_lock"):
            credentials._refresh_lock = threading.Lock()


def _core_session() -> Any:
    """A new session of botocore that shares the descriptions of AWS's services, tens of megabytes, with the others."""
    import botocore.session

    global _descriptions
    session = botocore.session.get_session()
    if _descriptions is None:
        _descriptions = session.get_component("data_loader")
        return session
    paths = _descriptions.search_paths
    paths[:] = dict.fromkeys(paths)  # each session of boto3 adds its own
    session.register_component("data_loader", _descriptions)
    return session


# ---- where requests go


class _Caught(Exception):
    """Ends a call of boto3 whose request is prepared, before it is signed."""

    def __init__(self, request: Any, region: str, signing_name: str, signature: Any) -> None:
        super().__init__()
        self.request, self.region, self.signing_name, self.signature = request, region, signing_name, signature


def _catch(request: Any, signing_name: str, region_name: str, signature_version: Any, **_: Any) -> None:
    """Catch the requests for the key that no object has, and no others."""
    if _PROBE_KEY in request.url:
        signing = request.context.get("signing") or {}
        region, name = signing.get("region") or region_name, signing.get("signing_name") or signing_name
        raise _Caught(request, region, name, signature_version)


def caught(client: Any, bucket: str) -> _Caught:
    """Return what boto3 would send for a `GetObject`."""
    try:
        client.get_object(Bucket=bucket, Key=_PROBE_KEY)
    except _Caught as exc:
        return exc.with_traceback(None)
    raise AssertionError("the client was not made by make_client()")


def resolve(bucket: str, options: Options) -> ResolvedBucket:
    """Return where boto3 would send a `GetObject` of `bucket`; of credentials, those that a forked child may use."""
    with translated():
        client = shared_client(options).get()
        found = caught(client, bucket)
        mocked = answer_of_handler(client, "GetObject", found.request.prepare()) is not None
    parts = urllib.parse.urlsplit(found.request.url)
    session, config = client._endpoint.http_session, client.meta.config
    proxy = session._proxy_config.proxy_url_for(found.request.url) or None
    odd = odd_headers(found.request)
    signature = _signature(found.signature)
    ours = signature != "" and not mocked and not odd and not (proxy or "").startswith("https:")
    endpoint = Endpoint.at(f"{parts.scheme}://{parts.netloc}", parts.path[: -len(_PROBE_KEY)])
    endpoint = endpoint._replace(
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        max_attempts=(config.retries or {}).get("total_max_attempts"),
        proxy=proxy if ours else None,
        verify=_certificates(session._verify) if endpoint.tls else False,
        client_certificate=config.client_cert,
        transport=None if ours else BotoTransport(options, bucket),
    )
    url = urllib.parse.urlsplit(client.meta.endpoint_url)
    place = ResolvedBucket(
        endpoint,
        f"{url.scheme}://{url.netloc.rpartition('@')[2].lower()}{url.path.rstrip('/')}",
        found.region,
        found.signing_name,
        signature,
        (config.s3 or {}).get("payload_signing_enabled"),
        config.request_checksum_calculation != "when_required",
    )
    return place._replace(credentials=_inheritable(client, place))


def odd_headers(request: Any) -> dict[str, Any]:
    """Return the header fields of a request that boto3 has prepared which it does not send by itself."""
    return {name: value for name, value in request.headers.items() if name.lower() not in _USUAL_HEADERS}


def _signature(version: Any) -> str | None:
    """Return the signature as `ResolvedBucket` has it; empty for one that only boto3 makes."""
    import botocore

    return None if version is botocore.UNSIGNED else _SIGNATURES.get(version, "")


def _certificates(verify: bool | str | None) -> bool | str:
    """Return the file of trusted certificates that botocore would load; False for none."""
    from botocore.httpsession import get_cert_path

    path: Any = verify if isinstance(verify, str) else verify is not False
    found: Any = get_cert_path(path)
    return bool(found) and str(found)


# ---- credentials


def _inheritable(client: Any, place: ResolvedBucket) -> Any:
    """Return the credentials if a forked child may use them: a class of botocore's that renews them has locks."""
    from botocore.credentials import Credentials

    found = client._request_signer._credentials
    return found if type(found) is Credentials and place.signature != EXPRESS else None


def credentials(bucket: str, options: Options, place: ResolvedBucket) -> Any:
    """Return the credentials of this process for a place whose requests are signed; None if there are none."""
    with translated():
        client = shared_client(options).get()
        if place.signature == EXPRESS:
            context = caught(client, bucket).request.context["signing"]
            return _Renewed(functools.partial(context["identity_cache"].get_credentials, context["cache_key"]))
        found = client._request_signer._credentials
    return _Renewed(lambda: found, found.method) if found is not None else None


class _Renewed:
    """Credentials that boto3 renews when it is time; those of S3 Express are a session's, which it begins."""

    def __init__(self, get: Callable[[], Any], method: str = "") -> None:
        self._get = get
        self.method = method

    def get_frozen_credentials(self) -> Any:
        """Return those of the moment; raises `OSError`."""
        with translated():
            return self._get().get_frozen_credentials()


# ---- a transport


def answer_of_handler(client: Any, operation: str, request: Any) -> Any:
    """Return the response of an event handler that answers a prepared request in place of the store, as moto's mocks
    do; None if there is no such handler.
    """
    return client.meta.events.emit_until_response(f"before-send.s3.{operation}", request=request)[1]


class _Link(socket.socket):
    """Our end of a connection to a thread that sends requests by boto3."""

    error: Exception | None = None
    """Why the other end was closed."""


class BotoTransport:
    """Has boto3 sign and send what our client writes into a socket, and puts the responses there."""

    def __init__(self, options: Options, bucket: str) -> None:
        self._options = options
        self._bucket = bucket

    def connect(self) -> socket.socket:
        """Return the socket; a thread is at its other end until it is closed."""
        near, far = socket.socketpair()
        link = _Link(near.family, near.type, near.proto, near.detach())
        threading.Thread(target=self._serve, args=(far, weakref.ref(link)), daemon=True).start()
        return link

    def _serve(self, far: socket.socket, link: weakref.ref[_Link]) -> None:
        with far, far.makefile("rb") as stream:
            try:
                while (line := stream.readline()).strip():
                    method, target, _ = line.decode().split(" ")
                    far.sendall(self._answer(method, target, stream, far))
            except Exception as exc:
                if (near := link()) is not None:
                    near.error = Transient(exc if isinstance(exc, OSError) else transport_error(exc))

    def _answer(self, method: str, target: str, stream: Any, far: socket.socket) -> bytes:
        """Read the rest of a request and return the response's bytes."""
        from botocore.awsrequest import AWSRequest

        headers: dict[str, str] = {}
        while line := stream.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.pop("expect", ""):
            far.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = stream.read(int(headers.pop("content-length", 0)))
        client: Any = shared_client(self._options).get()
        prepared = caught(client, self._bucket).request
        origin = urllib.parse.urlsplit(prepared.url)
        target = re.sub(r"(?<=[?&])(uploads|delete|tagging)=(?=&|$)", r"\1", target)  # as old signatures want them
        del headers["host"]
        sent = AWSRequest(
            method, f"{origin.scheme}://{origin.netloc}{target}", data=body if method in ("PUT", "POST") else None
        )
        for name, value in headers.items():
            sent.headers[name] = value
        sent.context.update(prepared.context)
        name = _NAMES.get(method, "GetObject")
        client._request_signer.sign(name, sent)
        missing = {field: value for field, value in odd_headers(prepared).items() if field not in sent.headers}
        if missing:  # of a hook that is called before requests are signed
            for field, value in missing.items():
                sent.headers[field] = value
            client._request_signer.sign(name, sent)
        ready = sent.prepare()
        answer = answer_of_handler(client, name, ready) or client._endpoint.http_session.send(ready)
        content: bytes = answer.content
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        if method != "HEAD" or "content-length" not in {name.lower() for name in kept}:
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
            kept["Content-Length"] = str(len(content))
        lines = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
        start = f"HTTP/1.1 {answer.status_code} Status\r\n{lines}\r\n".encode("latin-1", "replace")
        return start + (b"" if method == "HEAD" else content)


_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})


# ---- its errors


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn what boto3 raises into Python's own errors; the original stays as the cause."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as exc:  # of the provider of credentials
        said, status = exc.response.get("Error", {}), exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise refusal(int(status), str(said.get("Code", "")), str(said.get("Message", ""))) from redaction.as_cause(exc)
    except BotoCoreError as exc:
        raise transport_error(exc) from redaction.as_cause(exc)
    except RecursionError as exc:  # botocore follows a circle of redirects until the stack ends
        raise OSError(errno.EREMOTEIO, "the endpoint redirects in a circle") from exc


_ERRORS: tuple[tuple[str, type[OSError], int], ...] = (
    ("NoCredentialsError PartialCredentialsError CredentialRetrievalError", PermissionError, errno.EACCES),
    ("TokenRetrievalError UnauthorizedSSOTokenError", PermissionError, errno.EACCES),
    ("ConnectTimeoutError ReadTimeoutError", TimeoutError, errno.ETIMEDOUT),
    ("EndpointConnectionError", ConnectionRefusedError, errno.ECONNREFUSED),
    ("ConnectionClosedError ResponseStreamingError IncompleteReadError", ConnectionResetError, errno.ECONNRESET),
    ("HTTPClientError ConnectionError", ConnectionAbortedError, errno.ECONNABORTED),
    ("ParamValidationError", OSError, errno.EINVAL),
)
"""What botocore's exceptions, and those derived from them, stand for."""


def transport_error(exc: Exception) -> OSError:
    """The error for a request that got no whole answer, or was never sent."""
    text = " ".join(redaction.without_secrets(f"{exc}").split())  # botocore's have several lines
    names = {one.__name__ for one in type(exc).__mro__}
    for known, kind, number in _ERRORS:
        if not names.isdisjoint(known.split()):
            return kind(number, text)
    return OSError(errno.EIO, f"{type(exc).__name__}: {text}")
