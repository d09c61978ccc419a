"""`fsabs.Path` against `pathlib.Path`: the same calls on the same tree give the same answers, on every FS."""

from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsabs
from fsabs.testing.children import forked, results, start_threads
from fsabs.urls import roots
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

pytestmark = pytest.mark.quick

FILES = {
    "a.txt": b"alpha\r\nbeta\n",
    "b.tar.gz.bin": b"\x00\x01",
    ".hidden/x.jpg": b"hidden",
    "images/cat/1.jpg": b"cat 1",
    "images/cat/2.jpg": b"cat 2",
    "images/cat/[x]?.png": b"odd",
    "images/dog/1.JPG": b"dog",
    "images/empty.txt": b"",
}
LIVE = ["local", "memory", "fs", "fs-local", pytest.param("s3", marks=pytest.mark.nightly)]


@pytest.fixture(autouse=True)
def _no_roots() -> Iterator[None]:
    """Begin and end with no FS of other tests."""
    roots.clear()
    yield
    roots.clear()


@pytest.fixture
def bucket(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket."""
    for variable, value in moto.environment.items():
        monkeypatch.setenv(variable, value)
    name = unique("paths")
    moto.create_bucket(name)
    return f"s3://{name}"


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    """The tree for pathlib, which is the reference."""
    root = tmp_path / "reference"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(params=[*LIVE, "zip"])
def root(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> fsabs.Path:
    """The same tree, made without `Path`."""
    return tree(request, tmp_path)


@pytest.fixture(params=LIVE)
def live(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> fsabs.Path:
    """The same tree, on an FS that can be written to."""
    return tree(request, tmp_path)


def tree(request: pytest.FixtureRequest, folder: pathlib.Path) -> fsabs.Path:
    """Make the tree on the FS that the fixture is for."""
    kind = request.param
    if kind == "zip":
        with fsabs.from_url(folder / "deep.zip", create=True) as fs:
            for name, data in FILES.items():
                fs.write_bytes(f"ours/{name}", data)
        return fsabs.Path(folder / "deep.zip" / "ours")
    if kind == "s3":
        url = f"{request.getfixturevalue('bucket')}/ours"
    else:
        url = str(folder / "ours") if "local" in kind else f"memory://{kind}{folder.name}/ours"
    fs = fsabs.from_url(url, create=True)
    request.addfinalizer(fs.close)
    for name, data in FILES.items():
        if fs.capabilities.mkdir:
            fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.write_bytes(name, data)
    return fsabs.Path(fs=fs) if kind.startswith("fs") else fsabs.Path(url)


def below(base: Any, paths: Any) -> list[str]:
    """The paths, relative to the base, sorted."""
    return sorted(str(path.relative_to(base)) for path in paths)


def contents(folder: fsabs.Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the type of what it raises."""
    try:
        return function(*arguments)
    except Exception as exc:
        return type(exc)


# ---- what is there


def test_questions_and_contents(root: fsabs.Path, local: pathlib.Path) -> None:
    for name in [*FILES, "images", "images/cat", "missing", "a.txt/below", "images/nul\0", "images/half\udfff"]:
        ours, theirs = root / name, local / name
        for question in ("exists", "is_file", "is_dir", "is_symlink", "is_mount", "is_fifo", "is_socket"):
            assert outcome(getattr(ours, question)) == outcome(getattr(theirs, question)), (name, question)
        for reader in ("read_bytes", "read_text", "stat", "lstat"):
            found, expected = outcome(getattr(ours, reader)), outcome(getattr(theirs, reader))
            if isinstance(expected, os.stat_result):
                if theirs.is_file():
                    assert found.st_size == expected.st_size
                assert (found.st_mode & 0o170000) == (expected.st_mode & 0o170000)
                if found.st_mtime > 1e9:  # a zip that is made reproducibly has its files in 1980
                    assert abs(found.st_mtime - expected.st_mtime) < 120
            elif name == "a.txt/below":
                assert found in (FileNotFoundError, NotADirectoryError)  # a store without directories: as it is missing
            else:
                assert found == expected, (name, reader)


def test_the_kind_of_file_is_asked_for_once(root: fsabs.Path, tmp_path: pathlib.Path) -> None:
    for name, kind in (("a.txt", "file"), ("images", "dir"), ("nonesuch", "none")):
        info = (root / name).info
        assert (info.is_file(), info.is_dir()) == (kind == "file", kind == "dir")
        assert (info.exists(), info.is_symlink()) == (kind != "none", False)
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "l").symlink_to("x")
    info = fsabs.Path(tmp_path / "l").info
    assert (info.is_file(), info.is_file(follow_symlinks=False), info.is_symlink()) == (True, False, True)
    (tmp_path / "x").unlink()
    assert (info.is_file(), info.exists(follow_symlinks=False)) == (True, True)


