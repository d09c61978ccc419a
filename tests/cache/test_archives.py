"""Small archives below `cache=`, and the environment's `FSABS_CACHE`."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import fsabs
from fsabs import Memory
from fsabs.cache import CachedFS
from fsabs.containers.zip import Zip
from fsabs.core.layers import LayerFS
from tests.cache.stores import Paged, noise

FILES = {f"{number:04}.bin": noise(3000 + number % 500, number) for number in range(300)}


def packed(kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in FILES.items():
                archive.writestr(name, data)
    elif kind == "h5":
        with h5py.File(out, "w") as file:
            for name, data in FILES.items():
                file[name] = np.frombuffer(data, np.uint8)
    else:
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in FILES.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


class Far(LayerFS):
    """The scheme `far://`: a tree in memory of which each range that is read is a request."""

    store = Paged(Memory("far"))

    def __init__(self, name: str = "", path: str = "") -> None:
        super().__init__(self.store)
        self._root = self._cwd = path.strip("/")


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Paged]:
    fsabs.register_backend("far", Far)
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "kept"))
    yield Far.store
    for name in list(Far.store.inner.list()):
        Far.store.inner.remove(name)
    Far.store.forget()


def epoch(fs: Any, seed: int) -> None:
    names = random.Random(seed).sample(sorted(FILES), len(FILES))
    for name in names:
        assert fs.read_bytes(name) == FILES[name]


@pytest.mark.parametrize("kind", ["zip", "tar", "h5"])
def test_a_small_archive_is_fetched_once_however_it_is_read(far: Paged, kind: str) -> None:
    content = packed(kind)
    far.inner.write_bytes(f"a.{kind}", content)
    with fsabs.from_url(f"far://x/a.{kind}", cache={"min_free": 0}) as fs:
        assert isinstance(fs, CachedFS)
        epoch(fs, 1)
    assert len(far.ranges) <= 30, "tens of requests"
    assert sum(size for size, _ in far.ranges) <= 1.1 * len(content)
    far.forget()
    with fsabs.from_url(f"far://x/a.{kind}", cache={"min_free": 0}) as fs:
        epoch(fs, 2)
    assert (far.ranges, far.reads) == ([], 0), "not even its beginning"
    assert far.requests <= 2, "its version is asked for once more"


def test_an_archive_that_is_not_small_is_cached_by_its_members(far: Paged) -> None:
    far.inner.write_bytes("a.zip", packed("zip"))
    with fsabs.from_url("far://x/a.zip", cache={"min_free": 0, "max_bytes": 1_200_000}) as fs:
        assert fs.read_bytes("0150.bin") == FILES["0150.bin"]
        far.ranges.clear()
        assert fs.read_bytes("0150.bin") == FILES["0150.bin"]
    assert far.ranges == []


def folder_of(fs: fsabs.FS) -> str:
    """Return the folder of an FS's cache."""
    assert isinstance(fs, CachedFS)
    return str(fs.status()["disk"]["dir"])


def test_a_program_that_is_not_changed_is_cached_by_the_environment(
    far: Paged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But for what is on a local disk; what it says itself counts."""
    far.inner.write_bytes("a", b"content")
    (tmp_path / "local").write_bytes(b"local")
    monkeypatch.setenv("FSABS_CACHE", f"dir={tmp_path}/chosen, min_free=0")
    for _ in range(2):
        with fsabs.open_url("far://x/a", "rb") as file:
            assert file.read() == b"content"
    assert far.ranges == [(7, 0)]
    assert fsabs.Path("far://x/a").read_bytes() == b"content"
    assert far.ranges == [(7, 0)]
    assert not isinstance(fsabs.from_url(tmp_path), CachedFS), "files of this machine need none"
    assert not isinstance(fsabs.from_url("far://x", cache=False), CachedFS)
    assert folder_of(fsabs.from_url("far://x", cache=tmp_path / "other")) == str(tmp_path / "other")
    with fsabs.open_url("far://x/b", "wb") as file:
        file.write(b"written")
    assert far.inner.read_bytes("b") == b"written"
    fsabs.pack(fsabs.Local(tmp_path), fsabs.Local(tmp_path), "a.zip")
    assert isinstance(fsabs.from_url(tmp_path / "a.zip"), Zip)
    for off in ("off", "0"):
        monkeypatch.setenv("FSABS_CACHE", off)
        assert not isinstance(fsabs.from_url("far://x"), CachedFS)
    monkeypatch.setenv("FSABS_CACHE", str(tmp_path / "kept"))
    assert folder_of(fsabs.from_url("far://x")) == str(tmp_path / "kept")
