"""Writes against stores that answer early, late, wrongly or not at all, byte by byte; and what must not be written."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import RefreshableCredentials

import fsabs
from fsabs.backends.objects import http1
from fsabs.backends.s3 import S3, endpoint
from tests.backends.sessions import core_session
from tests.backends.test_s3_reads import certificate
from tests.servers.scripted import Asked, ScriptedStore, message

KEYS = {"aws_access_key_id": "me", "aws_secret_access_key": "a-secret-key", "region": "us-east-1"}
MIB = 1 << 20
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "S3_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def opened(store: ScriptedStore, **options: Any) -> S3:
    fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **{**KEYS, "read_timeout": 5, **options})
    assert isinstance(fs, S3)
    return fs


def stored(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
    """Store what a PUT brings."""
    if asked.method == "PUT":
        store.objects[asked.key] = asked.body
        connection.sendall(message(200, {"ETag": '"1"', "Content-Length": "0"}, b""))
    else:
        connection.sendall(store.respond(asked))


def refusal(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()
    return message(status, {"Content-Length": str(len(body))}, body)


# ---- what comes while a body is sent


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("write", ["write_many", "write_bytes"])
def test_what_is_no_refusal_does_not_end_a_body(write: str, tls: bool, tmp_path: Path) -> None:
    """An interim response, or a session ticket of TLS: with a store that reads slowly, of a body under way."""

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
            time.sleep(0.2)

    path = certificate(tmp_path) if tls else None
    data = {f"k{number}": random.Random(number).randbytes(2 * MIB) for number in range(3)}
    with ScriptedStore({}, stored, early=early, certificate=path) as store:
        fs = opened(store, max_attempts=1, **({"verify": f"{path}.crt"} if path else {}))
        if write == "write_many":
            fs.write_many(data, concurrency=3)
        else:
            for name, content in data.items():
                fs.write_bytes(name, content)
        assert store.objects == data
        assert len(store.requests) == 3


@pytest.mark.parametrize("size", [100, 3 * MIB, 20 * MIB])
def test_an_early_refusal_is_named_and_ends_the_body(size: int) -> None:
    """The store closes the connection over what it has not read, so that a reset may follow the response."""

    asked_for: list[str] = []

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        asked_for.append(asked.key)
        connection.sendall(refusal(403, "AccountProblem"))
        connection.shutdown(socket.SHUT_WR)
        return True

    with ScriptedStore({}, stored, early=early) as store, pytest.raises(PermissionError, match="AccountProblem"):
        opened(store).write_bytes("k", bytes(size))
    assert asked_for == ["k"]


def test_a_large_body_waits_until_the_store_asks_for_it() -> None:
    came: list[tuple[int, str]] = []

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        came.append((len(select.select([connection], [], [], 0.2)[0]), asked.headers["expect"]))
        connection.sendall(refusal(403, "AccessDenied"))
        return True

    with ScriptedStore({}, stored, early=early) as store, pytest.raises(PermissionError, match="AccessDenied"):
        opened(store, mpu_chunksize=32 * MIB).write_bytes("k", bytes(20 * MIB))
    assert came == [(0, "100-continue")]


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n"])
def test_a_store_that_does_not_know_how_to_ask_for_a_body_gets_it(answer: bytes | None) -> None:
    """It says nothing, or refuses: further bodies are sent without waiting."""
    asked_for: list[bool] = []

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        asked_for.append("expect" in asked.headers)
        if asked.headers.pop("expect", None) and answer is not None:
            connection.sendall(answer)
            return True
        return False

    data = os.urandom(5 * MIB)
    with ScriptedStore({}, stored, early=early) as store:
        fs = opened(store, max_attempts=2)
        fs.write_bytes("a", data)
        fs.write_many({"b": data, "c": data}, concurrency=2)
        assert store.objects == {"a": data, "b": data, "c": data}
    assert asked_for == [True, *([False] if answer else []), False, False]


def test_a_store_may_read_nothing_for_longer_than_it_takes_to_connect() -> None:
    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        time.sleep(1.5)

    data = os.urandom(12 * MIB)
    with ScriptedStore({}, stored, early=early) as store:
        opened(store, connect_timeout=0.3, max_attempts=1, mpu_chunksize=32 * MIB).write_bytes("k", data)
        assert store.objects["k"] == data


# ---- answers that are no success


@pytest.mark.parametrize("answer", ["page", "empty", "no content", "created"])
@pytest.mark.parametrize("write", ["write_bytes", "open", "write_many"])
def test_a_put_is_done_when_the_store_has_given_an_etag(write: str, answer: str) -> None:
    html = b"<html>Please sign in</html>"
    responses = {
        "page": message(200, {"Content-Type": "text/html", "Content-Length": str(len(html))}, html),
        "empty": message(200, {"Content-Length": "0"}, b""),
        "no content": message(204, {"ETag": '"1"'}, b""),
        "created": message(201, {"ETag": '"1"', "Content-Length": "0"}, b""),
    }
    with ScriptedStore({}, lambda store, asked, connection: connection.sendall(responses[answer])) as store:
        fs = opened(store, max_attempts=2)
        with pytest.raises(fsabs.CorruptFileError, match="without an ETag"):
            if write == "open":
                with fs.open("k", "wb") as file:
                    file.write(b"content")
            elif write == "write_bytes":
                fs.write_bytes("k", b"content")
            else:
                fs.write_many([("k", b"content")], concurrency=2)


@pytest.mark.parametrize("tls", [False, True])
def test_a_page_of_somebody_else_is_no_answer_to_any_request(tls: bool, tmp_path: Path) -> None:
    """As of a network that wants its users to sign in: it is no object, no listing, and nothing was removed."""
    html = b"<html>Please sign in</html>"

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        headers = {"Content-Type": "text/html", "Content-Length": str(len(html))}
        connection.sendall(message(200, headers, b"" if asked.method == "HEAD" else html))

    path = certificate(tmp_path) if tls else None
    with ScriptedStore({}, script, certificate=path) as store:
        fs = opened(store, max_attempts=2, mpu_chunksize=5 * MIB, **({"verify": f"{path}.crt"} if path else {}))
        acts: list[Any] = [
            lambda: fs.read_bytes("k"),
            lambda: list(fs.read_many(["k", "l"])),
            lambda: fs.open("k").close(),
            lambda: fs.stat("k"),
            lambda: fs.exists("k"),
            lambda: list(fs.list()),
            lambda: list(fs.list(recursive=True)),
            lambda: fs.write_bytes("k", bytes(6 * MIB)),
            lambda: fs.copy("k", "l"),
            lambda: fs.rename("k", "l"),
            lambda: fs.remove("k"),
            lambda: fs.remove(".", recursive=True),
        ]
        for act in acts:
            with pytest.raises(fsabs.CorruptFileError):
                act()
        with pytest.raises(fsabs.CorruptFileError, match="nothing shows that anything was removed"):
            fs.send(fs.dialect.remove("k"))


@pytest.mark.parametrize("line", ["\n", "\r\n", "\0", "\r"])
@pytest.mark.parametrize("name", ["aws_session_token", "aws_access_key_id"])
def test_no_header_field_becomes_two(name: str, line: str) -> None:
    with ScriptedStore({"k": b"1"}, stored) as store:
        fs = opened(store, **{name: f"value{line}x-amz-acl: public-read"})
        for act in (lambda: fs.write_bytes("k", b"2"), lambda: fs.read_bytes("k"), lambda: fs.signed_url("k")):
            with pytest.raises(PermissionError, match="line break"):
                act()
        assert store.requests == []


@pytest.mark.parametrize("patient", [True, False])
def test_each_byte_of_a_completion_extends_its_deadline(patient: bool) -> None:
    """AWS answers 200 at once, and sends blanks until it is done."""
    parts: dict[str, bytes] = {}
    end = b"<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>"
    if not patient:
        end = b" " * 1000 + b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        body = b""
        if asked.method == "PUT":
            parts[asked.query["partNumber"]] = asked.body
        elif "uploads" in asked.query:
            body = b"<InitiateMultipartUploadResult><Key>k</Key><UploadId>1</UploadId></InitiateMultipartUploadResult>"
        elif asked.method == "POST":
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head)
            for _ in range(6):
                connection.sendall(b"1\r\n \r\n")
                time.sleep(0.3)
            store.objects["k"] = b"".join(parts[number] for number in sorted(parts))
            connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))
            return
        connection.sendall(message(200, {"Content-Length": str(len(body)), "ETag": '"1"'}, body))

    data = random.Random(1).randbytes(6 * MIB)
    with ScriptedStore({}, script) as store:
        fs = opened(store, read_timeout=1, max_attempts=1, mpu_chunksize=5 * MIB)
        if patient:
            fs.write_bytes("k", data)
            assert store.objects["k"] == data
        else:
            with pytest.raises(PermissionError, match="AccessDenied"):
                fs.write_bytes("k", data)
        assert sum(asked.method == "POST" and "uploadId" in asked.query for asked in store.requests) == 1
        assert any(asked.method == "DELETE" for asked in store.requests) is not patient  # aborted


def test_a_store_may_send_back_some_checksums_only() -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        headers = {"ETag": '"1"', "Content-Length": "0"}
        if asked.key in ("k0", "k3"):
            headers["x-amz-checksum-crc32c"] = asked.headers["x-amz-checksum-crc32c"]
        if asked.key == "wrong":
            headers["x-amz-checksum-crc32c"] = "AAAAAA=="
        connection.sendall(message(200, headers, b""))

    with ScriptedStore({}, script) as store:
        fs = opened(store, max_attempts=1)
        for number in range(6):
            fs.write_bytes(f"k{number}", b"content")
        with pytest.raises(fsabs.CorruptFileError, match="AAAAAA=="):
            fs.write_bytes("wrong", b"content")


# ---- credentials


def _rotating(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
    if "Credential=new/" in asked.headers.get("authorization", ""):
        connection.sendall(store.respond(asked))
    elif asked.method == "HEAD":
        connection.sendall(message(400, {}, b""))
    else:
        connection.sendall(refusal(403, "InvalidAccessKeyId"))


@pytest.mark.parametrize("read", ["read_bytes", "read_many", "stat"])
def test_credentials_that_were_rotated_are_read_anew(read: str, tmp_path: Path) -> None:
    section = "[default]\naws_access_key_id = {}\naws_secret_access_key = b\n"
    (tmp_path / "credentials").write_text(section.format("old"))
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, region="us-east-1")
        with pytest.raises(OSError):
            fs.read_bytes("k")
        assert len(store.requests) == 1  # they are the same, and not tried again
        (tmp_path / "credentials").write_text(section.format("new"))
        time.sleep(endpoint.RENEWED_SECONDS)
        if read == "read_many":
            assert list(fs.read_many(["k"] * 5, concurrency=2)) == [b"content"] * 5
        elif read == "stat":
            assert fs.stat("k").size == 7
        else:
            assert fs.read_bytes("k") == b"content"
        assert fs.read_bytes("k") == b"content"


def test_credentials_of_the_environment_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, region="us-east-1")
        with pytest.raises(PermissionError):
            fs.read_bytes("k")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
        time.sleep(endpoint.RENEWED_SECONDS)
        assert fs.read_bytes("k") == b"content"


@pytest.mark.parametrize("renewable", [False, True])
def test_credentials_that_a_session_was_given_stay_its_own(renewable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")  # somebody else
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    core = core_session()
    core.set_credentials("old", "b")
    if renewable:
        answer = {"access_key": "old", "secret_key": "b", "token": "t", "expiry_time": "2099-01-01T00:00:00Z"}
        core._credentials = RefreshableCredentials.create_from_metadata(answer, lambda: answer, "custom")
    given = core.get_credentials()
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, region="us-east-1", session=core)
        for read in (fs.stat, fs.read_bytes):
            with pytest.raises(OSError):
                read("k")
            time.sleep(endpoint.RENEWED_SECONDS)
        assert {asked.headers["authorization"].partition("/")[0][-3:] for asked in store.requests} == {"old"}
    assert core.get_credentials() is given


def test_credentials_of_the_environment_in_a_session_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with ScriptedStore({"k": b"content"}, _rotating) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, region="us-east-1", session=core_session())
        with pytest.raises(PermissionError):
            fs.read_bytes("k")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
        time.sleep(endpoint.RENEWED_SECONDS)
        assert fs.read_bytes("k") == b"content"


def test_refusals_do_not_have_credentials_read_each_time(tmp_path: Path) -> None:
    """Without the right to list, AWS answers 403 for each object that is not there, and to a HEAD without a reason."""
    answer = '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2099-01-01T00:00:00Z"}'
    (tmp_path / "answer").write_text(answer)
    process = f"sh -c 'echo read >> {tmp_path}/calls; cat {tmp_path}/answer'"
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {process}\nregion = us-east-1\n")
    with ScriptedStore({}, lambda store, asked, connection: connection.sendall(message(403, {}, b""))) as store:
        fs = fsabs.from_url("s3://bucket", endpoint=store.endpoint, profile="p")
        begin = time.monotonic()
        for number in range(50):
            with pytest.raises(PermissionError):
                fs.stat(f"k{number}")
        seconds = time.monotonic() - begin
    assert len((tmp_path / "calls").read_text().split()) <= 2 + seconds / endpoint.RENEWED_SECONDS


def test_no_secret_is_shown(tmp_path: Path) -> None:
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
        fs = opened(store, max_attempts=1, **options)
        print(repr(fs), repr(fs.options), repr(fs.dialect), repr(fs.http.access), file=shown)
        acts: list[Any] = [
            lambda: fs.read_bytes("k"),
            lambda: fs.read_bytes("reset"),
            lambda: list(fs.read_many(["k", "k"])),
            lambda: fs.write_bytes("k", b"1"),
            lambda: fs.write_bytes("reset", bytes(MIB)),
            lambda: fs.write_many([("reset", b"1"), ("k", b"2")]),
            lambda: opened(store, aws_session_token=token + "\n").read_bytes("k"),
        ]
        for act in acts:
            try:
                act()
            except OSError as exc:
                shown.write(_ours(exc))
    for secret in (KEYS["aws_secret_access_key"], token, "Signature=", "Y2NjY2"):
        assert secret not in shown.getvalue()


def _ours(exc: BaseException) -> str:
    """What is shown of an exception and of those that led to it, but for the frames of the test itself."""
    found: Any = traceback.TracebackException.from_exception(exc, capture_locals=True)
    package, text = os.path.dirname(fsabs.__file__), ""
    while found is not None:
        frames = (f"{frame.name} {frame.locals}\n" for frame in found.stack if frame.filename.startswith(package))
        text += "".join([*found.format_exception_only(), *frames])
        found = found.__cause__ or found.__context__
    return text


# ---- conditions


def test_a_file_is_replaced_if_it_has_still_its_version() -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT" and asked.headers.get("if-match") != '"v1"':
            connection.sendall(refusal(412, "PreconditionFailed"))
        else:
            stored(store, asked, connection)

    with ScriptedStore({"k": b"old"}, script) as store:
        fs = opened(store)
        with pytest.raises(fsabs.StaleFileError) as caught:
            fs.write_if("k", b"new", "v0")
        assert caught.value.filename == "s3://bucket/k"
        assert store.objects["k"] == b"old"
        fs.write_if("k", b"new", "v1")
        assert store.objects["k"] == b"new"


def test_a_conflict_of_two_conditional_writes_is_tried_again() -> None:
    # AWS refuses so, and asks to do it again, if the object is removed meanwhile: there need be none.
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT" and sum(request.method == "PUT" for request in store.requests) % 2:
            connection.sendall(refusal(409, "ConditionalRequestConflict"))
        else:
            stored(store, asked, connection)

    with ScriptedStore({}, script) as store:
        fs = opened(store)
        with fs.open("new", "xb") as file:
            file.write(b"1")
        fs.write_if("new", b"2", "v1")
        assert store.objects == {"new": b"2"}


@pytest.mark.parametrize("code", ["InternalError", "SlowDown", "ServiceUnavailable"])
def test_a_copy_that_fails_after_its_status_was_sent_is_made_again(code: str) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        body = '<CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>'
        if sum(request.method == "PUT" for request in store.requests) == 1:
            body = f"<Error><Code>{code}</Code></Error>"
        connection.sendall(message(200, {"Content-Length": str(len(body))}, body.encode()))

    with ScriptedStore({}, script) as store:
        opened(store).copy("a", "b")
        assert [request.method for request in store.requests].count("PUT") == 2


@pytest.mark.parametrize("size", [10, 6 * 1024**3])
def test_a_copy_says_who_pays_for_its_source_and_whose_it_is(size: int) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        headers, body = {"ETag": '"1"'}, '<CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>'
        if asked.method == "HEAD":
            headers, body = {**headers, "Content-Length": str(size)}, ""
        elif asked.method == "GET":
            body = "<Tagging></Tagging>"
        elif asked.method == "POST":
            name = "InitiateMultipartUploadResult" if "uploads" in asked.query else "CompleteMultipartUploadResult"
            body = f"<{name}><UploadId>1</UploadId></{name}>"
        elif "partNumber" not in asked.query and size > 5 * 1024**3:
            connection.sendall(refusal(400, "EntityTooLarge"))
            return
        connection.sendall(message(200, {"Content-Length": str(len(body)), **headers}, body.encode()))

    with ScriptedStore({}, script) as store:
        options: Any = {**KEYS, "endpoint": store.endpoint, "read_timeout": 5}
        theirs = fsabs.from_url("s3://theirs", requester_pays=True, expected_bucket_owner="1", **options)
        theirs.copy("x", "y", opened(store, expected_bucket_owner="2"))
        copies = [asked.headers for asked in store.requests if "x-amz-copy-source" in asked.headers]
    assert len(copies) == (1 if size == 10 else 13)
    for headers in copies:
        assert headers["x-amz-request-payer"] == "requester"
        assert headers["x-amz-source-expected-bucket-owner"] == "1"
        assert headers["x-amz-expected-bucket-owner"] == "2"


@pytest.mark.parametrize("known", [True, False])
def test_listings_are_bounded(known: bool) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        length = b"Content-Length: 209715200" if known else b"Transfer-Encoding: chunked"
        connection.sendall(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % length)
        piece = b"100000\r\n" + b"<Contents>" * 104857 + b"      \r\n"
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(piece)
        return True

    with ScriptedStore({}, script) as store, pytest.raises(fsabs.CorruptFileError, match="67108864"):
        list(opened(store, max_attempts=1, read_timeout=20).list(""))


def test_an_object_that_has_no_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_UNSIZED", 10 * MIB)
    sent = 0

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        nonlocal sent
        connection.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: "1"\r\n\r\n')
        with contextlib.suppress(OSError):
            while sent < 1 << 30:
                connection.sendall(b"100000\r\n" + bytes(MIB) + b"\r\n")
                sent += MIB
        return True

    with ScriptedStore({}, script) as store, pytest.raises(fsabs.CorruptFileError, match="more than"):
        opened(store, max_attempts=1).read_bytes("k")
    assert sent < 100 * MIB


# ---- many at once


class AtOnce:
    """A script that stores what a PUT brings, and notes how many requests are under way at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self, store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1
        source = asked.headers.get("x-amz-copy-source")
        if source is not None and source.partition("/")[2] not in store.objects:
            connection.sendall(refusal(404, "NoSuchKey"))
        elif source is not None:
            store.objects[asked.key] = store.objects[source.partition("/")[2]]
            body = b'<CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>'
            connection.sendall(message(200, {"Content-Length": str(len(body))}, body))
        elif asked.method == "GET" and not asked.key:
            connection.sendall(_page(sorted(key for key in store.objects if key.startswith(asked.query["prefix"]))))
        elif asked.method == "POST":
            for key in re.findall(rb"<Key>([^<]*)</Key>", asked.body):
                del store.objects[key.decode()]
            body = b"<DeleteResult></DeleteResult>"
            connection.sendall(message(200, {"Content-Length": str(len(body))}, body))
        else:
            stored(store, asked, connection)


