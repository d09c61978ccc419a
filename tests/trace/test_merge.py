"""Merged files are valid for those who show them; what is torn, old, new or not ours is left out, with a note."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.memory import Memory
from fsabs.trace import TracedFS, reading
from tests.trace.synthetic import BEGIN, event, write_process


def check_schema(events: list[dict[str, Any]]) -> None:
    """What the Trace Event Format asks of each event, and what Perfetto's importer refuses or misreads."""
    open_pairs: dict[tuple[str, str, int], float] = {}
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in events:
        assert set(each) >= {"ph", "name", "pid", "tid", "ts"}, each
        assert isinstance(each["name"], str)
        assert isinstance(each["pid"], int)
        assert isinstance(each["tid"], int)
        assert each["ts"] >= 0
        if each["ph"] == "X":
            assert each["dur"] >= 0
            slices.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["ts"] + each["dur"]))
        elif each["ph"] == "i":
            assert each["s"] == "t"
        elif each["ph"] in "be":
            key = (each["cat"], each["id"], each["pid"])
            if each["ph"] == "b":
                assert key not in open_pairs
                open_pairs[key] = each["ts"]
            else:
                assert open_pairs.pop(key) <= each["ts"]
        else:
            assert each["ph"] == "M", each
            assert isinstance(each["args"], dict)
    assert not open_pairs
    for found in slices.values():  # the slices of one thread nest
        ends: list[float] = []
        for begin, end in sorted(found, key=lambda one: (one[0], -one[1])):
            while ends and ends[-1] <= begin + 0.001:
                ends.pop()
            assert not ends or end <= ends[-1] + 0.001
            ends.append(end)


def test_a_merged_file_is_valid(tmp_path: Path) -> None:
    with trace.trace(tmp_path / "trace"):
        fs = TracedFS(Memory("merge"))
        fs.write_bytes('odd "name"\n\\ with ünïcode', b"x" * 1000)
        for _ in trace.steps(range(5)):
            with trace.span("load"):
                fs.read_bytes('odd "name"\n\\ with ünïcode')
    path = trace.merge(tmp_path / "trace")
    raw = gzip.decompress(Path(path).read_bytes()).decode()
    assert raw.startswith("[\n")
    merged = json.loads(raw)
    check_schema(merged)
    names = [each["name"] for each in merged if each["ph"] != "M"]
    assert names.count("user.load") == names.count("memory.read_bytes") == names.count("train.step") == 5
    (process,) = [each for each in merged if each["name"] == "process_name"]
    assert process["args"]["name"].count(":") == 1


@pytest.mark.quick
def test_what_ends_within_something_else_is_no_slice(tmp_path: Path) -> None:
    with trace.trace(tmp_path / "trace"):
        fs = TracedFS(Memory("nesting"))
        fs.write_many((f"{number:02}", b"x" * 1000) for number in range(20))
        for name in fs.list():  # one event for all of it, as if in one piece at its end
            fs.read_bytes(name)
    path = trace.merge(tmp_path / "trace")
    check_schema(json.loads(gzip.decompress(Path(path).read_bytes())))
    times = {"memory.read": (0, 10_000), "memory.list": (5_000, 10_000), "memory.walk": (0, 20_000)}
    crossing = [event(begin, took, "fs", name) for name, (begin, took) in times.items()]
    write_process(tmp_path / "made", crossing)
    merged = json.loads(gzip.decompress(Path(trace.merge(tmp_path / "made")).read_bytes()))
    check_schema(merged)
    assert [each["name"] for each in merged if each["ph"] == "X"] == ["memory.read", "memory.walk"]


@pytest.mark.quick
def test_a_merged_file_is_as_private_as_what_it_is_made_of(tmp_path: Path) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "memory.read")])
    modes = {path.stat().st_mode & 0o777 for path in (*tmp_path.iterdir(), Path(trace.merge(tmp_path)))}
    assert modes == {0o600}


