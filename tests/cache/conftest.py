"""What tests of `CachedFS` start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from tests import disks
from tests.cache.stores import CONTENTS, NAMES, Store, noise


@pytest.fixture
def store() -> Store:
    memory = Memory()
    for name, content in zip(NAMES, CONTENTS, strict=True):
        memory.write_bytes(name, content)
    memory.write_bytes("large.bin", noise(50_000))
    memory.write_bytes("empty", b"")
    memory.makedirs("dir/deep")
    memory.write_bytes("dir/deep/ünï code %1.txt", "héllo\n".encode())
    return Store(memory)


@pytest.fixture
def shared(tmp_path: Path) -> Local:
    """A store that is the same one for all processes."""
    local = Local(tmp_path / "store", create=True)
    for name, content in zip(NAMES, CONTENTS, strict=True):
        local.write_bytes(name, content)
    return local


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local files are kept as soon as they are written; the tests that are about that set `TICK` themselves."""
    disks.ticking(monkeypatch, -1)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "cache")
