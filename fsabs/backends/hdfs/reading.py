"""Reading a file of HDFS: ranges of one version, repeated within a deadline when NameNodes or DataNodes fail.

The library reads blocks that are complete. The last block of a file that another process writes or appends to is not,
also after that process was killed, until its lease is recovered: such a file is refused, and never read as a shorter
one.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core import errors, process
from ...core import ranges as ranges_of
from ...core.blobs import Blob, BytesBlob, Origin
from ...core.stats import FileStat
from ...core.threads import in_threads
from .client import Deadline, HdfsClient, HdfsPlace, Nameservice, file_stat
from .library import RECOVER_LEASE

MAX_GAP_BYTES = 256 * 1024
"""The largest gap, in bytes, between ranges that are read by one request: another request takes about as long."""
MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Bytes of one request for several ranges."""
MISSING_BLOCK_WAIT = 20.0
"""Seconds, at most, to wait for a block that no DataNode serves: a DataNode may be restarting."""
CONCURRENCY = 8
"""Requests at once for several ranges."""
_PIECE = 4 * 1024 * 1024  # bytes of a large range in one request: memory that was just used is used again
_STREAMS = 3  # requests at once for one large range
_LEAST_BLOCK_BYTES = 64 * 1024  # NameNodes allow none below 1 MiB unless told to, and then multiples of 512 bytes


class OpenedFile(NamedTuple):
    """An open file of the library, whose blocks are located."""

    raw: Any
    stat: FileStat
    datanode_timeout: float
    """Seconds that it waits for each DataNode."""


def open_file(place: HdfsPlace, deadline: Deadline) -> OpenedFile:
    """Open a file; `FileNotFoundError`, `IsADirectoryError`, and EBUSY if its last block can't be read yet."""
    nameservice = place.nameservice
    timeout = nameservice.datanode_timeout
    _, (raw, status) = nameservice.call_on("open", functools.partial(_open_version, path=place.path), deadline=deadline)
    return OpenedFile(raw, file_stat(status, ""), timeout)


def small_file(place: HdfsPlace, limit: int) -> Callable[[Any], bytes]:
    """Return the request for the content of a file; EFBIG if it has more than `limit` bytes.

    What one open file reads is one version, which takes fewer requests than to know which one.
    """
    return functools.partial(_read_small, nameservice=place.nameservice, path=place.path, limit=limit)


def _open_version(client: Any, path: str) -> tuple[Any, Any]:
    """Return an open file, and its status: the same before and after, so that it is this version's."""
    before = client.get_file_info(path)
    while True:
        raw = client.read(path)
        after = client.get_file_info(path)
        if (before.modification_time, before.length) == (after.modification_time, after.length):
            _refuse_unfinished(client, path, raw.file_length(), after)
            return raw, after
        before = after  # replaced at this very moment


def _read_small(client: Any, nameservice: Nameservice, path: str, limit: int) -> bytes:
    raw = client.read(path)
    size = raw.file_length()
    if size > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    if size % 512 == 0 or size > _LEAST_BLOCK_BYTES:  # else there is no block after one that is complete
        _refuse_unfinished(client, path, size, client.get_file_info(path))
    with nameservice.noticing_silence():
        data: bytes = raw.read_range(0, size) if size else b""
    if len(data) != size:
        raise OSError(errno.EIO, f"{len(data)} bytes of {size}")
    return data


def _refuse_unfinished(client: Any, path: str, readable: int, status: Any) -> None:
    """Raise EBUSY unless all blocks of a file are complete; the complete ones have `readable` bytes."""
    unfinished = readable != status.length
    if not unfinished and status.blocksize and status.length % status.blocksize == 0:
        # The NameNode doesn't know the length of a block that was just begun, and reserves all of its space.
        whole = (status.length + status.blocksize) * status.replication
        parity = status.replication == 1 and status.length == 2 * status.blocksize  # takes as much, if erasure coded
        unfinished = client.get_content_summary(path).space_consumed == whole and not parity
    if unfinished:
        reason = f"another process is writing the file: its last block, after {readable} bytes, can't be read yet"
        raise OSError(errno.EBUSY, f"{reason}; {RECOVER_LEASE}")


