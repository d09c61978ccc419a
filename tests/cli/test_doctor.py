"""`fsabs doctor`: each check when all is well, and when it is not."""

from __future__ import annotations

import http.server
import json
import os
import resource
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fsabs as library
from fsabs import Local
from fsabs.cli import doctor
from fsabs.cli.doctor import Address, CheckFinding
from tests import disks
from tests.cache import web
from tests.cli.commands import FILES, fsabs, make_tree
from tests.cli.stores import Store
from tests.cli.stores import store as store
from tests.servers.planned_bucket import Plan, serving

MACHINE = ["configuration", "cache directory", "cache space", "workers", "file descriptors", "/dev/shm"]


def found(out: str) -> dict[str, dict[str, str]]:
    return {one["check"]: one for one in map(json.loads, out.splitlines())}


def test_on_every_store(store: Store) -> None:
    findings = found(fsabs("doctor", store.url, "--json").out)
    assert list(findings)[:6] == MACHINE
    of_store = {check: one["status"] for check, one in findings.items() if check not in MACHINE}
    expected = {"list": "ok", "read": "ok", "write": "ok"}
    if store.is_cloud:
        expected |= {"credentials": "ok", "dns": "ok", "tcp": "ok", "tls": "warning", "clock": "ok"}
        expected |= {"refusals": "ok", "round trip": "ok", "keep-alive": "warning" if store.kind == "gcs" else "ok"}
    if store.kind == "hdfs":
        expected |= {"credentials": "ok", "hadoop configuration": "warning", "java": "ok"}
        expected |= {"dns of NameNode": "ok", "tcp of NameNode": "ok"}
    assert of_store == expected
    assert findings["list"]["detail"].removeprefix("found ") in FILES
    assert fsabs("ls", store.url).out.split() == ["a.txt", "sub/", "z.txt"]  # the scratch file is gone


