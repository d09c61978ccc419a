"""A state machine against a simple model in memory: whatever is called in whatever order, leases and counts agree."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from fsabs.dispatch import Dispatch, FailedTask, JobFailedError, TaskDispatcher, TaskType
from tests import soak

MAX_FAILURES = 1
_numbers = itertools.count()


class Tasks(RuleBasedStateMachine):
    """A job of two epochs; leases never end by themselves here, but by `recover`."""

    leases = Bundle("leases")
    folder: Path

    @initialize(records=st.integers(1, 9), per_task=st.integers(1, 4), seed=st.none() | st.integers(0, 5))
    def create(self, records: int, per_task: int, seed: int | None) -> None:
        self.job = f"job{next(_numbers)}"
        self.dispatcher = TaskDispatcher.create(
            f"sqlite:///{self.folder}/tasks.db",
            self.job,
            training=[("a", 0, records)],
            records_per_task=per_task,
            num_epochs=2,
            seed=seed,
            max_failures=MAX_FAILURES,
            lease_seconds=1e6,
            train_end_callback=False,
        )
        self.records = records
        self.held: dict[int, tuple[str, int, int]] = {}  # worker, task and progress before, by lease in force
        self.progress: dict[int, int] = {}  # by task
        self.failures: dict[int, list[str]] = {}  # the workers that failed on a task
        self.asked: set[str] = set()  # workers
        self.failed: set[int] = set()
        self.done: set[int] = set()  # leases that a renewal has ended
        self.ended = False

    @rule(target=leases, worker=st.sampled_from("xyz"))
    def get(self, worker: str) -> object:
        failed: list[FailedTask] = []
        self.asked.add(worker)
        try:
            dispatch = self.dispatcher.get(worker)
        except JobFailedError as exc:
            failed = exc.failed
        if failed:
            assert {task.task_id for task in failed} == self.failed
            self.ended = True
            return multiple()
        task, lease = dispatch
        if task.type == TaskType.NONE:
            assert not self.held
            assert not self.failed
            self.ended = True
            return multiple()
        if task.type == TaskType.WAIT:
            assert self.held
            return multiple()
        assert not self.ended
        assert task.task_id not in {one for _, one, _ in self.held.values()} | self.failed
        before = self.progress.setdefault(task.task_id, 0)
        assert task.end - task.start > 0
        self.held[lease] = (worker, task.task_id, before)
        return dispatch

    @rule(dispatch=consumes(leases), data=st.data(), success=st.booleans())
    def report(self, dispatch: Dispatch, data: st.DataObject, success: bool) -> None:
        task, lease = dispatch
        size = task.end - task.start
        records = data.draw(st.integers(0, size if success else size - 1))
        in_force = lease in self.held
        again = lease in self.done and success and records == size  # what a renewal has already said
        assert self.dispatcher.report(task, lease, success, records) == (in_force or again)
        if in_force:
            worker, number, before = self.held.pop(lease)
            self.progress[number] = max(self.progress[number], before + records)
            if not success:
                workers = self.failures.setdefault(number, [])
                workers.append(worker)
                if len(workers) > MAX_FAILURES and (worker != workers[0] or self.asked == {worker}):
                    self.failed.add(number)

    @rule(dispatch=leases, data=st.data())
    def renew(self, dispatch: Dispatch, data: st.DataObject) -> None:
        task, lease = dispatch
        records = data.draw(st.integers(0, task.end - task.start))
        again = lease in self.done and records == task.end - task.start
        assert self.dispatcher.renew(task, lease, records) == (lease in self.held or again)
        if lease in self.held:
            _, number, before = self.held[lease]
            self.progress[number] = max(self.progress[number], before + records)
            if records == task.end - task.start:
                del self.held[lease]
                self.done.add(lease)

    @rule(dispatch=leases)
    def report_another_lease(self, dispatch: Dispatch) -> None:
        task, lease = dispatch
        assert not self.dispatcher.report(task, lease ^ 2)

    @rule(worker=st.sampled_from("xyz"))
    def recover(self, worker: str) -> None:
        mine = [lease for lease, (name, _, _) in self.held.items() if name == worker]
        try:
            assert self.dispatcher.recover(worker) == len(mine)
        except LookupError:
            assert not mine
        for lease in mine:
            del self.held[lease]

    @rule()
    def reopen(self) -> None:
        url = self.dispatcher.url
        self.dispatcher.close()
        self.dispatcher = TaskDispatcher(url, self.job)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "dispatcher"):
            entries = [entry for epoch in range(2) for entry in self.dispatcher.ledger(epoch)]
            assert sum(entry.records for entry in entries) == sum(self.progress.values())
            assert sum(entry.state == "doing" for entry in entries) == len(self.held)
            assert sum(entry.state == "failed" for entry in entries) == len(self.failed)

    def teardown(self) -> None:
        if hasattr(self, "dispatcher"):
            if self.ended and not self.failed:
                assert sum(self.progress.values()) == 2 * self.records
            self.dispatcher.close()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_job_is_what_the_model_is() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = type("InFolder", (Tasks,), {"folder": Path(folder)})
        machine.TestCase.settings = settings(  # type: ignore[attr-defined]
            max_examples=soak.rounds(6),
            stateful_step_count=30,
            deadline=None,
            derandomize=soak.seed(0) == 0,
            suppress_health_check=list(HealthCheck),
        )
        machine.TestCase("runTest").runTest()  # type: ignore[attr-defined]
        soak.count("sequences", soak.rounds(6))
