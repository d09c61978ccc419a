"""Endpoints of buckets: host, path, region and signing name are those of the requests that boto3 itself would send.

No network: what boto3 sends is caught by an event handler in place of it.
"""

from __future__ import annotations

import os
import re
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import BotoCoreError

import fsabs
from fsabs.backends.s3 import S3, boto, endpoint
from fsabs.backends.s3.endpoint import EXPRESS, Place, S3Access, plain, resolve
from fsabs.backends.s3.options import Options
from tests.backends.sessions import core_session

pytestmark = pytest.mark.quick

REGIONS = (
    "us-east-1",
    "us-west-2",
    "eu-central-1",
    "ap-southeast-4",
    "sa-east-1",
    "cn-north-1",
    "us-gov-west-1",
)
"""Of each partition, the one that is asked where none is given, and those of some continents: the rules have no more
differences."""
OPERATIONS: dict[str, Callable[[Any, str], Any]] = {
    "GET": lambda client, bucket: client.get_object(Bucket=bucket, Key="a/b c"),
    "HEAD": lambda client, bucket: client.head_object(Bucket=bucket, Key="a/b c"),
    "PUT": lambda client, bucket: client.put_object(Bucket=bucket, Key="a/b c", Body=b"1"),
    "LIST": lambda client, bucket: client.list_objects_v2(Bucket=bucket),
}


class Setting(NamedTuple):
    """What a user has configured."""

    config: str = ""
    """Lines of the profile in AWS's configuration file."""
    environment: tuple[tuple[str, str], ...] = ()
    bucket: str = "my-bucket"
    endpoint: str | None = None
    path_style: bool | None = None
    regions: tuple[str, ...] = REGIONS


FEW = ("us-east-1", "eu-central-1", "cn-north-1")


def users_client(**options: Any) -> Any:
    """A client of boto3 as a user would make it, but that all share the descriptions of AWS's services."""
    return boto3.Session(botocore_session=core_session()).client("s3", **options)


SETTINGS = {
    "default": Setting(),
    "dotted": Setting(bucket="my.dotted.bucket", regions=FEW),
    "path": Setting("s3 =\n  addressing_style = path"),
    "virtual": Setting("s3 =\n  addressing_style = virtual"),
    "path option": Setting(path_style=True, regions=FEW),
    "dualstack": Setting("use_dualstack_endpoint = true"),
    "dualstack dotted": Setting("use_dualstack_endpoint = true", bucket="my.dotted.bucket", regions=FEW),
    "fips": Setting(environment=(("AWS_USE_FIPS_ENDPOINT", "true"),)),
    "accelerate": Setting("s3 =\n  use_accelerate_endpoint = true"),
    "access point": Setting(bucket="arn:{partition}:s3:{region}:123456789012:accesspoint/my-ap"),
    "outpost": Setting(
        bucket="arn:{partition}:s3-outposts:{region}:123456789012:outpost/op-01234567890123456/accesspoint/reports",
        regions=FEW,
    ),
    "express": Setting(bucket="mine--use1-az5--x-s3"),
    "endpoint": Setting(endpoint="http://store.example:9000"),
    "endpoint virtual": Setting("s3 =\n  addressing_style = virtual", endpoint="https://store.example", regions=FEW),
    "endpoint path": Setting(endpoint="https://gateway.example/path/prefix"),
    "endpoint variable": Setting(environment=(("AWS_ENDPOINT_URL", "https://variable.example:8443"),), regions=FEW),
    "endpoint configured": Setting("endpoint_url = http://configured.example", regions=FEW),
    "ipv6": Setting(endpoint="http://[::1]:9000"),
    "ipv6 tls": Setting(endpoint="https://[2001:db8::7]", regions=FEW),
}


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_", "BOTO")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    _forget_all()


def _forget_all() -> None:
    """The files of before are known, by their names."""
    boto._shared.cache_clear()
    endpoint._remembered.clear()


class Sent(NamedTuple):
    """What boto3 sends."""

    host: str
    path: str
    region: str
    signing_name: str


SESSION = b"""<CreateSessionResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>
<AccessKeyId>a</AccessKeyId><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"""


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self._body

    def read(self, *_: Any, **__: Any) -> bytes:
        return self._body


