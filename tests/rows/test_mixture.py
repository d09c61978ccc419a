"""Mixtures: shares by weights, each sample once an epoch of its source, whatever changes; and the ledger."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import EpochBatches, FileDataset, Loader, Mixture, Packing, ShardedDataset, TokenDataset
from fsabs.readers.data.mixing import Mixing, schedule_of
from fsabs.readers.data.order import union
from fsabs.readers.recordio import RecordWriter

pytestmark = [pytest.mark.quick, pytest.mark.timeout(120)]

SIZES = {"a": [40, 30, 31], "b": [17, 20], "c": [5, 0, 7]}
TOTALS = {name: sum(sizes) for name, sizes in SIZES.items()}
FIRST = {"a": 0.6, "b": 0.3, "c": 0.1}
SECOND = {"a": 0.2, "b": 0.5, "c": 0.3}
SCHEDULE = [(0, FIRST), (30, SECOND)]


def write(store: fsabs.FS, name: str, sizes: list[int], first: int = 0) -> None:
    """Write shards whose records are called by their source and number: `a17`."""
    store.makedirs(name, exist_ok=True)
    numbers = itertools.count(first)
    begun = len(list(store.list(name)))
    for shard, size in enumerate(sizes, begun):
        with RecordWriter(store, f"{name}/{shard}.recordio", max_chunk_bytes=64) as file:
            for _ in range(size):
                file.write(f"{name}{next(numbers)}".encode())


@pytest.fixture(scope="module")
def store() -> fsabs.FS:
    """Three sources of 101, 37 and 12 records."""
    found = fsabs.Memory()
    for name, sizes in SIZES.items():
        write(found, name, sizes)
    return found


def source(store: fsabs.FS, name: str, **options: Any) -> ShardedDataset:
    return ShardedDataset(store.subfs(name), bytes.decode, seed=3, buffer_size=7, block_size=4, **options)


def mixture(store: fsabs.FS, weights: Any = None, ending: Any = "leave", **options: Any) -> Mixture:
    sources = {name: source(store, name) for name in SIZES}
    return Mixture(sources, FIRST if weights is None else weights, seed=1, ending=ending, **options)


def shares(samples: list[str]) -> dict[str, int]:
    return dict(Counter(sample[0] for sample in samples))


# ---- the sequence


NAMES = ["a", "b", "c", "d"]
SHARES = st.sampled_from([0.0, 0.01, 0.1, 1.0, 2.0, 5.5])


@st.composite
def weights_of(draw: st.DrawFn, names: list[str], least: float = 0.0) -> Any:
    """Weights of sources, or a schedule of them."""
    one = st.fixed_dictionaries({name: SHARES.filter(lambda share: share >= least) for name in names})
    steps = draw(st.lists(st.integers(1, 200), max_size=2, unique=True).map(sorted))
    schedule = [(step, draw(one.filter(lambda weights: sum(weights.values()) > 0))) for step in [0, *steps]]
    return schedule if steps else schedule[0][1]


@given(st.data(), st.sampled_from(["stop", "repeat", "leave"]), st.integers(0, 9))
@settings(max_examples=100)
def test_the_sequence_is_arithmetic(data: st.DataObject, ending: Any, seed: int) -> None:
    names = data.draw(st.integers(1, 4).map(lambda count: NAMES[:count]))
    weights = data.draw(weights_of(names, least=0.01))
    sizes = [data.draw(st.integers(1, 400)) for _ in names]
    mixing = Mixing(schedule_of(weights, names), seed, sizes, ending)
    sources: list[int] = []
    counts = [0] * len(names)
    for some, numbers in mixing.steps(0, mixing.total):
        for one, number in zip(some.tolist(), numbers.tolist(), strict=True):
            assert number == counts[one]
            counts[one] += 1
            sources.append(one)
    assert mixing.counts(mixing.total).tolist() == counts
    begin, end = sorted(data.draw(st.lists(st.integers(0, mixing.total), min_size=2, max_size=2)))
    assert mixing.counts(begin).tolist() == np.bincount(sources[:begin], minlength=len(names)).tolist()
    assert [one for some, _ in mixing.steps(begin, end) for one in some.tolist()] == sources[begin:end]
    if ending == "stop":
        assert all(count <= size for count, size in zip(counts, sizes, strict=True))
        assert any(mixing.counts(mixing.total + 1) > sizes)
    elif ending == "leave":
        assert counts == sizes
    else:
        assert all(count >= size for count, size in zip(counts, sizes, strict=True))
        assert any(mixing.counts(mixing.total - 1) < sizes)


def test_each_source_has_its_share_at_the_end_of_each_block() -> None:
    rng = random.Random(5)
    weights = {str(number): rng.random() ** 3 + 1e-3 for number in range(20)}
    total = sum(weights.values())
    mixing = Mixing(schedule_of(weights, list(weights)), 0, [10**12] * 20, "repeat", 10**12)
    block = 1 << 17  # the largest that there are
    for number in [*range(1, 50), 1000]:
        ideal = np.array([weight / total for weight in weights.values()]) * number * block
        assert np.abs(mixing.counts(number * block) - ideal).max() <= 1


def test_large_mixtures_are_planned_at_once() -> None:
    names = [str(number) for number in range(1000)]
    weights = {name: 1 + int(name) % 7 for name in names}
    mixing = Mixing(schedule_of(weights, names), 0, [10**12] * 1000, "repeat")
    assert mixing.total > 10**15  # hours, if it grew with the samples
    sources, _ = next(mixing.steps(mixing.total - 5, mixing.total))
    assert len(sources) == 5


# ---- samples


def test_endings(store: fsabs.FS) -> None:
    data = mixture(store)
    first, second = list(data), list(data)
    assert shares(first) == TOTALS
    assert len(set(first)) == len(data) == 150
    assert sorted(first) == sorted(second) != first != second
    stopped = list(mixture(store, ending="stop"))
    assert shares(stopped)["a"] == 68
    assert len(set(stopped)) == len(stopped)
    repeating = mixture(store, ending="repeat")
    seen = [sample for _ in range(4) for sample in repeating]
    assert shares(seen)["a"] == 4 * 101
    for name, total in TOTALS.items():
        stream = [sample for sample in seen if sample[0] == name]
        for start in range(0, len(stream) - total + 1, total):
            assert len(set(stream[start : start + total])) == total  # whole epochs of the source, one after the other
    assert len(list(mixture(store, ending="repeat", length=500))) == 500
    assert shares(list(mixture(store, {"a": 0, "b": 1, "c": 1}, "stop"))).keys() == {"b", "c"}


def parts_of(store: fsabs.FS, weights: Any, ranks: int) -> list[list[str]]:
    """Return what each rank reads of an epoch."""
    loaders = [Loader(mixture(store, weights), 1, rank=rank, ranks=ranks) for rank in range(ranks)]
    return [[sample for batch in loader for sample in batch] for loader in loaders]


def test_a_schedule_holds_from_its_steps_on_for_all_ranks(store: fsabs.FS) -> None:
    schedule = [(0, {"a": 1.0, "b": 0, "c": 0}), (40, {"a": 0, "b": 1.0, "c": 0}), (60, FIRST)]
    for ranks in (1, 2, 3):
        first, second = [], []
        for samples in parts_of(store, schedule, ranks):
            cuts = [number for number, sample in enumerate(samples) if sample[0] == "b"]
            first.append(samples[: cuts[0]])
            second += [sample for sample in samples[cuts[0] :] if sample[0] == "b"][: -(-20 // ranks)]
            assert abs(cuts[0] - 40 / ranks) < 1
        assert {sample[0] for part in first for sample in part} == {"a"}
        assert sum(map(len, first)) == 40
        assert len(set(second)) == len(second)


def test_a_schedule_goes_on_where_its_sources_have_no_more(store: fsabs.FS) -> None:
    schedule = [(0, {"a": 0, "b": 1.0, "c": 0}), (60, {"a": 0, "b": 0, "c": 1.0}), (90, FIRST)]  # b has 37, c has 12
    everything = sorted(f"{name}{number}" for name, total in TOTALS.items() for number in range(total))
    for ranks in (1, 2, 3):
        parts = parts_of(store, schedule, ranks)
        assert sorted(sample for part in parts for sample in part) == everything
        for part in parts:
            assert [name for name, _ in itertools.groupby(part, lambda sample: sample[0])] == ["b", "c", "a"]
    for stop in (0, 35, 60, 90, 135, 150):
        seen, states = one_job(store, schedule, "leave", 1, 1, None, stop)
        for ranks, weights in ((2, schedule), (1, SECOND)):
            rest, _ = one_job(store, weights, "leave", ranks, 2, states, None)
            assert sorted(sample for epoch, sample in seen + rest if not epoch) == everything


def test_mixtures_and_map_style_data_sets_in_mixtures(store: fsabs.FS) -> None:
    files = fsabs.Memory()
    for number in range(23):
        files.write_bytes(f"{number:02}", f"f{number}".encode())
    inner = mixture(store, ending="stop")
    mapped = FileDataset(files, transform=bytes.decode)

    def data() -> Mixture:
        numbers = [f"l{number}" for number in range(9)]
        return Mixture({"in": mixture(store, ending="stop"), "files": mapped, "list": numbers}, ending="leave")

    seen = list(data())
    assert len(seen) == len(set(seen)) == len(list(inner)) + 23 + 9
    loader = Loader(data(), 4)
    batches = iter(loader)
    begun = [sample for _ in range(9) for sample in next(batches)]
    again = Loader(data(), 4)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert begun + [sample for batch in again for sample in batch] == seen
    assert {place.source for place in again.samples(12)[0]} <= {"in/a", "in/b", "in/c", "files", "list"}


def test_tokens_are_mixed(tmp_path: Path) -> None:
    for name, size in (("x", 1000), ("y", 517)):
        (np.arange(size) + 10_000 * (name == "y")).astype(np.uint16).tofile(tmp_path / f"{name}.bin")
    sources = {
        name: TokenDataset(tmp_path / f"{name}.bin", 8, layout="documents", dtype="uint16", seed=2) for name in "xy"
    }
    data = Mixture(sources, {"x": 2, "y": 1}, ending="leave")
    loaders = [Loader(data, 1, rank=rank, ranks=4, uneven="repeat") for rank in range(4)]
    parts = [[batch["tokens"][batch["mask"]].tolist() for batch in loader] for loader in loaders]
    windows = {tuple(window) for part in parts for window in part}
    assert sorted(token for window in windows for token in window) == [*range(1000), *range(10_000, 10_517)]
    assert {len(part) for part in parts} == {-(-len(windows) // 4)}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_source_skips_no_more_than_it_may(tmp_path: Path, workers: int) -> None:
    damaged = fsabs.Local(str(tmp_path))
    write(damaged, "a", [20])
    write(damaged, "b", [10])
    content = bytearray(damaged.read_bytes("b/0.recordio"))
    content[-1] ^= 1
    damaged.write_bytes("b/0.recordio", content)

    def loader(most: int | None) -> Loader:
        sources = {
            "a": ShardedDataset(damaged.subfs("a"), bytes.decode),
            "b": ShardedDataset(damaged.subfs("b"), bytes.decode, on_error="skip", max_skipped=most),
        }
        return Loader(Mixture(sources, ending="leave"), 2, num_workers=workers)

    every = loader(None)
    kept = sorted(sample for batch in every for sample in batch)
    lost = every.skipped
    assert lost == 30 - len(kept) > 0
    allowed = loader(lost)
    for _ in range(2):  # each pass may skip as many
        assert sorted(sample for batch in allowed for sample in batch) == kept
    if not workers:  # each worker counts what it skips of a source
        with pytest.raises(CorruptFileError, match="max_skipped"):
            list(loader(lost - 1))


# ---- killed, and continued by other jobs


def one_job(
    store: fsabs.FS, weights: Any, ending: Any, ranks: int, batch_size: int, state: Any, steps: int | None
) -> tuple[list[tuple[int, str]], Any]:
    """Run all ranks of a job for some steps, or to the end of the epoch; return what they read, and a rank's state."""
    seen, after = [], None
    for rank in range(ranks):
        loader = Loader(mixture(store, weights, ending), batch_size, rank=rank, ranks=ranks, uneven="keep")
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        for batch in itertools.islice(batches, steps):
            seen += [(loader.epoch, sample) for sample in batch]
        after = json.loads(json.dumps(loader.state_dict()))
    return seen, after


