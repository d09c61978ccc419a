"""Trees in memory beyond what every FS must hold: what they cost, and when they are freed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

import fsabs
from fsabs.backends import memory

pytestmark = pytest.mark.quick


def calls(action: Callable[[], object]) -> int:
    """The number of functions that `action` calls: what it costs, on any machine."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def tree(directories: int) -> fsabs.Memory:
    fs = fsabs.Memory()
    for number in range(directories):
        fs.makedirs(f"d{number}/inner")
        fs.write_bytes(f"d{number}/inner/x", b"")
    return fs


@pytest.mark.parametrize(
    "action",
    [
        lambda fs: list(fs.list(recursive=True)),
        lambda fs: list(fs.walk()),
        lambda fs: list(fs.glob("*/*/x")),
        lambda fs: fs.rename("d1", "other"),
        lambda fs: fs.remove(".", recursive=True),
    ],
    ids=["list", "walk", "glob", "rename", "remove"],
)
def test_the_cost_is_in_proportion(action: Callable[[fsabs.Memory], object]) -> None:
    small, large = tree(100), tree(400)
    assert calls(lambda: action(large)) < 6 * calls(lambda: action(small))


def test_an_empty_tree_is_freed_with_its_last_fs() -> None:
    fs = fsabs.Memory("freed")
    fs.write_bytes("a/../x", b"1")
    del fs
    gc.collect()
    with fsabs.from_url("memory://freed") as again:
        assert again.read_bytes("x") == b"1"
        again.remove(".", recursive=True)
        second = fsabs.Memory("freed")
        second.write_bytes("y", b"2")
        assert list(again.list()) == ["y"]  # one tree for as long as it is open
        second.remove("y")
    del again, second
    gc.collect()
    with pytest.raises(FileNotFoundError):
        memory.forget("freed")


def test_a_forgotten_tree_takes_no_name_again() -> None:
    old = fsabs.Memory("forgotten")
    old.write_bytes("x", b"old")
    memory.forget("forgotten")
    new = fsabs.Memory("forgotten")
    old.write_bytes("y", b"old")
    assert list(new.list()) == []
    new.write_bytes("z", b"new")
    old.remove(".", recursive=True)
    del new
    assert list(fsabs.Memory("forgotten").list()) == ["z"]
    memory.forget("forgotten")
    with pytest.raises(FileNotFoundError):
        memory.forget("forgotten")
