"""Writing many files at once, in bounded memory: what every FS's `write_many` is made of.

The contents are taken from the caller's iterable as there is room for them. After the first failure no more are taken;
those under way are written to their end, each whole or not at all, and the failures become one exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from .process import Lock
from .threads import most_at_once

if TYPE_CHECKING:
    from concurrent.futures import Future

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
        if self._first is not None:
            raise self._first


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
        raise TypeError(f"the content of {path!r} is bytes, or a buffer of them, not {type(data).__name__}") from None


def one_by_one(write: Callable[[str, bytes], None], pairs: Iterator[Content]) -> int:
    """Write each file after the one before it; return how many."""
    count = 0
    for key, data in pairs:
        write(key, data)
        count += 1
    return count


def in_threads(write: Callable[[str, bytes], None], pairs: Iterator[Content], workers: int) -> int:
    """Write files by `workers` threads, with at most `MAX_BYTES` under way; return how many."""
    from concurrent.futures import Future, ThreadPoolExecutor

    failures, count, under_way = Failures(), 0, dict[Future[None], int]()
    workers = min(workers, most_at_once())
    with ThreadPoolExecutor(workers, thread_name_prefix="fsabs-write") as pool:
        try:
            for key, data in pairs:
                while under_way and (len(under_way) >= workers or sum(under_way.values()) + len(data) > MAX_BYTES):
                    count += _ended(under_way, failures)
                if failures:
                    break
                under_way[pool.submit(write, key, data)] = len(data)
        except BaseException as exc:
            failures.add(exc)
        while under_way:
            count += _ended(under_way, failures)
    failures.raise_first()
    return count


def _ended(under_way: dict[Future[None], int], failures: Failures) -> int:
    """Wait for a write to end, and return how many ended well."""
    count = 0
    from concurrent.futures import FIRST_COMPLETED, wait

    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
        del under_way[future]
        exc = future.exception()
        if exc is None:
            count += 1
        else:
            failures.add(exc)
    return count
