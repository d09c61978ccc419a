"""The S3 data path of our own: what it gets, what it leaves to boto3, and a server that fails."""

from __future__ import annotations

import contextlib
import datetime
import gc
import ipaddress
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import fsabs
from fsabs.backends.objects import Endpoint, reading
from fsabs.backends.objects.connections import Connection, ConnectionPool
from fsabs.backends.objects.reading import FIRST, STREAM_PIECE
from fsabs.backends.s3 import S3, boto
from fsabs.core import hooks
from tests import soak
from tests.servers.faulty_bucket import content
from tests.servers.network import FaultProxy
from tests.servers.shared import unique

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


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- what it gets


@pytest.mark.parametrize("anonymous", [False, True])
def test_plain_reads_go_without_boto3(ceph: Any, monkeypatch: pytest.MonkeyPatch, anonymous: bool) -> None:
    bucket = unique("wire")
    ceph.create_bucket(bucket)
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    owner = fsabs.from_url(f"s3://{bucket}", endpoint=ceph.endpoint, **keys)
    assert isinstance(owner, S3)
    names = ["plain", "a b+c%20é/中&=?#~", "empty", "large"]
    bodies = dict(zip(names, (b"1", b"22", b"", os.urandom(3_000_000)), strict=True))
    for name, data in bodies.items():
        owner.client.put_object(Bucket=bucket, Key=name, Body=data, ACL="public-read")
    fs = fsabs.from_url(f"s3://{bucket}", endpoint=ceph.endpoint, anonymous=True) if anonymous else owner
    assert isinstance(fs, S3)
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
        assert proxy.traffic().connections == 0  # the one that wrote is used
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


def test_a_pool_in_a_cycle_of_references_closes_its_connections() -> None:
    """Before they are finalized, and each warns that it is open: an exception and its traceback are such a cycle."""
    first, second = socket.socketpair()
    endpoint = Endpoint("127.0.0.1", 80, "127.0.0.1", False, "/")
    connection = Connection(first)
    pool = ConnectionPool(endpoint, "s3.connect", "s3://bucket")
    pool.give_back(connection)
    cycle: list[Any] = [pool]
    cycle.append(cycle)
    with second, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del first, connection, pool, cycle
        gc.collect()
        assert ([str(one.message) for one in warned], second.recv(1)) == ([], b"")


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


def test_what_a_read_costs_in_requests(ceph: Any) -> None:
    ceph.create_bucket("wire-costs")
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    owner = fsabs.from_url("s3://wire-costs", endpoint=ceph.endpoint, **keys)
    small, large = os.urandom(100_000), os.urandom(20_000_000)
    for name, data in (("small", small), ("large", large), ("empty", b"")):
        owner.write_bytes(name, data)
    with FaultProxy.before(ceph.endpoint) as proxy:
        fs = fsabs.from_url("s3://wire-costs", endpoint=proxy.endpoint, **keys)

        def requests() -> list[str]:
            made = [request.method for request in proxy.requests()]
            proxy.clear()
            return made

        with fs.open("small", "rb") as file:
            assert file.read() == small
        assert requests() == ["GET"]
        with fs.open("empty", "rb") as file:
            assert file.read() == b""
        assert len(requests()) <= 3
        for ask in (fs.read_bytes, fs.open, fs.stat):
            with pytest.raises(FileNotFoundError):
                ask("nothing")
            assert len(requests()) == (3 if ask == fs.stat else 2)
        with pytest.raises(FileNotFoundError):
            list(fs.read_many(["small", "nothing"]))
        assert len(requests()) == 3
        blob = fs.open_blob("large")
        requests()
        near = [(20_000, start) for start in range(0, 2_000_000, 21_000)]  # as members of an archive
        assert blob.pread_many(near) == [large[start : start + 20_000] for _, start in near]
        assert len(requests()) == 1
        far = [(20_000, start) for start in range(0, 20_000_000, 200_000)]
        assert blob.pread_many(far) == [large[start : start + 20_000] for _, start in far]
        assert len(requests()) == 100
        assert blob.read_all() == large
        assert len(requests()) == 3


