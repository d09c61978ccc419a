"""Runs of pytest over one part of the tests. A few tests that fail are run once more, with nothing beside them.

A machine under load can be slower than a test allows for. What succeeds only the second time is returned by name, and
each of these is a fault to look into, of the test or of the code.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADAPTERS = "tests/adapters"
TORCH = re.compile(r"^(import|from) torch\b", re.MULTILINE)
PARALLEL = ("-n", "3", "--dist", "loadgroup")
FAILED, NO_TESTS = 1, 5
"""pytest's exit status where tests failed, and where it has collected none."""
MAX_REPEATED = 5
"""More failures than so many in one part are not the machine's."""
MAX_SECONDS = 40 * 60
"""A part that takes longer hangs, in spite of the tests' own timeouts; it is ended, and its processes with it."""


def left_out() -> list[str]:
    """Return the tests that can't be loaded without torch and the other libraries of the adapters."""
    modules = (ROOT / "tests").rglob("test_*.py")
    with_torch = [str(path.relative_to(ROOT)) for path in sorted(modules) if TORCH.search(path.read_text())]
    return [ADAPTERS, *(path for path in with_torch if not path.startswith(ADAPTERS))]


def run(arguments: Sequence[str], python: str = sys.executable) -> tuple[int, list[str]]:
    """Run a part in three processes; return pytest's exit status, and what failed at first only."""
    status, failed = _pytest(python, [*arguments, *PARALLEL])
    if status != FAILED or not 0 < len(failed) <= MAX_REPEATED:
        return status, []
    print(f"once more, with nothing beside them: {', '.join(failed)}", flush=True)
    status, failed_again = _pytest(python, [*arguments, "--last-failed", "--last-failed-no-failures=none"])
    return status, sorted(set(failed) - set(failed_again))


def is_compiled(tests: Path = ROOT / "tests") -> bool:
    """Return whether pytest has compiled all tests, on this Python, since they were written."""
    for path in tests.rglob("test_*.py"):
        found = (path.parent / "__pycache__").glob(f"{path.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
        if not any(one.stat().st_mtime >= path.stat().st_mtime for one in found):
            return False
    return True


@contextlib.contextmanager
def compiled() -> Iterator[None]:
    """Import all tests in a process beside the first part: in a new clone, each worker would compile all for itself."""
    if is_compiled():
        yield
        return
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests"]
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        try:
            yield
        finally:
            run.kill()


def _environment() -> dict[str, str]:
    """Return the environment: thousands of processes start, and without bytecode each would compile what it imports."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _pytest(python: str, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Run pytest; return its exit status, and the names of the tests that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", f"--junit-xml={report}", *arguments]
        try:
            status = subprocess.run(command, cwd=ROOT, env=_environment(), check=False, timeout=MAX_SECONDS).returncode
        except subprocess.TimeoutExpired:
            sys.exit(f"the tests took longer than {MAX_SECONDS} s: {' '.join(command)}")
        cases = xml.etree.ElementTree.parse(report).iter("testcase") if report.exists() else ()
        bad = [case for case in cases if {"failure", "error"} & {child.tag for child in case}]
        return status, sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})


def report(repeated: Sequence[str]) -> None:
    """List what failed at first only."""
    for name in repeated:
        print(f"failed beside others, and succeeded by itself: {name}")
