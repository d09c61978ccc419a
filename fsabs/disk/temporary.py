"""Temporary files of this machine: the folder that they are in, and what is in memory first and then in one of them."""

from __future__ import annotations

import errno
import io
import os
from typing import Any

from ..core import process
from .descriptors import write_all


def folder() -> str:
    """Return the folder for temporary files, as `tempfile.gettempdir`.

    Where there is none, the error says why: Python's is a `FileNotFoundError`, also on a full disk, and would be taken
    for one of the file that is written.
    """
    import tempfile  # slow to import

    try:
        return tempfile.gettempdir()
    except FileNotFoundError as exc:
        raise OSError(_reason(os.environ.get("TMPDIR") or "/tmp"), str(exc.strerror)) from None


def open_unnamed() -> int:
    """Return the descriptor of a new file that has no name; the caller closes it."""
    import tempfile

    with tempfile.TemporaryFile(buffering=0, dir=folder()) as file:
        return os.dup(file.fileno())


def _reason(path: str) -> int:
    """Return the errno of writing a temporary file in a folder."""
    import tempfile

    try:
        with tempfile.TemporaryFile(buffering=0, dir=path) as file:
            file.write(b"-")
    except OSError as exc:
        if exc.errno not in (None, errno.ENOENT):
            return exc.errno
    return errno.EACCES


class Spool:
    """A binary file in memory, which moves to a temporary file without a name where it becomes large.

    It is `tempfile.SpooledTemporaryFile` without a buffer for the file: what a buffer still holds when the disk is full
    makes `close` raise, too.
    """

    def __init__(self, max_in_memory: int) -> None:
        self._max_in_memory = max_in_memory
        self._file: io.BytesIO | io.FileIO = io.BytesIO()

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        file = self._file
        if isinstance(file, io.BytesIO):
            if file.tell() + len(data) <= self._max_in_memory:
                file.write(data)
                return
            self._file = file = _moved(file)
        write_all(file.fileno(), data)

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, fewer only at the end; all that follow without a size."""
        found: list[bytes] = []
        while size and (data := self._file.read(size)):
            found.append(data)
            size -= len(data) if size > 0 else 0
        return found[0] if len(found) == 1 else b"".join(found)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seek(self, offset: int) -> int:
        """Go to a position, counted from the start."""
        return self._file.seek(offset)

    def close(self) -> None:
        """Free the memory, or the file. Closing twice is no error."""
        self._file.close()


class NamedSpool:
    """As `Spool`, but its file has a name, by which libraries can read it; it belongs to the process that made it."""

    def __init__(self, max_in_memory: int) -> None:
        self._max_in_memory = max_in_memory
        self._memory = bytearray()
        # Freed in a forked child, it would remove the parent's file.
        self._file: process.PerProcess[Any] = process.PerProcess(process.not_owned)

    def write(self, data: bytes) -> None:
        """Append to the spool."""
        if self._file.peek() is None and len(self._memory) + len(data) <= self._max_in_memory:
            self._memory += data
            return
        if self._memory or self._file.peek() is None:
            import tempfile

            made = tempfile.NamedTemporaryFile(buffering=0, prefix="fsabs-", dir=folder())  # noqa: SIM115 - until `close`
            self._file.adopt(made)
            memory, self._memory = bytes(self._memory), bytearray()
            write_all(made.fileno(), memory)
        write_all(self._file.get().fileno(), data)

    @property
    def name(self) -> str:
        """The path of the file; empty if all is in memory."""
        file = self._file.peek()
        return str(file.name) if file is not None else ""

    def content(self) -> bytes:
        """Return what is in memory."""
        return bytes(self._memory)

    def close(self) -> None:
        """Free the memory, and remove the file. Closing twice is no error."""
        self._memory = bytearray()
        if self._file.peek() is not None:
            self._file.get().close()
            self._file.close()


def _moved(memory: io.BytesIO) -> io.FileIO:
    """Return a temporary file with the content of `memory`, at the same position."""
    import tempfile

    file = tempfile.TemporaryFile(buffering=0, dir=folder())  # noqa: SIM115 - the spool's to close
    try:
        write_all(file.fileno(), memory.getvalue())  # no view of it, which an error's traceback would keep
        file.seek(memory.tell())
    except BaseException:
        file.close()
        raise
    return file
