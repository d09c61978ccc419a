"""Is what a trace says true? Workloads with a planted cause, against a store that keeps its own books.

    python -m benchmarks.simulations.trace_truth [--document] [NAME...]

A workload is run without workers, and with two that are forked; some with workers that are spawned, or started by a
forkserver. Of each run: does each part of the time have what the books of
the store and of the job have (within 10 %, or 2 % of all), does the first finding name the planted cause, and does
following its advice save what it said (within 30 %, or 0.3 s)? `--document` writes the table of docs/tracing.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import io
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.planned_bucket import ClientBook, Plan, Served, serving

PAGE = Path(__file__).parents[2] / "docs" / "tracing.md"
BEGIN, END = "<!-- truth: begin -->", "<!-- truth: end -->"
METHODS = ("fork", "spawn", "forkserver")
PARTS = {
    "first byte": ("connect", "first_byte"),
    "transfer": ("transfer",),
    "held back": ("throttle", "backoff"),
    "list": ("list",),
    "disk": ("disk",),
    "decompress": ("decompress",),
    "decode": ("decode",),
    "startup": ("startup",),
    "on the way": ("read_ahead",),
    "checkpoint": ("checkpoint",),
    "step": ("step",),
}
"""Parts of the time as the books have them, and the causes of a trace that they are."""
CLOSE, LITTLE = 0.1, 0.02
"""A part is right if it is off by this part of itself, or by this part of all of the time."""
CLOSE_COST, LITTLE_COST = 0.3, 0.3
"""A cost is right if it is off by this part of what is saved, or by so many seconds."""
OF_WORKERS = {"F008", "F019"}
"""Other advice doesn't change how long workers take to start, which differs by seconds where they are spawned."""
SEEK, PIECE = 100, 20_000
"""Bytes of a read of `seeks`, and of one of `pieces`."""
MEMBERS = 60
"""Of a zip or tar."""


class Job(NamedTuple):
    """A training loop, and how its batches are made."""

    read: str = "one by one"
    """`one by one`, `together` (one `read_many` for a batch), `threads`, `zip`, `tar`, `seeks`, `pieces`, `ranges`."""
    size: int = 20_000
    samples: int = 240
    batch: int = 8
    workers: int = 0
    method: str = "fork"
    persistent: bool = True
    decode: float = 0.0
    """Seconds of each sample, asleep."""
    compute: float = 0.0
    """Seconds of each sample, of the CPU."""
    step: float = 0.005
    """Seconds of each step, asleep."""
    epochs: int = 1
    cache: int = 0
    """Bytes of a cache on disk; 0 is none."""
    warm: bool = False
    """The cache is filled before the trace begins."""
    block: int = 1 << 20
    """Bytes of a block of the cache."""
    objects: int = 0
    """So many objects are read again and again; 0 is each once."""
    listed: bool = False
    """The names are listed first."""
    looked_for: bool = False
    """`exists` before each read."""
    searched: bool = False
    """A listing for each batch."""
    slow: float = 0.0
    """Seconds that worker 1 takes longer for each sample."""
    checkpoint: bool = False
    """An object is written after each tenth step."""
    numbers: int = 0
    """Objects of Python that each sample is made of: quickly made, slow to pickle."""
    stored: bool = False
    """The members of the zip are not compressed."""
    buffer: int = -1
    """Bytes of the buffer of `seeks` and `pieces`."""


class Workload(NamedTuple):
    """A job over a store, and what is wrong with it."""

    name: str
    codes: str
    """One of these is the first finding; none of a healthy job."""
    plan: Plan
    job: Job
    followed: dict[str, Any]
    """Changes of the job, or with `plan.` of the store, that follow the advice, where that is not more workers."""
    workers: Sequence[int] = (0, 2)
    rest: str = ""
    """The part of the time that is the rest of reading: what neither the store nor the job has in its books."""
    noted: str = ""
    """A finding that must be there, too."""
    methods: Sequence[str] = METHODS[:1]


