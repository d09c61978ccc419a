"""TaskDataset: the records of a dispatcher's tasks as a data set for PyTorch.

Each worker of a `DataLoader` leases tasks for itself and reads them. Only the main process knows which batches were
used: a batch carries the spans of tasks that it is made of, and the main process reports them when it is done with the
batch. What a worker read and no batch brought is dispatched again.
"""

from __future__ import annotations

import os
import secrets
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset

from ...core import process
from ...core.threads import Flag
from ...dispatch import JobFailedError, Task, TaskDispatcher, TaskType
from ...dispatch.leasing import HeldTask, LeasedTasks
from ...readers.data.shards import adopt
from .datasets import guarded

MAX_WAIT = 0.25
"""Seconds between two requests for a task while none is free, at most: the ranks of a job wait for each other."""
_END = object()
_ENDED = Flag()  # what is left is reported by one attempt each, whether or not the database answers
_ENDED.set()


class NoRecord:
    """Stands for a record, or a batch, while no task is free."""


class Tagged(NamedTuple):
    """A batch on its way from a worker to the training loop, with the spans of tasks that it is made of."""

    data: Any
    tag: Any


class SharedNumber:
    """A number, 0 at first, in memory that a main process shares with its workers."""

    def __init__(self) -> None:
        self._made_in = os.getpid()
        number = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._number: torch.Tensor = number.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, number: int) -> None:
        """Set the number, of this main process.

        A rank that got this by a fork, or from torch.multiprocessing, has that in common with the others until now.
        """
        if self._made_in != os.getpid():
            SharedNumber.__init__(self)
        self._number[0] = number

    def get(self) -> int:
        """Return the number."""
        return int(self._number[0])

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copy has memory of its own, which is shared anew.
        self._number.share_memory_()  # type: ignore[no-untyped-call]


class TaskSpan(NamedTuple):
    """Records of one task in a batch, or the task's failure."""

    task: Task
    lease: int
    records: int
    error: str = ""


