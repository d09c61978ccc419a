"""Made situations, in each of which the first finding is the planted cause, and costs what following its advice saves;
parts add up to the steps' time. `benchmarks.simulations.trace_truth` has the same causes against a store and clocks.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fsabs
from fsabs import trace
from fsabs.core import hooks
from fsabs.core.layers import LayerFS
from fsabs.trace.headlines import bad_first
from fsabs.trace.results import CAUSES, STORE, Analysis
from fsabs.trace.schema import Event
from tests.trace.synthetic import event, write_process

MS, MIB = 10_000_000, 1 << 20  # ten times slower than they say: what costs less than a second is a note


@dataclasses.dataclass
class Part:
    """A piece of the work on one sample."""

    kind: str
    name: str
    milliseconds: float
    size: int = 0
    inside: list[Part] = dataclasses.field(default_factory=list)
    error: str = ""
    where: str = ""
    beside: int = 1
    """How many of it are under way at the same time; they have the size together."""

    def events(self, begin: int, thread: int) -> Iterator[Event]:
        took = round(self.milliseconds * MS)
        at = begin
        for part in self.inside:
            yield from dataclasses.replace(part, where=part.where or self.where).events(at, thread)
            at += round(part.milliseconds * MS)
        for _ in range(self.beside if self.kind else 0):
            yield event(
                begin,
                took,
                self.kind,
                self.name,
                self.size // self.beside,
                thread=thread,
                error=self.error,
                where=self.where,
            )


Sample = Callable[[int, int, int], list[Part]]
"""The work on a sample: of a worker, an epoch, and a number."""


@dataclasses.dataclass
class Job:
    """A training loop, simulated: workers make batches in turn, two ahead of their use."""

    sample: Sample
    workers: int = 2
    epochs: int = 1
    steps: int = 40
    batch: int = 8
    compute: float = 2.0
    startup: float = 1.0
    transfer: float = 0.0
    writing: float = 0.0
    """Milliseconds of a checkpoint, each ten steps."""
    threads: int = 0
    """Threads of the same process that make the batches in place of workers."""
    persistent: bool = False
    """Workers are started for the first epoch only."""
    listing: float = 0.0
    """Milliseconds of a listing before the first step."""
    cores: int = 8

    def write(self, folder: Path) -> None:
        makers = max(self.workers, self.threads, 1)
        made: list[list[Event]] = [[] for _ in range(makers)]
        main: list[Event] = []
        now = 10 * MS + round(self.listing * MS)
        if self.listing:
            main.append(event(10 * MS, now - 10 * MS, "fs", "s3.list"))
        for epoch in range(self.epochs):
            began = now
            startup = 0.0 if self.persistent and epoch else self.startup
            free, used = [now + round(startup * MS)] * makers, [now] * (self.steps + 1)
            for number in range(self.steps):
                maker, begin = number % makers, now
                ahead = used[number - 2 * makers] if number >= 2 * makers else began
                start = now if makers == 1 and not self.workers else max(free[maker], ahead)
                ready = free[maker] = self._make(made[maker], maker, epoch, number, start)
                got = max(now, ready) + round(self.transfer * MS)
                main.append(event(begin, got - begin, "wait", "steps.next"))
                now = got + round(self.compute * MS)
                if self.writing and number % 10 == 5:
                    main.append(event(now, round(self.writing * MS), "fs", "s3.commit", MIB))
                    now += round(self.writing * MS)
                used[number] = now
                main.append(event(begin, now - begin, "step", "train.step", number))
        inside = [one for events in made for one in events] if not self.workers else []
        write_process(folder, sorted([*main, *inside], key=lambda one: one.end), pid=100, cores=self.cores)
        for worker, events in enumerate(made[: self.workers]):
            found = sorted(events, key=lambda one: one.end)
            write_process(folder, found, pid=200 + worker, parent=100, worker=worker, cores=self.cores)

    def _make(self, events: list[Event], maker: int, epoch: int, number: int, begin: int) -> int:
        thread, at = 10 + maker if self.threads else 1, begin
        for sample in range(self.batch):
            for part in self.sample(maker, epoch, number * self.batch + sample):
                if part.kind:
                    where = part.where or f"s3://b/{number * self.batch + sample}"
                    events.extend(dataclasses.replace(part, where=where).events(at, thread))
                at += round(part.milliseconds * MS)
        if not self.threads:
            events.append(event(begin, at - begin, "fetch", "loader.fetch", thread=thread))
        return at


def _read(milliseconds: float, size: int = MIB, *inside: Part, where: str = "") -> Part:
    return Part("fs", "s3.read_bytes", milliseconds, size, list(inside), where=where)


def _get(milliseconds: float, size: int = MIB, beside: int = 1, error: str = "") -> Part:
    return Part("request", "s3.get", milliseconds, size, beside=beside, error=error)


def _code(milliseconds: float) -> Part:
    return Part("", "", milliseconds)


def _event(kind: str, name: str) -> Part:
    return Part(kind, name, 0, 1)


def _fast(*_: int) -> list[Part]:
    return [_read(0.05), _code(0.02)]


def _steady(*parts: Part) -> Sample:
    """Return a sample that is the same for all workers, epochs and numbers."""
    return lambda *_: list(parts)


def _cold(worker: int, epoch: int, number: int) -> list[Part]:
    return _hit() if epoch else _miss()


def _half(worker: int, epoch: int, number: int) -> list[Part]:
    return _hit() if epoch and number // 8 % 2 else _miss()


def _miss(*_: int) -> list[Part]:
    return [_read(5, MIB, _event("miss", "cache.file"), _get(5, MIB, 4))]


def _hit(*_: int) -> list[Part]:
    return [_read(0.2, MIB, _event("hit", "cache.file"))]


def _tail(worker: int, epoch: int, number: int) -> list[Part]:
    took = 200.0 if number % 25 == 7 else 2.0
    return [_read(took, MIB, _get(took, MIB, 4))]


def _slow_worker(worker: int, epoch: int, number: int) -> list[Part]:
    return [_read(0.2), _code(12 if worker == 1 else 1.5)]


def _again(worker: int, epoch: int, number: int) -> list[Part]:
    return [_read(5, where=f"file:///{number % 8}")]


def _once(worker: int, epoch: int, number: int) -> list[Part]:
    return [_read(5 if number < 8 else 0.05, where=f"file:///{number % 8}")]


def _stats(worker: int, epoch: int, number: int) -> list[Part]:
    return [Part("fs", "local.stat", 4, where=f"file:///{number}"), _read(1, where=f"file:///{number}")]


def _here_and_there(milliseconds: float, size: int) -> Sample:
    """Return reads of 100 bytes of one file, for each of which so many bytes are requested."""
    body = Part("wait", "s3.transfer", 0.9 * milliseconds)
    request = Part("request", "s3.get", milliseconds, size, [_code(0.1 * milliseconds), body])
    return _steady(Part("fs", "s3.read", milliseconds, 100, [request], where="s3://b/large"))


FAILED = (_get(6, 0, 4, "OSError"), _event("retry", "s3.get"))
TURN = Part("wait", "s3.throttle", 10)
NEAR = _steady(_read(0.2, MIB, _get(0.1, MIB, 4)))


class Situation(NamedTuple):
    """A job with one planted cause, and what follows the advice."""

    codes: str
    """The first finding is one of these."""
    job: Job
    followed: dict[str, Any]
    """Changes of the job, where the finding doesn't say how many workers would be better."""
    workers: Sequence[int] = (0, 2)


