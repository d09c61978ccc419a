"""The connector of HTTP caches, against a real nginx, a dead one, and servers that do things wrong."""

from __future__ import annotations

import math
import os
import pickle
import ssl
import subprocess
import time
import warnings
from pathlib import Path

import pytest

from fsabs.cache import HTTPCache, HTTPConnector, backoff
from fsabs.cache.http import TOKEN_PATH_VARIABLE
from tests.cache.web import Reply, Request, serving
from tests.servers.dav import DavServer
from tests.servers.shared import unique

KEYS = [
    "plain",
    "with space",
    "a b/c d",
    "ünïcödé/日本",
    "100%",
    "%41",
    "q?x#y",
    "a+b;c=d&e",
    "[x]|^`{}",
    "quote'\"",
    "~.-_",
]


def test_what_is_put_comes_back(dav: DavServer) -> None:
    connector = HTTPConnector(dav.url + "/keys")
    for key in KEYS:
        assert connector.get(key) is None
        assert connector.put(key, key.encode())
        assert connector.put(key, key.encode()), "nginx answers 204 to the second"
        assert connector.get(key) == key.encode()
        assert (dav.files / "cache/keys" / key).read_bytes() == key.encode()


def test_what_would_be_another_key_for_the_server_is_refused() -> None:
    connector = HTTPConnector("http://localhost:1/")
    for key in ("", "/a", "a/", "a//b", "..", "a/../b", "./a"):
        for call in (connector.get, lambda key: connector.put(key, b"")):
            with pytest.raises(ValueError, match="segments"):
                call(key)


def test_sizes_and_parts(dav: DavServer) -> None:
    connector = HTTPConnector(dav.url)
    large = os.urandom(3_000_000)
    assert connector.put("empty", b"")
    assert connector.get("empty") == b""
    assert connector.put("large", [large[:10], b"", large[10:]])
    assert connector.get("large") == large
    assert connector.get("large", limit=3_000_000) == large
    assert connector.get("large", limit=2_999_999) is None
    assert connector.get("empty") == b"", "the connection after an answer that was left"


def test_urls_and_timeouts_that_are_none() -> None:
    urls = ["ftp://host/x", "http:///x", "http://host/?q", "http://host/#f", "http://me:secret@host/", "file:///t", ""]
    for url in urls:
        with pytest.raises(ValueError) as caught:
            HTTPConnector(url)
        assert "secret" not in str(caught.value)
    for timeout in (0, -1, math.inf, math.nan, 1e10):
        with pytest.raises(ValueError, match="timeout above 0 and at most"):
            HTTPConnector("http://localhost:1", timeout=timeout)
    assert HTTPConnector("host:80/x/").url == HTTPConnector("http://host:80/x").url == "http://host:80/x/"


# ---- tokens


def test_tokens(dav: DavServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_PATH_VARIABLE, raising=False)
    path = tmp_path / "token"
    path.write_text(dav.token + "\n")
    assert HTTPConnector(dav.token_url, bearer_token=dav.token).put("by text", b"1")
    assert HTTPConnector(dav.token_url, path).get("by text") == b"1"
    with pytest.warns(RuntimeWarning, match="401"):
        assert HTTPConnector(dav.token_url).get("by text") is None
    monkeypatch.setenv(TOKEN_PATH_VARIABLE, str(path))
    assert HTTPConnector(dav.token_url).get("by text") == b"1"
    with pytest.raises(ValueError, match="not both"):
        HTTPConnector(dav.token_url, path, bearer_token="x")
    with pytest.raises(FileNotFoundError):
        HTTPConnector(dav.token_url, tmp_path / "nonesuch")


def test_a_token_that_was_renewed_is_read_again(
    dav: DavServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    connector = HTTPConnector(dav.token_url, path)
    path.write_text(dav.token)
    assert connector.put("renewed", b"1"), "refused by 401, with the file not looked at for a second yet"
    path.unlink()
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 1.1)
    assert connector.get("renewed") == b"1", "the last token that was seen"


