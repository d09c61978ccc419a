"""Filling a `CachedFS`: many files at once in windows, ahead of their being read, a whole tree, and what is to stay."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

from .. import errors, keys, process
from ..blobs import Blob
from ..fs import FS, FileStat, in_threads
from . import identity
from .blocks import BlockBlob
from .here import Found, Here
from .policy import Order
from .tiers import Part

WINDOW_FILES = 64
WINDOW_BYTES = 32 * 1024 * 1024
"""What is fetched together, and held in memory."""
WINDOW_SPAN = 1024
"""Files among which those are."""
MOST_AHEAD = 4 * 10**9
"""Bytes that a prefetch is ahead of the reader, where the cache has no limit."""
_NAP = 0.01


class Filled(NamedTuple):
    """What was looked at, and brought in."""

    files: int
    bytes: int
    """Of these files."""
    fetched: int
    """Bytes of those that the cache hadn't got."""


class Cached(Protocol):
    """A `CachedFS`, as far as it is filled from here."""

    _order: Order
    _whole_size: int

    @property
    def inner(self) -> FS: ...

    def _now(self) -> Here: ...

    def _find(self, key: str) -> Found: ...

    def _look_up(self, key: str) -> tuple[Found, Blob | None]: ...

    def _kept(self, found: Found) -> bytes | None: ...

    def _at_hand(self, key: str) -> bytes | None: ...

    def _fetched(self, key: str) -> bytes: ...

    def _whole(
        self, key: str, found: Found, open_inner: Callable[[str], Blob], opened: Blob | None = None
    ) -> tuple[bytes, str | None]: ...

    def _block_blob(self, key: str, found: Found, opened: Blob | None = None) -> BlockBlob: ...

    def _note(self, here: Here, found: Found) -> None: ...

    def _reached(self, key: str) -> None: ...

    def _stat(self, key: str) -> FileStat: ...

    def _walk(self, key: str) -> Iterator[FileStat]: ...


# ---- windows: many small files of a store that is asked in no time


class _Window:
    """Files that follow one another: those that the cache hasn't got are fetched together."""

    def __init__(self, fs: Cached, concurrency: int | None) -> None:
        self._fs = fs
        self._concurrency = concurrency
        self.keys: list[str] = []
        self._found: list[Found] = []
        self._missing: list[int] = []
        self._fetched: dict[int, bytes] = {}
        self._bytes = 0

    def add(self, key: str, found: Found, missing: bool) -> None:
        """One more."""
        if missing:
            self._missing.append(len(self.keys))
            self._bytes += found.stat.size
        self.keys.append(key)
        self._found.append(found)

    def extend(self, wanted: Iterable[str]) -> None:
        """Add the files that come next, up to one that is large or can't be read."""
        tiers = self._fs._now().tiers
        for key in wanted:
            if len(self._missing) >= WINDOW_FILES or self._bytes >= WINDOW_BYTES or len(self.keys) >= WINDOW_SPAN:
                return
            try:
                found = self._fs._find(key)
            except OSError:  # raised when its turn comes
                return
            if found.part is None or found.stat.size > self._fs._whole_size:
                return
            self.add(key, found, not tiers.has(found.part))

    def contents(self) -> Iterator[bytes]:
        """The contents, in order."""
        try:
            for keep in (True, False):
                self._fetch([at for at in self._missing if self._found[at].keep is keep], keep)
        except OSError:  # one of them has changed, or can't be read: each by itself then, and an error in its turn
            pass
        open_inner = self._fs.inner._open_from_start
        for at, key in enumerate(self.keys):
            data = self._fetched.pop(at, None)
            yield data if data is not None else self._fs._whole(key, self._found[at], open_inner)[0]

    def _fetch(self, numbers: list[int], keep: bool) -> None:
        if not numbers:
            return
        here = self._fs._now()
        parts = [part for at in numbers if (part := self._found[at].part) is not None]

        def read(chosen: Sequence[int]) -> Iterator[bytes]:
            return self._read([numbers[at] for at in chosen])

        for at, data in zip(numbers, here.tiers.fill(parts, read, keep), strict=True):
            self._fetched[at] = data
            self._fs._note(here, self._found[at])

    def _read(self, numbers: list[int]) -> Iterator[bytes]:
        """From the store; what comes without a version is what it was before and after."""
        inner = self._fs.inner
        found = inner._read_many([self.keys[at] for at in numbers], self._concurrency)
        for at, data in zip(numbers, found, strict=True):
            before, now = self._found[at].stat, inner._stat(self.keys[at])
            if (now.size, now.version) != (before.size, before.version) or len(data) != before.size:
                raise errors.stale(inner._url(self.keys[at]))
            yield data


