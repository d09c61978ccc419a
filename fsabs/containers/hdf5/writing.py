"""An HDF5 file being written: in a temporary file of this machine, since HDF5 goes back and forth in what it writes."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import IO, TYPE_CHECKING, Any

from ...core import keys, process
from ...core.blobs import Blob
from ...core.limits import Limits
from . import nodes
from .scratch import Scratch

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

    def check(self, key: str, exclusive: bool) -> None:
        """Raise the errors of opening, unless a file may be written at `key`."""
        found = self._find(key)
        if _is_group(found) or not key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if found is not None and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def add(self, key: str, exclusive: bool, file: IO[bytes], size: int) -> None:
        """Write the file `key`, `size` bytes of `file` from its position on, in place of what was there."""
        with self._lock:
            group, name = self._group(keys.parent(key)), nodes.raw(keys.name(key))
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
            parent, name = nodes.find(self.file, keys.parent(key), self._limits), nodes.raw(keys.name(key))
            if not _is_group(parent):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if not parent.id.links.exists(name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            linked: Any = parent.get(name, getlink=True)
            if isinstance(linked, _hard_link()) and _is_group(group := self._find(key)) and len(group):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            with self._scratch.writing("remove"):
                del parent[name]

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
        try:
            return nodes.find(self.file, key, self._limits)
        except FileNotFoundError:
            return None

    def _group(self, key: str) -> h5py.Group:
        """The group `key`, made with what is missing above it."""
        missing: list[str] = []
        while (found := self._find(key)) is None:
            missing.append(keys.name(key))
            key = keys.parent(key)
        if not _is_group(found):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with self._scratch.writing("mkdir"):
            for name in reversed(missing):
                found = _make_group(found, nodes.raw(name))
        return found


def _make_group(parent: h5py.Group, name: bytes) -> h5py.Group:
    """A new group that doesn't remember when it was made."""
    import h5py

    how = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    how.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(parent.id, name, gcpl=how))


def _hard_link() -> type:
    import h5py

    kind: type = h5py.HardLink
    return kind


def _is_group(node: Any) -> bool:
    import h5py

    return isinstance(node, h5py.Group)