def _page(keys: list[str]) -> bytes:
    entries = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    body = f"<ListBucketResult>{entries}</ListBucketResult>".encode()
    return message(200, {"Content-Length": str(len(body))}, body)


def test_contents_around_the_size_of_large_ones_are_written_at_once() -> None:
    """As photographs are: each other one is larger than what a pipeline takes."""
    contents = {f"{number:02}": bytes(3 * MIB if number % 2 else 10) for number in range(16)}
    script = AtOnce()
    with ScriptedStore({}, script) as store:
        assert opened(store).write_many(contents, concurrency=8) == 16
        assert store.objects == contents
    assert script.most >= 4


def test_small_contents_behind_a_large_one_are_written_by_few_threads() -> None:
    contents = {f"{number:02}": bytes(3 * MIB if number == 0 else 10) for number in range(40)}
    with ScriptedStore({}, stored) as store:
        fs = opened(store)
        writers = set[int]()
        write = fs._write_bytes

        def noting(key: str, data: bytes) -> None:
            writers.add(int(key))
            write(key, data)

        fs._write_bytes = noting  # type: ignore[method-assign]
        assert fs.write_many(contents, concurrency=8) == 40
        assert writers == set(range(8))  # then the pipeline goes on
        assert store.objects == contents


def test_a_directory_is_renamed_by_copies_at_once() -> None:
    script = AtOnce()
    with ScriptedStore({f"a/{number}": b"1" for number in range(12)}, script) as store:
        opened(store).rename("a", "b")
        assert sorted(store.objects) == sorted(f"b/{number}" for number in range(12))
    assert script.most >= 4