def in_windows(
    fs: Cached, wanted: Sequence[str], concurrency: int | None, reached: Callable[[str], None]
) -> Iterator[bytes]:
    """The contents of files: one that the cache hasn't got is fetched with those after it, by one `_read_many`."""
    start = 0
    while start < len(wanted):
        key = wanted[start]
        reached(key)
        found = fs._find(key)
        if found.part is None or found.stat.size > fs._whole_size:
            yield fs._fetched(key)
        elif hit := [data] if (data := fs._kept(found)) is not None else []:
            del data
            yield hit.pop()
        else:
            window = _Window(fs, concurrency)
            window.add(key, found, True)
            window.extend(itertools.islice(wanted, start + 1, None))
            for number, content in enumerate(window.contents()):
                reached(window.keys[number])
                yield content
            start += len(window.keys) - 1
        start += 1


def at_hand_first(fs: Cached, wanted: Sequence[str], concurrency: int) -> Iterator[bytes]:
    """The contents of files: what is here is given at once; for what has to be asked for there are threads."""
    start = 0
    while start < len(wanted):
        data = fs._at_hand(wanted[start])
        if data is not None:
            fs._reached(wanted[start])
            yield data
            start += 1
            continue
        part = wanted[start : start + 4 * concurrency]
        yield from FS._read_many(cast(FS, fs), part, concurrency)
        start += len(part)


# ---- bringing files in


def bring(fs: Cached, wanted: Sequence[str], concurrency: int | None) -> Iterator[tuple[int, int]]:
    """Bring files in, in order: the size of each, and how many bytes of it had to be fetched."""
    workers = min(concurrency or fs.inner.default_concurrency, len(wanted))
    if workers > 1 and not identity.knows_its_members(fs.inner):
        brought = in_threads(cast(Any, functools.partial(bring_one, fs)), wanted, workers)
        yield from cast(Iterator[tuple[int, int]], brought)
        return
    for start in range(0, len(wanted), WINDOW_FILES):
        batch = wanted[start : start + WINDOW_FILES]
        small = [key for key in batch if _is_small_and_missing(fs, key)]
        sizes = {key: len(data) for key, data in zip(small, in_windows(fs, small, concurrency, _nobody), strict=True)}
        for key in batch:
            yield (sizes[key], sizes[key]) if key in sizes else bring_one(fs, key)


def _is_small_and_missing(fs: Cached, key: str) -> bool:
    try:
        found = fs._find(key)
    except OSError:  # raised when its turn comes
        return False
    small = found.part is not None and found.stat.size <= fs._whole_size
    return small and found.part is not None and not fs._now().tiers.has(found.part)


def bring_one(fs: Cached, key: str) -> tuple[int, int]:
    """Bring one file in: its size, and how many bytes had to be fetched."""
    found, opened = fs._look_up(key)
    with opened if opened is not None else contextlib.nullcontext():
        if found.part is None:
            return found.stat.size, 0
        if found.stat.size > fs._whole_size:
            with contextlib.closing(fs._block_blob(key, found, opened)) as blob:
                return found.stat.size, blob.fill(range(len(blob.blocks)))
        if fs._now().tiers.has(found.part):
            return found.stat.size, 0
        return found.stat.size, len(fs._whole(key, found, fs.inner._open_from_start, opened)[0])


def _nobody(key: str) -> None:
    """Nothing is being read."""


def most_ahead(fs: Cached) -> int:
    """How far a prefetch goes if nothing else is said."""
    disk = fs._now().tiers.disk
    return MOST_AHEAD if disk is None or disk.limits.max_bytes is None else disk.limits.max_bytes // 2


