"""The conformance kit that every FS passes, ours or a third party's, and helps for tests of code that uses one.

An implementer writes a `Subject`; `run(subject)` returns a `Report`, and `FSConformance` has the same checks as tests
of pytest. `model_test` compares an FS with a model under random operations (Hypothesis). `FaultyFS` is a layer that
fails on schedule, for users' own tests. `docs/semantics.md` lists what is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import errors
from .faulty import Delay, Fault, FaultyFS, Kill, Raise, Stale, Truncate
from .kit import Check, Failure, Report, all_checks, checks, run
from .subject import Subject
from .subjects import (
    ContainerSubject,
    LocalSubject,
    MemorySubject,
    SubFSSubject,
    WrappedSubject,
    layered,
    lazified,
)

if TYPE_CHECKING:
    from .conformance import FSConformance
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

_HOMES = {"FSConformance": ("conformance", "pytest"), "model_test": ("model", "hypothesis")}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home, package = _HOMES[name]
    try:
        module = importlib.import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as exc:
        if exc.name != package:
            raise
        raise errors.missing(package, "testing", f"fsabs.testing.{name}") from exc
    value: object = getattr(module, name)
    globals()[name] = value
    return value
