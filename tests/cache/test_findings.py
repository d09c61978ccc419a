"""What a cache must not do: faults that were found from outside, by subject."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import socket
import stat
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pytest

import fsabs
from fsabs import Local, Memory, StaleFileError, manifest
from fsabs.backends import local as local_backend
from fsabs.cache import CachedFS, FileCache, HTTPCachedFS, ReadOnlyFileCache
from fsabs.cache.content import ContentCache, MemoryCache
from fsabs.cache.disk import DiskCache, open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.freshness import FileRecords
from fsabs.cache.policy import Passes, ReadOrder
from fsabs.core import identity
from fsabs.core.fs import FileStat
from fsabs.disk.folders import Folder
from fsabs.manifest.layer import ManifestFS
from fsabs.testing.children import Child, forked
from tests.cache.stores import CONTENTS, NAMES, Asked, Store, cached, entry, noise

LIMITS = DiskLimits(10**7, 0)


# ---- a digest that was only claimed names nothing


def pinned(store: Memory | Local, target: Path) -> ManifestFS:
    manifest.create(store, target, versions=False)
    return ManifestFS(store, target)


def test_drifted_content_is_not_stored_under_the_digest_of_a_manifest(tmp_path: Path, folder: str) -> None:
    store = Memory()
    right, drifted = noise(50_000, 1), noise(50_000, 2)
    store.write_bytes("large", right)
    pinned(store, tmp_path / "m.jsonl").close()
    store.write_bytes("large", drifted)
    fs = cached(ManifestFS(store, tmp_path / "m.jsonl"), folder)
    with pytest.raises(StaleFileError, match="sha256"):
        fs.read_bytes("large")
    with fs.open_blob("large") as blob:
        blob.pread_many([(100, 0), (100, 30_000)])
    store.write_bytes("large", right)
    assert fs.read_bytes("large") == right
    with fs.open("large", "rb") as file:
        assert file.read() == right


def test_blocks_that_are_read_whole_are_compared_with_the_digest(tmp_path: Path, folder: str) -> None:
    """Also where some of them were cached by a read of a part."""
    store = Memory()
    store.write_bytes("large", noise(50_000, 1))
    fs = cached(pinned(store, tmp_path / "m.jsonl"), folder)
    store.write_bytes("large", noise(50_000, 2))
    with fs.open_blob("large") as blob:
        assert blob.pread(100, 0) == noise(50_000, 2)[:100]
    for _ in range(2):
        with pytest.raises(StaleFileError, match="sha256"):
            fs.read_bytes("large")


def test_a_stream_of_a_pinned_file_is_compared_with_its_digest(tmp_path: Path) -> None:
    store = Local(tmp_path / "store", create=True)
    store.write_bytes("large", noise(300_000, 1))
    pins = pinned(store, tmp_path / "m.jsonl")
    assert pins.read_bytes("large") == noise(300_000, 1)
    store.write_bytes("large", noise(300_000, 2))
    with pins.open_blob("large") as blob, pytest.raises(StaleFileError, match="sha256"):
        blob.pread_many([(300_000, 0)])


def test_a_manifest_of_digests_of_local_files_is_cached(tmp_path: Path, folder: str) -> None:
    store = Local(tmp_path / "store", create=True)
    store.write_bytes("a", b"content")
    fs = cached(pinned(store, tmp_path / "m.jsonl"), folder)
    for _ in range(3):
        assert fs.read_bytes("a") == b"content"
        assert list(fs.read_many(["a"])) == [b"content"]
    assert fs.status()["hits"] == 5


# ---- times of whole seconds


def test_a_file_that_is_rewritten_within_a_second_of_a_coarse_clock(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ext4 with small inodes, vfat and sshfs."""

    def coarse(status: os.stat_result) -> str:
        second = 10**9
        changed, modified = status.st_ctime_ns // second * second, status.st_mtime_ns // second * second
        return f"{status.st_ino:x}-{modified:x}-{changed:x}-{status.st_size:x}"

    monkeypatch.setattr(local_backend, "version_of", coarse)
    monkeypatch.setattr(identity, "TICK", 0.0)
    (tmp_path / "store").mkdir()
    path = tmp_path / "store" / "a"
    fs = cached(Local(tmp_path / "store"), folder)
    while time.time() % 1 > 0.5:  # all of it within one second
        pass
    for content in (b"first", b"other"):
        path.write_bytes(content)  # in place
        assert fs.read_bytes("a") == content
    with Local(tmp_path / "store").open_blob("a") as blob:
        assert not blob.has_strong_version
    later = time.time() + 3.1
    monkeypatch.setattr(time, "time", lambda: later)
    assert [fs.read_bytes("a") for _ in range(2)] == [b"other"] * 2
    assert fs.status()["hits"] == 1


