"""The FS inside a cache: its properties, which decide how the cache reads and checks it, and opening its files."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.local import Local
from ..backends.memory import Memory
from ..blobs import Blob
from ..containers.base import Container
from ..fs import FS
from ..layers import LayerFS


def backend_of(fs: FS) -> FS:
    """Return what is undermost, below layers and containers."""
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs._parent
    return fs


def local_folder(fs: FS) -> str | None:
    """Return the folder of local files that it has; None for any other FS, and for a container."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return f"/{fs._root}" if isinstance(fs, Local) else None


def is_asked_by_request(fs: FS) -> bool:
    """Return if a stat takes a request, which could return the file's start, too.

    False where versions are made of times, as on filesystems: the age of the file has to be known before it is read.
    """
    by_content = isinstance(backend_of(fs), Memory) or fs.scheme == "s3"
    return fs.default_concurrency > 1 and not knows_its_members(fs) and by_content


def knows_its_members(fs: FS) -> bool:
    """Return if it is a container, whose index has the stats of its members: no request is needed for them."""
    while isinstance(fs, LayerFS):
        fs = fs.inner
    return isinstance(fs, Container)


class FileOpener:
    """Opens a file in its store: the first time it returns what is open already, if something is."""

    def __init__(self, open_inner: Callable[[str], Blob], opened: Blob | None) -> None:
        self._open_inner = open_inner
        self._opened = opened

    def __call__(self, key: str) -> Blob:
        """Return a blob for the caller to close."""
        opened, self._opened = self._opened, None
        return opened if opened is not None else self._open_inner(key)