def sent_by_boto3(client: Any, bucket: str, operation: str) -> Sent:
    """The request of boto3 for `operation`, which is answered in place of a store."""
    requests: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        if "?session" in request.url:
            return AWSResponse(request.url, 200, HTTPHeaders(), _Raw(SESSION))
        requests.append(request)
        empty = b"<ListBucketResult/>" if operation == "LIST" else b""
        return AWSResponse(request.url, 200, HTTPHeaders(), _Raw(empty))

    client.meta.events.register_first("before-send.s3", answer, unique_id="test")
    try:
        OPERATIONS[operation](client, bucket)
    finally:
        client.meta.events.unregister("before-send.s3", unique_id="test")
    (request,) = requests
    parts = urllib.parse.urlsplit(request.url)
    authorization = request.headers["Authorization"]
    if isinstance(authorization, bytes):
        authorization = authorization.decode()
    scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/aws4_request", authorization)
    assert scope is not None
    return Sent(parts.netloc, parts.path, scope[1], scope[2])


def ours(place: Place, operation: str) -> Sent:
    endpoint = place.endpoint
    path = endpoint.bucket_path if operation == "LIST" else endpoint.path_prefix + "a/b%20c"
    return Sent(endpoint.host_header, path, place.region, place.signing_name)


def configured(setting: Setting, region: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Options, str]:
    (folder / "config").write_text(f"[default]\nregion = {region}\n{setting.config}\n")
    for name, value in setting.environment:
        monkeypatch.setenv(name, value)
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rpartition("-")[0].rpartition("-")[0], "aws")
    bucket = setting.bucket.format(region=region, partition=partition)
    _forget_all()
    return Options(endpoint=setting.endpoint, path_style=setting.path_style), bucket


