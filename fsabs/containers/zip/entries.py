"""One entry of an archive, as its central directory tells of it, and the row of fixed size that it is kept in."""

from __future__ import annotations

import stat as stat_bits
import struct
from typing import NamedTuple

from ...fs import FileStat
from . import records

ROW = struct.Struct("<7q6L2HB")
"""An `Entry`, field by field."""
ROW_FIELDS = (
    ("offset", "<i8"), ("limit", "<i8"), ("compressed", "<i8"), ("size", "<i8"), ("record", "<i8"), ("modified", "<i8"),
    ("name", "<i8"), ("length", "<u4"), ("tag", "<u4"), ("crc", "<u4"), ("attributes", "<u4"), ("dos", "<u4"),
    ("header", "<u4"), ("method", "<u2"), ("flags", "<u2"), ("host", "u1"),
)  # fmt: skip
"""The same as a NumPy type."""
NO_TIME = -(2**63)
"""`Entry.modified` where there is no extended timestamp."""


class Entry(NamedTuple):
    """What the central directory says of one member; offsets count from the start of the file, sizes are in bytes."""

    offset: int
    """Of the local header."""
    limit: int
    """Where the next member, or the directory, starts; 0 if another entry claims the same offset."""
    compressed: int
    size: int
    record: int
    """Of the entry's record, from the start of the directory."""
    modified: int
    """The extended timestamp, seconds since 1970."""
    name: int
    """Where the name is in the index's blob of names."""
    length: int
    """The name's length in bytes."""
    tag: int
    """Of the name as it stands in the headers: the lower half of its hash."""
    crc: int
    """CRC-32 of the content."""
    attributes: int
    """The external ones: Unix type and permissions in the upper half, DOS's in the lower."""
    dos: int
    """DOS date and time, taken as UTC."""
    header: int
    """The local header's size if it has the central one's name and extra fields, a guess that is mostly right."""
    method: int
    flags: int
    host: int
    """The system that the entry was made on."""

    def stat(self, name: str, version: str | None) -> FileStat:
        """The entry's stat; `version` is the archive's."""
        directory = name.endswith("/")
        modified = records.seconds_of(self.dos) if self.modified == NO_TIME else float(self.modified)
        if directory:
            return FileStat.of_directory(name[:-1], modified, self._mode(stat_bits.S_IFDIR, 0o755))
        kind = stat_bits.S_IFLNK if stat_bits.S_ISLNK(self.attributes >> 16) else stat_bits.S_IFREG
        return FileStat(name, self.size, False, modified, self._mode(kind, 0o644), self.version(version))

    def version(self, archive: str | None) -> str:
        """The member's version, in an archive of version `archive`."""
        own = f"{self.crc:08x}-{self.size:x}-{self.offset:x}"
        return f"{archive}:{own}" if archive else own

    def _mode(self, kind: int, usual: int) -> int:
        unix = self.attributes >> 16
        if unix:
            return kind | stat_bits.S_IMODE(unix)
        return kind | (usual & ~0o222 if self.attributes & records.DOS_READ_ONLY else usual)
