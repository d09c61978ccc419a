"""What requests are sent: no more than needed, and such as any client of S3 would send."""

from __future__ import annotations

import io
import os
import random
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

import fsabs
from fsabs.backends.objects import writing
from fsabs.backends.objects.bodies import entries_of
from fsabs.backends.s3 import S3
from fsabs.backends.s3.dialect import parse_page
from tests import soak
from tests.backends.s3_clients import MIB, client_of, new_bucket, opened, settings
from tests.servers.caching_proxy import CachingProxy, missing
from tests.servers.fixtures import require
from tests.servers.network import FaultProxy
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_settings")]


# ---- what others make of them


def test_behind_a_caching_proxy_what_was_read_is_a_hit(ceph: Any) -> None:
    require(missing)
    contents = {f"k{number}": os.urandom(1000) for number in range(20)}
    direct = new_bucket(ceph)
    direct.write_many(contents)
    direct.write_bytes("large", bytes(300_000))
    with CachingProxy(ceph.endpoint) as proxy:
        for turn in range(2):
            fs = S3(direct.bucket, **settings(ceph, endpoint=proxy.endpoint))
            for name, data in contents.items():
                assert fs.read_bytes(name) == data
            assert list(fs.read_many(contents)) == list(contents.values())
            with fs.open("large", "rb") as file:
                assert file.read(10) == bytes(10)
            found = proxy.answers("GET", 41 * (turn + 1))
            assert found.count("GET HIT") == (20 if turn == 0 else 61), found


def test_signed_urls(ceph: Any) -> None:
    fs = new_bucket(ceph)
    fs.write_bytes("a b/ü", b"content")

    def sent(method: str, signed: str = "", data: bytes | None = None) -> bytes:
        url = fs.signed_url("a b/ü", expires=60, method=signed or method)
        request = urllib.request.Request(url, data, method=method)
        with urllib.request.urlopen(request, timeout=20) as response:
            assert response.status in (200, 204)
            return bytes(response.read())

    assert (sent("GET"), sent("HEAD"), sent("PUT", data=b"new")) == (b"content", b"", b"")
    assert fs.read_bytes("a b/ü") == b"new"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        sent("GET", signed="HEAD")
    sent("DELETE")
    assert not fs.exists("a b/ü")
    for options in ({"expires": 0}, {"expires": 604_801}, {"method": "POST"}):
        with pytest.raises(ValueError, match="is"):
            fs.signed_url("k", **options)


def test_a_signed_url_says_who_pays(ceph: Any) -> None:
    fs = new_bucket(ceph, requester_pays=True)
    fs.write_bytes("k", b"content")
    url = fs.signed_url("k")
    assert "&x-amz-request-payer=requester&" in url  # which the signature covers
    with urllib.request.urlopen(url, timeout=20) as response:
        assert response.read() == b"content"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.replace("=requester&", "=another&"), timeout=20)


FIRST_READ = """
import sys, fsabs
fs = fsabs.from_url("s3://bucket", endpoint=sys.argv[1])
assert fs.read_bytes("k") == b"1" and list(fs.read_many(["k", "k"])) == [b"1", b"1"] and fs.stat("k").size == 1
sys.exit({"boto3", "botocore", "urllib3"} & {*sys.modules} or 0)
"""


def test_the_first_read_with_keys_and_an_endpoint_needs_no_boto3(tmp_path: Path) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "HOME": str(tmp_path)}
    environment |= {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with ScriptedStore({"k": b"1"}) as store:
        subprocess.run([sys.executable, "-c", FIRST_READ, store.endpoint], timeout=60, env=environment, check=True)


# ---- how many


def test_operations_send_few_requests(moto: Any) -> None:
    direct = new_bucket(moto)
    direct.write_many({f"d/k{number}": b"1" for number in range(5)})
    direct.write_bytes("other", bytes(20 * MIB))
    with FaultProxy.before(moto.endpoint) as proxy:

        def sent(act: Callable[[S3], object]) -> list[str]:
            """Return the methods of an operation's requests, the first of a new FS."""
            proxy.clear()
            act(S3(direct.bucket, **settings(moto, endpoint=proxy.endpoint)))
            return [
                "LIST" if "list-type" in request.target
                else "COPY" if "x-amz-copy-source" in request.headers
                else request.method
                for request in proxy.requests()
            ]  # fmt: skip

        assert sent(lambda fs: fs.exists("missing")) == ["HEAD", "LIST", "HEAD"]
        assert sent(lambda fs: fs.copy("other", "copy")) == ["COPY"]
        assert sent(lambda fs: fs.rename("copy", "moved")) == ["LIST", "COPY", "DELETE"]
        assert sent(lambda fs: list(fs.glob("d/k1"))) == ["HEAD"]
        assert sent(lambda fs: list(fs.glob("d/k*3"))) == ["LIST"]
        (request,) = proxy.requests()
        assert "prefix=d%2Fk&" in request.target or request.target.endswith("prefix=d%2Fk")


def test_copies_keep_tags_metadata_and_types(moto: Any) -> None:
    client, fs = client_of(moto), new_bucket(moto)
    more: dict[str, Any] = {"Metadata": {"colour": "blue"}, "ContentType": "text/csv", "CacheControl": "no-cache"}
    client.put_object(Bucket=fs.bucket, Key="from", Body=b"content", Tagging="project=x%20y&b=1", **more)
    fs.copy("from", "copy")
    writing.copy_parts(fs, fs, "from", "parts")
    fs.rename("from", "moved")
    for name in ("copy", "parts", "moved"):
        head = client.head_object(Bucket=fs.bucket, Key=name)
        assert (head["ContentLength"], head["ContentType"], head["CacheControl"]) == (7, "text/csv", "no-cache")
        assert head["Metadata"]["colour"] == "blue"
        tags = client.get_object_tagging(Bucket=fs.bucket, Key=name)["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"project": "x y", "b": "1"}, name


def test_all_that_lies_below_a_key_that_is_an_object_too_is_removed(moto: Any) -> None:
    client, fs = client_of(moto), new_bucket(moto)
    for key in ("sub", "sub/a", "sub/b/c", "subtle"):
        client.put_object(Bucket=fs.bucket, Key=key, Body=b"1")
    fs.remove("sub", recursive=True)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=fs.bucket)["Contents"]] == ["subtle"]


