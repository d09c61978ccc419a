"""Jobs whose tasks are leased and reported one by one."""

from __future__ import annotations

import itertools
import os
from typing import Any

from . import Run, library, whole
from .sharding import fsabs_bare

_numbers = itertools.count()


def _create(url: str, tasks: int) -> Any:
    job = f"job {os.getpid()} {next(_numbers)}"
    shards = [(f"shard {number}", 0, 1000) for number in range(max(1, tasks // 1000))]
    shards[0] = (shards[0][0], 0, min(tasks, 1000))
    create = library("fsabs.dispatch").TaskDispatcher.create
    return create(url, job, training=shards, records_per_task=1, seed=1, train_end_callback=False)


def _take(dispatcher: Any, worker: str, most: int) -> int:
    """Lease and report up to `most` tasks; return how many there were."""
    training = library("fsabs.dispatch").TaskType.TRAINING
    for number in range(most):
        task, lease = dispatcher.get(worker)
        if task.type != training:
            return number
        if not dispatcher.report(task, lease):
            raise AssertionError("a report was refused")
    return most


def drained(url: str, processes: int, tasks: int) -> Run:
    """All tasks of a job, by so many processes at once, which have their connections; the job is reset before."""
    dispatcher = _create(url, tasks)
    orders = [os.pipe() for _ in range(processes)]
    done, report = os.pipe()
    for number, (order, _) in enumerate(orders):
        if not os.fork():
            for _, write in orders:
                os.close(write)
            _serve(dispatcher, f"w{number}", tasks, order, report)
    dispatcher.close()

    def run() -> None:
        dispatcher.reset()
        for _, write in orders:
            os.write(write, b"x")
        taken = [int.from_bytes(os.read(done, 8)) for _ in orders]
        whole(range(sum(taken)), tasks)

    return run


def _serve(dispatcher: Any, worker: str, tasks: int, order: int, report: int) -> None:
    """Take what there is for each byte of a pipe, and write how much it was to another; end with the pipe."""
    try:
        while os.read(order, 1):
            os.write(report, _take(dispatcher, worker, tasks).to_bytes(8))
    finally:
        os._exit(0)


def grown(url: str, tasks: int, take: int) -> Run:
    """Some tasks of a job that is nearly done: the others' rows are there."""
    module, schema = library("fsabs.dispatch.layout"), library("fsabs.dispatch.schema")

    def prepare() -> Any:
        dispatcher = _create(url, tasks)
        database, job = dispatcher._database, dispatcher._job
        mine = schema.tasks.c.job == job.id
        for _ in range(-(-(tasks - 2 * take) // module.BATCH)):
            database.run("lay out", lambda connection: module.lay_out(connection, job))
            done = schema.tasks.update().where(mine, schema.tasks.c.state == schema.TODO).values(state=schema.DONE)
            database.run("end", lambda connection, done=done: connection.execute(done))
        reset = schema.jobs.update().where(schema.jobs.c.id == job.id).values(num_epochs=0)
        database.run("endless", lambda connection: connection.execute(reset))
        dispatcher = library("fsabs.dispatch").TaskDispatcher(url, dispatcher.job)
        dispatcher.get("w")
        return dispatcher

    dispatcher = prepare()

    def run() -> None:
        whole(range(_take(dispatcher, "w", take)), take)

    return run


def created(url: str, tasks: int) -> Run:
    """A job of so many tasks."""

    def run() -> None:
        _create(url, tasks).close()

    return run


def service(source: str, folder: str, shards: int, url: str) -> Run:
    """The records of shards by the tasks of a job, of 1,000 records each."""
    fsabs_bare(source, folder, shards)
    dispatch, data = library("fsabs.dispatch"), library("fsabs.readers.data")
    reader = data.RecordIODataReader(folder)
    expected = sum(count for _, _, count in reader.create_shards())

    def run() -> None:
        job = f"job {os.getpid()} {next(_numbers)}"
        create = dispatch.TaskDispatcher.create
        with create(url, job, training=reader, records_per_task=1000, train_end_callback=False) as dispatcher:
            found = sum(len(batch) for batch in dispatch.get_dataset(dispatcher, reader, "w", 128))
            whole(range(found), expected)

    return run
