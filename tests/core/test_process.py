"""What belongs to a process: made anew after a fork, abandoned in the child, resumed where it was."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs.core import process
from fsabs.testing.children import Child, threaded

pytestmark = pytest.mark.quick


class Client:
    """Remembers which process it was made in, and counts those that were closed, and freed in another process."""

    closed = 0
    freed_elsewhere = 0

    def __init__(self) -> None:
        self.pid = os.getpid()

    def close(self) -> None:
        type(self).closed += 1

    def __del__(self) -> None:
        type(self).freed_elsewhere += self.pid != os.getpid()


def test_each_process_makes_its_own_and_leaves_the_inherited_one_alone() -> None:
    holder = process.PerProcess(Client, Client.close)
    mine = holder.get()
    assert holder.get() is mine

    def child() -> None:
        nonlocal mine
        own = holder.get()
        assert (own.pid, own is mine) == (os.getpid(), False)
        del mine
        gc.collect()
        before = Client.closed
        holder.close()
        assert (Client.closed, Client.freed_elsewhere, holder.peek()) == (before + 1, 0, None)

    Child("a child", child, 20).result()
    assert holder.get() is mine
    holder.close()
    assert holder.peek() is None
    assert holder.get() is not mine


def test_an_abandoned_thing_is_never_freed() -> None:
    def child() -> bool:
        thing = Client()
        there = weakref.ref(thing)
        process.abandon(thing)
        del thing
        gc.collect()
        return there() is not None

    assert Child("a child", child, 20).result()


def test_it_is_made_once_by_many_threads() -> None:
    made: list[int] = []

    def make() -> int:
        time.sleep(0.05)
        made.append(1)
        return len(made)

    holder = process.PerProcess(make)
    assert threaded("making one", [holder.get] * 8, 20) == [1] * 8
    assert made == [1]


def test_a_holder_pickles_as_its_recipe() -> None:
    holder: process.PerProcess[list[str]] = process.PerProcess(functools.partial(list, "ab"))
    holder.get().append("c")
    assert pickle.loads(pickle.dumps(holder)).get() == ["a", "b"]


# ---- locks, and calls that a fork waits for


def test_a_lock_held_at_the_fork_is_open_in_the_child() -> None:
    lock = process.Lock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait()

    def child() -> bool:
        with lock:
            return True

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert Child("a child", child, 20).result()
    release.set()
    thread.join()


class Clock:
    """The time of a process, which passes while a thread sleeps and at no other moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept = threading.Event()
        self.stopped = False
        self._sleep = time.sleep
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """Let time pass, unless it is stopped."""
        self.slept.set()
        self.now += 0 if self.stopped else seconds
        self._sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_fork_waits_for_the_calls_that_defer_it(clock: Clock) -> None:
    """And those that would begin wait for the fork."""
    clock.stopped = True
    held, ended = threading.Event(), threading.Event()
    begun: list[int] = []

    def call() -> None:
        with process.forks_deferred:
            held.set()
            clock.slept.wait(20)  # the fork waits
            later.start()
            later.join(0.05)
            ended.set()

    def begin() -> None:
        with process.forks_deferred:
            begun.append(os.getpid())

    first, later = threading.Thread(target=call), threading.Thread(target=begin)
    first.start()
    held.wait()
    assert Child("a child", lambda: ended.is_set() and not begun, 20).result()
    first.join()
    later.join()
    assert begun == [os.getpid()]


def test_a_fork_does_not_wait_for_ever(clock: Clock) -> None:
    """Neither for a call that does not end, nor for one of the thread that forks (in a signal handler)."""
    held, release = threading.Event(), threading.Event()

    def call() -> None:
        with process.forks_deferred:
            held.set()
            release.wait()

    with process.forks_deferred:
        assert Child("a child", lambda: True, 20).result()
    assert not clock.slept.is_set()
    thread = threading.Thread(target=call)
    thread.start()
    held.wait()
    assert Child("a child", lambda: True, 20).result()
    assert clock.now >= process.MAX_WAIT
    release.set()
    thread.join()


# ---- iterators


def count_from(start: int) -> Iterator[int]:
    return iter(range(start, 10))


def test_a_half_used_iterator_goes_on_everywhere() -> None:
    numbers = process.Resumable(count_from)
    assert list(itertools.islice(numbers, 4)) == [0, 1, 2, 3]
    copied = pickle.loads(pickle.dumps(numbers))
    assert Child("a child", lambda: list(numbers), 20).result() == [4, 5, 6, 7, 8, 9]
    assert list(copied) == list(numbers) == [4, 5, 6, 7, 8, 9]
    assert list(numbers) == []


