"""unpack: the members of a container become files of any FS, by several processes where that is the local disk.

Nothing is written outside of the target: names that lead out of a container are no members of it, links of an archive
are never made, and a link in the target is not followed out of it.
"""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import signal
import stat as stat_bits
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from ..core import errors, identity, keys, process
from ..core.fs import FS, FileStat, StrPath, TreeCounts, checked_fs
from .copier import Copier, CopyResult, FileCopy, batches
from .trees import TransferTotals
from .walks import entry, is_link, refuse_special

_PERMISSIONS = stat_bits.S_IRWXU | stat_bits.S_IRWXG | stat_bits.S_IRWXO
_FEW = 1000  # members that no process is worth being started for
MOST_LISTED = 100_000  # members whose stats are kept in memory; of others they are listed again
_REPORTED = 256  # files that a process reports together

Progress = Callable[[int, int], None]
_Error = OSError | ValueError
_Report = tuple[int, int] | _Error
"""How many files and bytes were written, or why a file was not."""


def unpack(
    source: FS,
    target: FS,
    path: StrPath = "",
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    failed: Callable[[_Error], None] | None = None,
) -> TreeCounts:
    """Write all files and directories of `source`, a container or a directory in one, below `path` of `target`.

    Each file is written whole or not at all, and replaces the one that is there. On the local disk files get the times
    of the members, and their permissions without what the umask takes away; directories stay accessible to their owner.
    Nothing becomes setuid, setgid or sticky. A run that was ended can be repeated.

    Args:
        source: where the members are.
        target: where they are written.
        path: the directory that they are written to; made if it is missing.
        workers: processes that write to the local disk; by default one for each CPU, and one for few members. A
            daemonic process, as those of `multiprocessing.Pool` are, may start none, and writes by itself.
        progress: called as `progress(files, bytes)` with what is done.
        failed: called with the error of each member that is not written: a link, a name that is a file's and a
            directory's, a file that is damaged or can't be written, a directory that can't be made, which costs what is
            in it. By default the first is raised.

    Returns how many files, directories and bytes were written. Raises `FileExistsError` before anything is written if
    two members have names that the target does not tell apart, by case or Unicode form, `PermissionError` for a link in
    the target that leads out of it, and `OSError` (EINVAL) for a target that is in `source`.
    """
    source, target = checked_fs(source, "source"), checked_fs(target, "target")
    base = target._key(path, "unpack")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if identity.inside(target, base, source, source._cwd):
        raise errors.error(errno.EINVAL, "unpack", target._url(base), "a container can't be unpacked into itself")
    if target.capabilities.mkdir:
        target.makedirs("/" + base, exist_ok=True)
    run = _Unpacking(source, target, base)
    if run.folder is not None and not identity.tells_names_apart(target, base):
        names = identity.DistinctNames(target, "unpack")
        for stat in run.members():
            names.check(run.place(stat.filename))
    totals = _Totals(progress, failed)
    directories, files = run.make_directories(totals.add)
    unmade = totals.failures
    count = _workers(source, files, workers) if run.folder is not None else 1
    if count == 1:
        run.write(0, 1, totals.add)
    else:
        _in_processes(run, count, totals.add)
    if totals.files + totals.failures - unmade != files:
        raise errors.stale(source.url(), "its members have changed while they were unpacked")
    if target.capabilities.modes:
        run.set_modes(directories)
    return totals.counts(len(directories))


class _Totals(TransferTotals):
    """What was done, and how many members failed."""

    def __init__(self, progress: Progress | None, failed: Callable[[_Error], None] | None) -> None:
        super().__init__(progress)
        self._failed = failed
        self.failures = 0

    def add(self, report: _Report) -> None:
        """Count what was written; an error is raised unless the caller of `unpack` takes it."""
        if isinstance(report, tuple):
            self.count(report[1], files=report[0])
        elif self._failed is None:
            raise report
        else:
            self.failures += 1
            self._failed(report)


def _workers(source: FS, files: int, workers: int | None) -> int:
    """Return the number of processes; a compressed stream is not read by several."""
    if multiprocessing.current_process().daemon:  # as those of a Pool and a DataLoader, which may have no children
        return 1
    if workers is not None:
        return workers
    streamed = source.info().get("compression", "none") != "none"
    return 1 if files < _FEW or streamed else min(8, process.cpu_count())


