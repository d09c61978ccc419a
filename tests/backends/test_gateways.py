"""Stores that have S3's interface and not all of its habits: what they say of files, and what they let one do."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.memory import Memory
from fsabs.backends.objects import connections
from fsabs.cli.program import run
from fsabs.core.layers import LayerFS
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
KEYS: dict[str, Any] = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}
MIB = 1 << 20
TIME = "2026-01-01T00:00:00.000Z"


def opened(store: ScriptedStore, **options: Any) -> fsabs.FS:
    fs: fsabs.FS = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **{**KEYS, **options})
    return fs


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*os.environ,):
        if name.startswith(("AWS_", "S3_")):
            monkeypatch.delenv(name)
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION"), KEYS.values(), strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("PFIO_CONFIG_PATH", os.devnull)


def etag_of(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Gateway:
    """A bucket that keeps what it is sent.

    Attributes:
        shows: which keys a listing below a prefix has; all, unless a test says otherwise.
        sends: what an object's response says beside its content.
    """

    def __init__(self) -> None:
        self.shows: Callable[[str, str, set[str]], bool] = lambda key, prefix, keys: True
        self.sends: dict[str, str] = {}
        self.etag = etag_of
        self.parts: dict[str, list[int]] = {}

    def __call__(self, store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        key, objects = asked.key, store.objects
        if "uploads" in asked.query:
            self._send(
                connection, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
            )
        elif "partNumber" in asked.query:
            self.parts.setdefault(key, []).append(len(asked.body))
            self._send(connection, b"", ETag='"p"')
        elif "uploadId" in asked.query and asked.method == "POST":
            self._send(connection, b'<CompleteMultipartUploadResult><ETag>"e-2"</ETag></CompleteMultipartUploadResult>')
        elif asked.method == "POST":
            for part in asked.body.decode().split("<Key>")[1:]:
                objects.pop(part.partition("</Key>")[0], None)
            self._send(connection, b"<DeleteResult></DeleteResult>")
        elif asked.method == "PUT":
            objects[key] = asked.body
            self._send(connection, b"", ETag=f'"{self.etag(asked.body)}"')
        elif asked.method == "DELETE":
            objects.pop(key, None)
            connection.sendall(message(204, {}, b""))
        elif key:
            headers = {**self.sends, "ETag": f'"{self.etag(objects[key])}"'} if key in objects else {}
            connection.sendall(store.respond(asked, headers=headers))
        else:
            self._send(connection, self._page(asked.query, objects).encode())

    @staticmethod
    def _send(connection: socket.socket, body: bytes, **headers: str) -> None:
        connection.sendall(message(200, {"Content-Length": str(len(body)), **headers}, body))

    def _page(self, query: dict[str, str], objects: dict[str, bytes]) -> str:
        prefix, found = query.get("prefix", ""), dict[str, str]()
        for key in sorted(objects):
            if key.startswith(prefix) and key > query.get("start-after", "") and self.shows(key, prefix, set(objects)):
                end = key.find("/", len(prefix)) + 1 if query.get("delimiter") else 0
                stat = f"<ETag>{self.etag(objects[key])}</ETag><Size>{len(objects[key])}</Size>"
                entry = f"<Contents><Key>{escape(key)}</Key><LastModified>{TIME}</LastModified>{stat}</Contents>"
                folder = f"<CommonPrefixes><Prefix>{escape(key[:end])}</Prefix></CommonPrefixes>"
                found.setdefault(key[:end] if end else key, folder if end else entry)
        entries = "".join(found[name] for name in sorted(found))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def store(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedStore]:
    with ScriptedStore({}, gateway) as found:
        monkeypatch.setenv("S3_ENDPOINT", found.endpoint)
        yield found


# ---- names that are a file and a directory


def test_a_path_that_ends_in_a_slash_names_the_directory(store: ScriptedStore, tmp_path: Path) -> None:
    store.objects |= {"app/prev": b"file", "app/prev/x": b"member", "app/prev-1": b"other"}
    fs = opened(store)
    cached = fsabs.from_url("s3://bucket", cache=str(tmp_path / "cache"), endpoint=store.endpoint, **KEYS)
    for one in (fs, cached, LayerFS(fs)):
        assert one.exists("app/prev/")
        assert one.isdir("app/prev/")
        assert one.stat("app/prev/").directory
        assert not one.isfile("app/prev/")
        assert one.isfile("app/prev")
        assert not one.exists("app/prev-1/")
    for pattern in ("app/**", "app/*", "**/prev*"):
        names = list(fs.glob(pattern))
        assert len(names) == len(set(names)), names
        assert "app/prev" in names
    assert run(["cp", "-r", "s3://bucket/app/prev/", str(tmp_path / "copy")]) == 0
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["x"]
    with pytest.raises(IsADirectoryError):
        fs.remove("app/prev/")
    assert run(["rm", "-r", "s3://bucket/app/prev/"]) == 0
    assert set(store.objects) == {"app/prev", "app/prev-1"}
    with pytest.raises(NotADirectoryError):
        fs.remove("app/prev/", recursive=True)
    assert set(store.objects) == {"app/prev", "app/prev-1"}


# ---- what a listing leaves out


def test_a_recursive_remove_of_what_is_listed_only_later(store: ScriptedStore, gateway: Gateway) -> None:
    """As of a store that keeps objects as files, and shows nothing below the key of one."""

    def shows(key: str, prefix: str, keys: set[str]) -> bool:
        above = [key[:at] for at, character in enumerate(key) if character == "/" and at > len(prefix)]
        return keys.isdisjoint(above) and key != prefix

    gateway.shows = shows
    store.objects |= dict.fromkeys(["my/test", "my/test/x", "my/test/x/y", "my/", "my/z", "mine"], b"1")
    store.objects["my/"] = b""
    opened(store).remove("my", recursive=True)
    assert set(store.objects) == {"mine"}


def test_a_mark_that_its_own_listing_leaves_out(store: ScriptedStore, gateway: Gateway) -> None:
    gateway.shows = lambda key, prefix, keys: key != prefix
    store.objects["empty/"] = b""
    fs = opened(store)
    assert fs.exists("empty")
    assert fs.isdir("empty")
    assert list(fs.list("empty")) == list(fs.list("empty", recursive=True)) == []
    assert not fs.exists("none")
    with pytest.raises(FileNotFoundError):
        list(fs.list("none"))
    fs.remove("empty", recursive=True)
    assert not store.objects


# ---- rights


@pytest.mark.parametrize(
    "arguments", [["file", "s3://bucket/k"], ["file", "s3://bucket/d/"], ["-r", "d", "s3://bucket/t"]]
)
def test_who_may_only_write_copies_files(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT":
            gateway(store, asked, connection)
            return
        body = b"" if asked.method == "HEAD" else b"<Error><Code>AccessDenied</Code></Error>"
        connection.sendall(message(403, {"Content-Length": str(len(body))}, body))

    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "x").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    with ScriptedStore({}, script) as store:
        monkeypatch.setenv("S3_ENDPOINT", store.endpoint)
        assert run(["cp", *arguments]) == 0
        assert list(store.objects.values()) == [b"1"]
        assert run(["cp", "-n", *arguments]) != 0, "what is there is not known, and would be kept"
        opened(store).makedirs("new/folder", exist_ok=True)
        assert "new/folder/" in store.objects


def test_a_refusal_of_path_style_names_the_option() -> None:
    body = b"<Error><Code>SecondLevelDomainForbidden</Code><Message>Please use virtual hosted style.</Message></Error>"

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(403, {"Content-Length": str(len(body))}, body))

    with ScriptedStore({}, script) as store, pytest.raises(PermissionError, match="path_style=False"):
        opened(store).read_bytes("x")


def test_requests_that_name_the_bucket_in_their_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pfio.ini").write_text("[oss]\nscheme = s3\nendpoint = https://oss.example.com\npath_style = false\n")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    fs: Any = fsabs.from_url("oss://bucket/x", **KEYS)
    assert fs.http.endpoint.host == "bucket.oss.example.com"


# ---- parts


def test_parts_of_one_size_but_for_the_last(
    store: ScriptedStore, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs: Any = opened(store, mpu_chunksize=5 * MIB)
    monkeypatch.setattr(fs.dialect, "max_parts", 3)
    memory = fsabs.from_url("memory://parts")
    memory.write_bytes("f", bytes(20 * MIB))
    memory.copy("f", "copied", fs)
    fs.write_bytes("written", bytes(20 * MIB))
    with pytest.raises(OSError, match="larger mpu_chunksize"), fs.open("streamed", "wb") as file:
        file.write(bytes(20 * MIB))
    with fs.open("streamed", "wb") as file:
        file.write(bytes(12 * MIB))
    for name in ("copied", "written"):
        sizes = sorted(gateway.parts[name])
        assert sum(sizes) == 20 * MIB
        assert len(sizes) == 3
        assert len(set(sizes[1:])) == 1, sizes
    assert sorted(gateway.parts["streamed"][-3:]) == [2 * MIB, 5 * MIB, 5 * MIB]


# ---- ETags


@pytest.mark.parametrize("encrypted", [True, False])
def test_etags_that_only_look_like_md5s(
    encrypted: bool, store: ScriptedStore, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of KMS: a second sync sends nothing, and equal files don't differ."""
    if encrypted:
        gateway.sends = {"x-amz-server-side-encryption": "aws:kms"}
        gateway.etag = lambda data: etag_of(data + b"key")
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
        os.utime(tmp_path / name, (1e9, 1e9))
    assert run(["sync", str(tmp_path), "s3://bucket/d"]) == 0

    def sent(*arguments: str) -> int:
        before = sum(asked.method == "PUT" for asked in store.requests)
        assert run([*arguments]) == 0
        return sum(asked.method == "PUT" for asked in store.requests) - before

    for command in (["sync"], ["sync", "--checksum"], ["cp", "-r"]):
        assert sent(*command, str(tmp_path), "s3://bucket/d") == 0, command
    assert run(["diff", str(tmp_path), "s3://bucket/d"]) == 0
    (tmp_path / "b").write_bytes(b"B")
    os.utime(tmp_path / "b", (1e9, 1e9))
    assert run(["diff", str(tmp_path), "s3://bucket/d"]) != 0
    assert sent("sync", "--checksum" if encrypted else "-v", str(tmp_path), "s3://bucket/d") == 1
    assert store.objects["d/b"] == b"B"


