"""Few descriptors, no /proc, no home: what can work works, and the rest says what it needs."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fsabs
from tests import namespaces, scarce
from tests.servers.fixtures import require

pytestmark = pytest.mark.quick

TREE = """
import builtins, errno, os, resource, sys, warnings
import fsabs
warnings.simplefilter("ignore", RuntimeWarning)
folder = sys.argv[1]
fs = fsabs.Local(folder, create=True)
names = [f"f{number}" for number in range(150)]
"""
ALL = """
assert fs.write_many({name: name.encode() * 1000 for name in names}, concurrency=150) == 150
contents = [name.encode() * 1000 for name in names]
for concurrency in (None, 64, 150):
    assert list(fs.read_many(names, concurrency=concurrency)) == contents
for name in ("a.zip", "a.tar.gz", "a.h5"):
    fsabs.pack(fs.subfs(""), fs, name, select=lambda stat: stat.filename in names, concurrency=150)
    with fs.open_container(name) as container:
        assert list(container.read_many(names, concurrency=150)) == contents
        assert len(list(container.list())) == 150
assert fs.copy_tree("", "copy", fsabs.Local(folder + "-copy", create=True), concurrency=150).files == 153
cached = fsabs.from_url(folder, cache=folder + "-cache")
assert list(cached.read_many(names, concurrency=150)) == contents
with fs.open("f1") as file, fs.open("new", "w") as new:
    new.write(file.read())
    os.fstat(file.buffer.fileno())
with fs.as_local("f2") as path, fsabs.Memory("few").open("x", "wb") as out:
    out.write(open(path, "rb").read())
with fsabs.Memory("few").as_local("x") as path:
    assert len(open(path, "rb").read()) == 2000
assert len(list(fs.glob("**/f1*"))) == 61
fs.remove("copy", recursive=True) if fs.exists("copy") else None
print("done")
"""
DESCRIPTORS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
"""
TOO_MANY = """
held = []
try:
    while True:
        held.append(fs.open("f1", "rb"))
except OSError as exc:
    assert exc.errno == errno.EMFILE and exc.filename == fs.url("f1"), exc
    assert "ulimit -n" in str(exc), exc
    held.clear()
assert fs.read_bytes("f1")
print("said")
"""
NO_PROC = """
def without_proc(function):
    def call(path, *args, **kwargs):
        if isinstance(path, str) and path.startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return function(path, *args, **kwargs)
    return call

isdir = os.path.isdir
os.path.isdir = lambda path: not str(path).startswith("/proc") and isdir(path)
builtins.open, os.open, os.readlink = without_proc(open), without_proc(os.open), without_proc(os.readlink)
"""

READ_ONLY_ROOT = """
for folder in {folders}; do mount --rbind "$folder" "$folder" && mount -o remount,bind,ro "$folder" || exit 3; done
cd "$1" && shift && exec "$@"
"""
READ_ONLY = """
import errno, os, sys, warnings
import fsabs
folder = sys.argv[1]
names = [f"f{number}" for number in range(20)]
contents = [name.encode() * 1000 for name in names]
fs = fsabs.Local(folder)
for subject in (fs, *map(fs.open_container, ("a.zip", "a.tar", "a.tar.gz", "a.h5"))):
    assert list(subject.read_many(names)) == contents
    assert len(list(subject.list())) >= len(names)
    with subject.open("f3", "r") as file, subject.as_local("f3") if subject is fs else open(os.devnull):
        assert file.read() == contents[3].decode()
warnings.simplefilter("ignore", RuntimeWarning)
cached = fsabs.from_url(folder, cache=True)
assert list(cached.read_many(names)) == contents
def refused(operation, *arguments):
    try:
        operation(*arguments)
    except OSError as exc:
        return exc
    raise AssertionError(operation)
for operation, arguments in (
    (fs.write_bytes, ("new", b"x")), (fs.remove, ("f1",)), (fs.mkdir, ("d",)), (fs.rename, ("f1", "f2")),
    (fsabs.pack, (fs.subfs(""), fs, "b.zip")), (fs.open, ("f1", "a")), (fs.open, ("f1", "r+")), (fs.open, ("f1", "w")),
):
    exc = refused(operation, *arguments)
    assert exc.errno == errno.EROFS and folder in str(exc.filename), (operation, exc)
exc = refused(fs.open_container("a.zip").as_local("f1").__enter__)
assert "temporary directory" in str(exc), exc
print("done")
"""


