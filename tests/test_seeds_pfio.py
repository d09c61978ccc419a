"""PFIO's design document, statement by statement, in its order.

A docstring says what the document says. Where this library differs on purpose, the test shows what it does;
docs/coming-from.md says why. What the conformance kit holds of every store and container is not repeated.
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fsabs
import fsabs.compat.pfio as pfio
from fsabs.backends.hdfs.configuration import HadoopConfiguration
from fsabs.testing import checks_errors
from fsabs.urls import config, opening, roots
from fsabs.urls.locations import parse
from tests.servers.hdfs import HdfsCluster

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """`many-files-dataset.zip`, with pictures and a zip in it."""
    inner, picture = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(picture, "PNG")
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep/é.txt", "nested")
    with zipfile.ZipFile(tmp_path / "many-files-dataset.zip", "w") as archive:
        archive.writestr("some/file.jpg", picture.getvalue())
        archive.writestr("some/inner.zip", inner.getvalue())
    return tmp_path / "many-files-dataset.zip"


# ---- what it supports


def test_an_abstraction_with_unified_errors(tmp_path: Path) -> None:
    """Filesystem API abstraction with unified error semantics: one mistake is one error, of the same errno."""
    for url in (str(tmp_path / "tree"), "memory://pfio-errors"):
        fs = fsabs.from_url(url, create=True)
        for path, data in checks_errors.FILES.items():
            fs.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            fs.write_bytes(path, data)
        for case in checks_errors.cases_for(fs.capabilities):
            with pytest.raises(case.kind) as caught:
                case.call(fs)
            assert caught.value.errno == case.code


def test_explicit_user_land_caching(tmp_path: Path) -> None:
    """Explicit user-land caching system: `cache=`, and PFIO's own item caches."""
    fsabs.from_url("memory://pfio-cache", create=True).write_bytes("a", b"once")
    with fsabs.from_url("memory://pfio-cache", cache=str(tmp_path / "cache")) as fs:
        assert fs.read_bytes("a") == fs.read_bytes("a") == b"once"
    items = pfio.cache.NaiveCache(3)
    assert items.get_and_cache(1, lambda i: i * 10) == 10
    assert items.get(1) == 10


# ---- rationale


def test_cloud_storage_and_on_premise_systems() -> None:
    """Google Cloud Storage and Amazon S3, on-premise filesystems like HDFS: by one API, as the scheme says."""
    for scheme, name in (("s3", "S3"), ("hdfs", "Hdfs"), ("file", "Local"), ("gs", "GCS")):
        assert opening.find_backend(parse(f"{scheme}:///x"), {}, strict=True)[0].name == name


def test_what_is_cached_is_chosen(tmp_path: Path) -> None:
    """Developers can choose which data to cache, from the raw files to the DNN's input arrays."""
    assert isinstance(fsabs.from_url("memory://pfio-raw", cache=str(tmp_path / "files")), fsabs.CachedFS)
    cache = pfio.cache.MultiprocessFileCache(2, do_pickle=True, dir=str(tmp_path))
    array = cache.get_and_cache(0, lambda number: np.full(3, number))
    np.testing.assert_array_equal(cache.get(0), array)


# ---- architecture


def test_accessing_what_is_in_a_container(dataset: Path) -> None:
    """Basic information (info); accessing raw files included, and containers included (open)."""
    fs = fsabs.from_url(dataset)
    assert fs.info()["entries"] == 2
    assert sorted(fs.list(recursive=True)) == ["some/", "some/file.jpg", "some/inner.zip"]
    with fs.open("some/file.jpg", "rb") as file:
        assert Image.open(file).size == (4, 3)
    assert fs.open_container("some/inner.zip").read_bytes("deep/é.txt") == b"nested"


@pytest.mark.parametrize("name", ["Zip", "Tar", "Hdf5"])
def test_adding_and_removing_files(tmp_path: Path, name: str) -> None:
    """Formats are e.g. HDF5, ZIP and Tar; files are added and removed (create, delete), visible at the close."""
    url = f"{tmp_path}/a.{name.lower()}"
    with fsabs.from_url(url, mode="w") as fs:
        fs.write_many({"a": b"1", "b": b"2"})
    with fsabs.from_url(url, mode="a") as fs:
        fs.remove("a")
        fs.write_bytes("c", b"3")
    found = fsabs.from_url(url)
    assert type(found).__name__ == name
    assert sorted(found.list()) == ["b", "c"]


def test_the_example(hdfs: HdfsCluster, dataset: Path) -> None:
    """`with pfio.v2.from_url('hdfs://.../many-files-dataset.zip') as fs:` lists all keys and reads some/file.jpg."""
    with fsabs.from_url(f"{hdfs.url}/some", create=True) as fs:
        fs.write_bytes("many-files-dataset.zip", dataset.read_bytes())
    for module in (fsabs, pfio.v2):
        with module.from_url(f"{hdfs.url}/some/many-files-dataset.zip") as fs:
            assert (
                module is not fsabs or fs.info()["entries"] == 2
            )  # in PFIO 2 only its first version's objects have it
            names = [name for name in fs.list(recursive=True)]  # noqa: C416 - the document's loop
            assert "some/file.jpg" in names
            with fs.open("some/file.jpg", "rb") as fp:
                binary = fp.read()
                assert Image.open(io.BytesIO(binary)).size == (4, 3)


