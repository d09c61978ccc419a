"""S3 beyond what every FS must hold: credentials, networks that fail, uploads in parts, listings without end.

What can run on both servers does; signatures, forks and races are for the real gateway, since moto checks no signature
and closes each connection.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects import writing
from fsabs.backends.objects.writing import part_size
from fsabs.backends.s3 import S3
from fsabs.backends.s3.options import MIN_PART_SIZE
from tests.servers.network import Blackhole, FaultProxy, Refused
from tests.servers.shared import unique
from tests.servers.synthetic_bucket import KEYS

MIB = 1024 * 1024
DAY = 24 * 3600.0


@pytest.fixture(params=["ceph", "moto"])
def store(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def options(store: Any, **changes: Any) -> dict[str, Any]:
    return {
        "endpoint": store.endpoint,
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": store.secret_key,
        "region": store.region,
        **changes,
    }


@pytest.fixture
def bucket(store: Any, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name)) % 10**10}-{time.monotonic_ns() % 10**9}"
    store.create_bucket(name)
    return name


@pytest.fixture
def fs(store: Any, bucket: str) -> S3:
    found = fsabs.from_url(f"s3://{bucket}", **options(store))
    assert isinstance(found, S3)
    return found


@pytest.fixture
def proxy(store: Any) -> Iterator[FaultProxy]:
    with FaultProxy.before(store.endpoint) as made:
        yield made


def uploads(fs: S3) -> list[str]:
    return [upload["Key"] for upload in fs.client.list_multipart_uploads(Bucket=fs.bucket).get("Uploads", [])]


# ---- errors


@pytest.mark.parametrize("wrong", [{"aws_secret_access_key": "no"}, {"aws_access_key_id": "nobody"}])
def test_wrong_credentials_are_refused_and_never_a_missing_file(ceph: Any, wrong: dict[str, str]) -> None:
    bucket = unique("refusal")
    ceph.create_bucket(bucket)
    ceph.request("PUT", f"/{bucket}/there", b"1")
    fs = fsabs.from_url(f"s3://{bucket}", **options(ceph, **wrong))
    for ask in (fs.exists, fs.isdir, fs.isfile, fs.stat, fs.open, fs.read_bytes, fs.list, fs.remove):
        with pytest.raises(PermissionError) as caught:
            ask("there")
        assert caught.value.filename == f"s3://{bucket}/there"
    with pytest.raises(PermissionError):
        fs.write_bytes("new", b"1")
    with pytest.raises(PermissionError):
        list(fs.read_many(["there"]))


def test_no_credentials_at_all(ceph: Any) -> None:
    with pytest.raises(PermissionError):
        fsabs.from_url("s3://refusal", endpoint=ceph.endpoint).exists("there")


def test_anonymous(ceph: Any) -> None:
    ceph.create_bucket("open-house")
    owner = fsabs.from_url("s3://open-house", **options(ceph))
    assert isinstance(owner, S3)
    owner.client.put_object(Bucket="open-house", Key="a", Body=b"all", ACL="public-read")
    owner.write_bytes("b", b"mine")
    guest = fsabs.from_url("s3://open-house", endpoint=ceph.endpoint, anonymous=True)
    assert guest.read_bytes("a") == b"all"
    with pytest.raises(PermissionError):
        guest.read_bytes("b")


def test_a_missing_bucket_and_a_missing_key(fs: S3, store: Any) -> None:
    missing = fsabs.from_url("s3://no-such-bucket-here", **options(store))
    for ask in (missing.open, missing.list, missing.stat, missing.read_bytes):
        with pytest.raises(FileNotFoundError, match="bucket"):
            ask("x")
    assert not missing.exists("x")
    with pytest.raises(FileNotFoundError) as caught:
        fs.open("nothing/here")
    assert caught.value.filename == f"s3://{fs.bucket}/nothing/here"


@pytest.mark.quick
@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3:///"])
def test_a_url_names_a_bucket(url: str) -> None:
    with pytest.raises(ValueError, match="bucket"):
        fsabs.from_url(url)


@pytest.mark.quick
def test_options_are_checked() -> None:
    with pytest.raises(TypeError, match="'endpint'.*'endpoint'"):
        fsabs.from_url("s3://b", endpint="x")
    with pytest.raises(ValueError, match="5 MiB"):
        fsabs.from_url("s3://b", mpu_chunksize=1000)
    with pytest.raises(fsabs.ConfigError, match="nobodys"):
        fsabs.from_url("s3://b", profile="nobodys").exists("x")


@pytest.mark.parametrize("connects", [True, False])
def test_a_silent_endpoint_times_out(connects: bool) -> None:
    with Blackhole(connects=connects) as hole:
        fs = fsabs.from_url(
            "s3://b",
            endpoint=hole.endpoint,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            connect_timeout=0.4,
            read_timeout=0.4,
            max_attempts=2,
        )
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            fs.exists("x")
        with pytest.raises((TimeoutError, ConnectionError)):
            fs.write_bytes("x", b"1")
        assert time.monotonic() - begun < 15


def test_nobody_at_the_endpoint() -> None:
    with Refused() as nobody:
        fs = fsabs.from_url(
            "s3://b", endpoint=nobody.endpoint, aws_access_key_id="a", aws_secret_access_key="b", max_attempts=1
        )
        for ask in (fs.exists, fs.read_bytes, fs.list):
            with pytest.raises(ConnectionError):
                ask("x")


# ---- configuration


@pytest.mark.parametrize("variable", ["S3_ENDPOINT", "AWS_ENDPOINT_URL"])
def test_everything_from_the_environment(
    store: Any, bucket: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, store.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store.secret_key)
    fs = fsabs.from_url(f"s3://{bucket}/sub")
    fs.write_bytes("a", b"1")
    assert fs.read_bytes("a") == b"1"


def test_a_profile(ceph: Any, tmp_path: Path) -> None:
    ceph.create_bucket("profiles")
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {ceph.access_key}\naws_secret_access_key = {ceph.secret_key}\n"
    )
    fs = fsabs.from_url("s3://profiles", profile="team", endpoint=ceph.endpoint)
    fs.write_bytes("a", b"1")
    assert fs.exists("a")


def test_credentials_that_expire_are_fetched_again(ceph: Any, tmp_path: Path) -> None:
    ceph.create_bucket("refreshed")
    calls = tmp_path / "calls"
    script = tmp_path / "credentials.py"
    script.write_text(
        "import json, datetime\n"
        f"open({str(calls)!r}, 'a').write('x')\n"
        "soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId={ceph.access_key!r}, SecretAccessKey={ceph.secret_key!r},"
        " SessionToken=None, Expiration=soon.isoformat())))\n"
    )
    (tmp_path / "config").write_text(f"[profile short]\ncredential_process = {sys.executable} {script}\n")
    fs = fsabs.from_url("s3://refreshed", profile="short", endpoint=ceph.endpoint)
    fs.write_bytes("a", b"1")
    assert fs.read_bytes("a") == b"1"
    assert len(calls.read_text()) >= 2


def test_a_custom_scheme(store: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORP_SECRET", store.secret_key)
    (tmp_path / "pfio.ini").write_text(
        f"[corp]\nscheme = s3\nendpoint = {store.endpoint}\naws_access_key_id = {store.access_key}\n"
        "aws_secret_access_key = ${CORP_SECRET}\nmax_attempts = 2\nread_timeout = 7.5\nprefix = team/data\n"
    )
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    fs = fsabs.from_url(f"corp://{bucket}/images")
    assert isinstance(fs, S3)
    assert (fs.options.max_attempts, fs.options.read_timeout) == (2, 7.5)
    fs.write_bytes("a.png", b"png")
    assert store.request("GET", f"/{bucket}/team/data/images/a.png") == (200, b"png")
    assert store.secret_key not in repr(fs) + str(fs.info())


def test_making_a_directory_of_a_missing_bucket(fs: S3, store: Any) -> None:
    missing = fsabs.from_url(f"s3://missing-{time.monotonic_ns()}", **options(store))
    for make, path in ((missing.mkdir, ""), (missing.mkdir, "a"), (missing.makedirs, ""), (missing.makedirs, "a/b")):
        with pytest.raises(FileNotFoundError, match="bucket"):
            make(path)
    with pytest.raises(FileNotFoundError, match="bucket"):
        missing.makedirs("", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.mkdir("/")
    fs.makedirs("", exist_ok=True)


def test_create_bucket(store: Any) -> None:
    name = f"made-{time.monotonic_ns()}"
    for _ in range(2):
        fsabs.from_url(f"s3://{name}", create_bucket=True, **options(store)).write_bytes("a", b"1")


@pytest.mark.parametrize("variable", ["S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE"])
def test_a_store_of_ones_own_is_not_asked_for_a_place_of_aws(
    variable: str, ceph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = {ceph.endpoint}\n")
    monkeypatch.setenv(variable, str(tmp_path / "config") if variable == "AWS_CONFIG_FILE" else ceph.endpoint)
    settings = {name: value for name, value in options(ceph).items() if name not in ("endpoint", "region")}
    name = f"made-{time.monotonic_ns()}"
    fsabs.from_url(f"s3://{name}", create_bucket=True, region="eu-west-1", **settings).write_bytes("a", b"1")
    assert fsabs.from_url(f"s3://{name}", **options(ceph)).read_bytes("a") == b"1"


# ---- names and listings


def test_a_sibling_that_sorts_first(fs: S3) -> None:
    fs.write_bytes("foo-bar", b"1")
    fs.write_bytes("foo.txt", b"1")
    assert not fs.exists("foo")
    assert not fs.isdir("foo")
    fs.write_bytes("foo/x", b"1")
    assert fs.exists("foo")
    assert fs.isdir("foo")
    assert list(fs.list()) == ["foo-bar", "foo.txt", "foo/"]


def test_odd_names(fs: S3, store: Any) -> None:
    names = [
        "a b",
        "a+b",
        "a%20b",
        "100%",
        "é",
        "e\u0301",
        "中/文",
        "q?x=1&y",
        "h#h",
        "😀",
        "quote'\"",
        "tab\tx",
        "[x]*",
    ]
    for name in names:
        fs.write_bytes(name, name.encode())
    assert [name for name in fs.list(recursive=True) if not name.endswith("/")] == sorted(names)
    for name in names:
        assert fs.read_bytes(name) == name.encode()
        with fsabs.open_url(fs.url(name), "rb", **options(store)) as file:
            assert file.read() == name.encode()
    fs.copy("q?x=1&y", "dir/copy +%")
    assert fs.read_bytes("dir/copy +%") == b"q?x=1&y"


def test_large_files_of_odd_names(store: Any, bucket: str) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, mpu_chunksize=MIN_PART_SIZE))
    data = bytes(MIN_PART_SIZE + 1)  # the results of an upload name its key
    for name in ("a b+c%20d%", "e\u0301/中 😀", "q?x=1&y<z>'\"", "tab\tx"):
        fs.write_bytes(name, data)
        assert fs.stat(name).size == len(data)


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


@pytest.mark.timeout(300)
def test_very_many_keys_are_listed_as_a_stream_in_constant_memory() -> None:
    command = [sys.executable, "-m", "tests.servers.synthetic_bucket"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            walk = [sys.executable, "-c", _COUNT_AND_GROWTH, endpoint]
            done = subprocess.run(walk, capture_output=True, text=True, timeout=280, check=True)
        finally:
            server.terminate()
    count, growth = map(int, done.stdout.split())
    assert count == KEYS
    assert growth < 6 * 1024  # kilobytes; a list of the names alone would be more than 18 MB


def test_a_tree_is_removed_in_batches(store: Any, bucket: str, proxy: FaultProxy) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, endpoint=proxy.endpoint))
    threads = [
        threading.Thread(target=lambda n=n: [fs.write_bytes(f"t/{i:05d}", b"") for i in range(n, 1010, 4)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fs.write_bytes("t-sibling", b"")
    proxy.clear()
    fs.remove("t", recursive=True)
    assert len(proxy.requests()) <= 10
    assert list(fs.list()) == ["t-sibling"]


# ---- writing in parts


@pytest.mark.quick
def test_parts_of_objects_of_any_size_are_planned() -> None:
    for least in (MIN_PART_SIZE, 32 * MIB):
        for size in (1, least, 6 * 1024**3, 5 * 1024**4):
            part = part_size(size, least, 10_000)
            assert least <= part <= 5 * 1024**3
            assert -(-size // part) <= 10_000
        assert part_size(6 * 1024**3, least, 10_000) == least


def test_a_large_file_goes_up_in_parts(fs: S3, bucket: str, store: Any) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, mpu_chunksize=MIN_PART_SIZE))
    data = os.urandom(12 * MIB + 5)
    with fs.open("large", "wb") as file:
        for start in range(0, len(data), 700_000):
            file.write(data[start : start + 700_000])
            assert not fs.exists("large")
    assert fs.read_bytes("large") == data
    assert fs.stat("large").version.endswith("-3")  # type: ignore[union-attr]
    assert uploads(fs) == []


def test_a_writer_leaves_uploads_of_others_alone(fs: S3, bucket: str, store: Any) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, mpu_chunksize=MIN_PART_SIZE))
    fs.client.create_multipart_upload(Bucket=bucket, Key="large")
    fs.write_bytes("large", bytes(6 * MIB))
    assert uploads(fs) == ["large"]


@pytest.mark.parametrize("size", [10, 6 * MIB])
@pytest.mark.parametrize("mode", ["wb", "xb"])
def test_a_lost_response_to_the_last_request_is_no_failure(
    store: Any, bucket: str, proxy: FaultProxy, size: int, mode: str
) -> None:
    changes = {"endpoint": proxy.endpoint, "mpu_chunksize": MIN_PART_SIZE}
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, **changes))
    data = os.urandom(size)
    with fs.open("x", mode) as file:
        file.write(data)
        last = "PUT" if size <= MIN_PART_SIZE else "POST"
        proxy.lose_answer(times=1, where=lambda request: request.method == last and "uploads" not in request.target)
    assert fs.read_bytes("x") == data
    with pytest.raises(FileExistsError), fs.open("x", "xb") as file:
        file.write(data)


@pytest.mark.parametrize("how", ["exception", "garbage"])
def test_what_is_not_closed_leaves_nothing(
    fs: S3, bucket: str, store: Any, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, mpu_chunksize=MIN_PART_SIZE))
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
    store: Any, bucket: str, proxy: FaultProxy, part: str
) -> None:
    fs = fsabs.from_url(
        f"s3://{bucket}", **options(store, endpoint=proxy.endpoint, mpu_chunksize=MIN_PART_SIZE, max_attempts=1)
    )
    assert isinstance(fs, S3)
    file = fs.open("x", "wb")
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
    assert caught.value.filename == f"s3://{bucket}/x"
    proxy.pass_through()
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


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_process_that_ends_leaves_no_file(
    fs: S3, bucket: str, store: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [f"s3://{bucket}", store.endpoint, store.access_key, store.secret_key, store.region, end]
    done = subprocess.run([sys.executable, "-c", _WRITE_AND, *arguments], timeout=50, stderr=subprocess.PIPE)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    assert list(fs.list()) == []
    if end == "kill":  # nobody was left to abort the upload: one call does
        assert uploads(fs) == ["x"]
        if type(store).__name__ == "CephGateway":  # moto dates every upload to 2010
            assert fs.abort_uploads(DAY) == 0
            monkeypatch.setattr(writing, "time", SimpleNamespace(time=lambda: time.time() + DAY))  # a day later
        assert fs.abort_uploads(DAY) == 1
    assert uploads(fs) == []


def test_x_of_two_writers_one_wins(ceph: Any) -> None:
    ceph.create_bucket("races")
    results: list[str] = []

    def write(number: int) -> None:
        fs = fsabs.from_url("s3://races", **options(ceph))
        try:
            with fs.open("one", "xb") as file:
                file.write(b"%d" % number)
                barrier.wait()
            results.append("won")
        except FileExistsError:
            results.append("lost")

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["lost", "lost", "lost", "won"]


def test_x_whose_answer_was_lost_is_not_refused_by_its_own_success(store: Any, bucket: str, proxy: FaultProxy) -> None:
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, endpoint=proxy.endpoint))
    with fs.open("x", "xb") as file:
        file.write(b"mine")
        proxy.lose_answer(times=1, where=lambda request: request.method == "PUT")
    assert fs.read_bytes("x") == b"mine"
    with pytest.raises(FileExistsError):
        fs.open("x", "xb")


# ---- reading


@pytest.mark.parametrize("reset", [True, False])
def test_a_body_that_breaks_off_is_read_again(store: Any, bucket: str, proxy: FaultProxy, reset: bool) -> None:
    data = os.urandom(3 * MIB)
    store.request("PUT", f"/{bucket}/x", data)
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, endpoint=proxy.endpoint, max_attempts=3))
    proxy.drop_download(MIB, times=2, where=lambda request: request.method == "GET", reset=reset)
    assert fs.read_bytes("x") == data
    proxy.drop_download(MIB, times=2, where=lambda request: request.method == "GET", reset=reset)
    with fs.open("x", "rb") as file:
        assert file.read() == data
    proxy.drop_download(MIB, where=lambda request: request.method == "GET", reset=reset)
    with pytest.raises((ConnectionError, fsabs.CorruptFileError)) as caught:
        fs.read_bytes("x")
    assert caught.value.filename == f"s3://{bucket}/x"


def test_a_server_that_is_overloaded_is_asked_again(store: Any, bucket: str, proxy: FaultProxy) -> None:
    store.request("PUT", f"/{bucket}/x", b"here")
    fs = fsabs.from_url(f"s3://{bucket}", **options(store, endpoint=proxy.endpoint, max_attempts=3))
    proxy.answer(503, times=2)
    assert fs.read_bytes("x") == b"here"
    proxy.answer(503)
    with pytest.raises(OSError, match="503") as caught:
        fs.read_bytes("x")
    assert not isinstance(caught.value, FileNotFoundError)


def test_an_object_that_changes_under_a_reader_is_an_error(fs: S3) -> None:
    fs.write_bytes("x", bytes(MIB))
    file = fs.open("x", "rb", buffering=0)
    assert file.read(10) == bytes(10)
    fs.write_bytes("x", b"\1" * MIB)
    file.seek(500_000)  # beyond what came when it was opened
    with pytest.raises(fsabs.StaleFileError):
        file.read(10)
    fs.remove("x")
    with pytest.raises(fsabs.StaleFileError):
        file.read(10)


def test_how_many_requests_a_read_takes(store: Any, bucket: str, proxy: FaultProxy) -> None:
    store.request("PUT", f"/{bucket}/d/x", bytes(100_000))
    fs = fsabs.from_url(f"s3://{bucket}/d", **options(store, endpoint=proxy.endpoint))
    assert proxy.requests() == []
    assert len(fs.read_bytes("x")) == 100_000
    assert [request.method for request in proxy.requests()] == ["GET"]
    proxy.clear()
    with fs.open("x", "rb") as file:
        for _ in range(1000):
            file.read(100)
    assert [request.method for request in proxy.requests()] == ["GET"]
    assert proxy.traffic().body_down <= 101_000


def test_forked_children_and_their_parent_read_at_once(ceph: Any) -> None:
    ceph.create_bucket("forks")
    fs = fsabs.from_url("s3://forks", **options(ceph))
    contents = {f"{number}": os.urandom(50_000) for number in range(20)}
    for name, data in contents.items():
        fs.write_bytes(name, data)
    children = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            good = all(fs.read_bytes(name) == data for _ in range(10) for name, data in contents.items())
            os._exit(0 if good else 1)
        children.append(pid)
    for _ in range(10):
        assert list(fs.read_many(contents)) == list(contents.values())
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