SITUATIONS: dict[str, Situation] = {
    "slow store, one request at a time": Situation(
        "F015", Job(_steady(_read(20, MIB, _get(20)), _code(0.1))), {"sample": _steady(_read(20 / 16), _code(0.1))}
    ),
    "small files": Situation(
        "F015",
        Job(_steady(_read(5, 20_000, _get(5, 20_000)), _code(0.1))),
        {"sample": _steady(_read(5 / 16), _code(0.1))},
    ),
    "slow store, many requests": Situation(
        "F008", Job(_steady(_read(10, MIB, _get(10, MIB, 6)), _code(0.1)), compute=10), {}
    ),
    "slow decoding": Situation("F018", Job(_steady(_read(0.2, MIB, _get(0.1, MIB, 4)), _code(5))), {}),
    "slow decoding on all CPUs": Situation(
        "F018", Job(_steady(_read(0.2, MIB, _get(0.1, MIB, 4)), _code(5)), cores=2), {"sample": NEAR}, (2,)
    ),
    "one slow worker": Situation(
        "F007", Job(_slow_worker, workers=4), {"sample": _steady(_read(0.2), _code(1.5))}, (4,)
    ),
    "retries": Situation(
        "F006",
        Job(_steady(_read(10, MIB, *FAILED, _get(4, MIB, 4)))),
        {"sample": _steady(_read(4, MIB, _get(4, MIB, 4)))},
    ),
    "throttling": Situation(
        "F006",
        Job(_steady(_read(20, MIB, TURN, *FAILED, _get(4, MIB, 4)))),
        {"sample": _steady(_read(4, MIB, _get(4, MIB, 4)))},
    ),
    "connections that are not kept": Situation(
        "F036",
        Job(_steady(_read(10, MIB, Part("connect", "s3.connect", 8), _get(2)))),
        {"sample": _steady(_read(2, MIB, _get(2, MIB, 4)))},
    ),
    "cold cache": Situation("F017", Job(_cold, epochs=3), {"sample": _hit}),
    "tiny cache": Situation("F004", Job(_miss, epochs=3), {"sample": _cold}),
    "a cache of half": Situation("F004", Job(_half, epochs=3), {"sample": _cold}),
    "wrong order": Situation(
        "F005",
        Job(_steady(_read(10, MIB, _get(10, 12 * MIB, 4)), _code(0.1))),
        {"sample": _steady(_read(10 / 12), _code(0.1))},
    ),
    "seeks": Situation("F005", Job(_here_and_there(10, MIB)), {"sample": _here_and_there(1 / 16, 100)}),
    "threads share the interpreter": Situation(
        "F023",
        Job(_steady(_read(0.1), _code(12)), workers=0, threads=4),
        {"sample": _steady(_read(0.1), _code(3)), "workers": 4, "threads": 0},
        (0,),
    ),
    "start-up": Situation("F019", Job(_fast, epochs=3, startup=2000), {"persistent": True}, (2,)),
    "checkpoint stalls": Situation("F021", Job(_fast, writing=300), {"writing": 0.0}),
    "decompression": Situation(
        "F011",
        Job(_steady(_read(5, MIB, Part("decompress", "zip.inflate", 4.5, MIB)), _code(0.1))),
        {"sample": _steady(_read(0.5), _code(0.1))},
    ),
    "metadata": Situation(
        "F014",
        Job(_steady(*[Part("fs", "local.open", 1)] * 5, Part("fs", "local.read", 1, MIB), _code(0.1))),
        {"sample": _steady(Part("fs", "local.read", 1, MIB), _code(0.1))},
    ),
    "a listing at the start": Situation("F026", Job(_fast, listing=300), {"listing": 0.0}),
    "stat before open": Situation("F014", Job(_stats), {"sample": _steady(_read(1))}),
    "a slow tail": Situation("F012", Job(_tail), {"sample": _steady(_read(2, MIB, _get(2, MIB, 4)))}),
    "opened again": Situation("F009", Job(_again), {"sample": _once}),
    "transfer": Situation("F020", Job(_fast, transfer=20), {"transfer": 0.0}, (2,)),
    "no workers": Situation("F008", Job(_steady(_read(0.6), _code(0.4)), compute=9), {}, (0,)),
}
HEALTHY = {
    "nothing": Job(_fast, compute=20),
    "requests": Job(_steady(_read(1, MIB, _get(1, MIB, 4)), _code(0.1)), compute=60, workers=4),
    "a warm cache": Job(_hit, compute=60, epochs=3),
}
CLOSE, LITTLE = 0.3, 0.3
"""A cost is right if it is off by this part of what is saved, or by so many seconds."""


