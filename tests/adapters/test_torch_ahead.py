"""Map-style and sharded data sets under loaders of torch: what is read before it is asked for, and by whom."""

from __future__ import annotations

import gc
import json
import os
import threading
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

import fsabs
from fsabs import FS
from fsabs.adapters.torch import EpochBatches, FileDataset, Loader, RecordIODataset, ShardedDataset
from fsabs.core.errors import CorruptFileError
from fsabs.readers.recordio import RecordWriter
from fsabs.spi import Blob, BlobLayer, LayerFS
from tests.counting import Counting

from .workers import forked, samples, threads, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks:DeprecationWarning"),
]
TOTAL = 60
EVERYTHING = list(range(TOTAL))


class Logged(LayerFS):
    """Appends what is read, and the orders that are set, to a file, from all processes."""

    def __init__(self, inner: FS, log: str) -> None:
        super().__init__(inner)
        self.log = log

    def note(self, kind: str, what: Sequence[str]) -> None:
        line = json.dumps([os.getpid(), threading.current_thread().name, kind, list(what)]) + "\n"
        with open(self.log, "a") as file:
            file.write(line)

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        self.note("read", [key.rpartition("/")[2] for key in wanted])
        return super()._read_many(wanted, *how)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        inner = super()._open_blob(key, *how)
        return _LoggedBlob(self, key, inner, inner.size, inner.version)

    def set_order(self, paths: Sequence[Any]) -> None:
        self.note("order", [os.fspath(path).rpartition("/")[2] for path in paths])


class _LoggedBlob(BlobLayer):
    _origin: Logged

    def _pread(self, size: int, offset: int) -> bytes:
        self._origin.note("pread", [self._key])
        return super()._pread(size, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._origin.note("pread", [self._key])
        return super()._pread_many(ranges)


@pytest.fixture
def fs(tmp_path: Path) -> Logged:
    """Files of the numbers."""
    (tmp_path / "files").mkdir()
    for number in EVERYTHING:
        (tmp_path / "files" / f"{number:03}").write_bytes(b"%d" % number)
    return Logged(fsabs.from_url(tmp_path / "files"), str(tmp_path / "log"))


@pytest.fixture
def shards(tmp_path: Path) -> Logged:
    """The numbers as records of four shards."""
    inner = fsabs.from_url(str(tmp_path / "shards"), create=True)
    numbers = iter(EVERYTHING)
    for shard in range(4):
        with RecordWriter(inner, f"{shard}.recordio", max_chunk_bytes=8) as writer:
            for _ in range(TOTAL // 4):
                writer.write(b"%d" % next(numbers))
    return Logged(inner, str(tmp_path / "log"))


def logged(fs: Logged, kind: str) -> list[tuple[int, str, list[str]]]:
    if not os.path.exists(fs.log):
        return []
    with open(fs.log) as file:
        lines = [json.loads(line) for line in file]
    return [(pid, thread, what) for pid, thread, one, what in lines if one == kind]


def ahead(fs: Logged) -> list[int]:
    """Return the files that threads read ahead, of all processes."""
    return [int(name) for _, thread, names in logged(fs, "read") if thread != "MainThread" for name in names]


# ---- files


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, True)])
def test_a_shuffling_loader_reads_ahead(workers: int, persistent: bool, fs: Logged) -> None:
    loader = Loader(FileDataset(fs, transform=int), 4, seed=1, persistent_workers=persistent, **forked(workers))
    orders = []
    for epoch in range(3):
        orders.append(samples(loader))
        assert len(loader) == 15
        assert sorted(orders[-1]) == EVERYTHING
        assert sorted(ahead(fs)) == sorted((epoch + 1) * EVERYTHING)  # each file once, and none when it is asked for
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.parametrize("kind", ["shuffle", "replacement", "distributed", "batches"])
def test_other_samplers_are_right(kind: str, fs: Logged) -> None:
    """Nothing is read ahead by a guess, and the samplers draw what they would have drawn."""

    def loader(data: Any) -> DataLoader[Any]:
        torch.manual_seed(3)
        if kind == "shuffle":
            return DataLoader(data, 4, shuffle=True)
        if kind == "replacement":
            return DataLoader(data, 4, sampler=RandomSampler(data, replacement=True, num_samples=30))
        if kind == "distributed":
            return DataLoader(data, 4, sampler=DistributedSampler(data, num_replicas=2, rank=1, seed=9))
        return DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, True))

    assert samples(loader(FileDataset(fs, transform=int))) == samples(loader(EVERYTHING))
    assert ahead(fs) == []


