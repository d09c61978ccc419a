"""Epochs of records from a store 10 ms away with a step of 2 ms a batch, against the ideal pipeline."""

from .pipeline import records as run

__all__ = ["run"]
