"""The `fsabs` command: `main` is its entry point.

A command is a function in a module of this package, and a line in `COMMANDS`, in `program.py`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

_OBJECTS = 50_000
"""New objects after which a command looks for cycles of garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fsabs` with these arguments, or those of the process; return the exit code.

    0 after success, 1 after a failure, 2 for arguments that make no sense, 130 after Ctrl-C.
    """
    if arguments is None:  # a process of its own: the collector takes a tenth of the time of its imports
        gc.set_threshold(_OBJECTS)
    try:
        from .program import run
    except KeyboardInterrupt:
        sys.stderr.write("fsabs: interrupted\n")
        return 130
    return run(arguments)
