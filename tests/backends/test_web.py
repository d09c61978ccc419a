"""Files of web servers, by our own client and by fsspec's: real servers with the habits that there are."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.backends.fsspec import Fsspec
from fsabs.backends.web import Http, Https
from fsabs.cli.explain import facts_of
from fsabs.testing.children import Child
from tests.servers.web import BODY, WebServer

pytestmark = pytest.mark.quick


def zipped(name: str, data: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(name, data)
    return target.getvalue()


FILES = {
    "/d/a%20b.bin": BODY,
    "/d/small": b"small",
    "/d/empty": b"",
    "/d/x.zip": zipped("in/side.bin", BODY),
    "/d/x.tar.gz": b"\x1f\x8b not really",
    "/d/q?token=1": b"asked",
    "/d/q?name=2&b=%26": b"asked twice",
    "/%C3%BC": b"umlaut",
}


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer(FILES) as server:
        yield server


BY_BOTH = pytest.mark.parametrize("fsspec", [False, True], ids=["ours", "fsspec"])
HABITS = ("", "/norange", "/chunked", "/weak", "/dated", "/plain", "/nohead", "/gzip")


@pytest.mark.parametrize(("habit", "fsspec"), [*((one, False) for one in HABITS), ("", True), ("/norange", True)])
def test_files_of_any_server(web: WebServer, habit: str, fsspec: bool) -> None:
    fs = fsabs.from_url(f"{web.url}{habit}/d", fsspec=fsspec)
    for name in ("a%20b.bin", "small", "empty"):
        data = FILES[f"/d/{name}"]
        assert fs.read_bytes(name) == data
        assert list(fs.read_many([name, "small"])) == [data, b"small"]
        with fs.open(name, "rb") as file:
            assert file.seek(len(data) // 2) == len(data) // 2
            assert file.read(10) == data[len(data) // 2 :][:10]
            file.seek(0)
            assert file.read() == data
        with fs.open_blob(name) as blob:
            assert blob.pread_many([(5, 0), (7, 1000)]) == [data[:5], data[1000:1007]]
        assert fs.stat(name).size == len(data)
        assert fs.exists(name)
    assert not fs.exists("nothing")
    with pytest.raises(FileNotFoundError) as caught:
        fs.read_bytes("nothing")
    assert caught.value.filename == f"{web.url}{habit}/d/nothing"
    with fsabs.open_url(f"{web.url}{habit}/d/q?token=1", "rb", fsspec=fsspec) as file:
        assert file.read() == b"asked"


def test_what_is_asked_for(web: WebServer) -> None:
    fs = fsabs.from_url(f"{web.url}/d")
    with fs.open_blob("a%20b.bin") as blob:
        for offset in (0, 1000, 200_000, 300_000):
            assert blob.pread(50, offset) == BODY[offset : offset + 50]
    assert [method for method, _, _ in web.seen] == ["GET"] * 3  # the first bytes come as it is opened
    web.seen.clear()
    norange = fsabs.from_url(f"{web.url}/norange/d")
    web.sent = 0
    with norange.open_blob("a%20b.bin") as blob:
        for offset in range(0, 300_000, 10_000):
            assert blob.pread(50, offset) == BODY[offset : offset + 50]
    assert len(web.seen) == 2  # where there are no ranges, the whole is read once
    assert {headers["user-agent"] for _, _, headers in web.seen} == {"fsabs"}


def test_paths_are_sent_as_they_are_written(web: WebServer) -> None:
    """Also a query with slashes, behind a slash, and of the root."""
    for path in ("d/q?token=1", "d/q?name=2&b=%26", "%C3%BC", "q?url=https://host/../x", "dir/?x=1", "?x=a/b"):
        content = web.files.setdefault(f"/{path}", path.encode())
        with fsabs.open_url(f"{web.url}/{path}", "rb") as file:
            assert file.read() == content
        assert web.paths("GET")[-1] == f"/{path}"
    with fsabs.open_url(f"{web.url}/ü", "rb") as file:  # what no URL has is quoted
        assert file.read() == b"umlaut"
    fs = fsabs.from_url(f"{web.url}/")
    assert fs.read_bytes("d/q?token=1") == b"asked"
    assert fs.read_bytes("%C3%BC#part") == b"umlaut"


@BY_BOTH
def test_no_url_leads_out_of_a_directory(fsspec: bool) -> None:
    fs = fsabs.from_url("http://127.0.0.1:9/d/e", fsspec=fsspec)
    for path in ("%2e%2e/x", ".%2E/x", "../x", "..?q", "a/../..#f", "a/%2e%2e/%2E%2e?q=1"):
        with pytest.raises(PermissionError):
            fs.read_bytes(path)
    assert fs.url("%2e/a%2e/..b?page=../..") == "http://127.0.0.1:9/d/e/a%2e/..b?page=../.."


@pytest.mark.parametrize(("habit", "fsspec"), [("", False), ("/norange", False), ("", True)])
def test_members_of_archives(web: WebServer, habit: str, fsspec: bool) -> None:
    fs = fsabs.from_url(f"{web.url}{habit}/d/x.zip/in", fsspec=fsspec)
    assert list(fs.list()) == ["side.bin"]
    assert fs.read_bytes("side.bin") == BODY
    assert fs.url("side.bin") == f"{web.url}{habit}/d/x.zip/in/side.bin"


@BY_BOTH
def test_after_a_fork_and_a_pickle(web: WebServer, fsspec: bool) -> None:
    fs = fsabs.from_url(f"{web.url}/d", fsspec=fsspec)
    file = fs.open("a%20b.bin", "rb")
    assert file.read(5) == BODY[:5]
    assert Child("a child", lambda: (file.read(5), fs.read_bytes("small")), 20).result() == (BODY[5:10], b"small")
    assert file.read(5) == BODY[5:10]
    assert pickle.loads(pickle.dumps(file)).read(5) == BODY[10:15]
    assert pickle.loads(pickle.dumps(fs)).read_bytes("small") == b"small"


@pytest.mark.parametrize("habit", ["", "/weak", "/dated"])
def test_a_file_that_changes_while_it_is_read(web: WebServer, habit: str) -> None:
    fs = fsabs.from_url(f"{web.url}{habit}/d")
    with fs.open("a%20b.bin", "rb", 0) as file:
        assert file.read(10) == BODY[:10]
        web.files["/d/a%20b.bin"] = b"\xff" + BODY[1:]
        file.seek(200_000)
        with pytest.raises(fsabs.StaleFileError) as caught:
            file.read(10)
    assert caught.value.filename == f"{web.url}{habit}/d/a%20b.bin"


def test_versions(web: WebServer) -> None:
    habits = ("", "/weak", "/dated", "/plain")
    versions = [fsabs.from_url(f"{web.url}{habit}/d").stat("small").version for habit in habits]
    assert versions[0] is not None
    assert versions[1] == versions[0]  # a weak ETag, and a strong one
    assert str(versions[2]).endswith(" GMT")
    assert versions[3] is None


# ---- redirects


@pytest.mark.parametrize("how", ["moved", "found", "signed"])
def test_redirects(web: WebServer, how: str) -> None:
    with WebServer(FILES) as other:
        web.elsewhere = other.url
        fs = fsabs.from_url(f"{web.url}/{how}", headers={"x-secret": "s", "authorization": "Bearer t"})
        for _ in range(3):
            assert fs.read_bytes("d/small") == b"small"
            assert fs.stat("d/small").size == 5
            with fs.open("d/a%20b.bin", "rb") as file:
                assert file.read() == BODY
        kept = how != "found"
        assert len(web.seen) == 2 if kept else len(web.seen) > 9  # one for each file, or for each request
        assert all("authorization" in headers and "x-secret" in headers for _, _, headers in web.seen)
        assert not any("authorization" in headers or "x-secret" in headers for _, _, headers in other.seen)
        with pytest.raises(FileNotFoundError):
            fs.read_bytes("d/nothing")
        assert len([path for path in other.paths("GET") if path.startswith("/d/nothing")]) <= 2


def test_where_a_redirect_for_now_leads_is_not_kept(web: WebServer) -> None:
    """Although a permanent one follows it; and the fragment of a redirect is not asked for."""
    leads = {"/latest": (302, "/v1"), "/v1": (301, "/d/small#section"), "/v2": (301, "/d/a%20b.bin")}
    answer = web.answer

    def redirecting(handler: Any, path: str, headers: dict[str, str]) -> None:
        if path in leads:
            status, where = leads[path]
            return web.send(handler, status, b"", {"Location": where})
        return answer(handler, path, headers)

    web.answer = redirecting  # type: ignore[method-assign]
    fs = fsabs.from_url(web.url)
    assert fs.read_bytes("latest") == b"small"
    leads["/latest"] = (302, "/v2")
    assert fs.read_bytes("latest") == BODY


def test_an_address_that_has_come_to_its_end(web: WebServer) -> None:
    with WebServer(FILES) as other, WebServer(FILES) as third:
        web.elsewhere = other.url
        fs = fsabs.from_url(f"{web.url}/signed")
        assert fs.read_bytes("d/small") == b"small"
        other.files.clear()
        web.elsewhere = third.url
        assert fs.read_bytes("d/small") == b"small"
        assert len(third.seen) == 1


@pytest.mark.parametrize("how", ["moved", "found", "signed"])
def test_no_read_follows_a_redirect_from_tls_to_plain_http(web: WebServer, how: str, pem: str) -> None:
    with WebServer(FILES, pem) as secure:
        secure.elsewhere = web.url
        fs = fsabs.from_url(f"{secure.url}/{how}/d", verify=f"{pem}.crt")
        for read in 2 * (fs.read_bytes, fs.stat, fs.open, lambda name: list(fs.read_many([name, name]))):
            with pytest.raises(OSError):  # and no other read has an address that one of them has kept
                read("small")
        secure.elsewhere = secure.url
        assert fs.read_bytes("small") == b"small"
    assert not web.seen


# ---- who may read


def test_users(web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    url, host = f"{web.url}/auth/d", web.url.partition("//")[2]
    with pytest.raises(PermissionError, match="netrc") as caught:
        fsabs.from_url(url).read_bytes("small")
    assert caught.value.filename == f"{url}/small"
    for authority in ("me:secret", "me:s%65cret"):
        fs = fsabs.from_url(f"http://{authority}@{host}/auth/d")
        assert fs.read_bytes("small") == b"small"
        assert "secret" not in f"{fs!r} {fs.url()} {fs.info()} {list(facts_of(fs))} {fs.dialect.options!r}"  # type: ignore[attr-defined]
    assert fsabs.from_url(url, headers={"Authorization": "Basic bWU6c2VjcmV0"}).read_bytes("small") == b"small"
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert fsabs.from_url(url).read_bytes("small") == b"small"
    (tmp_path / ".netrc").write_text("machine elsewhere login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "other"))
    (tmp_path / "other").write_text("this is none\n")
    with pytest.raises(PermissionError):
        fsabs.from_url(url).read_bytes("small")


@BY_BOTH
def test_no_secret_of_a_url_is_shown(fsspec: bool) -> None:
    options: dict[str, Any] = {"fsspec": True} if fsspec else {"max_attempts": 1}
    fs = fsabs.from_url("http://user:pass@word@127.0.0.1:1/d?token=hunter2", **options)
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


# ---- errors


def test_a_body_of_unknown_length_has_the_time_that_its_bytes_take(web: WebServer) -> None:
    def slow(handler: Any, status: int, body: bytes, fields: dict[str, str], chunked: bool = False) -> None:
        handler.send_response(status)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for _ in range(6):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            time.sleep(0.2)
        handler.wfile.write(b"0\r\n\r\n")

    web.send = slow  # type: ignore[method-assign]
    fs = fsabs.from_url(f"{web.url}/d", read_timeout=1, max_attempts=1)
    assert fs.read_bytes("a%20b.bin") == BODY * 6
    assert list(fs.read_many(["a%20b.bin"] * 2)) == [BODY * 6] * 2


@BY_BOTH
def test_errors_are_pythons_own(web: WebServer, fsspec: bool) -> None:
    fs = fsabs.from_url(f"{web.url}/", fsspec=fsspec)
    for status, kind in ((404, FileNotFoundError), (403, PermissionError), (500, OSError)):
        with pytest.raises(kind) as caught:
            fs.read_bytes(f"status/{status}")
        assert caught.value.filename == f"{web.url}/status/{status}"
    for change in (lambda: fs.write_bytes("x", b""), lambda: fs.remove("x"), lambda: fs.mkdir("x")):
        with pytest.raises(io.UnsupportedOperation):
            change()
    with pytest.raises(ConnectionError, match="127.0.0.1:9"):
        fsabs.from_url("http://127.0.0.1:9/d", fsspec=fsspec).read_bytes("x")


def test_a_web_server_lists_nothing(web: WebServer) -> None:
    fs = fsabs.from_url(f"{web.url}/", max_attempts=1)
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("status/410")
    for listing in (lambda: fs.list(), lambda: fs.list("d", recursive=True), lambda: list(fs.glob("*"))):
        with pytest.raises(io.UnsupportedOperation, match="a web server lists nothing"):
            listing()


def test_content_in_encodings(web: WebServer) -> None:
    fs = fsabs.from_url(f"{web.url}/gzip/d", max_attempts=1)
    found = gzip.decompress(fs.read_bytes("x.tar.gz"))  # what is compressed by its name is not decompressed
    assert found == FILES["/d/x.tar.gz"]
    send, encoding = web.send, "br"

    def other(handler: Any, status: int, body: bytes, fields: dict[str, str], chunked: bool = False) -> None:
        body = body[:-5] if "cut" in handler.path else body
        send(handler, status, body, {**fields, "Content-Encoding": encoding}, chunked)

    web.send = other  # type: ignore[method-assign]
    web.files["/d/cut"] = BODY
    with pytest.raises(fsabs.CorruptFileError, match="encoding that was not asked for: br"):
        fs.read_bytes("small")
    encoding = "gzip"
    with pytest.raises(fsabs.CorruptFileError, match="gzip that is cut"):
        fs.read_bytes("cut")
    with pytest.raises(fsabs.CorruptFileError, match="no gzip"):
        fsabs.from_url(f"{web.url}/d").read_bytes("small")


def test_what_is_no_url_is_refused() -> None:
    hosts = ("http://", "https:///x", "http://h:port/x", "http://[::1/x", "https://h:99999/", "http://user@/x")
    good = "https://good.example"
    for url in (
        *hosts,
        f"{good}?@127.0.0.1/x",
        f"{good}#@127.0.0.1/x",
        f"{good}\\@127.0.0.1/x",
        "https://h?x=1",
        "https://h#x",
    ):
        with pytest.raises(ValueError, match="a URL of the web names a host|IPv6|Port"):
            fsabs.from_url(url)


def test_options(web: WebServer) -> None:
    assert isinstance(fsabs.from_url("https://127.0.0.1:1/x"), Https)
    assert isinstance(fsabs.from_url(web.url), Http)
    assert isinstance(fsabs.from_url(web.url, fsspec=True), Fsspec)
    with pytest.raises(TypeError, match="did you mean 'headers'"):
        fsabs.from_url(web.url, header={})
    for wrong in ({"a b": "x"}, {"Range": "bytes=0-1"}, {"x": "a\r\nb: c"}):
        with pytest.raises(ValueError, match="headers"):
            fsabs.from_url(web.url, headers=wrong)
    fs = fsabs.from_url(f"{web.url}/d", headers={"User-Agent": "mine", "X-Mine": "1"})
    fs.read_bytes("small")
    assert (web.seen[-1][2]["user-agent"], web.seen[-1][2]["x-mine"]) == ("mine", "1")
    from fsabs.adapters.fsspec import filesystem_class

    other = filesystem_class("http")(client_kwargs={"headers": {"x-mine": "2"}}, block_size=5)
    assert other.cat_file(f"fsabs+{web.url}/d/small") == b"small"
    assert web.seen[-1][2]["x-mine"] == "2"


def test_a_cache(web: WebServer, tmp_path: Path) -> None:
    url, folder = f"{web.url}/d", str(tmp_path / "cache")
    fs = fsabs.from_url(url, cache=folder)
    for _ in range(3):
        assert fs.read_bytes("small") == b"small"
        assert fs.read_bytes("a%20b.bin") == BODY
    assert len(web.paths("GET")) <= 3
    web.files["/d/small"] = b"other"
    assert fsabs.from_url(url, cache={"dir": folder, "check_interval": 0}).read_bytes("small") == b"other"


def layered(fs: fsabs.FS, kind: str, folder: Path) -> fsabs.FS:
    if kind == "cache":
        return fsabs.CachedFS(fs, str(folder))
    return fsabs.lazify(lambda: fs) if kind == "lazy" else fsabs.HTTPCachedFS("http://127.0.0.1:1/", fs)


@pytest.mark.parametrize("kind", ["cache", "lazy", "http_cache"])
def test_paths_below_a_layer_are_those_of_the_server(web: WebServer, kind: str, tmp_path: Path) -> None:
    web.files["/d/q?url=https://host/../x"] = b"asked"
    web.files["/secret"] = b"outside"
    with layered(fsabs.from_url(f"{web.url}/d"), kind, tmp_path) as fs:
        assert fs.read_bytes("q?url=https://host/../x") == b"asked"
        for path in ("%2e%2e/secret", ".%2E/secret"):
            with pytest.raises(PermissionError):
                fs.read_bytes(path)
        assert not any("secret" in path for path in web.paths("GET"))
