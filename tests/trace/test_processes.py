"""Processes that are forked, spawned and killed: what each made is in the trace, against a count of one's own."""

from __future__ import annotations

import gzip
import json
import mmap
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.core import hooks
from fsabs.core.blobs import Blob
from fsabs.trace import chunks, session
from tests import preloaded

WORKERS = 4
FILES = 20
FORK = multiprocessing.get_context("fork")


def _worker(data: str, counts: str, slot: int, stop: str) -> None:
    """Read until told to stop; what was done is counted in a mapped file, which a SIGKILL doesn't undo."""
    with open(counts, "r+b") as file:
        count = mmap.mmap(file.fileno(), 0)
    done = 0
    with fsabs.from_url(data) as fs:
        while not os.path.exists(stop):
            fs.read_bytes(f"{done % FILES}.bin")
            done += 1
            struct.pack_into("<Q", count, 8 * slot, done)
            time.sleep(0.001)  # some are started long before the last one is, and all that they do is analysed


def _counted(counts: Path, slot: int) -> int:
    found: int = struct.unpack_from("<Q", counts.read_bytes(), 8 * slot)[0]
    return found


def _start(context: BaseContext, *args: Any) -> Any:
    process = context.Process(target=_worker, args=args)  # type: ignore[attr-defined]
    process.start()
    return process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.bin").write_bytes(bytes(1000 + number))
    return folder


def test_forked_and_spawned_workers_two_of_which_are_killed(tmp_path: Path, data: Path) -> None:
    folder, stop, counts = tmp_path / "trace", tmp_path / "stop", tmp_path / "counts"
    counts.write_bytes(bytes(8 * 2 * WORKERS))
    trace.start(folder)
    try:
        fsabs.from_url(str(data)).stat("0.bin")  # the parent traces, too, before it forks
        methods = ["fork"] * WORKERS + ["spawn"] * WORKERS
        workers = [
            _start(multiprocessing.get_context(method), str(data), str(counts), slot, str(stop))
            for slot, method in enumerate(methods)
        ]
        deadline = time.monotonic() + 40
        while min(_counted(counts, slot) for slot in range(len(workers))) < 500:
            assert time.monotonic() < deadline, [_counted(counts, slot) for slot in range(len(workers))]
            time.sleep(0.02)
        killed = {1, WORKERS + 1}
        flushed = dict.fromkeys((workers[slot].pid for slot in killed), 0)
        while min(flushed.values()) <= chunks.RESERVED:
            assert time.monotonic() < deadline, flushed
            flushed |= {int(path.name.split("-")[-2]): path.stat().st_size for path in folder.iterdir()}
            time.sleep(0.02)
        for slot in killed:
            os.kill(workers[slot].pid, signal.SIGKILL)
            workers[slot].join()
        stop.touch()
        for worker in workers:
            worker.join()
    finally:
        trace.stop()
    made = {worker.pid: _counted(counts, slot) for slot, worker in enumerate(workers)}
    analysis = trace.analyze(folder)
    pids = {process.number: process.pid for process in analysis.processes}
    found = Counter(pids[event.process] for event in trace.events(folder) if event.name == "local.read_bytes")
    for slot, worker in enumerate(workers):
        if slot in killed:  # it loses what it did since its last flush
            assert 0 < found[worker.pid] <= made[worker.pid] + 1
        else:
            assert found[worker.pid] == made[worker.pid]
    ended = {process.pid: process.ended for process in analysis.processes}
    assert [ended[worker.pid] for worker in workers] == [slot not in killed for slot in range(len(workers))]
    assert analysis.dropped == 0
    merged = json.loads(gzip.decompress(Path(trace.merge(folder)).read_bytes()))
    in_merged = Counter(event["pid"] for event in merged if event["name"] == "local.read_bytes")
    assert in_merged == found
    (row,) = [row for row in analysis.operations if row.operation == "read_bytes"]
    assert row.calls == found.total()


