"""An archive being written: members are compressed apart, each in its own thread, and added whole when they are closed.

The records are written here and not by the standard library's `zipfile`: on a file that can't seek it leaves CRC and
sizes out of the local headers, which streaming readers (Java's, libarchive's) refuse for stored members; it keeps about
a kilobyte per member in memory; and it can't add to an archive that holds entries which it doesn't understand.

`Archive` is the file, `Compression` what makes members of contents: stored, deflated, bzip2 and lzma.
"""

from __future__ import annotations

import builtins
import bz2
import errno
import functools
import lzma
import os
import re
import stat as stat_bits
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, Protocol, cast

from ...core import errors, process
from ...core.blobs import Blob
from ...core.fs import FileStat
from ...core.threads import in_threads
from ...core.writing import WriteFile, Writer
from ..base import SpooledWriter, WrittenTree
from ..decoding import crc32, fastest_zlib
from . import records
from .index import ZipIndex
from .records import VERSION_ZIP64, ArchiveLayout, MemberHeader, PlainHeaders

TIMESTAMP = 315532800.0
"""1980-01-01, the first moment that a zip file can name."""
LIMIT16 = records.MAX16
_COPY = 8 * 1024 * 1024
_PIECE = 1024 * 1024
_FILE = stat_bits.S_IFREG | 0o644
_is_plain = re.compile(r"[A-Za-z0-9_\-/]*(?:\.[A-Za-z0-9_\-]+)?").fullmatch  # of keys; most are


