"""`HF_HUB_OFFLINE`: nothing is requested, and what the caches hold is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.hub.repository import OfflineHub
from tests.servers.hub import TOKEN, HubServer

huggingface_hub = pytest.importorskip("huggingface_hub")
NAME, URL = "org/data", "hf://datasets/org/data"
FILES = {"README.md": b"# Data\n", **{f"train/{n:02}.jpg": os.urandom(20_000 + n) for n in range(12)}}


@pytest.fixture
def data(hub: HubServer) -> HubServer:
    hub.make(NAME, FILES)
    return hub


def test_the_cache_of_huggingface_hub_is_read(data: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = huggingface_hub.snapshot_download(
        NAME,
        repo_type="dataset",
        endpoint=data.endpoint,
        cache_dir=tmp_path / "huggingface" / "hub",
        allow_patterns=["README.md", "train/0*"],
    )
    before = dict(data.counts)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fs = fsabs.from_url(URL)
    assert isinstance(fs, OfflineHub)
    assert fs.pinned == Path(folder).name
    names = sorted(fs.list(recursive=True))
    assert names == ["README.md", "train/", *(f"train/{n:02}.jpg" for n in range(10))]
    files = [name for name in names if not name.endswith("/")]
    assert list(fs.read_many(files)) == [FILES[name] for name in files]
    assert fs.stat("train/03.jpg").size == 20_003
    with fs.open("train/03.jpg", "rb") as file:
        file.seek(100)
        assert file.read(10) == FILES["train/03.jpg"][100:110]
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("train/11.jpg")
    assert not fs.capabilities.write
    assert data.counts == before
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert len(list(fsabs.from_url(URL).list("train"))) == 12  # what is there of it is not taken for all


def test_a_cache_that_is_named_from_here(data: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub.snapshot_download(
        NAME, repo_type="dataset", endpoint=data.endpoint, cache_dir=tmp_path / "here" / "hub"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", "./here")
    monkeypatch.chdir(tmp_path)
    fs = fsabs.from_url(URL)
    assert fs.read_bytes("README.md") == FILES["README.md"]
    assert len(list(fs.list("train"))) == 12


@pytest.mark.parametrize("offline", [False, True])
def test_a_cache_of_ours_is_read(
    data: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool
) -> None:
    cache = {"dir": str(tmp_path / "kept"), "offline": offline}
    names = [name for name in FILES if name != "train/11.jpg"]
    with fsabs.from_url(URL, cache=cache) as fs:
        if not offline:
            list(fs.list(recursive=True))  # which is kept, too
        assert list(fs.read_many(names)) == [FILES[name] for name in names]
    before = dict(data.counts)
    monkeypatch.setenv("HF_HUB_OFFLINE", "ON")
    with fsabs.from_url(URL, cache=cache) as fs:
        assert list(fs.read_many(names)) == [FILES[name] for name in names]
        assert [fs.read_bytes(name) for name in names] == [FILES[name] for name in names]
        if not offline:
            assert len(list(fs.list("train"))) == 12
        with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE is set"):
            fs.read_bytes("train/11.jpg")
    assert data.counts == before


def test_what_no_cache_has(data: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConnectionError, match=r"HF_HUB_OFFLINE is set, and no cache has org/data at 'main'") as caught:
        fsabs.from_url(URL)
    assert caught.value.filename.startswith(URL)
    commit = data.repositories["datasets", NAME].references["main"]
    fs = fsabs.from_url(f"{URL}@{commit}")
    for ask in (lambda: fs.read_bytes("README.md"), lambda: list(fs.list()), lambda: fs.exists("README.md")):
        with pytest.raises(ConnectionError, match="no cache has a listing"):
            ask()
    assert data.counts["api"] == 0
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert fsabs.from_url(URL, token=TOKEN).read_bytes("README.md") == b"# Data\n"
