"""Schemes through fsspec: real directories, and an FS of the same interface that misbehaves.

`test_web.py` has web servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.fsspec import PARTIAL_SUFFIX, Fsspec
from tests import scarce

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("raised", [NotImplementedError("no"), KeyError("odd"), PermissionError(13, "no")])
def test_whatever_an_implementation_raises(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, **options: Any) -> Any:
        raise raised

    fs = Fsspec("memory", path="/raising")
    monkeypatch.setattr(fs.implementation, "info", failing)
    with pytest.raises(PermissionError if isinstance(raised, PermissionError) else OSError) as caught:
        fs.stat("x")
    assert caught.value.filename == fs.url("x")


def test_what_comes_into_a_directory_while_it_is_renamed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = Fsspec("memory", path="/renamed")
    for name in ("d/x", "d/deep/y"):
        fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.write_bytes(name, b"1")
    copy = fs.implementation.cp_file

    def meanwhile(source: str, target: str, **options: Any) -> None:
        copy(source, target, **options)
        fs.implementation.pipe_file("/renamed/d/late", b"2")

    monkeypatch.setattr(fs.implementation, "cp_file", meanwhile)
    fs.rename("d", "e")
    assert list(fs.list("", recursive=True)) == ["d/", "d/late", "e/", "e/deep/", "e/deep/y", "e/x"]


def test_real_directories_get_a_renamed_file(tmp_path: Path) -> None:
    fs = Fsspec("local", "", str(tmp_path))
    fs.mkdir("d")
    with pytest.raises(FileNotFoundError):
        fs.write_bytes("no/parent", b"")
    seen: list[list[str]] = []
    moved = fs.implementation.mv

    def watch(*arguments: Any, **options: Any) -> None:
        seen.append(os.listdir(tmp_path / "d"))
        assert list(fs.list("d")) == []
        moved(*arguments, **options)

    fs.implementation.mv = watch
    fs.write_bytes("d/x", b"whole")
    assert [name.endswith(PARTIAL_SUFFIX) for (name,) in seen] == [True]
    assert os.listdir(tmp_path / "d") == ["x"]
    with pytest.raises(ZeroDivisionError), fs.open("d/y", "wb") as file:
        file.write(b"1")
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "d") == ["x"]


def test_a_scheme_that_lacks_its_package_says_so() -> None:
    with pytest.raises(ImportError, match="dropbox"):
        fsabs.from_url("dropbox://x/y").read_bytes("z")


def test_passwords_are_not_shown() -> None:
    fs = Fsspec("sftp", "me:secret@host", "/data")
    assert "secret" not in repr(fs) + fs.url("x")


def test_a_full_temporary_directory_is_an_error_with_the_url() -> None:
    fs = Fsspec("memory", path="/full")
    fs.makedirs("", exist_ok=True)
    fs.write_bytes("old", b"1")
    with scarce.file_size(50), pytest.raises(OSError, match="too large") as caught, fs.open("old", "wb") as file:
        file.write(bytes(100))
    assert caught.value.filename == fs.url("old")
    assert fs.read_bytes("old") == b"1"
