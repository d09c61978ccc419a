"""ShardedDataset: every sample once an epoch, whoever reads it, wherever it is stopped, and whoever goes on."""

from __future__ import annotations

import _thread
import copy
import itertools
import json
import os
import pickle
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import EpochSampler, Loader, Mixture, ShardedDataset
from fsabs.readers.data import Task
from fsabs.readers.data.order import Epoch
from fsabs.readers.recordio import RecordWriter
from fsabs.spi import Blob, BlobLayer, LayerFS

from .workers import ByRuns, Numbers, WorkerInfo, Workers, in_worker, saved

Batches = list[list[int]]


def run(dataset: ShardedDataset, workers: int, batch_size: int, stop: int | None = None) -> list[int]:
    """The samples of the first `stop` batches of an epoch."""
    batches = Workers(dataset, workers, batch_size)
    return [sample for batch in islice(batches, stop) for sample in batch]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"seed": 5},
    {"seed": 5, "buffer_size": 16},
    {"seed": 5, "buffer_size": 10, "block_size": 4},
    {"seed": 5, "buffer_size": 50, "block_size": 3, "max_bytes": 300},
]


@pytest.mark.parametrize("shuffle", SETTINGS, ids=str)
@pytest.mark.parametrize("reader", [Numbers([30, 0, 7, 1, 25]), ByRuns([30, 0, 7, 1, 25])], ids=["files", "runs"])
def test_ranks_and_workers_share_an_epoch(reader: Numbers, shuffle: dict[str, Any]) -> None:
    alone = ShardedDataset(reader, **shuffle)
    whole = list(alone)
    assert sorted(whole) == reader.everything
    for ranks, workers in ((1, 1), (1, 4), (3, 2), (2, 40)):
        seen = []
        for rank in range(ranks):
            dataset = ShardedDataset(reader, rank=rank, ranks=ranks, **shuffle)
            mine = run(dataset, workers, 4)
            assert abs(len(mine) - len(whole) / ranks) < 1
            assert len(mine) == len(dataset)
            seen += mine
        assert sorted(seen) == reader.everything


def test_epochs() -> None:
    reader = Numbers([40, 40])
    dataset = ShardedDataset(reader, seed=1, buffer_size=20)
    first, second = list(dataset), list(dataset)
    assert dataset.epoch == 1
    assert first != second
    assert sorted(second) == reader.everything
    dataset.set_epoch(0)
    assert list(dataset) == first
    dataset.set_epoch(0)
    assert list(dataset) == first
    assert run(dataset, 2, 5) != run(dataset, 2, 5)
    assert dataset.epoch == 2
    next(iter(dataset))  # a look at it is no epoch, and costs no sample
    assert dataset.epoch == 3
    assert sorted(dataset) == reader.everything
    plain = ShardedDataset(reader)
    assert list(plain) == list(plain) == reader.everything


@pytest.mark.parametrize("shuffle", SETTINGS, ids=str)
def test_the_same_job_goes_on_in_the_same_order(shuffle: dict[str, Any]) -> None:
    reader = Numbers([30, 0, 7, 1, 25])
    whole = run(ShardedDataset(reader, **shuffle), 3, 4)
    for stop in range(20):
        dataset = ShardedDataset(reader, **shuffle)
        first = run(dataset, 3, 4, stop)
        resumed = ShardedDataset(reader, **shuffle)
        resumed.load_state_dict(saved(dataset))
        assert saved(resumed)["parts"] == saved(dataset)["parts"] or stop in (0, 18, 19)
        rest = run(resumed, 3, 4)
        if stop < 18:
            assert first + rest == whole
        else:  # the 18th batch is the last one: the next epoch follows, whether or not the loop had ended
            assert resumed.epoch == 1
            assert sorted(rest) == reader.everything


def test_the_end_of_an_epoch_and_set_epoch() -> None:
    reader = Numbers([10])
    dataset = ShardedDataset(reader, seed=1)
    assert sorted(dataset) == reader.everything
    state = saved(dataset)
    assert state["epoch"] == 0
    resumed = ShardedDataset(reader, seed=1)
    resumed.load_state_dict(state)
    for epoch, expected in ((0, []), (1, reader.everything), (2, reader.everything)):
        resumed.set_epoch(epoch)
        assert sorted(resumed) == expected
    resumed.load_state_dict(state)
    assert sorted(resumed) == reader.everything
    assert resumed.epoch == 1


