"""`cache=` and `http_cache=` of `from_url` and `open_url`, and of custom schemes in `pfio.ini`."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fsabs import (
    ConfigError,
    add_custom_scheme,
    from_url,
    open_url,
)
from fsabs.backends.local import Local
from fsabs.cache import CachedFS, HTTPCachedFS
from fsabs.cache.cachedfs import size_of
from fsabs.containers.zip import Zip
from fsabs.core import registry
from fsabs.core.fs import FS
from fsabs.urls.caching import cache_options

pytestmark = pytest.mark.quick


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/a.txt").write_text("text")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("dir/x", b"member")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "pfio.ini"))
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "default"))
    return folder


def test_an_fs_in_a_cache(data: Path, tmp_path: Path) -> None:
    with from_url(data, cache=tmp_path / "c") as fs:
        assert isinstance(fs, CachedFS)
        assert fs.open("sub/a.txt").read() == "text"
        assert fs.status()["disk"]["dir"] == str(tmp_path / "c")
        sub = fs.subfs("sub")
        assert isinstance(sub, CachedFS)
        assert sub.read_bytes("a.txt") == b"text"
    with from_url(data, cache=True) as whole, whole.subfs("sub") as part:
        assert part.read_bytes("a.txt") == b"text"
        assert os.path.exists(tmp_path / "default/files")


def test_a_container_in_a_cache(data: Path, tmp_path: Path) -> None:
    with from_url(data / "a.zip/dir", cache=True) as fs:
        assert repr(fs) == f"CachedFS(Zip({Local('/')!r}, '{str(data)[1:]}/a.zip', 'dir'))"
        assert fs.read_bytes("x") == b"member"
        assert fs.list().__next__() == "x"
    with from_url(data / "new.zip", mode="w", cache=True) as fs:
        assert isinstance(fs, Zip), "what is written through a container has no cache"
        fs.write_bytes("y", b"1")
    assert zipfile.ZipFile(data / "new.zip").namelist() == ["y"]


def test_no_cache(data: Path) -> None:
    for off in (None, False, "false", "none", " off "):
        assert isinstance(from_url(data, cache=off), Local)


def test_open_url(data: Path, tmp_path: Path) -> None:
    with open_url(data / "sub/a.txt", cache=True) as file:
        assert file.read() == "text"
    with open_url(data / "a.zip/dir/x", "rb", cache=str(tmp_path / "c")) as file:
        assert file.read() == b"member"
    assert (tmp_path / "c").exists()
    with open_url(data / "sub/new.txt", "w", cache=True) as file:
        file.write("written")
    assert (data / "sub/new.txt").read_text() == "written"


def test_the_order_of_layers(data: Path) -> None:
    fs = from_url(data, cache=True, http_cache="http://localhost:1/x")
    assert isinstance(fs, CachedFS)
    assert isinstance(fs.inner, HTTPCachedFS)
    assert isinstance(fs.inner.inner, Local)


def test_what_cache_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    text = "dir=/a, max-bytes=5 GB,check_interval=1.5, offline=on, max_age=none"
    named = {"dir": "/a", "max_bytes": "5 GB", "check_interval": 1.5, "offline": True, "max_age": None}
    given: list[tuple[Any, dict[str, Any]]] = [
        (True, {}),
        ("yes", {}),
        ("/a/b", {"dir": "/a/b"}),
        ("/a/run=5,x", {"dir": "/a/run=5,x"}),
        ("cache", {"dir": "cache"}),
        ({"max_bytes": "1TiB", "offline": True}, {"max_bytes": "1TiB", "offline": True}),
        ({"check_interval": "60"}, {"check_interval": 60.0}),
        (text, named),
        *[(home, {"dir": "/home/me/kept"}) for home in ("~/kept", "dir=~/kept", {"dir": Path("~/kept")})],
    ]
    for option, expected in given:
        assert cache_options(option) == expected


@pytest.mark.parametrize(
    ("option", "kind", "match"),
    [
        ("max_bytes=1, off_line=1", TypeError, "did you mean 'offline'"),
        ("max_bytes=1, 7", ValueError, "name=value, ...; number 2 is not"),
        ({"check_interval": "soon"}, ConfigError, "check_interval must be float"),
        ({"max_bytes": "5 apples"}, ValueError, "number of bytes"),
        (1.5, TypeError, "float"),
        ("50 gigabyte", ValueError, "'max_bytes': '50 gigabyte'"),
        ("50GB", ValueError, "'max_bytes': '50GB'"),
        (10**9, ValueError, "'max_bytes': 1000000000"),
    ],
)
def test_what_cache_cant_be(data: Path, option: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        from_url(data, cache=option)


def test_what_http_cache_cant_be(data: Path) -> None:
    with pytest.raises(TypeError, match="did you mean 'cache'"):
        from_url(data, cach=True)
    for option, kind in ((5, TypeError), ({}, TypeError), ({"url": "http://x", "size": 1}, TypeError)):
        with pytest.raises(kind):
            from_url(data, http_cache=option)
    with pytest.raises(ValueError):
        from_url(data, http_cache="ftp://x/")


def test_a_custom_scheme_with_a_cache(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "pfio.ini").write_text(
        f"[kept]\nscheme = file\nprefix = {data}\ncache = dir=$SCRATCH/c, max_bytes=1GB\nhttp cache = http://localhost:1/\n"
    )
    fs = from_url("kept:///sub")
    assert isinstance(fs, CachedFS)
    assert fs.status()["disk"]["dir"] == str(tmp_path / "scratch/c")
    assert fs.status()["disk"]["max_bytes"] == 10**9
    assert isinstance(fs.inner, HTTPCachedFS)
    assert isinstance(from_url("kept:///sub", cache=False, http_cache=False), Local)
    other = from_url("kept:///sub", cache=str(tmp_path / "mine"), http_cache=False)
    assert isinstance(other, CachedFS)
    assert other.status()["disk"]["dir"] == str(tmp_path / "mine")
    assert other.read_bytes("a.txt") == b"text"
    add_custom_scheme("typed", "file", {"prefix": str(data), "cache": True})
    assert isinstance(from_url("typed:///sub"), CachedFS)
    add_custom_scheme("wrong", "file", {"prefix": str(data), "cache": {"dirr": 1}})
    with pytest.raises(TypeError, match="did you mean 'dir'"):
        from_url("wrong:///sub")


def test_a_layer_that_cant_be_closes_what_it_was_to_go_around(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def broken(fs: FS, option: Any) -> FS:
        monkeypatch.setattr(fs, "_abort", lambda: closed.append(fs), raising=False)
        raise ValueError(option)

    monkeypatch.setattr(registry, "layer", lambda name: broken)
    with pytest.raises(ValueError, match="this"):
        from_url(data, cache="this")
    assert len(closed) == 1


def test_sizes() -> None:
    sizes: dict[Any, int] = {
        "0": 0,
        "4096": 4096,
        "1k": 1000,
        "1KiB": 1024,
        "1.5 GB": 15 * 10**8,
        "2TiB": 2 << 40,
        7: 7,
    }
    assert {text: size_of(text, "x") for text in sizes} == sizes
    wrong: tuple[Any, ...] = ("", "GB", "1i", "1 potato", "-1", -1, 1.0, True, None, "1e9")
    for text in wrong:
        with pytest.raises(ValueError, match="max_bytes"):
            size_of(text, "max_bytes")


def options_of(server: Any) -> dict[str, Any]:
    """The options of `from_url` for a server of S3."""
    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    return {"endpoint": server.endpoint, "region": server.region, **keys}


def test_a_store_copies_its_own_files_below_a_cache(moto: Any, tmp_path: Path) -> None:
    moto.create_bucket("copied")
    options = options_of(moto)
    folder = str(tmp_path / "kept")
    with (
        from_url("s3://copied", cache=folder, **options) as fs,
        from_url("s3://copied/c", cache=folder, **options) as other,
    ):
        fs.write_bytes("a/x", b"new")
        for path in ("b/x", "c/x"):
            fs.write_bytes(path, b"old")
        assert (fs.read_bytes("b/x"), other.read_bytes("x")) == (b"old", b"old")
        misses = fs.status()["misses"], other.status()["misses"]
        fs.copy_tree("a", "b")
        fs.copy("a/x", "x", dst_fs=other)
        assert (fs.status()["misses"], other.status()["misses"]) == misses  # no bytes have passed
        assert (fs.read_bytes("b/x"), other.read_bytes("x")) == (b"new", b"new")


def test_an_object_goes_with_all_below_its_key_below_a_cache_too(moto: Any, tmp_path: Path) -> None:
    moto.create_bucket("both")
    for cache in (False, str(tmp_path / "kept")):
        with from_url("s3://both", cache=cache, **options_of(moto)) as fs:
            for path in ("a", "a/b", "a/c/d", "ab"):
                fs.write_bytes(path, b"x")
            fs.remove("a", recursive=True)
            assert list(fs.list("", recursive=True)) == ["ab"]
