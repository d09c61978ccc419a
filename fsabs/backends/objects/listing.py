"""Listings of many pages: the next page is requested while this one is used, and a prefix of very many keys is split.

Where a store lists keys in their order, a listing may begin behind any string (`start-after`). From the keys of its
first page a range is divided into shares that are likely to have a page or more each, and these are listed side by
side; a share that turns out to be longer is divided again. Pages come out in the order of their keys, and those that
wait are bounded in number.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import string
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from errno import EBADMSG, EINVAL, EOPNOTSUPP
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...core import errors
from ...core.threads import TaskOutcome, Threads
from .messages import ObjectPage

if TYPE_CHECKING:
    from .store import ObjectStore

WIDTH = 32
"""Requests in flight."""
MAX_WAITING = 64
"""Pages that wait for an earlier one."""
MAX_SHARES = 64
"""Parts that a range is divided into at a time."""
SAMPLES = 5
"""Keys of a page that are looked at to guess those of others."""
SLOW = 0.02
"""A listing is split if each page was waited for so many seconds."""
_END = "\U0010ffff" * 256
"""Above all that a key can go on with: it has at most 1,024 bytes."""


def fetch(
    fs: ObjectStore,
    prefix: str,
    delimiter: str | None = None,
    token: str | None = None,
    after: str | None = None,
    most: int | None = None,
) -> ObjectPage:
    """Return a page of what is below `prefix`; the arguments are those of `Dialect.page_request`."""
    page = fs._page(prefix, delimiter, token, after, most)
    if after is not None and page.objects and page.key(0) == after:
        page = page._replace(objects=page.objects[1:])
    if token is not None and page.token == token:
        raise errors.CorruptFileError(EBADMSG, "a page of a listing that goes on where it began")
    return page


def pages(fs: ObjectStore, prefix: str, delimiter: str | None = None) -> Generator[ObjectPage, None, None]:
    """Yield the pages of a listing, one request ahead."""
    page = fetch(fs, prefix, delimiter)
    if page.token is None:
        yield page
        return
    with Threads[ObjectPage](1) as threads:
        while page.token is not None:
            following = threads.start(functools.partial(fetch, fs, prefix, delimiter, page.token))
            yield page
            page = following()
        yield page


def flat(fs: ObjectStore, prefix: str) -> Iterator[ObjectPage]:
    """Yield the pages of all objects below `prefix`, in the order of their keys; side by side if there are many."""
    if not fs.dialect.ordered:
        yield from pages(fs, prefix)
        return
    begin = time.monotonic()
    page = fetch(fs, prefix)
    slow, waited, able, proved = time.monotonic() - begin > SLOW, 0.0, True, False
    with Threads[tuple[ObjectPage, bool]](1) as threads:
        for number in itertools.count(1):
            if page.token is None or (slow and proved and page.objects):
                break
            by_key = able and slow and bool(page.objects)
            following = threads.start(functools.partial(_following, fs, prefix, page, by_key))
            yield page
            begin = time.monotonic()
            page, proved = following()
            able = able and proved >= by_key
            waited += time.monotonic() - begin
            slow = waited > SLOW * number
    yield page
    if page.token is not None:
        yield from _Split(functools.partial(_fetch_after, fs, prefix), prefix, page.keys()).run()


def _following(fs: ObjectStore, prefix: str, page: ObjectPage, by_key: bool) -> tuple[ObjectPage, bool]:
    """Return the next page, and whether it was found by the last key: some stores ignore that, or refuse it."""
    if by_key:
        last = page.key(-1)
        try:
            found = _fetch_after(fs, prefix, last)
            if found.objects and found.key(0) > last:
                return found, True
        except OSError as exc:
            if exc.errno not in (EINVAL, EOPNOTSUPP):
                raise
    return fetch(fs, prefix, token=page.token), False


def _fetch_after(fs: ObjectStore, prefix: str, after: str) -> ObjectPage:
    page = fetch(fs, prefix, after=after)
    while page.token is not None and not page.objects:  # a store may send an empty page of a listing that goes on
        page = fetch(fs, prefix, token=page.token)
    return page


class _Split:
    """The objects behind the keys of a page, in ranges that are listed side by side.

    A range `(start, end)` has the keys above `start` and not above `end`.
    """

    def __init__(self, fetch_after: Callable[[str], ObjectPage], prefix: str, page: list[str]) -> None:
        self._fetch = fetch_after
        self._prefix = prefix
        self._waiting: list[tuple[str, str]] = []  # a heap of ranges that are to be listed
        self._under_way = 0
        self._ended: SimpleQueue[tuple[str, str, TaskOutcome[ObjectPage]]] = SimpleQueue()
        self._done: list[tuple[str, int, str, ObjectPage]] = []  # a heap by start; with where each ends
        self._numbers = itertools.count()
        for part in self._divided(page, prefix + _END):
            heapq.heappush(self._waiting, part)
        self._next = page[-1]  # where the range begins whose page is yielded next

    def run(self) -> Iterator[ObjectPage]:
        """Yield the pages in order."""
        with Threads[ObjectPage](WIDTH) as threads:
            while True:
                while self._done and self._done[0][0] == self._next:
                    _, _, self._next, page = heapq.heappop(self._done)
                    if page.objects:
                        yield page
                if not (self._waiting or self._under_way):
                    assert not self._done, "the ranges leave a gap"
                    return
                self._begin(threads)
                start, end, outcome = self._ended.get()
                self._under_way -= 1
                self._take(start, end, outcome.result())

    def _begin(self, threads: Threads[ObjectPage]) -> None:
        while self._waiting and self._under_way < WIDTH:
            if len(self._done) >= MAX_WAITING and self._waiting[0][0] != self._next:
                if self._under_way:
                    return
            start, end = heapq.heappop(self._waiting)
            self._under_way += 1
            threads.submit(functools.partial(self._fetch, start), functools.partial(self._report, start, end))

    def _report(self, start: str, end: str, outcome: TaskOutcome[ObjectPage]) -> None:
        self._ended.put((start, end, outcome))

    def _take(self, start: str, end: str, page: ObjectPage) -> None:
        """Keep what a page has of its range, and plan the rest of the range."""
        found = page.keys()
        if found and found[0] <= start:
            raise errors.CorruptFileError(
                EBADMSG, f"a page that begins at {found[0]!r} where it should behind {start!r}"
            )
        inside = len(found)
        while inside and found[inside - 1] > end:
            inside -= 1
        if inside == len(found) and page.token is not None and found:
            for part in self._divided(found, end):
                heapq.heappush(self._waiting, part)
            end = found[-1]
        kept = page._replace(objects=page.objects[:inside])
        heapq.heappush(self._done, (start, next(self._numbers), end, kept))

    def _divided(self, found: list[str], end: str) -> list[tuple[str, str]]:
        """Divide the range behind a page into shares that are likely to have at least a page each."""
        last, bounds = found[-1], list[str]()
        if last >= end:
            return []
        for bound in _bounds(found, len(self._prefix)):
            if bound >= end or len(bounds) == MAX_SHARES - 1:
                break
            bounds.append(bound)
        return list(itertools.pairwise([last, *bounds, end]))


def _bounds(page: list[str], fixed: int) -> Iterator[str]:
    """Yield strings behind a page, in order, that are likely to be at least a page apart.

    Each is the start of the last key with its last character increased: `data/0003`, ..., `data/0009`, `data/001`, ...
    for a page from `data/0002000.jpg` to `data/0002999.jpg`. The first `fixed` characters stay.
    """
    first, last = page[0], page[-1]
    samples = [page[len(page) * number // SAMPLES] for number in range(SAMPLES)] + [last]
    spread = max(_common_length(first, last), fixed)
    for place in range(min(spread, len(last) - 1), fixed - 1, -1):
        if not last[place].isalnum():
            continue
        characters = _characters(samples, place)
        behind, first_share, step = [character for character in characters if character > last[place]], 0, 1
        if place == spread and place < len(first):  # the page has several of these characters
            counts = Counter(key[place : place + 1] for key in page)
            of_each = max(counts.values())
            room = len(page) - 1  # a store may begin a page with the key that it is to begin behind
            step = max(1, room // of_each)
            first_share = (room - of_each + counts[last[place]]) // of_each
        for character in behind[first_share::step]:
            yield last[:place] + character


def _characters(keys: list[str], place: int) -> list[str]:
    """Return the characters that keys are likely to have at a place: those of the words around it; all digits if one
    is among them.
    """
    found: set[str] = set()
    for key in keys:
        if place < len(key) and key[place].isalnum():
            start = end = place
            while start and key[start - 1].isalnum():
                start -= 1
            while end < len(key) and key[end].isalnum():
                end += 1
            found.update(key[start:end])
    if not found.isdisjoint(string.digits):
        found.update(string.digits)
    return sorted(found)


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
