"""Public names whose library is not installed: they can be looked at, and say what is missing when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import inspect, io, pydoc, sys
for name in ("sqlalchemy", "pytest", "hypothesis"):
    sys.modules[name] = None
import fsabs
import fsabs.testing
from fsabs.testing import *
for package in (fsabs, fsabs.testing):
    assert inspect.getmembers(package)
    pydoc.Helper(output=io.StringIO()).help(package)
    exec(f"from {package.__name__} import *")
if sys.argv[1] == "torch":
    import fsabs.adapters.torch
    from fsabs.adapters.torch import *
    assert inspect.getmembers(fsabs.adapters.torch)
    uses = [lambda: TaskDataset("sqlite:///x", None)]
else:
    uses = [lambda: fsabs.testing.run(None), lambda: fsabs.dispatch.TaskDispatcher("x"), lambda: model_test(None)]
for use in uses:
    try:
        use()
    except fsabs.MissingDependencyError as exc:
        print(exc)
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("of", "missing"), [("torch", ["fsabs[sql]"]), ("others", ["fsabs[testing]", "fsabs[sql]", "fsabs[testing]"])]
)
def test_a_name_is_looked_at_without_its_library(of: str, missing: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, of], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(missing)
    assert all(extra in line for extra, line in zip(missing, lines, strict=True))