NEAR, SLOW, FAR = (Plan(seconds, size=20_000, objects=1000) for seconds in (0.001, 0.05, 0.2))
LOOP = Job("together")
CACHED = Job("together", cache=10**8, epochs=3)
WORKLOADS = (
    Workload("small reads, one by one", "F015", SLOW, Job(samples=120), {"read": "together"}, methods=METHODS),
    Workload("larger reads, one by one", "F015", SLOW, Job(size=100_000, samples=120), {"read": "together"}),
    Workload("a far store", "F008", FAR, LOOP._replace(samples=480), {}),
    Workload("narrow connections", "F008", Plan(0.001, 1e5), LOOP, {}),
    Workload("a tar", "F008", Plan(0.001, 2e6), Job("tar", 50_000, 480), {}),
    Workload(
        "throttled",
        "F006",
        Plan(0.001, refused=4),
        Job(samples=80),
        {"plan.refused": 0},
        rest="held back",
        methods=METHODS,
    ),
    Workload("cut connections", "F006", Plan(0.15, cuts=3), LOOP, {"plan.cuts": 0}),
    Workload(
        "a slow tail", "F012", Plan(0.01, slow=40, slow_latency=0.8), LOOP._replace(samples=400), {"plan.slow": 0}
    ),
    Workload("compressed members", "F011", NEAR, Job("zip", 300_000), {"stored": True}, rest="decompress"),
    Workload("decoding, asleep", "F029", NEAR, LOOP._replace(decode=0.02), {"decode": 0.0}, methods=METHODS),
    Workload("decoding, computing", "F018", NEAR, LOOP._replace(compute=0.02, samples=480), {"compute": 0.0}),
    Workload(
        "threads that compute", "F023", NEAR, Job("threads", compute=0.02), {"read": "together", "workers": 2}, (0,)
    ),
    Workload("a cold cache", "F017", FAR, CACHED, {"warm": True}, rest="disk", methods=METHODS),
    Workload("a cache of a fifth", "F004", FAR, CACHED._replace(cache=1_000_000), {"cache": 10**8}, rest="disk"),
    Workload("a cache of half", "F004", FAR, CACHED._replace(cache=2_500_000), {"cache": 10**8}, rest="disk"),
    Workload("a warm cache", "", FAR, CACHED._replace(samples=64, warm=True, step=0.4), {}, rest="disk"),
    Workload("the same again and again", "F009", FAR, LOOP._replace(objects=12), {"cache": 10**8}),
    Workload("one slow worker", "F007", NEAR, LOOP._replace(slow=0.02, samples=640), {"slow": 0.0}, (4,)),
    Workload("too few workers", "F008", FAR, LOOP._replace(step=0.02, samples=480), {}, (1,)),
    Workload(
        "too many workers", "F018", NEAR, LOOP._replace(compute=0.01, samples=1600), {"compute": 0.0}, (16,), "", "F027"
    ),
    Workload(
        "workers for each epoch",
        "F019",
        NEAR,
        LOOP._replace(samples=80, epochs=3, persistent=False),
        {"persistent": True},
        (2,),
        methods=("spawn", "forkserver"),
    ),
    Workload("large batches", "F020", NEAR, LOOP._replace(numbers=200_000), {"numbers": 0}, (2,), methods=METHODS),
    Workload("reading and computing in turns", "F008", FAR, LOOP._replace(step=0.2), {}, (0,)),
    Workload(
        "checkpoints",
        "F021",
        Plan(0.001, writing=1.5),
        LOOP._replace(step=0.05, checkpoint=True),
        {"checkpoint": False},
    ),
    Workload(
        "a listing at the start",
        "F026",
        Plan(0.001, listing=0.6, objects=5000),
        LOOP._replace(listed=True),
        {"listed": False},
        methods=METHODS,
    ),
    Workload(
        "listings in the steps",
        "F014",
        Plan(0.001, listing=0.1),
        LOOP._replace(samples=800, searched=True),
        {"searched": False},
    ),
    Workload("stat before open", "F014", SLOW, Job(samples=120, looked_for=True), {"looked_for": False}),
    Workload("seeks", "F005", Plan(0.001, 5e6), Job("seeks", 20_000_000, buffer=1 << 17), {"read": "ranges"}),
    Workload(
        "pieces of a large file",
        "F005",
        Plan(0.001, 5e6),
        Job("pieces", 80_000_000, cache=10**8),
        {"block": 16_384},
        rest="disk",
    ),
    Workload("healthy", "", NEAR, LOOP._replace(samples=32, step=2.0), {}, methods=METHODS),
)


