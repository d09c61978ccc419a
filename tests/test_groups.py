"""The tests of a group run in one worker of pytest-xdist: one server is started, a file's fixtures are made once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests import parts

ROOT = Path(__file__).parents[1]
FILE = """
import os, time
import pytest

@pytest.mark.parametrize("number", range(6))
def test_of_the_file(number):
    note("NAME")

@pytest.mark.xdist_group("shared")
def test_of_a_shared_group():
    note("shared")

@pytest.mark.parametrize("store", ["hdfs", "hdfs", "ceph"])
def test_of_a_server(store):
    note(store)

def note(group):
    time.sleep(0.02)
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{group} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


def test_a_group_has_one_worker(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"test_{name}.py").write_text(FILE.replace("NAME", name))
    options = ["-p", "tests.groups", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup"]
    environment = {**os.environ, "NOTES": str(tmp_path / "notes"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    workers: dict[str, set[str]] = defaultdict(set)
    for line in (tmp_path / "notes").read_text().splitlines():
        group, worker = line.split()
        workers[group].add(worker)
    assert sorted(workers) == ["a", "b", "c", "ceph", "d", "hdfs", "shared"]
    assert all(len(found) == 1 for found in workers.values()), workers
    assert set.union(*workers.values()) == {"gw0", "gw1"}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no/such/test_path.py", "file or directory not found: no/such/test_path.py"),
        ("test_a.py::test_other", "no tests in: test_a.py::test_other"),
    ],
)
def test_what_does_not_exist_is_named(path: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass")
    options = ["-p", "tests.groups", "-p", "no:cacheprovider", "-n", "1", "--dist", "loadgroup"]
    command = [sys.executable, "-m", "pytest", "-q", *options, path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 4, done.stdout + done.stderr
    assert reason in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


def test_tests_are_compiled_once(tmp_path: Path) -> None:
    """Until one of them is written anew."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text("def test_one(): assert True")
    assert not parts.is_compiled(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=50, check=True)
    assert parts.is_compiled(tmp_path)
    later = time.time() + 10
    os.utime(tmp_path / "b" / "test_b.py", (later, later))
    assert not parts.is_compiled(tmp_path)
