"""Files that are written: a store's `Writer` below the standard library's file objects, whole or not at all.

`WriterFile` is the raw file, an `io.RawIOBase`; `WriteFile` is the `io.BufferedWriter` above it, and `TextWriter` the
`io.TextIOWrapper` above that. A file becomes visible by a `close()` that nothing went wrong before: not by one after a
write that failed, not by an exception in its `with` block, not when it is dropped, and not in a forked child.
"""

from __future__ import annotations

import _thread
import abc
import contextlib
import functools
import io
import os
import re
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from . import errors, process

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from .stats import FileStat

T = TypeVar("T")

WRITE_BUFFER_SIZE = 256 * 1024
APPEND_BUFFER_SIZE = io.DEFAULT_BUFFER_SIZE
PARTIAL_SUFFIX = ".fsabs-partial"
"""What the name of a half-written file ends in; it starts with a dot, and no listing shows it."""
_WRITER = re.compile(rf"\.([0-9a-f]*)-(\d+)\.[0-9a-f]{{16}}{re.escape(PARTIAL_SUFFIX)}$")
_RETRY_PAUSE = 0.2  # seconds between two writers of one content


def partial_name(name: str) -> str:
    """Return a hidden name beside `name`, within the 255 bytes that most filesystems have for one.

    No other process can foresee it. It says which process of which machine writes the file.
    """
    short = name if len(name) <= 48 else name.encode("utf-8", "surrogateescape")[:190].decode("utf-8", "ignore")
    return f".{short}.{_machine()}-{os.getpid()}.{os.urandom(8).hex()}{PARTIAL_SUFFIX}"


