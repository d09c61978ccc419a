"""The credentials of a bucket on Google Cloud Storage: google-auth finds and renews them.

A process fetches tokens for itself. What google-auth has found is kept for the options and the environment that it was
found by; a forked child goes on with it, since it holds no connection.
"""

from __future__ import annotations

import errno
import functools
import os
import time
from collections.abc import Callable, Hashable
from datetime import UTC
from typing import Any

from ...core import errors, identity
from ..objects.dialect import Access, Endpoint
from ..objects.tokens import EARLY, Token, TokenAccess
from .options import GCSOptions, environment

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_LIFETIME = 3600
MAX_FOUND = 64
_found: dict[Hashable, Any] = {}
NONE_FOUND = (
    "no credentials: run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a key file, or "
    "give credentials=; anonymous=True for a public bucket"
)


def load() -> None:
    """Import what fetches tokens: a child that is forked in the middle of an import can't import it any more."""
    _google_auth()


def _google_auth() -> Any:
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        raise errors.missing("google-auth", "gcs", "gs:// (a public bucket needs none: anonymous=True)") from None
    return google.auth


def credentials_of(options: GCSOptions) -> Any:
    """Return the credentials that options and environment lead to, as google-auth has them. Raises `OSError`."""
    name = (options, environment())
    if name not in _found:
        if len(_found) >= MAX_FOUND:
            _found.clear()
        _found[name] = _loaded(options)
    return _found[name]


def _loaded(options: GCSOptions) -> Any:
    auth = _google_auth()
    given = options.credentials
    try:
        if given is None:
            found, _ = auth.default(scopes=SCOPES)
        elif isinstance(given, str | os.PathLike):
            found, _ = auth.load_credentials_from_file(os.path.expanduser(given), scopes=SCOPES)
        elif isinstance(given, tuple):
            found, _ = auth.load_credentials_from_dict(dict(given), scopes=SCOPES)
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
    auth, found = _google_auth(), credentials_of(options)
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
        _found.pop((self._options, environment()), None)
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
