"""RecordIO that is not what it should be: nothing is made up, nothing hangs, everything lost is told."""

from __future__ import annotations

import errno
import functools
import gzip
import io
import random
import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.core.errors import CorruptFileError
from fsabs.readers.recordio import Index, RecordReader, RecordWriter, Scanner
from fsabs.readers.recordio.format import Damage, decompress
from tests.containers.stores import CountingFS, counting

from . import minimal

quick = pytest.mark.quick

RECORDS = [b"", b"first", b"second" * 5, b"third", b"", b"fourth" * 3, b"fifth" * 4]


@functools.cache
def sample(compressor: str) -> bytes:
    """A file of three chunks."""
    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor=compressor, max_chunk_bytes=36) as writer:
        for record in RECORDS:
            writer.write(record)
    assert len(minimal.parse(fs.read_bytes("f"))) == 3
    return fs.read_bytes("f")


def stored(data: bytes) -> Any:
    """An FS with the file `f`."""
    fs = fsabs.Memory()
    fs.write_bytes("f", data)
    return fs


def in_order(found: list[bytes], all_of_them: list[bytes]) -> bool:
    """Whether these are some of the records, in their order."""
    rest = iter(all_of_them)
    return all(record in rest for record in found)


def is_told(data: bytes) -> None:
    """Damage raises, naming the file and the chunk; or is skipped and reported, with nothing made up."""
    fs = stored(data)
    with pytest.raises(OSError) as caught:
        list(RecordReader(fs, "f"))
    assert isinstance(caught.value, CorruptFileError | io.UnsupportedOperation)
    assert caught.value.filename == "memory:///f"
    if isinstance(caught.value, CorruptFileError):
        assert "chunk" in str(caught.value)
        assert "offset" in str(caught.value)
        reader = RecordReader(fs, "f", on_error="skip")
        found = list(reader)
        assert in_order(found, RECORDS)
        assert len(found) < len(RECORDS)
        assert reader.skipped
        assert all(one.url == "memory:///f" and one.reason and one.size > 0 for one in reader.skipped)


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
def test_every_cut_is_told(compressor: str) -> None:
    data = sample(compressor)
    whole = {0, *(chunk.offset for chunk in minimal.parse(data))}
    for size in range(len(data)):
        if size in whole:  # nobody can know
            assert in_order(list(RecordReader(stored(data[:size]), "f")), RECORDS)
        else:
            is_told(data[:size])


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
def test_every_flipped_byte_is_told(compressor: str) -> None:
    data = sample(compressor)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            is_told(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_bytes(data: st.DataObject) -> None:
    pieces = st.one_of(
        st.binary(max_size=30),
        st.sampled_from([sample("none"), sample("snappy"), b"\x04\x03\x02\x01", bytes(20), minimal.chunk([b"x"], 0)]),
        st.builds(lambda fields: struct.pack("<5I", 0x01020304, *fields), st.tuples(*[st.integers(0, 40)] * 4)),
    )
    content = b"".join(data.draw(st.lists(pieces, max_size=6)))
    try:
        reader = RecordReader(stored(content), "f", on_error="skip")
    except io.UnsupportedOperation:
        return
    saved = list(reader)
    assert set(saved) <= {*RECORDS, b"x"}
    try:
        found = list(RecordReader(stored(content), "f"))
    except CorruptFileError:
        assert reader.skipped
    else:
        assert found == saved == minimal.records(content)


@quick
def test_what_lies_behind_the_last_chunk_is_no_record() -> None:
    data = sample("snappy")
    for tail in (bytes(1), bytes(20), bytes(5000), b"\n", b"garbage" * 10, b"\x04\x03\x02\x01"):
        with pytest.raises(CorruptFileError, match=f"chunk 3 at offset {len(data)}"):
            Index.load(stored(data + tail), "f")
        with Scanner(stored(data + tail), "f", on_error="skip") as scanner:
            assert list(scanner) == RECORDS
            (skipped,) = scanner.skipped
        assert (skipped.chunk, skipped.offset, skipped.size, skipped.records) == (3, len(data), len(tail), None)
        assert str(skipped).startswith(f"memory:///f: chunk 3 at offset {len(data)}, {len(tail)} bytes")


@quick
def test_a_chunk_is_skipped_and_the_rest_is_read() -> None:
    data = bytearray(sample("none"))
    chunks = minimal.parse(bytes(data))
    data[chunks[1].offset + 25] ^= 1
    with pytest.raises(CorruptFileError, match=r"chunk 1 at offset \d+ \(records 3 to 5\): the CRC"):
        list(RecordReader(stored(bytes(data)), "f"))
    reader = RecordReader(stored(bytes(data)), "f", on_error="skip")
    assert list(reader) == list(reader) == RECORDS[:3] + RECORDS[6:]
    (skipped,) = reader.skipped
    size = chunks[2].offset - chunks[1].offset
    assert skipped[1:] == (1, chunks[1].offset, size, 3, "the CRC of its payload is wrong")
    assert reader[6] == RECORDS[6]
    for ask in (lambda: reader[4], lambda: reader.read_many([0, 4])):
        with pytest.raises(CorruptFileError, match="records 3 to 5"):
            ask()


@quick
def test_lists_are_filled_with_what_is_before_the_damage() -> None:
    data = sample("none")
    scan = RecordReader(stored(data), "f").scan(1)
    found: list[bytes] = []
    scan.read_into(found, 1)
    assert next(scan) == RECORDS[2]
    scan.read_into(found, 3)
    assert found == [RECORDS[1], *RECORDS[3:6]]
    assert scan.position == 6
    scan.read_into(found, 100)
    scan.read_into(found, 1)
    assert found[4:] == RECORDS[6:]
    damaged = bytearray(data)
    damaged[minimal.parse(data)[1].offset + 25] ^= 1
    scan, found = RecordReader(stored(bytes(damaged)), "f").scan(), []
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="records 3 to 5"):
            scan.read_into(found, 5)
        assert found == RECORDS[:3]
    scan = RecordReader(stored(bytes(damaged)), "f", on_error="skip").scan()
    scan.read_into(found, 5)
    assert found[3:] == [*RECORDS[:3], *RECORDS[6:]][:5]


