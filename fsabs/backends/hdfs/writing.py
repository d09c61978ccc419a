"""Writing a file of HDFS: under a hidden name, moved into its place when it is complete.

HDFS lists a file from the moment it is created, and completes what a killed client leaves: so the name is hidden until
`commit`, and only the file's owner may read it until then. When a NameNode or a DataNode fails, what was written is
given up: a whole content is written again, by another writer (`retry_seconds`).

A writer of the library that is freed completes its file: only a file under a hidden name can be given up.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Iterator
from operator import methodcaller
from typing import Any

from ...core import process
from ...core.stats import FileStat
from ...core.writing import Writer, is_partial, partial_name
from .client import Deadline, HdfsClient, HdfsPlace, first_page
from .library import Verdict, verdict

ABORT_SECONDS = 10.0
"""Seconds, at most, to delete what an abort leaves; what is still there is swept later."""
STALE_PARTIAL_AGE = 3600.0
"""Seconds after which another process's half-written file may be that of a dead writer."""
_BUFFER = 1024 * 1024  # to be sent to a DataNode at once
_PRIVATE = 0o600
_ACL = 0o10000  # set in the permissions of what has an access control list, whose mask is in the group's bits
_REQUEST = 16 * 1024 * 1024  # bytes of a write that have the time of one operation
_FINAL = {errno.EACCES, errno.EPERM, errno.EDQUOT, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT, errno.ENOTDIR}
_FINAL |= {errno.EOPNOTSUPP, errno.EBADF, errno.EEXIST, errno.EISDIR, errno.ENOSPC}


