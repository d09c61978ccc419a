"""Reading ahead: when a stream is used and when not, and that its bytes are the right ones, whatever becomes of it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs import CorruptFileError
from fsabs.backends.memory import Memory
from fsabs.core.blobs import Blob, BlobSlice
from fsabs.core.files import buffered
from fsabs.core.readahead import STREAM_AFTER, ReadAhead
from fsabs.testing.children import Child, threaded

pytestmark = pytest.mark.quick

DATA = os.urandom(1024) * 9 * 1024  # 9 MiB
MIB = 1024 * 1024


class Streaming(Blob):
    """A blob that counts its reads, and gives streams of odd pieces."""

    __slots__ = ("begun", "broken", "closed_streams", "data", "reads")
    streams = True
    largest_window = 8 * MIB

    def __init__(self, data: bytes = DATA, broken: bool = False) -> None:
        super().__init__(Memory(), "a", len(data), "1")
        self.data, self.reads, self.begun, self.closed_streams, self.broken = data, 0, 0, 0, broken

    def _pread(self, size: int, offset: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + size]

    def _stream(self, start: int) -> Iterator[memoryview]:
        self.begun += 1
        try:
            for offset in range(start, self.size - MIB * self.broken, 700_001):
                yield memoryview(self.data)[offset : min(offset + 700_001, self.size - MIB * self.broken)]
        finally:
            self.closed_streams += 1


def test_what_is_read_in_order_is_streamed() -> None:
    blob = Streaming()
    with buffered(blob) as file:
        found = b"".join(iter(lambda: file.read(300_000), b""))
    assert found == DATA
    assert (blob.begun, blob.closed_streams) == (1, 1)
    assert blob.reads <= 7


def test_a_file_object_takes_the_pieces_of_a_stream_as_they_come() -> None:
    blob = Streaming()
    ahead = ReadAhead(blob)
    at = len(ahead.pread(STREAM_AFTER, 0))
    while at < blob.size:
        piece = ahead.read_some(1000, at)
        assert piece.obj is blob.data  # and no copy
        assert piece == memoryview(DATA)[at : at + len(piece)]
        at += len(piece)
    assert not ahead.read_some(1000, at)


def test_what_is_read_here_and_there_is_not() -> None:
    blob = Streaming()
    with buffered(blob) as file:
        for at in range(100):
            file.seek(at * 7_919_111 % (len(DATA) - 200_000))
            file.read(100_000)
    assert blob.begun == 0


def test_a_jump_ends_the_stream_and_order_begins_another() -> None:
    blob = Streaming()
    ahead = ReadAhead(blob)
    for start in (0, 3 * MIB):
        for offset in range(start, start + 4 * MIB, MIB):
            assert ahead.pread(MIB, offset) == DATA[offset : offset + MIB]
    assert (blob.begun, blob.closed_streams) == (2, 1)


def test_the_end_of_a_file_is_not_worth_a_stream() -> None:
    blob = Streaming(DATA[: STREAM_AFTER + MIB])
    ahead = ReadAhead(blob)
    for offset in range(0, blob.size, MIB):
        ahead.pread(MIB, offset)
    assert blob.begun == 0


def test_a_stream_that_ends_early_is_an_error_that_names_the_file() -> None:
    blob = Streaming(broken=True)
    ahead = ReadAhead(blob)
    with pytest.raises(CorruptFileError, match="memory") as caught:
        for offset in range(0, blob.size, MIB):
            ahead.pread(MIB, offset)
    assert caught.value.filename == blob.url
    assert not ahead.streaming


def test_a_slice_streams_its_part_alone() -> None:
    parent = Streaming()
    part = BlobSlice(Memory(), "part", parent, 1000, 5 * MIB)
    ahead = ReadAhead(part)
    found = b"".join(ahead.pread(MIB, offset) for offset in range(0, 5 * MIB, MIB))
    assert found == DATA[1000 : 1000 + 5 * MIB]
    assert parent.begun == 1


def test_parent_and_child_go_on_with_streams_of_their_own() -> None:
    blob = Streaming()
    file = buffered(blob)
    start = b"".join(file.read(MIB) for _ in range(4))
    assert blob.begun == 1
    assert Child("a child", lambda: file.read() == DATA[4 * MIB :], 20).result()
    assert start + file.read() == DATA
    file.close()


def test_threads_share_a_reader() -> None:
    file = buffered(Streaming())
    found = threaded("reading one file in turn", [lambda: list(iter(lambda: file.read(50_000), b""))] * 4, 30)
    assert sum(len(piece) for pieces in found for piece in pieces) == len(DATA)


@given(st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(1, 3 * MIB)), max_size=12))
@settings(max_examples=40, deadline=None)
def test_any_reads_give_the_right_bytes(reads: list[tuple[int, int]]) -> None:
    with buffered(Streaming()) as file:
        for position, size in reads:
            if position % 3:
                file.seek(position)
            at = file.tell()
            assert file.read(size) == DATA[at : at + size]


def test_a_child_that_collects_a_reader_leaves_its_parents_stream_open() -> None:
    """One in a reference cycle: the garbage collector finalizes the stream as well as the reader."""
    blob = Streaming()
    reader = ReadAhead(blob)
    for offset in range(0, STREAM_AFTER + MIB, MIB):
        reader.pread(MIB, offset)
    assert reader.streaming
    cycle: list[object] = [reader]
    cycle.append(cycle)
    gc.disable()
    try:
        del reader, cycle
        assert Child("a child", lambda: (gc.collect(), blob.closed_streams), 20).result()[1] == 0
    finally:
        gc.enable()
    gc.collect()
    assert blob.closed_streams == 1
