"""What an analysis says of a trace, against figures that are computed in another way; and what is no finding."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fsabs import trace
from fsabs.trace import figures
from fsabs.trace.intervals import Collector
from fsabs.trace.results import Analysis, Histogram
from fsabs.trace.schema import Event
from tests.trace.synthetic import BEGIN, altered, event, write_process

MS = 1_000_000
SECOND = 1000 * MS


def _analysed(folder: Path, *processes: Sequence[Event]) -> Analysis:
    for number, events in enumerate(processes):
        write_process(folder, sorted(events, key=lambda one: one.end), pid=100 + number)
    return trace.analyze(folder)


def _codes(analysis: Analysis) -> set[str]:
    return {finding.code for finding in analysis.findings}


# ---- arithmetic


@pytest.mark.quick
def test_fine_histograms_are_right_to_two_percent() -> None:
    made = random.Random(1)
    values = np.array([int(made.lognormvariate(10, 3)) for _ in range(20_000)] + list(range(200)))
    counts = np.bincount(figures.fine_buckets(values), minlength=figures.FINE_BUCKETS)
    for part in (0.01, 0.5, 0.95, 0.99):
        exact = float(np.sort(values)[math.ceil(part * len(values)) - 1])
        assert figures.percentile(counts, part) == pytest.approx(exact, rel=0.017, abs=0.5)
    assert figures.coarse(counts) == np.bincount([int(value).bit_length() for value in values]).tolist()
    assert figures.bit_lengths(np.array([0, 1, 2, 3, 4, 2**40, 2**40 - 1])).tolist() == [0, 1, 2, 2, 3, 41, 40]
    assert [Histogram.bounds(bucket) for bucket in (0, 1, 2, 10)] == [(0, 0), (1, 1), (2, 3), (512, 1023)]


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return the function that sets how many intervals are kept apart: of the true number, tests would take long."""
    return lambda most: monkeypatch.setattr("fsabs.trace.intervals.MOST", most)


@pytest.mark.quick
def test_time_under_way_counts_each_moment_once(keep: Callable[[int], None]) -> None:
    made = random.Random(2)
    intervals = sorted(
        ((begin, begin + made.randint(0, 60)) for begin in (made.randint(0, 20_000) for _ in range(2000))),
        key=lambda one: one[1],
    )
    exact = len({moment for begin, end in intervals for moment in range(begin, end)})
    for most in (1 << 20, 40):  # with room for all, and joined where they are close
        keep(most)
        under_way = Collector()
        for at in range(0, len(intervals), 100):
            begins, ends = 1000 * np.array(intervals[at : at + 100]).T
            under_way.add(begins, ends)
        assert len(under_way.get()[0]) <= most
        assert under_way.total() == pytest.approx(1000 * exact, rel=0 if most > 40 else 0.05)


