"""Jobs of ranks, machines, CPUs and workers whose cause is known, as timelines that are written by hand: no clock runs.

With those of `test_diagnosis`, each row of the table of rules has the workload that it names.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from fsabs import trace
from fsabs.trace import rules
from fsabs.trace.headlines import bad_first
from fsabs.trace.reports import render
from fsabs.trace.results import Analysis
from fsabs.trace.schema import Event
from tests.trace import test_diagnosis
from tests.trace.synthetic import event, write_process

pytestmark = pytest.mark.quick

SECOND = 10**9


class Work(NamedTuple):
    """What a rank does in a step; seconds."""

    fetch: float = 0.0
    """Of a worker, for one batch."""
    store: float = 0.0
    """Of it, waiting for a store."""
    compute: float = 0.1
    """Of the step, without what it waits for."""
    between: float = 0.0
    """After the step."""
    cpu: float = -1.0
    """The part of `fetch` without `store` in which it has a CPU; unknown if negative."""
    size: int = 1 << 20
    again: int = 1 << 40
    """Numbers of files, from which on they come again."""


@dataclasses.dataclass
class Ranks:
    """A job of ranks, each with workers; steps end together."""

    work: Callable[[int, int, int], Work]
    """Of a rank, an epoch and a step."""
    ranks: int = 4
    workers: int = 2
    epochs: int = 1
    steps: int = 40
    machines: int = 1
    cores: int = 32
    startup: float = 0.05
    before: float = 0.0
    """Seconds before the first step."""
    span: str = ""
    synchronous: bool = True

    def write(self, folder: Path) -> None:
        """Write the trace."""
        now = [self.before] * self.ranks
        main: list[list[Event]] = [[] for _ in now]
        made: dict[tuple[int, int], list[Event]] = {(r, w): [] for r in range(self.ranks) for w in range(self.workers)}
        for rank, events in enumerate(main):
            if self.span and self.before:
                events.append(_event(0.0, self.before, "span", f"user.{self.span}", thread=1))
            assert rank < self.ranks
        for epoch in range(self.epochs):
            free = {key: now[key[0]] + (0 if epoch else self.startup) for key in made}
            used = [[time] * (self.steps + 2 * self.workers) for time in now]
            for step in range(self.steps):
                ready = []
                for rank in range(self.ranks):
                    begin, work = now[rank], self.work(rank, epoch, step)
                    got = begin + work.fetch
                    key = (rank, step % max(1, self.workers))
                    if self.workers:
                        start = max(free[key], used[rank][step])
                        got = max(begin, start + work.fetch)
                        free[key] = start + work.fetch
                    else:
                        start = begin
                    _batch(made[key] if self.workers else main[rank], start, work, step % work.again, rank)
                    main[rank].append(_event(begin, got - begin, "wait", "steps.next"))
                    ready.append(got + work.compute)
                for rank in range(self.ranks):
                    end = max(ready) if self.synchronous else ready[rank]
                    main[rank].append(_event(now[rank], end - now[rank], "step", "train.step", step))
                    now[rank] = end + self.work(rank, epoch, step).between
                    used[rank][min(step + 2 * self.workers, len(used[rank]) - 1)] = now[rank]
        for rank, events in enumerate(main):
            write = functools.partial(
                write_process, folder, host=f"node-{rank % self.machines}", rank=rank, cores=self.cores
            )
            last = _event(now[rank], 0.0, "span", "user.end")
            write([*sorted(events, key=lambda one: one.end), last], pid=100 + 1000 * rank)
            for worker in range(self.workers):
                done = sorted(made[rank, worker], key=lambda one: one.end)
                pid, parent = 101 + 1000 * rank + worker, 100 + 1000 * rank
                write(done, begin=round(self.before * SECOND), pid=pid, parent=parent, worker=worker)


def _event(begin: float, took: float, kind: str, name: str, size: int = 0, where: str = "", thread: int = 1) -> Event:
    return event(round(begin * SECOND), round(took * SECOND), kind, name, size, where=where, thread=thread)


def _batch(events: list[Event], start: float, work: Work, number: int, rank: int) -> None:
    """Write down a batch: four files, read side by side, then own code."""
    each = work.store / 4
    for part in range(4):
        where = f"s3://bucket/{rank}-{number}-{part}"
        begin = start + part * each
        if work.store:
            for _ in range(4):
                events.append(_event(begin, each, "request", "s3.get", work.size // 16, where))
        if work.fetch:
            events.append(_event(begin, max(each, 1e-6), "fs", "s3.read_bytes", work.size // 4, where))
    if work.fetch:
        own = (work.fetch - work.store) * max(0.0, work.cpu)
        events.append(_event(start, work.fetch, "fetch", "loader.fetch", max(1, round(own * SECOND)) * (work.cpu >= 0)))


def _steady(**fields: float) -> Callable[[int, int, int], Work]:
    return lambda rank, epoch, step: Work(**fields)  # type: ignore[arg-type] # sizes are integers


def _one_rank(slow: Work, fast: Work, rank: int = 2) -> Callable[[int, int, int], Work]:
    return lambda at, epoch, step: slow if at == rank else fast


def _sometimes(often: Work, seldom: Work, every: int, first: int = 0) -> Callable[[int, int, int], Work]:
    return lambda rank, epoch, step: seldom if step % every == first else often


@dataclasses.dataclass
class Link:
    """Workers that share a link, a store or a disk: what is under way has an equal part of its rate."""

    rate: float
    """Bytes a second, or requests."""
    workers: int = 4
    steps: int = 120
    kind: str = "request"
    size: int = 1 << 20
    by_requests: bool = False
    cores: int = 32

    def write(self, folder: Path) -> None:
        """Write the trace; times and sizes vary, as they do."""
        made = random.Random(1)
        sizes = [self.size * made.uniform(0.3, 1.7) for _ in range(self.steps)]
        cost = [1.0] * self.steps if self.by_requests else sizes
        rest, begin, ends = dict[int, float](), dict[int, float](), dict[int, float]()
        now = 0.0
        pauses = [(made.uniform(0, 0.4), worker) for worker in range(self.workers)]
        heapq.heapify(pauses)
        following = 0
        while len(ends) < self.steps:
            done = now + min(rest.values()) * len(rest) / self.rate if rest else 1e18
            until = min(done, pauses[0][0] if pauses and following < self.steps else 1e18)
            for number in rest:
                rest[number] -= (until - now) * self.rate / len(rest)
            now = until
            if now == done:
                number = min(rest, key=lambda one: rest[one])
                del rest[number]
                ends[number] = now
                heapq.heappush(pauses, (now + made.uniform(0, 0.4) * self.steps / 400, number % self.workers))
            else:
                heapq.heappop(pauses)
                rest[following], begin[following] = cost[following], now
                following += 1
        events: dict[int, list[Event]] = {worker: [] for worker in range(self.workers)}
        for number in range(self.steps):
            took, where = ends[number] - begin[number], f"s3://b/{number}"
            mine = events[number % self.workers]
            if self.kind == "request":
                mine.append(_event(begin[number], took, "request", "s3.get", int(sizes[number]), where))
            mine.append(_event(begin[number], took, "fs", "s3.read_many", int(sizes[number]), where))
            mine.append(_event(begin[number], took, "fetch", "loader.fetch"))
        main, at = [], 0.0
        for number in range(self.steps):
            got = max(at, max(ends[one] for one in range(number + 1)))
            main += [
                _event(at, got - at, "wait", "steps.next"),
                _event(at, got - at + 1e-3, "step", "train.step", number),
            ]
            at = got + 1e-3
        write_process(folder, main, pid=100, cores=self.cores)
        for worker, mine in events.items():
            mine.sort(key=lambda one: one.end)
            write_process(folder, mine, pid=200 + worker, parent=100, worker=worker, cores=self.cores)


class Truth(NamedTuple):
    """A job, its cause, and what doing the advice saves."""

    code: str
    job: Ranks | Link
    followed: Ranks | Link | None = None
    """The job when the advice was done; None where the advice doesn't say how."""
    said: str = ""
    """A part of the title."""


