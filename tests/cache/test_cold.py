"""What the first reading of a file costs its store; streams of large files; and contents across a fork."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS, blocks, disk
from fsabs.cache.content import ContentCache, MemoryCache
from fsabs.cache.disk import open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import Passes, ReadOrder
from fsabs.core import readahead
from fsabs.core.blobs import Blob
from fsabs.core.layers import lazify
from fsabs.testing.children import forked
from tests.cache.stores import BLOCK, CONTENTS, NAMES, Ranges, Store, cached, entry, noise

pytestmark = pytest.mark.quick


class Far(Store):
    """A store of which each call is a request, and each open blob a stream."""

    default_concurrency = 4
    capabilities = Memory.capabilities._replace(stat_is_request=True)
    streams: ClassVar[list[int]] = []

    def _open_blob(self, key: str) -> Blob:
        self._check()
        self.opened[key] += 1
        return Streamed(self, key, self.inner._open_blob(key))


class Streamed(Ranges):
    """Gives pieces that fit no block."""

    piece = 3001
    end = 1 << 40
    """Where the stream ends, if that is before the file's end."""

    def _stream(self, start: int) -> Iterator[memoryview]:
        assert isinstance(self._store, Far)
        self._store.streams.append(start)
        end = min(self.size, self.end)
        for at in range(start, end, self.piece):
            yield memoryview(self._inner.pread(min(self.piece, end - at), at))


@pytest.fixture
def far(store: Store) -> Far:
    Far.streams = []
    return Far(store.inner)


# ---- one request


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


