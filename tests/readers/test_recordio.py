"""RecordIO: what is written is what the format says, what is read is what was written, by every way to read it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import pickle
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
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
from fsabs.readers.recordio import Index, RecordReader, RecordWriter, Scanner, writer

from . import minimal

quick = pytest.mark.quick

SAMPLES = Path(__file__).parent / "samples"
MANIFEST = json.loads((SAMPLES / "manifest.json").read_text())
COMPRESSORS = ("none", "snappy", "gzip")


def memory() -> Any:
    """An empty tree of its own."""
    return fsabs.Memory()


def written(records: list[bytes], compressor: str = "none", limit: int = 32 << 20) -> Any:
    """An FS with the file `f`."""
    fs = memory()
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
def test_a_frame_for_each_write_is_read() -> None:
    payload = b"".join(struct.pack("<I", len(record)) + record for record in (b"", b"one", b"two" * 50))
    frames = [payload[:4], payload[4:8], b"one", payload[11:15], payload[15:]]
    stream = minimal.IDENTIFIER + b"".join(minimal.frame(1, minimal.masked(part) + part) for part in frames)
    padded = stream + minimal.frame(0xFE, b"padding") + minimal.IDENTIFIER + minimal.frame(0x80, b"")
    fs = memory()
    for stored in (stream, padded):
        fs.write_bytes("f", minimal.chunk([b""] * 3, 1, stored))
        assert list(RecordReader(fs, "f")) == [b"", b"one", b"two" * 50]


@quick
def test_gzip_of_several_members_is_read() -> None:
    import gzip

    fs = memory()
    payload = struct.pack("<I", 4) + b"abcd"
    fs.write_bytes("f", minimal.chunk([b"abcd"], 2, gzip.compress(payload[:5]) + gzip.compress(payload[5:])))
    assert list(RecordReader(fs, "f")) == [b"abcd"]


@quick
def test_no_records_are_a_file_of_no_bytes() -> None:
    fs = written([])
    assert fs.read_bytes("f") == b""
    with RecordReader(fs, "f") as reader:
        assert len(reader) == 0
        assert list(reader) == reader.read_many([]) == reader[:] == []
        with pytest.raises(IndexError):
            reader[0]
    assert list(Scanner(fs, "f", -3, 10)) == []


@quick
def test_empty_records_are_records() -> None:
    records = [b"", b"", b"x", b"", b""]
    for compressor in COMPRESSORS:
        fs = written(records, compressor, 1)
        assert list(RecordReader(fs, "f")) == records
        assert RecordReader(fs, "f").read_many([0, 3, 2]) == [b"", b"", b"x"]
    assert len(RecordReader(written([b""] * 3), "f")) == 3


@quick
@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, -1, range(10)),
        (-5, 3, range(3)),
        (4, 3, range(4, 7)),
        (8, 100, range(8, 10)),
        (8, -7, range(8, 10)),
        (10, 1, []),
        (99, -1, []),
        (0, 0, []),
    ],
)
def test_scanner_takes_what_the_go_scanner_takes(start: int, length: int, expected: range) -> None:
    fs = written([b"%d" % number for number in range(10)], "snappy", 3)
    with Scanner(fs, "f", start, length) as scanner:
        assert list(scanner) == [b"%d" % number for number in expected]


@quick
def test_what_a_writer_takes() -> None:
    fs = memory()
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
def test_records_are_not_lost_where_compression_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = memory()
    with RecordWriter(fs, "f", max_chunk_bytes=1) as file:
        file.write(b"1")
        with monkeypatch.context() as patch:
            patch.setattr(writer, "compress", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                file.write(b"2")
        file.write(b"2")
    assert list(RecordReader(fs, "f")) == [b"1", b"2"]


@quick
def test_small_records_take_no_more_memory_than_their_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_PREFIXES", 20_000)
    fs = memory()
    tracemalloc.start()
    try:
        with RecordWriter(fs, "f", compressor="none", max_chunk_bytes=1000) as file:
            for _ in range(20_000):
                file.write(b"")  # which alone never fill a chunk
            most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 400_000
    index = Index.load(fs, "f")
    assert [index.chunk(number).records for number in range(index.chunks)] == [5000] * 4


@quick
def test_an_index_at_hand_is_used_for_its_version_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsabs.from_url(tmp_path)
    for records in ([b"a"], [b"b", b"c"]):
        with RecordWriter(fs, "f") as file:
            for record in records:
                file.write(record)
        if len(records) == 1:
            index = Index.load(fs, "f")
            with monkeypatch.context() as patch:
                patch.setattr(Index, "of", None)
                assert list(RecordReader(fs, "f", index=index)) == [b"a"]
        else:
            assert list(RecordReader(fs, "f", index=index)) == [b"b", b"c"]


@quick
def test_numbers_that_are_not_there() -> None:
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


@quick
def test_a_closed_reader_reads_no_more() -> None:
    reader = RecordReader(written([b"a"]), "f")
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


class Counting(fsabs.spi.LayerFS):
    """Counts the reads of blobs, and their bytes; what is read goes through `on_read`."""

    def __init__(self, inner: fsabs.FS) -> None:
        super().__init__(inner)
        self.reads: list[int] = []
        self.on_read: Callable[[bytes], bytes] = lambda data: data

    def _open_blob(self, key: str) -> Blob:
        return CountedBlob(self, key, super()._open_blob(key))

    _open_from_start = _open_blob


class CountedBlob(Blob):
    """A blob whose reads are counted."""

    __slots__ = ("_inner",)

    def __init__(self, fs: Counting, key: str, inner: Blob) -> None:
        super().__init__(fs, key, inner.size, inner.version)
        self._inner = inner

    def _pread(self, size: int, offset: int) -> bytes:
        fs: Any = self._origin
        fs.reads.append(size)
        found: bytes = fs.on_read(self._inner.pread(size, offset))
        return found


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
    fs = Counting(fsabs.from_url(tmp_path))
    with RecordWriter(fs, "large", compressor="none", max_chunk_bytes=1 << 20) as writer:
        for _ in range(20):
            writer.write(bytes(1 << 20))
    time.sleep(0.1)  # what was written just now is not kept
    assert Index.load(fs, "large").chunks == 20
    assert 10 <= len(fs.reads) <= 20
    assert 400 <= sum(fs.reads) < 200_000
    fs.reads.clear()
    assert Index.load(fs, "large").records == 20  # kept in the cache directory
    assert not fs.reads
    with RecordWriter(fs, "large", compressor="none", max_chunk_bytes=1 << 20) as writer:
        writer.write(b"another version")
    assert Index.load(fs, "large").records == 1
    with RecordWriter(fs, "small", compressor="none", max_chunk_bytes=10) as writer:
        for _ in range(20_000):
            writer.write(bytes(10))
    fs.reads.clear()
    index = Index.load(fs, "small")
    assert index.chunks == len(index) == 20_000
    assert 1 <= len(fs.reads) <= 8
    assert [index.find(number) for number in (0, 1, 19_999)] == [0, 1, 19_999]


@quick
def test_reading_in_order_reads_each_byte_once() -> None:
    fs = Counting(written([bytes(1000)] * 2000, limit=10_000))
    reader = RecordReader(fs, "f")
    fs.reads.clear()
    assert sum(map(len, reader)) == 2_000_000
    assert 1 <= len(fs.reads) <= 4
    assert 2_000_000 < sum(fs.reads) < 2_020_000


@quick
def test_what_was_read_is_kept_within_bounds() -> None:
    records = [bytes([number]) * 1000 for number in range(200)]
    fs = Counting(written(records, limit=100_000))
    reader = RecordReader(fs, "f", cache_bytes=1 << 20)
    fs.reads.clear()
    assert reader.read_many(range(0, 200, 7)) == records[::7]
    assert [reader[number] for number in range(200)] == records
    assert sum(fs.reads) == 2 * 100_400  # each chunk once
    reader = RecordReader(fs, "f", cache_bytes=100_000)
    assert reader[:] == records
    assert (reader[3], reader[150]) == (records[3], records[150])  # the first chunk had to go
    fs.reads.clear()
    assert reader.read_many([7, 5]) == [records[7], records[5]]
    assert fs.reads == [1000, 1000]  # and its records are read alone from then on
    fs.reads.clear()
    assert [reader[number] for number in range(20)] == records[:20]
    assert fs.reads == [1000, 100_400]  # but in order, it pays to have the chunk


@quick
def test_a_record_that_is_read_alone_is_checked() -> None:
    fs = written([bytes([number]) * 1000 for number in range(200)], limit=100_000)
    store = Counting(fs)
    reader = RecordReader(store, "f", cache_bytes=0)
    reader.read_many([0, 150])
    store.on_read = lambda data: data.replace(b"\x05" * 1000, b"\x05" * 999 + b"\xff")
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

    def _open_blob(self, key: str) -> Blob:
        return Zeros(self, key, self.size)

    def _create(self, key: str, exclusive: bool) -> FileWriter:
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


class InterruptedWriter(SparseWriter):
    """One whose third write is interrupted; it notes what becomes visible."""

    writes, committed = 0, False

    def write(self, data: bytes) -> None:
        """Count."""
        self.writes += 1
        if self.writes == 3:
            raise KeyboardInterrupt

    def commit(self) -> None:
        """It is there."""
        type(self).committed = True


@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_an_interrupted_record_is_the_end_of_its_file(monkeypatch: pytest.MonkeyPatch, compressor: str) -> None:
    fs = Sparse()
    monkeypatch.setattr(fs, "_create", lambda key, exclusive: InterruptedWriter(fs))
    with RecordWriter(fs, "f", compressor=compressor, max_chunk_bytes=10) as writing:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(9):
                writing.write(random.Random(0).randbytes(9_000_000))
        with pytest.raises(ValueError, match="closed"):
            writing.write(b"one more")
    assert not InterruptedWriter.committed


def test_a_record_of_2_gib_less_a_byte() -> None:
    fs = Sparse()
    huge = 2**31 - 1
    with (
        mmap.mmap(-1, huge + 1) as zeros,
        memoryview(zeros) as view,
        RecordWriter(fs, "f", compressor="none") as writer,
    ):
        with pytest.raises(ValueError, match="2147483647"):
            writer.write(view)
        with view[:huge] as record:
            writer.write(record)
    assert fs.size == 20 + 4 + huge
    magic, _, compressor, size, count, length = struct.unpack("<6I", fs.head)
    assert (magic, compressor, size, count, length) == (0x01020304, 0, huge + 4, 1, huge)
    with RecordReader(fs, "f") as reader:
        (found,) = reader
        assert type(found) is bytes
        assert len(found) == huge
    with pytest.raises(CorruptFileError, match="max_chunk_bytes"):
        RecordReader(fs, "f", max_chunk_bytes=huge)[0]


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, 16 << 10), (0.01, 256 << 10)])
def test_scans_read_more_at_once_where_reading_waits(
    seconds: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, clock = Counting(fsabs.Memory()), [0.0]
    with RecordWriter(fs, "a", max_chunk_bytes=1 << 10, compressor="none") as file:
        for number in range(1000):
            file.write(b"%0500d" % number)
    reader = RecordReader(fs, "a")
    assert reader.index.records == 1000
    fs.reads.clear()

    def slow(data: bytes) -> bytes:
        clock[0] += seconds
        return data

    fs.on_read = slow
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert [int(record) for record in reader.scan(window=16 << 10)] == list(range(1000))
    assert largest // 2 < max(fs.reads) <= largest * 1.5
