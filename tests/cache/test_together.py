"""What is stored together: groups of new files, their place within the limits, and what a killed process leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fsabs.cache.content import GROUP, GROUP_BYTES, in_groups
from fsabs.cache.disk import open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.folder import EntryFolder
from fsabs.cache.policy import ReadOrder
from fsabs.testing.children import forked
from tests.cache.stores import CONTENTS, NAMES, Store, cached, noise
from tests.cache.test_cold import Far

PROCESSES = 6
SIZE = 50_000


def on_disk(folder: Path) -> list[int]:
    paths = [path for path in folder.glob("entries-1/??/*") if not path.name.startswith(".")]
    return [path.stat().st_blocks * 512 for path in paths]


def entries(prefix: str, count: int, size: int = SIZE) -> list[tuple[bytes, str, bytes]]:
    return [(f"{prefix}{at}".encode(), f"memory://{prefix}{at}", noise(size, at)) for at in range(count)]


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
    assert sum(on_disk(tmp_path)) <= limits.max_bytes
    status = open_disk(str(tmp_path), limits).status()
    assert (status["entries"], status["bytes"]) == (len(on_disk(tmp_path)), sum(on_disk(tmp_path)))
    assert len(on_disk(tmp_path)) == sum(admitted) >= 20


def test_a_process_that_is_killed_in_a_group_takes_its_room_until_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, write = open_disk(str(tmp_path), DiskLimits(10**7, 0)), EntryFolder.write
    assert all(disk.put_many(entries("before", 3), ReadOrder()))
    written = iter(range(2))

    def killed(folder: EntryFolder, path: str, head: bytes, content: bytes, pinned: bool) -> tuple[int, int]:
        if next(written, None) is None:
            os._exit(0)
        return write(folder, path, head, content, pinned)

    if not (pid := os.fork()):
        monkeypatch.setattr(EntryFolder, "write", killed)
        disk.put_many(entries("killed", 5), ReadOrder())
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    status = disk.status()
    assert (status["entries"], len(on_disk(tmp_path))) == (8, 5)
    assert sum(on_disk(tmp_path)) <= status["bytes"] <= sum(on_disk(tmp_path)) + GROUP_BYTES
    disk.sweep()
    status = disk.status()
    assert (status["entries"], status["bytes"]) == (5, sum(on_disk(tmp_path)))


def test_what_is_there_or_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = open_disk(str(tmp_path), DiskLimits(10**7, 0))
    group = entries("x", 5)
    assert disk.put_many([*group, group[0]], ReadOrder()) == [True] * 6
    assert disk.put_many(group, ReadOrder()) == [True] * 5
    assert disk.status()["entries"] == 5
    write = EntryFolder.write

    def full(folder: EntryFolder, path: str, head: bytes, content: bytes, pinned: bool) -> tuple[int, int]:
        if len(content) > SIZE:
            raise OSError(28, "No space left on device")
        return write(folder, path, head, content, pinned)

    monkeypatch.setattr(EntryFolder, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        found = disk.put_many([*entries("y", 1), *entries("large", 1, SIZE + 1), *entries("z", 1)], ReadOrder())
    assert found == [True, False, False]
    status = disk.status()
    assert (status["entries"], status["bytes"]) == (6, sum(on_disk(tmp_path)))
