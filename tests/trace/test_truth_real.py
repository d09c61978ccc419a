"""Real jobs that sleep and compute, whose cause is known: it is found, with the seconds that were put in."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fsabs import trace


class Job(NamedTuple):
    """Ranks that end their steps together; seconds."""

    ranks: int = 1
    steps: int = 20
    start: float = 0.0
    """Before the first step."""
    load: float = 0.01
    """Asleep, for each batch."""
    compute: float = 0.0
    """Of the CPU, for each batch."""
    first: float = 0.0
    """For the first batch."""
    straggler: float = 0.0
    """More for each batch of rank 1."""
    checkpoint: float = 0.0
    """After each fifth step."""
    between: float = 0.0
    """After each epoch."""
    epochs: int = 1
    step: float = 0.03


def _rank(job: Job, folder: Path, rank: int, barrier: Any) -> None:
    os.environ["RANK"] = str(rank)
    with trace.record(folder):
        time.sleep(job.start)
        for _ in range(job.epochs):
            for number, _ in enumerate(trace.steps(_batches(job, rank))):
                time.sleep(job.step)
                if number % 5 == 2:
                    time.sleep(job.checkpoint)
                barrier.wait(60)
            time.sleep(job.between)


def _batches(job: Job, rank: int) -> Iterator[int]:
    for number in range(job.steps):
        time.sleep(job.load + job.straggler * (rank == 1) + job.first * (number == 0))
        until = time.thread_time() + job.compute
        while time.thread_time() < until:
            pass
        yield number


def _run(job: Job, folder: Path) -> trace.Analysis:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(job.ranks)
    ranks = [context.Process(target=_rank, args=(job, folder, rank, barrier)) for rank in range(job.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        assert process.exitcode == 0
    return trace.analyze(folder)


@pytest.mark.parametrize(
    ("code", "job", "seconds"),
    [
        pytest.param("F032", Job(ranks=2, straggler=0.12), 2.4, id="a straggler"),
        pytest.param("F030", Job(start=3.0), 3.0, id="a slow start", marks=pytest.mark.nightly),
        pytest.param("F029", Job(load=0.12), 2.4, id="own code asleep", marks=pytest.mark.nightly),
        pytest.param("F034", Job(checkpoint=0.6), 2.4, id="checkpoints", marks=pytest.mark.nightly),
        pytest.param("F030", Job(between=1.5, epochs=2), 3.0, id="validation", marks=pytest.mark.nightly),
        pytest.param("F033", Job(first=3.0), 3.0, id="a lazy index", marks=pytest.mark.nightly),
    ],
)
def test_a_real_job(tmp_path: Path, code: str, job: Job, seconds: float) -> None:
    """A busy machine adds to a job's causes, and takes nothing from them: how exact they are, timelines tell."""
    found = _run(job, tmp_path)
    assert sum(found.breakdown[0].causes.values()) == pytest.approx(found.breakdown[0].seconds)
    costs = {finding.code: finding.seconds for finding in found.findings}
    assert costs.get(code, 0.0) >= 0.75 * seconds, costs
