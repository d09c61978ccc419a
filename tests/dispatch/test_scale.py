"""The simulation of a large job, compared with one over a real dispatcher whose database has the simulated clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulations.dispatch import Costs, JobModel, Leased, Outcome, Scenario, Simulation
from fsabs.dispatch import TaskDispatcher, TaskType
from tests.dispatch.clocks import sqlite_clock

RECORDS = 1000
"""Of a task: its share that is done is a number of records."""


class RealJob:
    """A job in SQLite, which sets the clock to the simulation's time."""

    def __init__(self, scenario: Scenario, url: str, clock: list[float]) -> None:
        self.ended = False
        self._clock = clock
        self._left = scenario.tasks
        self.dispatcher = TaskDispatcher.create(
            url,
            training=[("a", 0, RECORDS * scenario.tasks)],
            records_per_task=RECORDS,
            lease_seconds=scenario.lease_seconds,
            train_end_callback=False,
        )

    def get(self, now: float) -> Leased | None:
        """Lease a task; None if none is free."""
        self._clock[0] = now
        found = self.dispatcher.get("w")
        if found.task.type == TaskType.WAIT:
            return None
        assert found.task.type == TaskType.TRAINING
        return Leased(found, 1 - len(found.task.numbers()) / RECORDS)

    def report(self, task: Leased, now: float) -> None:
        """Account for a task."""
        found: Any = task.key
        self._clock[0] = now
        assert self.dispatcher.report(found.task, found.lease)
        self._left -= 1
        self.ended = not self._left

    def fail(self, task: Leased, begin: float, renewed: float, done: float) -> None:
        """Renew the lease as the worker did until it failed."""
        found: Any = task.key
        self._clock[0] = begin
        records = round((done - task.done) * RECORDS)
        while self._clock[0] < renewed - 1e-3:
            self._clock[0] += self.dispatcher.lease_seconds / 3
            assert self.dispatcher.renew(found.task, found.lease, records if self._clock[0] >= renewed - 1e-3 else 0)


def simulate(scenario: Scenario, job: Any) -> Outcome:
    """Run a simulation."""
    return Simulation(scenario, job, seed=3).run()


@pytest.mark.parametrize("hours", [0.0, 0.02])
def test_the_model_of_a_job_is_like_a_real_one(tmp_path: Path, hours: float) -> None:
    scenario = Scenario(20, 150, 10.0, lease_seconds=60.0, hours_between_failures=hours)
    clock = [0.0]
    with sqlite_clock(lambda: clock[0]):
        real = RealJob(scenario, f"sqlite:///{tmp_path}/tasks.db", clock)
        with real.dispatcher:
            found = simulate(scenario, real)
            assert real.dispatcher.status().tasks.records == 150 * RECORDS
    model = simulate(scenario, JobModel(scenario))
    assert (model.redone > 0) == (hours > 0)
    assert found == pytest.approx(model, rel=0.02, abs=0.01)


def test_a_database_that_costs_nothing_costs_no_time() -> None:
    scenario = Scenario(100, 20_000, 10.0, costs=Costs(1e-9, 1e-9, 1e-9))
    found = simulate(scenario, JobModel(scenario))
    assert found.busy < 0.001
    assert found.seconds == pytest.approx(found.ideal_seconds, rel=0.03)


def test_a_database_serves_as_many_tasks_as_it_can() -> None:
    scenario = Scenario(1000, 50_000, 0.1)
    found = simulate(scenario, JobModel(scenario))
    assert found.busy > 0.95
    assert found.seconds == pytest.approx(50_000 * scenario.costs.task, rel=0.05)


def test_renewals_may_be_more_than_a_database_can_do() -> None:
    with pytest.raises(ValueError, match="renewals alone"):
        Simulation(Scenario(10_000, 1, 1.0, lease_seconds=5.0), JobModel(Scenario(1, 1, 1.0)))
