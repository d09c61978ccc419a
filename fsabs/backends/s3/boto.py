"""boto3's client: made once in each process from the options, and its exceptions turned into Python's errors.

An inherited client must never be used: parent and child would read each other's answers from the same socket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from ... import errors, hooks, keys, process
from . import checksums
from .failures import refusal
from .options import Options, core_session, environment

_MODULES = (
    "boto3",
    "boto3.s3.inject",
    "boto3.s3.transfer",
    "botocore.httpchecksum",
    "botocore.retries.standard",
    "encodings.idna",  # of host names
    "s3transfer.subscribers",
)
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


def make_client(options: Options) -> Any:
    """A new boto3 client."""
    try:
        import botocore
        from botocore.config import Config
        from botocore.exceptions import ProfileNotFound

        from .endpoint import install
    except ImportError as exc:
        raise errors.MissingDependencyError("S3 needs boto3: pip install boto3", name="boto3") from exc

    settings: dict[str, Any] = {
        "connect_timeout": options.connect_timeout,
        "read_timeout": options.read_timeout,
        "max_pool_connections": POOL_SIZE,
    }
    if options.max_attempts:
        settings["retries"] = {"total_max_attempts": options.max_attempts}
    if options.anonymous:
        settings["signature_version"] = botocore.UNSIGNED
    if options.path_style is not None:
        settings["s3"] = {"addressing_style": "path" if options.path_style else "virtual"}
    if options.proxies is not None:
        settings["proxies"] = dict(options.proxies)
    if options.client_certificate is not None:
        settings["client_cert"] = options.client_certificate
    try:
        create, region = _session(options)
        url = options.endpoint or os.environ.get("S3_ENDPOINT") or None
        # A store of one's own has no regions, but a signature needs the name of one.
        region = options.region or region or "us-east-1"
        client = create("s3", endpoint_url=url, region_name=region, config=Config(**settings), verify=options.verify)
        install(client)
        client.meta.events.register("before-send.s3", _begun)
        client.meta.events.register("response-received.s3", _answered)
        return client
    except (ProfileNotFound, ValueError) as exc:  # a ValueError is about the endpoint
        raise errors.ConfigError(f"S3: {exc}") from exc


def is_aws(client: Any) -> bool:
    """Return whether a client's requests go to AWS, and not to another store."""
    host = urlsplit(client.meta.endpoint_url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def resolved_endpoint(client: Any) -> str:
    """Return the endpoint that a client has made of options, environment and configuration, without a user in it."""
    parts = urlsplit(client.meta.endpoint_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def principal(client: Any, options: Options) -> str:
    """Return whom requests are signed for: the key, or for keys that a provider renews the provider and its role."""
    with translated():
        found = client._request_signer._credentials
    if found is None:
        return ""
    if found.method in ("explicit", "env", "shared-credentials-file", "config-file", "boto-config"):
        return str(found.get_frozen_credentials().access_key)
    role = os.environ.get("AWS_ROLE_ARN", "")
    if options.session is not None and not (profile := core_session(options.session).profile):
        return str(found.get_frozen_credentials().access_key)
    profile = profile if options.session is not None else options.profile
    return f"{found.method} {profile or os.environ.get('AWS_PROFILE', '')} {role}"


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
    # dateutil, boto3's parser of times, takes two thirds of the time of a listing.
    session._session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
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


def _timestamp(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):  # a header's time, or a store with a format of its own
        from botocore.utils import parse_timestamp

        parsed: datetime = parse_timestamp(text)
        return parsed


_OPERATIONS = {
    "GetObject": "s3.get",
    "HeadObject": "s3.head",
    "ListObjectsV2": "s3.list",
    "PutObject": "s3.put",
    "UploadPart": "s3.put",
    "DeleteObject": "s3.delete",
    "DeleteObjects": "s3.delete",
    "CopyObject": "s3.copy",
}
_attempt = threading.local()


def _begun(**_: Any) -> None:
    """An attempt of boto3 begins; in the thread that will see its end."""
    _attempt.begin = time.monotonic_ns() if hooks.active is not None else 0


def _answered(
    event_name: str, context: dict[str, Any], exception: Exception | None, parsed_response: Any, **_: Any
) -> None:
    """An attempt of boto3 has ended; the body of a GET is still to come."""
    instrument, begin = hooks.active, getattr(_attempt, "begin", 0)
    if instrument is None or not begin:
        return
    operation = event_name.rpartition(".")[2]
    name = _OPERATIONS.get(operation, f"s3.{operation}")
    asked = context.get("input_params", {})
    where = f"s3://{asked.get('Bucket', '')}/{keys.to_url_path(str(asked.get('Key', asked.get('Prefix', ''))))}"
    if context.get("retries", {}).get("attempt", 1) > 1:
        instrument.record_event("retry", name, 1, where)
    error = type(exception).__name__ if exception is not None else ""
    if not error and "Error" in (parsed_response or {}):
        error = str(parsed_response["Error"].get("Code", ""))
    body = asked.get("Body")
    instrument.record_span("request", name, begin, len(body) if isinstance(body, bytes) else 0, where, error)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn what boto3 raises into Python's own errors; the original stays as the cause."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as exc:
        raise _of_answer(exc) from exc
    except BotoCoreError as exc:
        raise transport_error(exc) from exc
    except RecursionError as exc:  # botocore follows a circle of redirects until the stack ends
        raise OSError(errno.EREMOTEIO, "the endpoint redirects in a circle") from exc


def _of_answer(exc: Any) -> OSError:
    """The error for an answer that says no."""
    said = exc.response.get("Error", {})
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return refusal(status, str(said.get("Code", "")), said.get("Message"))


def transport_error(exc: Any) -> OSError:
    """The error for a request that got no whole answer, or was never sent."""
    from botocore import exceptions as known

    text = f"{exc}"
    refused = (known.NoCredentialsError, known.PartialCredentialsError, known.CredentialRetrievalError)
    if isinstance(exc, (*refused, known.TokenRetrievalError, known.UnauthorizedSSOTokenError)):
        return PermissionError(errno.EACCES, text)
    if isinstance(exc, known.ConnectTimeoutError | known.ReadTimeoutError):
        return TimeoutError(errno.ETIMEDOUT, text)
    if isinstance(exc, known.FlexibleChecksumError):
        return errors.CorruptFileError(errno.EBADMSG, text)
    if isinstance(exc, known.IncompleteReadError):
        return errors.CorruptFileError(errno.EBADMSG, f"the body was cut short: {text}")
    if isinstance(exc, known.EndpointConnectionError):
        return ConnectionRefusedError(errno.ECONNREFUSED, text)
    if isinstance(exc, known.ConnectionClosedError | known.ResponseStreamingError):
        return ConnectionResetError(errno.ECONNRESET, text)
    if isinstance(exc, known.HTTPClientError | known.ConnectionError):
        return ConnectionAbortedError(errno.ECONNABORTED, text)
    if isinstance(exc, known.ParamValidationError):
        return OSError(errno.EINVAL, text)
    return OSError(errno.EIO, f"{type(exc).__name__}: {text}")