class Archive:
    """The state of an archive being written, shared by its `Zip` and what `subfs` makes of it.

    With an index of `old` entries, what is written again is replaced, and members are removed: their old records are
    dropped from the directory.
    """

    def __init__(
        self,
        out: WriteFile,
        url: str,
        compression: Compression,
        dos: int,
        old: ZipIndex | None = None,
        blob: Blob | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        """`old` is the index of the archive that is added to, and `blob` its bytes.

        Where it `replaces`, a member takes the place of an earlier one of its name.
        """
        self._out = out
        self._url = url
        self._compression = compression
        self._dos = dos
        self._headers = PlainHeaders(compression.method, dos, _FILE)
        self._modified = records.seconds_of(dos)
        self._lock = process.Lock()
        self._directory = bytearray()
        self._places: dict[str, int] = {}  # of the records of what could be replaced
        self._dropped: set[int] = set()
        self._removed: set[str] = set()  # old keys; a directory's with a slash behind it
        self._old_size = 0  # of the directory of the archive that is added to
        self._entries = 0
        self._shift = 0
        self._comment = b""
        self._old = old
        version = blob.version if blob is not None else None
        self.names: WrittenTree = WrittenTree(
            self._modified,
            _names_of(old) if replaces else None,
            None if old is None else lambda name: old.stat(name.rstrip("/"), version),
        )
        """What has been written, with what was there before."""
        if old is not None and blob is not None:
            self._copy(blob, old.layout)

    def _copy(self, blob: Blob, layout: ArchiveLayout) -> None:
        """Start with all that is in an archive, up to its directory."""
        if layout.junk:
            reason = f"{layout.junk} bytes behind the archive's end belong to nothing, and adding to it would lose them"
            raise errors.corrupt(self._url, reason, "open_container")
        for at in range(0, layout.start, _COPY):
            self._out.write(blob.pread(min(_COPY, layout.start - at), at))
        for at in range(layout.start, layout.start + layout.size, _COPY):
            self._directory += blob.pread(min(_COPY, layout.start + layout.size - at), at)
        self._old_size = len(self._directory)
        self._entries = layout.entries
        self._shift = layout.shift
        self._comment = layout.comment

    # ---- writing

    def create(self, key: str, exclusive: bool) -> Writer:
        """A writer of a new member; of one that is there already only in an archive that is added to."""
        self._check_alive()
        header = MemberHeader(_name(key), self._compression.method, self._dos, 0, 0, 0, stat_bits.S_IFREG | 0o644)
        with self._lock:
            self.names.check_file(key, exclusive)
        return MemberWriter(functools.partial(self.add, key, exclusive), header, self._compression.start())

    def mkdir(self, key: str, mode: int) -> None:
        """Add an entry for a directory."""
        self._check_alive()
        permissions = mode & ~0o022  # as with the usual umask; the process's own must not change the archive's bytes
        with self._lock:
            self.names.check_directory(key)
            kind = stat_bits.S_IFDIR | permissions
            self._add(key, MemberHeader(_name(key) + b"/", records.STORED, self._dos, 0, 0, 0, kind), None)

    def add(self, key: str, exclusive: bool, header: MemberHeader, content: IO[bytes], size: int) -> None:
        """Add a finished member: `content` is a file that holds the `size` bytes behind the header."""
        self._check_alive()
        with self._lock:
            self.names.check_file(key, exclusive)
            self._add(key, header._replace(compressed=size), iter(lambda: content.read(_PIECE), b""))

    def write_bytes(self, key: str, data: bytes) -> None:
        """Add a member whose content is there as a whole."""
        self._check_alive()
        self.add_compressed(key, self._compression.compressed(key, data))

    def compressed(self, members: Iterable[tuple[str, bytes | None]]) -> Iterator[builtins.list[CompressedMember]]:
        """Compress members, in order and in groups, by as many threads as this process has CPUs."""
        self._check_alive()
        return self._compression.compressed_many(members, process.cpu_count())

    def add_compressed(self, key: str, member: CompressedMember) -> None:
        """Add a file as `Compression` has prepared it."""
        _, content, crc, size = member
        assert content is not None
        header = MemberHeader(_name(key), self._compression.method, self._dos, crc, len(content), size, _FILE)
        with self._lock:
            self.names.check_file(key, False)
            self._add(key, header, (content,))

    def add_group(self, found: Sequence[str], members: Sequence[CompressedMember]) -> int:
        """Add the first of some files as `Compression` has prepared them; return how many were added, at least one.

        New files with ordinary headers in known directories are added together, by one write.
        """
        self._check_alive()
        with self._lock:
            if not self.names.replaces and (added := self._add_plain(found, members)):
                return added
        self.add_compressed(found[0], members[0])
        return 1

    def _add_plain(self, found: Sequence[str], members: Sequence[CompressedMember]) -> int:
        """Add the first files that `add_group` can add together; return how many there are."""
        pieces: list[bytes] = []
        records_of: list[bytes] = []
        added: dict[str, tuple[dict[str, FileStat | int | str | None], str, int]] = {}
        offset = self._out.tell()
        for key, (_, content, crc, size) in zip(found, members, strict=True):
            place = None if key in added else self.names.new_name(key)
            if place is None or content is None:
                break
            try:
                name = _name(key)
            except OSError:
                break  # it is raised when those before it have been added
            packed = self._headers.pack(name, crc, len(content), size, offset - self._shift)
            if packed is None:
                break
            pieces += (packed[0], name, content)
            records_of += (packed[1], name)
            offset += len(packed[0]) + len(name) + len(content)
            added[key] = (*place, size)
        if pieces:
            self._out.write(b"".join(pieces))
            self._directory += b"".join(records_of)
            self._entries += len(added)
            for folder, name_in_it, size in added.values():
                folder[name_in_it] = size
        return len(added)

    def remove(self, key: str) -> None:
        """Leave a file, or a directory without members, out of the archive."""
        self._check_alive()
        with self._lock:
            self.names.remove(key)
            self._removed |= {key, key + "/"}
            place = self._places.pop(key, self._places.pop(key + "/", None))
            if place is not None:
                self._dropped.add(place)

    def finish(self) -> None:
        """Write the directory and the end records."""
        with self._lock:
            self._drop()
            start = self._out.tell()
            self._out.write(self._directory)
            self._out.write(self._end(start - self._shift, len(self._directory)))

    def _add(self, key: str, header: MemberHeader, content: Iterable[bytes] | None) -> None:
        offset = self._out.tell()
        self._out.write(header.local())
        for piece in content or ():
            self._out.write(piece)
        found = header.size if content is not None else FileStat.of_directory("", self._modified)
        self._record(key, header, offset, found)

    def _record(self, key: str, header: MemberHeader, offset: int, found: FileStat | int) -> None:
        """Put a member that has been written at `offset` into the directory."""
        record = header.central(offset - self._shift)
        if self.names.replaces:
            self._note_place(key)
        self._directory += record
        self._entries += 1
        self.names.add(key, found)

    def _note_place(self, key: str) -> None:
        """Drop the record of what is being replaced."""
        before = self._places.get(key)
        if before is None and self._old is not None and (entry := self._old.entry(key)) is not None:
            before = entry.record
        if before is not None:
            self._dropped.add(before)
        self._places[key] = len(self._directory)

    def _drop(self) -> None:
        """Leave the records of what was replaced or removed out of the directory."""
        self._dropped.update(self._places_of(self._removed))
        kept = bytearray()
        at = 0
        for place in sorted(self._dropped):
            lengths = struct.unpack_from("<3H", self._directory, place + 28)
            kept += self._directory[at:place]
            at = place + records.CENTRAL.size + sum(lengths)
        if at:
            self._directory = kept + self._directory[at:]
            self._entries -= len(self._dropped)
            self._dropped.clear()

    def _places_of(self, removed: set[str]) -> Iterator[int]:
        """Yield the places of the old records of some keys: of all entries of a name, of which the last one counted."""
        if (old := self._old) is not None:
            yield from (entry.record for key in removed if (entry := old.entry(key)) is not None)
        at = 0
        while removed and at < self._old_size:
            length, extra, comment = struct.unpack_from("<3H", self._directory, at + 28)
            host, flags = self._directory[at + 5], struct.unpack_from("<H", self._directory, at + 8)[0]
            start = at + records.CENTRAL.size
            name, _ = records.decoded(bytes(self._directory[start : start + length]), flags, host)
            if records.judge(name, host in records.HOSTS_WITH_BACKSLASH)[0] in removed:
                yield at
            at = start + length + extra + comment

    def _end(self, offset: int, size: int) -> bytes:
        """The end records of a directory of `size` bytes at `offset`."""
        big = self._entries >= LIMIT16 or max(offset, size) >= records.LIMIT32
        count = min(self._entries, records.MAX16)
        numbers = (0, 0, count, count, min(size, records.MAX32), min(offset, records.MAX32), len(self._comment))
        end = records.END.pack(records.END_SIGNATURE, *numbers) + self._comment
        if not big:
            return end
        versions = (records.HOST_UNIX << 8 | VERSION_ZIP64, VERSION_ZIP64)
        totals = (0, 0, self._entries, self._entries, size, offset)
        end64 = records.END64.pack(records.END64_SIGNATURE, records.END64.size - 12, *versions, *totals)
        return end64 + records.LOCATOR.pack(records.LOCATOR_SIGNATURE, 0, offset + size, 1) + end

    def _check_alive(self) -> None:
        if self._out.closed:
            raise ValueError(f"I/O operation on a closed container: {self._url}")
        if self._out.inherited:
            raise errors.unsupported("write", self._url, "the archive was opened for writing in another process")


def _names_of(old: ZipIndex | None) -> Iterator[str]:
    """Yield the names of the entries of an archive, without directories that have none."""
    if old is not None:
        yield from (name for name in old.walk_names("") if name[-1] != "/" or old.entry(name) is not None)


class MemberWriter(SpooledWriter):
    """Compresses one member into memory or a temporary file; `add` is called with its header and that at the commit."""

    def __init__(
        self, add: Callable[[MemberHeader, IO[bytes], int], None], header: MemberHeader, compressor: Compressor
    ) -> None:
        super().__init__(functools.partial(add, header))
        self._add = add
        self._header = header
        self._compressor = compressor

    def write(self, data: bytes) -> None:
        """Compress `data`."""
        header = self._header
        self._header = header._replace(crc=zlib.crc32(data, header.crc), size=header.size + len(data))
        super().write(self._compressor.compress(data))

    def commit(self) -> None:
        """Add the member to the archive."""
        super().write(self._compressor.flush())
        self._on_commit = functools.partial(self._add, self._header)
        super().commit()


def _name(key: str) -> bytes:
    """The name of a member as it stands in the archive: one that reads back as the same key."""
    if not _is_plain(key):
        _, refusal = records.judge(key)
        if refusal is not None:
            raise OSError(errno.EINVAL, f"a zip file can't hold a member of this name: {refusal}")
    try:
        name = key.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "a zip file can't hold a member whose name is not Unicode text") from None
    if len(name) >= records.MAX16:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return name