# ---- the job, in a process of its own


@dataclasses.dataclass
class Batch:
    """What made a batch, and in how many seconds: the books of the job."""

    maker: str
    begin: float
    """As `time.monotonic()`."""
    took: float = 0.0
    reading: float = 0.0
    decode: float = 0.0
    list: float = 0.0
    numbers: Any = None


class Dataset:
    """Samples of a bucket; each worker reads below a prefix of its own, by which the store knows it."""

    def __init__(self, endpoint: str, job: Job, cache: str) -> None:
        import fsabs

        self.fs: Any = fsabs.from_url("s3://bucket/", endpoint=endpoint, region="us-east-1")
        if job.cache:
            self.fs = fsabs.CachedFS(
                self.fs, cache, max_bytes=job.cache, block_size=job.block, memory_bytes=0, check_interval=3600
            )
        self.job = job
        self._opened: Any = None
        self._numbers = [float(number) for number in range(job.numbers)]

    def __len__(self) -> int:
        return self.job.samples

    def __getitems__(self, numbers: list[int]) -> list[Batch]:
        """Return the books of a batch."""
        job = self.job
        made = Batch(_maker(), time.monotonic())
        contents, made.numbers = self._contents(made, numbers), []
        while True:
            with _added(made, "reading"):
                if next(contents, None) is None:
                    break
            with _added(made, "decode"):
                if asleep := job.decode + (job.slow if made.maker == "1" else 0.0):
                    time.sleep(asleep)
                end = time.thread_time() + job.compute
                while job.compute and time.thread_time() < end:
                    pass
                made.numbers.append(self._numbers[:])
        made.reading -= made.list
        made.took = time.monotonic() - made.begin
        return [made]

    def _contents(self, made: Batch, numbers: list[int]) -> Iterator[object]:
        """Yield the contents of samples; what looks for files is added to `made.list`."""
        job = self.job
        names = [f"{made.maker}/{job.size}-{number % (job.objects or job.samples):06}" for number in numbers]
        if job.searched:
            with _added(made, "list"):
                assert not list(self.fs.glob(f"{made.maker}/none-*"))
        if job.read in ("together", "threads"):
            yield from self.fs.read_many(names)
        elif job.read == "one by one":
            for name in names:
                if job.looked_for:
                    with _added(made, "list"):
                        assert self.fs.exists(name)
                yield self.fs.read_bytes(name)
        elif job.read == "zip":
            for number in numbers:
                yield self._open(made).read_bytes(str(number % MEMBERS))
        elif job.read == "tar":
            yield from self._open(made).read_many([str(number % MEMBERS) for number in numbers])
        else:
            size = PIECE if job.read == "pieces" else SEEK
            places = [number * 7919 * 4096 % (job.size - size) for number in numbers]
            opened = self._open(made)
            if job.read == "ranges":
                yield from opened.pread_many([(size, place) for place in places])
            else:
                for place in places:
                    opened.seek(place)
                    yield opened.read(size)

    def _open(self, made: Batch) -> Any:
        """Return the container or file that a maker reads, opened once."""
        if self._opened is None:
            job = self.job
            with _added(made, "list"):
                if job.read in ("zip", "tar"):
                    self._opened = self.fs.open_container(container(made.maker, job))
                elif job.read == "ranges":
                    self._opened = self.fs.open_blob(f"{made.maker}/{job.size}-000000")
                else:
                    self._opened = self.fs.open(f"{made.maker}/{job.size}-000000", "rb", buffering=job.buffer)
        return self._opened


def container(maker: str, job: Job) -> str:
    """Return the name of the container that a maker reads."""
    return f"{maker}/{'stored' if job.stored else 'train'}.{job.read}"


@contextlib.contextmanager
def _added(made: Batch, part: str) -> Iterator[None]:
    begin = time.monotonic()
    try:
        yield
    finally:
        setattr(made, part, getattr(made, part) + time.monotonic() - begin)


def _maker() -> str:
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return "main" if info is None else str(info.id)


def _as_is(batch: list[Batch]) -> list[Batch]:
    return batch


