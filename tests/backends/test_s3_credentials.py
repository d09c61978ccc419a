"""Who reads and writes S3: sessions of the user's, credentials that come late, expire or are rotated, and secrets."""

from __future__ import annotations

import io
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

import fsabs
from fsabs.backends.s3 import S3
from fsabs.backends.s3.endpoint import RENEWED_SECONDS, principal, resolve
from fsabs.backends.s3.options import Options
from fsabs.testing.children import Child
from tests.backends.s3_clients import KEYS, MIB, core_session, new_bucket, opened, renewable_session
from tests.servers.scripted import Asked, ScriptedStore, message, refusal

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_settings")]

SECTION = "[{}]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
PROCESS = '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2099-01-01T00:00:00Z"}'
"""What a `credential_process` prints."""
RENEWABLE = {"access_key": "mine", "secret_key": "b", "token": "t", "expiry_time": "2099-01-01T00:00:00Z"}
READS: dict[str, Callable[[S3], object]] = {
    "read_bytes": lambda fs: fs.read_bytes("k"),
    "read_many": lambda fs: b"".join(set(fs.read_many(["k"] * 5, concurrency=2))),
    "stat": lambda fs: bytes(fs.stat("k").size),
}


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which credentials may be looked for anew; else no time passes."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def passing() -> None:
        nonlocal now
        now += RENEWED_SECONDS

    return passing


# ---- credentials that come late, or change


def test_credentials_that_expire_are_fetched_again(ceph: Any, tmp_path: Path) -> None:
    calls, script = tmp_path / "calls", tmp_path / "credentials.py"
    script.write_text(
        "import json, datetime\n"
        f"open({str(calls)!r}, 'a').write('x')\n"
        "soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId={ceph.access_key!r}, SecretAccessKey={ceph.secret_key!r},"
        " SessionToken=None, Expiration=soon.isoformat())))\n"
    )
    (tmp_path / "config").write_text(f"[profile short]\ncredential_process = {sys.executable} {script}\n")
    fs = S3(new_bucket(ceph).bucket, profile="short", endpoint=ceph.endpoint)
    fs.write_bytes("a", b"1")
    assert fs.read_bytes("a") == b"1"
    assert len(calls.read_text()) >= 2


@pytest.mark.parametrize("profile", [None, "late"])
def test_credentials_that_no_provider_has_may_come_later(profile: str | None, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"[profile late]\ncredential_process = cat {tmp_path}/process\n")
    with ScriptedStore({"k": b"1"}) as store:
        fs = S3("bucket", endpoint=store.endpoint, region="us-east-1", profile=profile)
        for read in READS.values():
            with pytest.raises(PermissionError, match="credentials"):
                read(fs)
        (tmp_path / "process").write_text(PROCESS)
        (tmp_path / "credentials").write_text(SECTION.format("default", "a", "b"))
        assert fs.read_bytes("k") == b"1"


