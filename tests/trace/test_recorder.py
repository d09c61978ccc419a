"""The recorder: counts and events, by every way to them; what is more than there is room for; threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from fsabs import hooks, trace
from fsabs.backends.memory import Memory
from fsabs.blobs import Blob
from fsabs.errors import CorruptFileError
from fsabs.trace import TracedFS, fast, reading, ring
from fsabs.trace.recorder import NAMES_BOUND, EventRecorder, Recorder
from fsabs.trace.ring import Ring
from fsabs.trace.writer import Flusher, TraceFile
from tests import scarce

pytestmark = pytest.mark.quick

HEADER: dict[str, Any] = {
    "schema": 1, "host": "h", "boot": "b", "pid": 7, "parent": 1, "rank": None, "worker": None, "program": "p",
    "monotonic_ns": 0, "wall_ns": 0, "events": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    yield
    hooks.install(None)


def _recorder(folder: Path, capacity: int = 1024, detail: type[Recorder] = EventRecorder) -> Recorder:
    folder.mkdir(exist_ok=True)
    return detail(Ring(str(folder / "trace-h-7-1.ring"), HEADER, capacity))


def _flusher(recorder: Recorder, folder: Path, bound: int = 10**8) -> Flusher:
    return Flusher(recorder, TraceFile(str(folder / "trace-h-7-1.json.gz"), HEADER, bound))


def test_an_event_has_what_was_told(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    begin = monotonic_ns()
    recorder.record_span("request", "s3.get", begin, 4096, "s3://b/k", "TimeoutError", 17)
    recorder.record_event("retry", "s3.get", 2, "s3://b/k")
    _flusher(recorder, tmp_path).finish()
    one, two = trace.events(tmp_path)
    assert (one.kind, one.name, one.layer, one.operation) == ("request", "s3.get", "s3", "get")
    assert abs(one.begin - begin) <= 1  # microseconds with three digits
    assert 0 < one.duration < 10**9
    assert (one.size, one.offset, one.where, one.error) == (4096, 17, "s3://b/k", "TimeoutError")
    assert one.thread == threading.get_native_id()
    assert (two.kind, two.name, two.size, two.duration, two.where) == ("retry", "s3.get", 2, 0, "s3://b/k")
    assert not (tmp_path / "trace-h-7-1.ring").exists()


def test_the_counters_are_what_happened(tmp_path: Path) -> None:
    for detail in (Recorder, EventRecorder):
        recorder = _recorder(tmp_path / detail.__name__, detail=detail)
        now = monotonic_ns()
        for size, ago in ((0, 1_000_000), (1, 2_000_000), (4096, 80_000_000)):
            recorder.record_span("fs", "m.read", now - ago, size, error="OSError" if size == 1 else "")
        _flusher(recorder, tmp_path / detail.__name__).finish()
        (found,) = recorder.tally()["histograms"]
        assert (found["calls"], found["errors"], found["bytes"]) == (3, 1, 4097)
        assert 83_000_000 <= found["nanoseconds"] < 10**9
        assert 1_000_000 <= found["least"] < 2_000_000
        assert found["most"] >= 80_000_000
        assert sum(found["latency"]) == 3
        assert found["sizes"] == [1, 1] + [0] * 11 + [1]


def test_one_name_of_two_kinds_is_two_counters(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    for kind in ("request", "retry", "request"):
        recorder.record_span(kind, "s3.get", monotonic_ns())
    found = {each["kind"]: each["calls"] for each in recorder.tally()["histograms"]}
    assert found == {"request": 2, "retry": 1}


@pytest.mark.parametrize("detail", [Recorder, EventRecorder])
def test_the_fast_read_records_what_done_records(tmp_path: Path, detail: type[Recorder]) -> None:
    found = []
    for way in ("fast", "told"):
        recorder = _recorder(tmp_path / way, detail=detail)
        told = hooks.Deferred(lambda recorder=recorder: recorder)  # type: ignore[misc]
        hooks.install(recorder if way == "fast" else told)
        fs = TracedFS(Memory(f"fast-{os.getpid()}"))
        fs.inner.write_bytes("a", bytes(range(100)))
        with fs._open_blob("a") as blob:
            hooks.install(recorder)
            assert [blob.pread(10, 90), blob.pread(10, 95), blob.pread(0, 0), blob.pread(5, 200)] == [
                bytes(range(90, 100)), bytes(range(95, 100)), b"", b"",
            ]  # fmt: skip
            with pytest.raises(ValueError):
                blob.pread(-1, 0)
        with pytest.raises(ValueError):
            blob.pread(1, 0)
        _flusher(recorder, tmp_path / way).finish()
        tallies = {each["name"]: each for each in recorder.tally()["histograms"]}
        counted = {key: tallies["memory.read"][key] for key in ("calls", "errors", "bytes", "sizes")}
        events = [
            (event.kind, event.size, event.offset, event.where, event.error)
            for event in trace.events(tmp_path / way)
            if event.name == "memory.read"
        ]
        found.append((counted, events))
    assert found[0] == found[1]
    assert found[0][0]["calls"] == 6
    assert found[0][0]["bytes"] == 15
    assert found[0][0]["errors"] == 2
    assert len(found[0][1]) == (6 if detail is EventRecorder else 0)


@pytest.mark.parametrize("detail", [Recorder, EventRecorder])
def test_the_files_of_a_batch_are_recorded_as_by_record_span(tmp_path: Path, detail: type[Recorder]) -> None:
    names = [f"{number % 70:02}" for number in range(3 * fast.GROUP // 2)] + ["none"]
    found = []
    for way in ("fast", "told"):
        recorder = _recorder(tmp_path / way, detail=detail)
        fs = TracedFS(Memory(f"batch-{os.getpid()}"))
        for number in range(70):
            fs.inner.write_bytes(f"{number:02}", bytes(number))
        hooks.install(recorder if way == "fast" else _Passing(recorder))
        with pytest.raises(FileNotFoundError):
            list(fs.read_many(names))
        hooks.install(recorder)
        assert [*map(len, fs.read_many([]))] == []
        batch = fs.read_many(names[:3])
        assert next(batch) == b""
        hooks.install(None)
        assert next(batch) == bytes(1)
        hooks.install(recorder)
        assert next(batch) == bytes(2)
        del batch
        _flusher(recorder, tmp_path / way).finish()
        tallies = {(each["kind"], each["name"]): each for each in recorder.tally()["histograms"]}
        counted = {key: tallies["fs", "memory.read_many"][key] for key in ("calls", "errors", "bytes", "sizes")}
        events = [
            (event.kind, event.name, event.size, event.offset, event.where, event.error, event.thread)
            for event in trace.events(tmp_path / way)
        ]
        found.append((counted, events))
    assert found[0] == found[1]
    assert found[0][0]["calls"] == len(names) + 2
    assert found[0][0]["errors"] == 1
    if detail is EventRecorder:
        assert [event[4].rpartition("/")[2] for event in found[0][1] if event[0] == "fs"] == [*names, "00", "02"]


class _Passing(hooks.Instrument):
    """Another instrument, which passes on to a recorder."""

    calls = True

    def __init__(self, recorder: Recorder) -> None:
        self.record_span = recorder.record_span  # type: ignore[method-assign]
        self.record_event = recorder.record_event  # type: ignore[method-assign]


class _Broken(Memory):
    """Its files are torn: each read gives a byte less."""

    def _open_blob(self, key: str) -> Blob:
        return _Short(self, key, 100)


class _Short(Blob):
    def _pread(self, size: int, offset: int) -> bytes:
        if offset:
            raise OSError(5, "broken")
        return bytes(size - 1)


@pytest.mark.parametrize("detail", [Recorder, EventRecorder])
def test_a_read_that_fails_is_named_and_told(tmp_path: Path, detail: type[Recorder]) -> None:
    recorder = _recorder(tmp_path, detail=detail)
    hooks.install(recorder)
    blob = TracedFS(_Broken(f"broken-{os.getpid()}"))._open_blob("a")
    with pytest.raises(CorruptFileError) as short:
        blob.pread(10, 0)
    with pytest.raises(OSError) as broken:
        blob.pread(10, 1)
    assert short.value.filename == broken.value.filename == blob.url
    assert broken.value.operation == "read"  # type: ignore[attr-defined]
    (read,) = [each for each in recorder.tally()["histograms"] if each["name"].endswith(".read")]
    assert (read["calls"], read["errors"], read["bytes"]) == (2, 2, 0)


@pytest.mark.parametrize("wrong", [("fs", "x", "begin"), ("fs", "x", 1, None), ("fs", "x", 1, 1 << 70), (1, 2, 3, "4")])
def test_nonsense_is_counted_and_never_raises(tmp_path: Path, wrong: Any) -> None:
    recorder = _recorder(tmp_path)
    recorder.record_span(*wrong)
    assert recorder.refused == 1
    recorder.record_span("fs", "y.z", monotonic_ns())
    assert recorder.refused == 1


def test_more_names_than_there_is_room_for_are_counted_as_other(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 4096)
    for number in range(NAMES_BOUND + 50):
        recorder.record_span("span", f"user.{number}", monotonic_ns(), error=f"Error{number}")
    tallies = recorder.tally()["histograms"]
    assert len(tallies) <= NAMES_BOUND + 1
    assert sum(each["calls"] for each in tallies) == NAMES_BOUND + 50
    _flusher(recorder, tmp_path).finish()
    names = [event.name for event in trace.events(tmp_path)]
    assert names[0] == "user.0"
    assert names[-1] == "other"


def test_names_that_are_too_long_or_too_many_bytes_are_kept_short_or_counted_as_other(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 4096)
    for number in range(NAMES_BOUND):
        recorder.record_span("span", f'{number}-\ud800\n"' + 3000 * "é", monotonic_ns(), error=f"{number}" + 3000 * "é")
    recorder.record_span(
        "span", "get https://u:SECRET@h/a?sig=SECRET", monotonic_ns(), where="file:///" + 10_000 * "é\udcff"
    )
    _flusher(recorder, tmp_path).finish()
    events = list(trace.events(tmp_path))
    assert len(events) == NAMES_BOUND + 1
    assert {event.kind for event in events} == {"span"}
    assert events[0].name.startswith('0-\ud800\n"é')
    assert {len(event.name) for event in events} <= {200, len("other")}
    assert events[-1].name == "other"
    assert max(len(event.where) for event in events) <= 1024
    assert "SECRET" not in repr(trace.analyse(tmp_path))


def test_times_that_make_no_sense_leave_the_file_readable(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path)
    for begin in (1, -5, monotonic_ns() + 10**12):
        recorder.record_span("fs", "m.read", begin)
    _flusher(recorder, tmp_path).finish()
    first, second, third = trace.events(tmp_path)
    assert first.begin == second.begin + 1
    assert third.duration == 0


def test_what_the_ring_was_overrun_by_is_counted(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 64)
    for number in range(1000):
        recorder.record_span("fs", "m.read", monotonic_ns(), number)
    _flusher(recorder, tmp_path).finish()
    sizes = [event.size for event in trace.events(tmp_path)]
    assert sizes
    assert sizes == list(range(sizes[0], 1000))
    analysis = trace.analyse(tmp_path)
    assert analysis.events + analysis.dropped == 1000
    assert analysis.operations[0].calls == 1000
    assert analysis.operations[0].bytes == sum(range(1000))
    assert any("dropped" in note for note in analysis.notes)
    assert "F016" in [finding.code for finding in analysis.findings]


def test_a_file_that_has_reached_its_bound_takes_no_more(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 4096)
    flusher = _flusher(recorder, tmp_path, bound=20_000)
    for number in range(4000):
        recorder.record_span("fs", "m.read", monotonic_ns(), number * 7919 % 10007, f"memory://x/{number * 31 % 977}")
    flusher.finish()
    assert (tmp_path / "trace-h-7-1.json.gz").stat().st_size <= 20_000
    analysis = trace.analyse(tmp_path)
    assert analysis.operations[0].calls == 4000


def test_texts_beyond_their_room_make_the_oldest_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "TEXTS_SIZE", 1024)
    recorder = _recorder(tmp_path, 1024)
    for number in range(100):
        recorder.record_span("fs", "m.read", monotonic_ns(), number, f"memory://x/{number}")
    left = ring.read(recorder.ring.path)
    wheres = {record[2]: left.texts.get(record[4], "") for record in left.records}
    assert wheres[99] == "memory://x/99"
    assert wheres[70] == "memory://x/70"
    assert all(where in ("", f"memory://x/{size}") for size, where in wheres.items())


def test_threads_lose_nothing(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 1 << 15)
    hooks.install(recorder)
    fs = TracedFS(Memory(f"threads-{os.getpid()}"))
    fs.inner.write_bytes("a", bytes(100))
    blob = fs._open_blob("a")

    together = threading.Barrier(4)

    def work() -> None:
        together.wait()
        for _ in range(1000):
            blob.pread(10, 5)
            recorder.record_event("hit", "cache.get")
        together.wait()  # the number of a thread that has ended is given to another

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tallies = {each["name"]: each for each in recorder.tally()["histograms"]}
    assert tallies["memory.read"]["calls"] == 4000
    assert tallies["memory.read"]["bytes"] == 40_000
    _flusher(recorder, tmp_path).finish()
    events = list(trace.events(tmp_path))
    assert sum(event.name == "memory.read" for event in events) == 4000
    assert sum(event.kind == "hit" for event in events) == 4000
    assert len({event.thread for event in events if event.kind == "hit"}) == 4


def test_the_thread_writes_while_the_process_goes_on(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, 4096)
    flusher = _flusher(recorder, tmp_path)
    assert isinstance(recorder, EventRecorder)
    flusher.start()
    for number in range(20_000):
        recorder.record_span("fs", "m.read", monotonic_ns(), number, "memory://x/y")
        while number % 500 == 0 and recorder.kept < number - 3000:  # it is the thread that makes room
            time.sleep(0.002)
    flusher.finish()
    (source,), _ = reading.sources(tmp_path)
    read = sum(len(chunk) for chunk in source.chunks())
    assert source.footer is not None
    assert source.footer["recorded"] == 20_000
    assert (read, recorder.kept, source.footer["dropped"]) == (20_000, 20_000, 0)


def test_a_gap_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was interrupted between its claim and its record."""
    recorder = _recorder(tmp_path)
    assert isinstance(recorder, EventRecorder)
    recorder.record_span("fs", "m.read", monotonic_ns(), 1)
    recorder.claim()
    recorder.record_span("fs", "m.read", monotonic_ns(), 3)
    _flusher(recorder, tmp_path).finish()
    assert [event.size for event in trace.events(tmp_path)] == [1, 3]


