"""A disk that takes two names for one, by case or by Unicode form: what writes several files loses none of them, and
says which it has not written."""

from __future__ import annotations

import errno
import os
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import Local, Memory
from fsabs.cli import main
from fsabs.core import identity
from tests.cli.commands import make_tree, read_tree

pytestmark = pytest.mark.quick

PAIRS = {"case": ("README", "readme"), "form": ("cafe\u0301", "caf\u00e9"), "folder": ("A/x", "a/x")}

OVERLAID = (
    *("open", "stat", "lstat", "mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir"),
    *("scandir", "listdir", "readlink", "chmod", "utime"),
)


def folds_case(name: str) -> str:
    return name.casefold()


def normalizes(name: str) -> str:
    return unicodedata.normalize("NFD", name)


class Disk:
    """`os` over a folder in which names that are equal by `form` are one."""

    def __init__(self, top: Path, form: Callable[[str], str], keeps_names: bool) -> None:
        self._top = str(top)
        self._form = form
        self._keeps_names = keeps_names
        self._listdir = os.listdir

    def path(self, path: Any) -> Any:
        """Return the path that is there for one, or that would be made."""
        if not isinstance(path, str | Path) or not str(path).startswith(self._top + "/"):
            return path
        found = self._top
        for name in str(path)[len(self._top) + 1 :].split("/"):
            try:
                there = [other for other in self._listdir(found) if self._form(other) == self._form(name)]
            except OSError:
                there = []
            new = name if self._keeps_names else self._form(name)
            found += "/" + (there[0] if there else new)
        return found

    def over(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of `os` that takes such paths."""
        return lambda *paths, **more: function(*map(self.path, paths), **more)


@pytest.fixture(params=["case", "form", "folder"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any]:
    """A folder on such a disk, and two names that are one there."""
    top = tmp_path / "disk"
    top.mkdir()
    form = request.param == "form"
    disk = Disk(top, normalizes if form else folds_case, keeps_names=not form)
    for name in OVERLAID:
        monkeypatch.setattr(os, name, disk.over(getattr(os, name)))
    (top / "probe").write_bytes(b"")
    assert os.path.exists(top / "PROBE") is not form
    (top / "probe").unlink()
    return top, PAIRS[request.param]


def tree(folder: Path, names: tuple[str, str]) -> Path:
    return make_tree(folder, {names[0]: b"one", names[1]: b"other", "z": b"z"})


def remaining(folder: Path) -> set[bytes]:
    return set(read_tree(folder).values())


@pytest.mark.parametrize("command", ["cp -r src/ {}/new", "sync src {}/new", "cp -r src {}", "cp -r src/* {}/new/"])
def test_a_copy_says_what_is_not_there(
    disk: tuple[Path, Any],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    top, names = disk
    tree(tmp_path / "src", names)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second run takes the one for what it is
        assert main(command.format(top).split()) == 1
        assert "are one name on this filesystem" in capfd.readouterr().err
        assert remaining(top) == {b"one", b"z"}


def test_a_move_keeps_what_has_not_arrived(
    disk: tuple[Path, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    top, names = disk
    source = tree(tmp_path / "src", names)
    for arguments in ([f"{source}/", f"{top}/a"], [*map(str, source.iterdir()), f"{top}/b/"]):
        assert main(["mv", *arguments]) == 1
        assert "are one name" in capfd.readouterr().err
        assert remaining(source) | remaining(top) == {b"one", b"other", b"z"}


def test_copies_of_the_library(disk: tuple[Path, Any], tmp_path: Path) -> None:
    top, names = disk
    source, target = Memory(), Local(top)
    for name in names:
        source.makedirs(os.path.dirname("d/" + name), exist_ok=True)
    source.write_many({"d/" + names[0]: b"one", "d/" + names[1]: b"other"})
    with pytest.raises(FileExistsError, match="are one name"):
        source.copy_tree("d", "copy", dst_fs=target)
    with pytest.raises(FileExistsError, match="are one name"):
        source.sync_tree("d", "copy", dst_fs=target)
    for name in names:
        target.makedirs(os.path.dirname("many/" + name), exist_ok=True)
    with pytest.raises(FileExistsError, match=r"are one name.*write_many"):
        target.write_many([("many/" + name, name.encode()) for name in names])
    assert read_tree(top / "many") == {name: name.encode() for name in read_tree(top / "many")}


def test_unpacking(disk: tuple[Path, Any], tmp_path: Path) -> None:
    top, names = disk
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    with fsabs.from_url(tmp_path / "a.zip") as fs, pytest.raises(FileExistsError, match="are one name"):
        fsabs.unpack(fs, Local(top), "out")
    assert read_tree(top) == {}


def test_one_directory_of_backups(disk: tuple[Path, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    top, names = disk
    (tmp_path / "src").mkdir()
    target = tree(tmp_path / "target", names)
    assert main(["sync", "--delete", "--backup-dir", f"{top}/old", f"{tmp_path}/src", str(target)]) == 1
    assert remaining(target) | remaining(top) == {b"one", b"other", b"z"}


def test_names_that_a_disk_tells_apart(tmp_path: Path) -> None:
    names = {f"{name}{number}": b"" for name in ("X", "x", "caf\u00e9", "cafe\u0301") for number in range(3000)}
    assert Local(tmp_path).write_many(names) == len(names) == len(os.listdir(tmp_path))


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path / "src", PAIRS["case"])
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(os, "mkdir", None)
    assert main(["cp", "-r", "--dry-run", f"{tmp_path}/src/", f"{tmp_path}/there"]) == 0
    assert main(["cp", "--dry-run", f"{tmp_path}/src/README", f"{tmp_path}/src/readme", f"{tmp_path}/there/"]) == 0


def test_many_names_in_a_directory_that_nothing_can_be_made_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_UNASKED", 2)
    source = tree(tmp_path / "src", PAIRS["form"])
    target = tree(tmp_path / "target", PAIRS["form"])
    (source / PAIRS["form"][1]).unlink()

    def refused(path: str, mode: int = 0o777) -> None:
        code = errno.EEXIST if os.path.exists(path) else errno.EACCES
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "mkdir", refused)
    assert main(["sync", str(source), str(target)]) == 0  # all is there already
