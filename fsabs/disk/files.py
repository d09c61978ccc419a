"""Files of this machine, replaced whole or not at all.

A file is written aside, under a hidden name that no one can foresee (`partial_name`) in the directory of its target,
and moved over it by `Replacement.commit`. From outside that looks like builtin `open`: what replaces a file has its
permissions, owner, group and extended attributes, but never a setuid or setgid bit, and no other user can read it
before it is published. Where a new file can't have these, or no name can be made or moved there (a file that is
mounted, a directory that can't be written to, another's file in a sticky one), the content is written into the file
that is there.

Leftovers have one rule: a hidden partial file of this user is one if its process, of this machine, has ended, or if it
was not touched for a day.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..core import process
from ..core.writing import Writer, is_partial, partial_name, writer_is_dead
from . import temporary
from .descriptors import drop_setuid, write_all

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ..core.stats import FileStat

PERMISSIONS = 0o777
"""The bits of a mode that a file can be given: setuid, setgid and sticky are never carried over."""
LEFTOVER_SECONDS = 24 * 3600.0
"""A hidden partial file that was not touched for so long is a leftover, whoever writes it."""
_MOST_SECONDS = 0.1  # that one writer looks for leftovers: a folder may have millions of files
_MOST_FOLDERS = 10_000
_PIECE = 256 * 1024
"""Bytes that are read at once: small enough to stay in the CPU's cache."""
_NO_NAME = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Why a directory takes no new name; the file that is there may still be writable."""
_NO_MOVE = (*_NO_NAME, errno.EBUSY, errno.EXDEV)
"""Why a name can't be moved over another one."""
_NO_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Why a filesystem makes no hard link."""
_NO_ATTRIBUTE = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSPC)
"""Why a file can't be given an owner, a group or an extended attribute."""
_NO_FSYNC = (errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP, errno.ENOSYS)
"""Why a filesystem flushes nothing."""
_MOST_FLUSHED = 256  # files that are flushed one by one
_ACL = "system.posix_acl_access"


class Target(NamedTuple):
    """Where a file is going to be written."""

    path: str
    """Behind links."""
    replaced: os.stat_result | None
    """The status of what is there; None if nothing is."""


