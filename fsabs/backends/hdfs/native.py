"""The driver for one nameservice: hdfs-native, a client of HDFS in Rust, with no JVM.

Two things about the library shape this module. A client inherited by a forked child hangs when it is used or freed
(and a child loads its own copy of the library, see `library.py`). And a writer that is freed completes its file: only
a file under a temporary name can be given up.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from stat import S_IFDIR, S_IFREG
from typing import Any, NamedTuple, cast

from ... import process
from ...stats import FileStat
from .calls import within
from .configuration import HadoopConfiguration, NameNodeAddress
from .driver import SMALL, DriverOutput, DriverReader
from .library import library
from .namenodes import HdfsRetryPolicy, NameNodes
from .rpc_errors import Verdict, translated, verdict
from .status import ContentSummary, HdfsStatus

_BUFFER = 1024 * 1024  # to be sent to a DataNode at once
_UNCHANGED = 2**64 - 1  # -1 as the library takes it: leave the time of access alone
_PAGE = 1000  # members of a directory that the NameNode sends at once


class HdfsOptions(NamedTuple):
    """The options of an `Hdfs`, which override Hadoop's configuration."""

    timeout: float = 60.0
    replication: int | None = None
    block_size: int | None = None
    configuration: Mapping[str, str] | None = None
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


