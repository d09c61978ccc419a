"""obspec's protocols over any FS: `fs.obspec()`. Ranges of one object are read together.

Only files are objects. The `_async` methods run the others in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from ..core import errors
from ..core.fs import FS, FileStat

_PAGE = 1000  # entries of a listing that are given at once


P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a method for asyncio that runs another one in a thread."""

    @functools.wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, *args, **kwargs)

    return run


class GetResult:
    """The object, or the range of it, that `get` returns."""

    def __init__(self, data: bytes, meta: dict[str, Any], begin: int) -> None:
        self._data = data
        self.meta = meta
        self.attributes: dict[str, str] = {}
        self.range = (begin, begin + len(data))

    def buffer(self) -> bytes:
        """Return the bytes."""
        return self._data

    async def buffer_async(self) -> bytes:
        """Return the bytes."""
        return self._data

    def __iter__(self) -> Iterator[bytes]:
        return iter([self._data] if self._data else [])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


class ObspecStore:
    """An FS as obspec's protocols name it."""

    def __init__(self, fs: FS) -> None:
        self.fs = fs

    def head(self, path: str) -> dict[str, Any]:
        """Return what is known of an object."""
        stat = self.fs.stat(path)
        if stat.directory:
            raise errors.error(2, "head", self.fs.url(path))
        return _meta(path, stat)

    def get(self, path: str, *, options: Any = None) -> GetResult:
        """Return an object, or the range of it that `options` names."""
        wanted = dict(options or {})
        chosen = wanted.pop("range", None)
        if wanted.pop("head", False):
            return GetResult(b"", self.head(path), 0)
        if given := [name for name, value in wanted.items() if value is not None]:
            raise errors.unsupported("get", self.fs.url(path), f"the option {given[0]!r} is not supported")
        with contextlib.closing(self.fs.open_blob(path)) as blob:  # one version of the object
            begin, end = _bounds(chosen, blob.size)
            if not 0 <= begin <= end:
                reason = f"the range {chosen} does not begin in the {blob.size} bytes"
                raise errors.error(errno.EINVAL, "get", blob.url, reason)
            data = blob.pread(end - begin, begin)
            meta = self.head(path)
            if (meta["size"], meta["e_tag"] or blob.version) != (blob.size, blob.version):
                raise errors.stale(blob.url)
        return GetResult(data, meta, begin)

    def get_range(self, path: str, *, start: int, end: int | None = None, length: int | None = None) -> bytes:
        """Return the bytes from `start` to `end`, or `length` of them."""
        return self.get_ranges(path, starts=[start], ends=_one(end), lengths=_one(length))[0]

    def get_ranges(
        self,
        path: str,
        *,
        starts: Sequence[int],
        ends: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return several ranges, which are read in one batch."""
        if (ends is None) == (lengths is None):
            raise ValueError("either the ends or the lengths of the ranges are given")
        if ends is None:
            ends = [start + length for start, length in zip(starts, lengths or (), strict=True)]
        if any(not 0 <= start <= end for start, end in zip(starts, ends, strict=True)):
            raise ValueError(f"ranges begin at 0 or later and do not end before: {list(starts)}, {list(ends)}")
        # virtualizarr gives NumPy's unsigned integers, whose sums and negations wrap around.
        ranges = [(int(end) - int(start), int(start)) for start, end in zip(starts, ends, strict=True)]
        with self.fs.open_blob(path) as blob:
            return [blob.pread(*ranges[0])] if len(ranges) == 1 else blob.pread_many(ranges)

    def list(self, prefix: str | None = None, *, offset: str | None = None) -> Iterator[Sequence[dict[str, Any]]]:
        """Yield the objects below a prefix, some at a time."""
        page = []
        for path, stat in self._below(prefix, recursive=True):
            if not stat.directory and (offset is None or path > offset):
                page.append(_meta(path, stat))
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def list_with_delimiter(self, prefix: str | None = None) -> dict[str, Any]:
        """Return the objects and the prefixes one level below a prefix."""
        found = list(self._below(prefix, recursive=False))
        return {
            "common_prefixes": [path for path, stat in found if stat.directory],
            "objects": [_meta(path, stat) for path, stat in found if not stat.directory],
        }

    def _below(self, prefix: str | None, recursive: bool) -> Iterator[tuple[str, FileStat]]:
        base = (prefix or "").strip("/")
        try:
            for stat in self.fs.list(base, recursive=recursive, detail=True):
                name = stat.filename.rstrip("/")
                yield f"{base}/{name}" if base else name, stat
        except (FileNotFoundError, NotADirectoryError):
            if self.fs.isdir(base):  # a directory in it was removed meanwhile: not all of it was listed
                raise

    def put(
        self,
        path: str,
        file: Any,
        *,
        attributes: Any = None,
        tags: Any = None,
        mode: Any = None,
        use_multipart: bool | None = None,
        chunk_size: int = 8 * 1024 * 1024,
        max_concurrency: int | None = None,
    ) -> Any:
        """Write an object, whole or not at all; mode "create" refuses an existing one.

        The store decides when it writes in parts, and how many at once, whatever `use_multipart` and `max_concurrency`
        say; `chunk_size` is what is read of `file` at once.
        """
        if attributes or tags or mode not in (None, "create", "overwrite"):
            raise errors.unsupported("put", self.fs.url(path), "attributes, tags and conditions are not supported")
        self._make_folder(path)
        with self.fs.open(path, "xb" if mode == "create" else "wb") as target:
            for piece in _pieces(file, chunk_size):
                target.write(piece)
        return {"e_tag": self.fs.stat(path).version, "version": None}

    def delete(self, paths: str | Sequence[str]) -> None:
        """Remove objects."""
        for path in [paths] if isinstance(paths, str) else paths:
            self.fs.remove(path)

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Copy an object."""
        self._refuse_existing("copy", to, overwrite)
        self._make_folder(to)
        self.fs.copy(from_, to)

    def rename(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        """Move an object."""
        self._refuse_existing("rename", to, overwrite)
        self._make_folder(to)
        self.fs.rename(from_, to)

    def _make_folder(self, path: str) -> None:
        if (folder := path.rpartition("/")[0]) and not self.fs.capabilities.implied_directories:
            self.fs.makedirs(folder, exist_ok=True)

    def _refuse_existing(self, operation: str, path: str, overwrite: bool) -> None:
        if not overwrite and self.fs.exists(path):
            raise errors.error(17, operation, self.fs.url(path))

    # ---- the same, for asyncio

    head_async = _in_thread(head)
    get_async = _in_thread(get)
    get_range_async = _in_thread(get_range)
    get_ranges_async = _in_thread(get_ranges)
    list_with_delimiter_async = _in_thread(list_with_delimiter)
    put_async = _in_thread(put)
    delete_async = _in_thread(delete)
    copy_async = _in_thread(copy)
    rename_async = _in_thread(rename)

    async def list_async(
        self, prefix: str | None = None, *, offset: str | None = None
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield the objects below a prefix, some at a time."""
        pages = self.list(prefix, offset=offset)
        while (page := await asyncio.to_thread(next, pages, None)) is not None:
            yield page


def _one(value: int | None) -> list[int] | None:
    return None if value is None else [value]


def _bounds(chosen: Any, size: int) -> tuple[int, int]:
    """Return start and end of what `GetOptions.range` names."""
    if chosen is None:
        return 0, size
    if isinstance(chosen, dict):
        if "suffix" in chosen:
            return max(0, size - int(chosen["suffix"])), size
        return int(chosen["offset"]), size
    begin, end = map(int, chosen)
    return begin, min(end, size)


def _pieces(file: Any, size: int) -> Iterable[Any]:
    if isinstance(file, os.PathLike):
        with open(file, "rb") as source:
            yield from iter(lambda: source.read(size), b"")
    elif hasattr(file, "read"):
        yield from iter(lambda: file.read(size), b"")
    else:
        try:
            yield memoryview(file)
        except TypeError:
            yield from file


def _meta(path: str, stat: FileStat) -> dict[str, Any]:
    try:
        written = datetime.datetime.fromtimestamp(stat.last_modified or 0, datetime.UTC)
    except (OSError, OverflowError, ValueError):  # of an archive, and beyond the year 9999: unknown, as none is
        written = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return {"path": path, "size": stat.size, "last_modified": written, "e_tag": stat.version, "version": None}


def as_obspec(fs: FS) -> ObspecStore:
    """Return an FS as a store of obspec's."""
    return ObspecStore(fs)
