"""pack: a tree of any FS becomes one container in any other; the same tree, the same bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, cast, runtime_checkable

from ..core import errors, identity, keys
from ..core.blobs import Blob
from ..core.fs import FS, FileStat, StrPath, TreeCounts, checked_fs
from .copier import SMALL, batches
from .files import check_size
from .trees import TransferTotals
from .walks import refuse_special

_BATCH_FILES = 4096
BATCH_BYTES = 256 * 1024 * 1024
"""The most files, and bytes of them, in one `read_many`, which holds 64 MiB at a time; the store is idle at its end."""


@runtime_checkable
class TakesMembers(Protocol):
    """A container that takes small files and directories, many in one call."""

    def add_members(self, members: Iterable[tuple[str, bytes | None]]) -> Iterator[int]:
        """Add files by paths and contents, directories by None, in order; yield the size of each that is added."""


def pack(
    source: FS,
    target: FS,
    path: StrPath,
    *,
    force_type: str | None = None,
    mode: str = "w",
    options: Mapping[str, object] | None = None,
    select: Callable[[FileStat], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
    concurrency: int | None = None,
) -> TreeCounts:
    """Put all files and directories of `source` into a new container at `path` of `target`.

    The container has them in the order of their names, with the fixed times and permissions of its
    format, so that the same tree gives the same bytes wherever it lies. It becomes visible at the end, complete, or
    never. Files up to 1 MiB are read many at once, others in pieces; at most some 64 MiB are held in memory.

    Args:
        source: where the files are; `source.subfs(part)` packs a part of it.
        target: where the container is made; it may be `source`, and the container is then not put into itself.
        path: the container's path; its suffix names the format.
        force_type: the format by name (`zip`, `tar`, `hdf5`), whatever the suffix.
        mode: `w` to replace what is there, `x` to refuse (`FileExistsError`).
        options: keyword options of the container's class, as `compression`.
        select: which files and directories, by their `FileStat` with the path as its name (a directory's ends in `/`);
            what is in a directory that is left out is asked for, too.
        progress: called as `progress(files, bytes)` with what is done, after every file and every piece of a large one.
        concurrency: how many small files are read at once, as in `read_many`.

    Returns how many files and directories, and how many bytes of files, are in it. Raises what reading and writing
    raise, and `OSError`: EINVAL if `source` is in the container that would be replaced, ELOOP for a link to a directory
    above it.
    """
    if mode not in ("w", "x"):
        raise ValueError(f"pack makes a new container: mode is 'w' or 'x', not {mode!r}")
    source, target = checked_fs(source, "source"), checked_fs(target, "target")
    chosen = _chosen(source, _archive(source, target, path), select)
    open_container = cast(Callable[..., FS], target.open_container)  # the options are the container's to check
    with open_container(path, mode, force_type=force_type, **(options or {})) as container:
        return _Packing(source, container, progress, concurrency).run(chosen)


class _Archive(NamedTuple):
    """The file that the container replaces: packed into its successor, it would grow with every run."""

    fs: FS
    key: str
    size: int
    """Bytes; -1 if there is none."""

    def is_at(self, fs: FS, stat: FileStat) -> bool:
        """Return whether an entry of a listing is that file, whatever its name."""
        if stat.size != self.size or stat.directory:
            return False
        return identity.same(fs, fs._key(stat.filename, "pack"), self.fs, self.key) is not False


def _archive(source: FS, target: FS, path: StrPath) -> _Archive:
    key = target._key(path, "pack")
    if identity.inside(source, source._cwd, target, key):
        raise errors.error(errno.EINVAL, "pack", target._url(key), "the container can't be packed into itself")
    return _Archive(target, key, target.stat(path).size if target.isfile(path) else -1)


def _chosen(source: FS, archive: _Archive, select: Callable[[FileStat], bool] | None) -> Iterator[FileStat]:
    found: Iterable[FileStat] = source.list(recursive=True, detail=True)
    for stat in found if source.capabilities.ordered else sorted(found):
        if not archive.is_at(source, stat) and (select is None or select(stat)):
            key = keys.join(source._cwd, stat.filename.rstrip("/"))
            refuse_special(source, key, stat)
            if stat.directory and source._listed_by._leads_back(key):  # else it would be an empty directory
                reason = f"{os.strerror(errno.ELOOP)}: it leads to a directory that it is in"
                raise errors.error(errno.ELOOP, "pack", source._url(key), reason)
            yield stat


class _Packing:
    """One run of `pack`."""

    def __init__(
        self, source: FS, container: FS, progress: Callable[[int, int], None] | None, concurrency: int | None
    ) -> None:
        self._source = source
        self._container = container
        self._concurrency = concurrency
        self._totals = TransferTotals(progress)
        self._directories = 0

    def run(self, chosen: Iterator[FileStat]) -> TreeCounts:
        """Put everything in, in order."""
        for batch in batches(chosen, lambda stat: stat.size, max_files=_BATCH_FILES, max_bytes=BATCH_BYTES):
            if batch[0].size > SMALL:
                self._add_large(batch[0])
            else:
                self._add_batch(batch)
        return self._totals.counts(self._directories)

    def _add_batch(self, batch: list[FileStat]) -> None:
        """Directories and small files."""
        container = self._container
        if not container.capabilities.mkdir:
            batch = [stat for stat in batch if not stat.directory]
        members = self._members(batch)
        added = container.add_members(members) if isinstance(container, TakesMembers) else self._one_by_one(members)
        for stat, size in zip(batch, added, strict=True):
            if stat.directory:
                self._directories += 1
            else:
                self._totals.count(size, files=1)

    def _members(self, batch: list[FileStat]) -> Iterator[tuple[str, bytes | None]]:
        """Yield paths and contents, None of a directory."""
        files = [stat.filename for stat in batch if not stat.directory]
        contents = self._source.read_many(files, concurrency=self._concurrency)
        for stat in batch:
            content = None if stat.directory else next(contents)
            if content is not None and len(content) < stat.size:
                check_size(self._source, self._source._key(stat.filename, "pack"), stat, len(content))
            yield stat.filename, content

    def _one_by_one(self, members: Iterable[tuple[str, bytes | None]]) -> Iterator[int]:
        for path, content in members:
            if content is None:
                self._container.makedirs(path, exist_ok=True)
                yield 0
            else:
                yield self._container.write_bytes(path, content)

    def _add_large(self, stat: FileStat) -> None:
        path = stat.filename
        with self._source.open_blob(path) as blob:
            check_size(self._source, self._source._key(path, "pack"), stat, blob.size)
            container = self._container
            container._write_blob(container._file_key(path, "pack"), _Watched(blob, self._totals.count))
        self._totals.count(0, files=1)


class _Watched(Blob):
    """A blob that reports how much of it has been read, once and from first to last."""

    __slots__ = ("_inner", "_tell")

    def __init__(self, inner: Blob, tell: Callable[[int], None]) -> None:
        super().__init__(inner._origin, inner._key, inner.size, inner.version)
        self._inner = inner
        self._tell = tell

    def _pread(self, size: int, offset: int) -> bytes:
        data = self._inner.pread(size, offset)
        self._tell(len(data))
        return data
