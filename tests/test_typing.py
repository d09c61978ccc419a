"""The types that a user's type checker sees: mypy checks `assert_type` in `make lint`; pyright checks the package."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, assert_type

import pytest

import fsabs
from fsabs.core.files import ReadFile
from fsabs.core.writing import WriteFile

ROOMS = ("core.fs", "core.files", "core.blobs", "core.stats", "core.layers", "core.errors", "urls.opening", "transfer")
CHECKED = tuple(f"fsabs.{module}." for module in ROOMS)
"""What every user's code comes to, wherever its files are."""


@pytest.mark.quick
def test_what_open_returns_depends_on_the_mode(tmp_path: Path) -> None:
    fs = assert_type(fsabs.from_url(tmp_path), fsabs.FS)
    with fs.open("a.txt", "w") as text:
        assert_type(text, io.TextIOWrapper)
        text.write("text")
    with fs.open("a.bin", "wb") as written:
        assert_type(written, WriteFile)
        json.dump([1], io.TextIOWrapper(written, write_through=True))
    with fs.open("a.bin", "rb") as read:
        assert_type(read, ReadFile)
        assert assert_type(read.raw.blob.pread(1, 0), bytes) == b"["
        binary: BinaryIO = read
        assert json.load(binary) == [1]
    with fs.open("a.txt", "r+b") as updated:
        assert_type(updated, BinaryIO)
    mode = os.environ.get("NO_SUCH", "r")
    with fs.open("a.txt", mode) as any_file:
        assert_type(any_file, IO[Any])
    with fsabs.open_url(tmp_path / "a.txt") as text:
        assert_type(text, io.TextIOWrapper)
    with fsabs.open_url(tmp_path / "a.bin", "rb") as read:
        assert_type(read, ReadFile)


@pytest.mark.quick
def test_what_list_and_from_url_return_depends_on_their_arguments(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    assert list(assert_type(fs.list(), Iterator[str])) == []
    assert [stat.size for stat in assert_type(fs.list(detail=True), Iterator[fsabs.FileStat])] == []
    assert [stat.size for stat in assert_type(fs.list("", True, True), Iterator[fsabs.FileStat])] == []
    cached = assert_type(fsabs.from_url(tmp_path, cache=str(tmp_path / "cache")), fsabs.CachedFS)
    assert cached.status()["misses"] == 0
    assert_type(fsabs.from_url(tmp_path, cache=False), fsabs.FS)


@pytest.mark.nightly
def test_public_types_are_complete(tmp_path: Path) -> None:
    """Pyright's check of a typed package, from outside of it."""
    package = str(Path(fsabs.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--ignoreexternal", "--verifytypes", "fsabs"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": package},
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    incomplete = {
        symbol["name"]: [diagnostic["message"] for diagnostic in symbol["diagnostics"]]
        for symbol in found["symbols"]
        if symbol["isExported"] and symbol["name"].startswith(CHECKED)
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    assert found["exportedSymbolCounts"]["withKnownType"] > 1000
    assert not incomplete
