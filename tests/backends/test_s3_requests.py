"""What requests are sent: no more than needed, and such as any client of S3 would send."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

import fsabs
from fsabs.backends.objects import writing
from fsabs.backends.objects.bodies import entries_of
from fsabs.backends.s3 import S3
from fsabs.backends.s3.dialect import parse_page
from tests import soak
from tests.servers.caching_proxy import CachingProxy, missing
from tests.servers.fixtures import require
from tests.servers.network import FaultProxy
from tests.servers.scripted import ScriptedStore, message

MIB = 1 << 20
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def keys_of(store: Any) -> dict[str, Any]:
    return {
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": store.secret_key,
        "region": store.region,
    }


def opened(store: Any, bucket: str, **options: Any) -> S3:
    return S3(bucket, **{"endpoint": store.endpoint, **keys_of(store), **options})


def boto_client(store: Any) -> Any:
    keys = keys_of(store)
    return boto3.client("s3", endpoint_url=store.endpoint, region_name=keys.pop("region"), **keys)


@pytest.fixture
def bucket(moto: Any) -> str:
    name = f"requests-{time.monotonic_ns()}"
    moto.create_bucket(name)
    return name


# ---- what others make of them


@pytest.mark.parametrize("kind", ["moto", "ceph"])
def test_behind_a_caching_proxy_what_was_read_is_a_hit(kind: str, request: pytest.FixtureRequest) -> None:
    require(missing)
    store: Any = request.getfixturevalue(kind)
    bucket = f"cached-{time.monotonic_ns()}"
    store.create_bucket(bucket)
    direct = opened(store, bucket)
    contents = {f"k{number}": os.urandom(1000) for number in range(20)}
    direct.write_many(contents)
    direct.write_bytes("large", bytes(300_000))
    with CachingProxy(store.endpoint) as proxy:
        for turn in range(2):
            fs = opened(store, bucket, endpoint=proxy.endpoint)
            for name, data in contents.items():
                assert fs.read_bytes(name) == data
            assert list(fs.read_many(contents)) == list(contents.values())
            with fs.open("large", "rb") as file:
                assert file.read(10) == bytes(10)
            found = proxy.answers("GET", 41 * (turn + 1))
            assert found.count("GET HIT") == (20 if turn == 0 else 61), found


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_signed_urls(ceph: Any, method: str) -> None:
    bucket = f"signed-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    fs = opened(ceph, bucket)
    fs.write_bytes("a b/ü", b"content")
    request = urllib.request.Request(fs.signed_url("a b/ü", expires=60, method=method), method=method)
    request.data = b"new" if method == "PUT" else None
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status in (200, 204)
        assert response.read() == (b"content" if method == "GET" else b"")
    assert (fs.read_bytes("a b/ü") if method != "DELETE" else None) == {"PUT": b"new", "DELETE": None}.get(
        method, b"content"
    )
    other = urllib.request.Request(fs.signed_url("a b/ü", method="HEAD"), method="GET")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(other, timeout=20)
    for options in ({"expires": 0}, {"expires": 604_801}, {"method": "POST"}):
        with pytest.raises(ValueError, match="is"):
            fs.signed_url("k", **options)


def test_a_signed_url_says_who_pays(ceph: Any) -> None:
    bucket = f"signed-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    fs = opened(ceph, bucket, requester_pays=True)
    fs.write_bytes("k", b"content")
    url = fs.signed_url("k")
    assert "&x-amz-request-payer=requester&" in url  # which the signature covers
    with urllib.request.urlopen(url, timeout=20) as response:
        assert response.read() == b"content"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.replace("=requester&", "=another&"), timeout=20)


FIRST_READ = """
import resource, sys, fsabs
fs = fsabs.from_url("s3://bucket", endpoint=sys.argv[1])
assert fs.read_bytes("k") == b"1" and list(fs.read_many(["k", "k"])) == [b"1", b"1"] and fs.stat("k").size == 1
used = resource.getrusage(resource.RUSAGE_SELF)
print([name for name in ("boto3", "botocore", "urllib3") if name in sys.modules], used.ru_utime + used.ru_stime)
"""


def test_the_first_read_with_keys_and_an_endpoint_needs_no_boto3(tmp_path: Path) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "HOME": str(tmp_path)}
    environment |= {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with ScriptedStore({"k": b"1"}) as store:
        command = [sys.executable, "-c", FIRST_READ, store.endpoint]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    assert done.stdout.startswith("[] ")


# ---- how many


def _sent(store: Any, bucket: str, act: Callable[[S3], object]) -> list[str]:
    """The methods of the requests of an operation; a listing is a LIST, and the server's side of a copy a COPY."""
    with FaultProxy.before(store.endpoint) as proxy:
        fs = opened(store, bucket, endpoint=proxy.endpoint)
        act(fs)
        return [_kind(request) for request in proxy.requests()]


