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
from torch.utils.data import DataLoader

import fsabs
from fsabs import CorruptFileError
from fsabs.adapters.torch import FileDataset, Loader, Mixture, Packing, ShardedDataset, TokenDataset
from fsabs.readers.data.mixing import Mixing, schedule_of
from fsabs.readers.recordio import RecordWriter
from tests import soak

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


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["stop", "repeat", "leave"])
def test_the_sequence_is_arithmetic(ending: Any) -> None:
    rng, trials = random.Random(soak.seed(4)), soak.rounds(20)
    for trial in range(trials):
        names = [str(number) for number in range(rng.randint(1, 7))]
        weights: Any = {name: rng.choice([1, 2, 0.1, 5.5, 0.01]) for name in names}
        if rng.random() < 0.3:
            later = {name: rng.choice([0.0, 1, 3]) for name in names[:-1]} | {names[-1]: 1.0}
            weights = [(0, weights), (rng.randint(1, 300), later)]
        sizes = [rng.randint(1, 400) for _ in names]
        mixing = Mixing(schedule_of(weights, names), trial, sizes, ending)
        sources: list[int] = []
        counts = [0] * len(names)
        for some, numbers in mixing.steps(0, mixing.total):
            for one, number in zip(some.tolist(), numbers.tolist(), strict=True):
                assert number == counts[one]
                counts[one] += 1
                sources.append(one)
        assert mixing.counts(mixing.total).tolist() == counts
        step = rng.randint(0, mixing.total)
        assert mixing.counts(step).tolist() == np.bincount(sources[:step], minlength=len(names)).tolist()
        begin, end = sorted(rng.choices(range(mixing.total + 1), k=2))
        assert [one for some, _ in mixing.steps(begin, end) for one in some.tolist()] == sources[begin:end]
        if ending == "stop":
            assert all(count <= size for count, size in zip(counts, sizes, strict=True))
            assert any(mixing.counts(mixing.total + 1) > sizes)
        elif ending == "leave" and isinstance(weights, dict):
            assert counts == sizes
        elif isinstance(weights, dict):
            assert all(count >= size for count, size in zip(counts, sizes, strict=True))
            assert any(mixing.counts(mixing.total - 1) < sizes)
    soak.count("sequences of a mixture", trials)


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


def test_a_schedule_holds_from_its_steps_on_for_all_ranks(store: fsabs.FS) -> None:
    schedule = [(0, {"a": 1.0, "b": 0, "c": 0}), (40, {"a": 0, "b": 1.0, "c": 0}), (60, FIRST)]
    for ranks in (1, 2, 3):
        first, second = [], []
        for rank in range(ranks):
            samples = list(mixture(store, schedule, rank=rank, ranks=ranks))
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
        parts = [list(mixture(store, schedule, rank=rank, ranks=ranks)) for rank in range(ranks)]
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


def test_tokens_are_mixed_and_made_even(tmp_path: Path) -> None:
    for name, size in (("x", 1000), ("y", 517)):
        (np.arange(size) + 10_000 * (name == "y")).astype(np.uint16).tofile(tmp_path / f"{name}.bin")

    def data(rank: int, uneven: Any) -> Mixture:
        sources = {
            name: TokenDataset(tmp_path / f"{name}.bin", 8, layout="documents", dtype="uint16", seed=2) for name in "xy"
        }
        padding = {"tokens": np.zeros(9, np.int64), "mask": np.zeros(9, bool)}
        return Mixture(sources, {"x": 2, "y": 1}, ending="leave", rank=rank, ranks=4, uneven=uneven, padding=padding)

    whole = [[sample["tokens"][sample["mask"]].tolist() for sample in data(rank, "keep")] for rank in range(4)]
    everything = [*range(1000), *range(10_000, 10_517)]
    assert sorted(token for part in whole for window in part for token in window) == everything
    sizes = set(map(len, whole))
    assert len(sizes) == 2
    for uneven, size in (("drop", min(sizes)), ("repeat", max(sizes)), ("pad", max(sizes))):
        parts = [list(data(rank, uneven)) for rank in range(4)]
        assert {len(part) for part in parts} == {size}
        empty = sum(not sample["mask"].any() for part in parts for sample in part)
        assert empty == (sum(size - len(part) for part in whole) if uneven == "pad" else 0)


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
    with pytest.raises(CorruptFileError, match="max_skipped"):
        list(loader(lost - 1))


