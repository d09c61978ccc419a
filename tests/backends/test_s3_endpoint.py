"""Endpoints of buckets: host, path, region and signing name are those of the requests that boto3 itself would send.

No network: what boto3 sends is caught by an event handler in place of it.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import BotoCoreError

import fsabs
from fsabs.backends.s3 import boto
from fsabs.backends.s3.endpoint import S3Access, plain, resolve
from fsabs.backends.s3.options import Options
from fsabs.backends.s3.resolved import EXPRESS, ResolvedBucket
from tests.backends.s3_clients import SESSION, core_session, opened, users_client
from tests.servers.network import Refused

pytestmark = pytest.mark.quick

FEW = ("us-east-1", "eu-central-1", "cn-north-1")
REGIONS = (*FEW, "us-gov-west-1", "sa-east-1")
"""Of each partition, the one that is asked where none is given, and one more: the rules have no more differences."""
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
    regions: tuple[str, ...] = FEW
    plain: bool = False
    """True if it takes no boto3 to resolve."""


SETTINGS = {
    "default": Setting(regions=REGIONS, plain=True),
    "dotted": Setting(bucket="my.dotted.bucket"),
    "path": Setting("s3 =\n  addressing_style = path"),
    "virtual": Setting("s3 =\n  addressing_style = virtual"),
    "path option": Setting(path_style=True, plain=True),
    "dualstack": Setting("use_dualstack_endpoint = true"),
    "dualstack dotted": Setting("use_dualstack_endpoint = true", bucket="my.dotted.bucket"),
    "fips": Setting(environment=(("AWS_USE_FIPS_ENDPOINT", "true"),), regions=REGIONS),
    "accelerate": Setting("s3 =\n  use_accelerate_endpoint = true"),
    "access point": Setting(bucket="arn:{partition}:s3:{region}:123456789012:accesspoint/my-ap"),
    "outpost": Setting(
        bucket="arn:{partition}:s3-outposts:{region}:123456789012:outpost/op-01234567890123456/accesspoint/reports"
    ),
    "express": Setting(bucket="mine--use1-az5--x-s3"),
    "endpoint": Setting(endpoint="http://store.example:9000", plain=True),
    "endpoint virtual": Setting("s3 =\n  addressing_style = virtual", endpoint="https://store.example"),
    "endpoint virtual option": Setting(endpoint="https://store.example:8443", path_style=False),
    "endpoint path": Setting(endpoint="https://gateway.example/path/prefix", plain=True),
    "endpoint variable": Setting(environment=(("AWS_ENDPOINT_URL", "https://variable.example:8443"),), plain=True),
    "endpoint configured": Setting("endpoint_url = http://configured.example"),
    "ipv6": Setting(endpoint="http://[::1]:9000", plain=True),
    "ipv6 tls": Setting(endpoint="https://[2001:db8::7]", plain=True),
}


@pytest.fixture(autouse=True)
def _keys(no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


class Sent(NamedTuple):
    """What boto3 sends."""

    host: str
    path: str
    region: str
    signing_name: str


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


def ours(place: ResolvedBucket, operation: str) -> Sent:
    endpoint = place.endpoint
    path = endpoint.bucket_path if operation == "LIST" else endpoint.path_prefix + "a/b%20c"
    return Sent(endpoint.host_header, path, place.region, place.signing_name)


def configured(setting: Setting, region: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[str, Options]:
    file = folder / f"config of {region}"  # what is known of a configuration is known by its environment
    file.write_text(f"[default]\nregion = {region}\n{setting.config}\n")
    for name, value in (("AWS_CONFIG_FILE", str(file)), *setting.environment):
        monkeypatch.setenv(name, value)
    partition = {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rpartition("-")[0].rpartition("-")[0], "aws")
    bucket = setting.bucket.format(region=region, partition=partition)
    return bucket, Options(endpoint=setting.endpoint, path_style=setting.path_style)


@pytest.mark.parametrize("name", SETTINGS)
def test_requests_go_where_boto3_sends_them(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting, compared = SETTINGS[name], 0
    for region in setting.regions:
        bucket, options = configured(setting, region, monkeypatch, tmp_path)
        style: dict[bool | None, Any] = {
            None: None,
            True: {"addressing_style": "path"},
            False: {"addressing_style": "virtual"},
        }
        users = users_client(endpoint_url=options.endpoint, config=Config(s3=style[options.path_style]))
        try:
            expected = {operation: sent_by_boto3(users, bucket, operation) for operation in OPERATIONS}
        except BotoCoreError as exc:  # there is no such endpoint in this region
            with pytest.raises(OSError, match=re.escape(str(exc)[:40])):
                resolve(bucket, options)
            continue
        resolved = resolve(bucket, options)
        assert {operation: ours(resolved, operation) for operation in OPERATIONS} == expected, region
        without_boto3 = plain(bucket, options)
        assert region != "us-east-1" or (without_boto3 is not None) == setting.plain
        if without_boto3 is not None:
            by_boto3 = boto.resolve(bucket, options)
            assert without_boto3[:-1] == by_boto3[:-1]
            keys = [place.credentials.get_frozen_credentials()[:3] for place in (without_boto3, by_boto3)]
            assert keys[0] == keys[1]
        compared += 1
    assert compared


def test_proxies_certificates_and_retries_are_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("")
    lines = "max_attempts = 7\nretry_mode = adaptive\nca_bundle = " + str(tmp_path / "ca.pem")
    setting = Setting(lines, environment=(("HTTPS_PROXY", "proxy.example:3128"), ("NO_PROXY", "inner.example")))
    bucket, options = configured(setting, "us-east-1", monkeypatch, tmp_path)
    found = resolve(bucket, options).endpoint
    assert (found.proxy, found.verify) == ("http://proxy.example:3128", str(tmp_path / "ca.pem"))
    inner = options._replace(endpoint="https://store.inner.example")
    assert resolve(bucket, inner).endpoint.proxy is None


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


def test_requests_that_only_boto3_can_make_are_carried_by_it() -> None:
    """Of another signature, or of one that a hook of the user's changes."""
    usual, other, hooked = core_session(), core_session(), core_session()
    assert resolve("my-bucket", Options(region="us-east-1", session=usual)).endpoint.transport is None
    other.set_default_client_config(Config(signature_version="s3", read_timeout=7))
    endpoint = resolve("my-bucket", Options(region="us-east-1", session=other)).endpoint
    assert endpoint.transport is not None
    assert (endpoint.connect_timeout, endpoint.read_timeout) == (60, 7)  # the session's own settings hold
    hooked.register("before-sign.s3", lambda request, **_: request.headers.add_header("x-mine", "1"))
    assert resolve("my-bucket", Options(region="us-east-1", session=hooked)).endpoint.transport is not None


