"""A job under faults, at whose end each record of each epoch is accounted for once.

Workers and creators are killed and stopped, reports come late and twice, the database's clock jumps and it goes away.

Every worker creates the job if it is not there, so that creators are killed, too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from fsabs.dispatch import Dispatch, TaskDispatcher, TaskType, database
from tests.servers.postgresql import PostgreSQL

PER_TASK, EPOCHS = 3, 2
WORKERS = 8
LEASE_SECONDS, TASK_SECONDS = 1.0, 0.01
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

    def __init__(self, url: str, server: PostgreSQL) -> None:
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
    module: Any = database
    configure = module._configure_sqlite

    def julian_day(_: str) -> float:
        with open(path) as file:
            return 2440587.5 + (time.time() + float(file.read())) / 86400

    def with_clock(connection: Any, record: Any) -> None:
        configure(connection, record)
        connection.create_function("julianday", 1, julian_day)

    module._configure_sqlite = with_clock


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
    earlier: list[Dispatch] = []
    while (dispatch := dispatcher.get(name)).task.type != TaskType.NONE:
        task, lease = dispatch
        if task.type == TaskType.WAIT:
            time.sleep(0.02)
            continue
        size = len(task.numbers())
        time.sleep(chance.expovariate(1 / TASK_SECONDS))
        event = chance.random()
        if event < 0.01:
            dispatcher.renew(task, lease, chance.randint(0, size))
            continue  # forgotten: the lease ends
        if event < 0.02:
            time.sleep(LEASE_SECONDS + 0.1)  # late
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
    children = [start() for _ in range(WORKERS)]
    away = threading.Thread(target=_go_away, args=(faults, chance.random(), seed, outage, tried))
    try:
        _disturb(children, chance, start, tried, until=lambda: tried["kills"] >= WORKERS)  # of creators
        away.start()
        # Half of the faults come while the database is away.
        end = time.monotonic() + outage + 2
        _disturb(children, chance, start, tried, until=lambda: time.monotonic() > end, jump=faults.jump, away=away)
        away.join()
        faults.jump(JUMPS[1])
        with create(faults.url, tasks, seed) as dispatcher:
            _join(children, dispatcher)
            _check(dispatcher, tasks)
    finally:
        for child in children:
            child.kill()
            child.join()
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


def _disturb(
    children: list[Any],
    chance: random.Random,
    start: Callable[[], Any],
    tried: Counter[str],
    until: Callable[[], bool],
    jump: Callable[[float], None] | None = None,
    away: threading.Thread | None = None,
) -> None:
    """Kill workers and start others, stop some, and set the clock, until it is enough or the job has ended."""
    while not until() and any(child.is_alive() for child in children):
        # While the database is away, workers only wait for it: a few faults do.
        pause = chance.uniform(0.02, 0.1) if away is None or not away.is_alive() else chance.uniform(0.2, 1.0)
        time.sleep(pause)
        alive = [number for number, child in enumerate(children) if child.is_alive()]
        if not alive:
            return
        number, event = chance.choice(alive), chance.random()
        if event < 0.5:
            os.kill(children[number].pid, signal.SIGKILL)
            children[number].join()
            children[number] = start()
            tried["kills"] += 1
        elif event < 0.9 or jump is None:
            with _stopped(children[number].pid):
                time.sleep(chance.choice((0.01, 0.05, LEASE_SECONDS + 0.1)))
            tried["stops"] += 1
        else:
            jump(chance.uniform(*JUMPS))
            tried["clock jumps"] += 1


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _check(dispatcher: TaskDispatcher, tasks: int) -> None:
    """Each record of each epoch is accounted for once, and the job has ended."""
    assert dispatcher.status().state == "finished"
    for epoch in range(EPOCHS):
        entries = list(dispatcher.ledger(epoch))
        assert len(entries) == tasks // EPOCHS
        assert all(entry.state == "done" and entry.records == entry.end - entry.start for entry in entries)
        numbers = sorted(number for entry in entries for number in range(entry.start, entry.end))
        assert numbers == list(range(PER_TASK * tasks // EPOCHS))
