"""One file: copied in pieces, whole or not at all, counted and verified.

The bytes that were written are counted against the size that was opened. What was written is compared with what was
read: by the store, where it checks a checksum of what arrives; else by reading the file again, before it is visible if
its writer can do that. A file on a disk of this machine is not read again: the system has its bytes in memory.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..core import errors, identity
from ..core.blobs import Hint
from ..core.layers import copied_by_store, stored_in
from ..core.readahead import PIECE, joined, pieces
from ..core.threads import TaskOutcome, Threads
from ..core.writing import committing, write_again
from ..disk import folders

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from ..core.fs import FS
    from ..core.stats import FileStat
    from ..core.writing import Writer

_HOLE = 64 * 1024
"""Bytes of zeros that may become a hole."""
_WAITING = 3
"""Pieces that have been read and not yet written."""


def copy(source: FS, src: str, target: FS, dst: str) -> None:
    """Copy a file: by the store where it can. Onto itself it is refused (EINVAL)."""
    refuse_same(source, src, target, dst, "copy")
    target._copy(stored_in(source) if copied_by_store(source, target) else source, src, dst)


def refuse_same(source: FS, src: str, target: FS, dst: str, operation: str, may_be: bool = False) -> None:
    """Raise `OSError` (EINVAL) if source and target are one file; with `may_be`, also if that can't be known."""
    found = identity.same(source, src, target, dst)
    if found or (found is None and may_be):
        with source._naming(operation, src):
            source._stat(src)  # which raises, if it is missing
        may = "" if found else "may be "
        raise errors.error(errno.EINVAL, operation, source._url(src), f"{target._url(dst)} {may or 'is '}the same file")


def copy_file(
    source: FS,
    src: str,
    target: FS,
    dst: str,
    count: Callable[[int], None] = lambda size: None,
    *,
    stat: FileStat | None = None,
    moved: bool = False,
    verify: bool = True,
) -> int:
    """Copy a file by reading and writing it, and return its size.

    Args:
        source, src, target, dst: the file and its copy, which has its permissions and its time, where both keep them.
        count: called with the size of each piece; may raise to give the copy up.
        stat: the size, permissions and time of the file, if they are known; by default what its store reports.
        moved: a file that is replaced gets the permissions of the source, too.
        verify: compare what was written with what was read.
    """
    with source._naming("copy", src):
        if stat is None:  # before it is opened: what is written in between is copied again by the next sync
            stat = source._stat(src)
            if not source.capabilities.modes:
                stat = stat._replace(mode=0)
        with source._open_blob(src, Hint.FROM_START) as blob:
            check_size(source, src, stat, blob.size)
            if moved:
                check_version(source, src, stat, blob.version)
            with target._naming("copy", dst):
                _copy_blob(blob, target, dst, count, stat, moved, verify)
            return blob.size


def reads_back(fs: FS, key: str) -> bool:
    """Return whether only reading the file `key` again shows that it is what was written."""
    path = fs.backing._local_path(key)
    return fs.capabilities.read and not fs.checks_writes if path is None else not folders.is_local(path)


def check_size(source: FS, src: str, stat: FileStat, size: int) -> None:
    """Raise `CorruptFileError` if fewer bytes can be read than the store says that the file has, or more than it has
    said and still says: a file may grow meanwhile, and a size of 0 may be one that is not known.
    """
    if size == stat.size or not stat.size:
        return
    now = source._stat(src).size
    if size < min(stat.size, now) or (size > stat.size == now):
        raise errors.corrupt(source._url(src), f"{size} bytes can be read of {now}", "copy")


def check_version(source: FS, src: str, stat: FileStat, version: str | None) -> None:
    """Raise `StaleFileError` if a file that is moved was read in another version than it was listed in, as a cache may
    have it: the listed one would be removed, and its content be in neither place.
    """
    if source.capabilities.content_versions and None not in (stat.version, version) and stat.version != version:
        raise errors.stale(source._url(src), "the file changed while it was moved: it stays", "move")