def _kind(request: Any) -> str:
    if "list-type" in request.target:
        return "LIST"
    return "COPY" if "x-amz-copy-source" in request.headers else str(request.method)


def test_operations_send_few_requests(moto: Any, bucket: str) -> None:
    direct = opened(moto, bucket)
    direct.write_many({f"d/k{number}": b"1" for number in range(5)})
    direct.write_bytes("other", bytes(20 * MIB))
    assert _sent(moto, bucket, lambda fs: fs.exists("missing")) == ["HEAD", "LIST", "HEAD"]
    assert _sent(moto, bucket, lambda fs: fs.copy("other", "copy")) == ["COPY"]
    assert _sent(moto, bucket, lambda fs: fs.rename("copy", "moved")) == ["LIST", "COPY", "DELETE"]
    assert _sent(moto, bucket, lambda fs: list(fs.glob("d/k1"))) == ["HEAD"]
    with FaultProxy.before(moto.endpoint) as proxy:
        fs = opened(moto, bucket, endpoint=proxy.endpoint)
        assert list(fs.glob("d/k*3")) == ["d/k3"]
        (request,) = proxy.requests()
        assert "prefix=d%2Fk&" in request.target or request.target.endswith("prefix=d%2Fk")


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_copies_keep_tags_metadata_and_types(moto: Any, bucket: str, size: int, monkeypatch: Any) -> None:
    client, fs = boto_client(moto), opened(moto, bucket)
    more: dict[str, Any] = {"Metadata": {"colour": "blue"}, "ContentType": "text/csv", "CacheControl": "no-cache"}
    client.put_object(Bucket=bucket, Key="from", Body=bytes(size), Tagging="project=x%20y&b=1", **more)
    fs.copy("from", "copy")
    monkeypatch.setattr(writing, "COPIED_PART", 8 * MIB)
    writing.copy_parts(fs, fs, "from", "parts")
    fs.rename("from", "moved")
    for name in ("copy", "parts", "moved"):
        head = client.head_object(Bucket=bucket, Key=name)
        assert (head["ContentLength"], head["ContentType"], head["CacheControl"]) == (size, "text/csv", "no-cache")
        assert head["Metadata"]["colour"] == "blue"
        tags = client.get_object_tagging(Bucket=bucket, Key=name)["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"project": "x y", "b": "1"}, name


def test_a_copy_in_parts_has_no_more_parts_than_the_store_takes(moto: Any, bucket: str, monkeypatch: Any) -> None:
    fs, data = opened(moto, bucket), os.urandom(11 * MIB)
    fs.write_bytes("from", data)
    monkeypatch.setattr(writing, "COPIED_PART", 5 * MIB)
    monkeypatch.setattr(fs.dialect, "max_parts", 2)
    writing.copy_parts(fs, fs, "from", "to")
    assert fs.read_bytes("to") == data


def test_all_that_lies_below_a_key_that_is_an_object_too_is_removed(moto: Any, bucket: str) -> None:
    client, fs = boto_client(moto), opened(moto, bucket)
    for key in ("sub", "sub/a", "sub/b/c", "subtle"):
        client.put_object(Bucket=bucket, Key=key, Body=b"1")
    fs.remove("sub", recursive=True)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]] == ["subtle"]


