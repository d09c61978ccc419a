"""Running the command as a process, and trees on the stores that it is tested on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests import preloaded

MODULES = (
    "argparse",
    "configparser",
    "email.parser",
    "http.client",
    "inspect",
    "json",
    "ssl",
    "zipfile",
    "isal.isal_zlib",
)
"""What commands import of others."""
MTIME = 1_700_000_000
FILES = {"a.txt": b"one\ntwo\nthree\n", "sub/b.bin": bytes(range(256)) * 8, "sub/deep/c d.txt": b"", "z.txt": b"z" * 5}
NAMES = ["a.txt", "sub/", "z.txt"]
ALL_NAMES = ["a.txt", "sub/", "sub/b.bin", "sub/deep/", "sub/deep/c d.txt", "z.txt"]


class Done(NamedTuple):
    """What a process did."""

    out: str
    err: str
    code: int


def fsabs(
    *arguments: str, code: int = 0, input: bytes = b"", env: Mapping[str, str] = {}, cwd: Path | None = None
) -> Done:
    """Run the command as a process, and check its exit code."""
    environment = {**os.environ, "TZ": "UTC", "PFIO_CONFIG_PATH": os.devnull, **env}
    command = ["-m", "fsabs", *arguments]
    done = preloaded.run(MODULES, command, input=input, timeout=100, env=environment, cwd=cwd)
    found = Done(done.stdout, done.stderr, done.returncode)
    assert found.code == code, found
    return found


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
