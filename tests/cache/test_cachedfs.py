"""CachedFS: what it keeps and for how long, who fetches, what its own writes do, offline."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fsabs import from_url, lazify, manifest, trace
from fsabs.backends import local
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache import backoff
from fsabs.core import identity
from fsabs.core.blobs import Blob
from fsabs.core.errors import StaleFileError
from fsabs.core.fs import FileStat
from fsabs.core.layers import LayerFS
from fsabs.manifest.layer import ManifestFS
from fsabs.trace.results import CacheUse
from tests import disks
from tests.cache.stores import BLOCK, CONTENTS, NAMES, REQUESTS, Asked, Far, Store, Versionless, cached, noise

pytestmark = pytest.mark.quick

# ---- hits and misses


@pytest.mark.parametrize("memory", [0, 1_000_000])
def test_what_was_read_is_not_read_again(store: Store, folder: str, memory: int) -> None:
    fs = cached(store, folder, memory_bytes=memory)
    for _ in range(3):
        assert [fs.read_bytes(name) for name in NAMES] == CONTENTS
        assert [fs.open(name, "rb").read() for name in NAMES] == CONTENTS
        assert list(fs.read_many(NAMES)) == CONTENTS
        assert fs.open("dir/deep/ünï code %1.txt", encoding="utf-8").read() == "héllo\n"
        assert fs.read_bytes("empty") == b""
    store.opened.pop("empty")
    assert set(store.opened.values()) == {1}
    other = cached(store, folder, memory_bytes=memory)
    assert list(other.read_many(NAMES)) == CONTENTS
    assert set(store.opened.values()) == {1}
    counts = fs.status()
    assert counts["misses"] == 21
    assert counts["memory_hits"] == (counts["hits"] if memory else 0)


def test_many_are_asked_of_the_store_together_and_only_those_that_are_missing(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    for name in NAMES[::3]:
        fs.read_bytes(name)
    assert list(fs.read_many([*NAMES, *NAMES[:5]])) == CONTENTS + CONTENTS[:5]
    assert store.many == [[name for name in NAMES if name not in NAMES[::3]]]
    stream = fs.read_many(["00.bin", "no such", "01.bin"])
    assert next(stream) == CONTENTS[0]
    with pytest.raises(FileNotFoundError) as caught:
        next(stream)
    assert caught.value.filename == store.url("no such")


def test_files_of_a_store_that_takes_its_time_are_fetched_at_the_same_time(store: Store, folder: str) -> None:
    class Slow(Far):
        threads: ClassVar[set[int]] = set()

        def _open_blob(self, key: str, *how: Any) -> Blob:
            self.threads.add(threading.get_ident())
            time.sleep(0.001)
            return super()._open_blob(key, *how)

    large = [f"large {number}" for number in range(12)]
    for number, name in enumerate(large):
        store.inner.write_bytes(name, noise(20_000, number))
    for names, contents in ((NAMES, CONTENTS), (large, [noise(20_000, number) for number in range(12)])):
        slow = Slow(store.inner)
        slow.threads.clear()
        fs = cached(slow, folder, check_interval=1e9)
        for _ in range(3):
            assert list(fs.read_many(names, concurrency=4)) == contents
        assert threading.get_ident() not in slow.threads
        assert len(slow.threads) > 1
        assert slow.asked == 0, "opening a file tells its version, too"
        assert set(slow.opened.values()) == {1}


def test_an_empty_file_that_was_asked_for_takes_no_request(store: Store, folder: str) -> None:
    asked = Asked(store.inner)
    fs = cached(asked, folder, check_interval=1e9)
    for _ in range(2):
        assert fs.read_bytes("empty") == fs.open("empty", "rb").read() == b""
        assert list(fs.read_many(["empty", "00.bin", "empty"])) == [b"", CONTENTS[0], b""]
    assert asked.opened == {"00.bin": 1}


def test_a_trace_tells_of_hits_and_misses(store: Store, folder: str, tmp_path: Path) -> None:
    fs = cached(store, folder)
    with trace.record(tmp_path / "trace"):
        for _ in range(3):
            assert list(fs.read_many(NAMES)) == CONTENTS
        fs.read_bytes("large.bin")
    counts = fs.status()
    assert (counts["hits"], counts["misses"]) == (40, 20 + 13)
    assert trace.analyze(tmp_path / "trace").cache == CacheUse(hits=40, misses=33, evictions=0)


@pytest.mark.parametrize("how", ["read_bytes", "read_many", "open"])
def test_a_hit_on_disk_is_one_open_and_one_read(
    store: Store, folder: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = cached(store, folder, memory_bytes=0)
    for _ in range(3):
        assert list(fs.read_many(NAMES)) == CONTENTS
    calls: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return call(*args, **options)

        return counting

    for name in ("open", "pread", "read", "stat", "lstat", "access", "write", "pwrite", "statvfs", "scandir", "kill"):
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    if how == "read_bytes":
        found = fs.read_bytes("05.bin")
    elif how == "read_many":
        [found] = fs.read_many(["05.bin"])
    else:
        with fs.open("05.bin", "rb") as file:
            found = file.read()
    assert (found, calls) == (CONTENTS[5], ["open", "pread"])


def test_large_files_are_kept_by_blocks(store: Store, folder: str) -> None:
    data = noise(50_000)
    fs = cached(store, folder)
    with fs.open("large.bin", "rb", 16) as file:
        file.seek(10_000)
        assert file.read(10) == data[10_000:10_010]
        assert store.ranges == [(BLOCK, 2 * BLOCK)], "one block of it"
        file.seek(10_000)
        assert file.read(7000) == data[10_000:17_000]
        assert store.ranges[1:] == [(2 * BLOCK, 3 * BLOCK)], "blocks that follow one another by one range"
    assert fs.read_bytes("large.bin") == data
    assert sum(size for size, _ in store.ranges) == len(data), "no byte was read twice"
    store.ranges.clear()
    again = cached(store, folder)
    with again.open("large.bin", "rb") as file:
        assert file.seek(-5, io.SEEK_END) == 49_995
        assert file.read() == data[-5:]
        assert again.read_bytes("large.bin") == data
    assert store.ranges == []


def test_members_of_a_container(tmp_path: Path, folder: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in zip(NAMES, CONTENTS, strict=True):
            archive.writestr(name, data)

    class Concurrent(Store):
        default_concurrency = 4

    members = Concurrent(Local(tmp_path).open_zip("a.zip"))
    fs = cached(members, f"{folder}/read")
    for _ in range(2):
        assert list(fs.read_many(NAMES)) == CONTENTS
    assert cached(members, f"{folder}/warm").warm().files == len(NAMES)
    assert members.many == [NAMES, NAMES], "of one file, whose list tells their versions: by one question"
    below = Store(Local(tmp_path))
    for _ in range(2):
        with cached(below, folder).open_zip("a.zip") as archive_fs:
            assert list(archive_fs.read_many(NAMES)) == CONTENTS
    assert len(below.ranges) == len(set(below.ranges)), "blocks of the archive, each once"


# ---- never stale, never another's


@pytest.mark.parametrize("kind", [Store, Far])
def test_another_version_is_never_given(store: Store, folder: str, kind: type[Store]) -> None:
    writer = store.inner
    fs = cached(kind(writer), folder, memory_bytes=100_000)
    for number in range(10):
        data = noise(1000, 100 + number)
        writer.write_bytes("00.bin", data)
        assert fs.read_bytes("00.bin") == fs.open("00.bin", "rb").read() == next(iter(fs.read_many(["00.bin"]))) == data
        fs.write_bytes("01.bin", b"own %d" % number)
        assert fs.open("01.bin", "rb").read() == b"own %d" % number
    writer.remove("00.bin")
    fs.remove("01.bin")
    for name in ("00.bin", "01.bin"):
        with pytest.raises(FileNotFoundError):
            fs.read_bytes(name)


def test_an_open_large_file_that_is_replaced_raises_and_never_mixes(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    with fs.open("large.bin", "rb", 16) as file:
        assert file.read(100) == noise(50_000)[:100]
        store.inner.write_bytes("large.bin", noise(50_000, 1))
        file.seek(20_000)
        assert file.read(10) == noise(50_000)[20_000:20_010], "Memory's blob goes on with what it opened"
    with fs.open("large.bin", "rb", 16) as file:
        store.inner.write_bytes("large.bin", noise(50_000, 2))
        assert file.read(10) == noise(50_000, 1)[:10], "and with the one that was there when it was opened"
    assert fs.read_bytes("large.bin") == noise(50_000, 2)


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


class Racing(Store):
    """The sixth of the files that are read together changes once the fifth is read."""

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        for number, found in enumerate(super()._read_many(wanted, *how)):
            if number == 4:
                self.inner.write_bytes(wanted[5], noise(1000, 77))
            yield found


def test_a_file_that_changes_while_it_is_read_many(store: Store, folder: str) -> None:
    fs = cached(Racing(store.inner), folder)
    found = list(fs.read_many(NAMES))
    assert found[5] == noise(1000, 77), "not the version that the cache had asked for"
    assert found[:5] + found[6:] == CONTENTS[:5] + CONTENTS[6:]
    assert list(fs.read_many(NAMES)) == found


def test_own_writes_show_at_once_even_where_nothing_is_asked_again(store: Store, folder: str) -> None:
    store = Asked(store.inner)
    fs = cached(store, folder, check_interval=1e9, memory_bytes=100_000)
    for name in NAMES:
        fs.read_bytes(name)
    asked = store.asked
    assert [fs.read_bytes(name) for name in NAMES] == CONTENTS
    assert store.asked == asked
    fs.write_bytes("00.bin", b"new")
    fs.rename("01.bin", "02.bin")
    fs.copy("03.bin", "04.bin")
    fs.remove("05.bin")
    with fs.open("06.bin", "ab") as file:
        file.write(b"more")
    assert fs.read_bytes("00.bin") == b"new"
    assert fs.read_bytes("02.bin") == CONTENTS[1]
    assert fs.read_bytes("04.bin") == CONTENTS[3]
    assert fs.read_bytes("06.bin") == CONTENTS[6] + b"more"
    for gone in ("01.bin", "05.bin"):
        with pytest.raises(FileNotFoundError):
            fs.read_bytes(gone)
    fs.read_bytes("dir/deep/ünï code %1.txt")
    fs.rename("dir", "moved")
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        fs.read_bytes("dir/deep/ünï code %1.txt")
    assert fs.read_bytes("moved/deep/ünï code %1.txt") == "héllo\n".encode()
    fs.remove("moved", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("moved/deep/ünï code %1.txt")


@pytest.mark.parametrize("change", ["rename", "copy", "remove"])
def test_what_may_have_changed_is_asked_for_anew(store: Store, folder: str, change: str) -> None:
    """The response was lost, and the change was made."""

    class Lost(Asked):
        def _rename(self, src: str, dst: str) -> None:
            super()._rename(src, dst)
            raise TimeoutError(errno.ETIMEDOUT, "no response")

        def _copy(self, *how: Any) -> None:
            super()._copy(*how)
            raise TimeoutError(errno.ETIMEDOUT, "no response")

        def _remove(self, key: str) -> None:
            super()._remove(key)
            raise TimeoutError(errno.ETIMEDOUT, "no response")

    fs = cached(Lost(store.inner), folder, check_interval=1e9)
    assert list(fs.read_many(NAMES)) == CONTENTS
    with pytest.raises(TimeoutError):
        fs.remove("00.bin") if change == "remove" else getattr(fs, change)("00.bin", "01.bin")
    if change != "remove":
        assert fs.read_bytes("01.bin") == CONTENTS[0]
    if change != "copy":
        with pytest.raises(FileNotFoundError):
            fs.read_bytes("00.bin")


def test_what_costs_no_request_is_not_walked_to_be_forgotten(store: Store, folder: str) -> None:
    class Closed(Store):
        def _walk(self, key: str, *how: Any) -> Iterator[Any]:
            raise PermissionError(errno.EACCES, "a directory that may not be listed")

    fs = cached(Closed(store.inner), folder, check_interval=60.0)
    fs.rename("dir", "moved")
    assert fs.read_bytes("moved/deep/ünï code %1.txt") == "héllo\n".encode()


class Conditional(Memory):
    """A store with a method of its own, as object stores have it."""

    capabilities = REQUESTS

    def write_if(self, path: str, data: bytes, version: str) -> None:
        if self.stat(path).version != version:
            raise StaleFileError(116, "another version", self.url(path))
        self.write_bytes(path, data)


def test_a_method_of_the_store_counts_from_the_root_of_the_layer_around_it(folder: str) -> None:
    memory: Any = Conditional()
    for directory in ("own", "other"):
        memory.mkdir(directory)
        memory.write_bytes(f"{directory}/state", b"old")
    memory.write_bytes("state", b"of all")
    for layer in (cached(memory, folder), LayerFS(LayerFS(memory)), lazify(lambda: memory)):
        sub: Any = layer.subfs("own")
        sub.write_if("state", b"new", memory.stat("own/state").version)
        with pytest.raises(PermissionError):
            sub.write_if("../other/state", b"new", memory.stat("other/state").version)
        layer.cwd = "own"
        cast(Any, layer).write_if("state", b"old", memory.stat("own/state").version)
        layer.cwd = "/"
        assert [memory.read_bytes(f"{name}state") for name in ("", "own/", "other/")] == [b"of all", b"old", b"old"]


def test_a_file_that_is_written_on_condition_is_read_anew(folder: str) -> None:
    memory: Any = Conditional()
    memory.write_bytes("state", b"old")
    fs = cached(memory, folder, check_interval=1e9)
    assert fs.read_bytes("state") == b"old"
    fs.write_if("state", b"new", memory.stat("state").version)
    assert fs.read_bytes("state") == b"new"
    memory.write_bytes("state", b"another's")
    with pytest.raises(StaleFileError):
        fs.write_if("state", b"newer", "0")
    assert fs.read_bytes("state") == b"another's", "who is told of a change sees it"


def test_an_archive_that_another_has_added_to_is_added_to_through_a_cache(store: Store, folder: str) -> None:
    store = Asked(store.inner)
    fs = cached(store, folder, check_interval=60)
    for number, parent in enumerate((fs, store.inner, fs)):
        with parent.open_container("a.zip", "a") as archive:
            archive.write_bytes(f"{number}", b"%d" % number)
        with fs.open_container("a.zip") as read:
            assert read.exists("0")
    assert sorted(fs.open_container("a.zip").list()) == ["0", "1", "2"]


def test_a_store_without_versions_is_cached_on_demand_only(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Versionless()
    memory.write_bytes("a", b"12345")
    store = Store(memory)
    fs = cached(store, folder)
    assert [fs.read_bytes("a") for _ in range(3)] == [b"12345"] * 3
    assert list(fs.read_many(["a"] * 2)) == [b"12345"] * 2
    assert store.reads == 5
    aged = cached(store, folder, max_age=60)
    assert [aged.read_bytes("a") for _ in range(3)] == [b"12345"] * 3
    assert store.reads == 6
    memory.write_bytes("a", b"123456")
    assert aged.read_bytes("a") == b"123456", "another size tells, too"
    now = time.time()
    for later in (61, 122, 183):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        reads = store.reads
        assert [aged.read_bytes("a") for _ in range(2)] == [b"123456"] * 2
        assert store.reads == reads + 1


class Ticking(Memory):
    """A store whose clock has not ticked since a file was written: all contents of a size have one version."""

    ticked = False

    def _stat(self, key: str, *how: Any) -> FileStat:
        return super()._stat(key, *how)._replace(version="of the tick")

    def _open_blob(self, key: str, *how: Any) -> Blob:
        blob = super()._open_blob(key, *how)
        blob.version = "of the tick"
        return blob

    def _is_strong(self, version: str) -> bool:
        return self.ticked


@pytest.mark.parametrize("size", [1000, 10_000])
def test_what_was_written_just_now_is_given_and_neither_kept_nor_pinned(folder: str, size: int) -> None:
    """Else that content would be given for what is written within the same tick, for good."""
    ticking = Ticking()
    store = Store(ticking)
    fs = cached(store, folder)
    for number in range(2):
        ticking.write_bytes("a", data := noise(size, number))
        assert fs.pin(["a"]) == 0
        assert fs.read_bytes("a") == data
        assert list(fs.read_many(["a"])) == [data]
    ticking.ticked = True
    assert fs.pin(["a"]) == size
    store.opened.clear()
    assert [fs.read_bytes("a") for _ in range(3)] == [data] * 3
    assert store.reads == 0


def test_what_was_written_within_a_second_of_a_coarse_clock_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of ext4 with small inodes, vfat and sshfs: two contents may have one version."""
    disks.ticking(monkeypatch, 0.05)
    now = 1_000_000_003.0
    monkeypatch.setattr(time, "time", lambda: now)
    assert not identity.is_older_than_a_tick(now - 2.0, now - 2.0)
    assert identity.is_older_than_a_tick(now - 3.0, now - 3.0)
    assert identity.is_older_than_a_tick(now - 2.0, now - 1.9), "a clock that has parts of a second"


