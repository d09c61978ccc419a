"""What is removed, or declared complete, because something else was written: that is on the disk by then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import fsabs
from fsabs.adapters.torch import CheckpointManager, save_checkpoint
from fsabs.adapters.torch.distributed import DistributedWriter
from fsabs.cli import main
from fsabs.prepare.output import REPORT, Commit, OutputDirectory


class Disk:
    """What has been flushed and is still there by its name, when something is removed, replaced or completed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed = set[int]()
        """The inodes of files and directories."""
        self.watched: Callable[[str], bool] = lambda path: False
        self.at_the_time: list[set[int]] = []
        """What was flushed whenever a watched name was removed or taken."""
        fsync, unlink, rename = os.fsync, os.unlink, os.rename

        def flush(fd: int) -> None:
            fsync(fd)
            self.flushed.add(os.fstat(fd).st_ino)

        def remove(path: str, *, dir_fd: int | None = None) -> None:
            self.look(path)
            unlink(path, dir_fd=dir_fd)

        def move(src: str, dst: str, **more: int) -> None:
            self.look(dst)
            rename(src, dst, **more)

        for name, function in (("fsync", flush), ("unlink", remove), ("remove", remove), ("rename", move)):
            monkeypatch.setattr(os, name, function)
        monkeypatch.setattr(os, "replace", move)

    def look(self, path: object) -> None:
        if self.watched(str(path)):
            self.at_the_time.append(set(self.flushed))

    def had(self, *paths: str | os.PathLike[str]) -> bool:
        """Return whether files were flushed each time that something happened to a watched one."""
        wanted = {os.stat(path).st_ino for path in paths}
        return bool(self.at_the_time) and all(wanted <= flushed for flushed in self.at_the_time)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_checkpoint_before_the_older_one_is_removed(disk: Disk, tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "run", keep=1)
    manager.save(1, {"x": 1})
    older = manager.checkpoints()[0].path.name
    disk.watched = lambda path: path.endswith(older)
    path = manager.save(2, {"x": 2})
    assert disk.had(path, tmp_path / "run", tmp_path)


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_checkpoint_before_it_takes_the_place_of_another(scheme: str, disk: Disk, tmp_path: Path) -> None:
    """Also on fsspec's filesystem of local files."""
    for step in range(2):
        disk.watched = lambda path: path.endswith("x.pt")
        save_checkpoint({"x": step}, f"{scheme}://{tmp_path}/x.pt")
    assert os.stat(tmp_path / "x.pt").st_ino in disk.at_the_time[-1]
    assert os.stat(tmp_path).st_ino in disk.flushed


def test_the_files_of_a_distributed_checkpoint_before_its_metadata(disk: Disk, tmp_path: Path) -> None:
    disk.watched = lambda path: path.endswith("/.metadata")
    state = {"small": torch.ones(10), "large": torch.ones(1_000_000)}
    dcp_save(state, storage_writer=DistributedWriter(tmp_path / "run"), no_dist=True)
    files = [*(tmp_path / "run").iterdir()]
    assert len(files) == 3
    assert disk.had(*files, tmp_path / "run")


class Watched(fsabs.spi.LayerFS):
    """Another filesystem."""

    def __init__(self, inner: fsabs.FS, disk: Disk) -> None:
        super().__init__(inner)
        self.disk = disk

    def _remove(self, key: str) -> None:
        self.disk.look(key)
        super()._remove(key)


def test_what_is_moved_before_its_source_is_removed(disk: Disk, tmp_path: Path) -> None:
    """Small and large files, and one that was there already."""
    files = {"a": b"a", "b": b"b" * 100, "large": bytes(3_000_000), "there": b"x"}
    store = fsabs.Memory()
    store.write_many(files)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/there").write_bytes(b"x")
    disk.watched = lambda path: path in files
    for name in files:
        disk.at_the_time.clear()
        fsabs.Path(name, fs=Watched(store, disk)).move(tmp_path / "new" / name)
        assert disk.had(tmp_path / "new" / name, tmp_path / "new"), name
    assert list(store.list()) == []


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.nightly)])
def test_what_is_synced_before_others_are_removed(
    disk: Disk, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()
    monkeypatch.setattr(os, "sync", lambda: synced.append(1))
    for number in range(count):
        (tmp_path / f"a/{number}").parent.mkdir(exist_ok=True)
        (tmp_path / f"a/{number}").write_bytes(b"new")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/old").write_bytes(b"old")
    disk.watched = lambda path: path.endswith("old")
    assert main(["sync", "--delete", f"{tmp_path}/a/", f"{tmp_path}/b/"]) == 0
    assert sorted(os.listdir(tmp_path / "b")) == sorted(str(number) for number in range(count))
    assert synced or disk.had(*(tmp_path / "b").iterdir(), tmp_path / "b")


@pytest.mark.parametrize("watched", ["/a", "job.json", "old"])
def test_what_is_prepared_before_it_takes_its_place(disk: Disk, watched: str, tmp_path: Path) -> None:
    """Staged files before they are moved, and the output before older files, and the staging directory, go."""
    for job, names in (("first", ["old"]), ("second", ["a", "b"])):
        output = OutputDirectory(tmp_path / "out")
        output.begin(job)
        moves = {f"{output.work(job)}/parts/{name}": name for name in names}
        for path in moves:
            output.fs.write_bytes(path, job.encode())
        if job == "second":
            disk.watched = lambda path: path.endswith(watched)
        output.commit(Commit(moves, {"shards": [{"name": name} for name in names]}))
        output.close()
    out = tmp_path / "out"
    assert sorted(os.listdir(out)) == sorted(["a", "b", REPORT])
    assert disk.had(out / "a", out / "b")
    assert watched == "/a" or disk.had(out)
