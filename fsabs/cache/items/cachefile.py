"""The one file of a cache: how it is made, opened, shared, mapped, written to, and removed.

A reader takes no lock: it reads an entry from the mapping, then the bytes by a positioned read, and checks one against
the other. A writer, under the put lock, moves the cursor, writes the bytes, writes the entry: killed between any two
instructions it leaves space that is never used, and never an entry without its bytes. All writes go through `pwrite`,
the mapping is read-only, and what is mapped has its space reserved: a full disk is an error and not a SIGBUS.

Only files of items are mapped, since their hits have no time for a second read. They belong to one program; who cuts
one off under it kills it by SIGBUS. A shared file of keys is never mapped: cut off, it has fewer entries, or none.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import mmap
import os
import secrets
import stat
import weakref
from typing import NamedTuple, TypeVar

from ... import errors
from . import layout, locks
from .layout import SlotTableLayout

LIVE_PREFIX, LIVE_SUFFIX = "fsabs-", ".live"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors that say that there is no room."""

_LARGE = 256 * 1024  # bytes; a read asks for memory first

F = TypeVar("F", bound="CacheFile")

_live: dict[int, weakref.ref[CacheFile]] = {}


class State(NamedTuple):
    """The fields of the file's head that change; read without a lock, they may be slightly out of date."""

    cursor: int
    """Where the next value goes. Never goes back, but for `clear`."""
    used: int
    """Bytes of data, rounded up as they are placed; with what killed writers reserved."""
    entries: int
    """Entries; with those that killed writers announced."""
    sealed: int
    """The file's size if nothing may be put any more, else 0."""
    hand: int
    """A place in the data, for eviction."""


