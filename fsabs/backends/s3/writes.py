"""Writing objects: one PUT, or a multipart upload whose parts are in flight while the next one is filled.

Limits are those of the S3 API: parts of 5 MiB to 5 GiB, at most 10,000 of them
(docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html). Each body carries a CRC32C, which the store verifies,
unless boto3 is configured to send checksums only `when_required`; without TLS the signature covers its SHA-256.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import itertools
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ... import errors, writemany
from ...files import Writer
from .client import Client
from .failures import UnsupportedResponse, xml_text
from .messages import Body, Request
from .options import MARK
from .pipeline import send_many
from .requests import query_of, send

if TYPE_CHECKING:
    from .bucket import S3

MAX_PART_SIZE = 5 * 1024**3
MAX_PARTS = 10_000
PARTS_IN_FLIGHT = 4
"""Parts of one upload that are sent while the next one is filled."""
MAX_PIPELINED = 2 * 1024**2
"""`write_many` has contents of up to so many bytes in flight from one thread; larger ones take a thread each."""
_CHECKSUM_CHUNK = 256 * 1024
_MARK = f"x-amz-meta-{MARK}"
"""Metadata with a random value: it shows, after a response that was lost, that an object is this writer's."""


def part_size(number: int, first: int) -> int:
    """Return the size of part `number` (from 1) of an upload of unknown length: it doubles every 1,000 parts.

    10,000 parts that start at 5 MiB reach 4.8 TiB, those that start at 32 MiB 31 TiB.
    """
    return int(min(first << ((number - 1) // 1000), MAX_PART_SIZE))


def checksum(body: Body) -> str:
    """Return the CRC32C of a body, as S3 writes it."""
    extend = _crc32c()
    if type(body) is bytes:
        value = extend(0, body)
    else:  # the library takes bytes only
        value, view = 0, memoryview(body)
        for start in range(0, len(view), _CHECKSUM_CHUNK):
            value = extend(value, view[start : start + _CHECKSUM_CHUNK].tobytes())
    return base64.b64encode(value.to_bytes(4, "big")).decode()


@functools.cache
def _crc32c() -> Callable[[int, bytes], int]:
    try:
        import google_crc32c
    except ImportError as exc:
        raise errors.MissingDependencyError(
            "writing to S3 needs a CRC32C: pip install google-crc32c", name="google_crc32c"
        ) from exc
    found: Callable[[int, bytes], int] = google_crc32c.extend
    return found


def check_current(fs: S3, key: str) -> None:
    """Raise an error for an object that is read in one version: to write it would not change what is read."""
    if key in fs.versions:
        raise errors.error(errno.EROFS, "write", fs._url(key), "a version of an object can't be changed")


def put_request(fs: S3, key: str, body: Body, headers: tuple[str, ...] = ()) -> Request:
    """Return the PUT of a whole object."""
    check_current(fs, key)
    headers = (*fs.write_headers, *fs.objects.type_headers(key), *headers)
    if fs.checks_writes:
        headers = (*headers, f"x-amz-checksum-crc32c:{checksum(body)}")
    return Request("PUT", key, headers=headers, body=body)


def put(fs: S3, key: str, body: Body) -> None:
    """Make `body` the content of an object."""
    send(fs, put_request(fs, key, body))


def put_new(fs: S3, key: str, body: Body) -> None:
    """Make a new object; `FileExistsError` if there is one."""
    mark = secrets.token_hex(12)
    try:
        send(fs, put_request(fs, key, body, ("if-none-match:*", f"{_MARK}:{mark}")))
    except errors.StaleFileError as exc:
        if not _is_marked(fs, key, mark):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc


def _is_marked(fs: S3, key: str, mark: str) -> bool:
    """Return whether the object is the one that this process has written: the response to that may have been lost."""
    try:
        return send(fs, Request("HEAD", key, headers=fs.read_headers)).head.header(_MARK.encode()) == mark
    except OSError:
        return False


# ---- many


def put_many(fs: S3, client: Client, pairs: Iterator[writemany.Content], width: int) -> int:
    """Write objects with up to `width` requests in flight; return how many."""
    count = 0
    for small, group in itertools.groupby(pairs, lambda pair: len(pair[1]) <= MAX_PIPELINED):
        if small:
            count += _put_small(fs, client, group, width)
        else:
            count += writemany.in_threads(functools.partial(_put_named, fs), group, width)
    return count


def _put_named(fs: S3, key: str, data: bytes) -> None:
    try:
        fs._write_bytes(key, data)
    except OSError as exc:
        fs._named(exc, "write_many", key)
        raise


def _put_small(fs: S3, client: Client, pairs: Iterator[writemany.Content], width: int) -> int:
    failures, under_way, count = writemany.Failures(), deque[Request](), 0

    def requests() -> Iterator[Request]:
        try:
            for key, data in pairs:
                if failures:
                    return
                under_way.append(put_request(fs, key, data))
                yield under_way[-1]
        except BaseException as exc:  # of the caller's iterable: what is under way still ends
            failures.add(exc)

    with contextlib.closing(send_many(client, requests(), width, ahead=width)) as outcomes:
        for outcome in outcomes:
            request = under_way.popleft()
            try:
                if isinstance(outcome, UnsupportedResponse):
                    send(fs, request)
                elif isinstance(outcome, OSError):
                    raise outcome
                count += 1
            except OSError as exc:
                fs._named(exc, "write_many", request.key)
                failures.add(exc)
    failures.raise_first()
    return count


# ---- one, of any size


class S3Writer(Writer):
    """Collects parts in memory: one PUT if there is only one, else a multipart upload, completed at `commit`.

    The memory of a part that was sent is used again; parts of a large `bytes` object are sent as they are.
    """

    def __init__(self, fs: S3, key: str, exclusive: bool, chunk: int, upload: Upload | None = None) -> None:
        check_current(fs, key)
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._chunk = chunk
        self._whole: memoryview | None = None  # of a `bytes` object, in place of the buffer
        self._buffer = bytearray()
        self._filled = 0  # of the buffer, which has the size of a part once the upload has begun
        self._upload = upload

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
        if fixed and len(rest) > MAX_PIPELINED:
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
            self._upload = Upload(self._fs, self._key)
        self._upload.send_part(body)


class Upload:
    """One multipart upload: a new one, or one that was begun earlier, of which the `parts` are known.

    Args:
        fs, key: where the object is going to be.
        begun: the id of the earlier one.
        parts: the elements that stand for its parts, from the first on, when it is completed.
    """

    def __init__(self, fs: S3, key: str, begun: str = "", parts: Sequence[str] = ()) -> None:
        self._fs = fs
        self._key = key
        self._mark = secrets.token_hex(12)
        self._parts = list(parts)
        self._in_flight: deque[tuple[Future[str], Body]] = deque()
        self._free: list[bytearray] = []
        self._id = begun or self._begin()
        self.count = len(parts)
        """Parts so far."""
        self._threads = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="fsabs-upload")

    def _begin(self) -> str:
        """Return the id of a new upload."""
        fs = self._fs
        algorithm = ("x-amz-checksum-algorithm:CRC32C",) if fs.checks_writes else ()
        headers = (*fs.write_headers, *fs.objects.type_headers(self._key), *algorithm, f"{_MARK}:{self._mark}")
        response = send(fs, Request("POST", self._key, "uploads=", headers))
        found = xml_text(response.body, b"UploadId")
        if not found:
            raise errors.CorruptFileError(errno.EBADMSG, "the store began an upload and gave it no id")
        return found

    def free_buffer(self, size: int) -> bytearray:
        """Return a buffer of `size` bytes: one of a part that was sent, if there is one."""
        while self._free:
            if len(found := self._free.pop()) == size:
                return found
        return bytearray()

    def _wait(self) -> None:
        future, body = self._in_flight.popleft()
        self._parts.append(future.result())
        if isinstance(body, bytearray):
            self._free.append(body)

    def send_part(self, body: Body) -> None:
        """Send the next part, when there is room for it among those in flight; raises what became of an earlier one."""
        if self.count >= MAX_PARTS:
            raise OSError(errno.EFBIG, f"more than {MAX_PARTS} parts; a larger mpu_chunksize reaches further")
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        self._in_flight.append((self._threads.submit(self._sent_part, self.count, body), body))

    def _sent_part(self, number: int, body: Body) -> str:
        """Send a part, and return the element that stands for it when the upload is completed."""
        query = query_of(partNumber=number, uploadId=self._id)
        element, headers = f"<PartNumber>{number}</PartNumber>", self._fs.read_headers
        if self._fs.checks_writes:
            value = checksum(body)
            headers = (*headers, f"x-amz-checksum-crc32c:{value}")
            element += f"<ChecksumCRC32C>{value}</ChecksumCRC32C>"
        response = send(self._fs, Request("PUT", self._key, query, headers, body))
        etag = response.head.header(b"etag")
        if not etag:
            raise errors.CorruptFileError(errno.EBADMSG, f"the store took part {number} and gave it no ETag")
        return f"<Part>{element}<ETag>{escape(etag)}</ETag></Part>"

    def complete(self, exclusive: bool) -> None:
        """Wait for the parts in flight, and make the object of all parts."""
        while self._in_flight:
            self._wait()
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<CompleteMultipartUpload xmlns="{namespace}">{"".join(self._parts)}</CompleteMultipartUpload>'
        headers = (*self._fs.read_headers, *(("if-none-match:*",) if exclusive else ()))
        try:
            send(self._fs, Request("POST", self._key, query_of(uploadId=self._id), headers, body.encode()))
        except OSError as exc:
            if getattr(exc, "code", "") not in ("NoSuchUpload", "PreconditionFailed", "ConditionalRequestConflict"):
                raise
            if not _is_marked(self._fs, self._key, self._mark):  # else only the response had been lost
                if isinstance(exc, errors.StaleFileError):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc
                raise
        self._threads.shutdown(wait=False)

    def leave(self) -> None:
        """Wait for the parts in flight; they stay."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def abort(self) -> None:
        """Wait for the parts in flight, and remove them all; what went wrong before is what the user has to see."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(OSError):
            send(self._fs, Request("DELETE", self._key, query_of(uploadId=self._id), self._fs.bucket_headers))
