"""`Scanner` and `open_recordio`: the Go implementation's way to read a run of records, and a reader of a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..locate import locate
from .reader import RecordReader
from .scan import Scan

if TYPE_CHECKING:
    from typing import Self

    from ...core.fs import FS, Path
    from .format import Skipped
    from .index import OnError


class Scanner(Scan):
    """The records of a file from number `start`, `len` of them, as the Go implementation's scanner takes them.

    A negative `start` means 0; a `len` that is negative or too large means all that follow; a `start` behind the end
    yields nothing. As a context manager, or by `close()`, it closes the file.
    """

    _reader: RecordReader

    def __init__(self, fs: FS, path: Path, start: int = 0, len: int = -1, *, on_error: OnError = "raise") -> None:
        reader = RecordReader(fs, path, on_error=on_error)
        total = reader.index.records
        first = min(max(start, 0), total)
        super().__init__(reader, first, total if len < 0 else min(first + len, total))

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that was skipped so far, with `on_error="skip"`."""
        return self._reader.skipped

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_recordio(url: Path, *, on_error: OnError = "raise", **options: Any) -> RecordReader:
    """Open the file at a URL; `options` are those of `from_url`. Closing the reader closes all that was opened."""
    fs, path = locate(url, **options)
    try:
        reader = RecordReader(fs, path, on_error=on_error)
    except BaseException:
        fs.close()
        raise
    reader.own(fs)
    return reader
