"""What races: each function prepares one client and returns what does one round; ours and theirs stand side by side.

A function here runs in a process of its own, in the environment where its client is installed. It takes what JSON can
say and returns a callable without arguments, which does the work of one round, checks that what it read is whole, and
may return a mapping of further figures (`seconds` among them, where it has taken the time itself).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Run = Callable[[], Mapping[str, float] | None]


def library(name: str) -> Any:
    """A module that may not be installed here: where it isn't, the contestant is absent, and that is its reason."""
    return importlib.import_module(name)


def whole(data: Any, size: int) -> None:
    """Raises if what came is not `size` bytes: a fast client that loses bytes has not won."""
    if len(data) != size:
        raise RuntimeError(f"{len(data)} bytes came, and not {size}")