def test_a_full_disk_ends_the_file_and_keeps_the_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _recorder(tmp_path)
    flusher = _flusher(recorder, tmp_path)
    recorder.record_span("fs", "m.read", monotonic_ns(), 5)

    def full(*_: Any) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        flusher.finish()
    analysis = trace.analyse(tmp_path)
    assert analysis.operations[0].calls == 1
    assert analysis.events == 1


def test_deferred_is_made_once_and_replaced(tmp_path: Path) -> None:
    made = []

    def make() -> hooks.Instrument:
        made.append(_recorder(tmp_path))
        return made[0]

    deferred = hooks.Deferred(make)
    hooks.install(deferred)
    deferred.record_span("fs", "m.read", monotonic_ns(), 1)
    deferred.record_event("hit", "m.get")
    assert hooks.active is made[0]
    deferred.record_span("fs", "m.read", 0)  # who began before anybody watched has no duration
    assert max(each["most"] for each in made[0].tally()["histograms"]) < 10**9
    assert len(made) == 1
    assert sum(each["calls"] for each in made[0].tally()["histograms"]) == 3


def test_a_file_that_has_no_room_for_its_header_is_not_left(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with scarce.file_size(10), pytest.raises(OSError, match="too large"):
        TraceFile(str(tmp_path / "trace-h-7-1.json.gz"), HEADER)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)
