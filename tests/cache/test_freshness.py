"""What a second epoch asks of its store: versions come by listings, which hold for the check interval."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs import FS, Local, Memory, StaleFileError, from_url, manifest
from fsabs.cache import CachedFS
from fsabs.cache.content import ContentCache
from fsabs.cache.disk import DiskCache
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.freshness import FileRecords
from fsabs.core import hooks
from fsabs.core.fs import FileStat, ListPage
from fsabs.manifest.layer import ManifestFS
from fsabs.testing.children import forked
from tests.cache.stores import Asked, Paged, Store, cached, noise
from tests.servers.shared import unique

FILES = 1500
NAMES = [f"train/{number:05}.bin" for number in range(FILES)]
CONTENTS = [b"%d" % number for number in range(FILES)]


@pytest.fixture
def paged() -> Paged:
    memory = Memory()
    memory.mkdir("train")
    for name, content in zip(NAMES, CONTENTS, strict=True):
        memory.write_bytes(name, content)
    return Paged(memory)


def caching(store: Store, folder: str, **options: object) -> CachedFS:
    return CachedFS(store, folder, min_free=0, memory_bytes=0, **options)  # type: ignore[arg-type]


# ---- a second epoch


@pytest.mark.parametrize(("many", "interval"), [(True, 60.0), (False, math.inf)])
def test_a_second_epoch_asks_for_a_page_of_a_thousand_names(
    paged: Paged, folder: str, many: bool, interval: float
) -> None:
    assert list(caching(paged, folder).read_many(NAMES)) == CONTENTS
    assert paged.requests <= 1.01 * FILES, "a cold epoch costs what it costs without a cache"
    paged.forget()
    again = caching(paged, folder, check_interval=interval)  # as in another process: all is new
    pairs = list(zip(NAMES, CONTENTS, strict=True))
    random.Random(2).shuffle(pairs)
    names = [name for name, _ in pairs]
    found = list(again.read_many(names)) if many else [again.read_bytes(name) for name in names]
    assert found == [data for _, data in pairs]
    assert paged.requests <= FILES / 500
    paged.forget()
    assert list(again.read_many(names)) == found
    assert paged.requests == 0, "what was asked for holds for a minute"

    def requests() -> int:
        """Of a forked worker, which has neither what its parent was told, nor takes the directory as listed."""
        paged.forget()
        assert list(again.read_many(names)) == found
        return paged.requests

    assert forked("a worker", [requests], 50)[0] <= FILES / 500


@pytest.mark.parametrize(("directories", "files", "batch"), [(1, 1200, 0), (400, 3, 64), (1200, 1, 4)])
def test_a_second_epoch_of_small_batches_or_directories_fetches_nothing_again(
    folder: str, directories: int, files: int, batch: int
) -> None:
    """A page has a thousand names, in however many directories; a batch is too small to be worth one by itself."""
    memory = Memory()
    contents: dict[str, bytes] = {}
    for directory in range(directories):
        memory.makedirs(f"train/{directory:04}", exist_ok=True)
        contents |= {f"train/{directory:04}/{number:04}": b"%d %d" % (directory, number) for number in range(files)}
    for name, content in contents.items():
        memory.write_bytes(name, content)
    store, names = Paged(memory), random.Random(3).sample(sorted(contents), len(contents))

    def epoch(fs: CachedFS) -> None:
        for start in range(0, len(names), batch or 1):
            some = names[start : start + (batch or 1)]
            found = list(fs.read_many(some)) if batch else [fs.read_bytes(some[0])]
            assert found == [contents[name] for name in some]

    epoch(caching(store, folder))
    assert store.requests <= 1.01 * len(names) + 5
    store.forget()
    epoch(caching(store, folder))
    assert store.reads <= 4, "nothing is fetched that is here"
    assert store.requests <= 20


class Unlisted(Paged):
    """A store that gives no pages, or refuses every listing."""

    refuses = False

    def _list_page(self, key: str, after: str) -> ListPage | None:
        if self.refuses:
            raise PermissionError(13, "no listing for you")
        return None

    def _list(self, key: str, *how: Any) -> Iterator[FileStat]:
        if self.refuses:
            raise PermissionError(13, "no listing for you")
        return super()._list(key, *how)


@pytest.mark.parametrize("refuses", [False, True])
def test_without_listings_a_second_epoch_asks_for_stats_and_fetches_nothing(
    paged: Paged, folder: str, refuses: bool
) -> None:
    store = Unlisted(paged.inner)
    store.refuses = refuses
    for asked in (0, 96):
        store.forget()
        fs = caching(store, folder)
        for start in range(0, 100, 4):
            assert list(fs.read_many(NAMES[start : start + 4])) == CONTENTS[start : start + 4]
        assert (store.asked, store.reads) == (asked, 100 - asked)


def test_a_few_files_of_a_very_large_directory_are_not_paid_by_its_listing(folder: str) -> None:
    class Large(Paged):
        """Of a million names; a page is a thousand of them."""

        def _list_page(self, key: str, after: str) -> ListPage | None:
            self.pages.append(after)
            return ListPage([FileStat(f"{after}x", 1, version="1")], f"{after}x")

    memory = Memory()
    memory.mkdir("d")
    for number in range(200):
        memory.write_bytes(f"d/{number:03}", noise(100, number))
    store = Large(memory)
    fs = caching(store, folder)
    for number in range(200):
        assert fs.read_bytes(f"d/{number:03}") == noise(100, number)
    assert len(store.pages) <= 16 + 100


class Requests(hooks.Instrument):
    """Notes the requests of one bucket: those of an FS that another test left at work are not this one's."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.sent: list[tuple[str, str, str]] = []

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        if kind == "request" and self.bucket in where:
            self.sent.append((name, where, error))


