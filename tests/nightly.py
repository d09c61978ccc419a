"""`python -m tests.nightly [SLICE...]`: what `make test` leaves out, in slices of about equal time.

Without a number all of them are run. A slice is a share of the tests that are marked `nightly`, and programs that test
beside pytest: other Pythons, other projects' suites. Which share a test is in follows from its id alone. CI runs one
slice with each merge: the one whose number stands in `.ci/slice`, counted round.
"""

from __future__ import annotations

import bisect
import itertools
import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

from tests.servers import guard

ROOT = Path(__file__).parents[1]


class Slice(NamedTuple):
    """A part of the nightly tests."""

    weight: float
    """The share of the tests, as a part of the sum of all weights."""
    programs: tuple[tuple[str, ...], ...] = ()
    """Modules that are run, with their arguments."""


SLICES = (
    Slice(1.0),
    Slice(0.5, (("tests.pythons", "3.12"),)),
    Slice(1.0),
    Slice(0.5, (("tests.judges", "--short"),)),
    Slice(1.0),
    Slice(0.5, (("tests.pythons", "3.13"),)),
)
"""The weights are what makes the slices take equally long."""
_BOUNDS = [*itertools.accumulate(one.weight for one in SLICES)]


def slice_of(test: str) -> int:
    """Return the number of the slice, from 1 on, that a test is in, by its id."""
    position = zlib.crc32(test.encode()) / 2**32 * _BOUNDS[-1]
    return bisect.bisect(_BOUNDS, position) + 1


def run(number: int) -> bool:
    """Run a slice; return True if all of it passed."""
    pytest = ("pytest", "-q", "-n", "3", "--dist", "worksteal", "-m", "nightly", f"--slice={number}")
    passed = True
    for program in (pytest, *SLICES[number - 1].programs):
        print(f"--- slice {number}: {' '.join(program)}", flush=True)
        passed &= subprocess.run([sys.executable, "-m", *program], cwd=ROOT, check=False).returncode == 0
    return passed


def main(arguments: list[str]) -> int:
    """Run the slices that are numbered, counted round; return the exit status."""
    numbers = [(int(one) - 1) % len(SLICES) + 1 for one in arguments] or range(1, len(SLICES) + 1)
    failed = [number for number in numbers if not run(number)]
    if failed:
        print(f"failed: slice {', '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    guard.start()
    sys.exit(main(sys.argv[1:]))
