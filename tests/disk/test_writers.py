"""Writers of every kind on files of every kind, by root and by a user, against builtin `open` on the same file.

Mode, owner, group, attributes and content are builtin's afterwards, but that setuid and setgid bits are gone; where
builtin fails, so do they, with the same errno. At every step of a write another user reads whatever can be read in the
folder and among the temporary files, and sees no byte of a private file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import fsabs
from fsabs.testing.children import started
from fsabs.transfer.unpack import unpack
from tests import soak
from tests.users import ALICE, BOB, access_list, as_user, needs_root, shared_folder

pytestmark = pytest.mark.soak
CAROL = 54323
"""The user who looks on."""
SECRET, OLD = b"secret" * 100, b"old, longer than new" * 100
ARCHIVES = {"zip": "zip", "tar": "tar", "h5": "hdf5", "zip a": "zip", "h5 a": "hdf5"}
"""The formats of what is written in some of the ways."""
REPLACES = ("wb", "w", "write_bytes", "write_many", "copy", "copy_local", "copy_tree", "unpack", *ARCHIVES)
WAYS = (*REPLACES, "xb", "ab", "a", "r+b")
STEPS = ("open", "os.chmod", "os.chown", "os.link", "os.remove", "os.rename", "os.removexattr", "os.setxattr")
"""Audit events of a write, at which another user looks on."""
ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"


class Case(NamedTuple):
    """One file, and who writes to it."""

    way: str
    writer: int
    owner: int
    group: int
    mode: int
    folder_owner: int
    folder_mode: int
    exists: bool
    attribute: bool
    acl: bool
    default_acl: bool
    linked: bool
    mounted: bool

    @property
    def private(self) -> bool:
        """Whether another user must not see what is written."""
        return self.exists and not self.mode & 0o004


def drawn(rng: random.Random) -> Case:
    """Return a random case."""
    return Case(
        way=rng.choice(WAYS),
        writer=rng.choice((0, ALICE)),
        owner=rng.choice((0, ALICE, ALICE, BOB)),
        group=rng.choice((0, ALICE, BOB)),
        mode=rng.choice((0o600, 0o600, 0o640, 0o644, 0o666, 0o660, 0o755, 0o400, 0o4755, 0o2755, 0o6777, 0o1644)),
        folder_owner=rng.choice((0, ALICE, BOB)),
        folder_mode=rng.choice((0o755, 0o777, 0o1777, 0o555, 0o2777)),
        exists=rng.random() < 0.85,
        attribute=rng.random() < 0.3,
        acl=rng.random() < 0.15,
        default_acl=rng.random() < 0.15,
        linked=rng.random() < 0.2,
        mounted=rng.random() < 0.15,
    )


def made(folder: Path, case: Case) -> Path:
    """Make the folder and the file of a case; return the path that is written to."""
    folder.mkdir()
    path = folder / "file"
    if case.exists:
        path.write_bytes(old_content(case))
        if case.attribute:
            os.setxattr(path, "user.origin", b"camera 7")
        os.chown(path, case.owner, case.group)
        if case.acl:
            os.setxattr(path, ACL, access_list(BOB))
        path.chmod(case.mode)
        if case.mounted:
            mounted = Path(f"{folder}.mounted")
            path.rename(mounted)
            path.touch()
            subprocess.run(["mount", "--bind", mounted, path], check=True)
    if case.linked:
        (folder / "link").symlink_to("file")
    if case.default_acl:
        os.setxattr(folder, DEFAULT_ACL, access_list(CAROL))
    os.chown(folder, case.folder_owner, case.folder_owner)
    folder.chmod(case.folder_mode)
    return folder / "link" if case.linked else path


def remove(folder: Path) -> None:
    """Remove what `made` has made."""
    mounted = Path(f"{folder}.mounted")
    if mounted.exists():
        subprocess.run(["umount", folder / "file"], check=True)
        mounted.unlink()
    shutil.rmtree(folder)


def can_mount() -> bool:
    """Return whether this machine lets root mount."""
    folder = shared_folder()
    source, target = folder / "source", folder / "target"
    for path in (source, target):
        path.touch()
    good = subprocess.run(["mount", "--bind", source, target], capture_output=True).returncode == 0
    if good:
        subprocess.run(["umount", target], check=True)
    return good


def can_make_names(case: Case) -> bool:
    """Return whether the writer can make files in the folder."""
    return not case.writer or bool(case.folder_mode & (0o200 if case.folder_owner == case.writer else 0o002))


def old_content(case: Case) -> bytes:
    """Return what a file has that is there: an archive where it is added to."""
    return content(case._replace(exists=False), OLD) if case.way.endswith(" a") else OLD


def content(case: Case, data: bytes = SECRET) -> bytes:
    """Return what builtin `open` has to write for what the way of a case writes: an archive where it is one."""
    if case.way not in ARCHIVES:
        return data
    memory = fsabs.Memory()
    if case.way.endswith(" a") and case.exists:
        memory.write_bytes("x", old_content(case))
    write_archive(memory, "x", case, data)
    return memory.read_bytes("x")


def write_archive(fs: fsabs.FS, name: str, case: Case, data: bytes) -> None:
    """Write an archive with one member, or add one."""
    mode = "a" if case.way.endswith(" a") else "w"
    with fs.open_container(name, mode, force_type=ARCHIVES[case.way]) as archive:
        archive.write_bytes("added" if mode == "a" and case.exists else "member", data)


def write_by_fsabs(path: Path, case: Case) -> None:
    """Write to the file in the way of the case."""
    fs, name = fsabs.Local(path.parent), path.name
    memory, data = fsabs.Memory(), SECRET
    if case.way in ARCHIVES:
        write_archive(fs, name, case, data)
    elif case.way == "write_bytes":
        fs.write_bytes(name, data)
    elif case.way == "write_many":
        fs.write_many([(name, data)])
    elif case.way == "copy":
        memory.write_bytes("x", data)
        memory.copy("x", name, fs)
    elif case.way == "copy_local":
        fsabs.Local().copy(f"{path.parents[1]}/source", str(path))
    elif case.way == "copy_tree":
        memory.mkdir("tree")
        memory.write_bytes(f"tree/{name}", data)
        memory.copy_tree("tree", "", fs)
    elif case.way == "unpack":
        with memory.open_zip("x.zip", "w") as archive:
            archive.write_bytes(name, data)
        with memory.open_zip("x.zip") as archive:
            unpack(archive, fs)
    elif case.way in ("w", "a"):
        with fs.open(name, case.way) as text:
            text.write(data.decode())
    else:
        with fs.open(name, case.way) as file:
            file.write(data)


def write_by_builtin(path: Path, case: Case) -> None:
    """Write to the file as builtin `open` does."""
    new = not path.exists()
    with open(path, "wb" if case.way in REPLACES else case.way.removesuffix("b") + "b") as file:
        file.write(content(case))
    if new and case.way in ("copy_local", "unpack"):  # a new copy has the permissions of its source
        path.chmod(0o644)


def outcome(path: Path, case: Case, write: Callable[[Path, Case], None], onlooker: Onlooker | None = None) -> int:
    """Write as the user of the case; return the errno of a failure, 0 for success."""

    def attempt() -> int:
        os.umask(0o022)
        tempfile.tempdir = str(path.parents[1] / "tmp")
        if onlooker is not None:
            onlooker.look_at_each_step(path.parent, case.private)
        try:
            write(path, case)
        except OSError as exc:
            return exc.errno or -1
        return 0

    return as_user(case.writer, attempt)


def seen(folder: Path) -> tuple[object, ...] | None:
    """Return what a `stat` and a read say of the file in a folder, without setuid, setgid and sticky bits."""
    path = folder / "file"
    if not path.exists():
        return None
    status = path.stat()
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return status.st_uid, status.st_gid, status.st_mode & 0o777, attributes, path.read_bytes()


class Onlooker:
    """A process of another user, who reads what can be read in folders, whenever a writer takes a step.

    Args:
        folder: where the tests write, with `tmp` for temporary files, which are always looked at.
        found: where the names of files are noted that have the secret.
    """

    def __init__(self, folder: Path, found: Path) -> None:
        self.folder = folder
        self.found = found
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        self._child = os.fork()
        if not self._child:
            try:
                os.close(self._ask)  # so that the end of the tests ends it
                os.setgroups([])
                os.setgid(CAROL)
                os.setuid(CAROL)
                with open(asked) as folders:
                    for line in folders:
                        self._look(line.rstrip("\n"))
                        os.write(tell, b".")
            finally:
                os._exit(0)
        os.close(asked)
        os.close(tell)

    def _look(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                    if b"secret" in file.read():
                        with open(self.found, "a") as note:
                            note.write(f"{entry.path}\n")

    def look(self, folder: Path) -> None:
        """Have the other user read what is in a folder."""
        os.write(self._ask, f"{folder}\n".encode())
        assert os.read(self._told, 1) == b".", "the onlooker is gone"

    def look_at_each_step(self, folder: Path, private: bool) -> None:
        """Have the other user look on at every step of this process, which writes to a file in `folder`."""
        looking = False

        def hook(event: str, arguments: object) -> None:
            nonlocal looking
            if event in STEPS and not looking:
                looking = True
                if private:
                    self.look(folder)
                self.look(self.folder / "tmp")
                looking = False

        sys.addaudithook(hook)

    def close(self) -> None:
        """End the process."""
        os.close(self._ask)
        os.waitpid(self._child, 0)
        os.close(self._told)


@contextlib.contextmanager
def looking_on() -> Iterator[Onlooker]:
    """Another user, who looks on."""
    folder = shared_folder(0o777)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    looking = Onlooker(folder, shared_folder() / "seen")
    try:
        yield looking
    finally:
        looking.close()


@needs_root
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [80, pytest.param(600, marks=pytest.mark.nightly)])
def test_writers_leave_what_builtin_open_leaves(rounds: int) -> None:
    """In a process that is small, since it forks for each write."""
    started("spawn", "writers", _write_and_compare, (soak.seed(27), soak.rounds(rounds)), 590.0)


def _write_and_compare(seed: int, rounds: int) -> None:
    rng, mounts = random.Random(seed), can_mount()
    with looking_on() as onlooker:
        root = onlooker.folder
        (root / "source").write_bytes(SECRET)
        for way in WAYS:  # what they import, the users may not be able to read
            warm = drawn(rng)._replace(way=way, exists=False, writer=0)
            with contextlib.suppress(OSError):
                write_by_fsabs(root / way, warm)
        for number in range(rounds):
            case = drawn(rng)
            if not mounts:
                case = case._replace(mounted=False)
            compare(root, number, case, f"seed {seed}, round {number}", onlooker)
            found = onlooker.found
            assert not found.exists(), f"seed {seed}, {number}: {case}: {found.read_text()} was read"
    soak.count("writes beside builtin open", rounds)


def compare(root: Path, number: int, case: Case, where: str, onlooker: Onlooker) -> None:
    """Write to two equal files, by fsabs and by builtin `open`, and compare what becomes of them."""
    ours, theirs = root / f"{number}", root / f"{number}.builtin"
    mine, builtins = made(ours, case), made(theirs, case)
    before = seen(ours)
    try:
        codes = outcome(mine, case, write_by_fsabs, onlooker), outcome(builtins, case, write_by_builtin)
        shown = f"{where}: {case}: {[errno.errorcode.get(code, code) for code in codes]}"
        refused = case.way == "unpack" and (case.linked or not can_make_names(case)) and codes == (errno.EACCES, 0)
        dangling = case.way.endswith(" a") and case.linked and not case.exists and codes[0] == errno.EEXIST
        if refused or dangling:
            assert seen(ours) == before, shown
            return
        assert codes[0] == codes[1], shown
        assert seen(ours) == seen(theirs), shown
        if codes[0] == 0 and case.exists:
            assert not stat.S_IMODE((ours / "file").stat().st_mode) & 0o6000, shown
        assert sorted(os.listdir(ours)) == sorted(os.listdir(theirs)), shown
        assert not os.listdir(root / "tmp"), shown
    finally:
        for folder in (ours, theirs):
            remove(folder)


@needs_root
def test_the_onlooker_sees_what_is_not_private() -> None:
    with looking_on() as onlooker:
        for name, mode in (("file", 0o644), ("private", 0o640)):
            (onlooker.folder / name).write_bytes(SECRET)
            (onlooker.folder / name).chmod(mode)
        onlooker.look(onlooker.folder)
        assert onlooker.found.read_text() == f"{onlooker.folder}/file\n"
