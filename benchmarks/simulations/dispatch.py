"""A discrete-event simulation of a job with 10,000 workers and 10 M tasks: where one database ends.

    python -m benchmarks.simulations.dispatch [--document] [--tasks 10000000] [--workers 10000]

A worker asks for a task, processes it, reports it with the next request, and may fail at any time. A lease is renewed
three times in its length; a task that is dispatched again begins where the last renewal left it. The database is a
queue with a service time for each operation. `--document` writes the table of docs/dispatch.md.
"""

from __future__ import annotations

import argparse
import heapq
import random
import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "dispatch.md"
BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"
FIRST_WAIT, MAX_WAIT = 0.02, 2.0
"""Seconds between two requests while no task is free, as in `fsabs.dispatch.leasing`."""
RESTART_SECONDS = 120.0
"""Seconds until a worker that failed is replaced."""


class Costs(NamedTuple):
    """Seconds that the database is busy with an operation."""

    task: float = 1 / 2000
    """Of leasing and reporting a task: the rate of PostgreSQL that `benchmarks/dispatch.py` wants at least."""
    wait: float = 1 / 1000
    """Of a request when no task is free: a transaction of five statements."""
    renewal: float = 1 / 2500


class Scenario(NamedTuple):
    """What is simulated."""

    workers: int
    tasks: int
    task_seconds: float
    """How long a task takes on average (exponentially distributed around a half of it, and a half fixed)."""
    lease_seconds: float = 300.0
    hours_between_failures: float = 0.0
    """Of one worker, on average; 0: none fails."""
    costs: Costs = Costs()


class Outcome(NamedTuple):
    """How a job went."""

    seconds: float
    ideal_seconds: float
    """Without failures, and with a database that costs nothing."""
    busy: float
    """Share of the time in which the database was busy until the last task was dispatched."""
    request_seconds: float
    """How long a worker waited for the database, on average."""
    redone: float
    """Share of the work that was done again after failures."""
    tail_seconds: float
    """From the dispatch of the last free task to the end."""


class Job:
    """A job of one epoch, by the rules of `TaskDispatcher`: free tasks first, then those whose lease ended."""

    def __init__(self, scenario: Scenario) -> None:
        self.free = self.left = scenario.tasks
        self._lease_seconds = scenario.lease_seconds
        self._late: list[tuple[float, float]] = []

    def get(self, now: float) -> float | None:
        """Lease a task; return the share of its work that was accounted for before, None if no task is free."""
        if self.free:
            self.free -= 1
            return 0.0
        if self._late and self._late[0][0] <= now:
            return heapq.heappop(self._late)[1]
        return None

    def fail(self, renewed: float, done: float) -> None:
        """Note that the worker of a task is gone: it was renewed last at `renewed`, when the share `done` was done."""
        heapq.heappush(self._late, (renewed + self._lease_seconds, done))


_ASKS, _ENDS, _FAILS = range(3)


