"""A checkpoint is loaded as it was saved, or not at all; one that is damaged never hides an older one that is whole."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import fsabs
from fsabs.adapters.torch import CheckpointManager, load_checkpoint
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
