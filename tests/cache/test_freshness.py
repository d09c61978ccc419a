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

from fsabs import Local, Memory, from_url
from fsabs.cache import CachedFS
from fsabs.core import hooks
from fsabs.core.fs import LAST_NAME, FileStat, ListPage
from fsabs.testing.children import forked
from tests.cache.stores import Store, noise

PAGE = 1000


class Paged(Store):
    """A store of which each call is a request; a page of a listing has a thousand names."""

    default_concurrency = 8
    capabilities = Memory.capabilities._replace(stat_is_request=True)

    def __init__(self, inner: Memory) -> None:
        super().__init__(inner)
        self.pages: list[str] = []

    def _list_page(self, key: str, after: str) -> ListPage | None:
        self._check()
        self.pages.append(after)
        members = sorted(self.inner._walk(key), key=FileStat.listed)
        following = [member for member in members if not member.directory and member.filename > after]
        return ListPage(following[:PAGE], LAST_NAME if len(following) <= PAGE else following[PAGE - 1].filename)

    @property
    def requests(self) -> int:
        return self.asked + self.reads + len(self.pages)

    def forget(self) -> None:
        self.asked, self.pages, self.many = 0, [], []
        self.opened.clear()


@pytest.fixture
def paged() -> Paged:
    memory = Memory()
    memory.mkdir("train")
    for number in range(3000):
        memory.write_bytes(f"train/{number:05}.bin", b"%d" % number)
    return Paged(memory)


NAMES = [f"train/{number:05}.bin" for number in range(3000)]
CONTENTS = [b"%d" % number for number in range(3000)]


def caching(store: Store, folder: str, **options: object) -> CachedFS:
    return CachedFS(store, folder, min_free=0, memory_bytes=0, **options)  # type: ignore[arg-type]


def shuffled() -> list[tuple[str, bytes]]:
    pairs = list(zip(NAMES, CONTENTS, strict=True))
    random.Random(2).shuffle(pairs)
    return pairs


@pytest.mark.parametrize("interval", [60.0, math.inf])
@pytest.mark.parametrize("many", [True, False])
def test_a_second_epoch_asks_for_a_page_of_a_thousand_names(
    paged: Paged, folder: str, many: bool, interval: float
) -> None:
    assert list(caching(paged, folder).read_many(NAMES)) == CONTENTS
    assert paged.requests <= 1.01 * 3000, "a cold epoch costs what it costs without a cache"
    paged.forget()
    again, pairs = caching(paged, folder, check_interval=interval), shuffled()  # as in another process: all is new
    names = [name for name, _ in pairs]
    found = list(again.read_many(names)) if many else [again.read_bytes(name) for name in names]
    assert found == [data for _, data in pairs]
    assert paged.requests <= 3000 / 500
    paged.forget()
    assert list(again.read_many(names)) == found
    assert paged.requests == 0, "what was asked for holds for a minute"


@pytest.mark.parametrize("batch", [0, 4, 64])
@pytest.mark.parametrize(("directories", "files"), [(1, 1500), (500, 3), (1500, 1)])
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


def test_without_listings_a_second_epoch_asks_for_stats_and_fetches_nothing(paged: Paged, folder: str) -> None:
    class Unlisted(Paged):
        def _list_page(self, key: str, after: str) -> ListPage | None:
            return None

    store = Unlisted(paged.inner)  # type: ignore[arg-type]
    for asked in (0, 96):
        store.forget()
        fs = caching(store, folder)
        for start in range(0, 100, 4):
            assert list(fs.read_many(NAMES[start : start + 4])) == CONTENTS[start : start + 4]
        assert (store.asked, store.reads) == (asked, 100 - asked)


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

    fs = caching(Late(paged.inner), folder)  # type: ignore[arg-type]
    assert fs.read_bytes(NAMES[0]) == CONTENTS[0]
    reading = threading.Thread(target=lambda: list(fs.read_many(NAMES[:100])))
    reading.start()
    assert asking.wait(20)
    fs.write_bytes(NAMES[7], b"own")
    written.set()
    reading.join(20)
    assert fs.read_bytes(NAMES[7]) == b"own"


def test_a_forked_worker_asks_for_pages_of_names_too(paged: Paged, folder: str) -> None:
    """It has neither what its parent was told, nor takes the directory as listed."""
    list(caching(paged, folder).read_many(NAMES))
    fs = caching(paged, folder)
    list(fs.read_many(NAMES))

    def requests() -> int:
        paged.forget()
        assert list(fs.read_many(NAMES)) == CONTENTS
        return paged.requests

    assert forked("a worker", [requests], 50)[0] <= 3000 / 500