FAST = Work(0.02, 0.01, 0.1)


def _in_turns(rank: int, epoch: int, step: int) -> Work:
    return Work(0.8, 0.7, 0.1) if step % 4 == rank else Work(0.05, 0.03, 0.1)


LARGE = Ranks(_steady(fetch=2.0, store=1.9, compute=0.1), workers=4)
COMPUTES = Ranks(_steady(fetch=1.0, store=0.1, compute=0.1, cpu=1.0), ranks=8, workers=2)

TRUTHS: Mapping[str, Truth] = {
    "a straggler": Truth("F032", Ranks(_one_rank(Work(0.8, 0.7, 0.1), FAST)), Ranks(_steady(fetch=0.02)), "rank 2"),
    "a straggler of eight": Truth(
        "F032",
        Ranks(_one_rank(Work(0.9, 0.85), FAST, 5), ranks=8),
        Ranks(_one_rank(FAST, FAST), ranks=8),
        "rank 5",
    ),
    "a straggler on another machine": Truth(
        "F032", Ranks(_one_rank(Work(1.6, 1.2), FAST, 3), machines=2), Ranks(_steady(fetch=0.02)), "node-1"
    ),
    "a straggler among 64": Truth(
        "F032",
        Ranks(_one_rank(Work(0.5, 0.4), FAST, 40), ranks=64, workers=1, steps=30),
        Ranks(_steady(fetch=0.02), ranks=64, workers=1, steps=30),
        "rank 40",
    ),
    "a slow rank without collectives": Truth(
        "F032", Ranks(_one_rank(Work(0.02, 0.01, 0.5), FAST), synchronous=False), Ranks(_steady(fetch=0.02)), "rank 2"
    ),
    "each time another rank": Truth("F032", Ranks(_in_turns, workers=0), Ranks(_steady(fetch=0.05), workers=0)),
    "all ranks wait for the store": Truth("F008", LARGE, dataclasses.replace(LARGE, workers=16)),
    "64 ranks wait for the store": Truth(
        "F008",
        Ranks(_steady(fetch=0.5, store=0.45, compute=0.02), ranks=64, workers=2, steps=24, cores=512),
        Ranks(_steady(fetch=0.5, store=0.45, compute=0.02), ranks=64, workers=16, steps=24, cores=512),
    ),
    "one machine's CPUs for eight ranks": Truth("F018", COMPUTES, dataclasses.replace(COMPUTES, workers=4)),
    "more workers than CPUs": Truth("F018", dataclasses.replace(COMPUTES, workers=16, cores=32)),
    "own code on all CPUs of two machines": Truth(
        "F018",
        Ranks(_steady(fetch=1.0, store=0.1, cpu=1.0), ranks=4, machines=2, cores=4),
        Ranks(_steady(fetch=0.1, store=0.1), ranks=4, machines=2, cores=4),
    ),
    "code that waits": Truth(
        "F029", Ranks(_steady(fetch=1.0, store=0.05, cpu=0.02), ranks=1), Ranks(_steady(fetch=0.07), ranks=1)
    ),
    "code that waits, of four ranks": Truth(
        "F029", Ranks(_steady(fetch=1.0, store=0.05, cpu=0.1), workers=4), Ranks(_steady(fetch=0.15), workers=4)
    ),
    "a full link": Truth("F031", Link(2e6), Link(1e9), "the link"),
    "a full link of sixteen workers": Truth("F031", Link(1e6, workers=16), Link(1e9, workers=16), "the link"),
    "a store of so many requests a second": Truth(
        "F031", Link(4.0, workers=8, by_requests=True), Link(1e9, workers=8), "store"
    ),
    "a full disk": Truth("F031", Link(2e6, kind="disk"), Link(1e9, kind="disk"), "the disk"),
    "a slow start": Truth(
        "F030", Ranks(_steady(fetch=0.02), ranks=2, before=30.0), Ranks(_steady(fetch=0.02)), "outside"
    ),
    "a slow start that is marked": Truth(
        "F030", Ranks(_steady(fetch=0.02), ranks=1, before=30.0, span="index"), Ranks(_steady(fetch=0.02)), "outside"
    ),
    "validation between steps": Truth("F030", Ranks(_steady(fetch=0.02, between=0.5)), Ranks(_steady(fetch=0.02))),
    "workers that start slowly": Truth(
        "F030", Ranks(_steady(fetch=0.02), ranks=1, startup=40.0), Ranks(_steady(fetch=0.02), ranks=1), "starting"
    ),
    "workers of four ranks that start slowly": Truth(
        "F030", Ranks(_steady(fetch=0.02), startup=40.0), Ranks(_steady(fetch=0.02)), "starting"
    ),
    "a lazy index": Truth(
        "F033",
        Ranks(lambda rank, epoch, step: Work(20.0, 0.0) if step < 2 else FAST, ranks=1),
        Ranks(_steady(fetch=0.02), ranks=1),
    ),
    "checkpoints by open": Truth(
        "F034", Ranks(_sometimes(FAST, FAST._replace(compute=4.0), 10, 5), ranks=1), Ranks(_steady(fetch=0.02), ranks=1)
    ),
    "checkpoints by open of four ranks": Truth(
        "F034", Ranks(_sometimes(FAST, FAST._replace(compute=4.0), 10, 5)), Ranks(_steady(fetch=0.02))
    ),
    "one key that is slow": Truth(
        "F012",
        Ranks(lambda rank, epoch, step: Work(8.1, 8.0) if step == 20 else Work(0.1, 0.08), ranks=1),
        Ranks(_steady(fetch=0.1, store=0.08), ranks=1),
    ),
    "one file that is huge": Truth(
        "F012",
        Ranks(lambda rank, epoch, step: Work(30.1, 30.0, size=1 << 33) if step == 9 else Work(0.1, 0.08), ranks=1),
        Ranks(_steady(fetch=0.1, store=0.08), ranks=1),
    ),
    "one slow worker of two": Truth(
        "F007",
        Ranks(lambda rank, epoch, step: Work(0.9 if step % 2 else 0.1, 0.0, 0.01), ranks=1),
        Ranks(_steady(fetch=0.1, compute=0.01), ranks=1),
    ),
    "files that later epochs read again": Truth(
        "F009",
        Ranks(_steady(fetch=1.0, store=0.95), ranks=1, epochs=3),
        Ranks(lambda rank, epoch, step: Work(0.05) if epoch else Work(1.0, 0.95), ranks=1, epochs=3),
    ),
    "steps that compute": Truth("F035", Ranks(_steady(fetch=0.02, compute=1.0)), None, "the step itself"),
    "64 ranks that compute": Truth(
        "F035", Ranks(_steady(fetch=0.02, compute=1.0), ranks=64, workers=1, steps=20), None, "the step itself"
    ),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_the_first_finding_is_the_cause_and_costs_seconds_of_the_job(tmp_path: Path, name: str) -> None:
    code, job, followed, said = TRUTHS[name]
    job.write(tmp_path / "before")
    before = trace.analyze(tmp_path / "before")
    _check_time(before)
    first = before.findings[0]
    shown = [(finding.code, round(finding.seconds, 2), finding.title) for finding in before.findings]
    assert first.code == code, (shown, before.breakdown[0].causes)
    assert said in first.title
    assert bad_first(before) in render(before).replace("&#39;", "'").replace("<code>", "`").replace("</code>", "`")
    assert trace.summary(before).replace("\n", " ").count(first.title[1:80].split(":")[0]) >= 2
    if followed is not None:
        followed.write(tmp_path / "after")
        after = trace.analyze(tmp_path / "after")
        saved = before.breakdown[0].seconds - after.breakdown[0].seconds
        assert saved > 0, "no advice makes a job slower"
        assert first.seconds == pytest.approx(saved, rel=0.25), (saved, shown)


def _check_time(analysis: Analysis) -> None:
    """The causes add up to the wall time of the job."""
    whole = analysis.breakdown[0]
    assert whole.seconds == pytest.approx(analysis.seconds, rel=0.01)
    for row in analysis.breakdown:
        assert sum(row.causes.values()) == pytest.approx(row.seconds)
        assert min(row.causes.values()) >= 0
    for finding in analysis.findings:
        assert finding.seconds <= whole.seconds * (1 + 1e-9)


def test_workers_and_cpus_are_counted_of_the_same_thing(tmp_path: Path) -> None:
    """128 workers of 8 ranks on 32 CPUs are too many; 32 of them aren't."""
    for workers, expected in ((16, True), (4, False)):
        dataclasses.replace(COMPUTES, workers=workers).write(tmp_path / str(workers))
        found = trace.analyze(tmp_path / str(workers)).findings
        assert any(finding.code == "F027" for finding in found) == expected
        assert all(int(finding.evidence.get("better", 0)) <= 4 for finding in found if finding.code == "F018")


def test_each_rule_has_a_workload_that_proves_it() -> None:
    notes = {"failing calls", "other numbers than the grid's", "nothing"}  # of tests of their own
    known = {*TRUTHS, *test_diagnosis.SITUATIONS, *notes}
    assert {rule.workload for rule in rules.RULES} <= known
    assert len({*TRUTHS, *test_diagnosis.SITUATIONS, *test_diagnosis.HEALTHY}) >= 40
