"""An exception that a signal handler raises at any moment leaves no lock held, nothing half-changed, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak

_ROOT = Path(__file__).parents[1]
CASES = ["local", "local-write", "memory", "memory-write", "reader", "lazy", "layer", "copy-tree", "as-local", "cached"]
CASES += [f"{way}{name}" for name in ("a.zip", "a.tar", "a.tar.gz") for way in ("", "open-")]


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_operation_leaves_all_as_it_was(case: str) -> None:
    times, seed = soak.rounds(150), soak.seed(1)
    command = [sys.executable, "-m", "tests.interrupts", case, str(times), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90 + times / 5, cwd=_ROOT)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    interrupted, descriptors, folders = map(int, done.stdout.split())
    soak.count("interrupts", interrupted)
    assert interrupted > times // 10, "the interrupts came too late"
    # One may be lost where an interrupt comes into a finalizer: Python itself ignores that one, with the finalizer.
    assert descriptors <= 1 + interrupted // 100, f"seed {seed}: {descriptors} descriptors lost"
    assert folders == 0, f"seed {seed}: {folders} temporary folders are left"