def ran(script: str, folder: Path, **environment: str) -> str:
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        timeout=90,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sixty_four_descriptors(tmp_path: Path) -> None:
    assert ran(TREE + DESCRIPTORS + ALL + TOO_MANY, tmp_path / "tree").split() == ["done", "said"]


def test_no_proc(tmp_path: Path) -> None:
    assert ran(TREE.replace("import fsabs\n", NO_PROC + "import fsabs\n") + ALL, tmp_path / "tree") == "done\n"


def test_no_home_and_no_temporary_directory_of_its_own(tmp_path: Path) -> None:
    nowhere = {"HOME": "/dev/null/home", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "", "TMPDIR": "/dev/null/temporary"}
    default = """
cached = fsabs.from_url(folder, cache=True)
assert cached.read_bytes("f1") == contents[1]
try:
    fsabs.cache.FileCache(10)
except OSError as exc:
    assert "/dev/null/home" in str(exc), exc
print("default")
"""
    assert ran(TREE + ALL + default, tmp_path / "tree", FSABS_CACHE_DIR="", **nowhere).split() == ["done", "default"]


def test_read_only_root(tmp_path: Path) -> None:
    """All places where Python looks for a temporary directory, and home, can only be read."""
    require(namespaces.missing)
    fs = fsabs.Local(tmp_path / "tree", create=True)
    fs.write_many((f"f{number}", f"f{number}".encode() * 1000) for number in range(20))
    for name in ("a.zip", "a.tar", "a.tar.gz", "a.h5"):
        fsabs.pack(fs.subfs(""), fs, name, select=lambda stat: stat.filename[0] == "f")
    places = ["/tmp", "/var", "/usr", "/dev/shm", os.path.expanduser("~"), str(tmp_path)]
    folders = " ".join(shlex.quote(path) for path in places if os.path.isdir(path))
    command = [*namespaces.IN_ONE, "sh", "-c", READ_ONLY_ROOT.format(folders=folders), "sh", str(tmp_path / "tree")]
    command += [sys.executable, "-c", READ_ONLY, str(tmp_path / "tree")]
    variables = {**os.environ, "FSABS_CACHE_DIR": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=variables, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so, also where the first temporary file is made: Python's is that no directory was found."""
    fs = fsabs.Memory()
    fs.write_bytes("x", b"1")
    with fs.open_zip("a.zip", "w") as archive:
        archive.write_many((f"{number}", b"1") for number in range(100))
    local = fsabs.Local(tmp_path / "tree", create=True)
    with fs.open_zip("a.zip") as archive:
        fsabs.unpack(archive, fsabs.Memory(), workers=1)
        fsabs.cache.FileCache(10, dir=tmp_path / "items").close()

        def fails(url: str, call: Callable[[], object]) -> None:
            with scarce.no_descriptors(), pytest.raises(OSError) as caught:
                call()
            assert (caught.value.errno, url in str(caught.value.filename)) == (errno.EMFILE, True), caught.value

        monkeypatch.setattr(tempfile, "tempdir", None)
        fails(fs.url("x"), fs.as_local("x").__enter__)
        for workers in (1, 2):
            fails("file:///", lambda workers=workers: fsabs.unpack(archive, local, workers=workers))  # type: ignore[misc]
        fails(str(tmp_path), lambda: fsabs.cache.FileCache(10, dir=tmp_path / "items"))
    assert os.listdir(tmp_path / "tree") == []