Job = tuple[int, int, float, set[int]]
"""Ranks, batch size, how much of the epoch is read, and which of its batches fail."""
JOBS = st.tuples(st.integers(1, 16), st.integers(1, 5), st.floats(0, 0.7), st.sets(st.integers(0, 12), max_size=3))


def used_by(job: Job, data: Mixture, state: Any) -> tuple[list[tuple[int, int, int]], Any]:
    """Return the sources, their epochs and the positions of what all ranks use, and the state of the last rank."""
    ranks, size, share, failing = job
    batches = EpochBatches(data, size, rank=ranks - 1, ranks=ranks)
    batches.counts = True
    if state is not None:
        batches.load_state_dict(state)
    plan = batches.begin()
    if share < 1 and len(plan) < 2:
        return [], state  # of an epoch with nothing for so many ranks
    order = data.order(plan.epoch, plan.base)
    steps = len(plan) if share == 1 else int(share * (len(plan) - 1))  # the ranks may not divide the last batch
    done = [number for number in range(steps) if number not in failing]
    for number in done:
        batches.used(plan, number)
    positions = union(plan.plan.batch(plan.step(number)) for number in done)
    seen = [(source, epoch, start) for source, epoch, (start, _) in order.samples(positions)]
    return seen, json.loads(json.dumps(batches.state_dict()))


