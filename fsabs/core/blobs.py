"""Blobs: immutable objects opened for positioned reads. Every read of the package is a read of a blob.

A backend or a container writes `_pread(size, offset)`; clipping at the end, checks of the bytes that came back, and
forks and pickles are handled here. A blob has no position, so that threads and forked processes can share it.
"""

from __future__ import annotations

import abc
import enum
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from . import errors
from . import identity as identities
from .identity import Identity

_PIECE = 8 * 1024 * 1024  # bytes of a large read that are copied at once


class Hint(enum.Enum):
    """How a file that is opened is likely to be read, which a store may use to save requests."""

    ANY = enum.auto()
    """Positioned reads, anywhere."""
    FROM_START = enum.auto()
    """From its start: the first bytes may come along."""
    FILE = enum.auto()
    """From its start, by a reader that is not likely to ask for the version."""


class Store(Protocol):
    """What the identities of blobs are made of: see `FS`."""

    def _resolved_store(self) -> str: ...

    def _is_strong(self, version: str) -> bool: ...


class Origin(Protocol):
    """The FS that a blob comes from, as far as a blob uses it."""

    def _open_blob(self, key: str, /) -> Blob: ...

    def _url(self, key: str) -> str: ...

    @property
    def backing(self) -> Store: ...

    @property
    def _shown_as(self) -> str: ...


class Blob(abc.ABC):
    """One immutable object of `size` bytes, opened for positioned reads.

    `version` distinguishes the contents that a key has had (an ETag, for example); None if the store has no versions. A
    read of a version that is gone raises `StaleFileError`.
    """

    __slots__ = ("__weakref__", "_closed", "_key", "_origin", "opened_by_user", "size", "version")

    buffer_size: int = 16 * 1024
    """Bytes that a file object above the blob keeps."""
    smallest_window: int = 8 * 1024
    """Bytes that a file object fetches after a jump."""
    largest_window: int = 128 * 1024
    """Bytes that a file object fetches at once when it reads from front to back."""
    streams: bool = False
    """`_stream` may have something to give."""
    sparse: bool = False
    """It has holes, which read as zeros and take no room."""

    def __init__(self, origin: Origin, key: str, size: int, version: str | None = None) -> None:
        self._origin = origin
        self._key = key
        self._closed = False
        self.opened_by_user: bool = False
        """True if it is what a user opened, and not what a container or a cache reads: its reads are recorded."""
        self.size: int = size
        self.version: str | None = version

    @property
    def url(self) -> str:
        """The full URL of the object."""
        return self._origin._url(self._key)

    @property
    def max_gap_bytes(self) -> int:
        """The largest gap between ranges of `pread_many` that are coalesced to one request; 0 if each is read alone."""
        return 0

    @property
    def identity(self) -> Identity | None:
        """The identity of this content; None if its store has no versions."""
        if self.version is None:
            return None
        return Identity(identities.store(self._origin), self.url, self.version, self.size)

    @property
    def has_strong_version(self) -> bool:
        """True if no later content of the file can have this version, so that data derived from it may be kept.

        It is HTTP's strong validator (RFC 9110, 8.8.1). False for a file that was written within the last tick of the
        clock that its version is made of. The property has to be read before the content is.
        """
        return self.version is not None and identities.is_strong(self._origin, self.version)

    @property
    def strong_identity(self) -> Identity | None:
        """The identity under which derived data may be kept; None if the version is missing or not strong."""
        return self.identity if self.has_strong_version else None

    @abc.abstractmethod
    def _pread(self, size: int, offset: int) -> bytes:
        """Return exactly `size` bytes from `offset`. The range lies inside of the blob, and `size` is not 0."""

    def _pread_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on, and return its length; a fast path that may be overridden."""
        for at in range(0, len(view), _PIECE):
            piece = self._pread(min(_PIECE, len(view) - at), offset + at)
            view[at : at + len(piece)] = piece
        return len(view)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the contents of `(size, offset)` ranges, in order; a fast path that may be overridden."""
        return [self._pread(size, offset) if size else b"" for size, offset in ranges]

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        """Yield the bytes from `start` to the end, in pieces, with read-ahead in bounded memory.

        Return None if that is no faster than one read after another.
        """
        return None

    def _close(self) -> None:  # noqa: B027 - a blob may have nothing to free
        """Free what is held; called once in a process."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only where the blob ends, `b""` after its end."""
        if self._closed or not size > 0 <= offset <= self.size - size:
            size = self._clip(size, offset)
            if not size:
                return b""
        try:
            data = self._pread(size, offset)
        except OSError as exc:
            errors.named(exc, "read", self.url)
            raise
        if len(data) != size:
            raise self._short(len(data), size, offset)
        return data

    def pread_into(self, view: memoryview, offset: int) -> int:
        """Read into `view`, bytes that can be written to, from `offset` on; return how many, as many as `pread`."""
        wanted = len(view)
        if self._closed or not wanted > 0 <= offset <= self.size - wanted:
            wanted = self._clip(wanted, offset)
            if not wanted:
                return 0
            view = view[:wanted]
        try:
            read = self._pread_into(view, offset)
        except OSError as exc:
            errors.named(exc, "read", self.url)
            raise
        if read != wanted:
            raise self._short(read, wanted, offset)
        return read

    def pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the contents of several `(size, offset)` ranges, in order, each as by `pread`."""
        self._clip(0, 0)
        end = self.size
        clipped = [
            (size, offset) if size >= 0 <= offset <= end - size else (self._clip(size, offset), offset)
            for size, offset in ranges
        ]
        try:
            found = self._pread_many(clipped)
        except OSError as exc:
            errors.named(exc, "read", self.url)
            raise
        if [*map(len, found)] != [size for size, _ in clipped]:
            for data, (size, offset) in zip(found, clipped, strict=True):
                if len(data) != size:
                    raise self._short(len(data), size, offset)
        return found

    def read_all(self) -> bytes:
        """Return the whole content."""
        return self.pread(self.size, 0)

    def fileno(self) -> int:
        """Return this process's file descriptor of the same bytes; `UnsupportedOperation` if there is none."""
        raise errors.unsupported("fileno", self.url, "only a local file has a descriptor; as_local() gives one")

    def close(self) -> None:
        """Free what the blob holds; closing twice is no error."""
        if not self._closed:
            self._closed = True
            self._close()

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._closed

    def _clip(self, size: int, offset: int) -> int:
        if self._closed:
            raise ValueError(f"read of a closed file: {self.url}")
        if size < 0 or offset < 0:
            raise ValueError(f"negative size or offset: {size}, {offset}")
        return max(0, min(size, self.size - offset))

    def _short(self, got: int, size: int, offset: int) -> errors.CorruptFileError:
        return errors.corrupt(self.url, f"{got} bytes at offset {offset} where {size} were expected")

    def __enter__(self) -> Blob:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, size={self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._origin, self._key, self.size, self.version, self.opened_by_user)


