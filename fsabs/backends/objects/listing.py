"""Listings: the tree of names that the keys of a bucket are, and the pages of keys that it is made of.

Directories are common prefixes of keys, or empty objects whose keys end in `/`. A key that no path names (with an
empty, `.` or `..` segment, or text that is not UTF-8) is in no listing, and is left where it is; a listing warns of
those that it has left out.

Of a listing of many pages the next one is requested while this one is used, and a prefix of very many keys is split.
Where a store lists keys in their order, a listing may begin behind any string (`start-after`). From the keys of its
first page a range is divided into shares that are likely to have a page or more each, and these are listed side by
side; a share that turns out to be longer is divided again. Pages come out in the order of their keys, and those that
wait are bounded in number.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from errno import EBADMSG, EINVAL, EOPNOTSUPP
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from ...core import errors, keys
from ...core.stats import FileStat
from ...core.threads import TaskOutcome, Threads
from .bodies import unescaped, unreadable
from .messages import ObjectPage, PageQuery, Text

if TYPE_CHECKING:
    from .dialect import Dialect
    from .store import ObjectStore

T = TypeVar("T")
is_plain = re.compile("[^/.\ud800-\udfff][^/\ud800-\udfff]*(?:/[^/.\ud800-\udfff][^/\ud800-\udfff]*)*").fullmatch
"""Matches most of the names that a path can have, in less time than `keys.is_key` takes."""
_new = functools.partial(tuple.__new__, FileStat)
_MODE = FileStat("", 0).mode
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


# ---- the tree of names


class _LeftOut:
    """The keys that a listing has left out."""

    def __init__(self, fs: ObjectStore, key: str) -> None:
        self._fs = fs
        self._key = key
        self.count = 0
        self.example = ""

    def add(self, key: str) -> None:
        """Count a key."""
        self.count += 1
        self.example = self.example or key

    def warn(self) -> None:
        """Warn of the keys, if there are any."""
        if self.count:
            errors.warn_unnamed(self._fs.dialect.url(self._key), self.count, self.example)

    def error(self) -> OSError | None:
        """Return the error of an operation that has left the keys, if there are any."""
        return errors.unnamed_left(self._fs.dialect.url(self._key), self.count, self.example) if self.count else None


def is_path(name: str) -> bool:
    """Return whether a path can name a key; a directory's may end in `/`."""
    return is_plain(name) is not None or (keys.is_key(name.removesuffix("/")) and keys.is_text(name))


def prefix_of(key: str) -> str:
    """Return what the keys below a directory begin with."""
    return key + "/" if key else ""


def walk(
    fs: ObjectStore, key: str, of_object: Callable[[str, Text], T], of_directory: Callable[[str], T]
) -> Iterator[T | None]:
    """Yield everything below a directory, from a flat listing; a directory is put in where its first key shows it.

    None stands for a key that shows that the directory exists and is nothing in it.
    """
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    above: list[str] = []
    shown: set[str] = set()  # of a store that comes back to a directory
    folder, cut = "", len(prefix)
    for page in flat(fs, prefix):
        for entry in page.objects:
            name = page.decode(entry[0])[cut:]
            if not is_plain(name) and not is_path(name):
                if name:
                    left_out.add(prefix + name)
                yield None
                continue
            last = name.rfind("/") + 1
            if name[:last] != folder:
                folder, folders = name[:last], name[:last].split("/")[:-1]
                for depth in range(_common_length(above, folders), len(folders)):
                    path = "/".join(folders[: depth + 1])
                    if not fs.dialect.ordered:
                        if path in shown:
                            continue
                        shown.add(path)
                    yield of_directory(path)
                above = folders
            if last < len(name):
                yield of_object(name, entry)
    left_out.warn()


def level(fs: ObjectStore, key: str, start: str = "") -> Iterator[FileStat | None]:
    """Yield the members of a directory whose names begin with `start`, as `walk` does."""
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    to_stat = stats_of(fs.dialect)
    for page in pages(fs, PageQuery(prefix + start, one_level=True)):
        yield from _merged(prefix, page, to_stat, left_out)
    left_out.warn()