# ---- killed, and continued by other jobs


def one_job(
    store: fsabs.FS, weights: Any, ending: Any, ranks: int, batch_size: int, states: Any, steps: int | None
) -> tuple[list[tuple[int, str]], list[Any]]:
    """Run all ranks of a job for some steps, or to the end of the epoch; return what they read, and their states."""
    seen, after = [], []
    for rank in range(ranks):
        loader = Loader(mixture(store, weights, ending, rank=rank, ranks=ranks), batch_size)
        if states is not None:
            loader.load_state_dict(states)
        batches = iter(loader)
        for batch in itertools.islice(batches, steps):
            seen += [(loader.epoch, sample) for sample in batch]
        after.append(json.loads(json.dumps(loader.state_dict())))
    return seen, after


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["leave", "stop", "repeat"])
def test_no_sample_is_lost_or_repeated_by_other_ranks_batches_and_weights(store: fsabs.FS, ending: Any) -> None:
    rng, trials = random.Random(soak.seed(1)), soak.rounds(8)
    for trial in range(trials):
        states: Any = None
        seen: list[tuple[int, str]] = []
        jobs = []
        for job in range(rng.randint(1, 5)):
            weights = rng.choice([FIRST, SECOND, SCHEDULE]) if job else FIRST
            jobs.append((weights, ending, rng.choice([1, 2, 3]), rng.choice([1, 2, 4]), rng.randint(0, 5)))
            read, states = one_job(store, *jobs[-1][:4], states, jobs[-1][4])
            seen += read
        read, states = one_job(store, jobs[-1][0], ending, 1, 3, states, None)
        seen += read
        assert max(Counter(seen).values(), default=0) <= 1 or ending == "repeat", (trial, jobs)
        if ending == "leave":
            epochs = Counter(epoch for epoch, _ in seen)
            assert set(epochs.values()) == {150}, (trial, jobs)
        if ending == "repeat":  # whatever is read in the end, a sample has come as often as any other, or once more
            data = mixture(store, jobs[-1][0], ending)
            data.load_state_dict(states)
            counts = Counter([sample for _, sample in seen] + [sample for _ in range(12) for sample in data])
            for name, total in TOTALS.items():
                times = {counts[f"{name}{number}"] for number in range(total)}
                assert max(times) - min(times) <= 1, (trial, jobs)
    soak.count("jobs that a mixture goes through", trials)


@pytest.mark.filterwarnings("ignore:epoch .* is read once more")
def test_living_workers_of_a_plain_loader_go_on_after_weights_were_changed(tmp_path: Path) -> None:
    fs = fsabs.Local(str(tmp_path))
    for name, sizes in SIZES.items():
        write(fs, name, sizes)
    first = mixture(fs)
    batches = iter(first)
    seen = [next(batches) for _ in range(20)]
    data = mixture(fs, SECOND)
    data.load_state_dict(first.state_dict())
    loader = DataLoader(
        data, 4, num_workers=2, persistent_workers=True, collate_fn=data.tagged(list), multiprocessing_context="fork"
    )
    rest = [sample for batch in data.consumed(loader) for sample in batch]
    assert sorted(seen + rest) == sorted(f"{name}{number}" for name in SIZES for number in range(TOTALS[name]))
    again = [sample for batch in data.consumed(loader) for sample in batch]
    assert sorted(again) == sorted(seen + rest)


