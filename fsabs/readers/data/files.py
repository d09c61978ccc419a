"""The files that readers of a directory read: a URL, path or FS, and the names that their shards have; and the base of
readers whose shards are files.
"""

from __future__ import annotations

import abc
import builtins
import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ...core import errors, keys, process
from ...core.blobs import Blob
from ...core.fs import FS, FileStat
from ...core.threads import in_threads
from ...disk import indexes
from ...urls import locations, opening
from ..locate import base_of, check_published, is_pattern, is_url, locate, publishing_marks
from ..prefetch import hand_over, is_immediate
from .base import LOST, AbstractDataReader, Task, numbers_of, shard_name_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

Location = str | os.PathLike[str] | FS


class Files:
    """The files in a directory (its own and those further down), or the one file, at a URL, a path or in an FS.

    A URL or path with `*`, `?` or `[` is a pattern, and means the files that it matches.

    A file is called by its path under the URL or path that was given, or by its URL where an FS was given; so is the
    shard that it holds.
    """

    def __init__(self, location: Location, *, suffixes: Sequence[str] = (), owned: bool = False) -> None:
        """A file whose name ends in one of `suffixes` is the one file, though it could be entered as a container.
        `close` closes an FS that was given only if it is `owned`.
        """
        self._owned = owned or not isinstance(location, FS)
        self._only: str | None = None
        self._pattern: str | None = None
        if isinstance(location, FS):
            self.fs: FS = location
            url = location.url()
            self._prefix, self._is_url = url if url.endswith("/") else url + "/", True
            return
        text = os.fspath(location)
        if not text:
            raise ValueError("no directory or URL is given")
        self._is_url = is_url(text)
        if is_pattern(text) and (self._is_url or not os.path.lexists(text)):
            self.fs, self._pattern = locate(text)
            self._prefix = base_of(text)
            return
        try:
            self.fs = _directory(text, tuple(suffixes))
            self._prefix = text.rstrip("/") + "/"
        except (FileNotFoundError, NotADirectoryError):
            parent, name = _parent(text)
            self.fs = opening.from_url(parent or ".")
            self._only = keys.from_url_path(name) if self._is_url else name
            self._prefix = parent and parent + "/"
            if not self.fs.isfile(self._only):
                self.fs.close()
                raise

    def list(self) -> list[FileStat]:
        """The files, sorted by path; left out are those that start with a dot, or are below such a directory."""
        if self._only is not None:
            return [self.fs.stat(self._only)]
        if self._pattern is not None:
            return self._matches(self._pattern)
        found = [stat for stat in self.fs.list("", recursive=True, detail=True) if not stat.directory]
        check_published([stat.filename for stat in found], self.fs.url())
        return sorted((stat for stat in found if visible(stat.filename)), key=lambda stat: stat.filename)

    def _matches(self, pattern: str) -> builtins.list[FileStat]:
        wanted = set(self.fs.glob(pattern))
        found = list(self.fs.list("", recursive="/" in pattern or "**" in pattern, detail=True))
        check_published(publishing_marks(wanted) & {stat.filename for stat in found}, self.fs.url())
        return sorted(stat for stat in found if stat.filename in wanted and not stat.directory)

    @property
    def is_chosen(self) -> bool:
        """True if the location is a file or a pattern, so that a file's name need not end as others of its format."""
        return self._only is not None or self._pattern is not None

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
        if self._only is None:
            raise errors.error(errno.EISDIR, "open", self.fs.url())
        return self._only

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


class Closable(Protocol):
    """A shard that is open."""

    def close(self) -> None:
        """Free what the shard holds."""


S = TypeVar("S", bound=Closable)
R = TypeVar("R")


class FileShardsReader(AbstractDataReader, Generic[S]):
    """The base of data readers whose shards are files, some of which are kept open; each process opens its own.

    A subclass implements `create_shards`, `_open_shard`, and `read_at` or `read_available`.
    """

    open_at_once: ClassVar[int] = 16

    def __init__(self, location: Location, *, suffixes: Sequence[str] = ()) -> None:
        super().__init__()
        self._files = Files(location, suffixes=suffixes)
        self._stats: dict[str, FileStat] = {}  # by the names of the files
        self._shards_open: OrderedDict[str, S] = OrderedDict()
        self._lock = process.Lock()

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

    def _open_listed(self, name: str) -> Blob:
        """Open a file that was listed; `StaleFileError` if it has changed."""
        stat = self._stats[name]
        blob = self._files.fs.open_blob(stat.filename, stat)
        if (blob.size, blob.version) != (stat.size, stat.version or blob.version):
            blob.close()
            raise errors.stale(blob.url, "the file changed since it was listed", "read_records")
        return blob

    def _is_called(self, *suffixes: str) -> Callable[[FileStat], bool]:
        """Return what decides whether a file is read: it is called as the format's are, or was chosen by the user."""
        return lambda stat: self._files.is_chosen or stat.filename.lower().endswith(suffixes)

    def _of_all(self, load: Callable[[str], R], names: Iterable[str]) -> dict[str, R]:
        """Return `load` of each name, called for as many at once as the store likes."""
        names = list(names)
        loaded = in_threads(load, names, min(self._files.fs.default_concurrency, len(names)))
        return dict(zip(names, loaded, strict=True))

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


def is_called(location: Any, suffixes: tuple[str, ...]) -> bool:
    """Return whether a location is a file, or a pattern of files, with one of these endings."""
    return isinstance(location, str | os.PathLike) and os.fspath(location).lower().endswith(suffixes)


def visible(path: str) -> bool:
    """Return whether no segment of the path starts with a dot."""
    return not path.startswith(".") and "/." not in path


def _parent(text: str) -> tuple[str, str]:
    parent, _, name = text.rstrip("/").rpartition("/")
    return parent or ("/" if text.startswith("/") else ""), name
