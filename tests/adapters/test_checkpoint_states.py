"""Checkpoints share what states share, readers beside a job find one, and partial files of killed saves go."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fsabs
from fsabs.adapters.torch import CheckpointManager
from fsabs.adapters.torch.checkpoints import on_host


def test_shared_storages_stay_shared(tmp_path: Path) -> None:
    """`save` and `save_async` give files of one size, and states that share what they shared."""
    whole = torch.arange(100_000.0)
    state: dict[str, Any] = {
        "tied": whole,
        "again": whole.view(100, 1000),
        "part": whole[10:20],
        "turned": whole.reshape(100, 1000).T,
        "expanded": torch.ones(1).expand(1_000_000),
        "parameter": torch.nn.Parameter(whole),
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "empty": [torch.empty(0), torch.empty(0, 3)],
    }
    with CheckpointManager(tmp_path) as manager:
        manager.save(1, state)
        manager.save_async(2, state)
    sizes = [Path(each.path).stat().st_size for each in manager.checkpoints()]
    assert abs(sizes[0] - sizes[1]) < 1000
    assert sizes[0] < 500_000
    copied = on_host(state)
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(copied[name].to_dense(), value.detach().to_dense()), name
            assert copied[name].dtype == value.dtype
    assert copied["turned"].stride() == state["turned"].stride()
    whole[15] = -1
    assert copied["part"][5] == 15
    loaded = manager.load(2)
    loaded["tied"][15] = 7
    assert loaded["part"][5] == loaded["again"].view(-1)[15] == loaded["parameter"][15] == 7


def test_partial_files_of_killed_saves_go_at_the_next_save(tmp_path: Path) -> None:
    """Those of a process that has ended, not those of one that is alive or of another machine."""

    def save(number: int, go: int) -> None:
        with fsabs.Path(tmp_path / f"{number}.pt").open("wb") as file:
            file.write(bytes(1_000_000))
            os.write(go, b".")
            signal.pause()

    children = []
    for number in range(2):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            save(number, writing)
            os._exit(1)
        assert os.read(reading, 1) == b"."
        os.close(reading)
        os.close(writing)
        children.append(child)
    elsewhere = tmp_path / f".2.pt.0123456789ab-{children[0]}.0123456789abcdef.fsabs-partial"
    elsewhere.touch()
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    try:
        CheckpointManager(tmp_path).save(1, {"x": 1})
        left = {name.split(".pt")[0] for name in os.listdir(tmp_path) if name.startswith(".")}
        assert left == {".1", ".2"}
    finally:
        os.kill(children[1], signal.SIGKILL)
        os.waitpid(children[1], 0)


class Pruned(fsabs.spi.LayerFS):
    """A directory of which another process saves and prunes after each of the first listings."""

    def __init__(self, inner: fsabs.FS, times: int) -> None:
        super().__init__(inner)
        self.step, self.last = 0, times

    def _list(self, *arguments: Any) -> Iterator[Any]:
        found = [*super()._list(*arguments)]
        if self.step < self.last:
            self.step += 1
            CheckpointManager(self.inner, keep=1).save(self.step, {"step": self.step})
        return iter(found)


def test_a_reader_beside_the_job_lists_again() -> None:
    store = fsabs.Memory()
    CheckpointManager(store).save(0, {"step": 0})
    assert CheckpointManager(Pruned(store, 5)).load() == {"step": 5}


def test_a_checkpoint_that_is_listed_and_not_there_is_an_error() -> None:
    class Lying(fsabs.spi.LayerFS):
        """Lists what can't be opened."""

        def _open_blob(self, *arguments: Any) -> fsabs.spi.Blob:
            raise FileNotFoundError(2, "no such file")

    store = fsabs.Memory()
    CheckpointManager(store).save(0, {"step": 0})
    with pytest.raises(FileNotFoundError):
        CheckpointManager(Lying(store)).load()
