"""The operations that `test_interrupts.py` interrupts; each fails if the one before left anything broken."""

from __future__ import annotations

import faulthandler
import functools
import io
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import fsabs
from fsabs import FS

from .interrupts import interrupt

Operation = Callable[[], object]
FILES = {f"{n}.bin": random.Random(n).randbytes(20_000) for n in range(8)}


def reads(fs: FS) -> None:
    """Read files in every way."""
    with fs.open("3.bin", "rb") as file:
        assert file.read(100) + file.read() == FILES["3.bin"]
    assert fs.read_bytes("4.bin") == FILES["4.bin"]
    assert list(fs.read_many(FILES, concurrency=2)) == list(FILES.values())
    assert "5.bin" in list(fs.list())


def writes(fs: FS) -> None:
    """Write a file, whole or not at all, and read it."""
    with fs.open("new.bin", "wb") as file:
        file.write(b"x" * 1000)
        file.flush()
        file.write(b"y" * 5000)
    assert fs.read_bytes("new.bin") == b"x" * 1000 + b"y" * 5000


def copies(source: FS, target: FS) -> None:
    """Copy a tree."""
    assert source.copy_tree("", "/tree", target).files == len(FILES)


def local_paths(fs: FS) -> None:
    """Read and write files by their local paths."""
    with fs.as_local("3.bin") as path:
        assert Path(path).read_bytes() == FILES["3.bin"]
    with fs.as_local("new.bin", "w") as path:
        Path(path).write_bytes(b"new")


class OneReader:
    """One open file, which every run goes on with."""

    def __init__(self, fs: FS) -> None:
        self.file = fs.open("3.bin", "rb", 4096)

    def __call__(self) -> None:
        data = FILES["3.bin"]
        self.file.seek(0)
        assert self.file.read() == data
        self.file.seek(10)
        assert self.file.readline() == io.BytesIO(data[10:]).readline()
        assert self.file.blob.pread_many([(10, 5), (7, 9000)]) == [data[5:15], data[9000:9007]]


def opens(fs: FS, name: str) -> None:
    """Open a container and list it."""
    with fs.open_container(name) as container:
        assert sorted(container.list()) == sorted(FILES)


def cases(folder: Path) -> dict[str, Operation]:
    """Return the operations by name."""
    fs, memory = fsabs.Local(folder / "files", create=True), fsabs.Memory("files")
    for target in (fs, memory):
        for name, data in FILES.items():
            target.write_bytes(name, data)
    archives = fsabs.Local(folder / "archives", create=True)
    found: dict[str, Operation] = {
        "local": functools.partial(reads, fs),
        "local-write": functools.partial(writes, fsabs.Local(folder / "new", create=True)),
        "memory": functools.partial(reads, memory),
        "memory-write": functools.partial(writes, fsabs.Memory("new")),
        "reader": OneReader(fs),
        "lazy": functools.partial(reads, fsabs.lazify(functools.partial(fsabs.Local, folder / "files"))),
        "layer": functools.partial(reads, fsabs.LayerFS(fs)),
        "copy-tree": functools.partial(copies, fs, fsabs.Memory("copies")),
        "as-local": functools.partial(local_paths, memory),
        "cached": functools.partial(reads, fsabs.CachedFS(memory, str(folder / "cache"))),
    }
    for name in ("a.zip", "a.tar", "a.tar.gz"):
        fsabs.pack(fs, archives, name)
        found[name] = functools.partial(reads, archives.open_container(name))
        found[f"open-{name}"] = functools.partial(opens, archives, name)
    return found


def run(name: str, times: int, seed: int) -> None:
    """Interrupt a case and print what came of it; a hang ends the process with its stacks."""
    sys.unraisablehook = lambda _: None  # an interrupt in a finalizer, which Python prints and ignores
    warnings.simplefilter("ignore", ResourceWarning)
    faulthandler.dump_traceback_later(20 + times / 10, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = os.path.join(folder, "temporary")
        os.mkdir(tempfile.tempdir)
        result = interrupt(cases(Path(folder))[name], times, random.Random(seed))
        left = os.listdir(tempfile.tempdir)
    faulthandler.cancel_dump_traceback_later()
    print(result.interrupted, result.descriptors, len(left))
