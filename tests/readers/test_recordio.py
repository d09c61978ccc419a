"""RecordIO: what is written is what the format says, what is read is what was written, by every way to read it."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import mmap
import pickle
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.core.blobs import Blob
from fsabs.core.errors import CorruptFileError
from fsabs.core.writing import Writer as FileWriter
from fsabs.readers import recordio
from fsabs.readers.recordio import Index, RecordReader, RecordWriter, Scanner
from fsabs.testing.faulty import Fault, FaultyFS, Raise
from tests.containers.stores import CountingFS

from . import minimal

quick = pytest.mark.quick

SAMPLES = Path(__file__).parent / "samples"
MANIFEST = json.loads((SAMPLES / "manifest.json").read_text())
COMPRESSORS = ("none", "snappy", "gzip")


def written(records: list[bytes], compressor: str = "none", limit: int = 32 << 20) -> Any:
    """An FS with the file `f`."""
    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor=compressor, max_chunk_bytes=limit) as writer:
        for record in records:
            writer.write(record)
        assert writer.records == len(records)
    return fs


@quick
@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: str(entry["file"]))
def test_samples_of_the_go_implementation(entry: dict[str, Any]) -> None:
    with RecordReader(fsabs.from_url(SAMPLES), entry["file"]) as reader:
        records = list(reader)
        digest = hashlib.sha256(b"".join(struct.pack("<I", len(one)) + one for one in records)).hexdigest()
        assert digest == entry["sha256_of_le32len_prefixed_records"]
        assert len(reader) == entry["num_records"] == reader.index.records
        chunks = [reader.index.chunk(number) for number in range(reader.index.chunks)]
        assert [chunk.offset for chunk in chunks] == entry["chunk_offsets"]
        assert [chunk.records for chunk in chunks] == entry["chunk_records"]
        assert {chunk.compressor for chunk in chunks} == {COMPRESSORS.index(entry["compressor_name"])}
        assert [reader[number] for number in range(len(reader))] == records
        assert reader.read_many(range(len(reader) - 1, -1, -1)) == records[::-1]
    assert records == minimal.records((SAMPLES / entry["file"]).read_bytes())


@quick
@given(
    st.lists(st.binary(max_size=300), max_size=40),
    st.sampled_from(COMPRESSORS),
    st.sampled_from([1, 7, 100, 1000, 1 << 20]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_round_trip(records: list[bytes], compressor: str, limit: int, source: random.Random) -> None:
    fs = written(records, compressor, limit)
    assert minimal.records(fs.read_bytes("f")) == records
    reader = RecordReader(fs, "f", cache_bytes=source.choice([0, 500, 1 << 20]))
    assert list(reader) == reader[:] == records
    start, stop = (source.randint(-50, 50) for _ in range(2))
    assert list(reader.scan(start, stop)) == reader[start:stop] == records[start:stop]
    assert reader[start : stop : source.choice([2, -1, -3])] is not None
    for _ in range(3):
        numbers = [source.randrange(-len(records), len(records)) for _ in range(10 if records else 0)]
        assert reader.read_many(numbers) == [records[number] for number in numbers]
        assert [reader[number] for number in numbers] == [records[number] for number in numbers]


@quick
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_field_that_is_written(compressor: str) -> None:
    records = [b"a" * 60, b"b" * 40, b"", b"c", b"d" * 300, b"e" * 99, b"f"]
    chunks = minimal.parse(written(records, compressor, 100).read_bytes("f"))
    # ended before the record that would pass 100 bytes, prefixes not counted; the large one has its own
    assert [chunk.records for chunk in chunks] == [records[:3], [b"c"], [b"d" * 300], records[5:]]
    assert {chunk.compressor for chunk in chunks} == {COMPRESSORS.index(compressor)}
    assert [chunk.offset for chunk in chunks] == [
        sum(20 + before.size for before in chunks[:number]) for number in range(len(chunks))
    ]
    if compressor == "none":
        assert chunks[0].payload == struct.pack("<I", 60) + b"a" * 60 + struct.pack("<I", 40) + b"b" * 40 + bytes(4)


@quick
def test_snappy_is_written_in_full_frames_and_not_compressed_in_vain() -> None:
    noise = random.Random(0).randbytes(100_000)
    (chunk,) = minimal.parse(written([b"x" * 100_000, noise], "snappy").read_bytes("f"))
    data = written([b"x" * 100_000, noise], "snappy").read_bytes("f")[20:]
    frames, at = [], 10
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 4], "little")
        frames.append((data[at], size))
        at += 4 + size
    assert len(frames) == -(-len(chunk.payload) // 65536)
    assert [kind for kind, _ in frames] == [0, 0, 1, 1]
    assert frames[2] == (1, 65540)


@quick
def test_streams_as_others_write_them_are_read() -> None:
    """A frame of snappy for each write, with padding; several members of gzip."""
    payload = b"".join(struct.pack("<I", len(record)) + record for record in (b"", b"one", b"two" * 50))
    frames = [payload[:4], payload[4:8], b"one", payload[11:15], payload[15:]]
    stream = minimal.IDENTIFIER + b"".join(minimal.frame(1, minimal.masked(part) + part) for part in frames)
    padded = stream + minimal.frame(0xFE, b"padding") + minimal.IDENTIFIER + minimal.frame(0x80, b"")
    fs = fsabs.Memory()
    for compressor, stored in ((1, stream), (1, padded), (2, gzip.compress(payload[:5]) + gzip.compress(payload[5:]))):
        fs.write_bytes("f", minimal.chunk([b""] * 3, compressor, stored))
        assert list(RecordReader(fs, "f")) == [b"", b"one", b"two" * 50]


@quick
def test_no_records_are_a_file_of_no_bytes_and_empty_records_are_records() -> None:
    fs = written([])
    assert fs.read_bytes("f") == b""
    with RecordReader(fs, "f") as reader:
        assert len(reader) == 0
        assert list(reader) == reader.read_many([]) == reader[:] == []
        with pytest.raises(IndexError):
            reader[0]
    assert list(Scanner(fs, "f", -3, 10)) == []
    records = [b"", b"", b"x", b"", b""]
    for compressor in COMPRESSORS:
        fs = written(records, compressor, 1)
        assert list(RecordReader(fs, "f")) == records
        assert RecordReader(fs, "f").read_many([0, 3, 2]) == [b"", b"", b"x"]
    assert len(RecordReader(written([b""] * 3), "f")) == 3


@quick
def test_scanner_takes_what_the_go_scanner_takes() -> None:
    fs = written([b"%d" % number for number in range(10)], "snappy", 3)
    for start, length, expected in (
        (0, -1, range(10)),
        (-5, 3, range(3)),
        (4, 3, range(4, 7)),
        (8, 100, range(8, 10)),
        (8, -7, range(8, 10)),
        (10, 1, []),
        (99, -1, []),
        (0, 0, []),
    ):
        with Scanner(fs, "f", start, length) as scanner:
            assert list(scanner) == [b"%d" % number for number in expected]


@quick
def test_what_a_writer_takes() -> None:
    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor="none", max_chunk_bytes=4) as writer:
        for record in (
            bytearray(b"ab"),
            memoryview(b"abcdef")[::2],
            memoryview(b"abcdefgh"),
            memoryview(b"abcdefghij")[::2],
        ):
            writer.write(record)
        with pytest.raises(TypeError):
            writer.write("text")  # type: ignore[arg-type]
    assert list(RecordReader(fs, "f")) == [b"ab", b"ace", b"abcdefgh", b"acegi"]
    writer.close()
    with pytest.raises(ValueError):
        writer.write(b"")
    for wrong in ({"compressor": "zstd"}, {"max_chunk_bytes": 0}):
        with pytest.raises(ValueError):
            RecordWriter(fs, "g", **wrong)
    assert not fs.exists("g")


@quick
def test_a_file_is_whole_or_not_there() -> None:
    fs = written([b"before"])
    with pytest.raises(KeyError), RecordWriter(fs, "f", max_chunk_bytes=1) as writer:
        writer.write(b"new")
        writer.write(b"newer")
        raise KeyError
    assert writer.closed
    assert list(RecordReader(fs, "f")) == [b"before"]


@quick
def test_an_index_at_hand_is_used_for_its_version_alone(tmp_path: Path) -> None:
    store = CountingFS(fsabs.from_url(tmp_path))
    with RecordWriter(store, "f") as file:
        file.write(b"a")
    index = Index.load(store, "f")
    store.taken()
    assert list(RecordReader(store, "f", index=index)) == [b"a"]
    assert len(store.taken()) == 1
    with RecordWriter(store, "f") as file:
        file.write(b"b")
        file.write(b"c")
    assert list(RecordReader(store, "f", index=index)) == [b"b", b"c"]


@quick
def test_numbers_that_are_not_there_and_a_closed_reader() -> None:
    reader = RecordReader(written([b"a", b"b"]), "f")
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="memory:"):
            reader[wrong]
        with pytest.raises(IndexError):
            reader.read_many([0, wrong])
    with pytest.raises(TypeError):
        reader["a"]  # type: ignore[call-overload]
    for number in (2, -1):
        with pytest.raises(IndexError):
            reader.index.chunk(number)
    with pytest.raises(ValueError):
        RecordReader(written([]), "f", on_error="ignore")  # type: ignore[arg-type]
    reader.close()
    reader.close()
    assert reader.closed
    with pytest.raises(ValueError):
        reader[0]


@quick
def test_a_file_by_its_url(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    with RecordWriter(fs, "50% #1.recordio") as writer:
        writer.write(b"x")
    for url in (tmp_path / "50% #1.recordio", fs.url("50% #1.recordio")):
        with recordio.open_recordio(url) as reader:
            assert list(reader) == [b"x"]
    with pytest.raises(IsADirectoryError):
        recordio.open_recordio(f"{tmp_path}/")
    with pytest.raises(FileNotFoundError):
        recordio.open_recordio(tmp_path / "none")


# ---- the index, and what is read


@quick
def test_an_index_by_a_path_as_the_go_codes_wrapper_makes_it(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    with RecordWriter(fs, "f", max_chunk_bytes=10) as writer:
        for number in range(20):
            writer.write(b"%05d" % number)
    with contextlib.closing(Index(tmp_path / "f")) as index:
        assert index.num_records() == len(index) == 20
        assert index.locate(0) == (0, 0)
        assert index.locate(7) == (3, 1)
        assert index.locate(20) == index.locate(-1) == (-1, -1)
    copy = pickle.loads(pickle.dumps(Index(f"file://{tmp_path}/f")))
    assert copy.digest() == Index.load(fs, "f").digest()
    assert (copy.url, copy.version, copy.chunks) == (index.url, index.version, 10)
    with pytest.raises(FileNotFoundError):
        Index(tmp_path / "none")
    (tmp_path / "f").write_bytes(b"no chunk" * 5)
    with pytest.raises(CorruptFileError):
        Index(tmp_path / "f")
    assert Index(tmp_path / "f", on_error="skip").num_records() == 0


def test_an_index_reads_heads_and_not_payloads(tmp_path: Path) -> None:
    fs = CountingFS(fsabs.from_url(tmp_path))
    with RecordWriter(fs, "large", compressor="none", max_chunk_bytes=1 << 20) as writer:
        for _ in range(20):
            writer.write(bytes(1 << 20))
    time.sleep(0.1)  # what was written just now is not kept
    assert Index.load(fs, "large").chunks == 20
    assert 400 <= fs.fetched < 200_000
    assert 10 <= len(fs.taken()) <= 20
    assert Index.load(fs, "large").records == 20  # kept in the cache directory
    assert not fs.taken()
    with RecordWriter(fs, "large", compressor="none", max_chunk_bytes=1 << 20) as writer:
        writer.write(b"another version")
    assert Index.load(fs, "large").records == 1
    with RecordWriter(fs, "small", compressor="none", max_chunk_bytes=10) as writer:
        for _ in range(20_000):
            writer.write(bytes(10))
    fs.taken()
    index = Index.load(fs, "small")
    assert index.chunks == len(index) == 20_000
    assert 1 <= len(fs.taken()) <= 8
    assert [index.find(number) for number in (0, 1, 19_999)] == [0, 1, 19_999]


@quick
def test_reading_in_order_reads_each_byte_once() -> None:
    fs = CountingFS(written([bytes(1000)] * 2000, limit=10_000))
    reader = RecordReader(fs, "f")
    fs.taken()
    assert sum(map(len, reader)) == 2_000_000
    assert 2_000_000 < fs.fetched < 2_020_000
    assert 1 <= len(fs.taken()) <= 4


@quick
def test_what_was_read_is_kept_within_bounds() -> None:
    records = [bytes([number]) * 1000 for number in range(200)]
    fs = CountingFS(written(records, limit=100_000))
    reader = RecordReader(fs, "f", cache_bytes=1 << 20)
    fs.taken()
    assert reader.read_many(range(0, 200, 7)) == records[::7]
    assert [reader[number] for number in range(200)] == records
    assert fs.fetched == 2 * 100_400  # each chunk once
    reader = RecordReader(fs, "f", cache_bytes=100_000)
    assert reader[:] == records
    assert (reader[3], reader[150]) == (records[3], records[150])  # the first chunk had to go
    fs.taken()
    assert reader.read_many([7, 5]) == [records[7], records[5]]
    assert fs.fetched == 2 * 1000  # and its records are read alone from then on
    fs.taken()
    assert [reader[number] for number in range(20)] == records[:20]
    assert fs.fetched == 1000 + 100_400  # but in order, it pays to have the chunk


@quick
def test_a_record_that_is_read_alone_is_checked(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    with RecordWriter(fs, "f", compressor="none", max_chunk_bytes=100_000) as file:
        for number in range(200):
            file.write(bytes([number]) * 1000)
    reader = RecordReader(fs, "f", cache_bytes=0)
    reader.read_many([0, 150])
    with (tmp_path / "f").open("r+b") as damaged:  # in place, below the reader
        damaged.seek(20 + 5 * 1004 + 900)
        damaged.write(b"\xff")
    assert reader.read_many([4, 6])[0] == b"\x04" * 1000
    with pytest.raises(CorruptFileError, match="record 5 is not"):
        reader.read_many([4, 5])


# ---- 2 GiB - 1


class Zeros(Blob):
    """`head`, and zeros up to 2 GiB and more, of which nothing takes memory before it is changed."""

    def _pread(self, size: int, offset: int) -> bytes:
        head: bytes = self._origin.head  # type: ignore[attr-defined]
        if offset >= len(head):
            return bytes(size)
        return head[offset : offset + size] + bytes(max(0, offset + size - len(head)))


class Sparse(fsabs.Memory):
    """A store that forgets what is written after the first bytes, and counts it."""

    head = b""
    size = 0

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return Zeros(self, key, self.size)

    def _create(self, key: str, exclusive: bool, *how: Any) -> FileWriter:
        return SparseWriter(self)


class SparseWriter(FileWriter):
    """Keeps 1000 bytes."""

    def __init__(self, fs: Sparse) -> None:
        self._fs = fs

    def write(self, data: bytes) -> None:
        """Count."""
        self._fs.head = (self._fs.head + data[:1000])[:24]
        self._fs.size += len(data)

    def commit(self) -> None:
        """It is there."""

    def abort(self) -> None:
        """It is not."""


@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_an_interrupted_record_is_the_end_of_its_file(compressor: str) -> None:
    fs = FaultyFS(fsabs.Memory(), Fault("write", Raise(KeyboardInterrupt()), at=3))  # type: ignore[arg-type]
    with RecordWriter(fs, "f", compressor=compressor, max_chunk_bytes=10) as writing:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(9):
                writing.write(random.Random(0).randbytes(2_000_000))
        with pytest.raises(ValueError, match="closed"):
            writing.write(b"one more")
    assert not fs.exists("f")


@pytest.mark.nightly
def test_a_record_of_2_gib_less_a_byte() -> None:
    fs = Sparse()
    huge = 2**31 - 1
    with (
        mmap.mmap(-1, huge) as zeros,
        memoryview(zeros) as view,
        RecordWriter(fs, "f", compressor="none") as writer,
    ):
        writer.write(view)
    assert fs.size == 20 + 4 + huge
    magic, _, compressor, size, count, length = struct.unpack("<6I", fs.head)
    assert (magic, compressor, size, count, length) == (0x01020304, 0, huge + 4, 1, huge)
    with RecordReader(fs, "f") as reader:
        (found,) = reader
        assert type(found) is bytes
        assert len(found) == huge


def test_a_record_of_2_gib_and_a_chunk_beyond_the_limit_are_refused() -> None:
    fs = written([b"x" * 1000])
    writer = RecordWriter(fs, "g", compressor="none")
    with mmap.mmap(-1, 2**31) as zeros, memoryview(zeros) as view, pytest.raises(ValueError, match="2147483647"):
        writer.write(view)
    writer.close()
    with pytest.raises(CorruptFileError, match="max_chunk_bytes"):
        RecordReader(fs, "f", max_chunk_bytes=1000)[0]


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, 16 << 10), (0.01, 256 << 10)])
def test_scans_read_more_at_once_where_reading_waits(
    seconds: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = CountingFS(written([b"%0500d" % number for number in range(1000)], limit=1 << 10))
    reader = RecordReader(fs, "f")
    assert reader.index.records == 1000
    fs.taken()
    monkeypatch.setattr(time, "monotonic", lambda: seconds * len(fs.reads))  # so long takes each of them
    assert [int(record) for record in reader.scan(window=16 << 10)] == list(range(1000))
    assert largest // 2 < max(size for size, _ in fs.taken()) <= largest * 1.5
