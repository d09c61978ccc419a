"""Forward proxies: a tunnel to a store with TLS, the absolute form of a URL to one without."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

import fsabs
from tests.backends.s3_clients import opened
from tests.servers.scripted import ScriptedStore

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_settings")]


class Tunnels:
    """A proxy that opens tunnels to `port` on this host for who has a password, and notes what it was asked."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:p%40ss@127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[str] = []
        self.away = 0
        """How many tunnels are refused, because the store can't be reached."""
        self._open: list[socket.socket] = [self._socket]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._socket.accept()[0]
            except OSError:
                return
            self._open.append(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += near.recv(4096)
        self.heads.append(head.decode())
        if base64.b64encode(b"user:p@ss") not in head:
            near.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            near.close()
            return
        if self.away > 0:
            self.away -= 1
            near.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            near.close()
            return
        far = socket.create_connection(("127.0.0.1", self._port))
        self._open.append(far)
        near.sendall(b"HTTP/1.1 200 Connection")
        near.sendall(b" established\r\n\r\n")
        threading.Thread(target=_forward, args=(far, near), daemon=True).start()
        _forward(near, far)

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for it, as a close alone does not
            one.close()


def _forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass


@pytest.fixture
def store(pem: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedStore]:
    monkeypatch.setenv("AWS_CA_BUNDLE", f"{pem}.crt")
    with ScriptedStore({f"k{number}": b"content" for number in range(20)}, certificate=pem) as made:
        yield made


@pytest.fixture
def tunnels(store: ScriptedStore) -> Iterator[Tunnels]:
    made = Tunnels(store.port)
    yield made
    made.close()


def test_a_store_with_tls_is_reached_through_a_tunnel(store: ScriptedStore, tunnels: Tunnels) -> None:
    fs = opened(store.endpoint, proxies={"https": tunnels.url})
    assert fs.read_bytes("k0") == b"content"
    assert list(fs.read_many([f"k{number}" for number in range(20)], concurrency=4)) == [b"content"] * 20
    assert store.connections == len(tunnels.heads) <= 5
    assert all(head.startswith(f"CONNECT 127.0.0.1:{store.port} HTTP/1.1\r\n") for head in tunnels.heads)
    assert "p%40ss" not in repr(fs.http.endpoint)
    assert "p@ss" not in repr(fs.http.endpoint)


def test_a_proxy_that_opens_no_tunnel_is_named(store: ScriptedStore, tunnels: Tunnels) -> None:
    fs = opened(store.endpoint, proxies={"https": tunnels.url.replace("p%40ss", "wrong")})
    for read in (lambda: fs.read_bytes("k0"), lambda: list(fs.read_many(["k0", "k1"]))):
        with pytest.raises(PermissionError, match="407"):
            read()
    assert not store.requests


@pytest.mark.parametrize("many", [False, True])
def test_a_tunnel_that_a_proxy_can_not_open_now_is_asked_for_again(
    store: ScriptedStore, tunnels: Tunnels, many: bool
) -> None:
    fs = opened(store.endpoint, proxies={"https": tunnels.url}, max_attempts=3)
    tunnels.away = 2
    assert (next(fs.read_many(["k0", "k1"])) if many else fs.read_bytes("k0")) == b"content"
    tunnels.away = 100
    other = opened(store.endpoint, proxies={"https": tunnels.url}, max_attempts=2, prefix="x")
    with pytest.raises(ConnectionAbortedError, match="503"):
        other.read_bytes("k0")


@pytest.mark.parametrize("scheme", ["https", "socks5"])
def test_a_proxy_that_is_not_asked_by_plain_http_gets_no_password(tunnels: Tunnels, scheme: str) -> None:
    proxy = tunnels.url.replace("http:", f"{scheme}:")
    fs = fsabs.from_url("https://store.example/x", proxies={"https": proxy}, max_attempts=1)
    with pytest.raises(ValueError, match="a proxy is http://") as caught:
        fs.read_bytes("k0")
    assert not tunnels.heads
    assert "p%40ss" not in str(caught.value)


def test_the_url_of_a_proxy_may_lack_its_scheme(
    store: ScriptedStore, tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch, pem: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", tunnels.url.partition("//")[2])
    fs = fsabs.from_url(f"{store.endpoint}/bucket", verify=f"{pem}.crt", max_attempts=1)
    assert fs.read_bytes("k0") == b"content"
    assert len(tunnels.heads) == 1