def writer_is_dead(name: str) -> bool:
    """Return whether a half-written file is one of a process of this machine that has ended.

    Of another machine's, or one of before this machine was started, nothing is known. A process that has got the number
    of one that has ended is taken for it.
    """
    found = _WRITER.search(name)
    if found is None or not found[1] or found[1] != _machine():
        return False
    try:
        os.kill(int(found[2]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        pass
    return False


@functools.cache
def _machine() -> str:
    """Return what tells the processes of this machine, since its start, from others; empty where it isn't known.

    Containers on one machine number their processes by themselves.
    """
    import hashlib

    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read()
        return hashlib.sha256(boot + os.fsencode(os.readlink("/proc/self/ns/pid"))).hexdigest()[:12]
    except OSError:
        return ""


def is_partial(name: str) -> bool:
    """Return whether `name` is that of a half-written file."""
    return name.endswith(PARTIAL_SUFFIX) and name.startswith(".")


class Writer(abc.ABC):
    """One file being written: nothing is visible before `commit()`, nothing is left after `abort()`.

    `write` may be called from one thread at a time. `abort` must not raise, and may follow anything.
    """

    takes_views: bool = False
    """`write` may be given a memoryview, of memory that the caller uses again; else it is given `bytes`."""
    keeps_bytes: bool = False
    """A large `bytes` object is kept, and not copied: it is given as it is, where it can be."""

    @property
    def retry_seconds(self) -> float:
        """Seconds after its failure in which another writer may succeed with the same content; 0 if none would."""
        return 0.0

    def expect(self, size: int) -> None:  # noqa: B027 - most stores need no plan
        """Plan for `size` bytes, of which all will be written; called before the first."""

    def keep(self, stat: FileStat, *, moved: bool = False) -> None:  # noqa: B027 - most stores keep neither
        """Have the file get the time of `stat` and, if it is new or `moved`, its permissions, where these are kept.

        A `mode` of 0 has none: the file gets those of any new one.
        """

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Take all of `data`."""

    def write_zeros(self, size: int) -> None:
        """Take `size` zeros, which were a hole in what is copied: they need take no room, where that can be."""
        self.write(bytes(size))

    def compare_by(self, compare: Callable[[Iterator[bytes]], None]) -> bool:
        """Have `commit` call `compare` with what is read again of what was written, and return True if it does.

        It is called before the file is visible, or after it was written in place; what it raises, `commit` raises.
        """
        return False

    def make_durable(self) -> None:  # noqa: B027 - what most stores have taken survives
        """Have what `commit` makes visible survive a crash of the machine, where the store can do that."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Make the file visible, complete, in place of what the key held."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget everything written; what the key held stays."""

    def drop(self) -> None:
        """Abort the writing of a file that was never closed."""
        self.abort()

    def updated_file(self) -> io.BufferedIOBase:
        """Return the file that is read and written in place, of an `UpdateWriter`."""
        raise io.UnsupportedOperation("the file can't be updated")


class UpdateWriter(Writer):
    """What a store returns for a file that is read and written in place: the file, which its user closes.

    Args:
        file: it; what is written to it stays.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file

    def updated_file(self) -> io.BufferedIOBase:
        """Return the file."""
        return self._file

    def write(self, data: bytes) -> None:
        """Write at the position of the file."""
        self._file.write(data)

    def commit(self) -> None:
        """Close the file."""
        self._file.close()

    abort = commit


class LayerWriter(Writer):
    """A writer around a writer; a layer overrides what it changes."""

    def __init__(self, inner: Writer) -> None:
        self.inner: Writer = inner
        """The writer that this one is around."""
        self.takes_views = inner.takes_views
        self.keeps_bytes = inner.keeps_bytes

    @property
    def retry_seconds(self) -> float:
        """Those of the inner writer."""
        return self.inner.retry_seconds

    def expect(self, size: int) -> None:
        """Have the inner writer plan for `size` bytes."""
        self.inner.expect(size)

    def keep(self, stat: FileStat, *, moved: bool = False) -> None:
        """Have the inner writer keep what it can of `stat`."""
        self.inner.keep(stat, moved=moved)

    def write(self, data: bytes) -> None:
        """Write `data` to the inner writer."""
        self.inner.write(data)

    def make_durable(self) -> None:
        """Have the inner writer make what it commits durable."""
        self.inner.make_durable()

    def commit(self) -> None:
        """Commit the inner writer."""
        self.inner.commit()

    def abort(self) -> None:
        """Abort the inner writer."""
        self.inner.abort()

    def drop(self) -> None:
        """Abort the inner writer of a file that was never closed."""
        self.inner.drop()

    def updated_file(self) -> io.BufferedIOBase:
        """Return that of the inner writer."""
        return self.inner.updated_file()


@contextlib.contextmanager
def committing(writer: Writer) -> Iterator[Writer]:
    """Commit `writer` at the end of the block, or abort it if the block raises; a child forked in it abandons it."""
    made_in = process.generation()
    process.register(writer, writer)
    try:
        yield writer
        if not process.inherited(made_in):
            writer.commit()
    except BaseException:
        if not process.inherited(made_in):
            writer.abort()
        raise
    finally:
        process.release(writer)


def write_again(create: Callable[[], Writer], write: Callable[[Writer], None]) -> None:
    """Write a file by `write(writer)`, which commits it, and begin again with another writer while a fault may pass.

    `Writer.retry_seconds` says how long after the first failure that is.
    """
    failed_at: float | None = None
    while True:
        writer = create()
        try:
            write(writer)
            return
        except OSError:
            now = time.monotonic()
            failed_at = now if failed_at is None else failed_at
            if now + _RETRY_PAUSE >= failed_at + writer.retry_seconds:
                raise
        time.sleep(_RETRY_PAUSE)


class _Abortable(Protocol):
    def close(self) -> None: ...

    def abort(self) -> None: ...


class ClosesOnExit(abc.ABC):
    """An object that the end of a `with` block closes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AbortsOnError:
    """For a file that is whole or not at all: a `with` block that ends well closes it, one that fails aborts it."""

    def __exit__(
        self: _Abortable, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.abort()


def keep_if_dropped(file: T) -> T:
    """Have a file committed where it is dropped unclosed; return it. One that is read is left as it is."""
    raw = getattr(getattr(file, "buffer", file), "raw", file)
    if isinstance(raw, WriterFile):
        raw.keeps_dropped = True
    return file


def durable(file: T) -> T:
    """Have a file that is written survive a crash of the machine once it is closed; return it."""
    raw = getattr(getattr(file, "buffer", file), "raw", file)
    if isinstance(raw, WriterFile):
        raw.make_durable()
    return file


def discard_if_failing(file: T) -> T:
    """Have a file discarded, with a warning, where it is closed because of an exception; return it.

    It is for files that a `with` block of another library closes, however that block ends. The exception is one that is
    being handled when the file is closed, and was not when this was called.
    """
    raw = getattr(getattr(file, "buffer", file), "raw", file)
    if isinstance(raw, WriterFile):
        raw.discards_unless = id(sys.exception())
    return file


class WriterFile(AbortsOnError, io.RawIOBase):
    """A raw file on a `Writer`, which `close()` commits unless a write has failed.

    Args:
        writer: what is written to.
        url: the full URL of the file.
        mode: `"wb"`, `"xb"` or `"ab"`.
        position: the size of a file that is appended to.
    """

    closed: bool = False
    """True after `close()` or `abort()`. (An attribute: the buffer above looks at it in each call.)"""
    keeps_dropped: bool = False
    """A file that is dropped unclosed is committed, as the libraries do that a program was written for."""
    discards_unless: int | None = None
    """The identity of the only exception that may be handled while the file is closed; see `discard_if_failing`."""

    def __init__(self, writer: Writer, url: str, mode: str = "wb", position: int = 0) -> None:
        self._generation = process.generation()
        self._writer: Writer | None = writer
        self.name: str = url
        self.mode: str = mode
        self._position = position
        self._failure: BaseException | None = None
        self.seeks_for_a_moment = False
        self.whole: dict[int, bytes] = {}
        """The object that a thread is writing, by the thread's identifier, where a view of it is going to be given."""
        process.register(self, writer)  # so that a child neither flushes nor frees what the writer holds
        _track(self)

    @property
    def inherited(self) -> bool:
        """True in a forked child for its parent's half-written file, which the child must not finish."""
        return process.inherited(self._generation)

    def make_durable(self) -> None:
        """Have the file survive a crash of the machine once it is closed."""
        if self._writer is not None:
            self._writer.make_durable()

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; return the number of its bytes."""
        self._check_open()
        if self._generation != process.generation():
            raise errors.unsupported("write", self.name, "the file was opened for writing in another process")
        if self._failure is not None:
            raise self._failure
        writer = self._writer
        assert writer is not None
        view: Any = data
        if not isinstance(data, bytes):
            view = memoryview(data)
            view = view.cast("B") if view.nbytes else b""  # an empty array may have a shape that can't be cast
        if self.whole and (whole := self.whole.get(_thread.get_ident())) is not None and len(whole) == len(view):
            view = whole
        try:
            writer.write(view if writer.takes_views else bytes(view))
        except BaseException as exc:
            if isinstance(exc, OSError):
                errors.named(exc, "write", self.name)
            self._failure = exc
            raise
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the size of the file so far: of what has been written, and of what was appended to."""
        self._check_open()
        return self._position

    def writable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return False: the bytes are stored in the order in which they are written."""
        self._check_open()
        return self.seeks_for_a_moment

    def read(self, size: Any = -1, /) -> NoReturn:
        """Raise `UnsupportedOperation`."""
        self.readinto(b"")

    def readinto(self, buffer: Buffer, /) -> NoReturn:
        """Raise `UnsupportedOperation`."""
        raise errors.unsupported("read", self.name, f"a file of mode {self.mode!r} can't be read")

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> NoReturn:
        """Raise `UnsupportedOperation`, which says what to use in its place."""
        reason = (
            f"a file of mode {self.mode!r} is written from start to end and can't seek; write to an io.BytesIO or a "
            "temporary file and store its content, or open an existing file with 'r+' where the FS has `update`"
        )
        raise errors.unsupported("seek", self.name, reason)

    def truncate(self, size: int | None = None, /) -> NoReturn:
        """Raise `UnsupportedOperation`."""
        raise errors.unsupported("truncate", self.name, f"a file of mode {self.mode!r} can't be cut")

    def fileno(self) -> NoReturn:
        """Raise `UnsupportedOperation`."""
        raise errors.unsupported("fileno", self.name, "a file that is written has no descriptor")

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were."""
        writer = self._writer
        if self.closed or writer is None or self.inherited:
            self._end()
            return
        try:
            if self._failure is not None:
                raise self._failure
            cause = sys.exception()
            if cause is None or self.discards_unless in (None, id(cause)):
                writer.commit()
            else:
                writer.abort()
                reason = f"closed because of {type(cause).__name__}, so not written: {self.name}"
                warnings.warn(reason, RuntimeWarning, stacklevel=3)
        except BaseException as exc:
            writer.abort()
            if isinstance(exc, OSError):
                errors.named(exc, "close", self.name)
            raise
        finally:
            self._end()

    def abort(self) -> None:
        """Close without making anything visible."""
        writer = self._writer
        try:
            if not (self.closed or writer is None or self.inherited):
                writer.abort()
        finally:
            self._end()

    def drop(self) -> None:
        """End a file that was never closed: what is written at the end of a file stays, any other is thrown away."""
        writer = self._writer
        if self.closed or writer is None or self.inherited:
            return
        if self.mode[0] == "a" or self.keeps_dropped:
            self.close()
            return
        try:
            writer.drop()
        finally:
            self._end()
            if sys.stderr is not None:
                sys.stderr.write(f"fsabs: never closed, so not written: {self.name}\n")

    def _end(self) -> None:
        self.closed = True
        self._writer = None
        process.release(self)
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on closed file: {self.name}")

    def _leave_to_parent(self) -> None:
        """Have nothing to do with the file, in a forked child."""
        self._writer = None

    def __del__(self) -> None:
        if not self.closed and getattr(self, "_writer", None) is not None:
            self.drop()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"a file opened for writing can't be pickled: {self.name}")

    def __repr__(self) -> str:
        return f"<WriterFile {self.name!r}{' closed' if self.closed else ''}>"


class WriteFile(AbortsOnError, io.BufferedWriter):
    """A binary file being written: visible, complete, once `close()` has returned; else never."""

    raw: WriterFile

    def __init__(self, raw: WriterFile, buffer_size: int = WRITE_BUFFER_SIZE) -> None:
        super().__init__(raw, buffer_size)
        self._buffer_size = buffer_size
        _track(self)

    @property
    def inherited(self) -> bool:
        """True in a forked child for its parent's half-written file, which the child must not finish."""
        return self.raw.inherited

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> NoReturn:
        """Raise `UnsupportedOperation`, which says what to use in its place."""
        self.raw.seek(offset, whence)

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were."""
        if self.raw.closed:
            return
        try:
            self.flush()
        except BaseException:
            self.raw.abort()
            raise
        self.raw.close()

    def abort(self) -> None:
        """Close without making anything visible."""
        self.raw.abort()

    def drop(self) -> None:
        """End a file that was never closed, as `WriterFile.drop`."""
        raw = self.raw
        if raw.closed or raw.inherited:
            return
        if raw.mode[0] == "a" or raw.keeps_dropped:
            self.close()
        else:
            raw.drop()

    def _leave_to_parent(self) -> None:
        """Have no part in what the parent has buffered, nor in its lock, in a forked child."""
        if not self.raw.closed:
            io.BufferedWriter.__init__(self, self.raw, self._buffer_size)

    def __del__(self) -> None:
        try:  # not contextlib's: when the interpreter ends, only what is built in is there
            self.drop()
        except (AttributeError, ValueError):  # never made, or detached: there is nothing to drop
            pass

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.raw.__reduce_ex__(protocol)


class KeptWriteFile(WriteFile):
    """A `WriteFile` that gives its writer large `bytes` objects as they are."""

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; return the number of its bytes."""
        if type(data) is not bytes or len(data) <= self._buffer_size:
            return super().write(data)
        # The base class gives the raw file a view of all of `data`, and before that of what is in the buffer, which is
        # shorter; its lock is held meanwhile.
        whole, thread = self.raw.whole, _thread.get_ident()
        whole[thread] = data
        try:
            return super().write(data)
        finally:
            whole.pop(thread, None)


class TextWriter(AbortsOnError, io.TextIOWrapper):
    """A text file over a `WriteFile`: whole or not at all."""

    buffer: WriteFile
    closed: bool = False  # an attribute, as of `WriterFile`

    def __init__(
        self,
        file: WriteFile,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool = False,
    ) -> None:
        self._how = (encoding, errors, newline, line_buffering)
        # Of a file that is seekable, `tell` says whether it is empty: a byte order mark is written only then.
        file.raw.seeks_for_a_moment = True
        try:
            super().__init__(file, encoding, errors, newline, line_buffering)
        finally:
            file.raw.seeks_for_a_moment = False
        _track(self)

    def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> NoReturn:
        """Raise `UnsupportedOperation`, which says what to use in its place."""
        self.buffer.seek(cookie)

    def __next__(self) -> NoReturn:  # the base class's takes tell() away before it finds out
        self.buffer.readline()
        raise AssertionError

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were."""
        if self.closed:
            return
        try:
            self.flush()
        except BaseException:
            self.buffer.abort()
            raise
        finally:
            self.closed = True
        self.buffer.close()

    def abort(self) -> None:
        """Close without making anything visible."""
        self.closed = True
        self.buffer.abort()

    def drop(self) -> None:
        """End a file that was never closed, as `WriterFile.drop`."""
        raw = self.buffer.raw
        if self.closed or raw.closed or raw.inherited:
            return
        if raw.mode[0] == "a" or raw.keeps_dropped:
            self.close()
        else:
            self.closed = True
            raw.drop()

    def _leave_to_parent(self) -> None:
        if not self.closed:
            mode = self.mode
            io.TextIOWrapper.__init__(self, self.buffer, *self._how)
            self.mode = mode  # type: ignore[misc]

    def __del__(self) -> None:
        try:  # not contextlib's: when the interpreter ends, only what is built in is there
            self.drop()
        except (AttributeError, ValueError):  # never made, or detached: there is nothing to drop
            pass

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.buffer.raw.__reduce_ex__(protocol)


class TextUpdate(io.TextIOWrapper):
    """A text file that is read and written in place: a forked child has no part in what its parent has written."""

    buffer: Any  # tells whether it is `inherited`

    def close(self) -> None:
        """Close the file, with all that was written; in a child, leave that to the parent."""
        process.finished(self)
        if self.buffer.inherited:
            self.buffer.close()
        else:
            super().close()

    def abort(self) -> None:
        """Close the file; what was written stays."""
        self.close()


# ---- what is open: at the interpreter's end it is dropped, and a forked child has no part in it

_open: set[weakref.ref[Any]] = set()


def _track(file: WriterFile | WriteFile | TextWriter) -> None:
    _open.add(weakref.ref(file, _open.discard))


def _tracked(*kinds: type) -> list[Any]:
    files = [file for reference in list(_open) if (file := reference()) is not None]
    return [file for kind in kinds for file in files if isinstance(file, kind)]


def _in_child() -> None:
    for file in _tracked(WriterFile, WriteFile, TextWriter):  # the lowest first
        with contextlib.suppress(AttributeError, ValueError):  # detached
            file._leave_to_parent()


def _drop_all() -> None:
    process.end_each(_tracked(TextWriter, WriteFile, WriterFile), lambda file: file.drop())  # the highest first


process.at_exit(_drop_all)
process.at_fork(in_child=_in_child)
