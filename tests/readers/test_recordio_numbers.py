"""Records are what their number says: wrong counts, proofs that are kept, and mutated files."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
from pathlib import Path

import pytest

import fsabs
from fsabs import CorruptFileError
from fsabs.readers.recordio import Index, RecordReader, RecordWriter, Scanner
from tests import disks, soak
from tests.counting import Counting

from . import minimal


def stored(data: bytes) -> fsabs.FS:
    fs = fsabs.Memory()
    fs.write_bytes("f", data)
    return fs


def three_chunks(count: int, compressor: int) -> bytes:
    """A file of 3 + 4 + 3 records, whose middle chunk states `count` records."""
    chunks = [[b"0", b"1", b"2"], [b"3", b"4", b"5", b"6"], [b"7", b"8", b"9"]]
    return b"".join(minimal.chunk(one, compressor, count=count if len(one) == 4 else None) for one in chunks)


@pytest.mark.parametrize("compressor", [0, 1, 2])
@pytest.mark.parametrize("count", [3, 5])
def test_no_record_is_given_behind_a_wrong_count(count: int, compressor: int) -> None:
    fs = stored(three_chunks(count, compressor))
    wrong = f"chunk 1 at offset .*4 records in a chunk whose header states {count}"
    for read in (
        lambda: RecordReader(fs, "f")[8],
        lambda: RecordReader(fs, "f").read_many([8, 0]),
        lambda: RecordReader(fs, "f")[8:],
        lambda: next(RecordReader(fs, "f").scan(8)),
        lambda: next(Scanner(fs, "f", 8)),
        lambda: RecordReader(fs, "f", on_error="skip")[8],
    ):
        with pytest.raises(CorruptFileError, match=wrong):
            read()
    reader = RecordReader(fs, "f")
    assert [reader[number] for number in range(3)] == [b"0", b"1", b"2"]
    skipping = RecordReader(fs, "f", on_error="skip")
    assert list(skipping) == [b"0", b"1", b"2", b"7", b"8", b"9"]
    assert [one.records for one in skipping.skipped] == [4]  # and not what the header states


def test_a_file_is_proved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    disks.ticking(monkeypatch, -1)
    monkeypatch.setattr("fsabs.readers.recordio.index.WORTH_KEEPING", 0)
    fs = fsabs.from_url(str(tmp_path))
    with RecordWriter(fs, "f", max_chunk_bytes=40) as writer:
        for number in range(100):
            writer.write(b"%04d" % number)
    first = RecordReader(fs, "f")
    assert first.index.verified == 0
    assert first[55] == b"0055"
    assert first.index.verified == first.index.find(55) + 1
    again = Index.load(fs, "f")
    assert again.verified == first.index.find(55)  # what was proved before that chunk was read
    assert pickle.loads(pickle.dumps(first)).index.verified == first.index.verified
    assert len(list(first)) == 100
    assert first.index.verified == first.index.chunks  # by reading in order


def test_a_batch_reads_each_chunk_once() -> None:
    fs = stored(b"".join(minimal.chunk([b"%d" % number]) for number in range(20)))
    reader = RecordReader(fs, "f")
    assert reader.read_many([19, 3, 7]) == [b"19", b"3", b"7"]
    assert reader.index.verified == 20


def test_empty_chunks() -> None:
    """As the Go code reads them: stored as nothing, or as a stream of nothing."""
    stored_as: tuple[tuple[bytes | None, ...], ...] = (
        (None, b""), (None, b"", minimal.IDENTIFIER), (None, b"", gzip.compress(b"", mtime=0)),
    )  # fmt: skip
    for compressor, payloads in enumerate(stored_as):
        for payload in payloads:
            empty = minimal.chunk([], compressor, payload)
            parts = [minimal.chunk([b"0", b"1"], 1), empty, minimal.chunk([b"2"], 2), empty]
            reader = RecordReader(stored(b"".join(parts)), "f")
            assert list(reader) == [reader[number] for number in range(3)] == [b"0", b"1", b"2"]
            assert reader.index.chunks == 4


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_mutated_files_never_give_a_record_under_another_number() -> None:
    rounds, seed = soak.rounds(400), soak.seed(1)
    rng = random.Random(seed)
    refused = 0
    for number in range(rounds):
        counts = [rng.randrange(1, 6) for _ in range(rng.randrange(2, 6))]
        compressor = rng.randrange(3)
        truth = [b"%d" % at * rng.randrange(1, 4) + b"/%d" % at for at in range(sum(counts))]
        left = iter(truth)
        chunks = [bytearray(minimal.chunk([next(left) for _ in range(count)], compressor)) for count in counts]
        for _ in range(rng.choice([1, 1, 2, 3])):
            mutate(rng, chunks)
        reads = list(range(len(truth)))
        rng.shuffle(reads)
        try:
            reader = RecordReader(stored(b"".join(chunks)), "f")
        except (CorruptFileError, io.UnsupportedOperation):
            refused += 1
            continue
        for at in reads[:6]:
            try:
                found = reader.read_many([at])[0] if rng.random() < 0.5 else reader[at]
            except (CorruptFileError, IndexError):
                refused += 1
                continue
            assert found == truth[at], f"seed {seed}, file {number}: record {at} is {found!r}, not {truth[at]!r}"
    assert refused > rounds // 4
    soak.count("mutated RecordIO files", rounds)


def mutate(rng: random.Random, chunks: list[bytearray]) -> None:
    """Change a count, bytes of a header or of a payload, or cut the end off."""
    chunk = rng.choice(chunks)
    kind = rng.random()
    if kind < 0.5:
        count = max(0, struct.unpack_from("<I", chunk, 16)[0] + rng.choice([-2, -1, 1, 2])) if len(chunk) >= 20 else 0
        chunk[16:20] = struct.pack("<I", count)
    elif kind < 0.75:
        chunk[rng.randrange(min(20, len(chunk)))] ^= 1 << rng.randrange(8)
    elif kind < 0.95:
        chunk[rng.randrange(len(chunk))] = rng.randrange(256)
    else:  # a chunk that was cut before may be one byte long
        del chunks[-1][rng.randrange(1, max(2, len(chunks[-1]))) :]


def large_records(sizes: list[int]) -> Counting:
    store = Counting(fsabs.Memory())
    with RecordWriter(store.inner, "f", compressor="none", max_chunk_bytes=1 << 20) as writer:
        for number, size in enumerate(sizes):
            writer.write(bytes([number]) * size)
    return store


def test_large_records_in_order_are_proved_in_passing() -> None:
    store = large_records([(1 << 20) + 1] * 6)
    reader = RecordReader(store, "f")
    reads = []
    for number in range(6):
        store.requests.clear()
        assert reader[number][:1] == bytes([number])
        reads.append(len(store.requests))
    assert reads == reads[:1] * 6


def test_a_scan_reads_no_byte_twice() -> None:
    sizes = [900_000, 1_200_000] * 4
    store = large_records(sizes)
    reader = RecordReader(store, "f")
    store.requests.clear()
    assert list(map(len, reader.scan(window=8 << 20))) == sizes
    assert store.fetched <= sum(sizes) + 1000
