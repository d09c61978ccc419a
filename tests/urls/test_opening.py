"""From URLs to trees: what a URL may say, containers on its path, and what is refused."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fsabs
import fsabs.spi
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.core import registry
from fsabs.testing.children import forked
from fsabs.urls import locations

pytestmark = pytest.mark.quick


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    inner = zipped({"deep/x.txt": b"inside", "y.txt": b"top"})
    (tmp_path / "outer.zip").write_bytes(zipped({"a/inner.zip": inner, "b.txt": b"b"}))
    (tmp_path / "dir.zip").mkdir()
    (tmp_path / "dir.zip" / "plain.txt").write_bytes(b"plain")
    (tmp_path / "dir.zip" / "real.zip").write_bytes(zipped({"z": b"z"}))
    (tmp_path / "data.bin").write_bytes(zipped({"z": b"forced"}))
    return tmp_path


@pytest.mark.parametrize(
    ("url", "scheme", "authority", "path"),
    [
        ("s3://bucket/a/b", "s3", "bucket", "/a/b"),
        ("S3://Bucket", "s3", "Bucket", ""),
        ("hdfs://host:8020/a", "hdfs", "host:8020", "/a"),
        ("hdfs:///a", "hdfs", "", "/a"),
        ("file:///a%20b+c", "file", "", "/a b+c"),
        ("file:/a", "file", "", "/a"),
        ("https://h/a%20b?q=1", "https", "h", "/a%20b?q=1"),
        ("/a%20b", "file", "", "/a%20b"),
        ("C:x/y", "file", "", os.path.abspath("C:x/y")),
    ],
)
def test_parsing(url: str, scheme: str, authority: str, path: str) -> None:
    assert locations.parse_without_query(url)[:3] == (scheme, authority, path)


def test_paths_of_pathlib(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert repr(fsabs.from_url(tmp_path / "a b")) == f"Local('{tmp_path}/a b')"
    assert fsabs.from_url((tmp_path / "a b").as_uri()).cwd == f"{tmp_path}/a b"


def test_a_relative_path_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    assert fsabs.from_url("d").url() == f"file://{tmp_path}/d"
    assert fsabs.from_url(".").url() == f"file://{tmp_path}"


@pytest.mark.parametrize("url", ["s3:bucket", "file:a"])
def test_a_url_without_slashes_is_told_apart(url: str) -> None:
    with pytest.raises(ValueError, match="//"):
        fsabs.from_url(url)


@pytest.mark.parametrize("url", ["file:///a?b", "s3://b/a#c"])
def test_a_query_or_fragment_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"%(3F|23)"):
        fsabs.from_url(url)


def test_another_host_of_a_file_url(tmp_path: Path) -> None:
    assert fsabs.from_url(f"file://localhost{tmp_path}").cwd == str(tmp_path)
    with pytest.raises(ValueError, match="host"):
        fsabs.from_url("file://elsewhere/x")


def test_credentials_are_not_shown() -> None:
    with pytest.raises(ValueError, match=r"nonesuch://\*\*\*@host") as caught:
        fsabs.from_url("nonesuch://me:secret@host/x")
    assert "secret" not in str(caught.value)


def test_what_is_missing_or_no_directory(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    for url, kind in ((f"{tmp_path}/no", FileNotFoundError), (f"{tmp_path}/f", NotADirectoryError)):
        with pytest.raises(kind) as caught:
            fsabs.from_url(url)
        assert caught.value.filename == f"file://{url}"
    with pytest.raises(NotADirectoryError):
        fsabs.from_url(f"{tmp_path}/f/below")
    with pytest.raises(FileNotFoundError):
        fsabs.from_url(f"{tmp_path}/no.zip")


def test_create(tmp_path: Path) -> None:
    fsabs.from_url(f"{tmp_path}/a/b", create=True).write_bytes("c", b"1")
    assert (tmp_path / "a/b/c").read_bytes() == b"1"
    with fsabs.from_url(f"{tmp_path}/x/y/new.zip", create=True) as archive:
        archive.write_bytes("d/e", b"2")
    assert fsabs.from_url(f"{tmp_path}/x/y/new.zip", create=True).read_bytes("d/e") == b"2"


@pytest.mark.parametrize(
    ("path", "name", "content"),
    [
        ("outer.zip", "b.txt", b"b"),
        ("outer.zip/a/inner.zip", "y.txt", b"top"),
        ("outer.zip/a/inner.zip/deep", "x.txt", b"inside"),
        ("outer.zip/a", "inner.zip/../inner.zip", None),
        ("dir.zip", "plain.txt", b"plain"),
        ("dir.zip/real.zip", "z", b"z"),
    ],
)
def test_containers_anywhere_on_the_path(nested: Path, path: str, name: str, content: bytes | None) -> None:
    fs = fsabs.from_url(f"file://{nested}/{path}")
    data = fs.read_bytes(name)
    assert data == content if content is not None else zipfile.is_zipfile(io.BytesIO(data))
    assert fs.url(name).startswith(f"file://{nested}/{path}/")
    with fsabs.open_url(fs.url(name), "rb") as file:
        assert file.read() == data
    assert pickle.loads(pickle.dumps(fs)).read_bytes(name) == data
    fs.close()


def test_force_type(nested: Path) -> None:
    assert fsabs.from_url(f"{nested}/data.bin", force_type="zip").read_bytes("z") == b"forced"
    with pytest.raises(IsADirectoryError):
        fsabs.from_url(f"{nested}/dir.zip", force_type="zip")
    assert isinstance(fsabs.from_url(f"{nested}/dir.zip", force_type="file"), Local)
    with pytest.raises(NotADirectoryError):
        fsabs.from_url(f"{nested}/outer.zip", force_type="file")
    with pytest.raises(ValueError, match=r"hdf5, tar, zip"):
        fsabs.from_url(f"{nested}/outer.zip", force_type="rar")


def test_missing_or_wrong_inside_of_a_container(nested: Path) -> None:
    for path, kind in (
        ("outer.zip/no", FileNotFoundError),
        ("outer.zip/b.txt", NotADirectoryError),
        ("outer.zip/b.txt/c", NotADirectoryError),
        ("outer.zip/no.zip", FileNotFoundError),
    ):
        with pytest.raises(kind) as caught:
            fsabs.from_url(f"{nested}/{path}")
        assert caught.value.filename == f"file://{nested}/{path}"


def test_writing_nested_containers_by_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/o.zip/i.zip"
    with fsabs.from_url(url, mode="w") as fs:
        fs.write_bytes("a", b"1")
    with fsabs.from_url(url, mode="a") as fs:
        fs.write_bytes("b", b"2")
    fs = fsabs.from_url(url)
    assert list(fs.list()) == ["a", "b"]
    assert list(fsabs.from_url(f"{tmp_path}/o.zip").list()) == ["i.zip"]
    with pytest.raises(ZeroDivisionError), fsabs.from_url(url, mode="a") as broken:
        broken.write_bytes("c", b"3")
        raise ZeroDivisionError
    assert list(fsabs.from_url(url).list()) == ["a", "b"]
    assert os.listdir(tmp_path) == ["o.zip"]


def test_no_single_file_is_written_into_a_container_by_url(nested: Path) -> None:
    before = {path: path.read_bytes() for path in nested.rglob("*") if path.is_file()}
    for path, container in (
        ("outer.zip/n", "outer.zip"),
        ("outer.zip/a/inner.zip/n", "outer.zip/a/inner.zip"),
        ("dir.zip/real.zip/n", "dir.zip/real.zip"),
        ("new.zip/n", "new.zip"),
        ("new.tar/n", "new.tar"),
        ("new.h5/d/n", "new.h5"),
    ):
        for mode in ("w", "wb", "xb", "bx", "ab", "r+b"):
            said = re.escape(f'open file://{nested}/{container} once, by from_url(url, mode="a") or open_container(pa')
            with (
                pytest.raises(io.UnsupportedOperation, match=said) as caught,
                fsabs.open_url(f"{nested}/{path}", mode),
            ):
                pass
            assert caught.value.filename == f"file://{nested}/{path}"
            with pytest.raises(io.UnsupportedOperation, match=said):
                fsabs.Path(f"{nested}/{path}").open(mode)
    with pytest.raises(io.UnsupportedOperation), fsabs.open_url(f"{nested}/data.bin/n", "wb", force_type="zip"):
        pass
    assert {path: path.read_bytes() for path in nested.rglob("*") if path.is_file()} == before
    with fsabs.open_url(f"{nested}/dir.zip/plain.txt", "wb") as file:  # a directory of such a name is none
        file.write(b"written")
    assert (nested / "dir.zip/plain.txt").read_bytes() == b"written"
    with fsabs.open_url(f"{nested}/outer.zip/b.txt", "br") as file:
        assert file.read() == b"b"


@pytest.mark.parametrize("outer", ["o.tar", "o.h5"])
def test_a_container_in_what_can_only_be_written_says_how_to_add_to_it(outer: str, tmp_path: Path) -> None:
    with fsabs.from_url(f"{tmp_path}/{outer}/i.zip", mode="w") as fs:
        fs.write_bytes("a", b"1")
    before = (tmp_path / outer).read_bytes()
    with pytest.raises(io.UnsupportedOperation, match="copy that out, add to the copy, and write it back") as caught:
        fsabs.from_url(f"{tmp_path}/{outer}/i.zip", mode="a")
    assert caught.value.filename == f"file://{tmp_path}/{outer}/i.zip"
    assert (tmp_path / outer).read_bytes() == before


def test_mode_is_for_containers(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="mode='w'"):
        fsabs.from_url(tmp_path, mode="w")
    for mode in ("rb", ""):
        with pytest.raises(ValueError, match="r, w, x or a"):
            fsabs.from_url(tmp_path, mode=mode)


def test_unknown_options_name_the_nearest(nested: Path) -> None:
    with pytest.raises(TypeError, match=r"'fsnyc'.*'fsync'"):
        fsabs.from_url(nested, fsnyc=1)
    with pytest.raises(TypeError, match=r"'compresion'.*'compression'"):
        fsabs.from_url(f"{nested}/new.zip", mode="w", compresion="stored")


def test_options_reach_backend_and_container(tmp_path: Path) -> None:
    with fsabs.from_url(f"{tmp_path}/new.zip", mode="w", compression="deflated", fsync=True) as fs:
        fs.write_bytes("a", bytes(10_000))
    assert (tmp_path / "new.zip").stat().st_size < 1000


def test_open_url(tmp_path: Path) -> None:
    with fsabs.open_url(f"{tmp_path}/t.txt", "w", encoding="utf-16") as file:
        file.write("ä")
    with fsabs.open_url(f"file://{tmp_path}/t.txt", encoding="utf-16") as file:
        assert file.read() == "ä"
    with pytest.raises(ZeroDivisionError), fsabs.open_url(f"{tmp_path}/t.txt", "w") as file:
        file.write("lost")
        raise ZeroDivisionError
    assert (tmp_path / "t.txt").read_text("utf-16") == "ä"
    with pytest.raises(IsADirectoryError), fsabs.open_url(f"{tmp_path}/"):
        pass
    with pytest.raises(AttributeError, match="with open_url"):
        json.load(fsabs.open_url(f"{tmp_path}/t.txt"))  # type: ignore[arg-type]


def test_one_path_for_several_text_for_bytes_and_a_url_for_an_fs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"read_many\(\['a.txt'\]\)"):
        fsabs.from_url(tmp_path).read_many("a.txt")
    for pairs in ([("a.txt", "text")], {"a.txt": 3}):
        with pytest.raises(TypeError, match="content of 'a.txt'"):
            fsabs.from_url(tmp_path).write_many(pairs)  # type: ignore[arg-type]
    calls: list[Any] = [
        lambda fs: fs.copy_tree("", "", "memory://x"),
        lambda fs: fsabs.pack(fs, "memory://x", "a.zip"),  # type: ignore[arg-type]
        lambda fs: fsabs.unpack("memory://x", fs),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError, match=re.escape("fsabs.from_url('memory://x')")):
            call(fsabs.from_url(tmp_path))
    with pytest.raises(TypeError, match="not bytes"):
        fsabs.from_url(os.fsencode(tmp_path))  # type: ignore[call-overload]


def test_reprs_nest(nested: Path) -> None:
    fs = fsabs.from_url(f"{nested}/outer.zip/a/inner.zip")
    assert repr(fs) == f"Zip(Zip(Local('/'), '{str(nested)[1:]}/outer.zip'), 'a/inner.zip')"
    assert repr(fsabs.spi.LayerFS(fs)) == f"LayerFS({fs!r})"


class Upper(Memory):
    """A third party's backend."""

    scheme = "upper"

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Upper:
        return cls(authority.upper(), path)


