"""The records of a zip file as they stand in it, shared by reading and writing: layouts, names, entries, headers.

Source: PKWARE's APPNOTE.TXT 6.3.10, and Info-ZIP's `extrafld.txt` for the extra fields.

Names, from the bytes in the archive to keys. A name that would lead out of the archive (`../x`, `/x`, `C:\\x`) is
refused. One that is only not normal is brought into its normal form: `./a//b` is `a/b`, and a backslash in an archive
made on Windows is a separator, as Info-ZIP's `unzip` has it; elsewhere it is a character like any other. A name that
isn't flagged as UTF-8 is in code page 437, but for what Info-ZIP's and macOS's tools write: UTF-8 without the flag,
made on Unix.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import re
import stat as stat_bits
import struct
from typing import NamedTuple

from ...core.fs import FileStat

# ---- layouts

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
END_SIGNATURE = b"PK\x05\x06"
END64_SIGNATURE = b"PK\x06\x06"
LOCATOR_SIGNATURE = b"PK\x06\x07"
DIGITAL_SIGNATURE = b"PK\x05\x05"

LOCAL = struct.Struct("<4s3H4L2H")
"""Signature, version needed, flags, method, DOS time, CRC-32, compressed size, size, lengths of name and extra."""
CENTRAL = struct.Struct("<4s4H4L5H2L")
"""Signature, version made by, version needed, flags, method, DOS time, CRC-32, compressed size, size, lengths of name,
extra and comment, disk, internal attributes, external attributes, offset of the local header."""
END = struct.Struct("<4s4H2LH")
"""Signature, disk, directory's disk, entries on this disk, entries, directory's size and offset, comment's length."""
END64 = struct.Struct("<4sQ2H2L4Q")
"""Signature, size of the rest, versions, disk, disk of the directory, entries here, entries, size, offset."""
LOCATOR = struct.Struct("<4sLQL")
"""Signature, disk of the zip64 end record, its offset, number of disks."""

MAX16 = 0xFFFF
MAX32 = 0xFFFFFFFF
"""In a 32-bit field: the value is in the zip64 extra field."""

EXTRA_ZIP64 = 0x0001
EXTRA_TIMES = 0x5455
EXTRA_UNICODE_PATH = 0x7075

FLAG_ENCRYPTED = 1 << 0
FLAG_LZMA_END_MARK = 1 << 1
FLAG_PATCH = 1 << 5
FLAG_STRONG_ENCRYPTION = 1 << 6
FLAG_UTF8 = 1 << 11
FLAG_MASKED = 1 << 13

STORED = 0
DEFLATED = 8
BZIP2 = 12
LZMA = 14
ZSTANDARD = 93
READABLE = frozenset((STORED, DEFLATED, BZIP2, LZMA, ZSTANDARD))
UNREADABLE_METHODS = {
    1: "shrink",
    2: "reduce",
    3: "reduce",
    4: "reduce",
    5: "reduce",
    6: "implode",
    9: "deflate64",
    10: "PKWARE implode",
    16: "IBM CMPSC",
    18: "IBM TERSE",
    19: "IBM LZ77",
    20: "old zstd",
    94: "MP3",
    95: "xz",
    96: "JPEG",
    97: "WavPack",
    98: "PPMd",
    99: "AES encryption",
}
"""Methods that are known by name and can't be read here."""

HOST_UNIX = 3
HOSTS_OF_UNIX = (HOST_UNIX, 19)
"""Unix and macOS."""
HOSTS_WITH_BACKSLASH = (0, 10, 11, 14)
"""FAT, NTFS, MVS (as some Windows tools say) and VFAT."""

DOS_DIRECTORY = 0x10
DOS_READ_ONLY = 0x01


def dos_time(seconds: float) -> int:
    """Return the DOS date and time (date in the upper 16 bits) of `seconds` since 1970 in UTC, to 2 seconds."""
    try:
        when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        when = None
    if when is None or not 1980 <= when.year <= 2107:
        raise ValueError(f"a zip file's timestamps are of 1980 to 2107, which {seconds} is not")
    date = (when.year - 1980) << 9 | when.month << 5 | when.day
    return date << 16 | when.hour << 11 | when.minute << 5 | when.second // 2


