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
from typing import cast

from . import copying, errors, keys, modes, process, temporary
from .core import Core
from .files import WriteFile

OpenWriter = Callable[[str, modes.OpenMode, int], io.BufferedIOBase]
_LONGEST_NAME = 200  # bytes; most filesystems take 255
_MODES = ("r", "w", "x", "r+")


def as_local(fs: Core, key: str, mode: str, open_writer: OpenWriter) -> contextlib.AbstractContextManager[str]:
    """As `FS.as_local`, of a key; `open_writer` opens a key, in a mode and with a size of buffer."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    return _reading(fs, key) if mode == "r" else _writing(fs, key, mode, open_writer)


@contextlib.contextmanager
def _reading(fs: Core, key: str) -> Iterator[str]:
    fs._require("read", "as_local", key)
    try:
        path = fs._local_path(key)
    except OSError as exc:
        fs._named(exc, "as_local", key)
        raise
    if path is not None:
        yield path
        return
    with _temporary_path(fs, key) as path:
        _download(fs, key, path)
        yield path


@contextlib.contextmanager
def _writing(fs: Core, key: str, mode: str, open_writer: OpenWriter) -> Iterator[str]:
    if mode == "r+":
        fs._require("read", "as_local", key)
    if mode == "x" and fs._is(key, directory=None):
        raise errors.error(EEXIST, "as_local", fs._url(key))
    made_in = process.generation()
    with _temporary_path(fs, key) as path:
        if mode == "r+":
            _download(fs, key, path)
        how = modes.parsed("xb" if mode == "x" else "wb")
        with cast(WriteFile, open_writer(key, how, -1)) as target:  # now, so that a refusal comes before the work
            yield path
            if not process.inherited(made_in):
                _upload(path, target)


@contextlib.contextmanager
def _temporary_path(fs: Core, key: str) -> Iterator[str]:
    """Give a path with the name of `key`, or with its suffix, in a new folder, which is removed at the end."""
    name = keys.name(key)
    if len(os.fsencode(name)) > _LONGEST_NAME:
        suffix = os.path.splitext(name)[1]
        name = "file" + (suffix if len(os.fsencode(suffix)) < _LONGEST_NAME else "")
    try:
        folder = _TemporaryFolder()
    except OSError as exc:
        fs._named(exc, "as_local", key)
        raise
    try:
        yield os.path.join(folder.path, name)
    finally:
        folder.abort()


class _TemporaryFolder:
    """A folder that is removed, at the latest when the interpreter exits, by the process that has made it.

    It has its name before it is made, and keeps it until it is gone: an exception of a signal handler leaves none.
    """

    def __init__(self) -> None:
        self.path = os.path.join(temporary.folder(), f"fsabs-{os.urandom(8).hex()}")
        self._made_in = process.generation()
        process.abort_at_exit(self)
        os.mkdir(self.path, 0o700)

    def abort(self) -> None:
        """Remove the folder, and what is in it."""
        if self.path and not process.inherited(self._made_in):
            _remove(self.path)
        self.path = ""

    def __del__(self) -> None:
        if getattr(self, "path", ""):  # the end of the block was interrupted
            self.abort()


def _remove(folder: str) -> None:
    """Remove a folder. `shutil.rmtree`, which may close a descriptor twice if it is interrupted, is for directories."""
    import shutil  # loaded by `tempfile` when the folder was made

    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)
        os.rmdir(folder)


def _download(fs: Core, key: str, path: str) -> None:
    try:
        with fs._open_from_start(key) as blob, open(path, "xb", 0) as file:
            for piece in copying.pieces(blob):
                temporary.write_all(file, piece)
    except OSError as exc:
        fs._named(exc, "as_local", key)
        raise


def _upload(path: str, target: WriteFile) -> None:
    try:
        source = open(path, "rb", 0)  # noqa: SIM115 - its error alone is replaced
    except FileNotFoundError:
        raise errors.error(ENOENT, "as_local", target.name, f"the block left no file at {path}") from None
    except IsADirectoryError:
        raise errors.error(EISDIR, "as_local", target.name, f"the block left a directory at {path}") from None
    with source:
        while piece := source.read(copying.PIECE):
            target.write(piece)