def test_a_registered_backend() -> None:
    def use() -> bool:  # in a child: what is registered stays
        fsabs.register_backend("upper", Upper)
        fs = fsabs.from_url("upper://tree/", create=True)
        fs.write_bytes("a", b"1")
        return fsabs.from_url("memory://TREE/").read_bytes("a") == b"1"

    assert forked("registering", [use], 30) == [True]
    with pytest.raises(ValueError, match="already"):
        fsabs.register_backend("s3", Upper)


def test_a_registered_container(nested: Path) -> None:
    (nested / "data.bin").rename(nested / "book.CBZ")

    def use() -> bool:
        fsabs.register_container("comic", (".cbz",), fsabs.Zip)
        return fsabs.from_url(f"{nested}/book.CBZ").read_bytes("z") == b"forced"

    assert forked("registering", [use], 30) == [True]
    with pytest.raises(ValueError, match="already"):
        fsabs.register_container("comic2", (".zip",), fsabs.Zip)
    with pytest.raises(ValueError, match="dot"):
        fsabs.register_container("comic2", ("zip",), fsabs.Zip)


PLUGINS = """
import importlib.metadata, threading
from fsabs.core import registry

entry_points, seen = importlib.metadata.entry_points, []

def meanwhile(group):  # another thread asks, while this one looks for the plugins
    if not seen:
        seen.append([])
        thread = threading.Thread(target=lambda: seen.append(registry.schemes()))
        thread.start()
        thread.join()
    return entry_points(group=group)

importlib.metadata.entry_points = meanwhile
assert registry.container_of("a.CBZ") == "cbz"
assert "plugged" in seen[1]
assert registry.backend("plugged").__name__ == "Memory"
assert "plugged" in registry.schemes()
"""