def _check_sums(analysis: Analysis) -> None:
    """Each instant belongs to one cause: together they are the wall time."""
    for row in analysis.breakdown:
        assert set(row.causes) == set(CAUSES)
        assert min(row.causes.values()) >= 0
        assert sum(row.causes.values()) == pytest.approx(row.seconds)
    whole, *epochs = analysis.breakdown
    assert analysis.stall is not None
    assert sum(row.seconds for row in epochs) == pytest.approx(analysis.stall.wait + analysis.stall.compute, rel=1e-6)
    trained = {maker.number for maker in analysis.processes if maker.worker is None}
    wall = sum(one.end - one.begin for one in analysis.processes if one.number in trained) / 1e9
    assert whole.seconds == pytest.approx(wall, rel=1e-6)
    for step in analysis.steps:
        assert sum(step.causes.values()) == pytest.approx(step.seconds)
    assert sum(step.seconds for step in analysis.steps) == pytest.approx(sum(row.seconds for row in epochs))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("situation", "workers"), [(name, workers) for name in SITUATIONS for workers in SITUATIONS[name].workers]
)
def test_the_first_finding_is_the_planted_cause_and_costs_what_its_advice_saves(
    tmp_path: Path, situation: str, workers: int
) -> None:
    codes, planned, followed, _ = SITUATIONS[situation]
    job = dataclasses.replace(planned, workers=workers)
    job.write(tmp_path / "before")
    before = trace.analyze(tmp_path / "before")
    _check_sums(before)
    assert [finding.code for finding in before.findings][:1] in [[code] for code in codes.split()], [
        (finding.code, round(finding.seconds, 3)) for finding in before.findings
    ]
    first = before.findings[0]
    assert first.severity == "high"
    assert first.title
    assert first.advice
    assert first.evidence
    assert first.model
    assert all(finding.seconds <= before.breakdown[0].seconds for finding in before.findings)
    changes = {"workers": first.evidence["better"]} if "better" in first.evidence else followed
    dataclasses.replace(job, **changes).write(tmp_path / "after")
    after = trace.analyze(tmp_path / "after")
    _check_sums(after)
    saved = before.breakdown[0].seconds - after.breakdown[0].seconds
    assert first.seconds == pytest.approx(saved, rel=CLOSE, abs=LITTLE)
    if "better" not in first.evidence:
        assert first.code not in [finding.code for finding in after.findings if finding.severity == "high"]