def test_the_version_of_a_local_file_has_no_device(tmp_path: Path) -> None:
    """The same filesystem has another number when it is mounted again: all that was kept would be lost."""
    status = tmp_path.stat()
    fields: Any = status.__reduce__()[1]
    other = os.stat_result((*tuple(status)[:2], status.st_dev + 1, *tuple(status)[3:]), fields[1])
    assert other.st_dev != status.st_dev
    assert local.version_of(other) == local.version_of(status)


# ---- a digest that was only claimed names nothing


def test_drifted_content_is_not_kept_under_the_digest_of_a_manifest(tmp_path: Path, folder: str) -> None:
    """Neither what was read whole, nor what a read of a part has cached."""
    store, right, drifted = Memory(), noise(50_000, 1), noise(50_000, 2)
    store.write_bytes("large", right)
    manifest.create(store, tmp_path / "m.jsonl", versions=False)
    store.write_bytes("large", drifted)
    fs = cached(ManifestFS(store, tmp_path / "m.jsonl"), folder)
    with fs.open_blob("large") as blob:
        assert blob.pread(100, 0) == drifted[:100]
    for _ in range(2):
        with pytest.raises(StaleFileError, match="sha256"):
            fs.read_bytes("large")
    with fs.open_blob("large") as blob:
        blob.pread_many([(100, 0), (100, 30_000)])
    store.write_bytes("large", right)
    with fs.open("large", "rb") as file:
        assert fs.read_bytes("large") == file.read() == right