@pytest.mark.parametrize("name", SETTINGS)
def test_requests_go_where_boto3_sends_them(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compared = 0
    for region in SETTINGS[name].regions:
        options, bucket = configured(SETTINGS[name], region, monkeypatch, tmp_path)
        users = users_client(endpoint_url=options.endpoint)
        if options.path_style:
            users = users_client(config=Config(s3={"addressing_style": "path"}))
        try:
            expected = {operation: sent_by_boto3(users, bucket, operation) for operation in OPERATIONS}
        except BotoCoreError as exc:  # there is no such endpoint in this region
            with pytest.raises(OSError, match=re.escape(str(exc)[:40])):
                resolve(bucket, options)
            continue
        resolved = resolve(bucket, options)
        found = {operation: ours(resolved, operation) for operation in OPERATIONS}
        assert found == expected, region
        compared += 1
    assert compared >= len(SETTINGS[name].regions) - 4


def test_proxies_certificates_and_retries_are_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("")
    lines = "max_attempts = 7\nretry_mode = adaptive\nca_bundle = " + str(tmp_path / "ca.pem")
    setting = Setting(lines, environment=(("HTTPS_PROXY", "proxy.example:3128"), ("NO_PROXY", "inner.example")))
    options, bucket = configured(setting, "us-east-1", monkeypatch, tmp_path)
    found = resolve(bucket, options).endpoint
    assert (found.proxy, found.verify) == ("http://proxy.example:3128", str(tmp_path / "ca.pem"))
    inner = options._replace(endpoint="https://store.inner.example")
    assert resolve(bucket, inner).endpoint.proxy is None


def test_what_is_known_of_an_endpoint_needs_no_client_in_a_forked_child() -> None:
    options = Options(region="us-east-1")
    parent = resolve("my-bucket", options)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        found = resolve("my-bucket", options)
        os.write(writer, b"1" if found == parent and boto.shared_client(options).peek() is None else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"1"


def test_a_bucket_that_has_moved_is_looked_for_in_its_region() -> None:
    options = Options(region="us-east-1")
    access = S3Access("my-bucket", options, resolve("my-bucket", options))
    assert access.endpoint.host == "my-bucket.s3.amazonaws.com"
    moved = access.moved("eu-west-1")
    assert isinstance(moved, S3Access)
    assert (moved.endpoint.host, moved.place.region) == ("my-bucket.s3.eu-west-1.amazonaws.com", "eu-west-1")
    assert access.moved("us-east-1") is None


def test_credentials_of_a_session_of_express_are_asked_for_at_the_first_request() -> None:
    options = Options(region="us-east-1")
    found = resolve("mine--use1-az5--x-s3", options)  # there is no network: nothing was sent
    boto.shared_client(options).get().meta.events.register_first(
        "before-send.s3", lambda request, **_: AWSResponse(request.url, 200, HTTPHeaders(), _Raw(SESSION))
    )
    assert found.credentials.get_frozen_credentials().token == "t"
    assert (found.signing_name, found.signature) == ("s3express", EXPRESS)


def test_requests_that_only_boto3_can_sign_are_carried_by_it() -> None:
    session = botocore.session.get_session()
    options = Options(region="us-east-1", session=session)
    assert resolve("my-bucket", options).endpoint.transport is None
    session.set_default_client_config(Config(signature_version="s3", read_timeout=7))
    _forget_all()
    endpoint = resolve("my-bucket", options).endpoint
    assert endpoint.transport is not None
    assert (endpoint.connect_timeout, endpoint.read_timeout) == (60, 7)  # the session's own settings hold


def test_requests_that_a_hook_of_the_user_changes_are_carried_by_boto3() -> None:
    session: Any = botocore.session.get_session()
    session.register("before-sign.s3", lambda request, **_: request.headers.add_header("x-mine", "1"))
    assert resolve("my-bucket", Options(region="us-east-1", session=session)).endpoint.transport is not None


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_plain_is_resolved_as_boto3_does(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for region in SETTINGS[name].regions:
        options, bucket = configured(SETTINGS[name], region, monkeypatch, tmp_path)
        found = plain(bucket, options)
        if found is not None:
            by_boto3 = boto.resolve(bucket, options)
            assert found._replace(credentials=None) == by_boto3._replace(credentials=None)
            assert found.credentials.get_frozen_credentials()[:3] == by_boto3.credentials.get_frozen_credentials()[:3]
    assert (plain(*reversed(configured(SETTINGS[name], "us-east-1", monkeypatch, tmp_path))) is not None) == (
        name in ("default", "path option", "endpoint", "endpoint path", "endpoint variable", "ipv6", "ipv6 tls")
    )


ARN = "arn:aws:s3:eu-west-1:123456789012:accesspoint"
OUTPOST = "arn:aws:s3-outposts:eu-west-1:123456789012:outpost"


@pytest.mark.parametrize(
    ("url", "bucket", "path"),
    [
        (f"s3://{ARN}/mine", f"{ARN}/mine", "/"),
        (f"s3://{ARN}/mine/a/b", f"{ARN}/mine", "/a/b"),
        (f"s3://{ARN}:mine/a/b", f"{ARN}:mine", "/a/b"),
        (f"s3://{OUTPOST}/op-0123/accesspoint/mine/a", f"{OUTPOST}/op-0123/accesspoint/mine", "/a"),
        (f"s3://{OUTPOST}:op-0123:accesspoint:mine/a", f"{OUTPOST}:op-0123:accesspoint:mine", "/a"),
    ],
)
def test_urls_of_access_points(url: str, bucket: str, path: str) -> None:
    fs = fsabs.from_url(url, region="eu-west-1")
    assert isinstance(fs, S3)
    assert (fs.bucket, fs.cwd) == (bucket, path)
    assert fs.http.endpoint.host.startswith("mine-123456789012.")
    again = fsabs.from_url(fs.url(), region="eu-west-1")
    assert isinstance(again, S3)
    assert (again.bucket, again.cwd) == (bucket, path)


@pytest.mark.parametrize("url", [f"s3://{ARN}", f"s3://{ARN}/", f"s3://{OUTPOST}/op-0123/accesspoint"])
def test_an_access_point_has_a_name(url: str) -> None:
    with pytest.raises(ValueError, match="name of its access point"):
        fsabs.from_url(url)


def test_a_failure_to_connect_names_the_endpoint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    options: dict[str, Any] = {
        "endpoint": endpoint,
        "max_attempts": 1,
        "aws_access_key_id": "me",
        "aws_secret_access_key": "secret",
    }
    fs = fsabs.from_url("s3://bucket", region="us-east-1", **options)
    for read in (fs.read_bytes, lambda path: list(fs.read_many([path, path]))):
        with pytest.raises(ConnectionRefusedError, match=re.escape(endpoint)):
            read("a")
