"""The core: the few methods that a backend or container writes, and the fast paths that it may override.

All of them are on keys counted from the backend's own root. The public face that every FS has is built on them in
`fs.py`; users call nothing here.
"""

from __future__ import annotations

import abc
import errno
import io
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import copying, errors, keys, writemany
from .blobs import Blob
from .files import Writer, committing
from .limits import DEFAULT, Limits
from .stats import Capabilities, FileStat, TreeUsage
from .threads import in_threads as in_threads


class Core(abc.ABC):
    """The methods that a backend or a container implements; see `FS`."""

    capabilities: Capabilities = Capabilities()
    scheme: str = ""
    default_concurrency: int = 1
    """The default number of files that `read_many` has in flight."""
    checks_writes: bool = False
    """The store compares what arrives with a checksum of what was written."""
    limits: Limits = DEFAULT
    """What files, globs and containers that are opened through this FS may cost."""

    _root: str = ""
    _cwd: str = ""
    _follows_all_links: bool = True  # so that there is nothing to be checked
    _borrowed: bool = False  # made by subfs: what is open belongs to another FS object

    # ---- the core: what a backend or container writes, on keys counted from the backend's own root

    @abc.abstractmethod
    def _stat(self, key: str) -> FileStat:
        """The stat of `key`; `FileNotFoundError` if there is nothing."""

    @abc.abstractmethod
    def _list(self, key: str) -> Iterator[FileStat]:
        """The members of the directory `key`, one level, with bare names.

        In the order of their names as listed (a directory counts with its `/`), by code point, unless `capabilities`
        say that they aren't `ordered`. `FileNotFoundError` or
        `NotADirectoryError` at the latest when the first item is asked for.
        """

    @abc.abstractmethod
    def _open_blob(self, key: str) -> Blob:
        """The blob of the file `key`; `FileNotFoundError`, `IsADirectoryError`."""

    @abc.abstractmethod
    def _url(self, key: str) -> str:
        """The full URL of `key`, with no secret in it."""

    # ---- what identities are made of: see `identity`

    def _resolved_store(self) -> str:
        """Return the store that the URLs are of, as it was resolved from options, configuration and environment.

        Two FS with the same text have the same content under the same URL, in whichever process; there is no secret in
        it. A backend that does not override this shares nothing that is kept with another FS object, except for copies
        of itself: pickled ones and those of forked processes.
        """
        return f"{type(self).__module__}.{type(self).__qualname__} {self.__dict__.setdefault('_token', _new_token())}"

    def _principal(self) -> str:
        """Return the principal that the store knows this FS as, with no secret in it; an empty string if there is none.

        A store's response to one principal is never returned to another one without a request.
        """
        return ""

    def _is_settled(self, version: str) -> bool:
        """Return whether no later content of a file can have `version`, as it may within a tick of a clock.

        Versions that are made of the content, or counted, always are.
        """
        return True

    def _describe_store(self) -> dict[str, str]:
        """Return how the store is reached, for people: endpoint, region, the source of credentials; no secret."""
        return {}

    # ---- writing

    def _create(self, key: str, exclusive: bool) -> Writer:
        """A writer of a new file; `exclusive` makes an existing one a `FileExistsError`, here or at commit."""
        raise self._unsupported("open for writing", key)

    def _append(self, key: str) -> Writer:
        """A writer at the end of the file `key`, made if missing (needs `append`)."""
        raise self._unsupported("open for appending", key)

    def _open_update(self, key: str) -> io.BufferedIOBase:
        """A file of the existing `key` that reads and writes in place (needs `update`)."""
        raise self._unsupported("open for update", key)

    def _mkdir(self, key: str, mode: int) -> None:
        """Make the directory `key`; `FileExistsError`, and `FileNotFoundError` without its parent."""
        raise self._unsupported("mkdir", key)

    def _rename(self, src: str, dst: str) -> None:
        """Move a file or directory; a file at `dst` is replaced."""
        raise self._unsupported("rename", src)

    def _remove(self, key: str) -> None:
        """Remove a file or an empty directory (ENOTEMPTY otherwise); `FileNotFoundError`."""
        raise self._unsupported("remove", key)

    def _close(self) -> None:  # noqa: B027 - nothing to free is a good answer
        """Free what is held in this process; may be called again."""

    def _abort(self) -> None:
        """As `_close`, after a failure: a container being written is thrown away."""
        self._close()

    # ---- fast paths: right as they stand, overridden where a store can do better

    def _walk(self, key: str) -> Iterator[FileStat]:
        """All files and directories below `key`, a directory before its members, names relative to `key`."""
        stack = [("", self._list(key))]
        while stack:
            base, members = stack[-1]
            member = next(members, None)
            if member is None:
                stack.pop()
                continue
            name = base + member.filename
            yield member._replace(filename=name)
            if member.directory and not self._leads_back(path := keys.join(key, name)):
                stack.append((name + "/", self._list(path)))

    def _list_names(self, key: str) -> Iterator[str]:
        """Yield the names of what `_list` yields, a directory's with its `/`."""
        return (member.listed() for member in self._list(key))

    def _walk_names(self, key: str) -> Iterator[str]:
        """Yield the names of what `_walk` yields, a directory's with its `/`."""
        return (member.listed() for member in self._walk(key))

    def _usage(self, key: str) -> TreeUsage:
        """Return what the files below the directory `key` add up to."""
        files = size = 0
        for member in self._walk(key):
            if not member.directory:
                files += 1
                size += member.size
        return TreeUsage(files, size)

    def _leads_back(self, key: str) -> bool:
        """Return whether the directory `key` is a link to one above it, which is listed and not entered."""
        return False

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        """The contents of the files `wanted`, in order."""
        workers = min(concurrency or self.default_concurrency, len(wanted))
        if workers <= 1:
            return map(self._read_bytes, wanted)
        return in_threads(self._read_bytes, wanted, workers)

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        """Yield content and version of the files `wanted`, in order; both are of one open file, or of one response."""
        workers = min(concurrency or self.default_concurrency, len(wanted))
        if workers <= 1:
            return map(self._read_versioned, wanted)
        return in_threads(self._read_versioned, wanted, workers)

    def _read_versioned(self, key: str) -> tuple[bytes, str | None]:
        with self._open_from_start(key) as blob:
            return blob.read_all(), blob.version

    def _in_storage_order(self, wanted: Sequence[str], admits: Callable[[str], bool]) -> Sequence[str]:
        """Return the keys `wanted` in the order in which the files are stored, with others that a cache `admits`.

        The others are whole files that a request for those covers, because it reads over small gaps, and few that
        follow one of them at once. `wanted` has each key once.
        """
        return wanted

    def _read_bytes(self, key: str) -> bytes:
        """The content of the file `key`."""
        with self._open_blob(key) as blob:
            return blob.read_all()

    def _open_from_start(self, key: str) -> Blob:
        """As `_open_blob`, for a reader that is likely to begin at the start: its first bytes may come with it."""
        return self._open_blob(key)

    def _open_to_read(self, key: str) -> Blob:
        """As `_open_from_start`, for a reader that is not likely to need the version."""
        return self._open_from_start(key)

    def _unnamed(self, key: str) -> Iterator[str]:
        """Yield the raw keys below the directory `key` that no path names; most stores can't have any."""
        return iter(())

    def _local_path(self, key: str) -> str | None:
        """Return the path of the file `key` on the local disk, or None where a file has none."""
        return None

    def _write_bytes(self, key: str, data: bytes) -> None:
        """Make `data` the content of the file `key`."""
        writer = self._create(key, False)
        try:
            writer.write(data)
            writer.commit()
        except BaseException:
            writer.abort()
            raise

    def _write_blob(self, key: str, blob: Blob) -> None:
        """Make the content of `blob` that of the file `key`; errors of writing name it."""
        try:
            with committing(self._create(key, False)) as writer:
                for piece in copying.pieces(blob):
                    writer.write(piece)
        except OSError as exc:
            self._named(exc, "copy", key)
            raise

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        """Write the files of `pairs` and return how many they are; a failure of one is an `OSError` that names it."""

        def write(key: str, data: bytes) -> None:
            try:
                self._write_bytes(key, data)
            except OSError as exc:
                self._named(exc, "write_many", key)
                raise

        workers = concurrency or self.default_concurrency
        return writemany.one_by_one(write, pairs) if workers == 1 else writemany.in_threads(write, pairs, workers)

    def _remove_tree(self, key: str) -> None:
        """Remove the directory `key` and all that is in it."""
        implied = self.capabilities.implied_directories
        for member in reversed(list(self._walk(key))):
            try:
                self._remove(keys.join(key, member.filename))
            except FileNotFoundError:
                if not (member.directory and implied):  # which is gone with the last file in it
                    raise
        if not implied or self._is(key, directory=True):
            self._remove(key)

    def _empty(self, key: str) -> None:
        """Remove all that is in the directory `key`, which stays."""
        for member in list(self._list(key)):
            path = keys.join(key, member.filename)
            self._remove_tree(path) if member.directory else self._remove(path)
        left = list(self._unnamed(key))
        if left:
            raise errors.unnamed_left(self._url(key), len(left), left[0])
        can = self.capabilities
        if key and can.implied_directories and can.mkdir and not self._is(key, directory=True):
            self._mkdir(key, 0o777)  # it went with the last file

    def _makedirs(self, key: str, mode: int) -> None:
        """Make the directory `key` and what is missing above it; `FileExistsError` if it is there."""
        wanted, tried = [key], set()
        while wanted:
            path = wanted[-1]
            try:
                self._mkdir(path, 0o777 if len(wanted) > 1 else mode)
            except FileNotFoundError:
                if not path or path in tried:
                    raise
                tried.add(path)
                wanted.append(keys.parent(path))
                continue
            except FileExistsError:  # above the wanted one: another process was faster
                if len(wanted) == 1:
                    raise
            wanted.pop()

    def _copy(self, src: str, dst: str) -> None:
        """Copy the file `src` to `dst`, replacing it."""
        with self._open_blob(src) as blob:
            self._write_blob(dst, blob)

    def _can_copy_from(self, source: Core) -> bool:
        """Return whether files of `source` can be copied to this FS without their bytes passing this process."""
        return False

    def _copy_from(self, source: Core, src: str, dst: str) -> None:
        """Copy the file `src` of `source` to `dst`, replacing it (needs `_can_copy_from`)."""
        raise self._unsupported("copy from another FS", dst)

    def _resume(self, key: str, source: Blob) -> tuple[Writer, int]:
        """Return a writer of the file `key`, and how many of the first bytes of `source` it has already.

        They were left by the `leave` of an earlier writer of the same content, or by a process that was killed.
        """
        return self._create(key, False), 0

    def _set_modified(self, key: str, when: float) -> None:
        """Make `when` the time of modification of the file `key` (needs `settable_times`)."""
        raise self._unsupported("set times", key)

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        """Return whether the file with this stat has the content of `blob`; None if the stat does not say."""
        return None

    # ---- for the methods above, and for what is built on them

    def _key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a path; one outside of the root is a `PermissionError`."""
        try:
            key, root = keys.normalize(path, self._cwd), self._root
            if root and key != root and not key.startswith(f"{root}/"):
                raise PermissionError(errno.EACCES, f"{path!r} is outside of this FS's root")
        except PermissionError as exc:
            self._named(exc, operation, self._root)
            raise
        if not self._follows_all_links:
            self._check_links(key, root, operation)
        return key

    def _check_links(self, key: str, root: str, operation: str) -> None:  # noqa: B027 - most stores have no links
        """Raise a `PermissionError` if a link on the way from the directory `root` to `key` may not be followed.

        It is called unless `_follows_all_links`: of a backend, and of each layer, which asks what it is around.
        """

    def _file_key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a file that is going to be written; a path that names a directory is refused."""
        key = self._key(path, operation)
        if os.fspath(path).endswith(("/", "/.", "/..")):
            raise errors.error(errno.EISDIR, operation, self._url(key))
        return key

    def _named(self, exc: OSError, operation: str, key: str) -> None:
        if getattr(exc, "operation", None) is None:
            errors.named(exc, operation, self._url(key))

    def _require(self, capability: str, operation: str, key: str) -> None:
        if not getattr(self.capabilities, capability):
            raise self._unsupported(operation, key)

    def _unsupported(self, operation: str, key: str) -> io.UnsupportedOperation:
        return errors.unsupported(operation, self._url(key), f"{type(self).__name__} can't {operation}")

    def _is(self, key: str, directory: bool | None) -> bool:
        try:
            found = self._stat(key).directory
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            self._named(exc, "stat", key)
            raise
        return directory is None or found == directory

    def _members(self, key: str, recursive: bool, detail: bool, start: int) -> Iterator[Any]:
        """Yield names as `FS.list` does, or stats with `detail`, from number `start` on."""
        try:
            if detail:
                members = self._walk(key) if recursive else self._list(key)
                for member in itertools.islice(members, start, None):
                    yield member._replace(filename=member.listed()) if member.directory else member
            else:
                names = self._walk_names(key) if recursive else self._list_names(key)
                yield from itertools.islice(names, start, None)
        except OSError as exc:
            self._named(exc, "list", key)
            raise

    def _rename_target(self, dst: str, source: FileStat) -> FileStat | None:
        """Return the stat of `dst`, or None; raise an error unless `source` can be renamed to it."""
        try:
            target = self._stat(dst)
        except FileNotFoundError:
            return None
        if target.directory and not source.directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if source.directory and not target.directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if target.directory and next(self._list(dst), None) is not None:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        return target


def _new_token() -> str:
    return os.urandom(8).hex()
