"""A table of numbered items in one file, for all threads and processes that open it.

    0                header    what the file is; written once, with a checksum of its own
    1048             sealed    the file's size when it was preserved, else 0
    2048             claims    which process is making what: see `claims`
    4096             slots     one of 32 bytes for each number; their space is reserved when the file is made
    data_start       data      the values, appended

A slot: offset u64, length u64, 8 bytes that are not used, check u32, 2 bytes that are not used, kind u8, 1 byte that is
not used, all in the machine's byte order. A kind of EMPTY is no item, the others are the user's. `check` is the CRC-32C
of the value mixed with length, kind and number: a slot that is half written, points elsewhere, is another item's or has
changed by a bit does not fit its bytes, not even where it claims to be empty.

No lock is taken between processes: a value is appended by one write, of which the kernel says where it went, and the
slot is written after it. A process that is killed in between leaves space that is never used. Files of the release
before have this format, too, and keys behind the slots, which are not read.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import weakref
from typing import NamedTuple

from ...core import errors, process
from ...disk import folders
from ...disk.descriptors import allocate, open_ours, read_all
from ..frames import checksum
from .claims import SlotClaims

MAGIC = b"fsabs\x00C\x01"
VERSION = 2
HEADER = struct.Struct("@8sIIQ8xQQ64s32s")
HEADER_CHECK = struct.Struct("@I")
SEALED_AT, CLAIMS_AT, CLAIMS = 1048, 2048, 128
SLOTS_START = 4096
SLOT = struct.Struct("@QQ8xI2xBx")
SLOT_SIZE = 32
BYTES = struct.Struct("@QQ8xI4x")  # what a hit of plain bytes needs of it: offset, length, check, which says the kind
EMPTY, RAW = 0, 1
"""Kinds: no item, and plain bytes."""
NUMBER_FACTOR = 2 * 0x85EBCA6B
FARTHEST = 1 << 43  # bytes; ext4 ends a file at 16 TiB
LIVE_PREFIX, LIVE_SUFFIX = "fsabs-", ".live"
_WORD = struct.Struct("@Q")
_PAGE = 4096
_LARGE = 256 * 1024  # bytes; a read of more asks for the size of the file first
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PutOutcome(enum.Enum):
    """The outcome of a put."""

    STORED = "stored"
    PRESENT = "present"
    """There is an item already, and it stays."""
    OVER_LIMIT = "over limit"
    """The values would take more than they may."""
    FULL = "full"
    """The disk has no room."""
    FROZEN = "frozen"
    """The cache is preserved, read-only or closed."""


class TableHeader(NamedTuple):
    """What a file of items says about itself."""

    length: int
    """The number of slots."""
    align: int
    """Values begin at a multiple of this many bytes, unless two processes append at one moment."""
    contents: bytes
    """What the values are, in at most 64 bytes; a file with other contents is refused."""
    fingerprint: bytes
    """32 bytes of what the values are derived from, see `fingerprint()`; of zeros where it isn't known."""
    generation: int
    """A random number for each file."""

    @property
    def data_start(self) -> int:
        """The offset of the values."""
        return _up(SLOTS_START + self.length * SLOT_SIZE, max(_PAGE, self.align))

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        fields = self.length, self.align, self.generation, self.contents, self.fingerprint
        head = HEADER.pack(MAGIC, VERSION, SLOT_SIZE, *fields)
        return head + HEADER_CHECK.pack(checksum(head))


