"""What requests are sent: no more than needed, and such as any client of S3 would send."""

from __future__ import annotations

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

import fsabs
from fsabs.backends.objects import uploads
from fsabs.backends.s3 import S3
from fsabs.backends.s3.messages import not_removed, parse
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


def test_behind_a_caching_proxy_what_was_read_is_a_hit(moto: Any, bucket: str) -> None:
    require(missing)
    direct = opened(moto, bucket)
    contents = {f"k{number}": os.urandom(1000) for number in range(20)}
    direct.write_many(contents)
    direct.write_bytes("large", bytes(300_000))
    with CachingProxy(moto.endpoint) as proxy:
        for turn in range(2):
            fs = opened(moto, bucket, endpoint=proxy.endpoint)
            for name, data in contents.items():
                assert fs.read_bytes(name) == data
            assert list(fs.read_many(contents)) == list(contents.values())
            with fs.open("large", "rb") as file:
                assert file.read(10) == bytes(10)
            found = [line for line in proxy.answers() if line.startswith("GET")]
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
    assert _sent(moto, bucket, lambda fs: fs.exists("missing")) == ["HEAD", "LIST"]
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
    monkeypatch.setattr(uploads, "COPIED_PART", 8 * MIB)
    uploads.copy_parts(fs, fs, "from", "parts")
    fs.rename("from", "moved")
    for name in ("copy", "parts", "moved"):
        head = client.head_object(Bucket=bucket, Key=name)
        assert (head["ContentLength"], head["ContentType"], head["CacheControl"]) == (size, "text/csv", "no-cache")
        assert head["Metadata"]["colour"] == "blue"
        tags = client.get_object_tagging(Bucket=bucket, Key=name)["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"project": "x y", "b": "1"}, name


def test_all_that_lies_below_a_key_that_is_an_object_too_is_removed(moto: Any, bucket: str) -> None:
    client, fs = boto_client(moto), opened(moto, bucket)
    for key in ("sub", "sub/a", "sub/b/c", "subtle"):
        client.put_object(Bucket=bucket, Key=key, Body=b"1")
    fs.remove("sub", recursive=True)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]] == ["subtle"]


def test_a_key_that_is_not_removed_is_named(moto: Any, bucket: str) -> None:
    body = b"<DeleteResult><Error><Key>d/x&amp;y</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    assert list(not_removed(body + b"</DeleteResult>")) == ["d/x&y"]

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
        assert parse(start + odd + end).keys() == ["k"]
    for odd in ("<Contents>" * 40_000, "<CommonPrefixes>" * 40_000 + "<Contents>"):
        with pytest.raises(fsabs.CorruptFileError, match="does not end"):
            parse(start + odd + end)
    with pytest.raises(fsabs.CorruptFileError, match="does not end"):
        list(not_removed(b"<Error>" * 400_000))


# ---- as boto3 sees it


NAMES = ("a", "a b", "ü/中", "x+y%20z", "d/e&f<g>", "quote'\"s", "t~.-_", "100%", "\U0001f600")


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["moto", "ceph"])
def test_what_we_write_is_what_boto3_would_have_written(kind: str, request: pytest.FixtureRequest) -> None:
    store = request.getfixturevalue(kind)
    seed = soak.seed(32)
    chance = random.Random(seed)
    ours, theirs = (f"model-{name}-{time.monotonic_ns()}" for name in ("ours", "theirs"))
    for name in (ours, theirs):
        store.create_bucket(name)
    client, plain = boto_client(store), opened(store, ours, mpu_chunksize=5 * MIB)
    for number in range(soak.rounds(150)):
        key, data = chance.choice(NAMES), chance.randbytes(chance.choice([0, 1, 1000, 70_000]))
        _one_operation(chance, plain, client, (ours, theirs), key, data, store)
        if number % 30 == 29:
            assert _state(client, ours) == _state(client, theirs), (seed, number)
    assert _state(client, ours) == _state(client, theirs), seed


def _one_operation(
    chance: random.Random, fs: S3, client: Any, buckets: tuple[str, str], key: str, data: bytes, store: Any
) -> None:
    ours, theirs = buckets
    existing = sorted(entry["Key"] for entry in client.list_objects_v2(Bucket=ours).get("Contents", []))
    match chance.randrange(7):
        case 0:
            fs.write_bytes(key, data)
            client.put_object(Bucket=theirs, Key=key, Body=data)
        case 1:
            more = opened(
                store, ours, metadata={"Owner": "lab 7"}, cache_control="no-cache", content_disposition="inline",
                tagging={"a b": "1+2"}, headers={"Content-Language": "de"}, content_type="text/csv",
            )  # fmt: skip
            more.write_bytes(key, data)
            client.put_object(
                Bucket=theirs, Key=key, Body=data, Metadata={"owner": "lab 7"}, CacheControl="no-cache",
                ContentDisposition="inline", Tagging="a%20b=1%2B2", ContentLanguage="de", ContentType="text/csv",
            )  # fmt: skip
        case 2 if existing:
            source = chance.choice(existing)
            fs.copy(source, key)
            if source != key:
                client.copy_object(Bucket=theirs, Key=key, CopySource={"Bucket": theirs, "Key": source})
        case 3 if existing:
            fs.remove(removed := chance.choice(existing))
            client.delete_object(Bucket=theirs, Key=removed)
        case 4 if existing:
            read = chance.choice(existing)
            whole = client.get_object(Bucket=theirs, Key=read)["Body"].read()
            assert fs.read_bytes(read) == whole
            with fs.open_blob(read) as blob:
                assert blob.pread(100, 10) == whole[10:110]
        case 5 if existing:
            changed = chance.choice(existing)
            fs.write_if(changed, data, fs.stat(changed).version or "")
            client.put_object(Bucket=theirs, Key=changed, Body=data)
        case _:
            fs.write_many({f"m/{key}": data, f"n/{key}": data[:5]})
            for prefix, body in (("m", data), ("n", data[:5])):
                client.put_object(Bucket=theirs, Key=f"{prefix}/{key}", Body=body)


def _state(client: Any, bucket: str) -> dict[str, Any]:
    """All objects with what belongs to them, but the mark by which a writer knows its own."""
    found = {}
    for entry in client.list_objects_v2(Bucket=bucket).get("Contents", []):
        key = entry["Key"]
        head = client.head_object(Bucket=bucket, Key=key)
        kept = ("ContentType", "CacheControl", "ContentDisposition", "ContentLanguage", "ContentEncoding", "ETag")
        metadata = {name: value for name, value in head["Metadata"].items() if name != "fsabs-write"}
        tags = client.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
        found[key] = ({name: head.get(name) for name in kept}, metadata, sorted(tag.items() for tag in tags))
    return found
