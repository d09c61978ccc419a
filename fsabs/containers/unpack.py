"""unpack: the members of a container become files of any FS, by several processes where that is the local disk.

Nothing is written outside of the target: names that lead out of a container are no members of it, links of an archive
are read and never made, and a link in the target is not followed out of it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import multiprocessing
import os
import signal
import stat as stat_bits
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from .. import errors, keys
from ..fs import FS, FileStat, Path, checked_fs

_SMALL = 1024 * 1024  # members up to this size are read as a whole, many at once
_BATCH_FILES = 256
_BATCH_BYTES = 32 * 1024 * 1024
_PERMISSIONS = stat_bits.S_IRWXU | stat_bits.S_IRWXG | stat_bits.S_IRWXO
_FEW = 1000  # members that no process is worth being started for

Progress = Callable[[int, int], None]


class Unpacked(NamedTuple):
    """The number of files and bytes that `unpack` has written."""

    files: int
    directories: int
    bytes: int
    """The sizes of the files, added up."""


def unpack(
    source: FS,
    target: FS,
    path: Path = "",
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Unpacked:
    """Write all files and directories of `source`, a container or a directory in one, below `path` of `target`.

    Each file is written whole or not at all, and replaces the one that is there. On the local disk files get the times
    of the members, and their permissions without what the umask takes away; directories stay accessible to their owner.
    Nothing becomes setuid, setgid or sticky. A run that was ended can be repeated.

    Args:
        source: where the members are.
        target: where they are written.
        path: the directory that they are written to; made if it is missing.
        workers: processes that write to the local disk; by default one for each CPU, and one for few members.
        progress: called as `progress(files, bytes)` with what is done.

    Returns how many files, directories and bytes were written. Raises `FileExistsError` before anything is written if
    two members have names that the target does not tell apart, by case or Unicode form, and `PermissionError` for a
    link in the target that leads out of it.
    """
    source, target = checked_fs(source, "source"), checked_fs(target, "target")
    base = target._key(path, "unpack")
    if target.capabilities.mkdir:
        target.makedirs("/" + base, exist_ok=True)
    unreadable = _left_out(source)

    def members() -> Iterator[FileStat]:
        return (stat for stat in source.list("", recursive=True, detail=True) if stat.filename not in unreadable)

    folder = f"/{base}" if target.url(f"/{base}") == f"file:///{keys.to_url_path(base)}" else None
    if folder is not None and not tells_names_apart(folder):
        _refuse_collisions(members(), target.url("/" + base))
    directories: list[FileStat] = []
    files = 0
    for stat in members():
        if stat.directory:
            directories.append(stat)
            _make(target, base, stat.filename.rstrip("/"), folder)
        else:
            files += 1
    count = _workers(source, files, workers) if folder is not None else 1
    writer = _Writer(source, target, base, folder)
    if count == 1:
        done = _total(writer.write(_batches(members())), progress)
    else:
        done = _in_processes(writer, members, count, progress)
    if done[0] != files:
        raise errors.stale(source.url(), "its members have changed while they were unpacked")
    for stat in reversed(directories):
        writer.set_mode(stat, "/" + keys.join(base, stat.filename.rstrip("/")), stat_bits.S_IRWXU)
    return Unpacked(done[0], len(directories), done[1])


def _left_out(source: FS) -> set[str]:
    """Return the listed names, links to nothing, that have no content."""
    left_out = getattr(source, "left_out", None)  # a container's, through layers too
    if left_out is None:
        return set()
    names = (problem.path for problem in left_out())
    return {keys.relative(name, source._root) for name in names if keys.inside(name, source._root)}


def tells_names_apart(folder: str) -> bool:
    """Return whether a local directory can have names that differ in case or Unicode form alone."""
    scratch = os.path.join(folder, f".fsabs-{os.urandom(8).hex()}")
    made = (scratch, os.path.join(scratch, "a\u00e9"))  # directories: to make and to remove them takes no descriptor
    try:
        for path in made:
            os.mkdir(path, 0o700)
        return not any(os.path.lexists(os.path.join(scratch, name)) for name in ("A\u00e9", "ae\u0301"))
    except OSError as exc:
        errors.named(exc, "unpack", f"file:///{keys.to_url_path(folder.lstrip('/'))}")
        raise
    finally:
        for path in reversed(made):
            with contextlib.suppress(FileNotFoundError):  # there was no room for it
                os.rmdir(path)


def _refuse_collisions(members: Iterable[FileStat], url: str) -> None:
    seen: dict[str, str] = {}
    for stat in members:
        name = stat.filename.rstrip("/")
        for path in (*keys.ancestors(name), name):
            folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
            if seen.setdefault(folded, path) != path:
                reason = f"{seen[folded]!r} and {path!r} are one name on this filesystem: unpack elsewhere"
                raise errors.error(errno.EEXIST, "unpack", url, reason)


def _make(target: FS, base: str, name: str, folder: str | None) -> None:
    """Make a directory; `PermissionError` if a link leads it out of the target."""
    if target.capabilities.mkdir:
        if folder is not None:
            _check_inside(folder, name, target.url("/" + keys.join(base, name)))
        target.makedirs("/" + keys.join(base, name), exist_ok=True)


def _check_inside(folder: str, name: str, url: str) -> None:
    real, root = os.path.realpath(os.path.join(folder, name)), os.path.realpath(folder)
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise errors.error(errno.EACCES, "unpack", url, "a link in the target leads out of it")


def _workers(source: FS, files: int, workers: int | None) -> int:
    """Return the number of processes; a compressed stream is not read by several."""
    if workers is not None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        return workers
    streamed = source.info().get("compression", "none") != "none"
    return 1 if files < _FEW or streamed else min(8, len(os.sched_getaffinity(0)))


def _batches(members: Iterator[FileStat]) -> Iterator[list[FileStat]]:
    """Yield files that are read at once: small ones, or a large one."""
    batch: list[FileStat] = []
    size = 0
    for stat in members:
        if stat.directory:
            continue
        if batch and (stat.size > _SMALL or len(batch) >= _BATCH_FILES or size + stat.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(stat)
        size += stat.size
        if stat.size > _SMALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Writer:
    """Writes the members of a container to one place."""

    def __init__(self, source: FS, target: FS, base: str, folder: str | None) -> None:
        self._source = source
        self._target = target
        self._base = base
        self._folder = folder
        self._inside: set[str] = set()
        self._umask = _umask() if folder is not None else 0

    @property
    def url(self) -> str:
        """The URL of the place."""
        return self._target.url("/" + self._base)

    def write(self, batches: Iterable[list[FileStat]]) -> Iterator[tuple[int, int]]:
        """Write batches of members, and yield the files and bytes of each batch."""
        for batch in batches:
            paths = [self._checked(stat.filename) for stat in batch]
            names = [stat.filename for stat in batch]
            if len(batch) == 1 and batch[0].size > _SMALL:
                self._source.copy(names[0], paths[0], self._target)
            else:
                contents = self._source.read_many(names)
                self._target.write_many(zip(paths, contents, strict=True))
            for stat, path in zip(batch, paths, strict=True):
                self.set_mode(stat, path)
                self._set_time(stat, path)
            yield len(batch), sum(stat.size for stat in batch)

    def _checked(self, name: str) -> str:
        """Return the path of a member in the target, which no link leads out of."""
        path = "/" + keys.join(self._base, name)
        if self._folder is not None:
            above = keys.parent(name)
            if above not in self._inside:
                _check_inside(self._folder, above, self._target.url(path))
                self._inside.add(above)
            if os.path.islink(os.path.join(self._folder, name)):
                raise errors.error(errno.EACCES, "unpack", self._target.url(path), "there is a link of that name")
        return path

    def set_mode(self, stat: FileStat, path: str, least: int = 0) -> None:
        """Give a file or directory of the local disk the permissions of its member, and `least`."""
        if self._folder is not None:
            os.chmod(path, stat.mode & _PERMISSIONS & ~self._umask | least)

    def _set_time(self, stat: FileStat, path: str) -> None:
        if self._folder is not None and stat.last_modified is not None and stat.last_modified >= 0:
            os.utime(path, (stat.last_modified, stat.last_modified))


def _umask() -> int:
    """Return the mask of this process, from /proc where it is there: to ask by `os.umask` sets it for other threads."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _total(done: Iterator[tuple[int, int]], progress: Progress | None) -> tuple[int, int]:
    files = size = 0
    for more_files, more_bytes in done:
        files, size = files + more_files, size + more_bytes
        if progress is not None:
            progress(files, size)
    return files, size


