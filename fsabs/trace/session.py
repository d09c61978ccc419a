"""Starting and stopping: which process traces into which folder, what a child process does, a program's own marks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import operator
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import util
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..core import hooks, process
from .recorder import HANG, MAX_BYTES, Recorder
from .schema import SCHEMA

if TYPE_CHECKING:
    from ..core.fs import FS

T = TypeVar("T")

FOLDER_VARIABLE = "FSABS_TRACE"


class TraceSettings(NamedTuple):
    """The settings that all processes of a trace share."""

    folder: str
    max_bytes: int


_settings: TraceSettings | None = None
_recorder: Recorder | None = None
_parent = 0  # the process that started this one, where that is not the system's parent
_lock = threading.RLock()


def start(folder: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
    """Trace this process, and those that it starts from now on, into `folder`, which is made if it is missing.

    Every FS, loader and data set is traced, those that were made before, too. What a process was tracing before ends;
    tracing into the same folder goes on. Children take the settings over: forked ones by their memory, those of spawn
    and forkserver when they are started, other programs by `$FSABS_TRACE`, which is set here. Take a new folder for
    each run.

    Args:
        folder: its path, on a disk of this machine, best; several machines may share it.
        max_bytes: what the file of one process may grow to (compressed); what comes after is dropped, and counted.
            Other programs that this one starts have the default.

    Raises `OSError` where the files can't be made, and `ValueError` for a URL.
    """
    settings = TraceSettings(_local(os.fspath(folder)), operator.index(max_bytes))
    with _lock:
        if _settings == settings:
            return
        stop()
        recorder = _made(settings)
        recorder.open()
        _begin(settings, recorder)


def stop() -> None:
    """End the trace of this process: all is written when this returns. Without a trace, nothing happens."""
    global _settings
    with _lock:
        if _settings is not None:
            _settings = None
            os.environ.pop(FOLDER_VARIABLE, None)
            _finish()


@contextlib.contextmanager
def record(folder: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Iterator[None]:
    """`start()` now and `stop()` at the end, as a context manager; within another into the same folder, neither.

    The trace that the process had before is resumed after the block.
    """
    before = _settings
    start(folder, max_bytes=max_bytes)
    mine = _settings
    try:
        yield
    finally:
        if mine is not before:
            stop()
            _resume(before)


def current() -> TraceSettings | None:
    """Return this process's trace, or None."""
    return _settings


def traced(fs: FS, trace: str | os.PathLike[str] | bool) -> FS:
    """Return `fs`, and start a trace into the folder `trace`; for the option `trace=` of `from_url`.

    True and False, also as words of a configuration file, start none.
    """
    if not isinstance(trace, bool) and str(trace).lower() not in ("true", "false"):
        start(trace)
    return fs


def start_from_environment() -> None:
    """Trace from the first event on, as `$FSABS_TRACE` asks."""
    folder = os.environ.get(FOLDER_VARIABLE)
    try:
        _resume(TraceSettings(_local(folder), MAX_BYTES) if folder else None)
    except ValueError as exc:
        _warn(exc)


def _local(folder: str) -> str:
    if "://" in folder:
        raise ValueError(f"a trace is written to a folder, as it happens, and can be copied then; not to {folder!r}")
    return os.path.abspath(folder)


# ---- one process


def _made(settings: TraceSettings) -> Recorder:
    describe = functools.partial(_header, settings, time.monotonic_ns(), time.time_ns())
    return Recorder(settings.folder, describe, max_bytes=settings.max_bytes, failed=_warn)


def _begin(settings: TraceSettings, recorder: Recorder) -> None:
    global _settings, _recorder
    _settings, _recorder = settings, recorder
    os.environ[FOLDER_VARIABLE] = settings.folder
    record_fetches()
    hooks.install(recorder)


def _resume(settings: TraceSettings | None) -> None:
    """Trace with the settings that another process has; the files of this one are made at its first event."""
    with _lock:
        if settings == _settings:
            record_fetches()
            return
        stop()
        if settings is not None:
            _begin(settings, _made(settings))


def _finish() -> None:
    global _recorder
    recorder, _recorder = _recorder, None
    if hooks.active is recorder and recorder is not None:
        hooks.install(None)
    if recorder is not None:
        recorder.finish()


def _warn(exc: OSError | ValueError) -> None:
    warnings.warn(f"not traced: {exc}", RuntimeWarning, stacklevel=2)


def _header(settings: TraceSettings, monotonic_ns: int, wall_ns: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "host": socket.gethostname(),
        "boot": _boot_id() or socket.gethostname(),  # not Linux: the processes of a machine share its clock there, too
        "pid": os.getpid(),
        "parent": _parent or os.getppid(),
        "main": threading.main_thread().native_id or 0,
        "cores": process.cpu_count(),
        "rank": _rank(),
        "worker": _worker(),
        "program": os.path.basename(sys.argv[0] if sys.argv else "") or "python",
        "monotonic_ns": monotonic_ns,
        "wall_ns": wall_ns,
    }


def _boot_id() -> str:
    """Return what distinguishes this start of the machine from others; empty where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _rank() -> int | None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        if (value := os.environ.get(name, "")).isdigit():
            return int(value)
    return None


def _worker() -> int | None:
    """The number of this process among a DataLoader's workers, where torch is loaded anyway."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return None if info is None else int(info.id)


