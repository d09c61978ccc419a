"""Files of this machine, and whatever is mounted on it.

A file is written beside its target under a hidden name that listings leave out, and moved over it at `close()`; a large
one has no name before, where Linux has unnamed files (`O_TMPFILE`). What a `kill -9` leaves of hidden files, the next
writer in the folder removes (`partials.py`). Blobs read by `os.pread`, which has no
position to share, so that an open file is good in threads and after a fork as it is.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import math
import os
import stat as stat_bits
from collections.abc import Iterator, Sequence
from typing import Any

from .. import descriptors, errors, identity, keys, mounts, partials, process
from ..blobs import Blob, BytesBlob
from ..files import PARTIAL_SUFFIX as PARTIAL_SUFFIX
from ..files import Writer
from ..fs import FS, Capabilities, FileStat, Path
from . import links as link_rules
from . import scanning
from .local_resuming import ResumedWriter
from .local_writers import AppendWriter, LocalWriter, target, write_at_once
from .update import UpdateFile

_SMALL = 1 << 16  # bytes; as much as a page has anywhere
_ONE_READ = 1 << 30  # bytes; Linux gives at most 2 GiB in one

_WRITTEN_AT_ONCE = 1 << 20  # bytes; a larger file is written without a name, so that a kill leaves nothing of it
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class Local(FS):
    """The local filesystem below the directory `cwd` (the process's own by default, then with `/` as the root).

    `create` makes the directory; `fsync` has every written file flushed to the disk before it becomes visible, so that
    it survives a loss of power and not only of the process. `links` tells which symbolic links are followed: all of
    them (`"follow"`), those that stay `"inside"` of the FS's root, or none (`"refuse"`); others are a
    `PermissionError`.
    """

    scheme = "file"
    capabilities: Capabilities = Capabilities(
        write=True,
        exclusive=True,
        replace=True,
        append=True,
        update=True,
        mkdir=True,
        rename=True,
        remove=True,
        last_modified=True,
        settable_times=True,
        ordered=False,
        versions=True,
    )

    def __init__(
        self, cwd: Path | None = None, *, create: bool = False, fsync: bool = False, links: str = "follow"
    ) -> None:
        self._links = link_rules.parsed(links)
        self._follows_all_links = self._links == "follow"
        self._fsync = fsync
        self._cwd = keys.normalize(os.getcwd() if cwd is None else os.path.abspath(os.fspath(cwd)))
        if cwd is not None:
            self._root = self._cwd
            if create:
                self.makedirs("", exist_ok=True)

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Local:
        """`file:///path`; the only host that a URL may name is `localhost`."""
        if authority not in ("", "localhost"):
            raise ValueError(f"a file URL names no host: file://{authority}{path} (file:///path has three slashes)")
        return cls(path, **options)

    def _check_links(self, key: str, root: str, operation: str) -> None:
        try:
            link_rules.check(key, root, self._links, last=operation not in ("remove", "rename"))
        except OSError as exc:
            self._named(exc, operation, key)
            raise

    def _url(self, key: str) -> str:
        return "file:///" + keys.to_url_path(key)

    def _resolved_store(self) -> str:
        return f"file {_machine()}"

    def _describe_store(self) -> dict[str, str]:
        kind = mounts.filesystem_of("/" + self._root)
        return {"filesystem": f"{kind}, on a network" if mounts.is_network(kind) else kind or "unknown"}

    def _is_settled(self, version: str) -> bool:
        modified, changed = version.split("-")[-3:-1]
        return identity.is_older_than_a_tick(max(int(modified, 16), int(changed, 16)) / 1e9)

    def _stat(self, key: str) -> FileStat:
        path = "/" + key
        try:
            status = os.stat(path)
        except OSError:
            status = os.lstat(path)  # a link to nothing is there as what it is, as in a listing
            if not stat_bits.S_ISLNK(status.st_mode):
                raise
        return _to_stat(keys.name(key), status)

    def _list(self, key: str) -> Iterator[FileStat]:
        found = scanning.stats("/" + key, _entry)
        if self._links != "follow":
            return (link_rules.shown(stat, "/" + key, "/" + self._root, self._links) for stat in found)
        return found

    def _list_names(self, key: str) -> Iterator[str]:
        return scanning.names("/" + key) if self._links == "follow" else super()._list_names(key)

    def _walk(self, key: str) -> Iterator[FileStat]:
        if self._links == "follow":
            return scanning.walk_stats("/" + key, _entry, self.limits)
        root, links = "/" + self._root, self._links

        def shown(entry: os.DirEntry[str]) -> FileStat:
            return link_rules.shown(_entry(entry), os.path.dirname(entry.path), root, links)

        return scanning.walk_stats("/" + key, shown, self.limits)

    def _walk_names(self, key: str) -> Iterator[str]:
        return scanning.walk_names("/" + key, self.limits) if self._links == "follow" else super()._walk_names(key)

    def _leads_back(self, key: str) -> bool:
        return scanning.leads_back("/" + key)

    def _open_blob(self, key: str) -> Blob:
        held = descriptors.HeldDescriptors()
        try:
            fd = descriptors.open_into(held, "/" + key, os.O_RDONLY | os.O_NONBLOCK)
            status = os.fstat(fd)
            if stat_bits.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat_bits.S_ISREG(status.st_mode):
                raise errors.unsupported("open", self._url(key), "not a regular file: it has no positioned reads")
            if status.st_size > _SMALL or status.st_blocks:
                return LocalBlob(self, key, held, status)
            # Files of /proc say that they are empty, and those of /sys that they fill a page; neither is so.
            data = b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
            if len(data) == status.st_size > 0:
                return LocalBlob(self, key, held, status)
            descriptors.close(held)
            return BytesBlob(self, key, data, _version(status))
        except BaseException:
            descriptors.close(held)  # the blob has the same list: closed here, it is not closed there
            raise

    # One call in place of three for each file; a subclass that overrides one of them overrides all.
    _open_from_start = _open_to_read = _open_blob

    def _read_bytes(self, key: str) -> bytes:
        held = descriptors.HeldDescriptors()
        try:
            fd = descriptors.open_into(held, "/" + key, os.O_RDONLY | os.O_NONBLOCK)
            status = os.fstat(fd)
            size = status.st_size
            if stat_bits.S_ISREG(status.st_mode) and status.st_blocks and size <= _ONE_READ:
                data = os.read(fd, size)
                if len(data) == size:
                    return data
        finally:
            descriptors.close(held)
        return super()._read_bytes(key)  # nothing like an ordinary file, or cut while it was read

    def _local_path(self, key: str) -> str:
        path = "/" + key
        if stat_bits.S_ISDIR(os.stat(path).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return path

    def _create(self, key: str, exclusive: bool) -> Writer:
        path, kind = target("/" + key, exclusive)
        if kind is not None and not stat_bits.S_ISREG(kind):
            return AppendWriter(path, False)  # a device or a pipe: moving a file over it would destroy it
        return LocalWriter(path, exclusive, self._fsync)

    def _write_bytes(self, key: str, data: bytes) -> None:
        if len(data) > _WRITTEN_AT_ONCE or self._fsync:
            return super()._write_bytes(key, data)
        path, kind = target("/" + key, False)
        if kind is not None and not stat_bits.S_ISREG(kind):
            return super()._write_bytes(key, data)
        write_at_once(path, kind, data)
        return None

    def _resume(self, key: str, source: Blob) -> tuple[Writer, int]:
        path, kind = target("/" + key, False)
        identity = source.settled_identity
        if identity is None or not (kind is None or stat_bits.S_ISREG(kind)):
            return self._create(key, False), 0
        writer = ResumedWriter.of(path, identity.digest(), source.size, self._fsync)
        return (writer, writer.offset) if writer is not None else (self._create(key, False), 0)

    def _set_modified(self, key: str, when: float) -> None:
        nanoseconds = round(when * 1e9)
        os.utime("/" + key, ns=(nanoseconds, nanoseconds))

    def _append(self, key: str) -> Writer:
        return AppendWriter("/" + key, self._fsync)

    def _open_update(self, key: str) -> io.BufferedIOBase:
        fd = os.open("/" + key, os.O_RDWR | os.O_CLOEXEC)
        if stat_bits.S_ISREG(os.fstat(fd).st_mode):
            return UpdateFile(fd, self._url(key))
        os.close(fd)
        raise errors.unsupported("open", self._url(key), "not a regular file: it has no positioned reads")

    def _mkdir(self, key: str, mode: int) -> None:
        os.mkdir("/" + key, mode)

    def _rename(self, src: str, dst: str) -> None:
        try:
            os.replace("/" + src, "/" + dst)
        except OSError as exc:
            if exc.errno not in _NOT_EMPTY or not partials.sweep("/" + dst, math.inf):
                raise
            os.replace("/" + src, "/" + dst)

    def _remove(self, key: str) -> None:
        path = "/" + key
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                os.rmdir(path)
            except OSError as exc:
                if exc.errno not in _NOT_EMPTY or not partials.sweep(path, math.inf):
                    raise
                os.rmdir(path)
        else:
            os.remove(path)

    def _remove_tree(self, key: str) -> None:
        if os.path.islink("/" + key):
            os.remove("/" + key)
        else:
            scanning.remove_tree("/" + key)

    def __repr__(self) -> str:
        return f"Local({self.cwd!r})"


class LocalBlob(Blob):
    """An open descriptor of a local file; its version is made of all that the inode tells."""

    __slots__ = ("_fd", "_held", "_own_fd")

    def __init__(self, origin: Local, key: str, held: descriptors.HeldDescriptors, status: os.stat_result) -> None:
        self._held = held
        self._fd = held[0].fileno()
        self._own_fd: process.PerProcess[descriptors.HeldDescriptors] | None = None
        super().__init__(origin, key, status.st_size, _version(status))

    def _pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        found = [data]
        while (size := size - len(data)) and (data := os.pread(self._fd, size, offset := offset + len(data))):
            found.append(data)
        return b"".join(found)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        fd, read = self._fd, os.pread
        return [read(fd, size, at) if size <= _ONE_READ else self._pread(size, at) for size, at in ranges]

    def fileno(self) -> int:
        """A descriptor with a position of its own in each process."""
        if self._own_fd is None:
            self._own_fd = process.PerProcess(self._open_again, descriptors.close)
        return self._own_fd.get()[0].fileno()

    def _open_again(self) -> descriptors.HeldDescriptors:
        held = descriptors.HeldDescriptors()
        try:
            descriptors.open_into(held, f"/proc/self/fd/{self._fd}", os.O_RDONLY)
        except FileNotFoundError:  # no /proc: the path will do as long as it leads to the same file
            if _version(os.fstat(descriptors.open_into(held, "/" + self._key, os.O_RDONLY))) != self.version:
                raise errors.stale(self.url, operation="fileno") from None
        return held

    def _close(self) -> None:
        descriptors.close(self._held)
        if self._own_fd is not None:
            self._own_fd.close()


def _version(status: os.stat_result) -> str:
    """Return the version of a file: `tar -x`, `cp -p` and `rsync -t` set its mtime, and none can set its ctime."""
    device, inode, size = status.st_dev, status.st_ino, status.st_size
    return f"{device:x}-{inode:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{size:x}"


@functools.cache
def _machine() -> str:
    """Return what tells this machine from others that may see the same cache directory."""
    with contextlib.suppress(OSError), open("/etc/machine-id", encoding="ascii", errors="replace") as file:
        if name := file.read().strip():
            return name
    import socket

    return socket.gethostname()


def _to_stat(name: str, status: os.stat_result) -> FileStat:
    if stat_bits.S_ISDIR(status.st_mode):
        return FileStat.of_directory(name, status.st_mtime, status.st_mode)
    return FileStat(name, status.st_size, False, status.st_mtime, status.st_mode, _version(status))


def _entry(entry: os.DirEntry[str]) -> FileStat:
    try:
        return _to_stat(entry.name, entry.stat())
    except OSError:  # a link to nothing, or gone since: listed as what it is
        try:
            return _to_stat(entry.name, entry.stat(follow_symlinks=False))
        except OSError:
            return FileStat(entry.name, 0)