def test_the_version_of_a_local_file_has_no_device(tmp_path: Path) -> None:
    """The same filesystem has another number when it is mounted again."""
    (tmp_path / "a").write_bytes(b"content")
    status = (tmp_path / "a").stat()
    fields: Any = status.__reduce__()[1]
    other = os.stat_result((*tuple(status)[:2], status.st_dev + 1, *tuple(status)[3:]), fields[1])
    assert other.st_dev != status.st_dev
    assert local_backend.version_of(other) == local_backend.version_of(status)


# ---- folders that others can write to


def test_a_planted_link_to_a_directory_is_not_followed(tmp_path: Path, folder: str) -> None:
    victim = tmp_path / "victim"
    (victim / "3f").mkdir(parents=True)
    name = f"{1:012x}-" + "0" * 38
    for path in (victim / "precious", victim / "3f" / name):
        path.write_bytes(b"of the victim")
    os.mkdir(folder)
    os.symlink(victim, f"{folder}/entries-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = DiskCache(folder, LIMITS)
        assert not cache.put(entry(b"name", "url"), b"content", ReadOrder())
        assert cache.verify() == []
        cache.clear()
    assert sorted(path.name for path in victim.rglob("*")) == sorted(["3f", "precious", name])


def test_a_planted_fifo_is_a_miss_at_once(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    [path] = tmp_path.glob("entries-1/??/*")
    path.unlink()
    os.mkfifo(path)

    def read() -> Any:
        return (
            cache.get(entry(b"name", "url")),
            cache.verify(),
            cache.put(entry(b"name", "url"), b"content", ReadOrder()),
        )

    assert forked("reading", [read], 10) == [(None, [], True)]
    assert cache.get(entry(b"name", "url")) == b"content"
    assert stat.S_ISREG(path.stat().st_mode)


def test_what_is_not_of_our_format_is_not_removed(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(40_000, 0))
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    [path] = tmp_path.glob("entries-1/??/*")
    strange = [path.parent / "notes.txt", tmp_path / "entries-1" / "notes.txt", tmp_path / "notes.txt"]
    for one in strange:
        one.write_bytes(b"x" * 5000)
    for number in range(50):
        cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), ReadOrder([f"url {number}"]))
    assert cache.verify() == []
    cache.clear()
    assert all(one.exists() for one in strange)


def test_clear_leaves_a_folder_that_can_be_used_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        cache = DiskCache(str(tmp_path / "a" / "cache"), LIMITS)
        other = DiskCache(str(tmp_path / "a" / "cache"), LIMITS)
        assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
        assert other.get(entry(b"name", "url")) == b"content"
        cache.clear()
        other.put(entry(b"next", "url"), b"content", ReadOrder())
        for again in (cache, other, DiskCache(str(tmp_path / "a" / "cache"), LIMITS)):
            assert again.put(entry(b"name", "url"), b"content", ReadOrder())
            assert again.get(entry(b"name", "url")) == b"content"
    finally:
        os.umask(before)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "entries-1").mkdir()
    (tmp_path / "entries-1").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert not DiskCache(str(tmp_path), LIMITS).put(entry(b"name", "url"), b"content", ReadOrder())


# ---- the limit


def test_what_the_release_before_kept_is_read_and_its_logs_are_freed(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    for name in ("usage", "marks", "leases"):
        (tmp_path / "entries-1" / name).write_bytes(bytes(5000))
    again = DiskCache(str(tmp_path), LIMITS)
    assert again.get(entry(b"name", "url")) == b"content"
    assert sorted(path.name for path in (tmp_path / "entries-1").iterdir() if path.is_file()) == ["claims", "count"]


def test_evicted_entries_are_not_reported_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    for number in range(20):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), ReadOrder())
    opened = Folder.open

    def evicted_meanwhile(folder: Folder, path: str, *flags: int) -> int:
        (tmp_path / "entries-1" / path).unlink(missing_ok=True)
        return opened(folder, path, *flags)

    monkeypatch.setattr(Folder, "open", evicted_meanwhile)
    assert cache.verify() == []


