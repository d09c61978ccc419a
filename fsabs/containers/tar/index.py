"""The index of a tar: where each member lies, and what is wrong with it. `load` finds it in the cache directory, or
makes it by one pass over the headers and keeps it there.

Names are made keys here: `./a//b` is `a/b`; what is absolute, or has a `..` in it, is kept out and remembered as
refused. A later entry of the same name takes the place of an earlier one. Hard links become what they point to. A
symbolic link gives way to a directory of its name.

A kept index is one buffer, which every process maps. Its parts, little-endian where nothing else is said:

    head     the number of members, and the sizes of names and rest (`_HEAD`)
    hashes   CRC-32 of a member's name in the upper half, its row in the lower (8), in order; the machine's byte order
    rows     of each member, in the order of the names: offset, size, time, mode, end of its name (`_ROW`)
    names    one behind the other
    rest     JSON: links, sparse files, names that are refused, problems, and how a compressed archive is decoded

A name is found by its hash: a binary search of numbers takes no Python code for its steps.
"""

from __future__ import annotations

import json
import math
import stat as stat_bits
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.fs import FS
from ...core.identity import Identity
from ...core.limits import Limits, parse_json
from ...disk import indexes
from ..base import NameTree, Problem
from ..decoding import MAGIC_SIZE, SPACING, Cursor, DecodedBlob, SeekPoint, SeekPoints
from . import compression, headers
from .compression import TarCodec
from .headers import BLOCK, Header, HeaderError, Segments

_ZEROS = bytes(BLOCK)
_SPARSE_KEYWORDS = ("name", "major", "minor", "realsize", "size", "map", "numblocks", "offset", "numbytes")
_KEYWORDS = frozenset({"path", "linkpath", "size", "mtime", *(f"GNU.sparse.{name}" for name in _SPARSE_KEYWORDS)})
_LINK_MODE = stat_bits.S_IFLNK | 0o777
_FIRST_WINDOW = 64 * 1024
_FAR_WINDOW = 4 * 1024
_MAX_WINDOW = 8 * 1024 * 1024
_GROWTH = 128  # of the window, from read to read: an archive up to 8 MiB takes two
_FAR = 1024 * 1024  # payload between two headers that is dearer to read over than a request of its own is


class Member(NamedTuple):
    """One entry of the archive."""

    offset: int
    """Of its payload in the (decoded) archive."""
    size: int
    """Of the file; more than the payload's for a sparse one."""
    mtime: float | None
    mode: int
    """Type and permission bits, as in `st_mode`."""
    extra: str | Segments | None = None
    """A symbolic link's target, absolute for a hard link's that is missing; a sparse file's parts with data."""


class TarIndex(NamedTuple):
    """The members that the pass over an archive found."""

    tree: NameTree[Member]
    links: bool
    """Whether there are symbolic links."""
    refused: Mapping[str, str]
    """Keys that an entry with an unsafe name would have, and that name."""
    problems: tuple[Problem, ...]
    end: int
    """The offset behind the last member, where the end blocks start, or the file ends."""


# ---- where the headers come from


class PlainSource:
    """An archive's bytes, in ascending order: headers that lie close together by large reads, others by one each."""

    garbage = ""
    """At the end of what could be decoded: what follows there and can't be; empty if there is nothing."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._start = 0
        self._data = b""
        self._window = _FIRST_WINDOW // _GROWTH
        self._served = 1
        self.end: int = blob.size
        """The archive's size; known at the latest when a read came out short."""
        self.stored: int = blob.size
        """The size of the archive's file, compressed if it is."""

    def read(self, size: int, offset: int) -> bytes:
        """Return `size` bytes from `offset`; fewer only where the archive ends."""
        at = offset - self._start
        if at + size > len(self._data):
            stride = at / self._served
            self._window = _FAR_WINDOW if stride > _FAR else min(_GROWTH * self._window, _MAX_WINDOW)
            self._start, self._data = offset, self._blob.pread(max(size, self._window), offset)
            self._served = at = 0
        self._served += 1
        return self._data[at : at + size]


