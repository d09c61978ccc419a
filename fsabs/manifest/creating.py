"""`create` writes the manifest of a data set, `merge` joins those of its parts, `check` compares a data set with its
own.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from ..core import identity, keys
from ..core.blobs import Blob
from ..core.fs import FS, FileStat, StrPath
from ..core.readahead import pieces
from ..transfer.walks import refuse_special, side_by_side
from ..urls import opening
from . import formats
from .entries import DIGESTS, NAME, ManifestEntry, ascending, digest_of, distinct, in_order, without_full_directories
from .formats import Manifest

_SMALL = 1024 * 1024  # files up to this size are read as a whole, many at once
_BATCH_FILES = 256
_BATCH_BYTES = 32 * 1024 * 1024


class ManifestSummary(NamedTuple):
    """The contents of a manifest that was written, counted."""

    entries: int
    """Files and empty directories."""
    bytes: int
    """The sizes of the files, added up."""


def create(
    fs: FS,
    target: str | os.PathLike[str],
    *,
    only: Iterable[StrPath] = ("",),
    digest: str | None = "sha256",
    versions: bool = True,
    progress: Callable[[int, int], None] | None = None,
    concurrency: int | None = None,
) -> ManifestSummary:
    """Write the manifest of all files of `fs` to the file at the URL `target`, whole or not at all.

    The same data set gives the same bytes. Some hundred thousand entries are in memory at once.

    Args:
        fs: the data set. The manifest itself is not part of it, where `target` lies in it.
        target: the suffix is that of the format: `.jsonl` (JSON lines) or `.parquet`.
        only: the directories whose files are listed; `merge` joins the manifests of several parts.
        digest: `"sha256"` or `"md5"` of every file, which is read for it; None: no digests.
        versions: whether entries have the versions of the store. Without them the manifest is good for copies of the
            data set in other places, too, and is held to sizes and digests.
        progress: called as `progress(files, bytes)` with what is done.
        concurrency: how many small files are read at once, as in `read_many`.

    Returns what is in it. Raises what listing and reading raise.
    """
    if digest is not None and digest not in DIGESTS:
        raise ValueError(f"digest must be {' or '.join(DIGESTS)} or None, not {digest!r}")
    suffix = formats.suffix_of(target)
    with opening.open_url(target, "wb") as file:
        entries = listed(fs, only, file.name)
        if digest is not None:
            entries = _Digests(fs, digest, progress, concurrency).of(entries)
        elif progress is not None:
            entries = _counted(entries, progress)
        if not versions:
            entries = (entry._replace(version=None) for entry in entries)
        return ManifestSummary(*formats.write(file, suffix, ascending(entries, ValueError)))


def listed(fs: FS, only: Iterable[StrPath], left_out: str) -> Iterator[ManifestEntry]:
    """Yield the files and empty directories of a data set by their names; that at the URL `left_out` is left out."""
    wanted = {fs._key(path, "manifest") for path in only}
    apart = [path for path in wanted if wanted.isdisjoint(["", *keys.ancestors(path)] if path else [])]
    found = (
        _entry(fs, path, stat)
        for path in sorted(apart, key=lambda path: path + "/")  # the order of what is in them
        for stat in fs.list("/" + path, recursive=True, detail=True)
    )
    shown = (entry for entry in found if entry.name and fs._url(_key(fs, entry)) != left_out)
    return without_full_directories(shown if fs.capabilities.ordered else in_order(shown))


def _entry(fs: FS, path: str, stat: FileStat) -> ManifestEntry:
    """Return the entry of a listed file; its version is one that no later content can have."""
    key = keys.join(path, stat.filename.rstrip("/"))
    name = keys.relative(key, fs._root) + ("/" if stat.directory else "")
    end = time.monotonic() + 2 * identity.COARSE_TICK
    while stat.version is not None and not stat.directory and not identity.is_strong(fs, stat.version):
        if time.monotonic() > end:  # it is written all the time
            break
        time.sleep(max(identity.TICK, 0.01))
        stat = fs.stat("/" + key)
    return ManifestEntry(name, stat.size, None if stat.directory else stat.version)


def _key(fs: FS, entry: ManifestEntry) -> str:
    return keys.join(fs._root, entry.name)


def _counted(entries: Iterator[ManifestEntry], progress: Callable[[int, int], None]) -> Iterator[ManifestEntry]:
    files = size = 0
    for entry in entries:
        files, size = files + (not entry.directory), size + entry.size
        progress(files, size)
        yield entry


class _Digests:
    """Reads the files of entries, in order, for their digests."""

    def __init__(
        self,
        fs: FS,
        algorithm: str,
        progress: Callable[[int, int], None] | None,
        concurrency: int | None,
    ) -> None:
        self._fs = fs
        self._algorithm = algorithm
        self._progress = progress
        self._concurrency = concurrency
        self._files = self._bytes = 0

    def of(self, entries: Iterator[ManifestEntry]) -> Iterator[ManifestEntry]:
        """Yield the entries with the digest, size and version of one open file each."""
        batch: list[ManifestEntry] = []
        size = 0
        for entry in entries:
            if self._fs.capabilities.modes and not (entry.size or entry.directory):  # a pipe has no size either
                key = _key(self._fs, entry)
                refuse_special(self._fs, key, self._fs.stat("/" + key), "read", "manifest")
            if entry.size > _SMALL or len(batch) >= _BATCH_FILES or size + entry.size > _BATCH_BYTES:
                yield from self._batch(batch)
                batch, size = [], 0
            if entry.size > _SMALL:
                yield self._large(entry)
            else:
                batch.append(entry)
                size += entry.size
        yield from self._batch(batch)

    def _batch(self, batch: list[ManifestEntry]) -> Iterator[ManifestEntry]:
        wanted = [_key(self._fs, entry) for entry in batch if not entry.directory]
        contents = self._fs._read_many(wanted, self._concurrency, True) if wanted else iter(())
        for entry in batch:
            if entry.directory:
                yield entry
                continue
            try:
                content, version = next(contents)
            except OSError as exc:
                self._fs._named(exc, "manifest", _key(self._fs, entry))
                raise
            digest = digest_of(self._algorithm, [content])
            self._count(len(content), 1)
            yield entry._replace(size=len(content), version=version or entry.version, digest=digest)

    def _large(self, entry: ManifestEntry) -> ManifestEntry:
        with self._fs.open_blob("/" + _key(self._fs, entry)) as blob:
            digest = digest_of(self._algorithm, self._pieces(blob))
            self._count(0, 1)
            return entry._replace(size=blob.size, version=blob.version or entry.version, digest=digest)

    def _pieces(self, blob: Blob) -> Iterator[bytes]:
        for piece in pieces(blob):
            self._count(len(piece), 0)
            yield piece

    def _count(self, size: int, files: int) -> None:
        self._bytes += size
        self._files += files
        if self._progress is not None:
            self._progress(self._files, self._bytes)


def merge(sources: Iterable[str | os.PathLike[str]], target: str | os.PathLike[str]) -> ManifestSummary:
    """Write the entries of several manifests as one to the URL `target`, whole or not at all.

    An entry that is in more than one of them is the same in all, or a `ValueError` names it. The format is that of the
    target's suffix, so that merging one manifest converts it.
    """
    suffix = formats.suffix_of(target)
    with ExitStack() as stack:
        manifests = [stack.enter_context(Manifest(source)) for source in sources]
        entries = distinct(heapq.merge(*manifests, key=NAME))
        with opening.open_url(target, "wb") as file:
            return ManifestSummary(*formats.write(file, suffix, without_full_directories(entries)))


class Drift(NamedTuple):
    """A file of a data set that is not as its manifest has it."""

    name: str
    kind: str
    """`missing`, `added` or `changed`."""
    reason: str
    """The difference of a file that has changed, else an empty string."""


def check(
    fs: FS, manifest: Manifest, *, digests: bool = False, progress: Callable[[int], None] | None = None
) -> Iterator[Drift]:
    """Yield all that differs between a data set and its manifest, by the order of names.

    The data set is listed once. Sizes and versions are compared; with `digests`, every file of which the manifest has a
    digest is read, too. `progress(files)` is called with the number of files that were compared.
    """
    there = ascending(listed(fs, ["/" + fs._root], manifest.url), ValueError)
    for compared, (expected, found) in enumerate(side_by_side(iter(manifest), there, name=NAME), 1):
        if progress is not None:
            progress(compared)
        if found is None:
            assert expected is not None
            yield Drift(expected.name, "missing", "")
        elif expected is None:
            yield Drift(found.name, "added", "")
        elif reason := expected.difference(found.size, found.version) or (_content(fs, expected) if digests else ""):
            yield Drift(expected.name, "changed", reason)


def _content(fs: FS, expected: ManifestEntry) -> str:
    """Return how the content of a file differs from its entry."""
    if expected.digest is None or expected.directory:
        return ""
    with fs.open_blob("/" + _key(fs, expected)) as blob:
        found = digest_of(expected.digest.partition(":")[0], pieces(blob))
    return "" if found == expected.digest else f"{found}, {expected.digest} in the manifest"
