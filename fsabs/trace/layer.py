"""TracedFS: the layer that records every call of the user, and every read of opened files.

Spans and events go to the instrument `hooks.active`; without one, opened files are not even wrapped.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import Any, TypeVar

from .. import hooks
from ..blobs import Blob
from ..files import Writer
from ..fs import FS, FileStat
from ..layers import LayerFS
from . import fast, session
from .recorder import Recorder
from .session import TraceSettings

T = TypeVar("T")


class TracedFS(LayerFS):
    """An FS whose calls are traced, as events of the kind `fs` named after what it is around: `zip.read`, `s3.stat`.

    Pickled while a trace is on, it goes on with that in the process where it is unpickled.
    """

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self._traced_as = ""

    def _name(self, operation: str) -> str:
        if not self._traced_as:  # asked for late: a lazy FS is not made before it is used
            fs: FS = self
            while isinstance(fs, LayerFS):
                fs = fs.inner
            self._traced_as = type(fs).__name__.lower()
        return f"{self._traced_as}.{operation}"

    def _stat(self, key: str) -> FileStat:
        if hooks.active is None:
            return self._inner._stat(key)
        with _Answer(self, "stat", key):
            return self._inner._stat(key)

    def _list(self, key: str) -> Iterator[FileStat]:
        return self._inner._list(key) if hooks.active is None else self._timed("list", key, self._inner._list)

    def _walk(self, key: str) -> Iterator[FileStat]:
        return self._inner._walk(key) if hooks.active is None else self._timed("walk", key, self._inner._walk)

    def _list_names(self, key: str) -> Iterator[str]:
        inner = self._inner._list_names
        return inner(key) if hooks.active is None else self._timed("list", key, inner)

    def _walk_names(self, key: str) -> Iterator[str]:
        inner = self._inner._walk_names
        return inner(key) if hooks.active is None else self._timed("walk", key, inner)

    def _open_blob(self, key: str) -> Blob:
        if hooks.active is None:
            return self._inner._open_blob(key)
        with _Call(self, "open", key):
            return TracedBlob(self, key, self._inner._open_blob(key))

    def _open_from_start(self, key: str) -> Blob:
        if hooks.active is None:
            return self._inner._open_from_start(key)
        with _Call(self, "open", key):
            return TracedBlob(self, key, self._inner._open_from_start(key))

    def _read_bytes(self, key: str) -> bytes:
        if hooks.active is None:
            return self._inner._read_bytes(key)
        with _Call(self, "read_bytes", key) as call:
            data = self._inner._read_bytes(key)
            call.size = len(data)
            return data

    def _local_path(self, key: str) -> str | None:
        with _Call(self, "as_local", key):
            return self._inner._local_path(key)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        contents = self._inner._read_many(wanted, concurrency)
        return contents if hooks.active is None else self._each(wanted, contents, len)

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        found = self._inner._read_many_versioned(wanted, concurrency)
        return found if hooks.active is None else self._each(wanted, found, _size_of_content)

    def _create(self, key: str, exclusive: bool) -> Writer:
        if hooks.active is None:
            return self._inner._create(key, exclusive)
        with _Call(self, "create", key):
            return TracedWriter(self, key, self._inner._create(key, exclusive))

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        if hooks.active is None:
            return self._inner._write_many(pairs, concurrency)
        with _Call(self, "write_many", self._root) as call:
            return self._inner._write_many(call.sized(pairs), concurrency)

    def _append(self, key: str) -> Writer:
        if hooks.active is None:
            return self._inner._append(key)
        with _Call(self, "append", key):
            return TracedWriter(self, key, self._inner._append(key))

    def _open_update(self, key: str) -> io.BufferedIOBase:
        with _Call(self, "open_update", key):
            return self._inner._open_update(key)

    def _mkdir(self, key: str, mode: int) -> None:
        with _Call(self, "mkdir", key):
            self._inner._mkdir(key, mode)

    def _makedirs(self, key: str, mode: int) -> None:
        with _Call(self, "makedirs", key):
            self._inner._makedirs(key, mode)

    def _rename(self, src: str, dst: str) -> None:
        with _Call(self, "rename", src):
            self._inner._rename(src, dst)

    def _remove(self, key: str) -> None:
        with _Call(self, "remove", key):
            self._inner._remove(key)

    def _remove_tree(self, key: str) -> None:
        with _Call(self, "remove_tree", key):
            self._inner._remove_tree(key)

    def _copy(self, src: str, dst: str) -> None:
        with _Call(self, "copy", src):
            self._inner._copy(src, dst)

    def _timed(self, operation: str, key: str, members: Callable[[str], Iterator[T]]) -> Iterator[T]:
        """One event for the whole iteration: as long as the iterator took, and as if in one piece at its end."""
        spent, error, name, where = 0, "", self._name(operation), self._url(key)
        items: Iterator[T] = iter(())
        begin = monotonic_ns()
        try:
            items = members(key)
            for item in items:
                spent += monotonic_ns() - begin
                yield item
                begin = monotonic_ns()
            spent += monotonic_ns() - begin
        except Exception as exc:
            spent += monotonic_ns() - begin
            error = type(exc).__name__
            raise
        finally:
            if hasattr(items, "close"):
                items.close()
            if (instrument := hooks.active) is not None:
                instrument.record_span("fs", name, monotonic_ns() - spent, 0, where, error)

    def _each(self, wanted: Sequence[str], contents: Iterator[T], size: Callable[[T], int]) -> Iterator[T]:
        """Yield contents, each with a span for as long as it was waited for; and one for the batch."""
        name, url, begun, total = self._name("read_many"), self._inner._url, monotonic_ns(), 0
        try:
            for start in range(0, len(wanted), fast.GROUP):
                keys = wanted[start : start + fast.GROUP]
                record = fast.spans(hooks.active, name, keys, url)
                for n, key in enumerate(keys):
                    begin = monotonic_ns()
                    try:
                        content = next(contents)
                    except BaseException as exc:
                        if (instrument := hooks.active) is not None:
                            instrument.record_span("fs", name, begin, 0, url(key), type(exc).__name__)
                        raise
                    read = size(content)
                    record(n, begin, read)
                    total += read
                    yield content
        finally:
            if hasattr(contents, "close"):
                contents.close()
            if (instrument := hooks.active) is not None:
                instrument.record_span("batch", name, begun, total, url(self._root), "", len(wanted))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": session.current()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        plan: TraceSettings | None = state.pop("_plan")
        self.__dict__.update(state)
        if plan is not None:
            session.resume(plan)


class _Call:
    """One call, which is recorded when it is over."""

    __slots__ = ("_begin", "_fs", "_key", "_operation", "size")

    def __init__(self, fs: TracedFS, operation: str, key: str) -> None:
        self._fs = fs
        self._operation = operation
        self._key = key
        self.size = 0
        self._begin = monotonic_ns()

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        instrument = hooks.active
        if instrument is not None:
            error = kind.__name__ if kind is not None and self._failed(kind) else ""
            where = self._fs._inner._url(self._key)
            instrument.record_span("fs", self._fs._name(self._operation), self._begin, self.size, where, error)

    def sized(self, pairs: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield the pairs, and add up the sizes of their contents."""
        for key, data in pairs:
            self.size += len(data)
            yield key, data

    def _failed(self, kind: type[BaseException]) -> bool:
        return True