def test_listings(root: fsabs.Path, local: pathlib.Path) -> None:
    assert below(root, root.iterdir()) == below(local, local.iterdir())
    assert below(root, (root / "images").iterdir()) == below(local, (local / "images").iterdir())
    assert outcome(lambda: list((root / "missing").iterdir())) is FileNotFoundError
    assert outcome(lambda: list((root / "a.txt").iterdir())) is NotADirectoryError
    ours = {str(path.relative_to(root)): (sorted(dirs), sorted(files)) for path, dirs, files in root.walk()}
    theirs = {os.path.relpath(path, local): (sorted(dirs), sorted(files)) for path, dirs, files in os.walk(local)}
    assert ours == theirs
    pruned = []
    for path, dirs, _ in root.walk():
        pruned.append(path.name)
        dirs[:] = [name for name in dirs if name == "images"]
    assert pruned[1:] == ["images"]
    assert [path for path, _, _ in root.walk(top_down=False)][-1] == root
    seen: list[OSError] = []
    assert list((root / "missing").walk(on_error=seen.append)) == []
    assert isinstance(seen[0], FileNotFoundError)


# fmt: off
PATTERNS = [
    "*", "*.txt", "*/*", "images/*/1.jpg", "**", "**/*", "**/*.jpg", "images/**/*.jpg", "images/cat/[[]x]*",
    "*/**/cat", "images/???", "i[a-m]ages/[!c]*", "images/cat/1.jpg", "images/none", "missing/*", "a.txt/*", ".*/*",
    "images/*/", "**/cat/*", "images/cat/[x][?].png",
]
# fmt: on
REFUSED = ["", "/abs", *(["**a"] if sys.version_info < (3, 13) else [])]


def test_glob(root: fsabs.Path, local: pathlib.Path) -> None:
    for pattern in PATTERNS:
        assert below(root, root.glob(pattern)) == below(local, local.glob(pattern)), pattern
        assert below(root, root.rglob(pattern)) == below(local, sorted(set(local.rglob(pattern)))), pattern
    for pattern in ("..", "images/..", "missing/.."):
        assert below(root, root.glob(pattern)) == below(local, local.glob(pattern)), pattern
    for pattern in REFUSED:
        assert outcome(globbed, root, pattern) is outcome(globbed, local, pattern), pattern


def globbed(base: Any, pattern: str) -> list[Any]:
    return list(base.glob(pattern))


def test_glob_and_links(tmp_path: pathlib.Path) -> None:
    for name in ("real/sub/x", "real/y", "other/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/up").symlink_to("..")
    (tmp_path / "other/file").symlink_to("z")
    ours, theirs = fsabs.Path(tmp_path), pathlib.Path(tmp_path)
    patterns = ("**/x", "**/*", "*/**/x", "**", "**/sub/x", "**/*/x", "link/**/*", "**/link/*", "**/**/x", "*/x", "**/")
    for pattern in patterns:
        assert below(ours, ours.glob(pattern)) == below(theirs, set(theirs.glob(pattern))), pattern
        assert below(ours, ours.rglob(pattern)) == below(theirs, set(theirs.rglob(pattern))), pattern
    assert below(ours, ours.glob("**/y", recurse_symlinks=True)) == ["link/y", "real/y"]


# ---- what changes files


