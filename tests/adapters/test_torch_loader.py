"""Real DataLoader workers: every start method, killed workers, persistent ones, and states that move between them."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, RandomSampler

import fsabs
from fsabs.adapters.torch import FileDataset, Loader, PlannedBatches, RecordIODataset, ShardedDataset
from fsabs.adapters.torch.loader import agreed
from fsabs.readers.recordio import RecordWriter

# More workers than this machine has cores are no mistake here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def _quiet_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def shards(tmp_path: Path) -> tuple[str, list[int]]:
    """A directory of RecordIO files, and the numbers that are in it."""
    total = 0
    for name, count in enumerate([40, 0, 7, 50, 3]):
        with RecordWriter(fsabs.from_url(tmp_path), f"{name}.rec", max_chunk_bytes=32) as writer:
            for _ in range(count):
                writer.write(str(total).encode())
                total += 1
    return str(tmp_path), list(range(total))


def dataset_of(folder: str, **options: Any) -> ShardedDataset:
    return ShardedDataset(folder, int, seed=1, buffer_size=16, block_size=8, **options)


def samples(batches: Any) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


def test_a_killed_worker_costs_no_sample(shards: tuple[str, list[int]]) -> None:
    folder, everything = shards
    loader = Loader(dataset_of(folder), 3, num_workers=4)
    seen = []
    with pytest.raises(RuntimeError, match="killed"):
        for number, batch in enumerate(loader):
            seen += batch.tolist()
            if number == 6:
                os.kill(_workers_of_this_process()[1], signal.SIGKILL)
                time.sleep(30)  # until torch's handler of SIGCHLD raises, here
    resumed = Loader(dataset_of(folder, max_bytes=1 << 20), 5, num_workers=3)
    resumed.load_state_dict(loader.state_dict())
    assert sorted(seen + samples(resumed)) == everything
    assert sorted(samples(resumed)) == everything  # the next epoch


def _workers_of_this_process() -> list[int]:
    import multiprocessing

    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 0), (0, 3)])
def test_a_stopped_loader_goes_on(before: int, after: int, shards: tuple[str, list[int]]) -> None:
    folder, everything = shards
    loader = Loader(dataset_of(folder), 4, num_workers=before)
    seen = samples(islice(iter(loader), 9))
    resumed = Loader(dataset_of(folder), 4, num_workers=after)
    resumed.load_state_dict(loader.state_dict())
    rest = samples(resumed)
    assert sorted(seen + rest) == everything
    if before == after:  # the very order of a run that was not stopped
        assert seen + rest == samples(Loader(dataset_of(folder), 4, num_workers=before))


def test_persistent_workers_follow_epochs_and_states(shards: tuple[str, list[int]]) -> None:
    folder, everything = shards
    loader = Loader(dataset_of(folder), 4, num_workers=2, persistent_workers=True, drop_last=True)
    epochs = [samples(loader) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [len(epoch) // 4 for epoch in epochs] == [len(loader)] * 2
    loader.set_epoch(0)
    batches = iter(loader)
    first = samples(islice(batches, 5))
    assert first == epochs[0][:20]
    state = loader.state_dict()
    list(batches)
    loader.load_state_dict(state)
    rest = samples(loader)
    assert len(set(first + rest)) == len(first + rest) >= len(everything) - 2 * 3
    loader.set_epoch(7)
    plain = dataset_of(folder)
    plain.set_epoch(7)
    assert set(samples(loader)) <= set(plain)


def test_a_plain_dataloader(shards: tuple[str, list[int]]) -> None:
    folder, everything = shards
    dataset = dataset_of(folder)
    assert sorted(samples(DataLoader(dataset, 4, num_workers=2))) == everything
    loader = DataLoader(dataset, 4, num_workers=2, collate_fn=dataset.tagged(torch.tensor))
    seen = samples(islice(dataset.consumed(loader), 4))
    resumed = dataset_of(folder)
    resumed.load_state_dict(dataset.state_dict())
    assert sorted(seen + list(resumed)) == everything


class Told(RuntimeError):
    """Raised by a transform."""


def failing(record: bytes) -> int:
    if record == b"50":
        raise Told(record)
    return int(record)


def test_a_workers_error_reaches_the_loop(shards: tuple[str, list[int]]) -> None:
    loader = Loader(ShardedDataset(shards[0], failing), 4, num_workers=2, persistent_workers=True)
    with pytest.raises(Told, match="50"):
        list(loader)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method: str, shards: tuple[str, list[int]]) -> None:
    """All data sets at once, since starting such a worker takes seconds; the parent has read before, and goes on."""
    folder, everything = shards
    names = [f"{number}.rec" for number in range(5)]
    files = FileDataset(fsabs.from_url(folder), names, len)
    records = RecordIODataset(folder, int)
    sharded = dataset_of(folder, max_bytes=1 << 16)
    all_of_them = _Both(files, records)
    sizes = [os.path.getsize(os.path.join(folder, name)) for name in names]
    assert all_of_them[0] == (sizes[0], 0)
    half_read = iter(sharded)
    first = [next(half_read) for _ in range(20)]
    how: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": method, "timeout": 50}
    batches = PlannedBatches(RandomSampler(all_of_them), 16, num_workers=1)
    seen = list(DataLoader(all_of_them, batch_sampler=batches, **how))
    assert sorted(samples(one[1] for one in seen)) == everything
    assert {size for one in seen for size in one[0].tolist()} == set(sizes)
    loader = Loader(sharded, 8, **how)
    assert sorted(samples(loader)) == everything
    assert sorted(first + list(half_read)) == everything
    assert all_of_them[3] == (sizes[3], 3)


class _Both(torch.utils.data.Dataset[Any]):
    """Sizes of files and numbers of records, so that one loader is enough."""

    def __init__(self, files: FileDataset, records: RecordIODataset) -> None:
        self._files = files
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self._files[index % 5], self._records[index]

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
        sizes = self._files.__getitems__([index % 5 for index in indices])
        return list(zip(sizes, self._records.__getitems__(indices), strict=True))


def test_an_abandoned_pass_is_freed(shards: tuple[str, list[int]]) -> None:
    """A loop that ends early leaves neither the data set nor an open file."""
    folder, _ = shards
    for _ in range(2):  # the first one imports
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            samples(islice(Loader(dataset_of(folder), batch_size=4), 2))
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_ranks_agree_in_one_group_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has threads and sockets: no epoch makes another one."""
    made: list[dict[str, Any]] = []
    new_group = distributed.new_group

    def counted(**options: Any) -> Any:
        made.append(options)
        return new_group(**options)

    monkeypatch.setattr(distributed, "get_backend", lambda: "nccl")
    monkeypatch.setattr(distributed, "new_group", counted)
    for job in range(2):
        distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/{job}", rank=0, world_size=1)
        try:
            for _ in range(3):
                assert list(agreed(iter([1, 2]), False, int, lambda: None)) == [1, 2]
        finally:
            distributed.destroy_process_group()
    assert made == [{"backend": "gloo"}] * 2
