"""A job under faults, at whose end each record of each epoch is accounted for once.

Workers and creators are killed and stopped, reports come late and twice, the database's clock jumps and it goes away.

Every worker creates the job if it is not there, so that creators are killed, too.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fsabs.dispatch import Dispatch, TaskDispatcher, TaskType
from tests.dispatch.databases import sqlite_clock
from tests.servers.postgresql import PostgreSQL

PER_TASK, EPOCHS = 3, 2
WORKERS = 8
TASKS_PER_KILL = 250
"""A worker is killed for so many tasks, and at least two for each that runs: a job ends on a slow machine, too."""
LEASE_SECONDS = 1.0
WORK_SECONDS = 6.0
"""Seconds that the tasks of a job take in all: most of its time goes to what can be disturbed."""
LATE_REPORTS, MIN_LATE_SHARE = 6, 0.003
"""How many reports of a job are late, and how many leases forgotten; at least this share of its tasks."""
STUCK_SECONDS = 90.0
"""How long a job may make no progress."""
JUMPS = (-1.0, 5.0)
"""By how many seconds a clock is wrong, at least and at most."""


class SQLiteFaults:
    """An SQLite file with a clock that jumps; it goes away by a lock that nothing can be written under."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = url.removeprefix("sqlite:///")
        self._clock = f"{self._path}.clock"
        self.jump(0.0)

    def worker(self) -> tuple[Callable[..., None], str]:
        """Return what a worker calls first, and its argument."""
        return _shift_sqlite, self._clock

    def jump(self, seconds: float) -> None:
        """Set how wrong the clock is."""
        with open(f"{self._clock}.new", "w") as file:
            file.write(str(seconds))
        os.replace(f"{self._clock}.new", self._clock)

    def go_away(self, chance: random.Random, seconds: float) -> None:
        """Lock the file, which ends no transaction of others."""
        with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)


class PostgreSQLFaults:
    """A PostgreSQL with a clock that jumps; it is restarted, or crashes, and comes back later."""

    def __init__(self, server: PostgreSQL) -> None:
        url = server.database_url()
        schema = url.rpartition("%3D")[2]
        self._plain = url.replace("postgresql+psycopg", "postgresql")
        self.url = f"{url}%2Cpg_catalog"  # functions of the schema come before PostgreSQL's own
        self._server = server
        self._execute("CREATE TABLE wrong (seconds float)", "INSERT INTO wrong VALUES (0)")
        self._execute(
            "CREATE FUNCTION clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS "
            f"'SELECT pg_catalog.clock_timestamp() + (SELECT seconds FROM {schema}.wrong) * interval ''1 second'''"
        )

    def worker(self) -> tuple[Callable[..., None], str]:
        """Return what a worker calls first, and its argument."""
        return _nothing, ""

    def jump(self, seconds: float) -> None:
        """Set how wrong the clock is, unless the server is away."""
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            self._execute(f"UPDATE wrong SET seconds = {seconds}")

    def go_away(self, chance: random.Random, seconds: float) -> None:
        """End or kill the server, and start it again."""
        (self._server.pause if chance.random() < 0.5 else self._server.crash)()
        time.sleep(seconds)
        self._server.start()

    def _execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._plain, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def _nothing(_: str) -> None:
    """Prepare a worker of PostgreSQL, which has its clock in the server."""


def _shift_sqlite(path: str) -> None:
    """Give the SQLite connections of this process a clock that is wrong by the seconds in a file."""

    def now() -> float:
        with open(path) as file:
            return time.time() + float(file.read())

    sqlite_clock(now).__enter__()  # until the process ends