@functools.lru_cache(maxsize=4096)
def seconds_of(dos: int) -> float | None:
    """Return a DOS date and time as seconds since 1970, in UTC (the format has no zone); None if it is invalid."""
    date, time = dos >> 16, dos & MAX16
    try:
        when = datetime.datetime(
            1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, min(time % 32 * 2, 59)
        )
    except ValueError:
        return None
    return float(calendar.timegm(when.timetuple()))


# ---- names

_DRIVE = re.compile(r"[A-Za-z]:[/\\]").match
_DRIVE_IN_DOS = re.compile(r"[A-Za-z]:").match


def judge(name: str, dos: bool = False) -> tuple[str, str | None]:
    """The normal form of an entry's name, and why the name is refused, or None.

    With `dos` the entry was made on a system where the backslash separates.
    """
    if "\0" in name:
        return name, "it holds a NUL"
    text = name.replace("\\", "/") if dos else name
    if text.startswith(("/", "\\")):
        return name, "it is absolute"
    if _DRIVE(text) or (dos and _DRIVE_IN_DOS(text)):
        return name, "it names a drive"
    if ".." in re.split(r"[/\\]", text):
        return name, "it leads out of its directory by '..'"
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts:
        return name, "it names nothing"
    return "/".join(parts) + "/" * text.endswith(("/", "/.")), None


def decoded(name: bytes, flags: int, host: int) -> tuple[str, str | None]:
    """A name, and what is wrong with how it is written."""
    flagged = flags & FLAG_UTF8
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return name.decode("cp437"), "it is flagged as UTF-8 and is not: read as code page 437" if flagged else None
    if flagged:
        return text, None
    if host in HOSTS_OF_UNIX:
        return text, "it is UTF-8 and not flagged as such"
    return name.decode("cp437"), None


# ---- an entry of the directory

SMALL = 8 * 1024 * 1024
"""Members up to this size are read whole, and decompressed at their first read."""
SLACK = 64
"""Bytes that a local header may be longer than guessed (Info-ZIP's, say, has more timestamps than the central one)."""
ENCRYPTION = FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED
UNREADABLE = ENCRYPTION | FLAG_PATCH
"""Flags of a member that is encrypted, and of one that can't be read, for that or as a patch of another file."""

SmallRead = tuple[int, int, bytes, bytes, int, int, int, int, int, int]
"""One read that has all of a small member.

The offset of its local header, and how many bytes are read from there; what the header starts with, up to the length of
the name; the name; the header's size at most; then compressed size, size, CRC-32, method and flags of the member. One
is made for each member that is read: a named tuple takes three times as long to be made, and twice to be taken apart.
"""


class ArchiveLayout(NamedTuple):
    """The offsets and sizes of an archive's parts in its file, in bytes."""

    start: int
    """The offset of the central directory."""
    size: int
    """The directory's size."""
    entries: int
    """The number of entries; as in the end record, until the directory has been read."""
    zip64: bool
    """Whether there is a zip64 end record."""
    shift: int
    """The number to add to the offsets in the directory: the prefix's size, where they don't count it."""
    comment: bytes
    junk: int
    """Bytes behind the archive's end that belong to nothing."""


class ZipEntry(NamedTuple):
    """An entry of the central directory; offsets count from the start of the file, sizes are in bytes."""

    offset: int
    """Of the local header."""
    limit: int
    """Where the next member, or the directory, starts; 0 if another entry claims the same offset."""
    compressed: int
    size: int
    crc: int
    """CRC-32 of the content."""
    method: int
    flags: int
    header: int
    """The local header's size if it has the central one's name and extra fields, a guess that is mostly right."""
    fields: bytes
    """The fields that both headers have, from the version needed to the length of the name."""
    name: bytes
    """The name as it stands in the headers."""
    record: int
    """Of the entry's record, from the start of the directory."""
    dos: int
    """DOS date and time, taken as UTC."""
    attributes: int
    """The external ones: Unix type and permissions in the upper half, DOS's in the lower."""

    def stat(self, name: str, version: str | None, modified: int | None) -> FileStat:
        """The entry's stat; `version` is the archive's, `modified` the extended timestamp, if there is one."""
        when = seconds_of(self.dos) if modified is None else float(modified)
        if name.endswith("/"):
            return FileStat.of_directory(name[:-1], when, self._mode(stat_bits.S_IFDIR, 0o755))
        kind = stat_bits.S_IFLNK if stat_bits.S_ISLNK(self.attributes >> 16) else stat_bits.S_IFREG
        return FileStat(name, self.size, False, when, self._mode(kind, 0o644), self.version(version))

    def version(self, archive: str | None) -> str:
        """The member's version, in an archive of version `archive`."""
        own = f"{self.crc:08x}-{self.size:x}-{self.offset:x}"
        return f"{archive}:{own}" if archive else own

    def _mode(self, kind: int, usual: int) -> int:
        unix = self.attributes >> 16
        if unix:
            return kind | stat_bits.S_IMODE(unix)
        return kind | (usual & ~0o222 if self.attributes & DOS_READ_ONLY else usual)