def test_a_manifest_of_digests_of_local_files_is_cached(tmp_path: Path, folder: str) -> None:
    store = Local(tmp_path / "store", create=True)
    store.write_bytes("a", b"content")
    manifest.create(store, tmp_path / "m.jsonl", versions=False)
    fs = cached(ManifestFS(store, tmp_path / "m.jsonl"), folder)
    for _ in range(3):
        assert fs.read_bytes("a") == b"content"
        assert list(fs.read_many(["a"])) == [b"content"]
    assert fs.status()["hits"] == 5


def test_a_store_through_fsspec_is_cached_by_its_etags(folder: str) -> None:
    class Tagged(MemoryFileSystem):  # type: ignore[misc]
        protocol = "oss"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("oss://", "memory://")))

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return self.tagged(super().info(path, **options))

        def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
            return [self.tagged(one) for one in super().ls(path, detail=True, **options)]

        def tagged(self, info: dict[str, Any]) -> dict[str, Any]:
            info = {name: info[name] for name in ("name", "size", "type")}
            if info["type"] == "file":
                info["ETag"] = hashlib.md5(self.store[info["name"]].getvalue()).hexdigest()
            return info

    fsspec.register_implementation("oss", Tagged, clobber=True)
    inner = from_url("oss://bucket/data")
    names = [f"{number}" for number in range(10)]
    for name in names:
        inner.write_bytes(name, name.encode())
    fs = cached(inner, folder, check_interval=60.0)
    for _ in range(3):
        assert [fs.read_bytes(name) for name in names] == [*fs.read_many(names)] == [name.encode() for name in names]
    assert fs.status()["misses"] == 10
    assert cached(inner, folder, check_interval=60.0).warm("", progress=lambda files, size: None).fetched == 0
    inner.write_bytes("3", b"another")
    assert cached(inner, folder).read_bytes("3") == b"another"


