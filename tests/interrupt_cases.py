"""The operations that `test_interrupts.py` interrupts; each fails if the one before left anything broken."""

from __future__ import annotations

import faulthandler
import functools
import gc
import io
import itertools
import json
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsabs
from fsabs import FS, cache
from fsabs.cache import Cache
from fsabs.readers import paddle
from fsabs.readers.prefetch import prefetch
from fsabs.readers.recordio import RecordReader, RecordWriter
from fsabs.readers.sharded import convert, verify

from .interrupts import interrupt

Operation = Callable[[], object]
Case = Callable[[], Operation]
ARCHIVES = ("a.zip", "a.tar.gz", "a.h5")
FILES = {f"{n}.bin": random.Random(n).randbytes(20_000) for n in range(8)}
RECORDS = [bytes([n]) * (n * 37 % 3000) for n in range(200)]


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


# ---- containers


def packs(source: FS, target: FS, name: str) -> None:
    """Pack a tree into a container that replaces the one before, and read it."""
    options = {"compression": "deflated"} if name.endswith(".zip") else {}
    assert fsabs.pack(source, target, name, options=options).files == len(FILES)
    with target.open_container(name) as container:
        assert container.read_bytes("3.bin") == FILES["3.bin"]


def opens(fs: FS, name: str) -> None:
    """Open a container and list it."""
    with fs.open_container(name) as container:
        assert sorted(container.list()) == sorted(FILES)


def of_archive(source: FS, target: FS, name: str, read: Callable[[FS], None] | None) -> Operation:
    """Return the operation on a container of `source`: to read it, or to open it each time."""
    fsabs.pack(source, target, name)
    return (
        functools.partial(opens, target, name) if read is None else functools.partial(read, target.open_container(name))
    )


# ---- readers, loaders and item caches


def writes_records(fs: FS) -> FS:
    """Write a file of records, whole or not at all."""
    with RecordWriter(fs, "a.recordio", max_chunk_bytes=10_000) as writer:
        for record in RECORDS:
            writer.write(record)
    return fs


def reads_records(fs: FS) -> None:
    """Read records in order and by number."""
    with RecordReader(fs, "a.recordio") as reader:
        assert list(reader) == RECORDS
        assert reader[77] == RECORDS[77]
        assert reader.read_many([150, 3, 90]) == [RECORDS[150], RECORDS[3], RECORDS[90]]


def writes_shards(fs: FS) -> None:
    """Write sharded files and check them."""
    fs.makedirs("shards", exist_ok=True)
    target = fs.subfs("shards")
    convert(target, lambda: iter(range(40)), 20, "part")
    assert verify(target).ok


def prefetches(fs: FS, names: list[str]) -> None:
    """Read files ahead by a thread."""
    for count, content in enumerate(prefetch(fs, names, max_bytes=50_000)):
        assert len(content) >= 5000, names[count]


def maps() -> Operation:
    """Map records by threads, of which other threads are ahead."""
    mapped = paddle.xmap_readers(len, paddle.buffered(lambda: iter(RECORDS), 8), 3, 8, order=True)

    def run() -> None:
        assert list(mapped()) == [len(record) for record in RECORDS]
        assert len(list(itertools.islice(mapped(), 9))) == 9

    return run


class Epochs:
    """One data set and its loader, of which every run reads an epoch, or resumes from a state in the middle."""

    def __init__(self, folder: Path) -> None:
        from fsabs.adapters.torch import Loader, ShardedDataset

        writes_records(fsabs.Local(folder, create=True))
        self._new: Callable[[], Any] = lambda: Loader(
            ShardedDataset(str(folder), seed=1, buffer_size=16, block_size=8), 8, collate_fn=list
        )
        self._loader = self._new()

    def __call__(self) -> None:
        loader = self._loader
        assert sorted(record for batch in loader for record in batch) == sorted(RECORDS)
        seen = [record for batch in itertools.islice(self._new(), 3) for record in batch]
        assert len(seen) == 24


def items(cached: Cache) -> None:
    """Read items through a cache."""
    for number, record in enumerate(RECORDS):
        assert cached.get_and_cache(number, RECORDS.__getitem__) == record


# ---- all of them


def cases(folder: Path, url: str, options: dict[str, str]) -> dict[str, Case]:
    """Return what makes the operations, by name; those of a store need its `url` and `options`."""
    fs, memory = fsabs.Local(folder / "files", create=True), fsabs.Memory("files")
    for target in (fs, memory):
        fill(target)
    archives, records = fsabs.Local(folder / "archives", create=True), fsabs.Local(folder / "records", create=True)
    found: dict[str, Case] = {
        "local": lambda: functools.partial(reads, fs),
        "local-write": lambda: functools.partial(writes_many, fsabs.Local(folder / "new", create=True)),
        "memory-write": lambda: functools.partial(writes, fsabs.Memory("new")),
        "reader": lambda: OneReader(fs),
        "copy-tree": lambda: functools.partial(copies, fs, fsabs.Memory("copies")),
        "as-local": lambda: functools.partial(local_paths, memory),
        "cached": lambda: functools.partial(reads, fsabs.CachedFS(memory, str(folder / "cache"))),
        "cached-cold": lambda: functools.partial(reads_cold, memory, folder),
        "items-file": lambda: functools.partial(items, cache.FileCache(len(RECORDS), dir=folder)),
        "items-processes": lambda: functools.partial(items, cache.MultiprocessFileCache(len(RECORDS), dir=folder)),
        "recordio": lambda: functools.partial(reads_records, writes_records(records)),
        "recordio-write": lambda: functools.partial(writes_records, records),
        "sharded": lambda: Epochs(folder / "epochs"),
        "sharded-write": lambda: functools.partial(writes_shards, records),
        "prefetch": lambda: functools.partial(prefetches, fs, sorted(fs.list())),
        "mapped": maps,
    }
    for name in ARCHIVES:
        found[name] = functools.partial(of_archive, fs, archives, name, reads)
        found[f"open-{name}"] = functools.partial(of_archive, fs, archives, name, None)
        found[f"pack-{name}"] = functools.partial(functools.partial, packs, fs, archives, name)
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
