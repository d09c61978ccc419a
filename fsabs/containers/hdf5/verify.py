"""The checks of `Hdf5.verify`, which read everything."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING

from ...core import errors, keys
from ...core.fs import FS
from ..problems import Problem
from . import nodes
from .library import translated

if TYPE_CHECKING:
    import h5py

_PIECE = 8 * 1024 * 1024


def problems(fs: FS, file: h5py.File) -> list[Problem]:
    """Return the problems of all members of `file`, which `fs` serves."""
    found: list[Problem] = []
    try:
        for stat in [*fs._walk("")]:
            if stat.directory:
                found += _unsafe_names(fs, file, stat.filename)
            else:
                found += _of_file(fs, stat.filename)
        found += _unsafe_names(fs, file, "")
    except errors.CorruptFileError as exc:
        found.append(Problem("", "damaged", str(exc.strerror)))
    except OSError as exc:
        if exc.errno not in (errno.ELOOP, errno.EFBIG):
            raise
        found.append(Problem("", "limit", str(exc.strerror)))
    return found


def _of_file(fs: FS, key: str) -> list[Problem]:
    try:
        with fs._open_blob(key) as blob:
            for offset in range(0, blob.size, _PIECE):
                blob.pread(_PIECE, offset)
    except FileNotFoundError as exc:
        return [Problem(key, "lost link", str(exc.strerror))]
    except PermissionError as exc:
        return [Problem(key, "external link", str(exc.strerror))]
    except io.UnsupportedOperation as exc:
        return [Problem(key, "unreadable", str(exc.strerror))]
    except OSError as exc:
        return [Problem(key, "limit" if exc.errno == errno.EFBIG else "damaged", str(exc.strerror))]
    return []


def _unsafe_names(fs: FS, file: h5py.File, key: str) -> list[Problem]:
    with translated(fs._url(key), "verify"):
        group = nodes.find(file, key, fs.limits)
        names = [raw.decode("utf-8", "surrogateescape") for raw in group.id]
    return [Problem(keys.join(key, name), "unsafe name", "no path leads to it") for name in names if nodes.unsafe(name)]