def test_a_connector_is_pickled_with_its_token_and_shows_it_nowhere(dav: DavServer) -> None:
    connector = HTTPConnector(dav.token_url, bearer_token=dav.token)
    connector.put("x", b"1")
    assert pickle.loads(pickle.dumps(connector)).get("x") == b"1"
    assert dav.token not in repr(connector)


# ---- what servers do wrong


@pytest.mark.parametrize("status", [302, 500])
def test_other_answers_are_a_miss_and_one_warning(status: int) -> None:
    with serving(lambda request: Reply(status, b"sorry")) as web:
        connector = HTTPConnector(web.url)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(5):
                assert connector.get("a") is None
                assert connector.put("a", b"1") is False
        assert [str(one.message).split("/ ")[1] for one in caught] == [
            f"answers {method} with status {status}; it is a miss" for method in ("GET", "PUT")
        ]
        assert len(web.requests) == 2, "it is left alone for a while"


def test_what_counts_as_stored_and_what_is_a_miss() -> None:
    statuses = iter([200, 201, 204, 404, 410, 404])
    with serving(lambda request: Reply(next(statuses))) as web, warnings.catch_warnings():
        warnings.simplefilter("error")
        connector = HTTPConnector(web.url)
        assert [connector.put("a", b"1") for _ in range(3)] == [True] * 3
        assert [connector.get("a") for _ in range(3)] == [None] * 3
        assert len(web.requests) == 6, "a miss is no failure"


def test_what_is_too_large_for_the_server_is_not_sent_again() -> None:
    with serving(lambda request: Reply(413 if len(request.body) > 10 else 201)) as web:
        connector = HTTPConnector(web.url)
        with pytest.warns(RuntimeWarning, match="413"):
            assert not connector.put("a", bytes(20))
        assert not connector.put("b", bytes(30))
        assert connector.put("c", bytes(10))
        assert web.asked("PUT") == ["/a", "/c"]


def test_a_body_that_breaks_off_is_asked_for_again() -> None:
    answers = iter([Reply(200, b"half", announced=8), Reply(200, b"complete")])
    with serving(lambda request: next(answers)) as web:
        assert HTTPConnector(web.url).get("a") == b"complete"


def test_a_connection_that_the_server_closed_meanwhile(own_dav: DavServer) -> None:
    connector = HTTPConnector(own_dav.url)
    connector.put("x", b"1")
    own_dav.pause()
    own_dav.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert connector.get("x") == b"1"


# ---- dead servers


