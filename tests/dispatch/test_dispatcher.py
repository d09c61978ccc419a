"""TaskDispatcher on SQLite and on PostgreSQL: dispatch, leases, failures, epochs, evaluation, the end of a job."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fsabs.dispatch import Dispatch, JobFailedError, Task, TaskDispatcher, TaskType, jobs

SHARDS = [("a", 0, 10), ("b", 5, 7)]
LEASE = 2.0
"""Seconds of a lease that is to run out: what comes before that has them, on a busy machine, too."""


def create(url: str, **settings: Any) -> TaskDispatcher:
    settings = {"training": SHARDS, "records_per_task": 4, "train_end_callback": False, **settings}
    return TaskDispatcher.create(url, **settings)


def drain(dispatcher: TaskDispatcher, worker: str = "w", type: TaskType | None = None) -> Iterator[Task]:
    """Yield each task that a worker gets, and report it as done when the next one is asked for."""
    while (dispatch := dispatcher.get(worker, type)).task.type not in (TaskType.NONE, TaskType.WAIT):
        yield dispatch.task
        assert dispatcher.report(*dispatch)


def pieces(tasks: Any) -> list[tuple[str, int, int]]:
    return [(task.shard_name, task.start, task.end) for task in tasks]


WHOLE = [("a", 0, 4), ("a", 4, 8), ("a", 8, 10), ("b", 5, 9), ("b", 9, 12)]


def test_shards_are_cut_into_tasks_in_their_order(url: str) -> None:
    with create(url) as dispatcher:
        assert pieces(drain(dispatcher)) == WHOLE
        assert dispatcher.get("w") == Dispatch(Task(type=TaskType.NONE))
        status = dispatcher.status()
        assert (status.state, status.tasks.done, status.tasks.records) == ("finished", 5, 17)


def test_a_seed_orders_each_epoch_anew_and_repeats(url: str) -> None:
    with create(url, seed=7, num_epochs=3, records_per_task=1) as dispatcher:
        found = pieces(drain(dispatcher))
    epochs = [found[0:17], found[17:34], found[34:51]]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert len({tuple(epoch) for epoch in epochs}) == 3
    with create(url, job="again", seed=7, num_epochs=3, records_per_task=1) as again:
        assert pieces(drain(again)) == found


def test_records_are_shuffled_within_tasks_which_go_on_where_they_stopped(url: str) -> None:
    with create(url, seed=1, shuffle_records=True, num_epochs=2, records_per_task=10) as dispatcher:
        task, lease = dispatcher.get("w")
        assert dispatcher.report(task, lease, records=3)
        rest, lease = dispatcher.get("w")
        assert task.indices is not None
        assert rest.indices == task.indices[3:]
        assert dispatcher.report(rest, lease)
        tasks = [task, *drain(dispatcher)]
    seen = Counter((task.shard_name, number) for task in tasks for number in task.numbers())
    assert set(seen.values()) == {2}
    assert len(seen) == 17
    assert len({task.indices for task in tasks}) == 4


def test_each_kind_of_job(url: str) -> None:
    for mode in ("training", "evaluation", "prediction"):
        settings: Any = {mode: SHARDS, "records_per_task": 100, "train_end_callback": False}
        with TaskDispatcher.create(url, mode, **settings) as dispatcher:
            tasks = list(drain(dispatcher))
            assert {task.type for task in tasks} == {TaskType[mode.upper()]}
            assert pieces(tasks) == [("a", 0, 10), ("b", 5, 12)]


def test_a_job_without_end_goes_on(url: str) -> None:
    with create(url, num_epochs=0) as dispatcher:
        tasks = drain(dispatcher)
        assert [pieces([next(tasks)])[0] for _ in range(50)] == WHOLE * 10
        assert dispatcher.status().epoch == 9


def test_no_epoch_begins_before_the_one_before_has_ended(url: str) -> None:
    with create(url, num_epochs=2, records_per_task=10) as dispatcher:
        one, two = dispatcher.get("1"), dispatcher.get("2")
        assert dispatcher.report(*one)
        assert dispatcher.get("1").task.type == TaskType.WAIT
        assert dispatcher.report(*two)
        assert dispatcher.get("1").task.type == TaskType.TRAINING


def test_without_a_barrier_the_next_epoch_begins(url: str) -> None:
    with create(url, num_epochs=2, records_per_task=10, barrier=False) as dispatcher:
        held = dispatcher.get("slow")
        others = [dispatcher.get("1") for _ in range(3)]
        assert all(other.task.type == TaskType.TRAINING for other in others)
        assert all(dispatcher.report(*other) for other in others)
        assert dispatcher.get("1").task.type == TaskType.WAIT  # the last epoch ends with all of its tasks
        assert dispatcher.report(*held)
        assert dispatcher.get("1").task.type == TaskType.NONE


def test_a_late_worker_changes_nothing(url: str) -> None:
    with create(url, lease_seconds=LEASE, training=[("a", 0, 4)]) as dispatcher:
        task, lease = dispatcher.get("late")
        assert dispatcher.get("w").task.type == TaskType.WAIT
        time.sleep(LEASE + 0.1)
        assert not dispatcher.renew(task, lease, 2)
        assert not dispatcher.report(task, lease)  # over, though no other has it yet
        again, second = dispatcher.get("w")
        assert (again.task_id, again.start, again.end) == (task.task_id, 0, 4)
        assert not dispatcher.report(task, lease)
        assert not dispatcher.report(task, lease, success=False, error="late")
        assert dispatcher.report(again, second)
        assert dispatcher.get("w").task.type == TaskType.NONE
        assert dispatcher.status().tasks.records == 4


def test_a_renewed_lease_lasts_and_its_progress_counts(url: str) -> None:
    with create(url, lease_seconds=LEASE, training=[("a", 0, 10)], records_per_task=10) as dispatcher:
        task, lease = dispatcher.get("w")
        for done in range(1, 5):
            time.sleep(LEASE / 3)
            assert dispatcher.renew(task, lease, done)
        assert dispatcher.status().tasks.records == 4
        time.sleep(LEASE + 0.1)
        rest, second = dispatcher.get("w2")  # the first one has died: its four records are accounted for
        assert (rest.start, rest.end) == (4, 10)
        assert dispatcher.report(rest, second, records=5)
        last, third = dispatcher.get("w3")
        assert (last.start, last.end) == (9, 10)
        assert dispatcher.report(last, third)
        assert [entry.records for entry in dispatcher.ledger()] == [10]


def test_a_report_may_be_made_twice(url: str) -> None:
    with create(url, max_failures=1) as dispatcher:
        task, lease = dispatcher.get("w")
        assert dispatcher.report(task, lease)
        assert dispatcher.report(task, lease)
        assert dispatcher.status().tasks.records == 4
        task, lease = dispatcher.get("w")
        assert dispatcher.report(task, lease, success=False, error="x")
        assert dispatcher.report(task, lease, success=False, error="x")
        assert not dispatcher.report(task, lease)  # another report under the same lease
        list(drain(dispatcher))
        assert dispatcher.status().state == "finished"  # it was one failure, not two


def test_a_failed_task_is_tried_again_at_the_end_and_then_listed(url: str) -> None:
    with create(url, max_failures=2) as dispatcher:
        order = []
        with pytest.raises(JobFailedError, match="1 tasks of job 'default' failed: a 4 to 8: no such file") as caught:
            while True:
                task, lease = dispatcher.get("w")
                assert task.type != TaskType.WAIT
                order.append((task.shard_name, task.start))
                if (task.shard_name, task.start) == ("a", 4):
                    dispatcher.report(task, lease, success=False, error="no such file")
                else:
                    dispatcher.report(task, lease)
        assert order == [("a", 0), ("a", 4), ("a", 8), ("b", 5), ("b", 9), ("a", 4), ("a", 4)]
        (failed,) = caught.value.failed
        assert (failed.shard_name, failed.start, failed.failures, failed.reason) == ("a", 4, 3, "no such file")
        assert pickle.loads(pickle.dumps(caught.value)).failed == [failed]
        assert dispatcher.failed() == [failed]
        assert dispatcher.status().state == "failed"
        assert dispatcher.retry_failed() == 1
        assert pieces(drain(dispatcher)) == [("a", 4, 8)]
        assert dispatcher.get("w").task.type == TaskType.NONE


def test_a_worker_that_disappears_costs_its_tasks_nothing(url: str) -> None:
    with create(url, max_failures=0, lease_seconds=600) as dispatcher:
        for _ in range(5):
            held = [dispatcher.get("gone").task for _ in range(3)]
            assert dispatcher.status().workers == {"gone": 3}
            assert dispatcher.recover("gone") == 3
        assert dispatcher.recover("gone") == 0
        assert sorted(pieces(drain(dispatcher))) == WHOLE
        assert len(held) == 3


def test_evaluation_comes_first_and_once_a_version(url: str) -> None:
    with create(url, evaluation=[("v", 0, 5)]) as dispatcher:
        assert dispatcher.get("w", TaskType.EVALUATION).task.type == TaskType.NONE
        first = dispatcher.get("w")
        assert dispatcher.evaluate(30) == 2
        assert dispatcher.evaluate(30) == 0
        task, lease = dispatcher.get("w")
        assert (task.type, task.model_version, task.shard_name) == (TaskType.EVALUATION, 30, "v")
        assert dispatcher.get("w", TaskType.TRAINING).task.type == TaskType.TRAINING
        other = dispatcher.get("w2", TaskType.EVALUATION)
        assert dispatcher.get("w3", TaskType.EVALUATION).task.type == TaskType.WAIT
        assert dispatcher.report(task, lease)
        assert dispatcher.report(*other)
        assert dispatcher.status().evaluation.done == 2
        assert dispatcher.report(*first)


def test_evaluation_that_is_left_keeps_the_job_open(url: str) -> None:
    with create(url, evaluation=[("v", 0, 5)], training=[("a", 0, 4)], train_end_callback=True) as dispatcher:
        assert dispatcher.report(*dispatcher.get("w"))
        dispatcher.evaluate(1)
        assert dispatcher.get("w", TaskType.TRAINING).task.type == TaskType.WAIT
        types = [task.type for task in drain(dispatcher)]
        assert types == [TaskType.EVALUATION, TaskType.EVALUATION, TaskType.TRAIN_END_CALLBACK]


def test_one_callback_ends_training(url: str) -> None:
    with create(url, train_end_callback=True, lease_seconds=LEASE) as dispatcher:
        types = []
        while (dispatch := dispatcher.get("w")).task.type == TaskType.TRAINING:
            types.append(dispatch.task.type)
            dispatcher.report(*dispatch)
        assert dispatch.task.type == TaskType.TRAIN_END_CALLBACK
        assert dispatcher.get("w2").task.type == TaskType.WAIT
        time.sleep(LEASE + 0.1)  # its worker has died
        again = dispatcher.get("w2")
        assert again.task.type == TaskType.TRAIN_END_CALLBACK
        assert dispatcher.report(*again)
        assert dispatcher.get("w2").task.type == TaskType.NONE


def test_everything_is_in_the_database(url: str) -> None:
    create(url, num_epochs=2, seed=3).close()
    first = TaskDispatcher(url)
    task, lease = first.get("w")
    again = pickle.loads(pickle.dumps(first))
    assert again.report(task, lease)
    with pytest.raises(FileExistsError, match="there is a job 'default'"):
        create(url, num_epochs=2, seed=3)
    with pytest.raises(FileExistsError, match="other shards or settings"):
        create(url, num_epochs=2, seed=4, exist_ok=True)
    with pytest.raises(FileExistsError, match="other shards or settings"):
        create(url, num_epochs=2, seed=3, training=[("a", 0, 9)], exist_ok=True)
    with create(url, num_epochs=2, seed=3, exist_ok=True) as same:
        assert same.status().tasks.done == 1
        same.reset()
        assert same.status().tasks.done == 0
        assert len(list(drain(same))) == 10
        assert same.forget_epochs(1) == 5
        assert list(same.ledger(0)) == []
        assert len(list(same.ledger(1))) == 5


def test_jobs_share_a_database(url: str) -> None:
    with create(url, job="one") as one, create(url, job="two", training=[("z", 0, 1)]) as two:
        assert pieces(drain(two)) == [("z", 0, 1)]
        assert pieces(drain(one)) == WHOLE
    with pytest.raises(FileNotFoundError, match="no job is called 'three'; there are 'one', 'two'"):
        TaskDispatcher(url, "three")


def test_threads_share_a_dispatcher(url: str) -> None:
    with create(url, training=[("a", 0, 400)], records_per_task=1) as dispatcher:
        seen: list[list[Task]] = [[] for _ in range(8)]

        def work(number: int) -> None:
            while (dispatch := dispatcher.get(number)).task.type != TaskType.NONE:
                if dispatch.task.type == TaskType.TRAINING:
                    seen[number].append(dispatch.task)
                    assert dispatcher.report(*dispatch)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(task.start for tasks in seen for task in tasks) == list(range(400))


def in_child(dispatcher: TaskDispatcher, worker: str, results: Any) -> None:
    results.put([task.start for task in drain(dispatcher, worker)])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_processes_share_a_job(url: str, method: str) -> None:
    with create(url, training=[("a", 0, 200)], records_per_task=1) as dispatcher:
        first, lease = dispatcher.get("parent")
        context: Any = multiprocessing.get_context(method)
        results = context.Queue()
        children = [
            context.Process(target=in_child, args=(dispatcher, f"w{n}", results), daemon=True) for n in range(2)
        ]
        for child in children:
            child.start()
        found = [start for _ in children for start in results.get(timeout=60)]
        for child in children:
            child.join(30)
        assert dispatcher.report(first, lease)
        assert sorted([*found, first.start]) == list(range(200))
        assert dispatcher.get("parent").task.type == TaskType.NONE


@pytest.mark.parametrize("seed", [None, 5])
def test_a_job_is_put_back_to_a_state(url: str, seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was done later is open again; what was done before stays done, over batches of tasks and epochs."""
    monkeypatch.setattr(jobs, "BATCH", 10)
    with create(url, training=[("a", 0, 23)], records_per_task=1, num_epochs=2, seed=seed) as dispatcher:
        tasks = drain(dispatcher)
        before = Counter(task.start for task, _ in zip(tasks, range(12), strict=False))
        tasks.close()  # type: ignore[attr-defined]
        dispatcher.recover("w")
        dispatcher.report(*dispatcher.get("w"), success=False, error="x")
        part = dispatcher.get("w")
        state = pickle.loads(pickle.dumps(dispatcher.state_dict()))
        before_status = dispatcher.status()
        assert dispatcher.report(*part)
        list(drain(dispatcher))
        assert dispatcher.status().state == "finished"
        dispatcher.load_state_dict(state)
        status = dispatcher.status()
        assert (status.state, status.epoch, status.tasks.records) == ("running", 0, before_status.tasks.records)
        assert not dispatcher.report(*part)  # every lease has ended
        after = Counter(task.start for task in drain(dispatcher))
        done = before + after
        assert sum(done.values()) - 2 * 23 <= 1  # the task that `drain` was left in was not reported
        assert set(done) == set(range(23))
        assert all(entry.state == "done" for epoch in range(2) for entry in dispatcher.ledger(epoch))
        assert dispatcher.status().tasks.done == 23
        with pytest.raises(ValueError, match="not a state of a job"):
            dispatcher.load_state_dict({})
        with create(url, job="other") as other, pytest.raises(ValueError, match="the state is of job 'default'"):
            other.load_state_dict(state)
        dispatcher.reset()
        dispatcher.load_state_dict(state)
        assert dispatcher.status() == status


