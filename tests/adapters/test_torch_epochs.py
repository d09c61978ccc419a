"""Epochs of data sets under loaders: the same batches on any ranks and workers, each sample once, from any state."""

from __future__ import annotations

import io
import itertools
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import EpochBatches, FileDataset, Loader, Mixture, Packing, ShardedDataset
from fsabs.readers.data import Task
from fsabs.readers.recordio import RecordWriter
from tests import soak
from tests.counting import Counting

from .workers import ByRuns, Numbers, forked, samples, saved, threads, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*set_vital"),
    pytest.mark.filterwarnings("ignore:the order was made for"),
]
TOTAL = 93
NUMBERS = Numbers([30, 0, 7, 1, 25, 30])
SHUFFLES: list[dict[str, Any]] = [
    {},
    {"seed": 5},
    {"seed": 5, "buffer_size": 16},
    {"seed": 5, "buffer_size": 10, "block_size": 4},
    {"seed": 5, "buffer_size": 50, "block_size": 3, "max_bytes": 300},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same numbers as RecordIO, Parquet, JSON lines, MDS and files."""
    import pyarrow
    import pyarrow.parquet

    found = tmp_path_factory.mktemp("data")
    fs = fsabs.from_url(found)
    for name in ("recordio", "parquet", "jsonl", "mds", "files"):
        fs.mkdir(name)
    for shard in range(3):
        numbers = range(31 * shard, 31 * shard + 31)
        with RecordWriter(fs, f"recordio/{shard}", max_chunk_bytes=20) as writer:
            for number in numbers:
                writer.write(b"%d" % number)
        table = pyarrow.table({"id": list(numbers)})
        pyarrow.parquet.write_table(table, str(found / f"parquet/{shard}.parquet"), row_group_size=6)
        fs.write_bytes(f"jsonl/{shard}.jsonl", "".join(json.dumps({"id": one}) + "\n" for one in numbers).encode())
    for number in range(TOTAL):
        fs.write_bytes(f"files/{number:03}", b"%d" % number)
    shards = [write_mds(fs, f"{shard}.mds", range(31 * shard, 31 * shard + 31)) for shard in range(3)]
    fs.write_bytes("mds/index.json", json.dumps({"version": 2, "shards": shards}).encode())
    return found


def write_mds(fs: fsabs.FS, name: str, numbers: range) -> dict[str, Any]:
    """Write a shard of MosaicML Streaming's format, of one column; return its entry of the index."""
    first = 4 * (len(numbers) + 2)
    offsets = range(first, first + 8 * len(numbers) + 1, 8)
    content = struct.pack(f"<{len(numbers) + 2}I{len(numbers)}q", len(numbers), *offsets, *numbers)
    fs.write_bytes(f"mds/{name}", content)
    columns = {"column_encodings": ["int"], "column_names": ["id"], "column_sizes": [8]}
    raw = {"basename": name, "bytes": len(content), "hashes": {}}
    others: dict[str, Any] = {
        "compression": None,
        "format": "mds",
        "hashes": [],
        "version": 2,
        "size_limit": None,
        "zip_data": None,
    }
    return {**columns, **others, "raw_data": raw, "samples": len(numbers)}


def number_of(row: Any) -> int:
    return int(row["id"])


def data_of(kind: str, folder: Path) -> Any:
    if kind == "recordio":
        return ShardedDataset(folder / "recordio", int, seed=3, buffer_size=12, block_size=6)
    if kind == "mds":
        return ShardedDataset(folder / kind, number_of, seed=3, buffer_size=12)
    if kind in ("parquet", "jsonl"):
        return ShardedDataset(folder / kind, number_of, seed=3, window=4)
    if kind == "files":
        return FileDataset(folder / "files", transform=int)
    if kind == "map":
        return list(range(TOTAL))
    sources = {"a": ShardedDataset(folder / "recordio", int, seed=1, buffer_size=6), "b": range(200, 240)}
    return Mixture(sources, {"a": 2, "b": 1}, ending="leave")


LANES = {"lanes": (2, 3)}
SEED = {"seed": 3}
BY_LANES: list[Any] = [(kind, LANES) for kind in ("recordio", "parquet", "jsonl", "mds", "mixture")]
BY_LANES += [(kind, {**SEED, **given}) for kind in ("files", "map") for given in (LANES, {})]
FEW = [(2, 0), (3, 2), (4, 0), (6, 1)]
MANY = [(ranks, workers) for ranks in (1, 2, 3, 4, 6) for workers in range(4)]
"""Numbers of ranks, and of workers of each."""


def joined(
    data: Any, ranks: int, workers: int, size: int, state: Any = None, stop: int | None = None, **given: Any
) -> Any:
    """Return the batches of all ranks of a job, each as one; and the state of its last rank."""
    found, last = [], None
    for rank in range(ranks):
        loader = Loader(data, size // ranks, rank=rank, ranks=ranks, **given, **forked(workers))
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        found.append([batch.tolist() for batch in itertools.islice(loader, stop)])
        last = loader.state_dict()
    return [list(itertools.chain.from_iterable(one)) for one in zip(*found, strict=True)], last


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pairs", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)], ids=["few", "many"])
@pytest.mark.parametrize(("kind", "given"), BY_LANES, ids=[f"{kind}-{'-'.join(given)}" for kind, given in BY_LANES])
def test_global_batches_are_the_same_on_any_ranks_and_workers(
    kind: str, given: dict[str, Any], pairs: list[tuple[int, int]], folder: Path
) -> None:
    """Fresh, and resumed by the state of any rank; without lanes= where nothing is gained by blocks of one's own."""
    data = data_of(kind, folder)
    whole, _ = joined(data, 1, 0, 12, **given)
    assert sorted(samples(whole)) == sorted(data[number] for number in range(len(data)))
    first, state = joined(data, 2, 3 if pairs is MANY else 0, 12, stop=3, **given)
    assert first == whole[:3]
    for ranks, workers in pairs:
        *full, last = whole
        last = last[: len(last) // ranks * ranks]
        expected = [*full, last] if last else full
        assert joined(data, ranks, workers, 12, **given)[0] == expected
        assert joined(data, ranks, workers, 12, state, **given)[0] == expected[3:]


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
@pytest.mark.parametrize("reader", [NUMBERS, ByRuns(NUMBERS.counts)], ids=["files", "runs"])
def test_any_chain_of_jobs_reads_each_sample_once(reader: Numbers, shuffle: dict[str, Any]) -> None:
    """With other ranks, batch sizes and grids each time, from the state of any one rank."""
    source = random.Random(str(shuffle))
    assert sorted(ShardedDataset(reader, **shuffle)) == reader.everything
    for _ in range(12):
        chain_of_jobs(source, lambda: ShardedDataset(reader, **shuffle), reader.everything)


@pytest.mark.nightly
@pytest.mark.soak
def test_any_chain_of_jobs_reads_each_sample_of_a_mixture_once() -> None:
    """With other weights each time, too."""
    source = random.Random(f"mixture {soak.seed(4)}")

    def made() -> Mixture:
        shards = ShardedDataset(NUMBERS, seed=5, buffer_size=10, block_size=4)
        weights = {"shards": source.randrange(1, 9), "numbers": source.randrange(1, 9)}
        return Mixture({"shards": shards, "numbers": range(100_000, 100_040)}, weights, seed=3, ending="leave")

    everything = [*NUMBERS.everything, *range(100_000, 100_040)]
    chains = soak.rounds(100)
    for _ in range(chains):
        chain_of_jobs(source, made, everything)
    soak.count("jobs of mixtures stopped and resumed", chains)


def chain_of_jobs(source: random.Random, made: Callable[[], Any], everything: list[int]) -> None:
    """Run up to five jobs, each from the state of a rank of the one before; fail if a sample is lost or comes twice."""
    seen: list[int] = []
    state: Any = None
    for job in range(5):
        ranks, size = source.randrange(1, 4), source.randrange(1, 6)
        lanes = source.choice([None, (2, 2)]) if not state else None
        uneven: Any = "repeat" if job == 4 else "drop"
        data = made()
        loaders = [Loader(data, size, rank=rank, ranks=ranks, uneven=uneven, lanes=lanes) for rank in range(ranks)]
        stop = source.randrange(1, 6) if job < 4 else None
        for loader in loaders:
            if state:
                loader.load_state_dict(state)
            loader.set_epoch(0)
            seen += samples(itertools.islice(loader, stop))
        state = saved(source.choice(loaders))
        if state["epoch"]:
            break
    dropped = len(everything) - len(set(seen))
    assert dropped < 4 if job < 4 else not dropped
    assert job == 4 or len(seen) == len(set(seen))


def test_ranks_have_equal_parts() -> None:
    def parts(uneven: Any, ranks: int, size: int = 4) -> list[int]:
        data = ShardedDataset(Numbers([61]))
        loaders = [Loader(data, size, rank=rank, ranks=ranks, uneven=uneven) for rank in range(ranks)]
        found = [samples(loader) for loader in loaders]
        assert len({len(loader) for loader in loaders}) == 1
        return list(map(len, found))

    assert parts("drop", 4) == [15] * 4
    assert parts("repeat", 4) == [16] * 4
    assert sorted(parts("keep", 4)) == [15, 15, 15, 16]
    assert parts("drop", 20) == [3] * 20  # the last batch has one sample, and no step
    with pytest.raises(ValueError, match="the last batch of the epoch has 1 samples for 20 ranks"):
        parts("keep", 20, 3)


def test_epochs_of_a_loader() -> None:
    loader = Loader(ShardedDataset(NUMBERS, seed=1, buffer_size=20), 7)
    epochs = [samples(loader) for _ in range(3)]
    assert [sorted(one) == NUMBERS.everything for one in epochs] == [True] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    loader.set_epoch(1)
    assert samples(loader) == epochs[1]
    loader.set_epoch(1)
    assert samples(loader) == epochs[1]
    next(iter(loader))
    assert loader.epoch == 2
    ended = Loader(ShardedDataset(NUMBERS, seed=1, buffer_size=20), 7)
    loader.set_epoch(0)
    samples(loader)
    for epoch, expected in ((0, []), (1, epochs[1]), (2, epochs[2])):  # whichever epoch the loop takes for the next
        ended.load_state_dict(saved(loader))
        ended.set_epoch(epoch)
        assert samples(ended) == expected
    with pytest.raises(ValueError, match="negative"):
        loader.set_epoch(-1)


def test_an_iteration_is_an_epoch_of_one_process() -> None:
    data = ShardedDataset(NUMBERS, seed=1, buffer_size=20)
    first, second = list(data), list(data)
    assert first != second
    assert sorted(first) == sorted(second) == NUMBERS.everything
    data.set_epoch(0)
    assert list(data) == first
    assert [data[number] for number in range(len(data))] == NUMBERS.everything
    assert data[-1] == NUMBERS.everything[-1]
    assert sorted(samples(DataLoader(data, 5, shuffle=True))) == NUMBERS.everything
    with pytest.raises(IndexError):
        data[len(data)]


# ---- loaders of others


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["recordio", "files", "map"])
def test_any_dataloader_takes_the_batches(kind: str, workers: int, folder: Path) -> None:
    def made() -> tuple[EpochBatches, Any]:
        data = data_of(kind, folder)
        batches = EpochBatches(data, 5, seed=3 if kind != "recordio" else None, workers=workers)
        return batches, DataLoader(data, batch_sampler=batches, **forked(workers))

    batches, loader = made()
    assert len(loader) == 19
    epochs = [samples(loader) for _ in range(2)]
    assert [sorted(one) for one in epochs] == [list(range(TOTAL))] * 2
    assert epochs[0] != epochs[1]
    with pytest.raises(RuntimeError, match="how many batches were used is not known"):
        batches.state_dict()
    batches, loader = made()
    first = samples(itertools.islice(loader, 4))
    state = batches.state_dict(4)
    resumed, loader = made()
    resumed.load_state_dict(state)
    assert first + samples(loader) == epochs[0]
    ours = Loader(data_of(kind, folder), 9, seed=3 if kind != "recordio" else None)
    ours.load_state_dict(state)
    assert sorted(first + samples(ours)) == list(range(TOTAL))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_by_its_own_state(workers: int, folder: Path) -> None:
    def made() -> Any:
        data = data_of("recordio", folder)
        return StatefulDataLoader(data, batch_sampler=EpochBatches(data, 5, workers=workers), **forked(workers))

    loader = made()
    epochs = [samples(loader) for _ in range(2)]
    for stop in (1, 7, 18):
        stopped, resumed = made(), made()
        first = samples(itertools.islice(stopped, stop))
        resumed.load_state_dict(stopped.state_dict())
        assert first + samples(resumed) == epochs[0]
        assert samples(resumed) == epochs[1]


def test_what_can_not_be_counted_is_refused(folder: Path) -> None:
    data = data_of("recordio", folder)
    with pytest.raises(TypeError, match="map-style data set"):
        EpochBatches(SequentialSampler(range(5)))
    sharded_again: Any = list(EpochBatches(data, 5))[::2]  # as accelerate has it
    with pytest.raises(RuntimeError, match="sharded or skipped once more"):
        list(DataLoader(data, batch_sampler=sharded_again))
    wrong: list[dict[str, Any]] = [{"rank": 1}, {"rank": 2, "ranks": 2}, {"uneven": "odd"}, {"lanes": (0, 1)}]
    for options in wrong:
        with pytest.raises(ValueError):
            EpochBatches(data, **options)


# ---- states


def test_a_state_is_small_and_names_other_content() -> None:
    data = ShardedDataset(Numbers([10**6] * 1000), seed=1, buffer_size=1000)
    loader = Loader(data, 256, lanes=(8, 12))
    next(iter(loader))
    state = json.dumps(loader.state_dict(), separators=(",", ":"))
    assert len(state) <= 300
    changed = Loader(data, 100)
    changed.load_state_dict(json.loads(state))
    next(iter(changed))
    assert len(json.dumps(changed.state_dict(), separators=(",", ":"))) - len(state) <= 40
    own = Loader(ShardedDataset(Numbers([3, 4]), seed=1))
    states = {
        "another seed": Loader(ShardedDataset(Numbers([3, 4]), seed=2)).state_dict(),
        "other shards": Loader(ShardedDataset(Numbers([3, 5]), seed=1)).state_dict(),
        "a mixture": Loader(Mixture({"a": [1, 2]})).state_dict(),
        "format 2": {"format": 2, "epoch": 0},
        "not a state": {"rank": 0},
    }
    for reason, one in states.items():
        with pytest.raises(ValueError, match=reason):
            own.load_state_dict(one)
    added = Loader(ShardedDataset(Numbers([3, 4, 5]), seed=1), 2)
    first = samples(itertools.islice(own, 2))
    added.load_state_dict(own.state_dict())
    assert sorted(first + samples(added)) == Numbers([3, 4]).everything  # of the shards that there were
    assert sorted(samples(added)) == Numbers([3, 4, 5]).everything


# ---- what fails


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("map_style", [False, True])
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_an_error_is_that_of_a_batch_which_is_still_to_come(workers: int, map_style: bool, error: Any) -> None:
    def transform(number: int) -> int:
        if number == 13:
            raise error(number)
        return number

    class Shaky(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return transform(super().__getitem__(index))

    def made(shaky: bool) -> Loader:
        data: Any = Shaky(range(50)) if shaky else list(range(50))
        if not map_style:
            data = ShardedDataset(Numbers([50]), transform if shaky else None)
        return Loader(data, 5, **forked(workers))

    loader = made(True)
    batches, seen, failures = iter(loader), [], 0
    while True:
        try:
            seen += next(batches).tolist()
        except StopIteration:
            break
        except (ValueError, RuntimeError):
            failures += 1
    assert (failures, sorted(seen)) == (1, [*range(10), *range(15, 50)])
    resumed = made(False)
    resumed.load_state_dict(saved(loader))
    assert (sorted(samples(resumed)), resumed.epoch) == (list(range(10, 15)), 0)
    assert sorted(samples(resumed)) == list(range(50))


def test_readers_that_lose_records_are_found_out() -> None:
    class Short(Numbers):
        def read_records(self, task: Task) -> Iterator[int]:
            yield from range(task.start, min(task.end, 8))

    for shuffle in SHUFFLES[:4]:
        with pytest.raises(CorruptFileError, match=r"before record 8") as caught:
            list(ShardedDataset(Short([12]), **shuffle))
        assert caught.value.filename == "s0"


def test_an_iteration_that_is_left_ends_its_thread() -> None:
    dataset = ShardedDataset(Numbers([5000]), max_bytes=1000)
    before = threads()
    iteration = iter(dataset)
    assert [next(iteration) for _ in range(3)] == [0, 1, 2]
    del iteration
    wait_for(lambda: threads() <= before)


# ---- packed windows


def packed(**options: Any) -> ShardedDataset:
    packing = Packing(lambda number: [number] * (1 + number % 4), 6, overlap=False)
    return ShardedDataset(NUMBERS, seed=2, buffer_size=9, packing=packing, **options)


def windows(batches: Any) -> list[list[int]]:
    return [window for batch in batches for window in batch["tokens"].tolist()]


def tokens_of_lanes(jobs: list[tuple[int, int, int]], lanes: int) -> dict[int, list[int]]:
    """Return the tokens of each lane, of jobs of so many ranks, workers and steps; each goes on from all states."""
    found: dict[int, list[int]] = {number: [] for number in range(lanes)}
    state: Any = None
    for ranks, workers, steps in jobs:
        states = []
        for rank in range(ranks):
            loader = Loader(packed(), 1, steps=1000, rank=rank, ranks=ranks, lanes=(lanes, 1), **forked(workers))
            if state:
                loader.load_state_dict(state)
            places = dict(saved(loader)["places"])
            for batch in itertools.islice(loader, steps):
                after = dict(saved(loader)["places"])
                (lane,) = (number for number, place in after.items() if place != places[number])
                found[lane] += batch["tokens"][0].tolist()
                places = after
            states.append(saved(loader))
        state = states
    return found


def test_packed_windows_go_on_where_any_rank_was() -> None:
    """Lanes never end: no token is lost, and the windows of each lane are those of a run without a stop."""
    whole = tokens_of_lanes([(1, 0, 80)], 4)
    parts = tokens_of_lanes([(2, 0, 10), (4, 0, 5), (1, 2, 8), (2, 1, 6)], 4)
    for number, tokens in parts.items():
        assert tokens == whole[number][: len(tokens)]
    assert min(map(len, parts.values())) >= 7 * 10
    with pytest.raises(ValueError, match="can't be divided"):
        next(iter(Loader(packed(), 1, steps=9, rank=0, ranks=3, lanes=(4, 1))))
    alone = saved(Loader(packed(), 1, steps=9, rank=0, ranks=2, lanes=(4, 1)))
    with pytest.raises(ValueError, match="the states of all ranks"):
        Loader(packed(), 1, steps=9, rank=0, ranks=1).load_state_dict(alone)


@pytest.mark.nightly
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_any_chain_of_jobs_packs_each_token_once() -> None:
    """From the states of all ranks, with numbers of ranks and workers that divide the lanes."""
    source = random.Random(f"packed {soak.seed(4)}")
    whole = tokens_of_lanes([(1, 0, 400)], 12)
    numbers = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 2), (3, 0), (3, 1), (4, 0), (6, 0), (12, 0)]
    chains = soak.rounds(100)
    for _ in range(chains):
        chosen = [source.choice(numbers) for _ in range(source.randrange(2, 5))]
        jobs = [(*one, source.randrange(1, 8)) for one in chosen]
        for number, tokens in tokens_of_lanes(jobs, 12).items():
            assert tokens == whole[number][: len(tokens)], jobs
    soak.count("jobs of packed windows stopped and resumed", chains)


def test_epochs_of_packed_windows_are_steps() -> None:
    loader = Loader(packed(), 2, steps=5)
    assert (len(loader), [len(list(loader)) for _ in range(3)], loader.epoch) == (5, [5] * 3, 2)
    list(itertools.islice(loader, 2))
    resumed = Loader(packed(), 2, steps=5)
    resumed.load_state_dict(saved(loader))
    assert (resumed.epoch, resumed.batches_left, len(list(resumed))) == (3, 3, 3)
    tokens = [number for window in packed() for number in window["tokens"][window["segments"] >= 0].tolist()]
    assert sorted(tokens) == sorted(number for number in NUMBERS.everything for _ in range(1 + number % 4))
    with pytest.raises(ValueError, match="steps="):
        Loader(packed(), 2)


def test_a_window_that_fails_is_not_lost() -> None:
    failing = [True]

    def collate(found: list[Any]) -> Any:
        if failing and len(seen) == 2:
            failing.pop()
            raise ValueError("once")
        return found

    seen: list[Any] = []
    batches = iter(Loader(packed(), 1, steps=9, collate_fn=collate))
    while True:
        try:
            seen.append(next(batches)[0]["tokens"].tolist())
        except ValueError:
            continue
        except StopIteration:
            break
    whole = [batch[0]["tokens"].tolist() for batch in Loader(packed(), 1, steps=8, collate_fn=list)]
    assert seen == whole


def test_packed_sources_are_mixed_by_windows() -> None:
    def made() -> Loader:
        packing = Packing(lambda number: [number] * (20 if number < 1000 else 2), 9, overlap=False)
        sources = {"long": ShardedDataset(Numbers([50]), seed=1), "short": ShardedDataset(ByRuns([0, 90]), seed=2)}
        return Loader(Mixture(sources, {"long": 0.7, "short": 0.3}, packing=packing, ending="repeat"), 4, steps=100)

    loader = made()
    batches = iter(loader)
    first = windows(next(batches) for _ in range(40))
    state = saved(loader)
    rest = windows(batches)
    share = sum(window[0] < 1000 for window in first + rest) / 400
    assert abs(share - 0.7) < 0.02
    resumed = made()
    resumed.load_state_dict(state)
    assert windows(resumed) == rest


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


def test_numbers_of_numpy_are_plain_ones_in_a_state(tmp_path: Path) -> None:
    """Of a configuration, or of an array of epochs: torch.load and JSON refuse them."""
    import numpy as np

    def made(number: Any) -> list[Loader]:
        datasets = [
            ShardedDataset(NUMBERS, seed=number(7), buffer_size=number(5), block_size=number(2)),
            Mixture({"a": range(9), "b": range(5)}, seed=number(7), ending="repeat", length=number(20)),
        ]
        loaders = [Loader(one, batch_size=number(2), rank=number(0), ranks=number(2)) for one in datasets]
        loaders.append(Loader(range(9), batch_size=number(2), seed=number(7)))
        for loader in loaders:
            loader.set_epoch(number(2))
            next(iter(loader))
        return [*loaders, Loader(packed(), batch_size=number(2), steps=number(4))]

    for plain, other in zip(made(int), made(np.int64), strict=True):
        state = other.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == json.loads(json.dumps(state)) == plain.state_dict()


def test_without_torch_readers_work_and_the_rest_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import fsabs.readers.data, fsabs.adapters, fsabs.adapters.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "MissingDependencyError: fsabs.adapters.torch needs torch: pip install 'fsabs[torch]'" in done.stderr
