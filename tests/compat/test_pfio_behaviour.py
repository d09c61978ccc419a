"""The same calls on PFIO 2.10 and here give the same results and errors: on local files, S3, zips, paths and caches."""

from __future__ import annotations

import functools
import operator
import os
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pfio
import pytest
from moto import mock_aws

import fsabs.compat.pfio as ours
from fsabs.compat.pfio.testing import ZipForTest, make_http_server

pytestmark = pytest.mark.quick

FILES = {"file": b"foo", "dir": {"f": b"bar\nbaz\n", "sub": {"g.txt": b"x" * 1000}}, "dir2": {"h": b""}}
FEW_FILES = {"file": b"foo", "dir": {"f": b"bar"}}
PATHS = (
    "",
    ".",
    "file",
    "dir",
    "dir/",
    "dir//f",
    "dir/../file",
    "dir/sub/g.txt",
    "di",
    "none",
    "none/x",
    "file/x",
    "/",
)


def _tree(fs: Any, data: dict[str, Any], above: str = "") -> None:
    for name, content in data.items():
        if isinstance(content, dict):
            fs.makedirs(above + name, exist_ok=True)
            _tree(fs, content, f"{above}{name}/")
        else:
            with fs.open(above + name, "wb") as file:
                file.write(content)


KINDS = ("local", pytest.param("s3", marks=pytest.mark.nightly), "s3 prefix", "zip", "zip without directories")


@pytest.fixture(params=KINDS)
def pair(request: Any, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """An FS of PFIO's and one of ours on the same files, or on equal ones."""
    kind: str = request.param
    with ExitStack() as stack:
        if kind.startswith("s3"):
            stack.enter_context(mock_aws())
        made = []
        for package in (pfio, ours):
            folder = str(tmp_path / "tree")
            if kind == "local":
                fs = package.v2.Local(folder, create=True)
            elif kind.startswith("s3"):
                fs = package.v2.S3("bucket", "base" if "prefix" in kind else None, create_bucket=True)
            else:
                ZipForTest(f"{folder}.zip", FILES)
                if kind == "zip":
                    _add_directories(f"{folder}.zip")
                fs = package.v2.local.open_zip(f"{folder}.zip")
                stack.callback(fs.close)
            if not kind.startswith("zip"):
                _tree(fs, FILES)
            made.append(fs)
        yield made[0], made[1]


def _add_directories(path: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for name in ("dir/", "dir/sub/", "dir2/"):
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFDIR | 0o755) << 16
            archive.writestr(info, b"")


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives: its value, or its exception."""
    try:
        return call()
    except Exception as exc:
        return exc


def same(theirs: Any, here: Any) -> bool:
    """Whether an outcome is PFIO's; an error here may be of more classes."""
    if isinstance(theirs, Exception):
        return isinstance(here, type(theirs))
    return bool(theirs == here) and not isinstance(here, Exception)


def _read(fs: Any, path: str, **options: Any) -> Any:
    with fs.open(path, **options) as file:
        return file.read()


def _detail(fs: Any, path: str, recursive: bool) -> list[tuple[Any, ...]]:
    return sorted(
        (one.filename, one.isdir(), None if one.isdir() else one.size) for one in fs.list(path, recursive, True)
    )


def _fields(stat_: Any) -> dict[str, Any]:
    fields = {name: value for name, value in vars(stat_).items() if not name.startswith("_")}
    return {name: value for name, value in fields.items() if not name.startswith("last_accessed")}


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "list": lambda fs, path: sorted(fs.list(path)),
    "list recursive": lambda fs, path: sorted(fs.list(path, recursive=True)),
    "list detail": lambda fs, path: _detail(fs, path, False),
    "list recursive detail": lambda fs, path: _detail(fs, path, True),
    "exists": lambda fs, path: fs.exists(path),
    "isdir": lambda fs, path: fs.isdir(path),
    "stat": lambda fs, path: _fields(fs.stat(path)),
    "stat str": lambda fs, path: str(fs.stat(path)),
    "read": lambda fs, path: _read(fs, path, mode="rb"),
    "read text": lambda fs, path: _read(fs, path, mode="r"),
    "name": lambda fs, path: fs._canonical_name(path),
}

IMPLIED = {"dir", "dir/"}
DIFFERENT = {
    # call, FS: paths. docs/coming-from.md says why.
    **{(call, kind): {"/"} for call in CALLS if not call.startswith(("list", "isdir")) for kind in ("s3", "s3 prefix")},
    ("exists", "zip without directories"): IMPLIED,
    ("stat", "zip without directories"): IMPLIED,
    ("stat str", "zip without directories"): IMPLIED,
    ("list recursive", "zip"): IMPLIED,
    ("list recursive", "zip without directories"): IMPLIED,
    ("list recursive detail", "zip"): IMPLIED,
    ("list recursive detail", "zip without directories"): IMPLIED,
    ("list detail", "zip"): {"", ".", "/", *IMPLIED},
    ("list detail", "zip without directories"): {"", ".", "/", *IMPLIED},
}


