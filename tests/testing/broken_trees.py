"""Filesystems that are each wrong in one way about their trees, paths, errors or processes, and the statement of
`docs/semantics.md` that each of them breaks.
"""

from __future__ import annotations

import copy
import errno
import os
import threading
import time
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fsabs.core import keys
from fsabs.core.blobs import Blob
from fsabs.core.fs import FS, FileStat, StrPath
from fsabs.core.layers import LayerFS
from fsabs.core.stats import TreeCounts
from fsabs.testing import LocalSubject, MemorySubject, WrappedSubject

from .broken import breaks

# ---- trees


class Relisted(LayerFS):
    """Listings are what `change` makes of the right ones."""

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        return iter(self.change(list(super()._list(key, *how))))

    def _walk(self, key: str, *how: Any) -> Iterator[FileStat]:
        return FS._walk(self, key)

    def change(self, members: list[FileStat]) -> Iterable[FileStat]:
        raise NotImplementedError


@breaks("list-order")
class Unsorted(Relisted):
    def change(self, members: list[FileStat]) -> Iterable[FileStat]:
        return reversed(members)


@breaks("list-order")
class SortedWithoutSlash(Relisted):
    def change(self, members: list[FileStat]) -> Iterable[FileStat]:
        return sorted(members, key=lambda stat: stat.filename)


