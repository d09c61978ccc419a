"""The FS inside a cache: its properties, which decide how the cache reads and checks it, and opening its files."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.local import Local
from ..containers.base import Container
from ..core.blobs import Blob
from ..core.fs import FS
from ..core.layers import LayerFS


def backend_of(fs: FS) -> FS:
    """Return what is undermost, below layers and containers."""
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs._parent
    return fs


def is_far(fs: FS) -> bool:
    """Return if its files, or the containers that they are in, take requests to a server."""
    if isinstance(fs, LayerFS | Container) and not fs.capabilities.stat_is_request:
        return is_far(fs.inner if isinstance(fs, LayerFS) else fs._parent)
    return fs.capabilities.stat_is_request


def local_folder(fs: FS) -> str | None:
    """Return the folder of local files that it has; None for any other FS, and for a container."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return f"/{fs._root}" if isinstance(fs, Local) else None


class FileOpener:
    """Opens a file in its store: the first time it returns what is open already, if something is."""

    def __init__(self, open_inner: Callable[[str], Blob], opened: Blob | None) -> None:
        self._open_inner = open_inner
        self._opened = opened

    def __call__(self, key: str) -> Blob:
        """Return a blob for the caller to close."""
        opened, self._opened = self._opened, None
        return opened if opened is not None else self._open_inner(key)
