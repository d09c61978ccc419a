"""The driver for those who have Hadoop: pyarrow's HadoopFileSystem, which loads libhdfs and a JVM.

A JVM does not survive a fork, and a process has one at most: in a forked child of a process that has used this driver
every call is refused with an error that says so. Kerberos, proxies and what else Hadoop's own client knows work here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import errors, process
from .driver import Driver, Info, Output, Reader, calls, within

_jvm_of: int | None = None  # the generation of the process that has started the JVM


class Arrow:
    """A pyarrow filesystem as a driver."""

    def __init__(self, filesystem: Any, timeout: float) -> None:
        self._fs = filesystem
        self.timeout = timeout

    def stat(self, path: str) -> Info:
        """As `Driver.stat`."""
        found = self._call("stat", self._fs.get_file_info, path)
        if _kind(found) == "NotFound":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _info(found)

    def list(self, path: str) -> Iterator[Info]:
        """As `Driver.list`."""
        from pyarrow.fs import FileSelector

        found = self._call("list", self._fs.get_file_info, FileSelector(path, recursive=False))
        return iter(sorted(map(_info, found), key=lambda info: info.name))

    def open(self, path: str) -> Reader:
        """As `Driver.open`."""
        if self.stat(path).directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return ArrowReader(self._call("open", self._fs.open_input_file, path))

    def read(self, path: str) -> bytes:
        """As `Driver.read`."""
        with _translated(), self._fs.open_input_file(path) as raw:
            data: bytes = raw.read()
            return data

    def create(self, path: str) -> Output:
        """As `Driver.create`."""
        if not self.stat(os.path.dirname(path) or "/").directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if _kind(self._call("stat", self._fs.get_file_info, path)) != "NotFound":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return ArrowOutput(self._call("create", self._fs.open_output_stream, path))

    def append(self, path: str) -> Output:
        """As `Driver.append`."""
        return ArrowOutput(self._call("append", self._fs.open_append_stream, path))

    def mkdir(self, path: str, mode: int) -> None:
        """As `Driver.mkdir`; the mode is Hadoop's default."""
        self._call("mkdir", lambda: self._fs.create_dir(path, recursive=False))

    def rename(self, src: str, dst: str) -> None:
        """As `Driver.rename`."""
        if _kind(self._call("stat", self._fs.get_file_info, dst)) != "NotFound":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._call("rename", self._fs.move, src, dst)

    def replace(self, src: str, dst: str) -> None:
        """As `Driver.replace`; libhdfs has no replacing rename, so that for a moment there is no file."""
        self.delete(dst)
        self._call("rename", self._fs.move, src, dst)

    def delete(self, path: str) -> None:
        """As `Driver.delete`."""
        kind = _kind(self._call("stat", self._fs.get_file_info, path))
        if kind == "Directory":
            self._call("delete", self._fs.delete_dir, path)
        elif kind != "NotFound":
            self._call("delete", self._fs.delete_file, path)

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        with _translated():
            return within(self.timeout, what, function, *arguments)


class ArrowReader:
    """As `driver.Reader`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.size: int = raw.size()

    def read_range(self, offset: int, size: int) -> bytes:
        """As `Reader.read_range`."""
        with _translated(), calls:
            data: bytes = self._raw.read_at(size, offset)
            return data


class ArrowOutput:
    """As `driver.Output`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def write(self, data: bytes) -> None:
        """As `Output.write`."""
        with _translated(), calls:
            self._raw.write(data)

    def close(self) -> None:
        """As `Output.close`."""
        with _translated(), calls:
            self._raw.close()


def open_libhdfs(url: str | None, timeout: float, replication: int | None, block_size: int | None) -> Driver:
    """A connection of this process by libhdfs; an `OSError` that says what is missing where there is no Hadoop."""
    global _jvm_of
    if _jvm_of is not None and _jvm_of != process.generation():
        raise OSError(
            errno.EOPNOTSUPP,
            "driver='libhdfs' has a JVM, which does not survive a fork: use driver='native', or the start method spawn",
        )
    try:
        from pyarrow.fs import HadoopFileSystem
    except ImportError as exc:
        raise errors.MissingDependencyError("driver='libhdfs' needs pyarrow with HDFS: pip install pyarrow") from exc

    host, port = _host_and_port(url)
    more = {"replication": replication} if replication is not None else {}
    more |= {"default_block_size": block_size} if block_size is not None else {}
    user = os.environ.get("HADOOP_USER_NAME")
    with _translated():
        filesystem = within(timeout, "connect", lambda: HadoopFileSystem(host, port, user=user, **more))
    _jvm_of = process.generation()
    return Arrow(filesystem, timeout)


def _host_and_port(url: str | None) -> tuple[str, int]:
    if url is None:
        return "default", 0
    authority = url.removeprefix("hdfs://").rstrip("/")
    host, colon, port = authority.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and port.isdigit() else (f"hdfs://{authority}", 0)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn Arrow's errors into Python's own."""
    try:
        yield
    except OSError as exc:
        if type(exc).__module__ == "builtins" and exc.errno is not None:
            raise
        text = str(exc)
        if "Permission denied" in text or "AccessControl" in text:
            raise PermissionError(errno.EACCES, text) from exc
        code = errno.ENOENT if isinstance(exc, FileNotFoundError) else errno.EIO
        raise OSError(code, text) from exc
    except (ValueError, NotImplementedError) as exc:  # ArrowInvalid and ArrowNotImplementedError are of these
        raise OSError(errno.EINVAL, str(exc)) from exc


def _kind(info: Any) -> str:
    return str(info.type.name)


def _info(found: Any) -> Info:
    directory = _kind(found) == "Directory"
    modified = (found.mtime_ns or 0) // 1_000_000
    return Info(found.base_name, 0 if directory else found.size, directory, modified, 0o755 if directory else 0o644)