def _merged(
    prefix: str, page: ObjectPage, to_stat: Callable[[str, Text], FileStat], left_out: _LeftOut
) -> list[FileStat | None]:
    """Return the members on a page of one level: files and common prefixes, in the order of their names."""
    found: dict[str, FileStat | None] = {}
    cut = len(prefix)
    for entry in page.objects:
        name = page.decode(entry[0])[cut:]
        found[name] = to_stat(name, entry) if is_path(name) else None
    for folder in (*page.prefixes, *(f"{folder}/" for folder in page.folders)):
        name = folder[cut:]
        found[name] = FileStat.of_directory(name[:-1]) if is_path(name) else None
    for name, stat in found.items():
        if name and stat is None:
            left_out.add(prefix + name)
    return [found[name] for name in sorted(found)] if page.prefixes or page.folders else list(found.values())


def unnamed(fs: ObjectStore, key: str) -> Iterator[str]:
    """Yield the keys below a directory that no path names."""
    prefix = prefix_of(key)
    for page in flat(fs, prefix):
        found = page.keys()
        yield from (name for name in found if not is_path(name[len(prefix) :]) and name != prefix)


def named(fs: ObjectStore, key: str) -> Iterator[list[str]]:
    """Yield the keys of a tree that paths name, a page at a time; at the end raises an error if there are others."""
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    for page in flat(fs, prefix):
        found = []
        for name in (*page.keys(), *page.folders):
            if name == prefix or is_path(name[len(prefix) :]):
                found.append(name)
            else:
                left_out.add(name)
        yield found
    if (failure := left_out.error()) is not None:
        raise failure


def stats_of(dialect: Dialect) -> Callable[[str, Text], FileStat]:
    """Return what makes the stat of an object, under the name that its listing gives it."""
    seconds = dialect.seconds

    def to_stat(name: str, entry: Text) -> FileStat:
        _, written, etag, size = entry
        version = etag[6:-6] if etag[:6] == "&quot;" == etag[-6:] else unescaped(etag).removeprefix("W/").strip('"')
        try:
            stat: FileStat = _new((name, int(size), False, seconds(written), _MODE, version or None))
        except ValueError:
            raise unreadable(f"an entry of a listing with the size {size!r} and the time {written!r}") from None
        return stat

    return to_stat


# ---- pages


def fetch(fs: ObjectStore, query: PageQuery) -> ObjectPage:
    """Return a page, which begins behind the key `after`; one that is empty is the last."""
    while True:
        page = fs._page(query)
        if query.after is not None and page.objects and page.key(0) == query.after:
            page = page._replace(objects=page.objects[1:])
        if query.token is not None and page.token == query.token:
            raise errors.CorruptFileError(EBADMSG, "a page of a listing repeats its marker")
        if page.token is None or page.objects or page.prefixes or page.folders:
            return page
        query = query._replace(token=page.token, after=None)  # as Azure sends between the parts of a container


def pages(fs: ObjectStore, query: PageQuery) -> Generator[ObjectPage, None, None]:
    """Yield the pages of a listing, one request ahead."""
    page = fetch(fs, query)
    if page.token is None:
        yield page
        return
    with Threads[ObjectPage](1) as threads:
        while page.token is not None:
            following = threads.start(functools.partial(fetch, fs, query._replace(token=page.token)))
            yield page
            page = following()
        yield page


def flat(fs: ObjectStore, prefix: str) -> Iterator[ObjectPage]:
    """Yield the pages of all objects below `prefix`, in the order of their keys; side by side if there are many."""
    if not fs.dialect.ordered:
        yield from pages(fs, PageQuery(prefix))
        return
    begin = time.monotonic()
    page = fetch(fs, PageQuery(prefix))
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
    return fetch(fs, PageQuery(prefix, token=page.token)), False


def _fetch_after(fs: ObjectStore, prefix: str, after: str) -> ObjectPage:
    page = fetch(fs, PageQuery(prefix, after=after))
    while page.token is not None and not page.objects:  # of directories alone
        page = fetch(fs, PageQuery(prefix, token=page.token))
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


def _characters(samples: list[str], place: int) -> list[str]:
    """Return the characters that keys are likely to have at a place: those of the words around it; all digits if one
    is among them.
    """
    found: set[str] = set()
    for key in samples:
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


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many characters two keys, or folders two paths, begin with in common."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
