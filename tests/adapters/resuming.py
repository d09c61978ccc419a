"""`python -m tests.adapters.resuming SEED CASES [rows]`: jobs that are killed and continued under every loader.

A rank is a forked process; it notes the samples of every batch that it is handed, saves its state with the last one,
and kills itself by SIGKILL. The ranks of the next job load the states and run four epochs more. A sample that is lost
or repeated in an epoch is a fault.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

EPOCHS_AFTER = 4
FAULTS = ("lost", "repeated", "orders", "ledger")
"""Counts of a case that are to be 0."""
TIMEOUT = 120  # seconds, of one rank


RECORDS = ("sharded", "recordio", "files")
ROWS = ("parquet", "json lines", "tokens", "packed", "mixture")
"""Data sets of rows, tokens and mixtures; the weights of a mixture change with the second job."""


class Case(NamedTuple):
    """One cell of the matrix."""

    dataset: str
    """One of `RECORDS` or `ROWS`."""
    loader: str
    """"ours", "tagged" or "stateful"."""
    workers: int
    persistent: bool
    before: int
    """Ranks of the job that is killed."""
    after: int
    """Ranks of the job that continues."""
    batch_size: int
    drop_last: bool
    step: int
    """The number of batches after which each rank is killed."""
    batch_after: int
    """The batch size of the job that continues."""
    weights: int = 0
    """Which weights the mixture of the job that continues has: 0 has those of the first job."""


WEIGHTS: tuple[Any, ...] = (
    {"p": 3, "j": 1, "t": 1},
    {"p": 1, "j": 2, "t": 1},
    [(0, {"p": 1, "j": 1, "t": 4}), (30, {"p": 1, "j": 1, "t": 1})],
)


def random_case(rng: random.Random, total: int, datasets: Sequence[str] = RECORDS) -> Case:
    """Return a cell of the matrix over a data set of `total` samples."""
    dataset, loader = rng.choice(list(datasets)), rng.choice(["ours", "tagged", "stateful"])
    workers = rng.choice([0, 1, 2, 3, 4])
    before = rng.choice([1, 2, 3])
    sizes = [1, 4, total // 2, total, total + 46]
    batch_size = rng.choice(sizes)
    batches = max(1, total // before // batch_size)
    packed = dataset == "packed"
    if packed:
        loader = "ours"  # windows have no positions that tags could count before they are read
    after = rng.choice([1, 2, 3])
    stateful = loader == "stateful"
    return Case(
        dataset,
        loader,
        workers,
        workers > 0 and rng.random() < 0.5,
        before,
        after,
        batch_size,
        rng.random() < 0.5 and not packed,
        rng.choice([1, batches, batches + 1, 2 * batches, rng.randint(1, 2 * batches + 1)]),
        batch_size if stateful else rng.choice(sizes),
        rng.choice([0, 1, 2]) if dataset == "mixture" and not (stateful and after == before) else 0,
    )


def write_data(folder: Path, total: int) -> None:
    """Write `total` samples, their numbers, as shards of several formats and as files."""
    import pyarrow
    import pyarrow.parquet

    import fsabs
    from fsabs.readers.data import TokenWriter
    from fsabs.readers.recordio import RecordWriter

    fs = fsabs.from_url(str(folder), create=True)
    for name in ("shards", "files", "parquet", "jsonl", "tokens", "p", "j", "t"):
        fs.mkdir(name)
    sizes = [total // 2, 0, total // 3, 1]
    sizes.append(total - sum(sizes))

    def shards(first: int, counts: Sequence[int]) -> Iterator[tuple[int, range]]:
        for shard, count in enumerate(counts):
            yield shard, range(first, first + count)
            first += count

    def write_rows(name: str, first: int, counts: Sequence[int]) -> None:
        for shard, numbers in shards(first, counts):
            table = pyarrow.table({"id": pyarrow.array(numbers, pyarrow.int64()), "other": [None] * len(numbers)})
            pyarrow.parquet.write_table(table, str(folder / name / f"{shard}.parquet"), row_group_size=7)

    def write_lines(name: str, first: int, counts: Sequence[int]) -> None:
        for shard, numbers in shards(first, counts):
            lines = "".join(json.dumps({"id": number, "text": "x" * (number % 50)}) + "\n" for number in numbers)
            fs.write_bytes(f"{name}/{shard}.jsonl", lines.encode())

    def write_tokens(name: str, first: int, counts: Sequence[int]) -> None:
        for shard, numbers in shards(first, counts):
            with TokenWriter(fs, f"{name}/{shard}", "int32") as tokens:
                for number in numbers:
                    tokens.write([number] * TOKENS)

    for shard, numbers in shards(0, sizes):
        with RecordWriter(fs, f"shards/{shard}.recordio", max_chunk_bytes=64) as writer:
            for number in numbers:
                writer.write(str(number).encode())
    for number in range(total):
        fs.write_bytes(f"files/{number:06}", str(number).encode())
    write_rows("parquet", 0, sizes)
    write_lines("jsonl", 0, sizes)
    write_tokens("tokens", 0, sizes)
    half, quarter = total // 2, total // 4
    write_rows("p", 0, [half // 2, 0, half - half // 2])
    write_lines("j", half, [quarter])
    write_tokens("t", half + quarter, [3, total - half - quarter - 3])
    starts: dict[str, dict[str, int]] = {}
    for name, first, counts in (
        *((name, 0, sizes) for name in ("shards", "parquet", "jsonl", "tokens")),
        ("p", 0, [half // 2, 0, half - half // 2]),
        ("j", half, [quarter]),
        ("t", half + quarter, [3, total - half - quarter - 3]),
    ):
        starts[name] = {str(shard): numbers.start for shard, numbers in shards(first, counts)}
    (folder / "starts.json").write_text(json.dumps(starts))


TOKENS = 5
"""Of each document, all of which are its number."""


def _id(row: Any) -> int:
    return int(row["id"])


def _document(window: Any) -> int:
    return int(window["tokens"][0])


def _tokens_of(row: Any) -> list[int]:
    return [int(row["id"])] * times(int(row["id"]))


def times(number: int) -> int:
    """Return how many tokens the document of this number is packed as."""
    return 1 + number % 5


# ---- one rank


class _Job:
    """The loader of a rank, and what it needs to be driven."""

    def __init__(self, case: Case, folder: str, rank: int, ranks: int, continues: bool) -> None:
        from torch.utils.data import DataLoader

        from fsabs.adapters import torch as ours

        place: dict[str, Any] = {"rank": rank, "ranks": ranks, "seed": 5}
        batch_size = case.batch_after if continues else case.batch_size
        options: dict[str, Any] = {"num_workers": case.workers, "persistent_workers": case.persistent}
        if case.workers:
            options["multiprocessing_context"] = "fork"
        self._folder = folder
        dataset: Any = _dataset(case, folder, place, continues)
        self.passes: Any = dataset
        if dataset is not None:
            pass
        elif case.dataset == "recordio":
            dataset = ours.RecordIODataset(f"{folder}/shards", int)
        else:
            dataset = ours.FileDataset(f"{folder}/files", transform=int)
        self.stateful = case.loader == "stateful"
        if case.loader == "ours":
            place = place if self.passes is None else {}
            self.loader: Any = ours.Loader(dataset, batch_size, drop_last=case.drop_last, **place, **options)
            self.passes = self.loader
            return
        if self.stateful:
            kind: Any = importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader
        else:
            kind = DataLoader
        if self.passes is not None:
            if not self.stateful:
                options["collate_fn"] = dataset.tagged()
            self.loader = kind(dataset, batch_size, drop_last=case.drop_last, **options)
        else:
            self.passes = ours.EpochSampler(dataset, **place)
            batches = ours.PlannedBatches(self.passes, batch_size, num_workers=case.workers, drop_last=case.drop_last)
            self.loader = kind(dataset, batch_sampler=batches, **options)

    def one_pass(self) -> Iterator[Any]:
        """Yield the batches of an epoch."""
        return iter(self.loader if self.stateful or self.passes is self.loader else self.passes.consumed(self.loader))

    @property
    def state(self) -> Any:
        """What has the state."""
        return self.loader if self.stateful else self.passes

    def ledger(self, rank: int, step: int) -> list[int]:
        """Return the numbers of the samples that the loader says this rank reads in a step; of documents, once each."""
        starts = json.loads(Path(self._folder, "starts.json").read_text())
        found = []
        for place in self.loader.samples(step)[rank]:
            folder, _, name = place.shard.rpartition("/")
            unit = TOKENS if name.endswith(".bin") else 1
            found.append(starts[folder.rpartition("/")[2]][name.partition(".")[0]] + place.record // unit)
        return found


def _dataset(case: Case, folder: str, place: dict[str, Any], continues: bool) -> Any:
    """Return an iterable data set; None for a map-style one."""
    from fsabs.adapters import torch as ours

    def rows(name: str, **options: Any) -> Any:
        return ours.ShardedDataset(f"{folder}/{name}", _id, window=2, **options)

    def documents(name: str, **options: Any) -> Any:
        return ours.TokenDataset(f"{folder}/{name}", TOKENS - 1, _document, layout="documents", **options)

    if case.dataset == "sharded":
        return ours.ShardedDataset(f"{folder}/shards", int, buffer_size=16, block_size=8, **place)
    if case.dataset == "parquet":
        return rows("parquet", **place)
    if case.dataset == "json lines":
        return rows("jsonl", **place)
    if case.dataset == "tokens":
        return documents("tokens", **place)
    if case.dataset == "packed":
        return ours.TokenDataset(f"{folder}/jsonl", 7, tokenize=_tokens_of, overlap=False, window=2, **place)
    if case.dataset != "mixture":
        return None
    sources = {"p": rows("p", seed=1), "j": rows("j", seed=2), "t": documents("t", seed=3)}
    return ours.Mixture(sources, WEIGHTS[case.weights if continues else 0], ending="leave", **place)


def _numbers(batch: Any) -> list[int]:
    """Return the numbers of the samples of a batch; of packed windows, one for each token."""
    if isinstance(batch, dict):
        found: list[int] = batch["tokens"][batch["segments"] >= 0].tolist()
        return found
    return [int(number) for number in batch.tolist()]


def _run_rank(case: Case, folder: str, rank: int, ranks: int, states: list[Any], out: str) -> None:
    """Run a rank: to its kill where it has no states to continue from, else for some epochs more."""
    job = _Job(case, folder, rank, ranks, bool(states))
    number = 0
    if states:
        number = states[rank % len(states)]["number"]
        last = max(state["number"] for state in states) + EPOCHS_AFTER
        if states[0]["state"] is None:
            pass  # from the beginning
        elif job.stateful:
            elastic = len(states) != ranks
            target = job.passes if elastic else job.state
            target.load_state_dict([state["state"] for state in states] if elastic else states[rank]["state"])
            number = job.passes.epoch if elastic else number
        else:
            job.state.load_state_dict([state["state"] for state in states])
    steps = 0
    with open(out, "a") as file:
        while True:
            batches = job.one_pass()
            first, step = True, 0
            for batch in batches:
                epoch = number if job.stateful else job.passes.epoch
                read = _numbers(batch)
                if first and case.loader == "ours" and case.dataset not in ("recordio", "files"):
                    first, step = False, job.passes._batches.epochs.plan.batches
                if case.loader == "ours" and case.dataset not in ("recordio", "files"):
                    if case.dataset != "packed" or step < job.passes._batches.epochs.plan.batches + 2:
                        said = job.ledger(rank, step)
                        same = set(said) == set(read) if case.dataset == "packed" else said == read
                        if not same:
                            file.write(json.dumps([-1, read]) + "\n")  # counted as a fault of the ledger
                    step += 1
                file.write(json.dumps([epoch, read]) + "\n")
                steps += 1
                if not states and steps == case.step:
                    file.flush()
                    with open(out + ".state", "wb") as state:
                        pickle.dump({"number": epoch, "state": job.state.state_dict()}, state)
                    os.kill(os.getpid(), signal.SIGKILL)
            if (number if job.stateful else job.passes.epoch) >= (last if states else 30):
                return  # without batches (drop_last), no step comes
            number += 1
            if job.stateful and case.dataset not in (
                "recordio",
                "files",
            ):  # the main process does not see its workers' passes
                job.passes.set_epoch(number)


def _forked(work: Any, *args: Any) -> int:
    """Run `work` in a child, and return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        warnings.simplefilter("ignore")  # more workers than cores
        os.setsid()  # with its workers, which may not end by themselves when it is killed
        signal.alarm(TIMEOUT)
        work(*args)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _job(case: Case, folder: str, ranks: int, states: list[Any], out: str) -> tuple[list[Any], list[Any]]:
    """Run all ranks of a job at once; return what each read, and the states."""
    paths = [f"{out}-{rank}" for rank in range(ranks)]
    children = [_forked(_run_rank, case, folder, rank, ranks, states, path) for rank, path in enumerate(paths)]
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    if any(end not in (0, -signal.SIGKILL) for end in ends):
        raise RuntimeError(f"{case}: the ranks ended with {ends}")
    read = [[json.loads(line) for line in Path(path).read_text().splitlines()] for path in paths]
    saved = [pickle.loads(Path(path + ".state").read_bytes()) for path in paths if os.path.exists(path + ".state")]
    return read, saved


