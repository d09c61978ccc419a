"""A checkpoint is loaded as it was saved, or not at all; one that is damaged never hides an older one that is whole."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import fsabs
from fsabs.adapters.torch import CheckpointManager, load_checkpoint
from fsabs.adapters.torch.distributed import DistributedReader, DistributedWriter
from fsabs.cli import main
from fsabs.testing import Fault, FaultyFS, Raise
from tests import soak

STATE: dict[str, Any] = {
    "model": {"w": torch.arange(50.0), "b": torch.arange(3, dtype=torch.int64)},
    "loader": {"epoch": 3, "seen": [1, 2, 3]},
    "step": 2,
}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("verify", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.timeout(600)
def test_a_flipped_bit_gives_what_was_saved_or_the_older_one(
    kind: str, verify: bool, stride: int, tmp_path: Path
) -> None:
    """In each byte of the newest of two. Without verification nothing is promised of values, but it doesn't stop."""
    if not verify:
        stride *= 5
    chance = random.Random(soak.seed(1))
    fs = fsabs.from_url(tmp_path) if kind == "local" else fsabs.Memory()
    manager = CheckpointManager(fs)
    manager.save(1, {"older": True})
    path = manager.save(2, STATE)
    whole, passed_over = path.read_bytes(), 0
    for place in range(chance.randrange(stride), len(whole), stride):
        path.write_bytes(flipped(whole, place, chance.randrange(8)))
        found = manager.load(verify=verify)
        passed_over += "older" in found
        if verify:
            assert "older" in found or plain(found) == plain(STATE), place
    assert passed_over


def test_what_is_whole_or_has_no_checksums_is_loaded(tmp_path: Path) -> None:
    """Files of torch's own, of its former format, and with compressed members; mapped, read and copied."""
    store = fsabs.Memory()
    torch.save(STATE, tmp_path / "new.pt")
    torch.save(STATE, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(tmp_path / "new.pt") as new, zipfile.ZipFile(tmp_path / "packed.pt", "w", 8) as packed:
        for name in new.namelist():
            packed.writestr(name, new.read(name))
    for file in ("new.pt", "old.pt", "packed.pt"):
        store.write_bytes(file, (tmp_path / file).read_bytes())
        for path in (fsabs.Path(tmp_path / file), fsabs.Path(file, fs=store)):
            for mmap in (None, False) if file != "new.pt" else (None, False, True):
                if file != "packed.pt" or mmap is False or path.fs is store:
                    assert plain(load_checkpoint(path, mmap=mmap)) == plain(STATE), (file, mmap)


def test_damage_is_named_and_other_failures_are_not_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(1, STATE)
    path = manager.save(2, {**STATE, "w": torch.ones(1000)})
    path.write_bytes(path.read_bytes().replace(torch.ones(9).numpy().tobytes(), b"?" * 36, 1))
    assert plain(manager.load()) == plain(STATE)
    assert [path.name in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(fsabs.CorruptFileError, match="checksum"):
        manager.load(2)
    with pytest.raises(fsabs.CorruptFileError, match="checksum"):
        load_checkpoint(path, mmap=False)
    assert not manager.load(2, verify=False)["w"].eq(1).all()
    fault = Fault("read", Raise(PermissionError(13, "no credentials")))
    store = fsabs.Memory()
    CheckpointManager(store).save(1, STATE)
    with pytest.raises(PermissionError):
        CheckpointManager(FaultyFS(store, fault)).load()


@pytest.mark.parametrize("places", [20, pytest.param(250, marks=pytest.mark.nightly)])
@pytest.mark.timeout(300)
def test_a_flipped_bit_of_a_distributed_checkpoint_is_found(places: int, tmp_path: Path) -> None:
    """In files of small and of large tensors, and in the metadata; torch's own reader takes no notice of checksums."""
    chance = random.Random(soak.seed(1))
    saved = {"small": torch.arange(20.0), "large": torch.arange(300_000.0), "object": {"a": [1, 2]}}
    dcp_save(saved, storage_writer=DistributedWriter(tmp_path), no_dist=True)

    def loaded(reader: Any) -> Any:
        found = {"small": torch.zeros(20), "large": torch.zeros(300_000), "object": {"a": [0, 0]}}
        dcp_load(found, storage_reader=reader, no_dist=True)
        return plain(found)

    assert loaded(FileSystemReader(tmp_path)) == loaded(DistributedReader(tmp_path)) == plain(saved)
    files, refused = [*tmp_path.iterdir()], list[str]()
    for number in range(places):
        path = files[number % len(files)]
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, chance.randrange(len(whole)), chance.randrange(8)))
        try:
            assert loaded(DistributedReader(tmp_path)) == plain(saved)
        except CheckpointException as failed:
            refused += [str(one[0]) for one in failed.failures.values()]
            with pytest.raises(fsabs.CorruptFileError):
                DistributedReader(tmp_path).check()
        path.write_bytes(whole)
    assert len(refused) >= 0.9 * places
    assert [text for text in refused if "[Errno 74]" not in text] == []
    DistributedReader(tmp_path).check()


def test_the_command_verifies_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manager = CheckpointManager(tmp_path / "run")
    paths = [manager.save(step, STATE) for step in range(2)]
    dcp_save({"w": torch.ones(9)}, storage_writer=DistributedWriter(tmp_path / "dcp"), no_dist=True)
    for name in ("run", "dcp", f"run/{paths[0].name}"):
        assert main(["verify", f"{tmp_path}/{name}"]) == 0
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    capsys.readouterr()
    assert main(["verify", f"{tmp_path}/run", f"{tmp_path}/dcp"]) == 1
    said = capsys.readouterr().out
    assert (paths[1].name in said, paths[0].name in said) == (True, False), said
    metadata = tmp_path / "dcp/.metadata"
    metadata.write_bytes(flipped(metadata.read_bytes(), 50, 1))
    assert main(["verify", f"{tmp_path}/dcp"]) == 1
