"""Workers that are killed and stopped, late and doubled reports, a database that goes away: each record counts once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import Pool

from fsabs.dispatch import TaskDispatcher, TaskType, database
from tests import soak
from tests.dispatch.chaos import PostgreSQLFaults, SQLiteFaults, chaos
from tests.dispatch.databases import listening, lost_commits, sqlite_clock
from tests.servers.postgresql import PostgreSQL


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_each_record_counts_once_whatever_happens(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    seed, factor = soak.seed(11), soak.rounds(1)
    print("seed", seed)
    faults: PostgreSQLFaults | SQLiteFaults
    if kind == "postgresql":
        faults = PostgreSQLFaults(request.getfixturevalue("own_postgresql"))
    else:
        faults = SQLiteFaults(f"sqlite:///{tmp_path}/tasks.db")
    tried = chaos(faults, seed, tasks=min(10_000, 600 * factor**2), outage=min(30.0, 1.2 * factor**2))
    print(dict(tried))
    for what, number in tried.items():
        soak.count(what, number)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_thirty_jobs_under_faults(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    tried: Counter[str] = Counter()
    for number in range(30):
        faults: PostgreSQLFaults | SQLiteFaults = (
            PostgreSQLFaults(request.getfixturevalue("own_postgresql"))
            if kind == "postgresql"
            else SQLiteFaults(f"sqlite:///{tmp_path}/{number}.db")
        )
        tried += chaos(faults, 100 + number, tasks=300, outage=1.2)
    print(dict(tried))


@pytest.mark.parametrize("how", [pytest.param("pause", marks=pytest.mark.nightly), "crash"])
@pytest.mark.timeout(300)
def test_a_database_that_goes_away_is_waited_for(own_postgresql: PostgreSQL, how: str) -> None:
    url = own_postgresql.database_url()
    dispatcher = TaskDispatcher.create(
        url, training=[("a", 0, 1000)], records_per_task=1, lease_seconds=60, train_end_callback=False
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
    getattr(own_postgresql, how)()
    time.sleep(1.0)
    before = len(seen)
    time.sleep(0.5)
    assert len(seen) == before  # nobody can work without it
    own_postgresql.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive()
    assert sorted(set(seen)) == list(range(1000))
    assert dispatcher.status().tasks.records == 1000
    # A lease that a crash forgets is not in force, so that its report is refused and the task done again.
    assert len(seen) - 1000 == accepted.count(False) <= 8
    dispatcher.close()


def test_a_server_whose_socket_is_gone_is_waited_for(own_postgresql: PostgreSQL) -> None:
    """PostgreSQL removes its socket when it ends: until it is back, there is no such file."""
    url = own_postgresql.database_url(by_socket=True)
    with TaskDispatcher.create(url, training=[("a", 0, 2)], records_per_task=1) as dispatcher:
        held = dispatcher.get("w")
        own_postgresql.pause()
        back = threading.Timer(1.0, own_postgresql.start)
        back.start()
        try:
            assert dispatcher.report(*held)
            assert dispatcher.get("w").task.start == 1
        finally:
            back.join()


def test_a_worker_that_stands_still_in_a_transaction_holds_up_others_for_a_while(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is suspended, or gone without a word, while it lays out tasks has the job's row locked."""
    url = postgresql.database_url()
    monkeypatch.setattr(database, "IDLE_SECONDS", 1)
    goes_on, stands = threading.Event(), threading.Event()

    def stand_still(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("INSERT INTO fsabs_task") and not stands.is_set():
            stands.set()
            goes_on.wait(50)

    found: list[Any] = []
    with (
        listening(sa.Engine, "before_cursor_execute", stand_still),
        TaskDispatcher.create(url, training=[("a", 0, 2)], records_per_task=1) as one,
        TaskDispatcher(url) as other,
    ):
        suspended = threading.Thread(target=lambda: found.append(one.get("suspended")), daemon=True)
        suspended.start()
        assert stands.wait(20)
        found.append(other.get("other"))
        goes_on.set()
        suspended.join(20)
        assert sorted(dispatch.task.start for dispatch in found) == [0, 1]


def test_a_connection_that_nothing_is_heard_of_is_given_up(postgresql: PostgreSQL) -> None:
    limits: list[float] = []

    def connected(connection: Any, _: Any) -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            limits.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000)

    with (
        listening(Pool, "connect", connected),
        TaskDispatcher.create(postgresql.database_url(), training=[("a", 0, 2)], records_per_task=1) as dispatcher,
    ):
        for _ in range(2):  # of a task that is laid out first, and of one that is there
            assert dispatcher.report(*dispatcher.get("w"))
    assert limits
    assert all(5 <= seconds <= 60 for seconds in limits)  # by itself, Linux sends again for a quarter of an hour


