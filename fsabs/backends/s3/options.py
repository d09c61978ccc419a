"""The options of an S3 FS: those that a client is made of, and those that requests about objects carry.

Each option of objects becomes a header field, here and nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import pickle
import re
import typing
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from ...core import errors, keys, redaction
from ..objects import access
from ..objects.checksums import WRITTEN
from ..objects.dialect import content_type_of

MIN_PART_SIZE = 5 * 1024**2
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0
MARK = "fsabs-write"
"""The name of the metadata by which a writer knows its own object."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_VALUE = re.compile(r"[ -~]*").fullmatch
_COPIED_TOO = {
    "server_side_encryption": "x-amz-server-side-encryption",
    "sse_kms_key_id": "x-amz-server-side-encryption-aws-kms-key-id",
    "bucket_key_enabled": "x-amz-server-side-encryption-bucket-key-enabled",
    "storage_class": "x-amz-storage-class",
    "acl": "x-amz-acl",
    "object_lock_mode": "x-amz-object-lock-mode",
    "object_lock_retain_until": "x-amz-object-lock-retain-until-date",
    "object_lock_legal_hold": "x-amz-object-lock-legal-hold",
}
"""Options and header fields of new objects that a copy does not take over from its original."""
_WRITTEN = {
    "tagging": "x-amz-tagging",
    "cache_control": "cache-control",
    "content_disposition": "content-disposition",
    "content_encoding": "content-encoding",
    "content_language": "content-language",
    "expires": "expires",
}
"""Those that it takes over."""
_RESERVED = """
host content-length transfer-encoding connection expect authorization range if-match if-none-match x-amz-date
x-amz-content-sha256 x-amz-security-token x-amz-copy-source
"""
_OURS = frozenset(_RESERVED.split())
"""Header fields that `headers` can't have."""
_EVERYWHERE = ("x-amz-request-payer", "x-amz-expected-bucket-owner")
"""Header fields of `headers` that all requests have."""


class S3Options(TypedDict, total=False):
    """The keyword options of `S3`, but those of the FS itself."""

    endpoint: str | None
    aws_access_key_id: str | None
    aws_secret_access_key: str | None
    aws_session_token: str | None
    region: str | None
    profile: str | None
    session: Any
    connect_timeout: float | None
    read_timeout: float | None
    max_attempts: int | None
    anonymous: bool
    path_style: bool | None
    verify: bool | str | None
    client_certificate: str | tuple[str, str] | None
    proxies: Mapping[str, str] | None
    requester_pays: bool
    sse_customer_key: bytes | str | None
    server_side_encryption: str | None
    sse_kms_key_id: str | None
    storage_class: str | None
    acl: str | None
    metadata: Mapping[str, str] | None
    content_type: str | None
    checksum_algorithm: str | None
    tagging: Mapping[str, str] | str | None
    cache_control: str | None
    content_disposition: str | None
    content_encoding: str | None
    content_language: str | None
    expires: str | None
    bucket_key_enabled: bool | None
    object_lock_mode: str | None
    object_lock_retain_until: str | None
    object_lock_legal_hold: str | None
    expected_bucket_owner: str | None
    headers: Mapping[str, str] | None
    versions: Mapping[str, str] | None


