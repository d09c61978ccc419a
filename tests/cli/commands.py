"""Running the command, and trees on the stores that it is tested on."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from fsabs.cli import main

MTIME = 1_700_000_000
FILES = {"a.txt": b"one\ntwo\nthree\n", "sub/b.bin": bytes(range(256)) * 8, "sub/deep/c d.txt": b"", "z.txt": b"z" * 5}
NAMES = ["a.txt", "sub/", "z.txt"]
ALL_NAMES = ["a.txt", "sub/", "sub/b.bin", "sub/deep/", "sub/deep/c d.txt", "z.txt"]


class Done(NamedTuple):
    """What a command did."""

    out: str
    err: str
    code: int


def fsabs(
    *arguments: str,
    code: int | None = 0,
    input: bytes = b"",
    env: Mapping[str, str] = {},
    cwd: Path | None = None,
) -> Done:
    """Run the command in this process, and check its exit code, unless it may be any."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        _environment({"TZ": "UTC", "PFIO_CONFIG_PATH": os.devnull, **env}),
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(input))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        found = main(arguments)
    done = Done(_text(out), _text(err), found)
    assert code in (None, found), done
    return done


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    try:
        with mock.patch.dict(os.environ, values):
            time.tzset()
            yield
    finally:
        time.tzset()


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written: io.BytesIO = stream.buffer  # type: ignore[assignment]
    return written.getvalue().decode(errors="surrogateescape")


def make_tree(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """Make files in a local folder, with one time of modification."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (MTIME, MTIME))
    return folder


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return all files below a local folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
