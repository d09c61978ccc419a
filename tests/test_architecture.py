"""docs/architecture.md: the rooms that it names are there, and operations pass the files that it draws.

`python -m tests.test_architecture` draws them anew.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
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
from tests.servers.moto import MotoServer

PACKAGE = Path(fsabs.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN = "<!-- walks: begin (python -m tests.test_architecture writes what is below) -->"
BUCKET = "fsabs-walks"
NAMES = [f"{number}.bin" for number in range(8)]


class Walk(NamedTuple):
    """An operation, and how many files of the package it may pass."""

    title: str
    limit: int
    operation: Callable[[], Any]
    twice: bool = True
    """Whether it is drawn as it is when it is done again."""


@contextlib.contextmanager
def walks(server: Any) -> Iterator[list[Walk]]:
    """Give the operations of the page, on a store at `server`."""
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
            Walk("`fs.read_bytes(path)` on S3", 13, lambda: store.read_bytes("images/0.bin")),
            Walk("`fs.list(path)` on S3", 19, lambda: list(store.list("images"))),
            Walk("`fs.write_bytes(path, data)` on S3", 15, lambda: store.write_bytes("small", b"x" * 1000)),
            Walk("A file of several parts written to S3", 18, upload),
            Walk("`fs.read_many(paths)` of a zip on S3", 19, lambda: list(zipped.read_many(NAMES))),
            Walk("`open_url` of a file in a zip on S3, read", 38, open_url),
            Walk("A hit of a cache on disk, `fs.read_bytes(path)`", 10, lambda: cached.read_bytes("images/0.bin")),
            Walk(
                "`fs.read_many(paths)` on S3 through an empty cache",
                29,
                lambda: list(cached.read_many([f"images/{name}" for name in NAMES[2:]])),
                twice=False,
            ),
        ]


def passed(walk: Walk) -> dict[str, str]:
    """Return the files of the package that an operation passes, in order, and the file that each is called by."""
    found: dict[str, str] = {}

    def file_of(frame: FrameType | None) -> str:
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                return str(path.relative_to(PACKAGE))
            frame = frame.f_back
        return ""

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE) + os.sep):
            found.setdefault(file_of(frame), file_of(frame.f_back))

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
    return found


def drawn(title: str, files: dict[str, str]) -> str:
    """Return the section of the page for an operation: each file below the one that calls it first."""

    def lines(caller: str, indent: str) -> Iterator[str]:
        for file, by in files.items():
            if by == caller:
                yield indent + file
                yield from lines(file, indent + "  ")

    text = "\n".join(lines("", ""))
    return f"### {title}\n\n{len(files)} files:\n\n```text\n{text}\n```\n"


@pytest.mark.quick
def test_the_page_names_the_rooms_that_are_there() -> None:
    table = PAGE.read_text().partition("## The package")[2].partition("## The files")[0]
    named = set(re.findall(r"`([a-z0-9_]+(?:\.py|/))`", table))
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")} | {
        path.name for path in PACKAGE.glob("*.py")
    }
    assert named - rooms - {"tests/"} == set()
    assert rooms - named == {"__init__.py", "__main__.py"}


def test_operations_pass_the_files_that_are_drawn(moto: Any) -> None:
    with walks(moto) as operations:
        found = {walk.title: passed(walk) for walk in operations}
        limits = {walk.title: walk.limit for walk in operations}
    sections = re.split(r"(?m)^(?=### )", PAGE.read_text().partition(BEGIN)[2])[1:]
    assert [section.strip() for section in sections] == [drawn(*one).strip() for one in found.items()]
    assert {title: len(files) for title, files in found.items() if len(files) > limits[title]} == {}


if __name__ == "__main__":
    with MotoServer() as own, walks(own) as operations:
        head = PAGE.read_text().partition(BEGIN)[0]
        PAGE.write_text("\n".join([f"{head}{BEGIN}\n", *(drawn(walk.title, passed(walk)) for walk in operations)]))
