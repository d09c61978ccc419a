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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
import fsabs.spi
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.testing.children import forked
from fsabs.urls import locations

pytestmark = pytest.mark.quick


def zipped(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
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


# ---- URLs


def test_a_url_is_taken_apart() -> None:
    for url, parts in {
        "s3://bucket/a/b": ("s3", "bucket", "/a/b"),
        "S3://Bucket": ("s3", "Bucket", ""),
        "hdfs://host:8020/a": ("hdfs", "host:8020", "/a"),
        "hdfs:///a": ("hdfs", "", "/a"),
        "file:///a%20b+c": ("file", "", "/a b+c"),
        "file:/a": ("file", "", "/a"),
        "https://h/a%20b?q=1": ("https", "h", "/a%20b?q=1"),
        "/a%20b": ("file", "", "/a%20b"),
        "C:x/y": ("file", "", os.path.abspath("C:x/y")),
    }.items():
        assert locations.parse_without_query(url)[:3] == parts, url


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    assert fsabs.from_url(tmp_path / "a b").cwd == f"{tmp_path}/a b"
    assert fsabs.from_url((tmp_path / "a b").as_uri()).cwd == f"{tmp_path}/a b"
    assert fsabs.from_url(f"file://localhost{tmp_path}").cwd == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert fsabs.from_url("a b").url() == f"file://{tmp_path}/a%20b"
    assert fsabs.from_url(".").url() == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3:bucket", "//"),
        ("file:a", "//"),
        ("file:///a?b", "%3F"),
        ("s3://b/a#c", "%23"),
        ("file://elsewhere/x", "host"),
    ],
)
def test_what_is_no_url_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fsabs.from_url(url)


@pytest.mark.parametrize("scheme", ["file", "s3", "mine", "nonesuch"])
def test_a_password_is_refused_where_it_would_be_shown(scheme: str) -> None:
    fsabs.add_custom_scheme("mine", "memory")
    for call in (fsabs.from_url, lambda url: fsabs.open_url(url).__enter__()):
        with pytest.raises(ValueError, match=re.escape("//***@host")) as caught:
            call(f"{scheme}://user:pass@word@host/a/b")
        assert "word@" not in str(caught.value)


def test_what_is_shown_of_urls_and_of_recipes() -> None:
    assert locations.parse_without_query("gs://user:pass@word@host/a@b").text == "gs://***@host/a@b"
    assert locations.parse_without_query("file:///a@b").text == "file:///a@b"
    shown = locations.parse_without_query("https://h/a?page=2&X-Amz-Signature=c0ffee&sig=beef#x").text
    assert re.fullmatch(r"https://h/a\?page=2&X-Amz-Signature=\*\*\*\w+&sig=\*\*\*\w+#\*\*\*\w+", shown)
    assert shown != locations.parse_without_query("https://h/a?page=2&X-Amz-Signature=decaf&sig=beef#x").text
    fs = fsabs.lazify(functools.partial(fsabs.from_url, "s3://b", aws_secret_access_key="hunter2"))
    assert (repr(fs), repr(fs.subfs("a"))) == ("lazify(from_url)", "lazify(from_url.subfs('a'))")


# ---- directories and containers


def test_what_is_missing_or_no_directory(nested: Path) -> None:
    for path, kind in (
        ("no", FileNotFoundError),
        ("data.bin", NotADirectoryError),
        ("data.bin/below", NotADirectoryError),
        ("no.zip", FileNotFoundError),
        ("outer.zip/no", FileNotFoundError),
        ("outer.zip/b.txt", NotADirectoryError),
        ("outer.zip/b.txt/c", NotADirectoryError),
        ("outer.zip/no.zip", FileNotFoundError),
    ):
        with pytest.raises(kind) as caught:
            fsabs.from_url(f"{nested}/{path}")
        assert caught.value.filename == f"file://{nested}/{path}"


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


def test_writing_nested_containers_by_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/o.zip/i.zip"
    with fsabs.from_url(url, mode="w") as fs:
        fs.write_bytes("a", b"1")
    with fsabs.from_url(url, mode="a") as fs:
        fs.write_bytes("b", b"2")
    fs = fsabs.from_url(url)
    assert list(fs.list()) == ["a", "b"]
    assert repr(fs) == f"Zip(Zip(Local('/'), '{str(tmp_path)[1:]}/o.zip'), 'i.zip')"
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
        ("new.tar/n", "new.tar"),
        ("new.h5/d/n", "new.h5"),
    ):
        said = re.escape(f'open file://{nested}/{container} once, by from_url(url, mode="a") or open_container(pa')
        for mode in ("w", "bx", "ab", "r+b"):
            refused = pytest.raises(io.UnsupportedOperation, match=said)
            with refused as caught, fsabs.open_url(f"{nested}/{path}", mode):
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


@pytest.mark.parametrize("outer", ["o.tar", "o.h5"])
def test_a_container_in_what_can_only_be_written_says_how_to_add_to_it(outer: str, tmp_path: Path) -> None:
    with fsabs.from_url(f"{tmp_path}/{outer}/i.zip", mode="w") as fs:
        fs.write_bytes("a", b"1")
    before = (tmp_path / outer).read_bytes()
    with pytest.raises(io.UnsupportedOperation, match="copy that out, add to the copy, and write it back") as caught:
        fsabs.from_url(f"{tmp_path}/{outer}/i.zip", mode="a")
    assert caught.value.filename == f"file://{tmp_path}/{outer}/i.zip"
    assert (tmp_path / outer).read_bytes() == before


