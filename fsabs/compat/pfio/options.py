"""Options of PFIO that have no meaning here, or that no class knows: accepted, with one warning for each."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class IgnoredOptionWarning(UserWarning):
    """An option has no effect."""


_warned: set[tuple[str, str]] = set()


def warn_ignored(where: str, names: Iterable[str]) -> None:
    """Warn that the options `names` have no effect; of each once in a process."""
    for name in names:
        if (where, name) not in _warned:
            _warned.add((where, name))
            warnings.warn(f"{where}: {name}= has no effect", IgnoredOptionWarning, stacklevel=4)
