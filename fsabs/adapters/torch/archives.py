"""The archives of `torch.save`, compared with the checksums that they have: torch's reader looks at none of them."""

from __future__ import annotations

import struct
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from ...containers.decoding import crc32
from ...core import errors
from ...core.blobs import Blob
from ...core.remembering import RememberingFile, remembering
from ...core.threads import in_threads
from ...paths import Path

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC = b"PK\x03\x04"
_HEADER = struct.Struct("<26xHH")  # of a member: the sizes of its name and its extra field
_ENCRYPTED = 0x2061  # of the flags: encrypted, or a patch
_DIRECTORY = 0x10  # of the attributes
_SMALLEST = 98  # bytes of an archive of one member
_PIECE = 1024 * 1024  # bytes that are only compared, at once: they stay in a processor's cache
_READERS = 4


class CheckedArchive(RememberingFile):
    """An archive whose members are compared with their checksums while torch reads them into the tensors' memory.

    torch reads the header of a member, and then its content where the header says that it is. A file that is no
    archive, as torch wrote them before version 1.6, has no checksums, and is read as it is.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._url: str = file.name
        self._blob: Blob = file.raw.blob
        self._members: dict[int, zipfile.ZipInfo] = {}  # by the offsets of their headers
        self._directory = 0  # the offset that the contents of members end before
        self._next: zipfile.ZipInfo | None = None  # of which the header was read last
        self.is_archive: bool = False
        """True for a file that has checksums."""
        try:
            with remembering(self):  # zipfile drops errors of the file
                self._read_directory()
        except OSError as exc:
            if exc.errno is not None:  # the store's
                raise
            raise errors.corrupt(self._url, str(exc), "load") from None
        except Exception as exc:  # of any kind: what is damaged may say anything
            raise errors.corrupt(self._url, str(exc), "load") from None

    def _read_directory(self) -> None:
        head = self.read(len(_MAGIC))
        large_enough = self._blob.size >= _SMALLEST  # else zipfile seeks before the start
        self.is_archive = large_enough and (head == _MAGIC or zipfile.is_zipfile(self))
        if self.is_archive:
            with zipfile.ZipFile(self) as archive:
                members = archive.infolist()
                self._directory = archive.start_dir
                if not all(self._is_possible(member) for member in members):
                    raise zipfile.BadZipFile("the directory of members is damaged")
                if any(member.compress_type for member in members):  # which torch does not write
                    if (damaged := archive.testzip()) is not None:
                        raise zipfile.BadZipFile(f"{damaged!r} is not as its checksum says")
                    members = []
            self._members = {member.header_offset: member for member in members}
        self.seek(0)

    def _is_possible(self, member: zipfile.ZipInfo) -> bool:
        """Return whether a member lies in the archive, isn't encrypted, and is a directory only if its name says so."""
        end = member.header_offset + _HEADER.size + member.compress_size
        plain = not member.flag_bits & _ENCRYPTED and (member.is_dir() or not member.external_attr & _DIRECTORY)
        return plain and member.header_offset >= 0 and end <= self._directory

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into `buffer`, and compare what is the content of a member."""
        return self._call(self._readinto, memoryview(buffer))

    def _readinto(self, view: memoryview) -> int:
        position: int = self.file.tell()
        member, self._next = self._next, None
        if member is None or len(view) != member.file_size:
            if len(view) == _HEADER.size and position in self._members:
                self._next = self._members[position]
            elif member is not None:  # a part of it
                self._check(member)
            read: int = self.file.readinto(view)
            return read
        at = 0
        while at < len(view) and (read := self.file.readinto(view[at:])):  # a store is read in parallel
            at += read
        if crc32(view[:at]) != member.CRC:
            raise self._damaged(member)
        return at

    def _check(self, member: zipfile.ZipInfo) -> None:
        """Raise if the content of a member isn't as its checksum says, or its name not that of the directory."""
        blob, at = self._blob, member.header_offset
        header = blob.pread(_HEADER.size, at)
        if not header.startswith(_MAGIC) or len(header) < _HEADER.size:
            raise self._damaged(member)
        name_size, extra_size = _HEADER.unpack(header)
        name = blob.pread(name_size, at + _HEADER.size)
        at += _HEADER.size + name_size + extra_size
        size, crc = member.file_size, 0
        if name != member.orig_filename.encode() or size != member.compress_size or at + size > self._directory:
            raise self._damaged(member)
        for start in range(0, size, _PIECE):
            crc = crc32(blob.pread(min(_PIECE, size - start), at + start), crc)
        if crc != member.CRC:
            raise self._damaged(member)

    def check(self, local: str | None = None) -> None:
        """Compare all members with their checksums, and raise if torch can't open the archive or finds others.

        `local` is the file's path on this machine, if it has one: torch opens that by itself, where no signal's
        exception comes to a call of C++.
        """
        for _ in in_threads(self._check, self._members.values(), _READERS):
            pass
        if self.is_archive:
            self.file.seek(0)
            try:
                if local is not None:
                    torch._C.PyTorchFileReader(local).get_all_records()
                    return
                with remembering(RememberingFile(self.file)) as unchecked:
                    torch._C.PyTorchFileReader(unchecked).get_all_records()
            except RuntimeError as exc:
                reason = f"torch can't open the archive: {exc}".partition("\n")[0]
                raise errors.corrupt(self._url, reason, "load") from None

    def _damaged(self, member: zipfile.ZipInfo) -> OSError:
        return errors.corrupt(self._url, f"{member.filename!r} is not as its checksum says", "load")


def check_archive(path: Path, local: str | None = None) -> None:
    """Read a file whole, and raise `CorruptFileError` if it is damaged; `local` is its path on this machine, if any."""
    with path.open("rb") as file:
        CheckedArchive(file).check(local)


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive, as `torch.save` writes them, which has checksums."""
    with path.open("rb") as file:
        return CheckedArchive(file).is_archive
