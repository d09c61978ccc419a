"""Binary file objects: a blob becomes a reader here; files that are written are in `writefile.py`.

A reader keeps its position and its buffer to itself, as one value that is replaced and never mutated, so that a
fork at any moment leaves a good copy in the child.
"""

from __future__ import annotations

import errno
import operator
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from . import errors, process
from .binaryfile import BinaryFile
from .blobs import Blob
from .limits import DEFAULT, Limits
from .readahead import ReadAhead
from .writefile import PARTIAL_SUFFIX as PARTIAL_SUFFIX
from .writefile import WRITE_BUFFER_SIZE as WRITE_BUFFER_SIZE
from .writefile import AbortsOnError as AbortsOnError
from .writefile import WriteFile as WriteFile
from .writefile import Writer as Writer
from .writefile import committing as committing
from .writefile import drop as drop
from .writefile import is_partial as is_partial
from .writefile import partial_name as partial_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_SIZE = 128 * 1024  # the first read of a file, and of each jump in it
MAX_WINDOW = 8 * 1024 * 1024  # what sequential reading grows the buffer to


class BlobReader(BinaryFile):
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
        """Return buffered bytes from the position on, at least one byte unless the file is at its end."""
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
        """Return the number of bytes that are buffered from the position on."""
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
