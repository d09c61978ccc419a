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

import bisect
import functools
import heapq
import itertools
import math
import operator
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from errno import EBADMSG, EINVAL, EOPNOTSUPP
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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
MAX_EMPTY = 1000
"""Pages without a name that follow one another, as of a million objects that were removed and left their marks."""
MAX_SHOWN = 100_000
"""Directories that a walk remembers, for a store that comes back to them."""
_END = "\U0010ffff" * 256
"""Above all that a key can go on with: it has at most 1,024 bytes."""
_NONE: Text = ("", "", "", "0")


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
    fs: ObjectStore,
    key: str,
    of_object: Callable[[str, Text], T],
    of_directory: Callable[[str], T],
    after: str = "",
) -> Iterator[T | None]:
    """Yield everything below a directory, from a flat listing; a directory is put in where its first key shows it.

    Of a store that lists in order what is named up to `after` is left out.

    None stands for a key that shows that the directory exists and is nothing in it.
    """
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    above: list[str] = []
    shown: set[str] = set()  # for a store that comes back to a directory
    most = MAX_SHOWN if fs.lists_in_order else math.inf
    pending: list[str] = []
    folder, cut = "", len(prefix)
    for found, page in flat(fs, prefix, after):
        comes_back = not fs.lists_in_order
        if comes_back and len(shown) > most:
            raise unreadable(f"a listing out of order, of more than {most:,} directories")
        entries = zip(found, page.objects, strict=True)
        for whole, entry in _with_folders(fs, entries, page, pending) if page.folders or pending else entries:
            name = whole[cut:]
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
                    if comes_back and path in shown:
                        continue
                    if len(shown) <= most:
                        shown.add(path)
                    yield of_directory(path)
                above = folders
            if last < len(name):
                yield of_object(name, entry)
    left_out.warn()


def _with_folders(
    fs: ObjectStore, entries: Iterator[tuple[str, Text]], page: ObjectPage, pending: list[str]
) -> Iterator[tuple[str, Text]]:
    """Yield the entries of a page, and its folders, each as a key that ends in `/`: which is above its own.

    `pending` is a heap of those that are to come, on later pages.
    """
    for folder in page.folders:
        heapq.heappush(pending, folder + "/")
    for key, entry in entries:
        while pending and pending[0] < key:
            yield heapq.heappop(pending), _NONE
        yield key, entry
    while pending and (page.token is None or not fs.lists_in_order):
        yield heapq.heappop(pending), _NONE


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
    for found, _ in flat(fs, prefix):
        yield from (name for name in found if not is_path(name[len(prefix) :]) and name != prefix)


def named(fs: ObjectStore, key: str) -> Iterator[list[str]]:
    """Yield the keys of a tree that paths name, a page at a time; at the end raises an error if there are others."""
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    for found, page in flat(fs, prefix):
        known = []
        for name in (*found, *page.folders):
            if name == prefix or is_path(name[len(prefix) :]):
                known.append(name)
            else:
                left_out.add(name)
        yield known
    if (failure := left_out.error()) is not None:
        raise failure


def stats_of(dialect: Dialect) -> Callable[[str, Text], FileStat]:
    """Return what makes the stat of an object, under the name that its listing gives it."""
    seconds = dialect.seconds

    def to_stat(name: str, entry: Text) -> FileStat:
        _, written, etag, size = entry
        version = etag[6:-6] if etag[:6] == "&quot;" == etag[-6:] else unescaped(etag).removeprefix("W/").strip('"')
        try:
            stat: FileStat = _new((name, int(size), False, seconds(written), _MODE, version or None, None))
        except ValueError:
            raise unreadable(f"an entry of a listing with the size {size!r} and the time {written!r}") from None
        return stat

    return to_stat


# ---- pages


def check_new(names: Sequence[str], firsts: set[str]) -> None:
    """Raise `CorruptFileError` for a page with a name that an earlier page began with: it would never end."""
    if not firsts.isdisjoint(names):
        again = next(name for name in names if name in firsts)
        raise errors.CorruptFileError(EBADMSG, f"a listing that goes in circles: {again!r} is there again")
    firsts.update(names[:1])


