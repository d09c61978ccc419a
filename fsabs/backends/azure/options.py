"""The options of a container on Azure, and the account that they lead to."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core import redaction
from ...core.errors import ConfigError
from ..objects import endpoints
from ..objects.endpoints import ConnectionOptions

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
_is_account = re.compile("[a-z0-9]{3,24}(?:-secondary)?").fullmatch
_ADLFS = {"anon": "anonymous", "credential": "credential", "connection_timeout": "connect_timeout"}
_TUNING = frozenset(
    {
        *("blocksize", "block_size", "default_cache_type", "default_fill_cache", "max_concurrency", "version_aware"),
        *("assume_container_exists", "request_session", "socket_timeout", "location_mode", "cache_type"),
    }
)
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

    @property
    def directories_url(self) -> str:
        """The URL of the service that knows directories, of an account that has them."""
        return self.url.replace(".blob.", ".dfs.", 1)


def environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that a client depends on."""
    return endpoints.environment("AZURE_", "MSI_", "IDENTITY_")


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
    url = options.endpoint or fields.get("BlobEndpoint") or ""
    origin = "option endpoint" if options.endpoint else source if url else "the account's name"
    name = next(iter(named)) if named else "" if url else mine
    if not url and "." in host:
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
        suffix = fields.get("EndpointSuffix", "core.windows.net")
        url = f"{fields.get('DefaultEndpointsProtocol', 'https')}://{name}.blob.{suffix}"
    url = endpoints.checked_url(url)
    name = name or _name_in(url)
    key, sas = options.account_key, options.sas_token
    if key or sas:
        source = "option account_key" if key else "option sas_token"
    elif not (options.credential or options.client_secret or options.anonymous):
        key, sas = fields.get("AccountKey"), fields.get("SharedAccessSignature")
        if not (key or sas) and (not mine or mine == name):
            key, sas, source = _first(_KEY), _first(_SAS), "environment"
    return Account(name, url, key or None, sas.lstrip("?") if sas else None, source, origin)


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
