"""Loader: torch's DataLoader with a state: what it is to other libraries, and what happens to its workers."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

import fsabs
from fsabs import trace
from fsabs.adapters.torch import EpochBatches, FileDataset, Loader, RecordIODataset, ShardedDataset
from fsabs.readers.recordio import RecordWriter

from .workers import Numbers, forked, samples, saved

# More workers than this machine has cores are no mistake here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
TOTAL = 103
EVERYTHING = Numbers([53, 50]).everything


def sharded(**options: Any) -> ShardedDataset:
    return ShardedDataset(Numbers([53, 50]), seed=7, buffer_size=20, block_size=5, **options)


# ---- a DataLoader


def test_a_loader_is_a_dataloader() -> None:
    started = torch.zeros(2, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def init(worker: int) -> None:
        started[worker] += 1

    for dataset, seed in ((sharded(), None), (list(range(TOTAL)), 5)):
        loader = Loader(dataset, 4, seed=seed, worker_init_fn=init, persistent_workers=True, timeout=30, **forked(2))
        assert isinstance(loader, DataLoader)
        assert (loader.batch_size, loader.drop_last, loader.num_workers) == (4, False, 2)
        assert isinstance(loader.sampler, DistributedSampler)  # Lightning leaves its ranks alone
        assert len(loader.dataset) == TOTAL  # type: ignore[arg-type]
        for _ in range(2):
            assert len(samples(loader)) == TOTAL
    assert started.tolist() == [2, 2]
    with pytest.raises(TypeError, match="num_worker"):
        Loader(sharded(), num_worker=2)
    with pytest.raises(TypeError, match="seed= shuffles"):
        Loader(sharded(), shuffle=True)
    with pytest.raises(ValueError, match="in_order"):
        Loader(sharded(), in_order=False)


def test_a_loader_marks_its_steps(tmp_path: Path) -> None:
    """Once for each batch, with `trace.steps` around it and without."""
    around: Any
    for number, around in enumerate([iter, trace.steps]):
        folder = str(tmp_path / str(number))
        trace.start(folder)
        assert len(samples(around(Loader(sharded(), 4)))) == TOTAL
        trace.stop()
        assert len(trace.analyze(folder).steps) == 26


def test_an_abandoned_pass_is_freed(tmp_path: Path) -> None:
    """A loop that ends early leaves neither the data set nor an open file."""
    with RecordWriter(fsabs.from_url(tmp_path), "x.rec") as writer:
        for number in range(40):
            writer.write(b"%d" % number)
    for _ in range(2):  # the first one imports
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            samples(itertools.islice(Loader(ShardedDataset(tmp_path, int, seed=1), batch_size=4), 2))
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


class _Both(torch.utils.data.Dataset[Any]):
    """Sizes of files and numbers of records, so that one loader is enough."""

    def __init__(self, files: FileDataset, records: RecordIODataset) -> None:
        self._files = files
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
        sizes = self._files.__getitems__([index % 3 for index in indices])
        return list(zip(sizes, self._records.__getitems__(indices), strict=True))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_start_methods(method: str, tmp_path: Path) -> None:
    """All data sets at once, since starting such a worker takes seconds; the parent has read before, and goes on."""
    everything = list(range(100))
    for name, numbers in (("0", everything[:40]), ("1", []), ("2", everything[40:])):
        with RecordWriter(fsabs.from_url(tmp_path), name, max_chunk_bytes=32) as writer:
            for number in numbers:
                writer.write(b"%d" % number)
    both = _Both(FileDataset(tmp_path, ["0", "1", "2"], len), RecordIODataset(tmp_path, int))
    data = ShardedDataset(tmp_path, int, seed=1, buffer_size=16, block_size=8, max_bytes=1 << 16)
    half_read = iter(data)
    first = [next(half_read) for _ in range(20)]
    how: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": method, "timeout": 50}
    batches = EpochBatches(both, 16, seed=1, workers=1)
    seen = list(DataLoader(both, batch_sampler=batches, **how))
    assert sorted(samples(one[1] for one in seen)) == everything
    assert {size for one in seen for size in one[0].tolist()} == {path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(samples(Loader(data, 8, **how))) == everything
    assert sorted(first + list(half_read)) == everything


# ---- each sample once, whatever fails


def test_a_killed_worker_costs_no_sample() -> None:
    loader = Loader(sharded(), 3, **forked(4))
    seen = []
    with pytest.raises(RuntimeError, match="killed"):
        for number, batch in enumerate(loader):
            seen += batch.tolist()
            if number == 6:
                os.kill(multiprocessing.active_children()[1].pid or 0, signal.SIGKILL)
                time.sleep(30)  # until torch's handler of SIGCHLD raises, here
    resumed = Loader(sharded(), 5, **forked(3))
    resumed.load_state_dict(loader.state_dict())
    assert sorted(seen + samples(resumed)) == EVERYTHING
    assert sorted(samples(resumed)) == EVERYTHING  # the next epoch


@pytest.mark.parametrize("failing", [False, True])
def test_steps_are_left_out(failing: bool) -> None:
    def transform(number: int) -> int:
        if number == 8 and failing and not failed:
            failed.append(number)
            raise ValueError(number)
        return number

    failed: list[int] = []
    batches = iter(Loader(ShardedDataset(Numbers([40]), transform), 4, skip=[5]))
    seen: list[int] = []
    while True:
        try:
            seen += next(batches).tolist()
        except ValueError:
            continue
        except StopIteration:
            break
    assert seen == [number for number in range(40) if number // 4 not in ([2, 5] if failing else [5])]


# ---- lengths and states


@pytest.mark.parametrize(("before", "after"), [((4, 2), (4, 2)), ((8, 2), (4, 0)), ((4, 0), (7, 3))])
def test_a_stopped_loader_goes_on_and_its_length_is_what_it_has(before: Any, after: Any) -> None:
    for dataset in (sharded, lambda: list(range(TOTAL))):
        loader = Loader(dataset(), before[0], **forked(before[1]))
        whole = len(loader)
        seen = samples(itertools.islice(loader, 10))
        assert len(loader) == whole
        state = saved(loader)
        resumed = Loader(dataset(), after[0], **forked(after[1]))
        whole = len(resumed)
        if whole != len(loader):
            with pytest.warns(UserWarning, match="was asked for before a state was loaded"):
                resumed.load_state_dict(state)
        else:
            resumed.load_state_dict(state)
        length = len(resumed)
        rest = list(resumed)
        assert length == 10 + len(rest)
        assert sorted(seen + samples(rest)) == sorted(iter(dataset()))
        assert len(resumed) == whole  # of the next epoch
        if before == after:  # the very order of a run that was not stopped
            assert seen + samples(rest) == samples(Loader(dataset(), after[0], **forked(after[1])))


def test_a_loop_that_counts_other_epochs_than_the_state_is_warned() -> None:
    loader = Loader(sharded(), 4)
    for _ in range(3):
        samples(loader)
    next(iter(loader))
    state = saved(loader)
    for epoch in (3, 4, 0):
        resumed = Loader(sharded(), 4)
        resumed.load_state_dict(state)
        if epoch == 3:
            resumed.set_epoch(epoch)
        else:
            with pytest.warns(UserWarning, match="left of epoch 3 is not read"):
                resumed.set_epoch(epoch)
        assert len(samples(resumed)) == (TOTAL - 4 if epoch == 3 else TOTAL)
    ended = Loader(sharded(), 4)
    samples(ended)
    resumed = Loader(sharded(), 4)
    resumed.load_state_dict(saved(ended))
    resumed.set_epoch(5)  # nothing was left


def test_persistent_workers_follow_epochs_and_states() -> None:
    loader = Loader(sharded(), 4, persistent_workers=True, drop_last=True, **forked(2))
    epochs = [samples(loader) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [len(epoch) // 4 for epoch in epochs] == [len(loader)] * 2
    loader.set_epoch(0)
    batches = iter(loader)
    first = samples(itertools.islice(batches, 5))
    assert first == epochs[0][:20]
    state = loader.state_dict()
    list(batches)
    loader.load_state_dict(state)
    rest = samples(loader)
    assert len(set(first + rest)) == len(first + rest) >= TOTAL - 2 * 3
    loader.set_epoch(7)
    assert len(samples(loader)) == len(loader) * 4


# ---- ranks


def test_ranks_come_from_the_group_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, given = Loader(list(range(TOTAL)), 1), Loader(list(range(TOTAL)), 1, rank=1, ranks=4)
    assert len(loader) == TOTAL
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert len(loader) == 34
    assert samples(loader) == list(range(TOTAL))[2:102:3]
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match="rank 1 of 2, and RANK and WORLD_SIZE say 2 of 3"):
        assert len(loader) == 51
    assert len(given) == 25
    monkeypatch.setenv("WORLD_SIZE", "x")
    assert len(loader) == 51