def _copy_blob(
    blob: Blob, target: FS, dst: str, count: Callable[[int], None], stat: FileStat, moved: bool, verify: bool
) -> None:
    check, check_later = verify and reads_back(target, dst), False
    crc = counted = 0

    def compare(written: Iterable[bytes]) -> None:
        if (found := _crc_of(written)) != crc:
            reason = f"{blob.size} bytes were written with the CRC32C {crc:08x}, and are read with {found:08x}"
            raise errors.corrupt(target._url(dst), reason, "copy")

    def write(writer: Writer, piece: bytes) -> None:
        nonlocal crc
        if blob.sparse:
            _write_sparse(writer, piece)
        else:
            writer.write(piece)
        if check:
            crc = _extend()(crc, piece)

    def copy(writer: Writer) -> None:
        nonlocal check_later, counted, crc
        crc = done = 0
        with committing(writer):
            writer.expect(blob.size)
            writer.keep(stat, moved=moved)
            check_later = check and not writer.compare_by(compare)
            in_turns = write_each if blob.size <= PIECE else write_behind  # a thread isn't worth its while for one
            with (
                closing(streamed(blob)) as source,
                closing(in_turns(source, functools.partial(write, writer))) as written,
            ):
                for size in written:
                    done += size
                    count(max(0, done - counted))  # what is copied again is counted once
                    counted = max(counted, done)
            if done != blob.size:
                raise errors.corrupt(blob.url, f"{done} bytes were copied of {blob.size}", "copy")

    write_again(functools.partial(target._create, dst, False), copy)
    if check_later:
        with target._open_blob(dst, Hint.FROM_START) as copied:
            compare(pieces(copied))
    if target.capabilities.settable_times and not target.capabilities.modes and stat.last_modified is not None:
        target._set(dst, stat._replace(mode=0))


def _write_sparse(writer: Writer, piece: bytes) -> None:
    """Write a piece, and what is zeros as holes."""
    for at in range(0, len(piece), _HOLE):
        part = piece[at : at + _HOLE]
        writer.write_zeros(len(part)) if part == bytes(len(part)) else writer.write(part)


def _crc_of(pieces: Iterable[bytes]) -> int:
    """Return the CRC32C of pieces that follow one another."""
    return functools.reduce(_extend(), pieces, 0)


@functools.cache
def _extend() -> Callable[[int, bytes], int]:
    """Return the function that continues a CRC32C."""
    import google_crc32c

    found: Callable[[int, bytes], int] = google_crc32c.extend
    return found


# ---- pieces


def streamed(blob: Blob) -> Generator[bytes, None, None]:
    """As `pieces`, in the pieces in which a stream of the store comes, if it has one."""
    stream = blob._stream(0) if blob.size > PIECE else None
    if stream is None:
        yield from pieces(blob)
        return
    at = 0
    try:
        for piece in stream:
            at += len(piece)
            yield joined([piece])
    except OSError as exc:
        errors.named(exc, "read", blob.url)
        raise
    finally:
        if hasattr(stream, "close"):
            stream.close()
    if at != blob.size:
        raise errors.corrupt(blob.url, f"no more than {at} of {blob.size} bytes")


def write_each(pieces: Iterator[bytes], write: Callable[[bytes], None]) -> Generator[int, None, None]:
    """Write pieces one by one; yield the size of each."""
    for piece in pieces:
        write(piece)
        yield len(piece)


def write_behind(pieces: Iterator[bytes], write: Callable[[bytes], None]) -> Generator[int, None, None]:
    """Write pieces, in order, in a thread, while the next ones are read; yield the size of each when it is written.

    Nothing is written after a write that failed.
    """
    failed = False

    def written(piece: bytes) -> int:
        nonlocal failed
        if failed:
            return 0
        failed = True
        write(piece)
        failed = False
        return len(piece)

    outcomes: SimpleQueue[TaskOutcome[int]] = SimpleQueue()
    waiting = 0
    with Threads[int](1, wait=True) as threads:
        for piece in pieces:
            threads.submit(functools.partial(written, piece), outcomes.put)
            waiting += 1
            if waiting > _WAITING:
                yield outcomes.get().result()
                waiting -= 1
        for _ in range(waiting):
            yield outcomes.get().result()