class Options(NamedTuple):
    """The options of a client, as those of `S3`."""

    endpoint: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    aws_session_token: str | None = None
    region: str | None = None
    profile: str | None = None
    connect_timeout: float | None = None
    read_timeout: float | None = None
    max_attempts: int | None = None
    anonymous: bool = False
    path_style: bool | None = None
    verify: bool | str | None = None
    client_certificate: str | tuple[str, str] | None = None
    proxies: tuple[tuple[str, str], ...] | None = None
    session: Any = None

    def __repr__(self) -> str:
        return redaction.representation("Options", self._asdict())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a session by the name of its profile, if that alone leads another process to the same credentials."""
        if self.session is None:
            return Options, tuple(self)
        core = core_session(self.session)
        if core.profile is None or not _has_profile_credentials(core):
            raise pickle.PicklingError(
                "S3: a session can't be pickled, unless its credentials are those of a profile: give profile=, or "
                "keys, in place of session="
            )
        region = self.region or core.get_config_variable("region")
        return Options, tuple(self._replace(session=None, profile=core.profile, region=region))


class ObjectHeaders(NamedTuple):
    """The header fields of requests about objects, made of the options."""

    bucket: tuple[str, ...]
    """Of requests about the bucket, or that remove an object."""
    read: tuple[str, ...]
    """Of those that read an object, or write a part of it."""
    write: tuple[str, ...]
    """Of those that make an object, but its content type."""
    copy: tuple[str, ...]
    """Of copies by the store: metadata, tags and types are those of the original, unless a directive replaces them."""
    content_type: str | None
    key_digest: str
    """Digits that stand for the customer's key: who does not have it can't read what it encrypts."""

    def __repr__(self) -> str:
        return "ObjectHeaders(***)"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ObjectHeaders:
        """Return the header fields that options stand for. Raises `ValueError`."""
        key = customer_key(given["sse_customer_key"]) if "sse_customer_key" in given else None
        more = sorted((name.lower(), value) for name, value in given.get("headers", {}).items())
        metadata = sorted((name.lower(), value) for name, value in given.get("metadata", {}).items())
        _check(given, more, metadata)
        bucket = (
            *(("x-amz-request-payer:requester",) if given.get("requester_pays") else ()),
            *_fields(given, {"expected_bucket_owner": "x-amz-expected-bucket-owner"}),
            *(f"{name}:{value}" for name, value in more if name in _EVERYWHERE),
        )
        read = (*bucket, *_customer_headers("x-amz-", key))
        write = (
            *read,
            *_fields(given, _COPIED_TOO),
            *_fields(given, _WRITTEN),
            *(f"x-amz-meta-{name}:{value}" for name, value in metadata),
            *(f"{name}:{value}" for name, value in more if _is_of_writes(name)),
        )
        replaced = any(value == "REPLACE" for name, value in more if name.endswith("-directive"))
        copy = (
            *(write if replaced else (*read, *_fields(given, _COPIED_TOO))),
            *_customer_headers("x-amz-copy-source-", key),
            *(f"{name}:{value}" for name, value in more if _is_of_copies(name, replaced)),
        )
        digest = hashlib.blake2b(key, digest_size=8, person=b"fsabs-sse-c").hexdigest() if key is not None else ""
        return cls(bucket, read, write, copy, given.get("content_type"), digest)

    def of_type(self, key: str) -> tuple[str, ...]:
        """Return the header field of an object's content type; none where the store chooses it."""
        found = content_type_of(key, self.content_type) if self.content_type is not None else None
        return (f"content-type:{found}",) if found is not None else ()


def _customer_headers(prefix: str, key: bytes | None) -> tuple[str, ...]:
    if key is None:
        return ()
    prefix += "server-side-encryption-customer-"
    md5 = hashlib.md5(key, usedforsecurity=False).digest()
    return (
        f"{prefix}algorithm:AES256",
        f"{prefix}key:{base64.b64encode(key).decode()}",
        f"{prefix}key-md5:{base64.b64encode(md5).decode()}",
    )


def _fields(given: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, ...]:
    found = ((header, given.get(option)) for option, header in names.items())
    return tuple(f"{header}:{_text(value)}" for header, value in found if value is not None)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return urllib.parse.urlencode(sorted(value.items()), quote_via=urllib.parse.quote)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_of_copies(name: str, replaced: bool) -> bool:
    if name.startswith("x-amz-copy-source-") or name.endswith("-directive"):
        return True
    return not replaced and (name.startswith("x-amz-grant-") or name in _COPIED_TOO.values())


def _is_of_writes(name: str) -> bool:
    return not (name in _EVERYWHERE or name.startswith("x-amz-copy-source-") or name.endswith("-directive"))


def _check(given: Mapping[str, Any], headers: list[tuple[str, str]], metadata: list[tuple[str, str]]) -> None:
    """Raise `ValueError` for what no request can have."""
    if "sse_customer_key" in given and "server_side_encryption" in given:
        raise ValueError("sse_customer_key encrypts by a key of yours: it goes without server_side_encryption")
    if "sse_kms_key_id" in given and not given.get("server_side_encryption", "").startswith("aws:kms"):
        raise ValueError("sse_kms_key_id needs server_side_encryption='aws:kms' (or 'aws:kms:dsse')")
    if given.get("checksum_algorithm", WRITTEN[0]) not in WRITTEN:
        raise ValueError(f"checksum_algorithm is one of {', '.join(WRITTEN)}, not {given['checksum_algorithm']!r}")
    for name, value in metadata:
        if not _TOKEN(name) or name == MARK:
            raise ValueError(f"{name!r} can't be a name of metadata")
        if not _VALUE(value) or value != value.strip():
            raise ValueError(f"metadata {name!r} is not printable ASCII without spaces around it")
    for name, value in headers:
        if not _TOKEN(name) or name in _OURS or not _VALUE(value) or value != value.strip():
            raise ValueError(f"headers can't have {name!r}, or not with this value")
    for name in ("content_type", "expected_bucket_owner", *_COPIED_TOO, *_WRITTEN):
        if name in given and not (_text(given[name]) and _VALUE(_text(given[name]))):
            raise ValueError(f"{name} is printable ASCII, not {redaction.shown(name, given[name])!r}")


@functools.cache
def known() -> dict[str, Any]:
    """Return the names of the options, with their types."""
    return typing.get_type_hints(S3Options)


