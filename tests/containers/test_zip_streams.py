"""Zip: large compressed members, which are decompressed as they are read, in bounded memory."""

from __future__ import annotations

import bz2
import contextlib
import functools
import os
import random
import threading
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from fsabs import FS, CorruptFileError, Limits, Memory
from fsabs.containers import decoding
from fsabs.containers.decoding import DecodedBlob
from fsabs.containers.zip import Zip, records

from .conftest import decode_by_steps
from .forks import all_end_well, forked
from .stores import counting
from .zips import BZIP2, COMPRESSED, DEFLATED, LZMA, STORED, ZSTD, by_hand, opened, packed, zipped


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small members treated as large ones, so that the tests take no time."""
    monkeypatch.setattr(records, "SMALL", 1000)
    decode_by_steps(monkeypatch, 1024)


def content(size: int = 100_000) -> bytes:
    """Bytes that are compressed to about a half."""
    return random.Random(size).randbytes(size // 2).hex().encode()[:size]


@pytest.mark.parametrize("method", COMPRESSED)
def test_from_the_start_to_the_end_and_anywhere(method: int) -> None:
    data = content()
    archive = opened(by_hand([packed("x", data, method)]))
    blob = archive.open_blob("x")
    assert isinstance(blob, DecodedBlob)
    assert archive.read_bytes("x") == data
    assert blob.read_all() == data
    assert blob.read_all() == data
    with archive.open("x", "rb", 100) as file:
        assert b"".join(iter(lambda: file.read(777), b"")) == data
    with archive.open("x", "rt", encoding="ascii") as text:
        assert text.read().encode() == data
    places = random.Random(1)
    for _ in range(40):
        offset, size = places.randrange(len(data) + 10), places.randrange(5000)
        assert blob.pread(size, offset) == data[offset : offset + size]
    ranges = [(places.randrange(300), places.randrange(len(data))) for _ in range(30)]
    assert blob.pread_many(ranges) == [data[offset : offset + size] for size, offset in ranges]
    assert archive.verify() == []
    blob.close()
    with pytest.raises(ValueError, match="closed"):
        blob.pread(1, 0)


@pytest.mark.parametrize("method", COMPRESSED)
def test_a_size_that_is_not_true(method: int) -> None:
    data = content()
    for told in (-1000, -1, 1, 1000):
        archive = opened(by_hand([packed("x", data, method, size=len(data) + told)]))
        blob = archive.open_blob("x")
        if method != ZSTD or told > 0:  # of zstd so much is decoded at once
            assert blob.pread(100, 0) == data[:100]
        for _ in range(2):
            with pytest.raises(CorruptFileError, match="holds more than|bytes where|in the middle") as caught:
                blob.read_all()
            assert caught.value.filename == "memory:///a.zip/x"
        assert [problem.kind for problem in archive.verify()] == ["damaged"]
    empty = opened(by_hand([packed("x", data, method, size=0)]))
    for read in (empty.read_bytes, empty.open, lambda path: list(empty.read_many([path]))):
        with pytest.raises(CorruptFileError):
            read("x")


@pytest.mark.parametrize("method", COMPRESSED)
def test_damage_is_seen(method: int) -> None:
    """A wrong CRC, a cut, and flipped bits."""
    data = content(20_000)
    right = packed("x", data, method)
    blob = opened(by_hand([right._replace(crc=zlib.crc32(data) ^ 1)])).open_blob("x")
    with pytest.raises(CorruptFileError, match=f"CRC-32 {zlib.crc32(data):08x}"):
        for offset in range(0, len(data), 5000):
            assert blob.pread(5000, offset) == data[offset : offset + 5000]
    for cut in (0, 1, 10, len(right.data) // 2, len(right.data) - 1):
        with pytest.raises(CorruptFileError):
            opened(by_hand([right._replace(data=right.data[:cut])])).open_blob("x").read_all()
    places = random.Random(2)
    for _ in range(40):
        damaged = bytearray(right.data)
        damaged[places.randrange(len(damaged))] ^= 1 << places.randrange(8)
        blob = opened(by_hand([right._replace(data=bytes(damaged))])).open_blob("x")
        with contextlib.suppress(CorruptFileError):  # some bits mean nothing
            assert blob.read_all() == data


def test_deflate_goes_on_from_a_checkpoint() -> None:
    data = content(400_000)
    store = counting(by_hand([packed("x", data, DEFLATED)]))
    blob = Zip(store, "a.zip").open_blob("x")
    assert blob.read_all() == data
    whole = len(store.taken())
    for offset in (*range(399_000, 0, -10_000), 0, 390_000):  # backwards, and a jump forwards
        assert blob.pread(100, offset) == data[offset : offset + 100]
        assert len(store.taken()) < whole / 8


def test_threads_and_a_fork_go_on_in_the_middle() -> None:
    data = content()
    for method in COMPRESSED:
        archive = opened(by_hand([packed("x", data, method)]))
        blob, wrong = archive.open_blob("x"), list[int]()

        def read(seed: int, blob: object = blob, wrong: list[int] = wrong) -> None:
            places = random.Random(seed)
            for _ in range(10):
                offset = places.randrange(len(data))
                if blob.pread(3000, offset) != data[offset : offset + 3000]:  # type: ignore[attr-defined]
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        with archive.open("x", "rb", 100) as file:
            assert file.read(50_000) == data[:50_000]
            child = forked(lambda file=file: file.read() == data[50_000:] and file.seek(0) == 0 and file.read() == data)  # type: ignore[misc]
            assert file.read() == data[50_000:]
            assert all_end_well(child)


def test_a_failed_read_of_the_store_is_no_damage_and_is_got_over(monkeypatch: pytest.MonkeyPatch) -> None:
    decode_by_steps(monkeypatch, 64)
    for method in (*COMPRESSED, STORED):
        data = content(1_200_000 if method in (BZIP2, ZSTD) else 200_000)  # which have long blocks
        store = counting(by_hand([packed("x", data, method), packed("small", b"abc", method)]))
        archive, end = Zip(store, "a.zip"), len(data) - 10_000
        blob = archive.open_blob("x")
        assert blob.pread(100, 0) == data[:100]
        store.failure = TimeoutError("the store is away")
        with pytest.raises(TimeoutError, match="the store is away"):
            blob.pread(100, end)
        for read in (archive.verify, functools.partial(archive.read_bytes, "small")):
            with pytest.raises(TimeoutError, match="the store is away"):
                read()
        store.failure = None
        assert blob.pread(100, end) == data[end : end + 100]
        assert blob.read_all() == data


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_a_large_member_is_streamed_from_a_store_that_can(method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    data = os.urandom(12 << 20)
    inner = zipped({"x": data, "y": b"y"}, method)
    for archive_data, names in ((inner, []), (zipped({"i.zip": inner, "z": b"z"}), ["i.zip"])):
        store = counting(archive_data, streams=True)
        archive: FS = Zip(store, "a.zip")
        for name in names:
            archive = archive.open_zip(name)
        with archive.open("x", "rb") as file:
            assert b"".join(iter(lambda: file.read(1 << 20), b"")) == data
            file.seek(0)
            assert file.read(5 << 20) == data[: 5 << 20]
        assert store.streams
        assert min(store.streams) > 2 << 20
        assert store.under_way == 0
        with archive.open("x", "rb") as file:
            file.read(9 << 20)  # and no further
        assert store.under_way == 0


def test_what_is_streamed_is_checked() -> None:
    damaged = bytearray(zipped({"x": os.urandom(6 << 20)}))
    damaged[5 << 20] ^= 1
    store = counting(bytes(damaged), streams=True)
    with Zip(store, "a.zip").open("x", "rb") as file, pytest.raises(CorruptFileError, match="CRC-32"):
        while file.read(1 << 20):
            pass
    assert store.streams
    assert store.under_way == 0


def test_a_large_directory_is_streamed_from_a_store_that_can() -> None:
    names = [f"{n:060000}" for n in range(90)]
    store = counting(zipped(dict.fromkeys(names, b"")), streams=True)
    assert list(Zip(store, "a.zip").list()) == names
    assert store.streams
    assert store.under_way == 0


@pytest.mark.parametrize("method", [DEFLATED, BZIP2, LZMA])
def test_memory_is_bounded(method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size that it claims."""
    monkeypatch.undo()
    zeros, size = bytes(1 << 20), 24 << 20
    right = packed("x", bytes(size), method)
    for claimed in (size, 1000):
        archive = opened(by_hand([right._replace(size=claimed)]), limits=Limits(max_ratio=None))
        blob = archive.open_blob("x")
        tracemalloc.start()
        if claimed == size:
            assert isinstance(blob, DecodedBlob)
            assert all(blob.pread(1 << 20, offset) == zeros for offset in range(0, size, 1 << 20))
        else:
            with pytest.raises(CorruptFileError, match="holds more than the"):
                archive.read_bytes("x")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 << 20


