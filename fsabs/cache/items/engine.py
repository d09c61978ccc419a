"""The engine of item caches: values by number or by key, in one file, for all threads and processes that open it.

    engine = Engine.temporary(folder, length=1_000_000)         # goes with the last process that uses it
    engine = Engine.preserved(path)                             # what `preserve` left: read-only

    engine.put(7, b"value", RAW) -> Outcome.STORED              engine.read(7) -> (RAW, b"value") or None
    engine.put_key(b"key", b"value", RAW)                       engine.read_key(b"key")

A *kind*, 1 to 254, is the caller's, stored with the value. A value is never replaced: remove it and put another. Reads
take no lock, and give whole values or None: what does not fit its checksum is a miss, counted in `damaged`, and
removed. `put` says what became of it; a full disk is Outcome.FULL. Other errors of the disk are raised as `OSError`
by reads and puts, and a cache is expected to take them for a miss.

`lease(token)` is against other processes that would fetch the same missing item; see `single_flight`.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import secrets

from ... import errors, mounts
from .. import leases
from ..checksums import key_hash
from . import cachefile, layout, locks
from .layout import SlotTableLayout
from .space import SlotEntry, Space

RAW = 1
"""The kind of plain bytes."""
PAGE = layout.PAGE
_TRIES = 8  # a reader that meets a writer this often in a row takes it for a miss


class PutOutcome(enum.Enum):
    """The outcome of a put."""

    STORED = "stored"
    PRESENT = "present"
    """There is a value already, and it stays."""
    FULL = "full"
    """No room: the limit, the disk or the table."""
    FROZEN = "frozen"
    """The cache is preserved, read-only or closed."""
    BUSY = "busy"
    """Another process held the put lock for `locks.LOCK_TIMEOUT` seconds (it was stopped, or its disk hangs)."""


class Engine(Space):
    """See the module. Attributes besides `CacheFile`'s: `damaged`, how many values this process found to be wrong."""

    damaged = 0

    # Opening

    @classmethod
    def temporary(
        cls,
        folder: str,
        *,
        length: int = 0,
        slots: int = 0,
        align: int = 1,
        contents: str = "",
        fingerprint: str | bytes = b"",
        limit: int | None = None,
    ) -> Engine:
        """A new cache in `folder` that goes with the last process that closes it; leftovers of killed ones go now.

        Args:
            folder: made if it isn't there; not on NFS.
            length: how many numbers there are, from 0; each takes 32 bytes of disk at once.
            slots: places for keys, at best twice as many as there will be keys.
            align: where values begin; PAGE where they will be removed.
            contents: what the values are, in at most 64 bytes of UTF-8.
            fingerprint: what they are derived from; any length.
            limit: bytes of data that a put may fill it to.
        """
        _ready(folder)
        cachefile.sweep(folder)
        path, fd = cachefile.make(folder, _layout(length, slots, align, contents, fingerprint))
        return cachefile.wrap(cls, path, fd, writable=True, owned=True, limit=limit)

    @classmethod
    def preserved(cls, path: str) -> Engine:
        """A preserved cache, read-only. `CorruptFileError` where it is none, was cut off, or is damaged in its head."""
        mounts.refuse_network(path)
        return cachefile.wrap(cls, path, cachefile.open_file(path, os.O_RDONLY), writable=False, owned=False)

    # By number

    def read(self, number: int) -> tuple[int, bytes] | None:
        """Kind and value of an item, 0 <= number < length; None where there is none that is right."""
        try:
            return self._read(self._place(number), number)
        except OSError:
            if self.fd < 0:  # closed by another thread
                return None
            raise

    def _read(self, at: int, number: int) -> tuple[int, bytes] | None:
        mapped = self.map
        for _ in range(_TRIES):
            if mapped is None:
                return None
            offset, length, check, kind = layout.ITEM.unpack_from(mapped, at)
            if kind == layout.EMPTY:
                return None
            value = self.read_at(length, offset)
            if len(value) == length and layout.check_of(value, b"", kind, number) == check:
                return kind, value
            if layout.ITEM.unpack_from(mapped, at) == (offset, length, check, kind):
                self._drop_damaged(at, self.entry_at(at))
                return None
        return None

    def put(self, number: int, value: bytes, kind: int = RAW) -> PutOutcome:
        """Store an item, if it isn't there."""
        at = self._place(number)
        check = layout.check_of(value, b"", kind, number)
        mapped = self.map
        if mapped is None:
            return PutOutcome.FROZEN
        if layout.ITEM.unpack_from(mapped, at)[3] != layout.EMPTY:
            return PutOutcome.PRESENT
        try:
            with self.lock:
                if layout.ITEM.unpack_from(mapped, at)[3] != layout.EMPTY:
                    return PutOutcome.PRESENT
                return self._store(value, b"", (0, check, kind), at)
        except (OSError, ValueError) as exc:
            return self._refused(exc)

    def items(self) -> memoryview:
        """The entries of all items, mapped: ENTRY_SIZE bytes each, see layout.ITEM."""
        return memoryview(self.map or b"")[layout.ITEMS_START :][: self.layout.length * layout.ENTRY_SIZE]

    def _place(self, number: int) -> int:
        if not 0 <= number < self.layout.length:
            raise IndexError(f"index {number} out of range ([0, {self.layout.length - 1}])")
        return layout.ITEMS_START + number * layout.ENTRY_SIZE

    # By key

    def read_key(self, key: bytes) -> tuple[int, bytes] | None:
        """Kind and value of a key; None where there is none that is right."""
        try:
            return self._read_key(key)
        except OSError:
            if self.fd < 0:
                return None
            raise

    def _read_key(self, key: bytes) -> tuple[int, bytes] | None:
        hash_ = key_hash(key)
        for _ in range(_TRIES):
            torn = False
            for at, entry in self.probe(hash_):
                if entry.hash != hash_ or not entry.there:
                    continue
                value, stored = self.read_at(entry.length, entry.offset), self.key_of(entry)
                if len(value) == entry.length and layout.check_of(value, stored, entry.kind) == entry.check:
                    if stored == key:
                        return entry.kind, value
                elif not self._drop_damaged(at, entry):
                    torn = True
            if not torn:
                return None
        return None

    def put_key(self, key: bytes, value: bytes, kind: int = RAW) -> PutOutcome:
        """Store a value under a key of at most 65,535 bytes, if there is none."""
        if len(key) > layout.LONGEST_KEY:
            raise ValueError(f"a key has at most {layout.LONGEST_KEY} bytes, and this one {len(key)}")
        hash_, check = key_hash(key), layout.check_of(value, key, kind)
        try:
            with self.lock:
                there, free = self._find(key)
                if there is not None:
                    return PutOutcome.PRESENT
                return PutOutcome.FULL if free is None else self._store(value, key, (hash_, check, kind), free)
        except (OSError, ValueError) as exc:
            return self._refused(exc)

    def _find(self, key: bytes) -> tuple[int | None, int | None]:
        """Return the slot of the key's entry, and the slot where it could be put."""
        hash_, free = key_hash(key), None
        for at, entry in self.probe(hash_):
            if not entry.there:
                free = free or at
            elif entry.hash == hash_ and entry.tail == len(key) and self.key_of(entry) == key:
                return at, None
        return None, free

    # Both

    def _store(self, value: bytes, key: bytes, entry: tuple[int, int, int], at: int) -> PutOutcome:
        state, room = self.state(), self.layout.room(len(value) + len(key))
        if state.sealed:
            return PutOutcome.FROZEN
        if self.limit is not None and state.used + room > self.limit:
            return PutOutcome.FULL
        if state.cursor + room > layout.FARTHEST:
            return PutOutcome.FULL
        self._append(state, value, key, entry, at)
        return PutOutcome.STORED

    def _refused(self, exc: OSError | ValueError) -> PutOutcome:
        if self.fd < 0:
            return PutOutcome.FROZEN
        if isinstance(exc, TimeoutError):
            return PutOutcome.BUSY
        if isinstance(exc, OSError) and exc.errno in cachefile.FULL:
            return PutOutcome.FULL
        raise errors.named(exc, "put", self.path) if isinstance(exc, OSError) else exc

    def _drop_damaged(self, at: int, entry: SlotEntry) -> bool:
        """Remove an entry whose bytes are wrong; False where it has changed since, and is to be read again."""
        if self.entry_at(at)[:6] != entry[:6]:
            return False
        self.damaged += 1
        if self.writable:
            with contextlib.suppress(OSError, ValueError), self.lock:  # else it stays, and is a miss each time
                if self.entry_at(at)[:6] == entry[:6] and not self.state().sealed:
                    self.erase(at, entry)
        return True

    # Leases

    def lease(self, token: int) -> bool:
        """Lease a number against other processes, until `release` or the end of this one; False if another has it."""
        return not self.writable or self.fd < 0 or leases.acquire(self.fd, token)

    def release(self, token: int) -> None:
        """Give a lease back."""
        if self.writable and self.fd >= 0:
            leases.release(self.fd, token)

    # Preserving

    def preserve(self, path: str, *, overwrite: bool = False) -> bool:
        """Make the file stay at `path`, on the same disk; from now on nothing can be put, in any process.

        All or nothing: at each moment `path` is what it was before, or the whole cache, also through a crash of the
        machine. False where `path` exists and is not to be overwritten. What was at `path` goes on for those that
        have it open.
        """
        if os.path.lexists(path):
            if not overwrite:
                return False
            if self.is_at(path):
                return True
        aside = cachefile.live_name(os.path.dirname(path))
        try:
            with self.lock:
                self._preserve(path, aside, overwrite=overwrite)
        except FileExistsError:
            return False
        except OSError as exc:
            raise errors.named(exc, "preserve", path) from None
        return True

    def _preserve(self, path: str, aside: str, *, overwrite: bool) -> None:
        was_sealed = self.state().sealed
        locks.use(self.fd)  # or a sweep takes the new name for a leftover
        os.link(self.path, aside)
        try:
            if not self.is_at(aside):
                raise FileNotFoundError(errno.ENOENT, "the cache's file was removed or replaced")
            self.freeze()
            try:
                if overwrite:
                    os.replace(aside, path)
                else:
                    os.link(aside, path)
            except OSError:
                if not was_sealed:
                    self.thaw()
                raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        _sync_folder(os.path.dirname(path) or ".")

    def is_at(self, path: str) -> bool:
        """Return whether the path is that of this very file."""
        try:
            return self.fd >= 0 and os.path.samestat(os.fstat(self.fd), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    # What there is

    def usage(self) -> dict[str, int]:
        """`entries`, `bytes` (of data, as placed), `disk_bytes` (what the file takes) and `damaged` (in this process).

        The first two may be too high by what killed processes began.
        """
        state = self.state()
        disk = os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0
        return {"entries": state.entries, "bytes": state.used, "disk_bytes": disk, "damaged": self.damaged}


def _layout(length: int, slots: int, align: int, contents: str, fingerprint: str | bytes) -> SlotTableLayout:
    name = contents.encode()
    if length < 0 or slots < 0 or align < 1 or len(name) > 64:
        raise ValueError("length and slots are not negative, align is positive, contents has at most 64 bytes")
    return SlotTableLayout(length, slots, align, name, layout.fingerprint(fingerprint), secrets.randbits(63) | 1)


def _ready(folder: str) -> None:
    mounts.refuse_network(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as exc:
        raise errors.named(exc, "create", folder) from None


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
