"""ShardedDataset: every sample once an epoch, whoever reads it, wherever it is stopped, and whoever goes on."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import EpochSampler, Loader, Mixture, ShardedDataset
from fsabs.readers.data import Task
from fsabs.readers.recordio import RecordWriter
from tests.counting import Counting

from .workers import ByRuns, Numbers, Workers, samples, saved, threads, wait_for


def run(dataset: ShardedDataset, workers: int, batch_size: int, stop: int | None = None) -> list[int]:
    """Return the samples of the first `stop` batches of an epoch."""
    return samples(islice(Workers(dataset, workers, batch_size), stop))


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
    for ranks, workers in ((1, 4), (3, 2), (2, 40)):
        seen = []
        for rank in range(ranks):
            dataset = ShardedDataset(reader, rank=rank, ranks=ranks, **shuffle)
            mine = run(dataset, workers, 4)
            assert abs(len(mine) - len(whole) / ranks) < 1
            assert len(mine) == len(dataset)
            seen += mine
        assert sorted(seen) == reader.everything


@pytest.mark.parametrize("seed", [None, 1])
def test_ranks_are_made_even(seed: int | None) -> None:
    def transform(record: int) -> dict[str, int]:
        return {"number": record}

    def parts(uneven: Any, ranks: int) -> list[list[int]]:
        padding = {"number": -1} if uneven == "pad" else None  # which is not transformed
        found = []
        for rank in range(ranks):
            options: dict[str, Any] = {"rank": rank, "ranks": ranks, "uneven": uneven, "padding": padding}
            dataset = ShardedDataset(Numbers([61]), transform, seed=seed, buffer_size=70, **options)
            resumed = ShardedDataset(Numbers([61]), transform, seed=seed, buffer_size=70, **options)
            first = list(islice(dataset, 2))
            resumed.load_state_dict(saved(dataset))
            found.append([sample["number"] for sample in [*first, *resumed]])
        return found

    def joined(parts: list[list[int]]) -> list[int]:
        return list(itertools.chain.from_iterable(parts))

    order = joined(parts("keep", 1))
    assert sorted(map(len, parts("keep", 4))) == [15, 15, 15, 16]
    assert [len(part) for part in parts("drop", 4)] == [15] * 4
    assert joined(parts("drop", 4)) == order[:60]
    assert joined(parts("repeat", 20)) == order + order[:19]
    assert joined(parts("pad", 4)) == [*order, -1, -1, -1]
    order = list(EpochSampler(range(61), seed=seed))
    ranks = [EpochSampler(range(61), seed=seed, rank=rank, ranks=20, uneven="repeat") for rank in range(20)]
    assert joined(list(map(list, ranks))) == order + order[:19]


def test_epochs() -> None:
    reader = Numbers([40, 40])
    dataset = ShardedDataset(reader, seed=1, buffer_size=20)
    first, second = list(dataset), list(dataset)
    assert dataset.epoch == 1
    assert first != second
    assert sorted(second) == reader.everything
    for _ in range(2):
        dataset.set_epoch(0)
        assert list(dataset) == first
    assert run(dataset, 2, 5) != run(dataset, 2, 5)
    assert dataset.epoch == 2
    next(iter(dataset))  # a look at it is no epoch, and costs no sample
    assert dataset.epoch == 3
    assert sorted(dataset) == reader.everything
    plain = ShardedDataset(reader)
    assert list(plain) == list(plain) == reader.everything
    with pytest.raises(ValueError, match="negative"):
        plain.set_epoch(-1)


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


# ---- stopped, and continued by other jobs


@pytest.mark.parametrize("shuffle", [SETTINGS[0], SETTINGS[3], SETTINGS[4]], ids=str)
def test_the_same_job_goes_on_in_the_same_order(shuffle: dict[str, Any]) -> None:
    reader = Numbers([30, 0, 7, 1, 25])
    whole = run(ShardedDataset(reader, **shuffle), 3, 4)
    for stop in range(20):
        dataset = ShardedDataset(reader, **shuffle)
        first = run(dataset, 3, 4, stop)
        resumed = ShardedDataset(reader, **shuffle)
        resumed.load_state_dict(saved(dataset))
        rest = run(resumed, 3, 4)
        if stop < 18:
            assert first + rest == whole
        else:  # the 18th batch is the last one: the next epoch follows, whether or not the loop had ended
            assert resumed.epoch == 1
            assert sorted(rest) == reader.everything


def test_any_chain_of_jobs_reads_each_sample_once() -> None:
    """Each rank by itself, where there are as many as before, or all by the states of all, again and again."""
    source = random.Random(6)
    for _ in range(60):
        reader = source.choice([Numbers, ByRuns])([source.randrange(25) for _ in range(source.randrange(1, 6))])
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
        last = ShardedDataset(reader, **shuffle)
        last.load_state_dict(states)
        assert sorted(run(last, 2, 3)) == reader.everything
        assert last.epoch == (1 if reader.everything else 0)


@settings(max_examples=30, deadline=None)
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


@pytest.mark.parametrize("uneven", ["keep", "drop"])
def test_states_of_ranks_that_are_in_different_epochs_load_together(uneven: Any) -> None:
    """Ranks that step together drift apart where one has a batch more in each epoch."""
    reader = Numbers([7, 8, 8])
    for steps in range(1, 60, 5):
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
            rest = run(alone, 2, 5)
            seen.setdefault(alone.epoch, []).extend(rest)
        expected = {epoch: len(reader.everything) for epoch in seen}
        if uneven == "drop":  # two ranks drop one of 23 samples of the epochs that they begin
            expected = {epoch: 22 if epoch <= job[0].epoch else 23 for epoch in seen}
            if steps % 11 == 0:
                expected[job[0].epoch + 1] = 23
        assert {epoch: len(set(numbers)) for epoch, numbers in seen.items()} == expected, steps
        assert all(len(set(numbers)) == len(numbers) for numbers in seen.values())


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
    with pytest.raises(TypeError, match="tagged"):
        list(ShardedDataset(reader).consumed([[1]]))


def test_a_state_is_small() -> None:
    dataset = ShardedDataset(Numbers([1000] * 1000), seed=1, buffer_size=1000, block_size=100)
    run(dataset, 16, 10, 50)
    assert len(json.dumps(dataset.state_dict())) < 2000


# ---- iterators, and what fails


def test_an_iteration_goes_on_in_a_child() -> None:
    iteration = iter(ShardedDataset(Numbers([30]), seed=1, buffer_size=8))
    first = list(islice(iteration, 10))
    child = os.fork()
    if not child:
        os._exit(0 if sorted(first + list(iteration)) == list(range(30)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(first + list(iteration)) == list(range(30))


def test_an_iteration_that_is_left_ends_its_thread() -> None:
    dataset = ShardedDataset(Numbers([5000]), max_bytes=1000)
    before = threads()
    iteration = iter(dataset)
    assert [next(iteration) for _ in range(3)] == [0, 1, 2]
    del iteration
    wait_for(lambda: threads() <= before)


def test_readers_that_lose_records_are_found_out() -> None:
    class Short(Numbers):
        def read_records(self, task: Task) -> Iterator[int]:
            yield from range(task.start, min(task.end, 8))

    for shuffle in SETTINGS[:4]:
        with pytest.raises(CorruptFileError, match=r"before record 8") as caught:
            list(ShardedDataset(Short([12]), **shuffle))
        assert caught.value.filename == "s0"


@pytest.mark.parametrize("shuffle", [SETTINGS[0], SETTINGS[4]], ids=str)
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
    iteration = iter(dataset)
    seen: list[int] = []
    failures = 0
    while True:
        try:
            seen.append(next(iteration))
        except StopIteration:
            break
        except (TimeoutError, ValueError):
            failures += 1
            again = ShardedDataset(Numbers([5, 10, 7]), **shuffle)
            again.load_state_dict(saved(dataset))
            assert sorted(seen + list(again)) == reader.everything
    assert failures == 4
    assert seen == list(ShardedDataset(Numbers([5, 10, 7]), **shuffle))


# ---- costs


def test_blocks_of_a_shard_cost_their_own_bytes() -> None:
    """No chunk is read to count the records before another, or after a resume on a new machine."""
    fs = Counting(fsabs.Memory())
    for shard in range(2):
        with RecordWriter(fs.inner, f"{shard}.recordio", compressor="none", max_chunk_bytes=20 * 8008) as writer:
            for number in range(400):
                writer.write(b"%08d" % (400 * shard + number) + bytes(8000))
    total = sum(fs.inner.stat(f"{shard}.recordio").size for shard in range(2))

    def loader() -> Loader:
        return Loader(ShardedDataset(fs, lambda record: int(record[:8]), seed=1, block_size=20, max_bytes=200_000), 8)

    def fetched() -> int:
        found = fs.fetched
        fs.requests.clear()
        return found

    first = loader()
    assert fetched() < 0.15 * total  # the headers
    seen, states = [], []
    for batch in first:
        seen += batch.tolist()
        states.append(first.state_dict())
        if len(states) == 1:
            before = fetched()
            assert before < 0.6 * total  # the thread may be two lists of a MiB ahead
    assert sorted(seen) == list(range(800))
    assert before + fetched() < 1.1 * total
    resumed = loader()
    fetched()
    resumed.load_state_dict(states[90])
    assert sorted(seen[:728] + samples(resumed)) == list(range(800))
    assert fetched() < 0.2 * total


def test_without_torch_readers_work_and_the_rest_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import fsabs.readers.data, fsabs.adapters, fsabs.adapters.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "MissingDependencyError: fsabs.adapters.torch needs torch: pip install 'fsabs[torch]'" in done.stderr
