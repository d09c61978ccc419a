"""The addresses that redirects have given for objects, kept for as long as they are good.

A redirect costs a request, and often a part of a quota; the address that it gives, signed or not, can be used again
until it ends. In a file, addresses are shared by all processes of a user and outlive them. That file has the secrets of
signatures in it: it belongs to the user alone, and is removed two hours after the last address was written to it.

The file is only ever added to. Each record has a checksum of its own, so that one that was torn, by a machine that
shares the folder or by a crash, is skipped. What can't be read or written is not there.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import os
import re
import struct
import time
import urllib.parse
import zlib
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime

from ...core import process
from ...disk.descriptors import write_all
from ...disk.folders import Folder
from .http1 import ResponseHead

LONGEST = 3600.0
"""Seconds after which an address is asked for again, whatever it says."""
MARGIN = 30.0
"""Seconds before its end from which an address is not used any more: a request takes its time."""
PERIOD = 3600
"""Seconds after which another file is begun."""
MAX_KNOWN = 1_000_000
"""Addresses that a process remembers; then it forgets them all."""
MAX_SIZE = 8 * 1024
_MAGIC = b"\nad1"
_RECORD = struct.Struct("=4sLd16sH")
"""Magic, checksum of the rest, end, digest of the name, size of the address."""
_CHECKED_FROM = 8
_DATE = re.compile(r"\d{8}T\d{6}Z").fullmatch
_SIGNED_FIELDS = re.compile(r"[?&]((?:x-(?:amz|goog)-)?(?:date|expires)|policy)=([^&#]*)", re.IGNORECASE).findall


def signed_until(url: str, head: ResponseHead) -> float | None:
    """Return until when an address is good that came with a response, by this machine's clock; an hour at most.

    The end is what its signature says (of AWS, Google and CloudFront), as the clock of the sender has it; None if it
    has no signature that is known.
    """
    now = time.time()
    end = _end_of({name.lower(): urllib.parse.unquote(value) for name, value in _SIGNED_FIELDS(url)})
    if end is None:
        return None
    theirs = _seconds_of(head.header(b"date") or "")
    return now + min(LONGEST, end - (now if theirs is None else theirs) - MARGIN)


@functools.lru_cache(maxsize=16)
def _seconds_of(date: str) -> float | None:
    """Return the time of a Date field, which many responses have in common."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def _end_of(fields: dict[str, str]) -> float | None:
    """Return when the signature of a query ends, in seconds since 1970; None if it doesn't say."""
    for vendor in ("x-amz-", "x-goog-"):
        begun, seconds = fields.get(f"{vendor}date", ""), fields.get(f"{vendor}expires", "")
        if _DATE(begun) and seconds.isdigit():
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(begun).timestamp() + int(seconds)
    if fields.get("expires", "").isdigit():
        return float(fields["expires"])
    with contextlib.suppress(binascii.Error, ValueError):  # a policy of CloudFront, in its own base64
        policy = base64.b64decode(fields.get("policy", "").translate(str.maketrans("-_~", "+=/")))
        found = re.search(rb'"AWS:EpochTime"\s*:\s*(\d+)', policy)
        return float(found[1]) if found is not None else None
    return None


