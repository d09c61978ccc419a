"""A reader in threads, after a fork, in a pickle, and over a store that changes or fails under it."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fsabs
from fsabs.core.errors import CorruptFileError, StaleFileError
from fsabs.readers.recordio import RecordReader, RecordWriter, Scanner
from fsabs.testing.faulty import Fault, FaultyFS, Raise, Stale
from tests.containers.forks import all_end_well, forked

RECORDS = [b"%d" % number * (number % 50) for number in range(3000)]


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[fsabs.FS]:
    """A directory with the file `f`, of many chunks."""
    with fsabs.from_url(tmp_path) as fs:
        write(fs, RECORDS)
        yield fs


def write(fs: fsabs.FS, records: list[bytes]) -> None:
    """Write `f`."""
    with RecordWriter(fs, "f", max_chunk_bytes=2000) as writer:
        for record in records:
            writer.write(record)


def test_parent_and_children_go_on_while_threads_read(fs: fsabs.FS) -> None:
    reader = RecordReader(fs, "f", cache_bytes=10_000)
    scan = reader.scan()
    assert [next(scan) for _ in range(100)] == RECORDS[:100]
    shared = reader.scan()
    over = threading.Event()

    def check() -> bool:
        return list(scan) == RECORDS[100:] and reader[::-7] == RECORDS[::-7] and reader[1234] == RECORDS[1234]

    def take(_: int) -> list[bytes]:
        taken = list(shared)
        while not over.is_set():
            assert reader.read_many([5, 2999, 700]) == [RECORDS[5], RECORDS[2999], RECORDS[700]]
        return taken

    with ThreadPoolExecutor(3) as pool:
        taking = pool.map(take, range(3))
        try:
            children = [forked(check) for _ in range(4)]
            assert check()
            assert all_end_well(*children)
        finally:
            over.set()
        assert sorted(record for taken in taking for record in taken) == sorted(RECORDS)


def test_pickles_go_on(fs: fsabs.FS) -> None:
    with RecordReader(fs, "f") as reader, Scanner(fs, "f", 10, 100) as scanner:
        assert next(scanner) == RECORDS[10]
        scan = reader.scan(5)
        assert next(scan) == RECORDS[5]
        copy, scan_copy, scanner_copy = pickle.loads(pickle.dumps((reader, scan, scanner)))
        assert copy[77] == RECORDS[77]
        assert list(scan_copy) == list(scan) == RECORDS[6:]
        assert list(scanner_copy) == RECORDS[11:110]
        code = "import pickle, sys; sys.stdout.buffer.write(b''.join(pickle.load(sys.stdin.buffer)[2990:]))"
        done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(reader), capture_output=True, check=True)
        assert done.stdout == b"".join(RECORDS[2990:])
    with pytest.raises(ValueError):
        pickle.dumps(reader)


def test_a_pickle_of_a_file_that_was_replaced(fs: fsabs.FS) -> None:
    with RecordReader(fs, "f") as reader:
        kept = pickle.dumps(reader)
        write(fs, [b"new"])
        assert list(reader) == RECORDS  # a local file stays what it was for those who have it open
    with pytest.raises(StaleFileError, match="f'"):
        pickle.loads(kept)


def test_a_file_that_is_overwritten_in_place(fs: fsabs.FS, tmp_path: Path) -> None:
    with RecordReader(fs, "f") as reader:
        fd = os.open(tmp_path / "f", os.O_WRONLY)
        os.pwrite(fd, bytes(3000), 10_000)
        os.close(fd)
        with pytest.raises(CorruptFileError, match=r"chunk \d+ at offset \d+ \(records \d+ to \d+\).*/f'"):
            list(reader)


def test_a_shard_that_is_replaced_under_its_reader_says_which_record() -> None:
    inner = fsabs.Memory()
    write(inner, RECORDS)
    for ask in (lambda reader: reader[0], lambda reader: reader.read_many([0]), list):
        reader = RecordReader(FaultyFS(inner, Fault("read", Stale(), at=2)), "f")
        with pytest.raises(StaleFileError, match=r"chunk \d+ at offset \d+ \(records \d+ to \d+\)"):
            ask(reader)


def test_a_store_that_fails_is_no_damage() -> None:
    inner = fsabs.Memory()
    write(inner, RECORDS)
    failure = Raise(TimeoutError(errno.ETIMEDOUT, "no answer"))
    reader = RecordReader(FaultyFS(inner, Fault("read", failure, at=3)), "f", on_error="skip")
    found: list[bytes] = []
    scan = reader.scan()
    with pytest.raises(TimeoutError):
        for _ in range(3):
            found += reader.read_many([0, 1000])
            found += [next(scan)]
    assert not reader.skipped


def test_a_writer_is_its_process_s() -> None:
    fs = fsabs.Memory("writers")
    with RecordWriter(fs, "f") as writer:
        writer.write(b"parent's")

        def check() -> bool:
            with pytest.raises(OSError):
                for _ in range(5):
                    writer.write(bytes(8 << 20))
            writer.abort()
            return not fs.exists("f")

        assert all_end_well(forked(check))
    assert list(RecordReader(fs, "f")) == [b"parent's"]
    with pytest.raises(TypeError):
        pickle.dumps(writer)