def parse(options: S3Options) -> tuple[Options, ObjectHeaders, dict[str, str]]:
    """Return the options of a client, the header fields of requests about objects, and the queries of the objects that
    are read in one version.

    Raises `TypeError` for an unknown option, and `ValueError` for one that can't be.
    """
    for name in options:
        if name not in known():
            raise TypeError(errors.unknown_option(name, known(), "S3"))
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    _check_credentials(given)
    if "proxies" in given:
        given["proxies"] = tuple(sorted(given["proxies"].items()))
    if isinstance(given.get("client_certificate"), list):
        given["client_certificate"] = tuple(given["client_certificate"])
    access.check_settings(given.get("connect_timeout"), given.get("read_timeout"), given.get("max_attempts"))
    versions = {keys.normalize(key): version_query(version) for key, version in given.get("versions", {}).items()}
    client = {name: given[name] for name in Options._fields if name in given}
    return Options(**client), ObjectHeaders.of(given), versions


def _check_credentials(given: dict[str, Any]) -> None:
    pair = [name for name in ("aws_access_key_id", "aws_secret_access_key") if given.get(name) is not None]
    if len(pair) == 1:
        raise ValueError(f"aws_access_key_id= and aws_secret_access_key= go together: only {pair[0]}= is given")
    if given.get("session") is None:
        return
    core_session(given["session"])
    both = [name for name in ("aws_access_key_id", "aws_secret_access_key", "profile") if given.get(name) is not None]
    if both:
        raise ValueError(f"session= has credentials of its own: it goes without {both[0]}=")


def customer_key(value: bytes | str) -> bytes:
    """Return the 32 bytes of a customer's key, given as they are or as their base64."""
    key = value
    if isinstance(key, str) or len(key) == 44:
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            key = b""
    if len(key) != 32:
        raise ValueError("sse_customer_key has 32 bytes (AES-256), as they are or in base64")
    return bytes(key)


def version_query(version: str) -> str:
    """Return the query of a request for one version of an object."""
    if not version:
        raise ValueError("a version id is not empty; the version of objects that were there before is 'null'")
    return f"versionId={urllib.parse.quote(version, safe='~')}"


def environment() -> access.Environment:
    """Return the variables that a client depends on."""
    return access.environment("AWS_", "S3_", "BOTO")


def core_session(session: Any) -> Any:
    """Return the session of botocore behind one of boto3's; `TypeError` for what is neither."""
    found = getattr(session, "_session", session)
    if not (hasattr(found, "get_component") and hasattr(found, "get_credentials")):
        raise TypeError(f"session= is a boto3.Session or a botocore session, not {type(session).__name__}")
    return found


def _has_profile_credentials(core: Any) -> bool:
    """Return whether a session's credentials come from where a new session of its profile finds them: $AWS_PROFILE is
    the profile also of a session that has others.
    """
    from botocore.session import Session

    found, expected = core.get_credentials(), Session(profile=core.profile).get_credentials()
    return type(found) is type(expected) and getattr(found, "method", "") == getattr(expected, "method", "")


# ---- options by the names that scripts for other libraries give them: those of s3fs, and of boto3 in its arguments

_BOTO3 = {  # of boto3's client
    "endpoint_url": "endpoint",
    "region_name": "region",
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "verify": "verify",
}
_S3FS = _BOTO3 | {
    "anon": "anonymous",
    "key": "aws_access_key_id",
    "username": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "password": "aws_secret_access_key",
    "token": "aws_session_token",
}
_BOTO3_WRITTEN = {  # with each object
    "ServerSideEncryption": "server_side_encryption",
    "SSEKMSKeyId": "sse_kms_key_id",
    "StorageClass": "storage_class",
    "ACL": "acl",
    "ContentType": "content_type",
    "Metadata": "metadata",
}
_BOTO3_CONFIG = {"connect_timeout": "connect_timeout", "read_timeout": "read_timeout", "proxies": "proxies"}
_TUNING = frozenset(
    {"cache_regions", "fixed_upload_size", "max_pool_connections", "signature_version", "tcp_keepalive", "use_ssl"}
)
"""Those of s3fs and boto3 that change no result."""


def of_s3fs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `S3` for those that are given, by its own names or by s3fs's.

    `TypeError` for one in s3fs's `client_kwargs`, `config_kwargs` or `s3_additional_kwargs` that has no counterpart.
    """
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "client_kwargs":
            found |= _named(name, value, _BOTO3)
        elif name == "s3_additional_kwargs":
            found |= _named(name, value, _BOTO3_WRITTEN)
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
    return found | _named("config_kwargs", rest, _BOTO3_CONFIG)


def _named(argument: str, given: Mapping[str, Any] | None, names: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in (given or {}).items():
        if name in names:
            found[names[name]] = value
        elif name not in _TUNING:
            raise TypeError(f"{argument} has {name!r}, which has no counterpart; there are {', '.join(sorted(names))}")
    return found