def test_a_key_that_is_not_removed_is_named(moto: Any, bucket: str) -> None:
    body = b"<DeleteResult><Error><Key>d/x&amp;y</Key><Code>AccessDenied</Code><Message>no</Message></Error>"

    def script(store: ScriptedStore, asked: Any, connection: Any) -> None:
        entries = "".join(f"<Contents><Key>d/{name}</Key><Size>1</Size></Contents>" for name in ("w", "x&amp;y"))
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        answer = listing if asked.method == "GET" else body + b"</DeleteResult>"
        status = {"HEAD": 404, "DELETE": 403}.get(asked.method, 200)
        connection.sendall(message(status, {"Content-Length": str(len(answer))}, answer))

    with ScriptedStore({}, script) as store:
        fs = S3("bucket", endpoint=store.endpoint, aws_access_key_id="a", aws_secret_access_key="b")
        with pytest.raises(PermissionError) as caught:
            fs.remove("d", recursive=True)
        assert caught.value.filename == "s3://bucket/d/x&y"


def test_pages_are_parsed_in_linear_time() -> None:
    """Each took seconds, and four times as long for twice the size."""
    start, end = "<ListBucketResult><IsTruncated>false</IsTruncated>", "</ListBucketResult>"
    entry = "<Key>k</Key><LastModified></LastModified><ETag></ETag><Size>1</Size>"
    for odd in (f"<Contents>{'>' * 400_000}{entry}</Contents>", f"<Contents>{entry}{'<a></a>' * 40_000}</Contents>"):
        assert parse_page(start + odd + end).keys() == ["k"]
    for odd in ("<Contents>" * 40_000, "<CommonPrefixes>" * 40_000 + "<Contents>"):
        with pytest.raises(fsabs.CorruptFileError, match="does not end"):
            parse_page(start + odd + end)
    with pytest.raises(fsabs.CorruptFileError, match="does not end"):
        list(entries_of("<Error>" * 400_000, "Error"))


# ---- as boto3 sees it


NAMES = ("a", "a b", "ü/中", "x+y%20z", "d/e&f<g>", "quote'\"s", "t~.-_", "100%", "\U0001f600", "d/e", "tab\tx", "#?;=")
PART = 5 * MIB