class Simulation:
    """The events of a job."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.job = Job(scenario)
        self._chance = random.Random(0)
        renewals = scenario.workers * 3 / scenario.lease_seconds * scenario.costs.renewal
        if renewals >= 1:
            raise ValueError(f"renewals alone keep the database busy: {renewals:.1f} s a second")
        self._slowed = 1 / (1 - renewals)  # by the renewals, which are spread evenly
        self._free_at = 0.0  # when the database has served what it was asked
        self._used = self._waited = self._redone = self._work = 0.0
        self._requests = self._dispatched = 0
        self._last_dispatch = (0.0, 0.0)

    def run(self) -> Outcome:
        """Run until the job has ended."""
        workers, events = self.scenario.workers, []
        for worker in range(workers):
            events.append((self._chance.uniform(0, 1), worker, _ASKS, FIRST_WAIT))
        heapq.heapify(events)
        now = 0.0
        while self.job.left:
            now, worker, kind, wait = heapq.heappop(events)
            self.job.left -= kind == _ENDS
            if kind == _FAILS:
                event = (now + RESTART_SECONDS, worker, _ASKS, FIRST_WAIT)
            else:
                event = self._ask(now, worker, wait)
            heapq.heappush(events, event)
        busy_until, used = self._last_dispatch
        return Outcome(
            now,
            self._work / workers,
            used * self._slowed / busy_until,
            self._waited / self._requests,
            self._redone / self._work,
            now - busy_until,
        )

    def _ask(self, now: float, worker: int, wait: float) -> tuple[float, int, int, float]:
        """Ask for a task; return the worker's next event."""
        costs = self.scenario.costs
        done = self.job.get(max(now, self._free_at))
        cost = costs.wait if done is None else costs.task
        self._used += cost
        self._free_at = served = max(now, self._free_at) + cost * self._slowed
        self._waited += served - now
        self._requests += 1
        if done is None:
            return served + wait, worker, _ASKS, min(2 * wait, MAX_WAIT)
        self._dispatched += 1
        if self._dispatched == self.scenario.tasks:  # free tasks are dispatched before those whose lease ended
            self._last_dispatch = (served, self._used)
        return self._process(done, served, worker)

    def _process(self, done: float, begin: float, worker: int) -> tuple[float, int, int, float]:
        mean, hours = self.scenario.task_seconds, self.scenario.hours_between_failures
        size = mean / 2 + self._chance.expovariate(2 / mean)  # of the whole task
        left = size * (1 - done)
        if self._dispatched <= self.scenario.tasks:
            self._work += size
        alive = self._chance.expovariate(1 / (hours * 3600)) if hours else left
        if alive >= left:
            return begin + left, worker, _ENDS, FIRST_WAIT
        every = self.scenario.lease_seconds / 3
        renewed = alive // every * every
        self._redone += alive - renewed
        self.job.fail(begin + renewed, done + renewed / size)
        return begin + alive, worker, _FAILS, FIRST_WAIT


def scenarios(workers: int, tasks: int) -> list[Scenario]:
    """Return what the page shows: shorter tasks, then shorter leases with workers that fail."""
    base = Scenario(workers, tasks, 30.0)
    shorter = [base._replace(task_seconds=seconds) for seconds in (30.0, 10.0, 5.0, 2.0)]
    leases = [base._replace(lease_seconds=lease, hours_between_failures=24.0) for lease in (1800.0, 300.0, 60.0, 20.0)]
    return shorter + leases


def table(workers: int, tasks: int) -> str:
    """Return the outcomes as a table."""
    rows = [
        f"{workers:,} workers, {tasks:,} tasks, a database that dispatches {1 / Costs().task:,.0f} tasks/s at most:",
        "",
        "| task | lease | a worker fails | needed | reached | database | request | redone | tail | job |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in scenarios(workers, tasks):
        found = Simulation(one).run()
        fails = f"every {one.hours_between_failures:g} h" if one.hours_between_failures else "never"
        rows.append(
            f"| {one.task_seconds:g} s | {one.lease_seconds:g} s | {fails} | {workers / one.task_seconds:,.0f}/s "
            f"| {one.tasks / (found.seconds - found.tail_seconds):,.0f}/s | {found.busy:.0%} busy "
            f"| {found.request_seconds * 1000:,.1f} ms | {found.redone:.2%} | {found.tail_seconds:,.0f} s "
            f"| {found.seconds / found.ideal_seconds:.3f} x |"
        )
        print(rows[-1], flush=True)
    return "\n".join(rows)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", action="store_true")
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=10_000)
    given = parser.parse_args()
    found = table(given.workers, given.tasks)
    if given.document:
        part = f"{BEGIN}\n\n{found}\n\n{END}"
        page = re.sub(f"{BEGIN}.*{END}", lambda _: part, PAGE.read_text(), flags=re.DOTALL)
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
