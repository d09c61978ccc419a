"""An HDF5 file being written: in a temporary file of this machine, since HDF5 goes back and forth in what it writes."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from ...core import keys, process
from ...core.blobs import Blob
from ...core.limits import Limits
from ...core.writing import partial_name
from ...disk import files, temporary
from ...disk.descriptors import allocate, write_all
from . import content
from .library import translated

if TYPE_CHECKING:
    import h5py

_PIECE = 8 * 1024 * 1024
_CHUNK = 1024 * 1024


class Draft:
    """The file that is written, and the same with what an old one held; used under h5py's own lock, and ours."""

    def __init__(self, url: str, old: Blob | None, compression: str | None, limits: Limits) -> None:
        self._compression = compression
        self._limits = limits
        self._lock = process.Lock()
        self._scratch = Scratch(url, old)
        self.file = self._scratch.file
        self._last: tuple[str, Any] = ("", None)  # the group that was asked for last to be written to, and its key

    def check(self, key: str, exclusive: bool) -> None:
        """Raise the errors of opening, unless a file may be written at `key`."""
        found = self._find(key)
        if content.is_group(found) or not key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if found is not None and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def add(self, key: str, exclusive: bool, file: IO[bytes], size: int) -> None:
        """Write the file `key`, `size` bytes of `file` from its position on, in place of what was there."""
        with self._lock:
            group, name = self._group(keys.parent(key)), content.raw(keys.name(key))
            replaced = not key or group.id.links.exists(name)
            if replaced:
                self.check(key, exclusive)
            dataset = self._write(group, file, size)
            with self._scratch.writing("close"):
                if replaced:
                    del group[name]
                group[name] = dataset

    def _write(self, group: h5py.Group, file: IO[bytes], size: int) -> h5py.Dataset:
        """A dataset that has no name yet: it is gone if it doesn't get one."""
        import h5py
        import numpy as np

        packed: dict[str, Any] = {}
        if self._compression is not None and size:
            packed = {"compression": self._compression, "chunks": (min(size, _CHUNK),)}
        with self._scratch.writing("close"):
            dataset = group.create_dataset(None, shape=(size,), dtype="u1", track_times=False, **packed)
        offset = 0
        while offset < size:
            data = file.read(min(_PIECE, size - offset))
            values = np.frombuffer(data, dtype="u1")
            with self._scratch.writing("close"):
                if len(data) == size:  # without a selection, which takes as long as all else
                    dataset.id.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
                else:
                    dataset[offset : offset + len(data)] = values
            offset += len(data)
        return dataset

    def mkdir(self, key: str) -> None:
        """Make the group `key`, and those above it; `FileExistsError`, `NotADirectoryError`."""
        with self._lock:
            if not key or self._find(key) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._group(key)

    def remove(self, key: str) -> None:
        """Remove a dataset, a link or an empty group; `FileNotFoundError`, ENOTEMPTY."""
        with self._lock:
            parent, name = content.find(self.file, keys.parent(key), self._limits), content.raw(keys.name(key))
            if not content.is_group(parent):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not parent.id.links.exists(name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            linked: Any = parent.get(name, getlink=True)
            if isinstance(linked, _hard_link()) and content.is_group(group := self._find(key)) and len(group):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            with self._scratch.writing("remove"):
                del parent[name]
            self._last = ("", None)

    def finish(self) -> Scratch:
        """Close the file; returns its bytes."""
        with self._lock:
            self._scratch.finish()
        return self._scratch

    def abort(self) -> None:
        """Close the file, and drop its bytes."""
        self._scratch.drop()
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # the reason of the failure has been raised
            self.file.close()

    def _find(self, key: str) -> Any:
        """The group or dataset at `key`; None if there is none."""
        last, group = self._last
        if key == last and group is not None:
            return group
        # A tree comes in order; from the root, a deep one would take a step for each group above each of its members.
        start, path = (group, keys.name(key)) if keys.parent(key) == last else (None, key)
        try:
            return content.find(self.file, path, self._limits, start)
        except FileNotFoundError:
            return None

    def _group(self, key: str) -> h5py.Group:
        """The group `key`, made with what is missing above it."""
        missing: list[str] = []
        above = key
        while (found := self._find(above)) is None:
            missing.append(keys.name(above))
            above = keys.parent(above)
        if not content.is_group(found):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with self._scratch.writing("mkdir"):
            for name in reversed(missing):
                found = _make_group(found, content.raw(name))
        self._last = (key, found)
        return found


def _make_group(parent: h5py.Group, name: bytes) -> h5py.Group:
    """A new group that doesn't remember when it was made."""
    import h5py

    properties = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    properties.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(parent.id, name, gcpl=properties))


def _hard_link() -> type:
    import h5py

    kind: type = h5py.HardLink
    return kind


# ---- the temporary file that HDF5 writes


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
        folder = temporary.folder()
        files.sweep_once(folder)
        name = f"{folder}/{partial_name('hdf5')}"
        self._fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            for offset in range(0, old.size if old is not None else 0, _PIECE):
                assert old is not None
                write_all(self._fd, old.pread(_PIECE, offset))
            with translated(url, "open_container"):
                self.file = _open(name, new=old is None)
        except BaseException:
            fd, self._fd = self._fd, -1
            os.close(fd)
            raise
        finally:
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
            allocate(self._fd, self.file.id.get_filesize())
            self.file.flush()
            self.file.close()

    def pieces(self) -> Iterator[bytes]:
        """The content, some MB at a time; HDF5 has closed the file."""
        for offset in range(0, os.fstat(self._fd).st_size, _PIECE):
            yield os.pread(self._fd, _PIECE, offset)

    def drop(self) -> None:
        """Free the file. What HDF5 still has to write before it can close it goes into another one."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        is_open = _is_same_file(self._written, fd)
        os.close(fd)  # first: there may be no room for another descriptor
        if is_open:
            other = os.memfd_create("fsabs") if hasattr(os, "memfd_create") else temporary.open_unnamed()
            os.dup2(other, self._written, inheritable=False)
            os.close(other)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            close(fd)


def _open(name: str, *, new: bool) -> h5py.File:
    """Open the file with HDF5, which needs a name of it."""
    import h5py

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # What HDF5 1.8 can read, with its checksums on every structure; what the library prefers differs by its release.
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_LATEST)
    access.set_fapl_sec2()
    access.set_sieve_buf_size(0)
    slots, _, share = access.get_cache()[1:]
    access.set_cache(0, slots, 0, share)  # no bytes of chunks
    if not new:
        return h5py.File(h5py.h5f.open(os.fsencode(name), h5py.h5f.ACC_RDWR, access))
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    return h5py.File(h5py.h5f.create(os.fsencode(name), h5py.h5f.ACC_TRUNC, creation, access))


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


process.at_fork(in_child=_drop_inherited)
