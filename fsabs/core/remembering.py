"""Files for libraries written in C++, through which an exception of the file comes out as another one, or is lost.

`remembering` gives such a library a file that remembers the first thing that it raised, `KeyboardInterrupt` and
`SystemExit` included, and raises that in place of what the library made of it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Buffer

R = TypeVar("R")


class RememberingFile:
    """A binary file that remembers its first failure.

    After a failure, and after `end()`, what is written is dropped: a writer of C++ writes the end of its archive when
    it is freed, where an exception would abort the process.
    """

    def __init__(self, file: Any) -> None:
        self.file: io.BufferedIOBase = file
        """The file that is read or written."""
        self.failure: BaseException | None = None
        """The first exception that a call has raised."""
        self._ended = False

    def end(self) -> None:
        """Use the file no more."""
        self._ended = True

    def _call(self, function: Callable[..., R], *args: Any) -> R:
        try:
            return function(*args)
        except BaseException as exc:
            if self.failure is None:
                self.failure = exc
            raise

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`; return the number of its bytes."""
        if self._ended or self.failure is not None:
            return memoryview(data).nbytes
        return self._call(self.file.write, data)

    def flush(self) -> None:
        """Flush what is written."""
        if not self._ended and self.failure is None:
            self._call(self.file.flush)

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""
        return self._call(self.file.read, size)

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into `buffer`; return the number of bytes."""
        return self._call(self.file.readinto, buffer)

    def readline(self, size: int = -1, /) -> bytes:
        """Return the bytes up to and with the next newline."""
        return self._call(self.file.readline, size)

    def seekable(self) -> bool:
        """Return whether the file has a position that can be moved."""
        return self._call(self.file.seekable)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position."""
        return self._call(self.file.seek, offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._call(self.file.tell)

    def __repr__(self) -> str:
        return repr(self.file)


@contextlib.contextmanager
def remembering(file: RememberingFile) -> Iterator[Any]:
    """Raise what `file` has raised in the block, whatever the block raises; a signal's exception comes before others.

    One that comes while the library closes its archive is the context of what the library then raises.
    """
    first: BaseException | None = None
    outer = sys.exception()
    try:
        try:
            yield file
        except BaseException as exc:
            first = file.failure or _of_signal(exc, outer)
            if first is None or first is exc:
                raise
        else:
            first = file.failure
        if first is not None:
            raise first
    finally:
        file.end()
        file.failure = first = outer = (
            None  # whose traceback has this frame: a cycle that only the garbage collector frees
        )


def _of_signal(exc: BaseException, outer: BaseException | None) -> BaseException | None:
    """Return `exc`, or what it was raised in the handling of, that is no `Exception`; None if that is none but `outer`.

    `outer` is an exception that was being handled before.
    """
    found: BaseException | None = exc
    while isinstance(found, Exception) and found is not outer:
        found = found.__context__
    return None if found is outer else found
