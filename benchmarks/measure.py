"""How the benchmarks measure: the rivals take turns in one run, so that what disturbs the machine disturbs all alike;
a ratio is taken within each round, and its median and spread over the rounds are what is reported.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"


class Result(NamedTuple):
    """One contestant against the base."""

    name: str
    seconds: float
    """Of one round, the median."""
    ratio: float
    """To the base in the same round, the median: 2 is twice as slow."""
    low: float
    """The 10th percentile of the ratio."""
    high: float
    """The 90th percentile of the ratio."""


def compare(contestants: Mapping[str, Callable[[], float | None]], rounds: int) -> list[Result]:
    """Run all contestants `rounds` times, in turns; the first is the base that the others are compared with.

    A contestant that returns a number has taken the time itself, in seconds; else its call is timed.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            own = run()
            taken = time.perf_counter() - start if own is None else own
            if turn:  # the first round warms up
                times[name].append(taken)
    base = times[next(iter(contestants))]
    return [_result(name, taken, base) for name, taken in times.items()]


def reading(read: Callable[[str], bytes], names: Iterable[str], size: int) -> Callable[[], None]:
    """A contestant that reads what `names` names, and looks whether it came whole: `size` bytes each."""

    def run() -> None:
        for name in names:
            if len(read(name)) != size:
                raise RuntimeError(f"{name} is not whole")

    return run


def _result(name: str, taken: list[float], base: list[float]) -> Result:
    ratios = [mine / its for mine, its in zip(taken, base, strict=True)]
    deciles = statistics.quantiles(ratios, n=10)
    return Result(name, statistics.median(taken), statistics.median(ratios), deciles[0], deciles[-1])


def show(title: str, results: list[Result], per_round: int, unit: str) -> None:
    """Print a table; a round has `per_round` things of which `unit` says one takes how long."""
    print(f"\n{title}\n{'':<36} {unit:>12} {'ratio':>7}   10% .. 90%")
    for one in results:
        each = one.seconds / per_round * 1e6
        print(f"{one.name:<36} {each:>12.1f} {one.ratio:>7.2f}   {one.low:.2f} .. {one.high:.2f}")


def save(name: str, tables: Mapping[str, list[Result]]) -> None:
    """Write `results/NAME.json`: the tables, and what they were measured on."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    content = {"machine": machine, "tables": {title: [one._asdict() for one in rows] for title, rows in tables.items()}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