@given(st.data(), st.sampled_from(["leave", "stop", "repeat"]), st.lists(JOBS, max_size=5))
@settings(max_examples=60)
def test_no_sample_is_lost_or_repeated_by_other_ranks_batches_and_weights(
    data: st.DataObject, ending: Any, jobs: list[Job]
) -> None:
    """The weights change in the middle of an epoch, with ranks and batch sizes, by the state of one rank."""
    names = data.draw(st.integers(1, 4).map(lambda count: NAMES[:count]))
    sizes = [data.draw(st.integers(1, 25)) for _ in names]

    def mixed() -> Mixture:
        sources = {name: range(size) for name, size in zip(names, sizes, strict=True)}
        return Mixture(sources, data.draw(weights_of(names, least=1.0)), seed=1, ending=ending)

    state, seen = None, list[tuple[int, int, int]]()
    for job in jobs:
        found, state = used_by(job, mixed(), state)
        seen += found
    last = mixed()
    for size in range(1, 4 if ending == "repeat" else 2):  # the rest of the epoch, and others
        found, state = used_by((1, size, 1.0, set()), last, state)
        seen += found
    assert len(set(seen)) == len(seen)
    counts = Counter((source, epoch) for source, epoch, _ in seen)
    if ending == "leave":
        assert counts == {(source, 0): size for source, size in enumerate(sizes)}
    if ending == "repeat":  # a source's epochs are read one after the other, each whole
        last_epochs = [max(epoch for one, epoch in counts if one == source) for source in range(len(sizes))]
        assert all(counts[source, epoch] == sizes[source] for source, epoch in counts if epoch < last_epochs[source])