@quick
def test_behind_a_damaged_header_the_next_chunk_is_found() -> None:
    data = sample("none")
    first, second, third = minimal.parse(data)
    for at in (second.offset, second.offset + 8, second.offset + 15):  # magic, compressor, size
        broken = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        reader = RecordReader(stored(broken), "f", on_error="skip")
        assert list(reader) == first.records + third.records
        assert len(reader) == len(first.records) + len(third.records)
        (skipped,) = reader.skipped
        assert (skipped.offset, skipped.size, skipped.records) == (second.offset, third.offset - second.offset, None)
    hidden = data[: second.offset + 12] + struct.pack("<I", second.size + 30) + data[second.offset + 16 :]
    reader = RecordReader(stored(hidden), "f", on_error="skip")  # a size that leads into the third chunk
    assert list(reader) == first.records + third.records


@quick
def test_a_chunk_in_a_record_is_not_mistaken_for_one_of_the_file() -> None:
    fs = fsabs.Memory()
    with RecordWriter(fs, "f", compressor="none") as writer:
        writer.write(minimal.chunk([b"inner"]))
        writer.write(b"behind it")
    data = bytearray(fs.read_bytes("f") + minimal.chunk([b"next"]))
    data[0] ^= 1
    assert list(RecordReader(stored(bytes(data)), "f", on_error="skip")) == [b"next"]


