"""The rule of paths: patterns, containers in the middle and at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fsabs
from fsabs.cli.paths import Paths

pytestmark = pytest.mark.quick


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory, a zip of it, and a tar with a zip in it; the current directory."""
    monkeypatch.chdir(tmp_path)
    for url in ("d", "t.zip", "out.tar/deep/in.zip"):
        with fsabs.from_url(url, create=True) as fs:
            fs.write_bytes("a.txt", b"a")
            if url == "d":
                fs.makedirs("sub")
            fs.write_bytes("sub/b.txt", b"b")
    Path("odd[1].txt").write_text("odd")
    return tmp_path


def expanded(text: str) -> list[str]:
    with Paths() as paths:
        return [found.text for found in paths.expand(text)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("d/*", ["d/a.txt", "d/sub"]),
        ("d/*/", ["d/sub/"]),
        ("d/**/*.txt", ["d/a.txt", "d/sub/b.txt"]),
        ("*.zip", ["t.zip"]),
        ("*.zip/", ["t.zip/"]),
        ("*.zip/sub/*", ["t.zip/sub/b.txt"]),
        ("t.zip/**/b*", ["t.zip/sub/b.txt"]),
        ("out.tar/deep/*.zip/*/b.txt", ["out.tar/deep/in.zip/sub/b.txt"]),
        ("odd[1].txt", ["odd[1].txt"]),
        ("nothing/here", ["nothing/here"]),
    ],
)
def test_patterns(tree: Path, text: str, names: list[str]) -> None:
    assert expanded(text) == names
    if not text.startswith("nothing"):
        assert expanded(f"{tree}/{text}") == [f"{tree}/{name}" for name in names]
        assert expanded(f"file://{tree}/{text}") == [f"file://{tree}/{name}" for name in names]


def test_a_pattern_without_a_match_is_an_error(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        expanded("d/*.png")


@pytest.mark.parametrize("text", ["t.zip", "out.tar/deep/in.zip"])
def test_a_container_at_the_end_is_a_file_and_with_a_slash_a_directory(tree: Path, text: str) -> None:
    with Paths() as paths:
        file = paths.resolve(text)
        assert not file.contents
        assert file.stat().isfile()
        members = paths.resolve(text + "/")
        assert members.contents
        assert sorted(members.fs.list(members.path, recursive=True)) == ["a.txt", "sub/", "sub/b.txt"]
        assert paths.resolve(text + "/sub/b.txt").url == f"file://{tree}/{text}/sub/b.txt"


def test_a_directory_with_the_suffix_of_a_container_is_a_directory(tree: Path) -> None:
    os.makedirs("dir.zip/x")
    with Paths() as paths:
        for text in ("dir.zip", "dir.zip/", "dir.zip/x", "dir.zip/x/"):
            assert paths.resolve(text).is_directory(), text


def test_members_are_written_as_the_path_was(tree: Path) -> None:
    with Paths() as paths:
        assert paths.resolve("d/").member("sub/b.txt").text == "d/sub/b.txt"
        assert paths.resolve("d").member("sub/").text == "d/sub/"
        member = paths.resolve("memory://store/a%20b").member("c d")
        assert (member.text, member.path) == ("memory://store/a%20b/c%20d", "a b/c d")