def fetch(fs: ObjectStore, query: PageQuery) -> ObjectPage:
    """Return a page, which begins behind the key `after`; one that is empty is the last."""
    for _ in range(MAX_EMPTY):
        page = fs._page(query)
        if query.after is not None and page.objects and page.key(0) == query.after:
            page = page._replace(objects=page.objects[1:])
        if query.token is not None and page.token == query.token:
            raise errors.CorruptFileError(EBADMSG, "a page of a listing repeats its marker")
        if page.token is None or page.objects or page.prefixes or page.folders:
            return page
        query = query._replace(token=page.token, after=None)  # as Azure sends between the parts of a container
    raise errors.CorruptFileError(EBADMSG, f"{MAX_EMPTY} pages of a listing with nothing on them, and more to come")


def pages(fs: ObjectStore, query: PageQuery) -> Generator[ObjectPage, None, None]:
    """Yield the pages of a listing, one request ahead."""
    page, firsts = fetch(fs, query), set[str]()
    if page.token is None:  # as most are
        yield page
        return
    with Threads[ObjectPage](1) as threads:
        while True:
            check_new([*(entry[0] for entry in page.objects), *page.prefixes, *page.folders], firsts)
            if page.token is None:
                break
            following = threads.start(functools.partial(fetch, fs, query._replace(token=page.token)))
            yield page
            page = following()
    yield page


KeyedPage = tuple[list[str], ObjectPage]
"""The keys of a page, and the page."""


def flat(fs: ObjectStore, prefix: str, after: str = "") -> Iterator[KeyedPage]:
    """Yield the pages of all objects below `prefix`, in the order of their keys; side by side if there are many.

    In a store that lists keys in their order they begin behind the name `after` there, and come one after the other.

    A store that turns out to list keys in another order is gone on with by the markers of its pages, and taken for one
    without an order from then on.
    """
    query = PageQuery(prefix, after=prefix + after if after and fs.lists_in_order else None)
    begin, waited = time.monotonic(), 0.0
    page = fetch(fs, query)
    slow, able, last, agreed, firsts = time.monotonic() - begin > SLOW, not after, "", False, set[str]()
    with Threads[ObjectPage](2) as threads:
        for number in itertools.count(1):
            found = page.keys()
            if not (fs.lists_in_order and ascends(last, found)):
                fs.lists_in_order = agreed = able = False
                check_new(found, firsts)
            firsts.update(found[:1])  # of pages in order, too: they may come again
            last = found[-1] if found else last
            if page.token is None or agreed:
                break
            following = threads.start(functools.partial(fetch, fs, query._replace(token=page.token)))
            probed = None
            if able and slow and found:
                probed = threads.start(functools.partial(_fetch_after, fs, prefix, last))
            yield found, page
            begin = time.monotonic()
            page = following()
            waited += time.monotonic() - begin
            slow = waited > SLOW * number
            if probed is not None:
                agreed = able = _agrees(probed, page)
    yield found, page
    if page.token is not None:
        yield from _side_by_side(fs, prefix, found, page.token)


def ascends(last: str, found: list[str]) -> bool:
    """Return whether keys are above the last one before, each above the one before it."""
    return not found or (last < found[0] and all(map(operator.lt, found, itertools.islice(found, 1, None))))


def _agrees(probed: Callable[[], ObjectPage], page: ObjectPage) -> bool:
    """Return whether the page behind a key is the one that follows: some stores ignore the key, or refuse it."""
    try:
        found = probed().keys()
    except OSError as exc:
        if exc.errno not in (EINVAL, EOPNOTSUPP):
            raise
        return False
    same = min(len(found), len(page.objects))
    return same > 0 and found[:same] == page.keys()[:same]


def _fetch_after(fs: ObjectStore, prefix: str, after: str) -> ObjectPage:
    page = fetch(fs, PageQuery(prefix, after=after))
    while page.token is not None and not page.objects:  # of directories alone
        page = fetch(fs, PageQuery(prefix, token=page.token))
    return page


