"""Whether two names are one file or directory, and whether one lies in another."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs import FS, Local, Memory
from fsabs.core import identity
from tests.users import needs_root

pytestmark = pytest.mark.quick


def test_local_names_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/a").write_bytes(b"a")
    (tmp_path / "other").write_bytes(b"a")
    (tmp_path / "l").symlink_to("d")
    os.link(tmp_path / "d/a", tmp_path / "hard")
    fs, key = Local(tmp_path), str(tmp_path).lstrip("/")
    for name in ("d/a", "l/a", "hard"):
        assert identity.same(fs, f"{key}/d/a", Local(), f"{key}/{name}") is True
    for name in ("other", "none", "d"):
        assert identity.same(fs, f"{key}/d/a", fs, f"{key}/{name}") is False
    assert identity.same(fs, f"{key}/none", fs, f"{key}/none") is True
    layered = fsabs.lazify(lambda: fsabs.from_url(f"file://localhost{tmp_path}"))
    assert identity.same(layered, f"{key}/l/a", fs, f"{key}/d/a") is True
    for name, expected in (("l/sub/new/er", True), ("d", True), ("l", True), ("other", False), ("dd/x", False)):
        assert identity.inside(fs, f"{key}/{name}", fs, f"{key}/d") is expected, name
    assert identity.inside(fs, f"{key}/d", fs, f"{key}/l/sub") is False


@contextlib.contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    """Have a directory be mounted at another one, too."""
    if subprocess.run(["mount", "--bind", str(source), str(target)], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(target)], check=True)


@needs_root
def test_a_bind_mount_is_the_directory_that_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub/a").write_bytes(b"a")
    (tmp_path / "t/there").mkdir(parents=True)
    (tmp_path / "t/other").touch()
    fs, key = Local(tmp_path), str(tmp_path).lstrip("/")
    with bound(tmp_path / "d", tmp_path / "t/there"):
        assert identity.same(fs, f"{key}/t/there/sub/a", fs, f"{key}/d/sub/a") is True
        assert identity.inside(fs, f"{key}/t/there/sub/new", fs, f"{key}/d") is True
        with pytest.raises(OSError, match="itself"):
            fs.copy_tree("d", "t/there/sub/new")
    for mounted in ("d", "d/sub"):
        refused = pytest.raises(OSError, match="a directory of the source, by a link or a mount")
        with bound(tmp_path / mounted, tmp_path / "t/there"), refused:
            fs.sync_tree("d", "t", delete=True)
    assert (tmp_path / "d/sub/a").read_bytes() == b"a"
    assert (tmp_path / "t/other").exists()


def test_members_of_containers(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    (tmp_path / "l").symlink_to(".")
    for name in ("a.zip", "b.zip"):
        with fs.open_zip(name, "w") as made:
            made.write_bytes("d/x", b"x")
    key = str(tmp_path).lstrip("/")
    with fs.open_zip("a.zip") as one, fs.open_zip("l/a.zip") as other, fs.open_zip("b.zip") as third:
        assert identity.same(one, "d/x", other, "d/x") is True
        assert identity.same(one, "d/x", other, "d/y") is False
        assert identity.same(one, "d/x", third, "d/x") is False
        assert identity.inside(one, "d/new", other, "d")
        assert identity.inside(one, "d/new", fs, f"{key}/l")
        assert not identity.inside(third, "d/new", other, "")
        assert identity.same(one, "d/x", fs, f"{key}/a.zip") is False


class Mirrored(Memory):
    """A store that is reached by several names."""

    address = ""

    def _place(self, key: str) -> identity.Place:
        return identity.Place("mirrored", self.address, key)


def test_stores_that_only_look_different_are_not_known() -> None:
    one, other, copy = (Mirrored("place") for _ in range(3))
    one.address, other.address = "127.0.0.1", "localhost"
    one.write_bytes("a", b"a")
    assert identity.same(one, "a", other, "a") is None
    assert identity.same(one, "none", other, "none") is False
    copy = Mirrored("elsewhere")
    copy.write_bytes("a", b"a")
    assert identity.same(one, "a", copy, "a") is False
    one.remove("a")


def test_trees_in_memory_are_told_apart() -> None:
    one, other = Memory(), Memory()
    trees: list[FS] = [one, other, one.subfs("")]
    for fs in trees[:2]:
        fs.write_bytes("a", b"a")
    assert [identity.same(one, "a", fs, "a") for fs in trees] == [True, False, True]
