"""Calls with a time limit, in threads that are kept: in order, no more at once than asked, and none left behind."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fsabs.backends.hdfs.library import begin, each
from fsabs.testing.children import forked
from tests.servers.process import wait_until

pytestmark = pytest.mark.quick


def outcomes(function: Callable[[int], int], items: Sequence[int], width: int) -> list[Any]:
    """What `function` returns or raises for each item."""
    found: list[Any] = []
    for call in each(function, items, width):
        assert call.wait(10)
        try:
            found.append(call.result())
        except ValueError as exc:
            found.append(f"ValueError({exc})")
    return found


def helpers() -> int:
    return sum(thread.name == "fsabs-hdfs" for thread in threading.enumerate())


class Counted:
    """A call that knows how many of it are under way."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self.now = self.most = self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, item: int) -> int:
        with self._lock:
            self.now += 1
            self.calls += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds * (item % 3))
        with self._lock:
            self.now -= 1
        if item % 10 == 7:
            raise ValueError(item)
        return item


def test_what_comes_is_in_order_and_failures_stand_at_their_place() -> None:
    call = Counted()
    assert outcomes(call, range(50), 4) == [f"ValueError({item})" if item % 10 == 7 else item for item in range(50)]
    assert (call.most, call.calls) == (4, 50)
    before = helpers()
    assert outcomes(call, [1], 64) == [1]
    assert outcomes(call, [], 64) == []
    assert helpers() <= before + 1, "few items need few threads"


def test_who_stops_early_leaves_nothing_to_do() -> None:
    call = Counted()
    for _ in range(5):
        found = each(call, range(1000), 4)
        first = next(found)
        assert first.wait(10)
        assert first.result() == 0
        found.close()
    before = helpers()
    calls = call.calls
    single = begin(call, 3)
    assert single.wait(10)
    assert single.result() == 3
    time.sleep(0.05)
    assert call.calls <= calls + 5  # what was under way, and the last one
    assert outcomes(call, range(4), 4) == [0, 1, 2, 3]
    assert helpers() <= before + 1, "the threads of a batch that was given up serve the next one"


def test_a_batch_that_finds_too_few_threads_keeps_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child, which has no threads that other tests keep busy."""
    start, started = threading.Thread.start, itertools.count(1)

    def start_two(thread: threading.Thread) -> None:
        if next(started) > 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    def child() -> None:
        call = Counted()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_two)
            with pytest.raises(RuntimeError):
                outcomes(call, range(50), 3)
        there = helpers()
        wait_until(lambda: call.now == 0, 10, "what is under way")
        time.sleep(0.1)
        assert outcomes(Counted(), range(50), there)[0] == 0
        assert helpers() == there, "all of them are idle again"

    assert forked("a child", [child], 30) == [None]
