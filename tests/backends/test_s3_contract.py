"""The response contract: a response that does not belong to its request, or is none, is never delivered."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsabs
from fsabs.backends.objects.failures import Mismatch, ProtocolError
from fsabs.backends.objects.http1 import BodyParser, expected_body, parse_head
from fsabs.backends.objects.messages import Framing, Request
from fsabs.backends.objects.pipeline import PAUSE, send_many
from fsabs.backends.s3.dialect import S3Dialect
from tests import soak
from tests.backends.s3_clients import MIB, contents, opened
from tests.servers import hostile_store
from tests.servers.hostile_store import Answer, HostileStore
from tests.servers.scripted import Asked, ScriptedStore, duplicating, message

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_settings")]


# ---- duplicates


@pytest.mark.parametrize("tls", [False, True])
def test_a_duplicate_is_never_another_objects_content(tls: bool, pem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", f"{pem}.crt")
    objects = contents(60)
    with ScriptedStore(objects, duplicating(7), certificate=pem if tls else None) as store:
        fs = opened(store.endpoint)
        assert all(fs.read_bytes(name) == data for name, data in objects.items())
        assert list(fs.read_many(objects, concurrency=8)) == list(objects.values())
        for name, data in objects.items():
            with fs.open(name, "rb") as file:
                assert file.read() == data


@pytest.mark.parametrize(
    ("operation", "other"),
    [
        ("uploads", b"OTHER"),
        ("uploads", b"<InitiateMultipartUploadResult><Key>old</Key><UploadId>2</UploadId>"),
        ("uploadId", b"OTHER"),
        ("uploadId", b"<CompleteMultipartUploadResult><Key>n&#119;w</Key>"),
        ("delete", b"OTHER"),
    ],
)
def test_a_result_of_something_else_is_asked_for_again(operation: str, other: bytes) -> None:
    """It would be taken for the end of an upload, or of a removal."""

    class Strange(HostileStore):
        left = 2

        def answer(self, request: hostile_store.Request) -> Answer:
            body, removes = other, "delete" in request.query
            if request.method == "POST" and operation in request.query and self.left > 0:
                self.left -= 1
            elif request.method == "POST" and removes:
                self.written.clear()
                body = b"<DeleteResult/>"
            elif request.method == "GET" and not request.key:
                keys = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in self.written)
                body = f"<ListBucketResult>{keys}</ListBucketResult>".encode()
            else:
                return super().answer(request)
            return Answer(200, {}, body, len(body))

    with Strange() as store:
        fs = opened(store.endpoint, mpu_chunksize=5 * MIB, max_attempts=5)
        data = random.Random(1).randbytes(6 * MIB)
        fs.write_bytes("new", data)
        assert store.written == {"new": data}
        fs.remove(".", recursive=True)
        assert store.written == {}
        assert store.left == 0


@pytest.mark.parametrize("start", ["ContinuationToken", "StartAfter"])
def test_another_page_of_a_listing_is_not_its_first_one(start: str) -> None:
    """A page that comes unasked or late would else hide the keys before it."""
    late: list[str] = []

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        first, later = "<Contents><Key>a</Key><Size>1</Size></Contents>", f"<{start}>a%2F</{start}>"
        if len(late) < 2:
            late.append(asked.key)
            first = ""
        elif asked.query.get("continuation-token", "") == "":
            later = ""
        keys = f"{first}{later}<Contents><Key>b</Key><Size>1</Size></Contents>"
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode()
        connection.sendall(message(200, {"Content-Length": str(len(body))}, body))

    with ScriptedStore({}, script) as store:
        assert sorted(opened(store.endpoint, max_attempts=5).list("")) == ["a", "b"]
    assert len(late) == 2


def test_a_head_is_answered_by_a_status_of_200_and_no_other() -> None:
    """A response without content, to a DELETE perhaps, says nothing of an object's size."""
    answers = [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 206 Part\r\nContent-Length: 10\r\n\r\n",
    ]

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> bool:
        connection.sendall(answers.pop() if answers else store.respond(asked))
        return False

    with ScriptedStore({"x": b"12345"}, script) as store:
        assert opened(store.endpoint, max_attempts=5).stat("x").size == 5
    assert not answers


# ---- ranges and versions