def test_a_dead_server_is_asked_once_and_then_left_alone(own_dav: DavServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    connector = HTTPConnector(own_dav.url)
    assert connector.put("x", b"1")
    own_dav.pause()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [connector.get("x") for _ in range(100)] == [None] * 100
        assert connector.put("y", b"1") is False
        assert not connector.alive
        now[0] += 1.0
        assert connector.alive
        assert connector.get("x") is None
    assert len(caught) == 1, [str(one.message) for one in caught]
    now[0] += 1.9
    assert not connector.alive, "the second pause is twice as long"
    own_dav.start()
    now[0] += 0.2
    assert connector.get("x") == b"1"
    assert connector.put("y", b"1")


def test_the_pause_grows_to_a_minute_and_ends_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pause = backoff.Backoff()
    lengths = []
    for _ in range(9):
        assert pause.begin()
        for _ in range(4):  # four threads fail at once
            pause.failed(now[0])
        assert not pause.begin()
        lengths.append(0)
        while not pause.over:
            lengths[-1] += 1
            now[0] += 1
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause.begin()
    assert not pause.begin(), "one tries, and the others wait"
    pause.worked()
    assert pause.begin()
    assert pause.begin()


def _reply(request: Request) -> Reply:
    return Reply(200, request.path.encode())


def test_requests_go_over_one_connection() -> None:
    with serving(_reply) as web:
        connector = HTTPConnector(web.url)
        for number in range(20):
            assert connector.get(str(number)) == f"/{number}".encode()
        assert web.connections == 1
        connector.close()
        assert connector.get("after") == b"/after"


# ---- HTTPCache


@pytest.mark.parametrize("raw", [True, False])
def test_items_lie_at_their_number(dav: DavServer, raw: bool) -> None:
    cache = HTTPCache(10, f"{dav.url}/items{raw}", raw=raw)
    assert len(cache) == 10
    assert cache.multiprocess_safe
    assert cache.multithread_safe
    assert cache.get(3) is None
    assert cache.put(3, b"three")
    assert cache.put(4, b"")
    assert (cache.get(3), cache.get(4)) == (b"three", b"")
    lies = (dav.files / f"cache/items{raw}/3").read_bytes()
    assert lies == b"three" if raw else lies.endswith(b"three")
    for wrong in (-1, 10):
        with pytest.raises(IndexError):
            cache.get(wrong)
        with pytest.raises(IndexError):
            cache.put(wrong, b"")


def test_another_machine_gets_the_items(dav: DavServer) -> None:
    url = dav.url + "/machines"
    for do_pickle, value in ((False, b"x"), (True, {"a": [1, None]}), (True, None)):
        HTTPCache(5, url + f"/{do_pickle}", do_pickle=do_pickle).put(1, value)
        other = pickle.loads(pickle.dumps(HTTPCache(5, url + f"/{do_pickle}", do_pickle=do_pickle)))
        assert other.get(1, "missing") == value
        assert other.get(2, "missing") == "missing"


def test_values_that_are_like_nothing(dav: DavServer) -> None:
    cache = HTTPCache(5, f"{dav.url}/{unique('like-nothing')}")
    for number, value in enumerate((None, b"", b"fsabsHC1", b"fsabsHC1N")):
        assert cache.put(number, value)
        assert cache.get(number, "missing") == value
        assert cache.get_and_cache(number, lambda i: b"made again") == value


def test_what_another_codec_wrote_is_a_miss(dav: DavServer) -> None:
    url = dav.url + "/codecs"
    HTTPCache(5, url).put(1, b"no pickle")
    with pytest.warns(RuntimeWarning, match="something else than the item"):
        assert HTTPCache(5, url, do_pickle=True).get(1, "missing") == "missing"
    HTTPCache(5, url, raw=True).put(2, b"no pickle")
    with pytest.warns(RuntimeWarning, match="no item of codec"):
        assert HTTPCache(5, url, do_pickle=True, raw=True).get(2, "missing") == "missing"


def test_items_of_another_number_path_or_source_are_a_miss(dav: DavServer) -> None:
    url = dav.url + "/swaps"
    cache = HTTPCache(5, url, fingerprint="v1")
    cache.put(1, b"one"), cache.put(2, b"two")
    folder = dav.files / "cache/swaps"
    (folder / "2").write_bytes((folder / "1").read_bytes())
    with pytest.warns(RuntimeWarning, match="something else"):
        assert cache.get(2) is None
    with pytest.warns(RuntimeWarning, match="something else"):
        assert HTTPCache(5, url, fingerprint="v2").get(1) is None
    assert HTTPCache(5, url, fingerprint="v1").get(1) == b"one"


def test_the_certificates_that_are_trusted_are_those_of_the_s3_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    certificate = tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with serving(lambda _: Reply(200, b"content")) as web:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, tmp_path / "key")
        web.server.socket = context.wrap_socket(web.server.socket, server_side=True)
        url = web.url.replace("http://", "https://")
        with pytest.warns(RuntimeWarning, match="CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            assert HTTPConnector(url).get("a") is None
        for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            with monkeypatch.context() as patch:
                patch.setenv(variable, str(certificate))
                assert HTTPConnector(url).get("a") == b"content"
