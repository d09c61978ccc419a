"""The temporary file of this machine that HDF5 writes."""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ... import descriptors, partials, temporary
from ...blobs import Blob
from .library import translated

if TYPE_CHECKING:
    import h5py

_PIECE = 8 * 1024 * 1024


class Scratch:
    """A temporary file without a name, `file`, that HDF5 writes by itself.

    HDF5 (2.0 at least) ends the process if what it closes can't be written. So it calls no Python code, which a signal
    handler may interrupt; it keeps no data for later; and once it couldn't write, what it has left goes elsewhere. That
    is also where a forked child's writes go, for the bytes are the parent's.
    """

    def __init__(self, url: str, old: Blob | None) -> None:
        """The file is empty, or begins with the content of `old`."""
        self._url = url
        self._failure = 0  # the errno of the first write that failed
        self._held = descriptors.HeldDescriptors()
        folder = temporary.folder()
        partials.sweep_once(folder)
        name = partials.partial_path(folder, "hdf5")
        try:
            self._fd, to_name = _open_temporary(self._held, name)
            for offset in range(0, old.size if old is not None else 0, _PIECE):
                assert old is not None
                _write_all(self._fd, old.pread(_PIECE, offset))
            with translated(url, "open_container"):
                self.file = _open_named(to_name, name, new=old is None)
        except BaseException:
            descriptors.close(self._held)
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        self._written = self.file.id.get_vfd_handle()
        os.set_inheritable(self._written, False)
        _scratches.add(self)

    @contextlib.contextmanager
    def writing(self, operation: str) -> Iterator[None]:
        """HDF5 writes in the block; `OSError` if it can't, or couldn't before."""
        if self._failure:
            raise OSError(self._failure, f"{os.strerror(self._failure)}, in an earlier write", self._url)
        try:
            with translated(self._url, operation):
                yield
        except OSError as exc:
            self._failure = exc.errno or errno.EIO
            self.drop()
            raise

    def finish(self) -> None:
        """Close the file for HDF5. Its structures are written now, so there has to be room for them."""
        with self.writing("close"):
            with contextlib.suppress(AttributeError):  # a system without it
                os.posix_fallocate(self._fd, 0, self.file.id.get_filesize())
            self.file.flush()
            self.file.close()

    def pieces(self) -> Iterator[bytes]:
        """The content, some MB at a time; HDF5 has closed the file."""
        for offset in range(0, os.fstat(self._fd).st_size, _PIECE):
            yield os.pread(self._fd, _PIECE, offset)

    def drop(self) -> None:
        """Free the file. What HDF5 still has to write before it can close it goes into another one."""
        if self._held and _is_same_file(self._written, self._fd):
            other = descriptors.HeldDescriptors()
            os.dup2(_open_other(other), self._written, inheritable=False)
        descriptors.close(self._held)


def _open_temporary(held: descriptors.HeldDescriptors, name: str) -> tuple[int, Callable[[], object]]:
    """Open a new file that has no name, and return what gives it `name`; where there are no such files, one that has
    the name."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # some filesystems have no such files, some systems no /proc
            fd = descriptors.open_into(held, os.path.dirname(name), os.O_TMPFILE | os.O_RDWR, 0o600)
            path = f"/proc/self/fd/{fd}"
            os.stat(path)
            return fd, functools.partial(os.link, path, name, src_dir_fd=fd)  # which has it follow links
    return descriptors.open_into(held, name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), int


def _open_other(held: descriptors.HeldDescriptors) -> int:
    """Open a file for what is not to be read again."""
    if hasattr(os, "memfd_create"):
        held.extend(map(descriptors.own, map(os.memfd_create, ("fsabs",))))
        return held[-1].fileno()
    with tempfile.TemporaryFile(buffering=0) as file:
        return descriptors.duplicate_into(held, file.fileno())


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _open_named(to_name: Callable[[], object], name: str, *, new: bool) -> h5py.File:
    """Give the file its name, open it with HDF5, which needs one, and remove the name."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # What HDF5 1.8 can read, with its checksums on every structure; what the library prefers differs by its release.
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_LATEST)
    access.set_fapl_sec2()
    access.set_sieve_buf_size(0)
    slots, _, share = access.get_cache()[1:]
    access.set_cache(0, slots, 0, share)  # no bytes of chunks
    if new:
        creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        creation.set_obj_track_times(False)
        to_open = functools.partial(h5py.h5f.create, os.fsencode(name), h5py.h5f.ACC_TRUNC, creation, access)
    else:
        to_open = functools.partial(h5py.h5f.open, os.fsencode(name), h5py.h5f.ACC_RDWR, access)
    steps: list[Callable[[], Any]] = [to_name, to_open, functools.partial(os.unlink, name)]
    _, opened, _ = map(operator.call, steps)  # in C: no signal handler comes in between and leaves the name
    return h5py.File(opened)


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # HDF5 has closed it
        return False


# A forked child's copies take nothing, for the bytes are the parent's.
_scratches: weakref.WeakSet[Scratch] = weakref.WeakSet()


def _drop_inherited() -> None:
    for scratch in list(_scratches):
        scratch.drop()


os.register_at_fork(after_in_child=_drop_inherited)
