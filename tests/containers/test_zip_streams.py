"""Zip: large compressed members, which are decompressed as they are read, in bounded memory."""

from __future__ import annotations

import bz2
import contextlib
import io
import os
import random
import threading
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator

import pytest

from fsabs import FS, CorruptFileError, Limits, Memory
from fsabs.containers import decoding
from fsabs.containers.decoding import DecodedBlob
from fsabs.containers.zip import Zip, records
from fsabs.core.blobs import Blob

from .test_zip_read import zstd_member
from .zips import BZIP2, DEFLATED, LZMA, STORED, CountingFS, Made, by_hand, opened, zipped

ALL = (DEFLATED, BZIP2, LZMA, 93)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small members treated as large ones, so that the tests take no time."""
    monkeypatch.setattr(records, "SMALL", 1000)
    monkeypatch.setattr(decoding, "PIECE", 1024)
    monkeypatch.setattr(decoding, "NEAR", 1024)
    monkeypatch.setattr(decoding, "MARGIN", 64)
    monkeypatch.setattr(decoding, "SPACING", 8 * 1024)
    monkeypatch.setattr(decoding, "FIRST_FETCH", 64)
    monkeypatch.setattr(decoding, "MAX_FETCH", 512)


def content(size: int = 100_000) -> bytes:
    """Bytes that are compressed to about a half."""
    return random.Random(size).randbytes(size // 2).hex().encode()[:size]


def made(data: bytes, method: int) -> Made:
    """A member of one method."""
    if method == 93:
        return zstd_member("x", data)
    archive = zipped({"x": data}, method)
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        info = found.infolist()[0]
    return Made(b"x", archive[31 : 31 + info.compress_size], method, info.flag_bits, info.file_size, info.CRC)


@pytest.mark.parametrize("method", ALL)
def test_from_the_start_to_the_end(method: int) -> None:
    data = content()
    archive = opened(by_hand([made(data, method)]))
    blob = archive.open_blob("x")
    assert isinstance(blob, DecodedBlob)
    assert archive.read_bytes("x") == data
    assert blob.read_all() == data
    assert blob.read_all() == data
    with archive.open("x", "rb", 100) as file:
        assert b"".join(iter(lambda: file.read(777), b"")) == data
    with archive.open("x", "rt", encoding="ascii") as text:
        assert text.read().encode() == data
    assert archive.verify() == []


@pytest.mark.parametrize("method", ALL)
def test_anywhere(method: int) -> None:
    data = content()
    blob = opened(by_hand([made(data, method)])).open_blob("x")
    places = random.Random(1)
    for _ in range(60):
        offset, size = places.randrange(len(data) + 10), places.randrange(5000)
        assert blob.pread(size, offset) == data[offset : offset + size]
    ranges = [(places.randrange(300), places.randrange(len(data))) for _ in range(30)]
    assert blob.pread_many(ranges) == [data[offset : offset + size] for size, offset in ranges]


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("told", [-1000, -1, 1, 1000])
def test_a_size_that_is_not_true(method: int, told: int) -> None:
    data = content()
    member = made(data, method)
    archive = opened(by_hand([member._replace(size=len(data) + told)]))
    blob = archive.open_blob("x")
    if method != 93 or told > 0:  # of zstd so much is decoded at once
        assert blob.pread(100, 0) == data[:100]
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="holds more than|bytes where|in the middle") as caught:
            blob.read_all()
        assert caught.value.filename == "memory:///a.zip/x"
    assert [problem.kind for problem in archive.verify()] == ["damaged"]


@pytest.mark.parametrize("method", ALL)
def test_a_wrong_crc_and_a_cut_stream(method: int) -> None:
    data = content()
    member = made(data, method)
    right = zlib.crc32(data)
    blob = opened(by_hand([member._replace(crc=right ^ 1)])).open_blob("x")
    with pytest.raises(CorruptFileError, match=f"CRC-32 {right:08x}"):
        for offset in range(0, len(data), 5000):
            assert blob.pread(5000, offset) == data[offset : offset + 5000]
    for cut in (0, 1, 10, len(member.data) // 2, len(member.data) - 1):
        blob = opened(by_hand([member._replace(data=member.data[:cut])])).open_blob("x")
        with pytest.raises(CorruptFileError):
            blob.read_all()
    if method != 93:
        behind = opened(by_hand([member._replace(data=member.data + b"junk")])).open_blob("x")
        assert behind.read_all() == data


@pytest.mark.parametrize("method", ALL)
def test_any_damage_is_seen(method: int) -> None:
    data = content(20_000)
    member = made(data, method)
    places = random.Random(2)
    for _ in range(40):
        damaged = bytearray(member.data)
        damaged[places.randrange(len(damaged))] ^= 1 << places.randrange(8)
        blob = opened(by_hand([member._replace(data=bytes(damaged))])).open_blob("x")
        with contextlib.suppress(CorruptFileError):  # some bits mean nothing
            assert blob.read_all() == data


def test_deflate_goes_back_to_a_checkpoint() -> None:
    data = content(400_000)
    parent = Memory()
    parent.write_bytes("a.zip", by_hand([made(data, DEFLATED)]))
    store = CountingFS(parent)
    blob = Zip(store, "a.zip").open_blob("x")
    assert blob.read_all() == data
    whole = len(store.taken())
    for offset in range(399_000, 0, -10_000):
        assert blob.pread(100, offset) == data[offset : offset + 100]
        assert len(store.taken()) < whole / 8
    blob.close()
    with pytest.raises(ValueError, match="closed"):
        blob.pread(1, 0)


def test_a_jump_forward_takes_a_checkpoint_too() -> None:
    data = content(400_000)
    parent = Memory()
    parent.write_bytes("a.zip", by_hand([made(data, DEFLATED)]))
    store = CountingFS(parent)
    blob = Zip(store, "a.zip").open_blob("x")
    blob.read_all()
    blob.pread(10, 0)
    store.taken()
    assert blob.pread(10, 390_000) == data[390_000:390_010]
    assert len(store.taken()) < 50


def test_threads_take_turns() -> None:
    data = content()
    for method in ALL:
        blob = opened(by_hand([made(data, method)])).open_blob("x")
        wrong: list[int] = []

        def read(seed: int, blob: Blob = blob, wrong: list[int] = wrong) -> None:
            places = random.Random(seed)
            for _ in range(20):
                offset = places.randrange(len(data))
                if blob.pread(3000, offset) != data[offset : offset + 3000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_fork_goes_on_in_the_middle() -> None:
    data = content()
    for method in ALL:
        with opened(by_hand([made(data, method)])).open("x", "rb", 100) as file:
            assert file.read(50_000) == data[:50_000]
            child = os.fork()
            if not child:
                right = file.read(30_000) == data[50_000:80_000] and file.seek(10) == 10
                right = right and file.read() == data[10:]
                os._exit(0 if right else 1)
            assert file.read(40_000) == data[50_000:90_000]
            assert file.read() == data[90_000:]
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_failed_read_of_the_store_is_no_damage_and_is_got_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 128 * 1024)
    monkeypatch.setattr(decoding, "MAX_FETCH", 64 * 1024)

    class Flaky(Memory):
        failing = False

        def _open_blob(self, key: str) -> Blob:
            return _FlakyBlob(self, key, super()._open_blob(key))

    class _FlakyBlob(Blob):
        def __init__(self, origin: Flaky, key: str, inner: Blob) -> None:
            super().__init__(origin, key, inner.size, inner.version)
            self._fs, self._inner = origin, inner

        def _pread(self, size: int, offset: int) -> bytes:
            if self._fs.failing:
                raise TimeoutError("the store is away")
            return self._inner.pread(size, offset)

    data = content(1_200_000)  # two blocks of bzip2
    for method in ALL:
        store = Flaky()
        store.write_bytes("a.zip", by_hand([made(data, method)]))
        blob = Zip(store, "a.zip").open_blob("x")
        assert blob.pread(100, 0) == data[:100]
        store.failing = True
        with pytest.raises(TimeoutError, match="the store is away"):
            blob.pread(100, 1_100_000)
        store.failing = False
        assert blob.pread(100, 1_100_000) == data[1_100_000:1_100_100]
        assert blob.read_all() == data


class Streaming(Memory):
    """A store that can have more under way than is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[int] = []
        self.under_way = 0

    def _open_blob(self, key: str) -> Blob:
        return _StreamingBlob(self, key, super()._open_blob(key))


