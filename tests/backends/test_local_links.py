"""Symbolic links of a local tree: followed, or held inside of the root, or refused."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, Local

pytestmark = pytest.mark.quick

LEADS_OUT = ["out", "out/secret", "file", "sub/up", "sub/up/secret", "absolute/secret", "hop/secret"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with links that stay inside and links that lead out; `hop` leads out by another link."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "sub", outside):
        folder.mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (root / "inner.txt").write_text("inner")
    (root / "sub/deep.txt").write_text("deep")
    for name, target in {
        "out": "../outside",
        "file": "../outside/secret",
        "sub/up": "../../outside",
        "absolute": os.fspath(outside),
        "hop": "out",
        "in": "sub",
        "twin": "inner.txt",
        "sub/root": "..",
        "dangling": "none",
    }.items():
        (root / name).symlink_to(target)
    return root


def _uses(fs: FS, path: str) -> list[Callable[[], object]]:
    """Return operations on what a path leads to."""
    below = path if path.endswith(("secret", "file")) else f"{path}/secret"
    return [
        lambda: fs.read_bytes(below),
        lambda: fs.open(below, "a"),
        lambda: fs.write_bytes(below, b"changed"),
        lambda: list(fs.read_many([below])),
        lambda: fs.stat(below),
        lambda: fs.exists(below),
        lambda: fs.copy(below, "copied"),
        lambda: fs.as_local(below),
        lambda: fs.subfs(path),
        lambda: fs.list(path),
        lambda: fs.makedirs(f"{path}/new"),
        lambda: fs.rename("inner.txt", f"{path}/moved"),
        lambda: fs.remove(f"{path}/secret"),
    ]


@pytest.mark.parametrize("links", ["inside", "refuse"])
def test_no_link_leads_out(tree: Path, links: str) -> None:
    for path in LEADS_OUT:
        for use in _uses(Local(tree, links=links), path):
            with pytest.raises(PermissionError) as caught:
                use()
            assert caught.value.filename.startswith("file:///")
    assert (tree.parent / "outside/secret").read_text() == "secret"
    assert os.listdir(tree.parent / "outside") == ["secret"]


def test_links_that_stay_inside(tree: Path) -> None:
    following, inside, refusing = Local(tree), Local(tree, links="inside"), Local(tree, links="refuse")
    for path, text in (("in/deep.txt", "deep"), ("twin", "inner"), ("sub/root/inner.txt", "inner")):
        assert following.read_text(path) == inside.read_text(path) == text
        with pytest.raises(PermissionError):
            refusing.read_text(path)
    assert following.read_text("out/secret") == following.read_text("hop/secret") == "secret"
    with pytest.raises(PermissionError):
        inside.subfs("sub").read_text("root/inner.txt")  # out of the root of that
    assert refusing.read_text("sub/deep.txt") == "deep"


@pytest.mark.parametrize("layer", ["cache", "trace", "lazify", "subfs"])
@pytest.mark.filterwarnings("ignore:a cache around local files")
def test_layers_refuse_what_their_fs_refuses(tree: Path, tmp_path: Path, layer: str) -> None:
    if layer == "lazify":
        fs: FS = fsabs.lazify(functools.partial(Local, tree, links="inside"))
    else:
        options: dict[str, Any] = {"cache": str(tmp_path / "cache")} if layer == "cache" else {"trace": True}
        fs = fsabs.from_url(tree, links="inside", **options)
    paths = ["out/secret", "file", "hop"]
    if layer == "subfs":
        fs, paths = fs.subfs("sub"), ["root/inner.txt", "up/secret"]
    for path in paths:
        with pytest.raises(PermissionError):
            fs.read_bytes(path)
        with pytest.raises(PermissionError):
            list(fs.read_many([path]))
        with pytest.raises(PermissionError):
            fs.write_bytes(path, b"x")


@pytest.mark.parametrize("links", ["inside", "refuse"])
def test_a_listing_shows_links_as_themselves(tree: Path, links: str) -> None:
    fs = Local(tree, links=links)
    names = sorted(fs.list(recursive=True))
    entered = ["in/deep.txt", "in/root/", "in/up"] if links == "inside" else []
    assert [name for name in names if name.startswith("in/") and name != "in/"] == entered
    assert {"out", "file", "hop", "absolute", "sub/up"} <= set(names)
    assert not [name for name in names if "secret" in name]
    assert [path for path in fs.glob("**") if "secret" in path] == []
    assert [name for _, _, names in fs.walk() for name in names if "secret" in name] == []
    sizes = {stat.filename: stat.size for stat in fs.list(detail=True)}
    assert sizes["file"] == len("../outside/secret"), "the size of the link, not of what it leads to"


@pytest.mark.parametrize("links", ["follow", "inside", "refuse"])
def test_a_link_is_removed_and_renamed_as_itself(tree: Path, links: str) -> None:
    fs: FS = Local(tree, links=links)
    fs.rename("file", "renamed")
    fs.remove("out", recursive=True)
    fs.remove("renamed")
    fs.remove(".", recursive=True)
    assert os.listdir(tree) == []
    assert (tree.parent / "outside/secret").read_text() == "secret"


def test_the_option_is_one_of_three(tree: Path) -> None:
    with pytest.raises(ValueError, match="'follow', 'inside', 'refuse'"):
        Local(tree, links="none")
    assert fsabs.from_url(tree, links="inside").exists("in")


def test_a_link_does_not_take_the_place_of_what_it_leads_to(tmp_path: Path) -> None:
    """As the system's rename would have it: the link would lead to itself, and the file be gone."""
    (tmp_path / "f").write_bytes(b"data")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "second").symlink_to("link")
    fs = Local(str(tmp_path))
    for name in ("link", "second"):
        with pytest.raises(OSError, match="leads to what it would replace"):
            fs.rename(name, "f")
    assert (tmp_path / "f").read_bytes() == b"data"
    fs.rename("link", "other")
    assert os.readlink(tmp_path / "other") == "f"