class Model:
    """A bucket of ours and one of boto3's on the same store, which have the same done to them."""

    def __init__(self, store: Any, chance: random.Random) -> None:
        self.chance = chance
        self.ours, self.theirs = (f"model-{name}-{time.monotonic_ns()}" for name in ("ours", "theirs"))
        for name in (self.ours, self.theirs):
            store.create_bucket(name)
        self.client = boto_client(store)
        self.fs = opened(store, self.ours, mpu_chunksize=PART)
        self.rich = opened(
            store, self.ours, mpu_chunksize=PART, metadata={"Owner": "lab 7"}, cache_control="no-cache",
            content_disposition="inline", tagging={"a b": "1+2"}, headers={"Content-Language": "de"},
            content_type="text/csv",
        )  # fmt: skip
        self.extra: dict[str, Any] = {
            "Metadata": {"owner": "lab 7"}, "CacheControl": "no-cache", "ContentDisposition": "inline",
            "Tagging": "a%20b=1%2B2", "ContentLanguage": "de", "ContentType": "text/csv",
        }  # fmt: skip
        self.done: set[str] = set()
        self.there: set[str] = set()

    def step(self) -> None:
        """Do something by chance."""
        existing = sorted(self.there)
        names = [name for name in vars(Model) if name.startswith("do_")]
        name = self.chance.choice(names if existing else ["do_put"])
        self.done.add(name)
        data = self.chance.randbytes(self.chance.choice([0, 1, 1000, 70_000]))
        getattr(self, name)(self.chance.choice(NAMES), data, self.chance.choice(existing or [""]))

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", []))

    def do_put(self, key: str, data: bytes, old: str) -> None:
        self.fs.write_bytes(key, data)
        self.client.put_object(Bucket=self.theirs, Key=key, Body=data)
        self.there.add(key)

    def do_put_with_all(self, key: str, data: bytes, old: str) -> None:
        self.rich.write_bytes(key, data)
        self.client.put_object(Bucket=self.theirs, Key=key, Body=data, **self.extra)
        self.there.add(key)

    def do_put_many(self, key: str, data: bytes, old: str) -> None:
        self.fs.write_many({f"m/{key}": data, f"n/{key}": data[:5]})
        for prefix, body in (("m", data), ("n", data[:5])):
            self.client.put_object(Bucket=self.theirs, Key=f"{prefix}/{key}", Body=body)
            self.there.add(f"{prefix}/{key}")

    def do_upload_in_parts(self, key: str, data: bytes, old: str) -> None:
        if self.chance.random() < 0.7:  # for the sake of time
            return
        body = self.chance.randbytes(1000) * (PART // 1000 + 1) + data
        with self.rich.open(key, "wb") as file:
            file.write(body)
        config = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, use_threads=False)
        self.client.upload_fileobj(io.BytesIO(body), self.theirs, key, ExtraArgs=self.extra, Config=config)
        self.there.add(key)

    def do_copy(self, key: str, data: bytes, old: str) -> None:
        if key == old:
            with pytest.raises(OSError, match="the same file"):
                self.fs.copy(old, key)
            return
        self.fs.copy(old, key)
        self.client.copy_object(Bucket=self.theirs, Key=key, CopySource={"Bucket": self.theirs, "Key": old})
        self.there.add(key)

    def do_rename(self, key: str, data: bytes, old: str) -> None:
        if key == old or any(name.startswith(f"{key}/") for name in self.there):
            return
        self.fs.rename(old, key)
        self.client.copy_object(Bucket=self.theirs, Key=key, CopySource={"Bucket": self.theirs, "Key": old})
        self.client.delete_object(Bucket=self.theirs, Key=old)
        self.there = self.there - {old} | {key}

    def do_delete(self, key: str, data: bytes, old: str) -> None:
        self.fs.remove(old)
        self.client.delete_object(Bucket=self.theirs, Key=old)
        self.there.remove(old)

    def do_get(self, key: str, data: bytes, old: str) -> None:
        whole = self.client.get_object(Bucket=self.theirs, Key=old)["Body"].read()
        assert self.fs.read_bytes(old) == whole
        assert list(self.fs.read_many([old, old], concurrency=2)) == [whole, whole]

    def do_get_range(self, key: str, data: bytes, old: str) -> None:
        size = self.client.head_object(Bucket=self.theirs, Key=old)["ContentLength"]
        if not size:
            return
        at = self.chance.randrange(size)
        wanted = self.chance.randrange(1, size - at + 1)
        asked = f"bytes={at}-{at + wanted - 1}"
        part = self.client.get_object(Bucket=self.theirs, Key=old, Range=asked)["Body"].read()
        with self.fs.open_blob(old) as blob:
            assert blob.size == size
            assert blob.pread(wanted, at) == part
            assert blob.pread_many([(1, at), (wanted, at)]) == [part[:1], part]

    def do_list(self, key: str, data: bytes, old: str) -> None:
        prefix = old.rpartition("/")[0]
        found = self.keys(self.theirs, prefix and f"{prefix}/")
        assert sorted(self.fs.list(prefix, recursive=True)) == _with_directories(found, len(prefix and f"{prefix}/"))
        sizes = {stat.filename: stat.size for stat in self.fs.list(recursive=True, detail=True) if not stat.isdir()}
        assert sorted(sizes) == sorted(self.there)

    def do_put_if_it_matches(self, key: str, data: bytes, old: str) -> None:
        version = self.fs.stat(old).version or ""
        theirs = self.client.head_object(Bucket=self.theirs, Key=old)["ETag"]
        assert theirs == f'"{version}"'
        with pytest.raises(fsabs.StaleFileError):
            self.fs.write_if(old, data, "0" * 32)
        with pytest.raises(ClientError, match="412|PreconditionFailed"):
            self.client.put_object(Bucket=self.theirs, Key=old, Body=data, IfMatch="0" * 32)
        self.fs.write_if(old, data, version)
        self.client.put_object(Bucket=self.theirs, Key=old, Body=data)

    def do_make_new(self, key: str, data: bytes, old: str) -> None:
        with pytest.raises(FileExistsError):
            self.fs.open(old, "xb").close()
        if key not in self.there:
            with self.fs.open(key, "xb") as file:
                file.write(data)
            self.client.put_object(Bucket=self.theirs, Key=key, Body=data, IfNoneMatch="*")
            self.there.add(key)

    def state(self, bucket: str) -> dict[str, Any]:
        """All objects with what belongs to them, but the mark by which a writer knows its own."""
        found = {}
        for key in self.keys(bucket):
            head = self.client.head_object(Bucket=bucket, Key=key)
            kept = ("ContentType", "CacheControl", "ContentDisposition", "ContentLanguage", "ContentEncoding", "ETag")
            metadata = {name: value for name, value in head["Metadata"].items() if name != "fsabs-write"}
            tags = self.client.get_object_tagging(Bucket=bucket, Key=key).get("TagSet", [])  # of parts, Ceph says none
            fields = {name: head.get(name) for name in (*kept, "ContentLength", "StorageClass")}
            found[key] = (fields, metadata, sorted(tag.items() for tag in tags))
        return found


