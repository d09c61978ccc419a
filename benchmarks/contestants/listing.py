"""A local directory `path` of `count` files, `0000000.bin` and so on: its names, and those that match `*5.bin`."""

from __future__ import annotations

import glob
import os
from time import perf_counter

from . import Run, library, whole


def fsabs_list(path: str, count: int) -> Run:
    """`fs.list`; `first` is when the first name was there."""
    fs = library("fsabs").from_url(path)

    def run() -> dict[str, float]:
        begin = perf_counter()
        names = fs.list("")
        next(names)
        first = perf_counter() - begin
        whole(range(1 + sum(1 for _ in names)), count)
        return {"first": first}

    return run


def scandir(path: str, count: int) -> Run:
    """The entries of `os.scandir`."""

    def run() -> None:
        with os.scandir(path) as entries:
            whole(range(sum(1 for _ in entries)), count)

    return run


def fsabs_glob(path: str, count: int) -> Run:
    """`fs.glob`."""
    fs = library("fsabs").from_url(path)
    return lambda: whole(range(sum(1 for _ in fs.glob("*5.bin"))), count // 10)


def stdlib_glob(path: str, count: int) -> Run:
    """`glob.iglob`."""
    return lambda: whole(range(sum(1 for _ in glob.iglob(f"{path}/*5.bin"))), count // 10)