@pytest.fixture
def s3(moto: Any) -> FS:
    """A bucket with a hundred files, and two others."""
    bucket = unique("epoch")
    moto.create_bucket(bucket)
    options: dict[str, Any] = {"endpoint": moto.endpoint, "region": moto.region}
    options |= {"aws_access_key_id": moto.access_key, "aws_secret_access_key": moto.secret_key}
    fs: FS = from_url(f"s3://{bucket}/", **options)
    fs.write_many({**HUNDRED, "train/sub/below/deeper": b"x", "train/sub0": b"y"})
    return fs


HUNDRED = {f"train/sub/{number:04}": noise(100, number) for number in range(100)}


def epoch(fs: FS, bucket: str, many: bool = True) -> list[tuple[str, str, str]]:
    """Read the hundred files in random order; return the requests for it."""
    names = random.Random(1).sample(sorted(HUNDRED), len(HUNDRED))
    requests = Requests(bucket)
    before = hooks.install(requests)
    try:
        found = list(fs.read_many(names)) if many else [fs.read_bytes(name) for name in names]
    finally:
        hooks.install(before)
    assert found == [HUNDRED[name] for name in names]
    return requests.sent


def test_a_second_epoch_over_s3(s3: FS, folder: str) -> None:
    """By default, in a new FS, as of a new process: a page for a thousand names, and not a request for each file."""
    first, second, third = (
        epoch(CachedFS(s3, folder, min_free=0, memory_bytes=0), s3.url(), many) for many in (True, True, False)
    )
    assert 100 <= len(first) <= 110
    assert len(second) == 1
    assert len(third) <= 3, third


def test_an_epoch_of_what_a_manifest_pins_lists_nothing_and_the_second_one_asks_nothing(
    s3: FS, folder: str, tmp_path: Path
) -> None:
    manifest.create(s3, tmp_path / "m.jsonl")
    pinned = ManifestFS(s3, tmp_path / "m.jsonl")
    assert [len(epoch(CachedFS(pinned, folder, min_free=0), s3.url())) for _ in range(2)] == [100, 0]
    s3.write_bytes("train/sub/0001", noise(100, -1))
    with pytest.raises(StaleFileError, match="version") as caught:
        pinned.read_bytes("train/sub/0001")
    assert caught.value.filename == s3.url("train/sub/0001")


# ---- what was asked for holds for the check interval, and no longer than a change is seen


