"""Workers that are killed and stopped, late and doubled reports, a database that goes away: each record counts once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from fsabs.dispatch import Dispatch, TaskDispatcher, TaskType
from tests import soak
from tests.servers.postgresql import PostgreSQL

RECORDS, PER_TASK, EPOCHS = 600, 3, 2
WORKERS = 6


def work(url: str, name: str, seed: int) -> None:
    """Get, process and report tasks until the job ends: partly, late, twice, or as failures."""
    chance = random.Random(seed)
    dispatcher = TaskDispatcher(url)
    earlier: list[Dispatch] = []
    while (dispatch := dispatcher.get(name)).task.type != TaskType.NONE:
        task, lease = dispatch
        if task.type == TaskType.WAIT:
            time.sleep(0.02)
            continue
        size = len(task.numbers())
        event = chance.random()
        if event < 0.05:
            dispatcher.renew(task, lease, chance.randint(0, size))
            continue  # forgotten: the lease ends
        if event < 0.10:
            time.sleep(0.4)  # late
        if event < 0.15 and size > 1:
            dispatcher.renew(task, lease, 1)
            dispatcher.report(task, lease, records=chance.randint(1, size - 1))
        elif event < 0.18:
            dispatcher.report(task, lease, success=False, error="by chance")
        else:
            dispatcher.report(task, lease)
        earlier.append(dispatch)
        if chance.random() < 0.2:
            dispatcher.report(*chance.choice(earlier))  # once more


def disturb(children: list[Any], chance: random.Random, start: Any, until: float) -> int:
    """Kill and stop workers at random, and start others; return how many signals were sent."""
    sent = 0
    stopped: list[int] = []
    while time.monotonic() < until and any(child.is_alive() for child in children):
        time.sleep(chance.uniform(0.01, 0.08))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        stopped.clear()
        alive = [number for number, child in enumerate(children) if child.is_alive()]
        if not alive:
            break
        number = chance.choice(alive)
        pid = children[number].pid
        if chance.random() < 0.6:
            os.kill(pid, signal.SIGKILL)
            children[number].join()
            children[number] = start()
        else:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        sent += 1
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    return sent


def check(dispatcher: TaskDispatcher) -> None:
    """Each record of each epoch is accounted for once, and the job has ended."""
    assert dispatcher.status().state == "finished"
    for epoch in range(EPOCHS):
        entries = list(dispatcher.ledger(epoch))
        assert all(entry.state == "done" and entry.records == entry.end - entry.start for entry in entries)
        numbers = sorted(number for entry in entries for number in range(entry.start, entry.end))
        assert numbers == list(range(RECORDS))


def chaos(url: str, seed: int, seconds: float = 4.0) -> None:
    """Run a job under faults."""
    chance = random.Random(seed)
    context: Any = multiprocessing.get_context("forkserver")
    dispatcher = TaskDispatcher.create(
        url,
        training=[("a", 0, RECORDS)],
        records_per_task=PER_TASK,
        num_epochs=EPOCHS,
        seed=seed,
        lease_seconds=0.3,
        max_failures=1000,
        train_end_callback=False,
    )
    names = iter(range(10**9))

    def start() -> Any:
        child = context.Process(target=work, args=(url, f"w{next(names)}", chance.getrandbits(32)), daemon=True)
        child.start()
        return child

    children = [start() for _ in range(WORKERS)]
    try:
        sent = disturb(children, chance, start, time.monotonic() + seconds)
        for child in children:
            child.join(60)
            assert not child.is_alive(), f"a worker hangs, seed {seed}"
        soak.count("signals", sent)
        soak.count("tasks", EPOCHS * RECORDS // PER_TASK)
        check(dispatcher)
    finally:
        for child in children:
            child.kill()
            child.join()
        dispatcher.close()


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_each_record_counts_once_whatever_happens_to_workers(url: str) -> None:
    seed = soak.seed(11)
    print("seed", seed)
    chaos(url, seed, seconds=4.0 * soak.rounds(1))


@pytest.mark.parametrize("how", ["pause", "crash"])
@pytest.mark.timeout(120)
def test_a_database_that_goes_away_is_waited_for(postgresql: PostgreSQL, how: str) -> None:
    url = postgresql.database_url()
    dispatcher = TaskDispatcher.create(
        url, training=[("a", 0, 3000)], records_per_task=1, lease_seconds=60, train_end_callback=False
    )
    seen: list[int] = []
    accepted: list[bool] = []

    def run(name: str) -> None:
        while (dispatch := dispatcher.get(name)).task.type != TaskType.NONE:
            if dispatch.task.type == TaskType.TRAINING:
                seen.append(dispatch.task.start)
                accepted.append(dispatcher.report(*dispatch))
            if len(seen) >= 400:
                time.sleep(0.002)

    threads = [threading.Thread(target=run, args=(f"t{number}",), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    while len(seen) < 300:
        time.sleep(0.01)
    getattr(postgresql, how)()
    time.sleep(1.0)
    before = len(seen)
    time.sleep(0.5)
    assert len(seen) == before  # nobody can work without it
    postgresql.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(set(seen)) == list(range(3000))
    assert dispatcher.status().tasks.records == 3000
    # A lease that a crash forgets is not in force, so that its report is refused and the task done again.
    assert len(seen) - 3000 == accepted.count(False) <= 8
    dispatcher.close()


def test_a_clock_that_jumps_costs_repetition_and_no_record(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    shift = [0.0]
    from fsabs.dispatch import database

    configure = database._configure_sqlite

    def with_clock(connection: Any, record: Any) -> None:
        configure(connection, record)
        connection.create_function("julianday", 1, lambda _: 2460000.5 + (time.time() + shift[0]) % 1e7 / 86400)

    monkeypatch.setattr(database, "_configure_sqlite", with_clock)
    with TaskDispatcher.create(
        url, training=[("a", 0, 40)], records_per_task=1, lease_seconds=10, train_end_callback=False
    ) as dispatcher:
        held = [dispatcher.get("w") for _ in range(10)]
        shift[0] = 3600.0  # forward: every lease is over
        assert not any(dispatcher.report(*dispatch) for dispatch in held)
        shift[0] = -3600.0  # backward: they last an hour longer
        assert all(dispatcher.report(*dispatch) for dispatch in held[:5])
        shift[0] = 7200.0
        done = set()
        while (dispatch := dispatcher.get("w")).task.type == TaskType.TRAINING:
            assert dispatcher.report(*dispatch)
            done.add(dispatch.task.start)
        assert dispatch.task.type == TaskType.NONE
        assert dispatcher.status().tasks.records == 40
        assert not any(dispatcher.report(*dispatch) for dispatch in held[5:])
        assert len(done) == 35


def test_the_creator_may_die(url: str) -> None:
    context: Any = multiprocessing.get_context("forkserver")
    creator = context.Process(target=_create_and_hang, args=(url,), daemon=True)
    creator.start()
    deadline = time.monotonic() + 30
    dispatcher = None
    while dispatcher is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            dispatcher = TaskDispatcher(url)
    assert dispatcher is not None
    os.kill(creator.pid, signal.SIGKILL)
    creator.join()
    starts = []
    while (dispatch := dispatcher.get("w")).task.type == TaskType.TRAINING:
        starts.append(dispatch.task.start)
        assert dispatcher.report(*dispatch)
    assert starts == list(range(100))
    dispatcher.close()


def _create_and_hang(url: str) -> None:
    TaskDispatcher.create(url, training=[("a", 0, 100)], records_per_task=1, train_end_callback=False)
    time.sleep(600)


def test_an_open_dispatcher_may_be_forked(url: str) -> None:
    """Parent and children act on one database, whoever closes its connections first."""
    parent = TaskDispatcher.create(url, training=[("a", 0, 60)], records_per_task=1, train_end_callback=False)
    held = parent.get("parent")
    orders = [os.pipe() for _ in range(2)]
    children = []
    for number, (order, _) in enumerate(orders):
        if not (pid := os.fork()):
            code = 1
            with contextlib.suppress(BaseException):
                for _ in range(2):
                    os.read(order, 1)
                    for _ in range(10):
                        assert parent.report(*parent.get(f"child {number}"))
                code = 0
            os._exit(code)
        children.append(pid)
    for _ in range(2):
        parent.close()  # of SQLite, the last connection that closes removes the log of its writes
        for _, write in orders:
            os.write(write, b"x")
        deadline = time.monotonic() + 30
        while parent.status().tasks.done % 20 or not parent.status().tasks.done:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0]
    assert parent.report(*held)
    assert parent.status().tasks.done == 41
    parent.close()
    with TaskDispatcher(url) as again:
        assert again.status().tasks == (19, 0, 41, 0, 41)