# ---- caches, connections


def test_a_file_that_was_written_anew_after_blocks_of_it_were_cached(store: ScriptedStore, tmp_path: Path) -> None:
    cache = {"dir": str(tmp_path / "cache"), "check_interval": 3600}
    fs = fsabs.from_url("s3://bucket", cache=cache, endpoint=store.endpoint, **KEYS)
    store.objects["large"] = bytes(20 * MIB)
    with fs.open("large", "rb") as file:
        file.seek(10 * MIB)
        assert file.read(10) == bytes(10)
    store.objects["large"] = b"1" * (20 * MIB)
    with fs.open("large", "rb") as file:
        assert file.read() == store.objects["large"]


CLIENT = """
import resource, sys
import fsabs
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
keys = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1", "endpoint": sys.argv[1]}
buckets = [fsabs.from_url("s3://bucket", max_attempts=number + 1, **keys) for number in range(200)]
assert {fs.read_bytes("x") for fs in buckets} == {b"1"}
"""


def test_buckets_by_the_hundred_leave_descriptors_for_others(store: ScriptedStore) -> None:
    store.objects["x"] = b"1"
    subprocess.run([sys.executable, "-c", CLIENT, store.endpoint], check=True, timeout=50)


def test_a_process_keeps_so_many_idle_connections(store: ScriptedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_IDLE_OF_PROCESS", 5)
    store.objects["x"] = b"1"
    buckets = [opened(store, max_attempts=number + 1) for number in range(50)]
    for fs in (*buckets, *buckets):
        assert fs.read_bytes("x") == b"1"
    deadline = time.monotonic() + 30
    while len(store.connected) > 5 and time.monotonic() < deadline:  # the server learns of it in its own time
        time.sleep(0.01)
    assert len(store.connected) <= 5


# ---- paths


def test_paths_of_buckets_of_one_name_at_two_endpoints_are_two(store: ScriptedStore) -> None:
    store.objects["x"] = b"1"
    with ScriptedStore({"x": b"2"}, Gateway()) as other:
        one, two = (fsabs.Path("x", fs=opened(found)) for found in (store, other))
        assert one != two
        assert one == fsabs.Path("x", fs=opened(store))
        assert [path.read_bytes() for path in (one, two)] == [b"1", b"2"]
        assert fsabs.Path(one, fs=opened(other)).read_bytes() == b"1"


def test_paths_of_two_stores_in_memory_are_two() -> None:
    one, two = fsabs.from_url("memory://"), Memory()
    assert fsabs.Path("x", fs=one) != fsabs.Path("x", fs=two)
    assert len({fsabs.Path("x", fs=one), fsabs.Path("x", fs=two), fsabs.Path("x", fs=one)}) == 2
