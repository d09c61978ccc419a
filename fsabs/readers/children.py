"""Readers in processes of their own: their items come through pipes, and no process outlives the iterator.

The processes are forked, since a reader is a function that no pickle takes. Each sends runs of items and waits for a
permit before it goes further ahead than it may.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..core import errors, process

_RUN = 32
"""The items of one message."""
_EXIT_SECONDS = 5.0
"""How long a process that has sent its last item may take to end; one that hangs in its exit handlers is killed."""


def in_processes(readers: Sequence[Callable[[], Iterable[Any]]], ahead: int) -> Iterator[Any]:
    """Yield the items of all readers as they come, each reader in a process that is up to `ahead` items ahead."""
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
        self._connection.send(([], True, _picklable(failure)))


def _picklable(failure: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(failure))
    except Exception:  # whatever the exception's class does
        return RuntimeError(f"{type(failure).__name__}: {failure}")
    return failure


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
        except Exception as exc:
            sender.finish(exc)