# ---- one case


def run_case(case: Case, folder: str, total: int) -> dict[str, int]:
    """Run a case, and return how many samples were lost and repeated, and how many epochs were looked at.

    `orders` counts epochs in the order of the epoch before, and ranks that do not continue in the order of a run
    without a kill, though their number is the same.
    """
    if case.loader == "stateful" and case.dataset in ("recordio", "files"):
        case = case._replace(after=case.before)  # torchdata's state is of one rank
    with tempfile.TemporaryDirectory() as scratch:
        before, states = _job(case, folder, case.before, [], f"{scratch}/before")
        if len(states) < case.before:
            return {"lost": 0, "repeated": 0, "orders": 0, "ledger": 0, "epochs": 0}  # drop_last drops all
        after, _ = _job(case, folder, case.after, states, f"{scratch}/after")
        ledger = sum(epoch < 0 for batches in before + after for epoch, _ in batches)
        before, after = ([[one for one in rank if one[0] >= 0] for rank in job] for job in (before, after))
        orders = 0
        if case.before == case.after and case.batch_size == case.batch_after and not case.weights:
            whole, _ = _job(case, folder, case.before, [{"number": 0, "state": None}], f"{scratch}/whole")
            orders += sum(_order(a + b) != _order(c) for a, b, c in zip(before, after, whole, strict=True))
        orders += sum(_same_orders(batches) for batches in after)
    return {**_counted(case, before, after, states, total), "orders": orders, "ledger": ledger}


