"""Python file objects: a blob becomes a reader here, and a store's `Writer` a file that is whole or not at all.

A reader keeps its position and its buffer to itself, as one value that is replaced and never mutated, so that a
fork at any moment leaves a good copy in the child. A written file becomes visible at `close()`; what is left by an
exception, by garbage collection, by the interpreter's exit or in a forked child is thrown away.
"""

from __future__ import annotations

import abc
import codecs
import io
import os
import warnings
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from . import errors, process
from .blobs import Blob
from .readahead import ReadAhead

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

BUFFER_SIZE = 128 * 1024  # the first read of a file, and of each jump in it
MAX_WINDOW = 8 * 1024 * 1024  # what sequential reading grows the buffer to
WRITE_BUFFER_SIZE = 1024 * 1024


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


class BlobReader(io.BufferedIOBase):
    """A buffered binary reader of a blob, with a position of its own; safe in threads, forks and pickles."""

    def __init__(self, blob: Blob, buffer_size: int = BUFFER_SIZE, position: int = 0) -> None:
        self._blob = blob
        self._buffer_size = buffer_size
        # position, offset of the buffer in the blob, buffer, size of the next sequential fetch
        self._state: tuple[int, int, bytes, int] = (position, position, b"", buffer_size)
        self._source = ReadAhead(blob)
        self._lock = process.Lock()

    @property
    def name(self) -> str:
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
        """Up to `size` bytes (all that is left if negative or None); fewer only at the end of the file."""
        with self._lock:
            return self._take(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes by at most one read of the store."""
        with self._lock:
            buffered = self._buffered()
            if not buffered and size != 0:
                buffered = self._fetch(max(1, size) if size < self._buffer_size else size)
            return self._take(len(buffered) if size < 0 else min(size, len(buffered)))

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill `buffer` as far as the file goes; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readinto1(self, buffer: Buffer, /) -> int:
        """Fill `buffer` by at most one read of the store; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)

    def peek(self, size: int = 0, /) -> bytes:
        """What is buffered from the position on, at least one byte unless the file is at its end."""
        with self._lock:
            return self._buffered() or self._fetch(max(1, size))

    def readline(self, size: int | None = -1, /) -> bytes:
        """The bytes up to and with the next newline, at most `size` of them."""
        limit = -1 if size is None else size
        found: list[bytes] = []
        with self._lock:
            while limit:
                buffered = self._buffered() or self._fetch(max(1, self._buffer_size))
                if not buffered:
                    break
                end = buffered.find(b"\n") + 1
                step = end or len(buffered)
                found.append(self._take(step if limit < 0 else min(step, limit)))
                if limit > 0:
                    limit -= len(found[-1])
                if found[-1].endswith(b"\n"):
                    break
        return b"".join(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; beyond the end is allowed, before the start is a `ValueError`."""
        with self._lock:
            self._check_open()
            base = {os.SEEK_SET: 0, os.SEEK_CUR: self._state[0], os.SEEK_END: self._blob.size}.get(whence)
            if base is None:
                raise ValueError(f"invalid whence: {whence}")
            if base + offset < 0:
                raise ValueError(f"negative seek position {base + offset}")
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

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return BlobReader, (self._blob, self._buffer_size, self._state[0])

    def __repr__(self) -> str:
        return f"<BlobReader {self.name!r} at {self._state[0]}{' closed' if self.closed else ''}>"

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self._blob.url}")

    def _buffered(self) -> bytes:
        """The part of the buffer from the position on."""
        self._check_open()
        position, start, data, _ = self._state
        if not 0 <= position - start < len(data):
            return b""
        return data[position - start :]

    def _fetch(self, least: int) -> bytes:
        """Read the store at the end of the buffer, or at the position after a jump; returns what is now buffered."""
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
        return data

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
            found = self._fetch(size)[:size]
            _, start, data, window = self._state
        self._state = (position + size, start, data, window)
        return found


class WriteFile(io.BufferedIOBase):
    """A binary file being written: visible, complete, once `close()` has returned; else never."""

    def __init__(self, writer: Writer, url: str, buffer_size: int = WRITE_BUFFER_SIZE) -> None:
        self._writer: Writer | None = writer
        self._url = url
        self._buffer = bytearray()
        self._buffer_size = buffer_size
        self._position = 0
        self._failure: BaseException | None = None
        self._generation = process.generation()
        self._lock = process.Lock()
        process.abort_at_exit(self)

    @property
    def name(self) -> str:
        """The full URL of the file."""
        return self._url

    @property
    def mode(self) -> str:
        """Always `"wb"`."""
        return "wb"

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; returns the number of its bytes."""
        with memoryview(data) as view, self._lock:
            self._check_open()
            if view.nbytes >= self._buffer_size:
                self._drain()
                self._pass_on(view.tobytes())
            else:
                self._buffer += view.tobytes()
                if len(self._buffer) >= self._buffer_size:
                    self._drain()
            self._position += view.nbytes
            return view.nbytes

    def flush(self) -> None:
        """Hand what is buffered to the store; nothing is visible before `close()`."""
        if self.closed or self._writer is None or self.inherited:
            return
        with self._lock:
            self._drain()

    def tell(self) -> int:
        """The number of bytes written."""
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
        """False: a store takes the bytes in their order."""
        return False

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were."""
        writer, self._writer = self._writer, None
        if writer is None or self.inherited:
            self._close_file()
            return
        try:
            if self._failure is not None:
                raise self._failure
            if self._buffer:
                writer.write(bytes(self._buffer))
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
        writer, self._writer = self._writer, None
        if writer is not None and not self.inherited:
            writer.abort()
        self._close_file()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's half-written file: not the child's to finish."""
        return process.inherited(self._generation)

    def _close_file(self) -> None:
        self._buffer = bytearray()
        process.finished(self)
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self._url}")
        if self._generation != process.generation():
            raise errors.unsupported("write", self._url, "the file was opened for writing in another process")

    def _drain(self) -> None:
        if self._buffer:
            self._pass_on(bytes(self._buffer))
            self._buffer.clear()

    def _pass_on(self, data: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._writer is not None
        try:
            self._writer.write(data)
        except BaseException as exc:
            if isinstance(exc, OSError):
                errors.named(exc, "write", self._url)
            self._failure = exc
            raise

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        _drop(self)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a file opened for writing can't be pickled: {self._url}")

    def __repr__(self) -> str:
        return f"<WriteFile {self._url!r}{' closed' if self.closed else ''}>"


class TextReader(io.TextIOWrapper):
    """A text file over a `BlobReader`, which pickles with its position."""

    buffer: BlobReader

    def __next__(self) -> str:  # type: ignore[override]
        # The base class's own takes tell() away until the end of the file, and pickling with it.
        if line := self.readline():
            return line
        raise StopIteration

    def __reduce__(self) -> tuple[Any, ...]:
        how = (self.encoding, self.errors, self._newline, self.line_buffering)
        return _reopen_text, (self.buffer, how, self.tell())

    _newline: str | None = None


class TextWriter(io.TextIOWrapper):
    """A text file over a `WriteFile`: whole or not at all."""

    buffer: WriteFile

    def abort(self) -> None:
        """Close without making anything visible."""
        self.buffer.abort()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        try:
            file = self.buffer
        except ValueError:  # detached, or never made: there is nothing to drop
            return
        _drop(file)


def _drop(file: WriteFile) -> None:
    """What becomes of a written file that nobody closed: nothing, and a warning."""
    if getattr(file, "_writer", None) is None:
        return
    try:
        if not file.inherited:
            warnings.warn(f"never closed, so not written: {file.name}", ResourceWarning, stacklevel=3, source=file)
    finally:  # also where warnings are errors
        file.abort()


def _reopen_text(buffer: BlobReader, how: tuple[Any, ...], position: int) -> TextReader:
    text = cast(TextReader, as_text(buffer, *how))
    text.seek(position)
    return text


def as_text(
    file: io.BufferedIOBase, encoding: str | None, error_handler: str | None, newline: str | None, line_buffering: bool
) -> io.TextIOWrapper:
    """The text file over a binary one, with `builtins.open`'s meaning of the arguments."""
    kind: type[io.TextIOWrapper] = io.TextIOWrapper
    if isinstance(file, BlobReader):
        kind = TextReader
    elif isinstance(file, WriteFile):
        kind = TextWriter
    text = kind(cast(IO[bytes], file), encoding or io.text_encoding(None, 3), error_handler, newline, line_buffering)
    if isinstance(text, TextReader):
        text._newline = newline
    return text


def write_bom(text: io.TextIOWrapper) -> None:
    """Begin a new text file with its byte order mark, which `TextIOWrapper` leaves out where it can't seek."""
    if codecs.lookup(text.encoding).name in ("utf-16", "utf-32"):
        text.write("\ufeff")


def check_arguments(mode: Mode, buffering: int, encoding: str | None, errors: str | None, newline: str | None) -> None:
    """Refuse the combinations of arguments that `builtins.open` refuses."""
    if not mode.text and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0 and mode.text:
        raise ValueError("can't have unbuffered text I/O")


class Mode:
    """A parsed mode of `builtins.open`: `action` is one of `r w x a`, beside `update` (`+`) and `text`."""

    __slots__ = ("action", "text", "update")

    def __init__(self, mode: str) -> None:
        letters = set(mode)
        actions = letters & set("rwxa")
        if not isinstance(mode, str) or letters - set("rwxabt+") or len(letters) < len(mode) or len(actions) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if {"b", "t"} <= letters:
            raise ValueError(f"can't have text and binary mode at once: {mode!r}")
        self.action = cast(Literal["r", "w", "x", "a"], actions.pop())
        self.update = "+" in letters
        self.text = "b" not in letters
