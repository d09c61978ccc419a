"""What `CachedFS` has in each process, what it knows of a file that it opens, and how it hears of what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..blobs import Blob
from ..files import Writer
from ..fs import FS, FileStat
from . import identity
from .disk import Limits, open_disk
from .records import Records
from .tiers import Part, Tiers


class Found(NamedTuple):
    """A file that is opened: what is known of it, and where it is in the cache."""

    stat: FileStat
    part: Part | None
    """None for what is not cached."""
    keep: bool
    """Whether it may be put into the cache."""


class Here:
    """What one process has."""

    def __init__(self, inner: FS, folder: str | None, limits: Limits, memory_bytes: int, claim_timeout: float) -> None:
        disk = open_disk(folder, limits) if folder is not None else None
        self.store = inner._resolved_store()
        self.by_request = identity.is_asked_by_request(inner)
        self.tiers = Tiers(memory_bytes, disk, claim_timeout)
        self.records = Records(f"{self.store} {inner._principal()}", self.tiers)


class Opener:
    """Opens a file where it lies: the first time it gives what is open already, if something is."""

    def __init__(self, open_inner: Callable[[str], Blob], opened: Blob | None) -> None:
        self._open_inner = open_inner
        self._opened = opened

    def __call__(self, key: str) -> Blob:
        """A blob for the caller to close."""
        opened, self._opened = self._opened, None
        return opened if opened is not None else self._open_inner(key)


class ToldWriter(Writer):
    """A writer whose file is asked for anew once it is there."""

    def __init__(self, inner: Writer, forget: Callable[[], None]) -> None:
        self._inner = inner
        self._forget = forget

    def write(self, data: bytes) -> None:
        """Passes it on."""
        self._inner.write(data)

    def commit(self) -> None:
        """Makes it visible."""
        try:
            self._inner.commit()
        finally:  # of an error nobody knows what came of it
            self._forget()

    def abort(self) -> None:
        """Passes it on."""
        self._inner.abort()
