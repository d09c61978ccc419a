"""`fsabs samples`: the ledger of a step, by the state of any rank of a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fsabs
from fsabs.adapters.torch import Loader, Mixture, ShardedDataset
from fsabs.cli import main
from fsabs.readers.recordio import RecordWriter

PROGRAM = """\
from fsabs.adapters.torch import Loader, Mixture, ShardedDataset


def make_loader():
    sources = {name: ShardedDataset(f"FOLDER/{name}", seed=3, buffer_size=5) for name in "ab"}
    return Loader(Mixture(sources, {"a": 2, "b": 1}, ending="leave"), 4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fs = fsabs.from_url(tmp_path)
    for name, size in (("a", 40), ("b", 20)):
        fs.mkdir(name)
        for shard in range(2):
            with RecordWriter(fs, f"{name}/{shard}") as file:
                for number in range(size):
                    file.write(f"{name}{shard}-{number}".encode())
    (tmp_path / "train.py").write_text(PROGRAM.replace("FOLDER", str(tmp_path)))
    return tmp_path


def loader(folder: Path, rank: int) -> Loader:
    sources = {name: ShardedDataset(f"{folder}/{name}", seed=3, buffer_size=5) for name in "ab"}
    return Loader(Mixture(sources, {"a": 2, "b": 1}, ending="leave"), 4, rank=rank, ranks=2)


def listed(text: str) -> dict[int, list[str]]:
    """The records, as they are written in the files, by rank."""
    found: dict[int, list[str]] = {}
    for row in map(json.loads, text.splitlines()):
        record = f"{row['source']}{row['shard'].rpartition('/')[2]}-{row['record']}"
        found.setdefault(row["rank"], []).append(record)
    return found


def test_a_step_of_all_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states, read = [], {}
    for rank in range(2):
        begun = loader(folder, rank)
        batches = iter(begun)
        for _ in range(3):
            next(batches)
        states.append(begun.state_dict())
        next(batches)
        read[rank] = [record.decode() for record in next(batches)]
    for rank, state in enumerate(states):
        (folder / f"{rank}.json").write_text(json.dumps(state))
        torch.save({"step": 3, "loader": state}, folder / f"{rank}.pt")
    program = f"{folder}/train.py:make_loader"
    for names in (["0.json"], ["1.json"], ["1.pt"]):
        paths = [str(folder / name) for name in names]
        key = ["--key", "loader"] if names[0].endswith(".pt") else []
        assert main(["samples", *paths, "4", "--loader", program, "--json", *key]) == 0
        assert listed(capsys.readouterr().out) == read
    assert main(["samples", "0", "--loader", program, "--ranks", "2", "--json"]) == 0
    assert {rank: len(records) for rank, records in listed(capsys.readouterr().out).items()} == {0: 4, 1: 4}
    assert main(["samples", "0", "--loader", program]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["rank", "source", "shard", "record"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["1000", "--loader", "PROGRAM:make_loader"], "step 1000 is none of the 30 steps"),
        (["4", "--loader", "PROGRAM"], "FILE.py:FUNCTION"),
        (["4", "--loader", "PROGRAM:nothing"], "no function nothing"),
        (["4", "--loader", "PROGRAM:make_loader", "--key", "loader"], "has no 'loader'"),
    ],
)
def test_what_can_not_be_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[Any], reason: str
) -> None:
    sources = {name: ShardedDataset(f"{folder}/{name}", seed=3, buffer_size=5) for name in "ab"}
    begun = Loader(Mixture(sources, {"a": 2, "b": 1}, ending="leave"), 4)
    batches = iter(begun)
    for _ in range(3):
        next(batches)
    (folder / "state.json").write_text(json.dumps(begun.state_dict()))
    given = [argument.replace("PROGRAM", f"{folder}/train.py") for argument in arguments]
    assert main(["samples", str(folder / "state.json"), *given]) == 2
    assert reason in capsys.readouterr().err