def test_the_first_bytes_are_kept_until_they_are_read_and_do_not_pickle(ceph: Any) -> None:
    ceph.create_bucket("wire-first")
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    data = os.urandom(300_000)
    with FaultProxy.before(ceph.endpoint) as proxy:
        fs = fsabs.from_url("s3://wire-first", endpoint=proxy.endpoint, **keys)
        fs.write_bytes("x", data)
        with fs.open("x", "rb") as file:  # the request that opens it asks for the first bytes
            blob = file.raw.blob
            assert len(pickle.dumps(blob)) < FIRST // 10
            proxy.clear()
            assert blob.pread(10, 5) == data[5:15]
            assert not proxy.requests()
            assert blob.pread(FIRST, 1000) == data[1000 : 1000 + FIRST]  # some of it is there, the rest is asked for
            assert blob.pread(10, 5) == data[5:15]  # the first bytes are given up once what follows them is read
            assert len(proxy.requests()) == 2
            assert blob.read_all() == data
        with fs.open("x", "rb") as file:
            fs.write_bytes("x", data[::-1])
            with pytest.raises(fsabs.StaleFileError):
                file.raw.blob.pread(FIRST, 1000)


def test_a_stream_forks_and_survives_a_pause(ceph: Any) -> None:
    ceph.create_bucket("wire-stream")
    data = os.urandom(9 * STREAM_PIECE // 2)
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    fsabs.from_url("s3://wire-stream", endpoint=ceph.endpoint, **keys).write_bytes("x", data)
    with FaultProxy.before(ceph.endpoint) as proxy:
        fs = fsabs.from_url("s3://wire-stream", endpoint=proxy.endpoint, max_attempts=1, **keys)
        with fs.open("x", "rb") as opened_file:
            file: Any = opened_file
            start = file.read(3_000_000) + file.read(1_000_000)
            pid = os.fork()
            if pid == 0:
                os._exit(0 if file.read() == data[4_000_000:] else 1)
            assert os.waitpid(pid, 0)[1] == 0
            proxy.break_connections()  # the store ends idle connections
            time.sleep(1.2)
            assert start + file.read() == data


@pytest.mark.timeout(20)
def test_a_forked_child_that_drops_a_batch_leaves_its_parents_going(ceph: Any) -> None:
    """The connections are its parent's, too."""
    ceph.create_bucket("wire-dropped")
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    fs = fsabs.from_url("s3://wire-dropped", endpoint=ceph.endpoint, **keys)
    names = [f"{number:02}" for number in range(60)]
    for name in names:
        fs.write_bytes(name, name.encode() * 100_000)
    contents = fs.read_many(names)
    files = [fs.open(name, "rb") for name in names[:3]]
    found = [next(contents)]
    pid = os.fork()
    if pid == 0:
        del contents, files
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    found += contents
    assert found == [name.encode() * 100_000 for name in names]


@pytest.mark.parametrize("fixed", [True, False])
def test_a_forked_child_needs_no_client_of_its_own(
    fixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless credentials are to be renewed, or the environment is another."""
    answer = '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2099-01-01T00:00:00Z"}'
    (tmp_path / "config").write_text(f"[profile renewed]\ncredential_process = echo '{answer}'\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with served(0) as port:
        endpoint = f"http://127.0.0.1:{port}"
        fs = opened(endpoint) if fixed else cast(S3, fsabs.from_url("s3://b", endpoint=endpoint, profile="renewed"))
        assert fs.read_bytes("100-0") == content("100-0")
        for same in (True, False):
            pid = os.fork()
            if pid == 0:
                if not same:
                    os.environ["AWS_MAX_ATTEMPTS"] = "2"
                right = fs.read_bytes("100-1") == content("100-1")
                os._exit(0 if right and (boto.shared_client(fs.options).peek() is None) == fixed else 1)
            assert os.waitpid(pid, 0)[1] == 0


# ---- what an instrument sees


class Noted(hooks.Instrument):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        assert 0 < begin <= time.monotonic_ns()
        self.seen.append((kind, name, size, where, error))

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        self.seen.append((kind, name, size, where))


@pytest.mark.parametrize("fast", [0.0, float("inf")], ids=["one", "several"])
def test_a_stream_goes_by_one_connection_as_long_as_that_is_fast(
    ceph: Any, monkeypatch: pytest.MonkeyPatch, fast: float
) -> None:
    monkeypatch.setattr(reading, "FAST", fast)
    data = os.urandom(1 << 20) * 40
    bucket = unique("pipeline-slots")
    ceph.create_bucket(bucket)
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    fs = fsabs.from_url(f"s3://{bucket}", endpoint=ceph.endpoint, **keys)
    fs.write_bytes("x", data)
    told: list[int] = []
    record = lambda self, kind, name, begin, size=0, *more: told.append(size)  # noqa: E731
    monkeypatch.setattr(hooks.Instrument, "record_span", record)
    monkeypatch.setattr(hooks, "active", hooks.Instrument())
    with fs.open("x", "rb") as file:
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == data
    assert max(told) > 30 << 20 if fast == 0 else max(told) <= reading.MEASURED_BYTES + reading.CHUNK


def test_each_attempt_is_told(ceph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ceph.create_bucket("wire-told")
    keys = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    fsabs.from_url("s3://wire-told", endpoint=ceph.endpoint, **keys).write_bytes("d/x y", bytes(1000))
    with FaultProxy.before(ceph.endpoint) as proxy:
        fs = fsabs.from_url("s3://wire-told", endpoint=proxy.endpoint, **keys)
        noted = Noted()
        monkeypatch.setattr(hooks, "active", noted)
        proxy.answer(503, times=1)
        fs.read_bytes("d/x y")
        where = "s3://wire-told/d/x%20y"
        waits = [seen[1] for seen in noted.seen if seen[0] == "wait"]
        assert {*waits} - {"s3.transfer", "s3.throttle"} == {"s3.backoff"}  # the others may have taken no time
        assert [seen for seen in noted.seen if seen[0] not in ("connect", "wait")] == [
            ("request", "s3.get", 0, where, "OSError"),
            ("retry", "s3.get", 1, where),
            ("request", "s3.get", 1000, where, ""),
        ]
        assert ("connect", "s3.connect", 0, "s3://wire-told/", "") in noted.seen
        noted.seen.clear()
        assert len(list(fs.read_many(["d/x y"] * 5, concurrency=2))) == 5
        assert noted.seen.count(("request", "s3.get", 1000, where, "")) == 5
        assert not [seen for seen in noted.seen if seen[0] == "batch"], "the user's call is recorded above"
        noted.seen.clear()
        assert list(fs.list("d")) == ["x y"]
        assert [seen[:2] for seen in noted.seen if seen[0] != "wait"] == [("request", "s3.list")]
        assert noted.seen[-1][3].startswith("s3://wire-told")


# ---- checksums


@pytest.mark.parametrize("kind", ["crc32", "crc32c", "sha1", "sha256"])
def test_a_checksum_that_the_store_sends_is_checked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(0) as port:
        fs = opened(f"http://127.0.0.1:{port}", max_attempts=2)
        names = [f"{size}-{kind}-{how}" for size in (0, 1000, 6_000_000) for how in ("good", "composite")]
        assert [fs.read_bytes(name) for name in names] == [content(name) for name in names]
        assert list(fs.read_many(names)) == [content(name) for name in names]
        for read in (fs.read_bytes, lambda name: list(fs.read_many([name, name]))):
            with pytest.raises(fsabs.CorruptFileError, match=kind.upper()) as caught:
                read(f"1000-{kind}-bad")
            assert caught.value.filename == f"s3://bucket/1000-{kind}-bad"


# ---- where requests go


def test_a_virtual_host(monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened("https://s3.example.com:8443", path_style=False).http
    endpoint = client.endpoint
    assert (endpoint.host, endpoint.port, endpoint.path_prefix) == ("bucket.s3.example.com", 8443, "/")
    assert endpoint.tls


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
        names = [f"{size}-x" for size in (0, 1, 100, 70_000, 2_000_000)]
        for name in names:
            assert fs.read_bytes(name) == content(name)
        assert list(fs.read_many(names * 5, concurrency=4)) == [content(name) for name in names * 5]


# ---- a server that fails


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_thousand_requests_of_which_one_in_five_fails() -> None:
    small, alone, spans = soak.rounds(800), soak.rounds(100), soak.rounds(100)
    soak.count("S3 requests of which one in five fails", small + alone + spans)
    with served(0.2) as port:
        fs = opened(f"http://127.0.0.1:{port}", max_attempts=10, read_timeout=5, connect_timeout=5)
        fs.read_bytes("10-0")
        before = descriptors()
        kinds = ("x", "crc32", "crc32c", "sha1")
        names = [f"{number * 37 % 30_000}-{kinds[number % 4]}-{number}" for number in range(small)]
        for name, body in zip(names, fs.read_many(names), strict=True):
            assert body == content(name), name
        for number in range(alone):
            name = f"{10_000 + number}-r"
            if number % 2:
                assert fs.read_bytes(name) == content(name)
            else:
                with fs.open(name, "rb", buffering=0) as file:
                    file.seek(number)
                    assert file.read(500) == content(name)[number : number + 500]
        whole = content("17600000-x")
        ranges = [
            (100 + number % 900, number * 17_500 % 17_500_000) for number in range(spans)
        ]  # too far apart to be neighbours
        with fs.open("17600000-x", "rb") as file:
            assert file.raw.blob.pread_many(ranges) == [whole[start : start + size] for size, start in ranges]
            assert file.read() == whole
        with fs.open("30000000-x", "rb") as file:
            whole = content("30000000-x")
            assert all(
                file.read(1_000_000) == whole[start : start + 1_000_000] for start in range(0, 30_000_000, 10**6)
            )
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