@pytest.mark.parametrize("ending", ["leave", "repeat"])
def test_weights_may_change_twice_before_a_step(store: fsabs.FS, ending: Any) -> None:
    seen, state = one_job(store, FIRST, ending, 1, 5, None, 10)
    _, state = one_job(store, SECOND, ending, 1, 5, state, 0)
    rest, _ = one_job(store, SCHEDULE, ending, 1, 5, state, None)
    counts = Counter(sample for _, sample in seen + rest)
    for name, total in TOTALS.items():
        times = {counts[f"{name}{number}"] for number in range(total)}
        assert times == {1} if ending == "leave" else max(times) - min(times) <= 1


def test_states_of_other_sources_are_refused(store: fsabs.FS) -> None:
    state = Loader(mixture(store)).state_dict()
    changed = fsabs.Memory()
    for name, sizes in SIZES.items():
        write(changed, name, [6, 0, 6] if name == "c" else sizes)
    with pytest.raises(ValueError, match="source 'c'"):
        Loader(mixture(changed)).load_state_dict(state)
    with pytest.raises(ValueError, match="another seed, ending"):
        Loader(mixture(store, ending="stop")).load_state_dict(state)
    for names in ("ab", "bac"):  # in another order, too: sources may be alike
        other = Mixture({name: source(store, name) for name in names}, seed=1, ending="leave")
        with pytest.raises(ValueError, match="the state is of the sources a, b, c, in this order"):
            Loader(other).load_state_dict(state)
    with pytest.raises(ValueError, match="not that of a mixture"):
        Loader(mixture(store)).load_state_dict(Loader(source(store, "a")).state_dict())


def test_other_weights_of_a_mixture_in_a_mixture_are_refused(store: fsabs.FS) -> None:
    def outer(weights: Any) -> Mixture:
        return Mixture({"in": mixture(store, weights), "list": [f"l{number}" for number in range(50)]}, ending="leave")

    begun = Loader(outer(FIRST), 4)
    seen = [sample for batch in itertools.islice(begun, 10) for sample in batch]
    for weights in (SECOND, SCHEDULE):
        with pytest.raises(ValueError, match="settings of the source 'in'"):
            Loader(outer(weights)).load_state_dict(begun.state_dict())
    again = Loader(outer(FIRST), 4)
    again.load_state_dict(begun.state_dict())
    assert len({*seen, *(sample for batch in again for sample in batch)}) == 200


