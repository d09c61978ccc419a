"""The options of an S3 FS: those that a client is made of, and those that requests about objects carry.

Each option of objects becomes a header field, here and nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import hashlib
import pickle
import re
import typing
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypedDict

from ...core import keys, redaction
from ..objects import endpoints
from ..objects.checksums import WRITTEN
from ..objects.content_types import content_type_of

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
_FIELDS = """
host content-length transfer-encoding connection expect authorization range if-match if-none-match x-amz-date
x-amz-content-sha256 x-amz-security-token x-amz-copy-source
"""
_OURS = frozenset(_FIELDS.split())
"""Header fields that `headers` can't have."""
_EVERYWHERE = frozenset({"x-amz-request-payer", "x-amz-expected-bucket-owner"}).__contains__


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
        """Pickle a session by the name of its profile."""
        if self.session is None:
            return Options, tuple(self)
        core = core_session(self.session)
        if core.profile is None or getattr(core.get_credentials(), "method", "") == "explicit":
            raise pickle.PicklingError(
                "S3: a session can't be pickled, unless it is made of a profile: give profile=, or keys, in place of "
                "session="
            )
        region = self.region or core.get_config_variable("region")
        return Options, tuple(self._replace(session=None, profile=core.profile, region=region))


class ObjectOptions(NamedTuple):
    """The options that requests about objects carry."""

    requester_pays: bool = False
    sse_customer_key: bytes | None = None
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    storage_class: str | None = None
    acl: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    checksum_algorithm: str | None = None
    tagging: str | None = None
    cache_control: str | None = None
    content_disposition: str | None = None
    content_encoding: str | None = None
    content_language: str | None = None
    expires: str | None = None
    bucket_key_enabled: bool | None = None
    object_lock_mode: str | None = None
    object_lock_retain_until: str | None = None
    object_lock_legal_hold: str | None = None
    expected_bucket_owner: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return redaction.representation("ObjectOptions", self._asdict())

    def bucket_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests about the bucket, or that remove an object."""
        payer = ("x-amz-request-payer:requester",) if self.requester_pays else ()
        owner = (f"x-amz-expected-bucket-owner:{self.expected_bucket_owner}",) if self.expected_bucket_owner else ()
        return (*payer, *owner, *self._given(_EVERYWHERE))

    def read_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests that read an object, or write a part of it."""
        return (*self.bucket_headers(), *self._customer_headers("x-amz-"))

    def _customer_headers(self, prefix: str) -> tuple[str, ...]:
        key = self.sse_customer_key
        if key is None:
            return ()
        prefix += "server-side-encryption-customer-"
        return (f"{prefix}algorithm:AES256", f"{prefix}key:{_base64(key)}", f"{prefix}key-md5:{_md5(key)}")

    def write_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests that make an object, but its content type."""
        written = (*_COPIED_TOO.items(), *_WRITTEN.items())
        metadata = (f"x-amz-meta-{name}:{value}" for name, value in self.metadata)
        return (*self.read_headers(), *self._header_fields(written), *metadata, *self._given(_is_of_writes))

    def copy_headers(self) -> tuple[str, ...]:
        """Return the header fields of a copy by the store: metadata, tags and types are those of the original."""
        customer = self._customer_headers("x-amz-copy-source-")
        return (*self.read_headers(), *customer, *self._header_fields(_COPIED_TOO.items()), *self._given(_is_of_copies))

    def _header_fields(self, names: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        values = ((header, getattr(self, option)) for option, header in names)
        return tuple(f"{header}:{_text(value)}" for header, value in values if value is not None)

    def _given(self, chosen: Callable[[str], bool]) -> tuple[str, ...]:
        return tuple(f"{name}:{value}" for name, value in self.headers if chosen(name))

    def type_headers(self, key: str) -> tuple[str, ...]:
        """Return the header field of an object's content type; none where the store chooses it."""
        found = content_type_of(key, self.content_type)
        return (f"content-type:{found}",) if found is not None else ()

    def key_digest(self) -> str:
        """Return digits that stand for the customer's key: who does not have it can't read what it encrypts."""
        key = self.sse_customer_key
        return hashlib.blake2b(key, digest_size=8, person=b"fsabs-sse-c").hexdigest() if key is not None else ""


def _is_of_copies(name: str) -> bool:
    copied = name.startswith(("x-amz-copy-source-", "x-amz-grant-")) or name in _COPIED_TOO.values()
    return copied or name.endswith("-directive")


