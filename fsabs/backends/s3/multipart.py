"""One multipart upload: its parts, which are in flight while the next one is filled, its completion and its end.

Limits are those of the S3 API: parts of 5 MiB to 5 GiB, at most 10,000 of them
(docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from xml.sax.saxutils import escape

from ... import errors
from ...threads import Threads
from . import checksums, upload_records
from .access import BucketAccess
from .failures import xml_text
from .messages import Body, Request
from .options import MARK
from .requests import query_of, send
from .upload_records import UploadRecord

MAX_PART_SIZE = 5 * 1024**3
MAX_PARTS = 10_000
PARTS_IN_FLIGHT = 4
"""Parts of one upload that are sent while the next one is filled."""
MARK_HEADER = f"x-amz-meta-{MARK}"
"""Metadata with a random value: it shows, after a response that was lost, that an object is this writer's."""


def part_size(number: int, first: int) -> int:
    """Return the size of part `number` (from 1) of an upload of unknown length: it doubles every 1,000 parts.

    10,000 parts that start at 5 MiB reach 4.8 TiB, those that start at 32 MiB 31 TiB.
    """
    return int(min(first << ((number - 1) // 1000), MAX_PART_SIZE))


class Upload:
    """One multipart upload: a new one, or one that was begun earlier, of which the `parts` are known.

    Args:
        fs: of the bucket.
        record: of the upload, which has its key and its id.
        parts: the elements that stand for its parts, from the first on, when it is completed.
    """

    def __init__(self, fs: BucketAccess, record: UploadRecord, parts: Sequence[str] = ()) -> None:
        self._fs = fs
        self._key = record.key
        self._record = record
        self._parts = list(parts)
        self._in_flight: deque[tuple[Callable[[], str], Body]] = deque()
        self._free: list[bytearray] = []
        self.count = len(parts)
        """Parts so far."""
        self._threads = Threads[str](PARTS_IN_FLIGHT, wait=True)

    @classmethod
    def create(cls, fs: BucketAccess, key: str, kept: bool) -> Upload:
        """Return a new upload; `kept` if a later process may continue it."""
        upload_records.sweep(fs)
        record = UploadRecord.create(fs, key, secrets.token_hex(12), kept)
        try:
            record.set_upload(_created(fs, record))
        except BaseException as exc:
            if 400 <= getattr(exc, "status", 0) < 500:
                record.remove()
            else:
                record.release(kept=False)  # it may have been created all the same
            raise
        return cls(fs, record)

    def free_buffer(self, size: int) -> bytearray:
        """Return a buffer of `size` bytes: one of a part that was sent, if there is one."""
        while self._free:
            if len(found := self._free.pop()) == size:
                return found
        return bytearray()

    def _wait(self) -> None:
        sent, body = self._in_flight.popleft()
        self._parts.append(sent())
        if isinstance(body, bytearray):
            self._free.append(body)

    def send_part(self, body: Body) -> None:
        """Send the next part, when there is room for it among those in flight; raises what became of an earlier one."""
        if self.count >= MAX_PARTS:
            raise OSError(errno.EFBIG, f"more than {MAX_PARTS} parts; a larger mpu_chunksize reaches further")
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        self._in_flight.append((self._threads.start(partial(self._sent_part, self.count, body)), body))

    def _sent_part(self, number: int, body: Body) -> str:
        """Send a part, and return the element that stands for it when the upload is completed."""
        query = query_of(partNumber=number, uploadId=self._record.upload)
        element, headers = f"<PartNumber>{number}</PartNumber>", self._fs.read_headers
        if (algorithm := self._fs.checksum_algorithm) is not None:
            header = checksums.header(algorithm, body)
            headers = (*headers, header)
            element += checksum_element(algorithm, header.partition(":")[2])
        response = send(self._fs, Request("PUT", self._key, query, headers, body))
        self._record.touch()
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
            send(self._fs, Request("POST", self._key, query_of(uploadId=self._record.upload), headers, body.encode()))
        except OSError as exc:
            if getattr(exc, "code", "") not in ("NoSuchUpload", "PreconditionFailed", "ConditionalRequestConflict"):
                raise
            if not is_marked(self._fs, self._key, self._record.mark):  # else only the response had been lost
                if isinstance(exc, errors.StaleFileError):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from exc
                raise
        self._threads.end()
        self._record.remove()

    def leave(self) -> None:
        """Wait for the parts in flight; they stay."""
        self._threads.end()
        self._record.release(kept=True)

    def abort(self) -> None:
        """Wait for the parts in flight, and remove them all; what went wrong before is what the user has to see."""
        self._threads.end()
        with contextlib.suppress(OSError):
            upload_records.abort(self._fs, self._record)


def _created(fs: BucketAccess, record: UploadRecord) -> str:
    """Create an upload in the store, and return its id."""
    algorithm = fs.checksum_algorithm
    headers = (*fs.write_headers, *fs.objects.type_headers(record.key), f"{MARK_HEADER}:{record.mark}")
    if algorithm is not None:
        headers = (*headers, f"x-amz-checksum-algorithm:{algorithm}")
    if algorithm == "CRC64NVME":  # S3 has it for whole objects only, not as a checksum of checksums
        headers = (*headers, "x-amz-checksum-type:FULL_OBJECT")
    response = send(fs, Request("POST", record.key, "uploads=", headers))
    if response.attempts > 1:  # an earlier one may have created an upload, too
        UploadRecord.create(fs, record.key, record.mark, kept=False, owner=upload_records.FREE)
    found = xml_text(response.body, b"UploadId")
    if not found:
        raise errors.CorruptFileError(errno.EBADMSG, "the store began an upload and gave it no id")
    return found


def checksum_element(algorithm: str, value: str) -> str:
    """Return the element of a part's checksum."""
    return f"<Checksum{algorithm}>{value}</Checksum{algorithm}>"


def is_marked(fs: BucketAccess, key: str, mark: str) -> bool:
    """Return whether the object is the one that this process has written: the response to that may have been lost."""
    try:
        return send(fs, Request("HEAD", key, headers=fs.read_headers)).head.header(MARK_HEADER.encode()) == mark
    except OSError:
        return False
