"""Options of S3: encryption, versions, storage class, metadata, sessions, certificates, proxies.

They hold for our own requests and for those that boto3 makes in their place; what a store ignores is compared with the
request that boto3 itself would send.
"""

from __future__ import annotations

import base64
import os
import pickle
import ssl
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import boto3
import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError

import fsabs
from fsabs.backends.objects.dialect import content_type_of
from fsabs.backends.s3 import S3
from fsabs.backends.s3.endpoint import principal, resolve
from fsabs.backends.s3.options import ObjectHeaders, Options, S3Options, parse
from tests.backends.sessions import core_session
from tests.backends.test_s3_reads import certificate
from tests.servers.hostile_store import HostileStore
from tests.servers.network import FaultProxy

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def settings(store: Any) -> dict[str, Any]:
    return {
        "endpoint": store.endpoint,
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": store.secret_key,
        "region": store.region,
    }


def users_client(store: Any) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=store.secret_key,
        region_name=store.region,
    )


@pytest.fixture(params=["ceph", "moto"])
def store(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(store: Any) -> str:
    name = f"options-{time.monotonic_ns()}"
    store.create_bucket(name)
    return name


def opened(store: Any, bucket: str, sender: str, **options: Any) -> S3:
    return opened_by(sender, bucket, **{**settings(store), **options})


def opened_by(sender: str, bucket: str = "bucket", **options: Any) -> S3:
    if sender == "boto3":  # it alone makes this change
        core = core_session()
        core.register("before-sign.s3", lambda request, **_: request.headers.add_header("x-mine", "1"))
        core.set_credentials(options.pop("aws_access_key_id"), options.pop("aws_secret_access_key"))
        options["session"] = core
    fs = S3(bucket, **options)
    assert (fs.http.endpoint.transport is not None) == (sender == "boto3")
    return fs


SENDERS = pytest.mark.parametrize("sender", ["ours", "boto3"])


# ---- encryption


def _use_everything(fs: S3) -> None:
    small, large = b"small" * 1000, os.urandom(11 * MIB)
    fs.write_bytes("a/small.bin", small)
    fs.write_many([("a/many.bin", small), ("a/many2.bin", small)], concurrency=4)
    with fs.open("a/new.bin", "xb") as file:
        file.write(small)
    with fs.open("a/large.bin", "wb") as file:
        file.write(large)
    assert fs.read_bytes("a/small.bin") == small
    assert list(fs.read_many(["a/many.bin", "a/many2.bin", "a/new.bin"])) == [small] * 3
    assert fs.stat("a/large.bin").size == len(large)
    assert fs.read_bytes("a/large.bin") == large
    with fs.open("a/large.bin", "rb") as file:
        assert file.read(10) == large[:10]
        file.seek(6 * MIB)
        assert file.read(MIB) == large[6 * MIB : 7 * MIB]
    fs.copy("a/small.bin", "b/copy.bin")
    fs.rename("a", "c")
    assert fs.read_bytes("b/copy.bin") == small
    assert fs.read_bytes("c/large.bin") == large
    assert sorted(fs.list("c")) == ["large.bin", "many.bin", "many2.bin", "new.bin", "small.bin"]
    fs.remove("c", recursive=True)
    assert not fs.exists("c")


@SENDERS
def test_customer_keys(ceph: Any, sender: str) -> None:  # moto looks at no key
    bucket = f"customer-{sender}-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    fs = opened(ceph, bucket, sender, sse_customer_key=KEY, mpu_chunksize=5 * MIB)
    _use_everything(fs)
    with pytest.raises(ClientError):
        users_client(ceph).head_object(Bucket=bucket, Key="b/copy.bin")
    for key in (None, OTHER_KEY):
        other = opened(ceph, bucket, sender, sse_customer_key=key)
        with pytest.raises(OSError):
            other.read_bytes("b/copy.bin")
    text = opened(ceph, bucket, sender, sse_customer_key=base64.b64encode(KEY).decode())
    assert text.read_bytes("b/copy.bin") == b"small" * 1000
    assert text.dialect.key_digest() == fs.dialect.key_digest() != opened(ceph, bucket, sender).dialect.key_digest()


@SENDERS
def test_keys_of_the_store(ceph: Any, sender: str) -> None:
    bucket = f"kms-{sender}-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    fs = opened(ceph, bucket, sender, server_side_encryption="aws:kms", sse_kms_key_id="key-1", mpu_chunksize=5 * MIB)
    _use_everything(fs)
    head = users_client(ceph).head_object(Bucket=bucket, Key="b/copy.bin")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "key-1")