def test_writing(live: fsabs.Path, local: pathlib.Path) -> None:
    for base in (live, local):
        (base / "new" / "deep").mkdir(parents=True)
        (base / "new" / "deep").mkdir(exist_ok=True)
        assert outcome((base / "new").mkdir) is FileExistsError
        assert (base / "new/x.bin").write_bytes(memoryview(b"12345")) == 5
        assert (base / "new/t.txt").write_text("grüße\n", "utf-8", newline="\r\n") == 6
        assert (base / "new/t.txt").read_bytes() == "grüße\r\n".encode()
        assert outcome((base / "new/t.txt").write_text, b"x") is TypeError
        (base / "new/touched").touch()
        (base / "new/touched").touch()
        assert outcome((base / "new/touched").touch, 0o666, False) is FileExistsError
        assert outcome((base / "new/x.bin").open, "x") is FileExistsError
        moved = (base / "new/x.bin").rename(base / "new/y.bin")
        assert moved == base / "new/y.bin"
        moved.replace(base / "new/t.txt")
        assert (base / "new/t.txt").read_bytes() == b"12345"
        assert outcome((base / "new").rmdir) is OSError
        (base / "new/t.txt").unlink()
        assert outcome((base / "new/t.txt").unlink) is FileNotFoundError
        (base / "new/t.txt").unlink(missing_ok=True)
        assert outcome((base / "new/touched").rmdir) is NotADirectoryError
        (base / "new" / "deep").rmdir()
        assert not (base / "new" / "deep").exists()


def test_a_file_is_whole_and_many_are_written_at_once(live: fsabs.Path) -> None:
    with pytest.raises(KeyError), (live / "a.txt").open("w") as file:
        file.write("half")
        raise KeyError
    assert (live / "a.txt").read_bytes() == FILES["a.txt"]
    (live / "many").mkdir()
    assert (live / "many").write_many((f"{number}.txt", b"%d" % number) for number in range(20)) == 20
    assert (live / "many").write_many({"0.txt": b"0"}) == 1
    assert sorted(int(path.read_text()) for path in (live / "many").iterdir()) == list(range(20))


def test_nothing_is_written_into_a_container_by_its_url(tmp_path: pathlib.Path) -> None:
    archive = fsabs.Path(tmp_path / "a.zip")
    with fsabs.from_url(archive.as_uri(), mode="w") as packed:
        packed.write_bytes("a.txt", b"old")
    data, path = archive.read_bytes(), archive / "new.txt"
    calls: list[Callable[[], object]] = [
        lambda: path.write_text("x"),
        lambda: path.open("r+b"),
        lambda: path.as_local("w").__enter__(),
        lambda: (archive.parent / "new.zip" / "x").write_bytes(b"x"),
        path.touch,
        path.mkdir,
        (archive / "a.txt").unlink,
        lambda: (archive / "a.txt").move(tmp_path / "moved"),
    ]
    for write in calls:
        with pytest.raises(io.UnsupportedOperation):
            write()
    said = re.escape(f"{archive.as_uri()} once, by from_url") + '.*mode="a"'
    with pytest.raises(io.UnsupportedOperation, match=said):
        path.write_bytes(b"x")
    assert (archive.read_bytes(), os.listdir(tmp_path)) == (data, ["a.zip"])
    with fsabs.from_url(archive.as_uri(), mode="a") as added:
        added.write_text("new.txt", "grüße\n", "utf-8")
    assert path.read_text("utf-8") == "grüße\n"
    assert (archive / "a.txt").read_bytes() == b"old"


def test_as_local(live: fsabs.Path) -> None:
    with (live / "a.txt").as_local() as local:
        assert pathlib.Path(local).read_bytes() == FILES["a.txt"]
        assert local.endswith("a.txt")
    with (live / "made.bin").as_local("w") as local:
        pathlib.Path(local).write_bytes(b"made")
    assert (live / "made.bin").read_bytes() == b"made"
    with pytest.raises(KeyError), (live / "none.bin").as_local("w") as local:
        pathlib.Path(local).write_bytes(b"half")
        raise KeyError
    assert not (live / "none.bin").exists()
    assert not os.path.exists(local)


