"""Jobs that are killed and continued, under our Loader, a plain DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from benchmarks.contestants import resuming
from fsabs.adapters.torch import EpochSampler, FileDataset, Loader, PlannedBatches, ShardedDataset
from fsabs.testing.children import started
from tests import soak

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*set_vital"),
]
TOTAL = 62
EVERYTHING = list(range(TOTAL))


@pytest.fixture(autouse=True)
def _quiet_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    resuming.write_data(tmp_path, TOTAL)
    return tmp_path


def sharded(folder: Path) -> ShardedDataset:
    return ShardedDataset(folder / "shards", int, seed=5, buffer_size=16, block_size=8)


def samples(batches: Any) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("datasets", [resuming.RECORDS, resuming.ROWS])
def test_the_kill_matrix(datasets: tuple[str, ...]) -> None:
    """In a process that is small, since it forks hundreds of times."""
    cases = soak.rounds(10)
    found = started("forkserver", "the kill matrix", _matrix, (soak.seed(1), cases, datasets), 590.0)
    assert [found[fault] for fault in resuming.FAULTS] == [0] * len(resuming.FAULTS)
    assert found["epochs"] >= 4 * found["cases"] // 2
    soak.count("jobs killed and continued", cases)


def _matrix(seed: int, cases: int, datasets: tuple[str, ...]) -> dict[str, int]:
    faults: list[str] = []
    found = resuming.run(seed, cases, TOTAL, faults.append, datasets=datasets)
    assert not faults
    return found


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.filterwarnings("ignore:epoch .* is read once more")
def test_epochs_after_a_resume_by_torchdata_are_whole(persistent: bool, folder: Path) -> None:
    def epochs_of(loader: Any, numbers: Iterable[int]) -> Iterator[list[int]]:
        for number in numbers:
            loader.dataset.set_epoch(number)
            yield samples(loader)

    def loader() -> Any:
        return StatefulDataLoader(
            sharded(folder), 4, num_workers=2, persistent_workers=persistent, multiprocessing_context="fork"
        )

    epochs = list(epochs_of(loader(), range(4)))
    assert all(sorted(epoch) == EVERYTHING for epoch in epochs)
    assert all(a != b for a, b in itertools.pairwise(epochs))
    stopped = loader()
    first = samples(itertools.islice(stopped, 5))
    state = stopped.state_dict()
    del stopped
    resumed = loader()
    resumed.load_state_dict(state)
    assert first + samples(resumed) == epochs[0]
    assert list(epochs_of(resumed, range(1, 4))) == epochs[1:]
    ended = loader()
    ended.load_state_dict(resumed.state_dict())  # of the end of an epoch
    assert sorted(samples(ended)) == EVERYTHING


def test_states_of_torchdata_continue_under_any_number_of_workers(folder: Path) -> None:
    loader = StatefulDataLoader(sharded(folder), 4, num_workers=2, multiprocessing_context="fork")
    first = samples(itertools.islice(loader, 5))
    resumed = Loader(sharded(folder), 7)
    resumed.load_state_dict(loader.state_dict())
    assert sorted(first + samples(resumed)) == EVERYTHING
    assert (sorted(samples(resumed)), resumed.epoch) == (EVERYTHING, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_resume_by_torchdata(workers: int, folder: Path) -> None:
    def loader() -> Any:
        data = FileDataset(folder / "files", transform=int)
        batches = PlannedBatches(EpochSampler(data, seed=5), 4, num_workers=workers)
        return StatefulDataLoader(data, batch_sampler=batches, num_workers=workers)

    epochs = [samples(one) for one in itertools.repeat(loader(), 3)]
    assert [sorted(epoch) == EVERYTHING for epoch in epochs] == [True] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    for stop in (1, 7, 16):  # the last batch is partial
        stopped = loader()
        first = samples(itertools.islice(stopped, stop))
        resumed = loader()
        resumed.load_state_dict(stopped.state_dict())
        assert first + samples(resumed) == epochs[0]
        assert [samples(resumed) for _ in range(2)] == epochs[1:]
    ended = loader()
    samples(ended)
    resumed = loader()
    resumed.load_state_dict(ended.state_dict())
    assert samples(resumed) == epochs[1]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_plain_dataloader_reads_the_epoch_that_was_set(persistent: bool, folder: Path) -> None:
    dataset = sharded(folder)
    loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=persistent, multiprocessing_context="fork")
    epochs = []
    for number in range(3):
        dataset.set_epoch(number)
        epochs.append(samples(loader))
    assert all(sorted(epoch) == EVERYTHING for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] == samples(Loader(sharded(folder), 4, num_workers=2, multiprocessing_context="fork"))
    with pytest.raises(RuntimeError, match="Loader"):
        dataset.state_dict()
    next(iter(loader))
    dataset.set_epoch(1)
    assert samples(loader) == epochs[1]


def test_two_passes_at_once(folder: Path) -> None:
    """Each pass is of one epoch; a Loader, which counts its epochs, refuses the first one."""
    loader = DataLoader(sharded(folder), 4, num_workers=2, multiprocessing_context="fork")
    pairs = list(zip(loader, loader, strict=True))
    for one in (0, 1):
        assert sorted(samples(pair[one] for pair in pairs)) == EVERYTHING
    counted = Loader(sharded(folder), 4)
    with pytest.raises(RuntimeError, match="another pass"):
        list(zip(counted, counted, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_state_after_the_last_batch(workers: int, drop_last: bool, folder: Path) -> None:
    files = FileDataset(folder / "files", transform=int)
    options: dict[str, Any] = {"num_workers": workers, "drop_last": drop_last}
    makers: list[Callable[[], Loader]] = [
        lambda: Loader(sharded(folder), 16, **options),
        lambda: Loader(files, 16, seed=5, **options),
    ]
    for make in makers:
        loader = make()
        batches = iter(loader)
        for _ in range(len(loader)):
            next(batches)
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        assert resumed.epoch == 1
        after = samples(resumed)
        assert after == samples(loader)
        assert len(after) == TOTAL or drop_last


def test_a_sampler_that_is_not_counted_has_no_state(folder: Path) -> None:
    data = FileDataset(folder / "files", transform=int)
    sampler = EpochSampler(data, seed=5)
    loader = DataLoader(data, 4, sampler=sampler)
    epochs = [samples(loader) for _ in range(2)]
    assert epochs[0] != epochs[1]
    with pytest.raises(RuntimeError, match="consumed"):
        sampler.state_dict()
    first = samples(itertools.islice(sampler.consumed(loader), 3))
    resumed = EpochSampler(data, seed=5)
    resumed.load_state_dict(sampler.state_dict())
    rest = samples(resumed.consumed(DataLoader(data, 9, sampler=resumed)))
    assert (sorted(first + rest), resumed.epoch) == (EVERYTHING, 2)
    with pytest.raises(ValueError, match="order"):
        next(sampler.consumed(DataLoader(data, 4, sampler=sampler, num_workers=1, in_order=False)))
