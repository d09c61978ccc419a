"""The files that readers of a directory read: a URL, path or FS, and the names that their shards have; and the base of
readers whose shards are files.
"""

from __future__ import annotations

import abc
import builtins
import errno
import itertools
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ...core import errors, keys, process
from ...core.blobs import Blob
from ...core.fs import FS, FileStat
from ...core.threads import in_threads
from ...disk import indexes
from ...urls import locations, opening
from ..locate import base_of, check_published, expand_braces, is_pattern, is_url, publishing_marks, root_of
from ..prefetch import hand_over, is_immediate
from .base import LOST, AbstractDataReader, Task, numbers_of, shard_name_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("fsabs.readers")
_REPORT_EVERY = 5.0
"""Seconds between two lines of the log, where many files are indexed."""
Location = str | os.PathLike[str] | FS | Sequence[str | os.PathLike[str]]


class Files:
    """The files in a directory (its own and those further down), or the one file, at a URL, a path or in an FS.

    A URL or path with `*`, `?` or `[` is a pattern, and means the files that it matches. Braces stand for several URLs,
    as in a shell: `train-{000..127}.tar`, `{train,more}/*.parquet`. So does a list, whose files lie in one store.

    A file is called by its path under the URL or path that was given, or by its URL where an FS was given; so is the
    shard that it holds.
    """

    def __init__(self, location: Location, *, suffixes: Sequence[str] = (), owned: bool = False) -> None:
        """A file whose name ends in one of `suffixes` is the one file, though it could be entered as a container.
        `close` closes an FS that was given only if it is `owned`.
        """
        self._owned = owned or not isinstance(location, FS)
        self._chosen: Sequence[tuple[str, bool]] | None = None  # paths, and patterns, of which the second is True
        if isinstance(location, FS):
            self.fs: FS = location
            url = location.url()
            self._prefix, self._is_url = url if url.endswith("/") else url + "/", True
            return
        texts = _expanded(location)
        self._is_url = is_url(texts[0])
        if len(texts) > 1 or _is_pattern(texts[0]):
            self._prefix = _common_base(texts)
            self.fs = opening.from_url(self._prefix or ".")
            self._chosen = [(self.path(text), _is_pattern(text)) for text in texts]
            return
        text = texts[0]
        try:
            self.fs = _directory(text, tuple(suffixes))
            self._prefix = text.rstrip("/") + "/"
        except (FileNotFoundError, NotADirectoryError):
            parent, name = _parent(text)
            self.fs = opening.from_url(parent or ".")
            path = keys.from_url_path(name) if self._is_url else name
            self._prefix, self._chosen = parent and parent + "/", [(path, False)]
            if not self.fs.isfile(path):
                self.fs.close()
                raise

    def list(self) -> list[FileStat]:
        """The files, sorted by path; left out are those that start with a dot, or are below such a directory."""
        if self._chosen is None:
            return self._below("")
        several = min(self.fs.default_concurrency, len(self._chosen))
        found = [stat for stats in in_threads(self._listed, self._chosen, several) for stat in stats]
        for one, other in itertools.pairwise(sorted(stat.filename for stat in found)):
            if one == other:
                raise ValueError(f"{self.name(one)} is named twice")
        return found if len(self._chosen) > 1 else sorted(found)

    def _listed(self, chosen: tuple[str, bool]) -> builtins.list[FileStat]:
        """Return the files that a path or pattern names."""
        path, is_a_pattern = chosen
        if is_a_pattern:
            return self._matches(path)
        stat = self.fs.stat(path)
        return self._below(path) if stat.directory else [stat._replace(filename=path.lstrip("/"))]

    def _below(self, folder: str) -> builtins.list[FileStat]:
        """Return the files below a directory."""
        stats = [stat for stat in self.fs.list(folder, recursive=True, detail=True) if not stat.directory]
        check_published([stat.filename for stat in stats], self.fs.url(folder))
        shown = sorted((stat for stat in stats if visible(stat.filename)), key=lambda stat: stat.filename)
        return [stat._replace(filename=keys.join(folder.rstrip("/"), stat.filename)) for stat in shown]

    def _matches(self, pattern: str) -> builtins.list[FileStat]:
        wanted = set(self.fs.glob(pattern))
        folder = base_of(pattern).rstrip("/")
        recursive = "/" in pattern.removeprefix(folder + "/") or "**" in pattern
        stats = self.fs.list(folder, recursive=recursive, detail=True)
        found = [stat._replace(filename=keys.join(folder, stat.filename)) for stat in stats]
        check_published(publishing_marks(wanted) & {stat.filename for stat in found}, self.fs.url())
        return sorted(stat for stat in found if stat.filename in wanted and not stat.directory)

    @property
    def is_chosen(self) -> bool:
        """True if the location is a file or a pattern, so that a file's name need not end as others of its format."""
        return self._chosen is not None

    def name(self, path: str) -> str:
        """Return the name of the file at `path`."""
        return self._prefix + (keys.to_url_path(path) if self._is_url else path)

    def path(self, name: str) -> str:
        """The path in the FS of the file called `name`; `ValueError` if it is none of these files."""
        if not name.startswith(self._prefix):
            raise ValueError(f"no file of {self._prefix or 'the current directory'}: {name!r}")
        rest = name[len(self._prefix) :]
        return keys.from_url_path(rest) if self._is_url else rest

    def one(self) -> str:
        """The path of the file, where just one was named; a directory is an `IsADirectoryError`."""
        if self._chosen is None or len(self._chosen) > 1 or self._chosen[0][1]:
            raise errors.error(errno.EISDIR, "open", self.fs.url())
        return self._chosen[0][0]

    def set_order(self, paths: Iterable[str]) -> None:
        """Hand the order in which the files are read next to a cache, if one is below."""
        hand_over(self.fs, paths)

    @property
    def reads_ahead(self) -> bool:
        """True if reading them ahead of their use gains time."""
        return not is_immediate(self.fs)

    def close(self) -> None:
        """Free what the FS holds in this process, unless it is the user's."""
        if self._owned:
            self.fs.close()


