"""Counted: a sample that stands for several positions of an epoch's order; Weighted: samples handed over together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Counted(NamedTuple):
    """A batch that a data set makes itself, or a packed window."""

    positions: int
    """How many positions of the order it holds."""
    lost: int
    """How many of them are damaged records that were skipped."""
    sample: Any
    """`LOST` where nothing is left."""
    parts: tuple[int, ...] = ()
    """Of packed windows, for each document in them: the number of its first token among the positions that are read."""


class Weighted(list[Any]):
    """Samples that are handed over together, and the size of them in memory, in bytes, about."""

    def __init__(self, samples: Iterable[Any], nbytes: int) -> None:
        super().__init__(samples)
        self.nbytes = nbytes


def weight(samples: list[Any]) -> int:
    """Return the size of `Weighted` samples."""
    assert isinstance(samples, Weighted)
    return samples.nbytes
