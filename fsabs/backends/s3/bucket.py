"""The FS of a bucket on S3: its options, and what only S3 has beside what all object stores have."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from ...core import errors
from ...core.fs import FS, FileStat, ListPage, StoreNotes, StrPath
from ..objects import ObjectStore
from ..objects.failures import code_of
from ..objects.listing import prefix_of
from ..objects.messages import Request
from ..objects.store import COSTS, PART_SIZE
from .dialect import S3Dialect
from .endpoint import S3Access, describe, is_aws, principal, resolve
from .options import MIN_PART_SIZE, Options, S3Options, of_s3fs
from .resolved import DEFAULT_REGION

MAX_EXPIRES = 7 * 24 * 3600
_ARN_SEGMENTS = {"accesspoint": 2, "outpost": 4}
"""How many segments the resource of an ARN has: `accesspoint/NAME`, `outpost/ID/accesspoint/NAME`."""


class S3(ObjectStore):
    """The bucket `bucket` below `prefix`.

    What is not given comes from the environment and files that boto3 looks at, credentials that it refreshes included.

    Args:
        bucket: its name, or the ARN of an access point.
        prefix: the FS's root.
        create_bucket: make the bucket if it is missing.
        mpu_chunksize: bytes that are uploaded in one part, at least 5 MiB; a smaller file is one PUT.
        endpoint: URL of the store (`$S3_ENDPOINT`, `$AWS_ENDPOINT_URL`); AWS if there is none.
        aws_access_key_id, aws_secret_access_key, aws_session_token: credentials.
        region, profile: as boto3 has them.
        session: a session of boto3 or botocore. It pickles only if its credentials are those of a profile.
        connect_timeout, read_timeout: seconds, for each attempt; 10 and 60 unless given.
        max_attempts: how often a request is sent at most; None: as botocore is configured, else 5 times.
        anonymous: send no signature.
        path_style: the bucket in the URL's path (True) or host name (False); None: as boto3 chooses.
        verify: the file of trusted certificates, or False to trust any; None: as boto3 is configured.
        client_certificate: the file of the client's certificate, or those of certificate and key.
        proxies: URLs of proxies by scheme, as boto3 has them.
        requester_pays: pay for requests to a bucket of another owner.
        expected_bucket_owner: the account that the bucket must belong to.
        sse_customer_key: the key that objects are encrypted by (SSE-C), 32 bytes or their base64.
        server_side_encryption, sse_kms_key_id, bucket_key_enabled: how new objects are encrypted (`AES256`, `aws:kms`,
            `aws:kms:dsse`).
        storage_class, acl, metadata, tagging: of new objects; `acl` is a canned one, `tagging` a mapping.
        cache_control, content_disposition, content_encoding, content_language, expires: header fields that new objects
            are served with.
        object_lock_mode, object_lock_retain_until, object_lock_legal_hold: of new objects.
        headers: further header fields, by name, of the requests that make objects; `x-amz-copy-source-...` and
            `...-directive` of copies alone.
        checksum_algorithm: of the checksums by which the store verifies what is written: `CRC32C`, `CRC32`, or with the
            extra `crc64` `CRC64NVME`; None: CRC32C, or none if boto3 is configured to send them `when_required`.
        content_type: of new objects; `auto` guesses it by the name, None leaves it to the store.
        versions: version ids by the paths of objects in the bucket; these are read in that version, and never written.

    Mode `x` of a file that is uploaded in parts is only as safe as the store: some ignore the condition of the last
    request, so that of two writers at the same moment the later one may win.
    """

    scheme = "s3"
    dialect: S3Dialect
    _notes = StoreNotes(COSTS, {"list": "s3:ListBucket", "read": "s3:GetObject", "write": "s3:PutObject"}, True)

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        *,
        create_bucket: bool = False,
        mpu_chunksize: int = PART_SIZE,
        **options: Unpack[S3Options],
    ) -> None:
        if not bucket:
            raise ValueError(f"an S3 URL names a bucket: s3://bucket/key, not s3:///{(prefix or '').lstrip('/')}")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 5 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        super().__init__(S3Dialect(bucket, options), prefix, mpu_chunksize)
        if not self.dialect.ordered:
            self.capabilities = self.capabilities._replace(ordered=False)
        if create_bucket:
            self._make_bucket()

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> FS:
        """Return the FS of a bucket, or of an access point: the name in its ARN may be a segment of the path."""
        bucket, path = bucket_of(authority, path)
        return cls(bucket, path, **options)

    @classmethod
    def options_of_query(cls, authority: str, paths: list[str], query: dict[str, str]) -> dict[str, Any]:
        """Return the options that the query of a URL stands for; `paths` are those that may be the object's."""
        for name in query:
            if name != "versionId":
                raise ValueError(f"an S3 URL has no ?{name}=, only ?versionId=; a '?' in a path is written as %3F")
        return {"versions": {bucket_of(authority, path)[1]: query["versionId"] for path in paths}}

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options for those of s3fs; `TypeError` for one of boto3's in them that has no counterpart."""
        return of_s3fs(options)

    @property
    def bucket(self) -> str:
        """The bucket's name, or the ARN of an access point."""
        return self.dialect.bucket

    @property
    def options(self) -> Options:
        """The options of the client."""
        return self.dialect.options

    @property
    def client(self) -> Any:
        """This process's boto3 client, with the same options."""
        from .boto import shared_client

        return shared_client(self.options).get()

    def _access(self) -> S3Access:
        access = self.http.access
        assert isinstance(access, S3Access)
        return access

    def _resolved_store(self) -> str:
        clients = self._clients
        if not clients.store:
            clients.store = f"s3 {resolve(self.bucket, self.options).store} {self.bucket}"
        return clients.store

    def _principal(self) -> str:
        signed_for = "" if self.options.anonymous else principal(resolve(self.bucket, self.options), self.options)
        return " ".join(filter(None, (signed_for, self.dialect.key_digest())))

    def _describe_store(self) -> dict[str, str]:
        return describe(self.bucket, self.options)

    # ---- objects that are read in one version

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[Any]:
        members = super()._list(key, detail, start)
        return self._pinned(key, members) if detail else members

    def _list_page(self, key: str, after: str) -> ListPage | None:
        return super()._list_page(key, after) if not self.dialect.versions else None

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        members = super()._walk(key, detail, after)
        return self._pinned(key, members) if detail else members

    def _pinned(self, key: str, members: Iterator[FileStat]) -> Iterator[FileStat]:
        """Return the members, with the stats of the versions that objects are read in."""
        if not self.dialect.versions:
            return members
        return (self._in_version(prefix_of(key), member) for member in members)

    def _in_version(self, prefix: str, member: FileStat) -> FileStat:
        key = prefix + member.filename
        found = self._head(key) if key in self.dialect.versions else None
        return found._replace(filename=member.filename) if found is not None else member

    # ---- what only S3 has

    def _write_if(self, key: str, data: bytes, version: str) -> None:
        try:
            super()._write_if(key, data, f'"{version}"')
        except errors.StaleFileError:
            found = self._head(key)
            if found is None or found.version != version:
                raise
            super()._write_if(key, data, version)  # Ceph compares it as it stands there

    def signed_url(self, path: StrPath, *, expires: int = 3600, method: str = "GET") -> str:
        """Return a URL that allows whoever has it to read the file (`GET`, `HEAD`), to write it (`PUT`) or to remove it
        (`DELETE`), for `expires` seconds, a week at most."""
        if method not in ("GET", "HEAD", "PUT", "DELETE"):
            raise ValueError(f"method is GET, HEAD, PUT or DELETE, not {method!r}")
        if not 1 <= expires <= MAX_EXPIRES:
            raise ValueError(f"expires is from 1 to {MAX_EXPIRES} seconds, not {expires}")
        key = self._file_key(path, "signed_url")
        with self._naming("signed_url", key):
            access = self._access()
            where = access.endpoint.path_prefix + urllib.parse.quote(key, safe="/~")
            query = access.presigned(method, where, self.dialect.signed_query(key), expires)
            return f"{access.endpoint.url}{where}{query and '?' + query}"

    def _make_bucket(self) -> None:
        """Make the bucket, if it is missing."""
        try:
            self.send(Request("HEAD"))
            return
        except FileNotFoundError:
            pass
        place = self._access().place
        body = b""
        if is_aws(place.store) and place.region != DEFAULT_REGION:
            region = f"<LocationConstraint>{place.region}</LocationConstraint>"
            body = f"<CreateBucketConfiguration>{region}</CreateBucketConfiguration>".encode()
        try:
            self.send(Request("PUT", body=body))
        except OSError as exc:
            if code_of(exc) != "BucketAlreadyOwnedByYou":
                raise


def bucket_of(authority: str, path: str) -> tuple[str, str]:
    """Return the bucket or ARN, and the path in it, of a URL's authority and path."""
    fields = authority.split(":", 5)
    if fields[0] != "arn" or len(fields) < 6:
        return authority, path
    resource = fields[5].split(":")
    missing = _ARN_SEGMENTS.get(resource[0], 0) - len(resource)
    segments = path.split("/")[1:]
    if missing <= 0:
        return authority, path
    if len(segments) < missing or not all(segments[:missing]):
        raise ValueError(f"an ARN ends in the name of its access point: s3://{authority}{path}")
    return "/".join([authority, *segments[:missing]]), "/" + "/".join(segments[missing:])