@pytest.mark.quick
@pytest.mark.parametrize("name", HEALTHY)
def test_where_computing_takes_the_time_that_is_said(tmp_path: Path, name: str) -> None:
    HEALTHY[name].write(tmp_path)
    analysis = trace.analyze(tmp_path)
    _check_sums(analysis)
    assert [(finding.code, finding.severity) for finding in analysis.findings] == [("F035", "note")]
    assert "the step itself" in bad_first(analysis)
    assert analysis.breakdown[0].causes["step"] > 0.95 * analysis.breakdown[0].seconds


@pytest.mark.quick
def test_more_workers_than_cpus_are_noted(tmp_path: Path) -> None:
    Job(_steady(_read(0.2), _code(5)), workers=4, cores=2).write(tmp_path)
    first, *others = trace.analyze(tmp_path).findings
    assert first.code == "F018"
    assert "F027" in [finding.code for finding in others]


PLANNED = {
    "list": 2.0, "connect": 1.0, "throttle": 1.0, "first_byte": 3.0, "transfer": 2.0, "backoff": 0.5, "decompress": 1.0,
    "disk": 1.5, "decode": 4.0,
}  # fmt: skip
"""Milliseconds of each sample."""


def _planned(*_: int) -> list[Part]:
    request = Part("request", "s3.get", 5, MIB, [Part("", "", 3), Part("wait", "s3.transfer", 2)])
    before = [Part("connect", "s3.connect", 1), Part("wait", "s3.throttle", 1)]
    after = [Part("wait", "s3.backoff", 0.5), Part("decompress", "zip.inflate", 1, MIB)]
    return [Part("fs", "zip.open", 2), _read(10, MIB, *before, request, *after), _code(4)]


