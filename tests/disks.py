"""Disks that this machine does not have: of other filesystems, with other clocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fsabs.core import identity
from fsabs.disk import folders


def on(patch: pytest.MonkeyPatch, kind: str | Callable[[str], str]) -> None:
    """Have every path be on a filesystem of a kind, or on the one that `kind` returns for it."""
    patch.setattr(folders, "filesystem_of", kind if callable(kind) else lambda path, table=None: kind)


def ticking(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have the clock of time stamps move every `seconds`; below 0, what was written just now counts as old."""
    patch.setattr(identity, "TICK", seconds)