class _Unpacking:
    """The members of a container and the place that they are written to."""

    def __init__(self, source: FS, target: FS, base: str) -> None:
        self._source = source
        self._target = target
        self._base = base
        self._left_out = _left_out(source)
        # Those on the way to the members, among what is above.
        self._archives = frozenset(identity.places(source, source._cwd))
        self._inside = {""}
        self._new: set[str] = set()  # directories that nothing else is in
        self._unmade: set[str] = set()  # those that could not be made, and those in them
        self._listed: list[FileStat] | None = None
        self._mask = _PERMISSIONS & ~process.umask()
        local = target.url(f"/{base}") == f"file:///{keys.to_url_path(base)}"
        self.folder: str | None = f"/{base}" if local else None
        """The directory, on the local disk."""
        self._real = os.path.realpath(f"/{base}") if local else ""

    @property
    def url(self) -> str:
        """The URL of the place."""
        return self._target.url("/" + self._base)

    def place(self, name: str) -> str:
        """Return the key in the target of a member."""
        return keys.join(self._base, name.rstrip("/"))

    def permissions(self, stat: FileStat) -> int:
        """Return the permissions that the file or directory of a member gets."""
        return stat.mode & self._mask

    def members(self) -> Iterator[FileStat]:
        """Yield the members that have a content, and directories."""
        if self._listed is not None:
            return iter(self._listed)
        found = self._source.list("", recursive=True, detail=True)
        return (stat for stat in found if stat.filename not in self._left_out)

    def make_directories(self, report: Callable[[_Report], None]) -> tuple[list[FileStat], int]:
        """Make all directories; return them, and the number of files in them. What can't be made is reported."""
        directories, files = [], 0
        members = self.members()
        first = list(itertools.islice(members, MOST_LISTED + 1))
        self._listed = first if len(first) <= MOST_LISTED else None
        for stat in itertools.chain(first, members):
            name = stat.filename.rstrip("/")
            if keys.parent(name) in self._unmade:
                if stat.directory:
                    self._unmade.add(name)
            elif not stat.directory:
                files += 1
            elif self._is_made(name, report):
                directories.append(stat)
        return directories, files

    def _is_made(self, name: str, report: Callable[[_Report], None]) -> bool:
        """Return whether a directory is there now; report why it is not."""
        try:
            if self._target.capabilities.mkdir:
                self._make(name)
        except (OSError, ValueError) as exc:
            self._unmade.add(name)
            report(exc)
            return False
        return True

    def _make(self, name: str) -> None:
        self._check_inside(name)
        key = self.place(name)
        with self._target._naming("unpack", key):
            try:
                self._target._makedirs(key, 0o777)
                self._new.add(name)
            except FileExistsError:
                if not self._target._is(key, directory=True):
                    raise

    def set_modes(self, directories: Sequence[FileStat]) -> None:
        """Give directories the permissions of the members; what a link of the target leads to keeps its own."""
        for stat in reversed(directories):
            key = self.place(stat.filename)
            if stat.filename.rstrip("/") in self._new or not self._target._is_link(key):
                self._target._set(key, FileStat("", 0, mode=self.permissions(stat) | stat_bits.S_IRWXU))

    def write(self, number: int, count: int, report: Callable[[_Report], None]) -> None:
        """Write the files of one batch in `count`, from batch `number` on; report how many, and what goes wrong."""
        files = (
            stat for stat in self.members() if not stat.directory and keys.parent(stat.filename) not in self._unmade
        )
        found = batches(files, lambda stat: stat.size, max_files=256)
        mine = itertools.chain.from_iterable(itertools.islice(found, number, None, count))

        def ended(result: CopyResult) -> None:
            report((1, result.size) if result.error is None else result.error)

        with Copier(self._source, self._target, ended, lambda size: None, verify=False, keep_modes=True) as copier:
            copier.run(self._copies(mine, report))

    def _copies(self, stats: Iterable[FileStat], report: Callable[[_Report], None]) -> Iterator[FileCopy]:
        top = self._source._cwd
        for stat in stats:
            src, dst = keys.join(top, stat.filename), self.place(stat.filename)
            try:
                self._check(stat, dst)
            except OSError as exc:
                report(errors.named(exc, "unpack", self._target.url("/" + dst)))
                continue
            yield FileCopy(src, dst, stat._replace(mode=stat_bits.S_IFREG | self.permissions(stat)))

    def _check(self, stat: FileStat, dst: str) -> None:
        """Refuse a link, a member that a link would lead elsewhere, and one that would replace an archive it is in."""
        if is_link(stat):
            raise OSError(errno.EINVAL, "the member is a symbolic link, which is not made")
        folder = keys.parent(stat.filename)
        if self.folder is not None and folder not in self._new:
            self._check_inside(folder)
            there = entry(self._target, dst)
            if there is None:
                return
            if is_link(there):
                raise PermissionError(errno.EACCES, "there is a link of that name")
            refuse_special(self._target, dst, there, "replaced")
        if folder not in self._new and identity.place(self._target, dst) in self._archives:
            raise OSError(errno.EINVAL, "the member would replace its archive")

    def _check_inside(self, name: str) -> None:
        """Raise `PermissionError` if a link leads a directory out of the target."""
        if self.folder is None or name in self._inside:
            return
        path = os.path.join(self.folder, name)
        # To resolve a path takes a call for each directory on it, once more for each level of a deep tree.
        is_below = keys.parent(name) in self._inside and not os.path.islink(path)
        real = self._real if is_below else os.path.realpath(path)
        if real != self._real and not real.startswith(self._real.rstrip("/") + "/"):
            url = self._target.url("/" + self.place(name))
            raise errors.error(errno.EACCES, "unpack", url, "a link in the target leads out of it")
        self._inside.add(name)