def test_arguments_that_do_not_fit(store: fsabs.FS) -> None:
    sources = {name: source(store, name) for name in SIZES}
    for weights, match in (
        ({"a": 1}, "weights are given for"),
        ({"a": -1, "b": 1, "c": 1}, "not negative"),
        ({"a": 0, "b": 0, "c": 0}, "not all 0"),
        ({"a": 1, "b": 1, "c": 1e-9}, "1/65,536"),
        ([(5, FIRST)], "from step 0"),
        ([(0, FIRST), (0, FIRST)], "ascending"),
    ):
        with pytest.raises(ValueError, match=match):
            Mixture(sources, weights)
    for packing in (Packing(list, 0), Packing(list, 8, batch_size=0)):
        with pytest.raises(ValueError, match="at least 1"):
            Mixture(sources, packing=packing)
    with pytest.raises(ValueError, match="ending"):
        Mixture(sources, ending="end")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length is"):
        Mixture(sources, length=5)
    with pytest.raises(ValueError, match="needs a source"):
        Mixture({})
    listed: Any = [[1, 2], [3]]
    with pytest.raises(TypeError, match="by name"):
        Mixture(listed)
    unnamed: Any
    for unnamed in ([0.7, 0.3], 0.5, [(0, 0.7), (9, 0.3)]):
        with pytest.raises(TypeError, match=r"numbers by name, or a list of \(step, weights\)"):
            Mixture({"a": [1, 2], "b": [3]}, unnamed)
    with pytest.raises(TypeError, match="some sources pack windows"):
        Mixture({"a": TokenDataset(store.subfs("a"), 8, tokenize=list), "b": ["x"]})
    with pytest.raises(ValueError, match="'b' has no samples"):
        Mixture({"a": ["x"], "b": []}, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="'b' has no samples"):
        Mixture({"a": ["x"], "b": []}, [(0, {"a": 1, "b": 1}), (5, {"a": 1, "b": 0})], ending="repeat")


# ---- a state that stays small


def test_a_state_is_below_a_kilobyte(tmp_path: Path) -> None:
    sources = {}
    for number in range(16):
        with (tmp_path / f"{number:02}.bin").open("wb") as out:
            out.truncate(16 * 10**6 + 2 * number)
        sources[f"source-{number}"] = TokenDataset(tmp_path / f"{number:02}.bin", 4, dtype="uint16", seed=number)

    def loader(weights: Any, rank: int = 0, ranks: int = 2) -> Loader:
        return Loader(Mixture(sources, weights, ending="repeat"), 8, rank=rank, ranks=ranks, num_workers=2)

    weights = {name: 1.0 / (1 + number) for number, name in enumerate(sources)}
    begun = loader(weights)
    batches = iter(begun)
    next(batches)
    state = begun.state_dict()
    del batches
    assert len(json.dumps(state)) <= 1024
    other = loader(weights, 1, 3)
    other.load_state_dict(state)
    assert len(json.dumps(other.state_dict())) <= 1024


@pytest.mark.parametrize("ending", ["leave", "repeat"])
def test_weights_that_change_again_and_again_leave_a_small_state(store: fsabs.FS, ending: Any) -> None:
    state: Any = None
    seen: list[str] = []
    for number in range(60):
        read, state = one_job(store, (FIRST, SECOND)[number % 2], ending, 1, 5, state, 10)
        seen += [sample for _, sample in read]
        assert len(json.dumps(state)) < 1500  # what was changed in an epoch is forgotten with it
    counts = Counter(seen)
    for name, total in TOTALS.items():
        times = {counts[f"{name}{number}"] for number in range(total)}
        assert max(times) - min(times) <= 1


# ---- documents of several sources, packed


def packed(store: fsabs.FS, weights: Any, **options: Any) -> Mixture:
    def tokenize(document: str) -> list[int]:
        number = int(document[1:]) + 1000 * "abc".index(document[0])
        return [number] * (1 + number % 23)

    return mixture(store, weights, packing=Packing(tokenize, 15, overlap=False), **options)


