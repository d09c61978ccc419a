"""Jobs whose tasks are leased and reported one by one."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from . import Run, library, whole
from .sharding import fsabs_bare

_numbers = itertools.count()
PASSES = 8
"""Epochs of a round that reads records."""


def _create(url: str, tasks: int) -> Any:
    job = f"job {os.getpid()} {next(_numbers)}"
    shards = [(f"shard {number}", 0, 1000) for number in range(max(1, tasks // 1000))]
    shards[0] = (shards[0][0], 0, min(tasks, 1000))
    create = library("fsabs.dispatch").TaskDispatcher.create
    settings = {"records_per_task": 1, "seed": 1, "num_epochs": 1, "train_end_callback": False}
    return create(url, job, training=shards, **settings)


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


def service(source: str, folder: str, shards: int, url: str, records_per_task: int) -> Run:
    """The records of shards by the tasks of a job, which is there before the clock starts."""
    reader, expected = _reader(source, folder, shards)
    dispatch = library("fsabs.dispatch")
    settings = {"records_per_task": records_per_task, "num_epochs": PASSES, "train_end_callback": False}
    dispatcher = dispatch.TaskDispatcher.create(url, "reading", training=reader, **settings)

    def run() -> dict[str, float]:
        dispatcher.reset()
        found, begin = 0, time.perf_counter()
        for batch in dispatch.get_dataset(dispatcher, reader, "w", 128):
            for _ in batch:
                found += 1
        seconds = time.perf_counter() - begin
        whole(range(found), PASSES * expected)
        return {"seconds": seconds}

    return run


def plain(source: str, folder: str, shards: int) -> Run:
    """The records of the same reader, shard by shard."""
    reader, expected = _reader(source, folder, shards)
    task = library("fsabs.readers.data").Task

    def run() -> dict[str, float]:
        found, begin = 0, time.perf_counter()
        for _ in range(PASSES):
            for name, start, count in reader.create_shards():
                for _ in reader.read_records(task(0, name, start, start + count)):
                    found += 1
        seconds = time.perf_counter() - begin
        whole(range(found), PASSES * expected)
        return {"seconds": seconds}

    return run


def _reader(source: str, folder: str, shards: int) -> tuple[Any, int]:
    fsabs_bare(source, folder, shards)
    reader = library("fsabs.readers.data").RecordIODataReader(folder)
    return reader, sum(count for _, _, count in reader.create_shards())
