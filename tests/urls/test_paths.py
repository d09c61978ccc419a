"""`fsabs.Path` against `pathlib.Path`: the same calls on the same tree give the same answers, on every FS."""

from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fsabs
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


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    """The tree for pathlib, which is the reference."""
    root = tmp_path / "reference"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(params=["local", "memory", "zip", "fs", "fs-local", "s3", "zip on s3"])
def root(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: Any) -> Iterator[fsabs.Path]:
    """The same tree, made without `Path`."""
    roots.clear()
    kind, bucket = request.param, ""
    if "s3" in kind:
        server: MotoServer = request.getfixturevalue("moto")
        bucket = unique("paths")
        server.create_bucket(bucket)
        for name, value in server_environment(server).items():
            monkeypatch.setenv(name, value)
    urls = {
        "local": str(tmp_path / "ours"),
        "memory": f"memory://paths{tmp_path.name}/ours",
        "zip": str(tmp_path / "deep.zip" / "ours"),
        "fs": f"memory://fs{tmp_path.name}/ours",
        "fs-local": str(tmp_path / "ours"),
        "s3": f"s3://{bucket}/ours",
        "zip on s3": f"s3://{bucket}/deep.zip/ours",
    }
    url = urls[kind]
    inside = "zip" in kind
    with fsabs.from_url(url.removesuffix("/ours") if inside else url, create=True) as fs:
        for name, data in FILES.items():
            if not inside:
                fs.makedirs(name.rpartition("/")[0], exist_ok=True) if fs.capabilities.mkdir else None
            fs.write_bytes(f"ours/{name}" if inside else name, data)
    if kind.startswith("fs"):
        with fsabs.from_url(url) as fs:
            yield fsabs.Path(fs=fs)
    else:
        yield fsabs.Path(url)
    roots.clear()


def server_environment(server: Any) -> dict[str, str]:
    """What makes `s3://` the server's."""
    return {
        "S3_ENDPOINT": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": server.region,
    }


def below(base: Any, paths: Any) -> list[str]:
    """The paths, relative to the base, sorted."""
    return sorted(str(path.relative_to(base)) for path in paths)


def outcome(function: Any) -> Any:
    """What a call returns, or the type of what it raises."""
    try:
        return function()
    except Exception as exc:
        return type(exc)


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


PATTERNS = [
    "*",
    "*.txt",
    "*/*",
    "images/*/1.jpg",
    "**",
    "**/*",
    "**/*.jpg",
    "images/**/*.jpg",
    "images/cat/[[]x]*",
    "*/**/cat",
    "images/???",
    "i[a-m]ages/[!c]*",
    "images/cat/1.jpg",
    "images/none",
    "missing/*",
    "a.txt/*",
    ".*/*",
    "images/*/",
    "**/cat/*",
    "images/cat/[x][?].png",
]


def test_glob(root: fsabs.Path, local: pathlib.Path) -> None:
    for pattern in PATTERNS:
        assert below(root, root.glob(pattern)) == below(local, local.glob(pattern)), pattern
        assert below(root, root.rglob(pattern)) == below(local, sorted(set(local.rglob(pattern)))), pattern


def test_glob_and_links(tmp_path: pathlib.Path) -> None:
    for name in ("real/sub/x", "real/y", "other/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/up").symlink_to("..")
    (tmp_path / "other/file").symlink_to("z")
    ours, theirs = fsabs.Path(tmp_path), pathlib.Path(tmp_path)
    for pattern in (
        "**/x",
        "**/*",
        "*/**/x",
        "**",
        "**/sub/x",
        "**/*/x",
        "link/**/*",
        "**/link/*",
        "**/**/x",
        "*/x",
        "**/",
    ):
        assert below(ours, ours.glob(pattern)) == below(theirs, set(theirs.glob(pattern))), pattern
        assert below(ours, ours.rglob(pattern)) == below(theirs, set(theirs.rglob(pattern))), pattern
    assert below(ours, ours.glob("**/y", recurse_symlinks=True)) == ["link/y", "real/y"]


def test_glob_of_the_parent(root: fsabs.Path, local: pathlib.Path) -> None:
    for pattern in ("..", "images/..", "missing/.."):
        assert below(root, root.glob(pattern)) == below(local, local.glob(pattern)), pattern


