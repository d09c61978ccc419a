"""Readers, writers, loaders and item caches that `test_interrupts.py` interrupts."""

from __future__ import annotations

import functools
import itertools
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

Operation = Callable[[], object]
RECORDS = [bytes([n]) * (n * 37 % 3000) for n in range(200)]


def cases(fs: FS, folder: Path) -> dict[str, Callable[[], Operation]]:
    """Return what makes the operations, by name; `fs` has files of 20,000 bytes."""
    records = fsabs.Local(folder / "records", create=True)
    return {
        "recordio": lambda: functools.partial(reads, written(records)),
        "recordio-one": lambda: functools.partial(reads_on, RecordReader(written(records), "a.recordio")),
        "recordio-write": lambda: functools.partial(written, records),
        "sharded-write": lambda: functools.partial(writes_shards, records.subfs("")),
        "prefetch": lambda: functools.partial(prefetches, fs, sorted(fs.list())),
        "mapped": maps,
        "sharded": lambda: Epochs(folder / "epochs"),
        "items-memory": lambda: functools.partial(items, cache.NaiveCache(len(RECORDS))),
        "items-file": lambda: functools.partial(items, cache.FileCache(len(RECORDS), dir=folder)),
        "items-processes": lambda: functools.partial(items, cache.MultiprocessFileCache(len(RECORDS), dir=folder)),
    }


def written(fs: FS) -> FS:
    """Write a file of records, whole or not at all."""
    with RecordWriter(fs, "a.recordio", max_chunk_bytes=10_000) as writer:
        for record in RECORDS:
            writer.write(record)
    return fs


def reads(fs: FS) -> None:
    """Open a file of records and read it in order and by number."""
    with RecordReader(fs, "a.recordio") as reader:
        reads_on(reader)


def reads_on(reader: RecordReader) -> None:
    """Read records in order and by number."""
    assert list(reader) == RECORDS
    assert reader[77] == RECORDS[77]
    assert reader.read_many([150, 3, 90]) == [RECORDS[150], RECORDS[3], RECORDS[90]]


def writes_shards(fs: FS) -> None:
    """Write sharded files and check them."""
    target = fs.subfs("shards") if fs.exists("shards") else _made(fs, "shards")
    convert(target, lambda: iter(range(40)), 20, "part")
    assert verify(target).ok


def _made(fs: FS, name: str) -> FS:
    fs.makedirs(name, exist_ok=True)
    return fs.subfs(name)


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

        written(fsabs.Local(folder, create=True))
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