def _reopen(origin: Origin, key: str, size: int, version: str | None, opened_by_user: bool) -> Blob:
    """Return the blob of an unpickled file; raise an error unless it has the same version."""
    try:
        blob = origin._open_blob(key)
    except OSError as exc:
        errors.named(exc, "open", origin._url(key))
        raise
    if (blob.size, blob.version) != (size, version):
        blob.close()
        raise errors.stale(origin._url(key), "the file changed since the open file was pickled", "open")
    blob.opened_by_user = opened_by_user
    return blob


class BytesBlob(Blob):
    """A blob whose content is in memory; it pickles with its content."""

    __slots__ = ("_data",)

    def __init__(self, origin: Origin, key: str, data: bytes, version: str | None = None) -> None:
        super().__init__(origin, key, len(data), version)
        self._data = data

    def _pread(self, size: int, offset: int) -> bytes:
        if size == len(self._data):
            return bytes(self._data)
        return bytes(self._data[offset : offset + size])

    def _pread_into(self, view: memoryview, offset: int) -> int:
        view[:] = memoryview(self._data)[offset : offset + len(view)]
        return len(view)

    def __reduce__(self) -> tuple[Any, ...]:
        return BytesBlob, (self._origin, self._key, self._data, self.version)


def forwarded(path: str) -> Any:
    """Return a property that reads an attribute of another object: of `_inner.size`, the `size` of `self._inner`."""
    return property(operator.attrgetter(path), doc="As of the inner object.")


class BlobLayer(Blob):
    """A blob around another one, which reads as that does, where a subclass doesn't say otherwise."""

    __slots__ = ("_inner",)

    def __init__(self, origin: Origin, key: str, inner: Blob, size: int, version: str | None) -> None:
        super().__init__(origin, key, size, version)
        self._inner: Blob = inner

    if not TYPE_CHECKING:  # which knows them from `Blob`
        max_gap_bytes = forwarded("_inner.max_gap_bytes")
        buffer_size = forwarded("_inner.buffer_size")
        smallest_window = forwarded("_inner.smallest_window")
        largest_window = forwarded("_inner.largest_window")
        streams = forwarded("_inner.streams")

    def _pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        return self._inner.pread_into(view, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._inner.pread_many(ranges)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return self._inner._stream(start)

    def fileno(self) -> int:
        """Return the inner blob's descriptor."""
        return self._inner.fileno()

    def _close(self) -> None:
        self._inner.close()


class BlobSlice(BlobLayer):
    """`size` bytes of another blob from `start`; slices of slices add up to one of the undermost blob.

    Closing a slice leaves its parent open.
    """

    __slots__ = ("start",)

    def __init__(
        self, origin: Origin, key: str, parent: Blob, start: int, size: int, version: str | None = None
    ) -> None:
        if start < 0 or size < 0 or start + size > parent.size:
            raise errors.corrupt(
                origin._url(key), f"bytes {start} to {start + size} of a file of {parent.size} bytes", "open"
            )
        if isinstance(parent, BlobSlice) and type(parent) is BlobSlice:  # a subclass may read in a way of its own
            start, parent = start + parent.start, parent._inner
        super().__init__(origin, key, parent, size, version)
        self.start: int = start

    def _pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, self.start + offset)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        return self._inner.pread_into(view, self.start + offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._inner.pread_many([(size, self.start + offset) for size, offset in ranges])

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        pieces = self._inner._stream(self.start + start)
        return None if pieces is None else _first(self.size - start, pieces)

    def fileno(self) -> int:
        """Raise `UnsupportedOperation`."""
        return Blob.fileno(self)

    def _close(self) -> None:
        """Leave the parent open."""


def _first(size: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield the first `size` bytes of a stream."""
    try:
        while size and (piece := next(pieces, None)) is not None:
            yield piece[:size]
            size -= len(piece[:size])
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
