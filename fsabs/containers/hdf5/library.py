"""h5py held at arm's length: what its files are read from, its exceptions, and its end.

HDF5 reads through a Python object here, so that it works on any blob. h5py holds its one lock over a fork by itself
(its `os.register_at_fork` handlers), so that a child finds HDF5 at rest; a file that is open when the interpreter ends
has to be closed before HDF5's own handler would call into a Python that is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import errors, process
from ...core.blobs import Blob

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

_PAGE = 64 * 1024
_PAGES = 512
_ERRNO = re.compile(r"errno = (\d+)")  # the system's, in HDF5's messages
_HEAP = b"GCOL\1\0\0\0"  # HDF5 File Format Specification 3.0, III.E: the global heap, which holds strings of any length
_HEAP_HEAD = 16
_HEAP_OBJECT = struct.Struct("<H6xQ")
"""Of an object in it: index, size."""
_HEAP_STEP = 16 * 1024
_SIGNATURE = b"\x89HDF\r\n\x1a\n"  # the same, II.A: the superblock, which has flags from version 3 on
_IN_WRITING = 1
_MARK = "<fsabs HDF5 "  # what h5py knows our files by: the repr of the object that they are read from


class BlobFile:
    """A blob as h5py reads it. Small reads, HDF5's walks through its structures, come from pages that are kept."""

    def __init__(self, blob: Blob) -> None:
        self.size = blob.size
        self._blob = blob
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0

    def check_closed(self) -> None:
        """Raise `BlockingIOError` if another program writes the file, or has ended without closing it."""
        start = 0
        while start < self.size and self._paged(len(_SIGNATURE), start) != _SIGNATURE:
            start = max(512, 2 * start)  # behind a user block
        version, _, _, flags = self._paged(12, start)[8:].ljust(4, b"\0")
        if version >= 3 and flags & _IN_WRITING:
            reason = "another program is writing the file (SWMR), or didn't close it, which `h5clear -s` takes back"
            raise errors.error(errno.EAGAIN, "open_container", self._blob.url, reason)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, as h5py does before each read; its own lock keeps others away meanwhile."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def read(self, size: int) -> bytes:
        """`size` bytes from the position on. h5py knows a file by this method, and calls `readinto`."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` from the position on; returns the number of bytes."""
        view = memoryview(buffer).cast("B")
        size = min(len(view), max(0, self.size - self._position))
        data = self._blob.pread(size, self._position) if size >= _PAGE else self._paged(size, self._position)
        if data.startswith(_HEAP):
            self._check_heap(data, self._position)
        view[:size] = data
        return size

    def _paged(self, size: int, offset: int) -> bytes:
        first = offset // _PAGE
        last = (offset + max(size, 1) - 1) // _PAGE
        data = self._page(first) if first == last else self._page(first) + self._page(last)
        return data[offset - first * _PAGE :][:size]

    def _page(self, number: int) -> bytes:
        data = self._pages.get(number)
        if data is None:
            data = self._blob.pread(_PAGE, number * _PAGE)
            self._pages[number] = data
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(number)
        return data

    def _check_heap(self, data: bytes, offset: int) -> None:
        """Raise for a heap whose list of objects doesn't end: HDF5 (2.0 at least) would go round in it for ever.

        `data` is what was read of it from its start, at `offset`, on.
        """
        last = min(int.from_bytes(data[8:_HEAP_HEAD], "little"), self.size - offset) - _HEAP_OBJECT.size
        at, start = _HEAP_HEAD, 0  # in the heap: the object's place, and that of `data`
        while at <= last:
            if at - start > len(data) - _HEAP_OBJECT.size:
                data, start = self._paged(_HEAP_STEP, offset + at), at
            index, size = _HEAP_OBJECT.unpack_from(data, at - start)
            step = (size + 7 & ~7) + _HEAP_OBJECT.size if index else size  # what has no index is free space
            if step % 2**64 == 0:
                reason = f"HDF5: an object of no size in the global heap at offset {offset}"
                raise errors.corrupt(self._blob.url, reason)
            at += step

    def write(self, data: Buffer) -> int:
        """A file that is read has nothing to write."""
        raise errors.unsupported("write", self._blob.url, "the file is open for reading")

    def flush(self) -> None:
        """Nothing to do."""

    def __repr__(self) -> str:
        return f"{_MARK}{self._blob.url}>"


def check_installed() -> None:
    """Raise if h5py can't be imported."""
    try:
        import h5py  # noqa: F401
    except ImportError as exc:
        raise errors.missing("h5py", "", "an HDF5 file") from exc


def made(holder: process.PerProcess[T]) -> T:
    """This process's value of `holder`, whose making calls h5py.

    h5py's lock is taken before the holder's own, always in this order: a file in a dataset of another file is opened
    under h5py's lock, and may have to open that other one.
    """
    value = holder.peek()
    if value is not None:
        return value
    from h5py._objects import phil

    with phil:
        return holder.get()


@contextlib.contextmanager
def translated(url: str, operation: str) -> Iterator[None]:
    """Turn what h5py raises into errors of ours; what our own reads raised inside of it passes as it is.

    After one of our methods has raised, as by a signal handler, HDF5 still calls others: Python then
    makes a SystemError of each, with the first exception as the cause of the first of them.
    """
    try:
        yield
    except SystemError as exc:
        first: BaseException | None = exc
        while isinstance(first, SystemError):
            first = first.__cause__
        raise first or exc from None
    except (KeyError, OSError, RuntimeError, ValueError) as exc:
        number = _ERRNO.search(str(exc))
        if number is not None and (code := int(number[1])):
            raise OSError(code, os.strerror(code), url) from exc
        if isinstance(exc, OSError) and exc.errno is not None:  # ours
            exc.filename = exc.filename or url
            raise
        raise errors.corrupt(url, _reason(exc), operation) from exc  # a structure or a checksum is wrong


def _reason(exc: Exception) -> str:
    return f"HDF5: {exc.args[0] if exc.args else exc}"


@atexit.register
def _close_all() -> None:
    """Close our files that are still open, inherited ones as well: HDF5 would do it when Python is no more."""
    h5py: Any = sys.modules.get("h5py")
    if h5py is None:
        return
    for file in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        if h5py.h5f.get_name(file).startswith(_MARK.encode()):
            # What can't be written any more is lost, as every file is that was not closed.
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                h5py.File(file).close()
