"""Local files that are opened with `r+`: read and written in place, whole or not."""

from __future__ import annotations

import contextlib
import errno
import io
import operator
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from ..core import errors, process


class _Update(io.RawIOBase):
    """A descriptor that reads and writes in place, at a position that no other process shares."""

    mode = "rb+"

    def __init__(self, fd: int, url: str) -> None:
        self._fd = fd
        self._position = 0
        self._generation = process.generation()
        self.name = url

    @property
    def inherited(self) -> bool:
        """True if a parent process opened the file: a child must not write to it."""
        return process.inherited(self._generation)

    def read(self, size: int | None = -1, /) -> bytes | None:
        return super().read(-1 if size is None else size)

    def readinto(self, buffer: Any, /) -> int:
        with self._named("read"):
            size = os.preadv(self._fd, [buffer], self._position)
        self._position += size
        return size

    def write(self, data: Any, /) -> int:
        self._check_own("write")
        with self._named("write"):
            size = os.pwrite(self._fd, data, self._position)
        self._position += size
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        offset = operator.index(offset)
        with self._named("seek"):
            end = os.fstat(self._fd).st_size if whence == os.SEEK_END else 0
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: end}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence: {whence}")
        if base + offset < 0:
            raise errors.error(errno.EINVAL, "seek", self.name, f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self._check_own("truncate")
        size = self._position if size is None else size
        with self._named("truncate"):
            os.ftruncate(self._fd, size)
        return size

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        self._check_open()
        return True

    def writable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                with self._named("close"):
                    os.close(fd)
        finally:
            super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def _check_own(self, operation: str) -> None:
        if self.inherited:
            raise errors.unsupported(operation, self.name, "the file was opened for writing in another process")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a file opened for writing can't be pickled: {self.name}")

    @contextlib.contextmanager
    def _named(self, operation: str) -> Iterator[None]:
        self._check_open()
        try:
            yield
        except OSError as exc:
            errors.named(exc, operation, self.name)
            raise


class UpdateFile(io.BufferedRandom):
    """A local file that is read and written in place; a forked child has no part in what its parent has written."""

    raw: _Update

    def __init__(self, fd: int, url: str) -> None:
        super().__init__(_Update(fd, url))
        process.abort_at_exit(self)

    @property
    def inherited(self) -> bool:
        """True if a parent process opened the file."""
        return self.raw.inherited

    @property
    def mode(self) -> str:  # type: ignore[override]
        """Always `"rb+"`."""
        return "rb+"

    def write(self, data: Any, /) -> int:
        """Write in place; `UnsupportedOperation` in a forked child."""
        if self.inherited:
            self.raw.write(b"")
        return super().write(data)

    def close(self) -> None:
        """Close the file, with all that was written."""
        process.finished(self)
        super().close()

    def abort(self) -> None:
        """Close the file; what was written stays."""
        self.close()

    def flush(self) -> None:
        """Hand on what is buffered; a child leaves what its parent buffered to the parent."""
        if not self.inherited:
            super().flush()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.raw.__reduce_ex__(protocol)