def _side_by_side(fs: ObjectStore, prefix: str, before: list[str], token: str) -> Iterator[KeyedPage]:
    """Yield the pages behind a page with the keys `before`, of which `token` is the marker."""
    above = last = before[-1]
    try:
        for found, page in _Split(functools.partial(_fetch_after, fs, prefix), prefix, before).run():
            last = found[-1]
            yield found, page
        return
    except OutOfOrder:
        fs.lists_in_order = False
    # All again, by markers. What was given is what is above all that was before it, up to the last key that was given.
    for page in pages(fs, PageQuery(prefix, token=token)):
        kept = []
        for key, entry in zip(page.keys(), page.objects, strict=True):
            if key <= above or key > last:
                kept.append(entry)
            above = max(above, key)
        page = page._replace(objects=kept)
        yield page.keys(), page


class OutOfOrder(errors.CorruptFileError):
    """A store has not listed its keys in their order, or not all of them."""


class _Range(NamedTuple):
    """A range of keys that was listed, as far as `end`."""

    start: str
    number: int
    """No two have the same: pages are not compared."""
    end: str
    found: list[str]
    page: ObjectPage
    first: str | None
    """The first key behind `start`, in the range or not."""
    beyond: str | None
    """The first key behind `end`; None if there is none."""
    is_open: bool
    """Whether nothing is known of what is behind `end`."""


class _Split:
    """The objects behind the keys of a page, in ranges that are listed side by side.

    A range `(start, end)` has the keys above `start` and not above `end`. Raises `OutOfOrder` where a page is not in
    order, or two ranges don't meet: what was yielded by then is complete.
    """

    def __init__(self, fetch_after: Callable[[str], ObjectPage], prefix: str, page: list[str]) -> None:
        self._fetch = fetch_after
        self._prefix = prefix
        self._waiting: list[tuple[str, str]] = []  # a heap of ranges that are to be listed
        self._under_way = 0
        self._ended: SimpleQueue[tuple[str, str, TaskOutcome[ObjectPage]]] = SimpleQueue()
        self._done: list[_Range] = []  # a heap by start
        self._numbers = itertools.count()
        for part in self._divided(page, prefix + _END):
            heapq.heappush(self._waiting, part)
        self._next = page[-1]  # where the range begins whose page is yielded next
        self._last = page[-1]  # the last key before it

    def run(self) -> Iterator[KeyedPage]:
        """Yield the pages in order."""
        before: _Range | None = None
        with Threads[ObjectPage](WIDTH) as threads:
            while True:
                while self._done and self._done[0].start == self._next:
                    done = heapq.heappop(self._done)
                    if before is not None and not before.is_open and done.first != before.beyond:
                        self._check_seam(done)
                    before, self._next = done, done.end
                    if done.found:
                        self._last = done.found[-1]
                        yield done.found, done.page
                if not (self._waiting or self._under_way):
                    assert not self._done, "the ranges leave a gap"
                    return
                self._begin(threads)
                start, end, outcome = self._ended.get()
                self._under_way -= 1
                self._take(start, end, outcome.result())

    def _check_seam(self, done: _Range) -> None:
        """Check that a range begins with the key that follows the last one; a change meanwhile is no disorder."""
        following = self._fetch(self._last)
        if (following.key(0) if following.objects else None) != done.first:
            raise OutOfOrder(EBADMSG, f"other keys follow {self._last!r} than a page that begins there has")

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
        if not ascends(start, found):
            raise OutOfOrder(EBADMSG, f"a page that begins at {found[0]!r} where it should behind {start!r}, in order")
        inside = bisect.bisect_right(found, end)
        first = found[0] if found else None
        beyond = found[inside] if inside < len(found) else None
        is_open = beyond is None and page.token is not None
        if is_open and found:
            for part in self._divided(found, end):
                heapq.heappush(self._waiting, part)
            end = found[-1]
        kept = page._replace(objects=page.objects[:inside])
        heapq.heappush(
            self._done, _Range(start, next(self._numbers), end, found[:inside], kept, first, beyond, is_open)
        )

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
