"""Per-process resources: locks, clients and open files, and their handling at fork, pickle and close; and the calls
that a fork waits for.

A client of a store, a lock or a decompressor belongs to the process that made it. These small holders
make one anew in every process that asks, and *abandon* what was inherited: it is neither closed nor
freed in the child, because its threads and sockets are the parent's (an inherited Rust or Java client
hangs when it is dropped). Nothing above this module has to know that a fork took place.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import math
import os
import sys
import time
import weakref
from _thread import RLock, get_ident
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Counts the forks between this process and the first one. Cheaper to compare than os.getpid(), and
# right where pids are used again.
_generation = 0
_pid = os.getpid()


def generation() -> int:
    """Return a number that differs between a process and its forked children."""
    return _generation


def inherited(made_in: int) -> bool:
    """Return whether an object made in generation `made_in` belongs to a parent of this process; for code that frees
    and closes.

    In a child's first moments the hooks of other modules run, the garbage collector with them, and the new generation
    doesn't count yet: a finalizer that trusted it would free what is the parent's.
    """
    return made_in != _generation or os.getpid() != _pid


# ---- what is done at a fork and at the end of the interpreter: the modules of this package register it here. What
# belongs to a library in C is registered with the system where that library is loaded: its order counts.

Hook = Callable[[], object]
_before: list[Hook] = []
_in_parents: list[Hook] = []
_in_children: list[Hook] = []
_at_exit: list[Hook] = []


def at_fork(*, before: Hook | None = None, in_parent: Hook | None = None, in_child: Hook | None = None) -> None:
    """Have functions called at each fork: `before` it, the last one registered first; the others after it, in order.

    What one of them raises is shown, and ends neither the fork nor the others.
    """
    for hooks, hook in ((_before, before), (_in_parents, in_parent), (_in_children, in_child)):
        if hook is not None:
            hooks.append(hook)


def at_exit(hook: Hook) -> None:
    """Have a function called when the interpreter exits, the last one registered first."""
    _at_exit.append(hook)


def end_each(things: Iterable[T], end: Callable[[T], object]) -> None:
    """Call `end` of each thing; the first exception is raised at the end, and keeps none from being ended."""
    failure: Exception | None = None
    for thing in things:
        try:
            end(thing)
        except Exception as exc:
            failure = failure or exc
    if failure is not None:
        raise failure


def _call(hooks: Iterable[Hook]) -> None:
    for hook in hooks:
        try:
            hook()
        except BaseException:
            sys.excepthook(*sys.exc_info())


os.register_at_fork(
    before=lambda: _call(reversed(_before)),
    after_in_parent=lambda: _call(_in_parents),
    after_in_child=lambda: _call(_in_children),
)


@atexit.register
def _end() -> None:
    end_each(reversed(_at_exit), lambda hook: hook())


# What must not be freed in a forked child, by the id of its holder. (Its finalizer alone could not see to that: in a
# reference cycle, the garbage collector finalizes what is held, too.)
_held: dict[int, object] = {}


def _in_child() -> None:
    global _generation, _pid
    _generation, _pid = _generation + 1, os.getpid()
    _renew_locks()
    _deferring.clear()
    _after_fork()
    for resource in _held.values():
        abandon(resource)
    _held.clear()


def register(holder: object, resource: object) -> None:
    """Have a forked child abandon `resource` at once; `release(holder)` takes it back, at the latest in a finalizer."""
    _held[id(holder)] = resource


def release(holder: object, held: dict[int, object] = _held) -> None:
    """Allow what `holder` had registered to be freed, in the process that made it."""
    held.pop(id(holder), None)


_immortalize: list[Callable[[object], None]] = []


def _before_fork() -> None:
    """Wait for the calls that defer a fork, and keep others from beginning.

    Import what `abandon` needs, too: finalizers call it, in the middle of imports and when the interpreter ends.
    """
    global _forking
    _import_ctypes()
    _turn.__enter__()
    _forking = get_ident()
    end = time.monotonic() + MAX_WAIT
    while _deferring - {_forking} and time.monotonic() < end:
        time.sleep(0.0001)


def _after_fork() -> None:
    global _forking
    _forking = 0
    _turn.__exit__(None, None, None)


def _import_ctypes() -> None:
    if not _immortalize:
        import ctypes

        # A function of our own: others may set the argument types of `ctypes.pythonapi.Py_IncRef`.
        _immortalize.append(ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi)))


def abandon(resource: object) -> None:
    """Keep `resource` for ever: never closed, never freed, not even when the interpreter exits."""
    _import_ctypes()
    _immortalize[0](resource)


# Weak references to all locks. They remove themselves by a method in C: no signal handler can interrupt that.
_locks: set[weakref.ref[Lock]] = set()


class Lock(RLock):  # type: ignore[misc]  # typeshed has it as final
    """A reentrant lock that is open in a forked child, even if a thread of the parent held it.

    Its methods for `with` are C functions: an exception of a signal handler can't come between taking it and the block
    that releases it. Code under it must leave its data whole at every instruction (replace, not mutate), since a fork
    may copy the process in the middle of it, and a signal handler may end it there.
    """

    __slots__ = ()

    def __init__(self) -> None:
        _locks.add(weakref.ref(self, _locks.discard))

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


def _renew_locks() -> None:
    """Open the locks that threads of the parent held."""
    for reference in list(_locks):
        lock = reference()
        if lock is not None and not lock._is_owned():  # type: ignore[attr-defined]  # as threading.Condition
            lock._at_fork_reinit()  # type: ignore[attr-defined]


MAX_WAIT = 1.0
"""Seconds that a fork waits for the calls that defer it: one that takes longer waits for another machine."""
_deferring: set[int] = set()  # the threads in such calls; changes in one step, without a lock
_forking = 0  # the thread that forks
_turn = Lock()  # of those that fork


def defer_forks() -> int:
    """Have a fork wait until `allow_forks` is called with what this returns, in the same thread.

    It is for a call into a library that has locks of its own, and leaves Python to other threads meanwhile: if one of
    them forked, the child would have those locks taken, and would wait for ever. So it is with OpenSSL (TLS,
    `hmac.digest`, `hashlib.scrypt`) and the system's resolver. Not for what waits: a fork would wait, too.
    """
    thread = get_ident()
    _deferring.add(thread)
    while _forking and _forking != thread:  # either this thread sees the one that forks, or is seen by it
        _deferring.discard(thread)
        with _turn:
            _deferring.add(thread)
    return thread


allow_forks = _deferring.discard


class _ForksDeferred:
    """`with forks_deferred:` is `defer_forks`, then `allow_forks`; those alone take a third of the time."""

    __slots__ = ()

    def __enter__(self) -> None:
        defer_forks()

    def __exit__(self, *exc: object) -> None:
        allow_forks(get_ident())


forks_deferred = _ForksDeferred()
at_fork(before=_before_fork, in_parent=_after_fork, in_child=_in_child)


class PerProcess(Generic[T]):
    """One `T` for each process, made by `make()` on first use; pickles as its recipe alone.

    `dispose` is called by `close()`, in the process that made the value and in no other. In a forked child the value
    is abandoned at once, so that not even the end of the child frees it.
    """

    __slots__ = ("_dispose", "_lock", "_made", "_make")

    def __init__(self, make: Callable[[], T], dispose: Callable[[T], None] | None = None) -> None:
        self._make = make
        self._dispose = dispose
        self._made: tuple[int, T] | None = None
        self._lock = Lock()

    def get(self) -> T:
        """Return this process's value."""
        made = self._made
        if made is not None and made[0] == _generation:
            return made[1]
        with self._lock:
            self._leave_inherited()
            if self._made is None:
                value = self._make()
                register(self, value)
                self._made = (_generation, value)
            return self._made[1]

    def adopt(self, value: T) -> None:
        """Take `value`, made elsewhere, as this process's."""
        with self._lock:
            register(self, value)
            self._made = (_generation, value)

    def peek(self) -> T | None:
        """Return this process's value if it has been made, else None."""
        made = self._made
        return made[1] if made is not None and made[0] == _generation else None

    def close(self) -> None:
        """Dispose of this process's value; a later `get()` makes another."""
        with self._lock:
            self._leave_inherited()
            made, self._made = self._made, None
            release(self)
        if made is not None and self._dispose is not None:
            self._dispose(made[1])

    def _leave_inherited(self) -> None:
        if self._made is not None and self._made[0] != _generation:
            self._made = None  # kept alive by _in_child

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(
        self, inherited: Callable[[int], bool] = inherited, release: Callable[[object], None] = release
    ) -> None:
        if self._made is not None and not inherited(self._made[0]):
            release(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return PerProcess, (self._make, self._dispose)


def owned(value: T) -> PerProcess[T]:
    """Return a holder of what is being written: a forked child, whose it is not, gets an `OSError` (EBADF)."""
    holder: PerProcess[T] = PerProcess(not_owned)
    holder.adopt(value)
    return holder


def not_owned() -> NoReturn:
    """Raise the `OSError` of a forked child that uses what its parent is writing."""
    raise OSError(errno.EBADF, "a file that is being written belongs to the process that opened it")


class IteratorOwner(Generic[T_co]):
    """The base of what has an iterator of this process, `_items`: a forked child abandons it at once.

    A generator that is freed is closed, and what it would close in a forked child is its parent's.
    """

    __slots__ = ("_generation", "_items")

    def __init__(self) -> None:
        self._items: Iterator[T_co] | None = None
        self._generation = _generation

    def _register_items(self, items: Iterator[T_co]) -> None:
        self._items = items
        register(self, items)

    def _close_items(self) -> None:
        """Close the iterator, in the process that began it; have none from now on."""
        items, self._items = self._items, None
        if items is not None and not inherited(self._generation):
            release(self)
            if hasattr(items, "close"):
                items.close()
        self._generation = _generation

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(
        self, inherited: Callable[[int], bool] = inherited, release: Callable[[object], None] = release
    ) -> None:
        if self._items is not None and not inherited(self._generation):
            release(self)


class Resumable(IteratorOwner[T_co], Iterator[T_co]):
    """An iterator that goes on in a forked child, in several threads and after pickling.

    `start(n)` gives an iterator that begins at item `n`; it is called again, with the number of items
    taken so far, in each new process.
    """

    __slots__ = ("_lock", "_start", "_taken")

    def __init__(self, start: Callable[[int], Iterator[T_co]], taken: int = 0) -> None:
        super().__init__()
        self._start = start
        self._taken = taken
        self._lock = Lock()

    def __next__(self) -> T_co:
        with self._lock:
            item = next(self._begun())
            self._taken += 1
            return item

    def take(self, count: int) -> list[T_co]:
        """Return the next `count` items, fewer at the end; an error counts those before it as taken."""
        items: list[T_co] = []
        with self._lock:
            try:
                items.extend(itertools.islice(self._begun(), count))
            finally:
                self._taken += len(items)
        return items

    def _begun(self) -> Iterator[T_co]:
        if self._generation != _generation:
            self._items, self._generation = None, _generation
        if self._items is None:
            self._register_items(self._start(self._taken))
        assert self._items is not None
        return self._items

    def close(self) -> None:
        """Stop early and free what the iterator holds in this process."""
        with self._lock:
            self._close_items()
            self._items = iter(())

    def __reduce__(self) -> tuple[Any, ...]:
        return Resumable, (self._start, self._taken)


def cpu_count() -> int:
    """Return the number of CPUs that this process may use: its affinity, or its cgroups' quota where that is less."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    allowed = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min([allowed, *(math.ceil(quota) for quota in cpu_quotas())]))


def cpu_quotas(membership: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> Iterator[float]:
    """Yield the CPUs that each cgroup of this process may use, of version 1 and 2; those without a quota are left out.

    In a container the path may be that of the machine, of which only the last directories, or none, are mounted.
    """
    with contextlib.suppress(OSError), open(membership, encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            names = [name for name in path.split("/") if name not in ("", "..")]
            for root in (mounted,) if not controllers else (f"{mounted}/{controllers}", f"{mounted}/cpu"):
                for depth in range(len(names) + 1):
                    yield from _cpu_quota("/".join([root, *names[:depth]]), versioned=not controllers)


def _cpu_quota(folder: str, *, versioned: bool) -> Iterator[float]:
    files = ("cpu.max",) if versioned else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        texts = []
        for name in files:
            with open(f"{folder}/{name}", encoding="ascii") as file:
                texts += file.read().split()
        quota, period = (int(text) for text in texts)  # no number: `max`
        if quota > 0:
            yield quota / period


def umask() -> int:
    """Return the mask of this process, from /proc where it is there: asking by `os.umask` sets it for other threads."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class Unfinished(Protocol):
    """An unfinished object, which `abort_at_exit` throws away."""

    def abort(self) -> None:
        """Throw the half-made thing away."""


_unfinished: weakref.WeakSet[Any] = weakref.WeakSet()


def abort_at_exit(thing: Unfinished) -> None:
    """Have `thing.abort()` called if it is still referenced when the interpreter exits."""
    _unfinished.add(thing)


def finished(thing: Unfinished) -> None:
    """Take back `abort_at_exit(thing)`."""
    _unfinished.discard(thing)


at_exit(lambda: end_each(list(_unfinished), lambda thing: thing.abort()))
