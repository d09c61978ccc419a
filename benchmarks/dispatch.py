"""Tasks dispatched and reported a second on SQLite and PostgreSQL; how that grows; reading through TaskDataService."""

from __future__ import annotations

from tests.servers.postgresql import PostgreSQL

from .contestants.dispatching import PASSES
from .frame.measure import at_least, at_most
from .frame.race import Bench
from .recordio import COUNT, make_records

PROCESSES = 8
TASKS = 4000
SHARDS = 4
PER_TASK = 16_384
FEW, MANY = 1000, 1_000_000
TAKEN = 500
"""Tasks of a round that measures growth."""


def run(bench: Bench) -> None:
    """The dispatch rate of both databases, its growth, a large job's creation, and the cost of a record."""
    with PostgreSQL(fsync=True) as server:
        urls = {"SQLite": f"sqlite:///{bench.folder}/rate.db", "PostgreSQL": server.database_url()}
        for (name, url), least in zip(urls.items(), (1500, 2000), strict=True):
            rate(bench, name, url, least)
        for name in ("SQLite", "PostgreSQL"):
            few, many = (
                f"sqlite:///{bench.folder}/{size}.db" if name == "SQLite" else server.database_url()
                for size in ("few", "many")
            )
            growth(bench, name, few, many)
        urls = {"SQLite": f"sqlite:///{bench.folder}/create.db", "PostgreSQL": server.database_url()}
        for name, url in urls.items():
            creation(bench, name, url)
    reading(bench)
    bench.note(
        "PostgreSQL waits for the disk when a task is reported (fsync); SQLite is in WAL mode, synchronous=NORMAL."
    )


def rate(bench: Bench, name: str, url: str, least: float) -> None:
    """A job of which eight processes lease and report one task after the other."""
    with bench.race(f"dispatch and report, {PROCESSES} processes, {name}", "task", rounds=5) as race:
        one = race.ours("8 processes", "dispatching.drained", TASKS, url=url, processes=PROCESSES, tasks=TASKS)
        race.ours("1 process", "dispatching.drained", TASKS, url=url, processes=1, tasks=TASKS)
        race.run()
        race.table("seconds", "us/task", 1e6)
        rates = [1 / seconds for seconds in race.values(one, "seconds")]
        bench.claim(f"dispatch and report, {PROCESSES} processes, {name}", rates, "tasks/s", at_least(least, "tasks/s"))


def growth(bench: Bench, name: str, few_url: str, many_url: str) -> None:
    """The same by one process, at the end of a job of a thousand tasks and of one of a million."""
    with bench.race(f"dispatch and report as a job grows, {name}", "task", rounds=5) as race:
        few = race.ours(f"{FEW:,} tasks", "dispatching.grown", TAKEN, url=few_url, tasks=FEW, take=TAKEN)
        many = race.ours(f"{MANY:,} tasks", "dispatching.grown", TAKEN, url=many_url, tasks=MANY, take=TAKEN)
        race.run()
        race.table("seconds", "us/task", 1e6)
        race.cheaper(many, few, at_most(1.3), "seconds", "time")


def creation(bench: Bench, name: str, url: str) -> None:
    """Creating a job of a million tasks."""
    with bench.race(f"create a job, {name}", "job", rounds=3) as race:
        one = race.ours(f"{MANY:,} tasks of {MANY // 1000:,} shards", "dispatching.created", 1, url=url, tasks=MANY)
        race.run()
        race.table("seconds", "s/job", 1)
        bench.claim(f"create {MANY:,} tasks, {name}", race.values(one, "seconds"), "s", at_most(10, "s"))


def reading(bench: Bench) -> None:
    """Records through TaskDataService against the plain reader of the same shards."""
    source = bench.folder / "records"
    make_records(source)
    options = {"source": str(source), "folder": str(bench.folder / "shards"), "shards": SHARDS}
    url = f"sqlite:///{bench.folder}/reading.db"
    each = PASSES * COUNT
    with bench.race("records of RecordIO shards", "record", rounds=7) as race:
        ours = race.ours("TaskDataService", "dispatching.service", each, **options, url=url, records_per_task=PER_TASK)
        plain = race.ours("its data reader, shard by shard", "dispatching.plain", each, **options)
        race.ours(
            "TaskDataService, tasks of 1,000",
            "dispatching.service",
            each,
            **options,
            url=f"{url}.2",
            records_per_task=1000,
        )
        race.run()
        race.table("seconds", "us/record", 1e6)
        race.faster(ours, plain, at_least(0.93))
    bench.note(f"Tasks of up to {PER_TASK:,} records (a shard) last a few milliseconds here; {PASSES} epochs a round.")
