"""Removal: never through a link, never out of the tree, nothing that was not listed completely and in order."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, CorruptFileError, FileStat, Local, Memory
from fsabs.testing.children import threaded
from tests.users import ALICE, as_user, needs_root, shared_folder

pytestmark = pytest.mark.quick


def test_an_empty_path_is_none(tmp_path: Path) -> None:
    trees: list[FS] = [Local(tmp_path), Memory()]
    for fs in trees:
        fs.write_bytes("a", b"a")
        calls: list[Callable[[], object]] = [
            partial(fs.remove, ""),
            partial(fs.remove, "", recursive=True),
            partial(fs.rmdir, ""),
            partial(fs.rename, "", "b"),
            partial(fs.rename, "a", ""),
            partial(fs.sync_tree, "d", "", delete=True),
        ]
        for call in calls:
            with pytest.raises(FileNotFoundError, match="an empty path names nothing") as caught:
                call()
            assert caught.value.filename == fs.url()
        assert list(fs.list()) == ["a"]


def test_arrow_removes_no_root(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"a")
    found = Local(tmp_path).arrow()
    for path in ("", "/", "d/..", str(tmp_path)):
        for remove in (found.delete_dir, found.delete_dir_contents):
            with pytest.raises((ValueError, OSError)):
                remove(path)
            assert (tmp_path / "d/a").exists()
    found.delete_dir_contents("", accept_root_dir=True)
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_as_themselves(tmp_path: Path) -> None:
    for name in ("out", "t/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "out/keep").write_bytes(b"keep")
    for name in ("t/l", "t/deep/l", "top"):
        (tmp_path / name).symlink_to(tmp_path / "out")
    (tmp_path / "t/file").symlink_to(tmp_path / "out/keep")
    (tmp_path / "t/none").symlink_to("nothing")
    fs = Local(tmp_path)
    fs.remove("top", recursive=True)
    fs.remove("t", recursive=True)
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert (tmp_path / "out/keep").read_bytes() == b"keep"


def test_a_tree_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):  # more than Python would call one in another
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = len(os.listdir("/proc/self/fd"))
    Local(tmp_path).remove("d", recursive=True)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t/d").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/keep").write_bytes(b"keep")
    opened, swapped = os.open, []

    def swapping(name: Any, *arguments: Any, **options: Any) -> int:
        if name == "d":  # as it is entered
            os.rmdir(tmp_path / "t/d")
            os.symlink(tmp_path / "out", tmp_path / "t/d")
            swapped.append(name)
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(OSError, match="remove"):
        Local(tmp_path).remove("t", recursive=True)
    assert swapped == ["d"]
    assert (tmp_path / "out/keep").read_bytes() == b"keep"


@needs_root
def test_what_cannot_be_removed_stays_and_the_rest_goes() -> None:
    top = shared_folder()

    def remove() -> str:
        tree = top / "t"
        for name in ("bad/x", "good/x", "empty"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).mkdir()
        (tree / "empty").chmod(0)
        (tree / "bad").chmod(0o500)
        try:
            Local(top).remove("t", recursive=True)
        except PermissionError as exc:
            return str(exc.filename)
        return ""

    assert as_user(ALICE, remove) == f"file://{top}/t/bad/x"
    assert sorted(os.listdir(top / "t")) == ["bad"]
    (top / "t/bad").chmod(0o700)


class Listed(Memory):
    """A store whose listing of one directory is what a test says."""

    order: list[str]

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        found = {stat.filename: stat for stat in super()._list(key, *how)}
        names = self.order if key == "d" else list(found)
        return iter([found[name] for name in names if name in found])


@pytest.mark.parametrize("order", ["b a c", "a b b c", "a b a b a b"])
def test_nothing_is_removed_after_a_listing_that_is_out_of_order(order: str) -> None:
    fs = Listed()
    for name in "abc":
        fs.write_bytes(name, b"x") if fs.isdir("d") else fs.mkdir("d")
        fs.write_bytes(f"d/{name}", b"x")
    fs.order = order.split()
    with pytest.raises(CorruptFileError, match="out of order") as caught:
        fs.remove("d", recursive=True)
    assert caught.value.filename == fs.url("d")
    source = Memory()
    source.makedirs("s")
    source.write_bytes("s/a", b"x")
    with pytest.raises(CorruptFileError, match="out of order"):
        source.sync_tree("s", "d", fs, delete=True)
    fs.order = ["a", "b", "c"]
    assert list(fs.list("d")) == ["a", "b", "c"]
    fs.remove("d", recursive=True)
    assert not fs.exists("d")


def test_two_that_remove_one_tree(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"t/{number % 7}/{number}").mkdir(parents=True)

    def remove() -> None:
        with contextlib.suppress(OSError):  # the other was faster
            fsabs.from_url(str(tmp_path)).remove("t", recursive=True)

    assert threaded("removing", [remove] * 2, 60) == [None] * 2
