"""S3 beyond what every FS must hold: credentials, networks that fail, uploads in parts, listings without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects.writing import part_size
from fsabs.backends.s3 import S3
from fsabs.backends.s3.options import MIN_PART_SIZE
from tests.backends.s3_clients import MIB, new_bucket, settings
from tests.servers.network import Blackhole, FaultProxy
from tests.servers.shared import unique
from tests.servers.synthetic_bucket import KEYS

DAY = 24 * 3600.0
pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def fs(ceph: Any) -> S3:
    """A new bucket, whose large files go up in the smallest parts."""
    return new_bucket(ceph, mpu_chunksize=MIN_PART_SIZE)


@pytest.fixture
def proxy(ceph: Any) -> Iterator[FaultProxy]:
    with FaultProxy.before(ceph.endpoint) as made:
        yield made


def through(proxy: FaultProxy, ceph: Any, fs: S3, **options: Any) -> S3:
    """Return the same bucket behind a proxy."""
    return S3(fs.bucket, **settings(ceph, endpoint=proxy.endpoint, mpu_chunksize=MIN_PART_SIZE, **options))


def uploads(fs: S3) -> list[str]:
    return [upload["Key"] for upload in fs.client.list_multipart_uploads(Bucket=fs.bucket).get("Uploads", [])]


# ---- errors


@pytest.mark.parametrize("wrong", [{"aws_secret_access_key": "no"}, {"aws_access_key_id": "nobody"}])
def test_wrong_credentials_are_refused_and_never_a_missing_file(ceph: Any, fs: S3, wrong: dict[str, str]) -> None:
    refused = S3(fs.bucket, **settings(ceph, **wrong))
    for ask in (refused.exists, refused.isdir, refused.stat, refused.open, refused.list, refused.remove):
        with pytest.raises(PermissionError) as caught:
            ask("there")
        assert caught.value.filename == f"s3://{fs.bucket}/there"
    for act in (lambda: refused.write_bytes("new", b"1"), lambda: list(refused.read_many(["there"]))):
        with pytest.raises(PermissionError):
            act()


def test_anonymous(ceph: Any, fs: S3) -> None:
    fs.client.put_object(Bucket=fs.bucket, Key="a b", Body=b"all", ACL="public-read")
    fs.write_bytes("b", b"mine")
    guest = fsabs.from_url(f"s3://{fs.bucket}", endpoint=ceph.endpoint, anonymous=True)
    assert guest.read_bytes("a b") == b"all"
    assert list(guest.read_many(["a b"] * 20)) == [b"all"] * 20
    with pytest.raises(PermissionError):
        guest.read_bytes("b")


@pytest.mark.parametrize("kind", ["ceph", "moto"])
def test_a_missing_bucket_and_a_missing_key(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    missing, fs = S3(unique("missing"), **settings(server)), new_bucket(server)
    for ask in (missing.open, missing.list, missing.stat, missing.read_bytes, missing.mkdir, missing.makedirs):
        for path in ("x", "x/y"):
            with pytest.raises(FileNotFoundError, match="bucket"):
                ask(path)
    with pytest.raises(FileNotFoundError, match="bucket"):
        missing.makedirs("", exist_ok=True)
    assert not missing.exists("x")
    with pytest.raises(FileNotFoundError) as caught:
        fs.open("nothing/here")
    assert caught.value.filename == f"s3://{fs.bucket}/nothing/here"
    with pytest.raises(FileExistsError):
        fs.mkdir("/")
    fs.makedirs("", exist_ok=True)


@pytest.mark.quick
def test_a_url_names_a_bucket() -> None:
    for url in ("s3://", "s3:///key"):
        with pytest.raises(ValueError, match="bucket"):
            fsabs.from_url(url)


@pytest.mark.parametrize("connects", [True, False])
def test_a_silent_endpoint_times_out(connects: bool) -> None:
    with Blackhole(connects=connects) as hole:
        limits: dict[str, Any] = {"connect_timeout": 0.4, "read_timeout": 0.4, "max_attempts": 2}
        fs = S3("b", endpoint=hole.endpoint, aws_access_key_id="a", aws_secret_access_key="b", **limits)
        with pytest.raises(TimeoutError):
            fs.exists("x")
        with pytest.raises((TimeoutError, ConnectionError)):
            fs.write_bytes("x", b"1")


# ---- configuration


@pytest.mark.parametrize("variable", ["S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE"])
def test_a_bucket_is_made_at_an_endpoint_of_the_environment(
    variable: str, ceph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of one's own is not asked for a place of AWS."""
    if variable == "AWS_CONFIG_FILE":
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {ceph.endpoint}\n")
    else:
        monkeypatch.setenv(variable, ceph.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ceph.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ceph.secret_key)
    name = unique("made")
    for _ in range(2):
        fsabs.from_url(f"s3://{name}/sub", create_bucket=True, region="eu-west-1").write_bytes("a", b"1")
    assert ceph.request("GET", f"/{name}/sub/a") == (200, b"1")


# ---- listings


