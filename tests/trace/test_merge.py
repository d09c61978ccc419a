"""Merged files are valid for those who show them; what is torn, old, new or not ours is left out, with a note."""

from __future__ import annotations

import gzip
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.memory import Memory
from fsabs.core import hooks
from fsabs.trace import chunks
from tests.trace.synthetic import BEGIN, event, write_process
from tests.users import BOB, as_user, needs_root, shared_folder


def _merged(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(Path(trace.merge(folder)).read_bytes()))
    return found


def _rewritten(path: Path, changes: dict[str, Any]) -> bytes:
    """Return a trace file with another header."""
    data = path.read_bytes()
    with path.open("rb") as file:
        header = next(chunks.read(file)).head["process"] | changes
    return chunks.framed(chunks.content({}, process=header)).ljust(chunks.RESERVED, b"\0") + data[chunks.RESERVED :]


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
    with trace.record(tmp_path / "trace"):
        fs = Memory("merge")
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
    with trace.record(tmp_path / "trace"):
        fs = Memory("nesting")
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
    merged = _merged(tmp_path)
    check_schema(merged)
    assert sum(each["ph"] == "b" for each in merged) == len(overlapping)


@pytest.mark.parametrize("cut", [1, 200])
def test_a_torn_tail_is_trimmed_with_a_note(tmp_path: Path, cut: int) -> None:
    path = Path(write_process(tmp_path, [event(20 * at, 10, "fs", "zip.read", 1) for at in range(3000)], footer=False))
    path.write_bytes(path.read_bytes()[:-cut])
    merged = _merged(tmp_path)
    check_schema(merged)
    kept = sum(each["name"] == "zip.read" for each in merged)
    assert 2000 <= kept < 3000 + (cut < 10)
    assert any("torn" in note for note in merged[-1]["args"]["notes"])


@pytest.mark.parametrize("damage", ["flipped", "empty", "no trace", "newer", "no json"])
def test_what_cannot_be_read_is_left_out_with_a_note(tmp_path: Path, damage: str) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=1)
    path = Path(write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1) for _ in range(3000)], pid=2))
    data = path.read_bytes()
    middle = (chunks.RESERVED + len(data)) // 2
    path.write_bytes(
        {
            "flipped": data[:middle] + bytes(50) + data[middle + 50 :],
            "empty": b"",
            "no trace": b"hello" * 100,
            "newer": _rewritten(path, {"schema": 99}),
            "no json": chunks.framed(b"\x04\0\0\0{non"),
        }[damage]
    )
    merged = _merged(tmp_path)
    check_schema(merged)
    assert merged[-1]["args"]["notes"] != []
    assert sum(each["name"] == "zip.read" and each["pid"] == 1 for each in merged) == 1
    assert trace.analyze(tmp_path).events >= 1


@pytest.mark.quick
def test_a_pid_that_is_used_twice_is_two_processes(tmp_path: Path) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=7, host="a")
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=7, host="b", rank=1, worker=2)
    merged = _merged(tmp_path)
    assert len({each["pid"] for each in merged if each["name"] == "zip.read"}) == 2
    labels = [process.label for process in trace.analyze(tmp_path).processes]
    assert labels == ["a:7", "b:7 rank 1 worker 2"]


@pytest.mark.quick
def test_processes_of_one_machine_share_a_clock(tmp_path: Path) -> None:
    """Their wall clocks may have been set in between."""
    for pid in (1, 2):
        path = Path(write_process(tmp_path, [event(10_000, 10, "fs", "zip.read", 1)], pid=pid))
        if pid == 2:
            path.write_bytes(_rewritten(path, {"wall_ns": BEGIN + 10**15}))
    assert [one.begin for one in trace.events(tmp_path)] == [BEGIN + 10_000] * 2


def _hostile(found: str) -> bytes:
    """Return a trace file that is no trace, or too much of one."""
    if found == "a bomb":
        return chunks.framed(bytes(chunks.MAX_CONTENT)) * 50
    head = {"counts": [1 << 60], "texts": 0, "names": [], "bases": []} if found == "no events" else []
    if found == "many texts":
        head = {"counts": [], "texts": 1 << 24, "names": [], "bases": [["", ""]]}
    described = json.dumps(head).encode()
    return chunks.framed(len(described).to_bytes(4, "little") + described)


@pytest.mark.quick
@pytest.mark.parametrize("found", ["a bomb", "no events", "no object", "many texts"])
def test_a_hostile_file_is_a_note(tmp_path: Path, found: str) -> None:
    path = Path(write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)]))
    (tmp_path / "trace-x-1-1.fstrace").write_bytes(_hostile(found))
    with path.open("ab") as file:
        file.write(_hostile(found))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    analysis = trace.analyze(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 500_000, "kilobytes"
    assert len(analysis.notes) == 2
    assert analysis.events == 1


@pytest.mark.quick
def test_what_is_no_file_is_a_note_and_is_not_waited_for(tmp_path: Path) -> None:
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)])
    os.mkfifo(tmp_path / "trace-h-1-1.fstrace")
    (tmp_path / "trace-h-2-1.fstrace").mkdir()
    (tmp_path / "trace-h-3-1.fstrace").symlink_to(tmp_path / "trace-h-3-1.fstrace")
    analysis = trace.analyze(tmp_path)
    assert analysis.events == 1
    assert sum("left out" in note for note in analysis.notes) == 3


