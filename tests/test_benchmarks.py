"""The benchmarks' frame: from a command to results, and the working tree against a commit.

The figures are those of `make bench`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.frame import one, peers


def test_a_benchmark_measures_and_writes_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(environment: str, package: str) -> str:
        raise peers.Missing(f"no {package} in {environment}")

    monkeypatch.setattr(peers, "interpreter", absent)  # which would install them
    monkeypatch.setattr(one, "RESULTS", tmp_path)
    one.run("import_time", rounds=1)
    assert "import fsabs" in capsys.readouterr().out
    claims = json.loads((tmp_path / "import_time.json").read_text())["claims"]
    assert claims[0]["figure"]["median"] > 0
    assert "import fsabs" in (tmp_path / "import_time.md").read_text()


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
COMMITTED = {"written": 2.0, "listed": 3.0, "a peer": 1.0, "moved": 1.0}


def constants(times: dict[str, float], rate: float) -> str:
    """A benchmark with these figures."""
    return BENCHMARK.format(times=json.dumps(times), rate=rate)


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.check_output(["git", *identity, *arguments], cwd=repository, text=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the real frame and a benchmark of constants."""
    folder = tmp_path / "repository"
    shutil.copytree(one.BENCHMARKS / "frame", folder / "benchmarks" / "frame")
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(one.BENCHMARKS / name, folder / "benchmarks")
    (folder / "benchmarks" / "files.py").write_text(constants(COMMITTED, 5.0))
    (folder / "fsabs").mkdir()
    (folder / "fsabs" / "__init__.py").write_text("READ = 1.0\n")
    (folder / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet", str(folder))
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "figures")
    return folder


def against(repository: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Run `--against`; return its exit status, the lines that it printed, with single spaces, and its errors."""
    command = [sys.executable, "-m", "benchmarks", "--against", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    return done.returncode, [" ".join(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_the_working_tree_is_compared_with_a_commit_row_by_row(repository: Path) -> None:
    benchmark = repository / "benchmarks" / "files.py"
    benchmark.write_text(constants({**COMMITTED, "listed": 1.5}, 5.0))
    code, lines, errors = against(repository, "HEAD", "--turns", "1", "files")
    assert (code, errors) == (0, "")
    assert "0.500 1.00 files, listed [us/file]" in lines
    assert not any("SLOWER" in line for line in lines)
    (repository / "fsabs" / "__init__.py").write_text("from .read import READ\n")
    (repository / "fsabs" / "read.py").write_text("READ = 1.2\n")
    benchmark.write_text(constants({"written": 2.05, "listed": 1.5, "a peer": 9.0, "copied": 1.0}, 4.0))
    (repository / "benchmarks" / "untracked.py").write_text(constants(COMMITTED, 5.0))
    status = git(repository, "status", "--porcelain")
    code, lines, errors = against(repository, "HEAD", "--turns", "1")
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


def test_a_side_that_fails_is_named_and_so_is_what_is_not_there(repository: Path) -> None:
    (repository / "benchmarks" / "files.py").write_text("import no_such_module\n")
    code, _, errors = against(repository, "HEAD", "files")
    assert code == 1
    assert errors == "failed: files, new: ModuleNotFoundError: No module named 'no_such_module'\n"
    for arguments in (["no-such-commit"], ["HEAD", "--turns", "0"], ["HEAD", "no_such_benchmark"]):
        code, _, errors = against(repository, *arguments)
        assert code == 2
        assert "usage: " in errors