# ---- one fetch for all


def test_threads_that_miss_one_file_fetch_it_once(store: Store, folder: str) -> None:
    inner = store.inner
    gate = threading.Event()

    class Slow(Store):
        def _open_blob(self, key: str, *how: Any) -> Blob:
            gate.wait(5)
            return super()._open_blob(key, *how)

    slow = Slow(inner)
    fs = cached(slow, folder)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(fs.read_bytes("00.bin"))) for _ in range(12)]
    threads += [threading.Thread(target=lambda: found.extend(fs.read_many(["00.bin"]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    gate.set()
    for thread in threads:
        thread.join()
    assert found == [CONTENTS[0]] * 16
    assert slow.reads == 1


def test_a_fetch_that_fails_is_not_the_end_of_others(store: Store, folder: str) -> None:
    fails = iter([True] + [False] * 20)
    begun = threading.Event()

    class Failing(Store):
        def _open_blob(self, key: str, *how: Any) -> Blob:
            begun.set()
            time.sleep(0.05)
            if next(fails):
                raise TimeoutError("no answer")
            return super()._open_blob(key, *how)

    fs = cached(Failing(store.inner), folder)
    results: list[object] = []

    def read() -> None:
        try:
            results.append(fs.read_bytes("00.bin"))
        except TimeoutError as exc:
            results.append(exc.filename)

    threads = [threading.Thread(target=read) for _ in range(4)]
    threads[0].start()
    begun.wait(5)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == sorted([str(CONTENTS[0])] * 3 + [fs.url("00.bin")])


# ---- offline


def test_offline_gives_what_is_here_when_the_store_is_down(
    store: Store, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = cached(store, folder, offline=True)
    listed = list(fs.list("", recursive=True, detail=True))
    assert list(fs.read_many(NAMES[:5])) == CONTENTS[:5]
    fs.read_bytes("large.bin")
    store.down = True
    with pytest.raises(ConnectionRefusedError):
        cached(store, folder).read_bytes("00.bin")
    for one in (fs, cached(store, folder, offline=True)):
        with pytest.warns(RuntimeWarning, match="can't be reached"):
            assert one.read_bytes("00.bin") == CONTENTS[0]
        assert list(one.read_many(NAMES[:5])) == CONTENTS[:5]
        assert one.read_bytes("large.bin") == noise(50_000)
        assert one.stat("00.bin").size == 1000
        assert list(one.list("", recursive=True, detail=True)) == listed
        with pytest.raises(ConnectionError) as caught:
            one.read_bytes("06.bin")
        assert caught.value.filename == store.url("06.bin")
        with pytest.raises(ConnectionError):
            list(one.list("dir"))
    store.down = False
    store.inner.write_bytes("00.bin", b"changed")
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + backoff.LONGEST_PAUSE)
    assert fs.read_bytes("00.bin") == b"changed"
    store.inner.remove("00.bin")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("00.bin")


@pytest.mark.parametrize("kind", [Store, Asked])
def test_offline_gives_what_another_process_has_seen_last(store: Store, folder: str, kind: type[Store]) -> None:
    store = kind(store.inner)
    options: dict[str, Any] = {"offline": True, "check_interval": 0.0}
    for content in (b"first", b"second"):
        store.inner.write_bytes("00.bin", content)
        store.inner.write_bytes(f"dir/{content.decode()}", b"")
        fs = cached(store, folder, **options)
        assert fs.read_bytes("00.bin") == content
        assert content.decode() in fs.list("dir")
    store.down = True
    fs = cached(store, folder, **options)
    with pytest.warns(RuntimeWarning, match="can't be reached"):
        assert fs.read_bytes("00.bin") == b"second"
    assert {"first", "second"} <= set(fs.list("dir"))