def test_states_of_other_sources_and_of_one_rank_are_refused(store: fsabs.FS) -> None:
    state = mixture(store).state_dict()
    changed = fsabs.Memory()
    for name, sizes in SIZES.items():
        write(changed, name, [6, 0, 6] if name == "c" else sizes)
    with pytest.raises(ValueError, match="source 'c'"):
        mixture(changed).load_state_dict(state)
    with pytest.raises(ValueError, match="another seed, ending"):
        mixture(store, ending="stop").load_state_dict(state)
    with pytest.raises(ValueError, match="are 2"):
        Mixture({name: source(store, name) for name in "ab"}, seed=1, ending="leave").load_state_dict(state)
    with pytest.raises(ValueError, match="not that of a mixture"):
        mixture(store).load_state_dict(source(store, "a").state_dict())
    one = mixture(store, rank=0, ranks=2).state_dict()
    with pytest.raises(ValueError, match="those of all ranks"):
        mixture(store, SECOND, rank=0, ranks=2).load_state_dict(one)
    mixture(store, rank=0, ranks=2).load_state_dict(one)


def test_other_weights_of_a_mixture_in_a_mixture_are_refused(store: fsabs.FS) -> None:
    def outer(weights: Any) -> Mixture:
        return Mixture({"in": mixture(store, weights), "list": [f"l{number}" for number in range(50)]}, ending="leave")

    begun = outer(FIRST)
    seen = list(itertools.islice(begun, 40))
    for weights in (SECOND, SCHEDULE):
        with pytest.raises(ValueError, match="settings of the source 'in'"):
            outer(weights).load_state_dict(begun.state_dict())
    again = outer(FIRST)
    again.load_state_dict(begun.state_dict())
    assert len({*seen, *again}) == 200


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
    for packs in (TokenDataset(store.subfs("a"), 8, tokenize=list), packed(store, FIRST)):
        with pytest.raises(TypeError, match=r"'a' packs .* pack the mixture \(packing=Packing\(.*files of tokens"):
            Mixture({"a": packs, "b": ["x"]})
    with pytest.raises(ValueError, match="'b' has no samples"):
        Mixture({"a": ["x"], "b": []}, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="'b' has no samples"):
        Mixture({"a": ["x"], "b": []}, [(0, {"a": 1, "b": 1}), (5, {"a": 1, "b": 0})], ending="repeat")
    with pytest.raises(TypeError, match="padding="):
        mixture(store, uneven="pad")


# ---- a state that stays small


def test_a_state_is_below_a_kilobyte(tmp_path: Path) -> None:
    sources = {}
    for number in range(16):
        with (tmp_path / f"{number:02}.bin").open("wb") as out:
            out.truncate(16 * 10**6 + 2 * number)
        sources[f"source-{number}"] = TokenDataset(tmp_path / f"{number:02}.bin", 4, dtype="uint16", seed=number)

    def loader(weights: Any, rank: int = 0, ranks: int = 2) -> Loader:
        return Loader(Mixture(sources, weights, ending="repeat", rank=rank, ranks=ranks), 8, num_workers=2)

    weights = {name: 1.0 / (1 + number) for number, name in enumerate(sources)}
    states = []
    for rank in range(2):
        begun = loader(weights, rank)
        batches = iter(begun)
        next(batches)
        states.append(begun.state_dict())
        del batches
    assert max(len(json.dumps(state)) for state in states) <= 1024
    other = loader(weights, 1, 3)
    other.load_state_dict(states)
    assert len(json.dumps(other.state_dict())) <= 1024


