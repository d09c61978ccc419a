"""TaskDataset: tasks leased by DataLoader workers, reported when the main process has consumed their records."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from fsabs.adapters.torch import Loader, TaskDataset
from fsabs.dispatch import JobFailedError, Task, TaskDispatcher, TaskType
from fsabs.readers.data import AbstractDataReader

from .workers import forked, samples

pytestmark = pytest.mark.timeout(120)
RECORDS, PER_TASK = 60, 7
END: Any = object()


class Numbers(AbstractDataReader):
    """Records 0 to `RECORDS`; `bad` ones can't be read."""

    def __init__(self, bad: int = -1) -> None:
        super().__init__()
        self.bad = bad

    def create_shards(self) -> dict[str, int]:
        return {"a": RECORDS}

    def read_records(self, task: Any) -> Iterator[int]:
        for number in task.numbers():
            if number == self.bad:
                raise OSError(f"record {number} can't be read")
            yield number


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TaskDispatcher]:
    with create(f"sqlite:///{tmp_path}/job.db") as dispatcher:
        yield dispatcher


def create(url: str, **settings: Any) -> TaskDispatcher:
    settings = {"records_per_task": PER_TASK, "train_end_callback": False, "seed": 3, **settings}
    return TaskDispatcher.create(url, training=Numbers(), **settings)


@pytest.mark.parametrize(
    ("workers", "method"), [(0, None), (2, "fork"), pytest.param(2, "forkserver", marks=pytest.mark.nightly)]
)
def test_every_record_comes_once(job: TaskDispatcher, workers: int, method: str | None) -> None:
    loader = Loader(
        TaskDataset(job, Numbers()), batch_size=4, num_workers=workers, multiprocessing_context=method, collate_fn=list
    )
    batches = list(loader)
    assert sorted(samples(batches)) == list(range(RECORDS))
    assert max(map(len, batches)) == 4
    status = job.status()
    assert (status.state, status.tasks.records) == ("finished", RECORDS)
    with pytest.raises(TypeError, match="is not known"):
        len(loader)


def test_epochs_and_evaluations_end_while_batches_are_under_way(tmp_path: Path) -> None:
    """No worker waits for a task whose records lie in a batch that the main process has not asked for."""
    ended: list[Task] = []
    with create(f"sqlite:///{tmp_path}/x.db", num_epochs=3, train_end_callback=True, records_per_task=30) as job:
        dataset = TaskDataset(job, Numbers(), lambda number: -number, on_train_end=ended.append)
        loader = Loader(dataset, batch_size=25, num_workers=2, multiprocessing_context="fork")
        assert Counter(samples(loader)) == {-number: 3 for number in range(RECORDS)}
        assert len(ended) == 1
        assert job.status().state == "finished"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_the_loop_is_left_in_is_dispatched_again(job: TaskDispatcher, workers: int) -> None:
    consumed: list[int] = []
    loader = Loader(TaskDataset(job, Numbers()), 4, **forked(workers))
    for number, batch in enumerate(loader):
        if number == 5:
            break
        consumed += batch.tolist()
    del loader, batch
    status = job.status()
    assert (status.tasks.records, status.tasks.doing) == (len(consumed), 0)
    rest = samples(Loader(TaskDataset(job, Numbers()), 4))
    assert sorted(consumed + rest) == list(range(RECORDS))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_what_was_consumed(job: TaskDispatcher, workers: int) -> None:
    def loader() -> Loader:
        return Loader(TaskDataset(job, Numbers()), 4, **forked(workers))

    first, consumed, state = loader(), [], None
    for number, batch in enumerate(first):
        if number <= 5:
            consumed += batch.tolist()
        if number == 5:
            state = first.state_dict()
    assert job.status().state == "finished"
    assert state is not None
    resumed = loader()
    resumed.load_state_dict(state)
    assert job.status().tasks.records == len(consumed)
    assert sorted(consumed + samples(resumed)) == list(range(RECORDS))
    assert job.status().state == "finished"


def test_a_lost_lease_is_said_once(job: TaskDispatcher) -> None:
    """And not with each state of the days that follow."""
    loader = Loader(TaskDataset(job, Numbers()), 4)
    batches = iter(loader)
    next(batches)
    for worker in job.status().workers:
        job.recover(worker)
    with pytest.warns(UserWarning, match="ended before they were reported"):
        loader.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.state_dict()
        del batches


def test_a_killed_worker_loses_and_doubles_no_record(job: TaskDispatcher) -> None:
    consumed: list[int] = []
    loader = Loader(TaskDataset(job, Numbers()), 4, num_workers=2, multiprocessing_context="fork", prefetch_factor=1)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for batch in loader:
            consumed += batch.tolist()
            if len(consumed) >= 10:  # a batch at the end of a worker's tasks may be a smaller one
                for child in multiprocessing.active_children():
                    os.kill(child.pid or 0, signal.SIGKILL)
    rest = samples(Loader(TaskDataset(job, Numbers()), 4))
    assert sorted(consumed + rest) == list(range(RECORDS))
    assert job.status().tasks.records == RECORDS


