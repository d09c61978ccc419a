"""A tar being written: members in the order in which they are committed, the same bytes for the same members.

The headers are the standard library's (`tarfile`, pax format); the compressor is ours, so that neither a file name nor
the time of day gets into the archive. Owner, group and permissions are fixed: 0, 0, and 0644 or 0755.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Callable, Container, Iterator
from typing import IO, Any, cast

from ...core import keys, process
from ...core.blobs import Blob
from ...core.files import buffered
from ...core.fs import FileStat
from ...core.writing import WriteFile
from ..base import WrittenTree
from .compression import TarCodec
from .index import Member, TarIndex

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
_COPY_SIZE = 1024 * 1024


class _Compressed:
    """The file that `tarfile` writes to, which compresses into another file, and counts."""

    def __init__(self, out: WriteFile, kind: TarCodec, level: int, timestamp: float) -> None:
        self._out = out
        self._encoder = kind.encoder(level, timestamp)
        self._size = 0

    def write(self, data: bytes) -> int:
        """Take all of `data`."""
        if packed := self._encoder.compress(data):
            self._out.write(packed)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """The number of bytes taken."""
        return self._size

    def finish(self) -> None:
        """Write the end of the frame."""
        self._out.write(self._encoder.flush())


class _PlainHeaders:
    """The headers of files that need one block: what `tarfile` writes for them, in a tenth of the time."""

    def __init__(self, info: tarfile.TarInfo) -> None:
        """Take all but name and size from `info`."""
        block = info.tobuf(tarfile.PAX_FORMAT)
        self._fits = len(block) == tarfile.BLOCKSIZE  # a time with fractions is in an extended header
        self._owner, self._time, self._rest = block[100:124], block[136:148], block[155:]
        self._sum = sum(self._owner + self._time + self._rest) + 7 * ord(" ")  # the checksum's own field is blanks

    def header(self, key: str, size: int) -> bytes | None:
        """Return the header of a file; None if it needs another one."""
        if not (self._fits and len(key) <= 100 and key.isascii() and size < 8**11):
            return None
        name, digits = key.encode(), b"%011o\0" % size
        checksum = b"%06o\0" % (self._sum + sum(name) + sum(digits))
        return b"".join((name.ljust(100, b"\0"), self._owner, digits, self._time, checksum, self._rest))


class TarSink:
    """The end of an archive that members are added to, from any thread, one at a time."""

    def __init__(
        self,
        out: WriteFile,
        compress: Callable[[WriteFile], _Compressed] | None,
        timestamp: float,
        blob: Blob | None = None,
        old: TarIndex | None = None,
        replace: bool = False,
    ) -> None:
        """Members are added to those in `blob`, an archive without its end whose index is `old`, if there is one.

        With `replace`, a later member of a name takes the place of an earlier one, which stays in the file.
        """
        self._old = blob
        """What is still to be copied."""
        self._removed: set[str] = set()
        self._compressed = compress(out) if compress is not None else None
        self._sink: Any = self._compressed or out
        self._timestamp = timestamp
        self._plain = _PlainHeaders(self._header("", tarfile.REGTYPE, FILE_MODE, 0))
        self._tar = tarfile.TarFile(
            mode="w",
            fileobj=cast(IO[bytes], self._sink),
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
            copybufsize=_COPY_SIZE,
        )
        self._reserved: set[str] = set()
        self._failure: BaseException | None = None
        self._lock = process.Lock()
        entries = old.tree.entries if old is not None else {}
        self.names: WrittenTree = WrittenTree(
            timestamp, entries if replace else None, lambda name: _stat_of(name, entries[name])
        )
        """What has been added, with what is in the archive that is added to."""

    # ---- names

    def reserve(self, key: str, exclusive: bool) -> None:
        """Claim the name of a file; `FileExistsError`, `IsADirectoryError`, `NotADirectoryError`."""
        with self._lock:
            self._check_reserved(key)
            self.names.check_file(key, exclusive)
            self._reserved.add(key)

    def _check_reserved(self, key: str) -> None:
        if key in self._reserved:
            raise FileExistsError(errno.EEXIST, "the archive has a member of this name that is being written")
        if not self._reserved.isdisjoint(keys.ancestors(key)):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def release(self, key: str) -> None:
        """Give up a claimed name. Takes no lock: the garbage collector may be what calls it."""
        self._reserved.discard(key)

    def remove(self, key: str) -> None:
        """Leave a file, or a directory without members, out of the copy of the old archive."""
        with self._lock:
            if key in self.names and self._old is None:
                reason = "a tar's members are removed before the first one is added: close it, and open it again"
                raise io.UnsupportedOperation(errno.EOPNOTSUPP, reason)
            self.names.remove(key)
            self._removed |= {key, key + "/"}

    # ---- members

    def add(self, key: str, file: IO[bytes], size: int) -> None:
        """Write the member `key`, `size` bytes of `file` from its position on."""
        with self._lock:
            self._add(self._header(key, tarfile.REGTYPE, FILE_MODE, size), file)
            self.names.add(key, size)

    def write_bytes(self, key: str, data: bytes) -> None:
        """Write the member `key` with the content `data`, as `add` does."""
        header = self._plain.header(key, len(data))
        if header is None:
            self.add(key, io.BytesIO(data), len(data))
            return
        member = b"".join((header, data, bytes(-len(data) % tarfile.BLOCKSIZE)))
        with self._lock:
            self._write(self._sink.write, member)
            self._tar.offset += len(member)
            self.names.add(key, len(data))

    def add_directory(self, key: str) -> None:
        """Write an entry for the directory `key`, whose parent needs none; `FileExistsError`, `NotADirectoryError`."""
        with self._lock:
            self._check_reserved(key)
            self.names.check_directory(key)
            self._add(self._header(key, tarfile.DIRTYPE, DIRECTORY_MODE, 0), None)
            self.names.add(key, FileStat.of_directory("", self._timestamp))

    def finish(self) -> None:
        """Write the end; raises what an earlier member failed with, since half of it may be in the archive."""
        with self._lock:
            self._write(self._tar.close)
            if self._compressed is not None:
                self._compressed.finish()

    def _header(self, key: str, kind: bytes, mode: int, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(key)
        info.type, info.mode, info.size = kind, mode, size
        time = self._timestamp
        info.mtime = int(time) if time == int(time) else cast(Any, time)
        return info

    def _copy_old(self) -> None:
        """Begin with the members of the old archive, but for those that are removed."""
        if self._old is None:
            return
        blob, self._old = self._old, None
        for start, stop in _spans(blob, self._removed) if self._removed else [(0, blob.size)]:
            for offset in range(start, stop, _COPY_SIZE):
                self._sink.write(blob.pread(min(_COPY_SIZE, stop - offset), offset))
            self._tar.offset += stop - start

    def _add(self, info: tarfile.TarInfo, file: IO[bytes] | None) -> None:
        self._write(self._tar.addfile, info, file)
        self._tar.getmembers().clear()  # tarfile's own list of all members, which is not used

    def _write(self, write: Callable[..., object], *arguments: object) -> None:
        """Call what writes, behind the old members; what it fails with is raised again by all that follows."""
        if self._failure is not None:
            raise self._failure
        try:
            self._copy_old()
            write(*arguments)
        except BaseException as exc:
            self._failure = exc
            raise


def _stat_of(name: str, member: Member) -> FileStat:
    if name.endswith("/"):
        return FileStat.of_directory(name, member.mtime, member.mode)
    return FileStat(name, member.size, False, member.mtime, member.mode)


def _spans(blob: Blob, removed: Container[str]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a plain archive that stay, as start and stop, without the members of some keys.

    A global header belongs to all that follow, and stays. The content of a hard link lies in the member that it links
    to: removing that one alone is `io.UnsupportedOperation`.
    """
    start = 0
    with buffered(blob) as file, tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as old:
        while (member := old.next()) is not None:
            old.members = []  # type: ignore[attr-defined]  # a list of all, which is not used
            key = _key_of(member.name)
            if key in removed or key + "/" in removed:
                yield start, member.offset
                start = old.offset
            elif member.islnk() and _key_of(member.linkname) in removed:
                reason = f"{member.linkname} has the content of {member.name}, a hard link to it: remove that, too"
                raise io.UnsupportedOperation(errno.EOPNOTSUPP, reason)
        yield start, blob.size


def _key_of(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def compressor(kind: TarCodec, level: int | None, timestamp: float) -> Callable[[WriteFile], _Compressed]:
    """Return the function that makes a compressor of `kind`; `ValueError` for a level that it doesn't have."""
    chosen = kind.default_level if level is None else level
    if chosen not in kind.levels:
        raise ValueError(f"{kind.name} has the levels {kind.levels[0]} to {kind.levels[-1]}, not {level}")
    return lambda out: _Compressed(out, kind, chosen, timestamp)