# ---- processes


def _in_processes(
    writer: _Writer, members: Callable[[], Iterator[FileStat]], count: int, progress: Progress | None
) -> tuple[int, int]:
    """Write members by `count` forked processes; the first error of one ends all of them, and is raised."""
    context = multiprocessing.get_context("fork")
    children = []
    connections: list[Connection] = []
    try:
        for number in range(count):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (writer, members, number, count, sender, os.getpid())
            child = context.Process(target=_child, args=arguments, daemon=True)
            child.start()
            sender.close()
            children.append(child)
            connections.append(receiver)
        return _total(_reports(connections), progress)
    except BaseException as exc:
        for child in children:
            child.terminate()
        if isinstance(exc, OSError):  # there is no descriptor, or no process, for another child
            errors.named(exc, "unpack", writer.url)
        raise
    finally:
        for child in children:
            child.join()
        for connection in connections:
            connection.close()


def _reports(connections: Sequence[Connection]) -> Iterator[tuple[int, int]]:
    """Yield what the processes report, until all of them have ended well."""
    working = list(connections)
    while working:
        for connection in wait(working):
            assert isinstance(connection, Connection)
            try:
                report = connection.recv()
            except EOFError:
                raise OSError(errno.EIO, "a process that unpacks was killed") from None
            if isinstance(report, BaseException):
                raise report
            if report is None:
                working.remove(connection)
            else:
                yield report


def _child(
    writer: _Writer,
    members: Callable[[], Iterator[FileStat]],
    number: int,
    count: int,
    sender: Connection,
    parent: int,
) -> None:
    """Write one batch of `count`, and report each; end with the parent. Each process lists the members by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for report in writer.write(itertools.islice(_batches(members()), number, None, count)):
            if os.getppid() != parent:
                os._exit(1)
            sender.send(report)
        sender.send(None)
    except BrokenPipeError:
        os._exit(1)
    except Exception as exc:
        sender.send(exc)
