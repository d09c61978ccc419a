"""Tasks dispatched and reported a second on SQLite and PostgreSQL; reading through TaskDataService."""

from __future__ import annotations

from tests.servers.postgresql import PostgreSQL

from .contestants.dispatching import PASSES
from .frame.measure import at_least
from .frame.race import Bench
from .recordio import COUNT, make_records

PROCESSES = 8
TASKS = 4000
SHARDS = 4
PER_TASK = 16_384


def run(bench: Bench) -> None:
    """The dispatch rate of both databases, and the cost of a record."""
    with (
        PostgreSQL(fsync=True) as server,
        bench.race(f"dispatch and report, {PROCESSES} processes", "task", rounds=5) as race,
    ):
        urls = {"SQLite": f"sqlite:///{bench.folder}/rate.db", "PostgreSQL": server.database_url()}
        entrants = [
            race.ours(name, "dispatching.drained", TASKS, url=url, processes=PROCESSES, tasks=TASKS)
            for name, url in urls.items()
        ]
        race.run("us/task")
        for entrant, least in zip(entrants, (1500, 2000), strict=True):
            race.rate(entrant, at_least(least, "tasks/s"))
    reading(bench)
    bench.note(
        "PostgreSQL waits for the disk when a task is reported (fsync); SQLite is in WAL mode, synchronous=NORMAL."
    )


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
        race.run("us/record")
        race.faster(ours, plain, at_least(0.93))
    bench.note(f"Tasks of up to {PER_TASK:,} records (a shard) last a few milliseconds here; {PASSES} epochs a round.")
