"""Reading many files through a cache.

A batch is read in windows. The hits of a window are looked up, and its misses are fetched by one call of the inner FS,
together with whole files that the same call reads.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from ..core import errors
from ..core.fs import FS
from ..core.threads import in_threads
from .content import in_groups
from .disk import EntryKey

if TYPE_CHECKING:
    from .files import CachedFile, CachedFiles

WINDOW_MISSES = 256
WINDOW_BYTES = 32 * 1024 * 1024
"""What is fetched together, and held in memory."""
AHEAD_BYTES = 256 * 1024 * 1024
"""Bytes of large files that are read ahead of the consumer, at most."""
WINDOW_SPAN = 1024
"""Files among which those are."""
READ_AHEAD = 4
"""Files are admitted that follow one that is read, within the part of the store's `max_gap_bytes` that this is: so an
epoch of small files does not read gaps again of which it has the files already."""


def read_many(files: CachedFiles, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
    """Yield the contents of files; those that are known not to be in a full cache come by one call of the inner FS."""
    for start in range(0, len(wanted), WINDOW_SPAN):
        some = wanted[start : start + WINDOW_SPAN]
        refused = files.refuses()
        absent = {key for key in some if key in files.absent} if refused else frozenset[str]()
        if not refused:
            files.absent.discard(some)
        present = [key for key in some if key not in absent] if absent else some
        found = _read_through(files, present, concurrency, refused)
        if not absent:
            yield from found
            continue
        past = read_past(files, [key for key in some if key in absent], concurrency)
        for key in some:
            yield next(past if key in absent else found)


def _read_through(files: CachedFiles, wanted: Sequence[str], concurrency: int | None, refused: bool) -> Iterator[bytes]:
    """Yield the contents of files from the cache, or from their store; unless `refused`, these are admitted."""
    start = 0
    while start < len(wanted):
        _, data = files.known(wanted[start])
        if data is not None:
            files.reached(wanted[start])
            yield data
            del data
            start += 1
        else:
            window = _Window(files, wanted[start:], concurrency, refused)
            yield from window.contents()
            start += len(window.keys)


def read_past(files: CachedFiles, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
    """Return the contents of files that are not cached, and are not admitted."""
    files.contents().count_misses([files.inner._url(key) for key in wanted])
    files.absent.add(wanted)
    return files.inner._read_many(wanted, concurrency)


class _Window:
    """Files that follow one another in a batch, as many as are fetched together."""

    def __init__(self, files: CachedFiles, wanted: Sequence[str], concurrency: int | None, refused: bool) -> None:
        self.keys: list[str] = []
        self._files = files
        self._concurrency = concurrency
        self._refused = refused
        self._new: list[str] = []  # never seen, or of no version
        self._found: dict[int, CachedFile] = {}
        self._missing: dict[int, CachedFile] = {}  # of those, what is fetched together
        self._data: dict[int, bytes] = {}
        room = WINDOW_BYTES
        for key, file in zip(wanted, _find_many(files, wanted, concurrency), strict=True):
            if isinstance(file, OSError):
                if not self.keys:
                    raise file
                break
            at = len(self.keys)
            self.keys.append(key)
            if file is None or (file.entry is None and file.stat.size and not file.stat.directory):
                self._new.append(key)
                continue
            self._found[at] = file
            data = files.cached(file, files.contents())
            if data is not None:
                self._data[at] = data
            elif file.small is not None and file.admit:
                self._missing[at] = file
            room -= file.stat.size if file.small is not None else 0
            if room <= 0 or len(self._missing) >= WINDOW_MISSES:
                break

    def contents(self) -> Iterator[bytes]:
        """Yield the contents."""
        files = self._files
        for key in self.keys:
            files.reached(key)
        refused = self._missing if self._refused else {}
        missing = [(self.keys[at], file) for at, file in self._missing.items() if at not in refused]
        self._data |= zip(self._missing, fetch(files, missing, self._concurrency), strict=False)
        past = read_past(files, [self.keys[at] for at in refused], self._concurrency)
        alone = [at for at in self._found if at not in self._data and at not in refused]
        largest = max((self._found[at].stat.size for at in alone), default=0)
        width = min(self._concurrency or files.inner.default_concurrency, AHEAD_BYTES // (2 * largest + 1))
        others = in_threads(self._alone, alone, width)
        with contextlib.closing(_read_new(files, self._new, self._concurrency, self._refused)) as new:
            for at in range(len(self.keys)):
                if at not in self._found:
                    yield next(new)
                elif at in refused:
                    yield next(past)
                elif (data := self._data.pop(at, None)) is not None:
                    yield data
                else:
                    yield next(others)

    def _alone(self, at: int) -> bytes:
        """Return the content of a file that is large, not cached, or could not be fetched with the others."""
        key, file = self.keys[at], self._found[at]
        if file.small is None:
            return self._files.read(key, file)
        return self._files.whole(key, file)[0]


def _find_many(
    files: CachedFiles, wanted: Sequence[str], concurrency: int | None
) -> Iterator[CachedFile | OSError | None]:
    """Yield what is known of files, None for those that are fetched without asking for their stat."""

    def find(key: str) -> CachedFile | OSError:
        try:
            return files.find(key, by_listing=False)
        except OSError as exc:  # raised when its turn comes
            return exc

    if not files.inner.capabilities.stat_is_request:
        yield from map(find, wanted)
        return
    stats, urls = files.stats, [files.inner._url(key) for key in wanted]
    stats.list_for(wanted)
    fresh = [stats.fresh(key, url) is not None for key, url in zip(wanted, urls, strict=True)]
    new = [not fresh[at] and stats.is_new(key, urls[at], by_listing=False) for at, key in enumerate(wanted)]
    unknown = [key for at, key in enumerate(wanted) if not fresh[at] and not new[at]]
    width = min(concurrency or files.inner.default_concurrency, len(unknown))
    asked = in_threads(find, unknown, width)
    for at, key in enumerate(wanted):
        yield None if new[at] else find(key) if fresh[at] else next(asked)


def fetch(files: CachedFiles, missing: Sequence[tuple[str, CachedFile]], concurrency: int | None) -> list[bytes]:
    """Return the contents of small files that are not cached, and admit them; of none where one has changed."""
    entries = [file.small for _, file in missing if file.small is not None]
    data: list[bytes] = []
    with contextlib.suppress(OSError):  # each by itself then, and an error in its turn
        if entries:
            data = files.contents().fetch(
                entries, lambda numbers: _read_together(files, [missing[at] for at in numbers], concurrency)
            )
            for _, file in missing:
                files.remember(file)
            files.absent.discard([key for key, _ in missing])
    return data


def _read_together(
    files: CachedFiles, missing: Sequence[tuple[str, CachedFile]], concurrency: int | None
) -> Iterator[bytes]:
    """Read files by one call of the inner FS; what it reads with them is admitted."""
    wanted = dict(missing)
    others: dict[str, CachedFile] = {}

    def admits(key: str) -> bool:
        try:
            file = files.find(key, by_listing=False)
        except OSError:
            return False
        if file.small is None or not file.admit:
            return False
        others[key] = file
        return not files.contents().contains(file.small)

    along = _with_neighbours(files.inner, list(wanted), admits)
    found: dict[str, bytes] = {}
    for key, (data, version) in zip(along, files.inner._read_many(along, concurrency, True), strict=True):
        file = wanted.get(key) or others[key]
        if (len(data), version) != (file.stat.size, file.stat.version):
            raise errors.stale(files.inner._url(key))
        if key in wanted:
            found[key] = data
        elif file.entry is not None:
            files.contents().admit([(file.entry, data)])
            files.remember(file)
    return (found[key] for key, _ in missing)


def _with_neighbours(fs: FS, wanted: Sequence[str], admits: Callable[[str], bool]) -> Sequence[str]:
    """Return the keys `wanted`, each once, in the order in which the files are stored, with neighbours to be admitted.

    Neighbours that `admits` lie in gaps that a request for the others reads over, or close behind one of them.
    """
    order = fs.backing._storage_order()
    if order is None:
        return wanted
    following = [(next(files, None), files) for files in map(order.following, wanted)]
    placed = sorted(((first, files) for first, files in following if first is not None), key=itemgetter(0))
    found: list[str] = []
    for at, ((offset, size, key), files) in enumerate(placed):
        found.append(key)
        ahead = offset + size + order.max_gap_bytes // READ_AHEAD
        gap_stop = placed[at + 1][0][0] if at + 1 < len(placed) else ahead + order.max_gap_bytes + 1
        if gap_stop - ahead <= order.max_gap_bytes:
            found += filter(admits, _before(gap_stop, files))
        else:
            found += itertools.takewhile(admits, _before(ahead, files))
    return found + [key for key, (first, _) in zip(wanted, following, strict=True) if first is None]


def _before(stop: int, files: Iterator[tuple[int, int, str]]) -> Iterator[str]:
    """Yield the keys of the files that end before the offset `stop`."""
    for offset, size, key in files:
        if offset >= stop:
            return
        if offset + size <= stop:
            yield key


def _read_new(
    files: CachedFiles, wanted: Sequence[str], concurrency: int | None, refused: bool
) -> Generator[bytes, None, None]:
    """Yield the contents of files that were never cached, and admit them as what the responses say they are."""
    asked, chosen = time.time(), files.contents().is_full()  # else they would have been refused
    fetched = zip(wanted, files.inner._read_many(wanted, concurrency, True), strict=True) if wanted else ()
    for group in in_groups(fetched, lambda one: len(one[1][0])):
        found = [files.of_response(key, len(data), version, asked) for key, (data, version) in group]
        files.is_cached(found[0])
        parts: list[tuple[EntryKey, bytes]] = []
        for file, (_, (data, _)) in zip(found, group, strict=True):
            if file.small is not None:
                parts.append((file.small, data))
            elif file.entry is not None:
                blocks = files.blocks(file.entry, len(data))
                parts += [(blocks.entry(at), block) for at, block in enumerate(blocks.cut(data))]
        contents = files.contents()
        contents.count_misses([file.entry.url for file in found if file.entry is not None])
        are_stored = [False] * len(parts) if refused else contents.admit(parts, chosen)
        stored = {entry.url for (entry, _), is_stored in zip(parts, are_stored, strict=True) if is_stored}
        for file in found:
            if file.entry is not None and file.entry.url in stored:
                files.remember(file)
        yield from (data for _, (data, _) in group)
