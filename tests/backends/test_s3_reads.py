"""The S3 data path of our own: what a read costs, its connections, its checksums, and what an instrument sees."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import os
import pickle
import socket
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import pytest

import fsabs
from fsabs.backends.objects import Endpoint
from fsabs.backends.objects.connections import Connection, ConnectionPool
from fsabs.backends.objects.reading import FIRST, MEASURED_SECONDS
from fsabs.backends.s3 import S3
from fsabs.core import hooks
from fsabs.testing.children import Child
from tests.backends.s3_clients import MIB, new_bucket, opened, settings
from tests.servers.network import FaultProxy
from tests.servers.scripted import Asked, ScriptedStore

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def proxy(ceph: Any) -> Iterator[FaultProxy]:
    with FaultProxy.before(ceph.endpoint) as made:
        yield made


@pytest.fixture
def fs(ceph: Any, proxy: FaultProxy) -> S3:
    """A new bucket behind a proxy."""
    return new_bucket(ceph, endpoint=proxy.endpoint)


# ---- what it costs


def test_connections_are_kept_and_used_again(fs: S3, proxy: FaultProxy) -> None:
    fs.write_bytes("x", b"1")
    proxy.clear()
    for _ in range(50):
        fs.read_bytes("x")
    assert proxy.traffic().connections == 0  # the one that wrote is used
    for _ in range(2):
        list(fs.read_many(["x"] * 200, concurrency=5))
    assert proxy.traffic().connections <= 6


def test_a_pool_in_a_cycle_of_references_closes_its_connections() -> None:
    """Before they are finalized, and each warns that it is open: an exception and its traceback are such a cycle."""
    first, second = socket.socketpair()
    connection = Connection(first)
    pool = ConnectionPool(Endpoint("127.0.0.1", 80, "127.0.0.1", False, "/"), "s3.connect", "s3://bucket")
    pool.give_back(connection)
    cycle: list[Any] = [pool]
    cycle.append(cycle)
    with second, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del first, connection, pool, cycle
        gc.collect()
        assert ([str(one.message) for one in warned], second.recv(1)) == ([], b"")


def test_what_a_read_costs_in_requests(ceph: Any, proxy: FaultProxy, fs: S3) -> None:
    small, large = os.urandom(100_000), os.urandom(20_000_000)
    fs.write_many({"small": small, "large": large, "empty": b""})
    fs = S3(fs.bucket, **settings(ceph, endpoint=proxy.endpoint))
    proxy.clear()

    def requests() -> list[str]:
        made = [request.method for request in proxy.requests()]
        proxy.clear()
        return made

    assert fs.read_bytes("small") == small
    assert requests() == ["GET"]
    with fs.open("small", "rb") as file:
        assert b"".join(file.read(100) for _ in range(1000)) == small
        assert proxy.traffic().body_down <= 101_000
    assert requests() == ["GET"]
    with fs.open("empty", "rb") as file:
        assert file.read() == b""
    assert len(requests()) <= 3
    for ask in (fs.read_bytes, fs.open, fs.stat):
        with pytest.raises(FileNotFoundError):
            ask("nothing")
        assert len(requests()) == (3 if ask == fs.stat else 2)
    with pytest.raises(FileNotFoundError):
        list(fs.read_many(["small", "nothing"]))
    assert len(requests()) == 3
    blob = fs.open_blob("large")
    requests()
    near = [(20_000, start) for start in range(0, 2_000_000, 21_000)]  # as members of an archive
    assert blob.pread_many(near) == [large[start : start + 20_000] for _, start in near]
    assert len(requests()) == 1
    far = [(20_000, start) for start in range(0, 20_000_000, 200_000)]
    assert blob.pread_many(far) == [large[start : start + 20_000] for _, start in far]
    assert len(requests()) == 100
    assert blob.read_all() == large
    assert len(requests()) == 3


def test_the_first_bytes_are_kept_until_they_are_read_and_do_not_pickle(proxy: FaultProxy, fs: S3) -> None:
    data = os.urandom(300_000)
    fs.write_bytes("x", data)
    with fs.open("x", "rb") as file:  # the request that opens it asks for the first bytes
        blob = file.raw.blob
        assert len(pickle.dumps(blob)) < FIRST // 10
        proxy.clear()
        assert blob.pread(10, 5) == data[5:15]
        assert not proxy.requests()
        assert blob.pread(FIRST, 1000) == data[1000 : 1000 + FIRST]  # some of it is there, the rest is asked for
        assert blob.pread(10, 5) == data[5:15]  # the first bytes are given up once what follows them is read
        assert len(proxy.requests()) == 2
        assert blob.read_all() == data
    with fs.open("x", "rb") as file:
        fs.write_bytes("x", data[::-1])
        with pytest.raises(fsabs.StaleFileError):
            file.raw.blob.pread(FIRST, 1000)


# ---- streams


def test_a_stream_goes_by_one_connection_as_long_as_that_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        response = store.respond(asked)
        with contextlib.suppress(ConnectionError):  # the rest of what is slow is not waited for
            if asked.key == "slow" and len(response) > 10 * MIB:
                connection.sendall(response[:MIB])
                time.sleep(2 * MEASURED_SECONDS)
                response = response[MIB:]
            connection.sendall(response)

    def requests(name: str) -> int:
        before = len(store.requests)
        with opened(store.endpoint).open(name, "rb") as file:
            assert b"".join(iter(lambda: file.read(MIB), b"")) == store.objects[name]
        return len(store.requests) - before

    with ScriptedStore({"fast": os.urandom(MIB) * 40, "slow": os.urandom(MIB) * 20}, script) as store:
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: 1e6)  # a reader that never waits
            assert requests("fast") < 5
        assert requests("slow") > 5, "no requests side by side for the pieces of 8 MiB that were left"


def test_a_stream_forks_and_survives_an_end_of_its_connection() -> None:
    data = os.urandom(12 * MIB)
    with ScriptedStore({"x": data}) as store, opened(store.endpoint, max_attempts=1).open("x", "rb") as file:
        start = file.read(3_000_000) + file.read(1_000_000)
        assert Child("a child", lambda: file.read() == data[4_000_000:], 20).result()
        for connection in list(store.connected):
            connection.shutdown(socket.SHUT_RDWR)
        assert start + file.read() == data


# ---- what an instrument sees


class Noted(hooks.Instrument):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        assert 0 < begin <= time.monotonic_ns()
        self.seen.append((kind, name, size, where, error))

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        self.seen.append((kind, name, size, where))


@pytest.fixture
def noted() -> Iterator[Noted]:
    before = hooks.install(found := Noted())
    yield found
    hooks.install(before)


def test_each_attempt_is_told(fs: S3, proxy: FaultProxy, noted: Noted) -> None:
    fs.write_bytes("d/x y", bytes(1000))
    root, where = f"s3://{fs.bucket}/", f"s3://{fs.bucket}/d/x%20y"
    assert ("connect", "s3.connect", 0, root, "") in noted.seen
    noted.seen.clear()
    proxy.answer(503, times=1)
    fs.read_bytes("d/x y")
    waits = [seen[1] for seen in noted.seen if seen[0] == "wait"]
    assert {*waits} - {"s3.transfer", "s3.throttle"} == {"s3.backoff"}  # the others may have taken no time
    assert [seen for seen in noted.seen if seen[0] not in ("connect", "wait")] == [
        ("request", "s3.get", 0, where, "OSError 503"),
        ("retry", "s3.get", 1, where),
        ("request", "s3.get", 1000, where, ""),
    ]
    noted.seen.clear()
    assert len(list(fs.read_many(["d/x y"] * 5, concurrency=2))) == 5
    assert noted.seen.count(("request", "s3.get", 1000, where, "")) == 5
    assert not [seen for seen in noted.seen if seen[0] == "batch"], "the user's call is recorded above"
    noted.seen.clear()
    assert list(fs.list("d")) == ["x y"]
    assert [seen[:2] for seen in noted.seen if seen[0] != "wait"] == [("request", "s3.list")]
    assert noted.seen[-1][3].startswith(root)


# ---- checksums


CHECKSUMS: dict[str, Callable[[bytes], bytes]] = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: int(google_crc32c.value(data)).to_bytes(4, "big"),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}


@pytest.mark.parametrize("kind", CHECKSUMS)
def test_a_checksum_that_the_store_sends_is_checked(kind: str) -> None:
    """One that is composed of those of an upload's parts is not of the content, nor is that of a copy of such a one."""
    objects = {"empty": b"", "small": os.urandom(1000), "large": os.urandom(6_000_000)}
    more = {name: os.urandom(1000) for name in ("composite", "of parts", "copy", "bad")}

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        of = b"other" if asked.key in more else store.objects[asked.key]
        value = base64.b64encode(CHECKSUMS[kind](of)).decode()
        headers = {f"x-amz-checksum-{kind}": value + ("-3" if asked.key == "of parts" else "")}
        if asked.key == "composite":
            headers["x-amz-checksum-type"] = "COMPOSITE"
        if asked.key != "copy":  # that has an MD5 as its ETag
            headers["ETag"] = '"of an upload"'
        connection.sendall(store.respond(asked, headers=headers))

    with ScriptedStore({**objects, **more}, script) as store:
        fs = opened(store.endpoint, max_attempts=2)
        good = [name for name in store.objects if name != "bad"]
        assert [fs.read_bytes(name) for name in good] == [store.objects[name] for name in good]
        assert list(fs.read_many(good)) == [store.objects[name] for name in good]
        for read in (fs.read_bytes, lambda name: list(fs.read_many([name, name]))):
            with pytest.raises(fsabs.CorruptFileError, match=kind.upper()) as caught:
                read("bad")
            assert caught.value.filename == "s3://bucket/bad"