def test_a_key_that_is_not_removed_is_named() -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        entries = "".join(f"<Contents><Key>d/{name}</Key><Size>1</Size></Contents>" for name in ("w", "x&amp;y"))
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        if asked.method != "GET":
            error = "<Error><Key>d/x&amp;y</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            body = f"<DeleteResult>{error}</DeleteResult>"
        status = {"HEAD": 404, "DELETE": 403}.get(asked.method, 200)
        connection.sendall(message(status, {"Content-Length": str(len(body))}, body.encode()))

    with ScriptedStore({}, script) as store:
        with pytest.raises(PermissionError) as caught:
            opened(store.endpoint).remove("d", recursive=True)
        assert caught.value.filename == "s3://bucket/d/x&y"


@pytest.mark.timeout(20)
def test_pages_are_parsed_in_linear_time() -> None:
    """Each took seconds for a tenth of this, and four times as long for twice the size."""
    start, end = "<ListBucketResult><IsTruncated>false</IsTruncated>", "</ListBucketResult>"
    entry = "<Key>k</Key><LastModified></LastModified><ETag></ETag><Size>1</Size>"
    for odd in (f"<Contents>{'>' * 4_000_000}{entry}</Contents>", f"<Contents>{entry}{'<a></a>' * 400_000}</Contents>"):
        assert parse_page(start + odd + end).keys() == ["k"]
    for odd in ("<Contents>" * 400_000, "<CommonPrefixes>" * 400_000 + "<Contents>"):
        with pytest.raises(fsabs.CorruptFileError, match="does not end"):
            parse_page(start + odd + end)
    with pytest.raises(fsabs.CorruptFileError, match="does not end"):
        list(entries_of("<Error>" * 4_000_000, "Error"))


# ---- as boto3 sees it


NAMES = ("a", "a b", "ü/中", "x+y%20z", "d/e&f<g>", "quote'\"s", "t~.-_", "100%", "\U0001f600", "d/e", "tab\tx", "#?;=")
PART = 5 * MIB


class Model:
    """A bucket of ours and one of boto3's on the same store, which have the same done to them."""

    def __init__(self, store: Any, chance: random.Random) -> None:
        self.chance = chance
        self.client = client_of(store)
        self.theirs = new_bucket(store).bucket
        self.fs = new_bucket(store, mpu_chunksize=PART)
        self.ours = self.fs.bucket
        more: dict[str, Any] = {
            "metadata": {"Owner": "lab 7"}, "cache_control": "no-cache", "content_disposition": "inline",
            "tagging": {"a b": "1+2"}, "headers": {"Content-Language": "de"}, "content_type": "text/csv",
        }  # fmt: skip
        self.rich = S3(self.ours, **settings(store, mpu_chunksize=PART, **more))
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


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ceph", pytest.param("moto", marks=pytest.mark.nightly)])
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
    assert rounds < 120 or len(model.done) == 8, model.done


def _page(size: str, written: str = "2020-01-01T00:00:00.000Z") -> bytes:
    entry = f"<Key>a</Key><LastModified>{written}</LastModified><ETag>x</ETag><Size>{size}</Size>"
    return f"<ListBucketResult><Contents>{entry}</Contents></ListBucketResult>".encode()


WRONG: list[tuple[int, dict[str, str], bytes, Callable[[S3], object]]] = [
    (503, {"Retry-After": "\u00b2"}, b"", lambda fs: fs.read_bytes("a")),
    *((200, {"Content-Length": size}, b"", lambda fs: fs.stat("a")) for size in ("\u00b2", "9" * 5000)),
    *(
        (206, {"Content-Range": f"bytes 0-131071/{size}"}, bytes(131072), lambda fs: fs.open("a", "rb").read())
        for size in ("\u00b2", "9" * 5000)
    ),
    *(
        (200, {}, page, lambda fs: [*fs.list("", detail=True)])
        for page in (*map(_page, ("x", "\u00b2", "9" * 5000, "-5")), _page("5", "yesterday"))
    ),
]


@pytest.mark.parametrize("case", WRONG)
def test_numbers_and_times_that_are_none(case: tuple[int, dict[str, str], bytes, Callable[[S3], object]]) -> None:
    status, headers, body, operation = case

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        sent = b"" if asked.method == "HEAD" else body
        connection.sendall(message(status, {"Content-Length": str(len(body)), "ETag": '"x"', **headers}, sent))

    with ScriptedStore({}, script) as store, pytest.raises(OSError, match="bucket"):
        operation(opened(store.endpoint, max_attempts=2))
