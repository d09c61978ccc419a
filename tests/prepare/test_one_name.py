"""An output whose old and new files are one on a disk that folds case: the new ones are not removed as old ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsabs.prepare.output import REPORT, Commit, OutputDirectory
from tests.transfer.test_one_name import OVERLAID, Disk, folds_case


def test_a_prefix_of_another_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "disk"
    (top / "out").mkdir(parents=True)
    disk = Disk(top, folds_case, keeps_names=True)
    for name in OVERLAID:
        monkeypatch.setattr(os, name, disk.over(getattr(os, name)))
    for prefix, count in (("Data", 3), ("data", 2)):
        output = OutputDirectory(top / "out")
        output.check()
        output.begin(prefix)
        moves = {}
        for number in range(count):
            path = f"{output.work(prefix)}/parts/{number}"
            output.fs.write_bytes(path, f"{prefix} {number}".encode())
            moves[path] = f"{prefix}-{number}"
        shards = [{"name": name} for name in moves.values()]
        output.commit(Commit(moves, {"shards": shards}))
        output.close()
    left = {path.read_text() for path in (top / "out").iterdir() if path.name != REPORT}
    assert left == {"data 0", "data 1"}
