"""The figures: what a round gives, the median and spread over rounds, and what was aimed at.

The rivals take turns in one run, so that what disturbs the machine disturbs all alike; a ratio is taken within each
round, and its median with the 10th and 90th percentile over the rounds is what is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

Round = Mapping[str, float]
"""What one contestant did in one round: `seconds`, `cpu` (seconds), and what else it counts."""


class Contestant(Protocol):
    """What can be asked for a round."""

    def round(self) -> Round:
        """Do the work once. Raises `Dropped` where it can't go on."""

    def close(self) -> None:
        """End it."""


class Dropped(Exception):
    """A contestant that is out, and why."""


class Spread(NamedTuple):
    """A figure over the rounds."""

    median: float
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""


def spread(values: Sequence[float]) -> Spread:
    """The median, and where 80 % of the values lie; never beyond the values themselves."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return Spread(statistics.median(values), deciles[0], deciles[-1])


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """`one / other` within each round."""
    return [one / other for one, other in zip(ones, others, strict=True)]


class Target(NamedTuple):
    """What is aimed at: a bound and the side of it."""

    bound: float
    least: bool
    """Whether the bound is the least that will do; else it is the most."""
    of: str = ""
    """What the bound is a multiple of, or its unit."""

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.bound:g} {self.of}".rstrip()

    def reached(self, value: float) -> bool:
        """Whether a value is on the right side."""
        return value >= self.bound if self.least else value <= self.bound


def at_least(bound: float, of: str = "") -> Target:
    """A target from below."""
    return Target(bound, True, of)


def at_most(bound: float, of: str = "") -> Target:
    """A target from above."""
    return Target(bound, False, of)


def take_turns(
    contestants: Mapping[str, Contestant], rounds: int, dropped: Callable[[str, Dropped], None], warming: int = 1
) -> dict[str, list[Round]]:
    """Run all contestants `rounds` times, in turns, after `warming` rounds each that don't count.

    Each second round has the order of the one before reversed, and the next begins with another one, so that of two
    contestants each is as often before the other as after it, and a machine that slows down or speeds up favours
    neither. A contestant that drops out is reported to `dropped`, and is missing in the result.
    """
    taken: dict[str, list[Round]] = {name: [] for name in contestants}
    for turn in range(warming + rounds):
        names = list(taken)
        shift = turn // 2 % len(names) if names else 0
        order = names[shift:] + names[:shift]
        for name in reversed(order) if turn % 2 else order:
            try:
                figures = contestants[name].round()
            except Dropped as exc:
                del taken[name]
                dropped(name, exc)
                continue
            if turn >= warming:
                taken[name].append(figures)
    return taken
