"""Data preparation: from raw files to sharded RecordIO by a user's function, on this machine or on Spark.

`run` is the function behind `fsabs prepare`. The names here are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import exports

if TYPE_CHECKING:
    from .model import FeatureColumn, ModelError
    from .plan import OutputShard, PrepareProgress, PrepareReport
    from .running import PrepareError, run

_HOMES = {
    "FeatureColumn": "model",
    "ModelError": "model",
    "PrepareError": "running",
    "OutputShard": "plan",
    "PrepareProgress": "plan",
    "PrepareReport": "plan",
    "run": "running",
}

__all__ = [
    "FeatureColumn",
    "ModelError",
    "OutputShard",
    "PrepareError",
    "PrepareProgress",
    "PrepareReport",
    "run",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
