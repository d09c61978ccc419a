"""Loops that others drive: lengths, ranks and states that are true for whoever counts."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from fsabs import trace
from fsabs.adapters.torch import EpochSampler, Loader, Packing, ShardedDataset
from fsabs.adapters.torch.epochs import RankOf
from tests import preloaded
from tests.servers.process import free_port

from .workers import Numbers, saved

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*set_vital")
TOTAL = 103


def sharded(**options: Any) -> ShardedDataset:
    return ShardedDataset(Numbers([53, 50]), seed=7, buffer_size=20, block_size=5, **options)


def samples(batches: Any) -> list[int]:
    return [int(sample) for batch in batches for sample in batch]


def forked(workers: int) -> dict[str, Any]:
    return {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}


# ---- a Loader is a DataLoader


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


def test_a_loader_marks_its_steps(tmp_path: Path) -> None:
    """Once for each batch, with `trace.steps` around it and without."""
    around: Any
    for number, around in enumerate([iter, trace.steps]):
        folder = str(tmp_path / str(number))
        trace.start(folder)
        assert len(samples(around(Loader(sharded(), 4)))) == TOTAL
        trace.stop()
        assert len(trace.analyze(folder).steps) == 26


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("map_style", [False, True])
def test_a_loader_goes_on_behind_an_error(workers: int, map_style: bool) -> None:
    """The batches behind it come, and the state has what is missing."""

    def transform(number: int) -> int:
        if number == 13:
            raise ValueError(number)
        return number

    class Shaky(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return transform(super().__getitem__(index))

    def make(shaky: bool) -> Loader:
        data: Any = Shaky(range(100)) if shaky else list(range(100))
        if not map_style:
            data = ShardedDataset(Numbers([100]), transform if shaky else None)
        return Loader(data, 5, **forked(workers))

    loader = make(True)
    batches, seen, failures = iter(loader), [], 0
    while True:
        try:
            seen += next(batches).tolist()
        except StopIteration:
            break
        except ValueError:
            failures += 1
    assert (failures, sorted(seen)) == (1, [*range(10), *range(15, 100)])
    state = saved(loader)
    resumed = make(False)
    resumed.load_state_dict(state)
    assert (sorted(samples(resumed)), resumed.epoch) == (list(range(10, 15)), 0)
    with pytest.raises(ValueError):
        samples(loader)  # the next epoch
    assert loader.epoch == 1


# ---- lengths and states


@pytest.mark.parametrize(("before", "after"), [((4, 0), (8, 0)), ((8, 2), (4, 0)), ((4, 0), (4, 3)), ((4, 3), (4, 3))])
def test_the_length_of_a_resumed_pass_is_what_it_has(before: tuple[int, int], after: tuple[int, int]) -> None:
    for dataset in (sharded, lambda: list(range(TOTAL))):
        loader = Loader(dataset(), before[0], **forked(before[1]))
        whole = len(loader)
        seen = samples(itertools.islice(loader, 10))
        assert len(loader) == whole
        state = saved(loader)
        assert state["batches"] == 10
        resumed = Loader(dataset(), after[0], **forked(after[1]))
        whole = len(resumed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*asked for before a state")
            resumed.load_state_dict(state)
        length = len(resumed)
        rest = list(resumed)
        assert length == 10 + len(rest)
        assert sorted(seen + samples(rest)) == sorted(dataset())
        assert len(resumed) == whole  # of the next epoch


def test_a_length_that_was_given_before_the_state_is_loaded_warns() -> None:
    loader = Loader(sharded(), 4)
    samples(itertools.islice(loader, 10))
    resumed = Loader(sharded(), 8)
    len(resumed)
    with pytest.warns(UserWarning, match="from 13 batches to 18"):
        resumed.load_state_dict(loader.state_dict())


def test_a_loop_that_counts_other_epochs_than_the_state_is_warned(tmp_path: Path) -> None:
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


def test_batches_of_varying_size_are_not_counted_by_a_guess() -> None:
    class Buckets(BatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            numbers = iter(self.sampler)
            for size in itertools.cycle([1, 5, 3]):
                if not (batch := list(itertools.islice(numbers, size))):
                    return
                yield batch

    data: Any = list(range(30))
    sampler = EpochSampler(data, seed=1)
    with pytest.raises(ValueError, match="Buckets"):
        next(sampler.consumed(DataLoader(data, batch_sampler=Buckets(sampler, 4, False))))


def test_a_state_between_two_snapshots_of_torchdata_is_refused() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

    def loader() -> Any:
        return StatefulDataLoader(sharded(), 4, snapshot_every_n_steps=4, **forked(2))

    for stop in (6, 8):
        stopped = loader()
        first = samples(itertools.islice(stopped, stop))
        state = stopped.state_dict()
        dataset = sharded()
        if stop == 6:
            with pytest.raises(ValueError, match="2 batches before"):
                dataset.load_state_dict(state)
        else:
            dataset.load_state_dict(state)
            assert sorted(first + list(dataset)) == Numbers([53, 50]).everything
        resumed = loader()
        resumed.load_state_dict(state)
        assert sorted(first + samples(resumed)) == Numbers([53, 50]).everything


def test_a_large_jobs_state_goes_to_other_ranks_with_workers() -> None:
    """The states of 64 ranks of 40 workers, which have thousands of intervals."""
    reader = Numbers([1000] * 20)
    states, seen = [], []
    for rank in range(64):
        dataset = ShardedDataset(reader, seed=1, rank=rank, ranks=64)
        running = dataset.epochs.begin(40, 3)
        for _ in range(50):
            drawn = running.draw()
            assert drawn is not None
            dataset.epochs.consumed(running, drawn[0])
            for start, end in drawn[1]:
                seen += [1000 * int(shard) + int(record) for shard, record in located(dataset, start, end)]
        states.append(saved(dataset))
    for rank in range(2):
        loader = Loader(ShardedDataset(reader, seed=1, rank=rank, ranks=2), 64, **forked(2))
        loader.load_state_dict(states)
        seen += samples(loader)
    assert sorted(seen) == reader.everything


def located(dataset: ShardedDataset, start: int, end: int) -> Any:
    pairs = [dataset._order.epoch(0).locate(at, at + 1) for at in range(start, end)]
    return [(shards[0], records[0]) for shards, records in pairs]


# ---- ranks


def test_ranks_come_from_the_group_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as distributed

    loader, given = Loader(list(range(TOTAL)), 1), Loader(list(range(TOTAL)), 1, rank=1, ranks=4)
    assert len(loader) == TOTAL
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert len(loader) in (34, 35)
    assert samples(loader) == list(range(TOTAL))[68:]
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match="rank 1 of 2, and RANK and WORLD_SIZE say 2 of 3"):
        assert len(loader) == 52
    assert len(given) == 26
    monkeypatch.setenv("WORLD_SIZE", "x")
    assert RankOf(None, None).get() == (1, 2)


def test_a_state_is_not_loaded_as_another_rank() -> None:
    states = []
    for rank in range(2):
        loader = Loader(sharded(rank=rank, ranks=2), 4)
        next(iter(loader))
        states.append(saved(loader))
    with pytest.raises(ValueError, match="gather=True"):
        Loader(sharded(rank=1, ranks=2), 4).load_state_dict(states[0])


# ---- Lightning


def _trainer(**options: Any) -> Any:
    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel("CRITICAL")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return pl.Trainer(enable_checkpointing=False, **quiet, **options)  # type: ignore[arg-type]


def _mean(stop_after: int | None, checkpoint: Path) -> Any:
    import pytorch_lightning as pl

    class Mean(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.nn.Parameter(torch.zeros(()))
            self.seen: dict[int, list[int]] = {}

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen.setdefault(self.current_epoch, []).extend(batch.tolist())
            return (self.mean - batch.float()).square().mean()

        def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
            if index == stop_after:
                self.trainer.save_checkpoint(checkpoint)
                raise KeyboardInterrupt

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Mean()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("before", "after"), [((4, 0), (8, 0)), ((8, 0), (4, 0)), ((4, 0), (4, 3)), ((4, 2), (4, 2))])
def test_lightning_resumes_with_other_batches(tmp_path: Path, before: Any, after: Any) -> None:
    from fsabs.adapters.torch.lightning import ResumedEpochs

    warnings.simplefilter("ignore")  # its advice
    stopped, resumed = _mean(9, tmp_path / "c.ckpt"), _mean(None, tmp_path)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        _trainer(max_epochs=1).fit(stopped, Loader(sharded(), before[0], **forked(before[1])))
    _trainer(max_epochs=3, callbacks=[ResumedEpochs()]).fit(
        resumed, Loader(sharded(), after[0], **forked(after[1])), ckpt_path=tmp_path / "c.ckpt", weights_only=False
    )
    resumed.seen[0] += stopped.seen[0]
    assert {epoch: sorted(seen) for epoch, seen in resumed.seen.items()} == dict.fromkeys(
        range(3), Numbers([53, 50]).everything
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_resumes_windows_whose_number_is_not_known(tmp_path: Path, workers: int) -> None:
    from fsabs.adapters.torch.lightning import ResumedEpochs

    def loader(batch_size: int) -> Loader:
        packing = Packing(lambda number: [number] * 3, 6, overlap=False, pad=-1)
        data = ShardedDataset(Numbers([53, 50]), _tokens, seed=3, packing=packing)
        return Loader(data, batch_size, **forked(workers))

    warnings.simplefilter("ignore")  # its advice
    stopped, resumed = _mean(4, tmp_path / "c.ckpt"), _mean(None, tmp_path)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        _trainer(max_epochs=1, callbacks=[ResumedEpochs()]).fit(stopped, loader(2))
    _trainer(max_epochs=2, callbacks=[ResumedEpochs()]).fit(
        resumed, loader(3), ckpt_path=tmp_path / "c.ckpt", weights_only=False
    )
    resumed.seen[0] += stopped.seen[0]
    for epoch in range(2):
        tokens = Counter(token for window in resumed.seen[epoch] for token in window if token != -1)
        assert tokens == dict.fromkeys(Numbers([53, 50]).everything, 3), epoch


def _tokens(window: Any) -> Any:
    return window["tokens"]


def test_a_step_is_left_out_behind_an_error_and_none_after_it() -> None:
    def failing(number: int) -> int:
        if number == 8 and not failed:
            failed.append(number)
            raise ValueError(number)
        return number

    failed: list[int] = []
    batches = iter(Loader(ShardedDataset(Numbers([40]), failing), 4, skip=[5]))
    seen: list[int] = []
    while True:
        try:
            seen += next(batches).tolist()
        except ValueError:
            continue
        except StopIteration:
            break
    assert failed == [8]
    assert seen == [*range(8), *range(12, 20), *range(24, 40)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_held_are_still_to_come(workers: int) -> None:
    def loaders() -> list[Loader]:
        return [Loader(data, 4, **forked(workers)) for data in (sharded(), list(range(103)))]

    for loader, again, last in zip(loaders(), loaders(), loaders(), strict=True):
        batches = iter(loader)
        whole = [next(batches).tolist() for _ in range(9)]
        loader.held = 2
        again.load_state_dict(saved(loader))
        whole += [batch.tolist() for batch in batches]
        assert [batch.tolist() for batch in again] == whole[7:]
        loader.held = 1
        last.load_state_dict(saved(loader))
        assert (last.epoch, [batch.tolist() for batch in last]) == (0, whole[-1:])
        loader.held = 0
        last.load_state_dict(saved(loader))
        assert last.epoch == 1


DDP = """
import json, logging, os, sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl, torch
from fsabs.adapters.torch import Loader
from fsabs.adapters.torch.lightning import ResumedEpochs

