"""The base of all containers: the file in the parent FS, its URLs, atomic writing, members on their way in; and the
directories of an archive whose entries are a mapping by key, as tar's is.

A container that is added to is written anew, with what it had. The version of its file is remembered when it is opened,
and compared at the commit: where another has changed the file meanwhile, that stays, and the commit is an error. On a
local disk the comparison and the commit are done under a lock of the file, as far as there are locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ..core import errors, identity, keys
from ..core.blobs import Blob, Hint
from ..core.fs import FS, Capabilities, FileStat, StrPath
from ..core.identity import Place
from ..core.layers import LayerFS
from ..core.limits import Limits
from ..core.writing import LayerWriter, WriteFile, Writer
from ..disk.temporary import Spool
from .in_memory import in_memory_if_small

if TYPE_CHECKING:
    from typing import Self

MAX_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of one written member that are kept in memory; a larger one moves to a temporary file without a name."""

_State = tuple[str | None, int, float | None]
"""Version, size and modification time of a file."""


class Problem(NamedTuple):
    """Something wrong with one entry of a container, or with the container itself."""

    path: str
    """The entry's name as the container has it; `""` for the container itself."""
    kind: str
    """What it is, in one or two words that are the same for every case of it: `duplicate`, `unsafe name`, ..."""
    detail: str
    """A sentence for people: what was found, where, and what was expected."""


READ_ONLY = Capabilities(implied_directories=True, versions=True)
READING = READ_ONLY._replace(last_modified=True)
WRITING = Capabilities(read=False, write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True)
ADDING = WRITING._replace(replace=True, remove=True)
"""The capabilities of an archive, zip or tar, that is read, written or added to."""


