"""Listings of many pages: the next page is requested while this one is used, and a prefix of very many keys is split.

Where a store lists keys in their order, a listing may begin behind any string (`start-after`). From the keys of its
first page a range is divided into shares that are likely to have a page each, and these are listed side by side; a
share that turns out to be longer is divided again. Pages come out in the order of their keys, and those that wait are
bounded in number.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from errno import EBADMSG
from typing import TYPE_CHECKING

from ... import errors
from .pages import ObjectPage, fetch

if TYPE_CHECKING:
    from .bucket import S3

WIDTH = 32
"""Requests in flight."""
MAX_WAITING = 64
"""Pages that wait for an earlier one."""
SHARES = 16
"""Parts that a range is divided into at a time."""
FAST = 3
SLOW = 0.02
"""After so many pages a listing is split if each was waited for so many seconds."""
_END = "\U0010ffff" * 256
"""Above all that a key can go on with: it has at most 1,024 bytes."""


def pages(fs: S3, prefix: str, delimiter: str | None = None) -> Generator[ObjectPage, None, None]:
    """Yield the pages of a listing, one request ahead."""
    page = fetch(fs, prefix, delimiter)
    if page.token is None:
        yield page
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="fsabs-list")
    try:
        while page.token is not None:
            following = pool.submit(fetch, fs, prefix, delimiter, page.token)
            yield page
            page = following.result()
        yield page
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def flat(fs: S3, prefix: str) -> Iterator[ObjectPage]:
    """Yield the pages of all objects below `prefix`, in the order of their keys; side by side if there are many."""
    client = fs.http
    if client is None or not client.endpoint.ordered:
        yield from pages(fs, prefix)
        return
    one_by_one, waited = pages(fs, prefix), 0.0
    with contextlib.closing(one_by_one):
        for number in itertools.count(1):
            begin = time.monotonic()
            page = next(one_by_one, None)
            if page is None:
                return
            waited += time.monotonic() - begin
            yield page
            slow = number >= FAST and waited > SLOW * number
            if slow and page.objects and page.token is not None and _begins_after(fs, prefix, page.key(-1)):
                first, last = page.key(0), page.key(-1)
                break
    yield from _Split(functools.partial(_fetch_after, fs, prefix), prefix, first, last).run()


def _begins_after(fs: S3, prefix: str, key: str) -> bool:
    """Return whether the store knows `start-after`: some ignore it."""
    page = fetch(fs, prefix, after=key, most=1)
    return bool(page.objects) and page.key(0) > key


def _fetch_after(fs: S3, prefix: str, after: str) -> ObjectPage:
    page = fetch(fs, prefix, after=after)
    while page.token is not None and not page.objects:  # a store may send an empty page of a listing that goes on
        page = fetch(fs, prefix, token=page.token)
    return page


class _Split:
    """The objects behind the key `last`, in ranges that are listed side by side.

    A range `(start, end)` has the keys above `start` and not above `end`.
    """

    def __init__(self, fetch_after: Callable[[str], ObjectPage], prefix: str, first: str, last: str) -> None:
        self._fetch = fetch_after
        self._prefix = prefix
        self._alphabet = set(first[len(prefix) :] + last[len(prefix) :])
        self._waiting: list[tuple[str, str]] = []  # a heap of ranges that are to be listed
        self._under_way: dict[Future[ObjectPage], tuple[str, str]] = {}
        self._done: list[tuple[str, int, str, ObjectPage]] = []  # a heap by start; with where each ends
        self._numbers = itertools.count()
        for part in self._divided(first, last, prefix + _END):
            heapq.heappush(self._waiting, part)
        self._next = last  # where the range begins whose page is yielded next

    def run(self) -> Iterator[ObjectPage]:
        """Yield the pages in order."""
        pool = ThreadPoolExecutor(WIDTH, thread_name_prefix="fsabs-list")
        try:
            while True:
                while self._done and self._done[0][0] == self._next:
                    _, _, self._next, page = heapq.heappop(self._done)
                    if page.objects:
                        yield page
                if not (self._waiting or self._under_way):
                    assert not self._done, "the ranges leave a gap"
                    return
                self._begin(pool)
                for future in wait(self._under_way, return_when=FIRST_COMPLETED).done:
                    self._take(*self._under_way.pop(future), future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor) -> None:
        while self._waiting and len(self._under_way) < WIDTH:
            if len(self._done) >= MAX_WAITING and self._waiting[0][0] != self._next:
                if self._under_way:
                    return
            start, end = heapq.heappop(self._waiting)
            self._under_way[pool.submit(self._fetch, start)] = (start, end)

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
        self._alphabet.update(found[0][len(self._prefix) :] if found else "")
        if inside == len(found) and page.token is not None and found:
            for part in self._divided(found[0], found[-1], end):
                heapq.heappush(self._waiting, part)
            end = found[-1]
        kept = page._replace(objects=page.objects[:inside])
        heapq.heappush(self._done, (start, next(self._numbers), end, kept))

    def _divided(self, first: str, last: str, end: str) -> list[tuple[str, str]]:
        """Divide the range behind `last` into shares of about the width from `first` to `last`, as far as that goes."""
        if last >= end:
            return []
        low, high = _common_start(last, end), end
        skip = len(low)
        order = sorted(self._alphabet | set(last[skip:]))
        scale = _Scale(order, low)
        at, until = scale.number(last), scale.number(high)
        width = at - (scale.number(first) if first.startswith(low) else 0.0)
        if width <= 0 or until <= at:
            return [(last, end)]
        count = max(1, min(SHARES, round((until - at) / width)))
        step = (until - at) / count
        bounds = [last, *sorted({scale.text(at + step * number) for number in range(1, count)}), end]
        bounds = [bound for bound in bounds if last <= bound <= end]
        return [(one, other) for one, other in itertools.pairwise(bounds) if one < other]


def _common_start(one: str, other: str) -> str:
    return one[: sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))]


class _Scale:
    """Strings with a common start as numbers between 0 and 1: digits in the base of the characters that occur."""

    DIGITS = 24

    def __init__(self, alphabet: list[str], start: str) -> None:
        self._alphabet = alphabet
        self._value = {character: number for number, character in enumerate(alphabet)}
        self._base = len(alphabet) + 1
        self._start = start

    def number(self, text: str) -> float:
        """Return the number of a string."""
        found, weight = 0.0, 1.0
        for character in text[len(self._start) :][: self.DIGITS]:
            weight /= self._base
            value = self._value.get(character)
            if value is None:  # above the known ones, or between two of them
                value = sum(1 for known in self._alphabet if known < character) - 1
                found += (value + 2) * weight if value + 1 == len(self._alphabet) else (value + 1.5) * weight
                break
            found += (value + 1) * weight
        return min(found, 1.0)

    def text(self, number: float) -> str:
        """Return a string of about that number."""
        found = []
        for _ in range(self.DIGITS):
            number *= self._base
            digit = int(number)
            if digit < 1:
                break
            digit = min(digit, len(self._alphabet))
            found.append(self._alphabet[digit - 1])
            number -= digit
            if number <= 0:
                break
        return self._start + "".join(found)
