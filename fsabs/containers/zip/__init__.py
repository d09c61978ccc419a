"""Zip files as filesystems: read, written, added to, over any FS and inside one another.

Reading builds on an index of its own (`index.py`): the central directory, parsed once, kept in the cache directory, and
mapped by every process. A stored member is a slice of the archive's bytes, so that an archive stored in an archive
costs nothing.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...core import hooks, process
from ...core.blobs import Blob, Hint
from ...core.errors import CorruptFileError
from ...core.fs import (
    FS,
    FileStat,
    StrPath,
)
from ...core.limits import Limits
from ...core.ranges import StorageOrder
from ...core.writing import WriteFile, Writer
from ..base import ADDING, READING, WRITING, Container, Problem
from ..decoding import DecodedBlob
from . import index, members, records, verify, writing
from .index import ZipIndex
from .records import SmallRead
from .table import ZipTable

__all__ = ["Zip"]

_BATCH_MEMBERS = 256
BATCH_BYTES = 32 * 1024 * 1024


class Zip(Container):
    """The zip file at `path` of `parent`.

    Reading (`r`): stored, deflated, bzip2, lzma and zstd members; zip64, prefixes, comments, data descriptors, names in
    UTF-8 and code page 437. Every member's CRC-32 is checked when its bytes have been read from first to last. A
    timestamp without a zone is taken as UTC; a symbolic link is a file that holds its target. An entry whose name leads
    out of the archive is in no listing, and opening it is a `PermissionError`; of several entries of a name the last
    counts; `verify()` reports both. Encrypted members, and methods not named here, are `io.UnsupportedOperation`.

    The index of a large archive, or of one that is far away, is kept in the cache directory (`$FSABS_CACHE_DIR`; set to
    nothing, it keeps nothing), where later openings, and other processes, find it.

    Writing (`w`, `x`): a member is in the archive once its file is closed, whole; what is written stays, so that a name
    that is there already is a `FileExistsError`. Several members may be written at once. The same members written in
    the same order give the same bytes; of deflated ones, where the same zlib compresses (ISA-L, which does so without a
    level if it is there, has once made others). What was written can be listed, and read once the archive is closed.

    Adding (`a`): as writing, to a copy of the archive with all its entries as they are. A member that is there already
    is replaced, and members can be removed; the old one's bytes stay in the file, unlisted. If another has changed the
    file meanwhile, `close` is a `StaleFileError`, and the file stays as it is then.

    Args:
        parent: the FS that the file is in.
        path: the file's path.
        mode: `r`, `w`, `x` or `a`.
        compression: of written members: `stored` (training data is compressed already), `deflated`, `bzip2` or `lzma`.
        compresslevel: 0 to 9 (bzip2: 1 to 9), or None for the method's usual one; for `deflated` that is a
            quick one of isal's where isal is installed (`fsabs[speed]`): several times as fast as zlib, some per cent
            larger.
        timestamp: what written members have as their time, in seconds since 1970, to 2 seconds; 1980-01-01 by default.
        limits: what reading may cost, by default the limits of `parent`.
        stat: of the file that is read, as a listing gave it: no request asks for it.
    """

    modes = "rwxa"

    def __init__(
        self,
        parent: FS,
        path: StrPath,
        mode: str = "r",
        stat: FileStat | None = None,
        *,
        compression: str = "stored",
        compresslevel: int | None = None,
        timestamp: float = writing.TIMESTAMP,
        limits: Limits | None = None,
    ) -> None:
        method = writing.Compression(compression, compresslevel)
        dos = records.dos_time(timestamp)
        super().__init__(parent, path, mode, limits, stat)
        self.capabilities = {"r": READING, "a": ADDING}.get(mode, WRITING)
        self._loaded = _Loaded()
        self._archive: writing.Archive | None = None
        try:
            if self._blob is not None:
                self._index()
                # What is done with several of the archive's files at once: not if it is decompressed as it is read.
                self.default_concurrency = 1 if _is_stream(self._blob) else parent.default_concurrency
            if self._out is not None:
                self._archive = self._start(self._out, method, dos)
        except BaseException:
            self._abort()
            raise

    def verify(self) -> builtins.list[Problem]:
        """Read the whole archive, and tell everything that is wrong or odd with it; empty if nothing is.

        The kinds: `unsafe name` (it can't be opened), `odd name`, `duplicate`, `conflict` (a file and a directory of
        one name), `damaged`, `unreadable` (encrypted, or compressed by a method that isn't known), `trailing data`
        (behind the archive, or behind a member's compressed data), `limit` (a member, or all as a whole, is over a
        limit: it is not read).
        A store that fails is raised.
        """
        self._require("read", "verify", "")
        return builtins.list(verify.problems(self._reader(), self.file_url, self.limits))

    def left_out(self) -> Sequence[Problem]:
        """Return the entries whose names are refused; the archive's directory is read again."""
        return (
            builtins.list(verify.refused(self._reader(), self.file_url, self.limits)) if self._archive is None else ()
        )

    def info(self) -> dict[str, Any]:
        """As of every FS; of an archive that is read the number of its entries, besides."""
        if self._archive is not None:
            return super().info()
        return {**super().info(), "entries": self._index().layout.entries}

    def _start(self, out: WriteFile, method: writing.Compression, dos: int) -> writing.Archive:
        """The archive that is written, with what is in the old one."""
        old = None if self._blob is None else self._index()
        return writing.Archive(out, self.file_url, method, dos, old, self._blob, replaces=self._mode == "a")

    # ---- reading

    def _index(self) -> ZipIndex:
        blob = self._blob
        if blob is None or blob._closed:
            self._reader()  # raises
        return self._loaded.index or self._loaded.load(self._load)

    def _load(self) -> ZipIndex:
        blob = self._reader()
        is_far = self._parent.default_concurrency > 1 or _is_stream(blob)  # reads take long, and are coalesced
        return index.load(blob, self._file_url, self.limits, 0 if is_far else index.KEPT_FROM)

    def _bottom(self) -> tuple[Blob, int]:
        """The blob that members are read from, and the offset of the archive in it."""
        if self._loaded.bottom is None:
            blob = self._reader()
            self._loaded.bottom = blob.bottom() if isinstance(blob, members.Stored) else (blob, 0)
        return self._loaded.bottom

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        if self._archive is not None:
            return self._writing().names.stat(key)
        return self._index().stat(key, self._reader().version)

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        if self._archive is not None:
            return self._writing().names.list(key)
        return self._index().list(key, self._reader().version)

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        if self._archive is not None:
            return super()._walk(key)
        return self._index().walk(key, self._reader().version) if detail else self._index().walk_names(key)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if self._blob is None or (self._archive is not None and self._archive.names.is_written(key)):
            raise self._no_reading(key)
        return members.open_member(self, key, self._index().file(key), self._reader(), self.limits)

    def _contents_of(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return map(self._content, wanted) if len(wanted) == 1 else self._read_together(wanted, concurrency)

    def _content(self, key: str) -> bytes:
        blob, index = self._blob, self._loaded.index
        if index is None or blob is None or blob._closed or self._mode != "r":
            self._require("read", "read_bytes", key)
            blob, index = self._reader(), self._index()
        table = index.table
        try:
            read = index.small_reads.get(key) or index.small_read(key)
            if read is None or read[1] > members.EAGER:
                return self._read_one(key)
            bottom, shift = self._loaded.bottom or self._bottom()
            raw = bottom.pread(read[1], shift + read[0])
            data = members.checked(raw, read, self, key)
            return members.content(raw, index.file(key), blob, self, key) if data is None else data
        except CorruptFileError:
            if not index.distrust(table):
                raise
            return self._read_one(key)

    def _read_one(self, key: str) -> bytes:
        """As `_content`, with a look at all that may be wrong."""
        entry = self._index().file(key)
        if not members.is_small(entry):
            with self._open_blob(key) as blob:
                return blob.read_all()
        if not members.is_fine(entry):
            members.refuse(entry, self, key, self.limits)
        bottom, shift = self._bottom()
        size, offset = members.request(entry)
        return members.content(bottom.pread(size, shift + offset), entry, self._reader(), self, key)

    def _read_together(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        """The contents, the ranges of many members being asked for at once, of `concurrency` at most."""
        self._require("read", "read_many", self._root)
        most = min(concurrency or _BATCH_MEMBERS, _BATCH_MEMBERS)
        start = 0
        while start < len(wanted):
            table = self._index().table
            batch = self._next_batch(wanted[start : start + most])
            if batch:
                yield from self._read_batch(wanted[start : start + len(batch)], batch, table)
            else:  # a large member, or one that can't be read
                yield self._content(wanted[start])
            start += len(batch) or 1

    def _storage_order(self) -> StorageOrder | None:
        if self._archive is not None:
            return None
        return StorageOrder(self._bottom()[0].max_gap_bytes, self._index().following)

    def _next_batch(self, wanted: Sequence[str]) -> builtins.list[SmallRead]:
        """Return the reads of the first of `wanted`, up to one that is large or has to be checked."""
        index = self._index()
        known, find = index.small_reads.get, index.small_read
        batch: builtins.list[SmallRead] = []
        size = 0
        for key in wanted:
            read = known(key) or find(key)
            if read is None:
                break
            size += read[1]
            if size > BATCH_BYTES and batch:
                break
            batch.append(read)
        return batch

    def _read_batch(self, wanted: Sequence[str], batch: builtins.list[SmallRead], table: ZipTable) -> Iterator[bytes]:
        begin = time.monotonic_ns() if hooks.active is not None else 0
        archive, index = self._reader(), self._index()
        bottom, shift = self._bottom()
        found = bottom.pread_many([(read[1], shift + read[0]) for read in batch])
        if (instrument := hooks.active) is not None:
            instrument.record_span(
                "batch", "zip.read_many", begin, sum(map(len, found)), self.file_url, offset=len(batch)
            )
        at = 0
        try:
            for at, raw in enumerate(found):
                key = wanted[at]
                data = members.checked(raw, batch[at], self, key)
                yield members.content(raw, index.file(key), archive, self, key) if data is None else data
            return
        except CorruptFileError:
            if not index.distrust(table):
                raise
        for key in wanted[at:]:
            yield self._read_one(key)

    def _close(self) -> None:
        super()._close()
        self._loaded.forget()

    # ---- writing

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        return self._member(key, self._writing().create(key, exclusive))

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        self._writing().write_bytes(key, data)

    def add_members(self, members: Iterable[tuple[str, bytes | None]]) -> Iterator[int]:
        """Add files by paths and contents, directories by None, in order; yield the size of each that has been added.

        The contents are compressed side by side, in as many threads as this process has CPUs.
        """
        archive = self._writing()
        for group in archive.compressed(members):
            files: builtins.list[writing.CompressedMember] = []
            for member in group:
                if member.content is None:
                    self._add_files(archive, files)
                    files = []
                    self.makedirs(member.path, exist_ok=True)
                else:
                    files.append(member)
            self._add_files(archive, files)
            yield from [member.size for member in group]

    def _add_files(self, archive: writing.Archive, files: builtins.list[writing.CompressedMember]) -> None:
        found = [self._file_key(member.path, "add_members") for member in files]
        done = 0
        try:
            while done < len(files):
                done += archive.add_group(found[done:], files[done:])
        except OSError as exc:
            self._named(exc, "add_members", found[done])
            raise

    def _mkdir(self, key: str, mode: int) -> None:
        self._writing().mkdir(key, mode)

    def _remove(self, key: str) -> None:
        self._writing().remove(key)

    def _finish(self) -> None:
        if self._archive is not None:
            self._archive.finish()

    def _writing(self) -> writing.Archive:
        """The archive being written; `ValueError` once it is closed."""
        self._writer()
        assert self._archive is not None
        return self._archive


def _is_stream(blob: Blob) -> bool:
    """Return whether a blob is decompressed as it is read, or is a part of one that is."""
    while isinstance(blob, members.Stored):
        blob = blob.archive
    return isinstance(blob, DecodedBlob)


class _Loaded:
    """The facts about an archive that a process finds out once: a fork inherits them, a pickle leaves them out."""

    __slots__ = ("_lock", "bottom", "index")

    def __init__(self) -> None:
        self.index: ZipIndex | None = None
        self.bottom: tuple[Blob, int] | None = None
        self._lock = process.Lock()

    def load(self, make: Callable[[], ZipIndex]) -> ZipIndex:
        """The index, from `make` if there is none yet."""
        with self._lock:
            self.index = found = self.index or make()
        return found

    def forget(self) -> None:
        """Free what is held; nothing is mapped from then on."""
        self.index = self.bottom = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Loaded, ()
