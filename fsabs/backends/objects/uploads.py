"""Uploads of parts, for objects of any size: their parts in flight, their completion, and going on with one that was
interrupted.

An upload that this user began on this machine, of a process that has ended (`upload_records.py`), is continued as far
as each of its parts has the bytes of the file, by the MD5 that some stores give a part. Another store is written to
from the start.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...core import errors
from ...core.blobs import Blob
from ...core.ranges import Range
from ...core.threads import Threads
from . import upload_records
from .dialect import PartOf
from .failures import GONE, code_of
from .messages import Body, Request, Response, StoredPart
from .upload_records import UploadRecord, parts_of, uploads_below

if TYPE_CHECKING:
    from .store import ObjectStore

MAX_PART_SIZE = 5 * 1024**3
PARTS_IN_FLIGHT = 4
"""Parts of one upload that are sent while the next one is filled."""
COPIED_PART = 512 * 1024**2
"""Bytes of a part that the store copies by itself."""


def part_size(number: int, first: int) -> int:
    """Return the size of part `number` (from 1) of an upload of unknown length: it doubles every 1,000 parts.

    10,000 parts that start at 5 MiB reach 4.8 TiB, those that start at 32 MiB 31 TiB.
    """
    return int(min(first << ((number - 1) // 1000), MAX_PART_SIZE))


class Upload:
    """One upload: a new one, or one that was begun earlier, of which the `parts` are known.

    Args:
        fs: of the bucket.
        record: of the upload, which has its key and its id.
        receipts: of its parts, from the first on.
    """

    def __init__(self, fs: ObjectStore, record: UploadRecord, receipts: Sequence[str] = ()) -> None:
        self._fs = fs
        self._key = record.key
        self._record = record
        self._receipts = list(receipts)
        self._in_flight: deque[tuple[Callable[[], str], Body]] = deque()
        self._free: list[bytearray] = []
        self.count = len(receipts)
        """Parts so far."""
        self._threads = Threads[str](PARTS_IN_FLIGHT, wait=True)

    @classmethod
    def create(cls, fs: ObjectStore, key: str, kept: bool, like: Response | None = None, tags: str = "") -> Upload:
        """Return a new upload; `kept` if a later process may continue it, `like` and `tags` of what it copies."""
        upload_records.sweep(fs)
        record = UploadRecord.create(fs, key, secrets.token_hex(12), kept)
        try:
            record.set_upload(_created(fs, record, like, tags))
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
        self._receipts.append(sent())
        if isinstance(body, bytearray):
            self._free.append(body)

    def send_part(self, body: Body) -> None:
        """Send the next part, when there is room for it among those in flight; raises what became of an earlier one."""
        self._check_count()
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        self._in_flight.append((self._threads.start(partial(self._sent_part, self.count, body)), body))

    def copy_part(self, source: ObjectStore, src: str, version: str | None, part: Range) -> None:
        """Have the store copy a range of an object as the next part."""
        self._check_count()
        while len(self._in_flight) >= PARTS_IN_FLIGHT:
            self._wait()
        self.count += 1
        into = PartOf(self._key, self._record.upload, self.count)
        request = self._fs.dialect.copied_part(source.dialect, src, version, part, into)
        self._in_flight.append((self._threads.start(partial(self._answered, self.count, request)), b""))

    def _check_count(self) -> None:
        if self.count >= self._fs.dialect.max_parts:
            raise OSError(errno.EFBIG, f"more than {self.count} parts; larger parts reach further")

    def _sent_part(self, number: int, body: Body) -> str:
        """Send a part, and return its receipt."""
        return self._answered(number, self._fs.dialect.part(PartOf(self._key, self._record.upload, number), body))

    def _answered(self, number: int, request: Request) -> str:
        response = self._fs.send(request)
        self._record.touch()
        return self._fs.dialect.receipt(number, request, response)

    def complete(self, exclusive: bool) -> None:
        """Wait for the parts in flight, and make the object of all parts."""
        while self._in_flight:
            self._wait()
        try:
            self._fs.send(self._fs.dialect.complete(self._key, self._record.upload, self._receipts, exclusive))
        except OSError as exc:
            stale = isinstance(exc, errors.StaleFileError)
            if not stale and code_of(exc) != GONE:
                raise
            if not is_marked(self._fs, self._key, self._record.mark):  # else only the response had been lost
                if stale and exclusive:
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


def _created(fs: ObjectStore, record: UploadRecord, like: Response | None, tags: str) -> str:
    """Create an upload in the store, and return its id."""
    request = fs.dialect.begin(record.key, record.mark, like, tags)
    if request is None:
        return record.mark
    response = fs.send(request)
    if response.attempts > 1:  # an earlier one may have created an upload, too
        UploadRecord.create(fs, record.key, record.mark, kept=False, owner=upload_records.FREE)
    found = fs.dialect.begun(response)
    if not found:
        raise errors.CorruptFileError(errno.EBADMSG, "the store began an upload and gave it no id")
    return found


def is_marked(fs: ObjectStore, key: str, mark: str) -> bool:
    """Return whether the object is the one that this process has written: the response to that may have been lost."""
    try:
        return fs.dialect.mark_of(fs.send(fs.dialect.head(key))) == mark
    except OSError:
        return False


def copy_parts(fs: ObjectStore, source: ObjectStore, src: str, dst: str) -> None:
    """Have the store copy an object in parts, with its metadata and tags."""
    head = source.send(source.dialect.head(src))
    size, _, version, _ = source.dialect.found(head)
    asked = source.dialect.tags(src)
    tags = source.dialect.tags_of(source.send(asked)) if asked is not None else ""
    upload = Upload.create(fs, dst, kept=False, like=head, tags=tags)
    try:
        for offset in range(0, size, COPIED_PART):
            upload.copy_part(source, src, version, (min(COPIED_PART, size - offset), offset))
        upload.complete(exclusive=False)
    except BaseException:
        upload.abort()
        raise


def abort_old(fs: ObjectStore, older_than: float, prefix: str, key: str = "") -> int:
    """Abort the uploads below `prefix`, or of one `key`, that were begun so many seconds ago; return how many."""
    aborted = 0
    for upload in list(uploads_below(fs, prefix)):
        request = fs.dialect.abort(upload.key, upload.name)
        if request is not None and time.time() - upload.begun >= older_than and (not key or upload.key == key):
            fs.send(request)
            aborted += 1
    return aborted


# ---- going on


def resume(fs: ObjectStore, key: str, source: Blob, chunk: int) -> tuple[Upload | None, int]:
    """Return an interrupted upload of the content of `source`, if there is one, and the offset of its next byte."""
    for record in upload_records.taken_over(fs, key):
        try:
            check = _PartCheck(fs, source, chunk)
            parts = list(itertools.takewhile(check.has_bytes_of_source, parts_of(fs, key, record.upload)))
        except BaseException as exc:
            if code_of(exc) != GONE:
                record.release(kept=True)
                raise
            parts = []
        if parts:
            continued = Upload(fs, record, [fs.dialect.receipt_of_stored(part) for part in parts])
            return continued, sum(part.size for part in parts)
        with contextlib.suppress(OSError):
            upload_records.abort(fs, record)  # of another content, or gone
    return None, 0


class _PartCheck:
    """Compares the parts of an upload, from the first on, with the bytes of `source`."""

    def __init__(self, fs: ObjectStore, source: Blob, chunk: int) -> None:
        self._fs = fs
        self._source = source
        self._chunk = chunk
        self._number = 0
        self._offset = 0

    def has_bytes_of_source(self, part: StoredPart) -> bool:
        """Return whether the next part has the next bytes."""
        self._number += 1
        size = part_size(self._number, self._chunk)
        if (part.number, part.size) != (self._number, size) or self._offset + size > self._source.size:
            return False
        offset = self._offset
        self._offset += size
        return self._fs.dialect.is_part_of(part, self._source, offset)