def test_patterns_that_are_refused(root: fsabs.Path, local: pathlib.Path) -> None:
    for pattern in ("", "/abs", "**a") if sys.version_info < (3, 13) else ("", "/abs"):
        assert outcome(lambda p=pattern: list(root.glob(p))) is outcome(lambda p=pattern: list(local.glob(p)))


def test_writing(root: fsabs.Path, local: pathlib.Path) -> None:
    if "zip" in str(root):
        path, data = root / "new.txt", root.parent.read_bytes()
        container = root.parent.as_uri()
        for write in (
            lambda: path.write_text("x"),
            lambda: path.write_bytes(b"x"),
            lambda: path.open("ab"),
            lambda: path.open("r+b"),
            lambda: path.as_local("w").__enter__(),
            lambda: (root.parent.parent / "new.zip" / "x").write_bytes(b"x"),
            path.touch,
            path.mkdir,
            (root / "a.txt").unlink,
        ):
            with pytest.raises(io.UnsupportedOperation):
                write()
        with pytest.raises(io.UnsupportedOperation, match=re.escape(f"{container} once, by from_url") + '.*mode="a"'):
            path.write_bytes(b"x")
        assert root.parent.read_bytes() == data
        assert not (root.parent.parent / "new.zip").exists()
        with fsabs.from_url(container, mode="a") as archive:
            archive.write_text("ours/new.txt", "grüße\n", "utf-8")
        assert path.read_text("utf-8") == "grüße\n"
        assert (root / "a.txt").read_bytes() == FILES["a.txt"]
        return
    for base in (root, local):
        (base / "new" / "deep").mkdir(parents=True)
        (base / "new" / "deep").mkdir(exist_ok=True)
        assert outcome(lambda b=base: (b / "new").mkdir()) is FileExistsError
        assert (base / "new/x.bin").write_bytes(memoryview(b"12345")) == 5
        assert (base / "new/t.txt").write_text("grüße\n", "utf-8", newline="\r\n") == 6
        assert (base / "new/t.txt").read_bytes() == "grüße\r\n".encode()
        assert outcome(lambda b=base: (b / "new/t.txt").write_text(b"x")) is TypeError
        (base / "new/touched").touch()
        (base / "new/touched").touch()
        assert outcome(lambda b=base: (b / "new/touched").touch(exist_ok=False)) is FileExistsError
        assert outcome(lambda b=base: (b / "new/x.bin").open("x")) is FileExistsError
        moved = (base / "new/x.bin").rename(base / "new/y.bin")
        assert moved == base / "new/y.bin"
        moved.replace(base / "new/t.txt")
        assert (base / "new/t.txt").read_bytes() == b"12345"
        assert outcome(lambda b=base: (b / "new").rmdir()) is OSError
        (base / "new/t.txt").unlink()
        assert outcome(lambda b=base: (b / "new/t.txt").unlink()) is FileNotFoundError
        (base / "new/t.txt").unlink(missing_ok=True)
        assert outcome(lambda b=base: (b / "new/touched").rmdir()) is NotADirectoryError
    (root / "new" / "deep").rmdir()
    assert not (root / "new" / "deep").exists()


def test_many_files_are_written_at_once(root: fsabs.Path) -> None:
    if not root.fs.capabilities.write or not root.fs.capabilities.mkdir:
        return  # it is only read
    (root / "many").mkdir()
    assert (root / "many").write_many((f"{number}.txt", b"%d" % number) for number in range(20)) == 20
    assert (root / "many").write_many({"0.txt": b"0"}) == 1
    assert sorted(int(path.read_text()) for path in (root / "many").iterdir()) == list(range(20))


def test_as_local(root: fsabs.Path) -> None:
    with (root / "a.txt").as_local() as local:
        assert pathlib.Path(local).read_bytes() == FILES["a.txt"]
        assert local.endswith("a.txt")
    if "zip" in str(root):
        return  # in which nothing is written by its URL
    with (root / "made.bin").as_local("w") as local:
        pathlib.Path(local).write_bytes(b"made")
    assert (root / "made.bin").read_bytes() == b"made"
    with pytest.raises(KeyError), (root / "none.bin").as_local("w") as local:
        pathlib.Path(local).write_bytes(b"half")
        raise KeyError
    assert not (root / "none.bin").exists()
    assert not os.path.exists(local)


