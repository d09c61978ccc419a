"""The user's calls as spans of the kind `fs`: while an instrument asks for them, FS and its files record themselves.

`watch(True)` puts methods that record in the place of those public methods of `FS`, `Blob` and the file objects that
take time; `watch(False)` puts the originals back, so that nothing is slower while nothing is recorded. Whatever FS
there is, made before or after, is recorded. A span is what the user's code asked for: what a call does by further
calls, in the same thread, is part of it. Spans are named after the innermost FS: `zip.read`, `s3.stat`.
"""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, TypeVar

from . import files, hooks
from .blobs import Blob
from .fs import FS
from .layers import LayerFS
from .writing import WriterFile

T = TypeVar("T")

_NOT_THERE = FileNotFoundError | NotADirectoryError


class _Inside(threading.local):
    """Whether this thread is inside of a call that is recorded."""

    call = False


_inside = _Inside()


@functools.lru_cache(maxsize=1024)
def _name(kind: Any, operation: str) -> str:
    return f"{kind.__name__.lower()}.{operation}"


def _name_of(fs: Any, operation: str) -> str:
    if isinstance(fs, WriterFile):
        return f"{fs.name.partition(':')[0]}.{operation}"
    while isinstance(fs, LayerFS):
        fs = fs.inner
    kind: Any = type(fs)
    return _name(kind, operation)


def _end(fs: Any, operation: str, begin: int, size: int, where: Any, error: str, offset: int = -1) -> None:
    if (instrument := hooks.active) is not None:
        instrument.record_span("fs", _name_of(fs, operation), begin, size, where, error, offset)


def _recorded(
    fs: Any,
    operation: str,
    size: Callable[[Any], int] | None,
    where: Any,
    offset: int,
    method: Callable[..., T],
    *args: Any,
    **kwargs: Any,
) -> T:
    """Call a method and record a span, of as many bytes as `size` says of the result.

    An exception that a signal handler raises in here does not end the recording of the thread's further calls.
    """
    begin = monotonic_ns()
    try:
        _inside.call = True
        found = method(*args, **kwargs)
    except BaseException as exc:
        _inside.call = False
        is_answer = operation == "stat" and isinstance(exc, _NOT_THERE)
        _end(fs, operation, begin, 0, where, "" if is_answer else type(exc).__name__, offset)
        raise
    _inside.call = False
    _end(fs, operation, begin, size(found) if size is not None else 0, where, "", offset)
    return found