def _same_orders(batches: list[Any]) -> int:
    """Return how many epochs of a rank have the order of the one before."""
    orders: dict[int, list[int]] = {}
    for epoch, batch in batches:
        orders.setdefault(epoch, []).extend(batch)
    return sum(len(orders[epoch]) > 12 and orders[epoch] == orders.get(epoch - 1) for epoch in orders)


def _order(batches: list[Any]) -> Any:
    return [sample for epoch, batch in batches if epoch <= EPOCHS_AFTER for sample in batch]


def _counted(case: Case, before: list[Any], after: list[Any], states: list[Any], total: int) -> dict[str, int]:
    epochs: dict[int, Counter[int]] = {}
    for batches in before + after:
        for epoch, batch in batches:
            epochs.setdefault(epoch, Counter()).update(batch)
    last = max(state["number"] for state in states) + EPOCHS_AFTER
    lost = repeated = 0
    expected = Counter({number: times(number) if case.dataset == "packed" else 1 for number in range(total)})
    for epoch in range(last + 1):
        seen = epochs.get(epoch, Counter())
        repeated += (seen - expected).total()
        missing = (expected - seen).total()
        if case.drop_last:  # each worker of each rank, of both jobs, drops less than a batch
            dropped = max(case.batch_size, case.batch_after) - 1
            missing = max(0, missing - dropped * max(1, case.workers) * (case.before + case.after))
        lost += missing
    return {"lost": lost, "repeated": repeated, "epochs": last + 1}


def run(seed: int, cases: int, total: int, report: Any = print, datasets: Sequence[str] = RECORDS) -> dict[str, int]:
    """Run random cases of the matrix, and return the sums; each case with a fault is reported.

    Case number k is the same in every run with this seed.
    """
    import torch

    torch.set_num_threads(1)
    sums: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), total)
        for number in range(cases):
            case = random_case(random.Random(f"{seed}/{number}"), total, datasets)
            found = run_case(case, folder, total)
            if any(found[fault] for fault in FAULTS):
                report(f"seed {seed}, case {number}: {case}: {found}")
            sums.update({**found, "cases": 1})
    return dict(sums)


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]), 102, datasets=ROWS if sys.argv[3:] == ["rows"] else RECORDS))
