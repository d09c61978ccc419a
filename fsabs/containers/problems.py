"""The reports of a container's `verify()`: a `Problem` for each fault or oddity."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """Something wrong with one entry of a container, or with the container itself."""

    path: str
    """The entry's name as the container has it; `""` for the container itself."""
    kind: str
    """What it is, in one or two words that are the same for every case of it: `duplicate`, `unsafe name`, ..."""
    detail: str
    """A sentence for people: what was found, where, and what was expected."""