def test_an_object_that_was_overwritten_is_given_as_it_was_for_the_interval(
    paged: Paged, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = caching(paged, folder)
    assert list(fs.read_many(NAMES[:100])) == CONTENTS[:100]
    paged.inner.write_bytes(NAMES[7], b"another")
    paged.inner.remove(NAMES[8])
    assert fs.read_bytes(NAMES[7]) == CONTENTS[7]
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert fs.read_bytes(NAMES[7]) == b"another"
    with pytest.raises(FileNotFoundError):
        fs.read_bytes(NAMES[8])
    always = caching(paged, folder, check_interval=0)
    assert always.read_bytes(NAMES[7]) == b"another"
    paged.inner.write_bytes(NAMES[7], b"once more")
    paged.forget()
    assert [always.read_bytes(NAMES[7]) for _ in range(10)] == [b"once more"] * 10
    assert paged.requests == 10 + 1, "it is asked for each time"


def test_what_is_new_in_a_listed_directory_is_found(paged: Paged, folder: str) -> None:
    fs = caching(paged, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    paged.inner.write_bytes("train/later", b"later")
    assert fs.read_bytes("train/later") == b"later"
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("train/never")
    fs.write_bytes(NAMES[0], b"own")
    assert fs.read_bytes(NAMES[0]) == b"own"


@pytest.mark.parametrize("looked", ["list", "walk", "stat", "blob", "gone", "sync"])
def test_what_was_looked_at_is_read_as_it_was_then(store: Store, folder: str, tmp_path: Path, looked: str) -> None:
    asked = Asked(store.inner)
    fs, name = cached(asked, folder, check_interval=60), "dir/file"
    fs.write_bytes(name, b"old")
    assert fs.read_bytes(name) == b"old"
    store.inner.remove(name) if looked == "gone" else store.inner.write_bytes(name, b"newer")
    assert fs.read_bytes(name) == b"old", "what was asked for holds for a minute"
    if looked == "stat":
        assert fs.stat(name).size == 5
    elif looked == "sync":
        # A copy of what was cached would have the time of what was listed, and be taken for that ever after.
        fs.sync_tree("dir", "copy", Local(tmp_path))
        assert (tmp_path / "copy/file").read_bytes() == b"newer"
    elif looked == "gone":
        assert not fs.exists(name)
        with pytest.raises(FileNotFoundError):
            fs.read_bytes(name)
        return
    else:
        listed = list(fs.list("" if looked == "walk" else "dir", recursive=looked == "walk", detail=True))
        if looked == "blob":
            [stat] = [stat for stat in listed if stat.filename == "file"]
            with fs.open_blob(name, stat) as blob:
                assert blob.read_all() == b"newer"
    assert fs.read_bytes(name) == b"newer"
    before = asked.asked
    assert [fs.read_bytes(name) for _ in range(3)] == [b"newer"] * 3
    assert asked.asked == before


def test_an_own_write_is_read_at_once_whatever_was_asked_for_meanwhile(paged: Paged, folder: str) -> None:
    """Another thread asks for a stat, or a page, before the write, and gets the answer after it."""
    assert list(caching(paged, folder).read_many(NAMES[:100])) == CONTENTS[:100]
    asking, written = threading.Event(), threading.Event()

    class Late(Paged):
        def _list_page(self, key: str, after: str) -> ListPage | None:
            page = super()._list_page(key, after)
            if not written.is_set():
                asking.set()
                assert written.wait(20)
            return page

    fs = caching(Late(paged.inner), folder)
    assert fs.read_bytes(NAMES[0]) == CONTENTS[0]
    reading = threading.Thread(target=lambda: list(fs.read_many(NAMES[:100])))
    reading.start()
    assert asking.wait(20)
    fs.write_bytes(NAMES[7], b"own")
    written.set()
    reading.join(20)
    assert fs.read_bytes(NAMES[7]) == b"own"


# ---- stats that processes leave for one another


def records_of(disk: DiskCache) -> FileRecords:
    """The records of one process."""
    return FileRecords("store", ContentCache(disk, 0), True)


STAT = FileStat("a", 5, version="old")


def test_a_stat_from_before_a_change_is_taken_by_no_process(tmp_path: Path) -> None:
    disk = DiskCache(str(tmp_path), DiskLimits(10**7, 0))
    mine, others = records_of(disk), records_of(disk)
    asked = time.time()
    others.save("other", others.remember("other", STAT, asked))
    mine.forget("url")
    mine.save("url", mine.remember("url", STAT, asked))
    assert mine.recall("url") is None
    others.save("url", others.remember("url", STAT, asked))
    assert [mine.recall("url") for _ in range(2)] == [None, None]
    assert mine.recall("other") is not None
    others.save("url", others.remember("url", STAT, time.time()))
    assert mine.recall("url") is not None


def test_a_stat_that_is_saved_while_its_file_changes_is_not_left(tmp_path: Path) -> None:
    class Slow(DiskCache):
        """A disk that takes so long to store a stat that the file is changed meanwhile."""

        def put(self, *args: Any, **options: Any) -> bool:
            records.forget("url")
            return super().put(*args, **options)

    slow = Slow(str(tmp_path), DiskLimits(10**7, 0))
    records = records_of(slow)
    records.save("url", records.remember("url", STAT, time.time()))
    assert [one.recall("url") for one in (records, records_of(slow))] == [None, None]
