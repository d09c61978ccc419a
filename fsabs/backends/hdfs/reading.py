"""Reading a file of HDFS: ranges of one version, repeated within a deadline when NameNodes or DataNodes fail."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Sequence
from typing import Any

from ... import errors, process
from ... import ranges as ranges_of
from ...blobs import Blob, BytesBlob
from ...core import in_threads
from .access import HdfsAccess
from .driver import Driver, DriverReader

SMALL_FILE_BYTES = 256 * 1024
"""The largest file, in bytes, that is read when it is opened: a request without content takes about as long."""
MAX_GAP_BYTES = 256 * 1024
"""The largest gap, in bytes, between ranges that are read by one request: another request takes about as long."""
MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""Bytes of one request for several ranges, and of each piece of a large one."""
MISSING_BLOCK_WAIT = 20.0
"""Seconds, at most, to wait for a block that no DataNode serves: a DataNode may be restarting."""
FIRST_SHARE = 1 / 3
"""The part of the deadline after which a read without a response is started again, from a file opened again.

hdfs-native has been seen to wait for ever, once in thousands of reads, while its servers answered all others.
"""
_STREAMS = 3  # requests at once for one large range


class HdfsBlob(Blob):
    """An open file. Each process opens it for itself, and raises `StaleFileError` if the version is another one."""

    __slots__ = ("_reader",)
    _origin: HdfsAccess

    def __init__(self, origin: HdfsAccess, key: str, reader: DriverReader, version: str) -> None:
        super().__init__(origin, key, reader.size, version)
        self._reader: process.PerProcess[DriverReader] = process.PerProcess(_never_made)
        self._reader.adopt(reader)

    def read_until(self, until: float) -> bytes:
        """Return the whole content; `until` is the deadline, by `time.monotonic`."""
        return self._read(self.size, 0, until) if self.size else b""

    def _pread(self, size: int, offset: int) -> bytes:
        return self._read(size, offset, time.monotonic() + self._driver.timeout)

    def _read(self, size: int, offset: int, until: float) -> bytes:
        if size <= 2 * MAX_REQUEST_BYTES:
            return self._read_range(size, offset, until)
        pieces = [
            (min(MAX_REQUEST_BYTES, offset + size - start), start)
            for start in range(offset, offset + size, MAX_REQUEST_BYTES)
        ]
        return b"".join(in_threads(functools.partial(self._read_request, until=until), pieces, _STREAMS))

    def _read_range(self, size: int, offset: int, until: float) -> bytes:
        delay, failed, share = 0.1, 0.0, FIRST_SHARE
        while True:
            try:
                reader = self._reader.peek() or self._open_again(until)
                return reader.read_range(offset, size, share * (until - time.monotonic()))
            except errors.StaleFileError:
                raise
            except OSError as exc:
                now = time.monotonic()
                failed, share = failed or now, 1.0
                limit = until if isinstance(exc, TimeoutError) else min(until, failed + MISSING_BLOCK_WAIT)
                if isinstance(exc, PermissionError) or now + delay > limit:
                    raise
                self._check_version(exc, until)
                # The library gives a DataNode up for good at one connection that breaks; open the file anew.
                self._reader.close()
                time.sleep(min(delay, max(0.0, until - time.monotonic())) * (0.5 + random.random() / 2))
                delay = min(2 * delay, 2.0)

    @property
    def max_gap_bytes(self) -> int:
        """As of every blob: `_pread_many` plans its requests by it."""
        return MAX_GAP_BYTES

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read neighbours together, and several requests at once."""
        plan = ranges_of.plan(ranges, MAX_GAP_BYTES, MAX_REQUEST_BYTES)
        width = min(self._origin.default_concurrency, len(plan.requests))
        if width <= 1:
            return plan.assemble([self._read_request(request) for request in plan.requests])
        return plan.assemble(list(in_threads(self._read_request, plan.requests, width)))

    def _read_request(self, request: tuple[int, int], until: float | None = None) -> bytes:
        data = self._read_range(*request, time.monotonic() + self._driver.timeout if until is None else until)
        if len(data) != request[0]:
            raise self._short(len(data), *request)
        return data

    @property
    def _driver(self) -> Driver:
        return self._origin.driver

    def _open_again(self, until: float) -> DriverReader:
        try:
            reader, stat = self._driver.open("/" + self._key, max(0.001, until - time.monotonic()))
        except FileNotFoundError as exc:
            raise errors.stale(self.url, "the file was removed while it was open") from exc
        if stat.version != self.version:
            raise errors.stale(self.url)
        self._reader.adopt(reader)
        return reader

    def _check_version(self, cause: OSError, until: float) -> None:
        """Raise `StaleFileError` if the path is another version by now."""
        try:
            now = self._driver.stat("/" + self._key, max(0.001, until - time.monotonic())).version
        except FileNotFoundError:
            now = ""
        if now != self.version:
            raise errors.stale(self.url) from cause


class HdfsSmallBlob(BytesBlob):
    """A small file, which was read when it was opened: by two requests, where one with a version takes four.

    The library opens a file without its version. One that is asked for is that of a file with the same content.
    """

    __slots__ = ("_checked",)

    def __init__(self, origin: HdfsAccess, key: str, data: bytes) -> None:
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


def _never_made() -> DriverReader:
    raise AssertionError("a reader is opened with a deadline, and adopted")
