"""Starting and stopping: which process traces into which folder, what a forked child does, a program's own marks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

from .. import hooks, process
from . import fetches
from .recorder import EventRecorder, Recorder
from .ring import CAPACITY, Ring
from .schema import (
    SCHEMA,
)
from .writer import MAX_BYTES, Flusher, TraceFile

T = TypeVar("T")
Detail = Literal["events", "histograms"]

FOLDER_VARIABLE = "FSABS_TRACE"
DETAIL_VARIABLE = "FSABS_TRACE_DETAIL"


class TraceSettings(NamedTuple):
    """The settings that all processes of a trace share."""

    folder: str
    detail: Detail
    max_bytes: int


class _Running(NamedTuple):
    """A trace of this process that has begun."""

    plan: TraceSettings
    recorder: Recorder
    flusher: Flusher


_plan: TraceSettings | None = None
_running: _Running | None = None
_lock = threading.RLock()


def start(folder: str | os.PathLike[str], *, detail: Detail = "events", max_bytes: int = MAX_BYTES) -> None:
    """Trace this process, and those that it starts from now on, into `folder`, which is made if it is missing.

    What a process was tracing before ends; tracing into the same folder goes on. Children find the folder by their
    memory (forked) or by `$FSABS_TRACE` (spawned), which is set here. Take a new folder for each run.

    Args:
        folder: on a disk of this machine, best; several machines may share it.
        detail: `events` keeps every event; `histograms` only counts, and its files stay small.
        max_bytes: what the file of one process may grow to (compressed); what comes after is dropped, and counted.

    Raises `OSError` where the files can't be made, and `ValueError` for a detail that there isn't.
    """
    global _plan
    if detail not in ("events", "histograms"):
        raise ValueError(f"detail is 'events' or 'histograms', not {detail!r}")
    plan = TraceSettings(os.path.abspath(os.fspath(folder)), detail, max_bytes)
    with _lock:
        if _plan == plan:
            return
        _leave()
        recorder = _begin(plan)
        _plan = plan
        os.environ[FOLDER_VARIABLE] = plan.folder
        os.environ[DETAIL_VARIABLE] = plan.detail
        hooks.install(recorder)


def stop() -> None:
    """End the trace of this process: all is written when this returns. Without a trace, nothing happens."""
    with _lock:
        _leave()


def _leave() -> None:
    global _plan
    if _plan is None and not isinstance(hooks.active, hooks.Deferred):
        return
    _plan = None
    os.environ.pop(FOLDER_VARIABLE, None)
    os.environ.pop(DETAIL_VARIABLE, None)
    _take_away()
    _finish()


def _take_away() -> None:
    """The instrument, if it is ours."""
    if isinstance(hooks.active, Recorder | hooks.Deferred):
        hooks.install(None)


@contextlib.contextmanager
def trace(folder: str | os.PathLike[str], *, detail: Detail = "events", max_bytes: int = MAX_BYTES) -> Iterator[None]:
    """`start()` now and `stop()` at the end, as a context manager; within another into the same folder, neither."""
    before = _plan
    start(folder, detail=detail, max_bytes=max_bytes)
    mine = _plan
    try:
        yield
    finally:
        if mine is not before:
            stop()


def current() -> TraceSettings | None:
    """Return this process's trace, or None."""
    if _plan is None and isinstance(hooks.active, hooks.Deferred):
        return _environments_plan()
    return _plan


def resume(plan: TraceSettings) -> None:
    """Trace as another process does, from the first event on, if this one traces nothing."""
    global _plan
    with _lock:
        if hooks.active is None and _plan is None:
            _plan = plan
            hooks.install(hooks.Deferred(functools.partial(_begin_quietly, plan)))


def from_environment() -> Recorder | None:
    """The recorder that `$FSABS_TRACE` asks for."""
    global _plan
    plan = _environments_plan()
    if plan is None:
        return None
    with _lock:
        if _plan is None:
            _plan = plan
        return _begin_quietly(_plan)


def _environments_plan() -> TraceSettings | None:
    folder = os.environ.get(FOLDER_VARIABLE)
    detail: Detail = "histograms" if os.environ.get(DETAIL_VARIABLE) == "histograms" else "events"
    return TraceSettings(os.path.abspath(folder), detail, MAX_BYTES) if folder else None


