"""Epochs of records from a store 10 ms away with a step of 2 ms a batch, against the ideal pipeline."""

from __future__ import annotations

from .frame.race import Bench
from .pipeline import epochs, far


def run(bench: Bench) -> None:
    """A race for each data set."""
    with far(bench) as at:
        epochs(bench, "pipelines.fsabs", "records", "RecordIODataset", ("plain", "ours"), at)
        epochs(bench, "pipelines.fsabs", "sharded", "ShardedDataset", ("plain",), at)
