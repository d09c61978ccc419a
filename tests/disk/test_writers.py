"""Writers of every kind on files of every kind, by root and by a user, against builtin `open` on the same file.

Mode, owner, group and content are builtin's afterwards, but that setuid and setgid bits are gone; where builtin fails,
so do they, with the same errno. Meanwhile another user reads whatever can be read in the folder, and sees no byte of a
private file.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import random
import shutil
import stat
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import pytest

import fsabs
from tests import soak
from tests.users import ALICE, BOB, as_user, needs_root, shared

pytestmark = pytest.mark.soak
CAROL = 54323
"""The user who looks on."""
SECRET = b"secret"
WAYS = ("wb", "w", "xb", "ab", "r+b", "write_bytes", "write_many", "copy", "zip", "tar", "unpack")
REPLACES = ("wb", "w", "write_bytes", "write_many", "copy", "zip", "tar", "unpack")


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
    linked: bool


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
        linked=rng.random() < 0.2,
    )


def made(folder: Path, case: Case) -> Path:
    """Make the folder and the file of a case; return the path that is written to."""
    folder.mkdir()
    path = folder / "file"
    if case.exists:
        path.write_bytes(b"old content, longer than new")
        if case.attribute:
            os.setxattr(path, "user.origin", b"camera 7")
        os.chown(path, case.owner, case.group)
        path.chmod(case.mode)
        if case.linked:
            (folder / "link").symlink_to("file")
            path = folder / "link"
    os.chown(folder, case.folder_owner, case.folder_owner)
    folder.chmod(case.folder_mode)
    return path


def content(case: Case) -> bytes:
    """Return what is written: the bytes of an archive where it is one."""
    memory = fsabs.Memory()
    if case.way not in ("zip", "tar"):
        return SECRET * 100
    with memory.open_container("x", "w", force_type=case.way) as archive:
        archive.write_bytes("member", SECRET * 100)
    return memory.read_bytes("x")


def write_by_fsabs(path: Path, case: Case) -> None:
    """Write to the file in the way of the case."""
    fs, name, data = fsabs.Local(path.parent), path.name, content(case)
    memory = fsabs.Memory()
    if case.way in ("zip", "tar"):
        with fs.open_container(name, "w", force_type=case.way) as archive:
            archive.write_bytes("member", SECRET * 100)
    elif case.way == "write_bytes":
        fs.write_bytes(name, data)
    elif case.way == "write_many":
        fs.write_many([(name, data)])
    elif case.way == "copy":
        memory.write_bytes("x", data)
        memory.copy("x", name, fs)
    elif case.way == "unpack":
        memory.write_bytes("x", data)
        memory.copy_tree("", "", fs) if name == "x" else memory.copy("x", name, fs)
    elif case.way == "w":
        with fs.open(name, "w") as text:
            text.write(data.decode())
    else:
        with fs.open(name, case.way) as file:
            file.write(data)


def write_by_builtin(path: Path, case: Case) -> None:
    """Write to the file as builtin `open` does."""
    with open(path, "wb" if case.way in REPLACES else case.way) as file:
        file.write(content(case))


def outcome(path: Path, case: Case, write: Callable[[Path, Case], None]) -> int:
    """Write as the user of the case; return the errno of a failure, 0 for success."""

    def attempt() -> int:
        os.umask(0o022)
        try:
            write(path, case)
        except OSError as exc:
            return exc.errno or -1
        return 0

    return as_user(case.writer, attempt) if case.writer else as_user(0, attempt)


def seen(path: Path) -> tuple[object, ...] | None:
    """Return what a `stat` and a read say of a file, without setuid, setgid and sticky bits."""
    path = path.parent / "file"
    if not path.exists():
        return None
    status = path.stat()
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}
    return status.st_uid, status.st_gid, status.st_mode & 0o777, attributes, path.read_bytes()


def look_on(folder: str, found: str, ready: Event, stop: Event) -> None:
    """Read all that can be read in the folders of the cases, as another user; note private content."""
    os.setgroups([])
    os.setgid(CAROL)
    os.setuid(CAROL)
    ready.set()
    while not stop.is_set():
        with contextlib.suppress(OSError):
            for case in os.scandir(folder):
                for entry in os.scandir(case.path):
                    with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                        private = os.path.exists(os.path.join(case.path, "..", f"{case.name}.private"))
                        if private and SECRET in file.read(1 << 20):
                            with open(found, "a") as note:
                                note.write(f"{entry.path}\n")


@needs_root
@pytest.mark.timeout(60 + soak.rounds(60))
def test_writers_leave_what_builtin_open_leaves(tmp_path: Path) -> None:
    root = shared(tmp_path / "shared", 0o777)
    seed = soak.seed(27)
    rng, rounds = random.Random(seed), soak.rounds(150)
    for way in WAYS:  # what they import, the users may not be able to read
        warm = drawn(rng)._replace(way=way, exists=False, writer=0)
        with contextlib.suppress(OSError):
            write_by_fsabs(tmp_path / way, warm)
    found = shared(tmp_path / "found", 0o777) / "seen"
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    onlooker = multiprocessing.Process(target=look_on, args=(str(root), str(found), ready, stop), daemon=True)
    onlooker.start()
    ready.wait(30)
    try:
        for number in range(rounds):
            compare(root, number, drawn(rng), f"seed {seed}, round {number}")
    finally:
        stop.set()
        onlooker.join(30)
    assert not found.exists(), found.read_text()
    soak.count("writes beside builtin open", rounds)


def compare(root: Path, number: int, case: Case, where: str) -> None:
    """Write to two equal files, by fsabs and by builtin `open`, and compare what becomes of them."""
    private = case.exists and case.mode & 0o004 == 0 and case.folder_owner != CAROL
    ours, theirs = root / f"{number}", root / f"{number}.builtin"
    if private:
        (root / f"{number}.private").touch()
    mine, builtins = made(ours, case), made(theirs, case)
    codes = outcome(mine, case, write_by_fsabs), outcome(builtins, case, write_by_builtin)
    assert codes[0] == codes[1], f"{where}: {case}: {[errno.errorcode.get(code, code) for code in codes]}"
    assert seen(mine) == seen(builtins), f"{where}: {case}"
    if case.way in REPLACES and codes[0] == 0 and case.exists:
        assert not stat.S_IMODE((ours / "file").stat().st_mode) & 0o6000, f"{where}: {case}"
    left = sorted(os.listdir(ours))
    assert left == sorted(os.listdir(theirs)), f"{where}: {case}"
    if case.linked and case.exists:
        assert (ours / "link").is_symlink()
    for folder in (ours, theirs):
        shutil.rmtree(folder)
