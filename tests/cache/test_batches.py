"""What reading costs the store: the first read of a file, batches and what they bring along, streams of large files."""

from __future__ import annotations

import io
import os
import random
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs import FS, Local, Memory
from fsabs.cache import CachedFS
from fsabs.core import readahead
from fsabs.core.blobs import Blob
from fsabs.testing.children import started
from tests import disks
from tests.cache.stores import BLOCK, CONTENTS, NAMES, Far, Ranges, Store, cached, noise
from tests.counting import Counting

# ---- one request


@pytest.fixture
def far(store: Store) -> Far:
    return Far(store.inner)


@pytest.mark.quick
def test_a_file_that_was_never_kept_is_opened_without_a_question(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    assert [fs.read_bytes(name) for name in NAMES] == CONTENTS
    assert fs.open("large.bin", "rb").read(10) == noise(50_000)[:10]
    assert fs.open("empty", "rb").read() == fs.read_bytes("empty") == b""
    assert far.asked == 0
    assert {name: far.opened[name] for name in [*NAMES, "large.bin"]} == dict.fromkeys([*NAMES, "large.bin"], 1)
    again = cached(far, folder)
    assert [again.open(name, "rb").read() for name in NAMES] == CONTENTS
    assert sum(far.opened[name] for name in NAMES) == 21, "one is opened for its version, and was cached"
    assert far.asked == 19, "the others are asked for it"
    assert [again.open(name, "rb").read() for name in NAMES] == CONTENTS
    assert far.asked == 39, "the version, and nothing else, of what this FS has found before"
    assert sum(far.opened[name] for name in NAMES) == 21
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("no such")
    with pytest.raises(IsADirectoryError):
        fs.read_bytes("dir")


@pytest.mark.quick
def test_bringing_files_in_asks_nothing_either(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    assert fs.warm("", progress=lambda files, size: None).fetched == 69_007 + 1000
    assert far.asked <= 1, "of the folder"
    far.opened.clear()
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert far.reads == 0


# ---- batches

MEMBERS = {f"{number // 100:02}/{number:04}.png": noise(300 + number % 300, number) for number in range(1000)}


def in_zip(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, data in MEMBERS.items():
            archive.writestr(name, data)
    return "a.zip"


def in_tar(folder: Path) -> str:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for name, data in MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return "a.tar"


@pytest.mark.parametrize(("make", "batch"), [(in_zip, 1), (in_zip, 32), (in_tar, 256)])
def test_a_cold_epoch_of_small_members_fetches_the_archive_once(
    tmp_path: Path, folder: str, make: Any, batch: int
) -> None:
    """In random order: whole members that lie in the gaps of a request are admitted, and not fetched again."""
    name = make(tmp_path)
    store = Counting(Local(tmp_path))
    with store.open_container(name) as container:
        store.requests.clear()  # of its index
        fs = cached(container, folder)
        wanted = list(MEMBERS)
        random.Random(1).shuffle(wanted)
        for start in range(0, len(wanted), batch):
            names = wanted[start : start + batch]
            found = list(fs.read_many(names)) if batch > 1 else [fs.read_bytes(names[0])]
            assert found == [MEMBERS[name] for name in names]
        assert store.fetched <= 1.1 * (tmp_path / name).stat().st_size
        asked = store.fetched
        again = cached(container, folder)
        assert dict(zip(wanted, again.read_many(wanted), strict=True)) == MEMBERS
        assert store.fetched == asked, "all of it is cached"


def test_what_is_brought_along_is_of_its_own_version(tmp_path: Path, folder: str) -> None:
    """An archive that is replaced: nothing of the old one is returned for the new one."""
    in_zip(tmp_path)
    os.utime(tmp_path / "a.zip", (1e9, 1e9))
    names = list(MEMBERS)[:200:10]
    with Counting(Local(tmp_path)).open_container("a.zip") as container:
        assert list(cached(container, folder).read_many(names)) == [MEMBERS[name] for name in names]
    other = {name: noise(len(data), 9) for name, data in MEMBERS.items()}
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for name, data in other.items():
            archive.writestr(name, data)
    os.utime(tmp_path / "b.zip", (1e9, 1e9))
    (tmp_path / "b.zip").replace(tmp_path / "a.zip")
    with Counting(Local(tmp_path)).open_container("a.zip") as container:
        assert list(cached(container, folder).read_many(other)) == list(other.values())


def test_blocks_of_many_ranges_come_by_one_request_and_those_in_gaps_are_admitted(folder: str) -> None:
    memory = Memory()
    data = noise(64 * BLOCK)
    memory.write_bytes("large.bin", data)
    store = Counting(memory)
    with cached(store, folder).open_blob("large.bin") as blob:
        ranges = [(100, 0), (10, BLOCK + 5), (50, 4 * BLOCK), (0, 7), (3, 40 * BLOCK), (BLOCK, 41 * BLOCK - 7)]
        assert blob.pread_many(ranges) == [data[offset : offset + size] for size, offset in ranges]
        assert store.requests == [(5 * BLOCK, 0), (2 * BLOCK, 40 * BLOCK)]
        assert blob.pread(3 * BLOCK, 2 * BLOCK) == data[2 * BLOCK : 5 * BLOCK]
        assert len(store.requests) == 2, "blocks 2 and 3 lay in a gap"
        many = [(BLOCK // 2, number * BLOCK + 9) for number in range(63)]
        assert blob.pread_many(many) == [data[offset : offset + size] for size, offset in many]


def test_files_of_a_store_that_takes_requests_come_by_one_call(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    everything = [*NAMES, "large.bin"]
    assert list(fs.read_many(everything)) == [*CONTENTS, noise(50_000)]
    assert (far.many, far.asked) == ([everything], 0), "no file was asked for before"
    blocks = -(-50_000 // BLOCK)
    assert fs.status()["disk"]["entries"] == 20 + blocks, "and nothing is written but the contents"
    far.inner.write_bytes("07.bin", b"new")
    assert list(fs.read_many(everything))[7] == b"new"
    assert far.many[1:] == [["07.bin"]], "what is missing, and nothing else"
    with cached(far, folder).open_blob("large.bin") as blob:
        assert blob.pread(100, 30_000) == noise(50_000)[30_000:30_100]
    assert len(far.many) == 2


def test_an_error_comes_after_what_was_before_it(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    found = fs.read_many([*NAMES[:5], "no such", NAMES[6]])
    assert [next(found) for _ in range(5)] == CONTENTS[:5]
    with pytest.raises(FileNotFoundError, match="no%20such"):
        next(found)
    assert fs.status()["disk"]["entries"] == 5


# ---- streams

MIB = 1024 * 1024


class Streaming(Far):
    """Each blob is a stream, too, of pieces that fit no block."""

    piece = 300_001
    end = 1 << 40
    """Where a stream ends, if that is before the file's end."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.streams: list[int] = []

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return Streamed(self, key, super(Store, self)._open_blob(key, *how))


class Streamed(Ranges):
    """Notes where a stream of it begins."""

    def _stream(self, start: int) -> Iterator[memoryview]:
        store = self._store
        assert isinstance(store, Streaming)
        store.streams.append(start)
        end = min(self.size, store.end)
        for at in range(start, end, store.piece):
            yield memoryview(self._inner.pread(min(store.piece, end - at), at))


@pytest.fixture
def streaming() -> Streaming:
    memory = Memory()
    memory.write_bytes("large", noise(32 * MIB))
    return Streaming(memory)


def streamed(blob: Blob, start: int) -> bytes:
    return b"".join(readahead.pieces(blob, start))


def test_a_large_file_is_kept_as_it_streams_by(streaming: Streaming, folder: str) -> None:
    data = streaming.inner.read_bytes("large")
    options = {"block_size": MIB // 4}
    with cached(streaming, folder, **options).open_blob("large") as blob:
        blob.pread(1, 14 * MIB)
        blob.pread(9 * MIB, 17 * MIB)
        assert streamed(blob, 100) == data[100:]
    assert streaming.streams == [12 * MIB, 28 * MIB], "a block that is cached is passed over, and 9 MiB are not"
    with cached(streaming, folder, **options).open_blob("large") as blob:
        assert streamed(blob, 7) == data[7:]
    assert len(streaming.streams) == 2, "all of it is cached"


def test_a_stream_that_ends_early_is_an_error(streaming: Streaming, folder: str) -> None:
    streaming.end = 17 * MIB
    fs = cached(streaming, folder, block_size=MIB)
    with fs.open_blob("large") as blob, pytest.raises(OSError, match=f"bytes early, at {17 * MIB}"):
        streamed(blob, 0)


# ---- what does not pay


def warnings_of_caches(path: str, folder: str) -> list[list[str]]:
    """The warnings of a cache around memory, a zip, a network's files, and twice around local files."""

    def warned(inner: FS) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CachedFS(inner, folder)
        return [str(one.message) for one in caught]

    found = [warned(Memory()), warned(Local(path).open_zip("a.zip"))]
    with pytest.MonkeyPatch.context() as patch:
        disks.on(patch, lambda place: "nfs4" if place != folder else "ext4")
        found.append(warned(Local(path)))
    return [*found, warned(Local(path)), warned(Local(path))]


def test_a_cache_around_local_files_says_once_that_it_does_not_pay(tmp_path: Path, folder: str) -> None:
    in_zip(tmp_path)
    arguments = (str(tmp_path), folder)
    *others, first, second = started("spawn", "warning", warnings_of_caches, arguments, 60)  # none has warned there
    assert others == [[], [], []]
    assert [message for message in first if "around local files makes small ones slower" in message] == first != []
    assert second == []
