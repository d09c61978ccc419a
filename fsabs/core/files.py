"""Files that are read: a blob below the standard library's file objects.

`BlobFile` is the raw file, an `io.RawIOBase` with a position of its own; `buffered` puts `io.BufferedReader` above it,
and `TextReader` is the `io.TextIOWrapper` above that. What is read is read by their C code, as by builtin `open`; here
is what makes it good after a fork and from a pickle, and how much is fetched at once. Files that are written are in
`writing.py`.
"""

from __future__ import annotations

import _thread
import contextlib
import copyreg
import errno
import io
import operator
import os
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

from . import errors, process
from .blobs import Blob
from .limits import Limits
from .readahead import ReadAhead

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

FIRST_WINDOW = 128 * 1024
"""Bytes that are fetched first, when a file is opened."""
TEXT_CHUNK = 64 * 1024
"""Bytes of a text file that are decoded at once."""


class BlobFile(io.RawIOBase):
    """A raw file on a blob: `readinto` is a positioned read into the caller's memory.

    What is fetched beyond what was asked for follows the reader: `FIRST_WINDOW` at the begin, `blob.smallest_window`
    after a jump, and twice as much each time that it goes on from there, up to `blob.largest_window`; or always
    `buffer_size`, if that is given, which is the size of the buffer above. It pickles as the blob and the position.
    """

    closed: bool = False
    """True after `close()`. (An attribute: the buffer above looks at it in each call.)"""
    mode: str = "rb"

    _is_ending = staticmethod(sys.is_finalizing)

    def __init__(self, blob: Blob, position: int = 0, buffer_size: int | None = None) -> None:
        self.blob: Blob = blob
        """What is read, for positioned reads beside the file's own position."""
        self._position = position
        self._fetched = position  # the end of what was fetched last
        self.given_size: int = buffer_size or -1
        """The size of the buffer above as it was asked for; -1 for what suits the store."""
        self.buffer_size: int = buffer_size or blob.buffer_size
        """The size of the buffer above."""
        self._smallest = buffer_size or blob.smallest_window
        self._largest = buffer_size or blob.largest_window
        self._window = buffer_size or FIRST_WINDOW
        self.exceeds_buffer: bool = False
        """Whether more is fetched also for a read that is larger than the buffer: where requests are expensive."""
        self._ahead = memoryview(b"")  # what was fetched last, if more than was asked for
        self._source: Blob | ReadAhead = ReadAhead(blob) if blob.streams else blob

    @property
    def name(self) -> str:
        """The full URL of the file."""
        return self.blob.url

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into `buffer` from the position on; return the number of bytes, 0 at the end."""
        view = memoryview(buffer)
        if not view.nbytes:  # which may have a shape that can't be cast
            return 0
        if view.ndim != 1 or view.format != "B":
            view = view.cast("B")
        position, window = self._position, self._window
        if position != self._fetched:
            if self._ahead and 0 < self._fetched - position <= len(self._ahead):
                return self._take(view)
            window = self._smallest
        self._window = min(2 * window, self._largest)
        size, small = len(view), len(view) <= self.buffer_size
        if window > max(size, self.buffer_size) and (small or self.exceeds_buffer):
            source = self._source
            if isinstance(source, ReadAhead):
                self._ahead = source.read_some(window, position)
            else:
                self._ahead = memoryview(source.pread(window, position))
            self._fetched = position + len(self._ahead)
            return self._take(view)
        if small and window < size:
            view = view[:window]
        if self._ahead:
            self._ahead = memoryview(b"")
        read = self._source.pread_into(view, position)
        self._position = self._fetched = position + read
        return read

    def _take(self, view: memoryview) -> int:
        """Read from what was fetched ahead."""
        at = len(self._ahead) - (self._fetched - self._position)
        data = self._ahead[at : at + len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes (all that is left if -1 or None); fewer only at the end of the file."""
        self._check_open()
        if size is None or (size := operator.index(size)) < 0:
            return self.readall()
        data = self._source.pread(size, self._position)
        self._position = self._fetched = self._position + len(data)
        self._ahead = memoryview(b"")
        return data

    def readall(self) -> bytes:
        """Return all that is left."""
        return self.read(max(0, self.blob.size - self._position))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; beyond the end is allowed, before the start is an `OSError` (EINVAL)."""
        position, whence = operator.index(offset), operator.index(whence)  # NumPy's would overflow
        if whence == os.SEEK_CUR:
            position += self._position
        elif whence == os.SEEK_END:
            position += self.blob.size
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence: {whence}")
        self._check_open()
        if position < 0:
            raise errors.error(errno.EINVAL, "seek", self.name, f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        """Return the position."""
        self._check_open()
        return self._position

    def readable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def write(self, data: Any, /) -> NoReturn:
        """Raise `UnsupportedOperation`."""
        self._check_open()
        raise errors.unsupported("write", self.name, "a file of mode 'rb' can't be written to")

    def fileno(self) -> int:
        """Return a descriptor of a local file, this process's own; the position of this file is not its position."""
        self._check_open()
        return self.blob.fileno()

    def close(self) -> None:
        """Close the blob; closing twice is no error."""
        if not self.closed:
            self.closed = True
            super().close()
            self._ahead = memoryview(b"")
            if not self._is_ending():  # then names of modules may be gone, and the process frees what the blob holds
                self._source.close()
                self.blob.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self._check_open()
        return BlobFile, (self.blob, self._position)

    def __repr__(self) -> str:
        return f"<BlobFile {self.name!r} at {self._position}{' closed' if self.closed else ''}>"