# ---- uploads that were left


DAY = 24 * 3600
UPLOADS = (
    "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>1</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated>"
    "</Upload>{}</ListMultipartUploadsResult>"
)


def _listing_uploads(page: str) -> Callable[[ScriptedStore, Asked, socket.socket], None]:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "DELETE":
            connection.sendall(refusal(404, "NoSuchUpload"))
        else:
            connection.sendall(message(200, {"Content-Length": str(len(page))}, page.encode()))

    return script


@pytest.mark.parametrize("seconds", [0, 3600, DAY - 1, float("nan")])
def test_uploads_that_may_be_under_way_are_not_aborted(seconds: float) -> None:
    with ScriptedStore({}, _listing_uploads(UPLOADS.format(""))) as store:
        with pytest.raises(ValueError, match="less than a day"):
            opened(store).abort_uploads(seconds)
        assert store.requests == []


def test_an_upload_that_has_ended_meanwhile_is_not_aborted() -> None:
    with ScriptedStore({}, _listing_uploads(UPLOADS.format(""))) as store:
        assert opened(store).abort_uploads(DAY) == 0
        assert [asked.method for asked in store.requests] == ["GET", "DELETE"]


@pytest.mark.parametrize(
    "page",
    [
        "<html>sign in</html>",
        UPLOADS.format("<Upload><Key>k</Key></Upload>"),
        UPLOADS.replace("2026-01", "long ago"),
        UPLOADS.format("<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"),
    ],
)
def test_what_is_no_page_of_uploads_is_an_error(page: str) -> None:
    with ScriptedStore({}, _listing_uploads(page)) as store:
        with pytest.raises(fsabs.CorruptFileError):
            opened(store).abort_uploads(DAY)
        assert {asked.method for asked in store.requests} == {"GET"}
        assert len(store.requests) < 5
