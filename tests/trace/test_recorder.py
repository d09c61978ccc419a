"""The recorder: counts and events, by every way to them; what is more than there is room for; threads."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from fsabs import trace
from fsabs.backends.memory import Memory
from fsabs.core import hooks
from fsabs.core.blobs import Blob
from fsabs.core.errors import CorruptFileError
from fsabs.trace import chunks, reading, recorder
from fsabs.trace.recorder import NAMES_BOUND, Recorder
from fsabs.trace.reports import render
from tests import scarce

pytestmark = pytest.mark.quick

HEADER: dict[str, Any] = {
    "schema": 2, "host": "h", "boot": "b", "pid": 7, "parent": 1, "main": 7, "cores": 2, "rank": None, "worker": None,
    "program": "p", "monotonic_ns": monotonic_ns(), "wall_ns": 10**18,
}  # fmt: skip


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    yield
    hooks.install(None)


def _recorder(folder: Path, max_bytes: int = 10**8) -> Recorder:
    return Recorder(str(folder), HEADER.copy, max_bytes=max_bytes)


def test_an_event_has_what_was_recorded(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    begin = monotonic_ns()
    made.record_span("request", "s3.get", begin, 4096, "s3://b/k", "TimeoutError", 17)
    made.record_event("retry", "s3.get", 2, "s3://b/k")
    made.finish()
    one, two = trace.events(tmp_path)
    assert (one.kind, one.name, one.layer, one.operation) == ("request", "s3.get", "s3", "get")
    assert one.begin == begin - HEADER["monotonic_ns"] + HEADER["wall_ns"]
    assert 0 < one.duration < 10**9
    assert (one.size, one.offset, one.where, one.error) == (4096, 17, "s3://b/k", "TimeoutError")
    assert one.thread == threading.get_native_id()
    assert (two.kind, two.name, two.size, two.duration, two.where) == ("retry", "s3.get", 2, 0, "s3://b/k")


def test_the_counters_are_what_happened(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    now = monotonic_ns()
    for size, ago in ((0, 1_000_000), (1, 2_000_000), (4096, 80_000_000)):
        made.record_span("fs", "m.read", now - ago, size, error="OSError" if size == 1 else "")
    made.finish()
    (found,) = made.tallies()
    assert (found.calls, found.errors, found.bytes) == (3, 1, 4097)
    assert 83_000_000 <= found.nanoseconds < 10**9
    assert trace.analyze(tmp_path).operations[0].calls == 3


def test_one_name_of_two_kinds_is_two_counters(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    for kind in ("request", "retry", "request"):
        made.record_span(kind, "s3.get", monotonic_ns())
    found = {each.kind: each.calls for each in made.tallies()}
    assert found == {"request": 2, "retry": 1}
    made.finish()


class _Broken(Memory):
    """Its files are torn: each read gives a byte less."""

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return _Short(self, key, 100)


class _Short(Blob):
    def _pread(self, size: int, offset: int) -> bytes:
        if offset:
            raise OSError(5, "broken")
        return bytes(size - 1)


def test_a_read_that_fails_is_named_and_recorded(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    hooks.install(made)
    blob = _Broken(f"broken-{os.getpid()}").open_blob("a")
    with pytest.raises(CorruptFileError) as short:
        blob.pread(10, 0)
    with pytest.raises(OSError) as broken:
        blob.pread(10, 1)
    assert short.value.filename == broken.value.filename == blob.url
    assert broken.value.operation == "read"  # type: ignore[attr-defined]
    (read,) = [each for each in made.tallies() if each.name.endswith(".read")]
    assert (read.calls, read.errors, read.bytes) == (2, 2, 0)
    made.finish()


@pytest.mark.parametrize("wrong", [("fs", "x", "begin"), ("fs", "x", 1, None), ("fs", "x", 1, 1 << 70), (1, 2, 3, "4")])
def test_nonsense_is_counted_and_never_raises(tmp_path: Path, wrong: Any) -> None:
    made = _recorder(tmp_path)
    made.record_span("fs", "y.z", monotonic_ns())
    made.record_span(*wrong)
    made.record_span("fs", "y.z", monotonic_ns())
    made.finish()
    with open(made.path, "rb") as file:
        *_, last = chunks.read(file)
    assert last.head["tally"]["refused"] == 1
    assert [(row.operation, row.calls) for row in trace.analyze(tmp_path).operations] == [("z", 2)]


def test_more_names_than_there_is_room_for_are_counted_as_other(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    for number in range(NAMES_BOUND + 50):
        made.record_span("span", f"user.{number}", monotonic_ns(), error=f"Error{number}")
    tallies = made.tallies()
    assert len(tallies) <= NAMES_BOUND + 1
    assert sum(each.calls for each in tallies) == NAMES_BOUND + 50
    made.finish()
    assert [event.name for event in trace.events(tmp_path)] == [f"user.{number}" for number in range(NAMES_BOUND + 50)]


def test_long_names_are_cut_and_secrets_are_left_out(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    made.record_span("span", '-\ud800\n"' + 3000 * "é", monotonic_ns(), error=3000 * "é")
    made.record_span(
        "span", "get https://u:SECRET@h/a?sig=SECRET", monotonic_ns(), where="file:///" + 10_000 * "é\udcff\0"
    )
    made.record_span("fs", "s.get", monotonic_ns(), where="https://u:SECRET@h/a?sig=SECRET")
    made.finish()
    first, second, third = trace.events(tmp_path)
    assert first.name.startswith('-\\ud800\n"é')  # escaped: an exporter could not encode it
    assert (len(first.name), len(first.error)) == (200 + len(r"\ud800") - 1, 200)
    assert len(second.where.encode()) < 20_000
    assert third.where == "https://h/a"
    (file,) = tmp_path.iterdir()
    with file.open("rb") as opened:
        assert "SECRET" not in "".join(map(repr, chunks.read(opened)))


def test_times_that_make_no_sense_leave_the_file_readable(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    for begin in (1, -5, monotonic_ns() + 10**12, -(1 << 62)):
        made.record_span("fs", "m.read", begin)
    made.finish()
    first, second, third, _ = trace.events(tmp_path)
    assert first.begin == second.begin + 6
    assert third.duration == 0
    assert trace.analyze(tmp_path).operations[0].calls == 4


def test_a_file_that_has_reached_its_bound_takes_no_more_and_keeps_the_counts(tmp_path: Path) -> None:
    made = _recorder(tmp_path, max_bytes=40_000)
    for number in range(4000):
        made.record_span("fs", "m.read", monotonic_ns(), number * 7919 % 10007, f"memory://x/{number * 31 % 977}")
        if number % 500 == 499:
            made.flush()
    made.finish()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= 40_000 + chunks.RESERVED
    analysis = trace.analyze(tmp_path)
    assert 0 < analysis.events < 4000
    assert analysis.events + analysis.dropped == 4000
    assert any("bound" in note for note in analysis.notes)


def test_of_a_trace_without_events_it_is_said_how_many_there_were(tmp_path: Path) -> None:
    made = _recorder(tmp_path, max_bytes=0)
    made.record_span("fs", "m.read", monotonic_ns() - 1000, 10)
    made.record_span("fs", "m.read", monotonic_ns() - 5000, 20, error="OSError")
    made.finish()
    analysis = trace.analyze(tmp_path)
    assert (analysis.events, analysis.dropped) == (0, 2)
    assert "2 events were dropped" in trace.summary(analysis)
    assert "of 0 bytes" in render(analysis)


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """A thread that records faster than they are written writes them itself."""
    made = _recorder(tmp_path)
    hooks.install(made)
    fs = Memory(f"threads-{os.getpid()}")
    fs.write_bytes("a", bytes(100))
    blob = fs.open_blob("a")
    together = threading.Barrier(20)

    def work() -> None:
        together.wait()
        for _ in range(1000):
            blob.pread(10, 5)
            made.record_event("hit", "cache.get")
        together.wait()  # the number of a thread that has ended is given to another

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tallies = {each.name: each for each in made.tallies()}
    assert (tallies["memory.read"].calls, tallies["memory.read"].bytes) == (20_000, 200_000)
    made.finish()
    events = Counter((event.name, event.thread) for event in trace.events(tmp_path))
    for name in ("memory.read", "cache.get"):
        assert [count for (other, _), count in events.items() if other == name] == [1000] * 20
    assert trace.analyze(tmp_path).dropped == 0


def test_while_a_disk_hangs_memory_is_bounded_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on, write = threading.Event(), threading.Event(), os.write

    def hanging(descriptor: int, data: bytes) -> int:
        hangs.set()
        assert goes_on.wait(60)
        return write(descriptor, data)

    made = _recorder(tmp_path)
    made.open()
    made.record_span("fs", "m.read", monotonic_ns(), 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", hanging)
        writer = threading.Thread(target=made.flush)
        writer.start()
        assert hangs.wait(30)
        for number in range(recorder.MOST + 5000):
            made.record_span("fs", "m.read", 1, number)
        assert not made.flush(0.01)  # as before a fork
        goes_on.set()
        writer.join()
    made.finish()
    analysis = trace.analyze(tmp_path)
    assert (analysis.events, analysis.dropped) == (recorder.MOST + 1, 5000)


def test_a_full_disk_ends_the_file_and_drops_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _recorder(tmp_path)
    made.open()
    made.record_span("fs", "m.read", monotonic_ns(), 5)
    made.flush()
    made.record_span("fs", "m.read", monotonic_ns(), 6)

    def full(*_: Any) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        made.finish()
    analysis = trace.analyze(tmp_path)
    assert (analysis.events, analysis.dropped) == (1, 1)
    assert any("No space left" in note for note in analysis.notes)


def test_a_file_that_has_no_room_for_its_header_is_not_left_and_the_error_names_it(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with scarce.file_size(10), pytest.raises(OSError, match="too large") as raised:
        _recorder(tmp_path).open()
    assert os.path.dirname(raised.value.filename) == str(tmp_path)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_began_before_the_trace_has_no_duration(tmp_path: Path) -> None:
    made = _recorder(tmp_path)
    made.record_span("fs", "m.read", 0)
    made.finish()
    (event,) = trace.events(tmp_path)
    assert event.duration == 0
    assert event.begin > HEADER["wall_ns"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("a/b.bin", "s3://b/p/a/b.bin"),
        ("a b#?é", "s3://b/p/a%20b%23%3F%C3%A9"),
        ("/x/../y", "s3://b/y"),
        ("./x", "s3://b/p/x"),
        ("", "s3://b/p"),
    ],
)
def test_paths_become_urls_when_they_are_read(text: str, url: str) -> None:
    assert reading.url(text, "s3://b/p", "s3://b/") == url
