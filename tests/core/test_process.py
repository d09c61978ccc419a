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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsabs.core import process

pytestmark = pytest.mark.quick


def in_child(check: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether `check` is true in a forked child, which is killed if it hangs."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:  # a child must never return into the test runner
            os._exit(2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


class Client:
    """Remembers which process it was made in, and who closed or freed it."""

    closed = 0

    def __init__(self) -> None:
        self.pid = os.getpid()

    def close(self) -> None:
        type(self).closed += 1

    def __del__(self) -> None:
        assert self.pid == os.getpid(), "freed in another process"


def test_each_process_makes_its_own_and_leaves_the_inherited_one_alone() -> None:
    holder = process.PerProcess(Client, Client.close)
    mine = holder.get()
    assert holder.get() is mine

    def child() -> bool:
        own = holder.get()
        gc.collect()
        before = Client.closed
        holder.close()
        return own.pid == os.getpid() and own is not mine and Client.closed == before + 1 and holder.peek() is None

    assert in_child(child)
    assert holder.get() is mine
    holder.close()
    assert holder.peek() is None
    assert holder.get() is not mine


def test_it_is_made_once_by_many_threads() -> None:
    made: list[int] = []

    def make() -> int:
        time.sleep(0.05)
        made.append(1)
        return len(made)

    holder = process.PerProcess(make)
    threads = [threading.Thread(target=holder.get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_a_holder_pickles_as_its_recipe() -> None:
    holder: process.PerProcess[list[str]] = process.PerProcess(functools.partial(list, "ab"))
    holder.get().append("c")
    assert pickle.loads(pickle.dumps(holder)).get() == ["a", "b"]


def test_a_lock_held_at_the_fork_is_open_in_the_child() -> None:
    lock = process.Lock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def child() -> bool:
        with lock:
            return True

    assert in_child(child, 5)
    release.set()
    thread.join()


def test_a_fork_waits_for_the_calls_that_defer_it() -> None:
    """And those that would begin wait for the fork."""
    held, ended = threading.Event(), threading.Event()
    begun: list[int] = []

    def call() -> None:
        with process.forks_deferred:
            held.set()
            time.sleep(0.1)
            threading.Thread(target=begin).start()
            time.sleep(0.1)
            ended.set()

    def begin() -> None:
        with process.forks_deferred:
            begun.append(os.getpid())

    threading.Thread(target=call).start()
    held.wait()
    assert in_child(lambda: ended.is_set() and not begun, 5)
    end = time.monotonic() + 5
    while not begun and time.monotonic() < end:
        time.sleep(0.001)
    assert begun == [os.getpid()]


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a call that does not end, nor for one of the thread that forks (in a signal handler)."""
    monkeypatch.setattr(process, "MAX_WAIT", 0.2)
    held, release = threading.Event(), threading.Event()

    def call() -> None:
        with process.forks_deferred:
            held.set()
            release.wait()

    thread = threading.Thread(target=call)
    thread.start()
    held.wait()
    begin = time.monotonic()
    assert in_child(lambda: True, 5)
    assert time.monotonic() - begin >= 0.2
    release.set()
    thread.join()
    monkeypatch.setattr(process, "MAX_WAIT", 60)
    with process.forks_deferred:
        assert in_child(lambda: True, 5)


def count_from(start: int) -> Iterator[int]:
    return iter(range(start, 10))


def test_a_half_used_iterator_goes_on_everywhere() -> None:
    numbers = process.Resumable(count_from)
    assert list(itertools.islice(numbers, 4)) == [0, 1, 2, 3]
    copied = pickle.loads(pickle.dumps(numbers))
    assert in_child(lambda: list(numbers) == [4, 5, 6, 7, 8, 9])
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
    assert in_child(lambda: numbers.take(2) == [3, 4])
    assert numbers.take(20) == copied.take(20) == [3, 4, 5, 6, 7, 8, 9]
    assert numbers.take(1) == []
    failing = process.Resumable(until_five)
    with pytest.raises(KeyError):
        failing.take(7)
    assert in_child(lambda: failing.take(1) == [])  # it goes on behind what was taken


def test_threads_share_an_iterator_and_each_item_comes_once() -> None:
    numbers = process.Resumable(functools.partial(lambda start: iter(range(start, 20_000))))
    seen: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(numbers)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


class Half:
    """Something half-made."""

    def __init__(self) -> None:
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def test_what_is_unfinished_is_aborted_at_exit() -> None:
    left, done = Half(), Half()
    process.abort_at_exit(left)
    process.abort_at_exit(done)
    process.finished(done)
    process._abort_unfinished()
    process.finished(left)
    assert (left.aborted, done.aborted) == (1, 0)


def test_an_abandoned_thing_is_never_freed() -> None:
    def child() -> bool:
        thing = Client()
        process.abandon(thing)
        thing.pid = -1  # freeing it would fail
        del thing
        gc.collect()
        return True

    assert in_child(child)


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
    subprocess.run([sys.executable, "-W", "ignore", "-c", FREED_AT_FORK], check=True, timeout=60)


IMPORTED_AT_FORK = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import fsabs, first, time
begun = time.monotonic()
importing = threading.Thread(target=__import__, args=("slow",))
importing.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    import slow
    os._exit(0 if slow.ready else 1)
importing.join()
deadline = time.monotonic() + 20
while not (ended := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > deadline:
        os.kill(child, 9)
    time.sleep(0.01)
sys.exit(ended[1] or first.took > 2)
"""
FORKS_ITSELF = """
import os, threading, time
def wait():
    import first
waiting = threading.Thread(target=wait, daemon=True)
waiting.start()
time.sleep(0.1)
begun = time.monotonic()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
took = time.monotonic() - begun
"""


def test_a_fork_waits_for_what_other_threads_import(tmp_path: Path) -> None:
    """A child can't finish what they began; but a module that forks while it is imported has nobody to wait for."""
    (tmp_path / "slow.py").write_text("import time\nready = False\ntime.sleep(0.3)\nready = True\n")
    (tmp_path / "first.py").write_text(FORKS_ITSELF)
    subprocess.run([sys.executable, "-c", IMPORTED_AT_FORK, str(tmp_path)], check=True, timeout=60)


ENDS_WITH_A_GENERATOR = """
import builtins, os, sys
from fsabs.spi import process

owner = os.getpid()

def items(start):
    try: yield from range(start, 9)
    finally: os.getpid() == owner or os.write(1, b"closed in a child")

builtins.kept = process.Resumable(items)  # outlives all modules
next(builtins.kept)
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
"""
COLLECTED_IN_AN_IMPORT = """
import builtins, gc, os
from fsabs.spi import process

owner = os.getpid()

def items(start):
    try: yield from range(start, 9)
    finally: os.getpid() == owner or os.write(1, b"closed in a child")

gc.disable()
cycle = [process.Resumable(items)]
next(cycle[0])
cycle.append(cycle)
del cycle
child = os.fork()
if child == 0:
    builtins.__import__ = None  # in the middle of an import, another may fail
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("code", [ENDS_WITH_A_GENERATOR, COLLECTED_IN_AN_IMPORT])
def test_a_generator_of_the_parent_is_never_closed_in_a_child(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")
