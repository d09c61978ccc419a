"""Patterns of `Path.glob` that lead up again mean what they mean to pathlib."""

from __future__ import annotations

import pathlib
from pathlib import PurePosixPath

import pytest

import fsabs

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("pattern", ["**/..", "*/..", "*/../*", "a/../a/*", "**/../b", "..", "*/*/../../*"])
def test_up_again(pattern: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_bytes(b"")
    wanted: set[PurePosixPath] = {PurePosixPath(path.relative_to(tmp_path)) for path in tmp_path.glob(pattern)}
    assert {PurePosixPath(str(path)).relative_to(tmp_path) for path in fsabs.Path(tmp_path).glob(pattern)} == wanted
    memory = fsabs.Memory()
    memory.makedirs("top/a/b")
    memory.write_bytes("top/a/file", b"")
    found = fsabs.Path("top", fs=memory).glob(pattern)
    assert {PurePosixPath(str(path)).relative_to("top") for path in found} == wanted
