"""A crash of the machine at a random moment: ext4 stops writing to its disk, and what it had not written is lost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from fsabs.adapters.torch import CheckpointManager
from fsabs.adapters.torch.distributed import DistributedReader
from tests import preloaded, soak
from tests.adapters import stores
from tests.adapters.drivers import IMPORTS

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("crashes", [2, pytest.param(20, marks=pytest.mark.nightly)]),
]

MANAGER = """
import itertools, sys, torch
from fsabs.adapters.torch import CheckpointManager

manager = CheckpointManager(f"{sys.argv[1]}/run", keep=1)
for step in itertools.count(int(sys.argv[2])):
    manager.save(step, {"w": torch.full((200_000,), float(step)), "step": step})
    print(step, flush=True)
"""
DISTRIBUTED = """
import itertools, os, shutil, sys, torch
from torch.distributed.checkpoint.state_dict_saver import save
from fsabs.adapters.torch.distributed import DistributedWriter

for step in itertools.count(int(sys.argv[2])):
    state = {"small": torch.full((1000,), float(step)), "large": torch.full((400_000,), float(step))}
    save(state, storage_writer=DistributedWriter(f"{sys.argv[1]}/{step}"), no_dist=True)
    for name in {*os.listdir(sys.argv[1])} - {str(step), "lost+found"}:
        shutil.rmtree(f"{sys.argv[1]}/{name}")
    print(step, flush=True)
"""


class Disk:
    """A disk with ext4 in a file."""

    def __init__(self, folder: Path) -> None:
        self.image, self.mount = folder / "image", folder / "mount"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 * 1024 * 1024)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        subprocess.run(["mount", "-o", "loop", self.image, self.mount], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", self.mount], check=True)

    def crash(self) -> None:
        """Write nothing more, not even to the journal (EXT4_IOC_SHUTDOWN, ext4(5))."""
        fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, 0x8004587D, struct.pack("I", 2))
        finally:
            os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    try:
        made = Disk(tmp_path)
        with made.mounted():
            return made
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"this test needs mkfs.ext4, loop devices, and the right to mount them: {exc}")


def saved_before_a_crash(disk: Disk, program: str, first: int, seconds: float) -> int:
    """Crash a machine on which a program saves steps from `first` on; return the last one that it has announced."""
    reading, writing = os.pipe()
    with open(os.devnull) as nothing, open(reading) as output:
        files = (nothing.fileno(), writing, nothing.fileno())
        running = preloaded.start(IMPORTS, ["-W", "ignore", "-c", program, disk.mount, first], files, cwd=stores.ROOT)
        os.close(writing)
        assert output.readline() == f"{first}\n"
        time.sleep(seconds)
        disk.crash()
        running.kill()
        running.wait(30)
        return max(map(int, output.read().split()), default=first)


def whole_of_manager(folder: Path) -> int:
    """Return the step of what a manager loads."""
    found = CheckpointManager(folder / "run").load()
    assert found["w"].eq(found["step"]).all()
    return int(found["step"])


def whole_of_distributed(folder: Path) -> int:
    """Return the step of the newest distributed checkpoint that is complete."""
    step = max(int(path.parent.name) for path in folder.glob("*/.metadata"))
    loaded = {"small": torch.zeros(1000), "large": torch.zeros(400_000)}
    dcp_load(loaded, storage_reader=DistributedReader(folder / f"{step}"), no_dist=True)
    assert all(tensor.eq(step).all() for tensor in loaded.values())
    return step


@pytest.mark.parametrize(
    ("program", "whole"),
    [(MANAGER, whole_of_manager), (DISTRIBUTED, whole_of_distributed)],
    ids=["manager", "distributed"],
)
def test_what_was_saved_is_there_after_a_crash(
    disk: Disk, program: str, whole: Callable[[Path], int], crashes: int
) -> None:
    """Of a program that keeps one checkpoint: the last one that it has announced, or a newer one."""
    chance, first = random.Random(soak.seed(1)), 0
    for _ in range(crashes):
        with disk.mounted():
            announced = saved_before_a_crash(disk, program, first, chance.random() * 0.3)
        with disk.mounted():
            assert whole(disk.mount) >= announced
        first = announced + 1000  # beyond what it may have begun