# ---- what new objects are given


@SENDERS
@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_new_objects(store: Any, bucket: str, sender: str, size: int) -> None:
    fs = opened(
        store,
        bucket,
        sender,
        metadata={"Owner": "lab 7", "run": "0042"},
        content_type="auto",
        acl="public-read",
        storage_class="STANDARD",
        mpu_chunksize=5 * MIB,
    )
    for name in ("cat.png", "no-type", "data.json.gz"):
        with fs.open(name, "wb") as file:
            file.write(b"x" * size)
    fs.write_many([("dog.JPG", b"x")], concurrency=2)
    fs.copy("cat.png", "copy.png")
    client = users_client(store)
    heads = {name: client.head_object(Bucket=bucket, Key=name) for name in fs.list()}
    for name, head in heads.items():
        metadata = {key: value for key, value in head["Metadata"].items() if key != "fsabs-write"}
        assert metadata == {"owner": "lab 7", "run": "0042"}, name
    types = {name: head["ContentType"] for name, head in heads.items()}
    assert {types["no-type"], types["data.json.gz"]} <= {"binary/octet-stream", "application/octet-stream", ""}
    assert (types["cat.png"], types["copy.png"], types["dog.JPG"]) == ("image/png", "image/png", "image/jpeg")
    for name in ("cat.png", "copy.png"):
        grants = client.get_object_acl(Bucket=bucket, Key=name)["Grants"]
        assert any("AllUsers" in grant["Grantee"].get("URI", "") for grant in grants), name


def test_storage_class(moto: Any) -> None:
    bucket = f"class-{time.monotonic_ns()}"
    moto.create_bucket(bucket)
    for sender in ("ours", "boto3"):
        fs = opened(moto, bucket, sender, storage_class="STANDARD_IA", mpu_chunksize=5 * MIB)
        fs.write_bytes("one", b"1")
        with fs.open("two", "wb") as file:
            file.write(b"2" * 6 * MIB)
        fs.copy("one", "three")
        listed = users_client(moto).list_objects_v2(Bucket=bucket)["Contents"]
        assert {entry["StorageClass"] for entry in listed} == {"STANDARD_IA"}