ARN = "arn:aws:s3:eu-west-1:123456789012:accesspoint"
OUTPOST = "arn:aws:s3-outposts:eu-west-1:123456789012:outpost"


@pytest.mark.parametrize(
    ("bucket", "path"),
    [
        (f"{ARN}/mine", "/"),
        (f"{ARN}/mine", "/a/b"),
        (f"{ARN}:mine", "/a/b"),
        (f"{OUTPOST}/op-0123/accesspoint/mine", "/a"),
        (f"{OUTPOST}:op-0123:accesspoint:mine", "/a"),
    ],
)
def test_urls_of_access_points(bucket: str, path: str) -> None:
    fs: Any = fsabs.from_url(f"s3://{bucket}{path}", region="eu-west-1")
    assert fs.http.endpoint.host.startswith("mine-123456789012.")
    again: Any = fsabs.from_url(fs.url(), region="eu-west-1")
    assert (fs.bucket, fs.cwd) == (again.bucket, again.cwd) == (bucket, path)


def test_an_access_point_has_a_name() -> None:
    for url in (f"s3://{ARN}", f"s3://{ARN}/", f"s3://{OUTPOST}/op-0123/accesspoint"):
        with pytest.raises(ValueError, match="name of its access point"):
            fsabs.from_url(url)


def test_a_failure_to_connect_names_the_endpoint() -> None:
    with Refused() as nobody:
        fs = opened(nobody.endpoint, max_attempts=1)
        for read in (fs.exists, fs.read_bytes, lambda path: list(fs.read_many([path, path]))):
            with pytest.raises(ConnectionRefusedError, match=re.escape(nobody.endpoint)):
                read("a")
