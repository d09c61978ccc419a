"""Files that are replaced: from outside as by builtin `open`, private until they are published, whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.core import process
from fsabs.core.stats import FileStat
from fsabs.core.writing import PARTIAL_SUFFIX
from fsabs.disk import files
from fsabs.disk.descriptors import open_ours
from fsabs.disk.files import Replacement
from fsabs.disk.folders import Folder
from fsabs.testing.children import forked
from tests.users import ALICE, BOB, access_list, as_user, needs_root, shared_folder

pytestmark = pytest.mark.quick
WAYS = ("write_bytes", "open", "copy", "write_many", "container")


def write(folder: Path, name: str, data: bytes, way: str) -> None:
    """Make `data` the content of a file, in one of the ways in which files are written."""
    fs = fsabs.Local(folder)
    if way == "write_bytes":
        fs.write_bytes(name, data)
    elif way == "write_many":
        fs.write_many([(name, data)])
    elif way == "open":
        with fs.open(name, "wb") as file:
            file.write(data)
    elif way == "copy":
        memory = fsabs.Memory()
        memory.write_bytes("source", data)
        memory.copy("source", name, fs)
    else:
        with fs.open_container(name, "w", force_type="zip") as archive:
            archive.write_bytes("member", data)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(PARTIAL_SUFFIX)]


# ---- what replaces a file looks like it


@pytest.mark.parametrize("way", WAYS)
def test_permissions_stay_and_setuid_goes(tmp_path: Path, way: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    for mode in (0o600, 0o640, 0o755, 0o4755, 0o2755, 0o1666):
        path.chmod(mode)
        write(tmp_path, "x", b"new", way)
        assert mode_of(path) == mode & 0o777
        assert os.listdir(tmp_path) == ["x"]


def test_a_new_file_has_what_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for way in WAYS:
            write(tmp_path, way, b"new", way)
            assert mode_of(tmp_path / way) == 0o640
    finally:
        os.umask(before)


def protect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse what nearly every one does, by `fs.protected_symlinks` and `fs.protected_regular`.

    In a directory like `/tmp` it follows no link of another user, and opens no file of theirs where one could be made.
    """
    stat_, open_ = os.stat, os.open

    def check(path: object, kind: int) -> None:
        if isinstance(path, str) and os.path.lexists(path):
            there, folder = os.lstat(path), os.lstat(os.path.dirname(path))
            stranger = there.st_uid not in (os.geteuid(), folder.st_uid) and folder.st_mode & 0o1002 == 0o1002
            if stranger and stat.S_IFMT(there.st_mode) == kind:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def protected_stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if follow_symlinks:
            check(path, stat.S_IFLNK)
        return stat_(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    def protected_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and not flags & os.O_EXCL:
            check(path, stat.S_IFREG)
        if not flags & os.O_NOFOLLOW:
            check(path, stat.S_IFLNK)
        return open_(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "stat", protected_stat)
    monkeypatch.setattr(os, "open", protected_open)


@needs_root
@pytest.mark.parametrize("there", [True, False])
def test_a_strangers_link_in_a_directory_like_tmp_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Where builtin `open` is refused: what the link leads to is the writer's own."""
    folder, victim = shared_folder(), tmp_path / "victim"
    if there:
        victim.write_bytes(b"precious")
    as_user(BOB, lambda: (folder / "x").symlink_to(victim))
    protect(monkeypatch)
    for way in WAYS:
        with pytest.raises(PermissionError):
            write(folder, "x", b"new", way)
    monkeypatch.undo()
    assert victim.read_bytes() == b"precious" if there else not victim.exists()
    assert os.listdir(folder) == ["x"]
    assert os.listdir(tmp_path) == ["victim"] * there


@needs_root
def test_a_strangers_file_in_a_directory_like_tmp_gets_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where builtin `open` is refused: whoever put it there, writable for all, would read what is written."""
    folder = shared_folder()
    (folder / "x").write_bytes(b"")
    (folder / "x").chmod(0o666)
    os.chown(folder / "x", BOB, BOB)
    protect(monkeypatch)
    for way in WAYS:
        for writer in (0, ALICE):
            with pytest.raises(PermissionError):
                as_user(writer, lambda way=way: write(folder, "x", b"secret", way))  # type: ignore[misc]
    monkeypatch.undo()
    assert (folder / "x").read_bytes() == b""
    assert os.listdir(folder) == ["x"]


@needs_root
def test_a_group_that_the_writer_is_in_stays() -> None:
    folder = shared_folder(0o777)
    path = folder / "x"
    path.write_bytes(b"old")
    os.chown(path, ALICE, BOB)
    path.chmod(0o660)
    inode = path.stat().st_ino
    as_user(ALICE, lambda: write(folder, "x", b"new", "write_bytes"), groups=(BOB,))
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (ALICE, BOB, 0o660)
    assert path.stat().st_ino != inode
    inode = path.stat().st_ino
    as_user(ALICE, lambda: write(folder, "x", b"again", "write_bytes"))  # not in the group: it can't be kept
    assert (path.stat().st_ino, path.stat().st_gid, path.read_bytes()) == (inode, BOB, b"again")


def attributed(path: Path) -> None:
    """Give a file an extended attribute."""
    if not hasattr(os, "setxattr"):
        pytest.skip("a system without extended attributes")
    os.setxattr(path, "user.origin", b"camera 7")


def test_extended_attributes_stay(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    attributed(path)
    for way in WAYS:
        write(tmp_path, "x", b"new", way)
        assert os.getxattr(path, "user.origin") == b"camera 7"


def test_a_failed_block_leaves_a_file_that_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    attributed(path)

    def refuse(*args: object, **named: object) -> None:
        raise PermissionError(errno.EPERM, "no attributes")

    monkeypatch.setattr(os, "setxattr", refuse)
    fs = fsabs.Local(tmp_path)
    with pytest.raises(ZeroDivisionError), fs.open("x", "wb") as file:
        file.write(b"new")
        file.flush()
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    inode = path.stat().st_ino
    fs.write_bytes("x", b"new")
    assert (path.read_bytes(), path.stat().st_ino, hidden(tmp_path)) == (b"new", inode, [])


def test_a_hard_link_is_broken_and_a_symbolic_one_is_followed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    os.link(tmp_path / "x", tmp_path / "hard")
    (tmp_path / "soft").symlink_to("x")
    fs = fsabs.Local(tmp_path)
    fs.write_bytes("soft", b"new")
    assert (tmp_path / "soft").is_symlink()
    assert ((tmp_path / "x").read_bytes(), (tmp_path / "hard").read_bytes()) == (b"new", b"old")


def test_a_copied_files_mode_and_time(tmp_path: Path) -> None:
    like = FileStat("", 3, False, 1234567890.5, stat.S_IFREG | 0o6711)

    def copy(name: str, *, moved: bool = False) -> None:
        with Replacement(str(tmp_path / name)) as out:
            out.keep(like, moved=moved)
            out.write(b"new")

    copy("new")
    assert (mode_of(tmp_path / "new"), (tmp_path / "new").stat().st_mtime) == (0o711, 1234567890.5)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o640)
    copy("old")
    assert (mode_of(tmp_path / "old"), (tmp_path / "old").stat().st_mtime) == (0o640, 1234567890.5)
    copy("old", moved=True)
    assert mode_of(tmp_path / "old") == 0o711


@pytest.mark.parametrize("lacks", ["nothing", "unnamed files", "links"])
def test_a_small_new_file_is_written_at_once(tmp_path: Path, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no /proc")

    if lacks == "unnamed files":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif lacks == "links":
        monkeypatch.setattr(os, "link", link)
    path = tmp_path / "x"
    unnamed = lacks == "nothing" and hasattr(os, "O_TMPFILE")
    for mode, expected in ((0o640, 0o640), (0o777, 0o777), (0, 0), (None, 0o666 & ~process.umask())):
        written = files.write_new(str(path), b"new", mode, 1_234_567_890_500_000_000, durable=True)
        assert written == unnamed
        if not unnamed:  # then it is written as any other
            assert os.listdir(tmp_path) == []
            continue
        assert (mode_of(path), path.stat().st_mtime) == (expected, 1234567890.5)
        assert not files.write_new(str(path), b"newer", mode, None)
        path.chmod(0o600)
        assert path.read_bytes() == b"new"
        path.unlink()
    (tmp_path / "l").symlink_to("nothing")
    assert not files.write_new(str(tmp_path / "l"), b"new", None, None)
    assert not files.write_new(str(tmp_path / "none/x"), b"", None, None)
    assert os.listdir(tmp_path) == ["l"]


# ---- nobody else sees it before


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no such lists")
def test_a_directorys_access_list_lets_nobody_read_a_private_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", access_list(BOB))
    except OSError:
        pytest.skip("this file system has no such lists")
    try:
        (tmp_path / "builtin").touch()  # others get nothing, whatever the umask says
        fs, memory = fsabs.Local(tmp_path), fsabs.Memory()
        memory.mkdir("d")
        for name in ("d/small", "d/large"):
            memory.write_bytes(name, bytes(2_000_000) if name == "d/large" else b"x")
        memory.copy_tree("d", ".", fs)
        for name in ("small", "large"):
            assert mode_of(tmp_path / name) == mode_of(tmp_path / "builtin") == 0o660
        os.removexattr(tmp_path / "small", "system.posix_acl_access")
        for mode in (0o640, 0o600):
            (tmp_path / "small").chmod(mode)
            fs.copy("small", f"new{mode}")
            fs.write_bytes("small", b"newer")
            fs.makedirs("source", exist_ok=True)
            fs.rename("small", "source/small")
            fs.copy_tree("source", ".")
            for path in (tmp_path / f"new{mode}", tmp_path / "source/small", tmp_path / "small"):
                assert (mode_of(path), os.listxattr(path)) == (mode, [])
    finally:
        os.umask(before)


def test_names_of_partial_files_can_not_be_foreseen(tmp_path: Path) -> None:
    names = set()
    for _ in range(50):
        with Replacement(str(tmp_path / "x")) as out:
            names.update(hidden(tmp_path))
            assert os.fstat(out.descriptor).st_mode & 0o077 == 0 or not (tmp_path / "x").exists()
    assert len(names) == 50


def test_a_private_file_is_opened_for_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1")
    path.chmod(0o600)
    os.close(open_ours(str(path), os.O_RDONLY))
    path.chmod(0o620)
    with pytest.raises(PermissionError):
        open_ours(str(path), os.O_RDONLY)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PermissionError):  # and it does not wait for a writer
        open_ours(str(path), os.O_RDONLY)
    path.unlink()
    (tmp_path / "target").write_bytes(b"1")
    path.symlink_to("target")
    with pytest.raises(OSError, match="symbolic"):
        open_ours(str(path), os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="symbolic"):
        open_ours(str(path), os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


# ---- folders


def test_a_folder_is_no_link_and_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Folder(tmp_path / "a" / "b", create=True) as folder:
        assert mode_of(tmp_path / "a" / "b") == 0o700
        with folder.replace("x") as out:
            out.write(b"1")
        assert (tmp_path / "a/b/x").read_bytes() == b"1"
        assert [name for name, _ in folder.entries()] == ["x"]
        (tmp_path / "victim").write_bytes(b"victim")
        (tmp_path / "a/b/link").symlink_to(tmp_path / "victim")
        with folder.replace("link") as out:  # the link is replaced, not what it leads to
            out.write(b"2")
        assert (tmp_path / "victim").read_bytes() == b"victim"
        folder.remove("x")
        assert [name for name, _ in folder.entries()] == ["link"]
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(NotADirectoryError):
        Folder(tmp_path / "link")
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(PermissionError, match="another user"):
        Folder(tmp_path / "a")


# ---- leftovers

KILLED = """
import os, sys, time
import fsabs
def stop(*args, **kwargs):
    print("stopped", flush=True)
    time.sleep(60)
os.rename = stop
fsabs.Local(sys.argv[1]).write_bytes("x", b"new")
"""


def killed(folder: Path) -> str:
    """Leave a hidden file of a killed writer in `folder`; return its name."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "stopped\n"
        os.kill(child.pid, signal.SIGKILL)
    (left,) = hidden(folder)
    return left


def a_day_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 25 * 3600)