@pytest.mark.filterwarnings("ignore:the lease on")  # of what was reported twice
@pytest.mark.parametrize("done", [False, True])
def test_a_report_that_a_signal_handler_interrupts_is_made_up_for(
    done: bool, job: TaskDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's handler of SIGCHLD raises anywhere, before what a report does or behind it."""
    consumed: list[int] = []
    dataset, report, calls = TaskDataset(job, Numbers()), job.report, itertools.count()

    def interrupted(*arguments: Any, **more: Any) -> bool:
        first = next(calls) == 0
        if first and not done:
            raise RuntimeError("DataLoader worker (pid 1) is killed")
        accepted = report(*arguments, **more)
        if first:
            raise RuntimeError("DataLoader worker (pid 1) is killed")
        return accepted

    with monkeypatch.context() as patch:
        patch.setattr(dataset.dispatcher, "report", interrupted)
        with pytest.raises(RuntimeError, match="is killed"):
            for batch in Loader(dataset, 4):
                consumed += batch.tolist()
    rest = samples(Loader(TaskDataset(job, Numbers()), 4))
    assert sorted(consumed + rest) == list(range(RECORDS))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_record_that_can_not_be_read_fails_the_job(tmp_path: Path, workers: int) -> None:
    found: list[int] = []
    with create(f"sqlite:///{tmp_path}/x.db", max_failures=1) as job:
        dataset = TaskDataset(job, Numbers(bad=30))
        with pytest.raises(JobFailedError, match="record 30 can't be read"):
            for batch in Loader(dataset, 4, **forked(workers)):
                found += batch.tolist()
        assert job.retry_failed() == 1
        found += samples(Loader(TaskDataset(job, Numbers()), 4))
        assert sorted(found) == list(range(RECORDS))


def test_processes_that_train_in_step_do_not_wait_for_each_other_for_ever(job: TaskDispatcher) -> None:
    """Each step is a barrier, as a collective operation is; a process without a task still takes part."""
    barrier = threading.Barrier(2, timeout=30)
    ended = [False, False]
    found: list[int] = []

    def train(rank: int) -> None:
        steps = iter(Loader(TaskDataset(TaskDispatcher(job_url), Numbers(), idle_batches=True), 4, collate_fn=list))
        while not all(ended):
            batch = next(steps, END)
            if batch is END:
                ended[rank] = True
            elif batch is not None:
                found.extend(batch)
            barrier.wait()
            barrier.wait() if all(ended) else None

    job_url = job.url
    threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert sorted(found) == list(range(RECORDS))


def test_a_loop_with_living_workers_is_left_again_and_again(tmp_path: Path) -> None:
    with create(f"sqlite:///{tmp_path}/x.db", records_per_task=3) as job:
        loader = Loader(TaskDataset(job, Numbers(), _slow), 4, persistent_workers=True, **forked(2))
        consumed: list[int] = []
        for _ in range(3):
            for number, batch in enumerate(loader):
                if number == 2:
                    break
                consumed += batch.tolist()
        with warnings.catch_warnings(record=True) as found:
            consumed += samples(loader)  # for 300 s if a lease was left
        assert not found
        assert sorted(consumed) == list(range(RECORDS))
        assert job.status().state == "finished"


def _slow(number: int) -> int:
    time.sleep(0.05)
    return number


def test_a_forked_child_frees_no_task_of_its_parent(job: TaskDispatcher) -> None:
    steps = iter(Loader(TaskDataset(job, Numbers()), 4))
    first = next(steps)

    def leave() -> None:
        nonlocal steps
        del steps

    child = multiprocessing.get_context("fork").Process(target=leave)
    child.start()
    child.join(50)
    assert child.exitcode == 0
    with warnings.catch_warnings(record=True) as found:
        assert sorted(samples([first, *steps])) == list(range(RECORDS))
    assert not found


def test_an_evaluation_frees_no_task_of_the_training_beside_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"records_per_task": PER_TASK, "train_end_callback": False}
    with TaskDispatcher.create(
        f"sqlite:///{tmp_path}/x.db", training=Numbers(), evaluation=Numbers(), **settings
    ) as job:
        batches = iter(Loader(TaskDataset(job, Numbers(), worker_id="rank 0", type=TaskType.TRAINING), 4))
        first = next(batches)
        job.evaluate(1)
        evaluation = TaskDataset(job, Numbers(), worker_id="rank 0", type=TaskType.EVALUATION)
        assert sorted(samples(Loader(evaluation, 4))) == list(range(RECORDS))
        with warnings.catch_warnings(record=True) as found:
            assert sorted(samples([first, *batches])) == list(range(RECORDS))
        assert not found


def test_misuse_is_refused(job: TaskDispatcher) -> None:
    dataset = TaskDataset(job, Numbers())
    with pytest.raises(RuntimeError, match="read by a Loader"):
        list(DataLoader(dataset, num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(ValueError, match="drop_last=True would leave records"):
        list(Loader(dataset, 4, drop_last=True))
    with pytest.raises(RuntimeError, match="counted by its dispatcher"):
        Loader(dataset).set_epoch(1)
    batches = iter(Loader(dataset, 4))
    next(batches)
    with pytest.raises(RuntimeError, match="iterated already"):
        next(iter(Loader(dataset, 4)))
    with pytest.raises(RuntimeError, match="before the iteration begins"):
        dataset.load_state_dict({})