@pytest.mark.parametrize("layer", [fsabs.spi.LayerFS, fsabs.CachedFS, lambda fs: fsabs.lazify(lambda: fs)])
def test_a_layer_around_a_subfs_leaves_open_what_that_is_of(nested: Path, layer: Any) -> None:
    with fsabs.from_url(nested / "outer.zip") as archive:
        for failing in (False, True):
            with contextlib.suppress(ZeroDivisionError), layer(archive.subfs("a")) as around:
                assert around.exists("inner.zip")
                if failing:
                    raise ZeroDivisionError
            assert archive.read_bytes("b.txt") == b"b"
        with layer(archive) as around:
            assert around.read_bytes("b.txt") == b"b"
        with pytest.raises(ValueError, match="closed"):
            archive.read_bytes("b.txt")


def test_what_is_dropped_unclosed_keeps_no_descriptor(nested: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        fs = fsabs.from_url(f"{nested}/outer.zip/a/inner.zip")
        file = fs.open("y.txt", "rb")
        assert pickle.loads(pickle.dumps(fs)).read_bytes("y.txt") == b"top"
        del fs, file
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


# ---- arguments


def test_options_reach_backend_and_container(tmp_path: Path) -> None:
    with fsabs.from_url(f"{tmp_path}/new.zip", mode="w", compression="deflated", fsync=True) as fs:
        fs.write_bytes("a", bytes(10_000))
    assert (tmp_path / "new.zip").stat().st_size < 1000


def test_open_url(nested: Path) -> None:
    with fsabs.open_url(f"{nested}/t.txt", "w", encoding="utf-16") as file:
        file.write("ä")
    with pytest.raises(ZeroDivisionError), fsabs.open_url(f"{nested}/t.txt", "w") as file:
        file.write("lost")
        raise ZeroDivisionError
    with fsabs.open_url(f"file://{nested}/t.txt", encoding="utf-16") as file:
        assert file.read() == "ä"
    with pytest.raises(IsADirectoryError), fsabs.open_url(f"{nested}/"):
        pass
    with pytest.raises(AttributeError, match="with open_url"):
        json.load(fsabs.open_url(f"{nested}/t.txt"))  # type: ignore[arg-type]
    again = fsabs.open_url(f"{nested}/data.bin/z", "br", force_type="zip")
    for _ in range(2):
        with again as opened:
            assert opened.read() == b"forced"


WRONG: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {  # the call, the error, and its text
    "a mode without a container": (lambda at: fsabs.from_url(at, mode="w"), TypeError, "mode='w'"),
    "a mode of open": (lambda at: fsabs.from_url(at, mode="rb"), ValueError, "r, w, x or a"),
    "no mode": (lambda at: fsabs.from_url(at, mode=""), ValueError, "r, w, x or a"),
    "a store's option": (lambda at: fsabs.from_url(at, fsnyc=1), TypeError, "'fsnyc'; did you mean 'fsync'"),
    "a container's option": (
        lambda at: fsabs.from_url(at / "new.zip", mode="w", compresion="stored"),
        TypeError,
        "'compresion'; did you mean 'compression'",
    ),
    "one path for several": (lambda at: fsabs.from_url(at).read_many("a.txt"), TypeError, "read_many(['a.txt'])"),
    "text for bytes": (
        lambda at: fsabs.from_url(at).write_many([("a.txt", "text")]),  # type: ignore[list-item]
        TypeError,
        "content of 'a.txt'",
    ),
    "a number for bytes": (
        lambda at: fsabs.from_url(at).write_many({"a.txt": 3}),  # type: ignore[arg-type]
        TypeError,
        "content of 'a.txt'",
    ),
    "a URL as a target": (
        lambda at: fsabs.from_url(at).copy_tree("", "", "memory://x"),  # type: ignore[arg-type]
        TypeError,
        "fsabs.from_url('memory://x')",
    ),
    "a URL to pack into": (
        lambda at: fsabs.pack(fsabs.from_url(at), "memory://x", "a.zip"),  # type: ignore[arg-type]
        TypeError,
        "fsabs.from_url('memory://x')",
    ),
    "a URL to unpack": (
        lambda at: fsabs.unpack("memory://x", fsabs.from_url(at)),  # type: ignore[arg-type]
        TypeError,
        "fsabs.from_url('memory://x')",
    ),
    "bytes as a path": (lambda at: fsabs.from_url(os.fsencode(at)), TypeError, "not bytes"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_is_told_what_is_right(tmp_path: Path, wrong: str) -> None:
    call, kind, reason = WRONG[wrong]
    with pytest.raises(kind, match=re.escape(reason)):
        call(tmp_path)


# ---- third parties


class Upper(Memory):
    """A third party's backend."""

    scheme = "upper"

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> Upper:
        return cls(authority.upper(), path)


def test_what_a_program_registers(nested: Path) -> None:
    (nested / "data.bin").rename(nested / "book.CBZ")

    def use() -> list[bytes]:  # in a child: what is registered stays
        fsabs.register_backend("upper", Upper)
        fsabs.from_url("upper://tree/", create=True).write_bytes("a", b"1")
        fsabs.register_container("comic", (".cbz",), fsabs.Zip)
        return [
            fsabs.from_url("memory://TREE/").read_bytes("a"),
            fsabs.from_url(f"{nested}/book.CBZ").read_bytes("z"),
        ]

    assert forked("registering", [use], 30) == [[b"1", b"forced"]]
    with pytest.raises(ValueError, match="already"):
        fsabs.register_backend("s3", Upper)
    for suffix, reason in ((".zip", "already"), ("zip", "dot")):
        with pytest.raises(ValueError, match=reason):
            fsabs.register_container("comic2", (suffix,), fsabs.Zip)


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