def test_what_a_killed_writer_has_left_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of another machine; one of this machine is known to have ended."""
    left = f".x.0123456789ab-1.{'0' * 16}{PARTIAL_SUFFIX}"
    os.rename(tmp_path / killed(tmp_path), tmp_path / left)
    fs = fsabs.Local(tmp_path)
    assert list(fs.list()) == []

    def write() -> None:  # in a process that hasn't looked yet
        assert forked("a new writer", [lambda: fs.write_bytes("y", b"1")], 30) == [1]

    def write_twice() -> list[str]:
        fs.write_bytes("y", b"1")
        a_day_passes(monkeypatch)
        fs.write_bytes("y", b"1")
        return hidden(tmp_path)

    write()
    assert sorted(os.listdir(tmp_path)) == [left, "y"], "its writer may still be writing, on whichever machine"
    os.utime(tmp_path / left, (0, 0))
    write()
    assert sorted(os.listdir(tmp_path)) == [left, "y"], "a copy may have the time of its source already"
    assert forked("a writer for a day", [write_twice], 30) == [[left]], "it has looked already"
    a_day_passes(monkeypatch)
    write()
    assert os.listdir(tmp_path) == ["y"]


def test_a_directory_with_leftovers_alone_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_bytes(b"1")
    for name in ("empty", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f".x.0123456789ab{PARTIAL_SUFFIX}").touch()
    a_day_passes(monkeypatch)
    fs = fsabs.Local(tmp_path)
    fs.rename("full", "empty")
    fs.rmdir("gone")
    assert list(fs.list(recursive=True)) == ["empty/", "empty/a"]
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("empty")


@needs_root
def test_nothing_is_swept_that_is_another_users_or_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_folder()
    (folder / f".theirs.01{PARTIAL_SUFFIX}").touch()
    os.chown(folder / f".theirs.01{PARTIAL_SUFFIX}", BOB, BOB)
    (folder / f".link.01{PARTIAL_SUFFIX}").symlink_to("x")
    (folder / f".folder.01{PARTIAL_SUFFIX}").mkdir()
    a_day_passes(monkeypatch)
    files.sweep(str(folder))
    assert len(hidden(folder)) == 3


def test_names_fit_into_255_bytes(tmp_path: Path) -> None:
    fs = fsabs.Local(tmp_path)
    for name in ("n" * 255, "\u65e5" * 85, "\udcff" * 255):
        fs.write_bytes(name, b"1")
        with fs.open(name, "wb") as file:
            file.write(b"22")
        assert fs.read_bytes(name) == b"22"
    with pytest.raises(OSError, match="too long"):
        fs.write_bytes("n" * 256, b"1")
    assert len(os.listdir(tmp_path)) == 3


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsabs.Local(tmp_path)
    fs.write_bytes("x", b"old")

    def fail(*args: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write", "rename"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as caught:
            patch.setattr(os, name, fail)
            fs.write_bytes("x", b"new")
        assert caught.value.filename == fs.url("x")
        assert getattr(caught.value, "operation", "") == "write_bytes"
        assert (os.listdir(tmp_path), fs.read_bytes("x")) == (["x"], b"old")
    with pytest.raises(TypeError, match="bytes-like"):
        fs.write_bytes("x", "text")  # type: ignore[arg-type]
    assert fs.read_bytes("x") == b"old"


def test_an_exclusive_file_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    fs = fsabs.Local(tmp_path)
    with fs.open("x", "xb") as file:
        file.write(b"1")
    late = fs.open("y", "xb")
    fs.write_bytes("y", b"first")
    with pytest.raises(FileExistsError):
        late.close()
    assert (fs.read_bytes("x"), fs.read_bytes("y"), hidden(tmp_path)) == (b"1", b"first", [])


def test_a_forked_child_neither_publishes_nor_removes(tmp_path: Path) -> None:
    out = Replacement(str(tmp_path / "x"))
    out.write(b"parent")

    def leave() -> None:
        with out:
            pass

    assert forked("a child", [leave], 20) == [None]
    assert len(hidden(tmp_path)) == 1
    assert not (tmp_path / "x").exists()
    out.commit()
    assert (tmp_path / "x").read_bytes() == b"parent"
