"""`HF_HUB_OFFLINE`: nothing is requested, and `cache=` gives what it has."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fsabs
from tests.servers.hub import TOKEN, HubServer

NAME, URL = "org/data", "hf://datasets/org/data"
FILES = {"README.md": b"# Data\n", **{f"train/{n:02}.jpg": os.urandom(20_000 + n) for n in range(12)}}


@pytest.fixture
def data(hub: HubServer) -> HubServer:
    hub.make(NAME, FILES)
    return hub


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_cache_is_read(
    data: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool, variable: str
) -> None:
    cache = {"dir": str(tmp_path / "kept"), "offline": offline}
    names = [name for name in FILES if name != "train/11.jpg"]
    before = fsabs.from_url(URL, cache=cache)  # whose connections are open, and not used again
    if not offline:
        list(before.list(recursive=True))  # which is kept, too
    assert list(before.read_many(names)) == [FILES[name] for name in names]
    counts = dict(data.counts)
    monkeypatch.setenv(variable, "ON")
    with fsabs.from_url(URL, cache=cache) as fs:
        assert list(fs.read_many(names)) == [FILES[name] for name in names]
        assert [fs.read_bytes(name) for name in names] == [FILES[name] for name in names]
        if not offline:
            assert len(list(fs.list("train"))) == 12
        for read in (lambda: fs.read_bytes("train/11.jpg"), lambda: list(fs.read_many(["train/11.jpg", names[0]]))):
            with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE is set") as caught:
                read()
            assert caught.value.filename == f"{URL}/train/11.jpg"
    assert data.counts == counts


def test_an_archive_in_a_cache_is_read_by_another_process(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("a.txt", b"member")
    hub.make(NAME, {"train.zip": archive.getvalue()})
    code = f"""
import fsabs
with fsabs.from_url("{URL}/train.zip", cache={{"dir": {str(tmp_path / "kept")!r}, "offline": True}}) as fs:
    print(fs.read_bytes("a.txt"))
"""

    def run() -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    assert run() == "b'member'\n"
    counts = dict(hub.counts)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run() == "b'member'\n"
    assert hub.counts == counts


def test_what_no_cache_has(data: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE is set") as caught:
        fsabs.from_url(URL)
    assert caught.value.filename.startswith(URL)
    commit = data.repositories["datasets", NAME].references["main"]
    fs = fsabs.from_url(f"{URL}@{commit}")
    for ask in (lambda: fs.read_bytes("README.md"), lambda: list(fs.list()), lambda: fs.exists("README.md")):
        with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE is set"):
            ask()
    assert data.counts["api"] == 0
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert fsabs.from_url(URL, token=TOKEN).read_bytes("README.md") == b"# Data\n"


def test_nothing_is_written(data: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    fsabs.from_url(URL, token=TOKEN)
    counts = dict(data.counts)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fs = fsabs.from_url(URL, token=TOKEN)
    with pytest.raises(io.UnsupportedOperation):
        fs.write_bytes("new", b"")
    assert data.counts == counts
