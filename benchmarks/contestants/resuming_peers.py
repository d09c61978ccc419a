"""Jobs of peers that are killed and continued: the samples of the epoch that are lost and repeated.

A job notes the samples of each batch that it is handed, saves the loader's state with the last one,
and kills itself by SIGKILL; another job loads the state and reads the rest of the epoch and the next one. One rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from . import Run, library, loaders

TIMEOUT = 60  # seconds, of a job
KINDS = ("same", "workers", "batch")
"""What of the loader differs in the second job."""


class PeerCase(NamedTuple):
    """A job and the one that continues it."""

    kind: str
    workers: tuple[int, int]
    batch_size: tuple[int, int]
    step: int


def random_case(rng: random.Random, total: int, kind: str) -> PeerCase:
    """Return a case over a data set of `total` samples."""
    workers, batch_size = rng.choice([0, 1, 2, 3]), rng.choice([1, 4, 10, total // 2])
    other = rng.choice([one for one in (0, 1, 2, 3) if one != workers]) if kind == "workers" else workers
    size = rng.choice([one for one in (1, 4, 10) if one != batch_size]) if kind == "batch" else batch_size
    return PeerCase(kind, (workers, other), (batch_size, size), rng.randint(1, max(1, total // batch_size - 1)))


def write(peer: str, folder: str, total: int) -> None:
    """Write a data set of numbers in a peer's format."""
    if peer == "streaming":
        with loaders.streaming().MDSWriter(out=folder, columns={"id": "int"}, size_limit=200) as writer:
            for number in range(total):
                writer.write({"id": number})
        return
    if peer == "datasets":
        arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
        os.makedirs(folder)
        for shard, at in enumerate(range(0, total, 26)):
            ids = list(range(at, min(total, at + 26)))
            parquet.write_table(arrow.table({"id": ids}), f"{folder}/{shard}.parquet", 7)
        return
    if peer == "grain":
        os.makedirs(folder)
        Path(folder, "total").write_text(str(total))
        return
    library("litdata").optimize(_sample, list(range(total)), folder, chunk_size=10, num_workers=1)


def _sample(number: int) -> dict[str, int]:
    return {"id": number}


def _ids(batch: list[Any]) -> list[int]:
    return [int(sample["id"]) for sample in batch]


def _loader(peer: str, folder: str, batch_size: int, workers: int) -> Any:
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": workers, "collate_fn": _collate}
    if workers:
        options["multiprocessing_context"] = "fork"
    if peer == "streaming":
        streaming = loaders.streaming()
        library("streaming.base.util").clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(local=folder, shuffle=True, batch_size=batch_size)
        return streaming.StreamingDataLoader(dataset, **options)
    if peer == "datasets":
        files = sorted(str(path) for path in Path(folder).glob("*.parquet"))
        data = library("datasets").load_dataset("parquet", data_files=files, split="train", streaming=True)
        loader = library("torchdata.stateful_dataloader").StatefulDataLoader
        return loader(data.shuffle(3, buffer_size=20), **options)
    if peer == "grain":
        return _Grain(int(Path(folder, "total").read_text()), batch_size, workers)
    data = library("litdata")
    return data.StreamingDataLoader(data.StreamingDataset(folder, shuffle=True), **options)


class _Grain:
    """Two epochs of a shuffled range in batches; each iteration is one."""

    def __init__(self, total: int, batch_size: int, workers: int) -> None:
        grain = library("grain")
        batches = grain.MapDataset.range(total).seed(3).shuffle().batch(batch_size)
        self._each = len(batches)
        reading = batches.repeat(2).to_iter_dataset()
        if workers:
            reading = reading.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        self._batches = iter(reading)
        self._taken = 0

    def __iter__(self) -> Any:
        while True:
            batch = next(self._batches, None)
            if batch is None:
                return
            self._taken += 1
            yield batch
            if self._taken % self._each == 0:
                return

    def state_dict(self) -> Any:
        """Return grain's state, and the number of batches."""
        return self._taken, self._batches.get_state()

    def load_state_dict(self, state: Any) -> None:
        """Continue."""
        self._taken, inner = state
        self._batches.set_state(inner)


def _collate(batch: list[Any]) -> Any:
    return library("torch").tensor(_ids(batch))


def _job(peer: str, folder: str, case: PeerCase, second: bool, scratch: Path) -> tuple[list[list[int]], str]:
    """Run a job in a process of its own; return the samples of its epochs, and why it failed, if it did."""
    log, state = scratch / f"log{second:d}", scratch / "state"
    pid = os.fork()
    if not pid:
        status = 1
        try:
            signal.alarm(TIMEOUT)
            loader = _loader(peer, folder, case.batch_size[second], case.workers[second])
            if second:
                loader.load_state_dict(pickle.loads(state.read_bytes()))
            with log.open("w", buffering=1) as file:
                for epoch in range(1 + second):
                    for step, batch in enumerate(loader):
                        file.write(json.dumps([epoch, batch.tolist()]) + "\n")
                        if not second and step + 1 == case.step:
                            state.write_bytes(pickle.dumps(loader.state_dict()))
                            os.kill(os.getpid(), signal.SIGKILL)
            status = 0
        except BaseException as exc:
            traceback.print_exc()
            (scratch / "reason").write_text(f"{type(exc).__name__}: {exc}"[:300])
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    epochs: list[list[int]] = [[], []]
    with contextlib.suppress(FileNotFoundError):
        for line in log.read_text().splitlines():
            epoch, ids = json.loads(line)
            epochs[epoch] += ids
    failed = bool(status) if second else not state.exists()
    reason = scratch / "reason"
    return epochs, (reason.read_text() if reason.exists() else f"status {status}") if failed else ""


def matrix(peer: str, folder: str, cases: int, total: int, seed: int) -> Run:
    """So many cases of each kind, once; the sums of each kind."""
    write(peer, folder, total)

    def run() -> dict[str, float]:
        sums: Counter[str] = Counter()
        for kind in KINDS:
            for number in range(cases):
                case = random_case(random.Random(f"{seed}/{kind}/{number}"), total, kind)
                scratch = Path(f"{folder}-{kind}-{number}")
                scratch.mkdir()
                (before, _), why = _job(peer, folder, case, False, scratch)
                after, why_not = ([[], []], why) if why else _job(peer, folder, case, True, scratch)
                sums[f"{kind} cases"] += 1
                if why or why_not:
                    sums[f"{kind} refused"] += 1
                    print(f"{case}: {why or why_not}", file=sys.stderr)
                    continue
                seen = Counter(before + after[0])
                lost, repeated = total - len(seen), sum(seen.values()) - len(seen)
                sums[f"{kind} lost"] += lost
                sums[f"{kind} repeated"] += repeated
                sums[f"{kind} inexact"] += bool(lost or repeated)
                sums[f"{kind} next epoch"] += sorted(after[1]) != list(range(total))
                print(f"{case}: lost {lost}, repeated {repeated}, next epoch {len(after[1])}", file=sys.stderr)
        names = ("cases", "refused", "inexact", "lost", "repeated", "next epoch")
        return {f"{kind} {name}": float(sums[f"{kind} {name}"]) for kind in KINDS for name in names}

    return run
