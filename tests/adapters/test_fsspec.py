"""fsspec's interface over an FS: what its abstract suites, which `make judges` runs, leave out."""

from __future__ import annotations

import errno
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import fsabs
from fsabs.adapters.fsspec import FsabsFileSystem
from fsabs.core import hooks
from fsabs.urls import roots
from tests.adapters import stores

stores.register_entry_points()


@pytest.fixture(params=["local", "corp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A directory of two files, on this disk and on S3 by a scheme of the user's."""
    with stores.opened(request.param, request, tmp_path) as url:
        stores.fill(url, {"a.bin": bytes(range(200)), "d/b.txt": b"text"})
        yield url


def filesystem(url: str) -> tuple[FsabsFileSystem, str]:
    """The filesystem of a URL, a custom scheme's, too, and the path."""
    if url.startswith("corp:"):
        fsabs.register_fsspec("corp")
    fs, path = fsspec.url_to_fs(f"fsabs+{url}")
    assert isinstance(fs, FsabsFileSystem)
    return fs, path


def test_questions(url: str) -> None:
    fs, root = filesystem(url)
    assert fs.unstrip_protocol(root) == f"fsabs+{url}"
    assert fs.find(root) == [f"{root}/a.bin", f"{root}/d/b.txt"]
    assert fs.find(root, withdirs=True) == [root, f"{root}/a.bin", f"{root}/d", f"{root}/d/b.txt"]
    assert fs.find(f"{root}/a.bin") == [f"{root}/a.bin"]
    assert fs.find(f"{root}/none") == fs.find(f"{root}/a.bin/none") == []
    assert fs.find(root, maxdepth=1) == [f"{root}/a.bin"]
    assert sorted(fs.ls(root, detail=False)) == [f"{root}/a.bin", f"{root}/d"]
    assert fs.ls(f"{root}/a.bin", detail=False) == [f"{root}/a.bin"]
    assert [(path, dirs, files) for path, dirs, files in fs.walk(root)] == [
        (root, ["d"], ["a.bin"]),
        (f"{root}/d", [], ["b.txt"]),
    ]
    assert fs.glob(f"{root}/**/*.txt") == [f"{root}/d/b.txt"]
    assert (fs.isdir(root), fs.isfile(root), fs.isdir(f"{root}/none")) == (True, False, False)
    assert fs.info(f"{root}/a.bin")["size"] == fs.size(f"{root}/a.bin") == 200
    assert fs.du(root) == 204
    with pytest.raises(FileNotFoundError):
        fs.info(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/none")
    assert fs.ukey(f"{root}/a.bin") == fs.checksum(f"{root}/a.bin") != fs.ukey(f"{root}/d/b.txt")
    assert fs.modified(f"{root}/a.bin").tzinfo is not None


def test_parts_of_files(url: str) -> None:
    fs, root = filesystem(url)
    path, data = f"{root}/a.bin", bytes(range(200))
    assert fs.cat_file(path) == data
    starts, ends = [0, 10, -5, None, 150, 300, 20], [4, 30, None, 3, -10, 400, 10]
    expected = [data[slice(start, end)] for start, end in zip(starts, ends, strict=True)]
    before = hooks.install(requests := stores.Requests())
    try:
        assert fs.cat_ranges([path] * 7, starts, ends) == expected
    finally:
        hooks.install(before)
    assert requests.count <= 2, "the ranges are one batch"
    found = fs.cat_ranges([path, f"{root}/none"], 0, 2)
    assert found[0] == data[:2]
    assert isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([path, f"{root}/none"], 0, 2, on_error="raise")
    with pytest.raises(FileNotFoundError, match="none"):
        fs.cat_file(f"{root}/none", 0, 4)
    assert fs.cat_file(path, 5, -190) == data[5:10]
    assert fs.head(path, 3) == data[:3]
    assert fs.tail(path, 3) == data[-3:]
    assert fs.cat([path, f"{root}/d/b.txt"]) == {path: data, f"{root}/d/b.txt": b"text"}


def test_writes(url: str, tmp_path: Path) -> None:
    fs, root = filesystem(url)
    with pytest.raises(KeyError), fs.open(f"{root}/new/deep/t.txt", "w", encoding="utf-8") as file:
        file.write("half")
        raise KeyError
    assert not fs.exists(f"{root}/new/deep/t.txt")
    with fs.open(f"{root}/new/deep/t.txt", "w", encoding="utf-8", newline="\r\n") as file:
        file.write("grüße\n")
    assert fs.cat(f"{root}/new/deep/t.txt") == "grüße\r\n".encode()
    fs.mv(f"{root}/new/deep/t.txt", f"{root}/moved/t.txt")
    assert not fs.exists(f"{root}/new/deep/t.txt")
    assert fs.read_text(f"{root}/moved/t.txt", encoding="utf-8") == "grüße\n"
    fs.rm(root + "/moved", recursive=True)
    assert not fs.exists(f"{root}/moved")
    with fs.open(f"{root}/z.gz", "wb", compression="gzip") as file:
        file.write(b"zipped")
    with fs.open(f"{root}/z.gz", compression="infer") as file:
        assert file.read() == b"zipped"
    with fs.open(f"{root}/t.gz", "w", compression="gzip", encoding="utf-8") as file:
        file.write("grüße")
    with fs.open(f"{root}/t.gz", "r", compression="gzip", encoding="utf-8") as file:
        assert file.read() == "grüße"
    for mode, half in (("w", "half"), ("wb", b"half")):
        with pytest.raises(KeyError), fs.open(f"{root}/half.gz", mode, compression="gzip") as file:
            file.write(half)
            raise KeyError
    assert not fs.exists(f"{root}/half.gz")
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "x").write_bytes(b"x")
    fs.put(str(tmp_path / "up"), f"{root}/up", recursive=True)
    fs.get(f"{root}/up", str(tmp_path / "down"), recursive=True)
    assert (tmp_path / "down" / "x").read_bytes() == b"x"
    fs.touch(f"{root}/up/x", truncate=False)
    assert fs.cat(f"{root}/up/x") == b"x"


def test_a_transaction_is_all_or_nothing(url: str) -> None:
    fs, root = filesystem(url)
    with fs.transaction:
        with fs.open(f"{root}/t1", "wb") as file:
            file.write(b"1")
        assert not fs.exists(f"{root}/t1")
        fs.pipe_file(f"{root}/t2", b"2")
    assert fs.cat([f"{root}/t1", f"{root}/t2"]) == {f"{root}/t1": b"1", f"{root}/t2": b"2"}
    with pytest.raises(KeyError), fs.transaction:
        with fs.open(f"{root}/t3", "wb") as file:
            file.write(b"3")
        raise KeyError
    assert not fs.exists(f"{root}/t3")
    with fs.transaction:
        with pytest.raises(KeyError), fs.open(f"{root}/t4", "wb") as file:
            file.write(b"4")
            raise KeyError
        fs.pipe_file(f"{root}/t5", b"5")
    assert (fs.exists(f"{root}/t4"), fs.cat(f"{root}/t5")) == (False, b"5")


def test_half_a_listing_is_an_error() -> None:
    class Vanishing(fsabs.Memory):
        """A directory is removed while the tree is listed."""

        def _walk(self, key: str, *how: Any) -> Iterator[fsabs.FileStat]:
            yield next(super()._walk(key, *how))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "d")

    with Vanishing() as fs:
        fs.write_many({"a": b"a", "b": b"b"})
        with pytest.raises(FileNotFoundError):
            fs.fsspec().find("")


def test_in_a_container(url: str) -> None:
    fs, root = filesystem(url)
    with fsabs.from_url(f"{url}/c.zip", mode="w") as archive:
        archive.write_many({"in/x.bin": b"0123456789", "in/y z%.txt": b"y"})
    path = f"{root}/c.zip/in/x.bin"
    assert fs.cat_ranges([path] * 2, [0, 5], [2, 7]) == [b"01", b"56"]
    assert fs.find(f"{root}/c.zip") == [f"{root}/c.zip/in/x.bin", f"{root}/c.zip/in/y z%.txt"]
    assert fs.cat(f"{root}/c.zip/in/y z%.txt") == b"y"
    assert fs.isfile(f"{root}/c.zip")
    with pytest.raises(io.UnsupportedOperation, match="into a container"):
        fs.pipe_file(f"{root}/c.zip/in/z", b"z")


def test_it_pickles_and_forks(url: str) -> None:
    fs, root = filesystem(url)
    other = pickle.loads(pickle.dumps(fs))
    assert (other.cat(f"{root}/d/b.txt"), other == fs) == (b"text", True)
    pid = os.fork()
    if not pid:
        os._exit(fs.cat(f"{root}/d/b.txt") != b"text")
    assert os.waitpid(pid, 0)[1] == 0


def test_an_fs_as_a_filesystem(url: str) -> None:
    with fsabs.from_url(url) as inner:
        fs = inner.fsspec()
        assert fs.find("") == ["a.bin", "d/b.txt"]
        assert fs.cat(["a.bin", "d/b.txt"])["d/b.txt"] == b"text"
        assert fs.unstrip_protocol("d/b.txt") == f"fsabs+{inner.url('d/b.txt')}"
        fs.pipe({"e/f": b"1", "e/g": b"2"})
        assert dict(fs.get_mapper("e")) == {"f": b"1", "g": b"2"}
        assert pickle.loads(pickle.dumps(fs)).cat("e/f") == b"1"
    with fsabs.Memory() as one, fsabs.Memory() as two:
        one.write_bytes("x", b"1")
        two.write_bytes("x", b"2")
        assert (one.fsspec().cat("x"), two.fsspec().cat("x")) == (b"1", b"2")  # not one cached instance


def test_options_go_to_from_url(moto: Any) -> None:
    moto.create_bucket("options")
    options = {"endpoint": moto.endpoint, "aws_access_key_id": moto.access_key, "region": moto.region}
    fs = fsspec.filesystem("fsabs+s3", **options, aws_secret_access_key=moto.secret_key)
    fs.pipe_file("options/x", b"x")
    assert pickle.loads(pickle.dumps(fs)).cat("options/x") == b"x"
    with pytest.raises(TypeError, match="no option 'endpiont'"):
        fsspec.filesystem("fsabs+s3", endpiont="http://x").cat("options/x")


@pytest.mark.quick
def test_chained_urls_and_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x y").write_bytes(b"local")
    with fsspec.open(f"fsabs::file://{tmp_path}/x y") as file:
        assert file.read() == b"local"
    with pytest.raises(ValueError, match="fsabs\\+s3"):
        fsspec.filesystem("fsabs")
    with pytest.raises(OSError, match="signed"):
        fsspec.filesystem("fsabs+memory").sign("x/y")


@pytest.mark.quick
def test_the_entry_points_are_found_by_fsspec(tmp_path: Path) -> None:
    folder = tmp_path / "fsabs_entries-0.dist-info"
    folder.mkdir()
    lines = [f"{name} = {target}" for name, target in stores.entry_points().items()]
    (folder / "entry_points.txt").write_text("[fsspec.specs]\n" + "\n".join(lines) + "\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fsabs-entries\nVersion: 0\n")
    code = (
        "import fsspec; f = fsspec.filesystem('fsabs+memory'); f.pipe_file('n/x', b'1'); assert f.cat('n/x') == b'1'"
        f"\nfor name in {sorted(stores.entry_points())}: fsspec.get_filesystem_class(name)"
    )
    path = os.pathsep.join([str(stores.ROOT), str(tmp_path)])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)


