"""Writing a file of HDFS: under a hidden name, moved into its place when it is complete, through failures of nodes.

HDFS lists a file from the moment it is created, and completes what a killed client leaves: so the name is hidden until
`commit`. The last bytes that were sent are kept. A file that is still whole in them is written again under another
name when a NameNode or a DataNode fails; a longer one is closed by a recovery of its lease, and continued by an append.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque

from ...files import Writer, is_partial, partial_name
from .access import HdfsAccess
from .driver import Driver, DriverOutput
from .rpc_errors import Verdict, verdict

REPLAY_BYTES = 24 * 1024 * 1024
"""Bytes that were sent last and are kept: more than the library and the sockets hold back."""
ABORT_SECONDS = 10.0
"""Seconds, at most, to delete what an abort leaves; later writers try again."""
STALE_PARTIAL_AGE = 3600.0
"""Seconds after which another process's half-written file may be that of a dead writer."""
_FINAL = {errno.EACCES, errno.EPERM, errno.EDQUOT, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT, errno.ENOTDIR}
_FINAL |= {errno.EOPNOTSUPP, errno.EBADF, errno.EEXIST, errno.EISDIR, errno.ENOSPC}


class HdfsWriter(Writer):
    """Writes under a hidden name, and renames at `commit`."""

    def __init__(self, fs: HdfsAccess, key: str, exclusive: bool) -> None:
        self._fs = fs
        self._path = "/" + key
        self._exclusive = exclusive
        self._written = 0
        self._replay: deque[bytes] = deque()
        self._replay_start = 0  # where in the file the kept bytes begin
        self._abandoned: list[str] = []  # earlier names, which may exist
        self._output: DriverOutput | None = None
        self._partial = ""
        self._create_repeatedly(time.monotonic() + self._driver.timeout)

    @property
    def _driver(self) -> Driver:
        return self._fs.driver

    def write(self, data: bytes) -> None:
        """Send `data`."""
        output, until = self._opened(), time.monotonic() + self._driver.timeout
        self._keep(data)
        try:
            output.write(data, _left(until))
        except OSError as exc:
            self._recover(exc, until)

    def commit(self) -> None:
        """Complete the file, check that all of it arrived, and move it to its name."""
        self._opened()
        until = time.monotonic() + self._driver.timeout
        while True:
            try:
                self._complete(until)
                break
            except OSError as exc:
                self._recover(exc, until)
        self._driver.rename(self._partial, self._path, overwrite=not self._exclusive, seconds=_left(until))
        self._output = None
        self._replay.clear()
        self._delete(self._abandoned)

    def abort(self) -> None:
        """Delete the hidden file; its writer, when freed, finds nothing to complete."""
        output, self._output = self._output, None
        self._replay.clear()
        if output is not None:
            self._delete([*self._abandoned, self._partial])

    def _opened(self) -> DriverOutput:
        if self._output is None:
            raise ValueError("the writer is finished")
        return self._output

    def _keep(self, data: bytes) -> None:
        self._replay.append(data)
        self._written += len(data)
        while self._written - self._replay_start - len(self._replay[0]) >= REPLAY_BYTES:
            self._replay_start += len(self._replay.popleft())

    def _complete(self, until: float) -> None:
        self._opened().close(_left(until))
        arrived = self._driver.stat(self._partial, _left(until)).size
        if arrived != self._written:  # hdfs-native can report success over a file that no DataNode has
            raise OSError(errno.EIO, f"HDFS has {arrived} of {self._written} bytes")

    def _recover(self, failure: OSError, until: float) -> None:
        """Bring the file to where it was to be, or raise `failure`."""
        delay = 0.2
        while failure.errno not in _FINAL and time.monotonic() + delay < until:
            time.sleep(delay)
            delay = min(2 * delay, 2.0)
            try:
                if self._replay_start == 0:
                    self._abandoned.append(self._partial)
                    self._create_repeatedly(until)
                    position = 0
                else:
                    position = self._append_again(until)
                self._send_from(position, until)
            except OSError as exc:
                failure = exc
                continue
            return
        raise failure

    def _create_repeatedly(self, until: float) -> None:
        """Create a hidden file; after a lost response under another name, so that no late request meets it."""
        folder, name = os.path.split(self._path)
        while True:
            self._partial = os.path.join(folder, partial_name(name))
            try:
                self._output = self._driver.create(self._partial, _left(until))
                return
            except OSError as exc:
                if verdict(exc) is not Verdict.UNKNOWN:
                    raise
                self._abandoned.append(self._partial)
                if time.monotonic() >= until:
                    raise

    def _append_again(self, until: float) -> int:
        """Take the file from the failed pipeline, and open it at its end; returns its size."""
        while not self._driver.recover_lease(self._partial):
            if time.monotonic() + 0.5 > until:
                raise OSError(errno.EBUSY, "the lease was not recovered in time")
            time.sleep(0.5)
        size = self._driver.stat(self._partial, _left(until)).size
        if not self._replay_start <= size <= self._written:
            raise OSError(errno.EINVAL, f"HDFS has {size} bytes, and can go on from {self._replay_start} only")
        self._output = self._driver.append(self._partial, _left(until))
        return size

    def _send_from(self, position: int, until: float) -> None:
        start = self._replay_start
        for data in self._replay:
            if start + len(data) > position:
                self._opened().write(data[max(0, position - start) :], _left(until))
            start += len(data)

    def _delete(self, paths: list[str]) -> None:
        self._fs.leftovers.extend(paths)
        delete_leftovers(self._driver, self._fs.leftovers)


class HdfsAppendWriter(Writer):
    """Appends in place: what is written stays."""

    def __init__(self, output: DriverOutput, timeout: float) -> None:
        self._output = output
        self._timeout = timeout

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._output.write(data, self._timeout)

    def commit(self) -> None:
        """Complete the file."""
        self._output.close(self._timeout)

    def abort(self) -> None:
        """Complete the file as far as it was written: the lease must not stay."""
        with contextlib.suppress(OSError):  # what went wrong before is what the user has to see
            self._output.close(self._timeout)


def delete_leftovers(driver: Driver, leftovers: deque[str]) -> None:
    """Delete hidden files of this process that an earlier failure has left; what can't be deleted now stays noted."""
    until = time.monotonic() + min(ABORT_SECONDS, driver.timeout)
    for _ in range(len(leftovers)):
        try:
            path = leftovers.popleft()
        except IndexError:
            return
        try:
            driver.delete(path, _left(until))
        except OSError:
            leftovers.append(path)


def sweep(driver: Driver, folder: str) -> None:
    """Delete the half-written files that dead writers have left in a directory."""
    with contextlib.suppress(OSError):
        for found in driver.list_first(folder):
            if found.filename > "/":
                return
            old = time.time() - (found.last_modified or 0) > STALE_PARTIAL_AGE
            if old and is_partial(found.filename):
                _delete_dead(driver, os.path.join(folder, found.filename))


def _delete_dead(driver: Driver, path: str) -> None:
    """Delete a file whose writer is gone: the NameNode lets no other client append while its lease is renewed."""
    with contextlib.suppress(OSError):
        driver.append(path, driver.timeout).close(driver.timeout)
        driver.delete(path)


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())
