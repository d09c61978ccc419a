"""Connections: all addresses of a host are tried, and a socket that is being opened belongs to nobody else."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import fsabs
from fsabs.backends.s3 import S3
from fsabs.cache.http import HTTPConnector
from fsabs.core import identity
from tests.backends.s3_clients import opened
from tests.servers.azure_store import ACCOUNT, KEY, AzureStore
from tests.servers.hostile_store import HostileStore
from tests.servers.network import Blackhole, Refused
from tests.servers.scripted import ScriptedStore

READS: dict[str, Callable[[S3], Any]] = {
    "one": lambda fs: fs.read_bytes("k0"),
    "many": lambda fs: list(fs.read_many(["k0", "k1", "k2"])),
}
_numbers = itertools.count(1)
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_settings")]


@pytest.fixture
def store() -> Iterator[ScriptedStore]:
    with ScriptedStore({f"k{n}": b"%d" % n for n in range(3)}) as made:
        yield made


def known_as(monkeypatch: pytest.MonkeyPatch, *ports: int, connect_timeout: float = 3) -> S3:
    """Open a bucket at a name whose addresses are these ports of this host."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **more: found)
    host = f"store{next(_numbers)}.example"  # what is known of one counts for the next FS, too
    return opened(f"http://{host}", connect_timeout=connect_timeout, max_attempts=1)


@pytest.mark.parametrize("read", READS)
def test_an_address_that_does_not_answer_costs_a_moment(
    read: str, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not tried first again."""
    with Blackhole(connects=False) as hole:
        fs = known_as(monkeypatch, hole.port, store.port, connect_timeout=600)
        assert READS[read](fs)
    with Blackhole(connects=True, port=hole.port):  # whose connections would be taken, and have no response
        assert list(fs.read_many(["k0"] * 50, concurrency=10)) == [b"0"] * 50


def sockets() -> set[str]:
    """The sockets of this process."""
    links = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.add(os.readlink(f"/proc/self/fd/{number}"))
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.parametrize("read", READS)
def test_an_address_that_refuses_is_followed_by_the_next(
    read: str, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Refused() as first, Refused() as second:
        fs = known_as(monkeypatch, first.port, second.port, store.port)
        assert fs.http.endpoint.port == 80  # whose rate has a file
        before = sockets()
        assert READS[read](fs)
        assert len(sockets() - before) <= 3 + 3  # those to the store, and their other ends
        with pytest.raises(ConnectionRefusedError, match=r"endpoint http://store\d+.example"):
            READS[read](known_as(monkeypatch, first.port, second.port))


@pytest.mark.parametrize("read", READS)
def test_a_host_that_does_not_answer_is_given_up(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Blackhole(connects=False) as hole:
        fs = known_as(monkeypatch, hole.port, connect_timeout=0.5)
        assert fs.http.endpoint.port == 80  # whose rate has a file
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(TimeoutError, match="no connection within the time limit"):
            READS[read](fs)
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_name_without_an_address_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    fs = known_as(monkeypatch)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for read in READS.values():
        with pytest.raises(ConnectionError, match=r"store\d+.example") as caught:
            read(fs)
        assert caught.value.errno == errno.EHOSTUNREACH


def read_s3(pem: str) -> None:
    with HostileStore(pem) as store:
        opened(store.endpoint.replace("127.0.0.1", "localhost"), verify=False, max_attempts=1).read_bytes("1-k")


def read_azure(pem: str) -> None:
    with AzureStore() as store:
        fs = fsabs.from_url("az://bucket", endpoint=store.endpoint, account_name=ACCOUNT, account_key=KEY)
        fs.read_bytes("1-k")


def read_cache(pem: str) -> None:
    os.environ["REQUESTS_CA_BUNDLE"] = f"{pem}.crt"
    with HostileStore(pem) as store:
        assert HTTPConnector(f"{store.endpoint}/bucket").get("1-k") is not None


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        *((read_s3, call) for call in ("set_default_verify_paths", "getaddrinfo", "do_handshake", "write", "read")),
        (read_s3, "hmac_digest"),
        (read_azure, "hmac_digest"),
        *((read_cache, call) for call in ("load_verify_locations", "do_handshake", "write", "read")),
        (lambda pem: identity.digest_of_secret(b"secret"), "scrypt"),
    ],
)
def test_no_call_that_holds_locks_of_a_library_is_under_way_at_a_fork(
    operation: Callable[[str], None], call: str, pem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child would wait for these locks for ever: OpenSSL's, and those of the system's resolver."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")  # so that what is set in it is undone
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    under_way, ended = threading.Event(), threading.Event()

    def profile(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ == call and not under_way.is_set():
            under_way.set()
            time.sleep(0.2)
            ended.set()

    def operate() -> None:
        sys.setprofile(profile)
        operation(pem)

    thread = threading.Thread(target=operate)
    thread.start()
    assert under_way.wait(20), f"{call} was not called"
    child = os.fork()
    if not child:
        os._exit(0 if ended.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join(20)
    assert not thread.is_alive()
