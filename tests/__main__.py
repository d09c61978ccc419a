"""`python -m tests [pytest's arguments]`: all tests, in parts, each in three processes of pytest-xdist.

A fork takes as long as the process is large, and thousands of tests fork: so the conformance kit, which forks most,
runs in processes that have not imported the libraries of the adapters' tests, and the tests that import torch come
last. A path among the arguments runs what it names, in one part. The exit status is that of the first part that failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pythons import ROOT, left_out
from tests.servers import guard

PARALLEL = ("-n", "3", "--dist", "loadgroup")
KIT = ("tests/conformance", "tests/testing")
NO_TESTS = 5
"""pytest's exit status where it has collected none."""


def parts(arguments: list[str]) -> list[list[str]]:
    """Return the arguments of each run."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return [[]]
    heavy = left_out()
    rest = [f"--ignore={path}" for path in (*KIT, *heavy)]
    return [list(KIT), ["tests", *rest], heavy]


def main(arguments: list[str]) -> int:
    """Run all parts; return the exit status."""
    guard.start()
    statuses = []
    for part in parts(arguments):
        command = [sys.executable, "-m", "pytest", *PARALLEL, *part, *arguments]
        statuses.append(subprocess.run(command, cwd=ROOT, check=False).returncode)
    failed = [status for status in statuses if status not in (0, NO_TESTS)]
    return failed[0] if failed else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