def _call(operation: str, size: Callable[[Any], int] | None, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method `(fs, path, ...)` that also records a span."""
    named = operation != "write_many"

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _inside.call:
            return method(self, *args, **kwargs)
        path = args[0] if args else next(iter(kwargs.values()), "")
        return _recorded(self, operation, size, (self, path) if named else "", -1, method, self, *args, **kwargs)

    return call


def _items(operation: str, method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a method `(fs, key, ...)` that yields, and records one span for as long as its items were waited for."""

    @functools.wraps(method)
    def items(self: Any, key: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if _inside.call:
            yield from method(self, key, *args, **kwargs)
            return
        found, spent, error = method(self, key, *args, **kwargs), 0, ""
        try:
            while True:
                _inside.call, begin = True, monotonic_ns()
                try:
                    item = next(found)
                except StopIteration:
                    return
                except Exception as exc:
                    error = type(exc).__name__
                    raise
                finally:
                    _inside.call = False
                    spent += monotonic_ns() - begin
                yield item
        finally:
            if hasattr(found, "close"):
                found.close()
            _end(self, operation, monotonic_ns() - spent, 0, (self, "/" + key), error)

    return items


def _contents(method: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
    """Return `FS._contents` (of `read_many`), with a span for each file, and a batch of all."""

    @functools.wraps(method)
    def contents(self: Any, wanted: Any, concurrency: Any, start: int) -> Iterator[bytes]:
        found, began, total, at = method(self, wanted, concurrency, start), monotonic_ns(), 0, start
        try:
            while True:
                outer, _inside.call, begin = _inside.call, True, monotonic_ns()
                try:
                    content = next(found)
                except StopIteration:
                    return
                except BaseException as exc:
                    if not outer:
                        _end(self, "read_many", begin, 0, (self, "/" + wanted[at]), type(exc).__name__)
                    raise
                finally:
                    _inside.call = outer
                if not outer:
                    _end(self, "read_many", begin, len(content), (self, "/" + wanted[at]), "")
                at, total = at + 1, total + len(content)
                yield content
        finally:
            if hasattr(found, "close"):
                found.close()
            if (instrument := hooks.active) is not None and not _inside.call:
                instrument.record_span("batch", _name_of(self, "read_many"), began, total, "", "", len(wanted))

    return contents


def _reading(size: Callable[[Any], int], method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `Blob` that also records a span, if the blob was opened by the user."""

    @functools.wraps(method)
    def read(self: Any, wanted: Any, *offset: int) -> Any:
        if _inside.call or not self.opened_by_user:
            return method(self, wanted, *offset)
        where, at = (self._origin, "/" + self._key), offset[0] if offset else min((at for _, at in wanted), default=-1)
        begin = monotonic_ns()
        found = _recorded(self._origin, "read", size, where, at, method, self, wanted, *offset)
        if not offset and (instrument := hooks.active) is not None:
            name = _name_of(self._origin, "read_many")
            instrument.record_span("batch", name, begin, size(found), where, "", len(found))
        return found

    return read


def _total(found: list[bytes]) -> int:
    return sum(map(len, found))


def _as_is(size: int) -> int:
    return size


def _written(operation: str, size: Callable[[Any], int] | None, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `WriterFile` that also records a span."""

    @functools.wraps(method)
    def write(self: Any, *data: Any) -> Any:
        if _inside.call or self.closed:
            return method(self, *data)
        return _recorded(self, operation, size, self.name, -1, method, self, *data)

    return write


class _RecordedReader(io.BufferedReader):
    """A buffered file whose reads are spans of what was asked for, and not of what fills the buffer."""

    def read(self, size: int | None = -1, /) -> bytes:
        return self._reading(super().read, size, len)

    def read1(self, size: int = -1, /) -> bytes:
        return self._reading(super().read1, size, len)

    def readinto(self, buffer: Any, /) -> int:
        return self._reading(super().readinto, buffer, _as_is)

    def _reading(self, method: Callable[[Any], T], wanted: Any, size: Callable[[T], int]) -> T:
        if _inside.call or self.closed or hooks.active is None:
            return method(wanted)
        blob: Blob = self.raw.blob  # type: ignore[attr-defined] # a BlobFile
        return _recorded(blob._origin, "read", size, (blob._origin, "/" + blob._key), self.tell(), method, wanted)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return files.reduced(self)


_METHODS: dict[tuple[type, str], Callable[[Any], Any]] = {
    (FS, "read_bytes"): functools.partial(_call, "read_bytes", len),
    (FS, "write_bytes"): functools.partial(_call, "write_bytes", _as_is),
    **{(FS, name): functools.partial(_call, "open", None) for name in ("open_blob", "_open_reader")},
    **{(FS, name): functools.partial(_call, "stat", None) for name in ("stat", "exists", "isdir", "isfile")},
    **{
        (FS, name): functools.partial(_call, name, None)
        for name in (
            "mkdir", "makedirs", "rename", "remove", "rmdir", "copy", "copy_tree", "sync_tree", "usage", "write_many",
            "open_container",
        )
    },
    (FS, "_members"): functools.partial(_items, "list"),
    (FS, "_glob_after"): functools.partial(_items, "glob"),
    (FS, "_contents"): _contents,
    (Blob, "pread"): functools.partial(_reading, len),
    (Blob, "pread_into"): functools.partial(_reading, _as_is),
    (Blob, "pread_many"): functools.partial(_reading, _total),
    (WriterFile, "write"): functools.partial(_written, "write", _as_is),
    (WriterFile, "close"): functools.partial(_written, "commit", None),
}  # fmt: skip
_originals: dict[tuple[type, str], Any] = {}


def watch(on: bool) -> None:
    """Let all FS, blobs and files record the user's calls from now on, or no longer."""
    if on == bool(_originals):
        return
    if on:
        for (kind, name), recording in _METHODS.items():
            _originals[kind, name] = vars(kind)[name]
            setattr(kind, name, recording(vars(kind)[name]))
    else:
        for (kind, name), method in _originals.items():
            setattr(kind, name, method)
        _originals.clear()
    files.reader_type = _RecordedReader if on else io.BufferedReader
