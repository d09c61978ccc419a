"""Tar, the container: a tar archive, plain or compressed, as an FS."""

from __future__ import annotations

import errno
import functools
import os
import stat as stat_bits
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import IO, Any, NamedTuple, cast

from ...core import errors, keys
from ...core.blobs import Blob, BlobSlice, Hint, Origin
from ...core.files import buffered
from ...core.fs import (
    FS,
    FileStat,
    StrPath,
)
from ...core.limits import Limits, LinkedEntries
from ...core.ranges import StorageOrder
from ...core.writing import Writer
from ..base import ADDING, READING, WRITING, Container, Problem, SpooledWriter
from ..decoding import DecodedBlob
from . import writing
from .compression import TarCodec, codec_of_filename, codec_of_name
from .headers import Segments
from .index import Member, Members, TarIndex, load, trailing_data

_COPY_SIZE = 8 * 1024 * 1024
_BATCH_FILES, _BATCH_BYTES = 256, 64 * 1024 * 1024


class LinkTarget(NamedTuple):
    """The target of a path, after following links."""

    key: str
    """Its own, behind every link."""
    member: Member | None
    """None for a directory that only the names of others tell of."""
    directory: bool


class Tar(Container):
    """A tar archive: ustar, pax, GNU or v7; plain, or compressed with gz, bz2, xz or zst.

    Opening it for reading passes over all headers, and for a compressed one over all that it holds, whose checksums
    are right from then on; what the pass found is kept in the cache directory, for all who open this version of it.
    Members of a plain archive are slices of its file. Hard links read as what they point to; symbolic links are
    followed inside of the archive, and what leads out of it is a `FileNotFoundError`. One with members below its name
    is left out: that name is a directory. Devices and fifos are not there.
    An entry with an absolute name or a `..` in it is a `PermissionError`, and hurts no other. What lies behind the
    archive's end (padding, a second archive, bytes behind compressed data) is not read; `verify()` reports it.

    Written (`w`, `x`), a member is added when it is closed, and can't be replaced: a second one of the name is a
    `FileExistsError`. Added to (`a`; a plain one), a later member takes the place of an earlier one, whose bytes stay
    in the file; if a second archive lies behind its end, which would be lost, it is `io.UnsupportedOperation`. Members
    can be removed before the first one is added, and leave no byte. Nothing can be read meanwhile. The bytes depend on
    the members, their order and the options alone.

    Args:
        compression: how it is written: `none`, `gz`, `bz2`, `xz`, `zst`; by default what the file's name says. A file
            that is read tells by itself.
        compresslevel: of the compression; each has its own range and default.
        timestamp: the modification time of every member that is written, in seconds since 1970.
        limits: what reading may cost, by default the limits of `parent`.
        stat: of the file that is read, as a listing gave it: no request asks for it.

    Raises `CorruptFileError` for what is no tar, or is damaged or cut, and `UnsupportedOperation` for another
    compression, which it names.
    """

    modes = "rwxa"

    def __init__(
        self,
        parent: FS,
        path: StrPath,
        mode: str = "r",
        stat: FileStat | None = None,
        *,
        compression: str | None = None,
        compresslevel: int | None = None,
        timestamp: float = 0,
        limits: Limits | None = None,
    ) -> None:
        if mode == "r" and (compression is not None or compresslevel is not None or timestamp != 0):
            names = "compression, compresslevel and timestamp"
            raise ValueError(f"{names} are for a tar that is written; this one tells its own")
        codec = _chosen(parent._key(path, "open_container"), mode, compression, compresslevel)
        compress = None if codec is None else writing.compressor(codec, compresslevel, timestamp)
        super().__init__(parent, path, mode, limits, stat)
        self._stream: DecodedBlob | None = None
        self._index: TarIndex | None = None
        self._sink: writing.TarSink | None = None
        self._compression = "none" if codec is None else codec.name
        try:
            if self._blob is not None:
                self._index, self._stream = load(parent, self._file, self._blob, self.limits)
                self._compression = "none" if self._stream is None else self._stream.codec.name
            if self._out is None:
                self.capabilities = READING
                self.default_concurrency = 1 if self._stream is not None else parent.default_concurrency
            else:
                self.capabilities = WRITING if mode != "a" else ADDING
                members = None
                if self._blob is not None and self._index is not None:
                    compress = None
                    self._check_addable(self._blob, self._index, compression)
                    members = BlobSlice(self, "", self._blob, 0, self._index.end, self._blob.version)
                self._sink = writing.TarSink(self._out, compress, timestamp, members, self._index, replace=mode == "a")
        except BaseException:
            self._abort()
            raise

    @property
    def compression(self) -> str:
        """The compression of the archive: `none`, `gz`, `bz2`, `xz` or `zst`."""
        return self._compression

    def info(self) -> dict[str, Any]:
        """As of every FS; `compression`, and the number of entries, besides."""
        found = {**super().info(), "compression": self._compression}
        return found if self._sink is not None else {**found, "entries": len(self._reading().tree)}

    def verify(self) -> list[Problem]:
        """Return the faults and oddities of the archive, though it can be read; empty if there are none.

        The kinds: `duplicate`, `unsafe name`, `special file` (left out), `lost link`, `conflict` (a file and a
        directory of one name), `no end`, `trailing data`. A tar has no checksums of contents; a compressed one is
        checked as a whole when it is opened.
        """
        self._require("read", "verify", "")
        blob, index = self._reader(), self._reading()
        found = [*index.problems, *self._later_problems(index)]
        if self._stream is None and trailing_data(index.end) not in found and _has_trailing_data(blob, index):
            found.append(trailing_data(index.end))
        return found

    def left_out(self) -> Sequence[Problem]:
        """Return the members with unsafe names, devices and fifos, and links to what is not in the archive."""
        if self._sink is not None:
            return ()
        index = self._reading()
        kinds = ("unsafe name", "special file", "lost link")
        return [one for one in [*index.problems, *self._later_problems(index)] if one.kind in kinds]

    # ---- reading

    def _reading(self) -> TarIndex:
        """The index; `ValueError` once the archive is closed."""
        blob = self._reader()
        if self._index is None:
            self._index = load(self._parent, self._file, blob, self.limits)[0]
        return self._index

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        if self._sink is not None:
            return self._sink.names.stat(key)
        return self._to_stat(keys.name(key), self._find(key))

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        if self._sink is not None:
            return self._sink.names.list(key)
        return (self._to_stat(name, child) for name, child in self._children(self._find(key).key))

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[FileStat]:
        """As derived, but a link to a directory above itself is listed and not entered."""
        if self._sink is not None or not self._reading().links:
            return super()._walk(key)
        return self._walk_links(self._find(key).key)

    def _walk_links(self, top: str) -> Iterator[FileStat]:
        """Yield what is below a directory, by the members' own keys: no link is followed from the root again."""
        entries = LinkedEntries(self.limits)
        above = {top: None}  # the directories on the way, by their own keys
        levels = [("", entries.enter(top), self._children(top))]
        while levels:
            base, repeated, members = levels[-1]
            name, child = next(members, ("", None))
            if child is None:
                levels.pop()
                above.popitem()
                continue
            entries.count(repeated)
            yield self._to_stat(base + name, child)
            if child.directory and child.key not in above:
                above[child.key] = None
                levels.append((f"{base}{name}/", entries.enter(child.key), self._children(child.key)))

    def _directory_identity(self, key: str) -> str | None:
        index = None if self._sink is not None else self._reading()
        return self._find(key).key if index is not None and index.links else None

    def _to_stat(self, name: str, found: LinkTarget) -> FileStat:
        member = found.member
        if found.directory:
            return FileStat.of_directory(name, member and member.mtime, member and member.mode)
        assert member is not None
        return FileStat(name, member.size, False, member.mtime, member.mode, self._reader().version)

    def _file_member(self, key: str) -> Member:
        found = self._find(key)
        if found.directory or found.member is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return found.member

    def _archive_content(self) -> Blob:
        """The archive's bytes, decoded."""
        blob = self._reader()
        return blob if self._stream is None else self._stream

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if self._sink is not None:
            raise self._no_reading(key)
        member, content = self._file_member(key), self._archive_content()
        if isinstance(member.extra, tuple):
            self._check_sparse(key, member, member.extra)
            return SparseBlob(self, key, content, member.offset, member.size, member.extra)
        return BlobSlice(self, key, content, member.offset, member.size, content.version)

    def _check_sparse(self, key: str, member: Member, segments: Segments) -> None:
        stored = sum(length for _, length in segments)
        if self.limits.declares_too_much(member.size, stored):
            what = f"a sparse file of {member.size} bytes, of which {stored} are stored"
            raise self.limits.error("max_ratio", what, "open", self._url(key))

    def _read_member(self, key: str) -> bytes:
        with self._open_blob(key) as blob:
            return blob.read_all()

    def _contents_of(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return map(self._read_member, wanted) if len(wanted) == 1 else self._read_together(wanted, concurrency)

    def _read_together(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        """A batch at a time: its ranges at once, or forward in what is compressed, so that nothing is decoded twice."""
        self._require("read", "read_many", self._root)
        read = self._read_at_once if self._stream is None else self._read_forward
        at = 0
        while at < len(wanted):
            batch = self._next_batch(wanted[at : at + (concurrency or _BATCH_FILES)])
            yield from read(wanted[at : at + len(batch)], batch)
            at += len(batch)

    def in_archive_order(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of files in the order in which the archive holds them."""
        return sorted(paths, key=lambda path: self._file_member(self._key(path, "list")).offset)

    def _storage_order(self) -> StorageOrder | None:
        if self._stream is not None or self._sink is not None:
            return None
        return StorageOrder(self._reader().max_gap_bytes, self._stored_from)

    def _read_at_once(self, wanted: Sequence[str], batch: list[Member]) -> Iterator[bytes]:
        """The contents of members of a plain archive."""
        ranges = [(member.size, member.offset) for member in batch if not isinstance(member.extra, tuple)]
        found = iter(self._reader().pread_many(ranges))
        for key, member in zip(wanted, batch, strict=True):
            if isinstance(member.extra, tuple):
                yield self._read_member(key)
                continue
            content = next(found)
            if len(content) != member.size:
                end = member.offset + member.size
                raise errors.corrupt(self._url(key), f"the archive has no bytes {member.offset} to {end}", "read_many")
            yield content

    def _read_forward(self, wanted: Sequence[str], batch: list[Member]) -> Iterator[bytes]:
        """The contents of members of a compressed archive, decoded in the order that they lie in."""
        contents = {at: self._outcome(wanted[at]) for at in sorted(range(len(batch)), key=_offset_in(batch))}
        for at in range(len(batch)):
            content = contents.pop(at)
            if isinstance(content, OSError):
                raise content
            yield content

    def _next_batch(self, wanted: Sequence[str]) -> list[Member]:
        """The members at the start of `wanted` that are read together."""
        batch: list[Member] = []
        size = 0
        for key in wanted:
            try:
                batch.append(self._file_member(key))
            except OSError:
                if not batch:
                    raise
                break  # it is raised when its turn has come
            size += batch[-1].size
            if size >= _BATCH_BYTES:
                break
        return batch

    def _outcome(self, key: str) -> bytes | OSError:
        try:
            return self._read_member(key)
        except OSError as exc:
            self._named(exc, "read_many", key)
            return exc

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._index is not None and isinstance(self._index.tree.entries, Members):
            state["_index"] = None  # found in the cache directory again
        return state

    # ---- members by path, through the symbolic links in the archive, as a kernel would follow them

    def _find(self, key: str) -> LinkTarget:
        """Return the target of `key`, after following links.

        `FileNotFoundError`, also for a link that leads nowhere or out of the archive; `NotADirectoryError`;
        `PermissionError` for an entry whose name is not safe; `OSError` (ELOOP) for links in a circle.
        """
        index, resolved = self._reading(), key
        found = _exact(index, key)
        if found is None and index.links:
            resolved = self._resolved(index, key)
            found = _exact(index, resolved)
        if found is not None:
            return found
        if key in index.refused:
            reason = f"the archive's entry {index.refused[key]!r} is absolute, or leads upwards: it can't be read"
            raise PermissionError(errno.EACCES, reason)
        if resolved == key:
            raise index.tree.missing(key)
        raise _leads_to(resolved, index.tree.missing(resolved))

    def _resolved(self, index: TarIndex, key: str) -> str:
        """Return `key` with every link on it replaced by where it leads."""
        limits, entries = self.limits, index.tree.entries
        todo = key.split("/")[::-1]
        done: list[str] = []
        target = key
        hops = steps = 0
        while todo:
            part = todo.pop()
            steps += 1
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise _outside(target)
                done.pop()
                continue
            if limits.beyond("max_depth", steps, len(key)):
                what = f"the links on the way to it have {steps} segments and more"
                raise OSError(errno.ELOOP, limits.reason("max_depth", what))
            member = entries.get("/".join([*done, part]))
            if member is None or not _is_link(member):
                done.append(part)
                continue
            hops += 1
            target = str(member.extra)
            if limits.beyond("max_links", hops):
                raise OSError(errno.ELOOP, limits.reason("max_links", f"{hops} links and more are on the way to it"))
            if target.startswith("/"):
                raise _outside(target)
            todo += target.split("/")[::-1]
        return "/".join(done)

    def _children(self, key: str) -> Iterator[tuple[str, LinkTarget]]:
        """Return the members of the directory `key` (of no link): name and what it leads to; a lost link is itself."""
        index = self._reading()
        found: Iterable[tuple[str, LinkTarget]] = (
            (name, self._child(keys.join(key, name.rstrip("/")), member)) for name, member in index.tree.children(key)
        )
        if index.links:  # a link to a directory is listed as one, which changes the order
            found = sorted(found, key=_listed_name)
        return ((name.rstrip("/"), child) for name, child in found)

    def _child(self, key: str, member: Member | None) -> LinkTarget:
        if member is None or not _is_link(member):
            return LinkTarget(key, member, member is None or stat_bits.S_ISDIR(member.mode))
        try:
            return self._find(key)
        except OSError:  # leads nowhere: listed as the link that it is
            return LinkTarget(key, member, directory=False)

    def _stored_from(self, key: str) -> Iterator[tuple[int, int, str]]:
        """As `StorageOrder.following`, as far as members are in the order of their names, as of a sorted tree."""
        try:
            first = self._find(key).member
        except OSError:  # raised when it is read
            return
        if first is None:
            return
        yield first.offset, first.size, key
        offset = first.offset
        for name, member in self._reading().tree.after(key):
            if name.endswith("/"):
                continue
            if member.offset <= offset:
                return
            offset = member.offset
            if member.extra is None:
                yield member.offset, member.size, name

    def _later_problems(self, index: TarIndex) -> Iterator[Problem]:
        """Yield the conflicts of names, and the links that lead nowhere."""
        entries = index.tree.entries
        directories: set[str] = set()
        for name in entries:
            path = keys.parent(name)
            while path and path not in directories:
                directories.add(path)
                path = keys.parent(path)
        for path in sorted(directories):
            if path in entries:
                yield Problem(path, "conflict", "it is a file, and a directory with members, at once")
        for name, member in entries.items() if index.links else ():
            if _is_link(member):
                try:
                    self._find(name)
                except OSError as exc:
                    yield Problem(name, "lost link", f"to {str(member.extra)!r}: {exc.strerror}")

    # ---- writing

    def _check_addable(self, blob: Blob, index: TarIndex, compression: str | None) -> None:
        """Refuse an archive whose members can't all be copied to the new one."""
        if self._stream is not None or compression not in (None, "none"):
            reason = f"only a plain tar can be added to; this one has the compression {self._compression!r}"
            raise errors.unsupported("open_container", self.file_url, f"{reason}, and {compression!r} was asked for")
        if _has_trailing_data(blob, index):
            reason = f"{trailing_data(index.end).detail}, as of a second archive: adding to this one would lose it"
            raise errors.unsupported("open_container", self.file_url, reason)

    def _adding(self, operation: str, key: str) -> writing.TarSink:
        """Return the writer of members; raise `ValueError` or `UnsupportedOperation` unless the archive is written."""
        if self._sink is None:
            raise self._unsupported(operation, key)
        if self._writer().inherited:
            raise errors.unsupported(operation, self._url(key), "the archive was opened for writing in another process")
        return self._sink

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        sink = self._adding("open for writing", key)
        sink.reserve(key, exclusive)
        return self._member(key, SpooledWriter(functools.partial(self._add, key), functools.partial(sink.release, key)))

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        sink = self._adding("open for writing", key)
        sink.reserve(key, False)
        try:
            sink.write_bytes(key, data)
        finally:
            sink.release(key)

    def _add(self, key: str, file: IO[bytes], size: int) -> None:
        self._adding("close", key).add(key, file, size)

    def _write_blob(self, key: str, blob: Blob) -> None:
        """As derived, without a copy of the content on its way."""
        sink = self._adding("copy", key)
        with self._naming("copy", key):
            sink.reserve(key, False)
            try:
                sink.add(key, cast(IO[bytes], buffered(blob)), blob.size)
            finally:
                sink.release(key)

    def _mkdir(self, key: str, mode: int) -> None:
        self._adding("mkdir", key).add_directory(key)

    def _remove(self, key: str) -> None:
        self._adding("remove", key).remove(key)

    def _finish(self) -> None:
        if self._sink is not None:
            self._sink.finish()

    def _close(self) -> None:
        super()._close()
        if self._stream is not None:
            self._stream.close()

    def _abort(self) -> None:
        super()._abort()
        if self._stream is not None:
            self._stream.close()


def _has_trailing_data(blob: Blob, index: TarIndex) -> bool:
    """Return whether there is anything but zeros behind the members of a plain archive."""
    pieces = (blob.pread(_COPY_SIZE, offset) for offset in range(index.end, blob.size, _COPY_SIZE))
    return any(data.count(0) < len(data) for data in pieces)


def _leads_to(resolved: str, missing: OSError) -> OSError:
    """Return the error for what a link leads to, and is not there."""
    missing.strerror = f"a link leads to {resolved!r} in the archive: {missing.strerror}"
    return missing


def _exact(index: TarIndex, key: str) -> LinkTarget | None:
    member = index.tree.entries.get(key)
    if member is not None and not _is_link(member):
        return LinkTarget(key, member, directory=False)
    if member is None and index.tree.isdir(key):
        return LinkTarget(key, index.tree.entries.get(key + "/"), directory=True)
    return None


def _is_link(member: Member) -> bool:
    """Return whether a member is a symbolic link, or a hard link without a target."""
    return stat_bits.S_ISLNK(member.mode)


def _outside(target: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, f"a link leads to {target!r}, which is not in the archive")


def _listed_name(item: tuple[str, LinkTarget]) -> str:
    name, found = item
    return name.rstrip("/") + "/" if found.directory else name


def _offset_in(batch: list[Member]) -> Callable[[int], int]:
    return lambda at: batch[at].offset


def _chosen(filename: str, mode: str, compression: str | None, compresslevel: int | None) -> TarCodec | None:
    """The compression to write with; `ValueError` for options that don't fit."""
    if compression is not None:
        codec = None if compression == "none" else codec_of_name(compression)
    else:
        codec = codec_of_filename(filename)
    if codec is None and compresslevel is not None and mode != "r":
        raise ValueError("a plain tar has no level of compression")
    return codec


class SparseBlob(Blob):
    """`size` bytes, of which the archive holds the `segments`, one behind the other from `start` of `parent` on."""

    __slots__ = ("_segments", "_starts", "_stored")

    def __init__(self, origin: Origin, key: str, parent: Blob, start: int, size: int, segments: Segments) -> None:
        super().__init__(origin, key, size, parent.version)
        self._segments = segments
        self._starts = [0, *accumulate(length for _, length in segments)]  # of the segments, in what is stored
        self._stored = BlobSlice(origin, key, parent, start, self._starts[-1], parent.version)

    def _pread(self, size: int, offset: int) -> bytes:
        end, start = offset + size, self._stored_before(offset)
        data = memoryview(self._stored.pread(self._stored_before(end) - start, start))
        found: list[bytes | memoryview] = []
        at = max(0, bisect_right(self._segments, offset, key=_first) - 1)
        for begin, length in self._segments[at : bisect_left(self._segments, end, key=_first)]:
            first, last = max(begin, offset), min(begin + length, end)
            if last > first:
                found += [bytes(first - offset), data[: last - first]]
                offset, data = last, data[last - first :]
        found.append(bytes(end - offset))
        return b"".join(found)

    def _stored_before(self, offset: int) -> int:
        """Return how many of the bytes before `offset` are stored."""
        at = bisect_right(self._segments, offset, key=_first) - 1
        if at < 0:
            return 0
        begin, length = self._segments[at]
        return self._starts[at] + min(length, offset - begin)


def _first(segment: tuple[int, int]) -> int:
    return segment[0]
