"""The S3 data path of our own: what it gets, what it leaves to boto3, and a server that fails."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.s3 import S3
from fsabs.backends.s3.wire import PlainAnswerMissing, parse
from tests.servers.faulty_bucket import content
from tests.servers.network import FaultProxy

KEYS = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@contextlib.contextmanager
def served(rate: float, *more: str) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.servers.faulty_bucket", str(rate), "7", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def opened(endpoint: str, **options: Any) -> S3:
    fs = fsabs.from_url("s3://bucket", endpoint=endpoint, **{**KEYS, **options})
    assert isinstance(fs, S3)
    return fs


def without_boto3(fs: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every GET by boto3 fail."""

    def never(**arguments: Any) -> None:
        raise AssertionError("boto3 was asked")

    monkeypatch.setattr(fs.client, "get_object", never)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- what it gets


@pytest.mark.parametrize("anonymous", [False, True])
def test_plain_reads_go_without_boto3(ceph: Any, monkeypatch: pytest.MonkeyPatch, anonymous: bool) -> None:
    ceph.create_bucket("wire")
    owner = fsabs.from_url(
        "s3://wire", endpoint=ceph.endpoint, aws_access_key_id=ceph.access_key, aws_secret_access_key=ceph.secret_key
    )
    assert isinstance(owner, S3)
    names = ["plain", "a b+c%20é/中&=?#~", "empty", "large"]
    bodies = dict(zip(names, (b"1", b"22", b"", os.urandom(3_000_000)), strict=True))
    for name, data in bodies.items():
        owner.client.put_object(Bucket="wire", Key=name, Body=data, ACL="public-read")
    fs = fsabs.from_url("s3://wire", endpoint=ceph.endpoint, anonymous=True) if anonymous else owner
    assert isinstance(fs, S3)
    without_boto3(fs, monkeypatch)
    for name, data in bodies.items():
        assert fs.read_bytes(name) == data
        with fs.open(name, "rb") as file:
            file.seek(len(data) // 2)
            assert file.read() == data[len(data) // 2 :]
    assert list(fs.read_many(names * 20, concurrency=7)) == [bodies[name] for name in names * 20]


def test_connections_are_kept_and_used_again(ceph: Any) -> None:
    ceph.create_bucket("wire-kept")
    with FaultProxy.before(ceph.endpoint) as proxy:
        fs = fsabs.from_url(
            "s3://wire-kept",
            endpoint=proxy.endpoint,
            aws_access_key_id=ceph.access_key,
            aws_secret_access_key=ceph.secret_key,
        )
        fs.write_bytes("x", b"1")
        proxy.clear()
        for _ in range(50):
            fs.read_bytes("x")
        assert proxy.traffic().connections == 1
        list(fs.read_many(["x"] * 200, concurrency=5))
        list(fs.read_many(["x"] * 200, concurrency=5))
        assert proxy.traffic().connections <= 6
        proxy.break_connections()
        assert list(fs.read_many(["x"] * 20)) == [b"1"] * 20


def test_threads_share_the_connections(ceph: Any) -> None:
    ceph.create_bucket("wire-threads")
    fs = fsabs.from_url(
        "s3://wire-threads",
        endpoint=ceph.endpoint,
        aws_access_key_id=ceph.access_key,
        aws_secret_access_key=ceph.secret_key,
    )
    bodies = {f"{number}": os.urandom(20_000 + number) for number in range(30)}
    for name, data in bodies.items():
        fs.write_bytes(name, data)
    wrong: list[str] = []

    def read(start: int) -> None:
        for turn in range(60):
            name = f"{(start * 7 + turn) % 30}"
            if fs.read_bytes(name) != bodies[name]:
                wrong.append(name)
        if list(fs.read_many(bodies)) != list(bodies.values()):
            wrong.append("read_many")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_batch_that_is_left_half_read_closes_its_connections() -> None:
    with served(0) as port:
        fs = opened(f"http://127.0.0.1:{port}")
        fs.read_bytes("100-0")
        before = descriptors()
        batch: Any = fs.read_many([f"10000-{number}" for number in range(100)])
        assert next(batch) == content("10000-0")
        assert descriptors() > before
        batch.close()
        assert descriptors() < before + 5  # of 32 connections


def test_a_missing_key_in_a_batch_is_raised_in_its_turn(ceph: Any) -> None:
    ceph.create_bucket("wire-missing")
    fs = fsabs.from_url(
        "s3://wire-missing",
        endpoint=ceph.endpoint,
        aws_access_key_id=ceph.access_key,
        aws_secret_access_key=ceph.secret_key,
    )
    fs.write_bytes("a", b"1")
    batch = fs.read_many(["a", "b", "a"])
    assert next(batch) == b"1"
    with pytest.raises(FileNotFoundError) as caught:
        next(batch)
    assert caught.value.filename == "s3://wire-missing/b"


# ---- what it leaves to boto3


@pytest.mark.quick
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 1",
        b"HTTP/1.1 206 Partial\r\nContent-Length: 1",
        b"HTTP/1.1 404 No\r\nContent-Length: 1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1",
        b"nonsense",
        b"",
    ],
)
def test_only_plain_answers_are_taken(head: bytes) -> None:
    with pytest.raises(PlainAnswerMissing):
        parse(head, b"200")