class Prefetch:
    """Files being fetched ahead by a thread of this process."""

    def __init__(self, fs: Cached, wanted: Sequence[str], concurrency: int | None, ahead: int) -> None:
        self._fs = fs
        self._wanted = wanted
        self._concurrency = concurrency
        self._ahead = ahead
        self._order = fs._order
        self._outstanding: deque[tuple[int, int]] = deque()  # position and size of what is fetched and not read yet
        self._stop = threading.Event()
        self._generation = process.generation()
        self._filled = Filled(0, 0, 0)
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="fsabs-prefetch", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> Filled:
        """Wait for the end, or so many seconds; what is done by then. A forked child has nothing to wait for."""
        if self._generation == process.generation():
            self._thread.join(timeout)
        return self._filled

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self._generation != process.generation() or not self._thread.is_alive()

    @property
    def failed(self) -> int:
        """How many files couldn't be fetched."""
        return self._failed

    def cancel(self) -> None:
        """End it, as soon as what is under way has come."""
        if self._generation == process.generation():  # of an inherited event the lock may be held
            self._stop.set()
            self.wait()

    def _run(self) -> None:
        for start in range(0, len(self._wanted), WINDOW_FILES):
            batch = self._wanted[start : start + WINDOW_FILES]
            self._wait_for_reader()
            if self._stop.is_set():
                return
            for at in range(self._bring(start, batch), len(batch)):
                self._bring_alone(start + at, batch[at])

    def _bring(self, start: int, batch: Sequence[str]) -> int:
        """Bring in what comes before the first that fails; how many that are."""
        done = 0
        try:
            for size, fetched in bring(self._fs, batch, self._concurrency):
                self._count(start + done, size, fetched)
                done += 1
        except OSError:  # found again, and counted, by itself
            pass
        return done

    def _bring_alone(self, position: int, key: str) -> None:
        try:
            self._count(position, *bring_one(self._fs, key))
        except OSError:  # whoever reads it will hear of it
            self._failed += 1

    def _count(self, position: int, size: int, fetched: int) -> None:
        done = self._filled
        self._filled = Filled(done.files + 1, done.bytes + size, done.fetched + fetched)
        self._outstanding.append((position, size))

    def _wait_for_reader(self) -> None:
        while not self._stop.is_set():
            while self._outstanding and self._outstanding[0][0] <= self._order.cursor:
                self._outstanding.popleft()
            if sum(size for _, size in self._outstanding) < self._ahead:
                return
            self._stop.wait(_NAP)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a prefetch is a thread of its process, and can't be pickled")


# ---- a whole tree


def warm(fs: Cached, key: str, progress: Callable[[int, int], None] | None, concurrency: int | None) -> Filled:
    """Bring in all files at or below `key`."""
    wanted = list(_files(fs, key))
    filled = Filled(0, 0, 0)
    with _Bar(progress, len(wanted), sum(size for _, size in wanted)) as bar:
        for size, fetched in bring(fs, [name for name, _ in wanted], concurrency):
            filled = Filled(filled.files + 1, filled.bytes + size, filled.fetched + fetched)
            bar.show(filled, size)
    return filled


def _files(fs: Cached, key: str) -> Iterator[tuple[str, int]]:
    found: FileStat = fs._stat(key)
    if not found.directory:
        yield key, found.size
        return
    for member in fs._walk(key):
        if not member.directory:
            yield keys.join(key, member.filename), member.size


class _Bar:
    """The user's callback, or tqdm's bar, or nothing."""

    def __init__(self, progress: Callable[[int, int], None] | None, files: int, size: int) -> None:
        self._progress = progress
        self._files = files
        self._bar: Any = None
        if progress is None:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=size, unit="B", unit_scale=True, desc=f"warming {files} files", disable=None)

    def show(self, filled: Filled, size: int) -> None:
        """One more file of `size` bytes."""
        if self._progress is not None:
            self._progress(filled.files, filled.bytes)
        elif self._bar is not None:
            self._bar.update(size)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()


# ---- what is to stay


def pin(fs: Cached, wanted: Iterable[str]) -> int:
    """Bring files in and mark them; their bytes."""
    here, size = fs._now(), 0
    for key in wanted:
        size += bring_one(fs, key)[0]
        for part in _parts(fs, key):
            if here.tiers.disk is not None:
                here.tiers.disk.pin(*part, True)
    return size


def unpin(fs: Cached, wanted: Iterable[str]) -> None:
    """Take the marks away."""
    here = fs._now()
    for key in wanted:
        for part in _parts(fs, key):
            if here.tiers.disk is not None:
                here.tiers.disk.pin(*part, False)


def _parts(fs: Cached, key: str) -> Iterator[Part]:
    """The parts that a file is kept in."""
    found = fs._find(key)
    if found.part is None:
        return
    if found.stat.size <= fs._whole_size:
        yield found.part
        return
    with contextlib.closing(fs._block_blob(key, found)) as blob:
        for number in range(len(blob.blocks)):
            yield blob.blocks.part(number)