@pytest.mark.quick
def test_the_root_of_a_store_with_buckets_is_there() -> None:
    fsabs.add_custom_scheme("stores", "s3", {"anonymous": True})
    fsabs.adapters.fsspec.register_fsspec("stores")
    for protocol in ("stores", "fsabs+s3", "fsabs+memory", "fsabs+file"):
        fs = fsspec.filesystem(protocol)
        for path in ("", "/", f"{protocol}://", f"{protocol}:///"):
            assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (True, True, False)


@pytest.mark.quick
def test_a_url_is_taken_for_one_of_the_filesystem_if_it_is_below_it() -> None:
    with fsabs.Memory("siblings") as top:
        for name in ("data/x", "data2/x"):
            top.makedirs(name.rpartition("/")[0])
            top.write_bytes(name, name.encode())
        fs = top.subfs("data").fsspec()
        below, beside = (fs.unstrip_protocol("x").replace("data", name) for name in ("data", "data2"))
        assert fs.cat([below])[below] == fs.cat_file(below) == b"data/x"
        with pytest.raises(PermissionError), fs.open(beside, "wb") as file:
            file.write(b"of another directory")  # it went to data/2/x
        assert list(top.list("", recursive=True)) == ["data/", "data/x", "data2/", "data2/x"]
        deeper = top.subfs("")
        deeper.cwd = "data2"
        assert deeper.fsspec().cat_file(below) == b"data/x"