folder, ranks, stop = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3

class Mean(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.mean = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, index):
        with open(f"{folder}/seen-{os.getpid()}", "a") as file:
            file.write(json.dumps([self.current_epoch, batch.tolist()]) + "\\n")
        return (self.mean - batch.float()).square().mean()

    def on_train_batch_end(self, outputs, batch, index):
        if stop and index == 5:
            self.trainer.save_checkpoint(f"{folder}/c.ckpt")
            self.trainer.strategy.barrier()
            os._exit(0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

loader = Loader(list(range(104)), 4 if stop else 6, seed=3, gather=True)  # before the process group is made
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto",

    callbacks=[ResumedEpochs()], **quiet
)
trainer.fit(Mean(), loader, ckpt_path=None if stop else f"{folder}/c.ckpt", weights_only=False)
"""


@pytest.mark.timeout(280)
def test_lightning_resumes_two_ranks(tmp_path: Path) -> None:
    """The state is gathered from both, and Lightning's own splitting of data over ranks need not be turned off."""
    (tmp_path / "train.py").write_text(DDP)

    def train(folder: Path, ranks: int, *stop: str) -> None:
        """Train in processes that were started by another program, as a cluster's job manager does."""
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = [tmp_path / "train.py", folder, ranks, *stop]
        with (folder / "log").open("ab") as log, open(os.devnull) as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            programs = [
                preloaded.start(
                    (*preloaded.TORCH, "pytorch_lightning"),
                    command,
                    files,
                    env={**os.environ, **group, "LOCAL_RANK": str(rank)} if ranks > 1 else None,
                )
                for rank in range(ranks)
            ]
            ended = [program.wait(120) for program in programs]
        assert ended == [0] * ranks, (folder / "log").read_text()

    stopped = tmp_path / "stopped"
    stopped.mkdir()
    train(stopped, 2, "stop")
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        shutil.copytree(stopped, folder)
        train(folder, ranks)
        seen: dict[int, Counter[int]] = {}
        for path in folder.glob("seen-*"):
            for epoch, batch in map(json.loads, path.read_text().splitlines()):
                seen.setdefault(epoch, Counter()).update(batch)
        assert seen == {epoch: Counter(range(104)) for epoch in range(2)}, ranks


# ---- tars as webdataset reads them


def test_a_tar_is_read_in_its_order(tmp_path: Path) -> None:
    import io
    import random
    import tarfile

    names = [f"{number:03}" for number in range(40)]
    random.Random(3).shuffle(names)
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz")):
        with tarfile.open(tmp_path / f"x{suffix}", mode) as tar:  # type: ignore[call-overload]
            for name in ["README", *names]:
                for part in ("", ".json") if name == "README" else (".jpg", ".cls"):
                    member = tarfile.TarInfo(f"d/{name}{part}")
                    member.size = 3
                    tar.addfile(member, io.BytesIO(name[:3].encode()))
        found = list(ShardedDataset(tmp_path / f"x{suffix}"))
        assert [sample["__key__"] for sample in found] == ["d/README", *(f"d/{name}" for name in names)]
        assert found[0].keys() == {"__key__", "json"}  # a file without a dot is no part of a sample
        assert found[1] == {"__key__": f"d/{names[0]}", "jpg": names[0].encode(), "cls": names[0].encode()}
