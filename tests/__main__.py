"""`python -m tests [pytest's arguments]`: all tests, in parts, each in three processes of pytest-xdist.

A fork takes as long as the process is large, and thousands of tests fork: so the conformance kit, which forks most,
runs in processes that have not imported the libraries of the adapters' tests, and the tests that import torch come
last. A path among the arguments runs what it names, in one part. The exit status is that of the first part that failed.

A few tests that failed are run once more, one after the other and with nothing beside them: a machine under load can be
slower than a test allows for. Those that succeed then are listed at the end, and each is a fault to look into, of the
test or of the code.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from tests.pythons import ROOT, left_out
from tests.servers import guard

PARALLEL = ("-n", "3", "--dist", "loadgroup")
KIT = ("tests/conformance", "tests/testing")
FAILED, NO_TESTS = 1, 5
"""pytest's exit status where tests failed, and where it has collected none."""
MAX_REPEATED = 5
"""More failures than so many in one part are not the machine's."""
MAX_SECONDS = 40 * 60
"""A part that takes longer hangs, in spite of the tests' own timeouts; it is ended, and its processes with it."""


def parts(arguments: list[str]) -> list[list[str]]:
    """Return the arguments of each run."""
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        return [[]]
    heavy = left_out()
    rest = [f"--ignore={path}" for path in (*KIT, *heavy)]
    return [list(KIT), ["tests", *rest], heavy]


def run(arguments: list[str], *options: str) -> tuple[int, list[str]]:
    """Run pytest; return its exit status, and the names of the tests that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *options, *arguments]
        try:
            status = subprocess.run(command, cwd=ROOT, check=False, timeout=MAX_SECONDS).returncode
        except subprocess.TimeoutExpired:
            sys.exit(f"the tests took longer than {MAX_SECONDS} s: {' '.join(command)}")
        cases = xml.etree.ElementTree.parse(report).iter("testcase") if report.exists() else ()
        bad = [case for case in cases if {"failure", "error"} & {child.tag for child in case}]
        return status, sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})


def main(arguments: list[str]) -> int:
    """Run all parts; return the exit status."""
    guard.start()
    statuses, repeated = [], []
    for part in parts(arguments):
        status, failed = run([*part, *arguments], *PARALLEL)
        if status == FAILED and 0 < len(failed) <= MAX_REPEATED:
            print(f"once more, with nothing beside them: {', '.join(failed)}", flush=True)
            status, failed_again = run([*part, *arguments], "--last-failed", "--last-failed-no-failures=none")
            repeated += sorted(set(failed) - set(failed_again))
        statuses.append(status)
    for name in repeated:
        print(f"failed beside others, and succeeded by itself: {name}")
    bad = [status for status in statuses if status not in (0, NO_TESTS)]
    return bad[0] if bad else min(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
