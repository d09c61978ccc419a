"""Indexes of archives and of other files, kept in the cache directory for all processes of this user.

A cached index is named by its kind (a name with the number of its layout, `zip-1`) and by the identity of the file that
it was made from. `save` writes one, `lookup` maps it, `load` maps and checks all of it. An index that can't be kept or
read is made again: nothing here raises for a disk that is full or read-only, for a missing home, or for a file that is
damaged. `$FSABS_CACHE_DIR` set to nothing keeps nothing; `$FSABS_CACHE_MAX_BYTES` (2 GiB)
bounds what is kept on disk, and what was not used for longest goes first.

A file is one header (`_HEAD`, and the kind and identity in full), the payload, and the CRC-32 of each block of it. It
belongs to the user alone, and another's is not trusted. It is written under another name and renamed, and never changed
or cut in place: a mapping of a file that is cut kills its process.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
import time
import warnings
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core import hooks
from ..core.identity import Identity
from . import files, folders
from .descriptors import read_all
from .folders import Folder, cache_directory

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_BYTES = 2 * 1024 * 1024 * 1024
"""Bytes on disk, if `$FSABS_CACHE_MAX_BYTES` doesn't say otherwise."""
SMALL = 256 * 1024
"""A payload up to this size is read into memory, and checked at once; a larger one is mapped."""
BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
"""Bytes of payload that have a checksum of their own."""
SWEEP_EVERY = 600.0
"""Seconds between two sweeps of the folder."""
_TOUCH_EVERY = 3600.0  # seconds; a use is noted by the time of the file
_MAGIC = b"fsabs\0\2\n"
_HEAD = struct.Struct("=8sLLQL4x")
"""Magic, CRC-32 of the rest of the head and the fingerprint, its size, size of the payload, CRC-32 of the checksums."""
_FIRST_CHECKED = 12  # behind the magic and the CRC-32
_ALIGNED = 64  # where the payload starts, and what its parts may count on


class CachedIndex:
    """A payload that was saved: a read-only buffer, good in threads and after a fork for as long as it is referenced.

    `raw[start + at]` is the payload's byte `at`, in an object whose slices are copies and not views. What was mapped is
    not checked until it is asked for by `check`.
    """

    __slots__ = ("good", "raw", "start", "sums", "view")

    def __init__(self, raw: bytes | mmap.mmap, start: int, size: int, sums: memoryview) -> None:
        self.raw = raw
        self.start = start
        self.view = memoryview(raw).toreadonly()[start : start + size]
        self.sums = sums
        self.good = bytearray(len(sums))
        """Which blocks are known to be right."""

    def check(self, start: int = 0, stop: int | None = None) -> bool:
        """Return whether these bytes of the payload are those that were saved. Each block is checked once."""
        first = start >> BLOCK_BITS
        last = (len(self.view) if stop is None else stop) - 1 >> BLOCK_BITS
        for at in range(first, last + 1):
            if not self.good[at]:
                if zlib.crc32(self.view[at << BLOCK_BITS : at + 1 << BLOCK_BITS]) != self.sums[at]:
                    return False
                self.good[at] = 1
        return True


def load(kind: str, identity: Identity | None) -> memoryview | None:
    """Return the payload that was saved for a file, all of it checked; None if there is none."""
    found = lookup(kind, identity)
    return found.view if found is not None and found.check() else None


def lookup(kind: str, identity: Identity | None) -> CachedIndex | None:
    """As `load`, but a large payload is mapped and not looked at: `CachedIndex.check` does, as far as it is needed."""
    path = _folder()
    if identity is None or path is None:
        return None
    found = None
    with contextlib.suppress(OSError, ValueError, struct.error), Folder(path) as folder:
        # Whatever is wrong with it, it is not there.
        fd = folder.open(_name(kind, identity))
        try:
            found = _opened(fd, identity.encode(kind), path)
        finally:
            os.close(fd)
    if (instrument := hooks.active) is not None:
        instrument.record_event("miss" if found is None else "hit", f"index_cache.{kind}", where=identity.url)
    return found


def save(kind: str, identity: Identity | None, parts: Iterable[Buffer]) -> bool:
    """Keep a payload, given in parts, for a file, in place of one that was saved for another version of it.

    Returns False if it can't be kept; `parts` may have been used up by then, and an error of theirs is raised. Without
    an identity (the store has no versions, or one that is not strong) nothing is kept. Parts that should be
    aligned have to pad themselves.
    """
    path = _folder()
    if identity is None or path is None:
        return False
    try:
        folder = Folder(path, create=True)
    except OSError:
        return False
    with folder:
        try:
            index = _IndexWriter(folder.replace(_name(kind, identity)), identity.encode(kind))
        except OSError:
            return False
        try:
            saved = all(index.add(part) for part in parts) and index.finish()
        finally:
            index.out.abort()
        if saved:
            with contextlib.suppress(OSError):  # another process sweeps at this moment
                _sweep(folder, index.size)
    return saved


def _folder() -> str | None:
    directory = cache_directory()
    return None if directory is None else f"{directory}/indexes"


