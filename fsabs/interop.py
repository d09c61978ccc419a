"""The methods of an FS that give it another library's interface, and the blobs that those interfaces read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import registry
from .core import Core

if TYPE_CHECKING:
    from os import PathLike

    from .blobs import Blob


class AdapterMethods(Core):
    """The methods of `FS` that return it as another library's filesystem, each named after the library."""

    def open_blob(self, path: str | PathLike[str]) -> Blob:
        """Open a file for positioned reads, `pread` and `pread_many`; nothing is read ahead. Close it after use."""
        key = self._key(path, "open")
        self._require("read", "open for reading", key)
        try:
            return self._open_blob(key)
        except OSError as exc:
            self._named(exc, "open", key)
            raise

    def fsspec(self) -> Any:
        """Return this FS as a filesystem of fsspec's, for whatever takes one; paths are the FS's own."""
        return registry.adapter("fsspec")(self)

    def arrow(self) -> Any:
        """Return this FS as a `pyarrow.fs.FileSystem`; files are read by exactly the ranges that are asked for."""
        return registry.adapter("arrow")(self)

    def obspec(self) -> Any:
        """Return this FS as a store with obspec's methods, for zarr, virtualizarr and others that take one."""
        return registry.adapter("obspec")(self)