def test_documents_are_packed_by_source_and_mixed_by_windows(store: fsabs.FS) -> None:
    def loader(weights: Any) -> Loader:
        return Loader(packed(store, weights, ending="repeat"), 2, steps=200)

    def source_of(window: Any) -> str:
        names = {"abc"[int(token) // 1000] for token in window}
        assert len(names) == 1
        return names.pop()

    begun = loader({"a": 3, "b": 1, "c": 0})
    batches = iter(begun)
    first = [source_of(window) for _ in range(100) for window in next(batches)["tokens"].tolist()]
    assert abs(first.count("a") - 150) <= 8
    state = json.loads(json.dumps(begun.state_dict()))
    same, other = loader({"a": 3, "b": 1, "c": 0}), loader({"a": 1, "b": 3, "c": 0})
    same.load_state_dict(state)
    rest = [window for batch in batches for window in batch["tokens"].tolist()]
    assert [window for batch in same for window in batch["tokens"].tolist()] == rest
    other.load_state_dict(state)
    after = [source_of(window) for batch in other for window in batch["tokens"].tolist()]
    assert abs(after.count("b") - 150) <= 8
    packing = packed(store, FIRST).packing
    apart = Mixture({"x": source(store, "a")}, seed=1, ending="repeat", packing=packing)
    with pytest.raises(ValueError, match="sources a, b, c"):
        Loader(apart, steps=1).load_state_dict(state)


# ---- the ledger, and steps that are left out


def test_the_ledger_is_what_is_read(store: fsabs.FS) -> None:
    def loader(rank: int, ranks: int, workers: int) -> Loader:
        return Loader(mixture(store, SCHEDULE), 4, rank=rank, ranks=ranks, num_workers=workers)

    def name_of(place: Any) -> str:
        first = sum(SIZES[place.source][: int(place.shard.rsplit("/", 1)[-1].split(".")[0])])
        return f"{place.source}{first + place.record}"

    state: Any = None
    begun = 0
    for ranks, workers in ((1, 0), (2, 2), (2, 0)):
        read: list[dict[int, list[str]]] = [{}, {}, {}]
        for rank in range(ranks):
            reading = loader(rank, ranks, workers)
            if state is not None:
                reading.load_state_dict(state)
            for number, batch in enumerate(itertools.islice(iter(reading), 3)):
                read[number][rank] = list(batch)
        after = reading.state_dict()
        asked = loader(0, ranks, workers)
        asked.load_state_dict(after)
        for number, parts in enumerate(read):
            found = asked.samples(begun + number).items()
            assert {rank: [name_of(place) for place in places] for rank, places in found} == parts
        state, begun = after, begun + 3
    with pytest.raises(LookupError, match="step 1000"):
        asked.samples(1000)


def test_steps_are_left_out_and_states_stay_exact(store: fsabs.FS) -> None:
    skip: list[Any] = [2, range(5, 9), 20]
    left = {2, 5, 6, 7, 8, 20}

    def loader(workers: int) -> Loader:
        return Loader(mixture(store), 4, num_workers=workers, skip=skip)

    for stop, workers in ((2, 0), (4, 2), (10, 0)):
        whole = [list(batch) for batch in Loader(mixture(store), 4, num_workers=workers)]
        expected = [batch for step, batch in enumerate(whole) if step not in left]
        begun = loader(workers)
        seen = [list(batch) for batch in itertools.islice(iter(begun), stop)]
        assert (len(begun), begun.batches_left) == (len(expected), len(expected) - stop)
        again = loader(workers)
        again.load_state_dict(begun.state_dict())
        assert (len(again), again.batches_left) == (len(expected), len(expected) - stop)
        assert seen + [list(batch) for batch in again] == expected
    second = Loader(mixture(store), 4, skip={1: [0, range(3, -1, -1), range(100, sys.maxsize)]})
    assert len(second) == len(list(second)) == len(whole)
    second.set_epoch(1)
    assert len(second) == len(list(second)) == len(whole) - 4


def test_many_sources_need_no_thread_each() -> None:
    class Remote(fsabs.spi.LayerFS):
        """Files that are read ahead, since they are not known to be on this disk."""

    most = 0

    def counted(record: bytes) -> bytes:
        nonlocal most
        most = max(most, threading.active_count())
        return record

    inner = fsabs.Memory()
    before = threading.active_count()
    for number in range(100):
        write(inner, f"{number}", [3])
    sources = {
        f"{number}": ShardedDataset(Remote(inner).subfs(f"{number}"), counted, seed=number, max_bytes=1000)
        for number in range(100)
    }
    assert len(set(Mixture(sources, ending="leave"))) == 300
    assert most - before < 20
