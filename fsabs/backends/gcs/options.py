"""The options of a bucket on Google Cloud Storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core import redaction
from ..objects import endpoints
from ..objects.endpoints import ConnectionOptions

PUBLIC = "https://storage.googleapis.com"
EMULATOR = "STORAGE_EMULATOR_HOST"
_GCSFS = {
    "endpoint_url": "endpoint",
    "project": "",
    "access": "",
    "consistency": "",
    "check_connection": "",
    "default_location": "",
    "session_kwargs": "",
    "timeout": "read_timeout",
    "secure_serialize": "",
    "block_size": "",
    "cache_timeout": "",
    "version_aware": "",
    "experimental_zb_hns_support": "",
}
"""gcsfs's names of options, and ours; empty for what changes no result."""


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


def environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that a client depends on."""
    return endpoints.environment("GOOGLE_", "CLOUDSDK_", "GCE_", "NO_GCE_", EMULATOR)


def url_of(endpoint: str | None) -> tuple[str, bool]:
    """Return the URL of the store, and whether it is an emulator of the environment's, which takes no credentials."""
    if endpoint is not None:
        return endpoints.checked_url(endpoint), False
    emulator = os.environ.get(EMULATOR, "")
    if not emulator:
        return PUBLIC, False
    return endpoints.checked_url(emulator if "://" in emulator else f"http://{emulator}"), True


def of_gcsfs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `GCS` for those that are given, by its own names or by gcsfs's."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "token" and (value in ("anon", "google_default", "cloud", "cache", "browser") or value is None):
            if value == "anon":
                found["anonymous"] = True
        elif name == "token":  # a key file, its content, or an object
            found["credentials"] = value
        elif ours := _GCSFS.get(name, name):
            found[ours] = value
    return found
