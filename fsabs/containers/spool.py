"""Members of a container on their way in: kept aside, in memory and then in a temporary file, until they are complete.

A format that is one stream takes one member at a time, and can't take one back. So each member that is being written is
spooled on its own, and handed over as a whole at its commit; several may be open at once, and what is aborted leaves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, cast

from ..core.writing import Writer
from ..disk.temporary import Spool

MAX_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of one member that are kept in memory; a larger one moves to a temporary file without a name."""


class SpooledWriter(Writer):
    """Keeps what is written, and at `commit()` calls `on_commit(file, size)` with a file of it, positioned at 0.

    The file is closed after the call. `on_abort()`, if given, is called when the member is thrown away, also when
    `on_commit` raised; it is called once, and never after an `on_commit` that returned.
    """

    takes_views = True

    def __init__(
        self,
        on_commit: Callable[[IO[bytes], int], None],
        on_abort: Callable[[], None] | None = None,
        max_in_memory: int = MAX_IN_MEMORY,
    ) -> None:
        self._on_commit = on_commit
        self._on_abort = on_abort
        self._file: Spool | None = Spool(max_in_memory)
        self._size = 0

    def write(self, data: bytes) -> None:
        """Keep all of `data`."""
        self._spool().write(data)
        self._size += len(data)

    def commit(self) -> None:
        """Hand the member over."""
        file = self._spool()
        file.seek(0)
        self._on_commit(cast(IO[bytes], file), self._size)
        self._file = None
        file.close()

    def abort(self) -> None:
        """Forget the member; after a commit there is nothing to forget."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        if self._on_abort is not None:
            self._on_abort()

    def _spool(self) -> Spool:
        if self._file is None:
            raise ValueError("the member is committed or aborted already")
        return self._file