# ---- one process


def _begin_quietly(plan: TraceSettings) -> Recorder | None:
    """As `_begin`, but a process that can't trace warns instead of raising."""
    try:
        with _lock:
            if _plan is not plan:  # it was stopped meanwhile
                return None
            return _running.recorder if _running is not None else _begin(plan)
    except OSError as exc:
        warnings.warn(f"not traced, since {plan.folder} can't be written to: {exc}", RuntimeWarning, stacklevel=2)
        return None


def _begin(plan: TraceSettings) -> Recorder:
    global _running
    fetches.watch()
    os.makedirs(plan.folder, exist_ok=True)
    header = _header(plan)
    host = re.sub(r"[^A-Za-z0-9.-]", "_", header["host"])
    base = os.path.join(plan.folder, f"trace-{host}-{header['pid']}-{header['wall_ns']:x}")
    events = plan.detail == "events"
    ring = Ring(base + ".ring", header, CAPACITY if events else 0)
    try:
        file = TraceFile(base + ".json.gz", header, plan.max_bytes)
    except BaseException:
        ring.remove()
        raise
    recorder = EventRecorder(ring) if events else Recorder(ring)
    flusher = Flusher(recorder, file)
    _running = _Running(plan, recorder, flusher)
    flusher.start()
    _at_end_of_multiprocessing()
    return recorder


def _finish() -> None:
    global _running
    running, _running = _running, None
    if running is not None:
        running.flusher.finish()


def _header(plan: TraceSettings) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "host": os.uname().nodename,
        "boot": _boot(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "rank": _rank(),
        "worker": _worker(),
        "program": os.path.basename(sys.argv[0] if sys.argv else "") or "python",
        "monotonic_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "events": plan.detail == "events",
    }


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:  # not Linux: each process is placed by its own wall clock
        return f"{os.uname().nodename}:{os.getpid()}"


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


def _at_end_of_multiprocessing() -> None:
    """Such a child ends without `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _finish_at_exit, exitpriority=0)


@atexit.register
def _finish_at_exit() -> None:
    if _running is not None:
        _take_away()
        _finish()


def _in_child() -> None:
    """The parent's ring and file are its own; the child begins others when something happens in it."""
    global _running, _lock
    _lock = threading.RLock()
    running, _running = _running, None
    if running is not None:
        process.abandon(running)
    if _plan is not None:
        hooks.install(hooks.Deferred(functools.partial(_begin_quietly, _plan)))


os.register_at_fork(after_in_child=_in_child)


# ---- a program's own marks


class span:  # noqa: N801 - used like a function
    """A piece of the program's own work, as a context manager: `with fsabs.trace.span("decode"): ...`."""

    __slots__ = ("_begin", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin = 0

    def __enter__(self) -> span:
        if hooks.active is not None:
            self._begin = time.monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        instrument = hooks.active
        if instrument is not None and self._begin:
            instrument.record_span("span", f"user.{self._name}", self._begin, 0, "", kind.__name__ if kind else "")
            self._begin = 0


class _Mark(threading.local):
    """The beginning of a thread's step."""

    begin = 0
    number = 0
    generation = -1


_mark = _Mark()


def step() -> None:
    """Mark the boundary of two training steps: from one call to the next, in one thread, is a step.

    What its thread waits for files in between is its wait, the rest its compute; see `steps`, too.
    """
    instrument = hooks.active
    if instrument is None:
        _mark.begin = 0
        return
    if _mark.begin and _mark.generation == process.generation():
        instrument.record_span("step", "train.step", _mark.begin, _mark.number)
        _mark.number += 1
    else:
        _mark.number = 0
    _mark.begin, _mark.generation = time.monotonic_ns(), process.generation()


def steps(batches: Iterable[T]) -> Iterator[T]:
    """The items of `batches` (a DataLoader, say), each with a step of its own, in which waiting for it counts as wait.

    for batch in fsabs.trace.steps(loader):
        train(batch)
    """
    fetches.watch()
    _mark.begin = 0
    step()
    begin = time.monotonic_ns()  # workers are started by `iter`
    items = iter(batches)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        instrument = hooks.active
        if instrument is not None:
            instrument.record_span("wait", "steps.next", begin)
        yield item
        step()
        begin = time.monotonic_ns()
