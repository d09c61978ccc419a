"""Writing objects: one PUT, or a multipart upload.

Limits are those of the S3 API: parts of 5 MiB to 5 GiB, at most 10,000 of them
(docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
from typing import TYPE_CHECKING, Any

from ... import errors
from ...files import Writer
from .boto import translated

if TYPE_CHECKING:
    from .bucket import S3

MIN_PART_SIZE = 5 * 1024**2
MAX_PART_SIZE = 5 * 1024**3
MAX_PARTS = 10_000
STALE_UPLOAD_AGE = 24 * 3600.0


def part_size(number: int, first: int) -> int:
    """The size of part `number` (from 1) of an upload of unknown length: doubles every 1,000 parts.

    10,000 parts that start at 5 MiB reach 4.8 TiB, those that start at 32 MiB 31 TiB.
    """
    return int(min(first << ((number - 1) // 1000), MAX_PART_SIZE))


class S3Writer(Writer):
    """Collects parts in memory: one PUT if there is only one, else a multipart upload, completed at `commit`."""

    def __init__(self, fs: S3, key: str, exclusive: bool, chunk: int) -> None:
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._chunk = chunk
        self._buffer = bytearray()
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    @property
    def _where(self) -> dict[str, str]:
        return {"Bucket": self._fs.bucket, "Key": self._key}

    def write(self, data: bytes) -> None:
        """Buffer `data`; upload the parts that are full."""
        self._buffer += data
        while len(self._buffer) > (size := part_size(len(self._parts) + 1, self._chunk)):
            self._upload_part(bytes(self._buffer[:size]))
            del self._buffer[:size]

    def commit(self) -> None:
        """Make the object visible."""
        body = bytes(self._buffer)
        self._buffer.clear()
        if self._upload is None:
            self._put(body)
            return
        if body:
            self._upload_part(body)
        if self._exclusive and self._fs._is(self._key, directory=False):  # for stores that ignore the condition below
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        condition = {"IfNoneMatch": "*"} if self._exclusive else {}
        try:
            with translated():
                self._fs.client.complete_multipart_upload(
                    **self._where, UploadId=self._upload, MultipartUpload={"Parts": self._parts}, **condition
                )
        except errors.StaleFileError as exc:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc
        self._upload = None

    def abort(self) -> None:
        """Abort the upload, so that the store forgets its parts."""
        self._buffer.clear()
        upload, self._upload = self._upload, None
        if upload is not None:
            with contextlib.suppress(OSError), translated():  # what went wrong before is what the user has to see
                self._fs.client.abort_multipart_upload(**self._where, UploadId=upload)

    def _put(self, body: bytes) -> None:
        condition = {"IfNoneMatch": "*"} if self._exclusive else {}
        digest = hashlib.md5(body, usedforsecurity=False)
        try:
            with translated():
                self._fs.client.put_object(**self._where, Body=body, ContentMD5=_md5(digest.digest()), **condition)
        except errors.StaleFileError as exc:
            # After an answer that was lost, boto3's second try meets what its first one wrote.
            with translated():
                there = self._fs.client.head_object(**self._where)
            tried_again = getattr(exc.__cause__, "response", {}).get("ResponseMetadata", {}).get("RetryAttempts", 0)
            if not (tried_again and there["ETag"].strip('"') == digest.hexdigest()):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc

    def _upload_part(self, data: bytes) -> None:
        if self._upload is None:
            with contextlib.suppress(OSError):  # a courtesy, for which a writer may lack the permission
                self._fs.abort_uploads(STALE_UPLOAD_AGE, self._key)
        with translated():
            client = self._fs.client
            if self._upload is None:
                self._upload = client.create_multipart_upload(**self._where)["UploadId"]
            number = len(self._parts) + 1
            if number > MAX_PARTS:
                raise OSError(errno.EFBIG, f"more than {MAX_PARTS} parts; a larger mpu_chunksize reaches further")
            checksum = _md5(hashlib.md5(data, usedforsecurity=False).digest())
            answer = client.upload_part(
                **self._where, UploadId=self._upload, PartNumber=number, Body=data, ContentMD5=checksum
            )
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})


def _md5(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
