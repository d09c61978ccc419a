"""Damaged shards: data sets that raise, or skip and count, up to a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import Loader, RecordIODataset, ShardedDataset
from fsabs.readers.data import RecordIODataReader, Task, shards_of
from fsabs.readers.recordio import RecordReader, RecordWriter

from .workers import Numbers, forked, samples

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
EVERYTHING = set(range(60))
LOST = {*range(25, 30), *range(50, 55)}  # a chunk of each of two shards


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of four chunks of five records; two of the chunks are damaged."""
    fs = fsabs.from_url(tmp_path / "shards", create=True)
    for shard in range(3):
        with RecordWriter(fs, f"{shard}", max_chunk_bytes=10, compressor="none") as writer:
            for number in range(20 * shard, 20 * shard + 20):
                writer.write(b"%02d" % number)
    for shard, chunk in ((1, 1), (2, 2)):
        data = bytearray(fs.read_bytes(f"{shard}"))
        with RecordReader(fs, f"{shard}") as reader:
            data[reader.index.chunk(chunk).payload + 5] ^= 1
        fs.write_bytes(f"{shard}", data)
    return tmp_path / "shards"


@pytest.mark.parametrize(
    ("workers", "shuffle"), [(0, {}), (0, {"seed": 3}), (2, {"seed": 3, "buffer_size": 7, "block_size": 4})], ids=str
)
def test_a_sharded_data_set_skips_and_counts(folder: Path, workers: int, shuffle: dict[str, Any]) -> None:
    dataset = ShardedDataset(folder, int, on_error="skip", max_bytes=1000, **shuffle)
    loader = Loader(dataset, 7, **forked(workers))
    for _ in range(2):
        seen = samples(loader)
        assert sorted(seen) == sorted(EVERYTHING - LOST)
        assert loader.skipped == 10
    half = Loader(dataset, 7, **forked(workers))
    batches = iter(half)
    seen = [*next(batches).tolist(), *next(batches).tolist()]
    resumed = Loader(ShardedDataset(folder, int, on_error="skip", **shuffle), 3)
    resumed.load_state_dict(half.state_dict())
    seen += samples(resumed)
    assert sorted(seen) == sorted(EVERYTHING - LOST)
    limited = Loader(ShardedDataset(folder, int, on_error="skip", max_skipped=9, **shuffle), 7)
    with pytest.raises(CorruptFileError, match="10 damaged records were skipped, and 9 may be"):
        list(limited)
    with pytest.raises(CorruptFileError, match="CRC"):
        list(ShardedDataset(folder, **shuffle))


def test_a_reader_skips_and_counts(folder: Path) -> None:
    reader = RecordIODataReader(str(folder), on_error="skip")
    shard = shards_of(reader)[1]
    assert [int(record) for record in reader.read_records(Task(0, shard.name, 3, 17))] == [23, 24, *range(30, 37)]
    numbers = [0, 3, 6, 9, 12, 15]
    assert [int(record) for record in reader.read_at(shard.name, numbers)] == [20, 23, 32, 35]
    assert [(one.chunk, one.records) for one in reader.skipped] == [(1, 5)]
    with pytest.raises(ValueError, match="on_error"):
        RecordIODataReader(str(folder), on_error="ignore")  # type: ignore[arg-type]


def test_records_skip_and_count(folder: Path) -> None:
    dataset = RecordIODataset(folder, int, on_error="skip")
    assert samples(DataLoader(dataset, 20)) == sorted(EVERYTHING - LOST)
    assert dataset.skipped == 10
    with pytest.raises(CorruptFileError, match="record 27 is damaged"):
        dataset[27]
    with pytest.raises(CorruptFileError, match="may be"):
        list(DataLoader(RecordIODataset(folder, int, on_error="skip", max_skipped=9), 20))


@pytest.mark.parametrize(("kind", "workers"), [(RecordIODataset, 2), (ShardedDataset, 0), (ShardedDataset, 2)])
def test_what_may_be_skipped_is_of_one_pass(folder: Path, kind: Any, workers: int) -> None:
    """A job that skips a few records in each epoch does not end in a later one."""
    loader = Loader(kind(folder, int, on_error="skip", max_skipped=10), 20, **forked(workers))
    for _ in range(3):
        assert sorted(samples(loader)) == sorted(EVERYTHING - LOST)
        assert loader.skipped == 10


def test_any_reader_that_raises_can_be_skipped(folder: Path) -> None:
    class Damaged(Numbers):
        def read_records(self, task: Task) -> Any:
            for number in super().read_records(task):
                if number in (5, 6, 1003):
                    raise CorruptFileError(5, "damaged")
                yield number

    dataset = ShardedDataset(Damaged([10, 10]), seed=1, buffer_size=7, on_error="skip")
    assert sorted(dataset) == [number for number in Numbers([10, 10]).everything if number not in (5, 6, 1003)]
    assert dataset.skipped == 3
