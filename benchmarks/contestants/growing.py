"""What grows with the number of entries: opening, listing and finding, in archives and in a bucket."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from . import Run, library, whole


def _cache(what: str, count: int) -> Path:
    """A cache directory of this contestant alone."""
    own = Path(os.environ["FSABS_CACHE_DIR"] + f"-{what}-{count}")
    os.environ["FSABS_CACHE_DIR"] = str(own)
    return own


def _opened(path: str, name: str) -> Any:
    fs = library("fsabs").from_url(path)
    if not fs.exists(name):
        raise RuntimeError(f"{name} is not found in {path}")
    return fs


def _listing(fs: Any, count: int, times: int) -> Run:
    """List all, and count the files."""

    def run() -> None:
        for _ in range(times):
            whole(range(sum(name[-1] != "/" for name in fs.list(recursive=True))), count)

    return run


def open_first(path: str, names: list[str], count: int, times: int) -> Run:
    """Open and find one, with nothing kept."""
    kept = _cache("first", count)

    def run() -> None:
        for _ in range(times):
            shutil.rmtree(kept, ignore_errors=True)
            _opened(path, names[0]).close()

    return run


def open_again(path: str, names: list[str], count: int, times: int) -> Run:
    """Open and find one, with what an earlier opening has kept."""
    _cache("kept", count)
    return lambda: _opened(path, names[0]).close()


def list_all(path: str, names: list[str], count: int, times: int) -> Run:
    """All files, by a recursive list."""
    _cache("kept", count)
    fs = _opened(path, names[0])
    return _listing(fs, count, times)


def find(path: str, names: list[str], count: int, times: int) -> Run:
    """`stat` of 2,000 names that are spread over all."""
    _cache("kept", count)
    fs = _opened(path, names[0])
    wanted = (names * 2)[:2000]

    def run() -> None:
        for name in wanted:
            fs.stat(name)

    return run


def list_bucket(endpoint: str, count: int, times: int) -> Run:
    """All keys, by a recursive list."""
    fs = library("fsabs").from_url("s3://bucket", endpoint=endpoint, region="us-east-1", path_style=True)
    next(iter(fs.list()))  # one page: the client is made, and has connected
    return _listing(fs, count, times)
