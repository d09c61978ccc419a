"""HTTP caches in front of a server that does everything wrong: right bytes, and no wait beyond one timeout."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest

from fsabs import Memory
from fsabs.cache import HTTPCache, HTTPCachedFS

from .web import Reply, Request, serving

TIMEOUT = 0.6
CONTENT = b"the right content, " * 400
Mode = Callable[[socket.socket, bytes], None]


def _response(body: bytes, *lines: str, status: str = "200 OK", length: int | None = None) -> bytes:
    announced = len(body) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {announced}", *lines])
    return head.encode() + b"\r\n\r\n" + body


def _dripping(data: bytes, start: int) -> Mode:
    def send(connection: socket.socket, right: bytes) -> None:
        whole = data or _response(right)
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


def _silent(connection: socket.socket, right: bytes) -> None:
    time.sleep(5 * TIMEOUT)


MODES: dict[str, Mode] = {
    "an HTML page": _whole(lambda right: _response(b"<html>Log in</html>")),
    "an HTML page of the length": _whole(lambda right: _response(b"<html>".ljust(len(right)))),
    "a flipped bit": _whole(lambda right: _response(right[:-9] + bytes([right[-9] ^ 4]) + right[-8:])),
    "short": _whole(lambda right: _response(right[:-7])),
    "cut off": lambda connection, right: connection.sendall(_response(right[:-7], length=len(right))),
    "long": _whole(lambda right: _response(right + b"x")),
    "empty": _whole(lambda right: _response(b"")),
    "no content": _whole(lambda right: b"HTTP/1.1 204 No Content\r\n\r\n"),
    "gzip": _whole(lambda right: _response(gzip.compress(right), "Content-Encoding: gzip")),
    "zeros": _whole(lambda right: _response(bytes(len(right)))),
    "partial": _whole(lambda right: _response(right[10:], status="206 Partial Content")),
    "an endless body": _endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "endless chunks": _endless(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n%b\r\n" % (b"x" * 65536)
    ),
    "endless headers": _endless(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 50),
    "a dripping head": _dripping(b"", 5),
    "a dripping body": _dripping(b"", 300),
    "silence": _silent,
    "no HTTP": _whole(lambda right: b"SSH-2.0-OpenSSH_9.2\r\n"),
    "a redirect in a circle": _whole(lambda right: _response(b"", "Location: /", status="302 Found")),
}  # fmt: skip


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("mode", MODES)
def test_a_hostile_server_is_a_miss_within_one_timeout(mode: str) -> None:
    store = Memory()
    for number in range(20):
        store.write_bytes(f"{number}", CONTENT)

    def read_files(url: str, count: int = 20) -> list[bytes]:
        fs = HTTPCachedFS(url, store, timeout=TIMEOUT)
        return [fs.read_bytes(f"{number}") for number in range(count)]

    def read_items(url: str) -> list[bytes]:
        cache = HTTPCache(20, url, timeout=TIMEOUT)
        return [cache.get_and_cache(number, lambda i: CONTENT) for number in range(20)]

    right = _items_put(read_files) | _items_put(read_items)
    assert len(right) == 40
    with hostile(MODES[mode], right) as url, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for read in (read_files, read_items):
            begin = time.monotonic()
            assert read(url) == [CONTENT] * 20
            assert time.monotonic() - begin < 15 * TIMEOUT, "20 timeouts and more, if each read waited"


def test_a_right_server_is_a_hit() -> None:
    """The server of the test above, where nothing is wrong."""
    store = Memory()
    store.write_bytes("0", CONTENT)
    right = _items_put(lambda url: HTTPCachedFS(url, store).read_bytes("0"))
    inner = Memory("a store that is not asked")
    inner.write_bytes("0", CONTENT)
    with hostile(_whole(_response), right) as url:
        cached = HTTPCachedFS(url, store)
        blob = store.open_blob("0")
        assert cached.read_bytes("0") == CONTENT
        assert blob.identity is not None
        assert cached._connector.get_framed(blob.identity.digest(), blob.identity.encode()) == CONTENT
