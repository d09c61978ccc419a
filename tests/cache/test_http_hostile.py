"""HTTP caches in front of a server that does everything wrong: right bytes, and no wait beyond one timeout."""

from __future__ import annotations

import contextlib
import functools
import gzip
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest

from fsabs import Memory
from fsabs.cache import HTTPCache, HTTPCachedFS
from tests.cache.web import Reply, Request, serving

TIMEOUT, READS = 0.6, 100
CONTENT = b"the right content, " * 400
Mode = Callable[[socket.socket, bytes], None]


def _response(body: bytes, *lines: str, status: str = "200 OK", length: int | None = None) -> bytes:
    announced = len(body) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {announced}", *lines])
    return head.encode() + b"\r\n\r\n" + body


def _dripping(start: int) -> Mode:
    def send(connection: socket.socket, right: bytes) -> None:
        whole = _response(right)
        connection.sendall(whole[:start])
        for at in range(start, len(whole)):
            time.sleep(0.05)
            connection.sendall(whole[at : at + 1])

    return send


def _endless(head: bytes, piece: bytes) -> Mode:
    def send(connection: socket.socket, right: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return send


def _whole(make: Callable[[bytes], bytes]) -> Mode:
    return lambda connection, right: connection.sendall(make(right))


MODES: dict[str, Mode] = {
    "an HTML page": _whole(lambda right: _response(b"<html>Log in</html>")),
    "a flipped bit": _whole(lambda right: _response(right[:-9] + bytes([right[-9] ^ 4]) + right[-8:])),
    "cut off": lambda connection, right: connection.sendall(_response(right[:-7], length=len(right))),
    "no content": _whole(lambda right: b"HTTP/1.1 204 No Content\r\n\r\n"),
    "gzip": _whole(lambda right: _response(gzip.compress(right), "Content-Encoding: gzip")),
    "partial": _whole(lambda right: _response(right[10:], status="206 Partial Content")),
    "an endless body": _endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "endless chunks": _endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n%b\r\n" % (b"x" * 65536)
    ),
    "endless headers": _endless(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 50),
    "a dripping head": _dripping(5),
    "a dripping body": _dripping(300),
    "silence": lambda connection, right: time.sleep(5 * TIMEOUT),
    "no HTTP": _whole(lambda right: b"SSH-2.0-OpenSSH_9.2\r\n"),
    "a redirect in a circle": _whole(lambda right: _response(b"", "Location: /", status="302 Found")),
}


@contextlib.contextmanager
def hostile(mode: Mode, right: dict[str, bytes]) -> Iterator[str]:
    """The URL of a server that answers GETs by `mode`, and takes PUTs."""
    listening = socket.create_server(("127.0.0.1", 0))
    open_now: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := connection.recv(65536)):
                    return
                head += data
            if head.startswith(b"PUT"):
                connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                mode(connection, right[head.split()[1].decode()])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                open_now.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which a close alone leaves waiting
        listening.close()
        for connection in open_now:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _items_put(use: Callable[[str], object]) -> dict[str, bytes]:
    """What a cache puts, by path."""
    found: dict[str, bytes] = {}

    def answer(request: Request) -> Reply:
        if request.method == "PUT":
            found[request.path] = request.body
        return Reply(404 if request.method == "GET" else 201)

    with serving(answer) as web:
        use(web.url)
    return found


@pytest.fixture(scope="module")
def store() -> Memory:
    memory = Memory()
    for number in range(READS):
        memory.write_bytes(f"{number}", CONTENT)
    return memory


def read_files(store: Memory, url: str) -> list[bytes]:
    fs = HTTPCachedFS(url, store, timeout=TIMEOUT)
    return [fs.read_bytes(f"{number}") for number in range(READS)]


def read_items(store: Memory, url: str) -> list[bytes]:
    cache = HTTPCache(READS, url, timeout=TIMEOUT)
    return [cache.get_and_cache(number, lambda i: CONTENT) for number in range(READS)]


WAYS = (read_files, read_items)


@pytest.fixture(scope="module")
def right(store: Memory) -> dict[str, bytes]:
    """What a right server has."""
    found: dict[str, bytes] = {}
    for read in WAYS:
        found |= _items_put(functools.partial(read, store))
    assert len(found) == 2 * READS
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", MODES)
def test_a_hostile_server_is_a_miss_within_one_timeout(store: Memory, right: dict[str, bytes], mode: str) -> None:
    with hostile(MODES[mode], right) as url, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for read in WAYS:
            begin = time.monotonic()
            assert read(store, url) == [CONTENT] * READS
            assert time.monotonic() - begin < 10 * TIMEOUT, "100 timeouts and more, if each read waited"
