"""Files that are written: a store's `Writer` becomes a Python file that is whole or not at all.

A written file becomes visible at `close()`; what is left by an exception, by garbage collection, by the interpreter's
exit or in a forked child is thrown away.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from . import errors, process
from .binaryfile import BinaryFile

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

WRITE_BUFFER_SIZE = 1024 * 1024

_MOST_PIECES = 1024  # of what is buffered: more are joined
PARTIAL_SUFFIX = ".fsabs-partial"
"""What the name of a half-written file ends in; it starts with a dot, and no listing shows it."""


def partial_name(name: str) -> str:
    """A hidden name beside `name`, within the 255 bytes that most filesystems have for one."""
    short = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return f".{short}.{os.urandom(6).hex()}{PARTIAL_SUFFIX}"


def is_partial(name: str) -> bool:
    """Return whether `name` is that of a half-written file."""
    return name.endswith(PARTIAL_SUFFIX) and name.startswith(".")


class Writer(abc.ABC):
    """One file being written: nothing is visible before `commit()`, nothing is left after `abort()`.

    `write` may be called from one thread at a time. `abort` and `leave` must not raise, and may follow anything.
    """

    checks: bool = False
    """It has compared what it has written with what it was given."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Take all of `data`."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Make the file visible, complete, in place of what the key held."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget everything written; what the key held stays."""

    def leave(self) -> None:
        """As `abort`, but keep, invisibly, what a later writer can go on from, where there is a way."""
        self.abort()


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


def _copied(view: memoryview, step: int) -> Iterable[bytes]:
    """Return copies of a buffer that may change: of a large one in steps, whose memory is used again."""
    step = max(step, WRITE_BUFFER_SIZE) if step else view.nbytes
    if view.nbytes <= step or not view.c_contiguous:
        return (view.tobytes(),)
    try:
        data = view.cast("B")
    except (TypeError, ValueError):  # a format of records, or of another byte order
        return (view.tobytes(),)
    return (data[start : start + step].tobytes() for start in range(0, len(data), step))


class WriteFile(AbortsOnError, BinaryFile):
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
        pieces = (data,) if type(data) is bytes else _copied(memoryview(data), self._buffer_size)
        size = 0
        with self._lock:
            self._check_open()
            self._writing = True
            for piece in pieces:
                self._pieces.append(piece)
                self._buffered += len(piece)
                if self._buffered >= self._buffer_size:
                    self._drain()
                elif len(self._pieces) >= _MOST_PIECES:
                    self._pieces = [b"".join(self._pieces)]
                self._position += len(piece)
                size += len(piece)
            self._writing = False
            return size

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
        """True in a forked child for its parent's half-written file, which the child must not finish."""
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
    """Abort a written file that was never closed, with a warning."""
    try:
        if not file.inherited:
            warnings.warn(f"never closed, so not written: {file.name}", ResourceWarning, stacklevel=3, source=file)
    finally:  # also where warnings are errors
        file.abort()