def buffered(blob: Blob, buffer_size: int = -1, position: int = 0, max_line_length: int | None = None) -> ReadFile:
    """Return a buffered file of `blob`, which closes it; good in threads, after a fork in both processes, and pickled.

    Args:
        blob: what is read.
        buffer_size: bytes; by default what suits the store.
        position: where reading begins.
        max_line_length: the length in bytes from which a line is an `OSError` (EFBIG).
    """
    size = buffer_size if buffer_size > 0 else blob.buffer_size
    raw = BlobFile(blob, position, buffer_size if buffer_size > 0 else None)
    raw.exceeds_buffer = blob.largest_window > FIRST_WINDOW
    file: Any = reader_type(raw, size) if max_line_length is None else LimitedReader(raw, size, max_line_length)
    _open.add(weakref.ref(file, _open.discard))
    return cast("ReadFile", file)


reader_type: type[io.BufferedReader] = io.BufferedReader
"""The class of buffered files; another one while calls are recorded."""


def reduced(file: io.BufferedReader) -> tuple[Any, ...]:
    """Return how a buffered file is pickled: as its blob and its position."""
    if not isinstance(file.raw, BlobFile):
        raise TypeError(f"cannot pickle {type(file).__name__!r} object")
    limit = file.max_line_length if isinstance(file, LimitedReader) else None
    return buffered, (file.raw.blob, file.raw.given_size, file.tell(), limit)


# Only files of the very class of the standard library are as fast as builtin's: so it is told how ours are pickled.
copyreg.pickle(io.BufferedReader, reduced)


if TYPE_CHECKING:
    ReadFile: TypeAlias = io.BufferedReader[BlobFile]
else:
    ReadFile = io.BufferedReader


# ---- forks: the lock of a reader that a thread was using stays held in the child, where there is no such thread

_open: set[weakref.ref[ReadFile]] = set()
_other_threads = False


def _before_fork() -> None:
    global _other_threads
    _other_threads = _thread._count() > 0


def _in_child() -> None:
    if _other_threads:
        for reference in list(_open):
            file = reference()
            with contextlib.suppress(ValueError):  # detached
                if file is not None and not file.closed:
                    _renew(file)


def _renew(file: ReadFile) -> None:
    position, raw = file.tell(), file.raw
    io.BufferedReader.__init__(file, raw, raw.buffer_size)
    file.seek(position)


process.at_fork(before=_before_fork, in_child=_in_child)


# ---- text


class TextReader(io.TextIOWrapper):
    """A text file over `buffered`, which pickles with its position, also in the middle of a `for` over its lines."""

    closed: bool = False  # an attribute, as of `BlobFile`
    _newline: str | None = None

    def __init__(
        self,
        file: io.BufferedReader,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool = False,
    ) -> None:
        super().__init__(file, encoding, errors, newline, line_buffering)
        self._newline = newline
        self._CHUNK_SIZE = TEXT_CHUNK

    # The base class's own iterator takes tell() away until the end of the file, and pickling with it.
    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return iter(self.readline, "")

    def __next__(self) -> str:  # type: ignore[override]
        if line := self.readline():
            return line
        raise StopIteration

    def close(self) -> None:
        """Close the file."""
        try:
            super().close()
        finally:
            self.closed = True

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        settings = (self.encoding, self.errors, self._newline, self.line_buffering)
        return _reopened_text, (type(self), self.buffer, settings, self.mode, self.tell())


def _reopened_text(
    kind: type[TextReader], buffer: io.BufferedReader, settings: tuple[Any, ...], mode: str, position: int
) -> TextReader:
    text = kind(buffer, *settings)
    text.mode = mode  # type: ignore[misc]
    text.seek(position)
    return text


# ---- lines of a limited length


class LimitedReader(io.BufferedReader):
    """A buffered file whose lines have a limited length: what has no newline is not read as a whole by `readline`."""

    def __init__(self, raw: BlobFile, buffer_size: int, max_line_length: int) -> None:
        super().__init__(raw, buffer_size)
        # `Limits` takes what compares as a number
        self.max_line_length: int = int(min(max_line_length, sys.maxsize - 1))

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the bytes up to and with the next newline, at most `size` of them; a longer line is an `OSError`."""
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(self.max_line_length + 1)
        if len(line) > self.max_line_length:
            raise too_long(self.name, self.max_line_length)
        return line

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return reduced(self)


class LimitedTextReader(TextReader):
    """A text file whose lines have a limited length, in characters."""

    buffer: LimitedReader

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        """Return the text up to and with the next newline, at most `size` characters; a longer line is an `OSError`."""
        if size is not None and size >= 0:
            return super().readline(size)
        longest = self.buffer.max_line_length
        line = super().readline(longest + 1)
        if len(line) > longest:
            raise too_long(self.name, longest)
        return line


def too_long(url: str, longest: int) -> OSError:
    """Return the error of a line that is longer than allowed."""
    limits = Limits(max_line_length=longest)
    return limits.error("max_line_length", f"a line has more than {longest} bytes or characters", "readline", url)