def test_archives_in_large_members() -> None:
    inner = zipped({f"{n}.txt": content(n + 500) for n in range(40)}, DEFLATED)
    for method in (DEFLATED, BZIP2):
        archive = opened(zipped({"i.zip": inner}, method)).open_zip("i.zip")
        names = list(archive.list())
        random.Random(3).shuffle(names)
        assert list(archive.read_many(names)) == [content(int(name[:-4]) + 500) for name in names]
        for name in names[:10]:
            assert archive.read_bytes(name) == content(int(name[:-4]) + 500)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_whole_read_is_received_into_its_final_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    data, fs = os.urandom(24 << 20), Memory()
    with fs.open_container(name, "w", compression="deflated" if name == "a.zip" else "gz", compresslevel=0) as archive:
        archive.write_bytes("x", data)
    with fs.open_container(name) as archive:
        readers: list[Callable[[], bytes]] = [
            lambda: archive.read_bytes("x"),
            lambda: next(archive.read_many(["x"])),
            lambda: archive.open("x", "rb").read(),
        ]
        for read in readers:
            tracemalloc.start()
            assert read() == data
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1.1 * len(data) + 3 * decoding.MAX_FETCH


def test_several_streams_one_behind_another_are_read_on_from_each_start() -> None:
    """As parallel compressors write them; the CRC-32 is that of all, from wherever the reading goes on."""
    data = content(60_000)
    streams = b"".join(bz2.compress(data[at : at + 9_000]) for at in range(0, len(data), 9_000))
    blob = opened(by_hand([packed("x", data, BZIP2)._replace(data=streams)])).open_blob("x")
    assert blob.read_all() == data
    for offset in range(50_000, 0, -7_000):
        assert blob.pread(len(data), offset) == data[offset:]


def test_a_match_may_go_on_behind_the_end_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which there are up to 258 bytes to come when zlib has taken all of the input."""
    monkeypatch.setattr(decoding, "FIRST_FETCH", 4096)
    order = random.Random(1)
    for _ in range(150):
        start = bytes(order.choices(b"abcdef", weights=[8, 4, 2, 1, 1, 1], k=order.randrange(700, 1020)))
        data = (start + start)[: 1024 + order.randrange(1, 200)]
        assert opened(by_hand([packed("x", data, DEFLATED)])).open_blob("x").read_all() == data