@pytest.mark.parametrize(
    ("plan", "unusual"),
    [
        (Plan(objects=5), set()),
        (Plan(objects=5, latency=0.3), {"round trip"}),
        (Plan(objects=5, refused=3), {"refusals"}),
        (Plan(objects=5, closes=True), {"keep-alive"}),
        (Plan(objects=5, bandwidth=4e5, size=300_000), {"bandwidth"}),
    ],
    ids=["healthy", "slow", "refuses", "closes", "narrow"],
)
def test_the_speed_of_a_store_is_measured(plan: Plan, unusual: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with serving(plan) as served:
        fs = library.from_url("s3://bucket/", endpoint=served.endpoint, region="us-east-1")
        findings = {one.check: one.status for one in doctor.speed(fs)}
    assert {check for check, status in findings.items() if status != "ok"} == unusual
    assert findings.keys() >= {"refusals", "round trip", "keep-alive"}


@pytest.mark.quick
def test_an_endpoint_that_is_no_s3_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with web.serving(lambda _: web.Reply(body=b"<html>Welcome</html>")) as server:
        fs = library.from_url("s3://bucket/", endpoint=server.url, region="us-east-1")
        findings = {one.check: one for one in doctor.permissions(fs, fs)}
        assert list(doctor.speed(fs)) == []
    assert "is no S3" in findings["list"].advice


@pytest.mark.quick
def test_the_whole_output(tmp_path: Path) -> None:
    make_tree(tmp_path / "data", {"a.txt": b"14 characters."})
    done = fsabs("doctor", "data", cwd=tmp_path, env={"FSABS_CACHE_DIR": str(tmp_path / "cache"), "NO_COLOR": "1"})
    lines = done.out.splitlines()
    assert [line[:9].strip() for line in lines[6:]] == ["ok"] * 3
    assert lines[0] == "ok       configuration: /dev/null: 0 sections"
    assert lines[1].startswith(f"ok       cache directory: {tmp_path}/cache (")
    assert lines[6:8] == ["ok       list: found a.txt", "ok       read: 14 bytes of a.txt"]
    assert lines[8].startswith("ok       write: a scratch file was written and removed (.fsabs-doctor-")
    assert (done.err, len(lines)) == ("", 9)


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_wrong_credentials_and_a_missing_bucket(store: Store) -> None:
    done = fsabs("doctor", store.url, "--json", env={"AWS_SECRET_ACCESS_KEY": "planted-secret"}, code=1)
    findings = found(done.out)
    assert (findings["list"]["status"], findings["write"]["status"]) == ("fault", "warning")
    assert "ask for the permission (on S3: s3:ListBucket), or for other credentials" in findings["list"]["advice"]
    assert "planted-secret" not in done.out + done.err
    findings = found(fsabs("doctor", "s3://no-such-bucket-here/x", "--json", code=1).out)
    assert findings["list"]["advice"] == "check the URL: bucket or directory, and prefix"


@pytest.mark.quick
def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "planted-secret", "AWS_MAX_ATTEMPTS": "1"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        env["S3_ENDPOINT"] = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = fsabs("doctor", "s3://bucket/x", "--json", env=env, code=1)
    findings = found(done.out)
    assert findings["credentials"]["detail"] == "environment: $AWS_ACCESS_KEY_ID"
    assert (findings["tcp"]["status"], findings["list"]["status"]) == ("fault", "fault")
    env["S3_ENDPOINT"] = "http://no-such-host.invalid:9000"
    findings = found(fsabs("doctor", "s3://bucket/x", "--json", env=env, code=1).out)
    assert findings["dns"]["status"] == "fault"
    assert "tcp" not in findings
    without = {"S3_ENDPOINT": env["S3_ENDPOINT"], "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/none"}
    without |= {"AWS_SHARED_CREDENTIALS_FILE": "/none", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    findings = found(fsabs("doctor", "s3://bucket/x", "--json", env=without, code=1).out)
    assert findings["credentials"]["status"] == "fault"
    assert fsabs("doctor", "nonesuch://x", "--json", code=1).out.splitlines()[-1].startswith('{"check": "url", "sta')


class _Handler(http.server.BaseHTTPRequestHandler):
    date = "Thu, 01 Jan 1998 00:00:00 GMT"

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.date

    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[http.server.HTTPServer, Path]]:
    """A server with another time, and a self-signed certificate for it."""
    certificate = tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(certificate), "-out", str(tmp_path / "c")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with open(certificate, "ab") as file:
        file.write((tmp_path / "c").read_bytes())
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made, certificate
        made.shutdown()
        thread.join(10)


def _network(port: int, tls: bool, verify: bool | str = True) -> dict[str, CheckFinding]:
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/"
    return {one.check: one for one in doctor.network(Address("127.0.0.1", port, tls, verify, url))}


@pytest.mark.quick
def test_a_wrong_clock_and_certificates(server: tuple[http.server.HTTPServer, Path]) -> None:
    made, certificate = server
    port = made.server_address[1]
    findings = _network(port, tls=True)
    assert findings["tls"].status == "fault"
    assert findings["tls"].advice == "check that the endpoint's scheme and port belong together"
    findings = _network(port, tls=False)
    assert findings["clock"].status == "fault"
    assert findings["clock"].detail.endswith(" s ahead of the store's")
    assert findings["tls"].status == "warning"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    made.socket = context.wrap_socket(made.socket, server_side=True)
    assert _network(port, tls=True)["tls"].detail == "self-signed certificate"
    soon = _network(port, tls=True, verify=str(certificate))
    assert soon["tls"].status == "warning"
    assert "the certificate ends in 3 days" in soon["tls"].detail
    assert soon["clock"].status == "fault"
    unchecked = _network(port, tls=True, verify=False)
    assert unchecked["tls"].advice == "remove verify=False"
    assert unchecked["clock"].status == "fault"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give checks up that take more than two seconds."""
    monkeypatch.setattr(doctor, "STEP_SECONDS", 0.2)
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 2.0)


@pytest.mark.quick
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("scheme", "url"), [("http", "s3://bucket/x"), ("https", "s3://bucket/a.zip/x"), ("http", "http://ADDRESS/x")]
)
def test_a_store_that_stays_silent_is_not_waited_for(scheme: str, url: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)  # the system accepts
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {"S3_ENDPOINT": f"{scheme}://{address}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
        findings = found(fsabs("doctor", "--json", url.replace("ADDRESS", address), env=env, code=1).out)
    check = findings["url" if ".zip" in url else "list"]
    assert check["detail"] == "no answer within 2 s: the check was given up"
    assert "write" not in findings
    if url.startswith("s3:"):
        assert findings["tcp"]["status"] == "ok"
        assert findings["clock"]["detail"].startswith("the store did not tell its time")
        assert findings["tls"]["status"] == ("fault" if scheme == "https" else "warning")


@pytest.mark.quick
def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pfio.ini").write_text("[a]\nscheme = s3\naws_secret_access_key = written\n[b]\nno key\n")
    os.chmod(tmp_path / "pfio.ini", 0o644)
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=2**26, free=2**26))
    monkeypatch.setattr("warnings.warn", lambda *_, **__: None)
    findings = list(doctor.of_machine())
    assert {one.check: one.status for one in findings} == {
        "configuration": "warning",
        "cache directory": "warning",
        "workers": "ok",
        "file descriptors": "warning",
        "/dev/shm": "warning",
    }
    assert [one.status for one in findings if one.check == "configuration"] == ["fault", "warning"]
    assert next(one for one in findings if one.check == "file descriptors").advice == "raise the limit: ulimit -n 512"
    monkeypatch.setenv("FSABS_CACHE_DIR", "/proc/none")
    assert next(one for one in doctor.of_machine() if one.check == "cache directory").status == "fault"
    disks.on(monkeypatch, "nfs4")
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path))
    findings = list(doctor.of_machine())
    assert "is on a network (nfs4)" in next(one for one in findings if one.check == "cache directory").detail
    assert next(one for one in findings if one.check == "cache space").status == "warning"


@pytest.mark.quick
def test_a_directory_that_can_not_be_written(tmp_path: Path) -> None:
    class ReadOnly(Local):
        def _write_bytes(self, key: str, data: bytes, *how: Any) -> None:
            raise PermissionError(13, "Permission denied")

    fs = ReadOnly(tmp_path)
    findings = {one.check: one for one in doctor.permissions(fs, fs)}
    assert findings["list"] == CheckFinding("list", "ok", "there are no files")
    assert findings["write"].status == "warning"
    assert "jobs that only read need no such permission" in findings["write"].advice


@pytest.mark.usefixtures("impatient")
def test_a_scratch_file_that_may_be_written_later_is_named(tmp_path: Path) -> None:
    answered = threading.Event()

    class Slow(Local):
        def _write_bytes(self, key: str, data: bytes, *how: Any) -> None:
            answered.wait(30)
            super()._write_bytes(key, data, *how)

    fs = Slow(tmp_path)
    findings = {one.check: one for one in doctor.permissions(fs, fs)}
    assert findings["write"].status == "warning"
    named = findings["write"].advice.rpartition("remove ")[2].partition(" ")[0]
    answered.set()
    deadline = time.monotonic() + 30
    while not (tmp_path / named).is_file():
        assert time.monotonic() < deadline
        time.sleep(0.01)
