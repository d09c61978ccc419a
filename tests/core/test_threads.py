"""Threads for the length of a call, and the event that happens once."""

from __future__ import annotations

import _thread
import gc
import itertools
import threading
import time
from functools import partial
from typing import Any

import pytest

from fsabs.core.threads import Flag, TaskOutcome, Threads, in_threads
from fsabs.testing.children import Child

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("finishes", [True, False])
def test_what_is_waiting_is_done_by_finish_and_not_by_the_end(finishes: bool) -> None:
    done: list[int] = []
    threads = Threads[None](1, wait=True)

    def task(number: int) -> None:
        while not (finishes or threads.stopping):
            time.sleep(0.001)
        done.append(number)

    with threads:
        for number in range(20):
            threads.start(partial(task, number))
        if finishes:
            threads.finish()
    assert done == list(range(20)) if finishes else done in ([], [0])


def test_outcomes_are_returned_or_raised() -> None:
    with Threads[int](2) as threads:
        good, bad = threads.start(lambda: 3), threads.start(lambda: 1 // 0)
        assert good() == 3
        with pytest.raises(ZeroDivisionError):
            bad()
    assert list(in_threads(lambda number: number * 2, range(50), 3)) == list(range(0, 100, 2))


@pytest.mark.parametrize("allowed", [0, 1])
def test_without_further_threads_all_is_done(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that there is, or by the caller's own: a container may have a limit of processes and threads."""
    start, started, did = _thread.start_new_thread, itertools.count(1), set[int]()

    def start_some(*arguments: Any) -> int:
        if next(started) > allowed:
            raise RuntimeError("can't start new thread")
        return start(*arguments)

    def double(number: int) -> int:
        did.add(threading.get_ident())
        return number * 2

    monkeypatch.setattr(_thread, "start_new_thread", start_some)
    assert list(in_threads(double, range(50), 3)) == list(range(0, 100, 2))
    assert len(did) == 1
    assert (threading.get_ident() in did) == (not allowed)
    with Threads[int](2) as threads, pytest.raises(ZeroDivisionError):
        threads.start(lambda: 1 // 0)()


def test_a_thread_that_ends_the_threads_does_not_wait_for_itself() -> None:
    ended = threading.Event()
    threads = Threads[None](2, wait=True)

    def ends() -> None:
        threads.end()  # as the garbage collector may, anywhere
        ended.set()

    threads.submit(ends, TaskOutcome.result)
    assert ended.wait(20)


def test_a_forked_child_does_not_wait_for_threads_that_it_has_not() -> None:
    hold = threading.Event()
    with Threads[bool](1, wait=True) as threads:
        threads.start(partial(hold.wait, 60))

        def child() -> bool:
            threads.end()
            gc.collect()
            return True

        assert Child("a child", child, 20).result()
        hold.set()


def test_a_flag_lets_all_go_on() -> None:
    flag, went = Flag(), list[bool]()
    assert not flag.wait(0.01)
    assert not flag.is_set()
    waiting = [threading.Thread(target=lambda: went.append(flag.wait(20))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    flag.set()
    flag.set()
    for thread in waiting:
        thread.join()
    assert went == [True] * 8
    assert flag.is_set()
    assert flag.wait(0)
    assert flag.wait(float("inf"))