def test_calls(pair: tuple[Any, Any], request: Any) -> None:
    kind = request.node.callspec.params["pair"]
    wrong = {}
    for name, call in CALLS.items():
        for path in PATHS:
            if (kind, path) == ("local", "/") and name.startswith("list recursive"):
                continue  # all of this machine
            theirs, here = (outcome(functools.partial(call, fs, path)) for fs in pair)
            if not same(theirs, here) and path not in DIFFERENT.get((name, kind), ()):
                wrong[name, path] = (theirs, here)
    assert not wrong
    theirs, here = pair
    assert sorted(here.list()) == sorted(theirs.list()) == sorted(here.list(None)) == sorted(theirs.list(None))


def _write(fs: Any, path: str, data: bytes) -> Any:
    with fs.open(path, "wb") as file:
        return file.write(data)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "write": lambda fs: _write(fs, "new", b"123"),
    "write text": lambda fs: [fs.open("t", "w", encoding="utf-8").close(), _read(fs, "t")],
    "remove": lambda fs: (fs.remove("file"), None)[1],
    "remove missing": lambda fs: fs.remove("none"),
    "rename": lambda fs: (fs.rename("file", "moved"), None)[1],
    "rename over": lambda fs: (fs.rename("file", "dir/f"), None)[1],
    "mkdir": lambda fs: fs.mkdir("made"),
    "mkdir twice": lambda fs: [fs.mkdir("made"), fs.mkdir("made")],
    "mkdir below none": lambda fs: fs.mkdir("a/b"),
    "makedirs": lambda fs: fs.makedirs("a/b"),
    "makedirs twice": lambda fs: [fs.makedirs("a/b"), fs.makedirs("a/b")],
    "makedirs exist_ok": lambda fs: [fs.makedirs("a/b"), fs.makedirs("a/b", exist_ok=True)],
    "subfs": lambda fs: _read(fs.subfs("dir"), "f"),
    "subfs climbing": lambda fs: fs.subfs("../dir"),
    "subfs absolute": lambda fs: fs.subfs("/dir"),
    "append": lambda fs: fs.open("file", "a").close(),
    "odd mode": lambda fs: fs.open("file", "rw"),
    "forked": lambda fs: (fs.is_forked, fs.is_traced),
    "scheme": lambda fs: fs.scheme,
    "cwd": lambda fs: fs.cwd,
}


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_changes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {}
    with ExitStack() as stack:
        if kind == "s3":
            stack.enter_context(mock_aws())
        for number, (name, change) in enumerate(CHANGES.items()):
            found = []
            for package in (pfio, ours):
                if kind == "s3":
                    fs = package.v2.S3(f"{package.__name__[-4:]}{number}", create_bucket=True)
                else:
                    fs = package.v2.Local("tree", create=True)
                _tree(fs, FEW_FILES)
                found.append((outcome(functools.partial(change, fs)), sorted(fs.list(recursive=True))))
                if kind == "local":
                    shutil.rmtree("tree")
            (theirs, left), (here, left_here) = found
            if not same(theirs, here) or left != left_here:
                wrong[name] = found
    assert not wrong


URLS = (".", "tree", "tree/", "none", "tree.zip", "nowhere://x", "x.zip")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"force_type": "file"},
    {"force_type": "zip"},
    {"force_type": "s3"},
    {"create": True},
)


@pytest.mark.parametrize("url", URLS)
def test_from_url(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(tmp_path / "none.ini"))
    wrong = []
    for options in OPTIONS:
        found = []
        for package in (pfio, ours):
            for name in ("none", "tree"):
                if os.path.isdir(name):
                    os.rmdir(name)
            os.mkdir("tree")
            ZipForTest("tree.zip")
            made = outcome(functools.partial(package.v2.from_url, url, **options))
            found.append(made if isinstance(made, Exception) else (type(made).__name__, made.scheme))
            if not isinstance(made, Exception):
                made.close()
        if not same(*found):
            wrong.append((options, found))
    assert not wrong


