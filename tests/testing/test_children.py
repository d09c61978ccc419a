"""The kit's processes and threads: results come back, failures are told, and nothing waits for ever."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from fsabs.testing.children import Child, forked, started, threaded


def test_forked_children_give_results() -> None:
    pids = forked("a child", [os.getpid, os.getpid], 10)
    assert len({*pids, os.getpid()}) == 3


def test_a_large_result_comes_whole() -> None:
    assert forked("a child", [lambda: bytes(10_000_000)], 10) == [bytes(10_000_000)]


def test_a_child_that_raises_is_told_with_its_traceback() -> None:
    def fail() -> None:
        raise LookupError("what went wrong")

    with pytest.raises(AssertionError, match=r"(?s)a child, child 1 failed:.*in fail.*what went wrong"):
        forked("a child", [fail], 10)


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(AssertionError, match="a child, child 2 died"):
        forked("a child", [os.getpid, lambda: os.kill(os.getpid(), signal.SIGKILL)], 10)


def test_a_child_that_hangs_is_killed_and_shows_where(capfd: pytest.CaptureFixture[str]) -> None:
    def hang_here() -> None:
        threading.Event().wait()

    child = Child("a child", hang_here, 2)
    pid = child.pid
    start = time.monotonic()
    with pytest.raises(AssertionError, match="a child hangs, and was killed"):
        child.result()
    assert "in hang_here" in capfd.readouterr().err
    assert time.monotonic() - start < 20
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_child_and_no_descriptor_is_left() -> None:
    before = set(os.listdir("/proc/self/fd"))
    forked("a child", [os.getpid] * 3, 10)
    child = Child("a child", signal.pause, 10)
    pid = child.pid
    child.kill()
    child.kill()
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _double(number: int) -> int:
    return 2 * number


def _raise(number: int) -> int:
    raise LookupError(f"what went wrong with {number}")


def _die(number: int) -> int:
    os._exit(number)


def _sleep(number: int) -> None:
    time.sleep(number)


class Unloadable:
    """A pickle that can't be read where it goes, and more than a pipe holds."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("not a number",), bytes(1_000_000)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_processes(method: str) -> None:
    assert started(method, "a process", _double, (21,), 30) == 42
    with pytest.raises(AssertionError, match=r"(?s)a process failed:.*in _raise.*what went wrong with 7"):
        started(method, "a process", _raise, (7,), 30)
    with pytest.raises(AssertionError, match="a process died"):
        started(method, "a process", _die, (3,), 30)
    with pytest.raises(AssertionError, match=r"(?s)a process failed:.*not a number"):
        started(method, "a process", _double, (Unloadable(),), 30)


def test_a_started_process_that_hangs() -> None:
    with pytest.raises(AssertionError, match="a process hangs"):
        started("spawn", "a process", _sleep, (600,), 2)


def test_threads_give_results_and_failures() -> None:
    assert threaded("a thread", [lambda: 1, lambda: 2], 10) == [1, 2]
    with pytest.raises(ValueError, match="invalid literal"):
        threaded("a thread", [lambda: 1, lambda: int("x")], 10)
    release = threading.Event()
    with pytest.raises(AssertionError, match="1 threads hang: a thread"):
        threaded("a thread", [release.wait], 0.1)
    release.set()