def _expanded(location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the URLs or paths that a location means, its braces expanded."""
    given = [location] if isinstance(location, str | os.PathLike) else location
    texts = [text for one in given for text in _of_braces(os.fspath(one))]
    if not texts or not all(texts):
        raise ValueError("no directory or URL is given")
    return texts


def _of_braces(text: str) -> list[str]:
    return [text] if not is_url(text) and os.path.lexists(text) else expand_braces(text)


def _is_pattern(text: str) -> bool:
    return is_pattern(text) and (is_url(text) or not os.path.lexists(text))


def _common_base(texts: Sequence[str]) -> str:
    """Return the directory that all URLs, paths and patterns are in; `ValueError` if they are in several stores."""
    folders = [base_of(text.rstrip("/")).split("/")[:-1] for text in texts]
    common = itertools.takewhile(lambda segments: len(set(segments)) == 1, zip(*folders, strict=False))
    base = "".join(segments[0] + "/" for segments in common)
    if any(is_url(text) != is_url(texts[0]) for text in texts) or not base.startswith(root_of(texts[0])):
        raise ValueError(f"{texts[0]} and {texts[-1]} are not in one store: a list names files of one")
    return base


class Closable(Protocol):
    """A shard that is open."""

    def close(self) -> None:
        """Free what the shard holds."""


S = TypeVar("S", bound=Closable)
Index = TypeVar("Index")


class FileShardsReader(AbstractDataReader, Generic[S, Index]):
    """The base of data readers whose shards are files, some of which are kept open; each process opens its own.

    A file's index is made once, when the files are listed or in a process that has not listed them when it is needed.

    A subclass implements `create_shards`, `_index_of`, `_open_shard`, and `read_at` or `read_available`.
    """

    open_at_once: ClassVar[int] = 16

    def __init__(self, location: Location, *, suffixes: Sequence[str] = ()) -> None:
        super().__init__()
        self._files = Files(location, suffixes=suffixes)
        self._stats: dict[str, FileStat] = {}  # by the names of the files
        self._indexes: dict[str, Index] = {}
        self._shards_open: OrderedDict[str, S] = OrderedDict()
        self._lock = process.Lock()

    @abc.abstractmethod
    def _index_of(self, name: str) -> Index:
        """Return what is known of a file once it was looked through; several threads may ask at once."""

    @abc.abstractmethod
    def _open_shard(self, shard_name: str) -> S:
        """Open a shard; two threads may do so at once."""

    def _list(self, wanted: Callable[[FileStat], bool], what: str) -> builtins.list[FileStat]:
        """List the files that are read, and return all that are there; `FileNotFoundError` if there is no `what`."""
        stats = self._files.list()
        self._stats = {self._files.name(stat.filename): stat for stat in stats if wanted(stat)}
        if not self._stats:
            raise errors.error(errno.ENOENT, "list", self._files.fs.url(), f"there is no {what}")
        return stats

    def _index_all(self) -> dict[str, Index]:
        """Return the indexes of the files that were listed, made for as many at once as the store likes."""
        names = list(self._stats)
        found = in_threads(self._index_of, names, min(self._files.fs.default_concurrency, len(names)))
        self._indexes = dict(zip(names, with_progress(found, len(names), self._files.fs.url()), strict=True))
        return self._indexes

    def _index(self, name: str) -> Index:
        """Return the index of a file."""
        found = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = self._index_of(name)
        return found

    def _stat(self, name: str) -> FileStat:
        """Return the stat of a file: as it was listed, if it was."""
        found = self._stats.get(name)
        if found is None:
            path = self._files.path(name)
            found = self._stats[name] = self._files.fs.stat(path)._replace(filename=path)
        return found

    def _open_listed(self, name: str) -> Blob:
        """Open a file as it was listed; `StaleFileError` if it has changed."""
        stat = self._stat(name)
        blob = self._files.fs.open_blob(stat.filename, stat)
        if (blob.size, blob.version) != (stat.size, stat.version or blob.version):
            blob.close()
            raise errors.stale(blob.url, "the file changed since it was listed", "read_records")
        return blob

    def _is_called(self, *suffixes: str) -> Callable[[FileStat], bool]:
        """Return what decides whether a file is read: it is called as the format's are, or was chosen by the user."""
        return lambda stat: self._files.is_chosen or stat.filename.lower().endswith(suffixes)

    def _shard(self, shard_name: str) -> S:
        """Return an open shard, which is not to be closed."""
        with self._lock:
            shard = self._shards_open.get(shard_name)
            if shard is not None:
                self._shards_open.move_to_end(shard_name)
                return shard
        shard = self._open_shard(shard_name)
        with self._lock:
            self._shards_open[shard_name] = shard
            if len(self._shards_open) > self.open_at_once:
                self._shards_open.popitem(last=False)  # not closed: a thread may be reading it
        return shard

    def _open_shards(self) -> builtins.list[S]:
        """Return the shards that are open, the one used last at the end."""
        with self._lock:
            return list(self._shards_open.values())

    def read_records(self, task: Task) -> Iterator[Any]:
        """The records of a task."""
        return self.read_at(shard_name_of(task), numbers_of(task))

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The records with these numbers, in the order given."""
        return (record for record in self.read_available(shard_name, numbers) if record is not LOST)

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Hand the files of these shards, in order, to a cache below."""
        self._files.set_order(map(self._files.path, shard_names))

    @property
    def reads_ahead(self) -> bool:
        """True unless the files are on a local disk."""
        return self._files.reads_ahead

    def close(self) -> None:
        """Close the shards that are open in this process."""
        with self._lock:
            shards, self._shards_open = list(self._shards_open.values()), OrderedDict()
        for shard in shards:
            shard.close()
        self._files.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards_open": OrderedDict()}


def with_progress(indexes: Iterable[Index], total: int, where: str) -> Iterator[Index]:
    """Yield what is found of `total` files, and log now and then how many there are."""
    reported = time.monotonic()
    for done, index in enumerate(indexes, 1):
        yield index
        if time.monotonic() - reported > _REPORT_EVERY:
            reported = time.monotonic()
            _log.info("%s: %d of %d files are indexed", where, done, total)


def derived(kind: str, blob: Blob, parts: Callable[[], Iterable[Buffer]]) -> memoryview:
    """Return what `parts` makes of a file, kept for its version: one copy, mapped by all processes of the user.

    `parts` may be called twice where it can't be kept.
    """
    identity = None if blob.url.startswith("memory:") else blob.identity
    keeps = blob.has_strong_version  # asked before anything is read
    found = indexes.load(kind, identity)
    if found is None and keeps and indexes.save(kind, identity, parts()):
        found = indexes.load(kind, identity)
    return memoryview(b"".join(parts())) if found is None else found


def _directory(text: str, files: tuple[str, ...]) -> FS:
    fs = opening.from_url(
        text, force_type=locations.parse_without_query(text).scheme if text.lower().endswith(files) else None
    )
    try:
        if not fs.stat("").directory:
            raise errors.error(errno.ENOTDIR, "list", fs.url())
    except BaseException:
        fs.close()
        raise
    return fs


def is_called(location: Location, suffixes: tuple[str, ...]) -> bool:
    """Return whether a location is of files, or of patterns of files, with one of these endings."""
    return not isinstance(location, FS) and all(text.lower().endswith(suffixes) for text in _expanded(location))


def visible(path: str) -> bool:
    """Return whether no segment of the path starts with a dot."""
    return not path.startswith(".") and "/." not in path


def _parent(text: str) -> tuple[str, str]:
    parent, _, name = text.rstrip("/").rpartition("/")
    return parent or ("/" if text.startswith("/") else ""), name
