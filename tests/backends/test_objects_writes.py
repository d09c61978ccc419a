"""Writes against stores that answer early, late, wrongly or not at all, byte by byte; and what must not be written."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import fsabs
from fsabs.backends.s3 import S3
from tests.backends.s3_clients import KEYS, MIB, opened
from tests.servers.scripted import Asked, Script, ScriptedStore, message, refusal

GIB = 1 << 30
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_settings")]


def stored(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
    """Store what a PUT brings."""
    if asked.method == "PUT":
        store.objects[asked.key] = asked.body
        connection.sendall(message(200, {"ETag": '"1"', "Content-Length": "0"}, b""))
    else:
        connection.sendall(store.respond(asked))


def answering(response: bytes) -> ScriptedStore:
    """Return a store that has one response to whatever it is asked."""
    return ScriptedStore({}, lambda store, asked, connection: connection.sendall(response))


# ---- what comes while a body is sent


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("write", ["write_many", "write_bytes"])
def test_what_is_no_refusal_does_not_end_a_body(write: str, tls: bool, pem: str) -> None:
    """An interim response, or a session ticket of TLS: with a store that reads slowly, of a body under way."""

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
            time.sleep(0.2)

    data = {f"k{number}": random.Random(number).randbytes(2 * MIB) for number in range(3)}
    with ScriptedStore({}, stored, early=early, certificate=pem if tls else None) as store:
        fs = opened(store.endpoint, max_attempts=1, verify=f"{pem}.crt")
        if write == "write_many":
            fs.write_many(data, concurrency=3)
        else:
            for name, content in data.items():
                fs.write_bytes(name, content)
        assert store.objects == data
        assert len(store.requests) == 3


@pytest.mark.parametrize("size", [100, 20 * MIB])
def test_an_early_refusal_is_named_and_ends_the_body(size: int) -> None:
    """The store closes the connection over what it has not read, so that a reset may follow the response."""

    asked_for: list[str] = []

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        asked_for.append(asked.key)
        connection.sendall(refusal(403, "AccountProblem"))
        connection.shutdown(socket.SHUT_WR)
        return True

    with ScriptedStore({}, stored, early=early) as store, pytest.raises(PermissionError, match="AccountProblem"):
        opened(store.endpoint).write_bytes("k", bytes(size))
    assert asked_for == ["k"]


def test_a_large_body_waits_until_the_store_asks_for_it() -> None:
    came: list[tuple[int, str]] = []

    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        came.append((len(select.select([connection], [], [], 0.2)[0]), asked.headers["expect"]))
        connection.sendall(refusal(403, "AccessDenied"))
        return True

    with ScriptedStore({}, stored, early=early) as store, pytest.raises(PermissionError, match="AccessDenied"):
        opened(store.endpoint, mpu_chunksize=32 * MIB).write_bytes("k", bytes(20 * MIB))
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
        fs = opened(store.endpoint, max_attempts=2)
        fs.write_bytes("a", data)
        fs.write_many({"b": data, "c": data}, concurrency=2)
        assert store.objects == {"a": data, "b": data, "c": data}
    assert asked_for == [True, *([False] if answer else []), False, False]


def test_a_store_may_read_nothing_for_longer_than_it_takes_to_connect() -> None:
    def early(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        time.sleep(1.5)

    data = os.urandom(12 * MIB)
    with ScriptedStore({}, stored, early=early) as store:
        opened(store.endpoint, connect_timeout=0.3, max_attempts=1, mpu_chunksize=32 * MIB).write_bytes("k", data)
        assert store.objects["k"] == data


# ---- answers that are no success


WRITES: dict[str, Callable[[S3], object]] = {
    "write_bytes": lambda fs: fs.write_bytes("k", b"content"),
    "write_many": lambda fs: fs.write_many([("k", b"content")], concurrency=2),
    "open": lambda fs: _write_by_open(fs),
}


def _write_by_open(fs: S3) -> None:
    with fs.open("k", "wb") as file:
        file.write(b"content")


@pytest.mark.parametrize("write", WRITES)
def test_a_put_is_done_when_the_store_has_given_an_etag(write: str) -> None:
    for response in (
        message(200, {"Content-Length": "0"}, b""),
        message(204, {"ETag": '"1"'}, b""),
        message(201, {"ETag": '"1"', "Content-Length": "0"}, b""),
    ):
        with answering(response) as store, pytest.raises(fsabs.CorruptFileError, match="without an ETag"):
            WRITES[write](opened(store.endpoint, max_attempts=2))


@pytest.mark.parametrize("tls", [False, True])
def test_a_page_of_somebody_else_is_no_answer_to_any_request(tls: bool, pem: str) -> None:
    """As of a network that wants its users to sign in: it is no object, no listing, and nothing was removed."""
    html = b"<html>Please sign in</html>"

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        headers = {"Content-Type": "text/html", "Content-Length": str(len(html))}
        connection.sendall(message(200, headers, b"" if asked.method == "HEAD" else html))

    with ScriptedStore({}, script, certificate=pem if tls else None) as store:
        fs = opened(store.endpoint, max_attempts=2, mpu_chunksize=5 * MIB, verify=f"{pem}.crt")
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
        fs = opened(store.endpoint, read_timeout=1, max_attempts=1, mpu_chunksize=5 * MIB)
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
        fs = opened(store.endpoint, max_attempts=1)
        for number in range(6):
            fs.write_bytes(f"k{number}", b"content")
        with pytest.raises(fsabs.CorruptFileError, match="AAAAAA=="):
            fs.write_bytes("wrong", b"content")


# ---- conditions


def test_a_conflict_of_two_conditional_writes_is_tried_again() -> None:
    # AWS refuses so, and asks to do it again, if the object is removed meanwhile: there need be none.
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "PUT" and sum(request.method == "PUT" for request in store.requests) % 2:
            connection.sendall(refusal(409, "ConditionalRequestConflict"))
        else:
            stored(store, asked, connection)

    with ScriptedStore({}, script) as store:
        fs = opened(store.endpoint)
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
        opened(store.endpoint).copy("a", "b")
        assert [request.method for request in store.requests].count("PUT") == 2


@pytest.mark.parametrize(("size", "most", "count"), [(10, 10_000, 0), (6 * GIB, 10_000, 12), (6 * GIB, 5, 5)])
def test_a_copy_is_made_of_parts_where_it_has_to_be_and_says_who_pays(size: int, most: int, count: int) -> None:
    """And whose the source is and the target."""

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        headers, body = {"ETag": '"1"'}, '<CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>'
        if asked.method == "HEAD":
            headers, body = {**headers, "Content-Length": str(size)}, ""
        elif asked.method == "GET":
            body = "<Tagging></Tagging>"
        elif asked.method == "POST":
            name = "InitiateMultipartUploadResult" if "uploads" in asked.query else "CompleteMultipartUploadResult"
            body = f"<{name}><UploadId>1</UploadId></{name}>"
        elif "partNumber" not in asked.query and size > 5 * GIB:
            connection.sendall(refusal(400, "EntityTooLarge"))
            return
        connection.sendall(message(200, {"Content-Length": str(len(body)), **headers}, body.encode()))

    with ScriptedStore({}, script) as store:
        options: Any = {**KEYS, "endpoint": store.endpoint, "read_timeout": 5}
        theirs = fsabs.from_url("s3://theirs", requester_pays=True, expected_bucket_owner="1", **options)
        ours = opened(store.endpoint, expected_bucket_owner="2")
        ours.dialect.max_parts = most
        theirs.copy("x", "y", ours)
        copies = [asked.headers for asked in store.requests if "x-amz-copy-source" in asked.headers]
    for headers in copies:
        assert headers["x-amz-request-payer"] == "requester"
        assert headers["x-amz-source-expected-bucket-owner"] == "1"
        assert headers["x-amz-expected-bucket-owner"] == "2"
    ranges = [headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-") for headers in copies[1:]]
    bounds = sorted((int(first), int(last) + 1) for first, last in ranges)
    assert len(bounds) == count
    assert [end for _, end in bounds[:-1]] == [start for start, _ in bounds[1:]]
    assert not bounds or (bounds[0][0], bounds[-1][1]) == (0, size)


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
        list(opened(store.endpoint, max_attempts=1, read_timeout=20).list(""))


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
        assert opened(store.endpoint).write_many(contents, concurrency=8) == 16
        assert store.objects == contents
    assert script.most >= 4


def test_a_directory_is_renamed_by_copies_at_once() -> None:
    script = AtOnce()
    with ScriptedStore({f"a/{number}": b"1" for number in range(12)}, script) as store:
        opened(store.endpoint).rename("a", "b")
        assert sorted(store.objects) == sorted(f"b/{number}" for number in range(12))
    assert script.most >= 4


def test_a_tree_is_removed_in_batches() -> None:
    objects = {f"t/{number:04}": b"1" for number in range(1010)}
    with ScriptedStore({**objects, "t-sibling": b"1"}, AtOnce()) as store:
        opened(store.endpoint).remove("t", recursive=True)
        assert list(store.objects) == ["t-sibling"]
    assert len(store.requests) <= 7


# ---- uploads that were left


DAY = 24 * 3600
UPLOADS = (
    "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>1</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated>"
    "</Upload>{}</ListMultipartUploadsResult>"
)


def _listing_uploads(page: str) -> Script:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.method == "DELETE":
            connection.sendall(refusal(404, "NoSuchUpload"))
        else:
            connection.sendall(message(200, {"Content-Length": str(len(page))}, page.encode()))

    return script


def test_uploads_that_are_under_way_or_have_ended_are_not_aborted() -> None:
    with ScriptedStore({}, _listing_uploads(UPLOADS.format(""))) as store:
        for seconds in (0, DAY - 1, float("nan")):
            with pytest.raises(ValueError, match="less than a day"):
                opened(store.endpoint).abort_uploads(seconds)
        assert store.requests == []
        assert opened(store.endpoint).abort_uploads(DAY) == 0
        assert [asked.method for asked in store.requests] == ["GET", "DELETE"]


@pytest.mark.parametrize(
    "page",
    [
        "<html>sign in</html>",
        UPLOADS.format("<Upload><Key>k</Key></Upload>"),
        UPLOADS.replace("2026-01", "long ago"),
        UPLOADS.format("<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"),
    ],
    ids=["a page of somebody else", "without an id", "a time that is none", "an end that is none"],
)
def test_what_is_no_page_of_uploads_is_an_error(page: str) -> None:
    with ScriptedStore({}, _listing_uploads(page)) as store:
        with pytest.raises(fsabs.CorruptFileError):
            opened(store.endpoint).abort_uploads(DAY)
        assert {asked.method for asked in store.requests} == {"GET"}
        assert len(store.requests) < 5