class HdfsOutput:
    """A file of the library that is being written, through one NameNode; a forked child can't use or free it."""

    def __init__(self, place: HdfsPlace, method: str, deadline: Deadline, *arguments: Any) -> None:
        """Open a file by a method of the library's client: `create`, under a name that nothing else has, or `append`.

        It is not repeated after a lost response: for a new file, the caller tries another name.
        """
        request = methodcaller(method, place.path, *arguments)
        node, raw = place.nameservice.call_on(method, request, repeat=False, deadline=deadline)
        self._transfer = functools.partial(place.nameservice.transfer, node=node)
        self._raw = process.owned(raw)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`."""
        self._transfer("write", functools.partial(_send, self._raw.get(), data), deadline)

    def close(self, deadline: Deadline) -> None:
        """Send what is left, and complete the file."""
        self._transfer("close", self._raw.get().close, deadline)


class HdfsWriter(Writer):
    """Writes under a hidden name, and renames at `commit`."""

    def __init__(self, client: HdfsClient, place: HdfsPlace, exclusive: bool, deadline: Deadline) -> None:
        self._client = client
        self._place = place
        self._exclusive = exclusive
        self._umask = client.umask
        self._kept: FileStat | None = None
        self._moved = False
        self._written = 0
        self._retry_seconds = 0.0
        self._abandoned: list[HdfsPlace] = []  # earlier names, which may exist
        self._output: HdfsOutput | None = None
        self._partial = place
        self._create(deadline)

    @property
    def retry_seconds(self) -> float:
        """The time of an operation, after a failure of a node."""
        return self._retry_seconds

    def keep(self, stat: FileStat, *, moved: bool = False) -> None:
        """Have the file get the time of `stat` and, if it is new or `moved`, its permissions."""
        self._kept, self._moved = stat, moved

    def write(self, data: bytes) -> None:
        """Send `data`."""
        with self._noting_failures():
            for start in range(0, len(data), _REQUEST):
                self._opened().write(data[start : start + _REQUEST], self._deadline())
        self._written += len(data)

    def commit(self) -> None:
        """Complete the file, check that all of it arrived, and move it to its name."""
        deadline = self._deadline()
        with self._noting_failures():
            made = self._complete(deadline)
        self._set_attributes(made, deadline)
        self._partial.rename(self._place, not self._exclusive, deadline)
        self._output = None
        _delete(self._abandoned)

    def abort(self) -> None:
        """Delete the hidden file; its writer, when freed, finds nothing to complete."""
        output, self._output = self._output, None
        if output is not None:
            _delete([*self._abandoned, self._partial])

    def _deadline(self) -> Deadline:
        return Deadline(self._place.nameservice.policy.timeout)

    def _opened(self) -> HdfsOutput:
        if self._output is None:
            raise ValueError("the writer is finished")
        return self._output

    @contextlib.contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """Note in a block whether its failure is a node's, and not the content's or the user's."""
        try:
            yield
        except OSError as exc:
            self._retry_seconds = 0.0 if exc.errno in _FINAL else self._place.nameservice.policy.timeout
            raise

    def _complete(self, deadline: Deadline) -> Any:
        """Complete the file; return its status."""
        self._opened().close(deadline)
        made = self._partial.status(deadline)
        if made.length != self._written:  # hdfs-native can report success over a file that no DataNode has
            raise OSError(errno.EIO, f"HDFS has {made.length} of {self._written} bytes")
        return made

    def _create(self, deadline: Deadline) -> None:
        """Create a hidden file; after a lost response under another name, so that no late request meets it."""
        folder, name = os.path.split(self._place.path)
        while True:
            self._partial = self._place.beside(os.path.join(folder, partial_name(name)))
            try:
                self._output = HdfsOutput(self._partial, "create", deadline, self._client.write_options(_PRIVATE))
                return
            except OSError as exc:
                if verdict(exc) is not Verdict.UNKNOWN:
                    raise
                self._abandoned.append(self._partial)
                if not deadline.has(0):
                    raise

    # ---- what the file gets beside its content

    def _set_attributes(self, made: Any, deadline: Deadline) -> None:
        """Give the hidden file the permissions of what it replaces, or those of a new file, and its time."""
        replaced, kept = self._replaced(deadline), self._kept
        if replaced is None:
            mode = kept.mode & 0o777 if kept is not None and kept.mode else 0o666 & ~self._umask
        else:
            mode = self._mode_of(replaced, made, deadline)
        if kept is not None and kept.mode and self._moved:
            mode = kept.mode & 0o777
        if kept is not None and kept.last_modified is not None:
            self._partial.set_modified(kept.last_modified, deadline)
        if mode != made.permission:  # at last: it may forbid the others
            self._partial.call("set_permission", mode, deadline=deadline)

    def _replaced(self, deadline: Deadline) -> Any:
        """Return the status of the file that is going to be replaced; None if there is none."""
        if not self._exclusive:
            with contextlib.suppress(FileNotFoundError):
                status = self._place.status(deadline)
                return None if status.isdir else status
        return None

    def _mode_of(self, replaced: Any, made: Any, deadline: Deadline) -> int:
        """Return the permissions for a file in place of `replaced`, and give it its owner and group.

        Where they can't be given, nor the access control list, the new group may do what all others may, and no more.
        """
        mode: int = replaced.permission & 0o1777
        owner = replaced.owner if replaced.owner != made.owner else None
        group = replaced.group if replaced.group != made.group else None
        narrow = bool(replaced.permission & _ACL)
        try:
            if owner or group:
                self._partial.call("set_owner", owner, group, deadline=deadline)
        except PermissionError:
            narrow = narrow or group is not None
        return mode & (0o1707 | (mode & 0o007) << 3) if narrow else mode


class HdfsAppendWriter(Writer):
    """Appends in place: what is written stays."""

    def __init__(self, place: HdfsPlace, output: HdfsOutput) -> None:
        self._place = place
        self._output = output
        self._failed = False

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._failed = True
        self._output.write(data, self._deadline())
        self._failed = False

    def commit(self) -> None:
        """Complete the file."""
        self._failed = True
        self._output.close(self._deadline())

    def abort(self) -> None:
        """Complete the file as far as it was written: the lease must not stay."""
        with contextlib.suppress(OSError):  # what went wrong before is what the user has to see
            if self._failed:
                self._place.call("recover_lease", deadline=Deadline(ABORT_SECONDS))
            else:
                self._output.close(self._deadline())

    def _deadline(self) -> Deadline:
        return Deadline(self._place.nameservice.policy.timeout, attempts=1)


def _delete(places: list[HdfsPlace]) -> None:
    """Delete hidden files; what can't be deleted in time is left to the sweep of a later writer."""
    deadline = Deadline(ABORT_SECONDS)
    for place in places:
        with contextlib.suppress(OSError):
            place.delete(deadline)


def sweep(place: HdfsPlace, deadline: Deadline) -> None:
    """Delete the half-written files that dead writers have left in a directory."""
    request = functools.partial(first_page, path=place.path)
    with contextlib.suppress(OSError):
        for found in place.nameservice.call_on("list", request, deadline=deadline)[1][0]:
            name = os.path.basename(found.path)
            if name > "/":
                return
            if time.time() - found.modification_time / 1000 > STALE_PARTIAL_AGE and is_partial(name):
                _delete_dead(place.beside(found.path), deadline)


def _delete_dead(place: HdfsPlace, deadline: Deadline) -> None:
    """Delete a file whose writer is gone: the NameNode lets no other client append while its lease is renewed."""
    with contextlib.suppress(OSError):
        HdfsOutput(place, "append", deadline).close(deadline)
        place.delete(deadline)


def _send(raw: Any, data: bytes) -> None:
    with memoryview(data) as view:
        for start in range(0, len(view), _BUFFER):
            raw.write(bytes(view[start : start + _BUFFER]) if len(view) > _BUFFER else data)