# ---- shards that are added


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["leave", "stop", "repeat"])
def test_added_shards_keep_what_was_read(ending: Any) -> None:
    rng, trials = random.Random(soak.seed(2)), soak.rounds(5)
    for trial in range(trials):
        store = fsabs.Memory()
        for name, sizes in SIZES.items():
            write(store, name, sizes)
        totals = dict(TOTALS)
        seen, states = one_job(store, FIRST, ending, rng.choice([1, 2]), 2, None, rng.randint(1, 6))
        for name in rng.choice(["a", "b", "ab", "abc"]):
            write(store, name, [5, 6], totals[name])
            totals[name] += 11
        weights = rng.choice([FIRST, SECOND])
        read, states = one_job(store, weights, ending, rng.choice([1, 2, 3]), 3, states, 4)
        seen += read
        read, states = one_job(store, weights, ending, 1, 3, states, None)
        seen += read
        counts = Counter(sample for _, sample in seen)
        if ending == "leave":
            assert counts == dict.fromkeys((f"{n}{i}" for n, total in totals.items() for i in range(total)), 1), trial
        elif ending == "stop":
            assert max(counts.values()) == 1
        else:
            data = mixture(store, weights, ending)
            data.load_state_dict(states)
            counts.update(sample for _ in range(25) for sample in data)
            for name, total in totals.items():
                old = {counts[f"{name}{number}"] for number in range(TOTALS[name])}
                new = {counts[f"{name}{number}"] for number in range(TOTALS[name], total)}
                assert max(old) - min(old) <= 1, trial
                assert not new or (max(new) - min(new) <= 1 and max(old) - 2 <= max(new) <= max(old)), trial
    soak.count("mixtures with added shards", trials)


@pytest.mark.parametrize("ending", ["leave", "stop", "repeat"])
@pytest.mark.parametrize("weights", [None, {"a": 3, "b": 1}])
def test_a_source_that_was_empty_grows(ending: Any, weights: Any) -> None:
    store = fsabs.Memory()
    write(store, "a", [20, 11])
    write(store, "b", [0])

    def data(given: Any) -> Mixture:
        return Mixture({name: source(store, name) for name in "ab"}, given, ending=ending)

    begun = data({"a": 1, "b": 0})
    seen = list(itertools.islice(begun, 10))
    write(store, "b", [6, 4])
    grown = data(weights)
    grown.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    counts = Counter(seen + [sample for _ in range(1 if ending != "repeat" else 12) for sample in grown])
    everything = [f"a{number}" for number in range(31)] + [f"b{number}" for number in range(10)]
    if ending == "leave":
        assert counts == dict.fromkeys(everything, 1)
    elif ending == "stop":
        assert max(counts.values()) == 1
        assert any(sample.startswith("b") for sample in counts)
    else:
        for name in "ab":
            times = {counts[one] for one in everything if one[0] == name}
            assert max(times) - min(times) <= 1 <= min(times)


def test_other_weights_where_nothing_but_repeated_samples_is_left() -> None:
    store = fsabs.Memory()
    write(store, "a", [5])

    def loader(weights: Any, rank: int) -> Loader:
        sources = {"a": source(store, "a"), "b": ["x", "y"]}
        return Loader(Mixture(sources, weights, ending="leave", rank=rank, ranks=2, uneven="repeat"), 1)

    loaders = [loader({"a": 1, "b": 1}, rank) for rank in range(2)]
    seen = [sample for rank, one in enumerate(loaders) for batch in itertools.islice(one, 4 - rank) for sample in batch]
    states = [one.state_dict() for one in loaders]
    again = [loader({"a": 2, "b": 1}, rank) for rank in range(2)]
    for one in again:
        one.load_state_dict(states)
        seen += [sample for batch in one for sample in batch]
    assert sorted(seen) == ["a0", "a1", "a2", "a3", "a4", "x", "y"]
    assert {sample for one in again for batch in one for sample in batch} == set(seen)