# ---- custom schemes

INI = """
[foobar]
scheme = s3
endpoint = https://foobar.example.com/
aws access_key_id = $CUSTOM_ACCESS_KEY
aws_secret_access_key = $CUSTOM_ACCESS_SECRET
"""


@pytest.fixture
def ini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pfio.ini"
    path.write_text(INI)
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(path))
    monkeypatch.setenv("CUSTOM_ACCESS_KEY", "key")
    monkeypatch.setenv("CUSTOM_ACCESS_SECRET", "secret")
    roots.clear()
    return path


def test_urls_are_the_standards() -> None:
    """The format of URL is defined by the URL standard of WHATWG: percent-encoding in the path."""
    assert parse("S3://bucket/a%20b")[:3] == ("s3", "bucket", "/a b")
    assert fsabs.from_url("memory://x", create=True).url("a b?") == "memory://x/a%20b%3F"


def test_a_custom_scheme(ini: Path) -> None:
    """The section [foobar]: scheme, endpoint, `aws access_key_id`, `aws_secret_access_key`, with $VARIABLES."""
    _, location, options, _ = opening.find_backend(parse("foobar://path/to/a"), {}, strict=True)
    assert (location.authority, location.path) == ("path", "/to/a")
    assert options == {
        "endpoint": "https://foobar.example.com/",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
    }