def _sent_by_boto3(call: str, **parameters: Any) -> set[str]:
    """The `x-amz-` header fields that boto3 would send."""
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    found: set[str] = set()

    def catch(request: Any, **_: Any) -> None:
        found.update(
            f"{name.lower()}:{_text(value).removesuffix(',aws-chunked')}" for name, value in request.headers.items()
        )
        raise InterruptedError

    client.meta.events.register_last("before-sign.s3", catch)
    with pytest.raises(InterruptedError):
        getattr(client, call)(Bucket="bucket", Key="key", **parameters)
    other = ("x-amz-checksum", "x-amz-sdk", "x-amz-content", "x-amz-trailer", "x-amz-decoded", "content-encoding:aws")
    ours = (
        "x-amz-",
        "content-type",
        "content-disposition",
        "content-encoding",
        "content-language",
        "cache-",
        "expires",
    )
    return {field for field in found if field.startswith(ours) and not field.startswith(other)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


ALL: S3Options = {
    "requester_pays": True,
    "server_side_encryption": "aws:kms",
    "sse_kms_key_id": "key-1",
    "storage_class": "GLACIER_IR",
    "acl": "private",
    "metadata": {"a": "b", "C": "d"},
    "content_type": "text/csv",
    "tagging": {"b": "x y", "a": "1"},
    "cache_control": "no-cache",
    "content_disposition": "inline",
    "content_encoding": "zstd",
    "content_language": "de",
    "expires": "Thu, 01 Jan 2026 00:00:00 GMT",
    "bucket_key_enabled": True,
    "object_lock_mode": "GOVERNANCE",
    "object_lock_retain_until": "2030-01-01T00:00:00Z",
    "object_lock_legal_hold": "ON",
    "expected_bucket_owner": "123456789012",
}
BOTO3 = {
    "server_side_encryption": "ServerSideEncryption",
    "sse_kms_key_id": "SSEKMSKeyId",
    "storage_class": "StorageClass",
    "acl": "ACL",
    "content_type": "ContentType",
    "tagging": "Tagging",
    "cache_control": "CacheControl",
    "content_disposition": "ContentDisposition",
    "content_encoding": "ContentEncoding",
    "content_language": "ContentLanguage",
    "expires": "Expires",
    "bucket_key_enabled": "BucketKeyEnabled",
    "object_lock_mode": "ObjectLockMode",
    "object_lock_retain_until": "ObjectLockRetainUntilDate",
    "object_lock_legal_hold": "ObjectLockLegalHoldStatus",
}


def headers_of(**options: Any) -> ObjectHeaders:
    return parse(cast(S3Options, options))[1]


@pytest.mark.quick
@pytest.mark.parametrize("key", [None, KEY])
def test_header_fields_are_those_of_boto3(key: bytes | None) -> None:
    options: dict[str, Any] = {**ALL, "sse_customer_key": key}
    if key:
        del options["server_side_encryption"], options["sse_kms_key_id"]
    bucket = {"RequestPayer": "requester", "ExpectedBucketOwner": options["expected_bucket_owner"]}
    read = bucket | ({"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY} if key else {})
    written = {name: options[option] for option, name in BOTO3.items() if option in options} | read
    written |= {"Metadata": {"a": "b", "c": "d"}, "Tagging": "a=1&b=x%20y"}
    found = headers_of(**options)
    assert set(found.read) == _sent_by_boto3("get_object", **read)
    assert set(found.read) == _sent_by_boto3("head_object", **read)
    fields = {*found.write, *found.of_type("key")}
    assert fields == _sent_by_boto3("put_object", **written)
    assert fields == _sent_by_boto3("create_multipart_upload", **written)
    assert set(found.read) == _sent_by_boto3("upload_part", UploadId="1", PartNumber=1, **read)
    assert set(found.bucket) == _sent_by_boto3("delete_object", **bucket)


OURS = {
    *("content-length", "content-md5", "x-amz-content-sha256", "range", "if-match", "if-none-match"),
    *("x-amz-copy-source", "x-amz-sdk-checksum-algorithm", "x-amz-write-offset-bytes", "x-amz-object-size"),
    *(f"x-amz-if-match-{name}" for name in ("last-modified-time", "size")),
}
"""Header fields that have another place: the content, a range, a condition."""


@pytest.mark.quick
@pytest.mark.parametrize("operation", ["PutObject", "CreateMultipartUpload", "CopyObject"])
def test_each_header_field_that_boto3_has_an_argument_for_can_be_given(operation: str) -> None:
    model: Any = botocore.session.get_session().get_service_model("s3").operation_model(operation)
    places = [shape.serialization for shape in model.input_shape.members.values()]
    names = {place["name"].lower() for place in places if place.get("location") == "header"} - OURS
    assert len(names) > 20
    replaced = {"x-amz-metadata-directive": "REPLACE"} if operation == "CopyObject" else {}
    for name in sorted(names):
        if name.startswith("x-amz-checksum-"):  # that of a content that is known only when it is written
            continue
        found = headers_of(headers={name.title(): "value", **replaced})
        sent = found.copy if operation == "CopyObject" else found.write
        assert f"{name}:value" in sent or "directive" in name, name


def test_requester_pays_is_said_in_each_request(moto: Any) -> None:
    bucket = f"pays-{time.monotonic_ns()}"
    moto.create_bucket(bucket)
    with FaultProxy.before(moto.endpoint) as proxy:
        for sender in ("ours", "boto3"):
            fs = opened(moto, bucket, sender, requester_pays=True, endpoint=proxy.endpoint, mpu_chunksize=5 * MIB)
            proxy.clear()
            _use_everything(fs)
            assert len(proxy.requests()) > 20
            for request in proxy.requests():
                assert request.headers.get("x-amz-request-payer") == "requester", (sender, request)


@pytest.mark.quick
def test_content_types_depend_on_no_host() -> None:
    found = [
        content_type_of(name, "auto") for name in ("a/b.png", "x.tar", "y.tar.gz", "z.NPY", ".png", "a.d/none", "w.txt")
    ]
    assert found == ["image/png", "application/x-tar", None, None, None, None, "text/plain"]


# ---- versions


@pytest.fixture
def versioned(store: Any, bucket: str) -> tuple[str, list[str]]:
    client = users_client(store)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [
        client.put_object(Bucket=bucket, Key="dir/a b.bin", Body=body)["VersionId"]
        for body in (b"first", b"the second")
    ]
    return bucket, ids


@SENDERS
def test_versions(store: Any, versioned: tuple[str, list[str]], sender: str) -> None:
    bucket, (first, _) = versioned
    current = opened(store, bucket, sender)
    fs = opened(store, bucket, sender, versions={"dir/a b.bin": first})
    assert current.read_bytes("dir/a b.bin") == b"the second"
    for _ in range(2):
        assert fs.read_bytes("dir/a b.bin") == b"first"
        assert fs.stat("dir/a b.bin").size == 5
        assert fs.stat("dir/a b.bin").version != current.stat("dir/a b.bin").version
        assert [entry.size for entry in fs.list("dir", detail=True)] == [5]
        assert [entry.size for entry in fs.list(recursive=True, detail=True) if not entry.isdir()] == [5]
        assert list(fs.read_many(["dir/a b.bin"] * 2, concurrency=2)) == [b"first"] * 2
        with fs.open("dir/a b.bin", "rb") as file:
            assert file.read() == b"first"
        with fs.open_blob("dir/a b.bin") as blob:
            assert blob.pread(3, 1) == b"irs"
        fs.copy("dir/a b.bin", f"dir/{sender}.bin")
        assert current.read_bytes(f"dir/{sender}.bin") == b"first"
        current.remove(f"dir/{sender}.bin")
        users_client(store).delete_object(Bucket=bucket, Key="dir/a b.bin")  # the versions stay
        users_client(store).put_object(Bucket=bucket, Key="dir/a b.bin", Body=b"the third")
    for change in (
        lambda: fs.write_bytes("dir/a b.bin", b""),
        lambda: fs.write_many([("dir/a b.bin", b""), ("c", b"")], concurrency=2),
        lambda: fs.remove("dir/a b.bin"),
        lambda: fs.remove("dir", recursive=True),
        lambda: fs.rename("dir/a b.bin", "b"),
        lambda: fs.open("dir/a b.bin", "wb"),
    ):
        with pytest.raises(OSError, match="version of an object"):
            change()
    assert current.read_bytes("dir/a b.bin") == b"the third"


def test_versions_in_urls(store: Any, versioned: tuple[str, list[str]], tmp_path: Path) -> None:
    bucket, (first, second) = versioned
    for version, content in ((first, b"first"), (second, b"the second")):
        url = f"s3://{bucket}/dir/a%20b.bin?versionId={version}"
        with fsabs.open_url(url, "rb", **settings(store)) as file:
            assert file.read() == content
    fs = fsabs.from_url(f"s3://{bucket}", versions={"dir/a b.bin": first}, **settings(store))
    assert fs.url("dir/a b.bin") == f"s3://{bucket}/dir/a%20b.bin?versionId={first}"
    fsabs.add_custom_scheme("versionedstore", "s3", {"prefix": "dir"})
    with fsabs.open_url(f"versionedstore://{bucket}/a%20b.bin?versionId={first}", "rb", **settings(store)) as file:
        assert file.read() == b"first"


def test_a_version_of_a_container(store: Any, versioned: tuple[str, list[str]], tmp_path: Path) -> None:
    bucket, _ = versioned
    fs = S3(bucket, **settings(store))
    ids = []
    for content in (b"1", b"22"):
        with fs.open_container("t.zip", mode="w") as archive:
            archive.write_bytes("in/x y.txt", content)
        ids.append(users_client(store).head_object(Bucket=bucket, Key="t.zip")["VersionId"])
    for version, content in zip(ids, (b"1", b"22"), strict=True):
        url = f"s3://{bucket}/t.zip/in?versionId={version}"
        with fsabs.from_url(url, cache=str(tmp_path / "cache"), **settings(store)) as inside:
            assert inside.read_bytes("x y.txt") == inside.read_bytes("x y.txt") == content
            assert inside.url("x y.txt") == f"s3://{bucket}/t.zip/in/x%20y.txt?versionId={version}"
        with fsabs.open_url(f"s3://{bucket}/t.zip/in/x%20y.txt?versionId={version}", "rb", **settings(store)) as file:
            assert file.read() == content


@pytest.mark.quick
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://b/a?version=1", "versionId"),
        ("s3://b/a?versionId=", "%3F"),
        ("s3://b/a?", "%3F"),
        ("s3://b/a?b", "%3F"),
        ("s3://b/a?versionId=1&versionId=2", "each name once"),
        ("memory://x/a?versionId=1", "%3F"),
        ("s3://b/a#b", "%23"),
    ],
)
def test_queries_that_no_url_has(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fsabs.from_url(url)
    with pytest.raises(ValueError, match="%23" if "#" in url else "%3F"):
        fsabs.Path(url).exists()


# ---- what can't be


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_clas": "x"}, "did you mean 'storage_class'"),
        ({"sse_customer_key": b"short"}, "32 bytes"),
        ({"sse_customer_key": "?" * 44}, "32 bytes"),
        ({"sse_customer_key": KEY, "server_side_encryption": "AES256"}, "goes without"),
        ({"sse_kms_key_id": "k"}, "needs server_side_encryption"),
        ({"metadata": {"a b": "c"}}, "name of metadata"),
        ({"metadata": {"fsabs-write": "c"}}, "name of metadata"),
        ({"metadata": {"a": "é"}}, "ASCII"),
        ({"metadata": {"a": "b\r\nx-amz-acl: public-read"}}, "ASCII"),
        ({"acl": "a\nb"}, "ASCII"),
        ({"content_type": ""}, "ASCII"),
        ({"session": "default"}, "boto3.Session"),
        ({"session": boto3.Session(), "profile": "x"}, "goes without profile"),
        ({"versions": {"a": ""}}, "not empty"),
        ({"aws_access_key_id": "k"}, "go together: only aws_access_key_id="),
        ({"aws_secret_access_key": "s"}, "go together: only aws_secret_access_key="),
    ],
)
def test_options_that_can_not_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        S3("bucket", **options)
    with pytest.raises((TypeError, ValueError), match=message):
        fsabs.from_url("s3://bucket", **options)