def test_an_object_that_was_overwritten_is_given_as_it_was_for_the_interval(
    paged: Paged, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = caching(paged, folder)
    assert list(fs.read_many(NAMES[:100])) == CONTENTS[:100]
    paged.inner.write_bytes(NAMES[7], b"another")
    paged.inner.remove(NAMES[8])
    assert fs.read_bytes(NAMES[7]) == CONTENTS[7]
    later = time.time() + 61
    monkeypatch.setattr("fsabs.cache.freshness.time.time", lambda: later)
    assert fs.read_bytes(NAMES[7]) == b"another"
    with pytest.raises(FileNotFoundError):
        fs.read_bytes(NAMES[8])
    always = caching(paged, folder, check_interval=0)
    assert always.read_bytes(NAMES[7]) == b"another"
    paged.inner.write_bytes(NAMES[7], b"once more")
    assert always.read_bytes(NAMES[7]) == b"once more"


def test_what_is_new_in_a_listed_directory_is_found(paged: Paged, folder: str) -> None:
    fs = caching(paged, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    paged.inner.write_bytes("train/later", b"later")
    assert fs.read_bytes("train/later") == b"later"
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("train/never")
    fs.write_bytes(NAMES[0], b"own")
    assert fs.read_bytes(NAMES[0]) == b"own"


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


def test_a_second_epoch_over_s3(moto: Any, folder: str) -> None:
    """By default, in a new FS, as of a new process: a page for a thousand names, and not a request for each file."""

    class Requests(hooks.Instrument):
        """The requests of this bucket: those of an FS that another test left at work are not this one's."""

        def __init__(self) -> None:
            self.sent: list[tuple[str, str, str]] = []

        def record_span(
            self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
        ) -> None:
            if kind == "request" and "second-epoch" in where:
                self.sent.append((name, where, error))

    moto.create_bucket("second-epoch")
    options = {"endpoint": moto.endpoint, "region": moto.region}
    options |= {"aws_access_key_id": moto.access_key, "aws_secret_access_key": moto.secret_key}
    inner = from_url("s3://second-epoch/", **options)
    contents = {f"train/sub/{number:04}": noise(100, number) for number in range(300)}
    inner.write_many({**contents, "train/sub/below/deeper": b"x", "train/sub0": b"y"})
    names = random.Random(1).sample(sorted(contents), len(contents))

    def epoch(many: bool) -> list[tuple[str, str, str]]:
        requests = Requests()
        with CachedFS(inner, folder, min_free=0, memory_bytes=0) as fs:
            before = hooks.install(requests)
            try:
                found = list(fs.read_many(names)) if many else [fs.read_bytes(name) for name in names]
            finally:
                hooks.install(before)
        assert found == [contents[name] for name in names]
        return requests.sent

    assert 300 <= len(epoch(True)) <= 310
    assert len(epoch(True)) == 1
    assert len(sent := epoch(False)) <= 3, sent
    page = inner._list_page("train/sub", "")
    assert page is not None
    assert [(stat.filename, stat.version) for stat in page.files] == [
        (stat.filename, stat.version)
        for stat in inner.list("train/sub", detail=True, recursive=True)
        if not stat.directory
    ]
    assert page.last == LAST_NAME
    assert inner._list_page("train/sub", "0297") == page._replace(files=page.files[-3:])


def test_a_store_that_cant_list_is_asked_for_each_file(paged: Paged, folder: str) -> None:
    class Unlisted(Paged):
        def _list_page(self, key: str, after: str) -> ListPage | None:
            raise PermissionError(13, "no listing for you")

        def _list(self, key: str) -> Iterator[FileStat]:
            raise PermissionError(13, "no listing for you")

    store = Unlisted(paged.inner)  # type: ignore[arg-type]
    assert list(caching(store, folder).read_many(NAMES[:100])) == CONTENTS[:100]
    fs = caching(store, folder)
    assert [fs.read_bytes(name) for name in NAMES[:100]] == CONTENTS[:100]
    assert fs.status()["hits"] == 100


@pytest.mark.parametrize("looked", ["list", "walk", "stat", "sync"])
def test_what_was_looked_at_is_read_as_it_was_then(paged: Paged, folder: str, tmp_path: Path, looked: str) -> None:
    fs = caching(paged, folder)
    assert fs.read_bytes(NAMES[0]) == b"0"
    paged.inner.write_bytes(NAMES[0], b"1")
    assert fs.read_bytes(NAMES[0]) == b"0", "what was asked for holds for a minute"
    if looked == "list":
        list(fs.list("train", detail=True))
    elif looked == "walk":
        list(fs.list("", recursive=True, detail=True))
    elif looked == "stat":
        fs.stat(NAMES[0])
    else:  # a copy of what was cached would have the time of what was listed, and be taken for that ever after
        fs.sync_tree("train", "copy", Local(tmp_path))
        assert (tmp_path / "copy" / NAMES[0].removeprefix("train/")).read_bytes() == b"1"
    assert fs.read_bytes(NAMES[0]) == b"1"
    paged.forget()
    assert [fs.read_bytes(NAMES[0]) for _ in range(3)] == [b"1"] * 3
    assert paged.requests == 0
