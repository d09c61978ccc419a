"""How a process reaches a bucket on Google Cloud Storage: the options, and the credentials that google-auth finds and
renews.

A process fetches tokens for itself. What google-auth has found is kept for the options and the environment that it was
found by; a forked child goes on with it, since it holds no connection.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, NamedTuple

from ...core import errors, identity, redaction
from ..objects import access
from ..objects.access import ANONYMOUS, EARLY, Access, ConnectionOptions, Endpoint, Token, TokenAccess

PUBLIC = "https://storage.googleapis.com"
EMULATOR = "STORAGE_EMULATOR_HOST"
_GCSFS = {"endpoint_url": "endpoint", "timeout": "read_timeout"}
"""gcsfs's names of options, and ours."""
_TUNING = """
project access consistency check_connection default_location session_kwargs secure_serialize cache_timeout
experimental_zb_hns_support
"""
"""Those of gcsfs that change no result."""


class GCSOptions(NamedTuple):
    """The options of a bucket, as those of `GCS`."""

    endpoint: str | None = None
    credentials: Any = None
    impersonate: str | None = None
    access_token: str | None = None
    anonymous: bool = False
    requester_pays: bool | str = False
    storage_class: str | None = None
    kms_key_name: str | None = None
    content_type: str | None = None
    cache_control: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    connection: ConnectionOptions = ConnectionOptions()

    def __repr__(self) -> str:
        return redaction.representation("GCSOptions", self._asdict())

    @property
    def project_billed(self) -> str:
        """The project that pays for requests; empty where the bucket's does."""
        if self.requester_pays is True:
            return os.environ.get("GOOGLE_CLOUD_PROJECT", "")
        return self.requester_pays or ""


def environment() -> access.Environment:
    """Return the variables that a client depends on."""
    return access.environment("GOOGLE_", "CLOUDSDK_", "GCE_", "NO_GCE_", EMULATOR)


def url_of(endpoint: str | None) -> tuple[str, bool]:
    """Return the URL of the store, and whether it is an emulator of the environment's, which takes no credentials."""
    if endpoint is not None:
        return access.checked_url(endpoint), False
    emulator = os.environ.get(EMULATOR, "")
    if not emulator:
        return PUBLIC, False
    return access.checked_url(emulator if "://" in emulator else f"http://{emulator}"), True


def of_gcsfs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `GCS` for those that are given, by its own names or by gcsfs's."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "token" and (value in ("anon", "google_default", "cloud", "cache", "browser") or value is None):
            if value == "anon":
                found["anonymous"] = True
        elif name == "token":  # a key file, its content, or an object
            found["credentials"] = value
        elif name not in _TUNING.split():
            found[_GCSFS.get(name, name)] = value
    return found


# ---- credentials

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_LIFETIME = 3600
NONE_FOUND = (
    "no credentials: run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a key file, or "
    f"give credentials=; for a public bucket: {ANONYMOUS}"
)


def google_auth() -> Any:
    """Import and return what fetches tokens."""
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        raise errors.missing("google-auth", "gcs", f"gs:// (a public bucket needs none: {ANONYMOUS})") from None
    return google.auth


def credentials_of(options: GCSOptions) -> Any:
    """Return the credentials that options and environment lead to, as google-auth has them. Raises `OSError`."""
    return _loaded(options, environment())


