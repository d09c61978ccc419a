"""`write_many` where no store is needed: how much it takes at once, and what becomes of several failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from fsabs.backends.memory import Memory
from fsabs.core import writemany
from fsabs.testing import Fault, FaultyFS, Raise

pytestmark = pytest.mark.quick


def test_contents_under_way_are_bounded_in_bytes() -> None:
    size, lock = 20 * 1024 * 1024, threading.Lock()
    under_way, most = 0, 0

    def write(key: str, data: bytes) -> None:
        nonlocal under_way, most
        with lock:
            under_way += len(data)
            most = max(most, under_way)
        time.sleep(0.01)
        with lock:
            under_way -= len(data)

    data = bytes(size)
    assert writemany.in_threads(write, ((str(n), data) for n in range(12)), 8) == 12
    assert 2 * size <= most <= writemany.MAX_BYTES


def test_a_content_above_the_bound_goes_alone() -> None:
    data, names = bytes(writemany.MAX_BYTES + 1), list[str]()
    assert writemany.in_threads(lambda key, _: names.append(key), ((str(n), data) for n in range(3)), 8) == 3
    assert names == ["0", "1", "2"]


def test_the_first_failure_is_raised_when_all_have_ended_with_the_others_in_its_notes() -> None:
    barrier, ended = threading.Barrier(3), list[str]()

    def write(key: str, data: bytes) -> None:
        if key in "abc":
            barrier.wait(10)
            time.sleep({"a": 0, "b": 0.1, "c": 0.2}[key])
            ended.append(key)
            if key != "c":
                raise PermissionError(13, f"not {key}")
        else:
            ended.append(key)

    with pytest.raises(PermissionError, match="not a") as caught:
        writemany.in_threads(write, ((name, b"") for name in "abcdefgh"), 3)
    assert ended == ["a", "b", "c"], "nothing is begun after a failure, and what was under way has ended"
    assert caught.value.__notes__ == ["also: PermissionError: [Errno 13] not b"]


def test_an_interrupt_of_the_caller_waits_for_what_is_under_way() -> None:
    fs = Memory()

    def pairs() -> Iterator[tuple[str, bytes]]:
        yield "a", b"1"
        yield "b", b"2"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fs.write_many(pairs(), concurrency=4)
    assert sorted(fs.list()) == ["a", "b"]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_failing_file_is_named_and_leaves_nothing(concurrency: int) -> None:
    fs = FaultyFS(Memory(), Fault("commit", Raise(OSError(5, "broken")), path="c"))
    with pytest.raises(OSError, match="broken") as caught:
        fs.write_many(dict.fromkeys("abcd", b"1"), concurrency=concurrency)
    assert caught.value.filename == fs.url("c")
    assert not fs.exists("c")
    assert fs.exists("a")