class ItemTable:
    """An open file of items. Threads share it, forked children go on with it, and it pickles by its path.

    The file of a live one goes when the process that made it closes it; what a killed process leaves is removed by the
    next one that makes a file in the folder, once no process has it open any more.
    """

    def __init__(self, path: str, fd: int, *, writable: bool, owned: bool = False, limit: int | None = None) -> None:
        """Take over `fd`, which is closed if this raises; `owned`: this process removes the file when it closes it."""
        self._appending: list[int] = []  # the descriptor that this process appends by
        made_in = process.generation() if owned else None
        self._finalizer = weakref.finalize(self, _close, path, fd, self._appending, made_in)
        self.fd: int = fd
        self._lock = process.Lock()
        self._appends_in = -1
        self.path = path
        self.writable = writable
        self.limit = limit
        self.damaged: int = 0
        """Items that this object has found to be wrong."""
        self._claims: tuple[int, SlotClaims] | None = None
        self.map: mmap.mmap | None = None
        self.header: TableHeader = _read_header(path, fd, writable)
        size = self.header.data_start if writable else os.fstat(fd).st_size
        self.map = mmap.mmap(fd, size, prot=mmap.PROT_READ)

    @classmethod
    def temporary(
        cls,
        folder: str,
        *,
        length: int,
        align: int = 1,
        contents: str = "",
        fingerprint: bytes = bytes(32),
        limit: int | None = None,
    ) -> ItemTable:
        """Make a new file in `folder`, a directory that is made if it isn't there; not on a network filesystem.

        `limit` is how many bytes of values a put may fill it to.
        """
        folders.refuse_network(folder)
        header = TableHeader(length, align, contents.encode(), fingerprint, secrets.randbits(63) | 1)
        try:
            os.makedirs(folder, exist_ok=True)
            _sweep(folder)
            path, fd = _make(folder, header)
        except OSError as exc:
            raise errors.named(exc, "create", folder) from None
        return cls(path, fd, writable=True, owned=True, limit=limit)

    @classmethod
    def preserved(cls, path: str) -> ItemTable:
        """Open a preserved file of this user's, read-only; `CorruptFileError` where it is none, or damaged."""
        folders.refuse_network(path)
        try:
            fd = open_ours(path, os.O_RDONLY)
        except OSError as exc:
            raise errors.named(exc, "open", path) from None
        return cls(path, fd, writable=False)

    @property
    def sealed(self) -> bool:
        """True if no items can be put any more, by no process."""
        mapped = self.map
        return mapped is None or _WORD.unpack_from(mapped, SEALED_AT)[0] != 0

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self.fd < 0

    def slots(self) -> memoryview:
        """Return the slots, mapped."""
        return memoryview(self.map or b"")[SLOTS_START:][: self.header.length * SLOT_SIZE]

    def claims(self) -> SlotClaims | None:
        """Return this process's claims of items that are being made; None where there are none."""
        with self._lock:
            if not self.writable or self.fd < 0:
                return None
            if self._claims is None or self._claims[0] != process.generation():
                try:
                    own = os.dup(self.fd)  # a fetch may go on after `close`
                except OSError:
                    return None
                self._claims = process.generation(), SlotClaims(own, CLAIMS_AT, CLAIMS)
            return self._claims[1]

    # ---- items

    def read(self, number: int) -> tuple[int, bytes] | None:
        """Return kind and value of an item; None where there is none that is whole and right."""
        at, mapped = SLOTS_START + number * SLOT_SIZE, self.map
        if mapped is None:
            return None
        slot = offset, length, check, kind = SLOT.unpack_from(mapped, at)
        if kind == EMPTY:
            return None
        try:
            value = self.read_at(length, offset)
        except OSError:
            if self.fd < 0:  # closed by another thread
                return None
            raise
        if len(value) == length and check_of(value, kind, number) == check:
            return kind, value
        if SLOT.unpack_from(mapped, at) != slot:  # it was written just now
            return self.read(number)
        self.damaged += 1
        if self.writable and not self.sealed:
            with contextlib.suppress(OSError):  # else it stays, and is a miss each time
                os.pwrite(self.fd, bytes(SLOT_SIZE), at)
        return None

    def read_at(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes: fewer where the file ends, none where the place or the size can't be right."""
        if offset > FARTHEST or (size > _LARGE and offset + size > os.fstat(self.fd).st_size):
            return b""
        return read_all(self.fd, size, offset)

    def put(self, number: int, value: bytes, kind: int = RAW) -> PutOutcome:
        """Store an item, if it isn't there."""
        with self._lock:
            mapped = self.map
            if mapped is None or not self.writable or self.sealed:
                return PutOutcome.FROZEN
            at = SLOTS_START + number * SLOT_SIZE
            if SLOT.unpack_from(mapped, at)[3] != EMPTY:
                return PutOutcome.PRESENT
            used = _up(os.fstat(self.fd).st_size, self.header.align) - self.header.data_start + len(value)
            if used > (FARTHEST if self.limit is None else self.limit):
                return PutOutcome.OVER_LIMIT
            try:
                offset = self._append(-os.fstat(self.fd).st_size % self.header.align, value)
                os.pwrite(self.fd, SLOT.pack(offset, len(value), check_of(value, kind, number), kind), at)
            except OSError as exc:
                if exc.errno in _FULL:
                    return PutOutcome.FULL
                raise errors.named(exc, "put", self.path) from None
            return PutOutcome.STORED

    def _append(self, gap: int, value: bytes) -> int:
        """Append a value by one write, behind a gap; return the offset that it got."""
        if self._appends_in != process.generation():  # the position belongs to the description that a parent has
            self._reopen()
        size = gap + len(value)
        [fd] = self._appending
        if os.writev(fd, [bytes(gap), value]) != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.lseek(fd, 0, os.SEEK_CUR) - len(value)

    def _reopen(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(f"/proc/self/fd/{self.fd}", flags)
        except FileNotFoundError:  # no /proc
            fd = os.open(self.path, flags | os.O_NOFOLLOW)
            if not os.path.samestat(os.fstat(fd), os.fstat(self.fd)):
                os.close(fd)
                raise
        before, self._appending[:], self._appends_in = [*self._appending], [fd], process.generation()
        for inherited in before:
            os.close(inherited)

    # ---- preserving

    def preserve(self, path: str, *, overwrite: bool = False) -> bool:
        """Make the file stay at `path`, on the same disk; from now on nothing can be put, by no process.

        At each moment `path` is what it was before, or the whole cache, also through a crash of the machine. False
        where `path` exists and is not to be overwritten.
        """
        if os.path.lexists(path):
            if not overwrite:
                return False
            if self._is_at(path):
                return True
        aside = _live_name(os.path.dirname(path))
        try:
            with self._lock:
                self._preserve(path, aside, overwrite)
        except FileExistsError:
            return False
        except OSError as exc:
            raise errors.named(exc, "preserve", path) from None
        return True

    def _preserve(self, path: str, aside: str, overwrite: bool) -> None:
        was_sealed = _sealed(self.fd)
        os.link(self.path, aside)
        try:
            if not self._is_at(aside):
                raise FileNotFoundError(errno.ENOENT, "the cache's file was removed or replaced")
            if not was_sealed:
                os.fsync(self.fd)
                os.pwrite(self.fd, _WORD.pack(os.fstat(self.fd).st_size), SEALED_AT)
            os.fsync(self.fd)
            try:
                os.replace(aside, path) if overwrite else os.link(aside, path)
            except OSError:
                if not was_sealed:
                    os.pwrite(self.fd, _WORD.pack(0), SEALED_AT)
                raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _is_at(self, path: str) -> bool:
        try:
            return self.fd >= 0 and os.path.samestat(os.fstat(self.fd), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def usage(self) -> dict[str, int]:
        """Return `entries`, `bytes` (of values), `disk_bytes` (what the file takes) and `damaged` (by this object)."""
        lengths = [length for _, length, _, kind in SLOT.iter_unpack(self.slots()) if kind != EMPTY]
        disk = os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0
        return {"entries": len(lengths), "bytes": sum(lengths), "disk_bytes": disk, "damaged": self.damaged}

    # ---- process

    def close(self) -> None:
        """Close it in this process, and remove the file if this process made it. Closing twice is no error."""
        with self._lock:
            self.fd = -1
            self._claims = None
            self.map = None  # not closed: views of it may be in use, and it goes with the last of them
        self._finalizer()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.path, self.writable, self.limit, self.header.generation)


def check_of(value: bytes, kind: int, number: int) -> int:
    """Return the check of an item: `crc32c(value) ^ length ^ salt_of(number, kind)`, in 32 bits."""
    return (checksum(value) ^ len(value) ^ salt_of(number, kind)) & 0xFFFFFFFF


def salt_of(number: int, kind: int) -> int:
    """Return what number and kind of an item mix into its check.

    2^31 numbers in a row have different ones. The lowest bit is the kind's alone, so that a slot of zeros never fits.
    """
    return (kind * 0x9E3779B1 ^ number * NUMBER_FACTOR) & 0xFFFFFFFF


def fingerprint(source: str | bytes) -> bytes:
    """Return 32 bytes that stand for a description of a source (its URL and version, say); zeros for an empty one."""
    data = source.encode() if isinstance(source, str) else source
    return hashlib.blake2b(data, digest_size=32).digest() if data else bytes(32)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _read_header(path: str, fd: int, writable: bool) -> TableHeader:
    """Return the header of an open file; `CorruptFileError` if it is none of a cache, or can't be used."""
    header = _unpack(path, os.pread(fd, HEADER.size + HEADER_CHECK.size, 0))
    sealed, size = _sealed(fd), os.fstat(fd).st_size
    needed = max(sealed, header.data_start)
    if size < needed:
        raise errors.corrupt(path, f"the cache has {size} bytes, and should have {needed}", "open")
    if not (writable or sealed):
        raise errors.corrupt(path, "the cache was not preserved: it is in use", "open")
    return header


def _sealed(fd: int) -> int:
    """Return the size with which a file was preserved; 0 if it was not."""
    data = os.pread(fd, _WORD.size, SEALED_AT)
    return int(_WORD.unpack(data)[0]) if len(data) == _WORD.size else 0


def _unpack(path: str, head: bytes) -> TableHeader:
    """Return the header in the first bytes of a file."""
    if len(head) < HEADER.size + HEADER_CHECK.size:
        raise errors.corrupt(path, f"the file has {len(head)} bytes, less than the header of a cache", "open")
    magic, version, slot, length, align, generation, contents, source = HEADER.unpack_from(head)
    if magic != MAGIC:
        raise errors.corrupt(path, f"no cache of fsabs: it begins with {magic!r}, not {MAGIC!r}", "open")
    if HEADER_CHECK.unpack_from(head, HEADER.size)[0] != checksum(head[: HEADER.size]):
        raise errors.corrupt(path, "the header of the cache does not have its checksum", "open")
    if version != VERSION or slot != SLOT_SIZE:
        reason = f"the cache has format version {version}, and this is version {VERSION}: remove the file"
        raise errors.corrupt(path, reason, "open")
    return TableHeader(length, align, contents.rstrip(b"\0"), source, generation)


# ---- live files


def _live_name(folder: str) -> str:
    return os.path.join(folder, f"{LIVE_PREFIX}{secrets.token_hex(8)}{LIVE_SUFFIX}")


def _make(folder: str, header: TableHeader) -> tuple[str, int]:
    """Make a live file, which is locked (shared) while a process has it open; return its path and descriptor."""
    while True:
        path = _live_name(folder)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not _locks(fd, fcntl.LOCK_SH) or not os.fstat(fd).st_nlink:  # another process took it for a leftover
                os.close(fd)
                continue
            os.ftruncate(fd, header.data_start)
            os.pwrite(fd, header.pack(), 0)
            # A mapping of a hole on a full disk is a SIGBUS.
            allocate(fd, header.length * SLOT_SIZE, SLOTS_START)
        except OSError:
            os.unlink(path)
            os.close(fd)
            raise
        return path, fd


def _reopened(path: str, writable: bool, limit: int | None, generation: int) -> ItemTable:
    """Return a table from its pickle; `FileNotFoundError` where the process that made it has closed it meanwhile."""
    try:
        fd = open_ours(path, os.O_RDWR if writable else os.O_RDONLY)
    except OSError as exc:
        raise errors.named(exc, "open", path) from None
    if writable and not (_locks(fd, fcntl.LOCK_SH) and os.fstat(fd).st_nlink):
        os.close(fd)
        raise errors.error(errno.ENOENT, "open", path, "the cache was closed by the process that made it")
    table = ItemTable(path, fd, writable=writable, limit=limit)
    if generation != table.header.generation:
        table.close()
        raise errors.stale(path, "the cache was replaced by another one", "open")
    return table


def _locks(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(folder: str) -> None:
    """Remove the live files in `folder` that processes left behind when they were killed."""
    with os.scandir(folder) as entries:
        names = [e.path for e in entries if e.name.startswith(LIVE_PREFIX) and e.name.endswith(LIVE_SUFFIX)]
    for path in names:
        with contextlib.suppress(OSError):  # gone by now, of another owner, or no file
            fd = open_ours(path, os.O_RDONLY)
            try:
                if _locks(fd, fcntl.LOCK_EX):
                    _unlink_if_same(path, fd)
            finally:
                os.close(fd)


def _unlink_if_same(path: str, fd: int) -> None:
    with contextlib.suppress(OSError):  # gone by now
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            os.unlink(path)


def _close(path: str, fd: int, appending: list[int], made_in: int | None) -> None:
    """Close the descriptors of a table, and remove its file if this process made it."""
    try:
        if made_in is not None and not process.inherited(made_in):
            _unlink_if_same(path, fd)
    finally:
        for one in (fd, *appending):
            os.close(one)
