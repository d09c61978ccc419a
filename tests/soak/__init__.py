"""The long forms of randomised tests: how a test asks for its size and seed, and notes what it tried.

A test marked `soak` runs in the suite with a fixed seed and a small number of rounds. `make soak` runs the same test
again and again with other seeds and more rounds (`python -m tests.soak`), and writes what was tried to `RESULTS.txt`.
"""

from __future__ import annotations

import json
import os


def rounds(short: int) -> int:
    """Return the number of rounds to run: `short` in the suite, a multiple of it under `make soak`."""
    return short * int(os.environ.get("FSABS_SOAK_FACTOR", "1"))


def seed(default: int) -> int:
    """Return the seed to use: `default` in the suite, a new one in each run of `make soak`."""
    return int(os.environ.get("FSABS_SOAK_SEED", default))


def count(what: str, number: int) -> None:
    """Record that `number` more of `what` ("requests", "kills") were tried; a no-op outside of `make soak`."""
    if path := os.environ.get("FSABS_SOAK_COUNTS"):
        with open(path, "a") as file:
            file.write(json.dumps({what: number}) + "\n")