@pytest.mark.timeout(120)
def test_kill_points() -> None:
    """Jobs of several ranks and workers, killed anywhere, go on with any other numbers, once and again."""
    rng = random.Random(6)
    for _ in range(80):
        reader = rng.choice([Numbers, ByRuns])([rng.choice([0, 1, 5, 30]) for _ in range(rng.randint(1, 6))])
        shuffle = rng.choice(SETTINGS[:4])
        states: list[Any] = []
        seen: dict[int, list[int]] = {0: []}
        for kills in range(rng.randint(1, 3), -1, -1):
            ranks, workers, batch_size = rng.choice([1, 1, 2, 3]), rng.choice([1, 3, 4]), rng.randint(1, 5)
            job = [ShardedDataset(reader, rank=rank, ranks=ranks, **shuffle) for rank in range(ranks)]
            for dataset in job:
                if states:
                    dataset.load_state_dict(states)
                samples = run(dataset, workers, batch_size, rng.randint(0, 12) if kills else None)
                seen.setdefault(dataset.epoch, []).extend(samples)
            states = [saved(dataset) for dataset in job]
        assert sorted(seen[0]) == reader.everything
        for samples in seen.values():
            assert len(set(samples)) == len(samples)


def test_what_was_fetched_and_not_consumed_is_still_to_come() -> None:
    reader = Numbers([40])
    dataset = ShardedDataset(reader)
    batches = iter(Workers(dataset, 2, 4, ahead=3))
    seen = [*next(batches), *next(batches)]
    resumed = ShardedDataset(reader)
    resumed.load_state_dict(saved(dataset))
    assert sorted(seen + list(resumed)) == reader.everything
    assert len(seen) == 8


def test_states_that_do_not_fit() -> None:
    reader = Numbers([20, 20])
    states = []
    for rank in range(3):
        dataset = ShardedDataset(reader, rank=rank, ranks=3)
        run(dataset, 2, 4, rank)
        states.append(saved(dataset))
    other = ShardedDataset(reader, rank=0, ranks=2)
    misfits: list[Any] = [states[0], states[:2], [*states, states[0]], [], {}, [5]]
    for wrong in misfits:
        with pytest.raises(ValueError):
            other.load_state_dict(wrong)
    other.load_state_dict(states)
    own = ShardedDataset(reader, rank=1, ranks=3)
    own.load_state_dict(states[1])
    assert len(list(own)) == 13 - 4
    for changed in (Numbers([20, 21]), Numbers([40])):
        with pytest.raises(ValueError, match="other shards"):
            ShardedDataset(changed, rank=0, ranks=2).load_state_dict(states)
    with pytest.raises(ValueError, match="another seed"):
        ShardedDataset(reader, rank=0, ranks=2, seed=1).load_state_dict(states)
    states[1]["parts"] = states[0]["parts"]
    with pytest.raises(ValueError, match="two parts"):
        other.load_state_dict(states)


def test_states_of_other_kinds_are_refused_in_words() -> None:
    reader = Numbers([3])
    sharded, sampler = ShardedDataset(reader, seed=1), EpochSampler([1, 2, 3], seed=1)
    mixed = Mixture({"a": [1, 2], "b": ShardedDataset(reader)}, seed=1)
    task = {"format": 1, "job": "x", "content": [1, 7, 3, 1, 3], "epoch": 0, "laid_out": 3, "open": [], "others": []}
    states = [sharded.state_dict(), sampler.state_dict(), mixed.state_dict(), task, {"format": 2}, {"format": 9}]
    resumable: tuple[Any, ...] = (sharded, sampler, mixed)
    for own, one in enumerate(resumable):
        for number, state in enumerate(states):
            if number != own:
                with pytest.raises(ValueError, match="the state is|not a state|not that of|of format 9"):
                    one.load_state_dict(state)


def test_arguments() -> None:
    reader = Numbers([3])
    wrong: list[dict[str, Any]] = [{"rank": 1}, {"rank": 2, "ranks": 2}, {"uneven": "odd"}, {"block_size": 0}]
    for options in wrong:
        with pytest.raises(ValueError):
            ShardedDataset(reader, **options)
    with pytest.raises(ValueError):
        ShardedDataset(reader).set_epoch(-1)
    with pytest.raises(TypeError, match="tagged"):
        list(ShardedDataset(reader).consumed([[1]]))


