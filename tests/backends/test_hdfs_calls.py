"""Calls with a time limit, in threads that are kept: in order, no more at once than asked, and none left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from fsabs.backends.hdfs.calls import each_within, within
from fsabs.stats import FileStat

pytestmark = pytest.mark.quick


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
    found = list(each_within(10, "read", call, range(50), 4))
    assert [repr(one) if isinstance(one, ValueError) else one for one in found] == [
        f"ValueError({item})" if item % 10 == 7 else item for item in range(50)
    ]
    assert (call.most, call.calls) == (4, 50)


def test_few_items_need_few_threads() -> None:
    call = Counted()
    before = helpers()
    assert list(each_within(10, "read", call, [1], 64)) == [1]
    assert list(each_within(10, "read", call, [], 64)) == []
    assert helpers() <= before + 1


def test_who_stops_early_leaves_nothing_to_do() -> None:
    call = Counted()
    for _ in range(5):
        found = each_within(10, "read", call, range(1000), 4)
        assert next(found) == 0
        found.close()
    before = helpers()
    calls = call.calls
    assert within(10, "read", call, 3) == 3
    time.sleep(0.05)
    assert call.calls <= calls + 5  # what was under way, and the last one
    assert list(each_within(10, "read", call, range(4), 4)) == [0, 1, 2, 3]
    assert helpers() <= before + 1, "the threads of a batch that was given up serve the next one"


def test_a_silent_call_is_a_timeout_and_the_others_go_on() -> None:
    silent = threading.Event()

    def call(item: int) -> int:
        if item == 1:
            silent.wait(30)
        return item

    first, second, third = each_within(0.2, "read", call, [0, 1, 2], 2)
    silent.set()
    assert (first, third) == (0, 2)
    assert isinstance(second, TimeoutError)
    assert "no answer to read" in str(second)
    with pytest.raises(TimeoutError, match="no answer to stat within"):
        within(0.05, "stat", time.sleep, 0.2)


class SilentDriver:
    """A driver that gets no response to its first `silent` calls, and waits for one as long as it may."""

    timeout = 1.5

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.size = 7

    def _wait(self, seconds: float) -> None:
        self.silent -= 1
        if self.silent >= 0:
            time.sleep(seconds)
            raise TimeoutError(110, "no answer")

    def read_small(self, path: str, seconds: float, limit: int = 0) -> bytes:
        self._wait(seconds)
        return b"content"

    def read_small_once(self, path: str) -> bytes:
        self._wait(3 * self.timeout)
        return b"content"

    def stat(self, path: str, seconds: float | None = None) -> FileStat:
        return FileStat("x", 7, version="v")

    def open(self, path: str, seconds: float) -> tuple[SilentDriver, FileStat]:
        self._wait(seconds)
        return self, self.stat(path)

    def read_range(self, offset: int, size: int, seconds: float) -> bytes:
        self._wait(seconds)
        return b"content"[offset : offset + size]


def opened(fs: fsabs.FS) -> bytes:
    with fs.open("x", "rb") as file:
        return file.read()


READS: list[Callable[[fsabs.FS], Any]] = [
    opened,
    lambda fs: fs.read_bytes("x"),
    lambda fs: fs.open_blob("x").read_all(),
    lambda fs: next(fs.read_many(["x"])),
]


def silent_fs(silent: int) -> Hdfs:
    fs = Hdfs("/", "localhost:1", timeout=SilentDriver.timeout)
    fs._driver.adopt(SilentDriver(silent))  # type: ignore[arg-type]
    return fs


@pytest.mark.parametrize("read", READS[:2] + READS[3:])
def test_a_read_without_an_answer_has_a_second_attempt(read: Callable[[fsabs.FS], Any]) -> None:
    begun = time.monotonic()
    assert read(silent_fs(1)) == b"content"
    assert time.monotonic() - begun < SilentDriver.timeout


@pytest.mark.parametrize("read", READS)
def test_a_read_that_nothing_answers_ends_at_its_deadline(read: Callable[[fsabs.FS], Any]) -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        read(silent_fs(1000))
    assert time.monotonic() - begun < SilentDriver.timeout + 1


def test_a_small_file_that_is_opened_knows_its_version_when_it_is_asked_for_one() -> None:
    with silent_fs(0).open("x", "rb") as file:
        assert (file.read(3), file.blob.version, file.read()) == (b"con", "v", b"tent")
    with silent_fs(0).open("x", "rb") as file:
        file.blob._data = b"another"  # type: ignore[attr-defined]
        with pytest.raises(fsabs.StaleFileError):
            _ = file.blob.version
