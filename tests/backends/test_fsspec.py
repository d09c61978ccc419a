"""Schemes through fsspec: real web servers and directories, and an FS of the same interface that misbehaves."""

from __future__ import annotations

import http.server
import io
import os
import pickle
import re
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.fsspec import PARTIAL_SUFFIX, Fsspec, _translated
from tests import scarce

pytestmark = pytest.mark.quick

BODY = bytes(range(256)) * 400


def zipped(name: str, data: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(name, data)
    return target.getvalue()


FILES = {"/d/a%20b.bin": BODY, "/d/x.zip": zipped("in/side.bin", BODY), "/d/q?token=1": b"asked"}


class Ranges(http.server.BaseHTTPRequestHandler):
    """A web server that knows ranges; `/norange` in front of a path has it send everything."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        plain = self.path.removeprefix("/norange")
        if plain == "/secret":
            return self._send(403, b"", body)
        data = FILES.get(plain)
        if data is None:
            return self._send(404, b"", body)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and plain == self.path:
            return self._send(206, data[int(asked[1]) : int(asked[2]) + 1], body)
        return self._send(200, data, body)

    def _send(self, status: int, data: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            type(self).sent += len(data)
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("way", ["", "/norange"])
def test_files_of_a_web_server(web: str, way: str) -> None:
    fs = fsabs.from_url(f"{web}{way}/d", fsspec=True)
    assert fs.read_bytes("a%20b.bin") == BODY
    with fs.open("a%20b.bin", "rb") as file:
        file.seek(1000)
        assert file.read(10) == BODY[1000:1010]
    assert fs.exists("a%20b.bin")
    assert not fs.exists("nothing")
    with fsabs.open_url(f"{web}{way}/d/q?token=1", "rb", fsspec=True) as file:
        assert file.read() == b"asked"


def test_a_member_of_a_zip_on_a_web_server(web: str) -> None:
    fs = fsabs.from_url(f"{web}/d/x.zip/in", fsspec=True)
    assert list(fs.list()) == ["side.bin"]
    assert fs.read_bytes("side.bin") == BODY
    assert fs.url("side.bin") == f"{web}/d/x.zip/in/side.bin"


def test_after_a_fork_and_a_pickle(web: str) -> None:
    fs = fsabs.from_url(f"{web}/d", fsspec=True)
    file = fs.open("a%20b.bin", "rb")
    assert file.read(5) == BODY[:5]
    pid = os.fork()
    if pid == 0:
        good = file.read(5) == BODY[5:10] and fs.read_bytes("a%20b.bin") == BODY
        os._exit(0 if good else 1)
    assert file.read(5) == BODY[5:10]
    assert os.waitpid(pid, 0)[1] == 0
    assert pickle.loads(pickle.dumps(file)).read(5) == BODY[10:15]


def test_errors_are_pythons_own(web: str) -> None:
    fs = fsabs.from_url(f"{web}/", fsspec=True)
    with pytest.raises(FileNotFoundError) as caught:
        fs.read_bytes("none")
    assert caught.value.filename == f"{web}/none"
    with pytest.raises(PermissionError):
        fs.open("secret")
    for change in (lambda: fs.write_bytes("x", b""), lambda: fs.remove("x"), lambda: fs.mkdir("x")):
        with pytest.raises(io.UnsupportedOperation):
            change()


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConnectionError):
        fsabs.from_url("http://127.0.0.1:9/d", fsspec=True).read_bytes("x")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (NotImplementedError("no"), OSError),
        (TimeoutError("slow"), TimeoutError),
        (KeyError("odd"), OSError),
        (PermissionError(13, "no"), PermissionError),
    ],
)
def test_whatever_an_implementation_raises(raised: Exception, kind: type[OSError]) -> None:
    with pytest.raises(kind) as caught, _translated():
        raise raised
    assert isinstance(caught.value, OSError)


def test_what_comes_into_a_directory_while_it_is_renamed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = Fsspec("memory", path="/renamed")
    for name in ("d/x", "d/deep/y"):
        fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.write_bytes(name, b"1")
    copy = fs.implementation.cp_file

    def meanwhile(source: str, target: str, **options: Any) -> None:
        copy(source, target, **options)
        fs.implementation.pipe_file("/renamed/d/late", b"2")

    monkeypatch.setattr(fs.implementation, "cp_file", meanwhile)
    fs.rename("d", "e")
    assert list(fs.list("", recursive=True)) == ["d/", "d/late", "e/", "e/deep/", "e/deep/y", "e/x"]


def test_real_directories_get_a_renamed_file(tmp_path: Path) -> None:
    fs = Fsspec("local", "", str(tmp_path))
    fs.mkdir("d")
    with pytest.raises(FileNotFoundError):
        fs.write_bytes("no/parent", b"")
    seen: list[list[str]] = []
    moved = fs.implementation.mv

    def watch(*arguments: Any, **options: Any) -> None:
        seen.append(os.listdir(tmp_path / "d"))
        assert list(fs.list("d")) == []
        moved(*arguments, **options)

    fs.implementation.mv = watch
    fs.write_bytes("d/x", b"whole")
    assert [name.endswith(PARTIAL_SUFFIX) for (name,) in seen] == [True]
    assert os.listdir(tmp_path / "d") == ["x"]
    with pytest.raises(ZeroDivisionError), fs.open("d/y", "wb") as file:
        file.write(b"1")
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "d") == ["x"]


def test_a_scheme_that_lacks_its_package_says_so() -> None:
    with pytest.raises(ImportError, match="dropbox"):
        fsabs.from_url("dropbox://x/y").read_bytes("z")


def test_passwords_are_not_shown() -> None:
    fs = Fsspec("sftp", "me:secret@host", "/data")
    assert "secret" not in repr(fs) + fs.url("x")


def test_no_secret_of_a_url_is_shown() -> None:
    fs = fsabs.from_url("http://user:pass@word@127.0.0.1:1/d?token=hunter2", fsspec=True)
    for shown in (repr(fs), fs.url(), str(fs.info())):
        assert "hunter2" not in shown
        assert "word" not in shown
    for ask in (fs.read_bytes, fs.exists, fs.open):
        with pytest.raises(OSError) as caught:
            ask("x?sig=hunter3")
        told = ""
        at: BaseException | None = caught.value
        while at is not None:
            told += f"{at} {getattr(at, 'filename', '')}"
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
        assert not re.search("hunter|word", told), told


@pytest.mark.parametrize("path", ["%2e%2e/x", ".%2E/x", "../x", "..?q", "a/../..#f", "a/%2e%2e/%2E%2e?q=1"])
def test_no_url_leads_out_of_a_directory_of_a_web_server(path: str) -> None:
    fs = fsabs.from_url("http://127.0.0.1:9/d/e", fsspec=True)
    with pytest.raises(PermissionError):
        fs.read_bytes(path)
    assert fs.url("%2e/a%2e/..b?page=../..") == "http://127.0.0.1:9/d/e/a%2e/..b?page=../.."


def test_a_full_temporary_directory_is_an_error_with_the_url() -> None:
    fs = Fsspec("memory", path="/full")
    fs.makedirs("", exist_ok=True)
    fs.write_bytes("old", b"1")
    with scarce.file_size(50), pytest.raises(OSError, match="too large") as caught, fs.open("old", "wb") as file:
        file.write(bytes(100))
    assert caught.value.filename == fs.url("old")
    assert fs.read_bytes("old") == b"1"
