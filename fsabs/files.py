"""Binary file objects: a blob becomes a reader here, and a store's `Writer` a file that is whole or not at all.

A reader keeps its position and its buffer to itself, as one value that is replaced and never mutated, so that a
fork at any moment leaves a good copy in the child. A written file becomes visible at `close()`; what is left by an
exception, by garbage collection, by the interpreter's exit or in a forked child is thrown away.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import io
import operator
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol

from . import errors, process
from .blobs import Blob
from .limits import DEFAULT, Limits
from .readahead import ReadAhead

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

BUFFER_SIZE = 128 * 1024  # the first read of a file, and of each jump in it
MAX_WINDOW = 8 * 1024 * 1024  # what sequential reading grows the buffer to
WRITE_BUFFER_SIZE = 1024 * 1024
_MOST_PIECES = 1024  # of what is buffered: more are joined
PARTIAL_SUFFIX = ".fsabs-partial"
"""What the name of a half-written file ends in; it starts with a dot, and no listing shows it."""


def partial_name(name: str) -> str:
    """A hidden name beside `name`, within the 255 bytes that most filesystems have for one."""
    short = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return f".{short}.{secrets.token_hex(6)}{PARTIAL_SUFFIX}"


def is_partial(name: str) -> bool:
    """Whether `name` is that of a half-written file."""
    return name.endswith(PARTIAL_SUFFIX) and name.startswith(".")


class Writer(abc.ABC):
    """One file being written: nothing is visible before `commit()`, nothing is left after `abort()`.

    `write` may be called from one thread at a time. `abort` must not raise, and may follow anything.
    """

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Take all of `data`."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Make the file visible, complete, in place of what the key held."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget everything written; what the key held stays."""


@contextlib.contextmanager
def committing(writer: Writer) -> Iterator[Writer]:
    """Commit `writer` at the end of the block, or abort it if the block raises; a child forked in it abandons it."""
    made_in = process.generation()
    process.register(writer, writer)
    try:
        yield writer
        if not process.inherited(made_in):
            writer.commit()
    except BaseException:
        if not process.inherited(made_in):
            writer.abort()
        raise
    finally:
        process.release(writer)


if TYPE_CHECKING:

    class _BinaryBase(io.BufferedIOBase, BinaryIO):
        """What type checkers take a binary file for, as they do those of `io`."""
else:
    _BinaryBase = io.BufferedIOBase


