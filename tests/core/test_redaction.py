"""Secrets in URLs and options, as many spell them: none is in an error, a `repr`, a traceback, a pickle or a trace."""

from __future__ import annotations

import errno
import gzip
import pickle
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import trace
from fsabs.backends.objects.access import Token
from fsabs.backends.s3.options import parse
from fsabs.cache.cachedfs import CachedFS
from fsabs.cache.http import HTTPConnector
from fsabs.cache.httpfs import HTTPCachedFS
from fsabs.core import errors, redaction, registry
from fsabs.core.limits import Limits
from fsabs.urls import constructors, opening
from tests.cache.web import Reply, serving
from tests.spellings import OPTIONS, SECRET, SPELLINGS, URLS

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # before what a host refused is tried again


def seen(exc: BaseException) -> str:
    """Return all that is printed of an exception that is not caught."""
    return "".join(traceback.format_exception(exc)) + repr(exc) + repr(vars(exc))


def test_no_secret_of_a_url_is_shown() -> None:
    for url in URLS:
        for text in (url, f"can't open '{url}': refused", f"({url})", f'["{url}"]', repr([url, url])):
            shown = redaction.without_secrets(text)
            assert SECRET not in shown
            assert redaction.without_secrets(shown) == shown
        assert redaction.without_secrets(f"can't open '{url}': refused").endswith("': refused"), url
        assert SECRET not in redaction.distinct_url(url)
        assert "***" in redaction.distinct_url(url) or redaction.without_secrets(url) == url


@pytest.mark.parametrize("url", SPELLINGS)
def test_no_secret_of_a_url_is_in_an_error_or_a_repr(url: str, tmp_path: Path) -> None:
    assert SECRET not in seen(errors.error(errno.EIO, "read", url, f"no answer from {url}"))
    assert SECRET not in seen(errors.corrupt(url, "damaged"))
    with trace.record(tmp_path / "trace"):
        for use in (
            fsabs.from_url,
            lambda url: fsabs.from_url(url).read_bytes("a"),
            lambda url: fsabs.open_url(url).__enter__(),
            lambda url: fsabs.Local(tmp_path).copy("a", "b", url),
            lambda url: HTTPConnector(url.replace("http", "hdfs")),
        ):
            try:
                shown = repr(use(url))
            except Exception as exc:  # whatever it is, it is what a user sees
                shown = seen(exc)
            assert SECRET not in shown
    for file in (tmp_path / "trace").iterdir():
        content = file.read_bytes()
        assert SECRET.encode() not in (gzip.decompress(content) if file.suffix == ".gz" else content)


@pytest.mark.parametrize("url", [url for url in SPELLINGS if "#" not in url and ("?" not in url or "http" in url)])
def test_no_secret_of_a_url_is_shown_of_its_path(url: str) -> None:
    path = fsabs.Path(url)
    assert SECRET not in repr(path)
    assert SECRET in str(path)  # which opens it
    for use in (
        lambda: path.relative_to("s3://bucket/x"),
        lambda: path.relative_to(path / "below"),
        lambda: path.rename("s3://bucket/x"),
        path.stat,
        path.read_bytes,
        path.owner,
        path.__fspath__,
    ):
        with pytest.raises(Exception) as caught:
            use()
        assert SECRET not in seen(caught.value)


def test_no_secret_of_an_option_is_shown() -> None:
    for name, value in OPTIONS:
        assert SECRET not in redaction.shown(name, value)
        assert SECRET not in redaction.representation("Options", {name: value})


@pytest.mark.parametrize("part", ["x", "'", "?", "://a:b", "?a", "&a=", "=;", "://@"])
def test_texts_of_strangers_take_a_time_in_proportion(part: str) -> None:
    for start in ("", "http://h?", "http://"):
        begin = time.process_time()
        redaction.without_secrets(start + part * 100_000 + "z")
        assert time.process_time() - begin < 5


