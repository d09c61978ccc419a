"""The operations that `test_interrupts.py` interrupts; each fails if the one before left anything broken."""

from __future__ import annotations

import faulthandler
import functools
import gc
import io
import json
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import fsabs
from fsabs import FS

from . import interrupt_readers
from .interrupts import interrupt

Operation = Callable[[], object]
Case = Callable[[], Operation]
ARCHIVES = ("a.zip", "a.tar", "a.tar.gz", "a.h5")
FILES = {f"{n}.bin": random.Random(n).randbytes(20_000) for n in range(8)}


def fill(fs: FS) -> FS:
    """Write the files that the operations read."""
    for name, data in FILES.items():
        fs.write_bytes(name, data)
    return fs


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


def writes_many(fs: FS) -> None:
    """Write files one by one and many at once."""
    writes(fs)
    fs.write_many(FILES, concurrency=4)
    assert fs.read_bytes("7.bin") == FILES["7.bin"]
    fs.remove("7.bin")


def writes_side_by_side(fs: FS) -> None:
    """Write many files by threads."""
    assert fs.write_many(FILES.items(), concurrency=4) == len(FILES)
    assert fs.read_bytes("7.bin") == FILES["7.bin"]


def uploads(fs: FS) -> None:
    """Write a file of several parts."""
    piece = FILES["3.bin"] * 53
    with fs.open("large", "wb") as file:
        for _ in range(11):
            file.write(piece)
    assert fs.stat("large").size == 11 * len(piece)


def reads_anew(filled: FS, connect: Callable[[], FS]) -> None:
    """Read through a new object of the same store."""
    with connect() as fs:
        assert fs.read_bytes("4.bin") == FILES["4.bin"]
        assert list(fs.read_many(FILES)) == list(FILES.values())


def lists(fs: FS) -> None:
    """List, walk and stat."""
    assert sorted(name for name in fs.list() if name in FILES) == sorted(FILES)
    assert fs.usage("").files >= len(FILES)
    assert fs.stat("3.bin").size == len(FILES["3.bin"])


def reads_cold(fs: FS, folder: Path) -> None:
    """Read through a cache that is empty at first, and then isn't."""
    # It is removed with `folder`: an interrupt of `shutil.rmtree` would keep a directory open.
    with fsabs.CachedFS(fs, tempfile.mkdtemp(dir=folder)) as cached:
        for _ in range(2):
            assert list(cached.read_many(FILES)) == list(FILES.values())
            assert cached.read_bytes("4.bin") == FILES["4.bin"]


def packs(source: FS, target: FS, name: str) -> None:
    """Pack a tree into a container that replaces the one before, and read it."""
    options = {"compression": "deflated"} if name.endswith(".zip") else {}
    assert fsabs.pack(source, target, name, options=options).files == len(FILES)
    with target.open_container(name) as container:
        assert container.read_bytes("3.bin") == FILES["3.bin"]


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
        assert self.file.raw.blob.pread_many([(10, 5), (7, 9000)]) == [data[5:15], data[9000:9007]]


def opens(fs: FS, name: str) -> None:
    """Open a container and list it."""
    with fs.open_container(name) as container:
        assert sorted(container.list()) == sorted(FILES)


def cases(folder: Path, url: str, options: dict[str, str]) -> dict[str, Case]:
    """Return what makes the operations, by name; those of a store need its `url` and `options`."""
    fs, memory = fsabs.Local(folder / "files", create=True), fsabs.Memory("files")
    for target in (fs, memory):
        fill(target)
    archives = fsabs.Local(folder / "archives", create=True)
    found: dict[str, Case] = {
        "local": lambda: functools.partial(reads, fs),
        "local-write": lambda: functools.partial(writes, fsabs.Local(folder / "new", create=True)),
        "local-write-many": lambda: functools.partial(writes_side_by_side, fsabs.Local(folder / "many", create=True)),
        "memory": lambda: functools.partial(reads, memory),
        "memory-write": lambda: functools.partial(writes, fsabs.Memory("new")),
        "reader": lambda: OneReader(fs),
        "lazy": lambda: functools.partial(reads, fsabs.lazify(functools.partial(fsabs.Local, folder / "files"))),
        "layer": lambda: functools.partial(reads, fsabs.spi.LayerFS(fs)),
        "copy-tree": lambda: functools.partial(copies, fs, fsabs.Memory("copies")),
        "as-local": lambda: functools.partial(local_paths, memory),
        "cached": lambda: functools.partial(reads, fsabs.CachedFS(memory, str(folder / "cache"))),
        "cached-cold": lambda: functools.partial(reads_cold, memory, folder),
    }
    for name in ARCHIVES:
        found[name] = functools.partial(of_archive, fs, archives, name, reads)
        found[f"open-{name}"] = functools.partial(of_archive, fs, archives, name, None)
        found[f"pack-{name}"] = functools.partial(functools.partial, packs, fs, archives, name)
    found |= interrupt_readers.cases(fs, folder)
    store = functools.partial(fsabs.from_url, url, **options)
    found |= {
        "store": lambda: functools.partial(reads, fill(store())),
        "store-open": lambda: functools.partial(reads_anew, fill(store()), store),
        "store-write": lambda: functools.partial(writes_many, store()),
        "store-upload": lambda: functools.partial(uploads, store()),
        "store-reader": lambda: OneReader(fill(store())),
        "store-list": lambda: functools.partial(lists, fill(store())),
        "store-cached": lambda: functools.partial(reads_cold, fill(store()), folder),
        "store-zip": lambda: of_archive(fs, store(), "a.zip", reads),
    }
    return found


def of_archive(source: FS, target: FS, name: str, read: Callable[[FS], None] | None) -> Operation:
    """Return the operation on a container of `source`: to read it, or to open it each time."""
    fsabs.pack(source, target, name)
    return (
        functools.partial(opens, target, name) if read is None else functools.partial(read, target.open_container(name))
    )


def run(name: str, times: int, seed: int, url: str = "", options: str = "{}") -> None:
    """Interrupt a case and print what came of it; a hang ends the process with its stacks."""
    sys.unraisablehook = lambda _: None  # an interrupt in a finalizer, which Python prints and ignores
    gc.freeze()  # the garbage is looked for again and again, and not in the modules
    warnings.simplefilter("ignore", ResourceWarning)
    faulthandler.dump_traceback_later(40 + times / 5, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = os.path.join(folder, "temporary")
        os.mkdir(tempfile.tempdir)
        operation = cases(Path(folder), url, json.loads(options))[name]()
        operation()
        before = set(os.listdir(tempfile.tempdir))  # S3's throttle, which the processes of a user share
        result = interrupt(operation, times, random.Random(seed))
        left = set(os.listdir(tempfile.tempdir)) - before
    faulthandler.cancel_dump_traceback_later()
    print(result.interrupted, result.descriptors, len(left))
    print("opened:", *result.opened, file=sys.stderr)
