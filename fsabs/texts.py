"""Text files: `io.TextIOWrapper` over the binary files of `files.py`, with their life after fork and pickle."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import IO, Any, NoReturn, cast

from . import process
from .files import AbortsOnError, BlobReader, WriteFile, drop


class TextReader(io.TextIOWrapper):
    """A text file over a `BlobReader`, which pickles with its position."""

    buffer: BlobReader
    _newline: str | None = None

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        """Return the text up to and with the next newline, at most `size` characters.

        Without `size` a line of more than `max_line_length` characters is an `OSError` (EFBIG).
        """
        longest = self.buffer.max_line_length
        if longest is None or (size is not None and size >= 0):
            return super().readline(-1 if size is None else size)
        line = super().readline(longest + 1)
        if len(line) > longest:
            self.buffer.check_line(len(line))
        return line

    def __next__(self) -> str:  # type: ignore[override]
        # The base class's own takes tell() away until the end of the file, and pickling with it.
        if line := self.readline():
            return line
        raise StopIteration

    def write(self, text: str, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self.buffer.write(b"")

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            if not ending():
                self.close()
        except ValueError:  # never made
            return

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # From Python 3.12 on, the base class has this method, which refuses, and `__reduce__` is never called.
        how = (self.encoding, self.errors, self._newline, self.line_buffering, self.mode)
        return _reopen, (self.buffer, how, self.tell())


class TextUpdate(io.TextIOWrapper):
    """A text file that is written to: a forked child has no part in what its parent has written."""

    buffer: Any  # tells whether it is `inherited`

    def close(self) -> None:
        """Close the file, with all that was written; in a child, leave that to the parent."""
        process.finished(self)
        if self.buffer.inherited:
            self.buffer.close()
        else:
            super().close()

    def abort(self) -> None:
        """Close the file; what was written stays."""
        self.close()


class TextWriter(AbortsOnError, TextUpdate):
    """A text file over a `WriteFile`: whole or not at all."""

    buffer: WriteFile

    def read(self, size: int | None = -1, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self.buffer.read()

    def readline(self, size: int = -1, /) -> NoReturn:  # type: ignore[override]
        """`UnsupportedOperation`."""
        self.buffer.read()

    def __next__(self) -> NoReturn:
        self.buffer.read()

    def seek(self, cookie: int, whence: int = 0, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self.buffer.seek(cookie)

    def abort(self) -> None:
        """Close without making anything visible."""
        self.buffer.abort()

    def __del__(self) -> None:
        try:
            file = self.buffer
        except ValueError:  # never made: there is nothing to drop
            return
        if getattr(file, "_writer", None) is not None:
            drop(file)


def _reopen(buffer: BlobReader, how: tuple[Any, ...], position: int) -> io.TextIOWrapper:
    text = as_text(buffer, *how)
    text.seek(position)
    return text


def as_text(
    file: io.BufferedIOBase, encoding: str | None, handler: str | None, newline: str | None, by_line: bool, mode: str
) -> io.TextIOWrapper:
    """The text file over a binary one, with `builtins.open`'s meaning of the arguments."""
    kind: type[io.TextIOWrapper] = io.TextIOWrapper
    if isinstance(file, BlobReader):
        kind = TextReader
    elif isinstance(file, WriteFile):
        kind = TextWriter
    elif hasattr(file, "inherited"):
        kind = TextUpdate
    with file.telling() if isinstance(file, WriteFile) else contextlib.nullcontext():
        text = kind(cast(IO[bytes], file), encoding or io.text_encoding(None, 3), handler, newline, by_line)
    text.mode = mode  # type: ignore[misc]
    if kind is TextUpdate:  # at the interpreter's end it is closed, and not the file below it, which has less
        process.finished(cast(TextUpdate, file))
        process.abort_at_exit(cast(TextUpdate, text))
    if isinstance(text, TextReader):
        text._newline = newline
    return text
