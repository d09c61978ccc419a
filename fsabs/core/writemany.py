"""Writing many files at once, in bounded memory: what every FS's `write_many` is made of.

The contents are taken from the caller's iterable as there is room for them. After the first failure no more are taken;
those under way are written to their end, each whole or not at all, and the failures become one exception.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar, cast

from .process import Lock
from .threads import TaskOutcome, Threads, most_at_once

if TYPE_CHECKING:
    from typing_extensions import Buffer

P = TypeVar("P")
Content = tuple[str, bytes]
"""A key and the content of its file."""
MAX_BYTES = 64 * 1024 * 1024
"""Contents under way together; a larger one goes alone."""


class Failures:
    """The exceptions of files that are written together: the first is raised, the others are notes of it."""

    def __init__(self) -> None:
        self._first: BaseException | None = None
        self._lock = Lock()

    def add(self, exc: BaseException) -> None:
        """Add an exception of one file."""
        with self._lock:
            if self._first is None:
                self._first = exc
            elif exc is not self._first:
                self._first.add_note(f"also: {type(exc).__name__}: {exc}")

    def __bool__(self) -> bool:
        return self._first is not None

    def raise_first(self) -> None:
        """Raise the first one, if there is any."""
        first, self._first = self._first, None
        try:
            if first is not None:
                raise first
        finally:
            del first  # its traceback holds this frame: a cycle that only the garbage collector frees


def contents(pairs: Iterable[tuple[P, Buffer]] | Mapping[P, Buffer], key_of: Callable[[P], str]) -> Iterator[Content]:
    """Yield the key and the bytes of each pair, when it is asked for; a buffer that may change is copied."""
    items = cast(Iterable[tuple[P, "Buffer"]], pairs.items() if isinstance(pairs, Mapping) else pairs)
    for path, data in items:
        yield key_of(path), data if type(data) is bytes else content_of(path, data)


def content_of(path: object, data: Buffer) -> bytes:
    """Return a copy of a buffer; anything else is a `TypeError` that names the path."""
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise TypeError(f"the content of {path!r} must be a bytes-like object, not {type(data).__name__}") from None


def one_by_one(write: Callable[[str, bytes], None], pairs: Iterator[Content]) -> int:
    """Write each file after the one before it; return how many."""
    count = 0
    for key, data in pairs:
        write(key, data)
        count += 1
    return count


def in_threads(write: Callable[[str, bytes], None], pairs: Iterator[Content], workers: int) -> int:
    """Write files by `workers` threads, with at most `MAX_BYTES` under way; return how many."""
    workers = min(workers, most_at_once())
    with Threads[None](workers, wait=True) as threads:
        writes = _Writes(threads, write)
        try:
            for key, data in pairs:
                writes.wait_for_room(workers, len(data))
                if writes.failures:
                    break
                writes.begin(key, data)
        except BaseException as exc:
            writes.failures.add(exc)
        threads.finish()
    writes.failures.raise_first()
    return writes.count()


class _Writes:
    """The writes of one call, and what became of them. Their ends are counted where they end, so that an exception of
    a signal handler in the caller's thread doesn't make it wait for one that is over."""

    def __init__(self, threads: Threads[None], write: Callable[[str, bytes], None]) -> None:
        self._threads = threads
        self._write = write
        self._sizes: dict[int, int] = {}  # of those under way, by number
        self._numbers, self._written = itertools.count(), itertools.count()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self.failures = Failures()

    def begin(self, key: str, data: bytes) -> None:
        """Have a thread write a file."""
        number = next(self._numbers)
        self._sizes[number] = len(data)
        self._threads.submit(partial(self._write, key, data), partial(self._end, number))

    def _end(self, number: int, outcome: TaskOutcome[None]) -> None:
        try:
            outcome.result()
            next(self._written)
        except BaseException as exc:
            self.failures.add(exc)
        del self._sizes[number]
        self._ended.put(None)

    def wait_for_room(self, files: int, size: int) -> None:
        """Wait until fewer than `files` are under way, and room for `size` bytes."""
        while (sizes := list(self._sizes.values())) and (len(sizes) >= files or sum(sizes) + size > MAX_BYTES):
            self._ended.get()

    def count(self) -> int:
        """Return how many files were written; called once."""
        return next(self._written)