def test_what_is_committed_counts_whether_it_was_answered_or_not(url: str) -> None:
    settings: dict[str, Any] = {"training": [("a", 0, 1)], "records_per_task": 1, "train_end_callback": True}
    with lost_commits(True, True) as lost, TaskDispatcher.create(url, **settings) as dispatcher:
        assert not lost
        assert dispatcher.status().tasks.todo == 1
    with pytest.raises(FileExistsError):
        TaskDispatcher.create(url, **settings)
    with TaskDispatcher(url) as dispatcher:
        only = dispatcher.get("one")
        assert only.task.type == TaskType.TRAINING
        with lost_commits(False) as lost:  # it took place not at all, and a worker is known by the next one
            assert dispatcher.get("two").task.type == TaskType.WAIT
            assert dispatcher.recover("two") == 0
        assert not lost
        assert dispatcher.report(*only)
        with lost_commits(True, True):  # the lease of the last task is found
            assert dispatcher.get("two").task.type == TaskType.TRAIN_END_CALLBACK


def test_a_clock_that_jumps_costs_repetition_and_no_record(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    shift = [0.0]
    with (
        sqlite_clock(lambda: time.time() + shift[0]),
        TaskDispatcher.create(
            url, training=[("a", 0, 40)], records_per_task=1, lease_seconds=10, train_end_callback=False
        ) as dispatcher,
    ):
        held = [dispatcher.get("w") for _ in range(10)]
        shift[0] = 3600.0  # forward: every lease is over
        assert not any(dispatcher.report(*dispatch) for dispatch in held)
        shift[0] = -3600.0  # backward: who has one may report, and no other worker waits for the hour
        assert all(dispatcher.report(*dispatch) for dispatch in held[:5])
        assert dispatcher.status().late == 5
        others = [dispatcher.get("other") for _ in range(35)]
        assert {dispatch.task.start for dispatch in others} >= {dispatch.task.start for dispatch in held[5:]}
        assert dispatcher.get("other").task.type == TaskType.WAIT
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
    context = multiprocessing.get_context("fork")
    creator = context.Process(target=_create_and_hang, args=(url,), daemon=True)
    creator.start()
    deadline = time.monotonic() + 30
    dispatcher = None
    while dispatcher is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            dispatcher = TaskDispatcher(url)
    assert dispatcher is not None
    creator.kill()
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


def _report_as_ordered(dispatcher: TaskDispatcher, worker: str, orders: Any) -> None:
    for _ in range(2):
        orders.recv()
        for _ in range(10):
            assert dispatcher.report(*dispatcher.get(worker))


def test_an_open_dispatcher_may_be_forked(url: str) -> None:
    """Parent and children act on one database, whoever closes its connections first."""
    parent = TaskDispatcher.create(url, training=[("a", 0, 60)], records_per_task=1, train_end_callback=False)
    held = parent.get("parent")
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(2)]
    children = [
        context.Process(target=_report_as_ordered, args=(parent, f"child {number}", ours))
        for number, (ours, _) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    for turn in range(2):
        parent.close()  # of SQLite, the last connection that closes removes the log of its writes
        for _, theirs in pipes:
            theirs.send("go on")
        deadline = time.monotonic() + 30
        while parent.status().tasks.done < 20 * (turn + 1):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0]
    assert parent.report(*held)
    assert parent.status().tasks.done == 41
    parent.close()
    with TaskDispatcher(url) as again:
        assert again.status().tasks == (19, 0, 41, 0, 41)