def test_a_local_copy_that_is_only_read_can_not_be_written_to() -> None:
    path = fsabs.Path("a.bin", fs=fsabs.Memory())
    path.write_bytes(b"1")
    with path.as_local() as local:
        assert os.stat(local).st_mode & 0o222 == 0


def test_open_aborts_as_an_fs_does(root: fsabs.Path) -> None:
    if "zip" in str(root):
        return
    with pytest.raises(KeyError), (root / "a.txt").open("w") as file:
        file.write("half")
        raise KeyError
    assert (root / "a.txt").read_bytes() == FILES["a.txt"]


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


@pytest.mark.parametrize("text", ["/", "/a", "/a/b/c.tar.gz", "/a/./b//c", "/a/../b", "/.x", "/a b/ü%", "/a/b."])
@pytest.mark.parametrize("drive", ["s3://bucket", "memory://n", ""])
def test_names_are_pathlibs(drive: str, text: str) -> None:
    theirs = pathlib.PurePosixPath(text)
    ours = fsabs.Path(f"{drive}/x").parent.joinpath(*theirs.parts)
    for function in LEXICAL:
        found, expected = outcome(lambda f=function: f(ours)), outcome(lambda f=function: f(theirs))
        assert found == expected, (text, LEXICAL.index(function))
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


def test_a_file_that_is_a_container_is_both(tmp_path: pathlib.Path) -> None:
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as fs:
        fs.write_bytes("d/x.txt", b"in")
    path = fsabs.Path(tmp_path) / "a.zip"
    assert path.is_file()
    assert not path.is_dir()
    assert path.stat().st_size == (tmp_path / "a.zip").stat().st_size
    assert [str(found) for found in path.rglob("*.txt")] == [f"{path}/d/x.txt"]
    assert list(fsabs.Path(tmp_path).rglob("*.txt")) == []
    (tmp_path / "real.zip").mkdir()
    (tmp_path / "real.zip" / "f").write_bytes(b"plain")
    assert (fsabs.Path(tmp_path) / "real.zip/f").read_bytes() == b"plain"


def test_a_replaced_container_is_opened_again(tmp_path: pathlib.Path) -> None:
    path = fsabs.Path(tmp_path, "a.zip")
    for content in (b"one", b"two"):
        with fsabs.from_url(str(path), mode="w") as fs:
            fs.write_bytes("x", content)
        assert (path / "x").read_bytes() == content
    path.unlink()
    assert not (path / "x").exists()


def test_a_directory_that_becomes_a_container_and_back_is_opened_again(tmp_path: pathlib.Path) -> None:
    plain, path = tmp_path / "a.zip", fsabs.Path(tmp_path, "a.zip")
    for content in (b"one", b"two"):
        plain.mkdir()
        (plain / "x").write_bytes(content)
        assert (path / "x").read_bytes() == content
        (plain / "x").unlink()
        plain.rmdir()
        with fsabs.from_url(str(path), mode="w") as fs:
            fs.write_bytes("x", b"packed " + content)
        assert (path / "x").read_bytes() == b"packed " + content
        assert [member.name for member in path.iterdir()] == ["x"]
        plain.unlink()


def test_what_becomes_a_directory_on_s3_is_written_to_at_once(moto: MotoServer, monkeypatch: Any) -> None:
    for name, value in server_environment(moto).items():
        monkeypatch.setenv(name, value)
    roots.clear()
    moto.create_bucket("turned")
    path = fsabs.Path("s3://turned/a.zip")
    with fsabs.from_url(str(path), mode="w") as fs:
        fs.write_bytes("x", b"packed")
    assert (path / "x").read_bytes() == b"packed"
    path.unlink()
    fsabs.from_url("s3://turned/").write_bytes("a.zip/x", b"plain")
    (path / "y").write_bytes(b"written")
    assert (path / "x").read_bytes() == b"plain"
    (path / "x").unlink()
    (path / "y").unlink()
    with fsabs.from_url(str(path), mode="w") as fs:
        fs.write_bytes("x", b"packed again")
    assert (path / "x").read_bytes() == b"packed again"
    roots.clear()


def test_a_container_replaced_on_s3_is_noticed(moto: MotoServer, monkeypatch: Any) -> None:
    for name, value in server_environment(moto).items():
        monkeypatch.setenv(name, value)
    roots.clear()
    moto.create_bucket("replaced")
    path = fsabs.Path("s3://replaced/a.zip")
    for number, content in enumerate((b"first content", b"second")):
        with fsabs.from_url(str(path), mode="w") as fs:
            fs.write_bytes("x", content)
            fs.write_bytes(f"only{number}", content)
        assert (path / "x").read_bytes() == content
        assert (path / f"only{number}").read_bytes() == content
    roots.clear()


