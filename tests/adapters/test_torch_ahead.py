"""Map-style data sets under loaders of torch: which files are read before their batch is asked for, and by whom."""

from __future__ import annotations

import _thread
import gc
import json
import os
import pickle
import threading
import time
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

import fsabs
from fsabs import FS
from fsabs.adapters.torch import (
    EpochSampler,
    FileDataset,
    Loader,
    PlannedBatches,
    RecordIODataset,
    ShardedDataset,
    map_style,
)
from fsabs.core.errors import CorruptFileError
from fsabs.readers.prefetch import read_batches_ahead
from fsabs.readers.recordio import RecordWriter
from fsabs.spi import LayerFS

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

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        self.note("read", [key.rpartition("/")[2] for key in wanted])
        return map(self.inner._read_bytes, wanted)

    def set_order(self, paths: Sequence[Any]) -> None:
        self.note("order", [os.fspath(path).rpartition("/")[2] for path in paths])


@pytest.fixture
def fs(tmp_path: Path) -> Logged:
    (tmp_path / "files").mkdir()
    for number in EVERYTHING:
        (tmp_path / "files" / f"{number:03}").write_bytes(b"%d" % number)
    return Logged(fsabs.from_url(tmp_path / "files"), str(tmp_path / "log"))


def logged(fs: Logged, kind: str) -> list[tuple[int, str, list[str]]]:
    if not os.path.exists(fs.log):
        return []
    with open(fs.log) as file:
        lines = [json.loads(line) for line in file]
    return [(pid, thread, what) for pid, thread, one, what in lines if one == kind]


def samples(batches: Iterable[Any]) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


def ahead(fs: Logged) -> list[int]:
    """Return the files that threads read ahead, of all processes."""
    return [int(name) for _, thread, names in logged(fs, "read") if thread != "MainThread" for name in names]


def options(workers: int, context: str = "fork") -> dict[str, Any]:
    return {"num_workers": workers, "multiprocessing_context": context if workers else None}


@pytest.mark.parametrize(("workers", "context", "persistent"), [(0, "", False), (2, "fork", False), (3, "fork", True)])
def test_a_shuffling_loader_reads_ahead(workers: int, context: str, persistent: bool, fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    loader = Loader(data, 4, seed=1, persistent_workers=persistent, **options(workers, context))
    orders = []
    for epoch in range(3):
        orders.append(samples(loader))
        assert len(loader) == 15
        assert sorted(orders[-1]) == EVERYTHING
        assert sorted(ahead(fs)) == sorted((epoch + 1) * EVERYTHING)  # each file once, and none when it is asked for
    assert orders[0] != orders[1] != orders[2]


@pytest.mark.timeout(180)
def test_a_new_process_reads_ahead(fs: Logged) -> None:
    loader = Loader(FileDataset(fs, transform=int), 7, seed=1, **options(1, "forkserver"))
    assert sorted(samples(loader)) == EVERYTHING
    assert sorted(ahead(fs)) == EVERYTHING


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_in_order_are_read_ahead(workers: int, fs: Logged) -> None:
    loader = DataLoader(FileDataset(fs, transform=int), 8, **options(workers))
    assert samples(loader) == EVERYTHING
    assert sorted(ahead(fs)) == EVERYTHING


def test_loaders_draw_what_they_draw_without_it(fs: Logged) -> None:
    def order(data: Any) -> list[int]:
        torch.manual_seed(3)
        return samples(DataLoader(data, 5, shuffle=True))

    assert order(FileDataset(fs, transform=int)) == order(EVERYTHING)


def test_another_default_device_is_no_matter(fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    with torch.device("meta"):  # as where a model is built
        assert len(FileDataset(fs)) == len(data) == TOTAL
        assert data.__getitems__([0, 1, 2, 3]) == [0, 1, 2, 3]
    assert samples(DataLoader(data, 8)) == EVERYTHING


@pytest.mark.parametrize("kind", ["shuffle", "generator", "replacement", "distributed", "batches"])
def test_other_samplers_are_right(kind: str, fs: Logged) -> None:
    """Nothing is read ahead by a guess, and the samplers draw what they would have drawn."""
    data = FileDataset(fs, transform=int)
    generator = torch.Generator().manual_seed(1)
    if kind == "shuffle":
        loader: Any = DataLoader(data, 4, shuffle=True)
    elif kind == "generator":
        loader = DataLoader(data, 4, shuffle=True, generator=generator)
    elif kind == "replacement":
        loader = DataLoader(data, 4, sampler=RandomSampler(data, replacement=True, num_samples=30))
    elif kind == "distributed":
        loader = DataLoader(data, 4, sampler=DistributedSampler(data, num_replicas=2, rank=1, seed=9))
    else:
        loader = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data, generator=generator), 4, True))
    state = generator.get_state()
    wanted = [index for batch in loader.batch_sampler for index in batch] if kind == "distributed" else None
    found = samples(loader)
    if wanted is not None:
        assert found == wanted
    elif kind in ("shuffle", "generator"):
        assert sorted(found) == EVERYTHING
    assert ahead(fs) == []
    assert kind in ("shuffle", "replacement", "distributed") or not torch.equal(state, generator.get_state())


