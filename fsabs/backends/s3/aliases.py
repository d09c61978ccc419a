"""Options by the names that scripts for other libraries give them: those of s3fs, and of boto3 in its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLIENT = {  # of boto3's client
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "verify": "verify",
}
_S3FS = _CLIENT | {
    "anon": "anonymous",
    "key": "aws_access_key_id",
    "username": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "password": "aws_secret_access_key",
    "token": "aws_session_token",
}
_WRITTEN = {  # with each object
    "ServerSideEncryption": "server_side_encryption",
    "SSEKMSKeyId": "sse_kms_key_id",
    "StorageClass": "storage_class",
    "ACL": "acl",
    "ContentType": "content_type",
    "Metadata": "metadata",
}
_CONFIG = {"connect_timeout": "connect_timeout", "read_timeout": "read_timeout", "proxies": "proxies"}
_TUNING = frozenset(  # change no result
    (
        *(
            "cache_regions",
            "cache_type",
            "default_block_size",
            "default_cache_type",
            "default_fill_cache",
            "fill_cache",
        ),
        *("fixed_upload_size", "max_concurrency", "max_pool_connections", "signature_version", "tcp_keepalive"),
        "use_ssl",
    )
)


def translated(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `S3` for those that are given, by its own names or by s3fs's.

    `TypeError` for one in s3fs's `client_kwargs`, `config_kwargs` or `s3_additional_kwargs` that has no counterpart.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "client_kwargs":
            found |= _all_of(name, value, _CLIENT)
        elif name == "s3_additional_kwargs":
            found |= _all_of(name, value, _WRITTEN)
        elif name == "config_kwargs":
            found |= _config(value)
        elif name not in _TUNING:
            found[_S3FS.get(name, name)] = value
    return found


def _config(given: Mapping[str, Any] | None) -> dict[str, Any]:
    rest, found = dict(given or {}), {}
    style = rest.pop("s3", {}).get("addressing_style")
    if style in ("path", "virtual"):
        found["path_style"] = style == "path"
    attempts = rest.pop("retries", {})
    for name in ("max_attempts", "total_max_attempts"):
        if name in attempts:
            found["max_attempts"] = attempts[name]
    return found | _all_of("config_kwargs", rest, _CONFIG)


def _all_of(argument: str, given: Mapping[str, Any] | None, names: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in (given or {}).items():
        if name in names:
            found[names[name]] = value
        elif name not in _TUNING:
            raise TypeError(f"{argument} has {name!r}, which has no counterpart; there are {', '.join(sorted(names))}")
    return found
