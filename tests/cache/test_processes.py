"""Item caches in processes: forked, spawned, pickled, orphaned, killed; descriptors; and what is left on the disk."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fsabs.cache import FileCache, MultiprocessFileCache, ReadOnlyFileCache
from fsabs.testing.children import Child, forked, started
from tests.servers.process import wait_until


def use(cache: FileCache, mine: int) -> tuple[Any, bool, Any]:
    """What a worker does with a cache that it was given."""
    return cache.get(0), cache.put(mine, b"%d" % mine), cache.get_and_cache(9, lambda i: b"made by %d" % mine)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.nightly)])
def test_started_processes_share_the_items(tmp_path: Path, method: str) -> None:
    with FileCache(10, dir=tmp_path) as cache:
        cache.put(0, b"zero")
        assert started(method, "a worker", use, (cache, 1), 50) == (b"zero", True, b"made by 1")
        assert cache.get(1) == b"1"
        assert cache.get(9) == b"made by 1"
    assert os.listdir(tmp_path) == []


def test_forked_processes_share_the_items_and_grandchildren_too(tmp_path: Path) -> None:
    def child() -> Any:
        cache.put(5, b"five")
        return forked("a grandchild", [lambda: (cache.get(5), use(cache, 2))], 20)

    with FileCache(10, dir=tmp_path) as cache:
        cache.put(0, b"zero")
        assert forked("a child", [child], 20) == [[(b"five", (b"zero", True, b"made by 2"))]]
        assert cache.get(2) == b"2"
        copy = pickle.loads(pickle.dumps(cache))
        assert forked("a child of a copy", [lambda: use(copy, 3)], 20) == [(b"zero", True, b"made by 2")]
        copy.close()
        assert cache.get(3) == b"3"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", ["close", "killed"])
def test_a_file_goes_with_the_process_that_made_it_and_those_that_have_it_go_on(tmp_path: Path, end: str) -> None:
    answers, sending = os.pipe()

    def orphan(cache: FileCache, parent: int) -> None:
        signal.alarm(20)
        while os.getppid() == parent:
            time.sleep(0.001)
        there = len(os.listdir(tmp_path))
        with FileCache(10, dir=tmp_path):  # which removes what no process uses any more
            used = len(os.listdir(tmp_path)) - 1
        fine = use(cache, 1) == (b"zero", True, b"made by 1")
        os.write(sending, b"%d %d %d" % (fine, there, used))

    def parent() -> None:
        cache = FileCache(10, dir=tmp_path)
        cache.put(0, b"zero")
        me, (ready, begun) = os.getpid(), os.pipe()
        if os.fork() == 0:
            os.write(begun, b"x")
            orphan(cache, me)
        else:
            os.read(ready, 1)
            if end == "close":
                cache.close()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AssertionError, match="died"):
        Child("the parent", parent, 20).result()
    os.close(sending)
    assert os.read(answers, 10) == (b"1 0 0" if end == "close" else b"1 1 1")
    os.close(answers)

    def is_swept() -> bool:
        FileCache(10, dir=tmp_path).close()
        return not os.listdir(tmp_path)

    wait_until(is_swept, 20, "the end of the child")


def test_processes_that_close_at_once_leave_nothing(tmp_path: Path) -> None:
    cache = FileCache(10, dir=tmp_path)
    forked("closing", [cache.close] * 4, 20)
    assert len(os.listdir(tmp_path)) == 1, "it is its maker's"
    cache.close()
    assert os.listdir(tmp_path) == []


def test_a_pickle_that_comes_too_late_says_so(tmp_path: Path) -> None:
    with FileCache(10, dir=tmp_path) as cache:
        pickled = pickle.dumps(cache)
    with pytest.raises(FileNotFoundError) as caught:
        pickle.loads(pickled)
    assert str(tmp_path) in caught.value.filename


def test_preserved_caches_pickle_and_fork(tmp_path: Path) -> None:
    with FileCache(10, dir=tmp_path, codec="memoryview") as cache:
        cache.put(0, b"zero")
        cache.preserve("kept")
    with ReadOnlyFileCache(10, dir=tmp_path, codec="memoryview") as kept:
        kept.preload("kept")
        copy = pickle.loads(pickle.dumps(kept))
        assert forked("reading", [lambda: bytes(kept.get(0)), lambda: bytes(copy.get(0))], 20) == [b"zero"] * 2
        with FileCache(10, dir=tmp_path, codec="memoryview") as other:
            other.preserve("kept", overwrite=True)
        with pytest.raises(OSError, match="replaced"):
            pickle.loads(pickle.dumps(kept))
        assert bytes(kept.get(0)) == b"zero"
        copy.close()


def test_what_a_killed_process_leaves_goes_with_the_next_cache_and_nothing_else(tmp_path: Path) -> None:
    def killed() -> None:
        cache = FileCache(10, dir=tmp_path)
        cache.put(0, b"zero")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AssertionError, match="died"):
        forked("a killed process", [killed], 20)
    (tmp_path / "fsabs-other").write_text("not ours")
    assert len(os.listdir(tmp_path)) == 2
    with FileCache(10, dir=tmp_path) as cache, FileCache(10, dir=tmp_path):
        assert len(os.listdir(tmp_path)) == 3
        assert cache.get(0) is None
    assert os.listdir(tmp_path) == ["fsabs-other"]


def test_what_was_not_closed_goes_with_its_object_or_when_the_interpreter_exits(tmp_path: Path) -> None:
    cache = FileCache(10, dir=tmp_path)
    cache.put(0, b"x")
    del cache
    assert os.listdir(tmp_path) == []
    code = f"import fsabs.cache; cache = fsabs.cache.FileCache(9, dir={str(tmp_path)!r}); cache.put(0, b'x')"
    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)
    assert os.listdir(tmp_path) == []


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_many_caches_leak_no_descriptor_and_no_mapping(tmp_path: Path) -> None:
    with FileCache(3, dir=tmp_path) as kept:
        kept.preserve("kept")
    before, maps = descriptors(), Path("/proc/self/maps").read_text().count(str(tmp_path))
    for turn in range(50):
        with FileCache(3, dir=tmp_path) as cache:
            if turn % 10 == 0:
                cache.put(0, b"x")
                pickle.loads(pickle.dumps(cache)).close()
                with pytest.raises(OSError):
                    ReadOnlyFileCache(4, dir=tmp_path).preload("none")
                with FileCache(4, dir=tmp_path) as other, pytest.raises(ValueError):
                    other.preload("kept")
        with ReadOnlyFileCache(3, dir=tmp_path) as again:
            again.preload("kept")
    assert descriptors() <= before  # what an earlier test has dropped may be freed in between
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == maps
    assert os.listdir(tmp_path) == ["kept"]


def test_one_call_for_all_processes(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def slow(i: int) -> bytes:
        with open(calls, "a") as file:
            file.write("x")
        time.sleep(0.1)
        return b"slow"

    with MultiprocessFileCache(10, dir=tmp_path / "cache") as cache:
        assert forked("asking", [lambda: cache.get_and_cache(1, slow)] * 4, 20) == [b"slow"] * 4
        assert calls.read_text() == "x"


def test_a_killed_filler_frees_its_claim(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def stuck(i: int) -> bytes:
        os.write(writing, b"x")
        time.sleep(60)
        return b"never"

    with MultiprocessFileCache(10, dir=tmp_path) as cache:
        filler = Child("filling", lambda: cache.get_and_cache(1, stuck), 20)
        os.read(reading, 1)
        waiter = Child("waiting", lambda: cache.get_and_cache(1, lambda i: b"mine"), 10)
        time.sleep(0.05)
        filler.kill()
        assert waiter.result() == b"mine"
        assert cache.get(1) == b"mine"
    os.close(reading)
    os.close(writing)