def test_filesystems_are_equal_if_they_are_one_place() -> None:
    stores = [fsabs.S3("b", endpoint=f"http://127.0.0.1:{port}", region="x", anonymous=True) for port in (1, 2)]
    one, other = (store.fsspec() for store in stores)
    assert repr(one) == repr(other) == f"FsabsFileSystem({stores[0]!r})"
    assert one != other
    assert one.__dask_tokenize__() != other.__dask_tokenize__()
    assert one == stores[0].fsspec() == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(stores[0].fsspec())
    moved = stores[0].subfs("")
    moved.cwd = "/below"
    assert moved.fsspec() != one


def test_a_repository_of_the_hub_is_a_directory(hub: Any) -> None:
    hub.make("org/data", {"a/b.txt": b"text"})
    fs = fsspec.filesystem("fsabs+hf")
    roots.clear()
    for path in ("datasets/org/data", "datasets/org/data@main"):
        assert (fs.isdir(path), fs.isfile(path), fs.info(path)["type"]) == (True, False, "directory")
        assert fs.find(path) == [f"{path}/a/b.txt"]
        assert fs.cat(f"{path}/a/b.txt") == b"text"
    roots.clear()


def test_urls_of_the_filesystem_are_opened_in_every_way() -> None:
    with fsabs.Memory() as store:
        fs = store.fsspec()
        with fs.open(fs.unstrip_protocol("a.gz"), "wb", compression="gzip") as file:
            file.write(b"packed")
        with fs.transaction, fs.open(fs.unstrip_protocol("b"), "wb") as file:
            file.write(b"together")
        assert sorted(store.list(recursive=True)) == ["a.gz", "b"]
        with fs.open(fs.unstrip_protocol("a.gz"), "rb", compression="gzip") as file:
            assert file.read() == b"packed"
        with fs.open(fs.unstrip_protocol("b"), "rb", 1 << 20) as file:
            assert file.read() == b"together"
