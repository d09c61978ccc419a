"""What a store has said, and what a client has found out by itself: neither is taken for the other."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fsabs
from tests.servers.scripted import Asked, ScriptedStore, message

pytestmark = [pytest.mark.quick, pytest.mark.timeout(60)]
KEYS: dict[str, Any] = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region": "us-east-1"}
Script = Callable[[ScriptedStore, Asked, socket.socket], None]


def opened(store: ScriptedStore, **options: Any) -> fsabs.FS:
    fs: fsabs.FS = fsabs.from_url("s3://bucket", endpoint=store.endpoint, **{**KEYS, "max_attempts": 2, **options})
    return fs


# ---- what a client needs itself


@pytest.mark.parametrize("scheme", ["https", "s3"])
def test_a_missing_client_certificate_is_no_missing_file(scheme: str) -> None:
    options: dict[str, Any] = {"client_certificate": ("no.pem", "no.key")}
    if scheme == "s3":
        options |= {**KEYS, "endpoint": "https://127.0.0.1:1"}
    fs = fsabs.from_url("s3://bucket" if scheme == "s3" else "https://127.0.0.1:1/d", **options)
    for ask in (fs.exists, fs.isfile, fs.stat, fs.read_bytes):
        with pytest.raises(OSError, match=r"no\.pem") as caught:
            ask("x")
        assert caught.value.errno == errno.EINVAL
        assert not isinstance(caught.value, FileNotFoundError)


class Locked(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that looks for its key when it is made."""

    protocol = "locked"

    def __init__(self, key: str, **options: Any) -> None:
        super().__init__(**options)
        Path(key).read_bytes()


def test_a_missing_file_of_credentials_is_no_missing_file(tmp_path: Path) -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    with pytest.raises(OSError, match=r"no\.key") as caught:
        fsabs.from_url("locked://d", key=str(tmp_path / "no.key")).exists("x")
    assert not isinstance(caught.value, FileNotFoundError)


def test_credentials_that_can_not_be_read_are_no_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that end are read again, perhaps from a file that is gone by then."""
    with ScriptedStore({"x": b"1"}) as store:
        fs: Any = opened(store)
        assert fs.exists("x")

        def authorise(*args: object) -> str:
            raise FileNotFoundError(errno.ENOENT, "No such file", "/var/run/token")

        monkeypatch.setattr(fs.http.access, "authorise", authorise)
        for ask in (fs.exists, fs.read_bytes, lambda name: list(fs.read_many([name, name]))):
            with pytest.raises(OSError, match="/var/run/token") as caught:
                ask("x")
            assert not isinstance(caught.value, FileNotFoundError)


# ---- what a store says


def test_an_impossible_region_is_the_stores_error_and_not_the_users() -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(301, {"Content-Length": "0", "x-amz-bucket-region": "no region!"}, b""))

    with ScriptedStore({}, script) as store, pytest.raises(OSError, match="301") as caught:
        opened(store).read_bytes("x")
    assert caught.value.errno == errno.EREMCHG


@pytest.mark.parametrize("key", ["a&foo;b", "a&b", "&#x110000;", "&copy;"])
def test_a_reference_that_xml_does_not_have_is_no_name(key: str) -> None:
    with (
        ScriptedStore({}, _listing(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>")) as store,
        pytest.raises(fsabs.CorruptFileError, match="reference|character"),
    ):
        list(opened(store).list())


def test_the_references_of_xml_in_names() -> None:
    keys = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in ("&#x26;1", "&amp;lt;", "&#150;"))
    with ScriptedStore({}, _listing(keys)) as store:
        assert sorted(opened(store).list()) == sorted(["&1", "&lt;", "\x96"])


def _listing(entries: str) -> Script:
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(200, {"Content-Length": str(len(body))}, body))

    return script


@pytest.mark.parametrize(
    "name", ["new a.txt", "new \N{LATIN SMALL LETTER A WITH DIAERESIS}.txt", "b?c=\N{EURO SIGN} d"]
)
def test_a_redirect_whose_address_is_not_quoted(name: str) -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        if asked.key == "old":
            head = f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /bucket/{name}\r\n\r\n"
            connection.sendall(head.encode())
        else:
            query = "".join(f"?{key}={value}" for key, value in asked.query.items())
            connection.sendall(store.respond(asked._replace(key=asked.key + query)))

    with ScriptedStore({name: b"1"}, script) as store:
        assert fsabs.from_url(f"{store.endpoint}/bucket").read_bytes("old") == b"1"


def test_a_loop_of_redirects_is_not_a_bucket_elsewhere() -> None:
    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        connection.sendall(message(302, {"Content-Length": "0", "Location": "/bucket/x"}, b""))

    with ScriptedStore({}, script) as store, pytest.raises(OSError, match="redirect") as caught:
        fsabs.from_url(f"{store.endpoint}/bucket").read_bytes("x")
    assert "bucket is" not in str(caught.value)
