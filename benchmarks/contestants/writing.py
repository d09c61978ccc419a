"""Files written to a local directory, and local trees packed into one file."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

from . import Run, for_each, library, whole


def _written_anew(path: str, count: int, size: int, write: Callable[[str, bytes], Any]) -> Run:
    """Write `count` new files below `path` in each round."""
    data = os.urandom(size)

    def run() -> None:
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        for number in range(count):
            write(f"{number}.bin", data)
        whole(os.listdir(path), count)

    return run


def fsabs_write_bytes(path: str, count: int, size: int) -> Run:
    """`fs.write_bytes`."""
    path += "-ours"
    return _written_anew(path, count, size, library("fsabs").Local(path, create=True).write_bytes)


def temporary_file(path: str, count: int, size: int) -> Run:
    """A temporary file beside the target, moved over it."""
    path += "-theirs"

    def write(name: str, data: bytes) -> None:
        fd, partial = tempfile.mkstemp(dir=path)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        os.replace(partial, f"{path}/{name}")

    return _written_anew(path, count, size, write)


def builtin_open(path: str, count: int, size: int) -> Run:
    """Python's own, under the file's own name: what is killed leaves a part of it."""
    path += "-theirs"

    def write(name: str, data: bytes) -> None:
        with open(f"{path}/{name}", "wb") as file:
            file.write(data)

    return _written_anew(path, count, size, write)


def fsabs_pack(source: str, target: str, name: str, deflated: bool = False) -> Run:
    """`fsabs.pack`."""
    fsabs, options = library("fsabs"), {"compression": "deflated"} if deflated else {}
    tree, folder, count = fsabs.Local(source), fsabs.Local(target), len(os.listdir(source))
    return lambda: whole(range(fsabs.pack(tree, folder, name, options=options).files), count)


def by_zipfile(source: str, target: str, deflated: bool = False) -> Run:
    """The standard library's `zipfile`."""

    def run() -> None:
        method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        with zipfile.ZipFile(f"{target}/theirs.zip", "w", method) as archive:
            for name in sorted(os.listdir(source)):
                archive.write(f"{source}/{name}", name)

    return run


def by_h5py(source: str, target: str) -> Run:
    """h5py, a dataset for each file."""
    h5py, numpy = library("h5py"), library("numpy")

    def run() -> None:
        with h5py.File(f"{target}/theirs.h5", "w", libver="v108") as archive:
            for name in sorted(os.listdir(source)):
                with open(f"{source}/{name}", "rb") as file:
                    archive[name] = numpy.frombuffer(file.read(), "u1")

    return run


def by_gnu_tar(source: str, target: str) -> Run:
    """The program `tar`."""
    command = ["tar", "-cf", f"{target}/theirs.tar", "-C", source, "."]
    return for_each(subprocess.check_call, [command])