@pytest.mark.quick
def test_a_plain_answer() -> None:
    assert parse(b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:  12\r\nConnection: keep-alive", b"200") == (12, True)
    assert parse(b"HTTP/1.1 206 OK\r\nConnection: Close\r\nContent-Length: 0", b"206") == (0, False)


@pytest.mark.quick
def test_a_proxy_is_boto3s_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert opened("http://s3.example.com").wire is None
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert opened("http://127.0.0.1:1", region="eu-west-1").wire is not None


def test_a_virtual_host(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = opened("https://s3.example.com:8443", path_style=False).wire
    assert wire is not None
    assert (wire.target.host, wire.target.port, wire.target.prefix) == ("bucket.s3.example.com", 8443, "/")
    assert wire.target.tls


def certificate(folder: Path) -> str:
    """The file of a new key and its self-signed certificate for 127.0.0.1; the certificate alone is in FILE.crt."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(private + made)
    Path(f"{path}.crt").write_bytes(made)
    return str(path)


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certificate(tmp_path)
    with served(0, path) as port:
        with pytest.raises(ConnectionError, match="certificate"):
            opened(f"https://127.0.0.1:{port}", max_attempts=1).read_bytes("10-1")
        monkeypatch.setenv("AWS_CA_BUNDLE", f"{path}.crt")
        fs = opened(f"https://127.0.0.1:{port}")
        without_boto3(fs, monkeypatch)
        names = [f"{size}-x" for size in (0, 1, 100, 70_000, 2_000_000)]
        for name in names:
            assert fs.read_bytes(name) == content(name)
        assert list(fs.read_many(names * 5, concurrency=4)) == [content(name) for name in names * 5]


# ---- a server that fails


@pytest.mark.timeout(300)
def test_ten_thousand_requests_of_which_one_in_five_fails() -> None:
    with served(0.2) as port:
        fs = opened(f"http://127.0.0.1:{port}", max_attempts=10, read_timeout=5, connect_timeout=5)
        fs.read_bytes("10-0")
        before = descriptors()
        names = [f"{number * 37 % 30_000}-{number}" for number in range(9_000)]
        for name, body in zip(names, fs.read_many(names), strict=True):
            assert body == content(name), name
        for number in range(1_000):
            name = f"{20_000 + number}-r"
            if number % 2:
                assert fs.read_bytes(name) == content(name)
            else:
                with fs.open(name, "rb", buffering=0) as file:
                    file.seek(number)
                    assert file.read(500) == content(name)[number : number + 500]
        assert descriptors() <= before + 64 + 64  # what is kept alive, by us and by boto3


def outcome(fs: S3, name: str) -> OSError | None:
    """The error of reading `name`; None if the right bytes came, since a drip arrives in the end."""
    try:
        assert fs.read_bytes(name) == content(name)
    except OSError as exc:
        return exc
    return None


def test_a_server_that_only_fails_is_an_error_in_time() -> None:
    with served(1) as port:
        fs = opened(f"http://127.0.0.1:{port}", max_attempts=2, read_timeout=1, connect_timeout=1)
        begun = time.monotonic()
        raised = [exc for number in range(20) if (exc := outcome(fs, f"5000-{number}")) is not None]
        assert raised
        assert all(str(exc.filename).startswith("s3://bucket/5000-") for exc in raised)
        assert time.monotonic() - begun < 55