def test_another_default_device_is_no_matter(fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    with torch.device("meta"):  # as where a model is built
        assert len(FileDataset(fs)) == len(data) == TOTAL
        assert data.__getitems__([0, 1, 2, 3]) == [0, 1, 2, 3]
    assert samples(DataLoader(data, 8)) == EVERYTHING


def test_an_error_does_not_end_what_is_read_ahead(fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    data.paths[5] = "999"
    batches = iter(DataLoader(data, batch_sampler=EpochBatches(data, 4)))
    assert samples([next(batches)]) == [0, 1, 2, 3]
    with pytest.raises(FileNotFoundError, match="999"):
        next(batches)
    assert samples(batches) == EVERYTHING[8:]
    assert set(EVERYTHING[8:]) < set(ahead(fs))


def test_all_workers_hand_over_the_order_of_all(fs: Logged) -> None:
    loader = Loader(FileDataset(fs, transform=int), 4, seed=1, **forked(3))
    first, second = samples(loader), samples(loader)
    orders = [[int(name) for name in names] for _, _, names in logged(fs, "order")]
    assert len({pid for pid, _, _ in logged(fs, "order")}) == 6
    of_first = [order for order in orders if order[-TOTAL:] == second]
    assert sorted(map(len, of_first)) == [2 * TOTAL - 8, 2 * TOTAL - 4, 2 * TOTAL]  # each from its first batch on
    assert all((first + second)[-len(order) :] == order for order in of_first)


@pytest.mark.parametrize(("workers", "batch_size"), [(2, 2), (0, None)])
def test_steps_that_are_left_out_are_not_read(workers: int, batch_size: int | None, tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(20)]
    for name in names:
        (tmp_path / name).write_text(name)
    missing = {4, 5, 6, 7, 12, 13} if batch_size else {4, 5, 12}
    for number in missing:
        (tmp_path / names[number]).unlink()
    size = batch_size or 1
    files = FileDataset(tmp_path, names, transform=int)
    loader = Loader(files, batch_size, skip={number // size for number in missing}, **forked(workers))
    assert len(loader) == (20 - len(missing)) // size
    seen = [int(one) for batch in loader for one in (batch if batch_size else [batch])]
    assert seen == [number for number in range(20) if number not in missing]


# ---- records


@pytest.mark.parametrize("seed", [None, 1])
def test_records_are_read_ahead(seed: int | None, shards: Logged) -> None:
    whole, fs = Counting(shards.inner), Counting(shards.inner)
    at_once, data = RecordIODataset(whole, int), RecordIODataset(fs, int)
    whole.requests.clear()
    assert at_once.__getitems__(EVERYTHING) == EVERYTHING
    fs.requests.clear()
    batches = iter(Loader(data, 4, seed=seed))
    seen = samples([next(batches)])
    wait_for(lambda: fs.fetched > whole.fetched / 2)  # of which four records are a tenth
    assert sorted(seen + samples(batches)) == EVERYTHING


def test_what_lies_on_a_local_disk_is_read_when_it_is_needed(tmp_path: Path, shards: Logged) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in EVERYTHING:
            archive.writestr(f"{number:02}", bytes(100_000))
    far = Counting(fsabs.from_url(tmp_path))
    with fsabs.from_url(tmp_path / "a.zip") as near, far.open_container("a.zip") as in_store:
        before = threads()
        for data in (FileDataset(near), RecordIODataset(shards.inner), ShardedDataset(shards.inner)):
            assert len(next(iter(DataLoader(data, 4, collate_fn=list)))) == 4
            assert threads() <= before
        single = RecordIODataset(shards, int)
        before = threads()
        assert [single[0], single[1], single[-1]] == [0, 1, TOTAL - 1]
        assert threads() <= before
        batches = iter(Loader(FileDataset(in_store), 4, collate_fn=list))
        assert len(next(batches)) == 4
        wait_for(lambda: far.fetched > 3_000_000)


@pytest.mark.parametrize("kind", [FileDataset, RecordIODataset])
def test_a_data_set_that_is_dropped_stops_reading(kind: Any, fs: Logged, shards: Logged) -> None:
    before = threads()
    data = kind(fs if kind is FileDataset else shards, transform=int, max_bytes=8)
    batches = iter(Loader(data, 4))
    assert samples([next(batches)]) == [0, 1, 2, 3]
    left = weakref.ref(data)
    del data, batches
    gc.collect()
    assert left() is None
    wait_for(lambda: threads() <= before)


def test_only_the_batch_of_a_damaged_record_fails(shards: Logged, tmp_path: Path) -> None:
    damage(tmp_path / "shards" / "2.recordio")

    def given(fs: FS) -> list[int]:
        data, found = RecordIODataset(fs, int), []
        for at in range(0, TOTAL, 2):
            batch = [at, at + 1]
            try:
                found += data.__getitems__(batch)
            except CorruptFileError:
                found.append(-1)
        return found

    assert -1 in given(shards)
    assert given(shards) == given(shards.inner)


def damage(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# ---- sharded data sets


def test_sharded_data_sets_read_ahead_of_what_is_not_local(shards: Logged) -> None:
    data = ShardedDataset(shards, int, seed=3)
    os.unlink(shards.log)
    assert sorted(samples(Loader(data, 4, **forked(2)))) == EVERYTHING
    assert "MainThread" not in {thread for _, thread, _ in logged(shards, "pread")}
    orders = [names for _, _, names in logged(shards, "order")]
    assert len(orders) == 2
    assert orders[0] == orders[1]  # of both workers
    assert len(orders[0]) == 8  # of this epoch and the next one
    assert len(set(orders[0][:4])) == len(set(orders[0][4:])) == 4


def test_buffers_are_read_together_within_the_bound(shards: Logged) -> None:
    fs = Counting(shards.inner)
    local, far = (ShardedDataset(fs, int, seed=3, buffer_size=4) for fs in (shards.inner, fs))
    for _ in range(2):
        fs.requests.clear()
        assert list(far) == list(local)
        assert len(fs.requests) <= 11  # 15 buffers, by fours, of four shards
    few = ShardedDataset(fs, int, seed=3, buffer_size=4, max_bytes=16)
    fs.requests.clear()
    assert sorted(few) == EVERYTHING
    assert len(fs.requests) >= 15  # of 4 records each: a quarter of the bytes is for what is being read


@pytest.mark.parametrize("buffer_size", [0, 4])
def test_an_error_comes_after_the_records_before_it(buffer_size: int, shards: Logged, tmp_path: Path) -> None:
    damage(tmp_path / "shards" / "2.recordio")

    def given(fs: FS) -> list[int]:
        found = []
        with pytest.raises(CorruptFileError):
            for sample in ShardedDataset(fs, int, seed=5, buffer_size=buffer_size):
                found.append(sample)
        return found

    assert len(given(shards)) >= 8
    assert given(shards) == given(shards.inner)