def test_entry_points_of_an_installed_package(tmp_path: Path) -> None:
    information = tmp_path / "plugins-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[fsabs.backends]\nplugged = fsabs.backends.memory:Memory\n[fsabs.containers]\ncbz = fsabs.containers.zip:Zip\n"
    )
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{PLUGINS}"], check=True)


@pytest.mark.parametrize(
    ("name", "container"),
    [
        ("a.zip", "zip"),
        ("a.ZIP", "zip"),
        ("a.b.tar.gz", "tar"),
        ("a.tgz", "tar"),
        ("a.gz", None),
        ("zip", None),
        (".zip", "zip"),
        ("a.h5", "hdf5"),
        ("a.npz", None),
    ],
)
def test_suffixes(name: str, container: str | None) -> None:
    assert registry.container_of(name) == container


def test_what_is_dropped_unclosed_keeps_no_descriptor(nested: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        fs = fsabs.from_url(f"{nested}/outer.zip/a/inner.zip")
        file = fs.open("y.txt", "rb")
        assert pickle.loads(pickle.dumps(fs)).read_bytes("y.txt") == b"top"
        del fs, file
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("scheme", ["file", "memory", "s3", "hdfs", "mine"])
def test_a_password_is_refused_where_it_would_be_shown(scheme: str) -> None:
    fsabs.add_custom_scheme("mine", "memory")
    for call in (fsabs.from_url, lambda url: fsabs.open_url(url).__enter__()):
        with pytest.raises(ValueError, match=re.escape("//***@host")) as caught:
            call(f"{scheme}://user:pass@word@host/a/b")
        assert "word@" not in str(caught.value)


def test_what_is_shown_of_urls_and_of_names_with_at_signs() -> None:
    assert locations.parse_without_query("gs://user:pass@word@host/a@b").text == "gs://***@host/a@b"
    assert locations.parse_without_query("file:///a@b").text == "file:///a@b"
    shown = locations.parse_without_query("https://h/a?page=2&X-Amz-Signature=c0ffee&sig=beef#x").text
    assert re.fullmatch(r"https://h/a\?page=2&X-Amz-Signature=\*\*\*\w+&sig=\*\*\*\w+#x", shown)
    assert shown != locations.parse_without_query("https://h/a?page=2&X-Amz-Signature=decaf&sig=beef#x").text


def test_a_recipe_shows_no_arguments() -> None:
    fs = fsabs.lazify(functools.partial(fsabs.from_url, "s3://b", aws_secret_access_key="hunter2"))
    assert (repr(fs), repr(fs.subfs("a"))) == ("lazify(from_url)", "lazify(from_url.subfs('a'))")


def test_open_url_may_be_entered_again(tmp_path: Path) -> None:
    with fsabs.from_url(tmp_path).open_zip("packed.bin", "w") as archive:
        archive.write_bytes("x", b"in")
    file_at = fsabs.open_url(f"{tmp_path}/packed.bin/x", "rb", force_type="zip")
    for _ in range(2):
        with file_at as file:
            assert file.read() == b"in"


@pytest.mark.parametrize("layer", [fsabs.spi.LayerFS, fsabs.CachedFS, lambda fs: fsabs.lazify(lambda: fs)])
@pytest.mark.parametrize("failing", [False, True])
def test_a_layer_around_a_subfs_leaves_open_what_that_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: Any, failing: bool
) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache"))
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as archive:
        archive.write_bytes("d/x", b"in")
    with fsabs.from_url(tmp_path / "a.zip") as archive:
        with contextlib.suppress(ZeroDivisionError), layer(archive.subfs("d")) as around:
            assert around.read_bytes("x") == b"in"
            if failing:
                raise ZeroDivisionError
        assert archive.read_bytes("d/x") == b"in"
        with layer(archive) as around:
            assert around.read_bytes("d/x") == b"in"
        with pytest.raises(ValueError, match="closed"):
            archive.read_bytes("d/x")
