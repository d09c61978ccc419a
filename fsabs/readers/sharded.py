"""Data sets as numbered RecordIO files: written round-robin, as Paddle does it, checked, and repaired where possible.

`convert` writes `PREFIX-aaaaa-of-bbbbb`, where bbbbb is the largest index (100 shards end in `-of-00099`), and
`convert_lines` Paddle's later form, `PREFIX-00000` with a fixed number of records in each file. Each shard is whole or
not there; none appears before the reader has come to its end.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import errors
from ..core.fs import FS, Path
from ..core.threads import Threads, most_at_once
from ..urls.opening import from_url
from . import instances
from .locate import check_one_run, publishing_mark
from .recordio import RecordWriter
from .shards import DataSetReport, ShardReport, repair, verify

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["DataSetReport", "ShardReport", "convert", "convert_lines", "repair", "verify"]

Instances = Callable[[], Iterable[Any]]
"""A data reader: called without arguments, it gives the instances."""
Encode = Callable[[Any], bytes]

_IN_HAND = 512 << 20  # bytes of unwritten chunks of all shards together, about
_SMALLEST_CHUNK, _LARGEST_CHUNK = 64 << 10, 32 << 20
_BATCH = 128  # instances that are handed to a thread at once
_WAITING = 8  # such batches that may wait for a thread


def convert(
    output_path: Path | FS,
    reader: Instances,
    num_shards: int,
    name_prefix: str,
    *,
    allow_pickle: bool = False,
    encode: Encode | None = None,
    compressor: str = "snappy",
    max_chunk_bytes: int | None = None,
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Write the instances of `reader` round-robin to `num_shards` files, and return their names.

    Args:
        output_path: a URL or path of a directory, which is made if it is missing; or an FS.
        reader: called once; gives the instances.
        num_shards: 1 to 100,000. A shard that gets nothing is written, too, with 0 bytes. All are open at once, so that
            on a local disk the process must be allowed to have as many files open (`ulimit -n`).
        name_prefix: the first part of the names; no `/`.
        allow_pickle: pickle what `instances.encode` has no encoding for.
        encode: what makes bytes of an instance, in place of `instances.encode`.
        compressor: `none`, `snappy` or `gzip`.
        max_chunk_bytes: of `RecordWriter`; if None, 32 MiB, or less where the chunks of all shards would be too much.
        workers: threads that encode, compress and write; the order of the records does not depend on it.
        progress: called with the number of instances done so far, now and then, and at the end
            (`progress_bar()` gives one that shows a bar).

    Files of the same names are replaced when all are complete; if anything fails before that, none is. While they are
    replaced, and after a crash in the middle of it, readers of this package refuse them (`EBUSY`) until a run
    completes. Shards of the same prefix and another number are a `FileExistsError` before anything is read: they and
    the new ones would be read as one data set.
    """
    if not 1 <= num_shards <= 100_000:
        raise ValueError(f"num_shards must be 1 to 100000, not {num_shards}")
    names = [f"{_prefix(name_prefix)}-{number:05}-of-{num_shards - 1:05}" for number in range(num_shards)]
    limit = max_chunk_bytes or max(_SMALLEST_CHUNK, min(_LARGEST_CHUNK, _IN_HAND // num_shards))
    with _opened(output_path) as fs:
        _check_other_runs(fs, name_prefix, names[-1])
        with _Writers(fs, name_prefix) as writers:
            for name in names:
                writers.append(RecordWriter(fs, name, compressor=compressor, max_chunk_bytes=limit))
            jobs = ((number % num_shards, instance) for number, instance in enumerate(reader()))
            how = encode or _encoder(allow_pickle)
            _each_to_its_shard(jobs, writers, how, min(workers, num_shards), progress)
    return names


def _check_other_runs(fs: FS, prefix: str, name: str) -> None:
    if not fs.capabilities.read:
        return
    with contextlib.suppress(FileNotFoundError):
        for other in fs.list():
            if other.startswith(prefix):
                try:
                    check_one_run([name, other], fs.url())
                except OSError:
                    reason = f"there are shards of another run, with another number: {other!r}; remove them first"
                    raise errors.error(errno.EEXIST, "convert", fs.url(), reason) from None


def convert_lines(
    output_path: Path | FS,
    reader: Instances,
    line_count: int,
    name_prefix: str,
    *,
    allow_pickle: bool = False,
    encode: Encode | None = None,
    compressor: str = "snappy",
    max_chunk_bytes: int = _LARGEST_CHUNK,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Write the instances of `reader` in their order to files of `line_count` records each; the last has the rest.

    They are called `PREFIX-00000`, `PREFIX-00001` and so on; no instances make one file of 0 bytes. Each appears when
    it is complete. The other arguments are those of `convert`. Returns the names.
    """
    if line_count < 1:
        raise ValueError(f"line_count must be at least 1, not {line_count}")
    how = encode or _encoder(allow_pickle)
    names: list[str] = []
    done = 0
    items = iter(reader())
    with _opened(output_path) as fs:
        while True:
            first = next(items, _END) if names else None
            if first is _END:
                break
            names.append(f"{_prefix(name_prefix)}-{len(names):05}")
            with RecordWriter(fs, names[-1], compressor=compressor, max_chunk_bytes=max_chunk_bytes) as writer:
                if len(names) > 1:
                    writer.write(how(first))
                for item in items if writer.records < line_count else ():
                    writer.write(how(item))
                    if writer.records == line_count:
                        break
                done += writer.records
            if progress is not None:
                progress(done)
    return names


def progress_bar(total: int | None = None, description: str = "instances") -> Callable[[int], object]:
    """A `progress` that shows a bar on standard error, by tqdm; `total` instances, if that is known."""
    try:
        from tqdm import tqdm
    except ImportError:
        raise errors.missing("tqdm", "cli", "a progress bar") from None
    bar = tqdm(total=total, desc=description, unit=" instances", unit_scale=True)

    def show(done: int) -> None:
        bar.update(done - bar.n)

    return show


_END = object()


def _prefix(name_prefix: str) -> str:
    if not name_prefix or "/" in name_prefix or name_prefix.startswith("."):
        raise ValueError(f"a name_prefix is the beginning of a file's name, not {name_prefix!r}")
    return name_prefix


def _encoder(allow_pickle: bool) -> Encode:
    return (lambda item: instances.encode(item, allow_pickle=True)) if allow_pickle else instances.encode


@contextlib.contextmanager
def _opened(where: Path | FS) -> Iterator[FS]:
    """The FS to write to, closed again if it was opened here."""
    if isinstance(where, FS):
        yield where
        return
    with from_url(os.fspath(where), create=True) as fs:
        yield fs


class _Writers(list[RecordWriter]):
    """Shards that are completed together at the end of a `with` block, or thrown away together."""

    def __init__(self, fs: FS, prefix: str) -> None:
        super().__init__()
        self._fs, self._mark = fs, publishing_mark(prefix)

    def __enter__(self) -> _Writers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                marked = len(self) > 1 and self._fs.capabilities.remove
                if marked:
                    self._fs.write_bytes(self._mark, b"these shards are being replaced\n")
                for writer in self:
                    writer.close()
                if marked:
                    self._fs.remove(self._mark)
        finally:
            for writer in self:
                writer.abort()  # nothing happens to those that are closed


# ---- who writes what


def _each_to_its_shard(
    jobs: Iterator[tuple[int, Any]],
    writers: list[RecordWriter],
    encode: Encode,
    workers: int,
    progress: Callable[[int], object] | None,
) -> None:
    """Write each instance to the shard of its number, by `workers` threads of which each has its own shards."""
    done = 0
    tell = progress or (lambda _: None)
    if workers <= 1:
        for shard, instance in jobs:
            writers[shard].write(encode(instance))
            done += 1
            if done % _BATCH == 0:
                tell(done)
    else:
        for done in _in_threads(jobs, writers, encode, min(workers, most_at_once())):
            if done % _BATCH == 0:
                tell(done)
    tell(done)


def _in_threads(
    jobs: Iterator[tuple[int, Any]], writers: list[RecordWriter], encode: Encode, workers: int
) -> Iterator[int]:
    """Have threads encode and write, each of which has its own shards; yield how many instances they were given."""
    batches: list[list[tuple[int, Any]]] = [[] for _ in range(workers)]
    waiting: list[deque[Callable[[], None]]] = [deque() for _ in range(workers)]
    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(Threads[None](1, wait=True)) for _ in range(workers)]
        for done, (shard, instance) in enumerate(jobs, 1):
            which = shard % workers
            batches[which].append((shard, instance))
            if len(batches[which]) >= _BATCH:
                if len(waiting[which]) >= _WAITING:
                    waiting[which].popleft()()  # raises what went wrong
                batch, batches[which] = batches[which], []
                waiting[which].append(threads[which].start(partial(_write, batch, writers, encode)))
            yield done
        for which, batch in enumerate(batches):
            waiting[which].append(threads[which].start(partial(_write, batch, writers, encode)))
        for outcome in itertools.chain.from_iterable(waiting):
            outcome()


def _write(batch: list[tuple[int, Any]], writers: list[RecordWriter], encode: Encode) -> None:
    for shard, instance in batch:
        writers[shard].write(encode(instance))
