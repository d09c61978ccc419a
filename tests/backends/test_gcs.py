"""Google Cloud Storage: its requests and what comes of its responses, against a store in memory that knows the API."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.fsspec import Fsspec
from fsabs.backends.gcs import GCS
from fsabs.core.fs import LAST_NAME
from tests.servers.gcs_store import GcsStore, Refused
from tests.servers.hostile_store import Answer, Request

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
MIB = 1024 * 1024


@pytest.fixture
def store() -> Iterator[GcsStore]:
    with GcsStore(listed=False) as store:
        yield store


def opened(store: GcsStore, url: str = "gs://bucket", **options: Any) -> GCS:
    fs = fsabs.from_url(url, **{"endpoint": store.endpoint, "anonymous": True, "max_attempts": 2, **options})
    assert isinstance(fs, GCS)
    return fs


# ---- requests


def test_a_file_is_read_in_the_generation_that_was_opened(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_bytes("d/a b", b"first" * 100)
    with fs.open_blob("d/a b") as blob:
        assert blob.version == str(store.objects["d/a b"].generation) == fs.stat("d/a b").version
        assert blob.pread(5, 0) == b"first"
        asked = store.seen[-1]
        assert asked.path == "/storage/v1/b/bucket/o/d%2Fa%20b"
        assert asked.query == {"alt": "media", "ifGenerationMatch": blob.version}
        assert asked.headers["accept-encoding"] == "gzip"
        fs.write_bytes("d/a b", b"other" * 100)
        with pytest.raises(fsabs.StaleFileError):
            blob.pread(5, 0)
    with fs.open_blob("d/a b") as blob:
        fs.remove("d/a b")
        with pytest.raises(fsabs.StaleFileError, match="removed"):
            blob.pread(5, 0)


def test_a_whole_file_is_compared_with_its_checksum(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_bytes("a", b"right")
    store.intercept(lambda request, answer: answer(request)._replace(body=b"wrong"))
    with pytest.raises(fsabs.CorruptFileError, match="CRC32C .* where the store says"):
        fs.read_bytes("a")


def test_one_of_two_checksums_is_enough(store: GcsStore) -> None:
    from fsabs.backends.objects.http1 import parse_head

    dialect = opened(store).dialect
    both = b"HTTP/1.1 200 OK\r\nx-goog-hash: md5=xxx\r\nx-goog-hash: crc32c=AAAAAA=="
    assert "CRC32C" in (dialect.mismatch(parse_head(both, "GET"), [b"1"]) or "")


def test_what_is_written_carries_a_checksum_and_what_was_asked_for(store: GcsStore) -> None:
    options = {"storage_class": "NEARLINE", "content_type": "auto", "cache_control": "no-store"}
    fs = opened(store, kms_key_name="key", metadata={"Owner": "me"}, mpu_chunksize=5 * MIB, **options)
    fs.write_bytes("a.png", b"--\r\n" * 10)
    assert store.objects["a.png"].content == b"--\r\n" * 10
    expected = {"storageClass": "NEARLINE", "cacheControl": "no-store", "contentType": "image/png", "kmsKeyName": "key"}
    assert store.objects["a.png"].resource == expected
    assert store.objects["a.png"].metadata == {"owner": "me"}
    fs.write_bytes("b.png", os.urandom(6 * MIB))
    begun = next(request for request in store.seen if "uploads" in request.query)
    wanted = {"x-goog-storage-class": "NEARLINE", "x-goog-meta-owner": "me", "cache-control": "no-store"}
    assert wanted.items() <= begun.headers.items()
    assert begun.headers["x-goog-encryption-kms-key-name"] == "key"
    parts = [request for request in store.seen if request.method == "PUT"]
    assert len(parts) == 2
    assert all(request.headers["x-goog-hash"].startswith("crc32c=") for request in parts)


@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_of_two_writers_in_mode_x_one_wins(store: GcsStore, size: int) -> None:
    fs = opened(store, mpu_chunksize=5 * MIB)
    first, second = fs.open("new", "xb"), fs.open("new", "xb")
    first.write(b"1" * size)
    second.write(b"2" * size)
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.read_bytes("new") == b"1" * size
    assert store.uploads == {}
    with pytest.raises(FileExistsError):
        fs.open("new", "xb")


def test_a_writer_whose_response_was_lost_knows_its_object(store: GcsStore) -> None:
    fs = opened(store)
    store.lose_response(lambda request: "/upload/" in request.path)
    with fs.open("new", "xb") as file:
        file.write(b"mine")
    assert fs.read_bytes("new") == b"mine"
    store.lose_response(lambda request: "/upload/" in request.path)
    fs.write_bytes("other", b"1")
    assert fs.read_bytes("other") == b"1"


def test_a_large_file_is_seen_whole_or_not_at_all(store: GcsStore) -> None:
    fs = opened(store, mpu_chunksize=5 * MIB)
    data = os.urandom(12 * MIB)
    with pytest.raises(RuntimeError), fs.open("large", "wb") as file:
        file.write(data)
        raise RuntimeError
    assert store.objects == {}
    assert store.uploads == {}
    with fs.open("large", "wb") as file:
        file.write(data)
        assert "large" not in store.objects
    assert store.objects["large"].content == data
    assert b"".join(fs.open_blob("large").pread_many([(MIB, at * MIB) for at in range(12)])) == data


def test_uploads_that_were_left_are_aborted(store: GcsStore) -> None:
    fs = opened(store, mpu_chunksize=5 * MIB)
    fs.send(fs.dialect.begin("left", "mark"))
    assert len(store.uploads) == 1
    assert fs.abort_uploads(24 * 3600) == 1
    assert store.uploads == {}


def test_a_copy_goes_on_until_it_is_done(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_bytes("a", b"x" * 1000)
    store.rewritten = 300
    fs.copy("a", "d/b")
    assert [request.query.get("rewriteToken") for request in store.seen if "rewriteTo" in request.path] == [
        None,
        "300",
        "600",
        "900",
    ]
    fs.rename("d", "e")
    assert sorted(store.objects) == ["a", "e/b"]
    with pytest.raises(FileNotFoundError):
        fs.copy("nothing", "b")
    other = opened(store, "gs://other")
    assert other.dialect.can_copy_from(fs.dialect)
    assert not other.dialect.can_copy_from(opened(store, storage_class="COLDLINE").dialect)


def test_a_file_is_replaced_if_it_has_still_its_version(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_bytes("x", b"1")
    version = fs.stat("x").version or ""
    fs.write_if("x", b"2", version)
    for path in ("x", "nothing"):
        with pytest.raises(fsabs.StaleFileError):
            fs.write_if(path, b"3", version)
    assert fs.read_bytes("x") == b"2"


def test_a_page_of_a_proxy_removes_nothing(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_bytes("x", b"1")
    page = Answer(200, {}, b"<html>sign in</html>", 20)
    store.intercept(lambda request, answer: page if request.method == "DELETE" else answer(request))
    with pytest.raises(fsabs.CorruptFileError, match="nothing shows that anything was removed"):
        fs.remove("x")


def test_a_copy_is_encrypted_by_the_key_of_new_objects(store: GcsStore) -> None:
    fs = opened(store, kms_key_name="projects/p/locations/l/keyRings/r/cryptoKeys/k")
    store.put("a", b"x" * 1000)
    store.rewritten = 600
    fs.copy("a", "b")
    rewrites = [request.query for request in store.seen if "rewriteTo" in request.path]
    assert len(rewrites) == 2
    assert {query["destinationKmsKeyName"] for query in rewrites} == {fs.options.kms_key_name}
    assert {query["fields"] for query in rewrites} == {"done,rewriteToken"}


def test_a_copy_has_the_storage_class_of_new_objects(store: GcsStore) -> None:
    fs = opened(store, storage_class="NEARLINE", metadata={"own": "1"})
    kept = {"contentType": "image/png", "cacheControl": "no-store", "contentEncoding": "gzip"}
    store.put("a", b"x" * 1000, metadata={"owner": "me"}, storageClass="STANDARD", **kept)
    store.rewritten = 600
    fs.copy("a", "b")
    fs.rename("b", "d/c")
    assert store.objects["d/c"].resource == {**kept, "storageClass": "NEARLINE"}
    assert store.objects["d/c"].metadata == {"owner": "me"}  # which it has from its original
    with pytest.raises(FileNotFoundError):
        fs.copy("nothing", "e")

    def too_late(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if "rewriteTo" in request.path:
            store.put("a", b"other", metadata={"owner": "you"})
        return answer(request)

    store.intercept(too_late)
    with pytest.raises(fsabs.StaleFileError):
        fs.copy("a", "e")
    assert "e" not in store.objects


def test_what_comes_into_a_directory_while_it_is_renamed_stays(store: GcsStore) -> None:
    fs = opened(store)
    fs.write_many({f"d/{number}": b"1" for number in range(3)})

    def meanwhile(request: Request, answer: Callable[[Request], Answer]) -> Answer:
        if "/o/d%2F" in request.path and "rewriteTo" in request.path:
            store.put("d/late", b"2")
        return answer(request)

    store.intercept(meanwhile)
    fs.rename("d", "e")
    assert sorted(store.objects) == ["d/late", "e/0", "e/1", "e/2"]


def test_trees_are_removed_in_batches(store: GcsStore) -> None:
    fs = opened(store)
    for number in range(250):
        store.put(f"d/{number}", b"")
    fs.remove("d", recursive=True)
    assert store.objects == {}
    batches = [request for request in store.seen if request.path == "/batch/storage/v1"]
    assert len(batches) == 3


def test_what_a_batch_does_not_remove_is_removed_alone_or_named(store: GcsStore) -> None:
    fs = opened(store)
    for number in range(10):
        store.put(f"d/{number}", b"")
    store.kept = {"d/3": 1, "d/5": 100}
    with pytest.raises(PermissionError, match="no permission") as caught:
        fs.remove("d", recursive=True)
    assert caught.value.filename == "gs://bucket/d/5"
    assert sorted(store.objects) == ["d/5"]


# ---- listings


def test_listings_ask_for_what_they_need(store: GcsStore) -> None:
    fs = opened(store)
    for name in ("a/1", "a/2", "b", "c/d/e", "c/", "ü"):
        store.put(name, b"123")
    assert list(fs.list("")) == ["a/", "b", "c/", "ü"]
    assert list(fs.list("", recursive=True)) == ["a/", "a/1", "a/2", "b", "c/", "c/d/", "c/d/e", "ü"]
    asked = store.seen[-1].query
    assert asked["fields"] == "kind,items(name,size,generation,updated),prefixes,nextPageToken"
    stat = next(iter(fs.list("a", detail=True)))
    assert stat == fs.stat("a/1")._replace(filename="1")
    assert list(fs.list("c")) == ["d/"]


def test_pages_of_files_at_any_depth_follow_one_another(store: GcsStore) -> None:
    fs = opened(store)
    for name in ("a", "b/1", "b/2", "c", "d/1", "e"):
        store.put(name, b"")
    store.page = 2
    assert list(fs.list("")) == ["a", "b/", "c", "d/", "e"]
    found, after = [], ""
    while after != LAST_NAME:
        page = fs._list_page("", after)
        assert page is not None
        found += [stat.filename for stat in page.files]
        after = page.last
    assert found == ["a", "b/1", "b/2", "c", "d/1", "e"]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome</html>",
        b"[]",
        b"{",
        b'{"status": "ok"}',
        b'{"kind": "storage#objects", "items": [{"name": "x"}]}',
        b'{"kind": "storage#objects", "items": 3}',
        b'{"kind":' + 200_000 * b"[",
    ],
)
def test_what_is_no_page_is_an_error(store: GcsStore, body: bytes) -> None:
    store.intercept(lambda request, answer: answer(request)._replace(body=body, length=len(body)))
    with pytest.raises(fsabs.CorruptFileError):
        list(opened(store).list(""))


# ---- refusals


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind", "said"),
    [
        (404, "notFound", "The specified bucket does not exist.", FileNotFoundError, "'bucket' does not exist"),
        (403, "forbidden", "me does not have storage.objects.get access", PermissionError, "give credentials"),
        (400, "required", "Bucket is a requester pays bucket", PermissionError, "requester_pays="),
        (403, "userRateLimitExceeded", "too many", OSError, "too many"),
        (400, "invalid", "This bucket is zonal and supports gRPC only", OSError, "fsspec=True"),
        (503, "backendError", "try again", OSError, "try again"),
        (412, "conditionNotMet", "said so", fsabs.StaleFileError, "version"),
        (418, "teapot", "short and stout", OSError, "teapot"),
    ],
)
def test_refusals_say_what_to_do(
    store: GcsStore, status: int, reason: str, message: str, kind: type[OSError], said: str
) -> None:
    store.put("x", b"1")
    fs = opened(store, max_attempts=1)
    store.intercept(lambda request, answer: store.refusal(request, Refused(status, reason, message)))
    for operation in (lambda: fs.stat("x"), lambda: list(fs.list("")), lambda: fs.write_bytes("x", b"")):
        with pytest.raises(kind, match=said.replace("(", ".").replace(")", ".")) as caught:
            operation()
        assert "\n" not in str(caught.value)
        assert caught.value.errno
        assert str(caught.value.filename).startswith("gs://bucket")


def test_a_zonal_bucket_is_refused_by_name(store: GcsStore) -> None:
    store.put("x", b"1", storageClass="RAPID")
    with pytest.raises(OSError, match="the bucket 'bucket' is zonal .* fsspec=True"):
        opened(store).stat("x")


def test_who_pays_is_said_with_each_request(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-the-environment")
    for given, project in ((True, "of-the-environment"), ("mine", "mine"), (False, None)):
        opened(store, requester_pays=given).write_bytes("x", b"")
        assert store.seen[-1].headers.get("x-goog-user-project") == project


# ---- options


def test_an_emulator_of_the_environment_is_asked_without_credentials(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("x", b"1")
    for value in (store.endpoint, store.endpoint.partition("://")[2]):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", value)
        fs = fsabs.from_url("gs://bucket")
        assert fs.read_bytes("x") == b"1"
        assert "authorization" not in store.seen[-1].headers
        assert isinstance(fs, GCS)
        assert fs.dialect.store_url == store.endpoint
    with fsabs.from_url("gcs://bucket") as fs:
        assert fs.url("x") == "gs://bucket/x"


def test_options_that_can_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (
        {"endpoint": "ftp://host"},
        {"endpoint": "http://u:p@host"},
        {"mpu_chunksize": 1},
        {"max_attempts": 0},
        {"anonymous": True, "access_token": "t"},
        {"credentials": "file", "access_token": "t"},
    ):
        with pytest.raises(ValueError, match=r"."):
            fsabs.from_url("gs://bucket", **options)
    with pytest.raises(ValueError, match="names a bucket"):
        fsabs.from_url("gs:///path")
    with pytest.raises(TypeError, match="did you mean 'requester_pays'"):
        fsabs.from_url("gs://bucket", requester_pay="me")


def test_gcsfs_names_of_options() -> None:
    given = {"token": "anon", "project": "p", "endpoint_url": "http://h", "requester_pays": "me", "access": "read_only"}
    assert GCS.options_of_fsspec(given) == {"anonymous": True, "endpoint": "http://h", "requester_pays": "me"}
    assert GCS.options_of_fsspec({"token": "key.json"}) == {"credentials": "key.json"}
    assert GCS.options_of_fsspec({"token": "google_default"}) == {}


def test_gcsfs_serves_the_scheme_if_asked_to() -> None:
    fs = fsabs.from_url("gs://bucket", fsspec=True, token="anon", force_type="gs")
    assert isinstance(fs, Fsspec)


def test_its_requests_are_named_in_traces(store: GcsStore, tmp_path: Path) -> None:
    with trace.record(tmp_path):
        fs = opened(store)
        fs.write_bytes("a", b"1")
        fs.read_bytes("a")
        list(fs.list(""))
        fs.stat("a")
    rows = {f"{row.kind} {row.layer}.{row.operation}" for row in trace.analyze(tmp_path).operations}
    assert rows >= {f"request gcs.{name}" for name in ("get", "post", "list", "head")} | {"fs gcs.read_bytes"}


def test_a_part_of_an_upload_that_is_too_much_is_refused(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = opened(store, mpu_chunksize=5 * MIB)
    monkeypatch.setattr(type(fs.dialect), "max_parts", 1)
    with pytest.raises(OSError, match="more than 1 parts"), fs.open("x", "wb") as file:  # of a size that is not known
        file.write(bytes(11 * MIB))
    assert store.uploads == {}