class Replacement(Writer):
    """A file that is written aside, private if it replaces another one, and published under its name by `commit`.

    As a context manager it commits at the end of the block, or aborts if the block raises. `path` is followed if it is
    a link. A forked child neither publishes nor removes what its parent writes.

    Args:
        path: the file, which need not exist, or what `target` has found of it. Given with `dir_fd`, the descriptor of a
            directory of this user's, it is a name in that directory, and the file is always private.
        exclusive: an existing file is a `FileExistsError`, here or at the commit.
        durable: the file is flushed to the disk before it is published, and its directory after it.
        mode: the permissions of a new file, before the umask.
    """

    takes_views = True
    _fd = -1
    _partial = ""

    def __init__(
        self,
        path: str | Target,
        *,
        exclusive: bool = False,
        durable: bool = False,
        mode: int = 0o666,
        dir_fd: int | None = None,
    ) -> None:
        self._generation = process.generation()
        self._dir_fd = dir_fd
        self._exclusive = exclusive
        self._durable = durable
        self._mode: int | None = None  # what it gets at the commit, in place of what it was made with
        self._modified_ns: int | None = None
        self._compare: Callable[[Iterator[bytes]], None] | None = None
        if isinstance(path, Target):
            self._path, self._replaced = path
        elif dir_fd is None:
            self._path, self._replaced = target(path, exclusive)
        else:
            self._path, self._replaced, mode = path, None, 0o600
        self._fd = self._open_aside(mode)

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that is written."""
        return self._fd

    def _open_aside(self, mode: int) -> int:
        folder, slash, name = self._path.rpartition("/")
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        self._partial = partial = f"{folder}{slash}{partial_name(name)}"
        if self._dir_fd is not None:
            return os.open(partial, flags, mode, dir_fd=self._dir_fd)
        sweep_once(folder or "/")
        try:
            return os.open(partial, flags, mode if self._replaced is None else 0o600)
        except OSError as exc:
            self._partial = ""
            if self._replaced is None or exc.errno not in _NO_NAME:
                raise
        return temporary.open_unnamed()  # what is committed is written into the file that is there

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        write_all(self._fd, data)

    def write_zeros(self, size: int) -> None:
        """Make the file longer by a hole."""
        os.ftruncate(self._fd, os.lseek(self._fd, size, os.SEEK_CUR))

    def keep(self, stat: FileStat, *, moved: bool = False) -> None:
        """Have the file get the time of `stat` and, if it is new or `moved`, its permissions."""
        if stat.last_modified is not None:
            self._modified_ns = round(stat.last_modified * 1e9)
        if not stat.mode:
            return
        mode = stat.mode & PERMISSIONS
        if self._replaced is None or moved:
            self._mode = mode
        if self._replaced is None and os.fstat(self._fd).st_mode & 0o077 & ~mode:
            self.abort()  # another user may have it open, and would read what is written to it
            self._fd = self._open_aside(0o600)

    def make_durable(self) -> None:
        """Have `commit` flush the file before it is published, and its directory after it."""
        self._durable = True

    def compare_by(self, compare: Callable[[Iterator[bytes]], None]) -> bool:
        """Have `commit` call `compare` with what a file that is opened anew has."""
        self._compare = compare
        return True

    def commit(self) -> None:
        """Publish the file; what can't be published is removed."""
        try:
            self._publish()
        finally:
            self.abort()

    def _publish(self) -> None:
        if self._compare is not None and self._partial:
            _flush(self._fd)
            self._compare(_pieces(self._partial, self._dir_fd))
        aside = self._partial != "" and self._takes_attributes()
        if self._mode is not None and self._dir_fd is None:
            if self._replaced is None and not self._mode & 0o007:
                _drop_default_acl(self._fd)
            os.fchmod(self._fd, self._mode)
        if self._modified_ns is not None:
            os.utime(self._fd, ns=(self._modified_ns, self._modified_ns))
        if self._durable:
            os.fsync(self._fd)
        if not (aside and self._is_moved()):
            self._write_in_place()
        elif self._durable:
            _fsync_directory(os.path.dirname(self._path), self._dir_fd)

    def _takes_attributes(self) -> bool:
        """Give the file the attributes of what it replaces; return False if it can't have them."""
        old = self._replaced
        if old is None:
            return True
        new = os.fstat(self._fd)
        try:
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(self._fd, old.st_uid, old.st_gid)
            _copy_extended(self._path, self._fd)  # first: a directory's default list may grant what the mode lets count
            os.fchmod(self._fd, old.st_mode & PERMISSIONS)
        except OSError as exc:
            if exc.errno not in _NO_ATTRIBUTE:
                raise
            os.fchmod(self._fd, 0o600)
            return False
        return True

    def _is_moved(self) -> bool:
        """Move the file to its name; return False if the name can't be moved over."""
        _flush(self._fd)
        if self._exclusive:
            self._link()
            return True
        try:
            os.rename(self._partial, self._path, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        except OSError as exc:
            if self._replaced is None or exc.errno not in _NO_MOVE:
                raise
            return False
        self._partial = ""
        return True

    def _link(self) -> None:
        """Give the file its name if nothing has it."""
        folder = self._dir_fd
        try:
            os.link(self._partial, self._path, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder))
            os.rename(self._partial, self._path, src_dir_fd=folder, dst_dir_fd=folder)  # over an empty one of ours
            self._partial = ""

    def _write_in_place(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if self._replaced is None or not os.path.samestat(status, self._replaced):
                raise OSError(errno.ESTALE, "another file has taken this name since it was opened for writing")
            drop_setuid(fd)
            os.ftruncate(fd, 0)
            offset = 0
            while piece := os.pread(self._fd, _PIECE, offset):
                write_all(fd, piece)
                offset += len(piece)
            if self._modified_ns is not None:
                with contextlib.suppress(PermissionError):  # another's
                    os.utime(fd, ns=(self._modified_ns, self._modified_ns))
            if self._durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        if self._compare is not None:
            self._compare(_pieces(self._path))

    # What a finalizer calls is bound: when the interpreter ends, the names of modules may be gone before.
    def abort(self, close: Callable[[int], None] = os.close, unlink: Callable[..., None] = os.unlink) -> None:
        """Close the file, and remove it unless it is published."""
        fd, self._fd = self._fd, -1
        partial, self._partial = self._partial, ""
        try:
            if partial:
                unlink(partial, dir_fd=self._dir_fd)
        except OSError:  # gone already, or the directory is: nothing is left either way
            pass
        finally:
            if fd >= 0:
                close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if process.inherited(self._generation):
            return
        self.commit() if kind is None else self.abort()

    def __del__(self, inherited: Callable[[int], bool] = process.inherited) -> None:
        if (self._fd >= 0 or self._partial) and not inherited(self._generation):
            self.abort()


def write_new(path: str, data: bytes, mode: int | None, modified_ns: int | None, durable: bool = False) -> bool:
    """Write a whole new file in few steps: it has no name until it is complete.

    Returns False, with nothing done, if it is there, or where system or filesystem have no such files: `Replacement`
    then writes it. `mode` is its permissions, `modified_ns` its time of modification; by default they are those of any
    new file.
    """
    folder = path.rpartition("/")[0] or "/"
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666 if mode is None else mode)
    except (AttributeError, OSError):
        return False
    try:
        _fill(fd, data, mode, modified_ns, durable)
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except OSError as exc:
        if exc.errno not in (*_NO_LINK, errno.ENOENT, errno.EEXIST):  # ENOENT: where there is no /proc
            raise
        return False
    finally:
        os.close(fd)
    if durable:
        _fsync_directory(folder, None)
    return True


