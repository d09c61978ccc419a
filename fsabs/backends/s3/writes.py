"""Writing objects: one PUT, or a multipart upload whose parts are in flight while the next one is filled.

Each body carries a checksum, which the store verifies, unless boto3 is configured to send checksums only
`when_required`; without TLS the signature covers its SHA-256.
"""

from __future__ import annotations

import errno
import os
import secrets

from ... import errors
from ...files import Writer
from . import checksums
from .access import BucketAccess
from .messages import Body, Request
from .multipart import MARK_HEADER, Upload, is_marked, part_size
from .requests import send

LARGE_COPY = 2 * 1024**2
"""A `bytes` object of more bytes is sent as it is, and not copied into a buffer."""


def check_current(fs: BucketAccess, key: str) -> None:
    """Raise an error for an object that is read in one version: to write it would not change what is read."""
    if key in fs.versions:
        raise errors.error(errno.EROFS, "write", fs._url(key), "a version of an object can't be changed")


def put_request(fs: BucketAccess, key: str, body: Body, headers: tuple[str, ...] = ()) -> Request:
    """Return the PUT of a whole object."""
    check_current(fs, key)
    headers = (*fs.write_headers, *fs.objects.type_headers(key), *headers)
    if (algorithm := fs.checksum_algorithm) is not None:
        headers = (*headers, checksums.header(algorithm, body))
    return Request("PUT", key, headers=headers, body=body)


def put(fs: BucketAccess, key: str, body: Body) -> None:
    """Make `body` the content of an object."""
    send(fs, put_request(fs, key, body))


def put_new(fs: BucketAccess, key: str, body: Body) -> None:
    """Make a new object; `FileExistsError` if there is one."""
    mark = secrets.token_hex(12)
    try:
        send(fs, put_request(fs, key, body, ("if-none-match:*", f"{MARK_HEADER}:{mark}")))
    except errors.StaleFileError as exc:
        if not is_marked(fs, key, mark):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc


# ---- one, of any size


class S3Writer(Writer):
    """Collects parts in memory: one PUT if there is only one, else a multipart upload, completed at `commit`.

    The memory of a part that was sent is used again; parts of a large `bytes` object are sent as they are. An upload
    that is `kept` is continued by the next copy of the same content if this process is killed.
    """

    def __init__(
        self, fs: BucketAccess, key: str, exclusive: bool, chunk: int, upload: Upload | None = None, kept: bool = False
    ) -> None:
        check_current(fs, key)
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._chunk = chunk
        self._whole: memoryview | None = None  # of a `bytes` object, in place of the buffer
        self._buffer = bytearray()
        self._filled = 0  # of the buffer, which has the size of a part once the upload has begun
        self._upload = upload
        self._kept = kept

    def write(self, data: bytes) -> None:
        """Buffer `data`; send the parts that are full."""
        rest = memoryview(data)
        earlier, self._whole = self._whole, None
        if earlier is not None:
            self._fill(earlier)
        fixed = type(data) is bytes and not self._filled
        while fixed and len(rest) > (room := self._part_size()):
            self._send(rest[:room])
            rest = rest[room:]
        if fixed and len(rest) > LARGE_COPY:
            self._whole = rest
        else:
            self._fill(rest)

    def _part_size(self) -> int:
        return part_size(self._upload.count + 1 if self._upload else 1, self._chunk)

    def _fill(self, rest: memoryview) -> None:
        """Copy into the buffer; send it when it is full and there is more."""
        while len(rest):
            size = self._part_size()
            if self._filled == size:
                self._send_buffer()
                continue
            piece, rest = rest[: size - self._filled], rest[size - self._filled :]
            end = self._filled + len(piece)
            if end > len(self._buffer):
                del self._buffer[self._filled :]
                self._buffer += piece
            else:
                self._buffer[self._filled : end] = piece
            self._filled = end

    def commit(self) -> None:
        """Make the object visible."""
        body = self._whole if self._whole is not None else memoryview(self._buffer)[: self._filled]
        if self._upload is None:
            (put_new if self._exclusive else put)(self._fs, self._key, body)
            return
        if len(body):
            self._send(body)
        if self._exclusive and self._fs._is(self._key, directory=False):  # for stores that ignore the condition below
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._upload.complete(self._exclusive)
        self._upload = None

    def leave(self) -> None:
        """Keep the parts that the store has, for `resuming.resume`."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.leave()
        self.abort()

    def abort(self) -> None:
        """Abort the upload, so that the store removes its parts."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
        self._buffer, self._filled, self._whole = bytearray(), 0, None

    def _send_buffer(self) -> None:
        body = self._buffer
        self._buffer, self._filled = bytearray(), 0
        self._send(body)
        assert self._upload is not None
        self._buffer = self._upload.free_buffer(self._part_size())

    def _send(self, body: Body) -> None:
        if self._upload is None:
            self._upload = Upload.create(self._fs, self._key, self._kept)
        self._upload.send_part(body)
