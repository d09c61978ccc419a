"""Epochs over a data set on the Hugging Face hub: ours, and `huggingface_hub`'s own filesystem.

All take `endpoint`, `names` (files in the data set) and `size`, the bytes of each; a first epoch begins with nothing:
a user that the hub and the client see for the first time. Each counts the requests for listings and for addresses.
"""

from __future__ import annotations

import itertools
import json
import os
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from . import Run, all_whole, library, one_by_one, whole

REPOSITORY = "bench/data"


def _counts(endpoint: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{endpoint}/counts") as response:
        found: dict[str, int] = json.loads(response.read())
    return found


def _counted(endpoint: str, epoch: Callable[[], object]) -> Run:
    """Add how many pages of listings, and addresses, were asked for."""

    def run() -> Mapping[str, float]:
        before = _counts(endpoint)
        epoch()
        after = _counts(endpoint)
        names = {"tree": "pages", "resolve": "resolves"}
        return {name: float(after.get(kind, 0) - before.get(kind, 0)) for kind, name in names.items()}

    return run


_tokens = (f"hf_{os.getpid()}_{number}" for number in itertools.count())


def _ours(endpoint: str, names: list[str]) -> Any:
    fs = library("fsabs").from_url(f"hf://datasets/{REPOSITORY}", endpoint=endpoint, token=next(_tokens))
    whole(list(fs.list()), len(names))
    return fs


def fsabs_read_many(endpoint: str, names: list[str], size: int, first: bool) -> Run:
    """List the files, and `fs.read_many` of all names; only the latter if not `first`."""
    if first:
        return _counted(endpoint, lambda: all_whole(_ours(endpoint, names).read_many(names), len(names), size))
    fs = _ours(endpoint, names)
    return _counted(endpoint, lambda: all_whole(fs.read_many(names), len(names), size))


def fsabs_read_bytes(endpoint: str, names: list[str], size: int, first: bool) -> Run:
    """List the files, and `fs.read_bytes` of each; only the latter if not `first`."""
    if first:
        return _counted(endpoint, lambda: one_by_one(_ours(endpoint, names).read_bytes, names, size)())
    return _counted(endpoint, one_by_one(_ours(endpoint, names).read_bytes, names, size))


def _theirs(endpoint: str, names: list[str]) -> Any:
    filesystem = library("huggingface_hub").HfFileSystem
    fs = filesystem(endpoint=endpoint, token=next(_tokens), skip_instance_cache=True)
    whole(fs.find(f"datasets/{REPOSITORY}"), len(names))
    return fs


def hf_file_system(endpoint: str, names: list[str], size: int, first: bool, threads: int = 1) -> Run:
    """`fs.find`, and `fs.cat_file` of each; only the latter if not `first`."""
    paths = [f"datasets/{REPOSITORY}/{name}" for name in names]
    if first:
        return _counted(endpoint, lambda: one_by_one(_theirs(endpoint, names).cat_file, paths, size, threads)())
    return _counted(endpoint, one_by_one(_theirs(endpoint, names).cat_file, paths, size, threads))
