"""HTTPCachedFS, over a real nginx, a dead one, and servers that give something else than what was put."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from fsabs import from_url
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache.frames import MAGIC
from fsabs.cache.httpfs import HTTPCachedFS, SharedBlob
from fsabs.testing import children
from tests import disks
from tests.cache.stores import Store, Versionless, noise
from tests.cache.web import Reply, Request, serving
from tests.servers.dav import DavServer
from tests.servers.process import free_port

FILES = {
    "a.txt": "first line\nsecond ünïcödé line\n".encode(),
    "empty": b"",
    "with space & ünïcödé/100% #1?.bin": os.urandom(100_000),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    local = Local(tmp_path / "store", create=True)
    for name, data in FILES.items():
        local.makedirs(os.path.dirname(name), exist_ok=True)
        local.write_bytes(name, data)
        os.utime(tmp_path / "store" / name, (1e9, 1e9))
    return Store(local)


def test_what_one_machine_read_another_gets_from_the_cache(dav: DavServer, store: Store) -> None:
    for _ in range(3):
        for name, data in FILES.items():
            with HTTPCachedFS(dav.url, Store(store.inner)) as fs:
                assert fs.read_bytes(name) == data
    fs = HTTPCachedFS(dav.url, store)
    assert {name: fs.read_bytes(name) for name in FILES} == FILES
    assert list(fs.read_many(FILES)) == list(FILES.values())
    assert store.ranges == []
    assert repr(fs) == f"HTTPCachedFS('{dav.url}/', {store!r})"


def test_a_file_that_is_not_read_is_not_fetched(store: Store) -> None:
    with serving(lambda request: Reply(404)) as web:
        HTTPCachedFS(web.url, store).open("a.txt").close()
        assert web.requests == []
        assert store.ranges == []


def test_a_new_version_is_never_answered_with_the_old_one(dav: DavServer, store: Store) -> None:
    fs = HTTPCachedFS(dav.url, store)
    for number in range(20):
        data = f"content {number:02}".encode()
        fs.write_bytes("a.txt", data)
        assert fs.read_bytes("a.txt") == fs.read_bytes("a.txt") == data
    fs.remove("a.txt")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("a.txt")
    fs.rename("empty", "a.txt")
    assert fs.read_bytes("a.txt") == b""


def test_what_was_written_just_now_is_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contents written within a tick of the clock may have one version."""
    disks.ticking(monkeypatch, 60)
    with serving(lambda request: Reply(404 if request.method == "GET" else 201)) as web:
        fs = HTTPCachedFS(web.url, store)
        fs.write_bytes("new", b"1")
        assert fs.read_bytes("new") == b"1"
        assert web.asked("PUT") == []


def test_the_limit_is_that_of_whole_files(store: Store) -> None:
    with serving(lambda request: Reply(404 if request.method == "GET" else 201)) as web:
        size = len(FILES["a.txt"])
        HTTPCachedFS(web.url, store, size - 1).read_bytes("a.txt")
        assert web.requests == []
        HTTPCachedFS(web.url, store, size).read_bytes("a.txt")
        assert len(web.asked("PUT")) == 1
        with pytest.raises(ValueError, match="max_cache_size"):
            HTTPCachedFS(web.url, store, -1)


def test_a_store_that_tells_no_version_is_not_cached() -> None:
    memory = Versionless()
    memory.write_bytes("a", b"1")
    with serving(lambda request: Reply(404)) as web:
        assert HTTPCachedFS(web.url, memory).read_bytes("a") == b"1"
        assert web.requests == []


def test_memories_of_different_processes_are_different_stores(dav: DavServer) -> None:
    memory = Memory("shared name")
    fs = HTTPCachedFS(dav.url, memory)
    memory.write_bytes("a", b"parent's")
    assert fs.read_bytes("a") == b"parent's"

    def replaced() -> tuple[bytes, bytes]:
        memory.write_bytes("b", b"child's ")
        return fs.read_bytes("a"), fs.read_bytes("b")

    assert children.Child("a child", replaced, 20).result() == (b"parent's", b"child's ")
    memory.write_bytes("b", b"another!")
    assert fs.read_bytes("b") == b"another!"


# ---- what the server does wrong


