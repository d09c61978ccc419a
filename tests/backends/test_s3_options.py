"""Options of S3: encryption, versions, storage class, metadata, sessions, certificates, proxies.

They hold for our own requests and for those that boto3 makes in their place; what a store ignores is compared with the
request that boto3 itself would send.
"""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any, cast

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

import fsabs
from fsabs.backends.objects.dialect import content_type_of
from fsabs.backends.s3 import S3
from fsabs.backends.s3.options import ObjectHeaders, S3Options, parse
from tests.backends.s3_clients import (
    KEYS,
    MIB,
    client_of,
    core_session,
    new_bucket,
    settings,
    use_everything,
    users_client,
)
from tests.servers.hostile_store import HostileStore
from tests.servers.network import FaultProxy

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
SENDERS = pytest.mark.parametrize("sender", ["ours", "boto3"])
pytestmark = pytest.mark.usefixtures("no_settings")


def opened_by(sender: str, bucket: str = "bucket", **options: Any) -> S3:
    """Return a bucket whose requests are sent by our own client, or by boto3."""
    if sender == "boto3":  # it alone makes this change
        core = core_session()
        core.register("before-sign.s3", lambda request, **_: request.headers.add_header("x-mine", "1"))
        core.set_credentials(options.pop("aws_access_key_id"), options.pop("aws_secret_access_key"))
        options["session"] = core
    fs = S3(bucket, **options)
    assert (fs.http.endpoint.transport is not None) == (sender == "boto3")
    return fs


def new_by(sender: str, server: Any, **options: Any) -> S3:
    """Return a new bucket, whose large files go up in the smallest parts."""
    return opened_by(sender, new_bucket(server).bucket, **settings(server, mpu_chunksize=5 * MIB, **options))


# ---- encryption


@SENDERS
def test_customer_keys(ceph: Any, sender: str) -> None:  # moto looks at no key
    fs = new_by(sender, ceph, sse_customer_key=KEY)
    use_everything(fs)
    with pytest.raises(ClientError):
        client_of(ceph).head_object(Bucket=fs.bucket, Key="b/copy.bin")
    for key in (None, OTHER_KEY):
        other = opened_by(sender, fs.bucket, **settings(ceph, sse_customer_key=key))
        assert other.dialect.key_digest() != fs.dialect.key_digest()
        with pytest.raises(OSError):
            other.read_bytes("b/copy.bin")
    text = opened_by(sender, fs.bucket, **settings(ceph, sse_customer_key=base64.b64encode(KEY).decode()))
    assert text.read_bytes("b/copy.bin") == b"small" * 1000
    assert text.dialect.key_digest() == fs.dialect.key_digest()


def test_keys_of_the_store(ceph: Any) -> None:
    fs = new_by("ours", ceph, server_side_encryption="aws:kms", sse_kms_key_id="key-1")
    use_everything(fs)
    head = client_of(ceph).head_object(Bucket=fs.bucket, Key="b/copy.bin")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "key-1")


# ---- what new objects are given