@breaks("list-names")
class DirectoriesWithoutSlash(LayerFS):
    def list(self, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        found = super().list(*arguments, **keywords)
        return (name.rstrip("/") if isinstance(name, str) else name for name in found)


@breaks("list-names", "walk")
class NamesFromTheRoot(LayerFS):
    def list(self, path: StrPath | None = "", recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        found: Iterator[Any] = super().list(path, recursive, detail)
        prefix = f"{path}/" if path and not detail else ""
        return (prefix + name if prefix else name for name in found)


@breaks("list-recursive")
class RecursiveFilesOnly(LayerFS):
    def _walk(self, key: str, *how: Any) -> Iterator[FileStat]:
        return (stat for stat in super()._walk(key, *how) if not stat.directory)


@breaks("list-detail")
class DetailWithoutSizes(Relisted):
    def change(self, members: list[FileStat]) -> Iterable[FileStat]:
        return [stat._replace(size=0) for stat in members]


@breaks("list-large")
class OnePageOnly(Relisted):
    def change(self, members: list[FileStat]) -> Iterable[FileStat]:
        return members[:500]


@breaks("list-empty")
class NoEmptyDirectories(LayerFS):
    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        for stat in super()._list(key, *how):
            if not stat.directory or list(self.inner._list(keys.join(key, stat.filename))):
                yield stat


@breaks("list-missing")
class ListsLazily(LayerFS):
    def list(self, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        yield from super().list(*arguments, **keywords)


@breaks("error-file")
class ListsAFileAsItself(LayerFS):
    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        stat = self.inner._stat(key)
        return iter([stat]) if stat.isfile() else super()._list(key, *how)


class Restat(LayerFS):
    """Stats of files are what `change` makes of the right ones."""

    def _stat(self, key: str, *how: Any) -> FileStat:
        stat = super()._stat(key, *how)
        return stat if stat.directory else self.change(stat)

    def change(self, stat: FileStat) -> FileStat:
        raise NotImplementedError


@breaks("stat", "agree", "read-whole")
class OneByteMore(Restat):
    def change(self, stat: FileStat) -> FileStat:
        return stat._replace(size=stat.size + 1)


@breaks("stat-version")
class EverNewVersions(Restat):
    def change(self, stat: FileStat) -> FileStat:
        return stat._replace(version=uuid.uuid4().hex)


@breaks("stat-modified")
class Milliseconds(Restat):
    def change(self, stat: FileStat) -> FileStat:
        return stat._replace(last_modified=1000 * (stat.last_modified or 0))


@breaks("agree")
class EverythingIsAFile(LayerFS):
    def isfile(self, path: StrPath) -> bool:
        return self.exists(path)


@breaks("exists")
class PrefixesExist(LayerFS):
    def _is(self, key: str, directory: bool | None, below: bool = False) -> bool:
        if super()._is(key, directory, below):
            return True
        try:
            members = list(self._list(keys.parent(key)))
        except OSError:
            return False
        return directory is not False and any(stat.filename.startswith(keys.name(key)) for stat in members)


@breaks("walk")
class WalksOnRegardless(LayerFS):
    def walk(self, path: StrPath = "") -> Iterator[tuple[str, list[str], list[str]]]:
        return ((base, list(folders), names) for base, folders, names in super().walk(path))


@breaks("walk")
class WalksFromTheRootAsIfRelative(LayerFS):
    def walk(self, path: StrPath = "") -> Iterator[tuple[str, list[str], list[str]]]:
        return ((base.lstrip("/"), folders, names) for base, folders, names in super().walk(path))


@breaks("usage")
class CountsDirectories(LayerFS):
    def usage(self, path: StrPath = "") -> TreeCounts:
        found = super().usage(path)
        return found._replace(files=found.files + len(list(super().walk(path))) - 1)


@breaks("sync-tree")
class RemovesNothingFromTheTarget(LayerFS):
    def sync_tree(
        self, src: StrPath, dst: StrPath, dst_fs: FS | None = None, *, delete: bool = False, **options: Any
    ) -> TreeCounts:
        return super().sync_tree(src, dst, dst_fs, **options)


class HastyWalk(Iterator[tuple[str, list[str], list[str]]]):
    """Takes a directory away before it has listed it."""

    def __init__(self, fs: FS, top: str) -> None:
        self.fs = fs
        self.todo = [top]

    def __next__(self) -> tuple[str, list[str], list[str]]:
        if not self.todo:
            raise StopIteration
        path = self.todo.pop()
        names = list(self.fs.list(path))
        directories = [name[:-1] for name in names if name.endswith("/")]
        self.todo += [os.path.join(path, name) for name in reversed(directories)]
        return path, directories, [name for name in names if not name.endswith("/")]


@breaks("fork-threads", over=LocalSubject)
class WalksHastily(LayerFS):
    def walk(self, path: StrPath = "") -> Iterator[tuple[str, list[str], list[str]]]:
        return HastyWalk(self, str(path))


@breaks("path-relative")
class WalksWhateverItIs(LayerFS):
    def walk(self, path: StrPath = "") -> Iterator[tuple[str, list[str], list[str]]]:
        return super().walk(str(path))


@breaks("glob")
class GlobsHiddenNames(LayerFS):
    def glob(self, pattern: StrPath) -> Iterator[str]:
        return iter(sorted([*super().glob(pattern), *(super().glob(".*") if pattern == "*" else [])]))


@breaks("glob")
class GlobsFilesAsDirectories(LayerFS):
    def glob(self, pattern: StrPath) -> Iterator[str]:
        return super().glob(str(pattern).rstrip("/"))


# ---- paths


class Rekeyed(LayerFS):
    """Paths are changed on their way in."""

    def _key(self, path: StrPath, operation: str) -> str:
        return super()._key(self.change(path), operation)

    def change(self, path: StrPath) -> StrPath:
        raise NotImplementedError


@breaks("path-names")
class ComposesNames(Rekeyed):
    def change(self, path: StrPath) -> StrPath:
        return unicodedata.normalize("NFC", path) if isinstance(path, str) else path


@breaks("path-names")
class DecodesNames(Rekeyed):
    def change(self, path: StrPath) -> StrPath:
        return keys.from_url_path(path) if isinstance(path, str) else path


@breaks("path-relative")
class StringsOnly(Rekeyed):
    def change(self, path: StrPath) -> StrPath:
        if not isinstance(path, str):
            raise TypeError("a path is a str")
        return path


@breaks("path-directory")
class DropsSlashes(LayerFS):
    def _read_key(self, path: StrPath, operation: str) -> str:
        return self._key(path, operation)


@breaks("path-nul")
class DropsNULs(Rekeyed):
    def change(self, path: StrPath) -> StrPath:
        return path.replace("\0", "") if isinstance(path, str) else path


@breaks("path-jail")
class OpenJail(LayerFS):
    def _key(self, path: StrPath, operation: str) -> str:
        return os.path.normpath(os.path.join("/", self._cwd, os.fspath(path))).strip("/")


@breaks("path-absolute", "subfs")
class AbsoluteFromItsRoot(LayerFS):
    def _key(self, path: StrPath, operation: str) -> str:
        text = os.fspath(path)
        return super()._key(f"/{self._root}/{text}" if text.startswith("/") else text, operation)


@breaks("path-cwd", "path-absolute")
class StaysWhereItIs(LayerFS):
    @property
    def cwd(self) -> str:
        return "/" + self._cwd

    @cwd.setter
    def cwd(self, path: StrPath) -> None:
        self._key(path, "cwd")


@breaks("subfs")
class SubFSMovesItsParent(LayerFS):
    def subfs(self, path: StrPath) -> Any:
        self.cwd = path
        return super().subfs("")


@breaks("url")
class PlainURLs(LayerFS):
    def _url(self, key: str) -> str:
        return keys.from_url_path(super()._url(key))


# ---- errors


class Reraised(LayerFS):
    """What `stat` and `open` raise is what `change` makes of it."""

    def _stat(self, key: str, *how: Any) -> FileStat:
        try:
            return super()._stat(key, *how)
        except OSError as exc:
            raise self.change(exc) from exc

    def _open_blob(self, key: str, *how: Any) -> Blob:
        try:
            return super()._open_blob(key, *how)
        except OSError as exc:
            raise self.change(exc) from exc

    def change(self, exc: OSError) -> Exception:
        raise NotImplementedError


@breaks("error-missing")
class WrongErrno(Reraised):
    def change(self, exc: OSError) -> Exception:
        wrong = FileNotFoundError(errno.ENOENT, "gone")
        wrong.errno = errno.EIO
        return wrong


@breaks("error-missing", "error-directory", "error-file")
class ForeignExceptions(Reraised):
    def change(self, exc: OSError) -> Exception:
        return LookupError("NoSuchKey")


@breaks("error-missing")
class AlwaysMissesEverything(Reraised):
    def change(self, exc: OSError) -> Exception:
        return PermissionError(errno.EACCES, "forbidden")


@breaks("error-attributes")
class ForgetsTheFilename(LayerFS):
    def stat(self, path: StrPath) -> FileStat:
        try:
            return super().stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "not found") from None


@breaks("error-attributes")
class NamesThePathAlone(LayerFS):
    def _named(self, exc: OSError, operation: str, key: str) -> None:
        exc.filename = key
        exc.operation = operation  # type: ignore[attr-defined]


@breaks("error-directory")
class DirectoriesAreEmptyFiles(LayerFS):
    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        for key in wanted:
            yield b"" if self.inner.isdir(f"/{key}") else next(super()._read_many((key,), *how))


# ---- threads and processes


@breaks("threads")
class OneScratchForAll(LayerFS):
    _wanted = ""

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        for self._wanted in wanted:
            time.sleep(0.0005)
            yield from super()._read_many((self._wanted,), *how)


@breaks("fork")
class KnowsItsProcess(LayerFS):
    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._pid = os.getpid()

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        if os.getpid() != self._pid:
            raise RuntimeError("not fork-safe")
        return super()._read_many(wanted, *how)


class Impatient(WrappedSubject):
    def __init__(self) -> None:
        super().__init__(MemorySubject(), HoldsALock)
        self.timeout = 1.5


class HoldsALock(LayerFS):
    """A forked child finds the lock as it was: held, and by nobody who would release it."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        with self._lock:
            time.sleep(0.002)
            return super()._read_many(wanted, *how)


@breaks("pickle-fs", "path-jail")
class PicklesLoseTheirRoot(LayerFS):
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)


@breaks("pickle-iterator")
class ListsByAGenerator(LayerFS):
    def list(self, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        return (item for item in super().list(*arguments, **keywords))


_here: dict[int, FS] = {}


def _find(number: int) -> FS:
    return copy.copy(_here[number])


@breaks("pickle-process")
class PicklesForThisProcessOnly(LayerFS):
    def __reduce__(self) -> tuple[Any, ...]:
        _here[id(self)] = self
        return _find, (id(self),)