class CacheFile:
    """An open cache file. Threads share it; forked children go on with it; it pickles by its path.

    Attributes:
        path: where it is, or was.
        layout: what it is made for.
        fd: a descriptor of this process's own, in each process under the same number; -1 after `close()`.
        limit: how many bytes of data a put may fill it to; None for no limit. Of this object, not of the file.
    """

    def __init__(self, path: str, fd: int, *, writable: bool, owned: bool, limit: int | None = None) -> None:
        """Takes over `fd`. `owned`: the file goes when the last process that uses it closes it."""
        self.path = path
        self.fd: int = fd
        self.limit = limit
        self.writable = writable
        self._owned = owned
        self.layout: SlotTableLayout = self._read_layout()
        self.map: mmap.mmap | None = self._map()
        self.lock: locks.PutLock = locks.PutLock(fd)
        _live[id(self)] = weakref.ref(self)

    def _read_layout(self) -> SlotTableLayout:
        try:
            found = layout.unpack(os.pread(self.fd, layout.STATE_AT, 0))
        except ValueError as exc:
            raise errors.corrupt(self.path, str(exc), "open") from None
        size, state = os.fstat(self.fd).st_size, os.pread(self.fd, layout.STATE.size, layout.STATE_AT)
        sealed = State(*layout.STATE.unpack(state)).sealed if len(state) == layout.STATE.size else 0
        expected = max(sealed, found.data_start)
        if size < expected or (sealed and size != sealed):
            raise errors.corrupt(self.path, f"the cache has {size} bytes, and should have {expected}", "open")
        if not (self.writable or sealed):
            raise errors.corrupt(self.path, "the cache was not preserved: it is in use", "open")
        return found

    def _map(self) -> mmap.mmap | None:
        if not self.layout.length:
            return None
        # Through a description of its own: a mapping keeps its description open in forked children, and with it locks.
        fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return mmap.mmap(fd, self.layout.table_start if self.writable else 0, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    # Head

    def state(self) -> State:
        """The head's changing part. After `close()` that of a sealed, empty file; `CorruptFileError` if cut off."""
        mapped, fd = self.map, self.fd
        if mapped is not None:
            return State(*layout.STATE.unpack_from(mapped, layout.STATE_AT))
        if fd < 0:
            return State(0, 0, 0, 1, 0)
        data = os.pread(fd, layout.STATE.size, layout.STATE_AT)
        if len(data) != layout.STATE.size:
            raise errors.corrupt(self.path, "the cache was cut off", "read")
        return State(*layout.STATE.unpack(data))

    def check_whole(self) -> None:
        """`CorruptFileError` where the file was cut off before its data."""
        size = os.fstat(self.fd).st_size if self.fd >= 0 else self.layout.data_start
        if size < self.layout.data_start:
            raise errors.corrupt(self.path, f"the cache was cut off to {size} bytes", "read")

    def _set_space(self, cursor: int, used: int, entries: int) -> None:
        os.pwrite(self.fd, layout.RESERVE.pack(cursor, max(0, used), max(0, entries)), layout.STATE_AT)

    # Reading and writing

    def read_at(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes: fewer where the file ends, none where the place or the size can't be right."""
        far = offset > layout.FARTHEST
        if far or (size > _LARGE and offset + size > os.fstat(self.fd).st_size):
            return b""
        data = os.pread(self.fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # a read of more than 2 GiB
        while (got := sum(map(len, parts))) < size and (more := os.pread(self.fd, size - got, offset + got)):
            parts.append(more)
        return b"".join(parts)

    def _write_at(self, data: bytes, offset: int) -> None:
        done = os.pwrite(self.fd, data, offset)
        while done < len(data):  # a disk that fills up, or more than 2 GiB
            done += os.pwrite(self.fd, memoryview(data)[done:], offset + done)

    def _append(self, state: State, value: bytes, key: bytes, entry: tuple[int, int, int], at: int) -> None:
        """Under the lock: reserve, write value and key, then the entry (hash, check, kind) at `at`.

        An error gives the space back to the disk; the place is not used again.
        """
        hash_, check, kind = entry
        start, room = state.cursor, self.layout.room(len(value) + len(key))
        packed = layout.ENTRY.pack(start, len(value), hash_, check, len(key), kind, 0)
        self._set_space(start + room, state.used + room, state.entries + 1)
        try:
            if value:
                self._write_at(value, start)
            if key:
                self._write_at(key, start + len(value))
            os.pwrite(self.fd, packed, at)
        except OSError:
            with contextlib.suppress(OSError):  # the error to tell of is the first one
                self._set_space(start + room, state.used, state.entries)
                if os.fstat(self.fd).st_size > start:
                    os.ftruncate(self.fd, start)
            raise

    # Sealing

    def freeze(self) -> None:
        """Refuse further items in all processes, and write all items to the disk; call it under the lock."""
        state = self.state()
        if not state.sealed:
            os.ftruncate(self.fd, state.cursor)
            os.fsync(self.fd)
            os.pwrite(self.fd, layout.WORD.pack(state.cursor), layout.SEALED_AT)
        os.fsync(self.fd)

    def thaw(self) -> None:
        """Undo `freeze()`; call it under the lock."""
        os.pwrite(self.fd, layout.WORD.pack(0), layout.SEALED_AT)

    # Process

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self.fd < 0

    def close(self) -> None:
        """Close it in this process, and remove the file if no process uses it. Closing twice is no error."""
        if not self.lock.shut():
            return
        _live.pop(id(self), None)
        fd, self.fd = self.fd, -1
        self.map = None  # not closed: views of it may be in use, and it goes with the last of them
        try:
            if self._owned and locks.last(fd):
                _unlink_if_same(self.path, fd)
        finally:
            os.close(fd)

    def after_fork(self) -> None:
        """In a forked child: a description of its own, so that no lock of the parent lives on in this process."""
        if self.fd < 0:
            return
        try:
            locks.reopen(self.fd, os.O_RDWR if self.writable else os.O_RDONLY)
            if self._owned:
                locks.use(self.fd)
        except OSError:  # no descriptors left, no /proc: this process goes on without a cache
            self.lock = locks.PutLock(-1)
            fd, self.fd, self.map = self.fd, -1, None
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "lock"):
            self.close()

    def __reduce__(self) -> tuple[object, ...]:
        generation = self.layout.generation if self._owned or not self.writable else 0
        return reopened, (type(self), self.path, self.writable, self._owned, self.limit, generation)


def reopened(
    cls: type[CacheFile], path: str, writable: bool, owned: bool, limit: int | None, generation: int
) -> CacheFile:
    """A cache file from its pickle; `FileNotFoundError` where the last process has closed it meanwhile."""
    fd = open_in_use(path) if owned else open_file(path, os.O_RDWR if writable else os.O_RDONLY)
    file = wrap(cls, path, fd, writable=writable, owned=owned, limit=limit)
    if generation not in (0, file.layout.generation):
        file.close()
        raise errors.stale(path, "the cache was replaced by another one", "open")
    return file


def wrap(cls: type[F], path: str, fd: int, *, writable: bool, owned: bool, limit: int | None = None) -> F:
    """`cls(...)`, which takes over `fd` or closes it."""
    try:
        return cls(path, fd, writable=writable, owned=owned, limit=limit)
    except BaseException:
        os.close(fd)
        raise


def open_file(path: str, flags: int) -> int:
    """A descriptor; errors have the path and the operation."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)  # no waiting for a pipe's writer
    except OSError as exc:
        raise errors.named(exc, "open", path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise errors.corrupt(path, "a cache is a regular file", "open")
    return fd


def open_in_use(path: str) -> int:
    """A descriptor of a live file, which is not removed while the descriptor is open."""
    fd = open_file(path, os.O_RDWR)
    if locks.use(fd) and os.fstat(fd).st_nlink:
        return fd
    os.close(fd)
    raise errors.error(errno.ENOENT, "open", path, "the cache was closed by the last process that used it")


def live_name(folder: str) -> str:
    """Return an unused name in `folder`; `sweep` removes its file if a process leaves it behind."""
    return os.path.join(folder, f"{LIVE_PREFIX}{secrets.token_hex(8)}{LIVE_SUFFIX}")


def make(folder: str, wanted: SlotTableLayout) -> tuple[str, int]:
    """Make a new live file in `folder`, in use by this process; return its path and descriptor."""
    while True:
        path = live_name(folder)
        fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            if not (locks.use(fd) and os.fstat(fd).st_nlink):  # taken for a leftover, before it was in use
                os.close(fd)
                continue
            _fill(fd, wanted)
        except OSError as exc:
            os.unlink(path)
            os.close(fd)
            raise errors.named(exc, "create", path) from None
        return path, fd


def _fill(fd: int, wanted: SlotTableLayout) -> None:
    head = bytearray(layout.ITEMS_START)
    head[: layout.HEADER.size + layout.HEADER_CHECK.size] = wanted.pack()
    layout.STATE.pack_into(head, layout.STATE_AT, wanted.data_start, 0, 0, 0, 0)
    os.ftruncate(fd, wanted.data_start)
    os.pwrite(fd, head, 0)
    if wanted.length:  # what is mapped needs its space now: a mapping of a hole on a full disk is a SIGBUS
        os.posix_fallocate(fd, layout.ITEMS_START, wanted.length * layout.ENTRY_SIZE)


def sweep(folder: str) -> None:
    """Remove the live files in `folder` that processes left behind when they were killed."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:  # making a file there says what is wrong
        names = [e.path for e in entries if e.name.startswith(LIVE_PREFIX) and e.name.endswith(LIVE_SUFFIX)]
    for path in names:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # gone by now, or of another owner
            continue
        try:
            if locks.last(fd):
                _unlink_if_same(path, fd)
        except OSError:  # a filesystem, or a thing, that has no locks
            pass
        finally:
            os.close(fd)


def _unlink_if_same(path: str, fd: int) -> None:
    with contextlib.suppress(OSError):  # gone by now
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            os.unlink(path)


def _after_fork() -> None:
    for reference in list(_live.values()):
        file = reference()
        if file is not None:
            file.after_fork()


@atexit.register
def _close_all() -> None:
    for reference in list(_live.values()):
        file = reference()
        if file is not None:
            file.close()


os.register_at_fork(after_in_child=_after_fork)