def _rotating(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
    if "Credential=new/" in asked.headers.get("authorization", ""):
        connection.sendall(store.respond(asked))
    elif asked.method == "HEAD":
        connection.sendall(message(400, {}, b""))
    else:
        connection.sendall(refusal(403, "InvalidAccessKeyId"))


@pytest.mark.parametrize("read", READS)
def test_credentials_that_were_rotated_are_read_anew(read: str, tmp_path: Path, pass_time: Callable[[], None]) -> None:
    (tmp_path / "credentials").write_text(SECTION.format("default", "old", "b"))
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = S3("bucket", endpoint=store.endpoint, region="us-east-1")
        with pytest.raises(OSError):
            fs.read_bytes("k")
        assert len(store.requests) == 1  # they are the same, and not tried again
        (tmp_path / "credentials").write_text(SECTION.format("default", "new", "b"))
        pass_time()
        assert READS[read](fs) in (b"content", bytes(7))
        assert fs.read_bytes("k") == b"content"


@pytest.mark.parametrize("in_a_session", [False, True])
def test_credentials_of_the_environment_are_read_anew(
    in_a_session: bool, monkeypatch: pytest.MonkeyPatch, pass_time: Callable[[], None]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    session = core_session() if in_a_session else None
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = S3("bucket", endpoint=store.endpoint, region="us-east-1", session=session)
        with pytest.raises(PermissionError):
            fs.read_bytes("k")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
        pass_time()
        assert fs.read_bytes("k") == b"content"


@pytest.mark.parametrize("renewable", [False, True])
def test_credentials_that_a_session_was_given_stay_its_own(
    renewable: bool, monkeypatch: pytest.MonkeyPatch, pass_time: Callable[[], None]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")  # somebody else
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    core = renewable_session(lambda: {**RENEWABLE, "access_key": "old"}) if renewable else core_session()
    if not renewable:
        core.set_credentials("old", "b")
    given = core.get_credentials()
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = S3("bucket", endpoint=store.endpoint, region="us-east-1", session=core)
        for read in (fs.stat, fs.read_bytes):
            with pytest.raises(OSError):
                read("k")
            pass_time()
        assert {asked.headers["authorization"].partition("/")[0][-3:] for asked in store.requests} == {"old"}
    assert core.get_credentials() is given


def test_refusals_do_not_have_credentials_read_each_time(tmp_path: Path, pass_time: Callable[[], None]) -> None:
    """Without the right to list, AWS answers 403 for each object that is not there, and to a HEAD without a reason."""
    (tmp_path / "answer").write_text(PROCESS)
    process = f"sh -c 'echo read >> {tmp_path}/calls; cat {tmp_path}/answer'"
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {process}\nregion = us-east-1\n")
    with ScriptedStore({}, lambda store, asked, connection: connection.sendall(message(403, {}, b""))) as store:
        fs = S3("bucket", endpoint=store.endpoint, profile="p")
        for number in range(50):
            with pytest.raises(PermissionError):
                fs.stat(f"k{number}")
            if number == 25:
                pass_time()
    assert len((tmp_path / "calls").read_text().split()) == 3


# ---- sessions


def _session(store: Any, tmp_path: Path, profile: bool) -> Any:
    if not profile:
        keys = (store.access_key, store.secret_key)
        return boto3.Session(*keys, region_name=store.region, botocore_session=core_session())
    (tmp_path / "credentials").write_text(SECTION.format("lab", store.access_key, store.secret_key))
    return boto3.Session(profile_name="lab", region_name=store.region, botocore_session=core_session())


def test_sessions(ceph: Any, tmp_path: Path) -> None:
    bucket, core = new_bucket(ceph).bucket, core_session()
    core.set_credentials(ceph.access_key, ceph.secret_key)
    for session in (_session(ceph, tmp_path, True), _session(ceph, tmp_path, False), core):
        fs = S3(bucket, endpoint=ceph.endpoint, session=session)
        fs.write_bytes("a", b"1")
        assert fs.read_bytes("a") == b"1"
        assert principal(resolve(bucket, fs.options), fs.options) == ceph.access_key


def test_a_session_of_a_profile_pickles_by_its_name(ceph: Any, tmp_path: Path) -> None:
    fs = S3(new_bucket(ceph).bucket, endpoint=ceph.endpoint, session=_session(ceph, tmp_path, True))
    fs.write_bytes("a", b"1")
    again = pickle.loads(pickle.dumps(fs))
    assert again.read_bytes("a") == b"1"
    assert (again.options.profile, again.options.session, again.options.region) == ("lab", None, ceph.region)
    with pytest.raises(pickle.PicklingError, match="profile="):
        pickle.dumps(S3(fs.bucket, endpoint=ceph.endpoint, session=_session(ceph, tmp_path, False)))


@pytest.mark.quick
@pytest.mark.parametrize("source", ["set", "renewable", "environment", "profile"])
def test_a_session_pickles_by_the_profile_of_the_environment_if_its_credentials_are_of_it(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(SECTION.format("lab", "lab", "b"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    core = renewable_session(lambda: RENEWABLE, "sts-assume-role") if source == "renewable" else core_session()
    if source == "set":
        core.set_credentials("mine", "b")
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
    """A child does not wait for the thread that renews them in its parent."""
    parent, under_way, go_on = os.getpid(), threading.Event(), threading.Event()
    blocking = False

    def renew() -> dict[str, str]:
        if blocking and os.getpid() == parent:
            under_way.set()
            go_on.wait()
        soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()  # renewed before each request
        return {"access_key": ceph.access_key, "secret_key": ceph.secret_key, "token": "", "expiry_time": soon}

    fs = new_bucket(ceph)
    fs.write_bytes("a", b"1")
    fs = S3(fs.bucket, endpoint=ceph.endpoint, region=ceph.region, session=renewable_session(renew))
    assert fs.read_bytes("a") == b"1"
    blocking = True

    def read() -> None:
        while not under_way.is_set():  # a signature's key counts for a second
            fs.read_bytes("a")

    thread = threading.Thread(target=read)
    thread.start()
    assert under_way.wait(10)
    try:
        assert Child("a child", lambda: fs.read_bytes("a"), 20).result() == b"1"
    finally:
        go_on.set()
        thread.join(10)
    assert fs.read_bytes("a") == b"1"


# ---- secrets


@pytest.mark.parametrize("name", ["aws_session_token", "aws_access_key_id"])
def test_no_header_field_becomes_two(name: str) -> None:
    with ScriptedStore({"k": b"1"}) as store:
        for line in ("\n", "\r", "\0"):
            fs = opened(store.endpoint, **{name: f"value{line}x-amz-acl: public-read"})
            for act in (lambda fs: fs.write_bytes("k", b"2"), READS["read_bytes"], lambda fs: fs.signed_url("k")):
                with pytest.raises(PermissionError, match="line break"):
                    act(fs)
        assert store.requests == []


def test_no_secret_is_shown() -> None:
    token, customer = "a-session-token", "c" * 32
    options = {"aws_session_token": token, "sse_customer_key": customer.encode()}
    # Locals are part of what pytest, Sentry and rich show of a traceback.
    shown = io.StringIO()

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        if asked.key == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return True
        connection.sendall(refusal(403, "AccessDenied"))
        return False

    with ScriptedStore({}, script) as store:
        fs = opened(store.endpoint, max_attempts=1, **options)
        print(repr(fs), repr(fs.options), repr(fs.dialect), repr(fs.http.access), file=shown)
        acts: list[Any] = [
            lambda: fs.read_bytes("k"),
            lambda: fs.read_bytes("reset"),
            lambda: list(fs.read_many(["k", "k"])),
            lambda: fs.write_bytes("k", b"1"),
            lambda: fs.write_bytes("reset", bytes(MIB)),
            lambda: fs.write_many([("reset", b"1"), ("k", b"2")]),
            lambda: opened(store.endpoint, aws_session_token=token + "\n").read_bytes("k"),
        ]
        for act in acts:
            try:
                act()
            except OSError as exc:
                shown.write(_ours(exc))
    for secret in (KEYS["aws_secret_access_key"], token, "Signature=", "Y2NjY2"):
        assert secret not in shown.getvalue()


def _ours(exc: BaseException) -> str:
    """Return what is shown of an exception and of those that led to it, but for the frames of the test itself."""
    found: Any = traceback.TracebackException.from_exception(exc, capture_locals=True)
    package, text = os.path.dirname(fsabs.__file__), ""
    while found is not None:
        frames = (f"{frame.name} {frame.locals}\n" for frame in found.stack if frame.filename.startswith(package))
        text += "".join([*found.format_exception_only(), *frames])
        found = found.__cause__ or found.__context__
    return text