@pytest.mark.quick
def test_requests_that_overlap_become_pairs(tmp_path: Path) -> None:
    begins = range(0, 5_000_000, 400_000)
    overlapping = [event(at, 1_000_000, "request", "s3.get", 10, where="s3://b/k") for at in begins]
    write_process(tmp_path, [*overlapping, event(0, 6_000_000, "fs", "s3.read_many", 10)])
    merged = reading.read_json(trace.merge(tmp_path))
    check_schema(merged)
    assert sum(each["ph"] == "b" for each in merged) == len(overlapping)


def test_each_file_is_a_trace_by_itself(tmp_path: Path) -> None:
    """Members of gzip, a JSON array without its end: as Perfetto and chrome://tracing read it."""
    path = write_process(tmp_path, [event(20 * at, 10, "fs", "zip.read", 1) for at in range(2500)])
    text = gzip.decompress(Path(path).read_bytes()).decode()
    assert text.splitlines()[0] == "["
    check_schema(json.loads(text.rstrip().rstrip(",") + "]"))
    data, members = Path(path).read_bytes(), 0
    while data:
        inflate = zlib.decompressobj(31)
        inflate.decompress(data)
        data, members = inflate.unused_data, members + 1
    assert members == 5  # the header, three of events, the footer


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_torn_tail_is_trimmed_with_a_note(tmp_path: Path, cut: int) -> None:
    path = Path(write_process(tmp_path, [event(20 * at, 10, "fs", "zip.read", 1) for at in range(3000)], footer=False))
    path.write_bytes(path.read_bytes()[:-cut])
    merged = reading.read_json(trace.merge(tmp_path))
    check_schema(merged)
    kept = sum(each["name"] == "zip.read" for each in merged)
    assert 2000 <= kept < 3000 + (cut < 10)
    assert any("torn" in note for note in merged[-1]["args"]["notes"])


@pytest.mark.parametrize("damage", ["flipped", "empty", "no gzip", "newer", "no json"])
def test_what_cannot_be_read_is_left_out_with_a_note(tmp_path: Path, damage: str) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=1)
    path = Path(write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1) for _ in range(3000)], pid=2))
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "flipped": data[:middle] + bytes(50) + data[middle + 50 :],
            "empty": b"",
            "no gzip": b"hello" * 100,
            "newer": gzip.compress(gzip.decompress(data).replace(b'"schema": 1', b'"schema": 99')),
            "no json": gzip.compress(b"[\n{nonsense\n"),
        }[damage]
    )
    merged = reading.read_json(trace.merge(tmp_path))
    check_schema(merged)
    assert merged[-1]["args"]["notes"] != []
    assert sum(each["name"] == "zip.read" and each["pid"] == 1 for each in merged) == 1
    assert trace.analyse(tmp_path).events >= 1


@pytest.mark.quick
def test_a_pid_that_is_used_twice_is_two_processes(tmp_path: Path) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=7, host="a")
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=7, host="b", rank=1, worker=2)
    merged = reading.read_json(trace.merge(tmp_path))
    assert len({each["pid"] for each in merged if each["name"] == "zip.read"}) == 2
    labels = [process.label for process in trace.analyse(tmp_path).processes]
    assert labels == ["a:7", "b:7 rank 1 worker 2"]


@pytest.mark.quick
def test_processes_of_one_machine_share_a_clock(tmp_path: Path) -> None:
    """Their wall clocks may have been set in between."""
    for pid in (1, 2):
        path = Path(write_process(tmp_path, [event(10_000, 10, "fs", "zip.read", 1)], pid=pid))
        if pid == 2:
            text = gzip.decompress(path.read_bytes()).replace(str(BEGIN).encode(), str(BEGIN + 10**15).encode())
            path.write_bytes(gzip.compress(text))
    assert [one.begin for one in trace.events(tmp_path)] == [BEGIN + 10_000] * 2


@pytest.mark.quick
def test_a_folder_that_is_none_of_a_trace(tmp_path: Path) -> None:
    for read in (trace.merge, trace.analyse, lambda folder: list(trace.events(folder))):
        with pytest.raises(FileNotFoundError):
            read(tmp_path)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    assert fsabs.trace is trace
