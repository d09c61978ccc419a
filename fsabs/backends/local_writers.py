"""The writers of local files: whole or not at all by a hidden file, at the end of a file, and small files in one go."""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits
from collections.abc import Callable

from .. import descriptors, partials, process
from ..files import Writer

_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS)


def target(path: str, exclusive: bool) -> tuple[str, int | None]:
    """Return where a file is going to be written, behind links, and the mode of what is there; None for nothing."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return path, None
    if exclusive and not stat_bits.S_ISDIR(kind):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if stat_bits.S_ISLNK(kind):
        path = os.path.realpath(path)  # what a link points to is replaced, and not the link
        try:
            kind = os.stat(path).st_mode
        except FileNotFoundError:
            return path, None
    if stat_bits.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat_bits.S_ISREG(kind) and not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK))  # raises the reason
    return path, kind


def write_at_once(path: str, kind: int | None, data: bytes) -> None:
    """Write a whole file by a hidden one beside it; `kind` is the mode of the regular file that it replaces, if any."""
    folder, _, name = path.rpartition("/")
    partials.sweep_once(folder or "/")
    partial, held = partials.partial_path(folder, name), descriptors.HeldDescriptors()
    try:
        fd = descriptors.open_into(held, partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])
        if kind is not None:  # keep the permissions of what is replaced, as writing into it would
            os.fchmod(fd, stat_bits.S_IMODE(kind))
        descriptors.close_written(held)  # a network filesystem reports only now that some of it is lost
        os.rename(partial, path)
    except BaseException:
        descriptors.close(held)
        with contextlib.suppress(OSError):  # it was never made, or has its name already
            os.remove(partial)
        raise


class LocalWriter(Writer):
    """Writes an unnamed file, or a hidden one, and moves it into its place."""

    def __init__(self, path: str, exclusive: bool, fsync: bool) -> None:
        self._path = path
        self._exclusive = exclusive
        self._fsync = fsync
        folder, name = os.path.split(path)
        partials.sweep_once(folder)
        self._partial = partials.partial_path(folder.rstrip("/"), name)
        self._named = False
        self._generation = process.generation()
        self._held = descriptors.HeldDescriptors()
        self._fd = self._open(folder)

    def _open(self, folder: str) -> int:
        if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
            try:
                return descriptors.open_into(self._held, folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
            except OSError as exc:
                if exc.errno not in _NO_TMPFILE:
                    raise
        self._named = True  # from now on, in whatever moment a signal comes
        return descriptors.open_into(self._held, self._partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def commit(self) -> None:
        """Move the file over its target, or for `x` link it there if there is none."""
        with contextlib.suppress(OSError):  # keep the permissions of what is replaced, as writing into it would
            os.fchmod(self._fd, stat_bits.S_IMODE(os.stat(self._path).st_mode))
        if self._fsync:
            os.fsync(self._fd)
        if not self._named:
            self._named = not self._exclusive
            # Naming a directory descriptor makes Python call linkat(), which follows; link() does not.
            target = self._path if self._exclusive else self._partial
            os.link(f"/proc/self/fd/{self._fd}", target, src_dir_fd=self._fd, follow_symlinks=True)
            descriptors.close(self._held)
        else:
            descriptors.close_written(self._held)  # a network filesystem reports only now that some of it is lost
            if self._exclusive:
                os.link(self._partial, self._path)
        if not self._exclusive:
            os.replace(self._partial, self._path)
            self._named = False
        if self._fsync:
            fsync_directory(os.path.dirname(self._path))
        self.abort()

    def abort(self) -> None:
        """Close, and remove what has a hidden name."""
        descriptors.close(self._held)
        if self._named:
            with contextlib.suppress(OSError):  # gone already, or the directory is: nothing is left either way
                os.remove(self._partial)
            self._named = False

    def __del__(
        self,
        inherited: Callable[[int], bool] = process.inherited,
        remove: Callable[[str], None] = os.remove,
    ) -> None:
        if self._named and not inherited(self._generation):
            try:  # not contextlib's: when the interpreter ends, only what is bound is there
                remove(self._partial)
            except OSError:
                pass


class AppendWriter(Writer):
    """Appends in place: what is written is visible at once, and stays."""

    def __init__(self, path: str, fsync: bool) -> None:
        self._fsync = fsync
        self._held = descriptors.HeldDescriptors()
        self._fd = descriptors.open_into(self._held, path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def commit(self) -> None:
        """Close the file."""
        if self._fsync:
            os.fsync(self._fd)
        descriptors.close_written(self._held)

    def abort(self) -> None:
        """Close the file; what was appended stays."""
        descriptors.close(self._held)


def fsync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