class _Answer(_Call):
    """A call for which "it isn't there" is an answer, and no failure."""

    __slots__ = ()

    def _failed(self, kind: type[BaseException]) -> bool:
        return not issubclass(kind, FileNotFoundError | NotADirectoryError)


def _size_of_content(found: tuple[bytes, str | None]) -> int:
    return len(found[0])


class TracedBlob(Blob):
    """A blob whose reads are traced."""

    __slots__ = ("_inner", "_name", "_where", "pread")

    pread: Callable[[int, int], bytes]  # type: ignore[assignment] # a function of each, not a method: a call less

    def __init__(self, origin: TracedFS, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner.size, inner.version)
        self._inner = inner
        self._name = origin._name("read")
        self._where = inner.url
        self.pread = self._watched()

    def _watched(self) -> Callable[[int, int], bytes]:
        """Return a function that reads, and reports to the current instrument."""
        reading = _recording(self._inner.pread, self._name, self._where)
        if isinstance(instrument := hooks.active, Recorder):
            return fast.watched(instrument, self._inner, reading, self._name, self._where)
        return reading

    @property
    def max_gap_bytes(self) -> int:
        """As of the blob that it is around."""
        return self._inner.max_gap_bytes

    def _pread(self, size: int, offset: int) -> bytes:
        return self.pread(size, offset)

    def pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As of the blob that it is around; one read, and one batch."""
        begin = monotonic_ns()
        try:
            found = self._inner.pread_many(ranges)
        except BaseException as exc:
            self._failed(exc, begin, -1)
            raise
        instrument = hooks.active
        if instrument is not None:
            total = sum(map(len, found))
            instrument.record_span(
                "fs", self._name, begin, total, self._where, "", min((at for _, at in ranges), default=-1)
            )
            instrument.record_span("batch", f"{self._name}_many", begin, total, self._where, "", len(found))
        return found

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        pieces = self._inner._stream(start)
        return None if pieces is None else self._pieces(start, pieces)

    def _pieces(self, at: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        try:
            while True:
                begin = monotonic_ns()
                try:
                    piece = next(pieces)
                except StopIteration:
                    return
                except BaseException as exc:
                    self._failed(exc, begin, at)
                    raise
                if (instrument := hooks.active) is not None:
                    instrument.record_span("fs", self._name, begin, len(piece), self._where, "", at)
                at += len(piece)
                yield piece
        finally:
            if hasattr(pieces, "close"):
                pieces.close()

    def fileno(self) -> int:
        """As of the blob that it is around; what is read through it is not traced."""
        return self._inner.fileno()

    def _close(self) -> None:
        self._inner.close()

    def _failed(self, exc: BaseException, begin: int, offset: int) -> None:
        if (instrument := hooks.active) is not None:
            instrument.record_span("fs", self._name, begin, 0, self._where, type(exc).__name__, offset)


def _recording(read: Callable[[int, int], bytes], name: str, where: str) -> Callable[[int, int], bytes]:
    """Return `read(size, offset)` that also records a span at the current instrument."""

    def pread(size: int, offset: int) -> bytes:
        begin = monotonic_ns()
        try:
            data = read(size, offset)
        except BaseException as exc:
            if (instrument := hooks.active) is not None:
                instrument.record_span("fs", name, begin, 0, where, type(exc).__name__, offset)
            raise
        if (instrument := hooks.active) is not None:
            instrument.record_span("fs", name, begin, len(data), where, "", offset)
        return data

    return pread


class TracedWriter(Writer):
    """A writer whose writes and commit are traced."""

    def __init__(self, fs: TracedFS, key: str, inner: Writer) -> None:
        self._fs = fs
        self._key = key
        self._inner = inner

    def write(self, data: bytes) -> None:
        """As of the writer that it is around."""
        with _Call(self._fs, "write", self._key) as call:
            self._inner.write(data)
            call.size = len(data)

    def commit(self) -> None:
        """As of the writer that it is around."""
        with _Call(self._fs, "commit", self._key):
            self._inner.commit()

    def abort(self) -> None:
        """As of the writer that it is around."""
        with _Call(self._fs, "abort", self._key):
            self._inner.abort()


def traced(fs: FS, trace: str | os.PathLike[str] | bool) -> FS:
    """Return `fs`, traced, for `from_url(..., trace=...)` and `trace =` in `pfio.ini`.

    A folder starts the trace of this process into it, if none is on there; True (or `true`) only wraps, for whichever
    instrument is or will be installed; False (or `false`) leaves `fs` as it is.
    """
    if isinstance(trace, str) and trace.lower() in ("true", "false"):
        trace = trace.lower() == "true"
    if trace is False:
        return fs
    if trace is not True:
        session.start(trace)
    return fs if isinstance(fs, TracedFS) else TracedFS(fs)
