"""A nameservice of HDFS as a tree.

A file is written under a hidden name that listings leave out, and renamed into its place once it is complete: HDFS
lists a file from the moment it is created, and completes what a killed client leaves. A blob's version is the time of
writing and the size, which is all that HDFS tells.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import getpass
import os
import random
import stat as stat_bits
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from ... import errors, identity, keys, process
from ... import ranges as ranges_of
from ...blobs import Blob
from ...files import PARTIAL_SUFFIX as PARTIAL_SUFFIX
from ...files import Writer, is_partial, partial_name
from ...fs import FS, Capabilities, FileStat, Path, in_threads
from .driver import Driver, Info, Output, Reader, each_within
from .libhdfs import open_libhdfs
from .native import open_native

PATIENCE = 10.0
"""Seconds, at most, that a read is tried again for: a DataNode that restarts is away for some."""
GAP = 256 * 1024
"""Bytes between two ranges that are read along: a request of its own takes about as long."""
MOST = 8 * 1024 * 1024
"""Bytes of one request for several ranges."""

_DRIVERS: dict[str, Callable[[str | None, float, int | None, int | None], Driver]] = {
    "native": open_native,
    "libhdfs": open_libhdfs,
}


class Hdfs(FS):
    """HDFS below the directory `cwd`; a relative one, and none, start at `/user/<name>`.

    `nameservice` is `host:port` of a NameNode or a nameservice of the configuration in `$HADOOP_CONF_DIR`, whose
    default it is when empty. The user is `$HADOOP_USER_NAME`, or that of the process.

    Options (by keyword):
        driver: `native` (hdfs-native, no JVM) or `libhdfs` (pyarrow and an installed Hadoop; not after a fork).
        timeout: seconds to wait for an answer of a NameNode or DataNode.
        replication, block_size: of files that are written; the cluster's defaults if None.
    """

    scheme = "hdfs"
    default_concurrency = 8
    capabilities = Capabilities(
        write=True,
        exclusive=True,
        replace=True,
        append=True,
        mkdir=True,
        rename=True,
        remove=True,
        last_modified=True,
        versions=True,
    )

    def __init__(
        self,
        cwd: Path | None = None,
        nameservice: str = "",
        *,
        driver: str = "native",
        timeout: float = 60,
        replication: int | None = None,
        block_size: int | None = None,
    ) -> None:
        if driver not in _DRIVERS:
            raise ValueError(f"driver is one of {', '.join(_DRIVERS)}, not {driver!r}")
        self.nameservice = nameservice
        url = f"hdfs://{nameservice}" if nameservice else None
        connect = functools.partial(_DRIVERS[driver], url, timeout, replication, block_size)
        self._driver: process.PerProcess[Driver] = process.PerProcess(connect)
        home = f"user/{_user()}"
        self._cwd = keys.normalize(cwd or "", home)
        self._root = "" if cwd is None else self._cwd

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Hdfs:
        """`hdfs://host:port/path`, `hdfs://nameservice/path`, `hdfs:///path`; with no path, the user's directory."""
        return cls(path or None, authority, **options)

    @property
    def driver(self) -> Driver:
        """This process's connection."""
        return self._driver.get()

    def _url(self, key: str) -> str:
        return f"hdfs://{self.nameservice}/{keys.to_url_path(key)}"

    def _resolved_store(self) -> str:
        return f"hdfs {self.nameservice or _default_nameservice()}"

    def _principal(self) -> str:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def _is_settled(self, version: str) -> bool:
        return identity.is_older_than_a_tick(int(version.split("-")[-2], 16) / 1e3)

    def _info(self, key: str) -> Info:
        """What the NameNode tells; `NotADirectoryError` below a file."""
        try:
            return self.driver.stat("/" + key)
        except FileNotFoundError:
            for ancestor in reversed(keys.ancestors(key)):
                with contextlib.suppress(FileNotFoundError):
                    if self.driver.stat("/" + ancestor).directory:
                        break
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            raise

    def _stat(self, key: str) -> FileStat:
        return _to_stat(keys.name(key), self._info(key))

    def _list(self, key: str) -> Iterator[FileStat]:
        if not self._info(key).directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = [_to_stat(info.name, info) for info in self.driver.list("/" + key) if not is_partial(info.name)]
        return iter(sorted(found, key=FileStat.listed))  # older NameNodes compare names by signed bytes

    def _open_blob(self, key: str) -> Blob:
        path = "/" + key
        before = self._info(key)
        while True:
            reader = self.driver.open(path)
            after = self.driver.stat(path)
            if after == before:
                return HdfsBlob(self, key, reader, _version(after))
            before = after  # replaced at this very moment

    def _read_bytes(self, key: str) -> bytes:
        """In two questions: what one open file reads is one version, and nobody asks later which."""
        try:
            reader = self.driver.open("/" + key)
            return reader.read_range(0, reader.size) if reader.size else b""
        except OSError:  # the long way knows what is wrong, and tries again where that may help
            return super()._read_bytes(key)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        driver, width = self.driver, concurrency or self.default_concurrency
        found = each_within(driver.timeout, "read", driver.read, ["/" + key for key in wanted], width)
        for key, content in zip(wanted, found, strict=True):
            if isinstance(content, OSError):
                content = super()._read_bytes(key)
            elif isinstance(content, BaseException):
                raise content
            yield content

    def _create(self, key: str, exclusive: bool) -> Writer:
        with contextlib.suppress(FileNotFoundError):
            if self.driver.stat("/" + key).directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return HdfsWriter(self, key, exclusive)

    def _append(self, key: str) -> Writer:
        if not self._is(key, directory=None):
            self.driver.create("/" + key).close()
        return AppendWriter(self.driver.append("/" + key))

    def _mkdir(self, key: str, mode: int) -> None:
        if self._is(key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        umask = os.umask(0)
        os.umask(umask)
        self.driver.mkdir("/" + key, mode & ~umask)

    def _rename(self, src: str, dst: str) -> None:
        if self._rename_target(dst, self._stat(src)) is None:
            self.driver.rename("/" + src, "/" + dst)
        else:
            self.driver.replace("/" + src, "/" + dst)

    def _remove(self, key: str) -> None:
        if self.driver.stat("/" + key).directory and next(self._list(key), None) is not None:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self.driver.delete("/" + key)

    def _remove_tree(self, key: str) -> None:
        self.driver.delete("/" + key)

    def __repr__(self) -> str:
        return f"Hdfs({self.cwd!r}, {self.nameservice!r})"


class HdfsBlob(Blob):
    """An open file: each process opens it for itself, and only if it is still the same version."""

    __slots__ = ("_reader",)
    _origin: Hdfs

    def __init__(self, origin: Hdfs, key: str, reader: Reader, version: str) -> None:
        super().__init__(origin, key, reader.size, version)
        self._reader: process.PerProcess[Reader] = process.PerProcess(self._open_again)
        self._reader.adopt(reader)

    def _pread(self, size: int, offset: int) -> bytes:
        delay, end = 0.1, 0.0
        while True:
            try:
                return self._reader.get().read_range(offset, size)
            except errors.StaleFileError:
                raise
            except OSError as exc:
                self._check_version(exc)
                end = end or time.monotonic() + min(self._origin.driver.timeout, PATIENCE)
                if time.monotonic() + delay > end or isinstance(exc, PermissionError):
                    raise
                # The drivers give a DataNode up for good at one connection that breaks; open the file anew.
                self._reader.close()
                time.sleep(delay * (0.5 + random.random() / 2))
                delay = min(2 * delay, 2.0)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Neighbours together, and several requests at once."""
        plan = ranges_of.plan(ranges, GAP, MOST)
        width = min(self._origin.default_concurrency, len(plan.requests))
        if width <= 1:
            return plan.assemble([self._read_request(request) for request in plan.requests])
        return plan.assemble(list(in_threads(self._read_request, plan.requests, width)))

    def _read_request(self, request: tuple[int, int]) -> bytes:
        data = self._pread(*request)
        if len(data) != request[0]:
            raise self._short(len(data), *request)
        return data

    def _open_again(self) -> Reader:
        driver = self._origin.driver
        try:
            reader = driver.open("/" + self._key)
        except FileNotFoundError as exc:
            raise errors.stale(self.url, "the file was removed while it was open") from exc
        self._check_version(None)
        return reader

    def _check_version(self, cause: OSError | None) -> None:
        """Raise `StaleFileError` if the path is another version by now."""
        try:
            now = _version(self._origin.driver.stat("/" + self._key))
        except FileNotFoundError:
            now = ""
        if now != self.version:
            raise errors.stale(self.url) from cause


class HdfsWriter(Writer):
    """Writes under a hidden name, and renames at `commit`."""

    def __init__(self, fs: Hdfs, key: str, exclusive: bool) -> None:
        self._fs = fs
        self._path = "/" + key
        self._exclusive = exclusive
        folder, name = os.path.split(self._path)
        self._partial = os.path.join(folder, partial_name(name))
        self._output: Output | None = fs.driver.create(self._partial)
        self._written = 0

    def write(self, data: bytes) -> None:
        """Send `data` on."""
        assert self._output is not None
        self._output.write(data)
        self._written += len(data)

    def commit(self) -> None:
        """Complete the file, check that all of it arrived, and move it to its name."""
        assert self._output is not None
        self._output.close()
        arrived = self._fs.driver.stat(self._partial).size
        if arrived != self._written:  # hdfs-native can report success over a file that no DataNode has
            raise OSError(errno.EIO, f"HDFS has {arrived} of {self._written} bytes")
        if self._exclusive:
            self._fs.driver.rename(self._partial, self._path)
        else:
            self._fs.driver.replace(self._partial, self._path)
        self._output = None

    def abort(self) -> None:
        """Delete the hidden file; its writer, when freed, finds nothing to complete."""
        output, self._output = self._output, None
        if output is not None:
            with contextlib.suppress(OSError):  # what went wrong before is what the user has to see
                self._fs.driver.delete(self._partial)


class AppendWriter(Writer):
    """Appends in place: what is written stays."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._output.write(data)

    def commit(self) -> None:
        """Complete the file."""
        self._output.close()

    def abort(self) -> None:
        """Complete the file as far as it was written: the lease must not stay."""
        with contextlib.suppress(OSError):  # what went wrong before is what the user has to see
            self._output.close()


def _user() -> str:
    """Return the name that HDFS knows this process by; a number where the system has no name for it."""
    if name := os.environ.get("HADOOP_USER_NAME"):
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getuid())


def _to_stat(name: str, info: Info) -> FileStat:
    written = info.modified / 1000
    if info.directory:
        return FileStat.of_directory(name, written, stat_bits.S_IFDIR | info.mode)
    return FileStat(name, info.size, False, written, stat_bits.S_IFREG | info.mode, _version(info))


def _default_nameservice() -> str:
    """Return the nameservice that `core-site.xml` names as the default; an empty string if it names none."""
    folder = os.environ.get("HADOOP_CONF_DIR") or os.path.join(os.environ.get("HADOOP_HOME", "/"), "etc/hadoop")
    try:
        properties = ElementTree.parse(os.path.join(folder, "core-site.xml")).getroot().iter("property")
    except (OSError, ElementTree.ParseError):
        return ""
    named = (one.findtext("value", "") for one in properties if one.findtext("name") == "fs.defaultFS")
    return next(named, "").strip().removeprefix("hdfs://").rstrip("/")


def _version(info: Info) -> str:
    return f"{info.modified:x}-{info.size:x}"
