"""The bucket `bucket` of a store as clients open it; for ours and obstore, of S3 or of a cloud that `cloud` names."""

from __future__ import annotations

import json
from typing import Any

from . import library

KEY = "a2V5"
"""Of the account on Azure; the servers look at none."""
_OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "s3": ("s3://bucket", {"region": "us-east-1"}),
    "gcs": ("gs://bucket", {"anonymous": True}),
    "azure": ("az://bucket", {"account_name": "account", "account_key": KEY}),
}


def ours(endpoint: str, cloud: str = "s3", path: str = "") -> Any:
    """An FS of this library: of the bucket, or of what is at a path in it."""
    url, options = _OURS[cloud]
    return library("fsabs").from_url(url + path, endpoint=endpoint, **options)


def boto3(endpoint: str) -> Any:
    """A client of boto3."""
    return library("boto3").client("s3", endpoint_url=endpoint)


def pyarrow(endpoint: str) -> Any:
    """A filesystem of Arrow's."""
    scheme, _, host = endpoint.partition("://")
    return library("pyarrow.fs").S3FileSystem(endpoint_override=host, scheme=scheme, region="us-east-1")


def obstore(endpoint: str, cloud: str = "s3") -> Any:
    """A store of Rust's object_store.

    It looks for authorities only in its own list: for TLS it is told not to check.
    """
    stores, plain = library("obstore.store"), endpoint.startswith("http:")
    client = {"allow_http": True} if plain else {"allow_invalid_certificates": True}
    if cloud == "gcs":
        fields = {"gcs_base_url": endpoint, "disable_oauth": True}
        key = json.dumps({**fields, "client_email": "", "private_key": "", "private_key_id": ""})
        return stores.GCSStore("bucket", service_account_key=key, client_options=client)
    if cloud == "azure":
        account = {"account_name": "account", "account_key": KEY}
        return stores.AzureStore("bucket", endpoint=endpoint, client_options=client, **account)
    return stores.S3Store("bucket", endpoint=endpoint, region="us-east-1", client_options=client)