def _is_of_writes(name: str) -> bool:
    return not (_EVERYWHERE(name) or name.startswith("x-amz-copy-source-") or name.endswith("-directive"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def known() -> dict[str, Any]:
    """Return the names of the options, with their types."""
    return typing.get_type_hints(S3Options)


def parse(options: S3Options) -> tuple[Options, ObjectOptions, dict[str, str]]:
    """Return the options of a client, those of objects, and the queries of the objects that are read in one version.

    Raises `TypeError` for an unknown option, and `ValueError` for one that can't be.
    """
    for name in options:
        if name not in known():
            near = difflib.get_close_matches(name, known(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(sorted(known()))}"
            raise TypeError(f"S3 has no option {name!r}{hint}")
    given: dict[str, Any] = dict(options)
    versions = {
        keys.normalize(key): version_query(version) for key, version in (given.pop("versions", None) or {}).items()
    }
    _check_session(given)
    client = {name: given[name] for name in Options._fields if given.get(name) is not None}
    objects = {name: given[name] for name in ObjectOptions._fields if given.get(name) is not None}
    if "proxies" in client:
        client["proxies"] = tuple(sorted(client["proxies"].items()))
    if isinstance(client.get("client_certificate"), list):
        client["client_certificate"] = tuple(client["client_certificate"])
    if "metadata" in objects:
        objects["metadata"] = tuple(sorted((name.lower(), value) for name, value in objects["metadata"].items()))
    if "headers" in objects:
        objects["headers"] = tuple(sorted((name.lower(), value) for name, value in objects["headers"].items()))
    if isinstance(objects.get("tagging"), Mapping):
        objects["tagging"] = urllib.parse.urlencode(sorted(objects["tagging"].items()), quote_via=urllib.parse.quote)
    if "sse_customer_key" in objects:
        objects["sse_customer_key"] = customer_key(objects["sse_customer_key"])
    if client.get("max_attempts", 1) < 1:
        raise ValueError(f"max_attempts is at least 1, not {client['max_attempts']}")
    return Options(**client), _checked(ObjectOptions(**objects)), versions


def _check_session(given: dict[str, Any]) -> None:
    if given.get("session") is None:
        return
    core_session(given["session"])
    both = [name for name in ("aws_access_key_id", "aws_secret_access_key", "profile") if given.get(name) is not None]
    if both:
        raise ValueError(f"session= has credentials of its own: it goes without {both[0]}=")


def _checked(options: ObjectOptions) -> ObjectOptions:
    if options.sse_customer_key is not None and options.server_side_encryption is not None:
        raise ValueError("sse_customer_key encrypts by a key of yours: it goes without server_side_encryption")
    if options.sse_kms_key_id is not None and not (options.server_side_encryption or "").startswith("aws:kms"):
        raise ValueError("sse_kms_key_id needs server_side_encryption='aws:kms' (or 'aws:kms:dsse')")
    if options.checksum_algorithm is not None and options.checksum_algorithm not in WRITTEN:
        raise ValueError(f"checksum_algorithm is one of {', '.join(WRITTEN)}, not {options.checksum_algorithm!r}")
    for name, value in options.metadata:
        if not _TOKEN(name) or name == MARK:
            raise ValueError(f"{name!r} can't be a name of metadata")
        if not _VALUE(value) or value != value.strip():
            raise ValueError(f"metadata {name!r} is not printable ASCII without spaces around it")
    for name, value in options.headers:
        if not _TOKEN(name) or name in _OURS or not _VALUE(value) or value != value.strip():
            raise ValueError(f"headers can't have {name!r}, or not with this value")
    for name in ("content_type", "expected_bucket_owner", *_COPIED_TOO, *_WRITTEN):
        value = getattr(options, name)
        if isinstance(value, bool):
            continue
        if value is not None and not (value and _VALUE(value)):
            raise ValueError(f"{name} is printable ASCII, not {redaction.shown(name, value)!r}")
    return options


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


def version_of(query: str) -> str:
    """Return the version that a query of `version_query` names."""
    return urllib.parse.unquote(query.partition("=")[2])


def environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that a client depends on."""
    return endpoints.environment("AWS_", "S3_", "BOTO")


def core_session(session: Any) -> Any:
    """Return the session of botocore behind one of boto3's; `TypeError` for what is neither."""
    found = getattr(session, "_session", session)
    if not (hasattr(found, "get_component") and hasattr(found, "get_credentials")):
        raise TypeError(f"session= is a boto3.Session or a botocore session, not {type(session).__name__}")
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _md5(data: bytes) -> str:
    return _base64(hashlib.md5(data, usedforsecurity=False).digest())
