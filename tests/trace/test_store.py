"""What a trace says of a store that keeps its own books: requests, bytes, refusals, and which time is whose."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.objects.connections import Connection
from fsabs.readers import RecordWriter
from fsabs.trace.results import STORE, Analysis
from tests.servers.planned_bucket import Plan, Served, serving


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Served]:
    with serving(Plan(objects=40, size=20_000)) as served:
        yield served


def _fs(served: Served) -> fsabs.FS:
    return fsabs.from_url("s3://bucket/", endpoint=served.endpoint, region="us-east-1")


def _rows(analysis: Analysis) -> dict[str, Any]:
    return {f"{row.kind} {row.layer}.{row.operation}": row for row in analysis.operations}


NAMES = [f"20000-{number:06}" for number in range(40)]


def test_the_counts_are_the_stores(bucket: Served, tmp_path: Path) -> None:
    fs, before = _fs(bucket), bucket.books()  # made before the trace starts
    with trace.record(tmp_path):
        assert len(list(fs.list())) == 40
        for name in NAMES[:10]:
            fs.read_bytes(name)
        assert sum(map(len, fs.read_many(NAMES))) == 40 * 20_000
    after, analysis = bucket.books(), trace.analyze(tmp_path)
    rows = _rows(analysis)
    assert rows["request s3.get"].calls == after["gets"] - before.get("gets", 0) == 50
    assert rows["request s3.get"].bytes == after["bytes"] - before.get("bytes", 0)
    assert rows["request s3.list"].calls == after["lists"] - before.get("lists", 0) == 1
    assert analysis.amplification.ratio == 1.0
    assert rows["fs s3.list"].calls == 1
    assert rows["fs s3.read_many"].calls == 40
    assert rows["batch s3.read_many"].calls == 1, "once a call"


def test_reads_here_and_there_are_seen_to_throw_bytes_away(bucket: Served, tmp_path: Path) -> None:
    fs, before = _fs(bucket), bucket.books()
    with trace.record(tmp_path), fs.open("30000000-000000", "rb") as file:
        for number in range(200):
            file.seek(number * 149_000)
            file.read(100)
    analysis, sent = trace.analyze(tmp_path), bucket.books()["bytes"] - before.get("bytes", 0)
    assert analysis.amplification.asked == 20_000
    assert analysis.amplification.fetched == sent
    assert sent > 20 * 20_000


def test_refused_requests_are_throttling_and_backing_off(tmp_path: Path) -> None:
    with serving(Plan(refused=3, objects=0)) as served:
        fs = _fs(served)
        with trace.record(tmp_path):
            for name in NAMES[:12]:
                fs.read_bytes(name)
            assert len(list(fs.read_many(NAMES[:12]))) == 12
        refused = served.books()["refused"]
    analysis = trace.analyze(tmp_path)
    rows = _rows(analysis)
    assert analysis.retries == refused > 4
    assert analysis.failures == {("request", "OSError 503"): refused}
    assert rows["wait s3.backoff"].calls == refused
    assert rows["wait s3.backoff"].seconds > 0
    causes = analysis.breakdown[0].causes
    assert causes["backoff"] + causes["throttle"] > 0
    longest = max(event.duration for event in trace.events(tmp_path) if event.kind == "request")
    assert longest < rows["wait s3.backoff"].seconds * 1e9, "no request has the time of what came before it"


def test_the_consumers_time_is_not_the_stores(bucket: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrived while the caller did something else ended when its last byte came."""
    fs, since = _fs(bucket), itertools.count(1)
    monkeypatch.setattr(Connection, "silent_since", lambda self: next(since) * 10**15)  # long ago
    with trace.record(tmp_path):
        for _ in fs.read_many(NAMES[:20], concurrency=2):
            time.sleep(0.02)  # more than a poll that finds its responses waiting takes, on a machine under load, too
    requests = [event for event in trace.events(tmp_path) if event.name == "s3.get"]
    assert next(since) > 2
    assert sum(event.duration < 10**7 for event in requests) >= next(since) - 2


def test_waiting_for_what_is_read_ahead_is_the_stores(tmp_path: Path) -> None:
    """Of the package's own data sets, in the process and in workers, also where the FS was made before the trace."""
    loaders = pytest.importorskip("torch.utils.data")
    from fsabs.adapters.torch import EpochBatches, FileDataset, ShardedDataset

    shards = fsabs.from_url(tmp_path / "shards", create=True)
    for name in ("a", "b"):
        with RecordWriter(shards, name, compressor="none", max_chunk_bytes=20_000) as writer:
            for _ in range(100):
                writer.write(bytes(1000))
    with (
        serving(Plan(latency=0.05, objects=40, size=20_000)) as of_files,
        serving(Plan(latency=0.05, objects=0, folder=str(tmp_path / "shards"))) as of_shards,
    ):
        data = FileDataset(_fs(of_files), NAMES), ShardedDataset(_fs(of_shards), seed=1)
        for number, workers in itertools.product(range(2), (0, 2)):
            folder = tmp_path / f"{number}-{workers}"
            with trace.record(folder):
                batches = EpochBatches(data[number], 8, workers=workers)
                loader = loaders.DataLoader(data[number], batch_sampler=batches, num_workers=workers, collate_fn=list)
                for _ in trace.steps(loader):
                    pass
            whole = trace.analyze(folder).breakdown
            lost = sum(row.causes[cause] for row in whole[1:] for cause in STORE)
            own = sum(row.causes["decode"] for row in whole[1:])
            assert lost > own, whole
            assert lost > 0.04


@pytest.mark.parametrize(("lanes", "named"), [((1, 1), True), ((2, 1), False), ((4, 1), False)])
def test_lanes_that_several_processes_read_are_named(tmp_path: Path, lanes: tuple[int, int], named: bool) -> None:
    """Reading on other numbers than the lanes' reads blocks several times."""
    pytest.importorskip("torch")
    from fsabs.adapters.torch import Loader, ShardedDataset

    shards = fsabs.from_url(tmp_path / "shards", create=True)
    with RecordWriter(shards, "a", compressor="none", max_chunk_bytes=20_000) as writer:
        for _ in range(100):
            writer.write(bytes(1000))
    with trace.record(tmp_path / "trace"):
        data = ShardedDataset(shards, seed=1, block_size=10)
        for _ in Loader(data, 8, lanes=lanes, rank=0, ranks=2, collate_fn=list):
            pass
    codes = [finding.code for finding in trace.analyze(tmp_path / "trace").findings]
    assert ("F037" in codes) == named


def test_a_start_that_lists_is_in_the_breakdown(tmp_path: Path) -> None:
    with serving(Plan(listing=0.2, objects=3000, size=1)) as served, trace.record(tmp_path):
        assert len(list(_fs(served).list())) == 3000
        for _ in trace.steps(range(5)):
            pass
    analysis = trace.analyze(tmp_path)
    whole, *epochs = analysis.breakdown
    assert whole.causes["list"] - sum(row.causes["list"] for row in epochs) >= 0.6
    assert "F026" in [finding.code for finding in analysis.findings]
    assert os.environ.get("FSABS_TRACE") is None