# ---- the headers of a written member

LIMIT32 = MAX32
"""From these numbers on a field is moved to a zip64 record."""


_VERSIONS = {STORED: 20, DEFLATED: 20, BZIP2: 46, LZMA: 63}


VERSION_ZIP64 = 45


class MemberHeader(NamedTuple):
    """The fields of a member that both of its headers have."""

    name: bytes
    method: int
    dos: int
    crc: int
    compressed: int
    size: int
    mode: int

    def local(self) -> bytes:
        """The local header."""
        name, method, dos, crc, compressed, size, _ = self
        if compressed < LIMIT32 and size < LIMIT32:
            fixed = (_VERSIONS[method], self._flags(), method, dos, crc, compressed, size)
            return LOCAL.pack(LOCAL_SIGNATURE, *fixed, len(name), 0) + name
        extra = struct.pack("<2H2Q", EXTRA_ZIP64, 16, size, compressed)
        fixed = (self._version(True), self._flags(), method, dos, crc, MAX32, MAX32)
        return LOCAL.pack(LOCAL_SIGNATURE, *fixed, len(name), len(extra)) + name + extra

    def central(self, offset: int) -> bytes:
        """The directory's record, the local header being at `offset`."""
        size, compressed, where, extra, big = self.size, self.compressed, offset, b"", False
        if max(size, compressed, where) >= LIMIT32:
            fields = (size, compressed, where)
            large = [number for number in fields if number >= LIMIT32]
            extra, big = struct.pack(f"<2H{len(large)}Q", EXTRA_ZIP64, 8 * len(large), *large), True
            size, compressed, where = (number if number < LIMIT32 else MAX32 for number in fields)
        version = self._version(big)
        attributes = self.mode << 16 | (DOS_DIRECTORY if stat_bits.S_ISDIR(self.mode) else 0)
        fixed = (HOST_UNIX << 8 | version, version, self._flags(), self.method, self.dos, self.crc, compressed)
        lengths = (size, len(self.name), len(extra), 0, 0, 0)
        record = CENTRAL.pack(CENTRAL_SIGNATURE, *fixed, *lengths, attributes, where)
        return record + self.name + extra

    def _version(self, big: bool) -> int:
        return max(_VERSIONS[self.method], VERSION_ZIP64 if big else 0)

    def _flags(self) -> int:
        utf8 = 0 if self.name.isascii() else FLAG_UTF8
        return utf8 | (FLAG_LZMA_END_MARK if self.method == LZMA else 0)


class PlainHeaders:
    """The headers of a whole archive's ordinary files: those of `MemberHeader`, in a third of the time.

    All but name, CRC, sizes and offset are packed once.
    """

    def __init__(self, method: int, dos: int, mode: int) -> None:
        header = MemberHeader(b"", method, dos, 0, 0, 0, mode)
        self._local = header.local()[: -_LOCAL_REST.size]
        self._central = header.central(0)[: -_CENTRAL_REST.size]
        self._attributes = mode << 16

    def pack(self, name: bytes, crc: int, compressed: int, size: int, offset: int) -> tuple[bytes, bytes] | None:
        """Return the local header and the directory's record, each without the name that follows it.

        None if the member needs others. `offset` is that of the local header.
        """
        if compressed >= LIMIT32 or size >= LIMIT32 or offset >= LIMIT32 or not name.isascii():
            return None
        numbers, length = (crc, compressed, size), len(name)
        return (
            self._local + _LOCAL_REST.pack(*numbers, length, 0),
            self._central + _CENTRAL_REST.pack(*numbers, length, 0, 0, 0, 0, self._attributes, offset),
        )


_LOCAL_REST = struct.Struct("<3L2H")
"""The fields of `LOCAL` from the CRC on."""
_CENTRAL_REST = struct.Struct("<3L5H2L")
"""The fields of `CENTRAL` from the CRC on."""