@pytest.mark.quick
def test_a_grid_keeps_the_sum_however_wide_it_becomes() -> None:
    grid = figures.Grid(0)
    grid.spread(np.array([0, 10]), np.array([100, 10]), 2.0)
    assert grid.slices(grid.width, 100).sum() == pytest.approx(200)
    grid.spread(np.array([50, 10**9]), np.array([10**10, 10**10 + 7]), np.array([1.0, 0.5]))
    grid.count(np.array([5 * 10**9]), 10)
    slices = grid.slices(grid.width, 10**10 + 7)
    assert slices.sum() == pytest.approx(200 + (10**10 - 50) + 0.5 * (9 * 10**9 + 7) + 10)
    assert figures.SLICES / 2 - 1 <= len(slices) <= figures.SLICES
    assert slices[len(slices) // 2] == pytest.approx(1.5 * grid.width, rel=0.01)


# ---- the figures of a trace


@pytest.mark.quick
def test_the_table_has_what_the_events_have(tmp_path: Path) -> None:
    made = random.Random(3)
    events = [
        event(at * MS, made.randint(1, 900_000), "fs", "zip.read", made.randint(0, 10**6), error=error)
        for at, error in enumerate(["OSError", *[""] * 49] * 20)
    ]
    more = [event(at * MS, 10, "request", "s3.get", 7) for at in range(10)] + [event(5, 0, "retry", "s3.get", 1)]
    analysis = _analysed(tmp_path, events, more)
    row = next(row for row in analysis.operations if row.operation == "read")
    durations = sorted(one.duration for one in events)
    assert (row.kind, row.layer, row.calls, row.errors) == ("fs", "zip", 1000, 20)
    assert row.bytes == sum(one.size for one in events)
    assert row.seconds == pytest.approx(sum(durations) / 1e9)
    assert row.busy == pytest.approx(row.seconds)
    assert row.throughput == pytest.approx(row.bytes / row.seconds)
    assert (row.least, row.most) == (durations[0] / 1e9, durations[-1] / 1e9)
    assert row.p50 == pytest.approx(durations[499] / 1e9, rel=0.02)
    assert row.p99 == pytest.approx(durations[989] / 1e9, rel=0.02)
    request = next(row for row in analysis.operations if row.kind == "request")
    assert (request.calls, request.retries, request.bytes) == (10, 1, 70)
    assert analysis.amplification.fetched == 70
    assert analysis.events == 1011
    assert [process.events for process in analysis.processes] == [1000, 11]
    assert sum(analysis.latencies["fs zip.read"].counts) == analysis.read_sizes.total == 1000
    assert [one.duration for one in analysis.slowest[:5]] == durations[:-6:-1]
    assert len(analysis.slowest) == 100


@pytest.mark.quick
def test_the_timeline_adds_up_to_the_table(tmp_path: Path) -> None:
    reads = [event(at * 10 * MS, 20 * MS, "fs", "zip.read", 1000, thread=at % 3) for at in range(300)]
    other = [event(2 * SECOND, SECOND, "fs", "zip.read", 500_000)]
    analysis = _analysed(tmp_path, reads, other)
    timeline, heat = analysis.timeline, analysis.heat
    assert analysis.seconds == pytest.approx(3.01)
    assert len(timeline.asked) == len(timeline.fetched) == len(timeline.reads) == len(heat.busy[0])
    assert sum(timeline.asked) * timeline.width == pytest.approx(800_000, rel=1e-6)
    assert sum(timeline.reads) * timeline.width == pytest.approx(300 * 0.02 + 1, rel=1e-6)
    assert [sum(row) * heat.width for row in heat.busy] == pytest.approx([3.01, 1.0], rel=1e-3)
    assert max(heat.busy[0]) <= 1


def test_files_are_told_apart(tmp_path: Path) -> None:
    events = []
    for at in range(3000):
        where = f"s3://b/{at % 1500}"
        events += [
            event(at * MS // 10, 1000, "fs", "zip.stat", where=where),
            event(at * MS // 10 + 2000, 1000, "fs", "zip.open", where=where),
            event(at * MS // 10 + 4000, 3000 + at, "fs", "zip.read", 10, where=where),
        ]
    analysis = _analysed(tmp_path, events)
    assert analysis.files_seen == 1500
    assert len(analysis.files) == 500
    first = analysis.files[0]
    assert (first.where, first.opens, first.reads, first.bytes) == ("s3://b/1499", 2, 2, 20)
    assert first.seconds == pytest.approx((4 * 1000 + 2 * 3000 + 1499 + 2999) / 1e9)
    assert first.slowest == pytest.approx(5999 / 1e9)


@pytest.mark.quick
def test_wait_and_compute_of_steps(tmp_path: Path) -> None:
    """Of 100 ms, 10 wait for the next batch and 20 are reads of the thread's own, 5 of them both at once."""
    events = []
    for number in range(20):
        begin = number * 100 * MS
        events += [
            event(begin, 10 * MS, "wait", "steps.next"),
            event(begin + 5 * MS, 20 * MS, "fs", "zip.read", 10),
            event(begin + 50 * MS, 40 * MS, "fs", "zip.read", 10, thread=2),
            event(begin, 100 * MS, "step", "train.step", number),
        ]
    analysis = _analysed(tmp_path, events)
    assert analysis.stall is not None
    assert analysis.stall.steps == 20
    assert analysis.stall.percentage == pytest.approx(25)
    assert [(step.number, step.begin) for step in analysis.steps[:2]] == [(0, BEGIN), (1, BEGIN + 100 * MS)]
    assert analysis.steps[7].wait == pytest.approx(0.025)
    assert analysis.steps[7].seconds == pytest.approx(0.1)
    assert analysis.steps[7].causes == pytest.approx({"disk": 0.02, "decode": 0.005, "step": 0.075}, abs=1e-6)


def _loop(numbers: Sequence[int]) -> list[Event]:
    """Steps of 100 ms, of each of which 5 ms are a read of the local disk."""
    return [
        one
        for at, number in enumerate(numbers)
        for one in (
            event(at * 100 * MS, 5 * MS, "wait", "steps.next"),
            event(at * 100 * MS, 5 * MS, "fs", "local.read_bytes", 4096),
            event(at * 100 * MS, 100 * MS, "step", "train.step", number),
        )
    ]


@pytest.mark.quick
def test_a_trace_that_begins_within_an_epoch(tmp_path: Path) -> None:
    analysis = _analysed(tmp_path / "one", _loop([5, 6, 7]))
    assert [(row.epoch, row.steps) for row in analysis.breakdown] == [(0, 3), (1, 3)]
    assert analysis.stall is not None
    assert analysis.stall.percentage == pytest.approx(5)
    analysis = _analysed(tmp_path / "two", _loop([5, 6, 7, 0, 1]))
    assert [(row.epoch, row.steps) for row in analysis.breakdown] == [(0, 5), (1, 3), (2, 2)]


@pytest.mark.quick
def test_no_read_waits_for_what_another_thread_uploads(tmp_path: Path) -> None:
    uploads = [event(at * 100 * MS, 99 * MS, "request", "s3.put", 10**6, thread=2) for at in range(10)]
    analysis = _analysed(tmp_path, [*_loop(range(10)), *uploads])
    assert analysis.breakdown[1].causes["disk"] == pytest.approx(0.05)
    assert analysis.breakdown[1].causes["first_byte"] == 0


@pytest.mark.quick
def test_time_is_divided_a_slice_after_the_other_as_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, waits and calls go on over the ends of slices, here of a chunk each."""
    whole = _analysed(tmp_path / "whole", _loop(range(3000)))
    monkeypatch.setattr("fsabs.trace.attribution.SLICE", 1)
    sliced = trace.analyze(tmp_path / "whole")
    assert [row.steps for row in sliced.breakdown] == [row.steps for row in whole.breakdown]
    for one, other in zip(sliced.breakdown, whole.breakdown, strict=True):
        assert one.causes == pytest.approx(other.causes)
    for step, other_step in zip(sliced.steps, whole.steps, strict=True):
        assert (step.number, step.begin) == (other_step.number, other_step.begin)
        assert step.causes == pytest.approx(other_step.causes)


@pytest.mark.quick
def test_a_name_that_is_no_unicode_is_escaped(tmp_path: Path) -> None:
    with trace.record(tmp_path), trace.span("\udcff"):
        pass
    names = [row.operation for row in trace.analyze(tmp_path).operations if row.kind == "span"]
    assert names == [r"\udcff"]


@pytest.mark.quick
def test_workers_of_containers_of_one_machine_are_told_apart(tmp_path: Path) -> None:
    """Each container has a process 1, whose worker is process 20; one decodes, the other one reads, in turn slowly."""
    waits = {"pod-a": (90, 10), "pod-b": (10, 90)}
    for rank, (name, times) in enumerate(waits.items()):
        steps, made = [], []
        for number, took in enumerate(times):
            begin = number * 100 * MS
            steps += [
                event(begin, took * MS, "wait", "steps.next"),
                event(begin, 100 * MS, "step", "train.step", number),
            ]
            made += [event(begin, took * MS, "fs", "local.read", 1)] * rank
            made.append(event(begin, took * MS, "fetch", "loader.fetch"))
        write_process(tmp_path, steps, pid=1, parent=0, host=name, boot="node", rank=rank)
        write_process(tmp_path, made, pid=20, host=name, boot="node", rank=rank, worker=0)
    analysis = trace.analyze(tmp_path)
    found = {analysis.processes[step.process].host: step.causes for step in analysis.steps}
    assert found["pod-a"] == pytest.approx({"decode": 0.09, "step": 0.01}, abs=1e-6)
    assert found["pod-b"] == pytest.approx({"disk": 0.09, "step": 0.01}, abs=1e-6)
    assert analysis.seconds == pytest.approx(analysis.breakdown[0].seconds) == pytest.approx(0.2)


@pytest.mark.quick
def test_a_trace_of_nothing(tmp_path: Path) -> None:
    analysis = _analysed(tmp_path, [])
    assert (analysis.events, analysis.seconds, analysis.stall) == (0, 0, None)
    assert (analysis.amplification.ratio, analysis.cache.hit_rate) == (None, None)
    assert list(analysis.findings) == []


# ---- findings

READ = [event(at * MS, 100_000, "fs", "local.read", 1 << 20, where=f"file:///{at}") for at in range(300)]


def _gets(
    duration: int = MS // 2, size: int = 1 << 20, beside: int = 4, error: str = "", name: str = "s3.read"
) -> list[Event]:
    """Reads, each by so many requests at once."""
    found = []
    for at in range(300):
        found += [
            event(at * MS, duration, "request", "s3.get", size // beside, error=error, thread=2) for _ in range(beside)
        ]
        found.append(event(at * MS, duration, "fs", name, 1 << 20, where=f"s3://b/{at}"))
    return found


@pytest.mark.quick
def test_errors_that_users_see_are_found_with_their_evidence(tmp_path: Path) -> None:
    failing = [altered(one, error="OSError" * (at % 10 == 0)) for at, one in enumerate(READ)]
    (found,) = [finding for finding in _analysed(tmp_path, failing).findings if finding.code == "F010"]
    assert found.evidence["errors"] == 30


@pytest.mark.quick
def test_a_cache_that_is_too_small_is_found_with_more_names_than_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsabs.trace.tables.FILES_KEPT", 100)
    events = []
    for number in range(2000):
        url = f"s3://b/{number % 1000}"
        events += [
            event(number * 10 * MS, 9 * MS, "fs", "s3.read_bytes", 10, where=url),
            event(number * 10 * MS, 9 * MS, "request", "s3.get", 10, where=url),
            event(number * 10 * MS, 0, "miss", "cache", 1, where=url),
        ]
    found = {finding.code: finding for finding in _analysed(tmp_path, events).findings}
    assert found["F004"].evidence["missed again"] == 1000


ALONE = _gets(beside=1, duration=MS)


@pytest.mark.quick
def test_what_costs_little_is_a_note(tmp_path: Path) -> None:
    """Below a second, or below 5 % of the time, however grave it is by its part of the other."""
    short = _analysed(tmp_path / "short", ALONE)
    assert {finding.severity for finding in short.findings} == {"note"}
    scaled = [altered(one, begin=one.begin * 20, duration=one.duration * 20) for one in ALONE]
    assert _analysed(tmp_path / "long", scaled).findings[0].severity == "high"


@pytest.mark.quick
def test_advice_that_is_followed_is_no_finding(tmp_path: Path) -> None:
    """Small files by read_many, many requests at once: packing them would save nothing."""
    small = [
        altered(one, size=min(one.size, 20_000), name=one.name.replace("s3.read", "s3.read_many"))
        for one in _gets(beside=12)
    ]
    assert not _codes(_analysed(tmp_path, small)) & {"F015"}


@pytest.mark.quick
def test_what_is_not_there_is_no_failed_attempt(tmp_path: Path) -> None:
    """A 404 is an answer: its time is no retry's."""
    events = _gets(error="FileNotFoundError") + [event(at, 0, "retry", "s3.get") for at in range(9)]
    analysis = _analysed(tmp_path, events)
    assert analysis.retry_seconds == 0
    assert "F006" not in _codes(analysis)


@pytest.mark.quick
def test_bodies_of_listings_are_not_amplification(tmp_path: Path) -> None:
    listing = [event(at * MS, MS, "request", "s3.list", 10 << 20) for at in range(30)]
    analysis = _analysed(tmp_path, [*_gets(), *listing])
    assert analysis.amplification.ratio == pytest.approx(1.0)
    assert "F005" not in _codes(analysis)


@pytest.mark.quick
def test_what_costs_next_to_nothing_is_no_finding(tmp_path: Path) -> None:
    for number, events in enumerate(
        [
            [event(at * MS, 1000, "fs", "local.read", 20_000) for at in range(300)],  # 0.1 % of the time
            [event(at * MS, 100, "wait", "cache.lock") for at in range(300)],  # and no requests at all
            [event(0, MS, "fs", "zip.read", 1000), event(0, MS, "request", "s3.get", 1 << 20)],  # an index was read
            [event(at * MS, 5 * MS, "step", "train.step", at) for at in range(2)]
            + [event(0, 5 * MS, "wait", "steps.next")],
            [event(at * MS, 10, "fs", "local.stat") for at in range(300)],
        ]
    ):
        assert _codes(_analysed(tmp_path / str(number), events)) <= {"F030", "F035"}, "the largest part, and no cause"


def test_one_slow_worker_is_named(tmp_path: Path) -> None:
    slow = [altered(one, duration=900_000) for one in READ]
    analysis = _analysed(tmp_path, READ, READ, slow, READ)
    (found,) = [finding for finding in analysis.findings if finding.code == "F007"]
    assert "node-1:102" in found.title
    assert found.evidence["milliseconds a batch"] == pytest.approx(0.9, rel=0.02)


def test_workers_of_a_first_epoch_are_not_slow_because_the_next_have_a_cache(tmp_path: Path) -> None:
    second = max(one.end for one in READ) + MS
    for worker in range(3):
        write_process(tmp_path, [altered(one, duration=900_000) for one in READ], pid=100 + worker)
    for worker in range(4):
        later = [altered(one, begin=one.begin + second) for one in READ]
        write_process(tmp_path, later, begin=second, pid=200 + worker)
    assert "F007" not in _codes(trace.analyze(tmp_path))