def test_what_was_opened_so_is_never_stale(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    for number in range(3):
        far.inner.write_bytes("00.bin", b"%d" % number)
        assert fs.read_bytes("00.bin") == b"%d" % number
        fs.write_bytes("01.bin", b"own %d" % number)
        assert fs.open("01.bin", "rb").read() == b"own %d" % number
        fs.remove("01.bin")
        with pytest.raises(FileNotFoundError):
            fs.read_bytes("01.bin")


def test_bringing_files_in_asks_nothing_either(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    assert fs.warm("", progress=lambda files, size: None).fetched == sum(map(len, CONTENTS)) + 50_000 + len(
        "héllo\n".encode()
    )
    asked = far.asked
    assert asked <= 1, "of the folder"
    far.opened.clear()
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert far.reads == 0


# ---- streams


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read from front to back is streamed from its first byte on."""
    monkeypatch.setattr(readahead, "STREAM_AFTER", 0)


def streamed(blob: Blob, start: int) -> bytes:
    return b"".join(readahead.pieces(blob, start))


@pytest.mark.usefixtures("streaming")
def test_a_large_file_is_kept_as_it_streams_by(far: Far, folder: str) -> None:
    data = noise(50_000)
    fs = cached(far, folder)
    with fs.open_blob("large.bin") as blob:
        assert streamed(blob, 5000) == data[5000:]
        assert far.streams == [BLOCK], "from the block's start"
        far.streams.clear()
        assert streamed(blob, 100) == data[100:]
        assert far.streams == [0], "for the one block that was missing"
    with cached(far, folder).open_blob("large.bin") as blob:
        assert streamed(blob, 7) == data[7:]
    assert far.streams == [0]


@pytest.mark.usefixtures("streaming")
def test_a_stream_passes_over_what_is_kept(far: Far, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "AHEAD", 2 * BLOCK)
    data = noise(50_000)
    fs = cached(far, folder)
    with fs.open_blob("large.bin") as blob:
        blob.pread(1, 2 * BLOCK)
        blob.pread(4 * BLOCK, 5 * BLOCK)
        assert streamed(blob, 0) == data
    assert far.streams == [0, 9 * BLOCK], "one block is passed over, four are not"


@pytest.mark.usefixtures("streaming")
def test_a_store_without_streams_gives_several_blocks_at_once(store: Store, folder: str) -> None:
    with cached(store, folder).open_blob("large.bin") as blob:
        assert streamed(blob, 0) == noise(50_000)
    assert store.ranges == [(50_000, 0)]


@pytest.mark.usefixtures("streaming")
def test_a_stream_that_ends_early_is_an_error(far: Far, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streamed, "end", 5)
    with cached(far, folder).open_blob("large.bin") as blob, pytest.raises(OSError, match="49995 bytes early, at 5"):
        streamed(blob, 0)


# ---- threads and forks


class Resolving(Far):
    """Counts how often its store is resolved."""

    resolved = 0

    def _resolved_store(self) -> str:
        self.resolved += 1
        return self.inner._resolved_store()


def test_each_process_resolves_the_store(store: Store, folder: str) -> None:
    """Another one may have another environment."""
    far = Resolving(store.inner)
    fs = cached(far, folder)

    def resolved() -> int:
        assert fs.read_bytes("00.bin") == CONTENTS[0]
        return far.resolved

    assert forked("children", [resolved] * 2, 10) == [1, 1]
    assert resolved() == 1
    again = pickle.loads(pickle.dumps(fs))
    assert again.read_bytes("00.bin") == CONTENTS[0]
    assert again.inner.resolved == 2


def test_a_store_that_is_made_in_each_process_is_resolved_in_each(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a").write_bytes(b"a")
    lazy = lazify(lambda: Resolving(Local(tmp_path)))
    fs = cached(lazy, folder)

    def child() -> object:
        return fs.read_bytes("a"), lazy.inner.resolved  # type: ignore[attr-defined]

    assert forked("a child", [child], 10) == [(b"a", 1)]


def test_a_fork_while_a_thread_fetches_leaves_the_child_nothing_to_wait_for() -> None:
    """Its parent's thread is not there to bring it."""
    contents, part = ContentCache(None, 1000), entry(b"x", "memory:x")
    started, go_on = threading.Event(), threading.Event()

    def slow(numbers: Sequence[int]) -> Iterable[bytes]:
        started.set()
        go_on.wait(30)
        return [b"parent's"]

    thread = threading.Thread(target=contents.fetch, args=([part], slow))
    thread.start()
    assert started.wait(30)
    mine = forked("a child", [lambda: contents.fetch([part], lambda numbers: [b"child's"])] * 2, 10)
    go_on.set()
    thread.join()
    assert mine == [[b"child's"]] * 2
    assert contents.lookup(part) == b"parent's"


def test_forks_while_threads_fill_the_memory(folder: str) -> None:
    memory = Memory()
    for name, data in zip(NAMES, CONTENTS, strict=True):
        memory.write_bytes(name, data)
    fs = cached(Store(memory), folder, memory_bytes=5000, max_bytes=100_000)
    stop = threading.Event()

    def fill() -> None:
        while not stop.is_set():
            assert list(fs.read_many(NAMES)) == CONTENTS

    threads = [threading.Thread(target=fill) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            forked("a child of busy threads", [lambda: list(fs.read_many(NAMES)) == CONTENTS or os._exit(1)] * 2, 20)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_threads_that_keep_one_item_at_once_keep_it_once() -> None:
    memory = MemoryCache(100, Passes())

    class Overtaken(ReadOrder):
        """While one thread looks for the item's place in the order, another one puts it."""

        def need(self, key: int) -> float:
            memory.put(b"x", "", bytes(60), ReadOrder())
            return super().need(key)

    assert not memory.put(b"x", "", bytes(60), Overtaken())
    assert (len(memory), memory.size) == (1, 60)
    memory.put(b"y", "", bytes(60), ReadOrder())
    memory.put(b"z", "", bytes(60), ReadOrder())
    assert (len(memory), memory.size) == (1, 60)


def test_records_of_a_cache_without_a_disk(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    fs = CachedFS(far)
    for _ in range(3):
        assert fs.read_bytes("00.bin") == CONTENTS[0]
    assert (far.opened["00.bin"], far.asked) == (1, 0)


def test_a_child_cancels_its_parents_prefetch_in_vain(far: Far, folder: str) -> None:
    fs = cached(far, folder)
    fetching = fs.prefetch(NAMES, max_bytes=0)
    assert forked("a child", [fetching.cancel], 10) == [None]
    assert not fetching.done
    fetching.cancel()
    assert fetching.done


def test_two_threads_prepare_the_folder_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_disk(folder, DiskLimits(10**6, 0))
    prepare, prepared = disk.OpenFolder, []

    def slow(*arguments: Any) -> Any:
        prepared.append(arguments)
        time.sleep(0.2)
        return prepare(*arguments)

    monkeypatch.setattr(disk, "OpenFolder", slow)
    put = [(entry(b"%d" % number, f"url {number}"), bytes(100), ReadOrder()) for number in range(4)]
    threads = [threading.Thread(target=cache.put, args=arguments) for arguments in put]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(prepared) == 1
    assert all(cache.has(one) for one, _, _ in put)
