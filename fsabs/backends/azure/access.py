"""How a process reaches a container on Azure: the options, the account that they lead to, and the access by tokens that
azure-identity fetches, by signatures with the account's key, by a shared access signature, or by nothing.
"""

from __future__ import annotations

import base64
import binascii
import errno
import functools
import hmac
import os
import re
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core import errors, identity, process, redaction
from ...core.errors import ConfigError
from ..objects import access
from ..objects.access import ANONYMOUS, Access, ConnectionOptions, Endpoint, Token, TokenAccess
from ..objects.messages import Body, header_lines

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_KEY = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT")
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""That of every emulator, as its documents have it."""
_EMULATOR = {
    "AccountName": "devstoreaccount1",
    "AccountKey": _EMULATOR_KEY,
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
_CLOUDS = (
    ".core.windows.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".storage.azure.net",
    ".fabric.microsoft.com",
)
"""Ends of the names of Azure's hosts. Any other one that a URL names would be sent the user's credentials."""
_is_signature = re.compile("[!-~]+").fullmatch
_is_account = re.compile("[a-z0-9]{3,24}(?:-secondary)?").fullmatch
_ADLFS = {"anon": "anonymous", "credential": "credential", "connection_timeout": "connect_timeout"}
_TUNING = frozenset({"assume_container_exists", "request_session", "socket_timeout", "location_mode"})
"""adlfs's options that change no result."""


class AzureOptions(NamedTuple):
    """The options of a container, as those of `Azure`."""

    account_name: str | None = None
    endpoint: str | None = None
    connection_string: str | None = None
    account_key: str | None = None
    sas_token: str | None = None
    credential: Any = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    anonymous: bool = False
    access_tier: str | None = None
    content_type: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    connection: ConnectionOptions = ConnectionOptions()

    def __repr__(self) -> str:
        return redaction.representation("AzureOptions", self._asdict())


class Account(NamedTuple):
    """The account that a container is in, and by what it is reached."""

    name: str
    url: str
    """Of its blob service."""
    key: str | None = None
    sas: str | None = None
    source: str = ""
    """Where the key or the SAS comes from."""
    origin: str = ""
    """Where the URL comes from."""

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.url!r})"


def environment() -> access.Environment:
    """Return the variables that a client depends on."""
    return access.environment("AZURE_", "MSI_", "IDENTITY_")


def account_of(host: str, options: AzureOptions) -> Account:
    """Return the account of `host`, which a URL names or not, with options and environment.

    Raises `ConfigError` where they name none, or two.
    """
    named_account = host.partition(".")[0] or options.account_name
    text, source = options.connection_string, "option connection_string"
    if text is None and not options.endpoint:
        text, source = os.environ.get(CONNECTION_STRING, ""), f"${CONNECTION_STRING}"
        if named_account and f";AccountName={named_account};" not in f";{text};":
            text = ""
    fields = _fields(text, source) if text else {}
    mine, named = _first(_ACCOUNT), {named_account, options.account_name, fields.get("AccountName")} - {None}
    if len(named) > 1:
        raise ConfigError(f"two accounts are named: {' and '.join(sorted(map(str, named)))}")
    url, suffix = options.endpoint or fields.get("BlobEndpoint") or "", fields.get("EndpointSuffix", "core.windows.net")
    origin = "option endpoint" if options.endpoint else source if url else "the account's name"
    name = next(iter(named)) if named else "" if url else mine
    if not url and "." in host:
        if not host.partition(":")[0].lower().endswith((*_CLOUDS, f".{suffix}")):
            reason = f"credentials are sent to Azure's hosts, and {host!r} is none: to trust it, give endpoint="
            raise ConfigError(reason)
        url = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    elif not url and name == mine and (url := _first(_ENDPOINT)):
        origin = "environment"
    if not (name or url):
        raise ConfigError(
            "no account: give account_name=, set AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING, or "
            "open abfss://container@account.dfs.core.windows.net/path"
        )
    if not url:
        if not _is_account(name or ""):
            raise ConfigError(f"{name!r} is no name of an account: 3 to 24 small letters and digits")
        url = f"{fields.get('DefaultEndpointsProtocol', 'https')}://{name}.blob.{suffix}"
    url = access.checked_url(url)
    name = name or _name_in(url)
    key, sas = options.account_key, options.sas_token
    if key or sas:
        source = "option account_key" if key else "option sas_token"
    elif not (options.credential or options.client_secret or options.anonymous):
        key, sas = fields.get("AccountKey"), fields.get("SharedAccessSignature")
        if not (key or sas) and (not mine or mine == name):
            key, sas, source = _first(_KEY), _first(_SAS), "environment"
    sas = (sas or "").strip().lstrip("?")
    if sas and not _is_signature(sas):
        raise ConfigError(f"the shared access signature ({source}) has a character that no query has")
    return Account(name, url, key or None, sas or None, source, origin)


