"""ArchiveDataReader: tar and zip files as shards, each holding samples that are one file or several of one name.

The names are WebDataset's (github.com/webdataset/webdataset): the files of a sample have one path up to the first dot
of their last segment, its *key*; the rest of the name, in lower case, says which part of the sample a file is.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...core import errors, keys, process
from ...core.fs import FS, FileStat
from .base import AbstractDataReader, Mode, Shard, ShardContent, Task, check_range, numbers_of, shard_name_of
from .files import Files, Location, visible

OPEN_AT_ONCE = 16  # archives that are kept open
BATCH = 64  # samples of one read_many
Sample = dict[str, Any]


class _Open:
    """An archive and its samples: (key, [(part, path)])."""

    def __init__(self, fs: FS, stat: FileStat) -> None:
        """`stat`: the archive's."""
        self.fs = fs
        self.size = stat.size
        index = hashlib.blake2b(digest_size=16)
        groups: dict[str, dict[str, str]] = {}
        archive = stat.version or ""
        for stat in _in_order(fs, fs.list("", recursive=True, detail=True)):
            key, part = _split(stat.filename)
            if part and visible(stat.filename):
                parts = groups.setdefault(key, {})
                if part in parts:
                    reason = f"two files are the part {part!r} of the sample {key!r}"
                    raise errors.corrupt(fs.url(stat.filename), reason, "read_records")
                parts[part] = stat.filename
                index.update(repr((stat.filename, stat.size, stat.last_modified, _own(stat, archive))).encode())
        self.digest = index.hexdigest()
        self.samples = [(key, list(parts.items())) for key, parts in groups.items()]


class ArchiveDataReader(AbstractDataReader):
    """The tar and zip files below the directory `data_dir` (a URL, a path, an FS), or the one it names: each a shard.

    A record is a dict: `"__key__"`, and the bytes of each file of the sample by the rest of its name, as in
    `{"__key__": "train/0001", "jpg": b"...", "cls": b"7"}`. Samples are in the order of their first files in a tar, or
    by name in a zip; files that begin with a dot, or have no dot in their name, are left out. An archive's version is
    checked: one that changed since `create_shards` is a `StaleFileError`. Two files that are the same part of a sample
    (`1.jpg` and `1.JPG`) are a `CorruptFileError`.
    """

    def __init__(self, data_dir: Location, *, suffixes: Sequence[str] = (".tar", ".zip", ".tar.gz", ".tgz")) -> None:
        super().__init__()
        self._files = Files(data_dir, suffixes=suffixes)
        self._suffixes = tuple(suffixes)
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = process.Lock()
        self._seen: dict[str, tuple[int, str | None, float | None]] = {}

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """A shard for each archive."""
        shards = []
        for stat in self._files.list():
            if stat.filename.lower().endswith(self._suffixes):
                name = self._files.name(stat.filename)
                self._seen[name] = (stat.size, stat.version, stat.last_modified)
                shards.append(Shard(name, 0, len(self._archive(name).samples)))
        return shards

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path below the directory, the size, and a digest of the members (with their CRCs, in a zip)."""
        archive = self._archive(shard_name)
        return ShardContent(self._files.path(shard_name), archive.size, archive.digest)

    def read_records(self, task: Task) -> Iterator[Sample]:
        """The samples of a task."""
        yield from self.read_at(shard_name_of(task), numbers_of(task))

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Sample]:
        """The samples with these numbers, in the order given, read in batches."""
        if not len(numbers):
            return
        archive = self._archive(shard_name)
        check_range(shard_name, min(numbers), max(numbers) + 1, len(archive.samples))
        for at in range(0, len(numbers), BATCH):
            wanted = [archive.samples[number] for number in numbers[at : at + BATCH]]
            contents = archive.fs.read_many([path for _, files in wanted for _, path in files])
            for key, files in wanted:
                sample: Sample = {"__key__": key}
                sample.update((part, next(contents)) for part, _ in files)
                yield sample

    def _archive(self, shard_name: str) -> _Open:
        with self._lock:
            archive = self._open.get(shard_name)
            if archive is not None:
                self._open.move_to_end(shard_name)
                return archive
        path = self._files.path(shard_name)
        stat = self._files.fs.stat(path)
        seen = self._seen.get(shard_name)
        if seen is not None and seen != (stat.size, stat.version, stat.last_modified):
            reason = "the archive changed since its samples were counted"
            raise errors.stale(self._files.fs.url(path), reason, "read_records")
        archive = _Open(self._files.fs.open_container(path), stat)
        with self._lock:
            self._open[shard_name] = archive
            if len(self._open) > OPEN_AT_ONCE:
                self._open.popitem(last=False)  # not closed: someone may be reading it
        return archive

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Hand the archives, in order, to a cache below."""
        self._files.set_order(map(self._files.path, shard_names))

    @property
    def reads_ahead(self) -> bool:
        """True unless the files are on a local disk."""
        return self._files.reads_ahead

    def close(self) -> None:
        """Close the archives that are open in this process."""
        with self._lock:
            archives, self._open = list(self._open.values()), OrderedDict()
        for archive in archives:
            archive.fs.close()
        self._files.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}  # each process opens its own


def _in_order(fs: Any, stats: Iterable[FileStat]) -> list[FileStat]:
    """Return the stats of the files, in the order of the archive where that has one of its own."""
    files = {stat.filename: stat for stat in stats if not stat.directory}
    while not hasattr(fs, "in_archive_order") and hasattr(fs, "inner"):
        fs = fs.inner
    if hasattr(fs, "in_archive_order"):
        return [files[name] for name in fs.in_archive_order(files)]
    return list(files.values())


def _own(stat: FileStat, archive: str) -> str | None:
    """The part of a member's version that is not the archive's, which differs from copy to copy."""
    return None if stat.version is None else stat.version.removeprefix(archive)


def _split(path: str) -> tuple[str, str]:
    """Key and part: `a/b.c/0001.seg.png` is part `seg.png` of `a/b.c/0001`."""
    stem, _, part = keys.name(path).partition(".")
    return keys.join(keys.parent(path), stem), part.lower()