def test_what_is_harmless_is_shown() -> None:
    for name, value, shown in (
        ("endpoint", "https://s3.example.com:9000/", "https://s3.example.com:9000/"),
        ("prefix", "data/year=2026/x", "data/year=2026/x"),
        ("prefix", "year=2026", "year=2026"),
        ("max_attempts", 7, "7"),
        ("verify", False, "False"),
        ("aws_secret_access_key", None, "None"),
        ("aws_secret_access_key", "$CORP_SECRET", "$CORP_SECRET"),
        ("aws_secret_access_key", "${CORP}_and_more", "***"),
        ("limits", "max_ratio=12.5, max_links = none", "max_ratio=12.5, max_links=none"),
        ("limits", {"max_links": 3, "max_depth": None}, "max_links=3, max_depth=None"),
        ("cache", Path("/scratch"), "/scratch"),
        ("http_cache", "http://cache/x, max_cache_size=5", "http://cache/x, max_cache_size=5"),
        ("client_certificate", ("a.pem", "b.pem"), "a.pem, b.pem"),
        ("whatever", "text", "***"),
    ):
        assert redaction.shown(name, value) == shown
    assert "max_links=3" in redaction.shown("limits", Limits(max_links=3))
    assert redaction.without_secrets(f'at http://h/x?token="{SECRET}"') == 'at http://h/x?token=***"'
    for url in (
        "s3://b/a@b?versionId=x",
        "file:///a:b@c",
        "http://[::1]:9/a@b",
        "http://h:80/a",
        "file:///a@b",
        "what? no=1",
        "https://host/a?page=2&version=1",
    ):
        assert redaction.without_secrets(url) == url


