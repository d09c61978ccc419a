"""How many files of the package one operation passes: whoever follows it in the code opens so many."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import fsabs
from fsabs.containers import in_memory

PACKAGE = Path(fsabs.__file__).parent
BUCKET = "fsabs-walks"
NAMES = [f"{number}.bin" for number in range(8)]


class Walk(NamedTuple):
    """An operation, and how many files of the package it may pass."""

    title: str
    limit: int
    operation: Callable[[], Any]
    twice: bool = True
    """Count what it passes when it is done again, and not the first time."""


@contextlib.contextmanager
def walks(server: Any) -> Iterator[list[Walk]]:
    """Give the operations, on a store at `server`."""
    server.create_bucket(BUCKET)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in NAMES:
            file.writestr(name, name * 100)
        file.writestr("large.bin", bytes(in_memory.MAX_BYTES))  # a small archive is read from memory soon
    options: dict[str, Any] = {
        "endpoint": server.endpoint,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "region": server.region,
    }
    url = f"s3://{BUCKET}"
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        changed = stack.enter_context(pytest.MonkeyPatch.context())
        changed.setenv("FSABS_CACHE_DIR", f"{folder}/indexes")
        store = stack.enter_context(fsabs.from_url(url, **options))
        store.write_bytes("a.zip", archive.getvalue())
        store.write_many([(f"images/{name}", name.encode() * 100) for name in NAMES])
        zipped = stack.enter_context(fsabs.from_url(f"{url}/a.zip", **options))
        cache = {"dir": f"{folder}/cache", "memory_bytes": 0, "max_age": 1000}
        cached = stack.enter_context(fsabs.from_url(url, cache=cache, **options))
        local = stack.enter_context(fsabs.from_url(folder))
        local.write_bytes("a", b"x" * 1000)
        list(cached.read_many([f"images/{name}" for name in NAMES[:2]]))  # so that no module is imported later

        def open_url() -> None:
            with fsabs.open_url(f"{url}/a.zip/0.bin", "rb", **options) as file:
                file.read()

        def upload() -> None:
            with store.open("large", "wb") as file:
                for _ in range(20):
                    file.write(bytes(1 << 20))

        yield [
            Walk("`fs.read_bytes(path)` on the local disk", 3, lambda: local.read_bytes("a")),
            Walk("`fs.read_bytes(path)` on S3", 12, lambda: store.read_bytes("images/0.bin")),
            Walk("`fs.list(path)` on S3", 16, lambda: list(store.list("images"))),
            Walk("`fs.write_bytes(path, data)` on S3", 13, lambda: store.write_bytes("small", b"x" * 1000)),
            Walk("A file of several parts written to S3", 16, upload),
            Walk("`fs.read_many(paths)` of a zip on S3", 18, lambda: list(zipped.read_many(NAMES))),
            Walk("`open_url` of a file in a zip on S3, read", 37, open_url),
            Walk("A hit of a cache on disk, `fs.read_bytes(path)`", 11, lambda: cached.read_bytes("images/0.bin")),
            Walk(
                "`fs.read_many(paths)` on S3 through an empty cache",
                30,
                lambda: list(cached.read_many([f"images/{name}" for name in NAMES[2:]])),
                twice=False,
            ),
        ]


def passed(walk: Walk) -> list[str]:
    """Return the files of the package that an operation passes, in order."""
    found: dict[str, None] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE) + os.sep):
            found[os.path.relpath(frame.f_code.co_filename, PACKAGE)] = None

    if walk.twice:
        walk.operation()
    threading.setprofile(called)  # of threads that are started meanwhile
    gc.collect()  # no finalizer of an earlier test's object runs meanwhile
    gc.disable()
    time.sleep(1 - time.time() % 1)  # requests are signed by the second: each walk signs in a new one
    sys.setprofile(called)
    try:
        walk.operation()
    finally:
        sys.setprofile(None)
        gc.enable()
        threading.setprofile(None)
    return [*found]


def test_an_operation_passes_no_more_files(moto: Any) -> None:
    with walks(moto) as operations:
        found = {walk: passed(walk) for walk in operations}
    assert {walk.title: files for walk, files in found.items() if len(files) > walk.limit} == {}