@pytest.mark.quick
def test_each_option_has_a_place() -> None:
    given: dict[str, Any] = {**ALL, "sse_customer_key": KEY, "headers": {"x-amz-grant-read": "id=1"}}
    assert set(typing.get_type_hints(S3Options)) == {*Options._fields, *given, "versions", "checksum_algorithm"}
    for name, value in given.items():
        more = {"server_side_encryption": "aws:kms"} if name == "sse_kms_key_id" else {}
        assert headers_of(**{name: value}, **more) != headers_of(**more), name


def test_a_section_of_the_configuration_file(moto: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = f"ini-{time.monotonic_ns()}"
    moto.create_bucket(bucket)
    lines = [f"{name} = {value}" for name, value in settings(moto).items()]
    more = ["metadata = owner=lab 7, run=0042", "storage_class = STANDARD_IA", "content_type = auto", "verify = true"]
    (tmp_path / "pfio.ini").write_text("\n".join(["[inistore]", "scheme = s3", *lines, *more]))
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    fs = fsabs.from_url(f"inistore://{bucket}")
    fs.write_bytes("a.png", b"1")
    head = users_client(moto).head_object(Bucket=bucket, Key="a.png")
    assert (head["Metadata"], head["StorageClass"]) == ({"owner": "lab 7", "run": "0042"}, "STANDARD_IA")
    assert head["ContentType"] == "image/png"


# ---- sessions


def _session(store: Any, tmp_path: Path, profile: bool) -> Any:
    if not profile:
        keys = (store.access_key, store.secret_key)
        return boto3.Session(*keys, region_name=store.region, botocore_session=core_session())
    (tmp_path / "credentials").write_text(
        f"[lab]\naws_access_key_id = {store.access_key}\naws_secret_access_key = {store.secret_key}\n"
    )
    return boto3.Session(profile_name="lab", region_name=store.region, botocore_session=core_session())


def test_sessions(ceph: Any, tmp_path: Path) -> None:
    bucket = f"session-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    for session in (
        _session(ceph, tmp_path, True),
        _session(ceph, tmp_path, False),
        _session(ceph, tmp_path, False)._session,
    ):
        fs = S3(bucket, endpoint=ceph.endpoint, session=session)
        fs.write_bytes("a", b"1")
        assert fs.read_bytes("a") == b"1"
        assert principal(resolve(bucket, fs.options), fs.options) == ceph.access_key