# ---- compression

_ISAL_LEVEL = 2  # the highest, 3, takes twice the time for 1 to 4 % fewer bytes
_GROUP_FILES = 64
_GROUP_BYTES = 512 * 1024
_STORED_BYTES = 1024 * 1024
"""As many as a written file collects: a group of them is passed on without a copy."""

_LZMA_PROPERTIES = {"lc": 3, "lp": 0, "pb": 2, "dict_size": 1 << 23}


_LZMA_HEADER = struct.pack("<BBHBL", 9, 4, 5, 0x5D, 1 << 23)  # the same, as zip files have it


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Copy:
    """A compressor that stores its input as it is."""

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Lzma:
    """LZMA with a zip file's header before it."""

    def __init__(self, level: int) -> None:
        filter_: dict[str, Any] = {"id": lzma.FILTER_LZMA1, "preset": level, **_LZMA_PROPERTIES}
        self._inner = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[filter_])
        self._start = _LZMA_HEADER

    def compress(self, data: bytes, /) -> bytes:
        start, self._start = self._start, b""
        return start + self._inner.compress(data)

    def flush(self) -> bytes:
        return self._start + self._inner.flush()


_METHODS = {"stored": records.STORED, "deflated": records.DEFLATED, "bzip2": records.BZIP2, "lzma": records.LZMA}


