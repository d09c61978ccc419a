"""What is stored together: groups of new files, their place within the limits, and what a killed process leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fsabs.cache.content import GROUP, GROUP_BYTES, in_groups
from fsabs.cache.disk import EntryKey, open_disk
from fsabs.cache.eviction import DiskLimits, size_of
from fsabs.cache.policy import ReadOrder
from fsabs.disk.files import Replacement
from fsabs.testing.children import forked
from tests.cache.stores import CONTENTS, NAMES, Store, cached, entry, noise
from tests.cache.test_cold import Far

pytestmark = pytest.mark.quick

PROCESSES = 6
SIZE = 50_000


def on_disk(folder: Path) -> list[int]:
    paths = [path for path in folder.glob("entries-1/??/*") if not path.name.startswith(".")]
    return [path.stat().st_blocks * 512 for path in paths]


def entries(prefix: str, count: int, size: int = SIZE) -> list[tuple[EntryKey, bytes]]:
    names = [f"{prefix}{at}" for at in range(count)]
    return [(entry(name.encode(), f"memory://{name}"), noise(size, at)) for at, name in enumerate(names)]


def test_groups_end_by_number_and_by_size() -> None:
    assert [len(group) for group in in_groups(range(2 * GROUP + 1), lambda one: 1)] == [GROUP, GROUP, 1]
    assert [len(group) for group in in_groups(range(5), lambda one: GROUP_BYTES // 2)] == [2, 2, 1]
    assert list(in_groups([], lambda one: 1)) == []


def test_an_error_comes_after_what_was_before_it(store: Store, folder: str) -> None:
    fs = cached(Far(store.inner), folder)
    found = fs.read_many([*NAMES[:5], "no such", NAMES[6]])
    assert [next(found) for _ in range(5)] == CONTENTS[:5]
    with pytest.raises(FileNotFoundError, match="no%20such"):
        next(found)
    assert fs.status()["disk"]["entries"] == 5


def test_groups_of_several_processes_stay_within_the_limit(tmp_path: Path) -> None:
    """All ask for room at one moment, when there is room for one group."""
    limits = DiskLimits(30 * 53_248, 0)
    open_disk(str(tmp_path), limits).status()
    begin = time.time() + 0.3

    def put(number: int) -> int:
        disk = open_disk(str(tmp_path), limits)
        wanted = [entries(f"{number} {at} ", 20) for at in range(5)]
        time.sleep(max(0.0, begin - time.time()))
        return sum(sum(disk.put_many(group, ReadOrder())) for group in wanted)

    admitted = forked("writers", [lambda number=number: put(number) for number in range(PROCESSES)], 30)  # type: ignore[misc]
    assert limits.max_bytes is not None
    assert sum(on_disk(tmp_path)) <= 1.05 * limits.max_bytes + PROCESSES * 4 * 1024 * 1024
    assert sum(admitted) >= 20
    disk = open_disk(str(tmp_path), limits)
    disk.put_many(entries("more", 20), ReadOrder())
    assert 0.5 * limits.max_bytes <= sum(on_disk(tmp_path)) <= limits.max_bytes
    status = open_disk(str(tmp_path), limits).status()
    assert (status["entries"], status["bytes"]) == (len(on_disk(tmp_path)), sum(on_disk(tmp_path)))


def test_what_is_there_or_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = open_disk(str(tmp_path), DiskLimits(10**7, 0))
    group = entries("x", 5)
    assert disk.put_many([*group, group[0]], ReadOrder()) == [True] * 6
    assert disk.put_many(group, ReadOrder()) == [True] * 5
    assert disk.status()["entries"] == 5
    write = Replacement.write

    def full(out: Replacement, data: bytes) -> None:
        if len(data) > SIZE:
            raise OSError(28, "No space left on device")
        write(out, data)

    monkeypatch.setattr(Replacement, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        found = disk.put_many([*entries("y", 1), *entries("large", 1, SIZE + 1), *entries("z", 1)], ReadOrder())
    assert found == [True, False, False]
    status = disk.status()
    assert (status["entries"], status["bytes"]) == (6, sum(on_disk(tmp_path)))


def test_a_process_that_is_killed_in_a_group_leaves_what_it_had_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, write = open_disk(str(tmp_path), DiskLimits(10**7, 0)), Replacement.write
    assert all(disk.put_many(entries("before", 3), ReadOrder()))
    written = iter(range(5))  # head and content of two, and the head of a third

    def killed(out: Replacement, data: bytes) -> None:
        if next(written, None) is None:
            os._exit(0)
        write(out, data)

    if not (pid := os.fork()):
        monkeypatch.setattr(Replacement, "write", killed)
        disk.put_many(entries("killed", 5), ReadOrder())
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    status = disk.status()
    [partial] = tmp_path.glob("entries-1/??/.*")
    assert (status["entries"], status["bytes"]) == (5, sum(on_disk(tmp_path)) + size_of(partial.stat()))
    monkeypatch.setattr("fsabs.disk.files.LEFTOVER_SECONDS", -1.0)
    assert disk.status()["bytes"] == sum(on_disk(tmp_path))
    assert not partial.exists(), "what nobody has touched for a day is removed"
