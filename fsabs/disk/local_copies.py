"""as_local: a file of any FS as a path on the local disk, for libraries that take nothing but a path.

A copy lies in a folder of its own below the system's temporary directory. The folder belongs to the process that made
it: a child that is forked in the middle of the block neither removes it nor commits what is there.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from errno import EEXIST, EISDIR, ENOENT
from stat import S_ISDIR
from typing import cast

from ..core import errors, keys, modes, process
from ..core.blobs import Hint
from ..core.fs import FS
from ..core.readahead import PIECE, pieces
from ..core.writing import WriteFile
from . import temporary
from .descriptors import write_all

OpenWriter = Callable[[str, modes.OpenMode, int], io.IOBase]
_LONGEST_NAME = 200  # bytes; most filesystems take 255
_MODES = ("r", "w", "x", "r+")


def as_local(fs: FS, key: str, mode: str, open_writer: OpenWriter) -> contextlib.AbstractContextManager[str]:
    """As `FS.as_local`, of a key; `open_writer` opens a key, in a mode and with a size of buffer."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    return _reading(fs, key) if mode == "r" else _writing(fs, key, mode, open_writer)


@contextlib.contextmanager
def _reading(fs: FS, key: str) -> Iterator[str]:
    fs._require("read", "as_local", key)
    with fs._naming("as_local", key):
        path = fs._opened_by._local_path(key)
        if path is not None and S_ISDIR(os.stat(path).st_mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if path is not None:
        yield path
        return
    with _temporary_path(fs, key) as path:
        _download(fs, key, path)
        os.chmod(path, 0o400)  # what is written to it would be lost
        yield path


@contextlib.contextmanager
def _writing(fs: FS, key: str, mode: str, open_writer: OpenWriter) -> Iterator[str]:
    if mode == "r+":
        fs._require("read", "as_local", key)
    if mode == "x" and fs._is(key, directory=None):
        raise errors.error(EEXIST, "as_local", fs._url(key))
    made_in = process.generation()
    with _temporary_path(fs, key) as path:
        if mode == "r+":
            _download(fs, key, path)
        how = modes.parse("xb" if mode == "x" else "wb")
        with cast(WriteFile, open_writer(key, how, -1)) as target:  # now, so that a refusal comes before the work
            yield path
            if not process.inherited(made_in):
                _upload(path, target)


@contextlib.contextmanager
def _temporary_path(fs: FS, key: str) -> Iterator[str]:
    """Give a path with the name of `key`, or with its suffix, in a new folder, which is removed at the end."""
    import tempfile

    name = keys.name(key)
    if len(os.fsencode(name)) > _LONGEST_NAME:
        suffix = os.path.splitext(name)[1]
        name = "file" + (suffix if len(os.fsencode(suffix)) < _LONGEST_NAME else "")
    made_in = process.generation()
    with fs._naming("as_local", key):
        folder = tempfile.mkdtemp(prefix="fsabs-", dir=temporary.folder())
    try:
        yield os.path.join(folder, name)
    finally:
        if not process.inherited(made_in):
            _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder. `shutil.rmtree`, which closes a descriptor twice if it is interrupted, is for directories."""
    import shutil

    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)
        os.rmdir(folder)


def _download(fs: FS, key: str, path: str) -> None:
    with fs._naming("as_local", key), fs._open_blob(key, Hint.FROM_START) as blob, open(path, "xb", 0) as file:
        for piece in pieces(blob):
            write_all(file.fileno(), piece)


def _upload(path: str, target: WriteFile) -> None:
    try:
        source = open(path, "rb", 0)  # noqa: SIM115 - its error alone is replaced
    except FileNotFoundError:
        raise errors.error(ENOENT, "as_local", target.name, f"the block left no file at {path}") from None
    except IsADirectoryError:
        raise errors.error(EISDIR, "as_local", target.name, f"the block left a directory at {path}") from None
    with source:
        while piece := source.read(PIECE):
            target.write(piece)