def _deflater(level: int | None) -> tuple[Any, int]:
    """The library that deflates at `level`, and its own level: for None isal's second highest, or zlib's usual one."""
    if level is not None:
        return zlib, level
    library = fastest_zlib()
    return library, zlib.Z_DEFAULT_COMPRESSION if library is zlib else _ISAL_LEVEL


class CompressedMember(NamedTuple):
    """A member that is ready to be written; a directory's content is None."""

    path: str
    content: bytes | None
    crc: int
    size: int


class Compression:
    """A method by name, and its level: `stored`, `deflated` (0 to 9), `bzip2` (1 to 9), `lzma` (0 to 9)."""

    def __init__(self, name: str, level: int | None) -> None:
        if name not in _METHODS:
            raise ValueError(f"unknown compression {name!r}; known: {', '.join(_METHODS)}")
        least = 1 if name == "bzip2" else 0
        if level is not None and (name == "stored" or not least <= level <= 9):
            has = "has no level" if name == "stored" else f"has the levels {least} to 9"
            raise ValueError(f"compresslevel={level}: compression {name!r} {has}")
        self.method = _METHODS[name]
        self._level = level

    def start(self) -> Compressor:
        """A compressor of one member."""
        if self.method == records.DEFLATED:
            library, level = _deflater(self._level)
            return cast(Compressor, library.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS))
        if self.method == records.BZIP2:
            return bz2.BZ2Compressor(9 if self._level is None else self._level)
        if self.method == records.LZMA:
            return _Lzma(6 if self._level is None else self._level)
        return _Copy()

    def compressed(self, path: str, data: bytes) -> CompressedMember:
        """Compress the whole content of a member."""
        crc = crc32(data)
        if self.method == records.STORED:
            return CompressedMember(path, data, crc, len(data))
        if self.method == records.DEFLATED:
            library, level = _deflater(self._level)
            return CompressedMember(path, library.compress(data, level, -zlib.MAX_WBITS), crc, len(data))
        compressor = self.start()
        return CompressedMember(path, compressor.compress(data) + compressor.flush(), crc, len(data))

    def compressed_many(
        self, members: Iterable[tuple[str, bytes | None]], size: int
    ) -> Iterator[list[CompressedMember]]:
        """Compress members in up to `size` threads, in order; at most two groups for each of them wait."""
        if self.method == records.STORED or size < 2:
            return map(self._group_compressed, _groups(members, _STORED_BYTES))
        return in_threads(self._group_compressed, _groups(members, _GROUP_BYTES), size)

    def _group_compressed(self, group: list[tuple[str, bytes | None]]) -> list[CompressedMember]:
        return [self._one_compressed(member) for member in group]

    def _one_compressed(self, member: tuple[str, bytes | None]) -> CompressedMember:
        path, data = member
        return CompressedMember(path, None, 0, 0) if data is None else self.compressed(path, data)


def _groups(members: Iterable[tuple[str, bytes | None]], most_bytes: int) -> Iterator[list[tuple[str, bytes | None]]]:
    """Yield the members in groups: handing a task over to a thread costs time, and so does a write."""
    group: list[tuple[str, bytes | None]] = []
    size = 0
    for member in members:
        group.append(member)
        size += len(member[1] or b"")
        if len(group) >= _GROUP_FILES or size >= most_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
