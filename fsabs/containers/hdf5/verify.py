"""The checks of `Hdf5.verify`, which read everything."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING

from ... import errors, keys
from ..problems import Problem
from . import nodes
from .library import translated

if TYPE_CHECKING:
    from .container import Hdf5

_PIECE = 8 * 1024 * 1024


def problems(hdf5: Hdf5) -> list[Problem]:
    """The problems of all members."""
    found: list[Problem] = []
    try:
        for stat in [*hdf5._walk("")]:
            if stat.directory:
                found += _unsafe_names(hdf5, stat.filename)
            else:
                found += _of_file(hdf5, stat.filename)
        found += _unsafe_names(hdf5, "")
    except errors.CorruptFileError as exc:
        found.append(Problem("", "damaged", str(exc.strerror)))
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        found.append(Problem("", "links", str(exc.strerror)))
    return found


def _of_file(hdf5: Hdf5, key: str) -> list[Problem]:
    try:
        with hdf5._open_blob(key) as blob:
            for offset in range(0, blob.size, _PIECE):
                blob.pread(_PIECE, offset)
    except FileNotFoundError as exc:
        return [Problem(key, "lost link", str(exc.strerror))]
    except PermissionError as exc:
        return [Problem(key, "external link", str(exc.strerror))]
    except io.UnsupportedOperation as exc:
        return [Problem(key, "unreadable", str(exc.strerror))]
    except OSError as exc:
        return [Problem(key, "damaged", str(exc.strerror))]
    return []


def _unsafe_names(hdf5: Hdf5, key: str) -> list[Problem]:
    with translated(hdf5._url(key), "verify"):
        group = nodes.find(hdf5.h5py_file(), key, hdf5.limits)
        names = [raw.decode("utf-8", "surrogateescape") for raw in group.id]
    return [Problem(keys.join(key, name), "unsafe name", "no path leads to it") for name in names if nodes.unsafe(name)]