def _first(variables: tuple[str, ...]) -> str:
    return next(filter(None, map(os.environ.get, variables)), "")


def _name_in(url: str) -> str:
    """Return the account in a URL: of an emulator, or behind an address, it is the first segment of the path."""
    parts = urllib.parse.urlsplit(url)
    return parts.path.strip("/").partition("/")[0] or (parts.hostname or "").partition(".")[0]


def _fields(text: str, source: str) -> dict[str, str]:
    """Return the fields of a connection string."""
    found = dict(field.strip().partition("=")[::2] for field in text.split(";") if field.strip())
    if found.get("UseDevelopmentStorage", "").lower() == "true":
        return {**_EMULATOR, **found}
    if not ("AccountName" in found or "BlobEndpoint" in found):
        raise ConfigError(f"the connection string ({source}) has neither AccountName= nor BlobEndpoint=")
    return found


def of_adlfs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Azure` for those that are given, by its own names or by adlfs's."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "account_host":
            found["endpoint"] = f"https://{value}"
        elif name not in _TUNING and value is not None:
            found[_ADLFS.get(name, name)] = value
    return found


# ---- access

SCOPE = "https://storage.azure.com/.default"
NONE_FOUND = (
    "no credentials: run `az login`, give account_key=, sas_token= or credential=, or set AZURE_CLIENT_ID, "
    f"AZURE_TENANT_ID and AZURE_CLIENT_SECRET; for a public container: {ANONYMOUS}"
)
_SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
"""The header fields in the text that is signed, in their order."""


def azure_identity() -> Any:
    """Import and return what fetches tokens."""
    try:
        import azure.identity
    except ImportError:
        purpose = f"az:// without a key or a shared access signature (a public container needs none: {ANONYMOUS})"
        raise errors.missing("azure-identity", "azure", purpose) from None
    return azure.identity


def credential_of(options: AzureOptions) -> Any:
    """Return the credential that options and environment lead to. A process makes its own: they hold connections."""
    if options.credential is not None:
        return options.credential
    return _made(process.generation(), options, environment())


@functools.lru_cache(maxsize=64)
def _made(generation: int, options: AzureOptions, settings: access.Environment) -> Any:
    library = azure_identity()
    if options.client_secret is not None:
        return library.ClientSecretCredential(options.tenant_id, options.client_id, options.client_secret)
    return library.DefaultAzureCredential(managed_identity_client_id=options.client_id)


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
        _made.cache_clear()
        found = IdentityAccess(self.endpoint, self._options)
        return found if found.has_other_token_than(self) else None


class PublicAccess(TokenAccess):
    """The access without a token, or by a shared access signature, which ends the query of each request.

    The credentials that `otherwise` leads to come into play if it is refused.
    """

    def __init__(self, endpoint: Endpoint, signature: str = "", otherwise: AzureOptions | None = None) -> None:
        super().__init__(endpoint, None)
        self.query = signature
        self._otherwise = otherwise

    def renewed(self) -> Access | None:
        """Use what credentials there are."""
        return IdentityAccess(self.endpoint, self._otherwise) if self._otherwise is not None else None


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
        with process.forks_deferred:
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
        return PublicAccess(endpoint, account.sas)
    if public and options.credential is None and options.client_secret is None:
        return PublicAccess(endpoint, otherwise=options)
    return IdentityAccess(endpoint, options)


def identity_of(account: Account, options: AzureOptions) -> tuple[str, str]:
    """Return whom requests are made as, with no secret in it, and where credentials come from, for people."""
    if options.anonymous:
        return "", "none: anonymous=True"
    if account.key is not None:
        return f"key {account.name}", f"account key ({account.source})"
    if account.sas is not None:
        return identity.digest_of_secret(account.sas.encode()), f"shared access signature ({account.source})"
    if options.credential is not None:
        kind = type(options.credential)
        return f"credential {kind.__qualname__} {options.client_id or ''}", f"{kind.__name__} (option credential)"
    source = "azure-identity: environment, workload or managed identity, Azure CLI"
    if options.client_secret is not None:
        source = f"client {options.client_id} (option client_secret)"
    return identity.digest_of_secret(repr((options.tenant_id, options.client_id, environment())).encode()), source