def test_copies_and_moves_to_any_store(root: fsabs.Path, tmp_path: pathlib.Path) -> None:
    target = fsabs.Path(tmp_path / "copies")
    target.mkdir()
    images = {name.removeprefix("images/"): data for name, data in FILES.items() if name.startswith("images/")}
    assert (root / "a.txt").copy(target / "b.txt") == target / "b.txt"
    assert (root / "a.txt").copy_into(target) == target / "a.txt"
    assert (root / "images").copy(target / "tree") == target / "tree"
    assert (root / "images").copy_into(target) == target / "images"
    assert contents(target / "tree") == contents(target / "images") == images
    with pytest.raises(FileExistsError):
        (root / "images").copy(target / "tree")
    with pytest.raises(FileNotFoundError):
        (root / "nonesuch").copy(target / "x")
    (target / "b.txt").write_bytes(b"other")
    assert (root / "a.txt").copy(target / "b.txt").read_bytes() == FILES["a.txt"]


def test_moves_to_any_store(live: fsabs.Path, tmp_path: pathlib.Path) -> None:
    target = fsabs.Path(tmp_path / "moves")
    target.mkdir()
    images = contents(live / "images")
    assert (live / "images").move(target / "moved") == target / "moved"
    assert contents(target / "moved") == images
    assert not (live / "images").exists()
    (live / "a.txt").move(target / "moved.txt")
    assert (target / "moved.txt").move(target / "again.txt").read_bytes() == FILES["a.txt"]
    assert not (live / "a.txt").exists()
    (target / "again.txt").move_into(live)
    assert (live / "again.txt").read_bytes() == FILES["a.txt"]


