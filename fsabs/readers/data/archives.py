"""ArchiveDataReader: tar and zip files as shards, each holding samples that are one file or several of one name.

The names are WebDataset's (github.com/webdataset/webdataset): the files of a sample have one path up to the first dot
of their last segment, its *key*; the rest of the name, in lower case, says which part of the sample a file is.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...core import errors, keys, registry
from ...core.fs import FS, FileStat
from .base import Mode, Shard, ShardContent, check_numbers
from .files import FileShardsReader, Location, derived, visible

BATCH = 64  # samples of one read_many
Sample = dict[str, Any]
_KIND = "samples-1"
_KEPT = struct.Struct("<Q16s")
"""The number of an archive's samples, and a digest of its members."""


class _ArchiveIndex(NamedTuple):
    """What is kept of an archive."""

    samples: int
    digest: str


class _Open:
    """An archive, and the paths of the files of each sample: all else follows from these."""

    def __init__(self, fs: FS, archive: FileStat) -> None:
        """`archive`: the archive's stat; `StaleFileError` if it has another version by now."""
        self.fs = fs
        index = hashlib.blake2b(digest_size=16)
        groups: dict[str, dict[str, str]] = {}
        version = archive.version or ""
        for stat in _in_order(fs, fs.list("", recursive=True, detail=True)):
            if stat.version is not None and not stat.version.startswith(version):
                raise errors.stale(fs.url(), "the archive changed since it was listed", "read_records")
            key, part = _split(stat.filename)
            if part and visible(stat.filename):
                parts = groups.setdefault(key, {})
                if part in parts:
                    reason = f"two files are the part {part!r} of the sample {key!r}"
                    raise errors.corrupt(fs.url(stat.filename), reason, "read_records")
                parts[part] = stat.filename
                own = None if stat.version is None else stat.version.removeprefix(version)  # as every copy has it
                index.update(repr((stat.filename, stat.size, stat.last_modified, own)).encode())
        self.digest = index.digest()
        self.samples = [tuple(parts.values()) for parts in groups.values()]

    def packed(self) -> list[bytes]:
        """Return what is kept of the archive."""
        return [_KEPT.pack(len(self.samples), self.digest)]

    def close(self) -> None:
        """Close the archive."""
        self.fs.close()


class ArchiveDataReader(FileShardsReader[_Open, _ArchiveIndex]):
    """The tar and zip files below the directory `data_dir` (a URL, a path, an FS), or the one it names: each a shard.

    A record is a dict: `"__key__"`, and the bytes of each file of the sample by the rest of its name, as in
    `{"__key__": "train/0001", "jpg": b"...", "cls": b"7"}`. Samples are in the order of their first files in a tar, or
    by name in a zip. The files of a sample need not lie side by side, and `./` before a name counts for nothing:
    `./1.jpg` and `1.cls` are one sample. Files that begin with a dot, or have no dot in their name, are left out. An
    archive's version is checked: one that changed since `create_shards` is a `StaleFileError`. Two files that are the
    same part of a sample (`1.jpg` and `1.JPG`) are a `CorruptFileError`, and so is one in a tar whose name no path can
    have (`/1.jpg`).
    """

    open_at_once = 64

    def __init__(self, data_dir: Location, *, suffixes: Sequence[str] = (".tar", ".zip", ".tar.gz", ".tgz")) -> None:
        super().__init__(data_dir, suffixes=suffixes)
        self._suffixes = tuple(suffixes)

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """A shard for each archive."""
        what = f"file that ends in {', '.join(self._suffixes)}"
        self._list(lambda stat: stat.filename.lower().endswith(self._suffixes), what)
        return [Shard(name, 0, index.samples) for name, index in self._index_all().items()]

    def _index_of(self, name: str) -> _ArchiveIndex:
        with self._open_listed(name) as blob:
            samples, digest = _KEPT.unpack(derived(_KIND, blob, functools.cache(lambda: self._shard(name).packed())))
        return _ArchiveIndex(samples, digest.hex())

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path below the directory, the size, and a digest of the members (with their CRCs, in a zip)."""
        path, size = self._files.path(shard_name), self._stat(shard_name).size
        return ShardContent(path, size, self._index(shard_name).digest)

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Sample]:
        """The samples with these numbers, in the order given, read in batches."""
        archive = self._shard(shard_name)
        check_numbers(shard_name, numbers, len(archive.samples))
        for at in range(0, len(numbers), BATCH):
            wanted = [archive.samples[number] for number in numbers[at : at + BATCH]]
            contents = archive.fs.read_many([path for paths in wanted for path in paths])
            for paths in wanted:
                sample: Sample = {"__key__": _split(paths[0])[0]}
                sample.update((_split(path)[1], next(contents)) for path in paths)
                yield sample

    def _open_shard(self, shard_name: str) -> _Open:
        stat = self._stat(shard_name)
        if stat.version is None:
            now = self._files.fs.stat(stat.filename)
            if (now.size, now.last_modified) != (stat.size, stat.last_modified):
                raise errors.stale(shard_name, "the archive changed since it was listed", "read_records")
        known: dict[str, Any] = {}
        if registry.container_of(stat.filename) in ("zip", "tar"):  # others' constructors may not take a stat
            known["stat"] = stat
        return _Open(self._files.fs.open_container(stat.filename, **known), stat)


def _in_order(fs: Any, stats: Iterable[FileStat]) -> list[FileStat]:
    """Return the stats of the files, in the order of the archive where that has one of its own."""
    files = {stat.filename: stat for stat in stats if not stat.directory}
    while not hasattr(fs, "in_archive_order") and hasattr(fs, "inner"):
        fs = fs.inner
    if hasattr(fs, "in_archive_order"):
        _check_reachable(fs)
        return [files[name] for name in fs.in_archive_order(files)]
    return list(files.values())


def _check_reachable(tar: Any) -> None:
    """Raise `CorruptFileError` for a file of a sample that is not listed, since no path can have its name."""
    for problem in tar.left_out():
        if problem.kind == "unsafe name" and _split(problem.path)[1]:
            reason = f"the sample of {problem.path!r} would be lost: {problem.detail}"
            raise errors.corrupt(tar.url(), reason, "read_records")


def _split(path: str) -> tuple[str, str]:
    """Key and part: `a/b.c/0001.seg.png` is part `seg.png` of `a/b.c/0001`."""
    stem, _, part = keys.name(path).partition(".")
    return keys.join(keys.parent(path), stem), part.lower()