def test_a_session_of_a_profile_pickles_by_its_name(ceph: Any, tmp_path: Path) -> None:
    bucket = f"session-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)
    fs = S3(bucket, endpoint=ceph.endpoint, session=_session(ceph, tmp_path, True))
    fs.write_bytes("a", b"1")
    again = pickle.loads(pickle.dumps(fs))
    assert again.read_bytes("a") == b"1"
    assert (again.options.profile, again.options.session, again.options.region) == ("lab", None, ceph.region)
    with pytest.raises(pickle.PicklingError, match="profile="):
        pickle.dumps(S3(bucket, endpoint=ceph.endpoint, session=_session(ceph, tmp_path, False)))


@pytest.mark.quick
@pytest.mark.parametrize("source", ["set", "renewable", "environment", "profile"])
def test_a_session_pickles_by_the_profile_of_the_environment_if_its_credentials_are_of_it(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = lab\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    core = core_session()
    if source == "set":
        core.set_credentials("mine", "b")
    elif source == "renewable":
        answer = {"access_key": "mine", "secret_key": "b", "token": "t", "expiry_time": "2099-01-01T00:00:00Z"}
        core._credentials = RefreshableCredentials.create_from_metadata(answer, lambda: answer, "sts-assume-role")
    elif source == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    options = Options(session=core)
    if source == "profile":
        assert pickle.loads(pickle.dumps(options)).profile == "lab"
    else:
        with pytest.raises(pickle.PicklingError, match="profile="):
            pickle.dumps(options)


def test_a_session_whose_credentials_are_being_renewed_in_a_fork(ceph: Any) -> None:
    from datetime import UTC, datetime, timedelta

    bucket = f"session-{time.monotonic_ns()}"
    ceph.create_bucket(bucket)

    def renew() -> dict[str, str]:
        soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()  # renewed before each request
        return {"access_key": ceph.access_key, "secret_key": ceph.secret_key, "token": "", "expiry_time": soon}

    core = core_session()
    core._credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "custom")
    fs = S3(bucket, endpoint=ceph.endpoint, region=ceph.region, session=core)
    fs.write_bytes("a", b"1")
    with core._credentials._refresh_lock:
        child = os.fork()
        if not child:
            os._exit(0 if fs.read_bytes("a") == b"1" else 1)
        assert _ended(child) == 0
    assert fs.read_bytes("a") == b"1"