@pytest.mark.parametrize("matching", [True, False])
def test_a_whole_object_for_a_range_is_cut_or_an_error(matching: bool) -> None:
    data = random.Random(1).randbytes(400_000)
    headers = {} if matching else {"ETag": '"another"'}

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.range is None or (asked.number == 0 and len(store.requests) == 1):
            connection.sendall(store.respond(asked))
        else:
            connection.sendall(
                store.respond(
                    asked, status=200, body=data, headers={"Content-Range": None, "Content-Length": "400000", **headers}
                )
            )

    with ScriptedStore({"x": data}, script) as store:
        blob = opened(store.endpoint).open_blob("x")
        ranges = [(100, 50_000 * number + 7) for number in range(8)]
        if matching:
            assert blob.pread(1000, 100_000) == data[100_000:101_000]
            assert blob.pread_many(ranges) == [data[start : start + size] for size, start in ranges]
        else:
            with pytest.raises(fsabs.StaleFileError):
                blob.pread(1000, 100_000)
            with pytest.raises(fsabs.StaleFileError):
                blob.pread_many(ranges)


def test_a_store_that_ignores_ranges_altogether() -> None:
    small, large = random.Random(1).randbytes(400_000), random.Random(1).randbytes(20_000_000)

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        asked.headers.pop("range", None)
        with contextlib.suppress(OSError):  # the rest is not waited for
            connection.sendall(store.respond(asked))

    with ScriptedStore({"small": small, "large": large}, script) as store:
        fs = opened(store.endpoint)
        with fs.open("small", "rb") as file:
            assert file.read(10) == small[:10]
            file.seek(300_000)
            assert file.read() == small[300_000:]
        with fs.open_blob("large") as blob:  # several requests, each for a part of one buffer
            assert blob.read_all() == large


@pytest.mark.parametrize("framing", ["length", "chunked", "encoded"])
def test_two_versions_are_never_mixed(framing: str) -> None:
    """Whatever the store ignores: here it is If-Match."""
    old, new = random.Random(1).randbytes(300_000), random.Random(2).randbytes(300_000)

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        response = store.respond(asked)
        if framing == "chunked" and asked.method == "GET":
            head, _, body = response.partition(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
            chunks = b"%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(body), body)
            response = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + chunks
        elif framing == "encoded":
            response = response.replace(b"\r\nETag", b"\r\nContent-Encoding: gzip\r\nETag")
        connection.sendall(response)

    with ScriptedStore({"x": old}, script) as store:
        fs = opened(store.endpoint)
        blob = fs.open_blob("x")
        assert blob.pread(100_000, 100_000) == old[100_000:200_000]
        store.objects["x"] = new
        for read in (
            lambda: blob.pread(100_000, 100_000),
            blob.read_all,
            lambda: blob.pread_many([(9, 0), (9, 200_000)]),
        ):
            with pytest.raises(fsabs.StaleFileError):
                read()
        assert fs.read_bytes("x") == new
        assert not any("user-agent" in asked.headers for asked in store.requests)  # none by boto3


# ---- dead connections, statuses without a body


def test_connections_that_were_reset_cost_one_new_one() -> None:
    objects = contents(64)
    with ScriptedStore(objects) as store:
        fs = opened(store.endpoint, max_attempts=2)
        for read in (fs.read_bytes, fs.stat, fs.open, lambda key: list(fs.read_many([key, "k0002"]))):
            assert list(fs.read_many(objects, concurrency=32)) == list(objects.values())
            for connection in list(store.connected):  # as a NAT does that has forgotten them
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.shutdown(socket.SHUT_RDWR)
            before = store.connections
            read("k0001")
            assert store.connections <= before + 2


@pytest.mark.timeout(30)
@pytest.mark.parametrize("status", [403, 204, 100])
def test_a_response_without_a_length_is_not_waited_for(status: int) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.key:
            connection.sendall(b"HTTP/1.1 %d Reason\r\n\r\n" % status)
        else:
            listing = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
            connection.sendall(message(200, {"Content-Length": str(len(listing))}, listing))

    with ScriptedStore({"x": b"1"}, script) as store:
        fs = opened(store.endpoint, read_timeout=1 if status == 100 else 600, max_attempts=1)
        for read in (fs.read_bytes, lambda key: list(fs.read_many([key, key]))):
            with pytest.raises(OSError, match="x"):
                read("x")


def test_a_storm_of_refusals_is_waited_out_and_retry_after_is_heeded() -> None:
    objects, times = contents(20), list[float]()

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        times.append(time.monotonic())
        if times[-1] - times[0] < 1.5:
            connection.sendall(message(503, {"Content-Length": "0", "Retry-After": "1"}, b""))
        else:
            connection.sendall(store.respond(asked))

    with ScriptedStore(objects, script) as store:
        assert list(opened(store.endpoint).read_many(objects)) == list(objects.values())
        assert len(store.requests) < 20 + 20 * 6


def test_a_pause_of_the_caller_excuses_no_refusal() -> None:
    times: list[float] = []

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.key == "k0001":
            times.append(time.monotonic())
            if len(times) == 1:
                time.sleep(0.3)  # it comes in the pause
                connection.sendall(message(503, {"Content-Length": "0", "Retry-After": "1"}, b""))
                return
        connection.sendall(store.respond(asked))

    with ScriptedStore(contents(2), script) as store:
        fs = opened(store.endpoint)
        with contextlib.closing(send_many(fs.http, map(fs.dialect.read, ["k0000", "k0001"]), 2)) as outcomes:
            next(outcomes)
            time.sleep(PAUSE + 0.2)
            next(outcomes)
            resumed = times[0] + PAUSE + 0.2
        assert len(times) == 2
        assert times[1] - resumed > 0.7, "the store had asked for a second"


def test_what_goes_wrong_with_the_next_request_is_raised() -> None:
    with ScriptedStore(contents(3)) as store:
        fs = opened(store.endpoint)

        def requests() -> Iterator[Request]:
            yield from map(fs.dialect.read, ["k0000", "k0001"])
            raise PermissionError(13, "no more")

        with pytest.raises(PermissionError, match="no more"):
            list(send_many(fs.http, requests(), 1))
        assert len(store.requests) == 2
        assert fs.read_bytes("k0002") == store.objects["k0002"]


@pytest.mark.parametrize("more", ["close", "bytes"])
def test_a_stream_keeps_no_connection_that_can_not_be_used_again(more: str) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        head, end, body = store.respond(asked).partition(b"\r\n\r\n")
        if len(body) > 8 * MIB:  # what is left of the object, and no piece
            head, body = (head + b"\r\nConnection: close", body) if more == "close" else (head, body + b"HTTP/1.1")
        connection.sendall(head + end + body)

    with ScriptedStore({"k": os.urandom(12 * MIB)}, script) as store:
        fs = opened(store.endpoint)
        with fs.open("k", "rb") as file:
            assert b"".join(iter(lambda: file.read(MIB), b"")) == store.objects["k"]
        connections = store.connections
        assert fs.stat("k").size == 12 * MIB
        assert store.connections == connections + 1


def test_the_configured_number_of_attempts_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(503, {"Content-Length": "0"}, b""))

    with ScriptedStore({}, script) as store:
        with pytest.raises(OSError, match="503") as refused:
            opened(store.endpoint).read_bytes("x")
        assert len(store.requests) == 3
        assert (refused.value.errno, refused.value.filename) == (errno.EBUSY, "s3://bucket/x")