class HdfsBlob(Blob):
    """An open file. Each process opens it for itself, and raises `StaleFileError` if the version is another one."""

    __slots__ = ("_client", "_opened")
    smallest_window = 32 * 1024
    largest_window = 8 * 1024 * 1024

    def __init__(self, origin: Origin, key: str, client: process.PerProcess[HdfsClient], opened: OpenedFile) -> None:
        super().__init__(origin, key, opened.stat.size, opened.stat.version)
        self._client = client
        self._opened: process.PerProcess[OpenedFile] = process.PerProcess(_never_made)
        self._opened.adopt(opened)

    @property
    def max_gap_bytes(self) -> int:
        """As of every blob: `_pread_many` plans its requests by it."""
        return MAX_GAP_BYTES

    def read_within(self, deadline: Deadline) -> bytes:
        """Return the whole content; of a file that takes several requests, each has the usual time."""
        return self._read(self.size, 0, deadline) if self.size else b""

    def _pread(self, size: int, offset: int) -> bytes:
        return self._read(size, offset, self._deadline())

    def _read(self, size: int, offset: int, deadline: Deadline) -> bytes:
        if size <= 2 * MAX_REQUEST_BYTES:
            return self._read_range(size, offset, deadline)
        pieces = [(min(_PIECE, offset + size - start), start) for start in range(offset, offset + size, _PIECE)]
        found = io.BytesIO()  # whose value is no copy, as that of a join would be of all pieces
        for piece in in_threads(self._read_request, pieces, _STREAMS):
            found.write(piece)
        return found.getvalue()

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read neighbours together, and several requests at once."""
        plan = ranges_of.plan(ranges, MAX_GAP_BYTES, MAX_REQUEST_BYTES)
        width = min(CONCURRENCY, len(plan.requests))
        if width <= 1:
            return plan.assemble([self._read_request(request) for request in plan.requests])
        return plan.assemble(list(in_threads(self._read_request, plan.requests, width)))

    def _read_request(self, request: tuple[int, int]) -> bytes:
        return self._read_range(*request, self._deadline())

    @property
    def _place(self) -> HdfsPlace:
        return self._client.get().place(self._key)

    def _deadline(self) -> Deadline:
        return Deadline(self._place.nameservice.policy.timeout)

    def _read_range(self, size: int, offset: int, deadline: Deadline) -> bytes:
        nameservice = self._place.nameservice
        delay, failed = 0.1, 0.0
        while True:
            try:
                opened = self._opened.peek()
                if opened is None or opened.datanode_timeout > nameservice.datanode_timeout:
                    opened = self._open_again(deadline)
                read: Callable[[], bytes] = functools.partial(opened.raw.read_range, offset, size)
                data = nameservice.transfer("read", read, deadline)
            except OSError as exc:
                now = time.monotonic()
                failed = failed or now
                in_time = isinstance(exc, TimeoutError) or now + delay <= failed + MISSING_BLOCK_WAIT
                if exc.errno in (errno.ESTALE, errno.EACCES, errno.EBUSY) or not (in_time and deadline.has(delay)):
                    raise
                # The library gives a DataNode up for good at one connection that breaks; open the file anew, which
                # raises if it is another version by now.
                self._opened.close()
                time.sleep(min(delay, deadline.left()) * (0.5 + random.random() / 2))
                delay = min(2 * delay, 2.0)
            else:
                if len(data) != size:
                    raise self._short(len(data), size, offset)
                return data

    def _open_again(self, deadline: Deadline) -> OpenedFile:
        try:
            opened = open_file(self._place, deadline)
        except FileNotFoundError as exc:
            raise errors.stale(self.url, "the file was removed while it was open") from exc
        if opened.stat.version != self.version:
            raise errors.stale(self.url)
        self._opened.adopt(opened)
        return opened


class HdfsSmallBlob(BytesBlob):
    """A small file, which was read when it was opened, by fewer requests than its version takes.

    A version that is asked for is that of a file with the same content.
    """

    __slots__ = ("_checked",)

    def __init__(self, origin: Origin, key: str, data: bytes) -> None:
        self._checked: str | None = None
        super().__init__(origin, key, data)

    @property
    def version(self) -> str | None:
        """As of every blob; `StaleFileError` if the file has another content by now."""
        if self._checked is None:
            with self._origin._open_blob(self._key) as blob:
                if blob.size != self.size or blob.read_all() != self._data:
                    raise errors.stale(self.url)
                self._checked = blob.version
        return self._checked

    @version.setter
    def version(self, version: str | None) -> None:
        self._checked = version

    def __reduce__(self) -> tuple[Any, ...]:
        return HdfsSmallBlob, (self._origin, self._key, self._data)


def _never_made() -> OpenedFile:
    raise AssertionError("a file is opened with a deadline, and adopted")