class Threads:
    """Batches of an epoch that four threads make, two for each ahead of their use."""

    def __init__(self, dataset: Dataset) -> None:
        job, self._dataset = dataset.job, dataset
        self._numbers = [list(range(at, at + job.batch)) for at in range(0, job.samples, job.batch)]

    def __iter__(self) -> Iterator[list[Batch]]:
        with ThreadPoolExecutor(4) as threads:
            made = [threads.submit(self._dataset.__getitems__, some) for some in self._numbers[:8]]
            for at in range(len(self._numbers)):
                yield made[at].result()
                made += [threads.submit(self._dataset.__getitems__, some) for some in self._numbers[at + 8 : at + 9]]


class Books(NamedTuple):
    """The books of a job: its seconds, and what each of its batches took."""

    wall: float
    parts: dict[str, float]
    """By the names of `PARTS`: of the loop itself, and what nobody worked for while it waited."""
    waits: dict[str, float]
    """The loop waited for so long while makers worked; a moment is divided among those that do."""
    made: dict[str, dict[str, float]]
    """Of each maker: `took`, `reading`, `decode`, `list`."""
    before: dict[str, dict[str, float]]
    """The store's book of each client when the job began."""


def train(endpoint: str, job: Job, folder: str) -> Books:
    """Run a job with a trace, and return its books, without the time of starting Python."""
    from torch.utils.data import DataLoader

    from fsabs import trace

    with tempfile.TemporaryDirectory() as cache:
        dataset: Any = Dataset(endpoint, job, cache)
        for maker in range(job.workers) if job.workers else ("main",):
            if job.warm:
                list(dataset.fs.read_many([f"{maker}/{job.size}-{number:06}" for number in range(job.samples)]))
            if job.read in ("zip", "tar"):
                dataset.fs.open_container(container(str(maker), job)).close()  # the index is kept
        kept = _Keeper(job, dataset.fs, Served(endpoint).clients())
        loader: Any = Threads(dataset) if job.read == "threads" else DataLoader(
            dataset,
            job.batch,
            num_workers=job.workers,
            multiprocessing_context=job.method if job.workers else None,
            persistent_workers=job.persistent and bool(job.workers),
            collate_fn=_as_is,
        )  # fmt: skip
        begin = time.monotonic()
        with trace.record(folder):
            if job.listed:
                assert sum(1 for _ in dataset.fs.list()) > job.samples
                kept.parts["list"] = time.monotonic() - begin
            for _ in range(job.epochs):
                kept.run(trace.steps(loader))
        return kept.books(time.monotonic() - begin)


class _Keeper:
    """Runs epochs, and keeps the books."""

    def __init__(self, job: Job, fs: Any, before: dict[str, dict[str, float]]) -> None:
        self._job, self._fs, self._before = job, fs, before
        self.parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._batches: list[Batch] = []
        self._waits: dict[str, float] = collections.defaultdict(float)

    def run(self, steps: Any) -> None:
        """Run an epoch."""
        job, batches = self._job, list[Batch]()
        waits = list[tuple[float, float]]()
        since = time.monotonic()
        for number, made in enumerate(steps):
            got = time.monotonic()
            waits.append((since, got))
            for one in made:
                one.numbers = None
            batches += made
            time.sleep(job.step)
            stepped = time.monotonic()
            self.parts["step"] += stepped - got
            if job.checkpoint and number % 10 == 9:
                self._fs.write_bytes("checkpoint", bytes(1000))
            since = time.monotonic()
            self.parts["checkpoint"] += since - stepped
        self._batches += batches
        self._divide(waits, batches)

    def _divide(self, waits: list[tuple[float, float]], batches: list[Batch]) -> None:
        """Divide the waiting by whether anything is made: else workers are starting, or batches are on their way."""
        first = {one.maker: one.begin for one in sorted(batches, key=lambda one: -one.begin)}
        started = max(first.values())
        work = [(one.begin, one.begin + one.took, one.maker) for one in batches]
        for since, until in waits:
            near = [one for one in work if one[0] < until and one[1] > since]
            times = {time for one in near for time in one[:2] if since < time < until}
            for begin, end in itertools.pairwise(sorted({since, *times, until})):
                working = [maker for at, till, maker in near if at <= begin and end <= till]
                for maker in working:
                    self._waits[maker] += (end - begin) / len(working)
                if not working:
                    self._idle(begin, end, started)

    def _idle(self, begin: float, end: float, started: float) -> None:
        if self._job.workers:
            self.parts["startup"] += max(0.0, min(end, started) - begin)
            self.parts["on the way"] += max(0.0, end - max(begin, started))

    def books(self, wall: float) -> Books:
        """Return them."""
        made: dict[str, dict[str, float]] = {}
        for batch in self._batches:
            maker = made.setdefault(batch.maker, {"took": 0.0, "reading": 0.0, "decode": 0.0, "list": 0.0})
            for part in maker:
                maker[part] += getattr(batch, part)
        return Books(wall, self.parts, self._waits, made, self._before)