@pytest.mark.quick
@pytest.mark.parametrize("changes", [{"pid": "7"}, {"host": 7}, {"wall_ns": 1 << 80}, {"cores": None}])
def test_fields_of_another_type_are_a_note(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = Path(write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=1))
    path.write_bytes(_rewritten(path, changes))
    write_process(tmp_path, [event(0, 10, "fs", "zip.read", 1)], pid=2)
    analysis = trace.analyze(tmp_path)
    assert [process.pid for process in analysis.processes] == [2]
    assert any("header" in note for note in analysis.notes)


@pytest.mark.quick
def test_counts_of_another_type_are_left_out(tmp_path: Path) -> None:
    wrong: list[Any] = [[], {"recorded": "7"}, {"recorded": 7.5}, {"failure": 3}]
    for number, tally in enumerate(wrong):
        folder = tmp_path / str(number)
        path = Path(write_process(folder, [event(0, 10, "fs", "zip.read", 1)], footer=False))
        with path.open("ab") as file:
            file.write(chunks.framed(chunks.content({}, tally=tally)))
        assert trace.analyze(folder).operations[0].calls == 1


@pytest.mark.quick
def test_machines_whose_clocks_differ_are_put_beside_each_other(tmp_path: Path) -> None:
    for rank, skew in enumerate((0, 30 * 10**9, -45 * 10**9)):
        events = [event(at * 10**6, 10**6, "fs", "zip.read", 1) for at in range(260)]
        write_process(tmp_path, events, host=f"h{rank}", rank=rank, skew=skew)
    analysis = trace.analyze(tmp_path)
    assert analysis.seconds == pytest.approx(0.26)
    assert sum("the clock of h" in note for note in analysis.notes) == 2
    write_process(tmp_path / "later", [event(0, 10**6, "fs", "zip.read", 1)], host="a")
    write_process(tmp_path / "later", [event(0, 10**6, "fs", "zip.read", 1)], host="b", skew=30 * 10**9)
    assert trace.analyze(tmp_path / "later").seconds > 30, "no ranks: it may have run later"
    write_process(tmp_path / "continued", [event(0, 10**6, "fs", "zip.read", 1)], host="a", rank=0)
    write_process(tmp_path / "continued", [event(0, 10**6, "fs", "zip.read", 1)], host="b", rank=0, skew=30 * 10**9)
    assert trace.analyze(tmp_path / "continued").seconds > 30, "the same rank: it has run later"


@pytest.mark.quick
@pytest.mark.parametrize(("skew", "noted"), [(0.0, False), (0.05, False), (0.3, True), (-3.0, True)])
def test_clocks_are_compared_by_the_steps_that_ranks_end_together(tmp_path: Path, skew: float, noted: bool) -> None:
    for rank in range(2):
        steps = [event(at * 10**8, 10**8 - rank * 10**6, "step", "train.step", at) for at in range(50)]
        write_process(tmp_path, steps, host=f"h{rank}", rank=rank, skew=round(skew * 1e9) * rank)
    analysis = trace.analyze(tmp_path)
    assert any(f"{abs(skew):.1f} s off that of" in note for note in analysis.notes) == noted
    assert analysis.seconds == pytest.approx(5, abs=0.01)
    assert analysis.breakdown[0].causes["step"] == pytest.approx(5, abs=0.06)


@pytest.mark.quick
def test_a_slower_machine_is_none_whose_clock_is_off(tmp_path: Path) -> None:
    for rank, took in enumerate((10**8, 2 * 10**8)):
        steps = [event(at * took, took, "step", "train.step", at) for at in range(50)]
        write_process(tmp_path, steps, host=f"h{rank}", rank=rank)
    analysis = trace.analyze(tmp_path)
    assert not analysis.notes
    found = next(finding for finding in analysis.findings if finding.code == "F032")
    assert found.seconds == pytest.approx(5, abs=0.1)
    assert "h1" in found.title


@pytest.mark.quick
def test_a_folder_that_is_none_of_a_trace(tmp_path: Path) -> None:
    for read in (trace.merge, trace.analyze, lambda folder: list(trace.events(folder))):
        with pytest.raises(FileNotFoundError):
            read(tmp_path)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    assert fsabs.trace is trace


def test_no_file_of_a_trace_has_a_secret(tmp_path: Path) -> None:
    with trace.record(tmp_path):
        recorder = hooks.active
        assert recorder is not None
        for where in ("https://u:SECRET@h/a?sig=SECRET", "SECRET@h/a", "zip://x::https://SECRET@d/e#SECRET"):
            recorder.record_span("request", "http.get", monotonic_ns(), 1, where, "TimeoutError")
            recorder.record_event("retry", "http.get", 1, where)
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        assert "SECRET" not in "".join(map(repr, chunks.read(file)))
    assert b"SECRET" not in gzip.decompress(Path(trace.merge(tmp_path)).read_bytes())
    analysis = repr(trace.analyze(tmp_path))
    assert "SECRET" not in analysis
    assert "zip://x::https://d/e" in analysis


@needs_root
@pytest.mark.parametrize("write", [trace.merge, trace.report])
def test_what_another_user_has_put_there_is_not_written_through(tmp_path: Path, write: Callable[..., object]) -> None:
    """In a folder that all can write to: names that could be foreseen led to files of the reader's own."""
    with trace.record(tmp_path / "trace"):
        fsabs.Memory().write_bytes("x", b"1")
    folder, victim = shared_folder(), tmp_path / "victim"
    victim.write_bytes(b"precious")
    target = folder / "out"

    def plant() -> None:
        for suffix in ("partial", "part"):
            (folder / f"out.{os.getppid()}.{suffix}").symlink_to(victim)

    as_user(BOB, plant)
    write(tmp_path / "trace", target)
    assert victim.read_bytes() == b"precious"
    assert target.stat().st_size > 100
    assert target.stat().st_mode & 0o777 == 0o600
