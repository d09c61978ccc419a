"""A nameservice of HDFS as a tree.

A blob's version is the time of writing and the size, which is all that HDFS gives.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ... import identity, keys, process
from ...blobs import Blob
from ...files import PARTIAL_SUFFIX as PARTIAL_SUFFIX
from ...files import Writer, is_partial
from ...fs import Capabilities, FileStat, Path
from .administration import Administration
from .calls import Pending, each_within, no_answer
from .configuration import HadoopConfiguration
from .driver import SMALL
from .native import HdfsOptions
from .reading import FIRST_SHARE, SMALL_FILE_BYTES, HdfsBlob, HdfsSmallBlob
from .writing import HdfsAppendWriter, HdfsWriter, delete_leftovers, sweep

_MAX_SWEPT = 10_000  # directories that are remembered as swept


class Hdfs(Administration):
    """HDFS below the directory `cwd`; a relative one, and none, start at `/user/<name>`.

    `nameservice` is a nameservice of the configuration in `$HADOOP_CONF_DIR`, whose default it is when empty, or the
    `host:port` of a NameNode (port 8020 if left out). The user is `$HADOOP_USER_NAME`, or that of the process;
    `$HADOOP_PROXY_USER` acts for another one.

    Options (by keyword):
        timeout: seconds that an operation may take, with its repetitions, before it raises `TimeoutError`.
        replication, block_size: of files that are written; Hadoop's configuration, else the cluster's, if None.
        configuration: settings of Hadoop by name, above those of the files.
        principal, keytab, ticket_cache: of Kerberos: a user, and the file with its key or tickets, if not the default.
    """

    scheme = "hdfs"
    default_concurrency = 8
    checks_writes = True  # each packet that is sent carries checksums, which the DataNodes verify
    capabilities: Capabilities = Capabilities(
        write=True,
        exclusive=True,
        replace=True,
        append=True,
        mkdir=True,
        rename=True,
        remove=True,
        last_modified=True,
        settable_times=True,
        versions=True,
    )

    def __init__(
        self,
        cwd: Path | None = None,
        nameservice: str = "",
        *,
        timeout: float = 60,
        replication: int | None = None,
        block_size: int | None = None,
        configuration: Mapping[str, str] | None = None,
        principal: str | None = None,
        keytab: str | None = None,
        ticket_cache: str | None = None,
    ) -> None:
        if (keytab or ticket_cache) and not principal:
            raise ValueError("keytab= and ticket_cache= need principal=, the user whose credentials they have")
        options = HdfsOptions(timeout, replication, block_size, configuration, principal, keytab, ticket_cache)
        super().__init__(nameservice, options)
        self._swept: process.PerProcess[set[str]] = process.PerProcess(set)
        self._cwd = keys.normalize(cwd or "", f"user/{_user()}")
        self._root = "" if cwd is None else self._cwd

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Hdfs:
        """`hdfs://host:port/path`, `hdfs://nameservice/path`, `hdfs:///path`; with no path, the user's directory."""
        return cls(path or None, authority, **options)

    def _url(self, key: str) -> str:
        return f"{self.scheme}://{self.nameservice}/{keys.to_url_path(key)}"

    def _resolved_store(self) -> str:
        conf = HadoopConfiguration.load(self._options.configuration)
        return conf.canonical_store(self.scheme, self.nameservice)

    def _principal(self) -> str:
        acting = os.environ.get("HADOOP_PROXY_USER")
        return acting or self._options.principal or _user()

    def _describe_store(self) -> dict[str, str]:
        conf = HadoopConfiguration.load(self._options.configuration)
        return {**conf.describe(self.scheme, self.nameservice), "user": _user(), "credentials": self._credentials(conf)}

    def _credentials(self, conf: HadoopConfiguration) -> str:
        """Return the source of the credentials."""
        if conf.get("hadoop.security.authentication", "simple") != "kerberos":
            return "none: simple authentication by the user's name"
        if self._options.keytab:
            return f"Kerberos, keytab {self._options.keytab} (option keytab)"
        return f"Kerberos, ticket cache {self._options.ticket_cache or os.environ.get('KRB5CCNAME') or 'of the system'}"

    def _is_settled(self, version: str) -> bool:
        return identity.is_older_than_a_tick(int(version.split("-")[-2], 16) / 1e3)

    def _stat(self, key: str) -> FileStat:
        """Return the stat of `key`; `NotADirectoryError` below a file."""
        try:
            return self.driver.stat("/" + key)
        except FileNotFoundError:
            for ancestor in reversed(keys.ancestors(key)):
                with contextlib.suppress(FileNotFoundError):
                    if self.driver.stat("/" + ancestor).directory:
                        break
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            raise

    def _list(self, key: str) -> Iterator[FileStat]:
        if not self._stat(key).directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        members = self.driver.list_directory("/" + key)
        found = [stat for stat in members if stat.filename[:1] != "." or not is_partial(stat.filename)]
        names = [stat.listed() if stat.directory else stat.filename for stat in found]
        if names != sorted(names):  # older NameNodes compare names by signed bytes
            found.sort(key=FileStat.listed)
        return iter(found)

    def _open_blob(self, key: str) -> HdfsBlob:
        return self._open_until(key, time.monotonic() + self.driver.timeout)

    def _open_until(self, key: str, until: float) -> HdfsBlob:
        try:
            reader, stat = self.driver.open("/" + key, max(0.001, until - time.monotonic()))
        except FileNotFoundError:
            self._stat(key)  # which knows whether the path leads through a file
            raise
        return HdfsBlob(self, key, reader, stat.version or "")

    def _open_to_read(self, key: str) -> Blob:
        until = time.monotonic() + self.driver.timeout
        data = self._read_small(key, SMALL_FILE_BYTES)
        return self._open_until(key, until) if data is None else HdfsSmallBlob(self, key, data)

    def _read_bytes(self, key: str) -> bytes:
        until = time.monotonic() + self.driver.timeout
        data = self._read_small(key, SMALL)
        return self._read_again(key, until) if data is None else data

    def _read_small(self, key: str, limit: int) -> bytes | None:
        """Read by two requests: what one open file reads is one version, and its version is not needed.

        Return None if that fails, or the file is larger: `_read_again` raises what is wrong, and repeats where that
        may help.
        """
        with contextlib.suppress(OSError):
            return self.driver.read_small("/" + key, FIRST_SHARE * self.driver.timeout, limit)
        return None

    def _read_again(self, key: str, until: float) -> bytes:
        """Read the content from a file opened anew: the second attempt of every read of a whole file."""
        with contextlib.closing(self._open_until(key, until)) as blob:
            return blob.read_until(until)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        """Read each file in one call of a thread; once one gets no answer, or fails, a second time."""
        driver, width = self.driver, concurrency or self.default_concurrency
        first, done = FIRST_SHARE * driver.timeout, 0
        while done < len(wanted):
            paths = ["/" + key for key in wanted[done:]]
            found = each_within(first, "read", driver.read_small_once, paths, width)
            with contextlib.closing(found):
                for content in found:
                    key = wanted[done]
                    if isinstance(content, BaseException) and not isinstance(content, OSError):
                        raise content
                    done += 1
                    late = isinstance(content, TimeoutError)
                    until = time.monotonic() + driver.timeout - (first if late else 0)
                    yield content if isinstance(content, bytes) else self._read_again(key, until)
                    if late:
                        break  # the threads wait for a node that is silent: go on with others

    def _create(self, key: str, exclusive: bool) -> Writer:
        self._tidy(keys.parent(key))
        check = Pending(self._check_target, "/" + key, exclusive)  # while the hidden file is created
        writer = HdfsWriter(self, key, exclusive)
        try:
            if not check.wait(self.driver.timeout):
                raise no_answer("stat", self.driver.timeout)
            check.result()
        except BaseException:
            check.abandon()
            writer.abort()
            raise
        return writer

    def _check_target(self, path: str, exclusive: bool) -> None:
        """Raise if there is something at `path` that a new file can't take the place of."""
        with contextlib.suppress(FileNotFoundError):
            if self.driver.stat(path).directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _tidy(self, folder: str) -> None:
        """Delete what earlier failures of this process have left, and once what dead writers have left in `folder`."""
        if self.leftovers:
            delete_leftovers(self.driver, self.leftovers)
        swept = self._swept.get()
        if folder not in swept:
            if len(swept) >= _MAX_SWEPT:
                swept.clear()
            swept.add(folder)
            sweep(self.driver, "/" + folder)

    def _append(self, key: str) -> Writer:
        driver = self.driver
        if not self._is(key, directory=None):
            driver.create("/" + key, driver.timeout).close(driver.timeout)
        return HdfsAppendWriter(driver.append("/" + key, driver.timeout), driver.timeout)

    def _mkdir(self, key: str, mode: int) -> None:
        if self._is(key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.driver.mkdir("/" + key, mode)

    def _rename(self, src: str, dst: str) -> None:
        overwrite = self._rename_target(dst, self._stat(src)) is not None
        self.driver.rename("/" + src, "/" + dst, overwrite=overwrite)

    def _set_modified(self, key: str, when: float) -> None:
        self.driver.set_modified("/" + key, when)

    def _remove(self, key: str) -> None:
        if self.driver.stat("/" + key).directory and next(self._list(key), None) is not None:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self.driver.delete("/" + key)

    def _remove_tree(self, key: str) -> None:
        self.driver.delete("/" + key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cwd!r}, {self.nameservice!r})"


class ViewFs(Hdfs):
    """The mount table `nameservice` of Hadoop's configuration: directories of several nameservices as one tree."""

    scheme = "viewfs"


def _user() -> str:
    """Return the name that HDFS knows this process by; a number where the system has no name for it."""
    if name := os.environ.get("HADOOP_PROXY_USER") or os.environ.get("HADOOP_USER_NAME"):
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getuid())