SECRET_OPTIONS = {
    *("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "session", "sse_customer_key"),
    *("sse_kms_key_id", "metadata", "proxies", "versions", "tagging", "headers"),
    *("credentials", "access_token", "kms_key_name", "connection_string", "account_key", "sas_token", "credential"),
    *("tenant_id", "client_id", "client_secret", "token"),
}


def test_each_option_of_ours_is_either_harmless_or_hidden() -> None:
    known = {name for kind in map(registry.backend, registry.BUILTIN_SCHEMES) for name in _options(kind)}
    known |= {name for kind in map(registry.container, ("zip", "tar", "hdf5")) for name in _options(kind)}
    known |= {*_options(CachedFS), *_options(HTTPCachedFS), *opening.SETTINGS, *Limits._fields}
    assert {name for name in known if not redaction.is_harmless(name)} == SECRET_OPTIONS


def _options(kind: Any) -> set[str]:
    return set(constructors.known_options(kind))


def test_no_secret_of_an_option_is_in_the_repr_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = {
        "endpoint": f"http://me:{SECRET}@127.0.0.1:1",
        "aws_access_key_id": SECRET,
        "aws_secret_access_key": SECRET,
        "aws_session_token": SECRET,
        "sse_customer_key": (SECRET * 3)[:32].encode(),
        "metadata": {"owner": SECRET},
        "max_attempts": 1,
        "region": "moon-1",
    }
    fs = fsabs.S3("bucket", **options)
    assert fs.http is not None
    for thing in (fs, fs.options, *parse(options), fs.http.endpoint, fs.info()):
        assert SECRET not in repr(thing)
        assert SECRET not in f"{thing}"
    assert "region='moon-1'" in repr(fs.options)
    with pytest.raises(OSError) as caught:
        fs.read_bytes("x")
    assert SECRET not in seen(caught.value)
    proxied = fsabs.S3("bucket", **{**options, "endpoint": "http://h", "proxies": {"http": f"http://u:{SECRET}@h:1"}})
    with pytest.raises(OSError) as caught:
        proxied.read_bytes("x")
    assert SECRET not in seen(caught.value) + repr(proxied.options)
    assert SECRET not in repr(fs.http.endpoint._replace(proxy=f"http://me:{SECRET}@proxy"))
    with pytest.raises(OSError) as caught:  # by boto3, whose error has the endpoint as it was given
        fsabs.S3("bucket", create_bucket=True, **options)
    assert SECRET not in seen(caught.value)
    with pytest.raises(ValueError) as refused:
        fsabs.S3("bucket", metadata={"owner": f"{SECRET}\n"})
    assert SECRET not in seen(refused.value)


def test_no_secret_is_in_the_repr_of_what_requests_are_made_of() -> None:
    fs = fsabs.from_url("az://c", account_name="mine", sas_token=f"sig={SECRET}", proxies={"https": f"u:{SECRET}@h:1"})
    client, request = fs.http, fs.dialect.read("x")  # type: ignore[attr-defined]
    assert SECRET in client.encode(request).decode()
    of_web = fsabs.from_url("https://h/d").dialect.read(f"x?sig={SECRET}")  # type: ignore[attr-defined]
    for shown in (client.peer(request), client.access, request, of_web, Token(SECRET)):
        assert SECRET not in repr(shown)
    assert "'x?sig=***" in repr(of_web)


def test_no_secret_of_a_section_is_in_an_error(tmp_path: Path) -> None:
    for scheme, key, value in (
        ("s3", "metadata", SECRET),
        ("s3", "proxies", SECRET),
        ("s3", "whatever", SECRET),
        ("memory", "http_cache", f"http://h, {SECRET}"),
        ("memory", "cache", f"key={SECRET}"),
        ("memory", "limits", f"key={SECRET}"),
    ):
        fsabs.add_custom_scheme("mine", scheme, {key: value})
        with pytest.raises((ValueError, TypeError)) as caught:
            fsabs.from_url("mine://bucket")
        assert SECRET not in seen(caught.value), key


def test_no_secret_of_a_database_is_shown() -> None:
    from fsabs.dispatch import TaskDispatcher
    from fsabs.dispatch.database import Database

    for url in (
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?connect_timeout=1",
        f"postgresql://me@127.0.0.1:1/db?password={SECRET}&connect_timeout=1",
        f"postgresql://me@127.0.0.1:1/db?sslpassword={SECRET}&connect_timeout=1",
        f"mysql://me:{SECRET}@127.0.0.1:1/db",
        f"me:hun/{SECRET}@127.0.0.1:1/db",
    ):
        with pytest.raises((OSError, ValueError)) as caught:
            TaskDispatcher(url, "job", outage_seconds=0)
        assert SECRET not in seen(caught.value)
        if url.startswith("postgresql"):
            database = Database(url)
            assert SECRET not in repr(database) + database.url


def test_the_token_of_an_http_cache_is_read_again_and_not_pickled(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    store = fsabs.Memory("x")
    store.write_bytes("a", b"content")
    with serving(lambda request: Reply(404)) as web:

        def sent(fs: fsabs.FS) -> set[str | None]:
            web.requests.clear()
            fs.read_bytes("a")
            return {request.token for request in web.requests}

        fs = fsabs.HTTPCachedFS(web.url, store, bearer_token_path=str(token))
        assert sent(fs) == {f"Bearer {SECRET}"}
        pickled = pickle.dumps(fs)
        assert SECRET.encode() not in pickled
        assert SECRET not in repr(fs)
        assert sent(pickle.loads(pickled)) == {f"Bearer {SECRET}"}
        token.unlink()
        assert sent(pickle.loads(pickled)) == {None}
        given = HTTPConnector(web.url, bearer_token=SECRET)  # there is no file to read it from
        pickle.loads(pickle.dumps(given)).get("a")
        assert web.requests[-1].token == f"Bearer {SECRET}"


def test_no_secret_of_the_environment_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", SECRET),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", SECRET),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("S3_ENDPOINT", "http://127.0.0.1:1"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ):
        monkeypatch.setenv(name, value)
    fs = fsabs.from_url("s3://bucket/x")
    with pytest.raises(OSError):
        fs.read_bytes("a")  # so that the credentials are in use
    for thing in (fs, fs.subfs("a"), fsabs.Path("s3://bucket/x"), fs.fsspec(), fs.arrow()):
        assert SECRET.encode() not in pickle.dumps(thing)
