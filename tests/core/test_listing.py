"""Listings beyond what every FS must hold: batches that lose nothing, directories of many names, deep trees."""

from __future__ import annotations

import functools
import glob
import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs.core.listing import Listing
from fsabs.testing.children import Child

pytestmark = pytest.mark.quick


def numbers(after: int | None) -> Iterator[int]:
    return iter(range(0 if after is None else after + 1, 5000))


def fails_at_3000(after: int | None) -> Iterator[int]:
    for number in numbers(after):
        if number == 3000:
            raise OSError("cut off")
        yield number


def test_a_half_used_listing_goes_on_in_a_child_and_from_a_pickle() -> None:
    for taken in (0, 1, 3, 1500, 5000):
        listing = Listing(numbers)
        assert [next(listing) for _ in range(taken)] == list(range(taken))
        again = pickle.loads(pickle.dumps(listing))
        rest = list(range(taken, 5000))
        assert Child("a child", functools.partial(list, listing), 20).result() == rest
        assert list(again) == rest
        assert list(listing) == rest
    closed = Listing(numbers)
    next(closed)
    closed.close()
    assert list(closed) == []


def test_a_half_used_listing_goes_on_by_name(tmp_path: Path) -> None:
    """What was removed meanwhile shifts nothing: a listing that counted would skip names that are there."""
    for number in range(100):
        (tmp_path / f"{number:03}").touch()
    for fs in (fsabs.from_url(tmp_path), fsabs.Memory()):
        if not list(fs.list()):
            for number in range(100):
                fs.write_bytes(f"{number:03}", b"")
        for kind in (fs.list, functools.partial(fs.list, recursive=True, detail=True), functools.partial(fs.glob, "*")):
            for number in range(100):
                fs.write_bytes(f"{number:03}", b"")
            listing: Iterator[object] = kind()
            taken = [_name(next(listing)) for _ in range(10)]
            for name in taken[:9]:
                fs.remove(name)
            rest = [_name(item) for item in pickle.loads(pickle.dumps(listing))]
            assert sorted(taken + rest) == [f"{number:03}" for number in range(100)]
            fs.remove(taken[9])
            again = pickle.loads(pickle.dumps(listing))
            if fs.capabilities.ordered and "glob" not in repr(kind):
                assert [_name(item) for item in again] == rest
            else:  # it can't be found out what follows
                with pytest.raises(fsabs.StaleFileError, match=taken[9]):
                    list(again)


def _name(item: object) -> str:
    return item if isinstance(item, str) else item.filename  # type: ignore[attr-defined]


def test_what_came_before_an_error_is_given_first_and_the_error_once() -> None:
    listing = Listing(fails_at_3000)
    found = []
    with pytest.raises(OSError, match="cut off"):
        for number in listing:
            found.append(number)
    assert found == list(range(3000))
    with pytest.raises(OSError, match="cut off"):
        Listing(fails_at_3000, 2999).prime()


def test_a_large_directory_is_listed_without_stats_and_from_its_first_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        (tmp_path / f"{number:04}").touch()
    (tmp_path / ".0000.0123456789ab.fsabs-partial").touch()
    fs = fsabs.from_url(tmp_path)
    taken = 0

    class Counted:
        def __init__(self, path: str) -> None:
            self.entries = scandir(path)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            return self.each()

        def __exit__(self, *exc: object) -> None:
            self.entries.close()

        def each(self) -> Iterator[os.DirEntry[str]]:
            nonlocal taken
            for entry in self.entries:
                taken += 1
                yield entry

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", Counted)
    monkeypatch.setattr(os, "stat", None)
    names = fs.list()
    next(names)
    assert taken < 10, "the first name waits for no others"
    assert len(list(names)) == 2999
    assert not fs.capabilities.ordered


def test_a_tree_deeper_than_pythons_stack_is_listed_matched_and_removed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    above = os.getcwd()
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", str(tmp_path)], check=True))  # pytest's own recurses
    try:
        os.chdir(tmp_path)
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
        Path("x.bin").touch()
    finally:
        os.chdir(above)
    fs = fsabs.from_url(tmp_path)
    deepest = "d/" * 1200 + "x.bin"
    assert list(fs.glob("**/*.bin")) == [deepest]
    assert list(fs.subfs("d/" * 1100).glob("**/d/**/d/**/x.*")) == ["d/" * 100 + "x.bin"]
    assert sum(1 for _ in fs.list(recursive=True)) == 1201
    assert sum(1 for _ in fs.list(recursive=True, detail=True)) == 1201
    fs.remove("d", recursive=True)
    assert list(fs.list()) == []


def test_patterns_match_hidden_names_as_in_the_standard_library(tmp_path: Path) -> None:
    for name in ("a/x.b", "a/a/x.b", "a/.h/x.b", ".h/x.b", "x.b", ".x.b", "a/c/y.b", "b/a/c/d/x.b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    fs = fsabs.from_url(tmp_path)
    for pattern in ("*", "*/**/*.b", "**/a/*", "**/a/**/x.b", "**/.*", ".h/*", "**/**/x.b"):
        found = glob.glob(pattern, root_dir=tmp_path, recursive=True)
        assert sorted(fs.glob(pattern)) == sorted({path.rstrip("/") for path in found} - {""}), pattern
    assert list(fsabs.Memory().glob("/")) == glob.glob("/")
