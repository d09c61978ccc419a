"""BinaryFile, the base of the package's binary files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from . import errors

if TYPE_CHECKING:

    class _Base(io.BufferedIOBase, BinaryIO):
        """The base class of binary files for type checkers, as for the files of `io`."""
else:
    _Base = io.BufferedIOBase


class BinaryFile(_Base):
    """A binary file whose unsupported operations raise an error with errno, URL and operation."""

    name: str

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def _refuse(self, operation: str) -> NoReturn:
        self._check_open()
        raise errors.unsupported(operation, self.name, f"a file of mode {self.mode!r} can't {operation}")

    @property
    def mode(self) -> str:
        """As of `builtins.open`."""
        raise NotImplementedError

    def truncate(self, size: int | None = None, /) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("truncate")

    def detach(self) -> NoReturn:
        """`UnsupportedOperation`."""
        self._refuse("detach")
