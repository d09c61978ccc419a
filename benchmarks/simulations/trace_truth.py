"""Is what a trace says true? Workloads with a planted cause, against a store that serves by plan.

Of each: whether each part of the time is what was planned, whether the first finding names the planted cause, and what
doing its advice saves, against what it said.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple, cast

from tests.servers.planned_bucket import Plan, serving

METHODS = ("fork", "spawn", "forkserver")
STORE_MS, SIZE = 0.02, 20_000


class Job(NamedTuple):
    """A training loop."""

    samples: int = 160
    batch: int = 8
    workers: int = 0
    method: str = "fork"
    many: bool = False
    """Whether a batch is read by one `read_many`, and not file by file."""
    decode: float = 0.0
    """Seconds of each sample, asleep."""
    compute: float = 0.0
    """Seconds of each sample, of the CPU."""
    step: float = 0.005
    epochs: int = 1
    cache: int = 0
    """Bytes of a cache on disk; 0 is none."""
    listed: bool = False
    """Whether the names are listed first."""
    slow: float = 0.0
    """Seconds that worker 1 takes longer for each sample."""
    seeks: int = 0
    """Reads of 100 bytes here and there of one file, in place of samples."""


class Workload(NamedTuple):
    """A job over a store, and what is wrong with it."""

    name: str
    plan: Plan
    job: Job
    codes: frozenset[str]
    """Any of these first; none for a healthy job."""
    causes: frozenset[str]
    """Where most of the waiting is."""
    advice: dict[str, Any]
    """Changes of the job (or, with `plan.`, of the store) that follow the advice."""


SLOW, FAST = Plan(latency=STORE_MS), Plan(latency=0.001)
FIRST, STORE = frozenset({"first_byte"}), frozenset({"first_byte", "transfer", "throttle", "backoff", "connect"})
DECODE = frozenset({"decode"})
ROWS = (
    Workload("small reads", SLOW, Job(), frozenset({"F001", "F015"}), FIRST, {"many": True}),
    Workload("slow bandwidth", Plan(latency=0.001, bandwidth=2e5), Job(many=True), frozenset({"F008", ""}), STORE, {}),
    Workload("throttled", Plan(latency=0.001, refused=4), Job(), frozenset({"F025"}), STORE, {"plan.refused": 0}),
    Workload("decode-bound", FAST, Job(decode=0.01, many=True), frozenset({"F018"}), DECODE, {"decode": 0.0}),
    Workload("CPU-bound", FAST, Job(compute=0.01, many=True), frozenset({"F018"}), DECODE, {"compute": 0.0}),
    Workload("turns", SLOW, Job(many=True, step=0.03, samples=800), frozenset({"F022"}), FIRST, {"workers": 2}),
    Workload(
        "listing-bound start",
        Plan(listing=0.6, objects=5000, size=1),
        Job(samples=40, listed=True),
        frozenset({"F026"}),
        frozenset({"list"}),
        {"listed": False},
    ),
    Workload("cold cache", SLOW, Job(cache=10**8, epochs=3), frozenset({"F001", "F015", "F017"}), FIRST, {}),
    Workload(
        "small cache", SLOW, Job(cache=10**6, epochs=3), frozenset({"F001", "F004", "F015"}), FIRST, {"cache": 10**8}
    ),
    Workload(
        "seeks",
        Plan(latency=0.001, bandwidth=2e7, objects=0),
        Job(seeks=600),
        frozenset({"F024", "F015", "F001"}),
        STORE,
        {},
    ),
    Workload("one slow worker", FAST, Job(slow=0.02, samples=640), frozenset({"F007"}), DECODE, {"slow": 0.0}),
    Workload("small reads, longer", SLOW, Job(samples=800), frozenset({"F001", "F015"}), FIRST, {"many": True}),
    Workload(
        "too few workers",
        Plan(latency=0.2),
        Job(step=0.02, many=True, samples=960, workers=1),
        frozenset({"F008", "F022"}),
        FIRST,
        {"workers": 8},
    ),
    Workload("healthy", FAST, Job(step=0.05, many=True), frozenset(), frozenset(), {}),
)


class Dataset:
    """Samples of a bucket."""

    def __init__(self, endpoint: str, job: Job, cache: str) -> None:
        import fsabs

        options: dict[str, Any] = {"cache": cache, "http_cache": None} if job.cache else {}
        self.fs = fsabs.from_url("s3://bucket/", endpoint=endpoint, region="us-east-1", **options)
        if job.cache:
            self.fs = fsabs.CachedFS(self.fs.inner, cache, max_bytes=job.cache, memory_bytes=0, check_interval=3600)
        self.job = job

    def __len__(self) -> int:
        return self.job.samples

    def __getitems__(self, numbers: list[int]) -> list[int]:
        """Return the sizes of a batch."""
        names = [f"{SIZE}-{number:06}" for number in numbers]
        found = []
        for data in self.fs.read_many(names) if self.job.many else map(self.fs.read_bytes, names):
            time.sleep(self.job.decode + (self.job.slow if _worker() == 1 else 0.0))
            end = time.thread_time() + self.job.compute
            while self.job.compute and time.thread_time() < end:
                pass
            found.append(len(data))
        return found


def _worker() -> int | None:
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return None if info is None else info.id


def train(endpoint: str, job: Job, folder: str) -> float:
    """Run a job with a trace, and return its seconds, without those of starting Python."""
    from torch.utils.data import DataLoader

    from fsabs import trace

    with tempfile.TemporaryDirectory() as cache:
        dataset = Dataset(endpoint, job, cache)
        begin = time.monotonic()
        with trace.record(folder):
            if job.listed:
                assert sum(1 for _ in dataset.fs.list()) > job.samples
            if job.seeks:
                with dataset.fs.open("20000000-000000", "rb") as file:
                    for number in range(job.seeks):
                        file.seek(number * 7919 * 4096 % 19_000_000)
                        file.read(100)
                return time.monotonic() - begin
            loader: DataLoader[Any] = DataLoader(
                cast("Any", dataset),
                job.batch,
                num_workers=job.workers,
                multiprocessing_context=job.method if job.workers else None,
                persistent_workers=bool(job.workers),
            )
            for _ in range(job.epochs):
                for _ in trace.steps(loader):
                    time.sleep(job.step)
        return time.monotonic() - begin


def measure(plan: Plan, job: Job, folder: str) -> float:
    """Run a job in a process of its own, and return its seconds."""
    with serving(plan) as served:
        command = [sys.executable, "-m", "benchmarks.simulations.trace_truth", served.endpoint, json.dumps(job), folder]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return float(done.stdout)


def compare(row: Workload, job: Job) -> dict[str, Any]:
    """Return what a trace of a job says, and what is true."""
    from fsabs import trace
    from fsabs.trace.results import WAITS

    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(row.plan, job, os.path.join(folder, "trace"))
        analysis = trace.analyze(os.path.join(folder, "trace"))
        whole = analysis.breakdown[0]
        worth = [finding for finding in analysis.findings if finding.severity != "note"]
        first = next(iter(worth), None)
        waits = sum(whole.causes[cause] for cause in WAITS)
        told = {
            "name": row.name, "workers": job.workers, "method": job.method if job.workers else "",
            "seconds": round(seconds, 2), "sum": round(whole.seconds, 2), "first": first.code if first else "",
            "planted": round(sum(whole.causes[cause] for cause in row.causes) / waits, 3) if waits else 0.0,
            "named": (first.code if first else "") in (row.codes or {""}),
            "cost": round(first.seconds, 2) if first else 0.0,
        }  # fmt: skip
        if row.advice and first:
            plan = row.plan._replace(**{k[5:]: v for k, v in row.advice.items() if k.startswith("plan.")})
            better = job._replace(**{k: v for k, v in row.advice.items() if not k.startswith("plan.")})
            told["saved"] = round(seconds - measure(plan, better, os.path.join(folder, "better")), 2)
    return told


def main() -> None:
    """Run all workloads, without workers and with two, and print what is said and what is true; with `--full`, also
    workers of spawn and forkserver.
    """
    for row, workers in itertools.product(ROWS, (0, 2)):
        for method in METHODS if "--full" in sys.argv and workers else METHODS[:1]:
            if row.job.workers + bool(row.job.slow) and not workers:
                continue  # of workers only
            job = row.job._replace(workers=row.job.workers or (4 if row.job.slow else workers), method=method)
            print(", ".join(f"{name} {value}" for name, value in compare(row, job).items()), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.stdout.write(str(train(sys.argv[1], Job(*json.loads(sys.argv[2])), sys.argv[3])))
    else:
        main()
