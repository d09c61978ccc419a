"""How a process reaches a container: by tokens that azure-identity fetches, by signatures with the account's key, by a
shared access signature, or by nothing.
"""

from __future__ import annotations

import base64
import binascii
import errno
import functools
import hmac
import time
import urllib.parse
from collections.abc import Hashable
from typing import Any

from ...core import errors, identity, process
from ..objects.dialect import Access, Endpoint, header_lines
from ..objects.messages import Body
from ..objects.tokens import Token, TokenAccess
from .options import Account, AzureOptions, environment

SCOPE = "https://storage.azure.com/.default"
NONE_FOUND = (
    "no credentials: run `az login`, give account_key=, sas_token= or credential=, or set AZURE_CLIENT_ID, "
    "AZURE_TENANT_ID and AZURE_CLIENT_SECRET; anonymous=True for a public container"
)
_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
"""The header fields in the text that is signed, in their order."""
_found: dict[Hashable, Any] = {}
MAX_FOUND = 64


def load() -> None:
    """Import what fetches tokens: a child that is forked in the middle of an import can't import it any more."""
    _azure_identity()


def _azure_identity() -> Any:
    try:
        import azure.identity
    except ImportError:
        purpose = "az:// without a key or a shared access signature (a public container needs none: anonymous=True)"
        raise errors.missing("azure-identity", "azure", purpose) from None
    return azure.identity


def credential_of(options: AzureOptions) -> Any:
    """Return the credential that options and environment lead to. A process makes its own: they hold connections."""
    if options.credential is not None:
        return options.credential
    name = (process.generation(), options, environment())
    if name not in _found:
        if len(_found) >= MAX_FOUND:
            _found.clear()
        library = _azure_identity()
        if options.client_secret is not None:
            _found[name] = library.ClientSecretCredential(options.tenant_id, options.client_id, options.client_secret)
        else:
            _found[name] = library.DefaultAzureCredential(managed_identity_client_id=options.client_id)
    return _found[name]


def _fetched(options: AzureOptions) -> Token:
    """Return a token."""
    credential = credential_of(options)
    from azure.core import exceptions

    try:
        found = credential.get_token(SCOPE)
    except exceptions.AzureError as exc:
        reason = f"no token: {' '.join(str(exc.message).split())}"
        away = isinstance(exc.__cause__, exceptions.ServiceRequestError | exceptions.ServiceResponseError)
        if away or not isinstance(exc, exceptions.ClientAuthenticationError):
            raise ConnectionError(errno.ECONNABORTED, reason) from None
        unknown = options.credential is None and options.client_secret is None
        raise PermissionError(errno.EACCES, NONE_FOUND if unknown else reason) from None
    return Token(found.token, float(found.expires_on))


class IdentityAccess(TokenAccess):
    """The access by tokens of a credential."""

    def __init__(self, endpoint: Endpoint, options: AzureOptions) -> None:
        super().__init__(endpoint, functools.partial(_fetched, options))
        self._options = options

    def renewed(self) -> Access | None:
        """Fetch a token anew."""
        _found.pop((process.generation(), self._options, environment()), None)
        found = IdentityAccess(self.endpoint, self._options)
        return found if found.has_other_token_than(self) else None


class PublicAccess(Access):
    """The access without credentials; those that can be found come into play if it is refused."""

    def __init__(self, endpoint: Endpoint, otherwise: AzureOptions | None = None) -> None:
        self.endpoint = endpoint
        self._otherwise = otherwise

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines as they are."""
        return header_lines(headers)

    def renewed(self) -> Access | None:
        """Use what credentials there are."""
        return IdentityAccess(self.endpoint, self._otherwise) if self._otherwise is not None else None


class SignatureAccess(PublicAccess):
    """The access by a shared access signature, which ends the query of each request."""

    def __init__(self, endpoint: Endpoint, signature: str) -> None:
        super().__init__(endpoint)
        self.query = signature


class KeyAccess(Access):
    """The access by the account's key (learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key)."""

    authorises_ranges = True

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        self.endpoint = endpoint
        self._account = account.name
        try:
            self._key = base64.b64decode(account.key or "", validate=True)
        except (binascii.Error, ValueError):
            raise PermissionError(errno.EACCES, f"the account key ({account.source}) is not base64") from None
        self._date = (0, "")

    def authorise(self, method: str, path: str, query: str, headers: tuple[str, ...], body: Body) -> str:
        """Return the header lines of a request, with its signature."""
        now = int(time.time())
        if self._date[0] != now:
            self._date = now, time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
        headers = (*headers, f"x-ms-date:{self._date[1]}")
        fields = dict([header.split(":", 1) for header in headers])
        if body:
            fields["content-length"] = str(len(body))
        own = sorted([f"{name}:{value}\n" for name, value in fields.items() if name.startswith("x-ms-")])
        standard = "\n".join([fields.get(name, "") for name in _SIGNED])
        text = f"{method}\n{standard}\n{''.join(own)}/{self._account}{path}{_canonical(query)}"
        signature = base64.b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode()
        return f"{header_lines(headers)}authorization:SharedKey {self._account}:{signature}\r\n"


def _canonical(query: str) -> str:
    """Return the parameters of a query as they are signed."""
    pairs = [field.partition("=")[::2] for field in query.split("&")] if query else []
    return "".join(sorted([f"\n{name.lower()}:{urllib.parse.unquote(value)}" for name, value in pairs]))


def access_of(endpoint: Endpoint, account: Account, options: AzureOptions, public: bool) -> Access:
    """Return this process's access; with `public`, nothing is sent before the store has refused a request without."""
    if options.anonymous:
        return PublicAccess(endpoint)
    if account.key is not None:
        return KeyAccess(endpoint, account)
    if account.sas is not None:
        return SignatureAccess(endpoint, account.sas)
    if public and options.credential is None and options.client_secret is None:
        return PublicAccess(endpoint, options)
    return IdentityAccess(endpoint, options)


def principal(account: Account, options: AzureOptions) -> str:
    """Return whom requests are made as, with no secret in it."""
    if options.anonymous:
        return ""
    if account.key is not None:
        return f"key {account.name}"
    if account.sas is not None:
        return identity.digest_of_secret(account.sas.encode())
    if options.credential is not None:
        return f"credential {type(options.credential).__qualname__} {options.client_id or ''}"
    return identity.digest_of_secret(repr((options.tenant_id, options.client_id, environment())).encode())


def source(account: Account, options: AzureOptions) -> str:
    """Return where credentials come from, for people."""
    if options.anonymous:
        return "none: anonymous=True"
    if account.key is not None:
        return f"account key ({account.source})"
    if account.sas is not None:
        return f"shared access signature ({account.source})"
    if options.credential is not None:
        return f"{type(options.credential).__name__} (option credential)"
    if options.client_secret is not None:
        return f"client {options.client_id} (option client_secret)"
    return "azure-identity: environment, workload or managed identity, Azure CLI"