@pytest.mark.parametrize(("seed", "ranks"), [(3, 1), (None, 2), (3, 3)])
def test_shards_added_where_ranks_are_in_different_epochs(seed: int | None, ranks: int) -> None:
    """Each epoch that a rank has not ended has the added shards, and each sample once."""
    for steps in range(1, 12):
        store = fsabs.Memory()
        write(store, "a", [2, 3])
        seen: dict[int, list[str]] = {}
        states = []
        for rank in range(2):
            loader, left = Loader(source_of(store, seed, rank, 2)), steps
            while left:
                for batch in itertools.islice(loader, left):
                    seen.setdefault(loader.epoch, []).extend(batch)
                    left -= 1
            states.append(json.loads(json.dumps(loader.state_dict())))
        ended = {epoch for epoch, samples in seen.items() if len(samples) == 5}
        write(store, "a", [4], 5)
        for rank in range(ranks):
            loader = Loader(source_of(store, seed, rank, ranks))
            loader.load_state_dict(states)
            while loader.epoch < 12:
                for batch in loader:
                    seen.setdefault(loader.epoch, []).extend(batch)
        for epoch, samples in seen.items():
            assert sorted(samples) == [f"a{number}" for number in range(5 if epoch in ended else 9)], (steps, epoch)


def source_of(store: fsabs.FS, seed: int | None, rank: int, ranks: int) -> ShardedDataset:
    options: dict[str, Any] = {"buffer_size": 5, "block_size": 3} if seed is not None else {}
    return ShardedDataset(store.subfs("a"), bytes.decode, seed=seed, rank=rank, ranks=ranks, **options)


# ---- documents of several sources, packed


def packed(store: fsabs.FS, weights: Any, **options: Any) -> Mixture:
    def tokenize(document: str) -> list[int]:
        number = int(document[1:]) + 1000 * "abc".index(document[0])
        return [number] * (1 + number % 23)

    return mixture(store, weights, packing=Packing(tokenize, 15, overlap=False), **options)


def tokens_of(batches: Any) -> list[int]:
    return [
        int(token) for batch in batches for token in np.asarray(batch["tokens"])[np.asarray(batch["segments"]) >= 0]
    ]


def test_sources_with_tokenizers_of_their_own_are_packed_together(store: fsabs.FS) -> None:
    sources = {
        "a": ShardedDataset(store.subfs("a"), lambda record: [1] * len(record), seed=1),
        "b": ShardedDataset(store.subfs("b"), lambda record: [2] * len(record), seed=2),
    }
    windows = list(Mixture(sources, ending="leave", packing=Packing(list, 15, overlap=False)))
    expected = Counter(
        {
            number + 1: sum(len(record) for record in ShardedDataset(store.subfs(name)))
            for number, name in enumerate("ab")
        }
    )
    assert Counter(tokens_of(windows)) == expected


def test_a_mixture_of_documents_is_packed_and_resumed(store: fsabs.FS) -> None:
    whole = list(packed(store, FIRST))
    everything = sorted(tokens_of(whole))
    assert Counter(everything) == {
        number + 1000 * at: 1 + (number + 1000 * at) % 23
        for at, name in enumerate(TOTALS)
        for number in range(TOTALS[name])
    }
    rng = random.Random(8)
    for _ in range(10):
        states: Any = None
        seen: list[int] = []
        weights: Any = FIRST
        for job in range(rng.randint(1, 3)):
            ranks = rng.choice([1, 2, 3])
            weights = rng.choice([FIRST, SECOND]) if job else FIRST
            loaders = [Loader(packed(store, weights, rank=rank, ranks=ranks), 2) for rank in range(ranks)]
            for one in loaders:
                if states is not None:
                    one.load_state_dict(states)
                seen += tokens_of(itertools.islice(iter(one), rng.randint(0, 6)))
            states = [json.loads(json.dumps(one.state_dict())) for one in loaders]
        last = Loader(packed(store, weights), 2)
        last.load_state_dict(states)
        assert sorted(seen + tokens_of(last)) == everything
    begun = Loader(packed(store, FIRST), None)
    first = list(itertools.islice(iter(begun), 11))
    again = Loader(packed(store, FIRST), None)
    again.load_state_dict(begun.state_dict())
    assert [one["tokens"].tolist() for one in [*first, *again]] == [one["tokens"].tolist() for one in whole]


