"""One entry of an archive, as its central directory tells of it."""

from __future__ import annotations

import stat as stat_bits
from typing import NamedTuple

from ...core.fs import FileStat
from . import records

SMALL = 8 * 1024 * 1024
"""Members up to this size are read whole, and decompressed at their first read."""
SLACK = 64
"""Bytes that a local header may be longer than guessed (Info-ZIP's, say, has more timestamps than the central one)."""
ENCRYPTION = records.FLAG_ENCRYPTED | records.FLAG_STRONG_ENCRYPTION | records.FLAG_MASKED
UNREADABLE = ENCRYPTION | records.FLAG_PATCH
"""Flags of a member that is encrypted, and of one that can't be read, for that or as a patch of another file."""

Whole = tuple[int, int, bytes, bytes, int, int, int, int, int, int]
"""How a small member is read whole, at once.

The offset of its local header, and how many bytes are read from there; what the header starts with, up to the length of
the name; the name; the header's size at most; then compressed size, size, CRC-32, method and flags of the member. One
is made for each member that is read: a named tuple takes three times as long to be made, and twice to be taken apart.
"""


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
        when = records.seconds_of(self.dos) if modified is None else float(modified)
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
        return kind | (usual & ~0o222 if self.attributes & records.DOS_READ_ONLY else usual)