class Native:
    """A connection of this process to the nameservice (or `host:port`) `authority`."""

    def __init__(self, authority: str, conf: HadoopConfiguration, options: HdfsOptions) -> None:
        self.timeout = options.timeout
        self._conf = conf
        self._library = library()
        addresses = conf.namenodes(authority)
        policy = HdfsRetryPolicy.of(options.timeout, conf, len(addresses))
        self._namenodes = NameNodes(addresses, policy, functools.partial(_connect, self._library, conf, options))
        self._write_options = {
            "block_size": options.block_size or conf.size("dfs.blocksize") or conf.size("dfs.block.size"),
            "replication": options.replication or conf.optional_number("dfs.replication"),
            "overwrite": False,
            "create_parent": False,
        }

    def stat(self, path: str, seconds: float | None = None) -> FileStat:
        """As `Driver.stat`."""
        return _file_stat(self._call("stat", lambda client: client.get_file_info(path), seconds=seconds))

    def list_directory(self, path: str) -> list[FileStat]:
        """As `Driver.list_directory`; a listing whose NameNode is lost in the middle begins again."""
        last_failure = 0.0
        while True:
            found, entries = self._call("list", lambda client: _first_page(client, path))
            page = found
            try:
                while len(page) >= _PAGE:
                    page = within(self.timeout, "list", _next_page, entries)
                    found += page
                return cast("list[FileStat]", found)
            except OSError as exc:
                now = time.monotonic()
                if verdict(exc) is Verdict.FINAL or (last_failure and now - last_failure < self.timeout / 4):
                    raise
                last_failure = now

    def list_first(self, path: str) -> list[FileStat]:
        """As `Driver.list_first`."""
        return cast("list[FileStat]", self._call("list", lambda client: _first_page(client, path))[0])

    def open(self, path: str, seconds: float) -> tuple[DriverReader, FileStat]:
        """As `Driver.open`."""
        raw, status = self._call("open", lambda client: _open_version(client, path), seconds=seconds)
        return NativeReader(raw), _file_stat(status)

    def read_small(self, path: str, seconds: float, limit: int = SMALL) -> bytes | None:
        """As `Driver.read_small`."""
        request = functools.partial(_read_small, path=path, limit=limit)
        return cast("bytes | None", self._call("read", request, seconds=seconds))

    def read_small_once(self, path: str) -> bytes | None:
        """As `Driver.read_small_once`."""
        return self._namenodes.ask_once(lambda client: _read_small(client, path, SMALL))

    def create(self, path: str, seconds: float) -> DriverOutput:
        """As `Driver.create`."""
        how = self._library.WriteOptions(**self._write_options, permission=0o666 & ~self._conf.umask())
        return NativeOutput(self._call("create", lambda client: client.create(path, how), False, seconds))

    def append(self, path: str, seconds: float) -> DriverOutput:
        """As `Driver.append`."""
        return NativeOutput(self._call("append", lambda client: client.append(path), False, seconds))

    def recover_lease(self, path: str) -> bool:
        """As `Driver.recover_lease`."""
        return bool(self._call("recover lease", lambda client: client.recover_lease(path)))

    def mkdir(self, path: str, mode: int) -> None:
        """As `Driver.mkdir`."""
        umask = self._conf.umask()
        self._call("mkdir", lambda client: client.mkdirs(path, mode & ~umask, False))

    def rename(self, src: str, dst: str, *, overwrite: bool, seconds: float | None = None) -> None:
        """As `Driver.rename`: executed once, even if the response to a request is lost."""
        until = time.monotonic() + (self.timeout if seconds is None else seconds)
        lost = False
        while True:
            left = max(0.001, until - time.monotonic())
            try:
                self._call("rename", lambda client: client.rename(src, dst, overwrite), False, left)
                return
            except OSError as exc:
                found = verdict(exc)
                lost = lost or found is Verdict.UNKNOWN
                if lost and found is not Verdict.NOT_EXECUTED and self._has_moved(src, dst, until):
                    return
                if found is not Verdict.UNKNOWN or time.monotonic() >= until:
                    raise

    def _has_moved(self, src: str, dst: str, until: float) -> bool:
        """Return whether nothing is at `src` any more, and something at `dst`."""
        try:
            self.stat(src, max(0.001, until - time.monotonic()))
        except FileNotFoundError:
            self.stat(dst, max(0.001, until - time.monotonic()))
            return True
        return False

    def delete(self, path: str, seconds: float | None = None) -> None:
        """As `Driver.delete`."""
        self._call("delete", lambda client: client.delete(path, True), seconds=seconds)

    def status(self, path: str) -> HdfsStatus:
        """As `Driver.status`."""
        found = self._call("stat", lambda client: client.get_file_info(path))
        accessed = found.access_time / 1000
        return HdfsStatus(
            found.owner, found.group, found.permission, found.replication or 0, found.blocksize or 0, accessed
        )

    def set_permission(self, path: str, mode: int) -> None:
        """As `Driver.set_permission`."""
        self._call("chmod", lambda client: client.set_permission(path, mode))

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """As `Driver.set_owner`."""
        self._call("chown", lambda client: client.set_owner(path, owner, group))

    def set_modified(self, path: str, when: float) -> None:
        """As `Driver.set_modified`."""
        self._call("set times", lambda client: client.set_times(path, int(when * 1000 + 0.5), _UNCHANGED))

    def set_replication(self, path: str, replication: int) -> None:
        """As `Driver.set_replication`."""
        if not self._call("set replication", lambda client: client.set_replication(path, replication)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def content_summary(self, path: str) -> ContentSummary:
        """As `Driver.content_summary`."""
        found = self._call("content summary", lambda client: client.get_content_summary(path))
        return ContentSummary(
            found.length,
            found.file_count,
            found.directory_count,
            found.space_consumed,
            _limit(found.quota),
            _limit(found.space_quota),
        )

    def trash(self, path: str) -> str | None:
        """As `Driver.trash`; not repeated after a lost response."""
        return cast("str | None", self._call("trash", lambda client: client.trash(path), False))

    def _call(self, what: str, request: Callable[[Any], Any], repeat: bool = True, seconds: float | None = None) -> Any:
        return self._namenodes.call(what, request, repeat=repeat, seconds=seconds)


class NativeReader:
    """As `driver.Reader`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.size: int = raw.file_length()

    def read_range(self, offset: int, size: int, seconds: float) -> bytes:
        """As `DriverReader.read_range`."""
        with translated:
            return cast(bytes, within(seconds, "read", self._raw.read_range, offset, size))


class NativeOutput:
    """As `driver.Output`. The raw writer is kept out of the garbage collector's hands in a forked child."""

    def __init__(self, raw: Any) -> None:
        self._raw = process.PerProcess(_forked_writer)
        self._raw.adopt(raw)

    def write(self, data: bytes, seconds: float) -> None:
        """As `DriverOutput.write`."""
        raw = self._raw.get()
        with translated:
            within(seconds, "write", _send, raw, data)

    def close(self, seconds: float) -> None:
        """As `DriverOutput.close`."""
        with translated:
            within(seconds, "close", self._raw.get().close)


def _send(raw: Any, data: bytes) -> None:
    with memoryview(data) as view:
        for start in range(0, len(view), _BUFFER):
            raw.write(bytes(view[start : start + _BUFFER]) if len(view) > _BUFFER else data)


def _connect(library: Any, conf: HadoopConfiguration, options: HdfsOptions, address: NameNodeAddress) -> Any:
    configured = conf.number("dfs.client.socket-timeout", 60_000)
    settings = {
        **conf.settings(),
        **dict(address.settings),
        # A frozen DataNode must leave time for the other replicas.
        "dfs.client.socket-timeout": str(max(100, min(configured, int(options.timeout * 1000 / 6)))),
    }
    if address.host:
        settings["dfs.client.failover.max.attempts"] = "0"  # `NameNodes` repeats
    return library.RawClient(address.url, settings, None, options.principal, options.keytab, options.ticket_cache)


def _limit(quota: int) -> int | None:
    """Return a quota; HDFS has -1, as an unsigned number, for none."""
    return quota if quota < 1 << 63 else None


def _forked_writer() -> Any:
    raise OSError(errno.EBADF, "a file that is being written belongs to the process that opened it")


def _open_version(client: Any, path: str) -> tuple[Any, Any]:
    """Return an open file, and its status: the same before and after, so that it is this version's."""
    before = client.get_file_info(path)
    while True:
        raw = client.read(path)
        after = client.get_file_info(path)
        if (before.modification_time, before.length) == (after.modification_time, after.length):
            return raw, after
        before = after  # replaced at this very moment


def _read_small(client: Any, path: str, limit: int) -> bytes | None:
    raw = client.read(path)
    size = raw.file_length()
    if size > limit:
        return None
    return cast(bytes, raw.read_range(0, size)) if size else b""


def _first_page(client: Any, path: str) -> tuple[list[FileStat], Iterator[Any]]:
    entries = client.list_status(path, False)
    return _next_page(entries), entries


def _next_page(entries: Iterator[Any]) -> list[FileStat]:
    with translated:
        return [_file_stat(status) for status in itertools.islice(entries, _PAGE)]


def _file_stat(status: Any, new: Callable[..., FileStat] = tuple.__new__) -> FileStat:
    """Return the stat, made without the arguments of `FileStat` by name: a listing has many."""
    name = status.path.rpartition("/")[2]
    modified = status.modification_time
    if status.isdir:
        return new(FileStat, (name, 0, True, modified / 1000, S_IFDIR | status.permission, None))
    size = status.length
    version = f"{modified:x}-{size:x}"
    return new(FileStat, (name, size, False, modified / 1000, S_IFREG | status.permission, version))