def _ended(child: int) -> int:
    for _ in range(300):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


# ---- connections


@pytest.fixture
def proxy(moto: Any) -> Iterator[FaultProxy]:
    with FaultProxy.before(moto.endpoint) as made:
        yield made


def test_proxies(moto: Any, proxy: FaultProxy) -> None:
    bucket = f"proxy-{time.monotonic_ns()}"
    moto.create_bucket(bucket)
    fs = S3(bucket, **settings(moto), proxies={"http": proxy.endpoint}, mpu_chunksize=5 * MIB)
    assert fs.http.endpoint.proxy == proxy.endpoint
    _use_everything(fs)
    assert len(proxy.requests()) > 10


@SENDERS
def test_certificates(tmp_path: Path, sender: str) -> None:
    path = certificate(tmp_path)
    keys = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1", "max_attempts": 1}
    with HostileStore(path) as store:
        assert store.context is not None
        options: dict[str, Any] = {"endpoint": store.endpoint, **keys}
        with pytest.raises(OSError, match="certificate"):
            opened_by(sender, **options).read_bytes("10-a")
        for verify in (f"{path}.crt", False):
            assert len(opened_by(sender, verify=verify, **options).read_bytes("10-a")) == 10
        store.context.load_verify_locations(f"{path}.crt")
        store.context.verify_mode = ssl.CERT_REQUIRED
        options["verify"] = f"{path}.crt"
        with pytest.raises(OSError):
            opened_by(sender, **options).read_bytes("10-a")
        fs = opened_by(sender, client_certificate=path, **options)
        assert len(fs.read_bytes("10-a")) == 10
        fs.write_bytes("new", b"1")
        assert store.written["new"] == b"1"
