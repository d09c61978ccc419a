"""What races: each function prepares one client and returns what does one round; ours and theirs stand side by side.

A function here runs in a process of its own, in the environment where its client is installed. It takes what JSON can
say and returns a callable without arguments, which does the work of one round, checks that what it read is whole, and
may return a mapping of further figures (`seconds` among them, where it has taken the time itself).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Run = Callable[[], Mapping[str, float] | None]


def library(name: str) -> Any:
    """A module that may not be installed here: where it isn't, the contestant is absent, and that is its reason."""
    return importlib.import_module(name)


def whole(data: Any, size: int) -> None:
    """Raises if what came is not `size` bytes: a fast client that loses bytes has not won."""
    if len(data) != size:
        raise RuntimeError(f"{len(data)} bytes came, and not {size}")


def all_whole(contents: Iterable[Any], count: int, size: int) -> None:
    """Raises if not so many contents came, each of `size` bytes."""
    came = 0
    for data in contents:
        whole(data, size)
        came += 1
    whole(range(came), count)


def for_each(function: Callable[[Any], object], items: Sequence[Any], threads: int = 1) -> Run:
    """Calls a function with each item, in one thread or shared out to several."""

    def some(share: Sequence[Any]) -> None:
        for item in share:
            function(item)

    if threads == 1:
        return lambda: some(items)
    pool = ThreadPoolExecutor(threads)
    shares = [items[start::threads] for start in range(threads)]

    def run() -> None:
        for _ in pool.map(some, shares):
            pass

    return run


def one_by_one(read: Callable[[str], Any], names: list[str], size: int, threads: int = 1) -> Run:
    """Read all, in one thread or shared out to several."""
    return for_each(lambda name: whole(read(name), size), names, threads)


def by_open(open_one: Callable[..., Any]) -> Callable[[str], Any]:
    """Return what opens a file for reading and reads it."""

    def read(name: str) -> Any:
        with open_one(name, "rb") as file:
            return file.read()

    return read