class Container(FS):
    """An FS that is a file of another FS.

    Opened with `r` it reads `self._blob`; opened with `w`, `x` or `a` it writes to `self._out`, a file that becomes
    visible when the container is closed, complete, or never: an exception in its `with` block throws it away.

    Closing one that was opened with `a` raises `StaleFileError` if its file has changed meanwhile, `FileExistsError` if
    there was none and there is one now; what is there stays as it is.
    """

    modes: str = "r"
    """The modes that the format knows, of `r w x a`."""

    def __init__(
        self, parent: FS, path: StrPath, mode: str = "r", limits: Limits | None = None, stat: FileStat | None = None
    ) -> None:
        """`stat`: of the file that is read, as a listing gave it."""
        self._parent = parent
        self.limits = parent.limits if limits is None else limits.checked()
        self._file = parent._key(path, "open_container")
        self._file_url = parent._url(self._file)
        self._mode = mode
        self._owned: list[FS] = []
        self._blob: Blob | None = None
        self._out: WriteFile | None = None
        self._found: _State | None = None
        self._unfinished: dict[object, str] = {}  # members that are being written, or were dropped unclosed
        self.scheme = parent.scheme
        if mode not in ("r", "w", "x", "a"):
            raise ValueError(f"a container's mode is r, w, x or a, not {mode!r}")
        if mode not in self.modes:
            raise parent._unsupported(f"open a {type(self).__name__} with mode {mode!r}", self._file)
        if mode == "r":
            self._blob = self._open_file(stat)
            return
        if mode == "a" and (state := self._state("open_container")) is not None:
            self._found, self._blob = state, self._open_file()
        try:
            self._check_opened()
            new = mode == "x" or (mode == "a" and self._blob is None)
            self._out = parent.open("/" + self._file, "xb" if new else "wb")
        except BaseException:
            if self._blob is not None:
                self._blob.close()
            raise

    @property
    def file_url(self) -> str:
        """The full URL of the container's file."""
        return self._file_url

    def own(self, fs: FS) -> None:
        """Have `fs` closed together with this container."""
        self._owned.append(fs)

    def _open_file(self, stat: FileStat | None = None) -> Blob:
        if self._file == "":
            raise errors.error(errno.EISDIR, "open_container", self.file_url)
        try:
            blob = self._parent._open_blob(self._file, Hint.ANY, stat)
        except OSError as exc:
            errors.named(exc, "open_container", self.file_url)
            raise
        return in_memory_if_small(self._parent, self._file, blob)

    def _state(self, operation: str) -> _State | None:
        """What distinguishes the container's file from a later one: version, size, time; None if there is no file."""
        try:
            stat = self._parent._stat(self._file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            errors.named(exc, operation, self.file_url)
            raise
        return stat.version, stat.size, stat.last_modified

    def _check_opened(self) -> None:
        """Raise `StaleFileError` if the file that is added to was opened in another version than it was found in."""
        if self._found is None or self._blob is None:
            return
        version, size, _ = self._found
        if self._blob.size != size or (version and self._blob.version and self._blob.version != version):
            raise errors.stale(self.file_url, "the file changed while it was opened", "open_container")

    def _reader(self) -> Blob:
        """The container's bytes; `ValueError` once it is closed."""
        if self._blob is None or self._blob._closed:
            raise ValueError(f"I/O operation on a closed container: {self.file_url}")
        return self._blob

    def _writer(self) -> WriteFile:
        """The file that the container is written to; `ValueError` once it is closed."""
        if self._out is None or self._out.closed:
            raise ValueError(f"I/O operation on a closed container: {self.file_url}")
        return self._out

    def _no_reading(self, key: str) -> io.UnsupportedOperation:
        """The error for opening a member of a container that is written, to be read or as a container to add to."""
        reason = (
            f"nothing can be read from a {type(self).__name__} while it is written, nor added to a container that lies "
            "in it: copy that out, add to the copy, and write it back"
        )
        return errors.unsupported("open for reading", self._url(key), reason)

    def _member(self, key: str, writer: Writer) -> Writer:
        """Return `writer`, watched: unless it is committed or aborted, the container can't be closed."""
        return _MemberWriter(writer, self._unfinished, key)

    def _check_members(self) -> None:
        if found := sorted(self._unfinished.values()):
            some = f"{', '.join(found[:3])}{', ...' if len(found) > 3 else ''}"
            reason = f"{len(found)} members are still open for writing, or were dropped unclosed: {some}"
            raise errors.error(errno.EBUSY, "close", self.file_url, reason)

    def _finish(self) -> None:
        """Write what the format has at its end; called once, before a written container becomes visible."""

    def _close(self) -> None:
        try:
            if self._out is not None and not self._out.closed:
                self._commit(self._out)
        finally:
            if self._blob is not None:
                self._blob.close()
        for fs in self._owned:
            fs.close()

    def _commit(self, out: WriteFile) -> None:
        try:
            if not out.inherited:
                self._check_members()
                self._finish()
            if out.inherited or self._blob is None:
                out.close()
                return
            out.flush()  # so that little is left to be done under the lock
            with locked(self._blob, "close"):
                if self._state("close") != self._found:
                    reason = "the file changed while it was added to: it stays as it is now, and nothing was added"
                    raise errors.stale(self.file_url, reason, "close")
                out.close()
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        if self._out is not None:
            self._out.abort()
        if self._blob is not None:
            self._blob.close()
        for fs in self._owned:
            fs._abort()

    def _url(self, key: str) -> str:
        return keys.join_url(self._file_url, key) if key else self._file_url

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        contents = self._contents_of(wanted, concurrency)
        return self._with_versions(wanted, contents) if versions else contents

    def _contents_of(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        """Yield the contents of members."""
        return super()._read_many(wanted, concurrency)

    def _with_versions(self, wanted: Sequence[str], contents: Iterator[bytes]) -> Iterator[tuple[bytes, str | None]]:
        """Yield contents with versions: a member's is the archive's, which is open."""
        for key, data in zip(wanted, contents, strict=True):
            yield data, self._stat(key).version

    def _resolved_store(self) -> str:
        return identity.store(self._parent)

    def _place(self, key: str) -> Place:
        return Place("member", identity.place(self._parent, self._file), key)

    def _places(self, key: str) -> Iterator[Place]:
        yield from super()._places(key)
        yield from identity.places(self._parent, self._file)

    def _principal(self) -> str:
        return identity.principal(self._parent)

    def _make_durable(self, keys: Iterable[str]) -> None:
        self._parent.backing._make_durable([self._file])

    def _describe_store(self) -> dict[str, str]:
        return self._parent.backing._describe_store()

    def left_out(self) -> Sequence[Problem]:
        """Return the members without content: with names that lead out of the container, devices, links to nothing."""
        return ()

    @property
    def parent(self) -> FS:
        """The FS that the container's file is in."""
        return self._parent

    def _is_strong(self, version: str) -> bool:
        """Return whether the archive's version is strong: a member has no other."""
        archive = self._blob.version if self._blob is not None else None
        return archive is not None and identity.is_strong(self._parent, archive)

    def __copy__(self) -> Self:
        """Return the copy that `subfs` starts from: it shares the open file, also of a container that is written."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        if self._out is not None:
            raise TypeError(f"a container opened for writing can't be pickled: {self.file_url}")
        return self.__dict__.copy()

    def __repr__(self) -> str:
        inside = f", {self._root!r}" if self._root else ""
        return f"{type(self).__name__}({self._parent!r}, {self._file!r}{inside})"


class _MemberWriter(LayerWriter):
    """A member of a container on its way in; it takes no lock, as the garbage collector may be what ends it."""

    def __init__(self, inner: Writer, unfinished: dict[object, str], key: str) -> None:
        super().__init__(inner)
        self._unfinished, self._token = unfinished, object()
        unfinished[self._token] = key

    def commit(self) -> None:
        super().commit()
        self._unfinished.pop(self._token, None)

    def abort(self) -> None:
        super().abort()
        self._unfinished.pop(self._token, None)

    leave = abort  # no member is continued


class SpooledWriter(Writer):
    """A member on its way into a format that takes one at a time, and can't take one back: several may be open at once.

    It keeps what is written, and at `commit()` calls `on_commit(file, size)` with a file of it, positioned at 0.

    The file is closed after the call. `on_abort()`, if given, is called when the member is thrown away, also when
    `on_commit` raised; it is called once, and never after an `on_commit` that returned.
    """

    takes_views = True

    def __init__(self, on_commit: Callable[[IO[bytes], int], None], on_abort: Callable[[], None] | None = None) -> None:
        self._on_commit = on_commit
        self._on_abort = on_abort
        self._file: Spool | None = Spool(MAX_IN_MEMORY)
        self._size = 0

    def write(self, data: bytes) -> None:
        """Keep all of `data`."""
        self._spool().write(data)
        self._size += len(data)

    def commit(self) -> None:
        """Hand the member over."""
        file = self._spool()
        file.seek(0)
        self._on_commit(cast(IO[bytes], file), self._size)
        self._file = None
        file.close()

    def abort(self) -> None:
        """Forget the member; after a commit there is nothing to forget."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        if self._on_abort is not None:
            self._on_abort()

    def _spool(self) -> Spool:
        if self._file is None:
            raise ValueError("the member is committed or aborted already")
        return self._file

    def __del__(self) -> None:
        if self._file is not None:  # a forked child's copy, which is neither committed nor aborted
            self._file.close()


@contextlib.contextmanager
def locked(blob: Blob, operation: str) -> Iterator[None]:
    """Hold a lock of the file of `blob` in the block; `BlockingIOError` if another program is writing to it.

    The lock is `flock`'s, as h5py's is: exclusive, or where others have the file open for reading, shared with them.
    Where there are no locks, as in an object store, nothing is locked.
    """
    try:
        fd = blob.fileno()
    except io.UnsupportedOperation:
        yield
        return
    try:
        _lock(fd)
    except BlockingIOError:
        reason = "another program has the file open for writing, and holds its lock"
        raise errors.error(errno.EAGAIN, operation, blob.url, reason) from None
    except OSError:  # a filesystem without locks
        pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # and not only a close: a forked child may have the descriptor, too


def _lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


class OwningFS(LayerFS):
    """A container whose class is a plain FS, and which is closed together with the FS that it lies in."""

    def __init__(self, inner: FS, owned: FS) -> None:
        super().__init__(inner)
        self._owned = owned

    def _close(self) -> None:
        super()._close()
        self._owned.close()

    def _abort(self) -> None:
        super()._abort()
        self._owned._abort()

    def __repr__(self) -> str:
        return repr(self.inner)


E = TypeVar("E")


class NameTree(Generic[E]):
    """The entries of an archive by key; immutable once made.

    A file's key is its path without a `/` at either end; a directory's, where the archive itself has an entry for it,
    ends in `/`. Directories that only the names of files tell of are there, too.
    """

    def __init__(self, entries: Mapping[str, E], names: Sequence[str] | None = None) -> None:
        """`names` are the keys, sorted, where the caller has them so already."""
        self.entries = entries
        self._names = sorted(entries) if names is None else names

    def __len__(self) -> int:
        return len(self.entries)

    def file(self, key: str) -> E:
        """The entry of the file `key`; `IsADirectoryError`, `FileNotFoundError`, `NotADirectoryError`."""
        entry = self.entries.get(key)
        if entry is None:
            raise self._no_file(key)
        return entry

    def after(self, key: str) -> Iterator[tuple[str, E]]:
        """Yield the entries whose names come after `key`, in order."""
        for at in range(bisect_left(self._names, key) + 1, len(self._names)):
            yield self._names[at], self.entries[self._names[at]]

    def isdir(self, key: str) -> bool:
        """Return whether `key` is a directory."""
        if not key:
            return True
        at = bisect_left(self._names, key + "/")
        return at < len(self._names) and self._names[at].startswith(key + "/")

    def children(self, key: str) -> Iterator[tuple[str, E | None]]:
        """The members of the directory `key` in order: name (a directory's ends in `/`) and entry, None if implied."""
        if key in self.entries and not self.isdir(key):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not self.isdir(key):
            raise self.missing(key)
        return self._children(key + "/" if key else "")

    def _children(self, prefix: str) -> Iterator[tuple[str, E | None]]:
        names = self._names
        at = bisect_left(names, prefix)
        while at < len(names) and names[at].startswith(prefix):
            name, slash, _ = names[at][len(prefix) :].partition("/")
            if not slash:
                if name:
                    yield name, self.entries[names[at]]
                at += 1
                continue
            yield name + "/", self.entries.get(prefix + name + "/")
            at = bisect_left(names, prefix + name + "0", at)  # "0" follows "/": behind all that is below the directory

    def _no_file(self, key: str) -> OSError:
        if self.isdir(key):
            return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self.missing(key)

    def missing(self, key: str) -> OSError:
        """Return the error for a key that is not there."""
        return missing(key, self.entries.__contains__)


def missing(key: str, is_file: Callable[[str], bool]) -> OSError:
    """Return the error for a key that is not there: `NotADirectoryError` below a file, else `FileNotFoundError`."""
    code = errno.ENOTDIR if any(map(is_file, keys.ancestors(key))) else errno.ENOENT
    return OSError(code, os.strerror(code))


class WrittenTree:
    """The files and directories of an archive that is written, in memory, with those of the one that is added to.

    The changes are for one thread at a time; what asks may come from any.
    """

    def __init__(
        self,
        time: float | None,
        old: Iterable[str] | None = None,
        stat_of_old: Callable[[str], FileStat] | None = None,
    ) -> None:
        """`time` is that of what is written; `old` are the names in an archive that is added to, a directory's with a
        `/`, which `stat_of_old` gives the stats of.
        """
        self._time = time
        self._stat_of_old = stat_of_old
        self.replaces: bool = old is not None
        """Whether a file takes the place of an earlier one of its name."""
        # The members by directory: the size of a file that was written, the stat of a directory that was, the name of
        # what is old, and None for a directory that only the names of files tell of.
        self._folders: dict[str, dict[str, FileStat | int | str | None]] = {"": {}}
        for path in old or ():
            self.add(path.rstrip("/"), path)

    def __contains__(self, key: str) -> bool:
        folder, _, name = key.rpartition("/")
        return not key or name in self._folders.get(folder, ())

    def stat(self, key: str) -> FileStat:
        """Return the stat of a file or directory; `FileNotFoundError`, `NotADirectoryError`."""
        if key not in self:
            raise self.missing(key)
        folder, _, name = key.rpartition("/")
        return self._stat(name, self._folders[folder][name] if key else None)

    def list(self, key: str) -> Iterator[FileStat]:
        """Return the members of a directory, with bare names; `FileNotFoundError`, `NotADirectoryError`."""
        members = self._folders.get(key)
        if members is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) if key in self else self.missing(key)
        return iter(sorted((self._stat(name, found) for name, found in list(members.items())), key=FileStat.listed))

    def _stat(self, name: str, found: FileStat | int | str | None) -> FileStat:
        if found is None:
            return FileStat.of_directory(name)
        if isinstance(found, int):
            return FileStat(name, found, False, self._time)
        if isinstance(found, str) and self._stat_of_old is not None:
            found = self._stat_of_old(found)
        return cast(FileStat, found)._replace(filename=name)

    def is_written(self, key: str) -> bool:
        """Return whether `key` is a file that was written, and not an old one."""
        folder, _, name = key.rpartition("/")
        return isinstance(self._folders.get(folder, {}).get(name), int)

    def missing(self, key: str) -> OSError:
        """Return the error for a key that is not there."""
        return missing(key, self._is_file)

    def _is_file(self, key: str) -> bool:
        return key in self and key not in self._folders

    def new_name(self, key: str) -> tuple[dict[str, FileStat | int | str | None], str] | None:
        """Return the members of the directory above `key`, and the name in it; None unless that name is a new one."""
        folder, _, name = key.rpartition("/")
        members = self._folders.get(folder)
        return None if members is None or not name or name in members else (members, name)

    def check_file(self, key: str, exclusive: bool) -> None:
        """Raise an error unless a file may be written: `IsADirectoryError`, `NotADirectoryError`, `FileExistsError`."""
        if self.new_name(key) is not None:
            return
        if any(map(self._is_file, keys.ancestors(key))):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if key in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if key in self and not self.replaces:
            reason = "the archive has a member of this name already, and what is written of it stays"
            raise FileExistsError(errno.EEXIST, reason)
        if key in self and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def check_directory(self, key: str) -> None:
        """Raise an error unless a directory may be made: `FileExistsError`, `NotADirectoryError`."""
        if key in self:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if any(map(self._is_file, keys.ancestors(key))):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def add(self, key: str, found: FileStat | int | str) -> None:
        """Add a file by its size, a directory by its stat, what is old by its name; and the directories above it."""
        if isinstance(found, FileStat) or (isinstance(found, str) and found.endswith("/")):
            self._folders.setdefault(key, {})
        folder, _, name = key.rpartition("/")
        if folder not in self._folders:
            for above in keys.ancestors(key):
                outer, _, inner = above.rpartition("/")
                self._folders[outer].setdefault(inner, None)
                self._folders.setdefault(above, {})
        self._folders[folder][name] = found

    def remove(self, key: str) -> None:
        """Take out a file, or a directory without members (ENOTEMPTY otherwise), with what it alone has implied."""
        if key not in self:
            raise self.missing(key)
        if self._folders.get(key):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        while True:
            self._folders.pop(key, None)
            folder, _, name = key.rpartition("/")
            members = self._folders[folder]
            del members[name]
            if members or not folder or self._folders[keys.parent(folder)][keys.name(folder)] is not None:
                return
            key = folder