def _finish_child(module: object) -> None:
    """A child of multiprocessing ends without `atexit`."""
    util.Finalize(None, _finish, exitpriority=0)


atexit.register(_finish)
util.register_after_fork(sys.modules[__name__], _finish_child)  # in each child, also a spawned one


# ---- children: forked ones have a recorder of their own; others are told the settings when they are started


def _before_fork() -> None:
    if _recorder is not None:
        _recorder.flush(HANG)


def _in_child() -> None:
    global _recorder, _lock, _parent
    _lock, _parent = threading.RLock(), 0
    if _recorder is not None:
        process.abandon(_recorder)
    recorder, _recorder = _recorder, None
    if _settings is not None:
        made = _made(_settings)
        if hooks.active is recorder:
            _begin(_settings, made)


os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def _with_settings(child: Any) -> tuple[Any, ...]:
    """Pickle a process that is about to be started: a forkserver has the environment of when it was started itself."""
    made = child.__reduce_ex__(2)
    return (*made[:2], (_settings, os.getpid(), made[2]), None, None, _started)


def _started(child: Any, state: tuple[TraceSettings | None, int, dict[str, Any]]) -> None:
    global _parent
    settings, _parent, own = state
    child.__dict__.update(own)
    _resume(settings)


def _take_processes_over() -> None:
    from multiprocessing import context

    for name in ("SpawnProcess", "ForkServerProcess"):
        if (kind := getattr(context, name, None)) is not None:
            ForkingPickler.register(kind, _with_settings)


_take_processes_over()


# ---- a program's own marks


def cpu_times() -> tuple[int, int]:
    """Return the nanoseconds in which this thread had a CPU, and in which it was ready for one that others had."""
    ready = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb") as file:
        ready = int(file.read().split()[1])
    return time.thread_time_ns(), ready


def _record_making(kind: str, name: str, begin: int, before: tuple[int, int]) -> None:
    """Record the making of a batch that began at `begin` with these times of the CPU."""
    if (instrument := hooks.active) is not None:
        had, ready = cpu_times()
        instrument.record_span(kind, name, begin, had - before[0], offset=ready - before[1])


class span:  # noqa: N801 - used like a function
    """A piece of the program's own work, as a context manager: `with fsabs.trace.span("decode"): ...`."""

    __slots__ = ("_begin", "_computed", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin = self._computed = 0

    def __enter__(self) -> span:
        if hooks.active is not None:
            self._begin, self._computed = time.monotonic_ns(), time.thread_time_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        instrument = hooks.active
        if instrument is not None and self._begin:
            computed = time.thread_time_ns() - self._computed
            error = kind.__name__ if kind else ""
            instrument.record_span("span", f"user.{self._name}", self._begin, computed, "", error)
            self._begin = 0


class _Mark(threading.local):
    """The beginning of a thread's step."""

    begin = 0
    number = 0
    instrument: hooks.Instrument | None = None
    """That records it: each trace has steps of its own, and each process."""


_mark = _Mark()


def step() -> None:
    """Mark the boundary of two training steps: from one call to the next, in one thread, is a step.

    What its thread waits for files in between is its wait, the rest its compute: also the time in which it waits for
    workers or threads, of which only `steps` knows.
    """
    instrument = hooks.active
    if instrument is None:
        _mark.instrument = None
        return
    if _mark.instrument is instrument:
        instrument.record_span("step", "train.step", _mark.begin, _mark.number)
        _mark.number += 1
    else:
        _mark.number = 0
    _mark.begin, _mark.instrument = time.monotonic_ns(), instrument


def begin_steps() -> None:
    """Mark the beginning of the first step of an epoch, for a loader that calls `step` before each further batch."""
    record_fetches()
    _mark.instrument = None
    step()


def steps(batches: Iterable[T]) -> Iterator[T]:
    """The items of `batches` (a DataLoader, say), each with a step of its own, in which waiting for it counts as wait.

    for batch in fsabs.trace.steps(loader):
        train(batch)
    """
    if getattr(batches, "marks_steps", False):  # as fsabs's own Loader does
        yield from batches
        return
    begin_steps()
    begin, before = time.monotonic_ns(), cpu_times()  # workers are started by `iter`
    items = iter(batches)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        _record_making("wait", "steps.next", begin, before)
        yield item
        step()
        begin, before = time.monotonic_ns(), cpu_times()


# torch has no public hook where a batch is made. The two classes that make them are wrapped, by the names that they
# have had since torch 1.2. In a torch without them there are no spans of the kind `fetch`, and a worker is taken to
# work from its first event to its last.
FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


def record_fetches() -> None:
    """Record the fetches of this process from now on, where torch is loaded; twice is once."""
    module = sys.modules.get("torch.utils.data._utils.fetch")
    for name in FETCHERS:
        fetcher = getattr(module, name, None)
        fetch = getattr(fetcher, "fetch", None)
        if fetch is not None and not hasattr(fetch, "__wrapped__"):
            fetcher.fetch = _recorded(fetch)  # type: ignore[union-attr] # a class, since it has a method


def _recorded(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def recorded(self: object, indices: object) -> Any:
        if hooks.active is None:
            return fetch(self, indices)
        begin, before = time.monotonic_ns(), cpu_times()
        try:
            return fetch(self, indices)
        finally:
            _record_making("fetch", "loader.fetch", begin, before)

    return recorded
