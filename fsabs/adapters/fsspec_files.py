"""Files as fsspec hands them out: described, written through a compressor, and held back by a transaction."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from fsspec.spec import AbstractBufferedFile

from ..core.fs import FileStat
from ..core.writing import AbortsOnError, WriteFile


class FileWithCache(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read through one of fsspec's caches, as `cache_type=` and `blockcache::` ask for it."""

    def __init__(
        self, fs: Any, path: str, file: Any, block_size: Any, cache_type: str, cache_options: dict[str, Any] | None
    ) -> None:
        self._file = file
        options = {} if block_size in (None, "default") else {"block_size": block_size}
        super().__init__(fs, path, cache_type=cache_type, cache_options=cache_options, size=file.size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self._file.raw.blob.pread(end - start, start)
        return data

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._file.close()


class CompressedFile(AbortsOnError):
    """A compressor and the file that it writes to, closed together."""

    def __init__(self, file: WriteFile, compressor: Callable[..., Any]) -> None:
        self._file = file
        self._compressor = compressor(file, mode="w")

    def close(self) -> None:
        """Write what the compressor holds back, and make the file visible."""
        try:
            self._compressor.close()
        except BaseException:
            self._file.abort()
            raise
        self._file.close()

    def abort(self) -> None:
        """Drop the file."""
        self._file.abort()
        with contextlib.suppress(ValueError, OSError):  # it writes its trailer to a closed file
            self._compressor.close()

    @property
    def closed(self) -> bool:
        """True if the file is closed."""
        return self._file.closed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file if name == "inherited" else self._compressor, name)

    def __enter__(self) -> CompressedFile:
        return self


class CompressedTextFile(AbortsOnError, io.TextIOWrapper):
    """Text over a `CompressedFile`: whole or not at all."""

    buffer: Any

    def abort(self) -> None:
        """Drop the file."""
        self.buffer.abort()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, ValueError):  # never made
            if not self.buffer.closed:
                self.abort()


class FileInTransaction:
    """A file of a transaction: `close` keeps it, `commit` makes it visible."""

    def __init__(self, file: WriteFile) -> None:
        self._file = file

    def close(self) -> None:
        """Leave the file to the transaction."""

    def commit(self) -> None:
        """Make the file visible."""
        self._file.close()

    def discard(self) -> None:
        """Drop the file."""
        self._file.abort()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file, name)

    def __enter__(self) -> FileInTransaction:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def file_info(name: str, stat: FileStat) -> dict[str, Any]:
    """Return what `AbstractFileSystem.info` returns."""
    found: dict[str, Any] = {
        "name": name,
        "size": stat.size,
        "type": "directory" if stat.directory else "file",
        "mode": stat.mode,
        "islink": False,
    }
    if stat.last_modified is not None:
        found["mtime"] = stat.last_modified
    if stat.version is not None:
        found["ETag"] = stat.version
    return found