class _Binary(_BinaryBase):
    """What a binary file refuses, it refuses with errno, URL and operation."""

    name: str

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def _refuse(self, operation: str) -> NoReturn:
        self._check_open()
        raise errors.unsupported(operation, self.name, f"a file of mode {self.mode!r} can't {operation}")

    @property
    def mode(self) -> str:
        """As of `builtins.open`."""
        raise NotImplementedError

    def truncate(self, size: int | None = None, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("truncate")

    def detach(self) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("detach")


class BlobReader(_Binary):
    """A buffered binary reader of a blob, with a position of its own; safe in threads, forks and pickles."""

    def __init__(
        self,
        blob: Blob,
        buffer_size: int = BUFFER_SIZE,
        position: int = 0,
        max_line_length: int | None = DEFAULT.max_line_length,
    ) -> None:
        self._blob = blob
        self._buffer_size = buffer_size
        self.max_line_length = max_line_length
        # position, offset of the buffer in the blob, buffer, size of the next sequential fetch
        self._state: tuple[int, int, bytes, int] = (position, position, b"", buffer_size)
        self._source = ReadAhead(blob)
        self._lock = process.Lock()

    @property
    def name(self) -> str:  # type: ignore[override]
        """The full URL of the file."""
        return self._blob.url

    @property
    def mode(self) -> str:
        """Always `"rb"`."""
        return "rb"

    @property
    def blob(self) -> Blob:
        """The blob that is read, for positioned reads beside the file's own position."""
        return self._blob

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes (all that is left if -1 or None); fewer only at the end of the file."""
        if size is not None and size < -1:
            raise ValueError("read length must be non-negative or -1")
        with self._lock:
            return self._take(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes by at most one read of the store."""
        with self._lock:
            there = self._buffered()
            if not there and size != 0:
                there = self._fetch(max(1, size) if size < self._buffer_size else size)
            return self._take(there if size < 0 else min(size, there))

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill `buffer` as far as the file goes; returns the number of bytes."""
        return self._read_into(buffer, self.read)

    def readinto1(self, buffer: Buffer, /) -> int:
        """Fill `buffer` by at most one read of the store; returns the number of bytes."""
        return self._read_into(buffer, self.read1)

    def _read_into(self, buffer: Buffer, read: Callable[[int], bytes]) -> int:
        with memoryview(buffer) as given:
            if given.readonly:
                raise TypeError("a read-write bytes-like object is required")
            if not given.nbytes:  # has no shape to be cast from
                self._check_open()
                return 0
            view = given.cast("B")
            data = read(len(view))
            view[: len(data)] = data
            return len(data)

    def peek(self, size: int = 0, /) -> bytes:
        """What is buffered from the position on, at least one byte unless the file is at its end; not too much."""
        with self._lock:
            if not self._buffered():
                self._fetch(max(1, size))
            position, start, data, _ = self._state
            return data[position - start :][: max(size, BUFFER_SIZE)] if position >= start else b""

    def readline(self, size: int | None = -1, /) -> bytes:
        """The bytes up to and with the next newline, at most `size` of them.

        Without `size` a line of more than `max_line_length` bytes is an `OSError` (EFBIG).
        """
        limit = -1 if size is None else size
        with self._lock:
            there, searched = self._buffered(), 0
            while True:
                position, start, data, _ = self._state
                begin = position - start
                end = data.find(b"\n", begin + searched) + 1 if there else 0
                if end or 0 <= limit <= there:
                    break
                if limit < 0:
                    self.check_line(there)
                searched, there = there, self._fetch(max(1, 2 * there, self._buffer_size))
                if there == searched:  # the file ends
                    break
            found = end - begin if end else there
            if limit < 0:
                self.check_line(found)
            return self._take(found if limit < 0 else min(found, limit))

    def check_line(self, length: int) -> None:
        """Raise if a line of `length` bytes or more is too long."""
        if self.max_line_length is not None and length > self.max_line_length:
            limits = Limits(max_line_length=self.max_line_length)
            reason = limits.reason("max_line_length", f"a line has {length} bytes or characters, or more")
            raise errors.error(errno.EFBIG, "readline", self.name, reason)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; beyond the end is allowed, before the start is an `OSError` (EINVAL)."""
        offset = operator.index(offset)
        with self._lock:
            self._check_open()
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._state[0], os.SEEK_END: self._blob.size}.get(whence)
            if base is None:
                raise ValueError(f"invalid whence: {whence}")
            if base + offset < 0:
                raise errors.error(errno.EINVAL, "seek", self.name, f"negative seek position {base + offset}")
            self._state = (base + offset, *self._state[1:])
            return base + offset

    def tell(self) -> int:
        """The position."""
        self._check_open()
        return self._state[0]

    def readable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def write(self, data: Buffer, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("write")

    def fileno(self) -> int:
        """A descriptor of a local file, this process's own; the position of the reader is not its position."""
        self._check_open()
        return self._blob.fileno()

    def close(self) -> None:
        """Close the blob; closing twice is no error."""
        if not self.closed:
            super().close()
            self._source.close()
            self._blob.close()
            self._state = (self._state[0], 0, b"", 0)

    # When the interpreter ends, what `close` calls is gone, and so will be what it frees.
    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_lock") and not ending():  # the last that the constructor sets
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return BlobReader, (self._blob, self._buffer_size, self._state[0], self.max_line_length)

    def __repr__(self) -> str:
        return f"<BlobReader {self.name!r} at {self._state[0]}{' closed' if self.closed else ''}>"

    def _buffered(self) -> int:
        """How many bytes are buffered from the position on."""
        self._check_open()
        position, start, data, _ = self._state
        at = position - start
        return len(data) - at if 0 <= at < len(data) else 0

    def _fetch(self, least: int) -> int:
        """Read the store at the end of the buffer, or at the position after a jump; how many bytes are buffered now."""
        position, start, data, window = self._state
        ahead = data[position - start :] if 0 <= position - start <= len(data) else None
        if ahead is None:
            window, ahead = self._buffer_size, b""
        at = position + len(ahead)
        fresh = self._source.pread(max(least - len(ahead), window), at) if at < self._blob.size else b""
        data = ahead + fresh if ahead else fresh
        grown = min(2 * window, max(MAX_WINDOW, self._buffer_size))
        # A stream is ahead by itself: a small buffer will do, and larger reads go past it.
        self._state = (position, position, data, self._buffer_size if self._source.streaming else grown)
        return len(data)

    def _take(self, size: int) -> bytes:
        self._check_open()
        position, start, data, window = self._state
        left = max(0, self._blob.size - position)
        size = left if size < 0 else min(size, left)
        at = position - start
        if at >= 0 and at + size <= len(data):
            found = data[at : at + size]
        elif size >= window:
            ahead = data[at:] if 0 <= at < len(data) else b""
            found = self._source.pread(size - len(ahead), position + len(ahead))
            found = ahead + found if ahead else found
            start, data = position + size, b""
        else:
            self._fetch(size)
            _, start, data, window = self._state
            found = data[:size]
        self._state = (position + size, start, data, window)
        return found


class _Abortable(Protocol):
    def close(self) -> None: ...

    def abort(self) -> None: ...


class AbortsOnError:
    """For a file that is whole or not at all: a `with` block that ends well closes it, one that fails aborts it."""

    def __exit__(
        self: _Abortable, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class WriteFile(AbortsOnError, _Binary):
    """A binary file being written: visible, complete, once `close()` has returned; else never."""

    def __init__(
        self, writer: Writer, url: str, buffer_size: int = WRITE_BUFFER_SIZE, mode: str = "wb", position: int = 0
    ) -> None:
        """Write through `writer`; `position` is the size of a file that is appended to.

        Pieces smaller than `buffer_size` bytes are collected; 0 passes each one on at once.
        """
        self._writer: Writer | None = writer
        self._url = url
        self._mode = mode
        self._pieces: list[bytes] = []
        self._buffered = 0  # bytes in them
        self._buffer_size = buffer_size
        self._position = position
        self._telling = False
        self._failure: BaseException | None = None
        self._writing = False  # stays True if an exception of a signal handler ends a write halfway
        self._generation = process.generation()
        self._lock = process.Lock()
        process.register(self, writer)  # so that a child neither flushes nor frees what the writer holds
        process.abort_at_exit(self)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The full URL of the file."""
        return self._url

    @property
    def mode(self) -> str:
        """`"wb"`, `"xb"` or `"ab"`."""
        return self._mode

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; returns the number of its bytes."""
        piece = data if type(data) is bytes else memoryview(data).tobytes()  # what may change is copied
        with self._lock:
            self._check_open()
            self._writing = True
            self._pieces.append(piece)
            self._buffered += len(piece)
            if self._buffered >= self._buffer_size:
                self._drain()
            elif len(self._pieces) >= _MOST_PIECES:
                self._pieces = [b"".join(self._pieces)]
            self._position += len(piece)
            self._writing = False
            return len(piece)

    def flush(self) -> None:
        """Hand what is buffered to the store; nothing is visible before `close()`."""
        if self.closed or self._writer is None or self.inherited:
            return
        with self._lock:
            self._writing = True
            self._drain()
            self._writing = False

    def tell(self) -> int:
        """Return the size of the file so far: of what has been written, and of what was appended to."""
        self._check_open()
        return self._position

    def writable(self) -> bool:
        """True."""
        self._check_open()
        return True

    def readable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """Return False: the bytes are stored in the order in which they are written."""
        self._check_open()
        return self._telling

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Have `seekable()` return True for the moment in which an `io.TextIOWrapper` is made over this file.

        The wrapper then calls `tell()`, and omits the byte order mark where something has been written; of a file that
        isn't seekable it writes none at all, and has no `tell()`.
        """
        self._telling = True
        try:
            yield
        finally:
            self._telling = False

    def read(self, size: int | None = -1, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("read")

    def readline(self, size: int | None = -1, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("read")

    def read1(self, size: int = -1, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("read")

    def readinto(self, buffer: Buffer, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("read")

    def readinto1(self, buffer: Buffer, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("read")

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> NoReturn:
        """`UnsupportedOperation`, which says what to use in its place."""
        self._check_open()
        reason = (
            f"a file of mode {self.mode!r} is written from start to end and can't seek; write to an io.BytesIO or a "
            "temporary file and store its content, or open an existing file with 'r+' where the FS has `update`"
        )
        raise errors.unsupported("seek", self.name, reason)

    def fileno(self) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("fileno")

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were."""
        with self._lock:  # what another thread is writing comes before, or is refused
            self._commit()

    def _commit(self) -> None:
        writer = self._writer
        if writer is None or self.inherited:
            self._close_file()
            return
        try:
            if self._failure is not None:
                raise self._failure
            if self._writing:
                raise InterruptedError(errno.EINTR, "a write was interrupted, so the file was not written")
            if self._buffered:
                writer.write(b"".join(self._pieces))
            writer.commit()
        except BaseException as exc:
            writer.abort()
            if isinstance(exc, OSError):
                errors.named(exc, "close", self._url)
            raise
        finally:
            self._close_file()

    def abort(self) -> None:
        """Close without making anything visible."""
        writer = self._writer
        if writer is not None and not self.inherited:
            writer.abort()
        self._close_file()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's half-written file: not the child's to finish."""
        return process.inherited(self._generation)

    def _close_file(self) -> None:
        self._writer = None
        self._pieces, self._buffered = [], 0
        process.release(self)
        process.finished(self)
        super().close()

    def _check_open(self) -> None:
        super()._check_open()
        if self._generation != process.generation():
            raise errors.unsupported("write", self._url, "the file was opened for writing in another process")

    def _drain(self) -> None:
        if self._buffered:
            self._pass_on(b"".join(self._pieces))
            self._pieces, self._buffered = [], 0

    def _pass_on(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        if self._writer is None:
            raise ValueError(f"I/O operation on closed file: {self._url}")
        try:
            self._writer.write(data)
        except BaseException as exc:
            if isinstance(exc, OSError):
                errors.named(exc, "write", self._url)
            self._failure = exc
            raise

    def __del__(self) -> None:
        if getattr(self, "_writer", None) is not None:  # at the interpreter's end it was aborted, and `drop` is gone
            drop(self)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a file opened for writing can't be pickled: {self._url}")

    def __repr__(self) -> str:
        return f"<WriteFile {self._url!r}{' closed' if self.closed else ''}>"


def drop(file: WriteFile) -> None:
    """What becomes of a written file that nobody closed: nothing, and a warning."""
    try:
        if not file.inherited:
            warnings.warn(f"never closed, so not written: {file.name}", ResourceWarning, stacklevel=3, source=file)
    finally:  # also where warnings are errors
        file.abort()