class StreamSource:
    """As `PlainSource`, of a decoder's output, which is refused if it is too much for the size of the file."""

    def __init__(self, cursor: Cursor, blob: Blob, limits: Limits) -> None:
        self._cursor = cursor
        self._limits = limits
        self._url = blob.url
        self.stored: int = blob.size

    @property
    def end(self) -> int:
        """The offset up to which the archive was decoded."""
        return self._cursor.position

    @property
    def garbage(self) -> str:
        """What follows the compressed data, and is none."""
        return self._cursor.trailing

    def read(self, size: int, offset: int) -> bytes:
        """As of `PlainSource`."""
        if self._limits.declares_too_much(offset + size, self.stored):
            raise self._bomb(offset + size)
        return self._cursor.read(size) if self._cursor.go_to(offset) else b""

    def drain(self) -> bool:
        """Read to the end, so that every checksum has been seen; whether there was anything but zeros."""
        found, start = False, self._cursor.position
        while data := self._cursor.read(1 << 20):
            found = found or data.count(0) < len(data)
            if self._limits.expands_too_far(self._cursor.position - start, self.stored):
                raise self._bomb(self._cursor.position)
        return found or bool(self._cursor.trailing)

    def _bomb(self, size: int) -> OSError:
        what = f"a decompression bomb, as it seems: {self.stored} bytes that stand for {size} or more"
        return self._limits.error("max_ratio", what, "open_container", self._url)


# ---- the pass