def create(url: str, tasks: int, seed: int) -> TaskDispatcher:
    """Create the job, or open it if it is there."""
    return TaskDispatcher.create(
        url,
        training=[("a", 0, PER_TASK * tasks // EPOCHS)],
        records_per_task=PER_TASK,
        num_epochs=EPOCHS,
        seed=seed,
        lease_seconds=LEASE_SECONDS,
        max_failures=1000,
        train_end_callback=False,
        exist_ok=True,
    )


def work(prepare: tuple[Callable[..., None], str], url: str, tasks: int, seed: int, name: str) -> None:
    """Get, process and report tasks until the job ends: partly, late, twice, or as failures."""
    prepare[0](prepare[1])
    dispatcher = create(url, tasks, seed)
    chance = random.Random(f"{seed} {name}")
    late = max(LATE_REPORTS / tasks, MIN_LATE_SHARE)
    earlier: list[Dispatch] = []
    while (dispatch := dispatcher.get(name)).task.type != TaskType.NONE:
        task, lease = dispatch
        if task.type == TaskType.WAIT:
            time.sleep(0.02)
            continue
        size = len(task.numbers())
        time.sleep(chance.expovariate(tasks / WORK_SECONDS))
        event = chance.random()
        if event < late:
            dispatcher.renew(task, lease, chance.randint(0, size))
            continue  # forgotten: the lease ends
        if event < 2 * late:
            time.sleep(LEASE_SECONDS + 0.1)
        if event < 0.15 and size > 1:
            dispatcher.renew(task, lease, 1)
            dispatcher.report(task, lease, records=chance.randint(1, size - 1))
        elif event < 0.18:
            dispatcher.report(task, lease, success=False, error="by chance")
        else:
            dispatcher.report(task, lease)
        earlier.append(dispatch)
        if chance.random() < 0.1:
            dispatcher.report(*chance.choice(earlier[-100:]))  # once more


def chaos(faults: Any, seed: int, tasks: int, outage: float) -> Counter[str]:
    """Run a job of so many tasks under faults; return how many there were of each."""
    chance = random.Random(seed)
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that workers start quickly
    names = iter(range(10**9))

    def start() -> Any:
        arguments = (faults.worker(), faults.url, tasks, seed, f"w{next(names)}")
        child = context.Process(target=work, args=arguments, daemon=True)
        child.start()
        return child

    tried = Counter(tasks=tasks)
    kills = max(2 * WORKERS, tasks // TASKS_PER_KILL)
    disturbance = Disturbance(start, chance, tried)
    away = threading.Thread(target=_go_away, args=(faults, chance.random(), seed, outage, tried))
    try:
        disturbance.go_on(lambda: tried["kills"] >= WORKERS)  # of creators
        away.start()
        disturbance.go_on(lambda: tried["outages"] and tried["kills"] >= kills, jump=faults.jump)
        away.join()
        faults.jump(JUMPS[1])
        with create(faults.url, tasks, seed) as dispatcher:
            _join(disturbance.children, dispatcher)
            _check(dispatcher, tasks)
    finally:
        disturbance.end()
        if away.ident is not None:
            away.join()
    return tried


def _join(children: list[Any], dispatcher: TaskDispatcher) -> None:
    """Wait for workers as long as their job makes progress."""
    seen, since = None, time.monotonic()
    while any(child.is_alive() for child in children):
        status = dispatcher.status()
        if (progress := (status.state, status.epoch, status.tasks)) != seen:
            seen, since = progress, time.monotonic()
        assert time.monotonic() - since < STUCK_SECONDS, f"workers hang: {status}"
        time.sleep(0.5)
    assert all(child.exitcode == 0 for child in children)


def _go_away(faults: Any, delay: float, seed: int, seconds: float, tried: Counter[str]) -> None:
    time.sleep(delay)
    faults.go_away(random.Random(seed), seconds)
    tried["outages"] += 1


class Disturbance:
    """Workers that are killed, stopped and replaced, and the clock of their database set."""

    def __init__(self, start: Callable[[], Any], chance: random.Random, tried: Counter[str]) -> None:
        self._start = start
        self._chance = chance
        self._tried = tried
        self.children = [start() for _ in range(WORKERS)]
        self._stopped: dict[int, float] = {}  # when to continue each child

    def go_on(self, until: Callable[[], object], jump: Callable[[float], None] | None = None) -> None:
        """Disturb the job until it is enough, or the job has ended and a worker with it."""
        while not (until() or any(child.exitcode == 0 for child in self.children)):
            # With a clock that jumps, work is to be done between two faults, so that they meet it everywhere.
            time.sleep(self._chance.uniform(0.02, 0.1) if jump is None else self._chance.uniform(0.1, 0.8))
            self._continue(time.monotonic())
            number, event = self._chance.randrange(WORKERS), self._chance.random()
            if event < 0.5:
                self._kill(number)
            elif event < 0.9 or jump is None:
                self._stop(number)
            else:
                jump(self._chance.uniform(*JUMPS))
                self._tried["clock jumps"] += 1
        self._continue(math.inf)

    def end(self) -> None:
        """Kill the workers."""
        for child in self.children:
            child.kill()
            child.join()

    def _kill(self, number: int) -> None:
        child = self.children[number]
        if child.exitcode is None:
            child.kill()
            child.join()
            self._stopped.pop(number, None)
            self.children[number] = self._start()
            self._tried["kills"] += 1

    def _stop(self, number: int) -> None:
        child = self.children[number]
        if child.exitcode is None and number not in self._stopped:
            os.kill(child.pid, signal.SIGSTOP)
            self._stopped[number] = time.monotonic() + self._chance.choice((0.01, 0.05, LEASE_SECONDS + 0.1))
            self._tried["stops"] += 1

    def _continue(self, now: float) -> None:
        for number, end in list(self._stopped.items()):
            if end <= now:
                with contextlib.suppress(ProcessLookupError):  # it was at its end when it was stopped
                    os.kill(self.children[number].pid, signal.SIGCONT)
                del self._stopped[number]


def _check(dispatcher: TaskDispatcher, tasks: int) -> None:
    """Each record of each epoch is accounted for once, and the job has ended."""
    assert dispatcher.status().state == "finished"
    for epoch in range(EPOCHS):
        entries = list(dispatcher.ledger(epoch))
        assert len(entries) == tasks // EPOCHS
        assert all(entry.state == "done" and entry.records == entry.end - entry.start for entry in entries)
        numbers = sorted(number for entry in entries for number in range(entry.start, entry.end))
        assert numbers == list(range(PER_TASK * tasks // EPOCHS))