# ---- memory and resources


def _wait_for(condition: Callable[[], bool]) -> None:
    """Wait until what a server's threads are about to do is done."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_a_batch_that_is_left_half_read_and_the_last_fs_close_their_connections() -> None:
    objects = contents(100)
    with ScriptedStore(objects) as store:
        before = len(os.listdir("/proc/self/fd"))
        first, second = opened(store.endpoint), opened(store.endpoint)
        batch: Any = first.read_many(objects)
        assert next(batch) == objects["k0000"]
        batch.close()
        _wait_for(lambda: len(store.connected) <= 4)  # of 32 that were in use
        assert list(second.read_many(objects)) == list(objects.values())
        del first, batch
        assert second.read_bytes("k0001") == objects["k0001"]
        del second
        _wait_for(lambda: not store.connected)
        assert len(os.listdir("/proc/self/fd")) <= before + 2


FORKING = """
import os, sys, threading, time, fsabs
keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "us-east-1"}
fs = fsabs.from_url("s3://bucket", endpoint=sys.argv[1], **keys)
threading.Thread(target=lambda: [fs.read_bytes("x") for _ in range(3)], daemon=True).start()
time.sleep(float(sys.argv[2]))
pid = os.fork()
if pid == 0:
    os._exit(0 if fs.read_bytes("x") == b"1" and list(fs.read_many(["x", "x"])) == [b"1", b"1"] else 1)
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        sys.exit(status != 0)
    time.sleep(0.01)
os.kill(pid, 9)
sys.exit(9)
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_fork_in_the_middle_of_a_first_read() -> None:
    chance = random.Random(soak.seed(3))
    with ScriptedStore({"x": b"1"}) as store:
        environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
        for _ in range(soak.rounds(4)):
            delay = f"{chance.random() * 0.2:.4f}"
            command = [sys.executable, "-c", FORKING, store.endpoint, delay]
            done = subprocess.run(command, env=environment, timeout=60)
            assert done.returncode == 0, delay
            soak.count("forks in the middle of a first read", 1)


def test_missing_certificates_are_no_missing_object() -> None:
    with pytest.raises(OSError, match="nothing") as found:
        opened("https://127.0.0.1:9", verify="/nothing.pem").read_bytes("x")
    assert not isinstance(found.value, FileNotFoundError)


# ---- the parser


