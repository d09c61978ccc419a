"""The records of a zip file as they stand in it, shared by reading and writing.

Source: PKWARE's APPNOTE.TXT 6.3.10, and Info-ZIP's `extrafld.txt` for the extra fields.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import struct

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
METHODS = {
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
