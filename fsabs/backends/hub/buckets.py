"""A bucket on the hub, by the S3 gateway of the hub (huggingface.co/docs/hub/storage-buckets-s3).

The gateway is an S3 store with a bucket's owner in its endpoint. It answers the GET of an object by the address of
where that lies, which is followed without credentials; and it ignores conditions on a GET, so that a reader of an open
file asks after each read whether it is still the file that was opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Unpack, cast

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.fs import FS, FileStat
from ...core.ranges import Range
from ..objects.failures import Redirected, is_location_refused
from ..objects.http1 import ResponseHead
from ..objects.messages import WHOLE, Reading, Request
from ..objects.reading import StoreBlob
from ..s3 import S3
from ..s3.dialect import S3Dialect
from ..s3.options import S3Options
from .dialect import BUCKETS, Repository, parse

GATEWAY = "https://s3.hf.co"
REGION = "us-east-1"


class BucketDialect(S3Dialect):
    """The gateway: S3, with redirects."""

    scheme = name = "hf"

    def __init__(self, repository: Repository, options: S3Options) -> None:
        super().__init__(repository.name.partition("/")[2], options)
        self.repository = repository

    def failure(self, request: Request, head: ResponseHead, body: bytes) -> Exception:
        """Return what a refusal, or the address of an object, stands for."""
        location = head.header(b"location")
        error = super().failure(request, head, body)
        if isinstance(error, OSError) and is_location_refused(request, head.status):
            return Redirected(error, "", anew=True)  # the address has come to its end
        if isinstance(error, OSError) and head.status in (302, 307) and location and request.method == "GET":
            return Redirected(error, location) if request.key else error
        return error

    @property
    def checksum_algorithm(self) -> str | None:
        """None: the gateway knows no checksums."""
        return None

    def url(self, key: str) -> str:
        """Return the URL of an object."""
        return f"hf://{self.repository.text}/{keys.to_url_path(key)}"

    def read(self, key: str, wanted: Reading = WHOLE) -> Request:
        """Return a GET without a condition, which the gateway ignores; and what lies elsewhere has another ETag."""
        return super().read(key, wanted._replace(version=None))


class HubBucket(S3):
    """The bucket `bucket`, `buckets/ORG/NAME`, below `prefix`; options as of `S3`.

    Its keys are S3 credentials of the hub, which are made of a token (`HFAK...`): options, or the variables and files
    that S3 has. The endpoint is the hub's gateway, `$HF_S3_ENDPOINT` if that is set.
    """

    scheme = "hf"
    dialect: BucketDialect
    capabilities = S3.capabilities._replace(mkdir=False)  # no key ends in a slash

    def __init__(self, bucket: str, prefix: str | None = None, **options: Unpack[S3Options]) -> None:
        repository = parse(bucket)
        if repository.kind != BUCKETS:
            raise ValueError(f"hf://{bucket} is a repository, and no bucket: Hub")
        gateway = os.environ.get("HF_S3_ENDPOINT") or GATEWAY
        owner, _, name = repository.name.partition("/")
        chosen: dict[str, Any] = {"endpoint": f"{gateway.rstrip('/')}/{owner}", "region": REGION, "path_style": True}
        given = cast(S3Options, {**chosen, **options})
        super().__init__(name, prefix, **given)
        self.dialect = BucketDialect(repository, given)
        self.__setstate__(self.__getstate__())

    _splits_authority = True

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> FS:
        """Return the FS of a bucket."""
        return cls(authority, path, **options)

    def _open_blob(self, key: str) -> Blob:
        stat = self._head(key) if key else None
        if stat is None:
            raise self._no_file(key)
        return BucketBlob(self, key, stat.size, stat.version)

    _open_from_start = _open_blob

    def _open_listed(self, key: str, stat: FileStat) -> Blob:
        return BucketBlob(self, key, stat.size, stat.version) if stat.version is not None else self._open_blob(key)

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        return FS._read_many_versioned(self, wanted, concurrency)

    def __repr__(self) -> str:
        return f"HubBucket({self.dialect.repository.text!r}, {self._root!r})"


class BucketBlob(StoreBlob):
    """An object, which is asked for after each read: a change is an error."""

    __slots__ = ()
    _origin: HubBucket

    def _check(self) -> None:
        stat = self._origin._head(self._key)
        if stat is None or (stat.size, stat.version) != (self.size, self.version):
            raise errors.stale(self.url)

    def _pread(self, size: int, offset: int) -> bytes:
        found = super()._pread(size, offset)
        self._check()
        return found

    def _pread_into(self, view: memoryview, offset: int) -> int:
        self._receive_into(view, offset)
        self._check()
        return len(view)

    def _pread_many(self, ranges: Sequence[Range]) -> list[bytes]:
        found = super()._pread_many(ranges)
        if len(ranges) > 1:  # else it was read by `_pread`
            self._check()
        return found

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return None