class HeaderScanner:
    """The pass over the headers of one archive."""

    def __init__(self, source: PlainSource | StreamSource, url: str, limits: Limits) -> None:
        self._source = source
        self._url = url
        self._limits = limits
        self._header_bytes = 0  # of all members
        self._extended_bytes = 0  # of the next member
        self._entries: dict[str, Member] = {}
        self._waiting: dict[str, str] = {}  # hard links whose target has not come yet
        self._links = False
        self._refused: dict[str, str] = {}
        self._problems: list[Problem] = []
        self._global: dict[str, bytes] = {}
        self._modes: dict[int, int] = {}
        self._last = ""
        self._forget_extended()

    def run(self) -> TarIndex:
        """The index; `CorruptFileError` where the archive is damaged, EFBIG for what is over a limit."""
        offset = 0
        while block := self._block(offset):
            if block == _ZEROS:
                self._check_end(offset)
                break
            try:
                offset = self._entry(headers.parse(block), block, offset)
            except HeaderError as exc:
                nothing = offset == 0 and not headers.is_header(block)
                raise self._corrupt(f"{'not a tar: ' if nothing else ''}{exc}, at offset {offset}") from exc
        if self._extended:
            raise self._corrupt(f"an extended header, and no member behind it, before offset {offset}")
        self._resolve_waiting()
        tree = NameTree(self._entries)
        if self._links and self._leave_out_links(tree):
            tree = NameTree(self._entries)
        return TarIndex(tree, self._links, self._refused, tuple(self._problems), offset)

    # ---- blocks

    def _block(self, offset: int) -> bytes:
        """The block at `offset`; empty at the end of the archive."""
        block = self._source.read(BLOCK, offset)
        if len(block) == BLOCK:
            return block
        end = self._source.end
        if self._source.garbage:  # what it is in the place of may have held members
            raise self._corrupt(self._source.garbage)
        if end == 0:
            raise self._corrupt("not a tar: it is empty")
        if offset > end:
            raise self._corrupt(
                f"the archive ends at offset {end}, but {self._last!r} in it goes on to offset {offset}"
            )
        if block:
            raise self._corrupt(f"the archive ends at offset {end}, in the middle of a header")
        self._note("", "no end", f"the archive ends at offset {end} without blocks of zeros: it may have been cut")
        return b""

    def _check_end(self, offset: int) -> None:
        """Look behind a block of zeros: two are the end, and one is if no member follows, as some programs write it."""
        following, trailing = offset + BLOCK, False
        block = self._source.read(BLOCK, following)
        if block == _ZEROS:
            return
        self._note("", "no end", f"the archive ends with one block of zeros, at offset {offset}, in place of two")
        while block:
            if any(block):
                trailing = True
                if headers.is_header(block):
                    raise self._corrupt(f"a block of zeros in place of a header, at offset {offset}")
            self._count(BLOCK)
            following += BLOCK
            block = self._source.read(BLOCK, following)
        if trailing:
            self._problems.append(trailing_data(offset))

    def _payload(self, size: int, offset: int) -> bytes:
        self._extended_bytes += size + BLOCK
        if self._limits.beyond("max_header_bytes", self._extended_bytes):
            what = f"the extended headers of one member have {self._extended_bytes} bytes"
            raise self._beyond("max_header_bytes", what)
        self._count(size)
        data = self._source.read(size, offset)
        if len(data) < size:
            raise self._corrupt(f"the archive ends at offset {self._source.end}, in the middle of an extended header")
        return data

    # ---- entries

    def _entry(self, header: Header, block: bytes, offset: int) -> int:
        """Take one header and what belongs to it; returns the offset of the next."""
        data, kind = offset + BLOCK, header.type
        self._count(BLOCK)
        if kind in headers.PAX or kind in (headers.PAX_GLOBAL, headers.GNU_LONG_NAME, headers.GNU_LONG_LINK):
            self._take_extended(kind, self._payload(header.size, data))
            return data + _padded(header.size)
        if kind == headers.GNU_VOLUME:
            return data + _padded(header.size)
        records = self._global
        if self._records:
            own = {key: value for key, value in self._records if key in _KEYWORDS}
            records = {key: value for key, value in {**records, **own}.items() if value}
        header = self._overridden(header, records)
        following = self._member(header, block, data, records)
        self._forget_extended()
        return following

    def _take_extended(self, kind: int, data: bytes) -> None:
        if kind == headers.PAX_GLOBAL:
            found = {key: value for key, value in headers.pax_records(data) if key in _KEYWORDS}
            self._global = {key: value for key, value in {**self._global, **found}.items() if value}
            self._extended_bytes -= len(data) + BLOCK  # it is no member's
            return
        self._extended = True
        if kind in headers.PAX:
            self._records += headers.pax_records(data)
        elif kind == headers.GNU_LONG_NAME:
            self._long_name = data.partition(b"\0")[0]
        else:
            self._long_link = data.partition(b"\0")[0]

    def _count(self, size: int) -> None:
        """Count `size` bytes of headers."""
        self._header_bytes += size
        if self._limits.beyond("max_index_bytes", self._header_bytes, self._source.stored):
            raise self._beyond("max_index_bytes", f"the archive's headers have {self._header_bytes} bytes and more")
        if self._limits.expands_too_far(self._header_bytes, self._source.stored):
            what = f"headers of {self._header_bytes} bytes and more in a file of {self._source.stored}"
            raise self._beyond("max_ratio", what)

    def _forget_extended(self) -> None:
        self._extended_bytes = 0
        self._extended = False
        self._records: list[tuple[str, bytes]] = []
        self._long_name = self._long_link = b""

    def _overridden(self, header: Header, records: dict[str, bytes]) -> Header:
        """The header with what the extended headers before it say."""
        name = self._long_name or header.name
        link = self._long_link or header.link
        if not records:
            return header._replace(name=name, link=link)
        size = headers.pax_number(records, "size")
        name = records.get("GNU.sparse.name") or records.get("path", name)
        link = records.get("linkpath", link)
        self._count(len(name) + len(link))  # those of a global header come with each member once more
        return header._replace(
            name=name,
            link=link,
            size=header.size if size is None else size,
            mtime=headers.pax_time(records, header.mtime),
        )

    def _member(self, header: Header, block: bytes, data: int, records: dict[str, bytes]) -> int:
        """Take a member; returns the offset behind its payload."""
        kind, size = header.type, header.size
        name = header.name.decode("utf-8", "surrogateescape")
        self._last = name
        if kind == headers.GNU_CONTINUED:
            raise HeaderError(f"{name!r} goes on from another volume: archives of several volumes can't be read")
        if kind in headers.SPECIAL:
            self._note(name, "special file", "a device or a fifo: it has no content, and is not listed")
            return data
        if kind in (headers.HARD_LINK, headers.SYMLINK):
            self._add_link(name, header)
            return data
        if kind in (headers.DIRECTORY, headers.GNU_DUMP_DIRECTORY):
            self._add(name, Member(data, 0, header.mtime, self._mode(stat_bits.S_IFDIR, header.mode)), directory=True)
            return data + (_padded(size) if kind == headers.GNU_DUMP_DIRECTORY else 0)
        if kind == headers.GNU_SPARSE:
            return self._add_gnu_sparse(name, header, block, data)
        if name.endswith("/") and kind in headers.REGULAR:  # what v7 has for a directory
            self._add(name, Member(data, 0, header.mtime, self._mode(stat_bits.S_IFDIR, header.mode)), directory=True)
        elif "GNU.sparse.major" in records or any(key.startswith("GNU.sparse.") for key in records):
            self._add_pax_sparse(name, header, data, records)
        else:
            self._add(name, Member(data, size, header.mtime, self._mode(stat_bits.S_IFREG, header.mode)))
        return data + _padded(size)

    def _add_gnu_sparse(self, name: str, header: Header, block: bytes, data: int) -> int:
        segments, more = headers.gnu_sparse(block, extension=False)
        while more:
            found, more = headers.gnu_sparse(self._payload(BLOCK, data), extension=True)
            segments += found
            data += BLOCK
        self._add_sparse(name, header, data, segments, headers.gnu_sparse_size(block), header.size)
        return data + _padded(header.size)

    def _add_pax_sparse(self, name: str, header: Header, data: int, records: dict[str, bytes]) -> None:
        real = headers.pax_number(records, "GNU.sparse.realsize")
        if real is None:
            real = headers.pax_number(records, "GNU.sparse.size")
        segments, map_size = headers.pax_sparse(self._records), 0
        if records.get("GNU.sparse.major") == b"1":
            segments, map_size = self._sparse_map(data, header.size)
        if segments is None or real is None:
            raise HeaderError(f"{name!r} is a sparse file in an unknown format")
        self._add_sparse(name, header, data + map_size, segments, real, header.size - map_size)

    def _sparse_map(self, data: int, size: int) -> tuple[list[tuple[int, int]], int]:
        text = b""
        while len(text) < size:
            text += self._payload(min(max(BLOCK, len(text)), size - len(text)), data + len(text))
            if found := headers.pax_sparse_1_0(text):
                return found
        raise HeaderError("a sparse map without an end")

    def _add_sparse(
        self, name: str, header: Header, data: int, segments: list[tuple[int, int]], size: int, stored: int
    ) -> None:
        kept = headers.checked_segments(segments, size, stored)
        self._add(name, Member(data, size, header.mtime, self._mode(stat_bits.S_IFREG, header.mode), kept))

    def _mode(self, kind: int, bits: int) -> int:
        """Type and permissions, as one object for all members that have the same."""
        return self._modes.setdefault(kind | bits, kind | bits)

    # ---- names

    def _add(self, name: str, member: Member, directory: bool = False) -> str | None:
        """Enter a member under its key, which is returned; None for a name that can't be one."""
        key = self._safe(name)
        if key is None:
            self._refuse(name)
            return None
        if not key:
            if not directory:
                self._note(name, "unsafe name", "a file that is called as the root is can't be reached")
            return None
        if directory:
            self._entries[key + "/"] = member
            return key
        if key in self._entries:
            self._note(name, "duplicate", f"one more entry of this name, at offset {member.offset}: the last wins")
            self._waiting.pop(key, None)
        self._entries[key] = member
        return key

    def _safe(self, name: str) -> str | None:
        """The key of a name; None if it leads, or might lead, out of the archive."""
        self._check_depth(name)
        if keys.is_key(name) and "\0" not in name:
            return name
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\0" in name:
            return None
        return "/".join(part for part in parts if part not in ("", "."))

    def _check_depth(self, name: str) -> None:
        if self._limits.beyond("max_depth", len(name) // 2) and self._limits.beyond("max_depth", name.count("/")):
            raise self._beyond("max_depth", f"a name has {name.count('/')} directories")

    def _refuse(self, name: str) -> None:
        self._note(name, "unsafe name", "it is absolute, or leads upwards: it can't be reached")
        try:
            self._refused[keys.normalize(name)] = name
        except (PermissionError, ValueError):  # no path that a user may ask for leads there
            pass

    def _add_link(self, name: str, header: Header) -> None:
        target = header.link.decode("utf-8", "surrogateescape")
        self._check_depth(target)
        member = Member(0, 0, header.mtime, _LINK_MODE, target)
        if header.type == headers.HARD_LINK:
            inside = self._safe(target)
            member = self._entries.get(inside or "") or member._replace(extra="/" + target.lstrip("/"))
            key = self._add(name, member)
            if key and inside and member.mode == _LINK_MODE and inside not in self._entries:
                self._waiting[key] = inside
        else:
            self._add(name, member)
        self._links = self._links or member.mode == _LINK_MODE

    def _resolve_waiting(self) -> None:
        """Give the hard links that come before their targets what they point to."""
        while self._waiting:
            chain = [*self._waiting.popitem()]
            while (target := self._waiting.pop(chain[-1], None)) is not None:
                chain.append(target)
            found = self._entries.get(chain[-1])
            if found is not None:
                self._entries.update(dict.fromkeys(chain[:-1], found))

    def _leave_out_links(self, tree: NameTree[Member]) -> bool:
        """Leave out links with members below their names, which are directories then; return whether there are any."""
        links = [key for key, member in self._entries.items() if stat_bits.S_ISLNK(member.mode) and tree.isdir(key)]
        for link in links:
            target = self._entries.pop(link).extra
            self._note(link, "lost link", f"to {str(target)!r}: members are below its name, which is a directory")
        return bool(links)

    def _note(self, name: str, kind: str, detail: str) -> None:
        self._problems.append(Problem(name, kind, detail))

    def _beyond(self, option: str, what: str) -> OSError:
        return self._limits.error(option, what, "open_container", self._url)

    def _corrupt(self, reason: str) -> errors.CorruptFileError:
        return errors.corrupt(self._url, reason, "open_container")


def trailing_data(end: int) -> Problem:
    """Return the problem of a file with more than zeros behind the archive's end."""
    return Problem("", "trailing data", f"there is more than zeros behind the archive's end, at offset {end}")


def _padded(size: int) -> int:
    return size + -size % BLOCK


KIND = "tar-4"
"""Of the cached index; another number is another layout."""
_HEAD = struct.Struct("<QQQ")
_ROW = struct.Struct("<QQdQI")
_HASH_SIZE = 8
_ROW_BITS = 32


class Decoding(NamedTuple):
    """The decoding of a compressed archive."""

    codec: TarCodec
    size: int
    """Decoded bytes."""
    points: SeekPoints


def pack(index: TarIndex, decoding: Decoding | None) -> list[bytes]:
    """The parts of an index, to be written one behind the other."""
    entries = index.tree.entries
    names, rows, hashes, extras, end = [], bytearray(), [], {}, 0
    for at, name in enumerate(sorted(entries)):
        member = entries[name]
        names.append(_encoded(name))
        hashes.append(crc32(names[-1]) << _ROW_BITS | at)
        end += len(names[-1])
        time = math.nan if member.mtime is None else member.mtime
        rows += _ROW.pack(member.offset, member.size, time, end, member.mode)
        if member.extra is not None:
            extras[at] = member.extra
    rest = {
        "links": index.links,
        "refused": dict(index.refused),
        "problems": index.problems,
        "end": index.end,
        "extras": extras,
        "decoding": decoding and [decoding.codec.name, decoding.size, decoding.points.spacing, _rows(decoding.points)],
    }
    text = json.dumps(rest).encode()
    hashes.sort()
    return [_HEAD.pack(len(names), end, len(text)), array("Q", hashes).tobytes(), bytes(rows), *names, text]


def unpack(view: memoryview) -> tuple[TarIndex, Decoding | None]:
    """The index in a buffer that `pack` filled; `ValueError` for any other."""
    try:
        count, name_size, rest_size = _HEAD.unpack_from(view)
        rows = _HEAD.size + count * _HASH_SIZE
        starts = rows + count * _ROW.size
        if len(view) != starts + name_size + rest_size:
            raise ValueError(f"an index of {len(view)} bytes for {count} members")
        rest = parse_json(bytes(view[starts + name_size :]))
        names = Names(view[rows:starts], view[starts : starts + name_size], count)
        extras = {
            int(at): extra if isinstance(extra, str) else _segments(extra) for at, extra in rest["extras"].items()
        }
        tree = NameTree(Members(view[_HEAD.size : rows].cast("Q"), names, extras), names)
        problems = tuple(Problem(*problem) for problem in rest["problems"])
        index = TarIndex(tree, rest["links"], rest["refused"], problems, rest["end"])
        if rest["decoding"] is None:
            return index, None
        name, size, spacing, rows = rest["decoding"]
        points = [SeekPoint(out, src, bytes.fromhex(state)) for out, src, state in rows]
        return index, Decoding(compression.codec_of_name(name), size, SeekPoints(points, spacing))
    except (struct.error, KeyError, TypeError, IndexError) as exc:
        raise ValueError(f"no index of a tar: {exc}") from exc


def _rows(points: SeekPoints) -> list[tuple[int, int, str]]:
    return [(point.out, point.src, point.resume_data.hex()) for point in points.lasting()]


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _segments(pairs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in pairs)


class Names(Sequence[str]):
    """The names in order, decoded one by one when they are asked for."""

    def __init__(self, rows: memoryview, names: memoryview, count: int) -> None:
        self.rows = rows
        self._names = names
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < self._count:
            raise IndexError(at)
        start = self._end(at - 1) if at else 0
        return str(self._names[start : self._end(at)], "utf-8", "surrogatepass")

    def _end(self, at: int) -> int:
        end: int = _ROW.unpack_from(self.rows, at * _ROW.size)[3]
        return end


class Members(Mapping[str, Member]):
    """The members by name, found by their hashes."""

    def __init__(self, hashes: memoryview, names: Names, extras: Mapping[int, Any]) -> None:
        self._hashes = hashes
        self._names = names
        self._extras = extras

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> Member:
        hashes, least = self._hashes, crc32(_encoded(name)) << _ROW_BITS
        for at in range(bisect_left(hashes, least), len(hashes)):
            row = hashes[at] - least
            if row >> _ROW_BITS:  # of another hash
                break
            if self._names[row] == name:
                return self._member(row)
        raise KeyError(name)

    def _member(self, at: int) -> Member:
        offset, size, time, _, mode = _ROW.unpack_from(self._names.rows, at * _ROW.size)
        return Member(offset, size, None if math.isnan(time) else time, mode, self._extras.get(at))


# ---- the index of an archive, from the cache directory or by a pass

_WORTH_KEEPING = 32  # members: the pass over fewer costs next to nothing

_Scanned = tuple[TarIndex, Decoding | None]


def load(parent: FS, key: str, blob: Blob, limits: Limits) -> tuple[TarIndex, DecodedBlob | None]:
    """Return the index of an archive, and its decoded content if it is compressed; kept for the next who asks."""
    identity = blob.strong_identity  # asked before anything is read
    found = _cached(blob.identity)
    index, decoding = found or _scan(blob, limits)
    if found is None and identity is not None and _worth_keeping(index, decoding):
        indexes.save(KIND, identity, pack(index, decoding))
        if (cached := _cached(identity)) is not None:
            index = cached[0]  # mapped: one copy for all processes
    if decoding is None:
        return index, None
    codec, size, points = decoding
    return index, codec.blob(parent, key, blob, codec.codec.within(limits), size, blob.version, points)


def _cached(identity: Identity | None) -> _Scanned | None:
    """Return what an earlier pass over this version of the archive found."""
    if identity is None or (view := indexes.load(KIND, identity)) is None:
        return None
    try:
        return unpack(view)
    except ValueError:  # damaged: as good as none
        return None


def _worth_keeping(index: TarIndex, decoding: Decoding | None) -> bool:
    """Return whether reading the index from the cache would cost less than another pass over the archive."""
    return len(index.tree) >= _WORTH_KEEPING or (decoding is not None and decoding.size > SPACING)


def _scan(blob: Blob, limits: Limits) -> _Scanned:
    """Pass over an archive; return its index, and if it is compressed, how it is decoded."""
    plain = PlainSource(blob)
    start = plain.read(BLOCK, 0)
    codec = None if headers.is_header(start) else compression.codec_of_content(start[:MAGIC_SIZE], blob.url)
    if codec is None:
        return HeaderScanner(plain, blob.url, limits).run(), None
    points = SeekPoints()
    source = StreamSource(Cursor(blob, codec.codec.within(limits), points), blob, limits)
    index = HeaderScanner(source, blob.url, limits).run()
    if source.drain() and trailing_data(index.end) not in index.problems:
        index = index._replace(problems=(*index.problems, trailing_data(index.end)))
    compression.add_blocks(points, codec, blob, source.end)
    return index, Decoding(codec, source.end, points)