def _with_directories(keys: list[str], cut: int) -> list[str]:
    """Return the names of a recursive listing: each directory once."""
    names = [key[cut:] for key in keys]
    folders = {name[: at + 1] for name in names for at, char in enumerate(name) if char == "/"}
    return sorted({*names, *folders})


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["moto", "ceph"])
def test_what_we_do_is_what_boto3_would_have_done(kind: str, request: pytest.FixtureRequest) -> None:
    """The same on two buckets of one store leaves the same objects and headers."""
    seed = soak.seed(32)
    model = Model(request.getfixturevalue(kind), random.Random(seed))
    rounds = soak.rounds(120)
    for number in range(rounds):
        model.step()
        if number % 60 == 59:
            assert model.state(model.ours) == model.state(model.theirs), (seed, number)
    assert sorted(model.state(model.ours)) == sorted(model.there)
    assert model.state(model.ours) == model.state(model.theirs), seed
    assert rounds < 120 or len(model.done) == 12, model.done


def _entry(size: str, written: str = "2020-01-01T00:00:00.000Z") -> str:
    return f"<Contents><Key>a</Key><LastModified>{written}</LastModified><ETag>x</ETag><Size>{size}</Size></Contents>"


@pytest.mark.parametrize(
    ("status", "headers", "body", "operation"),
    [
        (503, {"Retry-After": "\u00b2"}, b"", lambda fs: fs.read_bytes("a")),
        *((200, {"Content-Length": size}, b"", lambda fs: fs.stat("a")) for size in ("\u00b2", "9" * 5000)),
        *(
            (206, {"Content-Range": f"bytes 0-131071/{size}"}, bytes(131072), lambda fs: fs.open("a", "rb").read())
            for size in ("\u00b2", "9" * 5000)
        ),
        *(
            (200, {}, f"<ListBucketResult>{entry}</ListBucketResult>".encode(), lambda fs: [*fs.list("", detail=True)])
            for entry in (*map(_entry, ("x", "\u00b2", "9" * 5000, "-5")), _entry("5", "yesterday"))
        ),
    ],
)
def test_numbers_and_times_that_are_none(
    status: int, headers: dict[str, str], body: bytes, operation: Callable[[S3], object]
) -> None:
    def script(store: ScriptedStore, asked: Any, connection: Any) -> None:
        sent = b"" if asked.method == "HEAD" else body
        connection.sendall(message(status, {"Content-Length": str(len(body)), "ETag": '"x"', **headers}, sent))

    with ScriptedStore({"a": b"content"}, script) as store:
        fs = S3("bucket", endpoint=store.endpoint, max_attempts=2, anonymous=True, region="us-east-1")
        with pytest.raises(OSError, match="bucket"):
            operation(fs)
