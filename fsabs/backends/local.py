"""Files of this machine, and whatever is mounted on it.

A file is written beside its target under a hidden name that listings leave out, and moved over it at `close()`
(`disk/files.py`); one that is opened with `r+` is read and written in place. Blobs read by `os.pread`, which has no
position to share, so that an open file is good in threads and after a fork as it is.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import operator
import os
import select
import stat as stat_bits
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from ..core import errors, identity, keys, process
from ..core.blobs import Blob, BytesBlob, Hint
from ..core.fs import FS, Capabilities, FileStat, StoreNotes, StrPath
from ..core.writing import UpdateWriter, Writer
from ..disk import files, folders
from ..disk.descriptors import drop_setuid, write_all
from . import WRITABLE, local_trees

_SMALL = 1 << 16  # bytes; as much as a page has anywhere
_ONE_READ = 1 << 30  # bytes; Linux gives at most 2 GiB in one
MOST_STREAMED = 1 << 30
"""Bytes of a file without positions (of `/proc`, or a pipe), which is read when it is opened."""
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class Local(FS):
    """The local filesystem below the directory `cwd` (the process's own by default, then with `/` as the root).

    `create` makes the directory; `fsync` has every written file flushed to the disk before it becomes visible, so that
    it survives a loss of power and not only of the process. `links` says which symbolic links are followed: all of
    them (`"follow"`), those that stay `"inside"` of the FS's root, or none (`"refuse"`); others are a
    `PermissionError`.
    """

    scheme = "file"
    _notes = StoreNotes(
        ("opening: nothing", "listing: a scan of each directory", "an epoch: an open and a read for each file")
    )
    capabilities: Capabilities = WRITABLE._replace(
        append=True, update=True, settable_times=True, ordered=False, links=True, modes=True
    )

    def __init__(
        self, cwd: StrPath | None = None, *, create: bool = False, fsync: bool = False, links: str = "follow"
    ) -> None:
        self._links = local_trees.parsed_links(links)
        self._follows_all_links = self._plain_paths = self._links == "follow"
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

    # ---- names

    def _path(self, key: str, last: bool = True) -> str:
        """Return the path of a key; `PermissionError` if a link on the way may not be followed.

        The last segment counts only if `last` is set: a link itself may be removed and renamed.
        """
        if not self._follows_all_links:
            local_trees.check_links(key, self._root, self._links, last)
        return "/" + key

    def _check_key(self, key: str, root: str, operation: str) -> None:
        try:
            local_trees.check_links(key, root, self._links, last=operation not in ("remove", "rmdir", "rename"))
        except OSError as exc:
            self._named(exc, operation, key)
            raise

    def _url(self, key: str) -> str:
        return "file:///" + keys.to_url_path(key)

    def _resolved_store(self) -> str:
        return f"file {_machine()}"

    def _place(self, key: str) -> identity.Place:
        return local_trees.place("/" + key)

    def _places(self, key: str) -> Iterator[identity.Place]:
        path = os.path.realpath("/" + key)
        while path != "/":
            yield local_trees.place(path)
            path = os.path.dirname(path)
        yield local_trees.place(path)

    def _describe_store(self) -> dict[str, str]:
        kind = folders.filesystem_of("/" + self._root)
        return {"filesystem": f"{kind}, on a network" if folders.is_network(kind) else kind or "unknown"}

    def _is_strong(self, version: str) -> bool:
        return identity.is_older_than_a_tick(*_times(version))

    def _unchanged_since(self, stat: FileStat, when: float) -> bool:
        with contextlib.suppress(ValueError):  # a manifest may have the version of another store
            return identity.is_older_than_a_tick(*_times(stat.version or ""), now=when)
        return False

    def _local_path(self, key: str) -> str:
        return self._path(key)

    # ---- stats and listings

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        path = self._path(key, last=follow)
        status = os.stat(path) if follow else os.lstat(path)
        if not follow and stat_bits.S_ISLNK(status.st_mode):
            return FileStat.of_link(keys.name(key), os.readlink(path))
        return _to_stat(keys.name(key), status)

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[Any]:
        if not detail and self._follows_all_links:
            return local_trees.names("/" + key)
        return local_trees.stats(self._path(key), self._entry())

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        if not detail and self._follows_all_links:
            return local_trees.walk_names("/" + key, self.limits)
        return local_trees.walk_stats(self._path(key), self._entry(), self.limits)

    def _leads_back(self, key: str) -> bool:
        return local_trees.leads_back("/" + key)

    def _entry(self) -> Callable[[os.DirEntry[str]], FileStat]:
        """Return the function that makes a stat of an entry of a directory."""
        if self._follows_all_links:
            return _entry
        root, links = "/" + self._root, self._links

        def shown(entry: os.DirEntry[str]) -> FileStat:
            return local_trees.shown(_entry(entry), os.path.dirname(entry.path), root, links)

        return shown

    # ---- reading

    def _directory_identity(self, key: str) -> tuple[int, int]:
        return local_trees.directory_identity("/" + key)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        fd = os.open(self._path(key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        data = None
        try:
            status = os.fstat(fd)
            regular = stat_bits.S_ISREG(status.st_mode)
            if stat_bits.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not regular or (status.st_size <= _SMALL and not status.st_blocks):
                # Files of /proc say that they are empty, and those of /sys that they fill a page; neither is so. Pipes
                # and devices have no positions.
                data = _read_stream(fd, status)
        except BaseException:
            os.close(fd)
            raise
        if data is None or (regular and len(data) == status.st_size > 0):
            return LocalBlob(self, key, fd, status)  # which owns the descriptor from here on
        os.close(fd)
        return BytesBlob(self, key, data, version_of(status) if regular else None)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        if versions:
            return super()._read_many(wanted, concurrency, True)
        return self._read_each(self._content, wanted, concurrency)

    def _content(self, key: str) -> bytes:
        fd = os.open(self._path(key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            size = status.st_size
            if stat_bits.S_ISREG(status.st_mode) and status.st_blocks and size <= _ONE_READ:
                data = os.read(fd, size)
                if len(data) == size:
                    return data
        finally:
            os.close(fd)
        with self._open_blob(key) as blob:  # nothing like an ordinary file, or cut while it was read
            return blob.read_all()

    # ---- writing

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if update:
            return UpdateWriter(self._updated(key))
        if append:
            return AppendWriter(self._path(key), self._fsync)
        found = files.target(self._path(key), exclusive)
        if found.replaced is not None and not stat_bits.S_ISREG(found.replaced.st_mode):
            return AppendWriter(found.path, False)  # a device or a pipe: moving a file over it would destroy it
        return files.Replacement(found, exclusive=exclusive, durable=self._fsync)

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        if like is not None:
            modified = None if like.last_modified is None else round(like.last_modified * 1e9)
            mode = like.mode & files.PERMISSIONS if like.mode else None
            if files.write_new(self._path(key), data, mode, modified, self._fsync):
                return
        super()._write_bytes(key, data, like, moved)

    def _set(self, key: str, stat: FileStat, /) -> None:
        if stat.link is not None:
            os.symlink(stat.link, self._path(key, last=False))
            return
        path = self._path(key)
        if stat.last_modified is not None:
            nanoseconds = round(stat.last_modified * 1e9)
            os.utime(path, ns=(nanoseconds, nanoseconds))
        if stat.mode:
            files.set_mode(path, stat.mode & files.PERMISSIONS)

    def _make_durable(self, keys: Iterable[str]) -> None:
        files.make_durable(map(self._path, keys))

    def _updated(self, key: str) -> io.BufferedIOBase:
        fd = os.open(self._path(key), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat_bits.S_ISREG(os.fstat(fd).st_mode):
            drop_setuid(fd)
            return UpdateFile(fd, self._url(key))
        os.close(fd)
        raise errors.unsupported("open", self._url(key), "not a regular file: it has no positioned reads")

    # ---- changing the tree

    def _mkdir(self, key: str, mode: int) -> None:
        os.mkdir(self._path(key), mode)

    def _rename(self, src: str, dst: str) -> None:
        source, target = self._path(src, last=False), self._path(dst, last=False)
        try:
            os.replace(source, target)
        except OSError as exc:
            if exc.errno not in _NOT_EMPTY:
                raise
            files.sweep(target)
            os.replace(source, target)

    def _remove(self, key: str) -> None:
        path = self._path(key, last=False)
        if not stat_bits.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        try:
            os.rmdir(path)
        except OSError as exc:
            if exc.errno not in _NOT_EMPTY:
                raise
            files.sweep(path)
            os.rmdir(path)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        if keep:
            super()._remove_tree(key, True)
        else:
            local_trees.remove_tree(self._path(key, last=False))

    def __repr__(self) -> str:
        return f"Local({self.cwd!r})"


class LocalBlob(Blob):
    """An open descriptor of a local file; its version is made of all that the inode has."""

    __slots__ = ("_fd", "_own_fd", "sparse")

    def __init__(self, origin: Local, key: str, fd: int, status: os.stat_result) -> None:
        self._fd = fd
        self.sparse = status.st_blocks * 512 < status.st_size
        self._own_fd: process.PerProcess[_Descriptor] | None = None
        super().__init__(origin, key, status.st_size, version_of(status))

    def _pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        found = [data]
        while (size := size - len(data)) and (data := os.pread(self._fd, size, offset := offset + len(data))):
            found.append(data)
        return b"".join(found)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        read = os.preadv(self._fd, [view], offset)
        while 0 < read < len(view) and (more := os.preadv(self._fd, [view[read:]], offset + read)):
            read += more
        return read

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        fd, read = self._fd, os.pread
        return [read(fd, size, at) if size <= _ONE_READ else self._pread(size, at) for size, at in ranges]

    def fileno(self) -> int:
        """A descriptor with a position of its own in each process."""
        if self._own_fd is None:
            # Not of a method: with a reference to itself, the blob would stay open until a collection.
            again = functools.partial(_opened_again, self._fd, "/" + self._key, self.version, self.url)
            self._own_fd = process.PerProcess(again, _Descriptor.close)
        return self._own_fd.get().number

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        own, self._own_fd = self._own_fd, None
        if own is not None:
            own.close()

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        fd, self._fd = self._fd, -1  # in a cycle of references, its reader may close it once more
        if fd >= 0:
            close(fd)


class _Descriptor:
    """A descriptor of its own for a file, closed when it is freed."""

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o666)

    def close(self, close: Callable[[int], None] = os.close) -> None:
        fd, self.number = self.number, -1
        if fd >= 0:
            close(fd)

    __del__ = close


def _opened_again(fd: int, path: str, version: str | None, url: str) -> _Descriptor:
    """Open the file of a descriptor once more."""
    try:
        return _Descriptor(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # no /proc: the path will do as long as it leads to the same file
        found = _Descriptor(path)
    if version_of(os.fstat(found.number)) != version:
        raise errors.stale(url, operation="fileno")
    return found


class AppendWriter(Writer):
    """Appends in place: what is written is visible at once, and stays."""

    takes_views = True

    def __init__(self, path: str, fsync: bool) -> None:
        self._fsync = fsync
        self._file = _Descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        drop_setuid(self._file.number)

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        write_all(self._file.number, data)

    def commit(self) -> None:
        """Close the file."""
        if self._fsync:
            os.fsync(self._file.number)
        self._file.close()  # a network filesystem reports only now that some of it is lost

    def abort(self) -> None:
        """Close the file; what was appended stays."""
        with contextlib.suppress(OSError):
            self._file.close()


class _Update(io.RawIOBase):
    """A descriptor that reads and writes in place, at a position that no other process shares."""

    mode = "rb+"

    def __init__(self, fd: int, url: str) -> None:
        self._fd = fd
        self._position = 0
        self._generation = process.generation()
        self.name = url

    @property
    def inherited(self) -> bool:
        """True if a parent process opened the file: a child must not write to it."""
        return process.inherited(self._generation)

    def read(self, size: int | None = -1, /) -> bytes | None:
        return super().read(-1 if size is None else size)

    def readinto(self, buffer: Any, /) -> int:
        with self._named("read"):
            size = os.preadv(self._fd, [buffer], self._position)
        self._position += size
        return size

    def write(self, data: Any, /) -> int:
        self._check_own("write")
        with self._named("write"):
            size = os.pwrite(self._fd, data, self._position)
        self._position += size
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        offset = operator.index(offset)
        with self._named("seek"):
            end = os.fstat(self._fd).st_size if whence == os.SEEK_END else 0
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: end}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence: {whence}")
        if base + offset < 0:
            raise errors.error(errno.EINVAL, "seek", self.name, f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self._check_own("truncate")
        size = self._position if size is None else size
        with self._named("truncate"):
            os.ftruncate(self._fd, size)
        return size

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        self._check_open()
        return True

    def writable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                with self._named("close"):
                    os.close(fd)
        finally:
            super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def _check_own(self, operation: str) -> None:
        if self.inherited:
            raise errors.unsupported(operation, self.name, "the file was opened for writing in another process")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a file opened for writing can't be pickled: {self.name}")

    @contextlib.contextmanager
    def _named(self, operation: str) -> Iterator[None]:
        self._check_open()
        try:
            yield
        except OSError as exc:
            errors.named(exc, operation, self.name)
            raise


class UpdateFile(io.BufferedRandom):
    """A local file that is read and written in place; a forked child has no part in what its parent has written."""

    raw: _Update

    def __init__(self, fd: int, url: str) -> None:
        super().__init__(_Update(fd, url))
        process.abort_at_exit(self)
        _updated.add(weakref.ref(self, _updated.discard))

    @property
    def inherited(self) -> bool:
        """True if a parent process opened the file."""
        return self.raw.inherited

    @property
    def mode(self) -> str:  # type: ignore[override]
        """Always `"rb+"`."""
        return "rb+"

    def write(self, data: Any, /) -> int:
        """Write in place; `UnsupportedOperation` in a forked child."""
        if self.inherited:
            self.raw.write(b"")
        return super().write(data)

    def close(self) -> None:
        """Close the file, with all that was written."""
        process.finished(self)
        super().close()

    def abort(self) -> None:
        """Close the file; what was written stays."""
        with contextlib.suppress(ValueError):  # detached: the holder of the raw file closes it
            self.close()

    def flush(self) -> None:
        """Hand on what is buffered; a child leaves what its parent buffered to the parent."""
        if not self.inherited:
            super().flush()

    def _leave_to_parent(self) -> None:
        """Have no part in what the parent has buffered, nor in its lock, in a forked child."""
        if not self.raw.closed:
            position = self.tell()
            io.BufferedRandom.__init__(self, self.raw)
            self.seek(position)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.raw.__reduce_ex__(protocol)


_updated: set[weakref.ref[UpdateFile]] = set()


def _in_child() -> None:
    for reference in list(_updated):
        if (file := reference()) is not None:
            with contextlib.suppress(AttributeError, ValueError):  # detached
                file._leave_to_parent()


process.at_fork(in_child=_in_child)


def _read_stream(fd: int, status: os.stat_result) -> bytes:
    """Return what an open file gives from its position to its end; that of a pipe comes when all writers are gone."""
    if not stat_bits.S_ISREG(status.st_mode):
        os.set_blocking(fd, True)
        if stat_bits.S_ISFIFO(status.st_mode):
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll()  # before its first writer comes, a read would give the end
    found, size = [], 0
    while data := os.read(fd, 1 << 16):
        found.append(data)
        size += len(data)
        if size > MOST_STREAMED:
            raise OSError(errno.EFBIG, f"a file without positions, of more than {MOST_STREAMED} bytes")
    return b"".join(found)


def version_of(status: os.stat_result) -> str:
    """Return the version of a file: `tar -x`, `cp -p` and `rsync -t` set its mtime, and none can set its ctime."""
    # No device: a filesystem that is mounted again, or at another time, may have another number.
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_size:x}"


def _times(version: str) -> tuple[float, float]:
    """Return the mtime and ctime in a version."""
    modified, changed = version.split("-")[-3:-1]
    return int(modified, 16) / 1e9, int(changed, 16) / 1e9


@functools.cache
def _machine() -> str:
    """Return what distinguishes this machine from others that may see the same cache directory."""
    with contextlib.suppress(OSError), open("/etc/machine-id", encoding="ascii", errors="replace") as file:
        if name := file.read().strip():
            return name
    import socket

    return socket.gethostname()


def _to_stat(name: str, status: os.stat_result) -> FileStat:
    if stat_bits.S_ISDIR(status.st_mode):
        return FileStat.of_directory(name, status.st_mtime, status.st_mode)
    return FileStat(name, status.st_size, False, status.st_mtime, status.st_mode, version_of(status))


def _entry(entry: os.DirEntry[str]) -> FileStat:
    try:
        return _to_stat(entry.name, entry.stat())
    except OSError:  # a link to nothing, or gone since: listed as what it is
        try:
            return _to_stat(entry.name, entry.stat(follow_symlinks=False))
        except OSError:
            return FileStat(entry.name, 0)