def test_a_source_is_left_out_in_the_middle_of_a_document_of_it(store: fsabs.FS) -> None:
    without = {"a": 0.5, "b": 0.0, "c": 0.5}
    mixing = Mixing(schedule_of([(0, {"a": 1, "b": 1}), (64, {"a": 1, "b": 0})], "ab"), 0, [500, 500], "repeat", 300)
    assert mixing.step_of(1, 31) is not None
    assert mixing.step_of(1, 32) is None
    others = {number + 1000 * "abc".index(name) for name in "ac" for number in range(TOTALS[name])}
    for weights in (without, [(0, FIRST), (40, without)]):
        for steps in range(1, 25, 4):
            begun = Loader(packed(store, FIRST), 1)
            seen = tokens_of(itertools.islice(begun, steps))
            again = Loader(packed(store, weights), 1)
            again.load_state_dict(begun.state_dict())
            counts = Counter(seen + tokens_of(again))
            assert all(counts[number] == 1 + number % 23 for number in others), steps


# ---- the ledger, and steps that are left out


def test_the_ledger_is_what_is_read(store: fsabs.FS) -> None:
    def loader(rank: int, ranks: int, workers: int) -> Loader:
        return Loader(mixture(store, SCHEDULE, rank=rank, ranks=ranks), 4, num_workers=workers)

    def name_of(place: Any) -> str:
        first = sum(SIZES[place.source][: int(place.shard.rsplit("/", 1)[-1].split(".")[0])])
        return f"{place.source}{first + place.record}"

    states: Any = None
    for ranks, workers in ((1, 0), (2, 2), (3, 0)):
        asked = loader(0, ranks, workers)
        if states is not None:
            asked.load_state_dict(states)
        began = 0 if states is None else states[0]["batches"]
        expected = {rank: list[list[str]]() for rank in range(ranks)}
        for step in range(began, began + 3):
            for rank, places in asked.samples(step).items():
                expected[rank].append([name_of(place) for place in places])
        after = []
        for rank in range(ranks):
            reading = loader(rank, ranks, workers)
            if states is not None:
                reading.load_state_dict(states)
            assert [list(batch) for batch in itertools.islice(iter(reading), 3)] == expected[rank]
            after.append(reading.state_dict())
        states = after
    with pytest.raises(LookupError, match="step 0 is none"):
        asked.samples(0)
    with pytest.raises(LookupError, match="step 1000"):
        asked.samples(1000)


def test_the_ledger_of_packed_windows_is_replayed(store: fsabs.FS) -> None:
    begun = Loader(packed(store, FIRST), 3)
    batches = iter(begun)
    for _ in range(4):
        next(batches)
    loader = Loader(packed(store, FIRST), 3)
    loader.load_state_dict(begun.state_dict())
    for step in (4, 6, 9):
        places = loader.samples(step)[0]
        read = Loader(packed(store, FIRST), 3)
        read.load_state_dict(begun.state_dict())
        batch = next(itertools.islice(iter(read), step - 4, None))
        found = sorted(set(batch["tokens"][batch["segments"] >= 0].tolist()))
        first = {place.source: 0 for place in places}
        named = [
            place.record
            + sum(SIZES[place.source][: int(place.shard.rsplit("/", 1)[-1].split(".")[0])])
            + 1000 * "abc".index(place.source)
            for place in places
        ]
        assert first
        assert sorted(set(named)) == found
    with pytest.raises(LookupError):
        loader.samples(3)


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
    assert loader(0).samples(6) == {0: []}
    second = Loader(mixture(store), 4, skip={1: [0, range(3, -1, -1), range(100, sys.maxsize)]})
    assert len(second) == len(list(second)) == len(whole)
    second.set_epoch(1)
    assert len(second) == len(list(second)) == len(whole) - 4
    documents = list(Loader(packed(store, FIRST), 4))
    some = list(Loader(packed(store, FIRST), 4, skip=[range(1, 3)]))
    assert tokens_of(some) == tokens_of([documents[0], *documents[3:]])


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
