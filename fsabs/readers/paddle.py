"""Paddle's readers: functions without arguments that give the instances of a data set, and what makes one of others.

`creator.RecordIO(paths)` reads what `convert` wrote. The decorators have Paddle's names and arguments
(python/paddle/reader/decorator.py); errors of background threads are raised where the instances are read, and no
thread is left when a reader's iterator ends, fails or is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from ..core import errors, process
from ..core.fs import FS, StrPath
from ..urls import opening
from . import instances
from .locate import Files, check_one_run
from .prefetch import mapped, read_ahead
from .recordio import RecordReader
from .recordio.index import OnError

if TYPE_CHECKING:
    import numpy as np

DataReader = Callable[[], Iterable[Any]]
"""A data reader: each call begins the data set anew."""
Decode = Callable[[bytes], Any]

_RUN = 32  # instances that the background thread hands over at once


class ComposeNotAligned(ValueError):
    """The readers that `compose` was given are of different lengths."""


class Creator:
    """A function that makes readers of files."""

    def RecordIO(  # noqa: N802 - Paddle's name
        self,
        paths: StrPath | Sequence[StrPath],
        buf_size: int = 100,
        *,
        fs: FS | None = None,
        allow_pickle: bool = False,
        decode: Decode | None = None,
        on_error: OnError = "raise",
    ) -> DataReader:
        """A reader of the instances in RecordIO files, in the order of the files.

        Args:
            paths: a URL or path, a glob pattern, several of them joined by commas, or a list of them (whose commas are
                taken as they stand). A directory means all files in it, and below, whose names don't begin with a dot.
            fs: an FS that they are paths in, and not URLs.
            buf_size: how many instances a background thread is ahead.
            allow_pickle: read instances that were pickled; that executes what is in them.
            decode: what makes an instance of a record, in place of `instances.decode`.
            on_error: `raise` for what is damaged, or `skip` it.

        What names no file is a `FileNotFoundError` here, not first when it is read, and the shards of two runs of a
        data set, of different numbers, are an `OSError`. A record that is no instance is a
        `CorruptFileError` that names the file and the record.
        """
        if buf_size < 1:
            raise ValueError(f"buf_size must be at least 1, not {buf_size}")
        if isinstance(paths, str):
            paths = [part for part in map(str.strip, paths.split(",")) if part] or [paths]
        elif isinstance(paths, os.PathLike):
            paths = [paths]
        wanted = list(paths)
        if not wanted:
            raise ValueError("no paths")
        for _ in _checked(wanted, fs):
            pass
        decoder = decode or functools.partial(instances.decode, allow_pickle=allow_pickle)

        def read() -> Iterator[Any]:
            runs = read_ahead(lambda: _runs(wanted, fs, decoder, on_error), max(1, buf_size // _RUN))
            return itertools.chain.from_iterable(runs)

        return read

    recordio = RecordIO

    def np_array(self, x: np.ndarray[Any, Any]) -> DataReader:
        """Return a reader of the rows of an array: its parts along the first axis; of a scalar, the scalar."""
        return lambda: iter(x if x.ndim else [x[()]])

    def text_file(self, path: StrPath, *, fs: FS | None = None) -> DataReader:
        """Return a reader of the lines of a file in UTF-8, at a URL or path or in `fs`, without their line ends."""

        def read() -> Iterator[str]:
            with opening.open_url(path, "r") if fs is None else fs.open(path, "r") as file:
                for line in file:
                    yield line.rstrip("\n")

        return read


creator = Creator()


def _checked(paths: Sequence[StrPath], fs: FS | None) -> Iterator[tuple[FS, list[str]]]:
    """Yield what paths name, files of one run each; an FS that was opened for them is closed after that."""
    for one in paths:
        with contextlib.closing(Files(one, fs)) as files:
            found = files.paths()
            check_one_run(found, files.fs.url())
            yield files.fs, found


def _runs(paths: Sequence[StrPath], fs: FS | None, decode: Decode, on_error: OnError) -> Iterator[list[Any]]:
    for located, found in _checked(paths, fs):
        for path in found:
            yield from _runs_of(located, path, decode, on_error)


def _runs_of(fs: FS, path: str, decode: Decode, on_error: OnError) -> Iterator[list[Any]]:
    with RecordReader(fs, path, on_error=on_error) as reader:
        scan = reader.scan()
        run: list[Any] = []
        try:
            for record in scan:
                run.append(decode(record))
                if len(run) == _RUN:
                    yield run
                    run = []
        except ValueError as exc:
            yield run  # what came before is good
            if isinstance(exc, OSError):
                raise
            raise errors.corrupt(reader.url, f"record {scan.position - 1}: {exc}") from exc
        except OSError:
            yield run
            raise
        yield run


def batch(reader: DataReader, batch_size: int, drop_last: bool = False) -> DataReader:
    """A reader of lists of `batch_size` instances; the last one has the rest, or is left out."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")

    def read() -> Iterator[list[Any]]:
        items = iter(reader())
        while (found := list(itertools.islice(items, batch_size))) and (len(found) == batch_size or not drop_last):
            yield found

    return read


