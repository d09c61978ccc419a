"""The options of an S3 FS: those that a client is made of, and those that requests about objects carry.

Each option becomes a header field, or a query, of our own requests and a parameter of boto3's: the two forms stand next
to each other here, and nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import hashlib
import mimetypes
import os
import pickle
import re
import typing
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from ... import keys
from .checksums import WRITTEN

MIN_PART_SIZE = 5 * 1024**2
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0
AUTO = "auto"
"""The content type that is guessed by an object's name."""
MARK = "fsabs-write"
"""The name of the metadata by which a writer knows its own object."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_VALUE = re.compile(r"[ -~]*").fullmatch
_types = mimetypes.MimeTypes()  # without the files of this host: a name has one type everywhere


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
    versions: Mapping[str, str] | None


class Options(NamedTuple):
    """The options of a client, as those of `S3`."""

    endpoint: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None
    aws_session_token: str | None = None
    region: str | None = None
    profile: str | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    read_timeout: float = READ_TIMEOUT
    max_attempts: int | None = None
    anonymous: bool = False
    path_style: bool | None = None
    verify: bool | str | None = None
    client_certificate: str | tuple[str, str] | None = None
    proxies: tuple[tuple[str, str], ...] | None = None
    session: Any = None

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

    def bucket_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests about the bucket, or that remove an object."""
        return ("x-amz-request-payer:requester",) if self.requester_pays else ()

    def read_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests that read an object, or write a part of it."""
        key = self.sse_customer_key
        if key is None:
            return self.bucket_headers()
        prefix = "x-amz-server-side-encryption-customer-"
        encoded = (f"{prefix}algorithm:AES256", f"{prefix}key:{_base64(key)}", f"{prefix}key-md5:{_md5(key)}")
        return (*self.bucket_headers(), *encoded)

    def write_headers(self) -> tuple[str, ...]:
        """Return the header fields of requests that make an object, but its content type."""
        fields = {
            "x-amz-server-side-encryption": self.server_side_encryption,
            "x-amz-server-side-encryption-aws-kms-key-id": self.sse_kms_key_id,
            "x-amz-storage-class": self.storage_class,
            "x-amz-acl": self.acl,
            **{f"x-amz-meta-{name}": value for name, value in self.metadata},
        }
        return (*self.read_headers(), *(f"{name}:{value}" for name, value in fields.items() if value is not None))

    def type_headers(self, key: str) -> tuple[str, ...]:
        """Return the header field of an object's content type; none where the store chooses it."""
        found = self.content_type if self.content_type != AUTO else guessed_type(key)
        return (f"content-type:{found}",) if found is not None else ()

    def boto_bucket(self) -> dict[str, Any]:
        """Return boto3's parameters for what `bucket_headers` says."""
        return {"RequestPayer": "requester"} if self.requester_pays else {}

    def boto_read(self) -> dict[str, Any]:
        """Return boto3's parameters for what `read_headers` says."""
        key = self.sse_customer_key
        customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key} if key is not None else {}
        return {**self.boto_bucket(), **customer}

    def boto_copy(self) -> dict[str, Any]:
        """Return boto3's parameters for a copy in the bucket: it keeps metadata and content type of the original."""
        found = {
            **self.boto_read(),
            "ServerSideEncryption": self.server_side_encryption,
            "SSEKMSKeyId": self.sse_kms_key_id,
            "StorageClass": self.storage_class,
            "ACL": self.acl,
        }
        if self.sse_customer_key is not None:
            found |= {f"CopySource{name}": value for name, value in self.boto_read().items() if name.startswith("SSE")}
        return {name: value for name, value in found.items() if value is not None}

    def key_digest(self) -> str:
        """Return digits that stand for the customer's key: who does not have it can't read what it encrypts."""
        key = self.sse_customer_key
        return hashlib.blake2b(key, digest_size=8, person=b"fsabs-sse-c").hexdigest() if key is not None else ""


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
            raise ValueError(f"metadata {name!r} is printable ASCII without spaces around it, not {value!r}")
    for name in ("server_side_encryption", "sse_kms_key_id", "storage_class", "acl", "content_type"):
        value = getattr(options, name)
        if value is not None and not (value and _VALUE(value)):
            raise ValueError(f"{name} is printable ASCII, not {value!r}")
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


@functools.lru_cache(maxsize=1024)
def _type_of_suffix(suffix: str) -> str | None:
    found, encoding = _types.guess_type(f"name{suffix}", strict=False)
    return found if encoding is None else None  # of compressed data: the type is that of the content


def guessed_type(key: str) -> str | None:
    """Return the content type that a name stands for; None if it is not known."""
    name = keys.name(key)
    at = name.rfind(".", 1)
    return _type_of_suffix(name[at:].lower()) if at > 0 else None


def environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that a client depends on."""
    names = (name for name in os.environ if name.startswith(("AWS_", "S3_", "BOTO")) or name.lower().endswith("_proxy"))
    return tuple((name, os.environ[name]) for name in sorted(names))


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
