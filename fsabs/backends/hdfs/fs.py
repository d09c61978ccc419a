"""The FS of an HDFS nameservice (`Hdfs`) or of a mount table (`ViewFs`). Keys are absolute paths without the `/` at
their beginning.

A blob's version is the time of writing and the size, which is all that HDFS gives.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import getpass
import os
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from ...core import identity, keys, process
from ...core.blobs import Blob, Hint
from ...core.fs import FS, Capabilities, FileStat, StoreNotes, StrPath
from ...core.threads import in_threads
from ...core.writing import Writer, is_partial
from .. import WRITABLE
from .client import Deadline, HdfsClient, HdfsOptions, HdfsPlace, file_stat
from .configuration import HadoopConfiguration
from .library import begin, each, no_answer
from .reading import CONCURRENCY, HdfsBlob, HdfsSmallBlob, open_file, small_file
from .writing import HdfsAppendWriter, HdfsOutput, HdfsWriter, sweep

SMALL_FILE_BYTES = 256 * 1024
"""The largest file, in bytes, that is read when it is opened: a request without content takes about as long."""
_ONE_READ = 16 * 1024 * 1024  # bytes of a file that is read in one call
_MAX_SWEPT = 10_000  # directories that are remembered as cleared of what dead writers left


class Hdfs(FS):
    """HDFS below the directory `cwd`: by default `/user/<name>`, below which a relative one is taken, too.

    `nameservice` is a nameservice of the configuration in `$HADOOP_CONF_DIR`, whose default it is when empty, or the
    `host:port` of a NameNode (port 8020 if left out). The user is `$HADOOP_USER_NAME`, or that of the process;
    `$HADOOP_PROXY_USER` acts for another one.

    By keyword:

    - `timeout`: seconds that an operation may take, with its repetitions, before it raises `TimeoutError`.
    - `replication`, `block_size`: of files that are written; if None, those of Hadoop's configuration, else the
      cluster's.
    - `configuration`: settings of Hadoop by name, above those of the files.
    - `principal`, `keytab`, `ticket_cache`: of Kerberos: a user, and the file with its key or tickets, if not the
      default.
    """

    scheme = "hdfs"
    _notes = StoreNotes(
        (
            "opening: no request",
            "listing: a request for each directory, and for every 1000 names in it",
            "an epoch: a request of the NameNode and one of a DataNode for each file",
        )
    )
    default_concurrency = CONCURRENCY
    checks_writes = True  # each packet that is sent carries checksums, which the DataNodes verify
    capabilities: Capabilities = WRITABLE._replace(append=True, settable_times=True, stat_is_request=True, modes=True)

    def __init__(
        self,
        cwd: StrPath | None = None,
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
        if block_size is not None and (block_size <= 0 or block_size % 512):
            raise ValueError(f"block_size= is a multiple of 512 bytes, and not {block_size}")
        if not 0 < timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout= is a finite number of seconds above 0, and not {timeout}")
        self.nameservice = nameservice
        self._options = HdfsOptions(timeout, replication, block_size, configuration, principal, keytab, ticket_cache)
        self._client: process.PerProcess[HdfsClient] = process.PerProcess(
            functools.partial(HdfsClient, self.scheme, nameservice, self._options)
        )
        self._cwd = keys.normalize(cwd or "", f"user/{_user()}")
        self._root = "" if cwd is None else self._cwd

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Hdfs:
        """`hdfs://host:port/path`, `hdfs://nameservice/path`, `hdfs:///path`; with no path, the user's directory."""
        return cls(path or None, authority, **options)

    # ---- what it is

    def _url(self, key: str) -> str:
        return f"{self.scheme}://{self.nameservice}/{keys.to_url_path(key)}"

    def _configuration(self) -> HadoopConfiguration:
        return HadoopConfiguration.load(self._options.configuration)

    def _resolved_store(self) -> str:
        return self._configuration().canonical_store(self.scheme, self.nameservice)

    def _place(self, key: str) -> identity.Place:
        return identity.Place("Hdfs", *self._configuration().resolve(self.scheme, self.nameservice, key))

    def _principal(self) -> str:
        return os.environ.get("HADOOP_PROXY_USER") or self._options.principal or _user()

    def _describe_store(self) -> dict[str, str]:
        conf, own = self._configuration(), self._options
        if not conf.kerberos:
            credentials = "none: simple authentication by the user's name"
        elif own.keytab:
            credentials = f"Kerberos, keytab {own.keytab} (option keytab)"
        else:
            credentials = (
                f"Kerberos, ticket cache {own.ticket_cache or os.environ.get('KRB5CCNAME') or 'of the system'}"
            )
        return {**conf.describe(self.scheme, self.nameservice), "user": _user(), "credentials": credentials}

    def _is_strong(self, version: str) -> bool:
        return identity.is_older_than_a_tick(int(version.split("-")[-2], 16) / 1e3)

    def _close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cwd!r}, {self.nameservice!r})"

    # ---- calls

    def _find(self, key: str) -> HdfsPlace:
        return self._client.get().place(key)

    def _deadline(self) -> Deadline:
        return Deadline(self._options.timeout)

    # ---- stats and listings

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        """Return the stat of `key`; `NotADirectoryError` below a file."""
        try:
            return self._stat_once(key)
        except FileNotFoundError:
            for ancestor in reversed(keys.ancestors(key)):
                with contextlib.suppress(FileNotFoundError):
                    if self._stat_once(ancestor).directory:
                        break
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            raise

    def _stat_once(self, key: str) -> FileStat:
        try:
            return file_stat(self._find(key).status(), keys.name(key))
        except FileNotFoundError:
            if self._client.get().mounts_below(key):
                return FileStat.of_directory(keys.name(key))
            raise

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        place, mounts = self._find(key), self._client.get().mounts_below(key)
        try:
            found = self._visible(place, place.nameservice.list_directory(place.path))
        except FileNotFoundError:
            if not mounts:
                self._stat(key)  # raises if the path leads through a file
                raise
            found = []
        if mounts:
            found = [stat for stat in found if stat.filename not in mounts] + [*map(FileStat.of_directory, mounts)]
        return iter(_in_order(found))

    def _visible(self, place: HdfsPlace, statuses: list[Any]) -> list[FileStat]:
        """Return the stats of a directory's members, without files that are being written."""
        # Of a file, HDFS lists the file itself.
        if len(statuses) == 1 and statuses[0].path == place.path and not statuses[0].isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = [file_stat(status, status.path.rpartition("/")[2]) for status in statuses]
        return [stat for stat in found if stat.filename[:1] != "." or not is_partial(stat.filename)]

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[FileStat]:
        """Yield the tree below `key`, depth first; the directories of a directory are listed ahead, by threads."""
        stack = [self._listed_ahead(key, "", self._list(key))]
        try:
            while stack:
                members, listings = stack[-1]
                if (member := next(members, None)) is None:
                    listings.close()
                    stack.pop()
                    continue
                yield member
                if member.directory:
                    stack.append(self._listed_ahead(key, member.filename + "/", next(listings)))
        finally:
            for _, listings in stack:
                listings.close()

    def _listed_ahead(
        self, key: str, base: str, members: Iterator[FileStat]
    ) -> tuple[Iterator[FileStat], Generator[Iterator[FileStat], None, None]]:
        """Return the members of a directory `base` of `key`, and the listings of those that are directories."""
        found = [member._replace(filename=base + member.filename) for member in members]
        folders = [keys.join(key, member.filename) for member in found if member.directory]
        return iter(found), in_threads(self._list, folders, min(len(folders), self.default_concurrency))

    # ---- reading

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        deadline = self._deadline()
        if hint is Hint.FILE:
            with contextlib.suppress(OSError):
                return HdfsSmallBlob(self, key, self._read_in_one_call(key, SMALL_FILE_BYTES, deadline))
        return self._open_by(key, deadline)

    def _open_by(self, key: str, deadline: Deadline) -> HdfsBlob:
        try:
            opened = open_file(self._find(key), deadline)
        except FileNotFoundError:
            self._stat(key)  # raises if the path leads through a file
            raise
        return HdfsBlob(self, key, self._client, opened)

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        if versions:
            return super()._read_many(wanted, concurrency, True)
        if len(wanted) == 1:
            return map(self._content, wanted)
        return self._contents_of_many(wanted, concurrency or self.default_concurrency)

    def _content(self, key: str) -> bytes:
        deadline = self._deadline()
        try:
            return self._read_in_one_call(key, _ONE_READ, deadline)
        except OSError:
            return self._read_again(key, deadline)

    def _read_in_one_call(self, key: str, limit: int, deadline: Deadline) -> bytes:
        """Return the content of a file of up to `limit` bytes in one call; `OSError` otherwise: the caller opens it."""
        place, share = self._find(key), Deadline(deadline.share(), attempts=1)
        return place.nameservice.call_on("read", small_file(place, limit), deadline=share)[1]

    def _read_once(self, key: str) -> bytes:
        """Return the content of a file, by one attempt without a time limit."""
        place = self._find(key)
        return place.nameservice.call_once(small_file(place, _ONE_READ))

    def _read_again(self, key: str, deadline: Deadline) -> bytes:
        """Read the content from a file opened anew: the second attempt of every read of a whole file."""
        with contextlib.closing(self._open_by(key, deadline)) as blob:
            return blob.read_within(deadline)

    def _contents_of_many(self, wanted: Sequence[str], width: int) -> Iterator[bytes]:
        done = 0
        while done < len(wanted):
            with contextlib.closing(each(self._read_once, wanted[done:], width)) as calls:
                for call in calls:
                    deadline = self._deadline()
                    late = not call.wait(deadline.share())
                    done += 1
                    try:
                        if late:
                            call.abandon()
                            raise no_answer("the first attempt", deadline.share())
                        found = call.result()
                    except OSError:
                        found = self._read_again(wanted[done - 1], deadline)
                    yield found
                    if late:
                        break  # the threads wait for a node that is silent: go on with others

    # ---- writing

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if append:
            return self._append(key)
        client, place, deadline = self._client.get(), self._find(key), self._deadline()
        if (folder := keys.parent(key)) not in client.swept:
            if len(client.swept) >= _MAX_SWEPT:
                client.swept.clear()
            client.swept.add(folder)
            sweep(place.beside(os.path.dirname(place.path)), deadline)
        check = begin(self._check_target, place, exclusive, deadline)  # while the file is created, under a hidden name
        writer = HdfsWriter(client, place, exclusive, deadline)
        try:
            if not check.wait(deadline.left()):
                raise no_answer("stat", self._options.timeout)
            check.result()
        except BaseException:
            check.abandon()
            writer.abort()
            raise
        return writer

    def _check_target(self, place: HdfsPlace, exclusive: bool, deadline: Deadline) -> None:
        """Raise if there is something at `place` that a new file can't take the place of."""
        with contextlib.suppress(FileNotFoundError):
            if place.status(deadline).isdir:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _append(self, key: str) -> Writer:
        client, place = self._client.get(), self._find(key)
        deadline = Deadline(self._options.timeout, attempts=1)
        if not self._is(key, directory=None):
            options = client.write_options(0o666 & ~client.umask)
            HdfsOutput(place, "create", deadline, options).close(deadline)
        return HdfsAppendWriter(place, HdfsOutput(place, "append", deadline))

    def _mkdir(self, key: str, mode: int) -> None:
        if self._is(key, directory=None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._find(key).call("mkdirs", mode & ~self._client.get().umask, False)

    def _rename(self, src: str, dst: str) -> None:
        overwrite = self._rename_target(dst, self._stat(src)) is not None
        self._check_no_mounts(src)
        self._find(src).rename(self._find(dst), overwrite, self._deadline())

    def _set(self, key: str, stat: FileStat, /) -> None:
        if stat.last_modified is not None:
            self._find(key).set_modified(stat.last_modified)
        if stat.mode:
            self._find(key).call("set_permission", stat.mode & 0o777)

    def _remove(self, key: str) -> None:
        self._check_no_mounts(key)
        place = self._find(key)
        place.status()  # `FileNotFoundError`
        try:
            place.delete(recursive=False)
        except OSError as exc:
            if exc.errno != errno.ENOTEMPTY:
                raise
            sweep(place, self._deadline())  # perhaps there is only what no listing shows
            place.delete(recursive=False)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        if keep:
            super()._remove_tree(key, True)
            return
        self._check_no_mounts(key)
        self._find(key).delete()

    def _check_no_mounts(self, key: str) -> None:
        """Raise EBUSY if mount points lie below `key`: what the fallback has there is hidden by them."""
        if mounts := self._client.get().mounts_below(key):
            raise OSError(errno.EBUSY, f"there are mount points in the directory: {', '.join(mounts)}")


class ViewFs(Hdfs):
    """The mount table `nameservice` of Hadoop's configuration: directories of several nameservices as one tree.

    hdfs-native serves it, and finds the active NameNodes: the table needs a `linkFallback`.
    """

    scheme = "viewfs"


def _in_order(found: list[FileStat]) -> list[FileStat]:
    """Return stats in the order of their names as listed; older NameNodes compare names by signed bytes."""
    names = [stat.listed() if stat.directory else stat.filename for stat in found]
    return found if names == sorted(names) else sorted(found, key=FileStat.listed)


def _user() -> str:
    """Return the name that HDFS knows this process by; a number where the system has no name for it."""
    if name := os.environ.get("HADOOP_PROXY_USER") or os.environ.get("HADOOP_USER_NAME"):
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return str(os.getuid())