def test_ranks_of_one_size() -> None:
    reader = Numbers([31])
    sizes = [len(list(ShardedDataset(reader, rank=rank, ranks=4, uneven="drop", seed=1))) for rank in range(4)]
    assert sizes == [7] * 4


def test_a_worker_keeps_a_state_of_its_own() -> None:
    """What torchdata's StatefulDataLoader does: states are asked for, and loaded, in the workers."""
    reader = Numbers([20, 13])
    states, seen = [], []
    for number in range(3):
        with in_worker(WorkerInfo(number, 3)):
            dataset = ShardedDataset(reader, seed=1, buffer_size=8)
            seen += list(islice(dataset, 4 * number))
            states.append(saved(dataset))
    rest = []
    for number in range(3):
        with in_worker(WorkerInfo(number, 3)):
            dataset = ShardedDataset(reader, seed=1, buffer_size=8)
            dataset.load_state_dict(states[number])
            rest += list(dataset)
    assert sorted(seen + rest) == reader.everything
    elsewhere = ShardedDataset(reader, seed=1, buffer_size=8)
    elsewhere.load_state_dict(states)
    assert sorted(seen + list(elsewhere)) == reader.everything
    with pytest.raises(ValueError), in_worker(WorkerInfo(0, 2)):
        ShardedDataset(reader, seed=1, buffer_size=8).load_state_dict(states[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=5), st.integers(0, 60), st.integers(1, 5), st.sampled_from(SETTINGS[:4]))
def test_a_plain_iteration_resumes(counts: list[int], stop: int, workers: int, shuffle: dict[str, Any]) -> None:
    reader = Numbers(counts)
    dataset = ShardedDataset(reader, **shuffle)
    first = list(islice(dataset, stop))
    resumed = ShardedDataset(reader, **shuffle)
    resumed.load_state_dict(saved(dataset))
    rest = run(resumed, workers, 3)
    if stop < len(reader.everything):
        assert sorted(first + rest) == reader.everything
    elif reader.everything:
        assert (resumed.epoch, sorted(rest)) == (1, reader.everything)