# ---- what is true, and what the trace says


class Run(NamedTuple):
    """A job that was run: its books, and those of the store."""

    books: Books
    clients: dict[str, dict[str, float]]

    def parts(self, rest: str) -> dict[str, float]:
        """Return the seconds of each part of the time: those of the makers make up the waiting."""
        found = dict(self.books.parts)
        for name, maker in self.books.made.items():
            now, before = (book.get(name, {}) for book in (self.clients, self.books.before))
            store = {cause: now.get(cause, 0.0) - before.get(cause, 0.0) for cause in ClientBook.CAUSES}
            of_maker = {
                "first byte": store["first_byte"], "transfer": store["transfer"], "held back": store["held"],
                "decode": maker["decode"], "list": maker["list"],
            }  # fmt: skip
            if rest:
                known = sum(seconds for part, seconds in of_maker.items() if part not in (rest, "decode", "list"))
                of_maker[rest] = maker["reading"] - known
            for part, seconds in of_maker.items():
                found[part] += seconds * self.books.waits.get(name, 0.0) / maker["took"]
        return found


def run(plan: Plan, job: Job, folder: str) -> Run:
    """Run a job in a process of its own."""
    makers = tuple(map(str, range(job.workers))) or ("main",)
    with (
        tempfile.TemporaryDirectory() as objects,
        serving(plan._replace(folder=objects, clients=makers if job.cache else ())) as served,
    ):
        if job.read in ("zip", "tar"):
            write_container(Path(objects), job)
        command = [
            sys.executable,
            "-m",
            "benchmarks.simulations.trace_truth",
            "--job",
            json.dumps(job),
            served.endpoint,
            folder,
        ]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        environment["FSABS_CACHE_DIR"] = os.path.join(objects, "cache")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return Run(Books(*json.loads(done.stdout)), served.clients())


