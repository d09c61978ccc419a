"""The conformance kit that every FS passes, ours or a third party's, and helps for tests of code that uses one.

An implementer writes a `Subject`; `FSConformance` is a test class of pytest that holds its FS to `docs/semantics.md`,
and `run(subject)` does the same in a program and returns a `Report`. `model_test` compares an FS with a model under
random operations (Hypothesis). `FaultyFS` is a layer that fails on schedule, for users' own tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import exports
from .faulty import Delay, Fault, FaultyFS, Kill, Raise, Stale, Truncate
from .subjects import (
    ContainerSubject,
    LocalSubject,
    MemorySubject,
    SubFSSubject,
    Subject,
    WrappedSubject,
    layered,
    lazified,
)

if TYPE_CHECKING:
    from .kit import Check, Failure, FSConformance, Report, all_checks, checks, run
    from .model import model_test

__all__ = [
    "Check",
    "ContainerSubject",
    "Delay",
    "FSConformance",
    "Failure",
    "Fault",
    "FaultyFS",
    "Kill",
    "LocalSubject",
    "MemorySubject",
    "Raise",
    "Report",
    "Stale",
    "SubFSSubject",
    "Subject",
    "Truncate",
    "WrappedSubject",
    "all_checks",
    "checks",
    "layered",
    "lazified",
    "model_test",
    "run",
]

_OF_KIT = ("Check", "FSConformance", "Failure", "Report", "all_checks", "checks", "run")  # which needs pytest
__getattr__, __dir__ = exports(__name__, {**dict.fromkeys(_OF_KIT, "kit"), "model_test": "model"})