class TaskDataset(IterableDataset[Any]):
    """The records of the tasks that this process, or each of its workers, leases from a job.

    Give it to a `Loader`. A batch counts as processed when the next one is asked for. One iteration is the job: all its
    epochs. It raises `JobFailedError` when the job has ended with failed tasks.

    Args:
        dispatcher: the job's, or the URL of its database.
        reader: the data reader that the job's shards came from.
        transform: makes a sample of a record, in the worker.
        worker_id: a name, unique among the processes that run; one is made if it is None.
        type: of the tasks; None takes evaluation tasks and those of the job's epochs.
        on_train_end: called with the TRAIN_END_CALLBACK task in the process that gets it.
        idle_batches: a batch is None while no task is free but one may be later. Processes that train in step, with a
            collective operation for each batch, need those: others finish the last tasks only while this one takes
            part.
    """

    def __init__(
        self,
        dispatcher: TaskDispatcher | str,
        reader: Any,
        transform: Callable[[Any], Any] | None = None,
        *,
        worker_id: str | None = None,
        type: TaskType | None = None,
        on_train_end: Callable[[Task], object] | None = None,
        idle_batches: bool = False,
    ) -> None:
        self.dispatcher = TaskDispatcher(dispatcher) if isinstance(dispatcher, str) else dispatcher
        self.reader = adopt(reader)
        self.transform = transform
        self.type = type
        self.worker_id = worker_id or _made_name()
        self._named_in = 0 if worker_id else os.getpid()  # the process that the name was made for
        self._on_train_end = on_train_end
        self._idle_batches = idle_batches
        self.ahead = False
        """True while the batch in hand was taken ahead of its use, by Lightning, and so is still to come in a state."""
        self._running = False
        self._passes = 0  # that have begun
        self._notice = SharedNumber()  # of the pass that the main process iterates over; 0 while there is none
        self._pass: _Pass | None = None  # of this process
        self._in_hand: tuple[TaskSpan, ...] = ()  # of the batch that was handed out last
        self._partly: dict[int, TaskSpan] = {}  # tasks with records that were counted and not reported, by lease

    # ---- states

    @property
    def epoch(self) -> int:
        """The number of the job's epoch."""
        return self.dispatcher.status().epoch

    def set_epoch(self, epoch: int) -> None:
        """Raise `RuntimeError`: the dispatcher counts the epochs."""
        raise RuntimeError("the epochs of a TaskDataset are counted by its dispatcher")

    def state_dict(self) -> dict[str, Any]:
        """Report what was consumed, the batch in hand included (unless it is `ahead`), and return the state of the job.

        The state is of all workers of the job. Where several processes train, call `flush` in each of them, let them
        wait for each other, and save the state of one.
        """
        self.flush()
        return self.dispatcher.state_dict()

    def flush(self) -> None:
        """Report what was consumed, the batch in hand included unless it is `ahead`."""
        if not self.ahead:
            self._count(self.dispatcher)
        for lease, span in list(self._partly.items()):
            if not self.dispatcher.renew(span.task, lease, span.records):
                self._refused(span)
                del self._partly[lease]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Put the job back to a state, for all workers; call it in one process, before the iteration begins."""
        if self._running:
            raise RuntimeError("a state is loaded before the iteration begins")
        self._partly.clear()
        self.dispatcher.load_state_dict(state_dict)

    # ---- what the workers of a Loader call

    def __iter__(self) -> Iterator[Any]:
        if not self._notice.get():
            raise RuntimeError("a TaskDataset is read by a Loader, which counts its batches")
        self._pass = _Pass(self, self._name, self._notice)
        return self._pass

    @property
    def _name(self) -> str:
        """The name under which tasks are leased; data sets of one process, one of them for evaluations, share none."""
        return self.worker_id if self.type is None else f"{self.worker_id}/{self.type.name}"

    def spans(self) -> tuple[TaskSpan, ...]:
        """Return, and forget, the spans of the samples that this process took since the last call."""
        return () if self._pass is None else self._pass.take_spans()

    # ---- what a Loader calls

    def tagged(self, collate_fn: Callable[[Any], Any], *, batched: bool) -> TaskCollate:
        """Return a `collate_fn` that adds the spans of tasks to what another one returns.

        `batched` is False where `batch_size` is None, and samples are no lists.
        """
        return TaskCollate(self, collate_fn, batched)

    def of_batches(self, begin: Callable[[], Iterator[Any]], workers: int, drop_last: bool) -> Iterator[Any]:
        """Yield the batches of a loader, which `begin()` begins, and report those that were used."""
        if drop_last:
            raise ValueError("drop_last=True would leave records of each job unprocessed for ever")
        if self._running:
            raise RuntimeError("the data set is iterated already")
        self._running, generation = True, process.generation()
        self._passes += 1
        self._notice.set(self._passes)
        if self._named_in not in (0, os.getpid()):  # another rank, which got this data set by a fork or a pickle
            self.worker_id, self._named_in = _made_name(), os.getpid()
        batches = None
        try:
            batches = begin()
            for batch in batches:
                self._in_hand = batch.tag
                is_idle = isinstance(batch.data, NoRecord)
                try:
                    if self._idle_batches or not is_idle:
                        yield None if is_idle else batch.data
                except GeneratorExit:  # the batch that the loop was left in was not consumed
                    self._in_hand = ()
                    raise
                self._count(self.dispatcher)
            if self.dispatcher.status().state == "failed":
                raise JobFailedError(self.dispatcher.job, self.dispatcher.failed())
        finally:
            del batches  # which ends the workers
            self._running = False
            if not process.inherited(generation):  # the tasks are the parent's
                self._end()

    # ---- what was consumed

    def _end(self) -> None:
        """End a pass: report what was counted, and free the tasks."""
        try:
            self._give_back()
        except RuntimeError:  # torch's handler of SIGCHLD raises anywhere, once, for a worker that was killed
            self._give_back()
            raise
        finally:
            self._notice.set(0)  # workers that live on give back what they have leased since

    def _count(self, dispatcher: TaskDispatcher) -> None:
        """Count the batch in hand as consumed, and report the tasks that are complete.

        May be called again after an exception, of a signal handler say, has interrupted it: nothing is counted twice.
        """
        partly = dict(self._partly)
        for span in self._in_hand:
            before = partly.get(span.lease)
            partly[span.lease] = span._replace(records=span.records + (before.records if before is not None else 0))
        self._in_hand, self._partly = (), partly  # no handler runs between the two
        for lease, span in partly.copy().items():
            if span.error:
                dispatcher.report(span.task, lease, success=False, records=span.records, error=span.error)
                del partly[lease]
            elif span.task.type == TaskType.TRAIN_END_CALLBACK:
                del partly[lease]  # first: the user's function is not called again
                self._end_training(span, dispatcher)
            elif span.records >= span.task.end:
                if not dispatcher.report(span.task, lease):
                    self._refused(span)
                del partly[lease]

    def _end_training(self, span: TaskSpan, dispatcher: TaskDispatcher) -> None:
        try:
            if self._on_train_end is not None:
                self._on_train_end(span.task)
        except Exception as exc:  # the callback is the user's: its task fails, and the job goes on
            error = f"{type(exc).__name__}: {exc}"
            dispatcher.report(span.task, span.lease, success=False, error=error)
            return
        dispatcher.report(span.task, span.lease)

    def _refused(self, span: TaskSpan) -> None:
        warnings.warn(
            f"the lease on {span.task.end} records of {span.task.shard_name!r} ended before they were reported: they "
            "are dispatched again",
            stacklevel=3,
        )

    def _give_back(self) -> None:
        """Report what was counted of tasks that are not done, and free the tasks of all workers."""
        dispatcher = self.dispatcher.until(_ENDED)
        if self._pass is not None:
            self._pass.close()
        self._count(dispatcher)
        for lease, span in list(self._partly.items()):
            dispatcher.report(span.task, lease, records=span.records)
            del self._partly[lease]
        with suppress(LookupError):
            dispatcher.recover(self._name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None, "_partly": {}, "_in_hand": (), "_running": False}


def _made_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class TaskCollate:
    """A `collate_fn` around another, which adds the spans of tasks."""

    def __init__(self, dataset: TaskDataset, collate_fn: Callable[[Any], Any], batched: bool) -> None:
        self._dataset = dataset  # in a worker, the very object that the samples come from: they are pickled together
        self._collate = collate_fn
        self._batched = batched

    def __call__(self, samples: Any) -> Tagged:
        spans = self._dataset.spans()
        if not self._batched:
            return Tagged(samples if isinstance(samples, NoRecord) else guarded(self._collate, samples), spans)
        samples = [sample for sample in samples if not isinstance(sample, NoRecord)]
        return Tagged(guarded(self._collate, samples) if samples else NoRecord(), spans)


class _Pass(Iterator[Any]):
    """The records of the tasks that this process leases; `NoRecord` until the next batch while there is none."""

    def __init__(self, dataset: TaskDataset, name: str, notice: SharedNumber) -> None:
        self._transform = dataset.transform
        number = notice.get()
        self._tasks = LeasedTasks(
            dataset.dispatcher,
            dataset.reader,
            name,
            dataset.type,
            self._ended,
            max_wait=MAX_WAIT,
            active=lambda: notice.get() == number,
        )
        self._chunks = self._tasks.chunks()
        self._records: Iterator[Any] = iter(())
        self._spans: list[TaskSpan] = []
        self._count = 0  # records of the present task since the last span
        self._held: HeldTask | None = None
        self._waits = False

    def _ended(self, held: HeldTask) -> None:
        # The main process has reported it, or the lease is over: then the main process will notice.
        held.lost = True
        self._tasks.release(held)

    def __next__(self) -> Any:
        while not self._waits:
            record = next(self._records, _END)
            if record is not _END:
                sample = record if self._transform is None else guarded(self._transform, record)
                self._count += 1
                return sample
            self._end_span()
            self._waits = not self._next_chunk()
        return NoRecord()

    def _next_chunk(self) -> bool:
        """Take the next chunk; return False if it has no records."""
        try:
            chunk = next(self._chunks)
        except (JobFailedError, StopIteration):  # the main process raises the former
            chunk = None
        if chunk is None:
            self.close()
            if self._spans:
                return False
            raise StopIteration
        if chunk.held is None:
            return False
        if chunk.failure is not None:
            self._add(chunk.held, 0, f"{type(chunk.failure).__name__}: {chunk.failure}")
            return False
        if chunk.held.task.type == TaskType.TRAIN_END_CALLBACK:
            self._add(chunk.held, 0)
            return False
        if not chunk.held.lost:
            self._held, self._records = chunk.held, iter(chunk.records)
        return True

    def _end_span(self) -> None:
        if self._held is not None and self._count:
            self._add(self._held, self._count)
        self._count = 0

    def _add(self, held: HeldTask, count: int, error: str = "") -> None:
        task = held.task._replace(start=0, end=held.size, indices=None)  # small: only the number of records counts
        self._spans.append(TaskSpan(task, held.lease, count, error))

    def take_spans(self) -> tuple[TaskSpan, ...]:
        """Return, and forget, the spans since the last call."""
        self._end_span()
        spans, self._spans = tuple(self._spans), []
        self._waits = False
        return spans

    def close(self) -> None:
        """End the threads; the main process gives the tasks back."""
        with suppress(OSError):  # the database is away: leases end by themselves
            self._tasks.close()

    def __del__(self) -> None:
        if hasattr(self, "_tasks"):
            self.close()