def test_an_iteration_goes_on_in_a_child() -> None:
    samples = iter(ShardedDataset(Numbers([30]), seed=1, buffer_size=8))
    first = list(islice(samples, 10))
    child = os.fork()
    if not child:
        os._exit(0 if sorted(first + list(samples)) == list(range(30)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(first + list(samples)) == list(range(30))


def test_an_iteration_that_is_left_ends_its_thread() -> None:
    dataset = ShardedDataset(Numbers([5000]), max_bytes=1000)
    before = _thread._count()
    samples = iter(dataset)
    assert [next(samples) for _ in range(3)] == [0, 1, 2]
    assert _thread._count() > before
    del samples
    deadline = time.monotonic() + 10
    while _thread._count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_readers_that_lose_records_are_found_out() -> None:
    class Short(Numbers):
        def read_records(self, task: Task) -> Iterator[int]:
            yield from range(task.start, min(task.end, 8))

    for shuffle in SETTINGS[:4]:
        with pytest.raises(CorruptFileError, match=r"before record 8") as caught:
            list(ShardedDataset(Short([12]), **shuffle))
        assert caught.value.filename == "s0"


@pytest.mark.parametrize("shuffle", SETTINGS)
def test_an_error_costs_no_sample(shuffle: dict[str, Any]) -> None:
    once = {1003, 1004, 2000}

    class Shaky(Numbers):
        def read_records(self, task: Task) -> Iterator[int]:
            for number in super().read_records(task):
                if number in once:
                    once.remove(number)
                    raise TimeoutError(number)
                yield number

    def transform(number: int) -> int:
        if number == 1007 and number not in seen_by_transform:
            seen_by_transform.append(number)
            raise ValueError(number)
        return number

    seen_by_transform: list[int] = []
    reader = Shaky([5, 10, 7])
    dataset = ShardedDataset(reader, transform, **shuffle)
    samples = iter(dataset)
    seen: list[int] = []
    failures = 0
    while True:
        try:
            seen.append(next(samples))
        except StopIteration:
            break
        except (TimeoutError, ValueError):
            failures += 1
            again = ShardedDataset(Numbers([5, 10, 7]), **shuffle)
            again.load_state_dict(saved(dataset))
            assert sorted(seen + list(again)) == reader.everything
    assert failures == 4
    assert seen == list(ShardedDataset(Numbers([5, 10, 7]), **shuffle))


@pytest.mark.filterwarnings("ignore:epoch .* is read once more")
def test_a_copy_tells_its_own_workers() -> None:
    dataset = ShardedDataset(Numbers([10]), seed=1, buffer_size=10)
    for one in (copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        with in_worker(WorkerInfo(0, 1)):
            worker = copy.copy(one)  # which lives on
            first = list(worker)
        one.set_epoch(3)
        with in_worker(WorkerInfo(0, 1)):
            assert sorted(worker) == sorted(first)
            assert (list(worker), worker.state_dict()["epoch"]) != (first, 0)
            dataset_worker = copy.copy(dataset)
            assert list(dataset_worker) == first


def test_ranks_that_got_one_data_set_tell_their_own_workers() -> None:
    dataset = ShardedDataset(Numbers([10]), seed=1, buffer_size=10)
    expected = list(dataset.read(0, None, [(0, 10)]))
    for context in ("fork", "forkserver"):
        started: Any = torch.multiprocessing.get_context(context)
        rank = started.Process(target=dataset.set_epoch, args=(3,))
        rank.start()
        rank.join(50)
        assert rank.exitcode == 0
    with in_worker(WorkerInfo(0, 1)):
        assert list(copy.copy(dataset)) == expected


def test_ranks_that_come_to_their_end_apart() -> None:
    """Loops by `set_epoch` stay in one epoch; without it, each rank continues with its own next step."""
    reader = Numbers([11])
    job = [ShardedDataset(reader, rank=rank, ranks=2) for rank in range(2)]
    seen = [sample for dataset in job for sample in run(dataset, 1, 1, 5)]  # rank 1 has another one
    states = [saved(dataset) for dataset in job]
    for rank, state in enumerate(states):
        dataset = ShardedDataset(reader, rank=rank, ranks=2)
        dataset.load_state_dict(state)
        assert dataset.epoch == 1 - rank
        dataset.set_epoch(0)
        assert len(run(dataset, 1, 1)) == rank
        dataset.set_epoch(1)
        assert len(run(dataset, 1, 1)) == 5 + rank
        dataset.load_state_dict(state)
        seen += run(dataset, 1, 1)
        assert dataset.epoch == 1 - rank
        run(dataset, 1, 1)
        assert dataset.epoch == 2 - rank
    assert sorted(seen) == sorted(reader.everything + reader.everything[:5])
    alone = ShardedDataset(reader)
    alone.load_state_dict(states)
    assert list(alone) == [10]
    assert list(alone) == reader.everything


@pytest.mark.parametrize("uneven", ["keep", "drop"])
def test_states_of_ranks_that_are_in_different_epochs_load_together(uneven: Any) -> None:
    """Ranks that step together drift apart where one has a batch more in each epoch."""
    reader = Numbers([7, 8, 8])
    for steps in range(1, 60, 3):
        job = [ShardedDataset(reader, seed=3, rank=rank, ranks=2, uneven=uneven) for rank in range(2)]
        seen: dict[int, list[int]] = {}
        for dataset in job:
            left = steps
            while left:
                for sample in islice(Workers(dataset, 2, 1), left):
                    seen.setdefault(dataset.epoch, []).extend(sample)
                    left -= 1
        alone = ShardedDataset(reader, seed=3, uneven=uneven)
        alone.load_state_dict([saved(dataset) for dataset in job])
        for _ in range(3):
            samples = run(alone, 2, 5)
            seen.setdefault(alone.epoch, []).extend(samples)
        expected = {epoch: len(reader.everything) for epoch in seen}
        if uneven == "drop":  # two ranks drop one of 23 samples of the epochs that they begin
            expected = {epoch: 22 if epoch <= job[0].epoch else 23 for epoch in seen}
            if steps % 11 == 0:
                expected[job[0].epoch + 1] = 23
        assert {epoch: len(set(samples)) for epoch, samples in seen.items()} == expected, steps
        assert all(len(set(samples)) == len(samples) for samples in seen.values())


def test_a_state_after_the_last_batch_is_of_the_next_epoch() -> None:
    """However many workers and samples a batch has, whether or not the last one is partial, and with drop_last."""
    reader = Numbers([254])
    for workers, batch_size, drop_last in itertools.product((0, 1, 2, 3), (1, 4, 127, 254, 300), (False, True)):
        dataset = ShardedDataset(reader, seed=1)
        loader = Loader(dataset, batch_size, num_workers=0, drop_last=drop_last)
        passes = iter(loader) if workers == 0 else iter(Workers(dataset, workers, batch_size, drop_last))
        batches = len(loader) if workers == 0 else sum(dataset.epochs.batches(workers, batch_size, drop_last))
        for _ in range(batches):
            next(passes)
        state = saved(dataset)
        resumed = ShardedDataset(reader, seed=1)
        resumed.load_state_dict(state)
        epoch = 1 if batches else 0
        assert (resumed.epoch, len(list(resumed))) == (epoch, 254), (workers, batch_size, drop_last)


def test_workers_of_a_plain_loader_read_the_epoch_that_was_set() -> None:
    dataset = ShardedDataset(Numbers([20]), seed=1, buffer_size=20)

    def read() -> list[int]:
        found = []
        for number in range(2):
            with in_worker(WorkerInfo(number, 2)):
                found += list(copy.copy(dataset))
        return found

    first = read()
    with pytest.warns(UserWarning, match="set_epoch"):
        assert read() == first
    with pytest.raises(RuntimeError, match="Loader"):
        dataset.state_dict()
    dataset.set_epoch(1)
    second = read()
    assert first != second
    assert sorted(first) == sorted(second) == list(range(20))
    dataset.set_epoch(2)
    state = saved(dataset)
    rest = ShardedDataset(Numbers([20]), seed=1, buffer_size=20)
    rest.load_state_dict(state)
    run(rest, 2, 4, 2)
    dataset.load_state_dict(saved(rest))
    assert len(read()) == 12
    with pytest.raises(RuntimeError, match="read before"):
        read()
    dataset.set_epoch(2)
    assert sorted(read()) == list(range(20))


def test_any_chain_of_jobs_reads_each_sample_once() -> None:
    """Each rank by itself, where there are as many as before, or all by the states of all, again and again."""
    source = random.Random(6)
    for _ in range(40):
        reader = Numbers([source.randrange(25) for _ in range(source.randrange(1, 6))])
        shuffle = source.choice(SETTINGS[:4])
        seen: list[int] = []
        states: list[Any] = []
        while not states or any(part for state in states for part in state["parts"]):
            ranks = source.randrange(1, 4)
            job = [ShardedDataset(reader, rank=rank, ranks=ranks, **shuffle) for rank in range(ranks)]
            for rank, dataset in enumerate(job):
                if states:
                    alone = len(states) == ranks and source.random() < 0.5
                    dataset.load_state_dict(states[rank] if alone else states)
                dataset.set_epoch(0)
                seen += run(dataset, source.randrange(1, 5), source.randrange(1, 6), source.randrange(1, 9))
            states = [saved(dataset) for dataset in job]
        assert sorted(seen) == reader.everything


def test_a_state_is_small(tmp_path: Path) -> None:
    dataset = ShardedDataset(Numbers([1000] * 1000), seed=1, buffer_size=1000, block_size=100)
    run(dataset, 16, 10, 50)
    assert len(json.dumps(dataset.state_dict())) < 2000


class Counted(LayerFS):
    """Counts the bytes that all processes read."""

    def __init__(self, inner: fsabs.FS, log: Path) -> None:
        super().__init__(inner)
        self.log = log

    def _open_blob(self, key: str) -> Blob:
        inner = self.inner._open_blob(key)
        return _CountedBlob(self, key, inner, inner.size, inner.version)

    def read(self) -> int:
        """Return how many bytes were read since the last call."""
        found = sum(map(int, self.log.read_text().split()))
        self.log.write_text("")
        return found


class _CountedBlob(BlobLayer):
    def _note(self, size: int) -> None:
        assert isinstance(self._origin, Counted)
        with self._origin.log.open("a") as file:
            file.write(f"{size}\n")

    def _pread(self, size: int, offset: int) -> bytes:
        self._note(size)
        return super()._pread(size, offset)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        self._note(len(view))
        return super()._pread_into(view, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._note(sum(size for size, _ in ranges))
        return super()._pread_many(ranges)


@pytest.mark.parametrize("workers", [0, 4])
def test_blocks_of_a_shard_cost_their_own_bytes(workers: int, tmp_path: Path) -> None:
    """No chunk is read to count the records before another, by the workers or after a resume on a new machine."""
    fs = Counted(fsabs.Memory(), tmp_path / "log")
    fs.log.write_text("")
    for shard in range(2):
        with RecordWriter(fs.inner, f"{shard}.recordio", compressor="none", max_chunk_bytes=20 * 8008) as writer:
            for number in range(400):
                writer.write(b"%08d" % (400 * shard + number) + bytes(8000))
    total = sum(fs.inner.stat(f"{shard}.recordio").size for shard in range(2))

    def loader() -> Loader:
        dataset = ShardedDataset(fs, _number, seed=1, block_size=20, max_bytes=200_000)
        return Loader(dataset, 8, num_workers=workers, multiprocessing_context="fork" if workers else None)

    first = loader()
    assert fs.read() < 0.15 * total  # the headers
    seen, states = [], []
    for batch in first:
        seen += batch.tolist()
        states.append(first.state_dict())
        if len(states) == 1:
            before = fs.read()
            assert workers or before < 0.6 * total  # the thread may be two lists of a MiB ahead, and workers at the end
    assert sorted(seen) == list(range(800))
    assert before + fs.read() < 1.1 * total
    resumed = loader()
    fs.read()
    resumed.load_state_dict(states[90])
    assert sorted(seen[:728] + samples_of(resumed)) == list(range(800))
    assert fs.read() < 0.2 * total


def _number(record: bytes) -> int:
    return int(record[:8])


def samples_of(loader: Loader) -> list[int]:
    return [sample for batch in loader for sample in batch.tolist()]


def test_importing_fsabs_does_not_import_torch() -> None:
    import subprocess

    code = "import sys, fsabs, fsabs.readers.data, fsabs.adapters; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
    code = "import sys; sys.modules['torch'] = None; import fsabs.adapters.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "MissingDependencyError: fsabs.adapters.torch needs torch: pip install 'fsabs[torch]'" in done.stderr


@pytest.mark.parametrize("seed", [None, 1])
def test_samples_that_are_repeated_are_looked_up_together(seed: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ranks have all of them: one look costs a shuffle of the whole epoch."""
    looks = 0
    locate = Epoch.locate

    def counted(epoch: Epoch, start: int, end: int) -> Any:
        nonlocal looks
        looks += 1
        return locate(epoch, start, end)

    monkeypatch.setattr(Epoch, "locate", counted)
    ranks = [EpochSampler(range(61), seed=seed, rank=rank, ranks=20, uneven="repeat") for rank in range(20)]
    order = list(EpochSampler(range(61), seed=seed))
    looks = 0
    assert [index for sampler in ranks for index in sampler] == order + order[:19]
    assert looks == 21
    reader = Numbers([61])
    shards = [
        ShardedDataset(reader, seed=seed, buffer_size=70, rank=rank, ranks=20, uneven="repeat") for rank in range(20)
    ]
    everything = list(ShardedDataset(reader, seed=seed, buffer_size=70))
    assert [sample for dataset in shards for sample in dataset] == everything + everything[:19]


@pytest.mark.parametrize("taken", [0, 2, 4])
def test_padding_is_a_sample_and_not_transformed(taken: int) -> None:
    def number(record: int) -> dict[str, int]:
        return {"number": record}

    datasets = [
        ShardedDataset(Numbers([9]), number, rank=rank, ranks=2, uneven="pad", padding={"number": -1})
        for rank in range(2)
    ]
    seen = [sample["number"] for dataset in datasets for sample in islice(dataset, taken)]
    for dataset in datasets:
        resumed = ShardedDataset(
            Numbers([9]), number, rank=dataset.epochs.place.rank, ranks=2, uneven="pad", padding={"number": -1}
        )
        if taken:
            resumed.load_state_dict(saved(dataset))
        seen += [sample["number"] for sample in resumed]
    assert sorted(seen) == [-1, *range(9)]
