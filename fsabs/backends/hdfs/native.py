"""The driver without a JVM: hdfs-native, a client of HDFS in Rust.

Two things about the library shape this module. A client inherited by a forked child hangs when it is used or freed
(and a child loads its own copy of the library, see `library.py`). And a writer that is freed completes its file: only
a file under a temporary name can be given up.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from ... import process
from .driver import Driver, Info, Output, Reader, calls, within
from .library import library

_BUFFER = 1024 * 1024  # to be sent to a DataNode at once


class Native:
    """A client of `url` (`hdfs://host:port`, `hdfs://nameservice`, or `hdfs:///` for the configured default)."""

    def __init__(self, url: str | None, timeout: float, replication: int | None, block_size: int | None) -> None:
        self.timeout = timeout
        self._library = library()
        self._options = (block_size, replication)
        settings = {
            "dfs.client.socket-timeout": str(int(timeout * 1000)),
            # The library's own defaults try a NameNode that refuses for three minutes.
            "dfs.client.failover.max.attempts": "3",
            "dfs.client.failover.sleep.base.millis": "100",
            "dfs.client.failover.sleep.max.millis": "1000",
        }
        with _translated(), calls:
            self._client = self._library.RawClient(url, settings, None)

    def stat(self, path: str) -> Info:
        """As `Driver.stat`."""
        return _info(self._call("stat", self._client.get_file_info, path))

    def list(self, path: str) -> Iterator[Info]:
        """As `Driver.list`; asks the NameNode for a batch at a time."""
        entries = self._call("list", self._client.list_status, path, False)
        while True:
            with _translated():
                entry = within(self.timeout, "list", next, entries, None)
            if entry is None:
                return
            yield _info(entry)

    def open(self, path: str) -> Reader:
        """As `Driver.open`."""
        return NativeReader(self._call("open", self._client.read, path))

    def read(self, path: str) -> bytes:
        """As `Driver.read`."""
        with _translated():
            raw = self._client.read(path)
            size = raw.file_length()
            return cast(bytes, raw.read_range(0, size)) if size else b""

    def create(self, path: str) -> Output:
        """As `Driver.create`."""
        block_size, replication = self._options
        how = self._library.WriteOptions(
            block_size=block_size, replication=replication, overwrite=False, create_parent=False
        )
        return NativeOutput(self._call("create", self._client.create, path, how))

    def append(self, path: str) -> Output:
        """As `Driver.append`."""
        return NativeOutput(self._call("append", self._client.append, path))

    def mkdir(self, path: str, mode: int) -> None:
        """As `Driver.mkdir`."""
        self._call("mkdir", self._client.mkdirs, path, mode, False)

    def rename(self, src: str, dst: str) -> None:
        """As `Driver.rename`."""
        self._call("rename", self._client.rename, src, dst, False)

    def replace(self, src: str, dst: str) -> None:
        """As `Driver.replace`; in one step of the NameNode."""
        self._call("rename", self._client.rename, src, dst, True)

    def delete(self, path: str) -> None:
        """As `Driver.delete`."""
        self._call("delete", self._client.delete, path, True)

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        with _translated():
            return within(self.timeout, what, function, *arguments)


class NativeReader:
    """As `driver.Reader`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.size: int = raw.file_length()

    def read_range(self, offset: int, size: int) -> bytes:
        """As `Reader.read_range`."""
        with _translated(), calls:
            return cast(bytes, self._raw.read_range(offset, size))


class NativeOutput:
    """As `driver.Output`. The raw writer is kept out of the garbage collector's hands in a forked child."""

    def __init__(self, raw: Any) -> None:
        self._raw = process.PerProcess(_forked_writer)
        self._raw.adopt(raw)

    def write(self, data: bytes) -> None:
        """As `Output.write`."""
        raw = self._raw.get()
        with _translated(), calls, memoryview(data) as view:
            for start in range(0, len(view), _BUFFER):
                raw.write(bytes(view[start : start + _BUFFER]))

    def close(self) -> None:
        """As `Output.close`."""
        with _translated(), calls:
            self._raw.get().close()


def _forked_writer() -> Any:
    raise OSError(errno.EBADF, "a file that is being written belongs to the process that opened it")


def open_native(url: str | None, timeout: float, replication: int | None, block_size: int | None) -> Driver:
    """A new client for this process."""
    return Native(url, timeout, replication, block_size)


# ---- errors


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what hdfs-native raises into Python's own errors."""
    try:
        yield
    except (OSError, RuntimeError, UnicodeError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise
        raise _error(exc) from exc
    except BaseException as exc:
        if type(exc).__name__ != "PanicException":  # Rust's panics are no Exception, and must not pass
            raise
        raise OSError(errno.EIO, f"hdfs-native failed: {exc}") from exc


_BY_MESSAGE: list[tuple[str, int]] = [
    (r"Path is not a file", errno.EISDIR),
    (r"File does not exist", errno.ENOENT),
    (r"already exists as a directory", errno.EISDIR),
    (r"AccessControlException|Permission denied", errno.EACCES),
    (r"PathIsNotEmptyDirectory|directory is not empty", errno.ENOTEMPTY),
    (r"ParentNotDirectory|is not a directory|must both be directories", errno.ENOTDIR),
    (r"TooLong", errno.ENAMETOOLONG),
    (r"InvalidPath|IllegalArgument|InvalidArgument|UrlParse|cannot be the root|under source", errno.EINVAL),
    (r"QuotaExceeded", errno.EDQUOT),
    (r"Connection refused", errno.ECONNREFUSED),
    (r"lookup address", errno.EHOSTUNREACH),
    (r"RPC listener disconnected|Connection reset|Broken pipe", errno.ECONNRESET),
    (r"No data received|timed out|deadline", errno.ETIMEDOUT),
    (r"lease", errno.EBUSY),
]


def _error(exc: BaseException) -> OSError:
    text = re.split(r"\\+n\\+tat |\n\tat ", str(exc))[0].strip()
    if java := re.match(r'RPCError\("[\w.]*\.([\w$]+)", "(.*)', text, re.DOTALL):
        text = f"{java[1]}: {java[2]}"
    for pattern, code in _BY_MESSAGE:
        if re.search(pattern, text):
            return OSError(code, text)
    for kind, code in ((FileNotFoundError, errno.ENOENT), (FileExistsError, errno.EEXIST)):
        if isinstance(exc, kind):
            return OSError(code, os.strerror(code))
    if isinstance(exc, UnicodeError | OverflowError):
        return OSError(errno.EINVAL, text)
    return OSError(errno.EIO, text)


def _info(status: Any) -> Info:
    name = status.path.rstrip("/").rpartition("/")[2]
    return Info(name, status.length, status.isdir, status.modification_time, status.permission)
