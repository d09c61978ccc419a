"""pyarrow's filesystem interface over any FS: `fs.arrow()`. Files are read by the ranges that Arrow asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import errors, identity

try:
    import pyarrow.fs as arrow_fs
    from pyarrow import ArrowNotImplementedError, PythonFile
except ImportError:
    raise errors.MissingDependencyError("fs.arrow() needs pyarrow: pip install pyarrow", name="pyarrow") from None

from ..core.fs import FS, FileStat
from ..core.writing import discard_if_failing
from ..readers.data.parquet import RangeFile


class ExactFile(RangeFile):
    """A file over a blob, which is closed with it, that reads what is asked for and nothing ahead."""

    def close(self) -> None:
        """Close the blob."""
        self._blob.close()
        super().close()


class ArrowHandler(arrow_fs.FileSystemHandler):  # type: ignore[misc]
    """The methods that pyarrow calls on a filesystem; paths are the FS's own."""

    def __init__(self, fs: FS) -> None:
        self.fs = fs

    def __eq__(self, other: object) -> bool:
        return self._top == other._top if isinstance(other, ArrowHandler) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._top)

    @property
    def _top(self) -> tuple[object, ...]:
        """The directory that paths are relative to: a copy that was pickled is equal."""
        return type(self.fs), identity.place(self.fs, self.fs._cwd)

    def get_type_name(self) -> str:
        """Return a name for the type of filesystem."""
        return "fsabs"

    def normalize_path(self, path: str) -> str:
        """Return the path as the other methods take it."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        """Return what is known of each path."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        try:
            return _file_info(path, self.fs.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return arrow_fs.FileInfo(path, arrow_fs.FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """Return what is known of the members of a directory."""
        base = selector.base_dir
        try:
            stats = list(self.fs.list(base, recursive=selector.recursive, detail=True))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        prefix = f"{base.rstrip('/')}/" if base else ""
        return [_file_info(prefix + stat.filename.rstrip("/"), stat) for stat in stats]

    def create_dir(self, path: str, recursive: bool) -> None:
        """Make a directory."""
        if not self.fs.capabilities.mkdir:
            return
        if recursive:
            self.fs.makedirs(path, exist_ok=True)
        elif not self.fs.isdir(path):
            self.fs.mkdir(path)

    def delete_dir(self, path: str) -> None:
        """Remove a directory and all that is in it; the root of the FS is refused."""
        self._refuse_root(path)
        if not self.fs.isdir(path):
            self.fs.rmdir(path)  # raises what is wrong
        self.fs.remove(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Remove all that is in a directory; the root is `delete_root_dir_contents`'s."""
        self._refuse_root(path)
        try:
            names = list(self.fs.list(path))
        except FileNotFoundError:
            if missing_dir_ok:
                return
            raise
        for name in names:
            self.fs.remove(f"{path.rstrip('/')}/{name.rstrip('/')}", recursive=True)
        if names and self.fs.capabilities.implied_directories:  # one that was there by its members alone stays
            self.create_dir(path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        """Remove all that is in the FS."""
        self.fs.remove("/" + self.fs._root, recursive=True)

    def _refuse_root(self, path: str) -> None:
        if not path.strip("/") or self.fs._key(path, "delete_dir") == self.fs._root:
            raise ValueError(f"{path!r} is the root of the filesystem: delete_root_dir_contents empties it")

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        self.fs.remove(path)

    def move(self, src: str, dest: str) -> None:
        """Move a file or directory; a file is replaced."""
        self.fs.rename(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file; a file is replaced."""
        self.fs.copy(src, dest)

    def open_input_stream(self, path: str) -> Any:
        """Open a file that is read from front to back."""
        return PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_input_file(self, path: str) -> Any:
        """Open a file that is read by ranges."""
        return PythonFile(ExactFile(self.fs.open_blob(path)), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        """Open a file to write, which becomes visible when it is closed, but not because of an exception."""
        self._refuse_metadata("open_output_stream", path, metadata)
        return PythonFile(discard_if_failing(self.fs.open(path, "wb")), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        """Open a file to add to; `ArrowNotImplementedError`, as of pyarrow's own, where the FS can't."""
        self._refuse_metadata("open_append_stream", path, metadata)
        if not self.fs.capabilities.append:
            raise ArrowNotImplementedError(f"{self.fs!r} can't append to a file")
        return PythonFile(self.fs.open(path, "ab"), mode="w")

    def _refuse_metadata(self, operation: str, path: str, metadata: Any) -> None:
        if metadata:
            reason = "metadata are not supported: give the FS the options of its store"
            raise errors.unsupported(operation, self.fs.url(path), reason)


def _file_info(path: str, stat: FileStat) -> Any:
    if stat.directory:
        return arrow_fs.FileInfo(path, arrow_fs.FileType.Directory)
    mtime = None if stat.last_modified is None else int(stat.last_modified * 1e9)
    return arrow_fs.FileInfo(path, arrow_fs.FileType.File, size=stat.size, mtime_ns=mtime)


def as_arrow(fs: FS) -> Any:
    """Return an FS as a filesystem of pyarrow's."""
    return arrow_fs.PyFileSystem(ArrowHandler(fs))
