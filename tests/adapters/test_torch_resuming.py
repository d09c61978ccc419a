"""Jobs that are killed and continued, under our Loader, a plain DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from fsabs.adapters.torch import EpochSampler, FileDataset, Loader, PlannedBatches, ShardedDataset
from fsabs.testing.children import started
from tests import soak
from tests.adapters import resuming
from tests.adapters.resuming import Case

from .workers import forked, samples

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*set_vital"),
]
TOTAL = 62
EVERYTHING = list(range(TOTAL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The numbers below `TOTAL`, as shards and as files."""
    found = tmp_path_factory.mktemp("data")
    resuming.write_data(found, TOTAL)
    return found


def sharded(folder: Path) -> ShardedDataset:
    return ShardedDataset(folder / "shards", int, seed=5, buffer_size=16, block_size=8)


# ---- kill -9

CASES = [
    Case("sharded", "ours", 2, True, 2, 3, 4, False, 5, 16),
    Case("files", "ours", 0, False, 1, 1, 4, False, 7, 4),
    Case("recordio", "tagged", 2, False, 2, 1, 4, False, 3, 31),
    Case("sharded", "stateful", 2, False, 1, 2, 4, False, 4, 4),
    Case("parquet", "tagged", 0, False, 1, 2, 31, True, 1, 4),
    Case("tokens", "ours", 1, False, 2, 1, 31, False, 2, 4),
    Case("packed", "ours", 2, False, 2, 1, 4, False, 2, 16),
    Case("mixture", "ours", 2, False, 2, 3, 4, False, 5, 31, 2),
]
"""One of each kind of data set: each rank is killed after so many steps, and other ranks go on with other batches."""


def _run_cases(cases: list[Case]) -> list[tuple[Case, dict[str, int]]]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        resuming.write_data(Path(folder), TOTAL)
        return [(case, resuming.run_case(case, folder, TOTAL)) for case in cases]


@pytest.mark.timeout(180)
def test_ranks_that_are_killed_are_continued_by_others() -> None:
    """In a process that is small, since it forks dozens of times."""
    for case, found in started("forkserver", "killed ranks", _run_cases, (CASES,), 170.0):
        assert found.pop("epochs") > resuming.EPOCHS_AFTER, case
        assert found == dict.fromkeys(resuming.FAULTS, 0), case


@pytest.mark.nightly
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("datasets", [resuming.RECORDS, resuming.ROWS])
def test_the_kill_matrix(datasets: tuple[str, ...]) -> None:
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


# ---- torchdata


@pytest.mark.filterwarnings("ignore:epoch .* is read once more")
def test_epochs_after_a_resume_by_torchdata_are_whole(folder: Path) -> None:
    def loader() -> Any:
        return StatefulDataLoader(sharded(folder), 4, persistent_workers=True, **forked(2))

    def epochs_of(loader: Any, numbers: range) -> list[list[int]]:
        found = []
        for number in numbers:
            loader.dataset.set_epoch(number)
            found.append(samples(loader))
        return found

    epochs = epochs_of(loader(), range(3))
    assert all(sorted(epoch) == EVERYTHING for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    stopped = loader()
    first = samples(itertools.islice(stopped, 5))
    state = stopped.state_dict()
    del stopped
    resumed = loader()
    resumed.load_state_dict(state)
    assert first + samples(resumed) == epochs[0]
    assert epochs_of(resumed, range(1, 3)) == epochs[1:]
    ended = loader()
    ended.load_state_dict(resumed.state_dict())  # of the end of an epoch
    assert sorted(samples(ended)) == EVERYTHING
    elsewhere = Loader(sharded(folder), 7)
    elsewhere.load_state_dict(state)
    assert sorted(first + samples(elsewhere)) == EVERYTHING
    assert (sorted(samples(elsewhere)), elsewhere.epoch) == (EVERYTHING, 1)


def test_a_state_between_two_snapshots_of_torchdata_is_refused(folder: Path) -> None:
    def loader() -> Any:
        return StatefulDataLoader(sharded(folder), 4, snapshot_every_n_steps=4, **forked(2))

    for stop in (6, 8):
        stopped = loader()
        first = samples(itertools.islice(stopped, stop))
        state = stopped.state_dict()
        dataset = sharded(folder)
        if stop == 6:
            with pytest.raises(ValueError, match="2 batches before"):
                dataset.load_state_dict(state)
        else:
            dataset.load_state_dict(state)
            assert sorted(first + list(dataset)) == EVERYTHING
        resumed = loader()
        resumed.load_state_dict(state)
        assert sorted(first + samples(resumed)) == EVERYTHING


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.nightly)])
def test_files_resume_by_torchdata(workers: int, folder: Path) -> None:
    def loader() -> Any:
        data = FileDataset(folder / "files", transform=int)
        batches = PlannedBatches(EpochSampler(data, seed=5), 4, num_workers=workers)
        return StatefulDataLoader(data, batch_sampler=batches, **forked(workers))

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


# ---- a plain DataLoader


def test_a_plain_dataloader_reads_the_epoch_that_was_set(folder: Path) -> None:
    dataset = sharded(folder)
    loader = DataLoader(dataset, 4, persistent_workers=True, **forked(2))
    epochs = []
    for number in range(3):
        dataset.set_epoch(number)
        epochs.append(samples(loader))
    assert all(sorted(epoch) == EVERYTHING for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] == samples(Loader(sharded(folder), 4, **forked(2)))
    with pytest.raises(RuntimeError, match="Loader"):
        dataset.state_dict()
    next(iter(loader))
    dataset.set_epoch(1)
    assert samples(loader) == epochs[1]


def test_two_passes_at_once(folder: Path) -> None:
    """Each pass is of one epoch; a Loader, which counts its epochs, refuses the first one."""
    loader = DataLoader(sharded(folder), 4, **forked(2))
    pairs = list(zip(loader, loader, strict=True))
    for one in (0, 1):
        assert sorted(samples(pair[one] for pair in pairs)) == EVERYTHING
    counted = Loader(sharded(folder), 4)
    with pytest.raises(RuntimeError, match="another pass"):
        list(zip(counted, counted, strict=True))


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
    buckets: Any = [[0, 1, 2], [3]]
    for wrong, match in (
        (DataLoader(data, 4, sampler=sampler, num_workers=1, in_order=False), "order"),
        (DataLoader(data, batch_sampler=buckets), "batches of a list"),
    ):
        with pytest.raises(ValueError, match=match):
            next(sampler.consumed(wrong))


@pytest.mark.parametrize(("workers", "batch_size", "drop_last"), [(0, 16, False), (2, 16, True), (2, 31, False)])
def test_the_state_after_the_last_batch_is_of_the_next_epoch(
    workers: int, batch_size: int, drop_last: bool, folder: Path
) -> None:
    """Whether or not that batch is whole, and before the loader has said that it is the last one."""
    files = FileDataset(folder / "files", transform=int)
    options: dict[str, Any] = {"drop_last": drop_last, **forked(workers)}
    makers: list[Callable[[], Loader]] = [
        lambda: Loader(sharded(folder), batch_size, **options),
        lambda: Loader(files, batch_size, seed=5, **options),
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
