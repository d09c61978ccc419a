"""Filesystems that are each wrong in one way, and the statement of `docs/semantics.md` that each of them breaks: those
that read files wrongly, or say wrong things of themselves. Others are in `broken_trees.py` and `broken_writes.py`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from fsabs.core.blobs import Blob, BytesBlob
from fsabs.core.files import LimitedReader, buffered
from fsabs.core.fs import FS, Capabilities, StrPath
from fsabs.core.layers import LayerFS
from fsabs.testing import MemorySubject, Subject, WrappedSubject


class Broken(NamedTuple):
    """A kind of FS, or of subject, and the ids that it breaks."""

    name: str
    ids: tuple[str, ...]
    subject: Callable[[], Subject]


ALL: list[Broken] = []


def breaks(*ids: str, over: Callable[[], Subject] = MemorySubject) -> Callable[[type[LayerFS]], type[LayerFS]]:
    """Note a broken layer, which is put around the FS of `over`."""

    def note(kind: type[LayerFS]) -> type[LayerFS]:
        ALL.append(Broken(kind.__name__, ids, lambda: WrappedSubject(over(), kind)))
        return kind

    return note


# ---- what it says of itself


@breaks("fs-info")
class InfoLeavesOut(LayerFS):
    def info(self) -> dict[str, Any]:
        return {"type": "LayerFS"}


@breaks("fs-repr")
class MuteRepr(LayerFS):
    __repr__ = object.__repr__


@breaks("fs-close")
class ClosesOnce(LayerFS):
    _shut = False

    def close(self) -> None:
        if self._shut:
            raise ValueError("closed already")
        self._shut = True


@breaks("fs-context")
class EntersAnother(LayerFS):
    def __enter__(self) -> Any:
        return self.subfs("")


@breaks("fs-subfs-borrows")
class SubFSClosesAll(LayerFS):
    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._shut: list[bool] = []

    def __exit__(self, *exc: object) -> None:
        self._shut.append(True)

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        if self._shut:
            raise ValueError("closed")
        return super()._read_many(wanted, *how)


@breaks("capabilities")
class DoesWhatItDoesntDeclare(LayerFS):
    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return self.inner.capabilities._replace(rename=False)

    def rename(self, src: StrPath, dst: StrPath) -> None:
        self.inner.rename(src, dst)


@breaks("capabilities", "error-attributes")
class RefusesWithoutAWord(LayerFS):
    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return self.inner.capabilities._replace(remove=False)

    def remove(self, path: StrPath, recursive: bool = False) -> None:
        raise io.UnsupportedOperation("no")


@breaks("identity")
class NamesAStoreAtRandom(LayerFS):
    backing = FS.backing

    def _resolved_store(self) -> str:
        return os.urandom(8).hex()


@breaks("identity")
class OneVersionForAll(LayerFS):
    def _url(self, key: str) -> str:
        return "memory://one"

    def _open_blob(self, key: str, *how: Any) -> Blob:
        with self.inner._open_blob(key, *how) as blob:
            return BytesBlob(self, key, blob.read_all(), "1")


# ---- files


@breaks("read-whole")
class ShortReadBytes(LayerFS):
    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        return (data[:100_000] for data in super()._read_many(wanted, *how))


class Reblobbed(LayerFS):
    """Files of blobs of `kind`, made of the whole content."""

    kind: type[BytesBlob]

    def _open_blob(self, key: str, *how: Any) -> Blob:
        with self.inner._open_blob(key, *how) as blob:
            return self.kind(self, key, blob.read_all(), blob.version)

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        return self.inner._read_many(wanted, *how)


class ForgetfulBlob(BytesBlob):
    def _pread(self, size: int, offset: int) -> bytes:
        return bytes(size) if offset > 500_000 else super()._pread(size, offset)


@breaks("read-pieces", "threads")
class LosesFarOffsets(Reblobbed):
    kind = ForgetfulBlob


class SortingBlob(BytesBlob):
    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return super()._pread_many(sorted(ranges, key=lambda one: one[1]))

    def pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._pread_many([(self._clip(size, offset), offset) for size, offset in ranges])


@breaks("read-positioned")
class SortsRanges(Reblobbed):
    kind = SortingBlob


class UnclippedBlob(BytesBlob):
    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size].ljust(size, b"\0")


@breaks("read-positioned")
class PadsAtTheEnd(Reblobbed):
    kind = UnclippedBlob


_NULL = os.open(os.devnull, os.O_RDONLY)


class NullBlob(BytesBlob):
    def fileno(self) -> int:
        return _NULL


@breaks("read-fileno")
class AnotherFilesDescriptor(Reblobbed):
    kind = NullBlob


class Reopened(LayerFS):
    """Binary files that are read are of a `kind`."""

    kind: type[LimitedReader]

    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        file: Any = super().open(path, mode, *rest, **keywords)
        if isinstance(file, io.BufferedReader):
            file = self.kind(cast(Any, file.detach()), 4096, 1 << 40)
        return cast(IO[Any], file)


@breaks("read-file-object")
class OpensBytesIO(LayerFS):
    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        file = super().open(path, mode, *rest, **keywords)
        return io.BytesIO(file.read()) if mode == "rb" else file


class LineReader(LimitedReader):
    def readline(self, size: int | None = -1, /) -> bytes:
        return super().readline(size).rstrip(b"\n")


@breaks("read-file-object", "read-pieces")
class LinesLoseTheirEnds(Reopened):
    kind = LineReader


class NeverClosed(LimitedReader):
    def close(self) -> None:
        pass


@breaks("read-closed")
class ReadsOnWhenClosed(Reopened):
    kind = NeverClosed


@breaks("read-positions")
class OneReaderForAll(LayerFS):
    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._readers: dict[str, IO[Any]] = {}

    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        if mode != "rb":
            return super().open(path, mode, *rest, **keywords)
        return self._readers.setdefault(str(path), super().open(path, mode))


class AlwaysAtTheStart(LimitedReader):
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return buffered, (self.raw.blob,)  # type: ignore[attr-defined]


@breaks("pickle-reader")
class PicklesLoseTheirPlace(Reopened):
    kind = AlwaysAtTheStart


@breaks("read-text")
class LeavesNewlines(LayerFS):
    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        return super().open(path, mode, *rest, **({**keywords, "newline": ""} if "b" not in mode else keywords))


@breaks("open-arguments")
class TakesAnyMode(LayerFS):
    def open(self, path: StrPath, mode: str = "r", *rest: Any, **keywords: Any) -> IO[Any]:  # type: ignore[override]
        return super().open(path, mode.replace("rw", "r"), *rest, **keywords)


@breaks("read-many")
class ManyOutOfOrder(LayerFS):
    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        order = sorted(range(len(wanted)), key=lambda at: wanted[at])
        return super()._read_many([wanted[at] for at in order], *how)


@breaks("read-many")
class ManyOnlyOnce(LayerFS):
    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        return super()._read_many(list(dict.fromkeys(wanted)), *how)


@breaks("read-many")
class ManySkipTheMissing(LayerFS):
    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        return super()._read_many([key for key in wanted if self.inner.exists(f"/{key}")], *how)