@pytest.mark.parametrize(("kind", "sender"), [("ceph", "ours"), ("moto", "ours"), ("moto", "boto3")])
def test_new_objects(kind: str, sender: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    storage = "STANDARD" if kind == "ceph" else "STANDARD_IA"
    metadata = {"Owner": "lab 7", "run": "0042"}
    more: dict[str, Any] = {"content_type": "auto", "acl": "public-read", "storage_class": storage}
    fs = new_by(sender, server, metadata=metadata, **more)
    for name, size in (("cat.png", 10), ("large.png", 6 * MIB), ("no-type", 1), ("data.json.gz", 1)):
        with fs.open(name, "wb") as file:
            file.write(b"x" * size)
    fs.write_many([("dog.JPG", b"x")], concurrency=2)
    fs.copy("cat.png", "copy.png")
    client = client_of(server)
    heads = {name: client.head_object(Bucket=fs.bucket, Key=name) for name in fs.list()}
    for name, head in heads.items():
        assert {key: value for key, value in head["Metadata"].items() if key != "fsabs-write"} == {
            "owner": "lab 7",
            "run": "0042",
        }, name
        grants = client.get_object_acl(Bucket=fs.bucket, Key=name)["Grants"]
        assert any("AllUsers" in grant["Grantee"].get("URI", "") for grant in grants), name
    types = {name: head["ContentType"] for name, head in heads.items()}
    assert {types.pop("no-type"), types.pop("data.json.gz")} <= {"binary/octet-stream", "application/octet-stream", ""}
    assert types == {name: "image/jpeg" if name == "dog.JPG" else "image/png" for name in types}
    listed = client.list_objects_v2(Bucket=fs.bucket)["Contents"]
    assert {entry["StorageClass"] for entry in listed} == {storage}


def _sent_by_boto3(call: str, **parameters: Any) -> set[str]:
    """The `x-amz-` header fields that boto3 would send."""
    client = users_client(region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
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


ALL = {
    "server_side_encryption": ("ServerSideEncryption", "aws:kms"),
    "sse_kms_key_id": ("SSEKMSKeyId", "key-1"),
    "storage_class": ("StorageClass", "GLACIER_IR"),
    "acl": ("ACL", "private"),
    "content_type": ("ContentType", "text/csv"),
    "tagging": ("Tagging", "a=1&b=x%20y"),
    "cache_control": ("CacheControl", "no-cache"),
    "content_disposition": ("ContentDisposition", "inline"),
    "content_encoding": ("ContentEncoding", "zstd"),
    "content_language": ("ContentLanguage", "de"),
    "expires": ("Expires", "Thu, 01 Jan 2026 00:00:00 GMT"),
    "bucket_key_enabled": ("BucketKeyEnabled", True),
    "object_lock_mode": ("ObjectLockMode", "GOVERNANCE"),
    "object_lock_retain_until": ("ObjectLockRetainUntilDate", "2030-01-01T00:00:00Z"),
    "object_lock_legal_hold": ("ObjectLockLegalHoldStatus", "ON"),
}
"""Options, with the names that boto3 has for them, and values."""


def headers_of(**options: Any) -> ObjectHeaders:
    return parse(cast(S3Options, options))[1]


@pytest.mark.quick
@pytest.mark.parametrize("key", [None, KEY])
def test_header_fields_are_those_of_boto3(key: bytes | None) -> None:
    given = {name: pair for name, pair in ALL.items() if key is None or not name.startswith(("server", "sse"))}
    options: dict[str, Any] = {name: value for name, (_, value) in given.items()} | {"sse_customer_key": key}
    options |= {"requester_pays": True, "expected_bucket_owner": "123456789012", "metadata": {"a": "b", "C": "d"}}
    found = headers_of(**{**options, "tagging": {"b": "x y", "a": "1"}})
    bucket = {"RequestPayer": "requester", "ExpectedBucketOwner": "123456789012"}
    read = bucket | ({"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY} if key else {})
    written = dict(given.values()) | read | {"Metadata": {"a": "b", "c": "d"}}
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


@SENDERS
def test_requester_pays_is_said_in_each_request(moto: Any, sender: str) -> None:
    with FaultProxy.before(moto.endpoint) as proxy:
        fs = new_by(sender, moto, requester_pays=True)
        use_everything(opened_by(sender, fs.bucket, **settings(moto, requester_pays=True, endpoint=proxy.endpoint)))
        assert len(proxy.requests()) > 15
        for request in proxy.requests():
            assert request.headers.get("x-amz-request-payer") == "requester", request


@pytest.mark.quick
def test_content_types_depend_on_no_host() -> None:
    found = [
        content_type_of(name, "auto") for name in ("a/b.png", "x.tar", "y.tar.gz", "z.NPY", ".png", "a.d/none", "w.txt")
    ]
    assert found == ["image/png", "application/x-tar", None, None, None, None, "text/plain"]


# ---- versions


def versioned(server: Any) -> tuple[Any, str, list[str]]:
    """Return a client of boto3, a bucket with versions, and those of two contents of an object."""
    client, bucket = client_of(server), new_bucket(server).bucket
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    bodies = (b"first", b"the second")
    ids = [client.put_object(Bucket=bucket, Key="dir/a b.bin", Body=body)["VersionId"] for body in bodies]
    return client, bucket, ids


@pytest.mark.parametrize(("kind", "sender"), [("moto", "ours"), ("ceph", "boto3")])
def test_versions(kind: str, sender: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    client, bucket, (first, _) = versioned(server)
    current = opened_by(sender, bucket, **settings(server))
    fs = opened_by(sender, bucket, **settings(server, versions={"dir/a b.bin": first}))
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
        fs.copy("dir/a b.bin", "dir/copy")
        assert current.read_bytes("dir/copy") == b"first"
        current.remove("dir/copy")
        client.delete_object(Bucket=bucket, Key="dir/a b.bin")  # the versions stay
        client.put_object(Bucket=bucket, Key="dir/a b.bin", Body=b"the third")
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


def test_versions_in_urls(ceph: Any, tmp_path: Path) -> None:
    client, bucket, ids = versioned(ceph)
    options = settings(ceph)
    fsabs.add_custom_scheme("versionedstore", "s3", {"prefix": "dir"})
    for version, content in zip(ids, (b"first", b"the second"), strict=True):
        for url in (f"s3://{bucket}/dir", f"versionedstore://{bucket}"):
            with fsabs.open_url(f"{url}/a%20b.bin?versionId={version}", "rb", **options) as file:
                assert file.read() == content
    fs = fsabs.from_url(f"s3://{bucket}", versions={"dir/a b.bin": ids[0]}, **options)
    assert fs.url("dir/a b.bin") == f"s3://{bucket}/dir/a%20b.bin?versionId={ids[0]}"
    for content in (b"1", b"22"):  # a container, and through a cache
        with S3(bucket, **options).open_container("t.zip", mode="w") as archive:
            archive.write_bytes("in/x y.txt", content)
        ids.append(client.head_object(Bucket=bucket, Key="t.zip")["VersionId"])
    for version, content in zip(ids[2:], (b"1", b"22"), strict=True):
        url = f"s3://{bucket}/t.zip/in?versionId={version}"
        with fsabs.from_url(url, cache=str(tmp_path / "cache"), **options) as inside:
            assert inside.read_bytes("x y.txt") == inside.read_bytes("x y.txt") == content
            assert inside.url("x y.txt") == f"s3://{bucket}/t.zip/in/x%20y.txt?versionId={version}"
        with fsabs.open_url(f"s3://{bucket}/t.zip/in/x%20y.txt?versionId={version}", "rb", **options) as file:
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
        ({"mpu_chunksize": 1000}, "5 MiB"),
    ],
)
def test_options_that_can_not_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        S3("bucket", **options)
    with pytest.raises((TypeError, ValueError), match=message):
        fsabs.from_url("s3://bucket", **options)


@pytest.mark.quick
def test_a_profile_that_nothing_describes_is_named() -> None:
    with pytest.raises(fsabs.ConfigError, match="nobodys"):
        S3("b", profile="nobodys").exists("x")


def test_a_section_of_the_configuration_file(moto: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, secret = new_bucket(moto).bucket, moto.secret_key
    monkeypatch.setenv("CORP_SECRET", secret)
    lines = [f"{name} = {value}" for name, value in settings(moto, aws_secret_access_key="${CORP_SECRET}").items()]
    lines += ["metadata = owner=lab 7, run=0042", "storage_class = STANDARD_IA", "content_type = auto", "verify = true"]
    lines += ["max_attempts = 2", "read_timeout = 7.5", "prefix = team/data"]
    (tmp_path / "pfio.ini").write_text("\n".join(["[corp]", "scheme = s3", *lines]))
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    fs = fsabs.from_url(f"corp://{bucket}/images")
    assert isinstance(fs, S3)
    assert (fs.options.max_attempts, fs.options.read_timeout) == (2, 7.5)
    fs.write_bytes("a.png", b"1")
    head = client_of(moto).head_object(Bucket=bucket, Key="team/data/images/a.png")
    assert (head["Metadata"], head["StorageClass"]) == ({"owner": "lab 7", "run": "0042"}, "STANDARD_IA")
    assert head["ContentType"] == "image/png"
    assert secret not in repr(fs) + str(fs.info())


# ---- connections


def test_proxies(moto: Any) -> None:
    with FaultProxy.before(moto.endpoint) as proxy:
        fs = new_by("ours", moto, proxies={"http": proxy.endpoint})
        assert fs.http.endpoint.proxy == proxy.endpoint
        fs.write_bytes("a", b"1")
        assert list(fs.read_many(["a"] * 5)) == [b"1"] * 5
        assert len(proxy.requests()) == 6


@SENDERS
def test_certificates(pem: str, sender: str) -> None:
    with HostileStore(pem) as store:
        assert store.context is not None
        options: dict[str, Any] = {"endpoint": store.endpoint, "max_attempts": 1, **KEYS}
        with pytest.raises(OSError, match="certificate"):
            opened_by(sender, **options).read_bytes("10-a")
        for verify in (f"{pem}.crt", False):
            assert len(opened_by(sender, verify=verify, **options).read_bytes("10-a")) == 10
        store.context.load_verify_locations(f"{pem}.crt")
        store.context.verify_mode = ssl.CERT_REQUIRED
        options["verify"] = f"{pem}.crt"
        with pytest.raises(OSError):
            opened_by(sender, **options).read_bytes("10-a")
        fs = opened_by(sender, client_certificate=pem, **options)
        assert len(fs.read_bytes("10-a")) == 10
        fs.write_bytes("new", b"1")
        assert store.written["new"] == b"1"
