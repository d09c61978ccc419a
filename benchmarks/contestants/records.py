"""Records of one file, in order and at random; every contestant makes its own file of the records in `source`.

`source` is a file of lengths (u32, little-endian) and records. A round counts the bytes of what it read.
"""

from __future__ import annotations

import io
import os
import random
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import Run, library, whole

_LENGTH = struct.Struct("<I")


def records(source: str) -> Iterator[bytes]:
    """The records of the source."""
    with open(source, "rb") as file:
        while head := file.read(4):
            yield file.read(_LENGTH.unpack(head)[0])


def _counted(read: Callable[[], Iterable[bytes]], source: str) -> Run:
    expected = sum(map(len, records(source)))

    def run() -> None:
        total = 0
        for record in read():
            total += len(record)
        if total != expected:
            raise RuntimeError(f"{total} bytes came, and not {expected}")

    return run


def write_recordio(path: str, some: Iterable[bytes], chunk: int) -> None:
    """Write records to a RecordIO file, unless it is there."""
    if not os.path.exists(path):
        options = {"compressor": "none", "max_chunk_bytes": chunk}
        with library("fsabs.readers.recordio").RecordWriter(library("fsabs").from_url("/"), path, **options) as file:
            for record in some:
                file.write(record)


def write_tar(path: str, some: Iterable[bytes], first: int = 0) -> None:
    """Write records to a tar as members that are numbered from `first` on, unless it is there."""
    if not os.path.exists(path):
        with tarfile.open(path, "w") as archive:
            for number, record in enumerate(some, first):
                member = tarfile.TarInfo(f"{number:08}.txt")
                member.size = len(record)
                archive.addfile(member, io.BytesIO(record))


def fsabs_scan(path: str, source: str, chunk: int) -> Run:
    """A `RecordReader`, opened anew in each round and iterated."""
    write_recordio(path, records(source), chunk)
    fs, reader = library("fsabs").from_url("/"), library("fsabs.readers.recordio").RecordReader

    def read() -> Iterator[bytes]:
        with reader(fs, path) as opened:
            yield from opened

    return _counted(read, source)


def _array_record(path: str, source: str) -> Any:
    module = library("array_record.python.array_record_module")
    if not os.path.exists(path):
        file = module.ArrayRecordWriter(path, "group_size:256,uncompressed")
        for record in records(source):
            file.write(record)
        file.close()
    return module


def array_record_scan(path: str, source: str) -> Run:
    """`read()` of one record after the other."""
    module = _array_record(path, source)

    def read() -> Iterator[bytes]:
        file = module.ArrayRecordReader(path)
        for _ in range(file.num_records()):
            yield file.read()
        file.close()

    return _counted(read, source)


def array_record_ranges(path: str, source: str) -> Run:
    """`read(start, end)` of 4096 records at a time."""
    module = _array_record(path, source)

    def read() -> Iterator[bytes]:
        file = module.ArrayRecordReader(path)
        count = file.num_records()
        for start in range(0, count, 4096):
            yield from file.read(start, min(start + 4096, count))
        file.close()

    return _counted(read, source)


def webdataset(path: str, source: str) -> Run:
    """`tar_file_iterator`: what its pipelines read tars by."""
    iterate = library("webdataset.tariterators").tar_file_iterator
    write_tar(path, records(source))

    def read() -> Iterator[bytes]:
        with open(path, "rb") as file:
            for sample in iterate(file):
                yield sample["data"]

    return _counted(read, source)


def _batches(source: str, batch: int, count: int) -> tuple[list[list[int]], int]:
    """Numbers of records in random order, and how many bytes they are together."""
    sizes = list(map(len, records(source)))
    numbers = random.Random(3).sample(range(len(sizes)), count)
    return [numbers[at : at + batch] for at in range(0, count, batch)], sum(sizes[number] for number in numbers)


def fsabs_batches(path: str, source: str, chunk: int, batch: int, count: int, cache: int) -> Run:
    """`read_many`, by a reader that is opened anew in each round and keeps `cache` bytes."""
    write_recordio(path, records(source), chunk)
    fs, reader = library("fsabs").from_url("/"), library("fsabs.readers.recordio").RecordReader
    batches, expected = _batches(source, batch, count)

    def run() -> None:
        with reader(fs, path, cache_bytes=cache) as opened:
            got = sum(sum(map(len, opened.read_many(numbers))) for numbers in batches)
        whole(range(got), expected)

    return run


def array_record_batches(path: str, source: str, batch: int, count: int) -> Run:
    """`read([...])`, with the options that are recommended for random access."""
    module = _array_record(path, source)
    batches, expected = _batches(source, batch, count)

    def run() -> None:
        file = module.ArrayRecordReader(path, "readahead_buffer_size:0")
        got = sum(sum(map(len, file.read(numbers))) for numbers in batches)
        file.close()
        whole(range(got), expected)

    return run