NOT_SUPPORTED = (
    *("cwd", "home", "expanduser", "group", "owner", "is_mount", "is_symlink", "is_socket", "is_fifo"),
    *("lstat", "readlink", "walk"),
)
PATH_CALLS: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "repr": repr,
    "bytes": bytes,
    "fspath": os.fspath,
    "parts": lambda path: path.parts,
    "parents": lambda path: [str(one) for one in path.parents],
    "name": lambda path: (
        path.name,
        path.stem,
        path.suffix,
        path.suffixes,
        path.root,
        path.anchor,
        path.drive,
        path.sep,
    ),
    "uri": lambda path: path.as_uri(),
    "absolute": lambda path: str(path.absolute()),
    "resolve": lambda path: str(path.resolve()),
    "resolve strictly": lambda path: str(path.resolve(strict=True)),
    "join": lambda path: [str(path / "a"), str("a" / path), str(path.joinpath("b", "/c"))],
    "odd join": lambda path: str(path / 1),
    "with": lambda path: [str(path.with_name("n")), str(path.with_suffix(".x")), str(path.with_stem("s"))],
    "relative": lambda path: str(path.relative_to("dir")),
    "is relative": lambda path: path.is_relative_to("dir"),
    "match": lambda path: path.absolute().match("*F"),
    "match case": lambda path: path.absolute().match("*F", case_sensitive=True),
    "is": lambda path: (path.exists(), path.is_file(), path.is_dir(), path.is_absolute(), path.is_junction()),
    "iterdir": lambda path: sorted(str(one) for one in path.iterdir()),
    "glob all": lambda path: sorted(str(one) for one in path.glob("*")),
    "rglob all": lambda path: sorted(str(one) for one in path.rglob("*")),
    "read": lambda path: path.read_bytes(),
    "read text": lambda path: path.read_text(),
    "stat": lambda path: path.stat().size,
    "no links": lambda path: path.stat(follow_symlinks=False),
    **{name: operator.methodcaller(name) for name in NOT_SUPPORTED},
}


IN_ZIPS = {("", "is"), ("", "iterdir"), ("dir", "rglob all"), ("dir", "stat")}
"""Paths and calls for which PFIO is wrong in a zip. It can't read text there at all."""


@pytest.mark.parametrize("pair", ["local", "zip", pytest.param("s3 prefix", marks=pytest.mark.nightly)], indirect=True)
def test_paths(pair: tuple[Any, Any], request: Any) -> None:
    kind = request.node.callspec.params["pair"]
    wrong = {}
    # PFIO refuses these whatever the path is, and looks at the whole stack and every module of the process for it.
    root = pfio.v2.Path("", fs=pair[0])
    refused = {name: outcome(functools.partial(PATH_CALLS[name], root)) for name in NOT_SUPPORTED}
    for name, call in PATH_CALLS.items():
        for text in ("", "file", "dir", "dir/f", "/dir/sub/g.txt", "none", "dir/../file"):
            on = [package.v2.Path(text, fs=fs) for fs, package in zip(pair, (pfio, ours), strict=True)]
            theirs = refused[name] if name in refused else outcome(functools.partial(call, on[0]))
            here = outcome(functools.partial(call, on[1]))
            differs = kind.startswith("zip") and (name == "read text" or (text, name) in IN_ZIPS)
            if not same(theirs, here) and not differs:
                wrong[name, text] = (theirs, here)
    assert not wrong


def test_http_caches_share_a_server(tmp_path: Path) -> None:
    """Each reads what the other has put, from the server and not from the file."""
    ZipForTest(str(tmp_path / "a.zip"))
    (tmp_path / "f").write_bytes(b"content")
    with make_http_server() as (server, port):
        assert server.server_address[0] == "127.0.0.1"  # for this machine alone
        handler: Any = server.RequestHandlerClass
        url, files = f"http://localhost:{port}/", handler.files
        for first, second in ((pfio, ours), (ours, pfio)):
            files.clear()
            assert first.cache.HTTPCache(3, url + "items", do_pickle=True).put(1, [1])
            assert second.cache.HTTPCache(3, url + "items", do_pickle=True).get(1) == [1]
            kept: dict[str, bytes] = {}
            for package in (first, second):
                fs = package.v2.from_url(str(tmp_path), http_cache=url)
                assert _read(fs, "f", mode="rb") == b"content"
                with fs.open_zip("a.zip") as archive, package.v2.HTTPCachedFS(url, archive) as cached:
                    assert _read(cached, "dir/f", mode="rb") == b"bar"
                    if package is ours:  # under the same name
                        assert _read(cached.subfs("dir"), "f", mode="rb") == b"bar"
                kept = kept or dict(files)
                assert files == kept
            files[f"/file:/{tmp_path}/f"] = b"changed"
            assert _read(second.v2.from_url(str(tmp_path), http_cache=url), "f", mode="rb") == b"changed"


def test_a_file_that_is_dropped_is_kept(tmp_path: Path) -> None:
    """PFIO's scripts leave files to the garbage collector, as builtin `open` lets them."""
    import gc

    with ours.v2.from_url(str(tmp_path)) as fs:
        fs.open("dropped", "w").write("text")
        gc.collect()
        assert (tmp_path / "dropped").read_text() == "text"


def test_entries_of_zips_without_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ZipForTest(str(tmp_path / "a.zip"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # where 1980 begins before it does in UTC
    time.tzset()
    try:
        with ours.v2.from_url(str(tmp_path / "a.zip")) as archive:
            assert archive.stat("dir").isdir()
            assert sorted(found.filename for found in archive.list(detail=True)) == ["dir/", "file"]
    finally:
        monkeypatch.undo()
        time.tzset()
