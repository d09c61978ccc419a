"""A bucket as an FS: its core operations, made of those in the other modules of this folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

from ... import errors, keys
from ...blobs import Blob
from ...core import Core
from ...files import Writer
from ...fs import FS, Capabilities, FileStat
from .access import BucketAccess
from .boto import principal, resolved_endpoint, translated
from .buckets import abort_uploads, bucket_of, make_bucket
from .description import describe
from .listing import pages
from .messages import Request
from .options import MIN_PART_SIZE, S3Options, version_of
from .pages import fetch, to_stat
from .reading import S3Blob, get_many, get_many_versioned, head, open_from_start, read_whole
from .requests import delete_batch, send
from .resuming import etag_is_of, resume
from .tree import is_path, level, named, prefix_of, unnamed, walk
from .write_many import put_many
from .writes import S3Writer, check_current, put

T = TypeVar("T")


class S3(BucketAccess, FS):
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
        session: a session of boto3 or botocore. It pickles only if it is made of a profile.
        connect_timeout, read_timeout: seconds, for each attempt.
        max_attempts: how often a request is sent at most; None: as botocore is configured, else 5 times.
        anonymous: send no signature.
        path_style: the bucket in the URL's path (True) or host name (False); None: as boto3 chooses.
        verify: the file of trusted certificates, or False to trust any; None: as boto3 is configured.
        client_certificate: the file of the client's certificate, or those of certificate and key.
        proxies: URLs of proxies by scheme, as boto3 has them; boto3 then sends all requests.
        requester_pays: pay for requests to a bucket of another owner.
        sse_customer_key: the key that objects are encrypted by (SSE-C), 32 bytes or their base64.
        server_side_encryption, sse_kms_key_id: how new objects are encrypted (`AES256`, `aws:kms`, `aws:kms:dsse`).
        storage_class, acl, metadata: of new objects; `acl` is a canned one.
        checksum_algorithm: of the checksums by which the store verifies what is written: `CRC32C`, `CRC32`, or with the
            extra `crc64` `CRC64NVME`; None: CRC32C, or none if boto3 is configured to send them `when_required`.
        content_type: of new objects; `auto` guesses it by the name, None leaves it to the store.
        versions: version ids by the paths of objects in the bucket; these are read in that version, and never written.

    Mode `x` of a file that is uploaded in parts is only as safe as the store: some ignore the condition of the last
    request, so that of two writers at the same moment the later one may win.
    """

    scheme = "s3"
    default_concurrency = 32
    capabilities: Capabilities = Capabilities(
        write=True,
        exclusive=True,
        replace=True,
        mkdir=True,
        rename=True,
        remove=True,
        implied_directories=True,
        last_modified=True,
        versions=True,
    )

    def __init__(
        self,
        bucket: str,
        prefix: str | None = None,
        *,
        create_bucket: bool = False,
        mpu_chunksize: int = 32 * 1024 * 1024,
        **options: Unpack[S3Options],
    ) -> None:
        if not bucket:
            raise ValueError(f"an S3 URL names a bucket: s3://bucket/key, not s3:///{(prefix or '').lstrip('/')}")
        if mpu_chunksize < MIN_PART_SIZE:
            raise ValueError(f"mpu_chunksize is at least 5 MiB ({MIN_PART_SIZE}), not {mpu_chunksize}")
        super().__init__(bucket, options)
        self._mpu_chunksize = mpu_chunksize
        self._root = self._cwd = keys.normalize(prefix or "")
        if create_bucket:
            make_bucket(self)

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> FS:
        """Return the FS of a bucket, or of an access point: the name in its ARN may be a segment of the path."""
        bucket, path = bucket_of(authority, path)
        return cls(bucket, path, **options)

    def _resolved_store(self) -> str:
        return f"s3 {resolved_endpoint(self.client)} {self.bucket}"

    def _principal(self) -> str:
        signed_for = "" if self.options.anonymous else principal(self.client, self.options)
        return " ".join(filter(None, (signed_for, self.objects.key_digest())))

    def _describe_store(self) -> dict[str, str]:
        return describe(self._client, self.bucket, self.options)

    def abort_uploads(self, older_than: float, key: str = "") -> int:
        """Abort multipart uploads that were begun more than `older_than` seconds ago; returns how many.

        They are what killed writers leave behind: invisible, but stored. All below the FS's root, or only those of one
        object `key` of the bucket.
        """
        return abort_uploads(self, older_than, key)

    def _url(self, key: str) -> str:
        query = self.versions.get(key, "")
        return f"s3://{self.bucket}/{keys.to_url_path(key)}{query and '?' + query}"

    @classmethod
    def options_of_query(cls, authority: str, paths: list[str], query: dict[str, str]) -> dict[str, Any]:
        """Return the options that the query of a URL stands for; `paths` are those that may be the object's."""
        for name in query:
            if name != "versionId":
                raise ValueError(f"an S3 URL has no ?{name}=, only ?versionId=; a '?' in a path is written as %3F")
        return {"versions": {bucket_of(authority, path)[1]: query["versionId"] for path in paths}}

    # ---- looking

    def _stat(self, key: str) -> FileStat:
        if key and (found := self._head(key)) is not None:
            return found
        if not self._any_below(key) and key:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return FileStat.of_directory(keys.name(key))

    def _head(self, key: str) -> FileStat | None:
        try:
            return _to_stat(keys.name(key), *head(self, key))
        except FileNotFoundError:
            return None

    def _any_below(self, key: str) -> bool:
        """Return whether there is any object below `key`; a missing bucket is an error."""
        return bool(fetch(self, key + "/" if key else "", most=1).objects)

    def _list(self, key: str) -> Iterator[FileStat]:
        return self._pinned(key, self._existing(key, level(self, key, pages(self, prefix_of(key), "/"))))

    def _existing(self, key: str, members: Iterator[T | None]) -> Iterator[T]:
        """`members` without the Nones, which only show that the directory is there; an error if there is nothing."""
        there = not key
        for member in members:
            there = True
            if member is not None:
                yield member
        if not there:
            if self._head(key) is not None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _walk(self, key: str) -> Iterator[FileStat]:
        return self._pinned(key, self._existing(key, walk(self, key, to_stat, FileStat.of_directory)))

    def _walk_names(self, key: str) -> Iterator[str]:
        return self._existing(key, walk(self, key, lambda name, _: name, lambda name: name + "/"))

    def _unnamed(self, key: str) -> Iterator[str]:
        return unnamed(self, key)

    def _pinned(self, key: str, members: Iterator[FileStat]) -> Iterator[FileStat]:
        """Return the members, with the stats of the versions that objects are read in."""
        if not self.versions:
            return members
        return (self._in_version(prefix_of(key), member) for member in members)

    def _in_version(self, prefix: str, member: FileStat) -> FileStat:
        key = prefix + member.filename
        found = self._head(key) if key in self.versions else None
        return found._replace(filename=member.filename) if found is not None else member

    # ---- reading

    def _open_blob(self, key: str) -> Blob:
        found = self._head(key) if key else None
        if found is None:
            raise self._no_file(key)
        return S3Blob(self, key, found.size, found.version)

    def _open_from_start(self, key: str) -> Blob:
        try:
            found = open_from_start(self, key) if key else None
        except FileNotFoundError as exc:
            raise self._no_file(key) from exc
        return found if found is not None else self._open_blob(key)

    _read_bytes = read_whole

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        width = min(concurrency or self.default_concurrency, len(wanted))
        client = self.http
        if width <= 1 or client is None or not all(wanted):
            return super()._read_many(wanted, concurrency)
        return get_many(self, client, wanted, width)

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        width = min(concurrency or self.default_concurrency, len(wanted))
        client = self.http
        if width <= 1 or client is None or not all(wanted):
            return super()._read_many_versioned(wanted, concurrency)
        return get_many_versioned(self, client, wanted, width)

    def _no_file(self, key: str) -> OSError:
        code = errno.EISDIR if self._any_below(key) or not key else errno.ENOENT
        return OSError(code, os.strerror(code))

    # ---- writing

    def _create(self, key: str, exclusive: bool) -> Writer:
        if exclusive and self._head(key) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return S3Writer(self, key, exclusive, self._mpu_chunksize)

    def _write_bytes(self, key: str, data: bytes) -> None:
        if len(data) <= self._mpu_chunksize:
            put(self, key, data)
        else:
            super()._write_bytes(key, data)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        client, width = self.http, concurrency or self.default_concurrency
        if client is None or width == 1:
            return super()._write_many(pairs, concurrency)
        return put_many(self, client, pairs, width)

    @property
    def checks_writes(self) -> bool:  # type: ignore[override]
        """True if written bodies carry a checksum, which the store verifies."""
        return self.checksum_algorithm is not None

    def _mkdir(self, key: str, mode: int) -> None:
        if not key or self._is(key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        put(self, key + "/", b"")

    def _remove(self, key: str) -> None:
        if self._head(key) is None:
            below = [name for name in fetch(self, key + "/", most=2).keys() if name != key + "/"]  # noqa: SIM118
            if below and not is_path(below[0][len(key) + 1 :]):
                raise errors.unnamed_left(self._url(key), 1, below[0])
            if below:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            key += "/"
        self._delete(key)

    def _delete(self, key: str) -> None:
        check_current(self, key)
        send(self, Request("DELETE", key, headers=self.bucket_headers))

    def _remove_tree(self, key: str) -> None:
        self._remove_below(key, "")

    def _empty(self, key: str) -> None:
        self._remove_below(key, prefix_of(key))
        if key and not self._is(key, directory=True):
            self._mkdir(key, 0o777)  # it went with the last file

    def _remove_below(self, key: str, kept: str) -> None:
        """Remove the keys of a tree that paths name, but `kept`; at the end raises an error if there are others."""
        for pinned in self.versions:
            if pinned.startswith(prefix_of(key)):
                check_current(self, pinned)
        for names in named(self, key):
            delete_batch(self, [name for name in names if name != kept])

    def _copy(self, src: str, dst: str) -> None:
        """By the store itself."""
        self._copy_from(self, src, dst)

    def _can_copy_from(self, source: Core) -> bool:
        """A bucket of the same store, which the same user reads by the same options."""
        return isinstance(source, S3) and (
            source is self
            or (
                source.options == self.options
                and source.objects.key_digest() == self.objects.key_digest()
                and resolved_endpoint(source.client) == resolved_endpoint(self.client)
            )
        )

    def _copy_from(self, source: Core, src: str, dst: str) -> None:
        """By the store itself, in parts where the object is large."""
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        assert isinstance(source, S3)
        check_current(self, dst)
        origin = {"Bucket": source.bucket, "Key": src}
        if version := source.versions.get(src):
            origin["VersionId"] = version_of(version)
        try:
            with translated(), create_transfer_manager(self.client, TransferConfig(use_threads=False)) as manager:
                manager.copy(origin, self.bucket, dst, self.objects.boto_copy()).result()
        except FileNotFoundError as exc:
            raise source._no_file(src) from exc
        except OSError as exc:
            if getattr(exc, "code", "") != "NotImplemented":  # as Ceph's copy of encrypted objects is
                raise
            with source._open_from_start(src) as blob:
                self._write_blob(dst, blob)

    def _resume(self, key: str, source: Blob) -> tuple[Writer, int]:
        return resume(self, key, source, self._mpu_chunksize)

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        if self.objects.key_digest() or stat.version is None or stat.size != blob.size:
            return None if stat.size == blob.size else False
        return etag_is_of(stat.version, blob, self._mpu_chunksize)

    def _rename(self, src: str, dst: str) -> None:
        """By copies and removals: not in one moment. What is interrupted leaves the source whole."""
        source = self._stat(src)
        self._rename_target(dst, source)
        if not source.directory:
            self._copy(src, dst)
            self._delete(src)
            return
        for names in list(named(self, src)):  # raises if there are keys that would stay
            for name in names:
                self._copy(name, dst + name[len(src) :])
        self._remove_tree(src)

    def __repr__(self) -> str:
        return f"S3({self.bucket!r}, {self._root!r})"


def _to_stat(name: str, size: int, written: datetime, version: str | None) -> FileStat:
    # Some stores list milliseconds where a HEAD has seconds.
    return FileStat(name, size, False, float(int(written.timestamp())), version=version)
