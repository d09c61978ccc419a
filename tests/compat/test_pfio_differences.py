"""What docs/coming-from.md says is different from PFIO 2.10 on purpose: each row of its table is a test here."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pfio
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

import fsabs
import fsabs.compat.pfio as ours
from fsabs import trace
from fsabs.compat.pfio.testing import ZipForTest, make_http_server
from fsabs.compat.pfio.v2.fs import IgnoredOptionWarning
from tests.servers.moto import MotoServer


@pytest.fixture
def bucket() -> Iterator[Any]:
    with mock_aws():
        yield ours.v2.S3("bucket", create_bucket=True)


def _write(fs: Any, path: str, text: str = "x") -> None:
    with fs.open(path, "w") as file:
        file.write(text)


def test_written_files_are_whole(tmp_path: Path, bucket: Any) -> None:
    for fs in (ours.v2.Local(str(tmp_path)), bucket):
        _write(fs, "a", "old")
        with pytest.raises(RuntimeError), fs.open("a", "w") as file:
            file.write("new")
            file.flush()
            assert fs.open("a").read() == "old"
            raise RuntimeError
        assert fs.open("a").read() == "old"


def test_written_zips_are_whole(tmp_path: Path) -> None:
    fs = ours.v2.Local(str(tmp_path))
    ZipForTest(str(tmp_path / "a.zip"))
    with pytest.raises(RuntimeError), fs.open_zip("a.zip", "w") as archive:
        _write(archive, "b")
        raise RuntimeError
    with fs.open_zip("a.zip") as archive:
        assert sorted(archive.list()) == ["dir", "file"]


def _child(fs: Any, forked: bool) -> None:
    assert fs.is_forked == forked
    assert fs.open("a", "r").read() == "x"
    assert not fs.is_forked


def _exitcode(fs: Any) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=_child, args=(fs, True))
    child.start()
    child.join(30)
    return child.exitcode


def test_after_a_fork(tmp_path: Path, hdfs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pfio{os.getpid()}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs = ours.v2.from_url(f"{hdfs.url}/{name}", create=True)
        _write(fs, "a")
        assert _exitcode(fs) == 0
        assert list(fs.list()) == ["a"]
        assert (fs.stat("a").size, fs.stat("").isdir(), fs.isdir("a")) == (1, True, False)
        fs.remove(".", recursive=True)


def test_makedirs_on_hdfs(hdfs: Any) -> None:
    fs = ours.v2.from_url(f"{hdfs.url}/pfio{os.getpid()}", create=True)
    fs.mkdir("a/b")
    fs.mkdir("a/b")
    with pytest.raises(FileExistsError):
        fs.makedirs("a/b")
    fs.makedirs("a/b", exist_ok=True)
    assert sorted(fs.list(recursive=True)) == ["a", "a/b"]
    assert fs.username == os.path.basename(fsabs.Hdfs().cwd)
    fs.remove("a", recursive=True)


def test_errors_of_s3(bucket: Any) -> None:
    for call in (
        bucket.open,
        bucket.remove,
        lambda path: bucket.open(path, "rb"),
        lambda path: bucket.rename(path, "b"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            call("none")
        assert isinstance(caught.value, ClientError)
        assert caught.value.response["Error"]["Code"] == "404"
        assert caught.value.filename == "s3://bucket/none"
    with pytest.raises(FileNotFoundError):
        bucket.stat("none")
    with pytest.raises(ClientError):
        ours.v2.S3("other")


def test_errors_of_zips(tmp_path: Path) -> None:
    ZipForTest(str(tmp_path / "a.zip"))
    with ours.v2.from_url(str(tmp_path / "a.zip")) as archive:
        for path in ("none", "file/x", "dir"):
            with pytest.raises(KeyError) as caught:
                archive.open(path)
            assert isinstance(caught.value, OSError)
            assert path in str(caught.value)


def test_what_pfio_refuses(tmp_path: Path, bucket: Any) -> None:
    for path in ("d/a", "d/b/c", "e"):
        _write(bucket, path)
    assert sorted(bucket.glob("d/*")) == ["d/a", "d/b"]
    bucket.remove("d", recursive=True)
    assert list(bucket.list()) == ["e"]
    ZipForTest(str(tmp_path / "a.zip"))
    with ours.v2.from_url(str(tmp_path / "a.zip")) as archive:
        with archive.subfs("dir") as sub:
            assert list(sub.list()) == ["f"]
        assert sub.open("f", "rb").read() == b"bar"  # the file stays open
        assert list(archive.glob("*/f")) == ["dir/f"]


def test_directories_of_zips(tmp_path: Path) -> None:
    ZipForTest(str(tmp_path / "a.zip"))
    with ours.v2.from_url(str(tmp_path / "a.zip")) as archive:
        assert archive.exists("dir")
        assert archive.isdir("dir")
        assert archive.stat("dir").isdir()
        assert {one.filename: one.isdir() for one in archive.list(detail=True)} == {"file": False, "dir/": True}
    ZipForTest(str(tmp_path / "b.zip"), {"dir": {"f": b""}, "dir2": {"g": b""}})
    found = []
    for package in (pfio, ours):
        with package.v2.from_url(str(tmp_path / "b.zip")) as archive:
            found.append(sorted(archive.list("dir", recursive=True)))
    assert found == [["2/g", "f"], ["f"]]


def test_the_root_of_a_bucket(bucket: Any) -> None:
    assert bucket.exists("/")
    assert bucket.stat("/").isdir()
    with pytest.raises(Exception, match="Parameter validation"):
        pfio.v2.S3("bucket").exists("/")


def test_patterns_of_paths(tmp_path: Path) -> None:
    fs = ours.v2.Local(str(tmp_path))
    for path in ("d/a", "d/e/a", "a"):
        fs.makedirs(os.path.dirname(path), exist_ok=True)
        _write(fs, path)
    base = ours.v2.Path("d", fs=fs)
    assert [str(path) for path in base.glob("a")] == ["d/a"]
    assert sorted(str(path) for path in base.glob("**/a")) == ["d/a", "d/e/a"]
    assert sorted(str(path) for path in base.glob("**")) == ["d/a", "d/e", "d/e/a"]
    assert list(pfio.v2.Path("d", fs=pfio.v2.Local(str(tmp_path))).glob("a")) == []


def test_equal_paths_have_one_hash(tmp_path: Path) -> None:
    def paths(package: Any) -> set[Any]:
        return {package.v2.Path("a", fs=package.v2.Local(str(tmp_path))) for _ in range(2)}

    assert (len(paths(pfio)), len(paths(ours))) == (2, 1)


def test_paths_in_zips(tmp_path: Path) -> None:
    ZipForTest(str(tmp_path / "a.zip"))
    with ours.v2.from_url(str(tmp_path / "a.zip")) as archive:
        assert ours.v2.Path("dir/f", fs=archive).read_text() == "bar"
        root = ours.v2.Path(fs=archive)
        assert root.is_dir()
        assert sorted(str(path) for path in root.iterdir()) == ["dir", "file"]


def test_isdir_of_a_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        assert [package.v2.Local().stat("s").isdir() for package in (pfio, ours)] == [True, False]


def test_unknown_options_warn_once(tmp_path: Path) -> None:
    with pytest.warns(IgnoredOptionWarning, match="bufering= has no effect"):
        ours.v2.from_url(str(tmp_path), bufering=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.v2.from_url(str(tmp_path), bufering=1)
    with pytest.warns(IgnoredOptionWarning, match="tracing="):
        ours.v2.Local(str(tmp_path), tracing=True)


def test_traces(tmp_path: Path) -> None:
    _write(ours.v2.Local(str(tmp_path)), "a")
    with trace.record(tmp_path / "trace"):
        fs = ours.v2.Local(str(tmp_path), trace=True)
        assert fs.is_traced
        assert fs.open("a").read() == "x"
    assert "local.open" in {event.name for event in trace.events(tmp_path / "trace")}


def test_https() -> None:
    assert ours.cache.HTTPConnector("https://localhost:1/x").url == "https://localhost:1/x/"
    with pytest.raises(ValueError):
        pfio.cache.HTTPConnector("https://localhost:1/x")


def test_lazify(tmp_path: Path) -> None:
    with pytest.deprecated_call():
        fs = ours.v2.lazify(lambda: ours.v2.Local(str(tmp_path)))
    assert isinstance(fs, ours.v2.Local)


def test_small_parts() -> None:
    with mock_aws():
        fs = ours.v2.S3("bucket", create_bucket=True, mpu_chunksize=1 << 20)
        assert fs.mpu_chunksize == 1 << 20
        with fs.open("a", "wb") as file:
            file.write(bytes(11 << 20))
        parts = fs.client.head_object(Bucket="bucket", Key="a", PartNumber=1)
        assert (parts["PartsCount"], parts["ContentLength"]) == (3, 5 << 20)


def test_markers_of_directories(bucket: Any) -> None:
    bucket.client.put_object(Bucket="bucket", Key="d/", Body=b"")
    assert list(bucket.list()) == ["d/"]
    assert list(bucket.list(recursive=True)) == []
    assert list(pfio.v2.S3("bucket").list(recursive=True)) == ["d/"]


def test_encoding_on_s3(bucket: Any) -> None:
    with bucket.open("a", "w", encoding="utf-16", newline="\r\n") as file:
        file.write("ä\n")
    assert bucket.open("a", "rb").read() == "ä\r\n".encode("utf-16")
    assert bucket.open("a", encoding="utf-16").read() == "ä\n"
    assert isinstance(bucket.open("a", "rb"), io.BufferedReader)


def test_caches_check_items(tmp_path: Path) -> None:
    with ours.cache.MultiprocessFileCache(2, dir=str(tmp_path)) as cache:
        cache.put(0, b"first item")
        (file,) = (path for path in tmp_path.iterdir() if b"first item" in path.read_bytes())
        file.write_bytes(file.read_bytes().replace(b"first item", b"FIRST item"))
        with pytest.warns(RuntimeWarning):
            assert cache.get(0) is None


def test_preserved_caches(tmp_path: Path) -> None:
    with pfio.cache.FileCache(3, dir=str(tmp_path), do_pickle=True) as theirs:
        theirs.put(1, [1])
        theirs.preserve("kept")
    for kind in (ours.cache.FileCache, ours.cache.MultiprocessFileCache, ours.cache.ReadOnlyFileCache):
        with kind(3, dir=str(tmp_path), do_pickle=True) as here:
            assert here.preload("kept")
            assert [here.get(i) for i in range(3)] == [None, [1], None]


def test_text_of_errors(tmp_path: Path, bucket: Any) -> None:
    for fs, url in ((bucket, "s3://bucket/none"), (ours.v2.Local(str(tmp_path)), f"file://{tmp_path}/none")):
        with pytest.raises(FileNotFoundError) as raised:
            fs.remove("none")
        assert (raised.value.errno, raised.value.filename) == (2, url)


@pytest.mark.parametrize("kind", ["FileCache", "MultiprocessFileCache"])
def test_caches_on_a_failing_disk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with getattr(ours.cache, kind)(2, dir=str(tmp_path)) as cache:
        for name in ("pwrite", "pwritev", "write", "writev"):
            monkeypatch.setattr(os, name, fail)
        with pytest.warns(RuntimeWarning):
            assert not cache.put(0, b"item")
        monkeypatch.undo()
        assert cache.get(0) is None


def _preload(cache: Any, found: Any) -> None:
    cache.preload("kept")
    found.put(cache.get(0))


def test_preloading_in_a_child(tmp_path: Path) -> None:
    with ours.cache.MultiprocessFileCache(1, dir=str(tmp_path)) as first:
        first.put(0, b"item")
        first.preserve("kept")
    context = multiprocessing.get_context("fork")
    found: Any = context.SimpleQueue()
    with ours.cache.MultiprocessFileCache(1, dir=str(tmp_path)) as cache:
        process = context.Process(target=_preload, args=(cache, found))
        process.start()
        process.join(60)
        assert found.get() == b"item"


def test_private_names(tmp_path: Path, bucket: Any) -> None:
    assert hasattr(pfio.v2.http_cache, "_HTTPCacheIOBase")
    assert not hasattr(ours.v2.http_cache, "_HTTPCacheIOBase")
    with make_http_server() as (server, port):
        cached = ours.v2.HTTPCachedFS(f"http://127.0.0.1:{port}", ours.v2.Local(str(tmp_path)), max_cache_size=10)
        (tmp_path / "large").write_bytes(bytes(11))
        assert cached.open("large").read() == bytes(11)
        assert server.RequestHandlerClass.files == {}  # type: ignore[attr-defined]
    _write(bucket, "a", "text\n")
    with bucket.open("a") as file, pfio.v2.S3("bucket").open("a") as theirs:
        assert (file._CHUNK_SIZE, theirs._CHUNK_SIZE) == (65536, 5)
        assert file.readlines() == ["text\n"]


def test_custom_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pfio.ini"
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(file))
    file.write_text("[first]\nscheme = file\n")
    assert ours.v2.config.get_custom_scheme("first") == {"scheme": "file"}
    file.write_text("[second]\nscheme = file\ncreate = true\n")
    assert ours.v2.config.get_custom_scheme("first") is None
    assert ours.v2.from_url(f"second://{tmp_path}").scheme == "second"
    with pytest.raises(fsabs.ConfigError):
        ours.v2.config.add_custom_scheme("s3", "file")


def test_a_custom_scheme_with_a_prefix(tmp_path: Path, moto: MotoServer) -> None:
    (tmp_path / "team" / "x").mkdir(parents=True)
    (tmp_path / "team" / "x" / "a").write_bytes(b"a")
    ours.v2.config.add_custom_scheme("corp", "file", {"prefix": f"{tmp_path}/team"})
    with ours.v2.from_url("corp:///x") as fs:
        assert list(fs.list()) == ["a"]
    moto.create_bucket("prefixed")
    keys = {"aws_access_key_id": moto.access_key, "aws_secret_access_key": moto.secret_key}
    ours.v2.config.add_custom_scheme("store", "s3", {"prefix": "team", "endpoint": moto.endpoint, **keys})
    with ours.v2.from_url("store://prefixed/x") as fs, fs.open("a", "wb") as file:
        file.write(b"a")
    with ours.v2.from_url("store://prefixed") as fs:
        assert list(fs.list(recursive=True)) == ["x/a"]