@pytest.mark.parametrize("offline", [False, True])
def test_a_container_replaced_on_s3_is_noticed_through_a_cache(
    moto: MotoServer, monkeypatch: Any, tmp_path: pathlib.Path, offline: bool
) -> None:
    for name, value in server_environment(moto).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(roots, "CHECK_SECONDS", 0.0)
    moto.create_bucket(f"cached{offline:d}")
    url = f"s3://cached{offline:d}/a.zip"
    table = roots.Roots({"cache": {"dir": str(tmp_path / "cache"), "offline": offline}})
    for content in (b"first content", b"second", b"third"):
        with fsabs.from_url(url, mode="w") as fs:
            fs.write_bytes("x", content)
        assert table.call(f"{url}/x", lambda fs, path: fs.read_bytes(path)) == content


def test_a_container_in_memory_that_is_replaced_is_noticed_in_time(moto: MotoServer, monkeypatch: Any) -> None:
    """At the next look at its file: what is read from memory sends no request."""
    for name, value in server_environment(moto).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(roots, "CHECK_SECONDS", 0.5)
    roots.clear()
    moto.create_bucket("held")
    path = fsabs.Path("s3://held/a.zip")
    for content in (b"first content", b"second"):
        with fsabs.from_url(str(path), mode="w") as fs:
            fs.write_bytes("x", content)
        time.sleep(0.6)
        assert {(path / "x").read_bytes() for _ in range(40)} == {content}
    roots.clear()


def test_paths_across_stores(tmp_path: pathlib.Path) -> None:
    path = fsabs.Path("memory://a/x")
    path.write_bytes(b"1")
    with pytest.raises(OSError) as raised:
        path.rename("memory://b/x")
    assert raised.value.errno == 18
    assert path.rename("moved") == fsabs.Path("memory://a/moved")


def test_a_file_below_the_root_is_not_one_of_the_working_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no such file of the root.txt").write_bytes(b"of the working directory")
    monkeypatch.chdir(tmp_path)
    roots.clear()
    with pytest.raises(FileNotFoundError) as raised:
        fsabs.Path("/no such file of the root.txt").read_bytes()
    assert raised.value.filename == "file:///no%20such%20file%20of%20the%20root.txt"
    roots.clear()


def test_the_table_of_roots_is_bounded(tmp_path: pathlib.Path) -> None:
    roots.clear()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(roots.LIMIT + 20):
        name = tmp_path / f"{number}.zip"
        with fsabs.from_url(name, mode="w") as fs:
            fs.write_bytes("x", b"%d" % number)
        assert (fsabs.Path(name) / "x").read_bytes() == b"%d" % number
    assert len(roots.with_options({})) <= roots.LIMIT
    assert len(os.listdir("/proc/self/fd")) <= before + roots.LIMIT
    roots.clear()


