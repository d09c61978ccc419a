"""A benchmark runs from its command's function to its results; the figures are those of `make bench`."""

from __future__ import annotations

import json
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
    one.run("import_time", full=False, rounds=1)
    assert "import fsabs" in capsys.readouterr().out
    claims = json.loads((tmp_path / "import_time.json").read_text())["claims"]
    assert claims[0]["figure"]["median"] > 0
    assert (tmp_path / "import_time.svg").stat().st_size > 0