def write_container(folder: Path, job: Job) -> None:
    """Write the zip or tar that a job reads; members of the zip have a fourth of their size, by bzip2."""
    made = random.Random(1)
    content = bytes(made.choices(b"abcd", k=job.size)) if job.read == "zip" else made.randbytes(job.size)
    if job.read == "tar":
        with tarfile.open(folder / "train.tar", "w") as archive:
            for number in range(MEMBERS):
                member = tarfile.TarInfo(str(number))
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return
    kind = zipfile.ZIP_STORED if job.stored else zipfile.ZIP_BZIP2
    with zipfile.ZipFile(folder / f"{'stored' if job.stored else 'train'}.zip", "w") as packed:
        for number in range(MEMBERS):
            packed.writestr(str(number), content[: len(content) // 4] if job.stored else content, kind)


class Verdict(NamedTuple):
    """What a trace of a run says, against what is true."""

    workload: str
    workers: int
    method: str
    seconds: float
    worst: str
    """The part of the time that is furthest off, and by how much of itself."""
    parts_are_right: bool
    first: str
    is_named: bool
    cost: float
    saved: float | None
    cost_is_right: bool


def judge(workload: Workload, job: Job) -> Verdict:
    """Run a workload, and compare."""
    from fsabs import trace

    with tempfile.TemporaryDirectory() as folder:
        true = run(workload.plan, job, os.path.join(folder, "trace"))
        analysis = trace.analyze(os.path.join(folder, "trace"))
        whole, wall = analysis.breakdown[0], true.books.wall
        off: dict[str, float] = {"sum": whole.seconds - wall}
        expected = true.parts(workload.rest)
        told = {part: sum(whole.causes[cause] for cause in causes) for part, causes in PARTS.items()}
        for part, seconds in expected.items():
            if seconds or part != workload.rest:
                off[part] = told[part] - seconds
        if not workload.rest:  # what reading costs beside is a little, and neither's
            off.pop("disk"), off.pop("decompress")
        expected["sum"] = wall
        beyond = {part: abs(by) / max(CLOSE * expected[part], LITTLE * wall) for part, by in off.items()}
        worst = max(beyond, key=lambda part: beyond[part])
        grave = [finding for finding in analysis.findings if finding.severity != "note"]
        first = grave[0] if grave else None
        saved = None
        if first is not None and (workload.followed or "better" in first.evidence):
            changes: dict[str, Any] = (
                workload.followed if "better" not in first.evidence else {"workers": first.evidence["better"]}
            )
            of_plan: dict[str, Any] = {k[5:]: v for k, v in changes.items() if k.startswith("plan.")}
            of_job: dict[str, Any] = {k: v for k, v in changes.items() if not k.startswith("plan.")}
            plan, better = workload.plan._replace(**of_plan), job._replace(**of_job)
            after = run(plan, better, os.path.join(folder, "better"))
            saved = wall - after.books.wall
            if first.code not in OF_WORKERS:
                saved -= true.books.parts["startup"] - after.books.parts["startup"]
        cost = first.seconds if first is not None else 0.0
        return Verdict(
            workload.name, job.workers, job.method if job.workers else "", wall,
            f"{worst} {expected[worst]:.2f} s {off[worst]:+.2f}", beyond[worst] <= 1,
            first.code if first is not None else "none",
            (first.code in workload.codes.split() if first is not None else not workload.codes)
            and (not workload.noted or workload.noted in {finding.code for finding in analysis.findings}),
            cost, saved, saved is None or abs(cost - saved) <= max(CLOSE_COST * saved, LITTLE_COST),
        )  # fmt: skip


def row(one: Verdict) -> str:
    """Return a line of the table."""
    how = f"{one.workers} {one.method}".strip()
    mark = {True: "", False: " **(!)**"}
    saved = "" if one.saved is None else f"{one.saved:.1f} s{mark[one.cost_is_right]}"
    return (
        f"| {one.workload} | {how} | {one.seconds:.1f} s | {one.worst}{mark[one.parts_are_right]} "
        f"| {one.first}{mark[one.is_named]} | {one.cost:.1f} s | {saved} |"
    )


HEAD = (
    "| workload | workers | took | the part that is furthest off | first finding | it costs | following it saved |\n"
    "|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Run the workloads that are named, or all; print a line for each run, and how many are right."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all without one")
    parser.add_argument("--document", action="store_true", help="write the table of docs/tracing.md")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)  # in this process
    options = parser.parse_args()
    if options.job:
        sys.stdout.write(json.dumps(train(options.job[1], Job(*json.loads(options.job[0])), options.job[2])))
        return
    verdicts, loads = [], [os.getloadavg()[0]]
    sys.stdout.write(f"{HEAD}\n")
    for workload in WORKLOADS:
        if options.names and workload.name not in options.names:
            continue
        for workers in workload.workers:
            for method in workload.methods if workers else METHODS[:1]:
                one = judge(workload, workload.job._replace(workers=workers, method=method))
                verdicts.append(one)
                loads.append(os.getloadavg()[0])
                sys.stdout.write(row(one) + "\n")
                sys.stdout.flush()
    right = [
        sum(column)
        for column in zip(*((one.parts_are_right, one.is_named, one.cost_is_right) for one in verdicts), strict=True)
    ]
    of = len(verdicts)
    summary = (
        f"Of {of} runs, on {os.cpu_count()} CPUs with a load of {min(loads):.0f} to {max(loads):.0f}, all parts of the "
        f"time are right in {right[0]}, the cause is named in {right[1]}, and its cost is right in {right[2]}."
    )
    sys.stdout.write(f"\n{summary}\n")
    if options.document:
        text = "\n".join([summary, "", HEAD, *map(row, verdicts)])
        found = re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{text}\n{END}", PAGE.read_text(), flags=re.DOTALL)
        PAGE.write_text(found)


if __name__ == "__main__":
    main()