def test_hits_of_forked_workers_are_figures_of_the_run(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert forked("workers", [lambda: len(list(fs.read_many(NAMES)))] * 4, 20) == [20] * 4
    status = fs.status()
    assert (status["hits"], status["misses"]) == (80, 20)


def test_who_waited_for_anothers_fetch_is_neither_a_miss_nor_a_hit(store: Store, folder: str) -> None:
    class Slow(Asked):
        def _open_blob(self, key: str) -> Any:
            time.sleep(0.02)
            return super()._open_blob(key)

    fs = cached(Slow(store.inner), folder)
    names = NAMES[:10]
    forked("workers", [lambda: [fs.read_bytes(name) for name in names]] * 3, 30)
    status = fs.status()
    assert status["misses"] == 10


# ---- signals


def test_a_memory_goes_on_after_an_exception_of_a_signal_handler() -> None:
    memory, order = MemoryCache(3000, Passes()), ReadOrder(f"u{number}" for number in range(100))

    class Interrupting(bytes):
        """A content, for which a signal comes as its size is asked for when it has been dropped."""

        def __len__(self) -> int:
            if putting and len(memory) == 2:
                putting.clear()
                raise KeyboardInterrupt
            return super().__len__()

    putting: list[bool] = []
    for number in (90, 91, 92):
        assert memory.put(b"%d" % number, f"u{number}", Interrupting(1000), order)
    putting.append(True)
    with pytest.raises(KeyboardInterrupt):
        memory.put(b"1", "u1", bytes(1000), order)
    assert len(memory) == 2
    for number in range(2, 30):
        memory.put(b"%d" % number, f"u{number}", bytes(1000), order)
    assert memory.size == 1000 * len(memory) <= 3000


def test_a_constructor_that_fails_closes_its_descriptor_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = os.close

    def noted(fd: int) -> None:
        closed.append(fd)
        close(fd)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fsabs.cache.items.table.mmap.mmap", interrupted)
        patch.setattr(os, "close", noted)
        with pytest.raises(KeyboardInterrupt):
            FileCache(10, dir=tmp_path)
    assert len(closed) == len(set(closed))
    with FileCache(10, dir=tmp_path) as cache:
        assert cache.put(0, b"x")
    assert os.listdir(tmp_path) == []


# ---- stores through fsspec


def test_a_store_through_fsspec_is_cached_by_its_etags(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Tagged(MemoryFileSystem):  # type: ignore[misc]
        protocol = "oss"
        store: dict[str, Any] = {}  # noqa: RUF012
        pseudo_dirs = [""]  # noqa: RUF012
        read = 0

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(MemoryFileSystem._strip_protocol(path.replace("oss://", "memory://")))

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return self._tagged(super().info(path, **options))

        def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
            return [self._tagged(one) for one in super().ls(path, detail=True, **options)]

        def _tagged(self, info: dict[str, Any]) -> dict[str, Any]:
            info = {name: info[name] for name in ("name", "size", "type")}
            if info["type"] == "file":
                info["ETag"] = hashlib.md5(self.store[info["name"]].getvalue()).hexdigest()
            return info

        def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
            Tagged.read += 1
            return bytes(super().cat_file(path, start, end, **options))

    fsspec.register_implementation("oss", Tagged, clobber=True)
    inner = fsabs.from_url("oss://bucket/data")
    for number in range(10):
        inner.write_bytes(f"{number}", b"content %d" % number)
    fs = CachedFS(inner, folder, min_free=0, memory_bytes=0)
    names = [f"{number}" for number in range(10)]
    for _ in range(3):
        assert [fs.read_bytes(name) for name in names] == [b"content %d" % number for number in range(10)]
        assert list(fs.read_many(names)) == [b"content %d" % number for number in range(10)]
    assert Tagged.read == 10
    assert CachedFS(inner, folder, min_free=0).warm("", progress=lambda files, size: None).fetched == 0
    inner.write_bytes("3", b"another")
    assert CachedFS(inner, folder, min_free=0).read_bytes("3") == b"another"


# ---- pins


def test_a_pin_returns_what_is_kept(store: Store, folder: str) -> None:
    store.inner.write_bytes("huge", noise(400_000))
    fs = cached(store, folder, max_bytes=100_000)
    assert 0 < fs.pin(["huge"]) <= 100_000
    fs.unpin(["huge"])
    fs.clear()
    assert cached(store, f"{folder}/other", max_bytes=0).pin(["00.bin"]) == 0


def test_what_is_only_in_memory_is_stored_when_it_is_pinned(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=40_960, memory_bytes=10**6)
    for number in range(30):
        store.inner.write_bytes(f"x{number}", noise(3000, number))
        fs.read_bytes(f"x{number}")
    assert fs.pin(["x29"]) == 3000, "the cache was full, and kept what it had"
    store.opened.clear()
    assert cached(store, folder, max_bytes=40_960).read_bytes("x29") == noise(3000, 29)
    assert not store.reads


def test_an_old_version_is_unpinned_too(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    fs.pin(["00.bin", "large.bin"])
    for name in ("00.bin", "large.bin"):
        store.inner.write_bytes(name, noise(50_000, 5))
    fs.unpin(["00.bin", "large.bin"])
    assert all(path.stat().st_mode & 0o200 for path in Path(folder).glob("entries-1/??/*"))


def test_a_pin_takes_the_place_of_that_of_an_earlier_version(store: Store, folder: str) -> None:
    """Each would hold its room for ever else, until nothing more fits."""
    fs = cached(store, folder, max_bytes=150_000)
    for seed in range(6):
        store.inner.write_bytes("large.bin", noise(50_000, seed))
        assert fs.pin(["large.bin"]) == 50_000


# ---- workers that are stopped, and servers that are slow


def test_a_stopped_worker_costs_the_others_one_wait(store: Store, folder: str) -> None:
    """And not a second for each file that it was about to fetch."""
    for number in range(40):
        store.inner.write_bytes(f"x{number:02}", noise(500, number))
    names = [f"x{number:02}" for number in range(40)]

    class Stopping(Store):
        def _read_many_versioned(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[Any]:
            os.kill(os.getpid(), signal.SIGSTOP)
            yield from super()._read_many_versioned(wanted, concurrency)

    stopped = Child("stopped", lambda: list(cached(Stopping(store.inner), folder).read_many(names)), 60)
    fs = cached(store, folder)
    claims = Path(folder, "entries-1", "claims")
    deadline = time.monotonic() + 20
    while not (claims.exists() and any(claims.read_bytes())) and time.monotonic() < deadline:
        pass
    began = time.monotonic()
    for name, number in zip(names, range(40), strict=True):
        assert fs.read_bytes(name) == noise(500, number)
    assert time.monotonic() - began < 10, "40 seconds, if it waits for each"
    stopped.kill()


class SlowServer:
    """Takes the body of a PUT at 4 MB/s, and says that it is stored."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.taken = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while line := file.readline():
                method, length = line.split()[0], 0
                while (header := file.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                while length:
                    piece = file.read(min(length, 1 << 16))
                    length -= len(piece)
                    time.sleep(1 / 64)
                self.taken += method == b"PUT"
                status = b"201 Created" if method == b"PUT" else b"404 Not Found"
                connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)


def test_an_upload_to_an_http_cache_may_take_as_long_as_its_bytes_do() -> None:
    server, memory = SlowServer(), Memory()
    memory.write_bytes("large", noise(3_000_000))
    fs = HTTPCachedFS(f"http://127.0.0.1:{server.port}/c", memory, timeout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fs.read_bytes("large") == noise(3_000_000)
    assert server.taken == 1
    server.listening.shutdown(socket.SHUT_RDWR)
    server.listening.close()


# ---- items of others


def test_items_that_others_may_have_written_are_not_unpickled(tmp_path: Path) -> None:
    with FileCache(5, dir=tmp_path, do_pickle=True) as cache:
        cache.put(0, ["item"])
        cache.preserve("kept")
    (tmp_path / "kept").chmod(0o666)
    for kind in (FileCache, ReadOnlyFileCache):
        with kind(5, dir=tmp_path, do_pickle=True) as again, pytest.raises(PermissionError, match="private"):
            again.preload("kept")
    (tmp_path / "kept").chmod(0o600)
    os.rename(tmp_path / "kept", tmp_path / "elsewhere")
    os.symlink("elsewhere", tmp_path / "kept")
    with ReadOnlyFileCache(5, dir=tmp_path, do_pickle=True) as again, pytest.raises(OSError):
        again.preload("kept")


def test_without_a_cache_directory_items_lie_in_a_folder_of_this_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with FileCache(5) as cache:
        status = os.stat(cache.dir)
        assert cache.dir != str(tmp_path)
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
    os.rmdir(cache.dir)
    os.mkdir(cache.dir, 0o700)
    os.chmod(cache.dir, 0o777)
    with pytest.raises(PermissionError):
        FileCache(5)


def test_two_caches_of_a_folder_in_one_process_share_what_is_there(tmp_path: Path) -> None:
    one, other = open_disk(str(tmp_path), LIMITS), open_disk(str(tmp_path), DiskLimits(10**6, 0))
    assert one.put(entry(b"name", "url"), b"content", ReadOrder())
    assert other.get(entry(b"name", "url")) == b"content"


def test_a_pin_stays_when_the_file_is_read_anew(store: Store, folder: str) -> None:
    """By a process that knows nothing of it, and asks for the content in place of the version."""

    class Far(Store):
        capabilities = Memory.capabilities._replace(stat_is_request=True)

    far = Far(store.inner)
    assert cached(far, folder, check_interval=60.0).pin(["00.bin"]) == 1000
    assert list(cached(far, folder, check_interval=60.0).read_many(["00.bin"])) == CONTENTS[:1]
    assert far.opened == {"00.bin": 2}
    assert [path.stat().st_mode & 0o777 for path in Path(folder).glob("entries-1/??/*")] == [0o400]


def test_what_was_chosen_for_eviction_and_then_pinned_stays(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(20 * 4096, 0))
    order = ReadOrder(["new 0", "new 1", *(f"url {number}" for number in range(20))])
    for number in range(20):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), order)
    assert cache.put(entry(b"new 0", "new 0"), bytes(3000), order)
    assert cache.get(entry(b"19", "url 19")) is None, "what is needed last goes first"
    assert cache.pin(entry(b"18", "url 18"))
    assert cache.put(entry(b"new 1", "new 1"), bytes(3000), order)
    assert cache.get(entry(b"18", "url 18")) == bytes(3000)


# ---- descriptors


def _opened_after(stack: contextlib.ExitStack, folder: Path) -> list[BinaryIO]:
    """Files that have taken the numbers of all descriptors that were closed."""
    return [stack.enter_context(open(folder / f"other {number}", "wb")) for number in range(20)]


def test_a_fetch_that_ends_after_its_folder_was_removed_writes_into_no_other_file(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), LIMITS)
    claims = cache.claims()
    assert claims.claim(5)
    shutil.rmtree(tmp_path / "cache")
    cache.clear()  # finds another folder at its path, and leaves the one that is gone
    with contextlib.ExitStack() as stack:
        files = _opened_after(stack, tmp_path)
        claims.release(5)
        assert {os.fstat(file.fileno()).st_size for file in files} == {0}


def test_an_item_that_is_made_while_its_cache_is_closed_writes_into_no_other_file(tmp_path: Path) -> None:
    cache = FileCache(10, dir=tmp_path / "items")
    with contextlib.ExitStack() as stack:
        files: list[BinaryIO] = []

        def make(number: int) -> bytes:
            cache.close()
            files.extend(_opened_after(stack, tmp_path))
            return b"made"

        assert cache.get_and_cache(3, make) == b"made"
        assert {os.fstat(file.fileno()).st_size for file in files} == {0}


def test_a_process_without_descriptors_removes_no_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())

    def too_many(*arguments: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("fsabs.cache.disk.open_ours_with_status", too_many)
        with pytest.warns(RuntimeWarning, match="Too many open files"):
            assert cache.get(entry(b"name", "url")) is None
    assert cache.get(entry(b"name", "url")) == b"content"


def test_a_disk_that_tells_nothing_of_its_room_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(4096, 0))

    def not_connected(folder: Folder) -> int:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    monkeypatch.setattr("fsabs.cache.disk.free", not_connected)
    with pytest.warns(RuntimeWarning, match="not connected"):
        assert not cache.put(entry(b"large", "url"), bytes(5000), ReadOrder())


# ---- changes that end in an error


@pytest.mark.parametrize("change", ["rename", "copy", "remove"])
def test_what_may_have_changed_is_asked_for_anew(store: Store, folder: str, change: str) -> None:
    """The response was lost, and the change was made."""

    class Lost(Asked):
        def _lost(self, *arguments: Any) -> None:
            getattr(self.inner, f"_{change}")(*arguments)
            raise TimeoutError(errno.ETIMEDOUT, "no response")

    setattr(Lost, f"_{change}", Lost._lost)
    fs = cached(Lost(store.inner), folder, check_interval=1e9)
    assert list(fs.read_many(NAMES)) == CONTENTS
    with pytest.raises(TimeoutError):
        fs.remove("00.bin") if change == "remove" else getattr(fs, change)("00.bin", "01.bin")
    if change in ("rename", "copy"):
        assert fs.read_bytes("01.bin") == CONTENTS[0]
    if change in ("rename", "remove"):
        with pytest.raises(FileNotFoundError):
            fs.read_bytes("00.bin")


def test_what_costs_no_request_is_not_walked_to_be_forgotten(store: Store, folder: str) -> None:
    class Closed(Store):
        def _walk(self, key: str) -> Iterator[Any]:
            raise PermissionError(errno.EACCES, "a directory that may not be listed")

    fs = cached(Closed(store.inner), folder, check_interval=60.0)
    fs.rename("dir", "moved")
    assert fs.read_bytes("moved/deep/ünï code %1.txt") == "héllo\n".encode()


def test_a_stat_from_before_a_change_is_not_left_for_other_processes(tmp_path: Path) -> None:
    records = FileRecords("store", ContentCache(DiskCache(str(tmp_path), LIMITS), 0), True)
    stat, asked = FileStat("a", 5, version="old"), time.time()
    records.forget("url")
    records.save("url", records.remember("url", stat, asked))
    assert records.recall("url") is None


def test_a_stat_that_another_process_asked_for_before_a_change_is_not_taken(tmp_path: Path) -> None:
    mine, others = (FileRecords("store", ContentCache(DiskCache(str(tmp_path), LIMITS), 0), True) for _ in range(2))
    stat, asked = FileStat("a", 5, version="old"), time.time()
    others.save("other", others.remember("other", stat, asked))
    mine.forget("url")
    others.save("url", others.remember("url", stat, asked))
    assert mine.recall("url") is None
    assert mine.recall("url") is None
    assert mine.recall("other") is not None
    others.save("url", others.remember("url", stat, time.time()))
    assert mine.recall("url") is not None


def test_a_change_while_a_stat_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = DiskCache(str(tmp_path), LIMITS)
    records, put = FileRecords("store", ContentCache(disk, 0), True), disk.put

    def put_late(*args: Any, **options: Any) -> bool:
        records.forget("url")
        return put(*args, **options)

    monkeypatch.setattr(disk, "put", put_late)
    records.save("url", records.remember("url", FileStat("a", 5, version="old"), time.time()))
    for one in (records, FileRecords("store", ContentCache(disk, 0), True)):
        assert one.recall("url") is None


def test_a_large_file_that_another_program_has_replaced_is_found_by_the_next_open(store: Store, folder: str) -> None:
    fs = cached(Asked(store.inner), folder, check_interval=1e9)
    with fs.open("large.bin", "rb", 16) as file:
        assert file.read(10) == noise(50_000)[:10]
    store.inner.write_bytes("large.bin", noise(50_000, 1))
    with fs.open("large.bin", "rb", 16) as file, pytest.raises(StaleFileError):
        file.seek(30_000)
        file.read(10)
    with fs.open("large.bin", "rb", 16) as file:
        assert file.read() == noise(50_000, 1)


# ---- what is not small


def test_an_empty_file_that_was_asked_for_takes_no_request(store: Store, folder: str) -> None:
    asked = Asked(store.inner)
    fs = cached(asked, folder, check_interval=1e9)
    for _ in range(2):
        assert fs.read_bytes("empty") == fs.open("empty", "rb").read() == b""
        assert list(fs.read_many(["empty", "00.bin", "empty"])) == [b"", CONTENTS[0], b""]
    assert asked.opened == {"00.bin": 1}


def test_large_files_of_a_batch_are_fetched_at_the_same_time(store: Store, folder: str) -> None:
    class Slow(Asked):
        threads: ClassVar[set[int]] = set()

        def _open_blob(self, key: str) -> Any:
            self.threads.add(threading.get_ident())
            time.sleep(0.01)
            return super()._open_blob(key)

    names = [f"large {number}" for number in range(12)]
    for number, name in enumerate(names):
        store.inner.write_bytes(name, noise(20_000, number))
    slow = Slow(store.inner)
    fs = cached(slow, folder, check_interval=1e9)
    for _ in range(2):
        assert list(fs.read_many(names, concurrency=4)) == [noise(20_000, number) for number in range(12)]
    assert len(slow.threads) > 1
    assert set(slow.opened.values()) == {1}


def test_a_prefetch_that_nobody_follows_ends(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    first = fs.prefetch(NAMES, max_bytes=3000)
    assert first.wait(0.2).files == 3
    assert not first.done, "it waits for the reader"
    second = fs.prefetch(NAMES[10:], max_bytes=3000)
    assert first.wait(10).files == 3
    assert first.done
    fs.close()
    assert second.wait(10).files <= 4
    assert second.done