def _read_flush_and_be_killed(data: str) -> None:
    fs = fsabs.from_url(data)
    for number in range(FILES):
        fs.read_bytes(f"{number}.bin")
    instrument: Any = hooks.active
    instrument.flush()
    fs.read_bytes("0.bin")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_what_it_had_flushed(tmp_path: Path, data: Path) -> None:
    with trace.record(tmp_path / "trace"):
        child = FORK.Process(target=_read_flush_and_be_killed, args=(str(data),))
        child.start()
        child.join()
    found = [event for event in trace.events(tmp_path / "trace") if event.name == "local.read_bytes"]
    assert [event.size for event in found] == [1000 + number for number in range(FILES)]
    assert [event.where for event in found] == [f"file://{data}/{number}.bin" for number in range(FILES)]
    assert any("orderly" in note for note in trace.analyze(tmp_path / "trace").notes)


@pytest.mark.quick
def test_it_is_flushed_while_it_goes_on(tmp_path: Path, data: Path) -> None:
    (tmp_path / "trace").mkdir()
    with trace.record(tmp_path / "trace"):
        fsabs.from_url(str(data)).read_bytes("0.bin")
        deadline = time.monotonic() + 30
        while not any(event.size == 1000 for event in trace.events(tmp_path / "trace")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        analysis = trace.analyze(tmp_path / "trace")
        assert not analysis.processes[0].ended


def test_a_child_that_does_nothing_makes_no_files(tmp_path: Path) -> None:
    with trace.record(tmp_path / "trace"):
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        assert len({name.split("-")[2] for name in os.listdir(tmp_path / "trace")}) == 1


def _read_often(blob: Blob) -> None:
    for _ in range(50):
        blob.pread(10, 0)
    instrument: Any = hooks.active
    instrument.flush()


def test_a_child_does_not_write_into_its_parents_file(tmp_path: Path, data: Path) -> None:
    fs = fsabs.from_url(str(data), trace=tmp_path / "trace")
    try:
        with fs.open_blob("0.bin") as blob:
            blob.pread(10, 0)
            child = FORK.Process(target=_read_often, args=(blob,))
            child.start()
            child.join()
            blob.pread(10, 0)
    finally:
        trace.stop()
    reads = Counter(event.process for event in trace.events(tmp_path / "trace") if event.name == "local.read")
    assert reads == {0: 2, 1: 50}


def _traced_into(settings: Any) -> None:
    with open(settings, "w") as file:
        file.write(repr(session.current()))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_worker_traces_as_its_parent_does_when_it_is_started(tmp_path: Path, data: Path, method: str) -> None:
    """A forkserver has the environment of when it was started itself."""
    context: Any = multiprocessing.get_context(method)
    found = []
    for folder in ("one", "two", ""):
        settings = tmp_path / f"settings-{folder}"
        if folder:
            trace.start(tmp_path / folder, max_bytes=12345)
        worker = context.Process(target=_traced_into, args=(str(settings),))
        worker.start()
        worker.join()
        trace.stop()
        found.append(settings.read_text())
    expected = [f"TraceSettings(folder={str(tmp_path / folder)!r}, max_bytes=12345)" for folder in ("one", "two")]
    assert found == [*expected, "None"]


class _Numbers:
    """A data set."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> int:
        return number


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly), "forkserver"])
def test_each_fetch_of_a_worker_is_recorded_the_first_one_too(tmp_path: Path, method: str) -> None:
    loaders: Any = pytest.importorskip("torch.utils.data")
    loader = loaders.DataLoader(_Numbers(), batch_size=1, num_workers=2, multiprocessing_context=method)
    for folder in ("one", "two")[: 1 if method == "spawn" else 2]:  # no process that is spawned knows of another
        with trace.record(tmp_path / folder):
            assert len(list(trace.steps(loader))) == 6
        analysis = trace.analyze(tmp_path / folder)
        assert {row.operation: row.calls for row in analysis.operations if row.kind == "fetch"} == {"fetch": 6}
        assert analysis.breakdown[0].workers == 2
        assert sorted(one.worker for one in analysis.processes if one.worker is not None) == [0, 1]


@pytest.mark.quick
def test_the_environment_starts_a_trace(tmp_path: Path, data: Path) -> None:
    code = (
        "import sys, fsabs; assert 'numpy' not in sys.modules;"
        f"fs = fsabs.from_url({str(data)!r}); fs.read_bytes('1.bin'); print(fs)"
    )
    environment = {**os.environ, "FSABS_TRACE": str(tmp_path / "trace")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("Local("), done.stderr
    names = [event.name for event in trace.events(tmp_path / "trace")]
    assert names == ["local.stat", "local.read_bytes"] or names == ["local.read_bytes"]


def test_a_loader_marks_its_steps_in_an_unchanged_program(tmp_path: Path, data: Path) -> None:
    code = f"""
import fsabs
from fsabs.adapters.torch import FileDataset, Loader

files = FileDataset(fsabs.from_url({str(data)!r}), [f"{{number}}.bin" for number in range({FILES})])
for epoch in range(2):
    assert len(list(Loader(files, 4, num_workers=2, collate_fn=list))) == {FILES // 4}
"""
    environment = {**os.environ, "FSABS_TRACE": str(tmp_path / "trace")}
    done = preloaded.run(preloaded.TORCH, ["-c", code], env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    analysis = trace.analyze(tmp_path / "trace")
    assert analysis.stall is not None, "no step was marked"
    assert [row.epoch for row in analysis.breakdown] == [0, 1, 2]
    assert analysis.stall.steps == 2 * (FILES // 4)
    assert analysis.breakdown[0].workers == 2


def test_a_folder_that_cannot_be_written_to_is_told_and_breaks_nothing(tmp_path: Path, data: Path) -> None:
    (tmp_path / "file").touch()
    code = f"import fsabs; print(len(fsabs.from_url({str(data)!r}).read_bytes('1.bin')))"
    environment = {**os.environ, "FSABS_TRACE": str(tmp_path / "file" / "trace")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout == "1001\n"
    assert "not traced" in done.stderr
    with pytest.raises(OSError):
        trace.start(tmp_path / "file" / "trace")
    assert hooks.active is None


def test_a_trace_within_one_ends_and_the_outer_one_goes_on(tmp_path: Path, data: Path) -> None:
    fs = fsabs.from_url(str(data))
    with trace.record(tmp_path / "outer"):
        with trace.record(tmp_path / "outer"):
            fs.read_bytes("0.bin")
        with trace.record(tmp_path / "inner"):
            fs.read_bytes("1.bin")
        assert os.environ["FSABS_TRACE"] == str(tmp_path / "outer")
        fs.read_bytes("2.bin")
    assert "FSABS_TRACE" not in os.environ
    assert hooks.active is None
    for folder, sizes in (("outer", [1000, 1002]), ("inner", [1001])):
        found = trace.events(tmp_path / folder)
        assert [event.size for event in found if event.name == "local.read_bytes"] == sizes


def test_a_folder_is_no_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/run", "file:///tmp/run"):
        with pytest.raises(ValueError, match="is written to a folder"):
            trace.start(url)
    environment = {**os.environ, "FSABS_TRACE": "s3://bucket/run"}
    done = subprocess.run([sys.executable, "-c", "import fsabs"], env=environment, capture_output=True, text=True)
    assert (done.returncode, "not traced" in done.stderr) == (0, True)
    assert not list(tmp_path.iterdir())


def test_stopping_leaves_the_instrument_of_another(tmp_path: Path) -> None:
    other = hooks.Instrument()
    trace.start(tmp_path / "trace")
    hooks.install(other)
    trace.stop()
    assert hooks.install(None) is other
