"""Filesystems that each write wrongly in one way, and the statement of `docs/semantics.md` that each of them breaks."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from fsabs.containers.zip import Zip
from fsabs.core import keys, process
from fsabs.core.blobs import Blob, BytesBlob
from fsabs.core.fs import FS, FileStat, StrPath
from fsabs.core.layers import LayerFS
from fsabs.core.writing import UpdateWriter, WriteFile, Writer, WriterFile
from fsabs.testing import ContainerSubject, LocalSubject, MemorySubject, Subject, WrappedSubject
from tests.conformance import archives

from .broken import ALL, Broken, breaks


class Rewriter(Writer):
    """A writer around the right one."""

    def __init__(self, fs: Rewriting, key: str, inner: Writer) -> None:
        self.fs = fs
        self.key = key
        self.inner = inner
        self.total = 0

    def write(self, data: bytes) -> None:
        self.inner.write(data)

    def commit(self) -> None:
        self.inner.commit()

    def abort(self) -> None:
        self.inner.abort()


class Rewriting(LayerFS):
    """Files are written by a `kind`."""

    kind: Callable[[Any, str, Writer], Writer]

    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        return type(self).kind(self, key, super()._create(key, exclusive, *how))

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        FS._copy(self, source, src, dst)


class CuttingWriter(Rewriter):
    def write(self, data: bytes) -> None:
        self.inner.write(data[: max(0, 2_500_000 - self.total)])
        self.total += len(data)


@breaks("write-contents", "copy")
class LosesTheEnd(Rewriting):
    kind = CuttingWriter


class SwallowingWriter(Rewriter):
    def commit(self) -> None:
        with contextlib.suppress(OSError):
            self.inner.commit()


@breaks("close-raises", "write-exclusive")
class SwallowsErrors(Rewriting):
    kind = SwallowingWriter


class PublishingWriter(Rewriter):
    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self.inner.commit()


@breaks("whole-exception", "whole-dropped")
class PublishesOnException(Rewriting):
    kind = PublishingWriter


class ThroughWriter(Rewriter):
    def write(self, data: bytes) -> None:
        self.inner.write(data)
        self.inner.commit()


@breaks("whole-invisible", "whole-replace")
class PublishesEveryBlock(Rewriting):
    kind = ThroughWriter


@breaks("whole-replace")
class TruncatesAtOpen(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        if self.inner.isfile(f"/{key}"):
            self.inner._remove(key)
        return super()._create(key, exclusive, *how)


@breaks("write-replace")
class AddsToWhatIsThere(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        return super()._create(key, exclusive, not exclusive)


@breaks("write-replace")
class SameVersionForEver(LayerFS):
    def _stat(self, key: str, *how: Any) -> FileStat:
        return super()._stat(key, *how)._replace(version="1")

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        return (stat._replace(version="1") for stat in super()._list(key, *how))

    def _walk(self, key: str, *how: Any) -> Iterator[FileStat]:
        return (stat._replace(version="1") for stat in super()._walk(key, *how))

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return BytesBlob(self, key, next(self.inner._read_many((key,))), "1")


@breaks("write-exclusive")
class NotExclusive(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        return super()._create(key, False)


@breaks("write-parent")
class MakesParents(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        if keys.parent(key) and not self.inner.exists(f"/{keys.parent(key)}"):
            self.inner._makedirs(keys.parent(key), 0o777)
        return super()._create(key, exclusive, *how)


@breaks("write-directory")
class TakesDirectoriesForMissing(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        if self.inner.isdir(f"/{key}"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return super()._create(key, exclusive, *how)


@breaks("write-visible")
class RemembersListings(LayerFS):
    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._seen: dict[str, list[Any]] = {}

    def list(self, *arguments: Any, **keywords: Any) -> Any:
        asked = repr((arguments, keywords))
        if asked not in self._seen:
            self._seen[asked] = list(super().list(*arguments, **keywords))
        return iter(self._seen[asked])


@breaks("write-modes")
class TakesPlusForNothing(LayerFS):
    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        return super().open(path, mode.replace("+", ""), *rest, **keywords)


@breaks("write-text")
class WritesNewlinesAsTheyAre(LayerFS):
    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        text = "b" not in mode and "w" in mode
        return super().open(path, mode, *rest, **({**keywords, "newline": ""} if text else keywords))


class Rewritten(LayerFS):
    """Binary files that are written are a `kind`."""

    kind: type[WriteFile] = WriteFile
    raw: type[WriterFile] = WriterFile

    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        if mode != "wb":
            return super().open(path, mode, *rest, **keywords)
        key = self._key(path, "open")
        return cast(IO[Any], self.kind(self.raw(self._create(key, False), self._url(key))))


class PositionlessFile(WriteFile):
    def tell(self) -> int:
        return 0


@breaks("write-contents")
class WrittenFilesHaveNoPosition(Rewritten):
    kind = PositionlessFile


class ReadableFile(WriteFile):
    def readable(self) -> bool:
        return True


@breaks("write-file-object")
class WrittenFilesSayTheyRead(Rewritten):
    kind = ReadableFile


class PickledFile(WriteFile):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return io.BytesIO, ()


@breaks("pickle-writer")
class WrittenFilesPickle(Rewritten):
    kind = PickledFile


class UnwarnedFile(WriteFile):
    def __del__(self) -> None:
        self.close()


@breaks("whole-dropped")
class WritesOnCollection(Rewritten):
    kind = UnwarnedFile


class ReusableFile(WriteFile):
    def write(self, data: Any, /) -> int:
        return len(data) if self.closed else super().write(data)


@breaks("write-closed")
class WritesOnWhenClosed(Rewritten):
    kind = ReusableFile


class AnybodysFile(WriterFile):
    inherited = False

    def _leave_to_parent(self) -> None:
        self._generation = process.generation()


@breaks("whole-forked", over=LocalSubject)
class ChildrenFinishTheirParentsFiles(Rewritten):
    raw = AnybodysFile


@breaks("whole-forked", "append")
class PlainText(LayerFS):
    """Text over the right binary files: a child writes what its parent had buffered, and marks come in the middle."""

    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        if "b" in mode or "r" in mode:
            return super().open(path, mode, *rest, **keywords)
        return io.TextIOWrapper(super().open(path, mode + "b"), **keywords)


@breaks("whole-forked", over=LocalSubject)
class UpdatesThroughASharedPosition(LayerFS):
    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if update:
            return UpdateWriter(open("/" + key, "r+b"))
        return self.inner._create(key, exclusive, append)


class RememberingWriter(Rewriter):
    """Appends to what was there when it began."""

    def __init__(self, fs: Rewriting, key: str, inner: Writer) -> None:
        super().__init__(fs, key, inner)
        self.data = fs.inner.read_bytes(f"/{key}")

    def write(self, data: bytes) -> None:
        self.data += data

    def commit(self) -> None:
        writer = self.fs.inner._create(self.key, False)
        writer.write(self.data)
        writer.commit()


@breaks("append")
class AppendsToWhatWasThere(Rewriting):
    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        writer = super()._create(key, exclusive, append, update)
        return RememberingWriter(self, key, writer) if append else writer


class InPlaceWriter(Writer):
    """As a plain open() would."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by commit or abort

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()

    def abort(self) -> None:
        self._file.close()


