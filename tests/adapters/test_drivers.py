"""Jobs that loops of others drive, stopped at any step and resumed with other batch sizes, workers and ranks.

Each sample comes once an epoch, whoever drives; or the driver refuses to resume, and says why.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import preloaded, soak
from tests.adapters.drivers import DRIVERS, IMPORTS, Answer, Stage
from tests.servers.fixtures import require

ROOT = Path(__file__).parents[2]
JOBS = {"plain": 40, "loader": 40, "stateful": 20, "lightning": 8, "accelerate": 10, "trainer": 8}
SECONDS = 120.0  # of one stage
LIBRARIES = {
    "stateful": "torchdata",
    "lightning": "pytorch_lightning",
    "accelerate": "accelerate",
    "trainer": "transformers",
}
IN_STEP = ("lightning", "accelerate", "trainer")
"""Drivers whose ranks wait for each other in each step."""


METHODS = ("fork", "forkserver", "forkserver", "spawn")
"""By which workers are started; spawned ones take seconds."""
NO_FORKS_HANG = sys.version_info >= (3, 12)
"""Before, a child that is forked while a thread of gloo enters Python waits for a lock that nobody releases."""


class Rank(NamedTuple):
    """The process of a rank, and the pipes to its standard input and from its standard output."""

    program: preloaded.Program
    orders: int
    answers: int


class Ranks:
    """The processes of a number of ranks, which run stages together."""

    def __init__(self, ranks: int, log: Path) -> None:
        self._log = log.open("ab")
        self._count, self._started = ranks, 0
        self._ranks: list[Rank] = []
        self._start()

    def _start(self) -> None:
        ranks = self._count
        self._started += 1
        for rank in range(ranks):
            env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
            if ranks > 1:
                group: dict[str, Any] = {
                    "RANK": rank,
                    "LOCAL_RANK": rank,
                    "WORLD_SIZE": ranks,
                    "LOCAL_WORLD_SIZE": ranks,
                }
                group |= {"GROUP_RANK": 0, "MASTER_ADDR": "none", "MASTER_PORT": 1, "TORCHELASTIC_RUN_ID": "x"}
                group["FSABS_TEST_STORE"] = (
                    f"{self._log.name}.store{self._started}"  # a file: a port may be taken before it is used
                )
                env |= {name: str(value) for name, value in group.items()}
            (theirs, orders), (answers, own) = os.pipe(), os.pipe()
            files = (theirs, own, self._log.fileno())
            program = preloaded.start(IMPORTS, ["-m", "tests.adapters.drivers"], files, cwd=ROOT, env=env)
            os.close(theirs)
            os.close(own)
            self._ranks.append(Rank(program, orders, answers))

    def run(self, stage: Stage) -> list[Answer]:
        """Return the answers of the ranks to a stage; kill them then, if they are to be, while they go on."""
        line = json.dumps(stage).encode() + b"\n"
        for rank in self._ranks:
            with open(rank.orders, "wb", closefd=False) as orders:
                orders.write(line)
        end = time.monotonic() + SECONDS
        answers = [Answer(*json.loads(self._line(rank, end))) for rank in self._ranks]
        if stage.killed:
            self._kill()
            self._start()
        return answers

    def _line(self, rank: Rank, end: float) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([rank.answers], [], [], max(0.0, end - time.monotonic()))
            more = os.read(rank.answers, 1 << 20) if ready else b""
            if not more:
                state = "hangs" if ready == [] else "has ended"
                raise AssertionError(f"a rank {state}: {Path(self._log.name).read_text()[-3000:]}")
            found += more
        return found

    def _kill(self) -> None:
        for rank in self._ranks:  # and not their workers, which have to end by themselves
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.program.pid, signal.SIGKILL)
        for rank in self._ranks:
            rank.program.wait(SECONDS)
            os.close(rank.orders)
            os.close(rank.answers)
        self._ranks.clear()

    def close(self) -> None:
        """End the processes."""
        self._kill()
        self._log.close()


class Part(NamedTuple):
    """What one stage of a job has that the next one may not have."""

    batch_size: int
    workers: int
    ranks: int
    stop: int | None
    method: str = "fork"
    persistent: bool = False
    killed: bool = False


class Job(NamedTuple):
    """A job in stages, each of which but the last is stopped."""

    driver: str
    kind: str
    counts: list[int]
    uneven: str
    epochs: int
    snapshots: int
    parts: list[Part]


def random_job(driver: str, rng: random.Random) -> Job:
    """Return a job of a driver."""
    counts = [rng.randint(0, 40) for _ in range(rng.randint(2, 5))]
    counts.append(rng.randint(20, 60))
    epochs = rng.choice([1, 2, 3])
    parts = []
    ranks = [rng.choice([1, 2]) for _ in range(rng.choice([2, 2, 3]))]
    for number, several in enumerate(ranks):
        batch_size = rng.randint(1, 9)
        steps = max(1, epochs * sum(counts) // several // batch_size // len(ranks))
        stop = rng.randint(1, steps) if number + 1 < len(ranks) else None
        method = rng.choice(METHODS if several == 1 or NO_FORKS_HANG else METHODS[1:])
        workers = rng.choice([0, 1, 2] if method != "spawn" else [1, 1, 2])
        killed = stop is not None and rng.random() < 0.3
        parts.append(Part(batch_size, workers, several, stop, method, rng.random() < 0.5, killed))
    uneven = "drop" if driver in IN_STEP and max(ranks) > 1 else rng.choice(["keep", "keep", "drop"])
    return Job(driver, rng.choice(["sharded", "map"]), counts, uneven, epochs, rng.choice([1, 1, 3]), parts)


def run_job(job: Job, sets: dict[int, Ranks], folder: Path) -> str | None:
    """Run a job; return why it was refused, or None. Fails if a sample is lost or comes twice."""
    seen: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(job.epochs)}
    states: list[Any] = []
    epoch, allowed = 0, 0
    for part in job.parts:
        stage = Stage(
            job.driver,
            job.kind,
            job.counts,
            job.uneven,
            part.batch_size,
            part.workers,
            part.method,
            part.persistent,
            job.epochs,
            part.stop,
            part.killed,
            job.snapshots,
            epoch,
            states,
            str(folder),
        )
        answers = sets[part.ranks].run(stage)
        allowed += part.ranks - 1 if job.uneven == "drop" else 0
        refused = {answer.refused for answer in answers}
        if refused != {None}:
            assert None not in refused, f"{job}: some ranks go on, others say {refused}"
            return str(refused)
        for answer in answers:
            for number, batch in answer.seen:
                assert number < job.epochs, f"{job}: epoch {number}"
                seen[number].update(batch)
        epochs = {tuple(number for number, _ in answer.seen) for answer in answers}
        assert len(epochs) == 1, f"{job}: ranks are in different epochs: {epochs}"
        states = [answer.state for answer in answers]
        if None in states:
            break  # it has ended before it was stopped
        epoch = max(answer.epoch for answer in answers)
    whole = Counter(range(sum(job.counts)))
    for number, samples in seen.items():
        assert not samples - whole, f"{job}: epoch {number} repeats {samples - whole}"
        assert (whole - samples).total() <= allowed, f"{job}: epoch {number} loses {whole - samples}"
    return None


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Ranks]]:
    """The processes of one rank, and of two."""
    folder = tmp_path_factory.mktemp("ranks")
    found = {ranks: Ranks(ranks, folder / f"log{ranks}") for ranks in (1, 2)}
    yield found
    for one in found.values():
        one.close()


def missing(driver: str) -> str | None:
    """Return what to do where the library of a driver is not installed."""
    name = LIBRARIES.get(driver, "torch")
    return None if importlib.util.find_spec(name) else f"{name} is not installed: pip install -e '.[test]'"


COUNTS = [15, 17, 29, 0, 22, 7, 30]
SENTINELS = (
    Job("loader", "sharded", COUNTS, "keep", 2, 1, [Part(4, 2, 2, 6, "forkserver"), Part(3, 0, 1, None)]),
    Job("loader", "map", COUNTS, "drop", 2, 1, [Part(4, 0, 2, 9), Part(5, 1, 2, None, "forkserver", True)]),
    Job("plain", "map", COUNTS, "keep", 2, 1, [Part(4, 2, 1, 9, "fork", False, True), Part(6, 0, 2, None)]),
    Job("plain", "sharded", COUNTS, "drop", 2, 1, [Part(4, 1, 2, 9, "forkserver"), Part(6, 2, 1, None, "fork", True)]),
    Job("stateful", "sharded", COUNTS, "keep", 2, 1, [Part(4, 2, 2, 5, "forkserver", True), Part(4, 2, 1, None)]),
    Job("stateful", "map", COUNTS, "keep", 2, 1, [Part(4, 2, 1, 5), Part(4, 2, 1, None)]),
    # Stopped after the last batch of an epoch, whose counters say of the next epoch that it has ended.
    Job("lightning", "map", COUNTS, "drop", 3, 1, [Part(6, 0, 2, 10), Part(5, 0, 2, 11), Part(4, 0, 2, None)]),
    Job("lightning", "sharded", COUNTS, "keep", 2, 1, [Part(4, 0, 1, 10), Part(4, 2, 1, 9), Part(8, 0, 1, None)]),
    Job("accelerate", "sharded", COUNTS, "drop", 2, 1, [Part(4, 0, 2, 7, "fork", False, True), Part(6, 1, 1, None)]),
    Job("trainer", "map", COUNTS, "drop", 2, 1, [Part(4, 0, 2, 6), Part(6, 0, 1, None)]),
    Job("trainer", "sharded", COUNTS, "keep", 2, 1, [Part(4, 0, 1, 6), Part(5, 1, 1, None)]),
)


@pytest.mark.timeout(300)
def test_jobs_of_each_driver_resume_with_other_batches_and_ranks(sets: dict[int, Ranks], tmp_path: Path) -> None:
    """In one test, since the libraries take ten seconds to import."""
    for number, job in enumerate(SENTINELS):
        require(functools.partial(missing, job.driver))
        (folder := tmp_path / str(number)).mkdir()
        assert run_job(job, sets, folder) is None, job
        assert not list(folder.rglob("*.ckpt"))  # Lightning removes its checkpoints by our plugin, too


def may_refuse(job: Job, reason: str) -> bool:
    """Return whether a driver may refuse a job for this reason."""
    if job.uneven == "keep" and "uneven='drop' leaves them out" in reason:
        return True
    return job.driver == "stateful" and job.snapshots > 1 and "batches before the last one" in reason


@pytest.mark.nightly
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("driver", DRIVERS)
def test_each_sample_comes_once_whoever_drives(driver: str, sets: dict[int, Ranks], tmp_path: Path) -> None:
    require(lambda: missing(driver))
    rng = random.Random(f"{driver} {soak.seed(4)}")
    jobs = soak.rounds(JOBS[driver])
    for number in range(jobs):
        job = random_job(driver, rng)
        (folder := tmp_path / str(number)).mkdir()
        reason = run_job(job, sets, folder)
        assert reason is None or may_refuse(job, reason), f"{job}: {reason}"
    soak.count("jobs of other drivers stopped and resumed", jobs)