def test_what_is_moved_into_an_archive_that_is_dropped_is_not_lost(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    refused = pytest.raises(io.UnsupportedOperation, match="once that is closed")
    with refused, fsabs.from_url(f"{tmp_path}/x.zip", mode="w") as archive:
        fsabs.Path(tmp_path / "a").move(fsabs.Path("a", fs=archive))
    assert (tmp_path / "a").read_bytes() == b"a"


@pytest.mark.parametrize("method", ["copy_into", "move_into"])
def test_a_path_without_a_name_is_not_put_into_a_directory(tmp_path: pathlib.Path, method: str) -> None:
    (tmp_path / "target").mkdir()
    for path in (fsabs.Path("memory://store"), fsabs.Path("/")):
        with pytest.raises(ValueError, match="has an empty name"):
            getattr(path, method)(tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())


def test_a_tree_is_not_copied_into_itself_and_links_stay_links(tmp_path: pathlib.Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"a")
    (tmp_path / "d/l").symlink_to("a")
    path = fsabs.Path(tmp_path / "d")
    with pytest.raises(OSError, match="itself"):
        path.copy(path / "new")
    copied = path.copy(tmp_path / "e", follow_symlinks=False)
    assert os.readlink(tmp_path / "e/l") == "a"
    assert (copied / "l").copy(tmp_path / "l", follow_symlinks=False).is_symlink()
    with pytest.raises(OSError, match="the same file"):
        (path / "l").copy(path / "a")
    with pytest.raises(FileNotFoundError, match="an empty path names nothing"):
        fsabs.Path("", fs=fsabs.Local(tmp_path / "d")).move(tmp_path / "moved")
    assert (tmp_path / "d/a").read_bytes() == b"a"


def test_a_target_of_pathlib_is_on_the_local_disk_and_no_rename_leaves_a_store(tmp_path: pathlib.Path) -> None:
    path = fsabs.Path("memory://pathlib-target/a.txt")
    path.write_text("text")
    assert path.copy(tmp_path / "b.txt") == fsabs.Path(tmp_path / "b.txt")
    assert path.copy_into(tmp_path).read_text() == (tmp_path / "a.txt").read_text() == "text"
    with pytest.raises(OSError) as raised:
        path.rename("memory://other/x")
    assert raised.value.errno == 18
    path = path.rename("moved")
    assert path == fsabs.Path("memory://pathlib-target/moved")
    path.move(tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == "text"
    assert not path.exists()


# ---- what a path says


def test_a_path_pickles_hashes_and_sorts(root: fsabs.Path) -> None:
    path = root / "images" / "cat" / "1.jpg"
    other = pickle.loads(pickle.dumps(path))
    assert (other, hash(other), copy.deepcopy(path), str(other)) == (path, hash(path), path, str(path))
    assert other.read_bytes() == b"cat 1"
    assert sorted([root / "b", root / "a" / "z", root / "a"]) == [root / "a", root / "a" / "z", root / "b"]
    assert path != pathlib.PurePosixPath(str(path))
    assert {path: 1}[root / "images/cat/1.jpg"] == 1


LEXICAL = [
    lambda p: p.name, lambda p: p.stem, lambda p: p.suffix, lambda p: p.suffixes, lambda p: p.is_absolute(),
    lambda p: p.with_name("z").name, lambda p: p.with_suffix(".z").name, lambda p: p.with_stem("z").name,
    lambda p: p.with_name("x/y"), lambda p: p.with_suffix("z"), lambda p: len(p.parents), lambda p: len(p.parts),
    lambda p: [q.name for q in p.parents], lambda p: p.parent.name, lambda p: (p / "../x").name, lambda p: p.root,
    lambda p: p.match("*.gz"), lambda p: p.match("b/*"), lambda p: p.match("B/*"), lambda p: p.match("a*"),
    lambda p: p.match("a/*/*"), lambda p: p.match(""), lambda p: p.joinpath("q", "r").parts[-2:],
    lambda p: p.parts[1:], lambda p: p.is_reserved(), lambda p: p / 1,
]  # fmt: skip


@pytest.mark.parametrize("drive", ["s3://bucket", "memory://n", ""])
def test_names_are_pathlibs(drive: str) -> None:
    for text in ("/", "/a", "/a/b/c.tar.gz", "/a/./b//c", "/a/../b", "/.x", "/a b/ü%", "/a/b."):
        theirs = pathlib.PurePosixPath(text)
        ours = fsabs.Path(f"{drive}/x").parent.joinpath(*theirs.parts)
        for function in LEXICAL:
            assert outcome(function, ours) == outcome(function, theirs), (text, LEXICAL.index(function))
        assert fsabs.Path(str(ours)) == ours


def test_urls() -> None:
    path = fsabs.Path("s3://bucket/a%20b/c%23.txt")
    assert (path.name, path.parent.name) == ("c#.txt", "a b")
    assert str(path) == path.as_uri() == path.as_posix() == "s3://bucket/a%20b/c%23.txt"
    assert (path.drive, path.root, path.anchor) == ("s3://bucket", "/", "s3://bucket/")
    assert path.parts == ("s3://bucket/", "a b", "c#.txt")
    assert str(path / "d?e") == "s3://bucket/a%20b/c%23.txt/d%3Fe"
    assert path.relative_to("s3://bucket/a%20b") == pathlib.PurePosixPath("c#.txt")
    assert fsabs.Path("s3://bucket/x") / path.relative_to("s3://bucket") == fsabs.Path("s3://bucket/x/a%20b/c%23.txt")
    assert path.relative_to("s3://bucket/x/y", walk_up=True) == pathlib.PurePosixPath("../../a b/c#.txt")
    assert path.is_relative_to("s3://bucket")
    assert not path.is_relative_to("s3://other")
    assert path / "s3://other/y" == fsabs.Path("s3://other/y")
    assert path / "/y" == fsabs.Path("s3://bucket/y")
    assert path.resolve() == path
    assert (path / "../z").resolve() == fsabs.Path("s3://bucket/a b/z")
    assert path.full_match("s3://bucket/**/*.txt")
    assert not path.full_match("s3://bucket/*.txt")
    assert path.full_match("**/*.txt")
    assert not path.full_match("*.txt")
    assert fsabs.Path("file:///tmp/a%20b") == fsabs.Path("/tmp/a b")
    assert fsabs.Path.from_uri("s3://b/x") == fsabs.Path("s3://b/x")
    assert repr(fsabs.Path("s3://b/x")) == "Path('s3://b/x')"
    with pytest.raises(ValueError, match="different stores"):
        path.relative_to("s3://other/a")


def test_the_operating_system_gets_local_paths_only(tmp_path: pathlib.Path) -> None:
    assert os.fspath(fsabs.Path(tmp_path)) == str(tmp_path)
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as fs:
        fs.write_bytes("x", b"in")
    with fsabs.from_url(tmp_path) as fs:
        assert os.fspath(fsabs.Path("a.zip", fs=fs)) == str(tmp_path / "a.zip")
    for path in (fsabs.Path("s3://b/x"), fsabs.Path(tmp_path, "a.zip/x"), fsabs.Path("x", fs=fsabs.Memory())):
        with pytest.raises(TypeError, match="as_local"):
            os.fspath(path)
    with pytest.raises(OSError, match="local disk"):
        fsabs.Path("s3://b/x").chmod(0o600)
    link = fsabs.Path(tmp_path, "link")
    link.symlink_to(tmp_path / "a.zip")
    assert link.is_symlink()
    assert link.readlink() == fsabs.Path(tmp_path / "a.zip")
    assert link.samefile(tmp_path / "a.zip")
    assert link.owner() == pathlib.Path(link).owner()


def test_a_host_in_a_file_url_is_refused() -> None:
    assert fsabs.Path("file://localhost/tmp/x") == fsabs.Path("/tmp/x")
    path = fsabs.Path("file://tmp/no such file")  # not /no such file
    with pytest.raises(ValueError, match="names no host"):
        path.exists()
    with pytest.raises(ValueError, match="names no host"):
        path.write_bytes(b"")
    with pytest.raises(TypeError):
        os.fspath(path)


def test_one_file_is_told_from_another_of_its_url() -> None:
    with fsabs.Memory() as one, fsabs.Memory() as other:
        for fs in (one, other):
            fs.write_bytes("x", b"")
        assert fsabs.Path("x", fs=one).samefile(fsabs.Path("/x", fs=one))
        assert not fsabs.Path("x", fs=one).samefile(fsabs.Path("x", fs=other))


def test_a_file_below_the_root_is_not_one_of_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no such file of the root.txt").write_bytes(b"of the working directory")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as raised:
        fsabs.Path("/no such file of the root.txt").read_bytes()
    assert raised.value.filename == "file:///no%20such%20file%20of%20the%20root.txt"


# ---- the FS that a URL's path is on


def pack(url: object, content: bytes, name: str = "x") -> None:
    """Make an archive of one file."""
    with fsabs.from_url(str(url), mode="w") as fs:
        fs.write_bytes(name, content)


def test_a_file_that_is_a_container_is_both(tmp_path: pathlib.Path) -> None:
    pack(tmp_path / "a.zip", b"in", "d/x.txt")
    path = fsabs.Path(tmp_path) / "a.zip"
    assert path.is_file()
    assert not path.is_dir()
    assert path.stat().st_size == (tmp_path / "a.zip").stat().st_size
    assert [str(found) for found in path.rglob("*.txt")] == [f"{path}/d/x.txt"]
    assert list(fsabs.Path(tmp_path).rglob("*.txt")) == []
    (tmp_path / "real.zip").mkdir()
    (tmp_path / "real.zip" / "f").write_bytes(b"plain")
    assert (fsabs.Path(tmp_path) / "real.zip/f").read_bytes() == b"plain"


def test_a_directory_that_becomes_a_container_and_back_is_opened_again(tmp_path: pathlib.Path) -> None:
    plain, path = tmp_path / "a.zip", fsabs.Path(tmp_path, "a.zip")
    for content in (b"one", b"two"):
        plain.mkdir()
        (plain / "x").write_bytes(content)
        assert (path / "x").read_bytes() == content
        (plain / "x").unlink()
        plain.rmdir()
        for packed in (b"packed", b"replaced"):
            pack(path, packed + content)
            assert (path / "x").read_bytes() == packed + content
        assert [member.name for member in path.iterdir()] == ["x"]
        plain.unlink()
        assert not (path / "x").exists()


def test_what_becomes_a_directory_on_s3_is_written_to_at_once(bucket: str) -> None:
    path = fsabs.Path(f"{bucket}/a.zip")
    pack(path, b"packed")
    assert (path / "x").read_bytes() == b"packed"
    path.unlink()
    fsabs.from_url(f"{bucket}/").write_bytes("a.zip/x", b"plain")
    (path / "y").write_bytes(b"written")
    assert (path / "x").read_bytes() == b"plain"
    (path / "x").unlink()
    (path / "y").unlink()
    pack(path, b"packed again")
    assert (path / "x").read_bytes() == b"packed again"


def test_a_container_replaced_on_s3_is_noticed(bucket: str) -> None:
    """By the first read of what the old one does not have, or has at another place."""
    path = fsabs.Path(f"{bucket}/a.zip")
    for number, content in enumerate((b"first content", b"second")):
        with fsabs.from_url(str(path), mode="w") as fs:
            fs.write_bytes("x", content)
            fs.write_bytes(f"only{number}", content)
        assert (path / "x").read_bytes() == content
        assert (path / f"only{number}").read_bytes() == content


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that lets some seconds pass."""
    monotonic, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed[0])

    def let_pass(seconds: float) -> None:
        passed[0] += seconds

    return let_pass


@pytest.mark.parametrize("cache", [None, "on", "offline"])
def test_a_container_of_a_store_is_looked_at_again_after_some_seconds(
    bucket: str, tmp_path: pathlib.Path, pass_time: Callable[[float], None], cache: str | None
) -> None:
    """What is read from memory, or from a cache, sends no request that would tell."""
    url = f"{bucket}/a.zip"
    options = {"cache": {"dir": str(tmp_path / "cache"), "offline": cache == "offline"}} if cache else {}
    table = roots.Roots(options)
    for content in (b"first content", b"second", b"third"):
        pack(url, content)
        pass_time(2 * roots.CHECK_SECONDS)
        assert {table.call(f"{url}/x", lambda fs, path: fs.read_bytes(path)) for _ in range(40)} == {content}


def test_the_table_of_roots_is_bounded(tmp_path: pathlib.Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(roots.LIMIT + 20):
        pack(tmp_path / f"{number}.zip", b"%d" % number)
        assert (fsabs.Path(tmp_path / f"{number}.zip") / "x").read_bytes() == b"%d" % number
    assert len(roots.with_options({})) <= roots.LIMIT
    assert len(os.listdir("/proc/self/fd")) <= before + roots.LIMIT


def test_a_fork_reads_on(tmp_path: pathlib.Path) -> None:
    path, stop = fsabs.Path(tmp_path, "a.zip"), threading.Event()
    pack(path, b"in")

    def read() -> None:
        while not stop.is_set():
            assert (path / "x").read_bytes() == b"in"

    threads = start_threads("reading a path", [read, read])
    try:
        assert forked("reading a path", [(path / "x").read_bytes] * 10, 30) == [b"in"] * 10
    finally:
        stop.set()
        results("reading a path", threads, 30)


def test_the_fs_of_a_url_is_the_callers_own(tmp_path: pathlib.Path) -> None:
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as archive:
        archive.write_bytes("x", b"top")
        archive.write_bytes("d/x", b"deeper")
    fsabs.Path("memory://own/d").mkdir(parents=True)
    fsabs.Path("memory://own/x").write_bytes(b"top")
    for url in (f"{tmp_path}/a.zip/x", "memory://own/x"):
        path = fsabs.Path(url)
        fs = path.fs
        fs.cwd = "d"
        assert path.read_bytes() == b"top"
        fs.close()
        assert path.read_bytes() == b"top"


def test_a_scheme_that_is_replaced_is_opened_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fsabs.Path("added:///x"), fsabs.Path("written:///x")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
        (tmp_path / f"{name}.ini").write_text(f"[written]\nscheme = file\nprefix = {tmp_path}/{name}\n")
        monkeypatch.setenv("PFIO_CONFIG_PATH", f"{tmp_path}/{name}.ini")
        fsabs.add_custom_scheme("added", "file", {"prefix": f"{tmp_path}/{name}"})
        assert [path.read_text() for path in paths] == [name, name]
