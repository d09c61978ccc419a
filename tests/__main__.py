"""`python -m tests [pytest's arguments]`: all tests, in parts, each in three processes of pytest-xdist.

A fork takes as long as the process is large, and thousands of tests fork: so the conformance kit, which forks most,
runs in processes that have not imported the libraries of the adapters' tests, and the tests that import torch come
last. A path among the arguments runs what it names, in one part. The exit status is that of the first part that failed.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tests import parts
from tests.servers import guard

KIT = ("tests/conformance", "tests/testing")


def divided(arguments: list[str]) -> list[list[str]]:
    """Return the arguments of each run."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return [[]]
    heavy = parts.left_out()
    rest = [f"--ignore={path}" for path in (*KIT, *heavy)]
    return [list(KIT), ["tests", *rest], heavy]


def main(arguments: list[str]) -> int:
    """Run all parts; return the exit status."""
    guard.start()
    chosen = divided(arguments)
    with parts.compiled() if len(chosen) > 1 else contextlib.nullcontext():
        runs = [parts.run([*part, *arguments]) for part in chosen]
    parts.report([name for _, repeated in runs for name in repeated])
    statuses = [status for status, _ in runs]
    bad = [status for status in statuses if status not in (0, parts.NO_TESTS)]
    return bad[0] if bad else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