def _name(kind: str, identity: Identity) -> str:
    """Return the name of the payload of this kind, of whatever version of a file: a new one replaces the one before."""
    return f"{kind}-{identity._replace(version='', size=0).digest()[:32]}"


# ---- reading one


def _opened(fd: int, fingerprint: bytes, folder: str) -> CachedIndex:
    """Return the content of an open file; `ValueError` if it is damaged, or of another format."""
    status = os.fstat(fd)
    head = os.pread(fd, _HEAD.size + len(fingerprint), 0)
    magic, crc, length, payload, sums_crc = _HEAD.unpack_from(head)
    start = _start(length)
    total = start + payload + 4 * _blocks(payload)
    if magic != _MAGIC or head[_HEAD.size :] != fingerprint or length != len(fingerprint) or total != status.st_size:
        raise ValueError("of another version, or cut")
    if zlib.crc32(head[_FIRST_CHECKED:]) != crc:
        raise ValueError("a damaged head")
    in_memory = payload <= SMALL or _may_vanish(status.st_dev, folder)
    raw = read_all(fd, total) if in_memory else mmap.mmap(fd, total, access=mmap.ACCESS_READ)
    if len(raw) < total:
        raise ValueError("cut while it was read")
    sums = memoryview(raw)[start + payload :]
    if zlib.crc32(sums) != sums_crc:
        raise ValueError("damaged checksums")
    found = CachedIndex(raw, start, payload, sums.cast("I"))
    if payload <= SMALL and not found.check():
        raise ValueError("damaged")
    if time.time() - status.st_mtime > _TOUCH_EVERY:
        with contextlib.suppress(OSError):  # a read-only disk
            os.utime(fd)  # what is used is swept last
    return found


def _start(fingerprint: int) -> int:
    """Return the offset of the payload, after a fingerprint of this size."""
    return -(-(_HEAD.size + fingerprint) // _ALIGNED) * _ALIGNED


def _blocks(payload: int) -> int:
    return -(-payload >> BLOCK_BITS)


@functools.cache
def _may_vanish(device: int, folder: str) -> bool:
    """Return whether a file there may be gone for good while it is mapped, because another machine has replaced it."""
    return folders.is_network(folders.filesystem_of(folder))


# ---- writing one


class _IndexWriter:
    """Writes an index; each step returns whether it went well."""

    def __init__(self, out: files.Replacement, fingerprint: bytes) -> None:
        self.out = out
        self.size = 0
        """Bytes of the payload so far."""
        self._fingerprint = fingerprint
        self._sums: list[int] = []
        self._limit = _limit()
        os.ftruncate(out.descriptor, os.lseek(out.descriptor, _start(len(fingerprint)), os.SEEK_SET))

    def add(self, part: Buffer) -> bool:
        """Write a part of the payload."""
        with memoryview(part) as whole, whole.cast("B") as view:
            if self.size + len(view) > self._limit:
                return False
            self._add_sums(view)
            return self._write(view)

    def _add_sums(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            room = BLOCK - (self.size & BLOCK - 1)
            if room == BLOCK:
                self._sums.append(0)
            piece = view[at : at + room]
            self._sums[-1] = zlib.crc32(piece, self._sums[-1])
            self.size += len(piece)
            at += len(piece)

    def _write(self, view: memoryview) -> bool:
        try:
            self.out.write(view)
        except OSError:
            return False
        return True

    def finish(self) -> bool:
        """Write the checksums and the head, and publish the file."""
        sums = struct.pack(f"={len(self._sums)}L", *self._sums)
        checked = struct.pack("=LQL4x", len(self._fingerprint), self.size, zlib.crc32(sums)) + self._fingerprint
        head = struct.pack("=8sL", _MAGIC, zlib.crc32(checked)) + checked
        try:
            self.out.write(sums)
            os.pwrite(self.out.descriptor, head, 0)
            self.out.commit()
        except OSError:
            return False
        return True


# ---- what is kept in all


def _limit() -> int:
    text = os.environ.get("FSABS_CACHE_MAX_BYTES")
    if not text:
        return MAX_BYTES
    try:
        return max(0, int(text))
    except ValueError:
        warnings.warn(f"FSABS_CACHE_MAX_BYTES is not a number of bytes: {text!r}", RuntimeWarning, stacklevel=4)
        return MAX_BYTES


def _sweep(folder: Folder, saved: int) -> None:
    """Now and then, or when much was saved: remove what was used longest ago, down to the limit, and leftovers."""
    fd = folder.open(".swept", os.O_CREAT | os.O_WRONLY)
    try:
        limit = _limit()
        fresh = os.fstat(fd).st_size and 0 <= time.time() - os.fstat(fd).st_mtime < SWEEP_EVERY
        if fresh and saved < limit // 16:
            return
        os.pwrite(fd, b"-", 0)  # which sets its time
    finally:
        os.close(fd)
    files.sweep(folder.descriptor)
    total = 0
    for name, status in sorted(folder.entries(), key=lambda entry: entry[1].st_mtime, reverse=True):
        total += status.st_blocks * 512
        if total > limit:
            with contextlib.suppress(OSError):  # another process was faster
                folder.remove(name)
