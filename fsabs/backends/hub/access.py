"""How a process reaches the hub: its endpoint, and the user's token."""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import urllib.parse
from typing import NamedTuple

from ...core import errors, identity, redaction
from ..objects import access
from ..objects.access import Access, ConnectionOptions, Endpoint, Token, TokenAccess, endpoint_at

ENDPOINT = "https://huggingface.co"
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_TRUE = ("1", "ON", "YES", "TRUE")
_is_token = re.compile("[!-~]+").fullmatch


class HubOptions(NamedTuple):
    """The options of a client, as those of `Hub`."""

    url: str
    """The endpoint, `https://host[/path]`."""
    token: str | bool | None = None
    connection: ConnectionOptions = ConnectionOptions()

    def __repr__(self) -> str:
        return redaction.representation("HubOptions", self._asdict())

    @property
    def origin(self) -> str:
        """Scheme and host of the endpoint."""
        return self.url[: len(self.url) - len(self.path)]

    @property
    def path(self) -> str:
        """The path of the endpoint, which most have not."""
        return urllib.parse.urlsplit(self.url).path


class HubAccess(TokenAccess):
    """The access to the hub with `options`."""

    def __init__(self, options: HubOptions) -> None:
        if is_offline():
            raise ConnectionError(
                errno.ENETUNREACH, "HF_HUB_OFFLINE is set: nothing is requested, and no cache has this"
            )
        self._options = options
        token = token_of(options.token)
        endpoint = endpoint_at(options.url, "/", options.connection)
        super().__init__(endpoint, functools.partial(Token, token) if token else None)

    def renewed(self) -> Access | None:
        """Look for the token again: the file that it is in may have another one."""
        found = HubAccess(self._options)
        return found if found.has_other_token_than(self) else None

    def elsewhere(self, url: str) -> Endpoint:
        """Return the endpoint of where files lie."""
        return endpoint_at(url, "/", self._options.connection)


def is_offline() -> bool:
    """Return whether nothing may be requested from the hub."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def environment() -> access.Environment:
    """Return the variables that a client depends on."""
    return access.environment("HF_", *TOKEN_VARIABLES, "TRANSFORMERS_OFFLINE")


def token_of(token: str | bool | None) -> str:
    """Return the token that requests carry: the given one, else the user's; empty if there is none, or for False.

    That of the user is `$HF_TOKEN`, else what huggingface_hub finds: the file that `hf auth login` writes, for example.
    """
    found = token if isinstance(token, str) else "" if token is False else _found_token(token)
    if found and not _is_token(found.strip()):
        raise ValueError("a token is of printable ASCII characters, without spaces")
    if token is True and not found:
        raise PermissionError(errno.EACCES, "token=True, and there is no token: hf auth login, or HF_TOKEN")
    return found.strip()


def source_of_token(token: str | bool | None) -> str:
    """Return where the token comes from, for people."""
    if isinstance(token, str):
        return "option token"
    named = next((name for name in TOKEN_VARIABLES if os.environ.get(name)), None)
    if token is False or not token_of(token):
        return "none: token=False" if token is False else "none: requests are anonymous, with the smallest quota"
    return f"${named}" if named is not None else "huggingface_hub (hf auth login)"


def _found_token(token: bool | None) -> str:
    if token is None and os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in _TRUE:
        return ""
    oidc = bool(os.environ.get("HF_OIDC_RESOURCE"))
    given = next(filter(None, map(os.environ.get, TOKEN_VARIABLES)), None)
    if given is not None and not oidc:
        return given
    try:
        from huggingface_hub import constants
    except ImportError:
        if token or oidc:
            raise errors.missing("huggingface_hub", "hub", "a token that is not given") from None
        return ""  # what is public needs none
    if not (oidc or os.path.exists(constants.HF_TOKEN_PATH) or "google.colab" in sys.modules):
        return ""  # the rest of it takes as long to import as many files to read
    from huggingface_hub import get_token

    return get_token() or ""


@functools.lru_cache(maxsize=64)
def principal_of(token: str) -> str:
    """Return digits that stand for the account of a token; empty without one."""
    return identity.digest_of_secret(token.encode()) if token else ""