NO_RESPONSES = (
    *(f"HTTP/1.1 200 OK\r\nContent-Length: {size}" for size in ("-1", "1, 2", "1\r\nContent-Length: 2", "9" * 20)),
    *(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}" for coding in ("gzip", "gzip, chunked")),
    *("HTTP/1.1 101 Switching", "HTTP/2 200", "HTTP/1.1 20x OK", "HTTP/1.1 2000", "nonsense", ""),
)


@pytest.mark.quick
def test_what_is_no_response_is_refused() -> None:
    for head in NO_RESPONSES:
        with pytest.raises(ProtocolError):
            parse_head(head.encode(), "GET")


FRAMED = (
    ("HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:  12\r\nConnection: keep-alive", (Framing.FIXED, 12, True)),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1", (Framing.FIXED, 1, True)),
    ("HTTP/1.1 206 OK\r\nConnection: Close\r\nContent-Length: 0", (Framing.FIXED, 0, False)),
    ("HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 1", (Framing.FIXED, 1, False)),
    ("HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close\r\nContent-Length: 1", (Framing.FIXED, 1, False)),
    ("HTTP/1.0 200 OK\r\nContent-Length: 1", (Framing.FIXED, 1, False)),
    ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1", (Framing.FIXED, 1, True)),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", (Framing.CHUNKED, 0, True)),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9", (Framing.CHUNKED, 0, False)),
    ("HTTP/1.1 200 OK", (Framing.UNTIL_CLOSE, 0, False)),
    ("HTTP/1.1 204 OK\r\nContent-Length: 9", (Framing.FIXED, 0, True)),
    ("HTTP/1.1 304 OK\r\nTransfer-Encoding: chunked", (Framing.FIXED, 0, True)),
)


@pytest.mark.quick
def test_how_a_body_is_framed() -> None:
    for head, framing in FRAMED:
        found = parse_head(head.encode(), "GET")
        assert (found.framing, found.length, found.reusable) == framing, head
    found = parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 9", "HEAD")
    assert (found.framing, found.length, found.reusable) == (Framing.FIXED, 0, True)


@pytest.mark.quick
def test_chunks_in_pieces_of_any_size() -> None:
    body = b"5;name=value\r\nhello\r\n1\r\n \r\nA\r\nworld12345\r\n0\r\nX: y\r\nZ: 1\r\n\r\n"
    for step in range(1, len(body) + 1):
        parser, found = BodyParser(Framing.CHUNKED), b""
        for start in range(0, len(body), step):
            assert not parser.ended
            found += b"".join(parser.feed(body[start : start + step]))
        assert (found, parser.ended, parser.excess) == (b"hello world12345", True, False)
    parser = BodyParser(Framing.CHUNKED)
    parser.feed(body + b"HTTP/1.1")
    assert parser.excess
    for wrong in (b"\r\n", b"-1\r\n", b"0x5\r\n", b"5\r\nhello!\r\n", b"5" * 2000, b"0\r\n" + b"x" * 70_000):
        with pytest.raises(ProtocolError):
            BodyParser(Framing.CHUNKED).feed(wrong)
    with pytest.raises(ProtocolError):
        BodyParser(Framing.CHUNKED).feed(b"")


@pytest.mark.quick
def test_small_chunks_take_a_time_in_proportion() -> None:
    begin = time.process_time()
    parser = BodyParser(Framing.CHUNKED)
    assert len(parser.feed(200_000 * b"1\r\nx\r\n")) == 200_000
    assert time.process_time() - begin < 5


RANGE = b'HTTP/1.1 206 P\r\nContent-Length: 10\r\nETag: "v"\r\nContent-Range: bytes 5-14/100'


@pytest.mark.quick
def test_a_response_is_held_to_its_request() -> None:
    check = functools.partial(expected_body, S3Dialect("bucket", {}))

    def request(size: int, offset: int, version: str | None = None, total: int | None = None) -> Request:
        return Request("GET", "k", range=(size, offset), version=version, size=total)

    head = parse_head(RANGE, "GET")
    assert check(request(10, 5, "v", 100), head)[1] == 10
    assert check(request(10, 5), head)[1] == 10
    assert check(request(99, 5), parse_head(RANGE.replace(b"/100", b"/15"), "GET"))[1] == 10
    wrong = (request(9, 5), request(10, 6), request(10, 5, "v", 99), request(11, 5, "v", 100), Request("GET", "k"))
    for other in wrong:
        with pytest.raises(Mismatch):
            check(other, head)
    with pytest.raises(fsabs.StaleFileError):
        check(request(10, 5, "w", 100), head)
    with pytest.raises(Mismatch):
        check(request(10, 5, "v", 100), parse_head(RANGE.replace(b'ETag: "v"', b"X: 1"), "GET"))