def _fill(fd: int, data: bytes, mode: int | None, modified_ns: int | None, durable: bool) -> None:
    """Give a new file its permissions, its content and its time."""
    if mode is not None:
        if not mode & 0o007:
            _drop_default_acl(fd)
        if os.fstat(fd).st_mode & PERMISSIONS != mode:  # the umask has taken some away
            os.fchmod(fd, mode)
    write_all(fd, data)
    if modified_ns is not None:
        os.utime(fd, ns=(modified_ns, modified_ns))
    if durable:
        os.fsync(fd)
    _flush(fd)


def _flush(fd: int) -> None:
    """Raise what a network filesystem reports only when a file is closed: that some of it is lost."""
    os.close(os.dup(fd))  # the descriptor itself has more to do


def _pieces(path: str, dir_fd: int | None = None) -> Iterator[bytes]:
    """Open a file anew, and yield what it has."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    with open(fd, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            yield piece


def target(path: str, exclusive: bool) -> Target:
    """Return where a file is going to be written; what builtin `open` would not write to is the same error."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return Target(path, None)
    if exclusive and not stat_bits.S_ISDIR(status.st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if stat_bits.S_ISLNK(status.st_mode):
        try:
            status = os.stat(path)  # by the system, which follows no link of a stranger in a directory like /tmp
        except FileNotFoundError:
            return Target(os.path.realpath(path), None)
        path = os.path.realpath(path)  # what a link points to is replaced, and not the link
    if stat_bits.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if status.st_uid != os.geteuid() or not status.st_mode & stat_bits.S_IWUSR:
        if stat_bits.S_ISREG(status.st_mode):
            _check_writable(path)
    return Target(path, status)


def _check_writable(path: str) -> None:
    """Open a file as builtin `open` does, which the system may refuse, and not only by its permissions."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666))
    except OSError as exc:
        if exc.errno != errno.ETXTBSY:  # the file of a running program, which keeps the one that is replaced
            raise


def set_mode(path: str, mode: int) -> None:
    """Give a file or directory permissions; a link is not followed, and has none (EOPNOTSUPP).

    A directory keeps its setgid bit, by which what is made in it gets its group, and its sticky bit.
    """
    if not hasattr(os, "O_PATH"):  # a system whose chmod can leave links alone
        new = mode | _inherited(os.lstat(path).st_mode)
        os.chmod(path, new, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
        return
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{fd}", mode | _inherited(os.fstat(fd).st_mode))
    finally:
        os.close(fd)


def _inherited(mode: int) -> int:
    """Return the bits that a directory of a mode keeps."""
    return mode & (stat_bits.S_ISGID | stat_bits.S_ISVTX) if stat_bits.S_ISDIR(mode) else 0


def _copy_extended(path: str, fd: int) -> None:
    """Give an open file the extended attributes of another one, but for those that grant rights to a program."""
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(path)
    except OSError:  # a filesystem without any
        return
    for name in names:
        if name == _ACL or not name.startswith(("security.", "system.")):
            os.setxattr(fd, name, os.getxattr(path, name))
    if _ACL not in names:
        _drop_default_acl(fd)


def _drop_default_acl(fd: int) -> None:
    """Take away the access control list that a new file has got from its directory: it lets more users read it."""
    try:
        if _ACL in os.listxattr(fd):
            os.removexattr(fd, _ACL)
    except (AttributeError, OSError):  # a system, or a filesystem, without any
        pass


def make_durable(paths: Iterable[str]) -> None:
    """Have files that were written, and their names, survive a crash of the machine, on filesystems that can do that.

    It is called before what they replace is removed, or they are declared complete.
    """
    written = list(paths)
    if len(written) > _MOST_FLUSHED:
        os.sync()  # of all that this machine has written: quicker than many files one by one
        return
    for path in written:
        _fsync(path, os.O_NOFOLLOW)
    folders = {os.path.dirname(path) for path in written}
    for folder in folders | {os.path.dirname(folder) for folder in folders}:  # which may be new, too
        _fsync(folder or "/", os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except PermissionError:  # a file that may be written and not read
        os.sync()
        return
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOENT):  # a link has nothing to flush, nor has what is gone
            return
        raise
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(fd)


def _fsync_directory(path: str, dir_fd: int | None) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- leftovers

_swept: set[str] = set()


def sweep_once(folder: str) -> None:
    """Remove leftovers in `folder` if this process hasn't looked for them yet, taking a moment at most."""
    if folder not in _swept:
        if len(_swept) >= _MOST_FOLDERS:
            _swept.clear()
        _swept.add(folder)
        with contextlib.suppress(OSError):  # what is wrong with the folder, the write itself will say
            sweep(folder)


def sweep(folder: str | int) -> None:
    """Remove leftovers in a directory, given by its path or a descriptor; stop after a moment."""
    deadline = time.monotonic() + _MOST_SECONDS
    dir_fd = folder if isinstance(folder, int) else None
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if entry.name[0] == "." and is_partial(entry.name):
                with contextlib.suppress(OSError):
                    if is_leftover(entry.stat(follow_symlinks=False), entry.name):
                        os.unlink(entry.name if dir_fd is not None else entry.path, dir_fd=dir_fd)
            if number % 1000 == 999 and time.monotonic() > deadline:
                return


def is_leftover(status: os.stat_result, name: str) -> bool:
    """Return whether the hidden partial file that has this status and name is a leftover."""
    ours = stat_bits.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    touched = max(status.st_mtime, status.st_ctime)  # a copy is given the time of its source before it is published
    return ours and (time.time() - touched > LEFTOVER_SECONDS or writer_is_dead(name))
