"""`python -m benchmarks --against REF` in a small repository, with the real frame and a benchmark of constants."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.frame import one

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
    pytest.mark.timeout(300),  # each starts up to twenty processes
]

BENCHMARK = '''
"""Constants, one of them from the code that is measured, in a process that starts elsewhere."""

import subprocess
import sys

from .frame.measure import Spread
from .frame.race import Bench, Row, Table


def run(bench: Bench) -> None:
    command = [sys.executable, "-c", "import fsabs; print(fsabs.READ)"]
    times = {{"read": float(subprocess.check_output(command, cwd=bench.folder)), **{times}}}
    rows = [Row(name, Spread(value, value, value), Spread(1, 1, 1), name != "a peer") for name, value in times.items()]
    bench.tables.append(Table("files", "us/file", rows))
    bench.cpu["files, read"] = 0.001
    bench.claim("all files", [{rate}], "files/s")
    bench.claim("all files, against a peer", [{rate}], "x")
'''
BEFORE = {"written": 2.0, "listed": 3.0, "a peer": 1.0, "moved": 1.0}


def constants(times: dict[str, float], rate: float) -> str:
    """A benchmark with these figures."""
    return BENCHMARK.format(times=json.dumps(times), rate=rate)


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", *identity, *arguments], cwd=repository, text=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of two commits: the second made listing faster."""
    folder = tmp_path / "repository"
    for name in ("__init__.py", "__main__.py"):
        (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
        shutil.copy(one.BENCHMARKS / name, folder / "benchmarks")
    shutil.copytree(one.BENCHMARKS / "frame", folder / "benchmarks" / "frame")
    (folder / "fsabs").mkdir()
    (folder / "fsabs" / "__init__.py").write_text("READ = 1.0\n")
    (folder / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet", str(folder))
    for times in (BEFORE, {**BEFORE, "listed": 1.5}):
        (folder / "benchmarks" / "files.py").write_text(constants(times, 5.0))
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "figures")
    return folder


def against(repository: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Run it; return its exit status, the lines that it printed, with single spaces, and its errors."""
    command = [sys.executable, "-m", "benchmarks", "--against", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    return done.returncode, [" ".join(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_what_is_not_committed_is_compared_row_by_row(repository: Path) -> None:
    (repository / "fsabs" / "__init__.py").write_text("from .read import READ\n")
    (repository / "fsabs" / "read.py").write_text("READ = 1.2\n")
    times = {"written": 2.05, "listed": 1.5, "a peer": 9.0, "copied": 1.0}
    (repository / "benchmarks" / "files.py").write_text(constants(times, 4.0))
    (repository / "benchmarks" / "untracked.py").write_text(constants(BEFORE, 5.0))
    status = git(repository, "status", "--porcelain")
    code, lines, errors = against(repository, "HEAD~1", "--turns", "1")
    assert (code, errors) == (1, "")
    assert lines[1:] == [
        "",
        "=== files",
        "new/old (10% .. 90%) old/old (10% .. 90%)",
        "1.20 1.00 SLOWER files, read [us/file]",
        "1.02 1.00 files, written [us/file]",
        "0.500 1.00 files, listed [us/file]",
        "1.25 1.00 SLOWER all files [files/s]",
        "1.00 1.00 files, read [CPU seconds]",
        "files, copied [us/file]: missing in old, old once more",
        "files, moved [us/file]: missing in new",
        "",
        "=== untracked: missing in old",
    ]
    assert git(repository, "status", "--porcelain") == status


def test_nothing_slower_is_status_0(repository: Path) -> None:
    code, lines, errors = against(repository, "HEAD~1", "--turns", "1", "files")
    assert (code, errors) == (0, "")
    assert not git(repository, "status", "--porcelain")
    assert "0.500 1.00 files, listed [us/file]" in lines
    assert not any("SLOWER" in line for line in lines)


def test_a_side_that_fails_is_named_with_the_reason(repository: Path) -> None:
    (repository / "benchmarks" / "files.py").write_text("import no_such_module\n")
    code, _, errors = against(repository, "HEAD", "files")
    assert code == 1
    assert errors == "failed: files, new: ModuleNotFoundError: No module named 'no_such_module'\n"


@pytest.mark.parametrize("arguments", [["no-such-commit"], ["HEAD", "--turns", "0"], ["HEAD", "no_such_benchmark"]])
def test_usage(repository: Path, arguments: list[str]) -> None:
    code, _, errors = against(repository, *arguments)
    assert code == 2
    assert "usage: " in errors