@functools.lru_cache(maxsize=64)
def _loaded(options: GCSOptions, settings: access.Environment) -> Any:
    auth = google_auth()
    given = options.credentials
    try:
        if given is None:
            found, _ = auth.default(scopes=SCOPES)
        elif isinstance(given, str | os.PathLike):
            found, _ = auth.load_credentials_from_file(os.path.expanduser(given), scopes=SCOPES)
        elif isinstance(given, tuple):
            found, _ = auth.load_credentials_from_dict(json.loads(given[0]), scopes=SCOPES)
        else:
            from google.auth import credentials

            found = credentials.with_scopes_if_required(given, SCOPES)  # type: ignore[no-untyped-call]
        if options.impersonate:
            from google.auth import impersonated_credentials

            found = impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
                found, options.impersonate, list(SCOPES), lifetime=_LIFETIME
            )
    except auth.exceptions.DefaultCredentialsError as exc:
        reason = NONE_FOUND if given is None and not os.environ.get(_KEY_FILE) else f"no credentials: {_line(exc)}"
        raise PermissionError(errno.EACCES, reason) from None
    except (OSError, ValueError, auth.exceptions.GoogleAuthError) as exc:
        raise PermissionError(errno.EACCES, f"no credentials: {_line(exc)}") from None
    return found


def _line(exc: BaseException) -> str:
    return " ".join(str(exc.args[0] if exc.args and isinstance(exc.args[0], str) else exc).split())


def _fetched(options: GCSOptions) -> Token:
    """Return a token that is valid for some time; a new one, unless another bucket's requests have just got one."""
    auth, found = google_auth(), credentials_of(options)
    import requests  # which google-auth needs

    try:
        if not found.token or _end_of(found) - time.time() <= EARLY:
            with requests.Session() as session:
                found.refresh(auth.transport.requests.Request(session))
    except auth.exceptions.TransportError as exc:
        reason = f"no token: the provider of credentials can't be reached: {_line(exc)}"
        raise ConnectionError(errno.ECONNABORTED, reason) from None
    except auth.exceptions.GoogleAuthError as exc:
        advice = "renew the login or the key"
        raise PermissionError(errno.EACCES, f"no token: {_line(exc)}; {advice}") from None
    return Token(found.token, _end_of(found))


def _end_of(credentials: Any) -> float:
    expiry = credentials.expiry
    return expiry.replace(tzinfo=UTC).timestamp() if expiry is not None else float("inf")


class GCSAccess(TokenAccess):
    """The access to a bucket by the credentials of `options`."""

    def __init__(self, endpoint: Endpoint, options: GCSOptions) -> None:
        self._options = options
        fetch: Callable[[], Token] | None = functools.partial(_fetched, options)
        if options.access_token is not None:
            fetch = functools.partial(Token, options.access_token)
        elif options.anonymous:
            fetch = None
        project = options.project_billed
        super().__init__(endpoint, fetch, (f"x-goog-user-project:{project}",) if project else ())

    def renewed(self) -> Access | None:
        """Fetch a token by credentials that are found anew: those of a file may be newer."""
        if self._options.anonymous or self._options.access_token is not None:
            return None
        _loaded.cache_clear()
        found = GCSAccess(self.endpoint, self._options)
        return found if found.has_other_token_than(self) else None


def principal(options: GCSOptions) -> str:
    """Return whom requests are made as, with no secret in it."""
    if options.anonymous:
        return ""
    if options.access_token is not None:
        return identity.digest_of_secret(options.access_token.encode())
    found = credentials_of(options)
    email = getattr(found, "service_account_email", None) or getattr(found, "account", None)
    if email and email != "default":
        return str(email)
    secret = getattr(found, "refresh_token", None)
    return identity.digest_of_secret(secret.encode()) if secret else f"{type(found).__module__} {email or ''}"


def source(options: GCSOptions) -> str:
    """Return where credentials come from, for people."""
    if options.anonymous:
        return "none: anonymous=True, or an emulator"
    if options.access_token is not None:
        return "option access_token"
    try:
        found = credentials_of(options)
    except PermissionError as exc:
        return f"none found: {(exc.strerror or '').removeprefix('no credentials: ')}"
    kind = type(found).__module__.rpartition(".")[2].replace("_", " ")
    if options.credentials is not None:
        where = "option credentials"
    elif os.environ.get(_KEY_FILE):
        where = f"${_KEY_FILE}"
    else:
        where = "the metadata server" if "compute" in kind else "gcloud's application default"
    return f"{kind} ({where})"