def shuffle(reader: DataReader, buf_size: int, *, seed: int | None = None) -> DataReader:
    """A reader that shuffles within each `buf_size` instances; with a `seed`, in the same way each time."""
    if buf_size < 1:
        raise ValueError(f"buf_size must be at least 1, not {buf_size}")

    def read() -> Iterator[Any]:
        source = random.Random(seed)
        items = iter(reader())
        while found := list(itertools.islice(items, buf_size)):
            source.shuffle(found)
            yield from found

    return read


def buffered(reader: DataReader, size: int) -> DataReader:
    """A reader whose instances a background thread takes from `reader`, up to `size` of them ahead."""
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return lambda: read_ahead(reader, size)


def map_readers(func: Callable[..., Any], *readers: DataReader) -> DataReader:
    """A reader of `func(a, b, ...)` of one instance of each reader, up to the end of the shortest."""

    def read() -> Iterator[Any]:
        for together in zip(*[reader() for reader in readers], strict=False):
            yield func(*together)  # a StopIteration of its own is a RuntimeError here, and not the end

    return read


def xmap_readers(
    mapper: Callable[[Any], Any], reader: DataReader, process_num: int, buffer_size: int, order: bool = False
) -> DataReader:
    """A reader of `mapper` of each instance, by `process_num` threads with up to `buffer_size` results ahead.

    With `order`, the results come in the order of the instances, else as they are ready.
    """
    if process_num < 1 or buffer_size < 1:
        raise ValueError(f"process_num and buffer_size must be at least 1, not {process_num} and {buffer_size}")
    return lambda: mapped(mapper, reader, process_num, buffer_size, order)


def chain(*readers: DataReader) -> DataReader:
    """A reader of the instances of each reader, one after the other."""
    return lambda: itertools.chain.from_iterable(reader() for reader in readers)


def compose(*readers: DataReader, check_alignment: bool = True) -> DataReader:
    """A reader of flat tuples: `(1, 2)` of one reader and `3` of the next become `(1, 2, 3)`.

    Readers of different lengths are `ComposeNotAligned`; without `check_alignment`, what is over is left out.
    """

    def read() -> Iterator[tuple[Any, ...]]:
        each = [iter(reader()) for reader in readers]
        together = itertools.zip_longest(*each, fillvalue=_OVER) if check_alignment else zip(*each, strict=False)
        for items in together:
            if any(item is _OVER for item in items):
                raise ComposeNotAligned("the readers that are composed are of different lengths")
            yield tuple(itertools.chain.from_iterable(one if isinstance(one, tuple) else (one,) for one in items))

    return read


_OVER = object()


def cache(reader: DataReader) -> DataReader:
    """A reader that keeps all instances in memory, from the first call on that reads them to the end."""
    kept: list[Any] | None = None

    def read() -> Iterator[Any]:
        nonlocal kept
        if kept is None:
            found = []
            for instance in reader():
                found.append(instance)
                yield instance
            kept = found
        else:
            yield from kept

    return read