@breaks("whole-killed", "whole-exit", "whole-invisible", "whole-exception", over=LocalSubject)
class WritesInPlace(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        if self.inner.isdir(f"/{key}"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return InPlaceWriter("/" + key)


class SidewaysWriter(Rewriter):
    """As one that writes beside the file, under a name that is not hidden."""

    def write(self, data: bytes) -> None:
        self.inner.write(data)
        with open(f"/{self.key}.tmp", "wb") as file:
            file.write(data)

    def commit(self) -> None:
        self.abort()
        self.inner.commit()

    def abort(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"/{self.key}.tmp")


@breaks("whole-killed", "whole-invisible", over=LocalSubject)
class LeavesTemporaryFiles(Rewriting):
    kind = SidewaysWriter


@breaks("append")
class AppendsFromTheStart(LayerFS):
    def _create(self, key: str, exclusive: bool, *how: Any) -> Writer:
        return self.inner._create(key, exclusive)


@breaks("update", over=LocalSubject)
class UpdatesFromNothing(LayerFS):
    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if update:
            self.inner._stat(key)
            return UpdateWriter(open("/" + key, "w+b"))
        return self.inner._create(key, exclusive, append)


class LatestBlob(BytesBlob):
    """What the file holds now, of the size that it had."""

    def _pread(self, size: int, offset: int) -> bytes:
        return cast(FS, self._origin).read_bytes("/" + self._key)[offset : offset + size]


@breaks("fresh-reader")
class ReadsTheLatest(LayerFS):
    def _open_blob(self, key: str, *how: Any) -> Blob:
        with self.inner._open_blob(key, *how) as blob:
            return LatestBlob(self.inner, key, blob.read_all(), blob.version)


# ---- changes


@breaks("mkdir")
class MakesDirectoriesAgain(LayerFS):
    def _mkdir(self, key: str, mode: int) -> None:
        if not self.inner.isdir(f"/{key}"):
            super()._mkdir(key, mode)


@breaks("makedirs")
class TakesFilesForDirectories(LayerFS):
    def makedirs(self, path: StrPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        if not (exist_ok and self.exists(path)):
            super().makedirs(path, mode, exist_ok)


@breaks("rename-file")
class RenameLoses(LayerFS):
    def _rename(self, src: str, dst: str) -> None:
        super()._rename(src, dst)
        if self.inner.isfile(f"/{dst}"):
            self.inner._remove(dst)


@breaks("rename-file")
class RenameCopies(LayerFS):
    def _rename(self, src: str, dst: str) -> None:
        if self.inner.isfile(f"/{src}"):
            self.inner._copy(self.inner, src, dst)
        else:
            super()._rename(src, dst)


@breaks("rename-directory")
class RenameIntoWhatIsThere(LayerFS):
    """As `mv`, and as HDFS does."""

    def _rename(self, src: str, dst: str) -> None:
        inside = self.inner.isdir(f"/{dst}") and self.inner.isdir(f"/{src}")
        super()._rename(src, keys.join(dst, keys.name(src)) if inside else dst)


@breaks("rename-errors")
class RenameOfNothing(LayerFS):
    def _rename(self, src: str, dst: str) -> None:
        if self.inner.exists(f"/{src}"):
            super()._rename(src, dst)


@breaks("remove")
class RemoveOfNothing(LayerFS):
    def remove(self, path: StrPath, recursive: bool = False) -> None:
        if self.exists(path):
            super().remove(path, recursive)


@breaks("remove-directory")
class RemovesDirectoriesUnasked(LayerFS):
    def remove(self, path: StrPath, recursive: bool = False) -> None:
        super().remove(path, recursive or self.isdir(path))


@breaks("remove-directory")
class RemovesTheFirstHundred(LayerFS):
    def _remove_tree(self, key: str, *how: Any) -> None:
        below = [stat.filename for stat in self.inner._walk(key) if stat.isfile()]
        for name in below[:100]:
            self.inner._remove(keys.join(key, name))
        if len(below) <= 100:
            super()._remove_tree(key, *how)


@breaks("directories-stay")
class DirectoriesGoWithTheirFiles(LayerFS):
    def _remove(self, key: str) -> None:
        super()._remove(key)
        parent = keys.parent(key)
        if parent != self._root and not list(self.inner._list(parent)):
            self._remove(parent)


@breaks("copy")
class CopiesMove(LayerFS):
    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        if src != dst:
            super()._copy(source, src, dst)
            self.inner._remove(src)


@breaks("write-many")
class WritesAllButOne(LayerFS):
    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        return super()._write_many((pair for number, pair in enumerate(pairs) if number != 7), concurrency) + 1


@breaks("write-many")
class SwallowsFailuresOfMany(LayerFS):
    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        with contextlib.suppress(Exception):
            return super()._write_many(pairs, concurrency)
        return 0


@breaks("write-directory")
class WritesBelowASlash(LayerFS):
    def _file_key(self, path: StrPath, operation: str) -> str:
        return self._key(path, operation)


@breaks("remove-root")
class RemovesItsRoot(LayerFS):
    def _remove_tree(self, key: str, *how: Any) -> None:
        for member in list(self.inner._list(key)):
            if not member.directory:
                self.inner._remove(keys.join(key, member.filename))


@breaks("unnamed")
class CallsEverythingUnnamed(LayerFS):
    _listed_by = FS._listed_by

    def _unnamed(self, key: str) -> Iterator[str]:
        return (stat.filename for stat in self.inner._walk(key))


@breaks("text-whole")
class TextsAreUtf8(LayerFS):
    def read_text(self, path: StrPath, *rest: Any, **keywords: Any) -> str:
        return super().read_bytes(path).decode("utf-8", "replace")


@breaks("copy-tree")
class CopiesNoEmptyFiles(LayerFS):
    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        return (stat for stat in super()._list(key, *how) if stat.size or stat.directory)


class PathOfAnEmptyFile(LayerFS):
    @contextlib.contextmanager
    def as_local(self, path: StrPath, mode: str = "r") -> Iterator[str]:
        yield os.devnull


ALL.append(Broken("PathOfAnEmptyFile", ("as-local",), lambda: WrappedSubject(MemorySubject(), PathOfAnEmptyFile)))


# ---- containers


class PublishedAnyway(Zip):
    def _abort(self) -> None:
        self._close()


class PickledWhenWritten(Zip):
    def __getstate__(self) -> dict[str, Any]:
        return {}


def _zip_opened_as(kind: type[Zip]) -> Subject:
    build = functools.partial(archives.build_zip, zipfile.ZIP_STORED)
    return ContainerSubject("a.zip", build, archives.parse_zip, MemorySubject(), kind)


ALL.append(Broken("PublishedAnyway", ("whole-container",), lambda: _zip_opened_as(PublishedAnyway)))
ALL.append(Broken("PickledWhenWritten", ("pickle-writer",), lambda: _zip_opened_as(PickledWhenWritten)))