def test_it_is_equal_to_keywords(ini: Path) -> None:
    """Except the `scheme` property, they are keyword arguments for `from_url`."""
    one = fsabs.from_url("foobar://path/to/a")
    other = fsabs.from_url(
        "s3://path/to/a",
        endpoint="https://foobar.example.com",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    assert isinstance(one, fsabs.S3)
    assert isinstance(other, fsabs.S3)
    assert one.url("filename") == other.url("filename") == "s3://path/to/a/filename"
    assert one.http.endpoint == other.http.endpoint


def test_where_the_configuration_is(ini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PFIO reads `$PFIO_CONFIG_PATH`; if it is undefined, `$XDG_CONFIG_HOME/pfio.ini`."""
    assert config.config_path() == str(ini)
    monkeypatch.delenv("PFIO_CONFIG_PATH")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config.config_path() == str(tmp_path / "xdg/pfio.ini")


# ---- file-like objects


@pytest.mark.parametrize("place", ["local", "memory", "zip"])
def test_files_are_raw_io_bases(tmp_path: Path, place: str) -> None:
    """`fs.open` returns an implementation of `RawIOBase`: unbuffered, and below each buffered or text file."""
    fs = fsabs.from_url(tmp_path if place == "local" else "memory://pfio-raw", create=True)
    if place == "zip":
        with fs.open_container("a.zip", "w") as made:
            made.write_bytes("x", b"text")
        fs = fs.open_container("a.zip")
    else:
        fs.write_bytes("x", b"text")
    with fs.open("x", "rb", buffering=0) as raw:
        assert isinstance(raw, io.RawIOBase)
        assert raw.read() == b"text"
    with fs.open("x", "rb") as buffered:
        assert isinstance(buffered, io.BufferedIOBase)
        assert isinstance(buffered.raw, io.RawIOBase)
    with fs.open("x") as text:
        assert isinstance(text, io.TextIOWrapper)


def test_writing_where_it_is_supported(dataset: Path) -> None:
    """Writes supported by filesystems, but possibly not in containers: one that is read is not written to."""
    with pytest.raises(io.UnsupportedOperation):
        fsabs.from_url(dataset).open("new", "wb")
    with pytest.raises(io.UnsupportedOperation, match='mode="a"'), fsabs.open_url(f"{dataset}/new", "wb"):
        pass


# ---- URI expressions


@pytest.mark.parametrize("default", ["fs.defaultFS", "dfs.nameservices"])
def test_the_service_identifier_can_be_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: str) -> None:
    """It can be omitted when the default is defined: in HDFS, the name service in `hdfs-site.xml`."""
    value = "hdfs://hdfs-nameservice1" if default == "fs.defaultFS" else "hdfs-nameservice1"
    text = f"<configuration><property><name>{default}</name><value>{value}</value></property></configuration>"
    (tmp_path / "hdfs-site.xml").write_text(text)
    (tmp_path / "core-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert HadoopConfiguration.load({}).file_system("hdfs", "") == ("hdfs", "hdfs-nameservice1")


def test_files_in_containers_have_uris(dataset: Path) -> None:
    """Containers, files are uniquely identifiable by a URI; path segments are separated by `/`, UTF-8."""
    url = f"file://{dataset}/some/inner.zip/deep/%C3%A9.txt"
    with fsabs.open_url(url, "rb") as file:
        assert file.read() == b"nested"
        assert file.name == url


def test_the_base_of_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hdfs: HdfsCluster) -> None:
    """The base for relative paths: for HDFS the home directory, for POSIX the current working directory."""
    monkeypatch.chdir(tmp_path)
    assert fsabs.from_url(".").url() == f"file://{tmp_path}"
    fs = fsabs.from_url(hdfs.url)
    user = fs.url().partition("/user/")[2]
    assert fs.url("path/to/file.txt").endswith(f"/user/{user}/path/to/file.txt")


def test_all_forms_open_the_same_file(tmp_path: Path, hdfs: HdfsCluster) -> None:
    """`open(uri)`; an absolute path; a relative one; a `file://` URI beside it; an object of the filesystem."""
    home = fsabs.from_url(hdfs.url)
    home.makedirs("path/to", exist_ok=True)
    home.write_text("path/to/file.txt", "here")
    uri = home.url("path/to/file.txt")
    with fsabs.open_url(uri) as file:  # pfio.open('hdfs://name-service1/user/smith/path/to/file.txt')
        assert file.read() == "here"
    whole = fsabs.from_url(f"{hdfs.url}/")
    absolute = uri.removeprefix(hdfs.url)
    assert whole.read_text(absolute) == "here"  # set_root('hdfs://name-service1/'), open('/user/smith/path/...')
    assert home.read_text("path/to/file.txt") == "here"  # set_root('hdfs'), open('path/to/file.txt')
    (tmp_path / "file.txt").write_text("local")
    with fsabs.open_url(f"file://{tmp_path}/file.txt") as local:  # overwritten by a full URI
        assert local.read() == "local"
    with fsabs.from_url(hdfs.url) as handler:  # with pfio.create_handler('hdfs') as handler
        assert handler.open("path/to/file.txt").read() == "here"


def test_a_file_url_has_three_slashes() -> None:
    """`file://path/to/file.txt` and bare `hdfs`, as the document writes them, are errors that say what is meant."""
    with pytest.raises(ValueError, match=r"file:///path has three slashes"):
        fsabs.from_url("file://path/to")
    with pytest.raises(ValueError, match=r"'hdfs' is a scheme, and no URL: hdfs:///path"):
        fsabs.from_url("hdfs")


# ---- use cases


def test_libraries_that_take_file_objects(tmp_path: Path, dataset: Path) -> None:
    """Direct access by file objects, e.g. PIL's `Image`, NumPy."""
    fs = fsabs.from_url("memory://pfio-objects", create=True)
    with fs.open("x.npy", "wb") as file:
        np.save(file, np.arange(4))
    with fs.open("x.npy", "rb") as file:
        assert np.load(file).tolist() == [0, 1, 2, 3]
    with fsabs.open_url(f"{dataset}/some/file.jpg", "rb") as file:
        assert Image.open(file).size == (4, 3)


def test_libraries_that_take_paths_only(dataset: Path) -> None:
    """`cv2.imread`, `cv2.VideoWriter`, `cv2.VideoCapture` take the file path: one is patched, the others get a copy."""
    cv2 = pytest.importorskip("cv2")
    with fsabs.patch("cv2"):
        assert cv2.imread(f"file://{dataset}/some/file.jpg").shape == (3, 4, 3)
    fs = fsabs.from_url("memory://pfio-videos", create=True)
    with fs.as_local("video.avi", "w") as local:
        writer = cv2.VideoWriter(local, cv2.VideoWriter_fourcc(*"MJPG"), 5, (32, 32))
        for _ in range(5):
            writer.write(np.zeros((32, 32, 3), "u1"))
        writer.release()
    with fs.as_local("video.avi") as local:
        assert cv2.VideoCapture(local).read()[0]


# ---- the history of the API


@pytest.mark.parametrize("name", ["open", "set_root", "create_handler", "open_as_container"])
@pytest.mark.parametrize("module", [fsabs, pfio])
def test_functions_of_the_global_context_are_gone(module: Any, name: str) -> None:
    """`open()`, `set_root()` and others have been removed in v2: the error names what takes their place."""
    with pytest.raises(AttributeError, match=r"(open_url|from_url)\(url\)"):
        getattr(module, name)


def _read_in_child(fs: fsabs.FS, queue: Any) -> None:
    queue.put(fs.read_bytes("some/file.jpg")[:4])


@pytest.mark.parametrize("lazy", [False, True])
def test_forks(dataset: Path, lazy: bool) -> None:
    """`lazify()` recreates the FS after `fork(2)`, for `Hdfs` and `Zip`: here every FS is fork-tolerant by itself."""
    fs = fsabs.lazify(functools.partial(fsabs.from_url, dataset)) if lazy else fsabs.from_url(dataset)
    start = fs.read_bytes("some/file.jpg")[:4]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read_in_child, args=(fs, queue))
    child.start()
    assert queue.get() == start
    child.join()
    assert pickle.loads(pickle.dumps(fs)).read_bytes("some/file.jpg")[:4] == start