@pytest.mark.quick
@pytest.mark.parametrize("workers", [0, 2])
def test_each_cause_has_the_time_that_was_planned(tmp_path: Path, workers: int) -> None:
    job = Job(_planned, workers=workers, compute=3, startup=0)
    job.write(tmp_path)
    analysis = trace.analyze(tmp_path)
    _check_sums(analysis)
    causes = analysis.breakdown[0].causes
    waited = sum(causes[cause] for cause in PLANNED)
    for cause, planned in PLANNED.items():
        assert causes[cause] / waited == pytest.approx(planned / sum(PLANNED.values()), rel=0.12), cause
    assert causes["step"] == pytest.approx(job.steps * job.compute * MS / 1e9)
    made = job.steps * job.batch * sum(PLANNED.values()) * MS / 1e9
    assert waited == pytest.approx(made / max(1, workers) - (workers > 0) * causes["step"], rel=0.1)


@pytest.mark.quick
def test_a_worker_that_starts_late_is_starting(tmp_path: Path) -> None:
    """While the other one has made what it may, nobody works."""
    begins = {0: [0, 1, 5, 6], 1: [4]}  # seconds: each batch takes one
    for worker, times in begins.items():
        fetches = [event(at * 10**9, 10**9, "fetch", "loader.fetch", thread=7) for at in times]
        write_process(tmp_path, fetches, pid=200 + worker, parent=100, worker=worker)
    waits = [event(0, 10**9, "wait", "steps.next"), event(10**9, 4 * 10**9, "wait", "steps.next")]
    steps = [event(0, 10**9, "step", "train.step", 0), event(10**9, 4 * 10**9, "step", "train.step", 1)]
    write_process(tmp_path, [*waits, *steps], pid=100)
    causes = trace.analyze(tmp_path).breakdown[0].causes
    assert causes["startup"] == pytest.approx(2)
    assert causes["decode"] == pytest.approx(3)
    assert causes["read_ahead"] == 0


@pytest.mark.quick
def test_epochs_are_apart(tmp_path: Path) -> None:
    Job(_cold, epochs=3).write(tmp_path)
    every, first, second, third = trace.analyze(tmp_path).breakdown
    assert [row.epoch for row in (every, first, second, third)] == [0, 1, 2, 3]
    assert every.steps == 120
    assert first.steps == second.steps == 40
    assert first.causes["first_byte"] > 0.9 * every.causes["first_byte"]
    assert second.causes["first_byte"] < 0.1 * second.seconds
    assert second.causes["disk"] > second.causes["first_byte"]


# ---- real loops


class _SlowStore(LayerFS):
    """A store whose answers take some milliseconds."""

    milliseconds = 0.0

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        for key in wanted:
            begin = time.monotonic_ns()
            time.sleep(self.milliseconds / 1e3)
            [data] = super()._read_many((key,), *how)
            if (instrument := hooks.active) is not None:
                instrument.record_span("request", "slow.get", begin, len(data))
            yield data


class _Samples:
    """A map-style data set over files."""

    def __init__(self, fs: fsabs.FS, decode_milliseconds: float) -> None:
        self.fs = fs
        self.decode = decode_milliseconds / 1e3

    def __len__(self) -> int:
        return 128

    def __getitem__(self, number: int) -> int:
        data = self.fs.read_bytes(f"{number}.bin")
        time.sleep(self.decode)
        return len(data)


@pytest.mark.parametrize(
    ("store", "decode", "part", "code", "workers"), [(8.0, 0.5, "storage", "F015", 2), (0.2, 8.0, "code", "F029", 0)]
)
def test_a_real_loop(tmp_path: Path, store: float, decode: float, part: str, code: str, workers: int) -> None:
    data: Any = pytest.importorskip("torch.utils.data")
    local = fsabs.from_url(tmp_path / "data", create=True)
    local.write_many((f"{number}.bin", bytes(100_000)) for number in range(128))
    slow = _SlowStore(local)
    slow.milliseconds = store
    with trace.record(tmp_path / "trace"):
        loader = data.DataLoader(_Samples(slow, decode), batch_size=8, num_workers=workers)
        for _ in trace.steps(loader):
            time.sleep(0.001)
    analysis = trace.analyze(tmp_path / "trace")
    _check_sums(analysis)
    whole = analysis.breakdown[0]
    lost = {"storage": sum(whole.causes[cause] for cause in STORE), "code": whole.causes["decode"]}
    assert lost[part] > 0.6 * 128 * 0.008 / max(workers, 1)  # a busy machine adds to it
    assert code in [finding.code for finding in analysis.findings]
    assert whole.workers == workers
