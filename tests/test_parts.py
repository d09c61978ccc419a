"""Every test is in one part of the tests; parts run beside one another; what failed runs once more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import parts
from tests.parts import NO_TESTS, PROCESSES, USAGE_ERROR, File, Outcome

pytestmark = pytest.mark.quick


def test_every_file_is_in_one_part() -> None:
    divided = [path for part in parts.divide(parts.files()) for path in part]
    assert sorted(divided) == sorted(
        str(path.relative_to(parts.ROOT)) for path in parts.ROOT.glob("tests/**/test_*.py")
    )
    assert set(parts.SECONDS) <= set(divided), "files that are no longer there"


def test_torch_is_apart_and_the_longest_part_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SECONDS", {"tests/b.py": 100, "tests/d.py": 60, "tests/e.py": parts.PART_SECONDS - 1})
    found = [File(f"tests/{name}.py", name in "cd", ("ceph",) * (name == "a")) for name in "abcdefg"]
    assert parts.divide(found) == [["tests/b.py"], ["tests/d.py"], ["tests/e.py"], *_below("fga"), *_below("c")]
    assert parts.divide([]) == []


def _below(names: str) -> list[list[str]]:
    return [[f"tests/{name}.py" for name in names]]


def test_paths_choose_files() -> None:
    assert [file.path for file in parts.files(["tests/test_keys.py"])] == ["tests/test_keys.py"]
    assert {Path(file.path).parent.name for file in parts.files(["tests/cli", "tests/trace"])} == {"cli", "trace"}
    [file] = parts.files(["tests/test_dataloader.py"])
    assert file.with_torch
    assert file.servers == ("azurite", "ceph", "dav", "gcs", "hdfs", "moto")


FILE = """
import os, time
import pytest

@pytest.mark.parametrize("number", range(3))
def test_together(number):
    open(os.path.join(os.path.dirname(__file__), "NAME-is-here"), "w").close()
    deadline = time.monotonic() + 30
    while len([name for name in os.listdir(os.path.dirname(__file__)) if name.endswith("-is-here")]) < AT_ONCE:
        assert time.monotonic() < deadline
        time.sleep(0.01)

def test_that_fails():
    assert "NAME" != "b"
"""


def test_parts_run_beside_one_another(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        text = FILE.replace("NAME", name).replace("AT_ONCE", str(PROCESSES))
        (tmp_path / f"test_{name}.py").write_text(text)
    outcomes = parts.run([[str(tmp_path / f"test_{name}.py")] for name in names])
    assert sorted(outcome.status for outcome in outcomes) == [0, 0, 0, 1]
    [failed] = [name for outcome in outcomes for name in outcome.failed]  # relative to what pytest takes as the root
    assert failed.endswith("test_b.py::test_that_fails")
    printed = capfd.readouterr().out
    assert printed.count("4 passed") == 3
    assert printed.count("1 failed, 3 passed") == 1


def test_a_part_alone_prints_as_it_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): pass")
    [outcome] = parts.run([[str(tmp_path)]])
    assert (outcome.status, outcome.output) == (0, "")
    assert "1 passed" in capfd.readouterr().out


def test_what_does_not_exist_is_named_and_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert parts.main(["tests/no_such.py"]) == USAGE_ERROR
    printed = capfd.readouterr().out
    assert 0 < printed.count("file or directory not found: tests/no_such.py") <= PROCESSES


def test_a_part_that_hangs_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_a.py").write_text("import time\ndef test_one(): time.sleep(50)")
    monkeypatch.setattr(parts, "MAX_SECONDS", 0.5)
    begin = time.monotonic()
    with pytest.raises(SystemExit, match="takes longer than"):
        parts.run([[str(tmp_path)]])
    assert time.monotonic() - begin < 20


class Runs:
    """Outcomes of runs that are made up, and what was asked for."""

    def __init__(self, *runs: Sequence[Outcome]) -> None:
        self._runs = list(runs)
        self.asked: list[Any] = []

    def __call__(self, chosen: Any, options: Any, python: str) -> list[Outcome]:
        self.asked.append((chosen, options))
        return list(self._runs.pop(0))


def outcome(status: int, *failed: str, last: str = "") -> Outcome:
    return Outcome(status, list(failed), f"...\n{last}\n", 1.0)


GOOD = outcome(0, last="7 passed, 1 skipped in 3.21s\nleaked 27 instances!")


def run(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], *runs: Sequence[Outcome]) -> tuple[int, list[Any]]:
    made_up = Runs(*runs)
    monkeypatch.setattr(parts, "run", made_up)
    return parts.main(arguments), made_up.asked


def test_what_failed_runs_once_more(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first = [GOOD, outcome(1, "x::a", "x::b", last="2 failed, 1,000 passed in 3s")]
    assert run(monkeypatch, [], first, [outcome(0)])[0] == 0
    printed = capsys.readouterr().out
    assert "failed beside others, and succeeded by itself: x::a\n" in printed
    assert "FAILED" not in printed
    status, asked = run(monkeypatch, ["-v"], first, [outcome(1, "x::b")])
    assert (status, asked[1]) == (1, ([["x::a", "x::b"]], ["-v"]))
    printed = capsys.readouterr().out
    assert "by itself: x::a\n" in printed
    assert "by itself: x::b\n" not in printed
    assert "FAILED x::b\n" in printed


def test_many_failures_and_errors_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [outcome(1, *(f"x::{number}" for number in range(parts.MAX_REPEATED + 1)))]
    assert run(monkeypatch, [], many)[0] == 1
    assert run(monkeypatch, [], [outcome(1, "x::a"), outcome(2, "y.py")])[0] == 2
    assert run(monkeypatch, [], [outcome(-11), GOOD])[0] == -11


def test_parts_without_tests_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, ["-k", "x"], [GOOD, outcome(NO_TESTS), GOOD])[0] == 0
    assert "14 passed, 2 skipped in 0:00" in capsys.readouterr().out
    assert run(monkeypatch, ["-k", "x"], [outcome(NO_TESTS)] * 2)[0] == NO_TESTS


def test_a_test_that_is_named_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "tests/test_keys.py::test_inside"
    assert run(monkeypatch, [name, "-q"], [GOOD])[1] == [([[name]], ["-q"])]