def _left_out(source: FS) -> set[str]:
    """Return the listed names, links to nothing, that have no content."""
    left_out = getattr(source, "left_out", None)  # a container's, through layers too
    if left_out is None:
        return set()
    names = (problem.path for problem in left_out())
    return {keys.relative(name, source._cwd) for name in names if keys.inside(name, source._cwd)}


# ---- processes


def _in_processes(run: _Unpacking, count: int, report: Callable[[_Report], None]) -> None:
    """Write members by `count` forked processes; an exception ends all of them, and is raised."""
    context = multiprocessing.get_context("fork")
    children = []
    connections: list[Connection] = []
    try:
        for number in range(count):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(run, number, count, sender, os.getpid()), daemon=True)
            child.start()
            sender.close()
            children.append(child)
            connections.append(receiver)
        for one in _reports(connections):
            report(one)
    except BaseException as exc:
        for child in children:
            child.terminate()
        if isinstance(exc, OSError):  # there is no descriptor, or no process, for another child
            errors.named(exc, "unpack", run.url)
        raise
    finally:
        for child in children:
            child.join()
        for connection in connections:
            connection.close()


def _reports(connections: Sequence[Connection]) -> Iterator[_Report]:
    """Yield what the processes report, until all of them have ended well."""
    working = list(connections)
    while working:
        for connection in wait(working):
            assert isinstance(connection, Connection)
            try:
                report = connection.recv()
            except EOFError:
                raise OSError(errno.EIO, "a process that unpacks was killed") from None
            if isinstance(report, _Raised):
                raise report.error
            if report is None:
                working.remove(connection)
            else:
                yield report


class _Raised(NamedTuple):
    """What a process has ended with."""

    error: Exception


def _child(run: _Unpacking, number: int, count: int, sender: Connection, parent: int) -> None:
    """Write one batch of `count`, and report; end with the parent. Each process lists the members by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    files = size = 0

    def send() -> None:
        nonlocal files, size
        if os.getppid() != parent:
            raise BrokenPipeError
        sender.send((files, size))
        files = size = 0

    def report(one: _Report) -> None:
        nonlocal files, size
        if not isinstance(one, tuple):
            sender.send(one)
            return
        files, size = files + one[0], size + one[1]
        if files >= _REPORTED:
            send()

    try:
        run.write(number, count, report)
        send()
        sender.send(None)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
    except Exception as exc:
        sender.send(_Raised(exc))
