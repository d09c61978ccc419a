"""Zip files as filesystems: read, written, added to, over any FS and inside one another.

Reading builds on an index of its own (`index.py`): the central directory, parsed once per process in one or two reads
of the store. A stored member is a slice of the archive's bytes, so that an archive stored in an archive costs nothing.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ... import process
from ...blobs import Blob
from ...files import WriteFile, Writer
from ...fs import FS, Capabilities, FileStat, Path
from ..base import READ_ONLY, Container
from ..problems import Problem
from . import index, members, records, verify, writing
from .entries import Entry
from .index import Index

__all__ = ["Zip"]

MAX_RATIO = 1100.0
_BATCH_MEMBERS = 256
_BATCH_BYTES = 32 * 1024 * 1024

_READING = READ_ONLY._replace(last_modified=True)
_WRITING = Capabilities(
    read=False, write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True
)
_ADDING = _WRITING._replace(replace=True)


class Zip(Container):
    """The zip file at `path` of `parent`.

    Reading (`r`): stored, deflated, bzip2, lzma and zstd members; zip64, prefixes, comments, data descriptors, names in
    UTF-8 and code page 437. Every member's CRC-32 is checked when its bytes have been read from first to last. A
    timestamp without a zone is taken as UTC; a symbolic link is a file that holds its target. An entry whose name leads
    out of the archive is in no listing, and opening it is a `PermissionError`; of several entries of a name the last
    counts; `verify()` tells of both. Encrypted members, and methods not named here, are `io.UnsupportedOperation`.

    Writing (`w`, `x`): a member is in the archive once its file is closed, whole; what is written stays, so that a name
    that is there already is a `FileExistsError`. Several members may be written at once. The same members written in
    the same order give the same bytes. What was written can be listed, and read once the archive is closed.

    Adding (`a`): as writing, to a copy of the archive with all its entries as they are. A member that is there already
    is replaced; the old one's bytes stay in the file, unlisted. Of two processes that add at once the last one wins.

    Args:
        parent: the FS that the file is in.
        path: the file's path.
        mode: `r`, `w`, `x` or `a`.
        compression: of written members: `stored` (training data is compressed already), `deflated`, `bzip2` or `lzma`.
        compresslevel: 0 to 9 (bzip2: 1 to 9), or None for the method's usual one.
        timestamp: what written members have as their time, in seconds since 1970, to 2 seconds; 1980-01-01 by default.
        max_ratio: a member of more than 8 MiB that claims to be more than so many times its compressed size is refused
            with `CorruptFileError` as a decompression bomb (deflate's own limit is 1032); None lets everything through.
    """

    modes = "rwxa"

    def __init__(
        self,
        parent: FS,
        path: Path,
        mode: str = "r",
        *,
        compression: str = "stored",
        compresslevel: int | None = None,
        timestamp: float = writing.TIMESTAMP,
        max_ratio: float | None = MAX_RATIO,
    ) -> None:
        how = writing.Compression(compression, compresslevel)
        dos = records.dos_time(timestamp)
        super().__init__(parent, path, mode)
        self.capabilities = {"r": _READING, "a": _ADDING}.get(mode, _WRITING)
        self._max_ratio = max_ratio
        self._held = _Held()
        self._archive: writing.Archive | None = None
        try:
            if self._blob is not None:
                self._index()
                # Threads would only take turns on an archive that is decompressed as it is read.
                self.default_concurrency = 1 if _is_stream(self._blob) else parent.default_concurrency
            if self._out is not None:
                self._archive = self._start(self._out, how, dos)
        except BaseException:
            self._abort()
            raise

    def verify(self) -> builtins.list[Problem]:
        """Read the whole archive, and tell everything that is wrong or odd with it; empty if nothing is.

        The kinds: `unsafe name` (it can't be opened), `odd name`, `duplicate`, `conflict` (a file and a directory of
        one name), `damaged`, `unreadable` (encrypted, or compressed by a method that isn't known), `trailing data`.
        A store that fails is raised.
        """
        self._require("read", "verify", "")
        return builtins.list(verify.problems(self._reader(), self.file_url, self._max_ratio))

    def info(self) -> dict[str, Any]:
        """As of every FS; of an archive that is read the number of its entries, besides."""
        if self._archive is not None:
            return super().info()
        return {**super().info(), "entries": self._index().layout.entries}

    def _start(self, out: WriteFile, how: writing.Compression, dos: int) -> writing.Archive:
        """The archive that is written, with what is in the old one."""
        if self._blob is None:
            old = index.empty() if self._mode == "a" else None
            return writing.Archive(out, self.file_url, how, dos, old)
        archive = writing.Archive(out, self.file_url, how, dos, self._index())
        archive.copy(self._blob, self._index().layout)
        return archive

    # ---- reading

    def _index(self) -> Index:
        blob = self._reader()
        return self._held.get(lambda: index.load(blob, self.file_url))

    def _stat(self, key: str) -> FileStat:
        if self._archive is not None:
            return self._writing().stat(key)
        return self._index().stat(key, self._reader().version)

    def _list(self, key: str) -> Iterator[FileStat]:
        if self._archive is not None:
            return self._writing().list(key)
        return self._index().list(key, self._reader().version)

    def _walk(self, key: str) -> Iterator[FileStat]:
        if self._archive is not None:
            return super()._walk(key)
        return self._index().walk(key, self._reader().version)

    def _open_blob(self, key: str) -> Blob:
        if self._blob is None or (self._archive is not None and self._archive.wrote(key)):
            raise self._unsupported("open for reading", key)
        return members.open_member(self, key, self._index().file(key), self._reader(), self._max_ratio)

    def _read_bytes(self, key: str) -> bytes:
        self._require("read", "read_bytes", key)
        entry = self._index().file(key)
        if not members.is_small(entry):
            return super()._read_bytes(key)
        archive, url = self._reader(), self._url(key)
        members.check(entry, url, self._max_ratio)
        return members.content(archive.pread(*members.request(entry)), entry, archive, url)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        self._require("read", "read_many", self._root)
        if (concurrency or self.default_concurrency) > 1:
            return super()._read_many(wanted, concurrency)
        return self._in_batches(wanted)

    def _in_batches(self, wanted: Sequence[str]) -> Iterator[bytes]:
        """The contents, the ranges of many members being asked for at once."""
        start = 0
        while start < len(wanted):
            batch = self._batch(wanted[start : start + _BATCH_MEMBERS])
            if batch:
                yield from self._read_batch(wanted[start : start + len(batch)], batch)
            else:  # a large member, or one that can't be read
                yield self._read_bytes(wanted[start])
            start += len(batch) or 1

    def _batch(self, wanted: Sequence[str]) -> builtins.list[Entry]:
        """The entries at the start of `wanted` that are read together: small ones, up to one that can't be read."""
        entries: builtins.list[Entry] = []
        size = 0
        for key in wanted:
            try:
                entry = self._index().file(key)
                members.check(entry, self._url(key), self._max_ratio)
            except OSError:  # raised when its turn comes
                break
            size += members.request(entry)[0]
            if not members.is_small(entry) or (entries and size > _BATCH_BYTES):
                break
            entries.append(entry)
        return entries

    def _read_batch(self, wanted: Sequence[str], entries: builtins.list[Entry]) -> Iterator[bytes]:
        archive = self._reader()
        answers = archive.pread_many([members.request(entry) for entry in entries])
        for key, entry, answer in zip(wanted, entries, answers, strict=True):
            yield members.content(answer, entry, archive, self._url(key))

    # ---- writing

    def _create(self, key: str, exclusive: bool) -> Writer:
        return self._writing().create(key, exclusive)

    def _mkdir(self, key: str, mode: int) -> None:
        self._writing().mkdir(key, mode)

    def _finish(self) -> None:
        if self._archive is not None:
            self._archive.finish()

    def _writing(self) -> writing.Archive:
        """The archive being written; `ValueError` once it is closed."""
        self._writer()
        assert self._archive is not None
        return self._archive


def _is_stream(blob: Blob) -> bool:
    """Whether a blob is decompressed as it is read, or is a part of one that is."""
    while isinstance(blob, members.Stored):
        blob = blob.archive
    return isinstance(blob, members.Streamed)


class _Held:
    """The index of an archive, loaded once in a process: a fork inherits it, and a pickle leaves it behind."""

    __slots__ = ("_index", "_lock")

    def __init__(self) -> None:
        self._index: Index | None = None
        self._lock = process.Lock()

    def get(self, load: Callable[[], Index]) -> Index:
        """The index, from `load` if there is none yet."""
        found = self._index
        if found is None:
            with self._lock:
                found = self._index = self._index or load()
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _Held, ()