def test_a_state_is_small_and_evaluations_later_than_it_are_forgotten(url: str) -> None:
    with create(url, training=[("a", 0, 50_000)], records_per_task=1, evaluation=[("v", 0, 2)]) as dispatcher:
        assert dispatcher.evaluate(1) == 2
        state = dispatcher.state_dict()
        assert len(str(state)) < 100_000
        assert dispatcher.evaluate(2) == 2
        dispatcher.load_state_dict(state)
        assert dispatcher.status().evaluation.todo == 2
        assert dispatcher.evaluate(2) == 2


def test_integers_of_numpy_are_integers(url: str) -> None:
    number: Any = np.int64
    settings = {"records_per_task": number(10), "num_epochs": number(1), "seed": number(3)}
    with create(url, training=[("a", 0, 10)], evaluation=[("v", 0, 2)], **settings) as dispatcher:
        task, lease = dispatcher.get("w", TaskType.TRAINING)
        assert dispatcher.renew(task, lease, records=number(6))
        assert dispatcher.evaluate(number(4)) == 1
        assert dispatcher.evaluate(4) == 0
        assert [entry.records for entry in dispatcher.ledger(number(0))] == [6]
        assert dispatcher.forget_epochs(number(0)) == 0


def test_a_state_of_other_shards_or_another_order_is_refused(url: str) -> None:
    def state(name: str, **options: Any) -> Any:
        with TaskDispatcher.create(url, name, records_per_task=10, **options) as dispatcher:
            return dispatcher.state_dict()

    own = [("p", 0, 10), ("q", 0, 90)]
    with TaskDispatcher.create(url, "own", training=own, records_per_task=10, seed=1) as dispatcher:
        for name, options in {
            "sizes": {"training": [("p", 0, 90), ("q", 0, 10)], "seed": 1},
            "names": {"training": [("p", 0, 10), ("r", 0, 90)], "seed": 1},
            "order": {"training": own, "seed": 1, "shuffle_records": True},
        }.items():
            other = {**state(name, **options), "job": "own"}
            with pytest.raises(ValueError, match="digest of the shards"):
                dispatcher.load_state_dict(other)
        dispatcher.load_state_dict(dispatcher.state_dict())