@quick
@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (minimal.chunk([b"abc"], count=2), "1 records in a chunk whose header states 2"),
        (minimal.chunk([b"abc", b"d"], count=1), "2 records in a chunk whose header states 1"),
        (minimal.chunk([b"abc"], count=0), "0 records"),
        (minimal.chunk([b"abc"], 1, count=0), "no records"),
        (minimal.chunk([b"abc"], 2, count=0), "no records"),
        (minimal.chunk([], 0, struct.pack("<I", 99) + b"abc", 1), "99 bytes"),
        (minimal.chunk([b"a"], 3, b"xyz", 9), "unknown compressor 3"),
        (minimal.chunk([b"a"], 1, b"\xff\x06\x00\x00sNaPpX"), "framing"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + b"\x01\x09\x00"), "cut off"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(1, b"abc")), "frame"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(2, b"abcdefgh")), "unknown kind"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(255, b"abcdef")), "identifier"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(1, b"abcdefgh")), "CRC-32C"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(0, b"abcd\xff\xff\xff\xff\x0f")), "65536"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(0, b"abcd\xff\xff\xff\xff\xff")), "no size"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(0, b"abcd\x05\x00")), "snappy block"),
        (minimal.chunk([b"a"], 1, minimal.IDENTIFIER + minimal.frame(1, bytes(4 + 65537))), "frame"),
        (minimal.chunk([b"a"], 2, b""), "0 records in a chunk whose header states 1"),
        (minimal.chunk([b"a"], 2, gzip.compress(b"abc", mtime=0)[:-3]), "cut off"),
        (minimal.chunk([b"a"], 2, b"not gzip"), "gzip"),
        (minimal.chunk([b"a"], 2, gzip.compress(bytes(4), mtime=0) + b"behind"), "gzip"),
    ],
)
def test_what_is_wrong_is_said(chunk: bytes, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        list(RecordReader(stored(minimal.chunk([b"good"]) + chunk), "f"))
    reader = RecordReader(stored(minimal.chunk([b"good"]) + chunk), "f", on_error="skip")
    assert list(reader) == [b"good"]
    assert [skipped.chunk for skipped in reader.skipped] == [1]


def other_layout(compressor: int, records: list[bytes], crc: Any) -> bytes:
    """A chunk in the order of Paddle's C++: magic, number of records, checksum, compressor, size."""
    payload = b"".join(struct.pack("<I", len(record)) + record for record in records)
    return struct.pack("<5I", 0x01020304, len(records), crc(payload), compressor, len(payload)) + payload


@quick
def test_other_layouts_are_refused_by_name() -> None:
    paddle = other_layout(0, [b"one", b"two"], zlib.crc32) * 2
    theirs = other_layout(1, [b"one", b"two"], minimal.crc32c)
    damaged = other_layout(2, [b"one"], lambda _: 12345)
    for data, name in (
        (paddle, "Paddle's C\\+\\+ impl"),
        (theirs, "PyPI's pyrecordio,"),
        (damaged, "C\\+\\+ .* or PyPI"),
    ):
        for on_error in ("raise", "skip"):
            with pytest.raises(io.UnsupportedOperation, match=name) as caught:
                RecordReader(stored(data), "f", on_error=on_error)
            assert caught.value.filename == "memory:///f"
    assert list(RecordReader(stored(minimal.chunk([b"one", b"two"])), "f")) == [b"one", b"two"]


# ---- bombs


@quick
def test_sizes_that_are_claimed_take_no_memory() -> None:
    claims = struct.pack("<5I", 0x01020304, 0, 1, 2**32 - 1, 2**32 - 1)
    many = minimal.chunk([b""] * 5, 0, None, 2**32 - 1)
    packed = minimal.chunk([b""] * 5, 1, None, 2**32 - 1)
    large = minimal.chunk([], 0, struct.pack("<I", 2**32 - 1) + b"abc", 1)
    tracemalloc.start()
    try:
        for data in (claims + b"abc", many, packed, large):
            with pytest.raises(CorruptFileError):
                list(RecordReader(stored(data), "f"))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@quick
def test_bombs_stop_at_the_limit() -> None:
    plain = bytes(8 << 20)
    fs = fsabs.Memory()
    with RecordWriter(fs, "f") as writer:
        writer.write(plain)
    for compressor, packed in ((2, gzip.compress(plain)), (1, fs.read_bytes("f")[20:])):
        assert len(decompress(compressor, packed)) >= len(plain)
        tracemalloc.start()
        try:
            with pytest.raises(Damage, match="more than 1000000"):
                decompress(compressor, packed, 1_000_000)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
        with pytest.raises(CorruptFileError, match="more than 1000000"):
            RecordReader(stored(minimal.chunk([b""], compressor, packed)), "f", max_chunk_bytes=1_000_000)[0]
    with pytest.raises(Damage, match="members"):
        decompress(2, gzip.compress(b"") * 2000)
    source = random.Random(0)
    for compressor in (1, 2) * 150:  # random bytes are never decoded
        data = source.randbytes(source.randrange(1, 60))
        with pytest.raises(Damage):
            decompress(compressor, data if source.random() < 0.5 else minimal.IDENTIFIER + b"\x00" + data)


@quick
def test_much_damage_is_not_searched_again_and_again() -> None:
    payload = struct.pack("<I", 0)
    good = struct.pack("<5I", 0x01020304, zlib.crc32(payload), 0, 4, 1) + payload
    store = counting((good + struct.pack("<5I", 0x01020304, 0, 9, 4, 1)) * 5000, "f")
    with store.open_blob("f") as blob:
        assert Index.of(blob, on_error="skip").records > 4000
    assert store.fetched < 5000 * 3 * 5000
    head = struct.pack("<5I", 0x01020304, 7, 0, 500_000, 1)
    reader = RecordReader(stored(b"\x00" + head * 50_000), "f", on_error="skip")
    assert list(reader) == []
    assert reader.skipped


@quick
def test_a_failed_read_of_many_chunks_names_them_all() -> None:
    fs = CountingFS(fsabs.Memory())
    with RecordWriter(fs, "f", max_chunk_bytes=1) as writer:
        for number in range(5):
            writer.write(b"%d" % number)
    reader = RecordReader(fs, "f")
    fs.failure = OSError(errno.EIO, "gone")
    with pytest.raises(OSError, match=r"\] one of 2 chunks, from chunk 0 at offset .* to chunk 1 at offset .*: gone"):
        reader.verify_counts(2)
    fs.failure = None
    assert len(list(reader)) == 5  # which proves the counts of all chunks
    fs.failure = OSError(errno.EIO, "gone")
    with pytest.raises(OSError, match=r"one of 2 chunks, from chunk 1 at offset .* to chunk 3 at offset .*: gone"):
        reader.read_many([1, 3])
    fs.failure = OSError(errno.EIO, "gone")
    with pytest.raises(OSError, match=r"\] chunk 2 at offset \d+ \(records 2 to 2\): gone"):
        reader.read_many([2])


@pytest.mark.quick
def test_damaged_records_of_a_slice_are_an_error_and_not_left_out() -> None:
    damaged = bytearray(minimal.chunk([b"first"]) + minimal.chunk([b"second"]) + minimal.chunk([b"third"]))
    damaged[damaged.index(b"second")] ^= 1
    reader = RecordReader(stored(bytes(damaged)), "f", on_error="skip")
    assert list(reader) == [b"first", b"third"]
    assert reader[:1] == [b"first"]
    for part in (slice(None), slice(1, 3), slice(0, 3, 1), slice(1, None, 2)):
        with pytest.raises(CorruptFileError, match="chunk 1"):
            reader[part]
