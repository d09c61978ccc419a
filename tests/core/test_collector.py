"""Nothing that only the cycle collector frees: training loops switch it off, for hours.

Each way to open, close, drop and fail is repeated without it; then it finds next to nothing, and there are no more
descriptors and threads than before.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

import fsabs
from fsabs import FS
from tests.servers.shared import unique

KINDS = ["local", "zip", "tar", "tar.gz", "hdf5", "cached zip", "s3", "s3 that is down", "hdfs"]


class Place(NamedTuple):
    """What is opened again and again."""

    url: str
    options: dict[str, Any]
    fs: FS

    def open(self) -> FS:
        """Return another FS of it."""
        fs: FS = fsabs.from_url(self.url, **self.options)
        return fs


def written(folder: Path, kind: str) -> Path:
    """Return a container of one member, `a`."""
    path = folder / f"x.{kind}"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["a"] = np.arange(3)
    else:
        with fsabs.from_url(path, mode="w") as archive:
            archive.write_bytes("a", b"content")
    return path


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place of each kind."""
    options: dict[str, Any] = {}
    kind = request.param
    if kind == "local":
        url = str(tmp_path)
    elif kind == "cached zip":
        url, options = str(written(tmp_path, "zip")), {"cache": tmp_path / "cache"}
    elif kind == "s3":
        moto = request.getfixturevalue("moto")
        url, options = f"s3://{unique('collector')}/", moto.options
        moto.create_bucket(url.split("/")[2])
    elif kind == "s3 that is down":
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "us-east-1"}
        url, options = "s3://bucket/", {"endpoint": "http://127.0.0.1:1", "max_attempts": 1, **keys}
    elif kind == "hdfs":
        url, options = f"{request.getfixturevalue('hdfs').url}/{unique('collector')}", {"create": True}
    else:
        url = str(written(tmp_path, kind))
    with fsabs.from_url(url, **options) as fs:
        if fs.capabilities.write and kind != "s3 that is down":
            fs.write_bytes("a", b"content")
        yield Place(url, options, fs)


def failing(call: Callable[..., Any], *args: Any) -> None:
    """Call what raises `OSError`, or does where a place is down or read only."""
    with contextlib.suppress(OSError):
        call(*args)


def opened_and_closed(place: Place) -> None:
    with place.open() as fs:
        failing(lambda: [*fs.list()])


def dropped(place: Place) -> None:
    failing(lambda: [*place.open().list()])


def file_dropped(place: Place) -> None:
    failing(lambda: place.fs.open("a", "rb").read(1))


def nothing_there(place: Place) -> None:
    for call in (place.fs.read_bytes, place.fs.stat, place.fs.open, place.fs.remove):
        failing(call, "nosuch")
    failing(lambda: [*place.fs.list("nosuch")])
    failing(lambda: [*place.fs.read_many(["a", "nosuch", "a"])])
    failing(place.fs.open_container, "nosuch.zip")
    failing(place.fs.copy, "nosuch", "b")


def writes_refused(place: Place) -> None:
    failing(place.fs.write_bytes, "a/below a file", b"x")
    failing(place.fs.write_many, [("b", b"x"), ("a/below a file", b"x")])
    failing(lambda: place.fs.open("a", "xb").close())


OPERATIONS = [opened_and_closed, dropped, file_dropped, nothing_there, writes_refused]


def state() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_over_is_freed_without_the_collector(
    place: Place, operation: Callable[[Place], None], rounds: int
) -> None:
    for _ in range(3):
        operation(place)
    gc.collect()
    gc.disable()
    try:
        before = state()
        for _ in range(rounds):
            operation(place)
        more = [after - of for after, of in zip(state(), before, strict=True)]
        found = gc.collect()
    finally:
        gc.enable()
    assert found < rounds
    assert max(more) < rounds / 2, "descriptors and threads"