def multiprocess_reader(readers: Sequence[DataReader], use_pipe: bool = True, queue_size: int = 1000) -> DataReader:
    """A reader of the instances of all `readers`, each read in a process of its own, as they come.

    An instance of None is a `ValueError`. An error in a process is raised where the instances are read, and so is a
    `ChildProcessError` for a process that is killed. At most about `queue_size` instances of each reader are ahead.
    `use_pipe` makes no difference: there is a pipe for each process.
    """
    if not readers:
        raise ValueError("no readers")
    if queue_size < 1:
        raise ValueError(f"queue_size must be at least 1, not {queue_size}")
    return lambda: in_processes(readers, queue_size)


def firstn(reader: DataReader, n: int) -> DataReader:
    """A reader of the first `n` instances; no more are taken."""
    if n < 0:
        raise ValueError(f"n must not be negative: {n}")
    return lambda: itertools.islice(reader(), n)


# ---- readers in processes of their own, which don't outlive the iterator


_EXIT_SECONDS = 5.0
"""How long a process that has sent its last item may take to end; one that hangs in its exit handlers is killed."""


def in_processes(readers: Sequence[Callable[[], Iterable[Any]]], ahead: int) -> Iterator[Any]:
    """Yield the items of all readers as they come, each reader in a process that is up to `ahead` items ahead.

    The processes are forked, since a reader is a function that no pickle takes. Each sends runs of items and waits for
    a permit before it goes further ahead than it may.
    """
    context = multiprocessing.get_context("fork")
    processes: dict[Connection, BaseProcess] = {}
    generation = process.generation()
    run = max(1, min(_RUN, ahead // 2))
    try:
        for number, reader in enumerate(readers):
            ours, theirs = context.Pipe()
            sender = _Sender(theirs, run, ahead // run)
            name = f"reader {number}"
            child: BaseProcess = context.Process(target=_serve, args=(reader, sender, ours), name=name, daemon=True)
            child.start()
            theirs.close()
            processes[ours] = child
        while processes:
            for ready in wait(list(processes)):
                assert isinstance(ready, Connection)
                yield from _receive(ready, processes)
                with contextlib.suppress(OSError):  # it may have ended: what it sent last is still to come
                    ready.send(None)
    finally:
        if not process.inherited(generation):
            for connection, child in processes.items():
                connection.close()
                child.kill()
                child.join()


def _receive(connection: Connection, processes: dict[Connection, BaseProcess]) -> list[Any]:
    """Return the next items of a process; forget it after its last ones."""
    try:
        items, ended, failure = connection.recv()
    except (EOFError, ConnectionError):
        child = processes[connection]
        child.join()
        reason = f"its process ended with exit code {child.exitcode}"
        raise errors.error(errno.ECHILD, "read", child.name, reason) from None
    if failure is not None:
        raise failure
    if ended:
        child = processes.pop(connection)
        connection.close()
        child.join(_EXIT_SECONDS)
        child.kill()
        child.join()
    return list(items)


class _Sender:
    """The items on their way to the parent: runs of them, each after a permit."""

    def __init__(self, connection: Connection, run: int, permits: int) -> None:
        self._connection = connection
        self._run = run
        self._permits = permits
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        if item is None:
            raise ValueError("a reader gave None, which is no instance")
        self._items.append(item)
        if len(self._items) == self._run:
            while not self._permits:
                self._connection.recv()
                self._permits += 1
            self._permits -= 1
            items, self._items = self._items, []
            self._connection.send((items, False, None))

    def finish(self, failure: Exception | None = None) -> None:
        items, self._items = self._items, []
        if failure is None:
            self._connection.send((items, True, None))
            return
        if items:
            self._connection.send((items, False, None))
        self._connection.send(([], True, errors.portable(failure)))


def _serve(reader: Callable[[], Iterable[Any]], sender: _Sender, other_end: Connection) -> None:
    """Read, in a process of its own, and send what is read; end when the other end is closed."""
    other_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it, too, and ends this process
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the items are not wanted any more
        try:
            for item in reader():
                sender.put(item)
            sender.finish()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as exc:  # a reader may raise anything, and the parent raises it
            sender.finish(exc)
