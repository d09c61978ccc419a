"""The tier on disk of `CachedFS`: one engine file in a folder, for all processes of a user, that evicts when it's full.

Nothing here raises for what the disk does wrong: it is a miss, and said once. Within a process all that use a folder
share one `EngineDisk`.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors, hooks, process
from . import layout
from .engine import PAGE, RAW, Engine, Outcome
from .eviction import Order
from .space import Entry

if TYPE_CHECKING:
    import numpy as np

FILE_NAME = "files.fsabs-cache"
CONTENTS = "CachedFS 1"
PINNED = 2
"""The kind of values that are not evicted."""
TYPICAL = 8 * 1024
"""Bytes of an item, where the number of places for them is chosen."""
FEWEST_SLOTS, MOST_SLOTS = 1 << 12, 1 << 22
BATCH = 0.05
"""The share of the cache that one eviction frees."""
LOOK_AHEAD = 4096
"""How many items that are still needed one eviction looks at."""
FAILURES = (OSError, ValueError, OverflowError, MemoryError)
"""What comes of a disk that fails, and of entries that are rubbish: places and lengths beyond all bounds."""
_EVICTION = layout.key_hash(b"the eviction")
_REPLACE_EVERY = 60.0
"""Seconds before another file is begun in place of one that was damaged or removed under this process."""
_FLOOR_EVERY = 16 * 1024 * 1024  # bytes that are put between two looks at the disk's free space


class Limits(NamedTuple):
    """How much of a disk a cache may take."""

    max_bytes: int | None
    """Bytes of items; None for all that `min_free` leaves."""
    min_free: int
    """Bytes of the disk that are left free."""


class EngineDisk:
    """See the module; made by `open_disk`."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self.folder = folder
        self.path = os.path.join(folder, FILE_NAME)
        self.limits = limits
        self.evicted = 0
        """Items that went, in this process."""
        self._engine: Engine | None = None
        self._opened = False
        self._until_floor = 0
        self._replaced = -math.inf
        self._lock = process.Lock()

    # ---- the tier

    def get(self, name: bytes) -> bytes | None:
        """The item, checked; None if it isn't there."""
        engine = self._engine if self._opened else self._open()
        if engine is None:
            return None
        try:
            found = engine.read_key(name)
        except FAILURES as exc:
            self._failed(exc)
            return None
        return found[1] if found is not None else None

    def has(self, name: bytes) -> bool:
        """Whether it seems to be there."""
        engine = self._open()
        try:
            return engine is not None and engine.has_key(name)
        except FAILURES as exc:
            self._failed(exc)
            return False

    def put(self, name: bytes, data: bytes, order: Order, kind: int = RAW) -> bool:
        """Keep an item; others go as need be. Whether it is there now."""
        engine = self._open()
        if engine is None or len(name) > layout.LONGEST_KEY:
            return False
        try:
            room = engine.layout.room(len(data) + len(name))
            if self._too_large(room) or not (self._floor_holds(room) or self._make_room(engine, room, name, order)):
                return False
            engine.limit = self.limits.max_bytes
            outcome = engine.put_key(name, data, kind)
            if outcome is Outcome.FULL and self._make_room(engine, room, name, order):
                outcome = engine.put_key(name, data, kind)
        except FAILURES as exc:
            self._failed(exc)
            return False
        if outcome is Outcome.BUSY:
            self._failed(TimeoutError("another process holds its lock"))
        return outcome in (Outcome.STORED, Outcome.PRESENT)

    def remove(self, name: bytes) -> None:
        """Drop an item, if it is there."""
        engine = self._open()
        try:
            if engine is not None and engine.has_key(name):
                engine.remove(name)
        except FAILURES as exc:
            self._failed(exc)

    def claim(self, name: bytes) -> bool:
        """Claim it against other processes, until `release` or the end of this one; True also where that can't be."""
        engine = self._open()
        try:
            return engine is None or engine.claim(layout.key_hash(name))
        except FAILURES as exc:
            self._failed(exc)
            return True

    def release(self, name: bytes) -> None:
        """Give the claim back."""
        if self._engine is not None:
            with contextlib.suppress(*FAILURES):  # closed meanwhile: then it is gone with the descriptor
                self._engine.release(layout.key_hash(name))

    # ---- pinning and care

    def pin(self, name: bytes, kind: int, order: Order) -> bool:
        """Make an item one that stays (`PINNED`) or one that may go (`RAW`); whether it is there."""
        engine = self._open()
        if engine is None:
            return False
        try:
            found = engine.read_key(name)
            if found is None or found[0] == kind:
                return found is not None
            engine.remove(name)
        except FAILURES as exc:
            self._failed(exc)
            return False
        return self.put(name, found[1], order, kind)

    def clear(self) -> None:
        """Drop everything."""
        engine = self._open()
        try:
            if engine is not None:
                engine.clear()
        except FAILURES as exc:
            self._failed(exc)

    def verify(self) -> list[str]:
        """Read everything; the names, for people, of what was damaged, and has been dropped."""
        engine = self._open()
        damaged: list[str] = []
        if engine is not None:
            try:
                self._verify(engine, damaged)
            except FAILURES as exc:
                self._failed(exc)
        return damaged

    def _verify(self, engine: Engine, damaged: list[str]) -> None:
        engine.check_whole()
        damaged += [f"an entry at byte {at}" for at, _ in engine.rubbish()]
        for row in engine.entries():
            before = engine.damaged
            name = engine.key_of(_entry(row))
            found = engine.read_key(name)
            if engine.damaged > before or (found is None and engine.entry_at(int(row["at"])).offset == row["offset"]):
                engine.discard([(int(row["at"]), int(row["offset"]))])
                damaged.append(readable(name))
            elif not row["visited"]:
                engine.forget([int(row["at"])])
        engine.repair()

    def status(self) -> dict[str, Any]:
        """What there is, and how much may be."""
        engine = self._open()
        found: dict[str, Any] = {"dir": self.folder, "max_bytes": self.limits.max_bytes, "evicted": self.evicted}
        found |= {"min_free": self.limits.min_free, "usable": engine is not None}
        try:
            if engine is not None:
                entries = engine.entries()
                found |= engine.usage()
                found |= {"pinned": int((entries["kind"] == PINNED).sum()), "free": _free(self.folder)}
        except FAILURES as exc:
            self._failed(exc)
            found["usable"] = False
        return found

    # ---- room

    def _too_large(self, room: int) -> bool:
        return self.limits.max_bytes is not None and room > self.limits.max_bytes

    def _floor_holds(self, room: int) -> bool:
        """Whether the disk has enough left; looked at now and then."""
        self._until_floor -= room
        if self._until_floor > 0:
            return True
        free = _free(self.folder) - self.limits.min_free
        self._until_floor = max(0, min(_FLOOR_EVERY, free // 2))
        return free >= room

    def _make_room(self, engine: Engine, room: int, name: bytes, order: Order) -> bool:
        """Evict, unless another process is at it."""
        engine.check_whole()
        seen = engine.state()
        with self._lock:
            now = engine.state()
            if now.used < seen.used and (self.limits.max_bytes or math.inf) >= now.used + room and self._has_free(room):
                return True  # another thread has
            if not engine.claim(_EVICTION):
                return False
            try:
                return self._evict(engine, room, order.need(_url_of(name)), order)
            finally:
                engine.release(_EVICTION)

    def _has_free(self, room: int) -> bool:
        return _free(self.folder) - self.limits.min_free >= room

    def _evict(self, engine: Engine, room: int, newcomer: float, order: Order) -> bool:
        begin = time.monotonic_ns()
        entries = engine.entries()
        align = engine.layout.align
        sizes = -(-(entries["length"] + entries["tail"]).astype("i8") // align) * align
        if engine.state().used - int(sizes.sum()) > int(sizes.sum()) // 50:  # what killed writers left
            engine.repair()
        limit = self.limits.max_bytes if self.limits.max_bytes is not None else int(sizes.sum())
        short = self.limits.min_free + room - _free(self.folder)
        wanted = max(room, short, int(limit * BATCH))
        victims, visited, hand = _choose(engine, entries, sizes, wanted, newcomer, order)
        engine.forget(visited)
        engine.hand = hand
        freed = engine.discard(victims)
        self.evicted += len(victims)
        if (instrument := hooks.active) is not None:
            instrument.record_event("evict", "cache", freed)
            instrument.record_span("cache", "cache.evict", begin, freed, self.folder)
        self._until_floor = 0
        return freed >= room and self._has_free(room)

    # ---- the engine

    def _open(self) -> Engine | None:
        if self._opened:
            return self._engine
        with self._lock:
            if not self._opened:
                self._engine = self._try_to_open()
                self._opened = True
        return self._engine

    def _try_to_open(self) -> Engine | None:
        expected = (self.limits.max_bytes or disk_size(self.folder)) // TYPICAL
        slots = min(MOST_SLOTS, max(FEWEST_SLOTS, 2 * expected))
        for _ in range(2):
            try:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                return Engine.shared(self.path, slots=slots, align=PAGE, contents=CONTENTS, limit=self.limits.max_bytes)
            except errors.CorruptFileError as exc:
                self._failed(exc)
                with contextlib.suppress(OSError):  # then the next attempt says what is wrong
                    os.unlink(self.path)
            except OSError as exc:
                self._failed(exc)
                break
        return None

    def _failed(self, exc: Exception) -> None:
        if self._opened:
            self._replace(isinstance(exc, errors.CorruptFileError))
        if self.folder not in _warned:
            _warned.add(self.folder)
            reason = f"{type(exc).__name__}: {exc}"
            warnings.warn(f"the cache in {self.folder} fails, and is a miss: {reason}", RuntimeWarning, stacklevel=2)

    def _replace(self, damaged: bool) -> None:
        """Go on with another file, where this one is damaged in its head, or was removed; at most once a minute."""
        with self._lock:
            engine = self._engine
            if engine is None or time.monotonic() - self._replaced < _REPLACE_EVERY:
                return
            at_its_place = engine.is_at(self.path)
            if at_its_place and not damaged:
                return
            if at_its_place:
                with contextlib.suppress(OSError):  # then it is opened again, and found to be damaged
                    os.unlink(self.path)
            self._replaced = time.monotonic()
            self._engine, self._opened = None, False

    def close(self) -> None:
        """Close it in this process, for all that share it; it is opened again when needed."""
        with self._lock:
            self._engine, self._opened = None, False  # the last thread that is in it closes it


def _choose(
    engine: Engine, entries: np.ndarray[Any, Any], sizes: Any, wanted: int, newcomer: float, order: Order
) -> tuple[list[tuple[int, int]], list[int], int]:
    """SIEVE from the engine's hand on: who goes (place, offset), whose visit is forgotten, and where the hand is then.

    What `order` still needs is passed over; if there is not enough else, what is needed last goes, as far as it is
    needed later than the newcomer.
    """
    count = len(entries)
    start = int(entries["offset"].searchsorted(engine.hand)) if count else 0
    places, offsets = entries["at"].tolist(), entries["offset"].tolist()
    visited, kinds, rooms = entries["visited"].tolist(), entries["kind"].tolist(), sizes.tolist()
    victims: dict[int, int] = {}
    forgotten: list[int] = []
    needed: list[tuple[float, int]] = []
    at = start
    for turn in range(2 * count):
        at = (start + turn) % count
        if wanted <= 0 or len(needed) >= LOOK_AHEAD:
            break
        if at in victims or kinds[at] == PINNED:
            continue
        need = order.need(_url_of(engine.key_of(_entry(entries[at])))) if order else math.inf
        if need < math.inf:
            if turn < count:
                needed.append((need, at))
        elif visited[at]:
            visited[at] = 0
            forgotten.append(places[at])
        else:
            victims[at] = offsets[at]
            wanted -= rooms[at]
    for need, number in sorted(needed, reverse=True):
        if wanted <= 0 or need <= newcomer:
            break
        victims[number] = offsets[number]
        wanted -= rooms[number]
    hand = offsets[at] if count else 0
    return [(places[number], offset) for number, offset in victims.items()], forgotten, hand


def _entry(row: Any) -> Entry:
    return Entry(*(int(row[name]) for name in Entry._fields))


def _url_of(name: bytes) -> str:
    """The URL in the name of an item."""
    parts = name.split(b"\0", 2)
    return parts[1].decode("utf-8", "surrogateescape") if len(parts) == 3 else ""


def readable(name: bytes) -> str:
    """The name of an item for people: URL, version and what of it."""
    return " ".join(part for part in name.decode("utf-8", "replace").split("\0")[1:] if part)


def _free(folder: str) -> int:
    """Bytes of the disk that this user may still fill."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def disk_size(folder: str) -> int:
    """The size of the disk that holds `folder`, or that will."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize


def prepare() -> None:
    """Load the libraries that a tier needs, now: a fork during a thread's import leaves the child waiting for it."""
    import numpy  # noqa: F401

    layout.crc32c()


_warned: set[str] = set()  # folders; a process hears of each once
_disks: weakref.WeakValueDictionary[tuple[str, Limits], EngineDisk] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _new_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def open_disk(folder: str, limits: Limits) -> EngineDisk:
    """The process's tier in a folder."""
    with _opening:
        disk = _disks.get((folder, limits))
        if disk is None:
            _disks[folder, limits] = disk = EngineDisk(folder, limits)
        return disk