def _stored(store: Store) -> tuple[str, bytes]:
    """The name and the item that are put for `a.txt`."""
    with serving(lambda request: Reply(404 if request.method == "GET" else 201)) as web:
        HTTPCachedFS(web.url, store).read_bytes("a.txt")
        [put] = [request for request in web.requests if request.method == "PUT"]
    return put.path, put.body


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda item: item[:-1],
    "longer": lambda item: item + b"\0",
    "the magic": lambda item: b"FSABSCE1" + item[len(MAGIC) :],
    "a bit of the content": lambda item: item[:-1] + bytes([item[-1] ^ 1]),
    "a bit of the key": lambda item: item.replace(b"a.txt", b"b.txt"),
    "a bit of the lengths": lambda item: item[:9] + bytes([item[9] ^ 1]) + item[10:],
    "zeros": lambda item: bytes(len(item)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_wrong_answer_is_a_miss(store: Store, damage: str) -> None:
    path, item = _stored(store)
    wrong = DAMAGES[damage](item)
    assert wrong != item

    def answer(request: Request) -> Reply:
        return Reply(200, wrong) if request.method == "GET" else Reply(201)

    with serving(answer) as web:
        assert HTTPCachedFS(web.url, store).read_bytes("a.txt") == FILES["a.txt"]
        assert web.asked("GET") == web.asked("PUT") == [path], "it is put again, right"


def test_a_whole_answer_is_a_hit(store: Store) -> None:
    """The counterpart of the test above: it is the damage that made a miss."""
    path, item = _stored(store)
    assert len(store.ranges) == 1
    with serving(lambda request: Reply(200, item)) as web:
        assert HTTPCachedFS(web.url, store).read_bytes("a.txt") == FILES["a.txt"]
        assert [request.path for request in web.requests] == [path]
    assert len(store.ranges) == 1


def test_another_file_in_its_place_is_a_miss(dav: DavServer, store: Store, tmp_path: Path) -> None:
    fs = HTTPCachedFS(dav.url + "/swapped", store)
    store.inner.write_bytes("b.txt", FILES["a.txt"][::-1])
    os.utime(tmp_path / "store/b.txt", (1e9, 1e9))
    fs.read_bytes("a.txt"), fs.read_bytes("b.txt")
    folder = dav.files / "cache/swapped"
    one, other = folder.iterdir()
    one.rename(folder / "x"), other.rename(one), (folder / "x").rename(other)
    assert fs.read_bytes("a.txt") == FILES["a.txt"]
    assert fs.read_bytes("b.txt") == FILES["a.txt"][::-1]


def test_a_dead_server_is_the_inner_fs_and_one_warning(store: Store) -> None:
    fs = HTTPCachedFS(f"http://127.0.0.1:{free_port()}", store)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert {name: fs.read_bytes(name) for name in FILES} == FILES
            assert list(fs.read_many(FILES)) == list(FILES.values())
            assert {name: fs.open(name, "rb").read() for name in FILES} == FILES
    assert [one.category for one in caught if one.category is not ResourceWarning] == [RuntimeWarning]
    with fs.open_blob("a.txt") as blob:
        assert not isinstance(blob, SharedBlob), "of which each read would be one of the whole file"
        assert blob.pread(5, 6) == FILES["a.txt"][6:11]


def test_from_url_with_a_shared_cache(dav: DavServer, store: Store, tmp_path: Path) -> None:
    for _ in range(2):
        with from_url(tmp_path / "store", http_cache={"url": dav.url + "/from-url", "max_cache_size": "1000"}) as fs:
            assert fs.read_bytes("a.txt") == FILES["a.txt"]
    assert len(list((dav.files / "cache/from-url").iterdir())) == 1


def test_an_upload_may_take_as_long_as_its_bytes_do() -> None:
    memory = Memory()
    memory.write_bytes("large", noise(3_000_000))
    with serving(lambda request: Reply(404 if request.method == "GET" else 201)) as web, warnings.catch_warnings():
        web.pause = 1 / 64
        warnings.simplefilter("error")
        assert HTTPCachedFS(web.url, memory, timeout=0.5).read_bytes("large") == noise(3_000_000)
        assert len(web.asked("PUT")) == 1