def test_many_items_are_taken_at_once() -> None:
    def until_five(start: int) -> Iterator[int]:
        yield from range(start, 5)
        if start < 5:
            raise KeyError(5)

    numbers = process.Resumable(count_from)
    assert numbers.take(3) == [0, 1, 2]
    copied = pickle.loads(pickle.dumps(numbers))
    assert Child("a child", lambda: numbers.take(2), 20).result() == [3, 4]
    assert numbers.take(20) == copied.take(20) == [3, 4, 5, 6, 7, 8, 9]
    assert numbers.take(1) == []
    failing = process.Resumable(until_five)
    with pytest.raises(KeyError):
        failing.take(7)
    assert Child("a child", lambda: failing.take(1), 20).result() == []  # it goes on behind what was taken


def test_threads_share_an_iterator_and_each_item_comes_once() -> None:
    numbers = process.Resumable(lambda start: iter(range(start, 20_000)))
    seen = threaded("sharing an iterator", [lambda: list(numbers)] * 4, 20)
    assert sorted(itertools.chain(*seen)) == list(range(20_000))


def test_closing_an_iterator_frees_what_it_holds() -> None:
    freed: list[bool] = []

    def held(start: int) -> Iterator[int]:
        try:
            yield from range(start, 10)
        finally:
            freed.append(True)

    numbers = process.Resumable(held)
    next(numbers)
    numbers.close()
    assert freed == [True]
    assert list(numbers) == []


# ---- programs that end, and children in their first moments


def run(program: str) -> tuple[str, str]:
    """Run a program; return what it prints, and its errors."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


UNFINISHED = """
from fsabs.core import process

class Half:
    def __init__(self, name): self.name = name
    def abort(self):
        print("aborted", self.name)
        if self.name == "failing": raise OSError("the first")

things = [Half(name) for name in ("failing", "left", "done")]
for thing in things: process.abort_at_exit(thing)
process.finished(things[2])
"""


def test_what_is_unfinished_is_aborted_at_exit_though_one_fails() -> None:
    out, err = run(UNFINISHED)
    assert sorted(out.splitlines()) == ["aborted failing", "aborted left"]
    assert "OSError: the first" in err


# Modules register what happens at a fork when they are imported, and are called in that order.
FREED_AT_FORK = """
import gc, os, sys
kept = []
os.register_at_fork(after_in_child=gc.collect)
os.register_at_fork(after_in_child=kept.clear)
from fsabs.spi import process
from fsabs.core.writing import WriteFile, WriterFile

gc.disable()
owner = os.getpid()

class Client:
    def close(self): pass
    def __del__(self):
        if os.getpid() != owner: os._exit(1)

def items(start):
    try: yield from range(start, 9)
    finally: Client().__del__()

class Writer:
    takes_views = True
    def write(self, data): pass
    def commit(self): os._exit(2)
    def abort(self):
        if os.getpid() != owner: os._exit(3)

class Cycle: pass
cycle = Cycle()
cycle.holder = process.PerProcess(Client)
cycle.holder.get()
kept.append(process.Resumable(items))
next(kept[0])
cycle.file = WriteFile(WriterFile(Writer(), "memory://half/written"))
cycle.itself = cycle
del cycle
child = os.fork()
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_nothing_is_freed_in_the_first_moments_of_a_child() -> None:
    """The garbage of the parent, collected in a child before its generation counts (in `threading`'s own hook, say)."""
    run(FREED_AT_FORK)


GENERATOR = """
import builtins, gc, os, sys
from fsabs.spi import process

owner = os.getpid()

def items(start):
    try: yield from range(start, 9)
    finally: os.getpid() == owner or os.write(1, b"closed in a child")

resumed = process.Resumable(items)
next(resumed)
"""
AT_ITS_END = """
builtins.kept = resumed  # outlives all modules
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
"""
IN_AN_IMPORT = """
gc.disable()
cycle = [resumed]
cycle.append(cycle)
del resumed, cycle
child = os.fork()
if child == 0:
    builtins.__import__ = None  # in the middle of an import, another may fail
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("moment", [AT_ITS_END, IN_AN_IMPORT], ids=["at its end", "in an import"])
def test_a_generator_of_the_parent_is_never_closed_in_a_child(moment: str) -> None:
    assert run(GENERATOR + moment) == ("", "")


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/job/task\n", {"job/cpu.max": "150000 100000", "job/task/cpu.max": "max 100000"}, [1.5]),
        ("0::/of/the/machine\n", {"cpu.max": "50000 100000"}, [0.5]),
        ("4:cpu,cpuacct:/pod\n1:pids:/pod\n", {"cpu,cpuacct/pod/cpu.cfs_quota_us": "400000"}, [4.0]),
        ("4:cpu:/pod\n", {"cpu/cpu.cfs_quota_us": "-1"}, []),
    ],
)
def test_a_container_has_the_cpus_of_its_quota(
    tmp_path: Path, membership: str, files: dict[str, str], cpus: list[float]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        if "quota" in name:
            (tmp_path / name).with_name("cpu.cfs_period_us").write_text("100000")
    (tmp_path / "cgroup").write_text(membership)
    assert list(process.cpu_quotas(str(tmp_path / "cgroup"), str(tmp_path))) == cpus