_COUNT_AND_GROWTH = """
import fsabs, resource, sys
names = fsabs.from_url("s3://bucket", endpoint=sys.argv[1], aws_access_key_id="a", aws_secret_access_key="b").list(
    "data", recursive=True
)
for _ in range(20_000):  # what is loaded once is loaded by then
    next(names)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(20_000 + sum(1 for _ in names), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_very_many_keys_are_listed_as_a_stream_in_constant_memory() -> None:
    command = [sys.executable, "-m", "tests.servers.synthetic_bucket"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            walk = [sys.executable, "-c", _COUNT_AND_GROWTH, endpoint]
            done = subprocess.run(walk, capture_output=True, text=True, timeout=50, check=True)
        finally:
            server.terminate()
    count, growth = map(int, done.stdout.split())
    assert count == KEYS
    assert growth < 6 * 1024  # kilobytes; a list of the names alone would be more than 18 MB


# ---- writing in parts


@pytest.mark.quick
def test_parts_of_objects_of_any_size_are_planned() -> None:
    for least in (MIN_PART_SIZE, 32 * MIB):
        for size in (1, least, 6 * 1024**3, 5 * 1024**4):
            part = part_size(size, least, 10_000)
            assert least <= part <= 5 * 1024**3
            assert -(-size // part) <= 10_000
        assert part_size(6 * 1024**3, least, 10_000) == least


def test_a_large_file_goes_up_in_parts(fs: S3) -> None:
    fs.client.create_multipart_upload(Bucket=fs.bucket, Key="large")  # another writer's
    data = os.urandom(12 * MIB + 5)
    with fs.open("large", "wb") as file:
        for start in range(0, len(data), 700_000):
            file.write(data[start : start + 700_000])
            assert not fs.exists("large")
    assert fs.read_bytes("large") == data
    assert fs.stat("large").version.endswith("-3")  # type: ignore[union-attr]
    assert uploads(fs) == ["large"]


@pytest.mark.parametrize(("size", "mode"), [(10, "xb"), (6 * MIB, "xb"), (6 * MIB, "wb")])
def test_a_lost_response_to_the_last_request_is_no_failure(
    ceph: Any, fs: S3, proxy: FaultProxy, size: int, mode: str
) -> None:
    behind, data = through(proxy, ceph, fs), os.urandom(size)
    with behind.open("x", mode) as file:
        file.write(data)
        last = "PUT" if size <= MIN_PART_SIZE else "POST"
        proxy.lose_answer(times=1, where=lambda request: request.method == last and "uploads" not in request.target)
    assert behind.read_bytes("x") == data
    with pytest.raises(FileExistsError), behind.open("x", "xb") as file:
        file.write(data)


@pytest.mark.parametrize("how", ["exception", "garbage"])
def test_what_is_not_closed_leaves_nothing(fs: S3, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    if how == "exception":
        with pytest.raises(ZeroDivisionError), fs.open("x", "wb") as file:
            file.write(bytes(11 * MIB))
            assert uploads(fs) == ["x"]
            raise ZeroDivisionError
    else:
        file = fs.open("x", "wb")
        file.write(bytes(11 * MIB))
        del file
        assert "never closed" in capsys.readouterr().err
    assert uploads(fs) == []
    assert list(fs.list()) == []


@pytest.mark.parametrize("part", ["PUT of the only part", "second part", "completion"])
def test_a_dropped_connection_is_raised_by_close_and_leaves_nothing(
    ceph: Any, fs: S3, proxy: FaultProxy, part: str
) -> None:
    file = through(proxy, ceph, fs, max_attempts=1).open("x", "wb")
    if part == "PUT of the only part":
        file.write(bytes(2 * MIB))
        proxy.drop_upload(MIB)
    else:
        file.write(bytes(6 * MIB))
        if part == "second part":
            proxy.drop_upload(MIB, where=lambda request: "partNumber=2" in request.target)
            file.write(bytes(3 * MIB))
        else:
            proxy.answer(500, where=lambda request: request.method == "POST")
    with pytest.raises(OSError) as caught:
        file.close()
    assert caught.value.filename == f"s3://{fs.bucket}/x"
    assert file.closed
    assert uploads(fs) == []
    assert not fs.exists("x")


_WRITE_AND = """
import fsabs, sys, os, signal
fs = fsabs.from_url(sys.argv[1], endpoint=sys.argv[2], aws_access_key_id=sys.argv[3], aws_secret_access_key=sys.argv[4],
                    region=sys.argv[5], mpu_chunksize=5 << 20)
file = fs.open("x", "wb")
file.write(bytes(11 << 20))
if sys.argv[6] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "end"), [("ceph", "kill"), ("moto", "kill"), ("ceph", "exit")])
def test_a_process_that_ends_leaves_no_file(kind: str, end: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    fs = new_bucket(server)
    arguments = [f"s3://{fs.bucket}", server.endpoint, server.access_key, server.secret_key, server.region, end]
    done = subprocess.run([sys.executable, "-c", _WRITE_AND, *arguments], timeout=50, stderr=subprocess.PIPE)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    assert list(fs.list()) == []
    if end == "kill":  # nobody was left to abort the upload: one call does, after a day; moto dates each to 2010
        assert uploads(fs) == ["x"]
        assert fs.abort_uploads(DAY) == (1 if kind == "moto" else 0)
    assert uploads(fs) == (["x"] if (kind, end) == ("ceph", "kill") else [])