def test_a_fork_reads_on(tmp_path: pathlib.Path) -> None:
    code = f"""
import fsabs, os, threading
path = fsabs.Path({str(tmp_path)!r}, "a.zip")
with fsabs.from_url(str(path), mode="w") as fs:
    fs.write_bytes("x", b"in")
stop = False
def read():
    while not stop:
        assert (path / "x").read_bytes() == b"in"
threads = [threading.Thread(target=read) for _ in range(2)]
[thread.start() for thread in threads]
statuses = []
for _ in range(20):
    pid = os.fork()
    if not pid:
        ok = (path / "x").read_bytes() == b"in"
        os._exit(not ok)
    statuses.append(os.waitpid(pid, 0)[1])
stop = True
[thread.join() for thread in threads]
assert statuses == [0] * 20, statuses
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_copies_and_moves_to_any_store(root: fsabs.Path, tmp_path: pathlib.Path) -> None:
    target = fsabs.Path(tmp_path / "copies")
    target.mkdir()
    tree = {name.removeprefix("images/"): data for name, data in FILES.items() if name.startswith("images/")}
    assert (root / "a.txt").copy(target / "b.txt") == target / "b.txt"
    assert (root / "a.txt").copy_into(target) == target / "a.txt"
    assert (root / "images").copy(target / "tree") == target / "tree"
    assert (root / "images").copy_into(target) == target / "images"
    for folder in ("tree", "images"):
        assert {
            str(path.relative_to(target / folder)): path.read_bytes() for path in files_below(target / folder)
        } == tree
    with pytest.raises(FileExistsError):
        (root / "images").copy(target / "tree")
    with pytest.raises(FileNotFoundError):
        (root / "nonesuch").copy(target / "x")
    (target / "b.txt").write_bytes(b"other")
    assert (root / "a.txt").copy(target / "b.txt").read_bytes() == FILES["a.txt"]
    if root.fs.capabilities.remove:
        assert (root / "images").move(target / "moved") == target / "moved"
        assert {
            str(path.relative_to(target / "moved")): path.read_bytes() for path in files_below(target / "moved")
        } == tree
        assert not (root / "images").exists()
        (root / "a.txt").move(target / "moved.txt")
        assert (target / "moved.txt").move(target / "again.txt").read_bytes() == FILES["a.txt"]
        assert [path.name for path in root.iterdir() if path.name == "a.txt"] == []
        (target / "again.txt").move_into(root)
        assert (root / "again.txt").read_bytes() == FILES["a.txt"]
    else:
        with pytest.raises(io.UnsupportedOperation):
            (root / "images").move(target / "moved")


@pytest.mark.quick
def test_what_is_moved_into_an_archive_that_is_dropped_is_not_lost(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    refused = pytest.raises(io.UnsupportedOperation, match="once that is closed")
    with refused, fsabs.from_url(f"{tmp_path}/x.zip", mode="w") as archive:
        fsabs.Path(tmp_path / "a").move(fsabs.Path("a", fs=archive))
    assert (tmp_path / "a").read_bytes() == b"a"


def files_below(path: fsabs.Path) -> list[fsabs.Path]:
    return [found for found in path.rglob("*") if found.is_file()]


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


def test_the_kind_of_file_is_asked_for_once(root: fsabs.Path, tmp_path: pathlib.Path) -> None:
    for name, kind in (("a.txt", "file"), ("images", "dir"), ("nonesuch", "none")):
        info = (root / name).info
        assert (info.is_file(), info.is_dir(), info.exists(), info.is_symlink()) == (
            kind == "file",
            kind == "dir",
            kind != "none",
            False,
        )
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "l").symlink_to("x")
    info = fsabs.Path(tmp_path / "l").info
    assert (info.is_file(), info.is_file(follow_symlinks=False), info.is_symlink()) == (True, False, True)
    (tmp_path / "x").unlink()
    assert (info.is_file(), info.exists(follow_symlinks=False)) == (True, True)


def test_a_target_of_pathlib_is_on_the_local_disk(tmp_path: pathlib.Path) -> None:
    path = fsabs.Path("memory://pathlib-target/a.txt")
    path.write_text("text")
    assert path.copy(tmp_path / "b.txt") == fsabs.Path(tmp_path / "b.txt")
    assert path.copy_into(tmp_path).read_text() == (tmp_path / "a.txt").read_text() == "text"
    path.move(tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == "text"
    assert not path.exists()


def test_the_fs_of_a_url_is_the_callers_own(tmp_path: pathlib.Path) -> None:
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as archive:
        archive.write_bytes("x", b"top")
        archive.write_bytes("d/x", b"deeper")
    for url in (f"{tmp_path}/a.zip/x", "memory://own/x"):
        path = fsabs.Path(url)
        if url.startswith("memory:"):
            (path.parent / "d").mkdir()
            path.write_bytes(b"top")
        fs = path.fs
        fs.cwd = "d"
        assert path.read_bytes() == b"top"
        fs.close()
        assert path.read_bytes() == b"top"


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


def test_a_scheme_that_is_replaced_is_opened_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = fsabs.Path("added:///x"), fsabs.Path("written:///x")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
        (tmp_path / f"{name}.ini").write_text(f"[written]\nscheme = file\nprefix = {tmp_path}/{name}\n")
        monkeypatch.setenv("PFIO_CONFIG_PATH", f"{tmp_path}/{name}.ini")
        fsabs.add_custom_scheme("added", "file", {"prefix": f"{tmp_path}/{name}"})
        assert [path.read_text() for path in paths] == [name, name]
    roots.clear()
