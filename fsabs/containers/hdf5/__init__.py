"""Hdf5, the container: an HDF5 file as an FS."""

from __future__ import annotations

import errno
import functools
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, cast

from ...core import errors, keys, process
from ...core.blobs import Blob, Hint
from ...core.files import buffered
from ...core.fs import (
    FS,
    Capabilities,
    FileStat,
    StrPath,
)
from ...core.limits import Limits, LinkedEntries
from ...core.writing import Writer
from ..base import READ_ONLY, Container, Problem, SpooledWriter, locked
from . import content
from .content import blob_of, size_of
from .library import BlobFile, check_installed, made, translated
from .writing import Draft

if TYPE_CHECKING:
    import h5py

_WRITING = Capabilities(read=False, write=True, exclusive=True, replace=True, mkdir=True, implied_directories=True)
_LINK_MODE = 0o120777
_PIECE = 8 * 1024 * 1024


class Hdf5(Container):
    """An HDF5 file: groups are directories, datasets are files.

    A 1-D `uint8` dataset, an opaque one of at most one dimension and a scalar string read as their bytes; any other
    dataset as the `.npy` file of its array, strings of any length as those of the longest one's. Arrays of references
    or of runs of other data are listed and can't be opened. Soft links are followed inside of the file; links to other
    files, and datasets whose data lie in other files (external, virtual), are listed and are a `PermissionError`.
    `h5py_file()` and `dataset()` give h5py's objects, which lead to no other file, either.

    The size of an array of strings of any length is known once it is opened: a listing says 0.

    Written (`w`, `x`, or `a` to add to a file), a file becomes a 1-D `uint8` dataset, and an existing one of the name
    is replaced; missing groups are made. While it is written, nothing can be read. Members of a file that is added to
    can be removed; their space stays in the file, for what is added. All is collected in a temporary file of this
    machine, and stored at `close()`. The bytes depend on the members, their order and the options alone.

    Args:
        compression: of the datasets that are written: `gzip`, `lzf`, or None: in one piece and as they are, so that
            they are read without going through HDF5.
        limits: what reading may cost, by default the limits of `parent`.
        stat: of the file that is read, as a listing gave it: no request asks for it.

    Raises `CorruptFileError` for what is no HDF5 file, or is damaged or cut, and `BlockingIOError` for a file that says
    that another program writes it (SWMR) or didn't close it, and for `a` if another program holds its lock.
    """

    modes = "rwxa"

    def __init__(
        self,
        parent: FS,
        path: StrPath,
        mode: str = "r",
        stat: FileStat | None = None,
        *,
        compression: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        if compression not in (None, "gzip", "lzf"):
            raise ValueError(f"unknown compression {compression!r}; known: gzip, lzf")
        if compression is not None and mode == "r":
            raise ValueError("compression is for a file that is written; what is in this one tells its own")
        check_installed()
        self._opened: process.PerProcess[h5py.File] = process.PerProcess(process.not_owned)
        self._draft: Draft | None = None
        super().__init__(parent, path, mode, limits, stat)
        try:
            if self._out is None:
                self.capabilities = READ_ONLY
                self.default_concurrency = parent.default_concurrency
                # No method of this object, which would be in a cycle that only the garbage collector frees.
                self._opened = process.PerProcess(functools.partial(_open, self._reader(), self._url("")), _close)
                made(self._opened)
            else:
                self.capabilities = _WRITING._replace(remove=mode == "a")
                if self._blob is not None:
                    with locked(self._blob, "open_container"):  # or h5py has it open, and hasn't written everything yet
                        BlobFile(self._blob).check_closed()
                self._draft = Draft(self.file_url, self._blob, compression, self.limits)
        except BaseException:
            self._abort()
            raise

    # ---- h5py's objects

    def h5py_file(self) -> h5py.File:
        """The `h5py.File`, this process's own; writable while the container is written."""
        from .objects import ConfinedFile

        return ConfinedFile(self._own_file(), self.limits)

    def _own_file(self) -> h5py.File:
        if self._draft is not None:
            self._check_ours("h5py_file", "")
            return self._draft.file
        self._reader()
        return made(self._opened)

    def dataset(self, path: StrPath) -> h5py.Dataset:
        """The `h5py.Dataset` at `path`, this process's own."""
        from .objects import confined

        key = self._key(path, "dataset")
        with self._naming("dataset", key):
            return confined(self._dataset(key), self.limits)

    # ---- reading

    def _node(self, key: str) -> h5py.Group | h5py.Dataset:
        file = self._own_file()
        with translated(self._url(key), "open"):
            return content.find(file, key, self.limits)

    def _dataset(self, key: str) -> h5py.Dataset:
        node = self._node(key)
        if content.is_group(node):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return node

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        node = self._node(key)
        with translated(self._url(key), "stat"):
            return self._to_stat(keys.name(key), node)

    def _to_stat(self, name: str, node: h5py.Group | h5py.Dataset | None) -> FileStat:
        if node is None:
            return FileStat(name, 0, mode=_LINK_MODE)
        if content.is_group(node):
            return FileStat.of_directory(name)
        version = None if self._blob is None or self._draft is not None else self._blob.version
        return FileStat(name, size_of(node, self.limits), version=version)

    def _group(self, key: str) -> h5py.Group:
        node = self._node(key)
        if not content.is_group(node):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return node

    def _children(self, key: str, group: h5py.Group) -> list[tuple[FileStat, h5py.Group | None]]:
        """The members of `group`, which is at `key`, in order, and of those that are groups the group.

        An object that HDF5 can't open is a file of size 0, which raises when it is opened.
        """
        file, url, read_only, found = self._own_file(), self._url(key), self._draft is None, []
        with translated(url, "list"):
            links = content.links(group)
        for kind, _, raw in links:
            name = content.text(raw)
            try:
                with translated(url, "list"):
                    node = content.linked(file, group, kind, raw, self.limits, read_only=read_only)
                    if content.is_listed(node):
                        stat = self._to_stat(name, node)
                        found.append((stat, node if stat.directory else None))
            except errors.CorruptFileError:
                found.append((FileStat(name, 0), None))
        found.sort(key=lambda item: item[0].filename + "/" if item[0].directory else item[0].filename)
        return found

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        return (stat for stat, _ in self._children(key, self._group(key)))

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[FileStat]:
        """As derived, but a link to a group above itself is listed and not entered."""
        group = self._group(key)
        return self._walk_below(key, group, self._identity(key, group))

    def _walk_below(self, key: str, group: h5py.Group, identity: tuple[int, int]) -> Iterator[FileStat]:
        entries = LinkedEntries(self.limits)
        above = {identity: None}
        levels = [("", entries.enter(identity), iter(self._children(key, group)))]
        while levels:
            base, repeated, members = levels[-1]
            stat, member = next(members, (None, None))
            if stat is None:
                levels.pop()
                above.popitem()
                continue
            entries.count(repeated)
            name = base + stat.filename
            yield stat._replace(filename=name)
            if member is not None and (identity := self._identity(keys.join(key, name), member)) not in above:
                if self.limits.beyond("max_depth", len(levels)):
                    what = f"groups lie {len(levels)} deep and more"
                    raise self.limits.error("max_depth", what, "list", self._url(key))
                above[identity] = None
                levels.append((name + "/", entries.enter(identity), iter(self._children(keys.join(key, name), member))))

    def _directory_identity(self, key: str) -> tuple[int, int]:
        return self._identity(key, self._group(key))

    def _identity(self, key: str, group: h5py.Group) -> tuple[int, int]:
        self._own_file()  # a ValueError once the container is closed
        with translated(self._url(key), "list"):
            return content.identity(group)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if self._draft is not None:
            raise self._no_reading(key)
        dataset = self._dataset(key)
        with translated(self._url(key), "open"):
            return blob_of(self, key, dataset)

    def left_out(self) -> Sequence[Problem]:
        """Return the links to nothing and to other files, and the objects that HDF5 can't open: files of size 0."""
        if self._draft is not None:
            return ()
        names = [stat.filename for stat in self._walk("") if not stat.directory and not stat.size]
        return [problem for name in names for problem in _of_file(name, functools.partial(self._stat, name))]

    def verify(self) -> list[Problem]:
        """Return the faults and oddities of the file; empty if there are none.

        Reads everything, so that HDF5 checks its checksums.

        The kinds: `damaged`, `lost link`, `external link`, `unreadable` (no bytes, or in other files), `unsafe name`,
        `limit` (there is too much to be listed, or to be read of a dataset: see `Limits`).
        """
        self._require("read", "verify", "")
        self._reader()
        return _problems(self, self._own_file())

    # ---- writing

    def _check_ours(self, operation: str, key: str) -> Draft:
        """Return the written file; `ValueError` once it is closed, `UnsupportedOperation` in a forked child."""
        if self._draft is None:
            raise self._unsupported(operation, key)
        if self._writer().inherited:
            raise errors.unsupported(operation, self._url(key), "the file was opened for writing in another process")
        return self._draft

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        draft = self._check_ours("open for writing", key)
        with translated(self._url(key), "open"):
            draft.check(key, exclusive)
        return self._member(key, SpooledWriter(functools.partial(self._add, key, exclusive)))

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        self._add(key, False, io.BytesIO(data), len(data))

    def _add(self, key: str, exclusive: bool, file: IO[bytes], size: int) -> None:
        draft = self._check_ours("close", key)
        with translated(self._url(key), "close"):
            draft.add(key, exclusive, file, size)

    def _write_blob(self, key: str, blob: Blob) -> None:
        """As derived, without a copy of the content on its way."""
        with self._naming("copy", key):
            self._add(key, False, cast(IO[bytes], buffered(blob)), blob.size)

    def _mkdir(self, key: str, mode: int) -> None:
        draft = self._check_ours("mkdir", key)
        with translated(self._url(key), "mkdir"):
            draft.mkdir(key)

    def _remove(self, key: str) -> None:
        draft = self._check_ours("remove", key)
        with translated(self._url(key), "remove"):
            draft.remove(key)

    def _finish(self) -> None:
        if self._draft is not None:
            out = self._writer()
            with translated(self.file_url, "close"):
                scratch = self._draft.finish()
            for piece in scratch.pieces():
                out.write(piece)
            scratch.drop()

    def _close(self) -> None:
        self._opened.close()
        super()._close()

    def _abort(self) -> None:
        self._opened.close()
        if self._draft is not None:
            self._draft.abort()
        super()._abort()


def _open(blob: Blob, url: str) -> h5py.File:
    import h5py

    source = BlobFile(blob)
    source.check_closed()
    with translated(url, "open_container"):
        return h5py.File(source, "r")


def _close(file: h5py.File) -> None:
    file.close()


# ---- the checks of `verify`, which read everything


def _problems(fs: FS, file: h5py.File) -> list[Problem]:
    """Return the problems of all members of `file`, which `fs` serves."""
    found: list[Problem] = []
    try:
        for stat in [*fs._walk("")]:
            if stat.directory:
                found += _unsafe_names(fs, file, stat.filename)
            else:
                found += _of_file(stat.filename, functools.partial(_read, fs, stat.filename))
        found += _unsafe_names(fs, file, "")
    except errors.CorruptFileError as exc:
        found.append(Problem("", "damaged", str(exc.strerror)))
    except OSError as exc:
        if exc.errno not in (errno.ELOOP, errno.EFBIG):
            raise
        found.append(Problem("", "limit", str(exc.strerror)))
    return found


def _read(fs: FS, key: str) -> None:
    with fs._open_blob(key) as blob:
        for offset in range(0, blob.size, _PIECE):
            blob.pread(_PIECE, offset)


def _of_file(key: str, read: Callable[[], object]) -> list[Problem]:
    """Return the problem that `read` of the file `key` raises; an error of the store is raised."""
    try:
        read()
    except FileNotFoundError as exc:
        return [Problem(key, "lost link", str(exc.strerror))]
    except PermissionError as exc:
        return [Problem(key, "external link", str(exc.strerror))]
    except io.UnsupportedOperation as exc:
        return [Problem(key, "unreadable", str(exc.strerror))]
    except OSError as exc:
        if exc.errno not in (errno.EFBIG, errno.ELOOP, errno.EBADMSG):
            raise
        return [Problem(key, "limit" if exc.errno == errno.EFBIG else "damaged", str(exc.strerror))]
    return []


def _unsafe_names(fs: FS, file: h5py.File, key: str) -> list[Problem]:
    with translated(fs._url(key), "verify"):
        group = content.find(file, key, fs.limits)
        names = [raw.decode("utf-8", "surrogateescape") for raw in group.id]
    return [
        Problem(keys.join(key, name), "unsafe name", "no path leads to it") for name in names if content.unsafe(name)
    ]