def test_a_prediction_that_turns_out_wrong_is_dropped(fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    assert data.__getitems__([0, 1, 2, 3]) == [0, 1, 2, 3]  # as if in order
    assert data.__getitems__([9, 8, 7]) == [9, 8, 7]
    assert data.__getitems__([4, 5]) == [4, 5]
    with pytest.raises(IndexError):
        data.__getitems__([TOTAL])
    assert data.__getitems__([-1]) == [TOTAL - 1]


def test_reading_ahead_begins_again_behind_an_error(fs: Logged) -> None:
    data = FileDataset(fs, transform=int)
    paths = data.paths
    data.paths = [*paths[:5], "999", *paths[6:]]
    batches = iter(DataLoader(data, 4))
    assert samples([next(batches)]) == [0, 1, 2, 3]
    with pytest.raises(FileNotFoundError, match="999"):
        next(batches)
    assert samples(batches) == EVERYTHING[8:]
    assert set(EVERYTHING[8:]) < set(ahead(fs))


def test_all_workers_hand_over_the_order_of_all(fs: Logged) -> None:
    loader = Loader(FileDataset(fs, transform=int), 4, seed=1, **options(3))
    first, second = samples(loader), samples(loader)
    orders = [[int(name) for name in names] for _, _, names in logged(fs, "order")]
    assert len({pid for pid, _, _ in logged(fs, "order")}) == 6
    of_first = [order for order in orders if order[-TOTAL:] == second]
    assert sorted(map(len, of_first)) == [2 * TOTAL - 8, 2 * TOTAL - 4, 2 * TOTAL]  # each from its first batch on
    assert all((first + second)[-len(order) :] == order for order in of_first)


def test_a_plan_without_a_next_epoch_has_the_order_of_one(fs: Logged) -> None:
    order = [7, 3, 19, 0, 1, 2]
    loader = DataLoader(FileDataset(fs, transform=int), batch_sampler=PlannedBatches(order, 2))
    assert samples(loader) == order
    assert [[int(name) for name in names] for _, _, names in logged(fs, "order")] == [order]
    assert samples(pickle.loads(pickle.dumps(batch)) for batch in PlannedBatches(order, 4)) == order


def test_the_next_epoch_is_what_is_read_then(fs: Logged) -> None:
    sampler = EpochSampler(FileDataset(fs), seed=4, rank=1, ranks=2)
    for _ in range(2):
        list(sampler)
        following = pickle.loads(pickle.dumps(sampler.following()))().tolist()
        assert list(sampler) == following


# ---- records


@pytest.fixture
def shards(tmp_path: Path) -> Logged:
    inner = fsabs.from_url(str(tmp_path / "shards"), create=True)
    numbers = iter(EVERYTHING)
    for shard in range(4):
        with RecordWriter(inner, f"{shard}.recordio", max_chunk_bytes=8) as writer:
            for _ in range(TOTAL // 4):
                writer.write(b"%d" % next(numbers))
    return Logged(inner, str(tmp_path / "log"))


@pytest.mark.parametrize("workers", [0, 2])
def test_records_are_read_ahead(workers: int, shards: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = map_style.ShardRecords.fetch

    def noted(self: Any, indices: Sequence[int]) -> list[Any]:
        shards.note("read", [str(index) for index in indices])
        return fetch(self, indices)

    monkeypatch.setattr(map_style.ShardRecords, "fetch", noted)
    data = RecordIODataset(shards, int)
    for loader in (DataLoader(data, 4, **options(workers)), Loader(data, 4, seed=1, **options(workers))):
        assert sorted(samples(loader)) == EVERYTHING
        assert sorted(ahead(shards)) == EVERYTHING
        os.unlink(shards.log)
    local = RecordIODataset(shards.inner, int)
    assert sorted(samples(DataLoader(local, 4, shuffle=True))) == EVERYTHING


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reading ahead that data sets of this process begin."""
    found: list[str] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        found.append("ahead")
        return read_batches_ahead(*arguments, **options)

    monkeypatch.setattr(map_style, "read_batches_ahead", noted)
    return found


def test_a_zip_on_a_local_disk_is_read_when_it_is_needed(tmp_path: Path, begun: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in EVERYTHING:
            archive.writestr(f"{number:02}", str(number))
    with fsabs.from_url(str(tmp_path / "a.zip")) as near:
        data = FileDataset(near, transform=int)
        assert samples(DataLoader(data, 4)) == EVERYTHING
        assert not begun
    with Logged(fsabs.from_url(str(tmp_path)), str(tmp_path / "log")).open_container("a.zip") as far:
        data = FileDataset(far, transform=int)
        batches = iter(DataLoader(data, 4))
        assert len(samples([next(batches)])) == 4
        assert begun


def test_sharded_data_sets_read_ahead_of_what_is_not_local(shards: Logged) -> None:
    data = ShardedDataset(shards, int, seed=3)
    assert data.reader.reads_ahead
    assert not ShardedDataset(shards.inner, int).reader.reads_ahead
    assert sorted(samples(DataLoader(data, 4, **options(2)))) == EVERYTHING
    orders = [names for _, _, names in logged(shards, "order")]
    assert len(orders) == 2
    assert orders[0] == orders[1]  # of both workers
    assert len(orders[0]) == 8  # of this epoch and the next one
    assert len(set(orders[0][:4])) == len(set(orders[0][4:])) == 4


def test_buffers_are_read_together(shards: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    local, far = (ShardedDataset(fs, int, seed=3, buffer_size=4) for fs in (shards.inner, shards))
    read, calls = far.reader.read_at, []

    def noted(name: str, numbers: Sequence[int]) -> Iterator[Any]:
        calls.append(len(numbers))
        return read(name, numbers)

    monkeypatch.setattr(far.reader, "read_at", noted)
    for _ in range(2):
        assert list(far) == list(local)
        assert sum(calls) == TOTAL
        assert len(calls) <= 11  # 15 buffers, by fours, of four shards
        calls.clear()
    assert samples(Loader(far, 4, **options(2))) != samples(Loader(far, 4, **options(2)))


def test_few_bytes_allow_few_buffers(shards: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ShardedDataset(shards, int, seed=3, buffer_size=4, max_bytes=16)
    read, sizes = data.reader.read_at, []

    def noted(name: str, numbers: Sequence[int]) -> Iterator[Any]:
        sizes.append(len(numbers))
        return read(name, numbers)

    monkeypatch.setattr(data.reader, "read_at", noted)
    assert sorted(data) == EVERYTHING
    assert len(sizes) >= 15  # of 4 records each: a quarter of the bytes is for what is being read
    assert max(sizes) <= 4


def damage(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


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


def test_lists_that_are_read_ahead_keep_to_the_bound() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = [0]

    class Item:
        def __init__(self) -> None:
            alive.add(self)
            most[0] = max(most[0], len(alive))

    items = read_batches_ahead(lambda numbers: [Item() for _ in numbers], range(3000), lambda item: 8, max_bytes=512)
    for _ in items:
        time.sleep(0.00001)
    assert 8 * most[0] <= 512 * 1.25


def test_a_single_record_starts_nothing(shards: Logged, begun: list[str]) -> None:
    data = RecordIODataset(shards, int)
    assert [data[0], data[1], data[-1]] == [0, 1, TOTAL - 1]
    assert not begun


@pytest.mark.parametrize("kind", [FileDataset, RecordIODataset])
def test_a_data_set_that_is_dropped_stops_reading(kind: Any, fs: Logged, shards: Logged) -> None:
    before = _thread._count()
    data = kind(fs if kind is FileDataset else shards, transform=int, max_bytes=8)
    batches = iter(DataLoader(data, 4))
    assert samples([next(batches)]) == [0, 1, 2, 3]
    reading = _thread._count()
    assert reading > before
    del data, batches
    gc.collect()
    deadline = time.monotonic() + 10
    while _thread._count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [2, None])
def test_steps_that_are_left_out_are_not_read(workers: int, batch_size: int | None, tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(20)]
    for name in names:
        (tmp_path / name).write_text(name)
    missing = {4, 5, 6, 7, 12, 13} if batch_size else {4, 5, 12}
    for number in missing:
        (tmp_path / names[number]).unlink()
    size = batch_size or 1
    files = FileDataset(tmp_path, names, transform=int)
    loader = Loader(files, batch_size, num_workers=workers, skip={number // size for number in missing})
    assert len(loader) == (20 - len(missing)) // size
    seen = [int(one) for batch in loader for one in (batch if batch_size else [batch])]
    assert seen == [number for number in range(20) if number not in missing]