class _StreamingBlob(Blob):
    streams = True

    def __init__(self, origin: Streaming, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner.size, inner.version)
        self._fs, self._inner = origin, inner

    def _pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def _stream(self, start: int) -> Iterator[memoryview]:
        self._fs.streams.append(start)
        return self._pieces(start)

    def _pieces(self, start: int) -> Iterator[memoryview]:
        self._fs.under_way += 1
        try:
            for at in range(start, self.size, 300_001):
                yield memoryview(self._inner.pread(300_001, at))
        finally:
            self._fs.under_way -= 1


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_a_large_member_is_streamed_from_a_store_that_can(method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    data = os.urandom(12 << 20)
    inner = zipped({"x": data, "y": b"y"}, method)
    for archive_data, names in ((inner, []), (zipped({"i.zip": inner, "z": b"z"}), ["i.zip"])):
        store = Streaming()
        store.write_bytes("a.zip", archive_data)
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
    data = os.urandom(6 << 20)
    damaged = bytearray(zipped({"x": data}))
    damaged[5 << 20] ^= 1
    store = Streaming()
    store.write_bytes("a.zip", bytes(damaged))
    with Zip(store, "a.zip").open("x", "rb") as file, pytest.raises(CorruptFileError, match="CRC-32"):
        while file.read(1 << 20):
            pass
    assert store.streams
    assert store.under_way == 0


def test_a_large_directory_is_streamed_from_a_store_that_can() -> None:
    names = [f"{n:060000}" for n in range(90)]
    store = Streaming()
    store.write_bytes("a.zip", zipped(dict.fromkeys(names, b"")))
    assert list(Zip(store, "a.zip").list()) == names
    assert store.streams
    assert store.under_way == 0


def _pieces(blob: Blob, size: int) -> Iterator[int]:
    for offset in range(0, blob.size, size):
        yield zlib.crc32(blob.pread(size, offset))


@pytest.mark.parametrize("method", [DEFLATED, BZIP2, LZMA])
def test_memory_is_bounded(method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    size = 24 << 20
    member = made(bytes(size), method)
    archive = opened(by_hand([member]), limits=Limits(max_ratio=None))
    blob = archive.open_blob("x")
    assert isinstance(blob, DecodedBlob)
    tracemalloc.start()
    assert len(set(_pieces(blob, 1 << 20))) == 1
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
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.zst"])
def test_a_whole_read_is_received_into_its_final_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "MAX_FETCH", 1 << 20)
    data, fs = os.urandom(16 << 20), Memory()
    options = {"compression": "deflated"} if name == "a.zip" else {}
    with fs.open_container(name, "w", compresslevel=1, **options) as archive:
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
    member = made(data, BZIP2)._replace(data=streams)
    blob = opened(by_hand([member])).open_blob("x")
    assert blob.read_all() == data
    for offset in range(50_000, 0, -7_000):
        assert blob.pread(len(data), offset) == data[offset:]


def test_a_match_may_go_on_behind_the_end_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which there are up to 258 bytes to come when zlib has taken all of the input."""
    monkeypatch.setattr(decoding, "FIRST_FETCH", 4096)
    monkeypatch.setattr(decoding, "MAX_FETCH", 4096)
    order = random.Random(1)
    for _ in range(300):
        start = bytes(order.choices(b"abcdef", weights=[8, 4, 2, 1, 1, 1], k=order.randrange(700, 1020)))
        data = (start + start)[: 1024 + order.randrange(1, 200)]
        assert opened(by_hand([made(data, DEFLATED)])).open_blob("x").read_all() == data