class Addresses:
    """Addresses by the names of what they are of, for all threads, and in forked children, too.

    Args:
        folder: where they are shared with other processes, or None.
        store: what has the names, and who may read it: others have a file of their own.
    """

    def __init__(self, folder: str | None = None, store: str = "") -> None:
        self._lock = process.Lock()
        self._folder = folder
        self._prefix = hashlib.blake2b(store.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        # By period.
        self._files: process.PerProcess[dict[int, _AddressFile]] = process.PerProcess(dict)
        self._known: dict[bytes, tuple[float, str | tuple[int, int, int]]] = {}
        """End, and the address, or its period, offset and size, by the digest of the name."""

    def get(self, name: str) -> str:
        """Return the address of what has this name; empty if none is known that is good."""
        digest = _digest(name)
        found = self._known.get(digest)
        if (found is None or found[0] < time.time()) and self._folder is not None:
            self._read_new()
            found = self._known.get(digest)
        if found is None or found[0] < time.time():
            return ""
        where = found[1]
        if isinstance(where, str):
            return where
        file = self._file(where[0])
        return file.address(digest, where[1], where[2]) if file is not None else ""

    def put(self, name: str, url: str, until: float) -> None:
        """Keep an address; one that has ended already is forgotten."""
        digest, address = _digest(name), url.encode("ascii", "replace")
        if len(address) > MAX_SIZE:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known = {}
        self._known[digest] = (until, url)
        period = int(time.time()) // PERIOD
        if self._folder is not None and (file := self._file(period, create=True)) is not None:
            with self._lock:
                offset = file.append(digest, address, until)
            if offset is not None:
                self._known[digest] = (until, (period, offset, len(address)))

    def forget(self, name: str) -> None:
        """Forget an address that is not good any more."""
        self.put(name, "", 0.0)

    def _read_new(self) -> None:
        """Take note of what processes have written since."""
        period = int(time.time()) // PERIOD
        for number in (period - 1, period):
            file = self._file(number)
            if file is not None and file.has_more():
                with self._lock:
                    for digest, until, offset, size in file.read_new():
                        if len(self._known) < MAX_KNOWN:
                            self._known[digest] = (until, (number, offset, size))

    def _file(self, period: int, create: bool = False) -> _AddressFile | None:
        """Return the file of a period, opened if it is there, and made to `create` it."""
        files = self._files.get()
        found = files.get(period)
        if found is not None and (found.fd >= 0 or not create):
            return found
        with self._lock:
            found = files.get(period)
            if found is None or (create and not found.fd >= 0):
                made = _AddressFile(self._folder or "", f"{self._prefix}-{period}", create)
                if not (made.fd >= 0 or create) and period == int(time.time()) // PERIOD:
                    return None  # another process may make it yet
                for number in [number for number in files if number < period - 1]:
                    del files[number]
                files[period] = found = made
            return found


class SharedFile:
    """A private file that the processes of a user share; `fd` is -1 for one that can't be opened, or has failed.

    It is closed when it is freed. A child opens it anew: a daemon closes all that it has inherited, and would write
    into another file then.
    """

    def __init__(self, folder: str, name: str, flags: int) -> None:
        self.fd = -1
        with contextlib.suppress(OSError), Folder(folder, create=bool(flags & os.O_CREAT), private=True) as there:
            self.fd = there.open(name, os.O_RDWR | flags)

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)


class _AddressFile(SharedFile):
    """One of the files; one that can't be opened has nothing, and takes nothing."""

    def __init__(self, folder: str, name: str, create: bool) -> None:
        super().__init__(folder, name, os.O_APPEND | (os.O_CREAT if create else 0))
        self._end = 0  # of what has been read
        if create:
            _sweep(folder)

    def has_more(self) -> bool:
        return self.fd >= 0 and os.fstat(self.fd).st_size > self._end

    def append(self, digest: bytes, address: bytes, until: float) -> int | None:
        """Add an address; return where it is, or None: then it is not there, or `read_new` will tell."""
        rest = _RECORD.pack(_MAGIC, 0, until, digest, len(address))[_CHECKED_FROM:] + address
        if self.fd >= 0:
            with contextlib.suppress(OSError):  # a full disk: nothing is kept
                write_all(self.fd, _MAGIC + struct.pack("=L", zlib.crc32(rest)) + rest)
                if (end := os.lseek(self.fd, 0, os.SEEK_CUR)) == self._end + _CHECKED_FROM + len(rest):
                    self._end = end  # nothing else was added
                    return end - len(address)
        return None

    def address(self, digest: bytes, offset: int, size: int) -> str:
        """Return an address; empty if its record is not there: a child may have opened another file of this name."""
        try:
            record = os.pread(self.fd, _RECORD.size + size, offset - _RECORD.size)
            _, crc, _, name, length = _RECORD.unpack_from(record)
            if (name, length) != (digest, size) or zlib.crc32(record[_CHECKED_FROM:]) != crc:
                return ""
            return record[_RECORD.size :].decode("ascii")
        except (OSError, ValueError, struct.error):
            return ""

    def read_new(self) -> list[tuple[bytes, float, int, int]]:
        """Return digest, end, offset and size of the addresses that were added since the last call."""
        found: list[tuple[bytes, float, int, int]] = []
        with contextlib.suppress(OSError):
            data, at = os.pread(self.fd, 1 << 24, self._end), 0
            while (at := data.find(_MAGIC, at)) >= 0 and len(data) - at >= _RECORD.size:
                _, crc, until, digest, size = _RECORD.unpack_from(data, at)
                end = at + _RECORD.size + size
                if size <= MAX_SIZE and zlib.crc32(data[at + _CHECKED_FROM : end]) == crc:
                    if end > len(data):
                        break
                    found.append((digest, until, self._end + at + _RECORD.size, size))
                    at = end
                elif size <= MAX_SIZE and end > len(data):
                    break  # it is still being written, or torn: then what follows is found by its magic
                else:
                    at += 1
            self._end += len(data) if at < 0 else at
        return found


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sweep(folder: str) -> None:
    """Remove files of earlier periods."""
    with contextlib.suppress(OSError), Folder(folder, private=True) as there:
        for name, status in list(there.entries()):
            if time.time() - status.st_mtime > 2 * PERIOD and re.fullmatch(r"[0-9a-f]{24}-\d+", name):
                there.remove(name)
