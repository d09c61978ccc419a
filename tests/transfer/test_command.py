"""The command as a careful user expects it: what it removes, replaces and follows, and what it refuses."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import fsabs
from fsabs import FileStat, Local, Memory
from fsabs.backends import memory
from fsabs.cli import program
from fsabs.core import identity
from fsabs.core.fs import keys_of
from fsabs.transfer.trees import TransferTotals, TreePlan, TreeTransfer
from fsabs.transfer.unpack import unpack
from tests import scarce
from tests.cli.commands import make_tree, read_tree
from tests.users import ALICE, as_user, needs_root, shared_folder

pytestmark = pytest.mark.quick
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PFIO_CONFIG_PATH", os.devnull)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = program.run(arguments)
        done = capsys.readouterr()
        return code, done.out, done.err

    return command


def everything(folder: Path) -> dict[str, str]:
    """Return all names below a folder: contents, where links lead, kinds of others."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_bytes().decode("latin-1")
        else:
            found[name] = stat.filemode(path.lstat().st_mode)[0]
    return found


# ---- what is removed


def test_an_empty_argument_names_nothing(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"d/a": b"a", "keep": b"k"})
    before = everything(tmp_path)
    for arguments in (
        ("rm", "-r", ""),
        ("rm", "-r", "-f", ""),
        ("sync", "--delete", "d", ""),
        ("sync", "--delete", "", "d"),
        ("mv", "", "x"),
        ("mv", "keep", ""),
        ("cp", "-r", "", "x"),
        ("cp", "keep", ""),
        ("mkdir", "-p", ""),
        ("pack", "", "x.zip"),
        ("unpack", "", "x"),
        ("ls", ""),
    ):
        code, _, err = run(*arguments)
        if arguments[:3] != ("rm", "-r", "-f"):
            assert (code, "an empty path names nothing" in err) == (1, True), (arguments, err)
        assert everything(tmp_path) == before, arguments


def test_the_working_directory_a_home_and_roots_stay(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {"cwd/d/a": b"a", "home/b": b"b"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("cwd")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = everything(tmp_path)
    here = str(tmp_path)
    for top in (".", "..", "./", "d/..", "../cwd", here, f"{here}/cwd", f"file://localhost{here}/home", "/", "d/."):
        for arguments in (("rm", "-r", top), ("mv", top, "../moved"), ("sync", "--delete", "../empty", top)):
            code, _, err = run(*arguments)
            assert (code, "without --force" in err) == (1, True), (arguments, err)
            assert everything(tmp_path) == before, arguments
    assert run("rm", "memory://name/")[0] == 1
    assert run("rm", "-r", "../link")[0] == 0  # the link alone
    assert run("sync", "--delete", "--force", "../empty", ".")[0] == 0
    assert everything(tmp_path / "cwd") == {}
    assert run("rm", "-r", "--force", "../cwd")[0] == 0
    assert not (tmp_path / "cwd").exists()


@pytest.mark.parametrize("spelling", ["l/", "d/../d", "file://localhost{}/d", "{}/d", "./d/", "d/."])
def test_a_move_onto_itself_by_another_name_keeps_the_data(run: Run, tmp_path: Path, spelling: str) -> None:
    make_tree(tmp_path, {"d/a": b"a", "d/sub/b": b"b"})
    (tmp_path / "l").symlink_to("d")
    before = everything(tmp_path)
    other = spelling.format(tmp_path)
    names = [(other, "d"), ("d", other), (f"{other.rstrip('/.') or 'd'}/a", "d/a"), ("d/a", f"{other}/a")]
    for source, target in names:
        for verb in ("mv", "cp"):
            code, _, err = run(verb, *(["-r"] if verb == "cp" else []), source, target)
            assert code == 1, (verb, source, target)
            assert "are one" in err or "itself" in err or "without --force" in err, err
            assert everything(tmp_path) == before, (verb, source, target)


def test_a_link_takes_no_place_of_what_it_leads_to(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"t/x": b"data", "s/y": b"y"})
    (tmp_path / "s/x").symlink_to("../t/x")
    for command in (["cp", "-r", "-f", "--links", "s/", "t"], ["sync", "--links", "s", "t"], ["mv", "s/", "t"]):
        code, _, err = run(*command)
        assert (code, "the same file" in err) == (1, True), command
        assert everything(tmp_path / "t") == {"x": "data", "y": "y"}
    assert everything(tmp_path / "s") == {"x": "-> ../t/x"}


@pytest.mark.parametrize("archive", ["t.zip", "t.tar", "t.h5"])
def test_what_goes_into_an_archive_counts_and_stays_until_that_is_there(run: Run, tmp_path: Path, archive: str) -> None:
    tree = {"s/a": b"a", "s/sub/b": b"b"}
    make_tree(tmp_path, tree)
    assert run("cp", "-r", "s/", f"whole.{archive}/")[2] == "copied 2 (2 B), skipped 0, failed 0, retried 0\n"
    size = (tmp_path / f"whole.{archive}").stat().st_size
    (tmp_path / f"whole.{archive}").unlink()
    for command in (("cp", "-r", "s/"), ("sync", "s"), ("mv", "s/")):
        with scarce.file_size(size - 1):  # its last byte finds no room
            code, _, err = run(*command, f"{archive}/")
        assert (code, os.strerror(errno.EFBIG) in err) == (1, True), err
        done = "moved" if command[0] == "mv" else "copied"
        assert err.endswith(f"{done} 0, skipped 0, failed 1, retried 0\n"), err
        assert read_tree(tmp_path) == tree
    assert run("mv", "s/", f"{archive}/")[0] == 0
    with Local(tmp_path) as fs, fs.open_container(archive) as container:
        assert list(container.list(recursive=True)) == ["a", "sub/", "sub/b"]
    assert list(everything(tmp_path)) == [archive]


class Noting(Memory):
    """The scheme `noting://`: a store of commits, which notes how many files are written at once."""

    capabilities = Memory.capabilities._replace(commits=True)
    refuses = False
    written: ClassVar[list[int]] = []

    def __init__(self, name: str = "", path: str = "") -> None:
        super().__init__(f"noting {name}", path)

    @contextlib.contextmanager
    def _together(self, message: str) -> Iterator[None]:
        yield
        if self.refuses:
            raise PermissionError(errno.EACCES, "a read-only token")

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        count = super()._write_many(pairs, concurrency)
        self.written.append(count)
        return count


@pytest.fixture
def noting(tmp_path: Path) -> Iterator[type[Noting]]:
    fsabs.register_backend("noting", Noting)
    Noting.written.clear()
    yield Noting
    Noting.refuses = False
    memory.forget("noting x")


def test_what_a_store_did_not_commit_does_not_count(run: Run, tmp_path: Path, noting: type[Noting]) -> None:
    make_tree(tmp_path, {"s/a": b"a", "s/b": b"b"})
    noting.refuses = True
    for command in (("cp", "-r", "s/", "noting://x/cp/"), ("sync", "s", "noting://x/sync")):
        code, _, err = run(*command)
        assert (code, "a read-only token" in err) == (1, True)
        assert "copied 0, skipped 0" in err, err


def test_files_of_a_pattern_are_copied_together(run: Run, tmp_path: Path, noting: type[Noting]) -> None:
    files = {f"s/{number:02}": b"%d" % number for number in range(50)}
    make_tree(tmp_path, files | {"s/d/x": b"x", "o/51": b"51"})
    code, out, err = run("cp", "-r", "-v", "s/*", "missing", "o/51", "noting://x/t/")
    assert (code, err.splitlines()[1:]) == (1, ["copied 52 (93 B), skipped 0, failed 1, retried 0"])
    assert noting.written == [50, 1, 1]
    with fsabs.from_url("noting://x/t") as fs:
        names = [name for name in fs.list(recursive=True) if not name.endswith("/")]
    assert sorted(out.splitlines()) == sorted(f"copied noting://x/t/{name}" for name in names)


def test_a_hard_link_is_the_same_file(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"d/a": b"a"})
    (tmp_path / "e").mkdir()
    os.link(tmp_path / "d/a", tmp_path / "e/a")
    assert "are one" in run("mv", "d/a", "e/a")[2]
    code, _, err = run("mv", "d/", "e")
    assert (code, "the same file" in err) == (1, True)
    assert run("cp", "-r", "-f", "d/", "e")[0] == 1
    assert everything(tmp_path) == {"d": "d", "d/a": "a", "e": "d", "e/a": "a"}


def test_sync_and_mv_follow_no_link_to_remove(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"o/keep": b"keep", "t/x": b"x", "m/y": b"y"})
    for name in ("t/l", "m/l"):
        (tmp_path / name).symlink_to("../o")
    for name in ("empty", "other/m"):
        (tmp_path / name).mkdir(parents=True)
    assert run("sync", "--delete", "empty", "t")[0] == 0
    assert everything(tmp_path / "t") == {}
    assert run("mv", "m", "other/m")[0] == 0
    assert everything(tmp_path) == {
        "empty": "d",
        "o": "d",
        "o/keep": "keep",
        "other": "d",
        "other/m": "d",
        "other/m/l": "-> ../o",
        "other/m/y": "y",
        "t": "d",
    }


def test_sync_writes_through_no_link_of_the_target(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/l/new": b"new", "s/f": b"newer", "o/keep": b"keep"})
    (tmp_path / "t").mkdir()
    (tmp_path / "t/l").symlink_to("../o")
    (tmp_path / "t/f").symlink_to("../o/keep")
    code, _, err = run("cp", "-r", "s/", "t")
    assert (code, "a link is where a directory is to be made" in err) == (1, True)
    assert read_tree(tmp_path / "o") == {"keep": b"newer"}  # a file is written through a link, as cp does
    (tmp_path / "o/keep").write_bytes(b"keep")
    assert run("sync", "s", "t")[0] == 0
    assert read_tree(tmp_path / "o") == {"keep": b"keep"}
    assert everything(tmp_path / "t") == {"l": "d", "l/new": "new", "f": "newer"}


def test_nothing_is_removed_by_a_sync_that_has_failed(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a", "t/gone": b"gone"})
    (tmp_path / "s/none").symlink_to("nothing")
    assert run("sync", "--delete", "s", "t")[0] == 1
    assert read_tree(tmp_path / "t") == {"a": b"a", "gone": b"gone"}
    code, _, err = run("sync", "--delete", "t/", "t/sub")
    assert (code, "into itself" in err) == (1, True)
    make_tree(tmp_path, {"t/sub/s": b"s"})
    code, _, err = run("sync", "--delete", "t/sub", "t")
    assert (code, "the source is in the target" in err) == (1, True)
    assert (tmp_path / "t/sub/s").exists()


def test_max_delete_and_backup_dir(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"new a", "t/a": b"old", "t/x/y": b"y", "t/z": b"z"})
    (tmp_path / "t/l").symlink_to("z")
    code, _, err = run("sync", "--delete", "--max-delete", "3", "s", "t")
    assert (code, "4 files and directories would be removed, over the limit of 3" in err) == (1, True)
    assert set(read_tree(tmp_path / "t")) == {"a", "x/y", "z", "l"}
    (tmp_path / "t/a").write_bytes(b"old")
    assert run("sync", "--delete", "--max-delete", "4", "--backup-dir", "b", "s", "t")[0] == 0
    assert everything(tmp_path / "t") == {"a": "new a"}
    assert everything(tmp_path / "b") == {"a": "old", "l": "-> z", "x": "d", "x/y": "y", "z": "z"}
    code, _, err = run("sync", "--backup-dir", "t/b", "s", "t")
    assert (code, "backups can't be in the tree" in err) == (1, True)
    make_tree(tmp_path, {"one": b"1", "two": b"2"})
    assert run("cp", "-f", "--backup-dir", "b", "one", "two")[0] == 0
    assert ((tmp_path / "two").read_bytes(), (tmp_path / "b/two").read_bytes()) == (b"1", b"2")


def test_sync_removes_members_of_a_zip(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a"})
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("gone", b"gone")
    code, _, err = run("sync", "--delete", "s", "t.zip/")
    assert (code, "removed 1" in err) == (0, True)
    with zipfile.ZipFile(tmp_path / "t.zip") as archive:
        assert archive.namelist() == ["a"]


# ---- what is copied


def test_a_target_that_two_sources_share_is_refused(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"1/x": b"1", "2/x": b"2", "2/y": b"y", "t/keep": b"k"})
    for verb, sources in (("mv", ("1/x", "2/x")), ("cp", ("1/x", "2/x")), ("cp", ("1/", "2/"))):
        code, _, err = run(verb, *(["-r"] if verb == "cp" else []), *sources, "t")
        assert (code, "would all become" in err) == (1, True), err
        assert read_tree(tmp_path) == {"1/x": b"1", "2/x": b"2", "2/y": b"y", "t/keep": b"k"}
    code, _, _ = run("mv", "1/x", "2/x", "2/y", "t")
    assert (code, read_tree(tmp_path / "t")) == (1, {"keep": b"k", "y": b"y"})


def test_a_target_that_a_source_and_a_member_of_another_share_is_refused(run: Run, tmp_path: Path) -> None:
    for verb in (["mv"], ["cp", "-r", "-f"]):
        make_tree(tmp_path, {"1/x": b"1", "1/y": b"y", "2/x": b"2", "3/z": b"z", "t/keep": b"k"})
        code, _, err = run(*verb, "1/", "2/x", "3/z", "t")
        assert (code, "1/x becomes t/x: 2/x is not copied there" in err) == (1, True), err
        assert read_tree(tmp_path / "t") == {"keep": b"k", "x": b"1", "y": b"y", "z": b"z"}
        assert read_tree(tmp_path / "2") == {"x": b"2"}
        shutil.rmtree(tmp_path / "t")


def test_a_sync_removes_nothing_that_its_source_leads_to(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a", "t/x/keep": b"keep", "t/gone": b"gone"})
    (tmp_path / "s/l").symlink_to("../t/x")
    code, _, err = run("sync", "--delete", "s", "t")
    assert (code, "a directory of the source, by a link or a mount" in err) == (1, True), err
    assert read_tree(tmp_path / "t") == {"a": b"a", "gone": b"gone", "l/keep": b"keep", "x/keep": b"keep"}


def test_filters_are_for_single_files_and_globs_too(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"g/a.tmp": b"t", "g/b.txt": b"b", "g/sub.tmp/c": b"c"})
    assert run("mv", "--exclude", "*.tmp", "g/*", "h/")[0] == 0
    assert read_tree(tmp_path) == {"g/a.tmp": b"t", "g/sub.tmp/c": b"c", "h/b.txt": b"b"}
    assert run("cp", "--include", "*.txt", "g/a.tmp", "h/b.txt", "i/")[0] == 0
    assert read_tree(tmp_path / "i") == {"b.txt": b"b"}


def test_the_first_filter_that_matches_decides(run: Run, tmp_path: Path) -> None:
    files = dict.fromkeys(("a.jpg", "a.tmp", "keep.tmp", "sub/b.jpg", "sub/c.txt", "no/d.jpg"), b"x")
    make_tree(tmp_path / "s", files)
    for number, (filters, expected) in enumerate(
        (
            (
                ["--include", "keep.tmp", "--exclude", "*.tmp"],
                {"a.jpg", "keep.tmp", "sub/b.jpg", "sub/c.txt", "no/d.jpg"},
            ),
            (["--exclude", "*.tmp", "--include", "*"], {"a.jpg", "sub/b.jpg", "sub/c.txt", "no/d.jpg"}),
            (["--include=*.jpg"], {"a.jpg", "sub/b.jpg", "no/d.jpg"}),
            (["--exclude", "no/", "--include", "*.jpg"], {"a.jpg", "sub/b.jpg"}),
            (["--include", "sub/", "--include", "a.jpg"], {"a.jpg", "sub/b.jpg", "sub/c.txt"}),
            (["--include", "*.jpg", "--exclude", "*"], {"a.jpg"}),
            (["--exclude", "sub/*.txt"], {"a.jpg", "a.tmp", "keep.tmp", "sub/b.jpg", "no/d.jpg"}),
        )
    ):
        assert run("cp", "-r", *filters, "s", f"t{number}")[0] == 0
        assert set(read_tree(tmp_path / f"t{number}")) == expected, filters
        assert (tmp_path / f"t{number}/sub").exists() == any(name.startswith("sub/") for name in expected)
    code, _, err = run("cp", "-r", "--exclude", "*", "--include", "*.jpg", "s", "t")
    assert (code, "never counts behind --exclude '*'" in err) == (2, True)


def test_what_is_excluded_does_not_fail(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a", "t/gone": b"gone"})
    (tmp_path / "s/none.l").symlink_to("nothing")
    assert run("sync", "--delete", "--exclude", "*.l", "s", "t")[0] == 0
    assert read_tree(tmp_path / "t") == {"a": b"a"}


def test_modes_are_kept(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {"secret": b"s", "run": b"r", "sub/x": b"x", "plain": b"p"})
    for name, mode in (("secret", 0o600), ("run", 0o755), ("plain", 0o640), ("sub", 0o700)):
        (tmp_path / "d" / name).chmod(mode)
    assert run("cp", "-r", "d", "e")[0] == 0
    assert run("cp", "d/secret", "d/run", "f/")[0] == 0
    elsewhere = Path("/dev/shm") / f"fsabs-{os.getpid()}-{tmp_path.name}"
    try:
        if os.path.isdir("/dev/shm"):
            assert run("mv", "e/", str(elsewhere))[0] == 0
        else:
            elsewhere = tmp_path / "e"
        for name, mode in (("secret", 0o600), ("run", 0o755), ("plain", 0o640), ("sub", 0o700)):
            assert stat.S_IMODE((elsewhere / name).stat().st_mode) == mode, name
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)
    assert stat.S_IMODE((tmp_path / "f/secret").stat().st_mode) == 0o600
    assert os.access(tmp_path / "f/run", os.X_OK)


def test_a_directory_that_hands_its_group_on_keeps_that(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/sub/x": b"x"})
    (tmp_path / "t").mkdir()
    (tmp_path / "t").chmod(0o2775)
    (tmp_path / "s/sub").chmod(0o750)
    assert run("cp", "-r", "s/", "t")[0] == 0
    assert run("pack", "s", "s.tar")[0] == 0
    assert run("unpack", "s.tar", "t/u")[0] == 0
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("t/sub", "t/u/sub", "t/sub/x")]
    assert modes == [0o2750, 0o2755, 0o644]


def test_a_link_to_a_directory_is_moved_into_a_directory(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"d/x": b"x", "e/y": b"y"})
    (tmp_path / "l").symlink_to("../d")
    (tmp_path / "up").symlink_to("d")
    assert run("mv", "up", "e")[0] == 0
    assert run("cp", "--links", "l", "e")[0] == 0
    assert everything(tmp_path / "e") == {"l": "-> ../d", "up": "-> d", "y": "y"}


def test_a_move_to_another_disk_keeps_links(run: Run, tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm") / f"fsabs-links-{os.getpid()}"
    if not elsewhere.parent.is_dir() or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("one disk")
    make_tree(tmp_path, {"m/a": b"a", "o/keep": b"keep"})
    for name, leads in (("none", "nothing"), ("dir", "../o"), ("file", "a")):
        (tmp_path / "m" / name).symlink_to(leads)
    try:
        assert run("mv", "m", str(elsewhere))[0] == 0
        assert everything(elsewhere) == {"a": "a", "none": "-> nothing", "dir": "-> ../o", "file": "-> a"}
        assert everything(tmp_path) == {"o": "d", "o/keep": "keep"}
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


def test_a_link_to_nothing_is_no_pattern(run: Run, tmp_path: Path) -> None:
    (tmp_path / "[x]").symlink_to("nothing")
    (tmp_path / "new").mkdir()
    assert run("mv", "[x]", "new/")[0] == 0
    (tmp_path / "up").symlink_to(".")
    assert run("mv", "up", "new/")[0] == 0
    assert everything(tmp_path) == {"new": "d", "new/[x]": "-> nothing", "new/up": "-> ."}


def test_links_of_a_source(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a", "o/b": b"b"})
    (tmp_path / "s/d").symlink_to("../o")
    (tmp_path / "s/f").symlink_to("a")
    assert run("cp", "-r", "s", "followed")[0] == 0
    assert everything(tmp_path / "followed") == {"a": "a", "d": "d", "d/b": "b", "f": "a"}
    (tmp_path / "s/none").symlink_to("nothing")
    for _ in range(2):
        assert run("cp", "-r", "--links", "s", "kept")[0] == 0
        assert everything(tmp_path / "kept") == {"a": "a", "d": "-> ../o", "f": "-> a", "none": "-> nothing"}
    assert run("cp", "-r", "--links", "s", "memory://links/")[0] == 1


def test_a_loop_and_what_leads_to_the_target_cost_themselves_alone(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a", "s/sub/b": b"b"})
    (tmp_path / "s/sub/loop").symlink_to("..")
    code, _, err = run("cp", "-r", "s", "t")
    assert (code, err.count("\n"), "levels of symbolic links" in err) == (1, 2, True)
    assert everything(tmp_path / "t") == {"a": "a", "sub": "d", "sub/b": "b"}
    (tmp_path / "s/sub/loop").unlink()
    (tmp_path / "s/out").symlink_to("..")
    (tmp_path / "u").mkdir()
    code, _, err = run("cp", "-r", "s/out", "u/in")
    assert (code, "into itself" in err, everything(tmp_path / "u")) == (1, True, {})
    code, _, err = run("cp", "-r", "s", "s/sub/new")
    assert (code, "into itself" in err) == (1, True)
    (tmp_path / "way").symlink_to("s/sub")
    code, _, err = run("cp", "-r", "s", "way/new")
    assert (code, "into itself" in err) == (1, True)
    assert not (tmp_path / "s/sub/new").exists()


def test_one_bad_directory_costs_that_directory(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/bad/x": b"x", "s/bad/y/z": b"z", "s/good": b"g", "s/z/a": b"a", "t/bad": b"file"})
    code, _, err = run("cp", "-r", "s", "t")
    assert code == 1
    assert err.splitlines()[0].endswith(f"'file://{tmp_path}/t/bad'")
    assert len(err.splitlines()) == 2
    assert read_tree(tmp_path / "t") == {"bad": b"file", "good": b"g", "z/a": b"a"}


@needs_root
def test_an_unreadable_directory_costs_that_directory() -> None:
    top = shared_folder()
    make_tree(top / "s", {"a": b"a", "locked/x": b"x", "z/y": b"y"})
    (top / "s/locked").chmod(0)

    def copy() -> tuple[int, dict[str, bytes]]:
        os.chdir(top)
        return program.run(["cp", "-r", "s", "t"]), read_tree(top / "t")

    assert as_user(ALICE, copy) == (1, {"a": b"a", "z/y": b"y"})


@needs_root
def test_sync_replaces_what_its_owner_may_only_read() -> None:
    top = shared_folder()

    def sync() -> tuple[int, bytes, int]:
        os.chdir(top)
        make_tree(top, {"s/x": b"old"})
        (top / "s/x").chmod(0o444)
        program.run(["sync", "s", "t"])
        (top / "s/x").chmod(0o644)
        (top / "s/x").write_bytes(b"newer")
        code = program.run(["sync", "s", "t"])
        return code, (top / "t/x").read_bytes(), stat.S_IMODE((top / "t/x").stat().st_mode)

    assert as_user(ALICE, sync) == (0, b"newer", 0o444)


def test_pipes_are_not_copied(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"a"})
    os.mkfifo(tmp_path / "s/pipe")
    code, _, err = run("cp", "-r", "s", "t")
    assert (code, "a pipe, a socket or a device is not copied" in err) == (1, True)
    assert everything(tmp_path / "t") == {"a": "a"}
    (tmp_path / "t/pipe").write_bytes(b"")
    for command in (("sync", "--checksum", "s", "t"), ("pack", "s", "s.zip"), ("mv", "s/", "t")):
        code, _, err = run(*command)
        assert (code, "a pipe, a socket or a device is not copied" in err) == (1, True), command
    assert not (tmp_path / "s.zip").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("cp", "-r", "s", "t"),
        ("cp", "s/a", "t"),
        ("mv", "s", "u"),
        ("mv", "s/a", "u/"),
        ("mv", "s/", "t"),
        ("sync", "--delete", "s", "t"),
        ("rm", "-r", "s"),
        ("mkdir", "-p", "new/er"),
        ("pack", "s", "s.zip"),
        ("unpack", "z.zip", "out"),
        ("convert", "z.zip", "z.tar"),
        ("cp", "-r", "s", "new.zip/"),
        ("mv", "s/a", "z.zip/"),
        ("sync", "s", "new.h5/"),
    ],
)
def test_a_dry_run_changes_nothing(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    make_tree(tmp_path, {"s/a": b"a", "s/sub/b": b"b", "t/x": b"x"})
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a", b"a")
    before, written = everything(tmp_path), os.stat(tmp_path / "z.zip")
    code, out, err = run(arguments[0], "--dry-run", *arguments[1:])
    assert code == 0, err
    assert out.startswith("would "), (out, err)
    assert everything(tmp_path) == before
    assert os.path.samestat(os.stat(tmp_path / "z.zip"), written)
    code, out, _ = run(arguments[0], "--dry-run", "--json", *arguments[1:])
    assert json.loads(out.splitlines()[0])["dry_run"] is True
    assert everything(tmp_path) == before


def test_a_copy_that_fails_makes_no_container(run: Run, tmp_path: Path) -> None:
    assert run("cp", "nosuch", "new.zip/a")[0] == 1
    assert everything(tmp_path) == {}
    make_tree(tmp_path, {"a": b"a"})
    assert run("cp", "a", "nosuch", "new.zip/")[0] == 1
    with zipfile.ZipFile(tmp_path / "new.zip") as archive:
        assert archive.namelist() == ["a"]


# ---- containers


def test_links_and_conflicts_of_an_archive(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "good")
        archive.writestr("both", b"file")
        archive.writestr("both/in", b"in")
        archive.writestr("good", b"good")
    code, _, err = run("unpack", "a.zip", "out")
    assert code == 1
    assert "symbolic link" in err
    assert "a.zip/link" in err or "out/link" in err
    assert read_tree(tmp_path / "out") == {"both/in": b"in", "good": b"good"}


def test_a_directory_of_the_target_may_be_a_link_in_it(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("d/", b"")
        archive.writestr("d/x", b"x")
    (tmp_path / "out/real").mkdir(parents=True)
    (tmp_path / "out/d").symlink_to("real")
    assert run("unpack", "a.zip", "out")[0] == 0
    assert everything(tmp_path / "out") == {"d": "-> real", "real": "d", "real/x": "x"}


def test_links_to_nothing_are_left_out_below_a_working_directory_too(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("sub/none")
        link.type, link.linkname = tarfile.SYMTYPE, "nothing"
        archive.addfile(link)
        file = tarfile.TarInfo("sub/x")
        file.size = 1
        archive.addfile(file, io.BytesIO(b"x"))
    with fsabs.from_url(f"{tmp_path}/a.tar") as source:
        source.cwd = "sub"
        assert unpack(source, Local(tmp_path), "out").files == 1
    assert read_tree(tmp_path / "out") == {"x": b"x"}


def test_an_archive_is_not_replaced_by_its_member(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.zip", b"member")
        archive.writestr("b", b"b")
    before = (tmp_path / "a.zip").read_bytes()
    code, _, err = run("unpack", "a.zip", ".")
    assert (code, "would replace its archive" in err) == (1, True)
    assert read_tree(tmp_path) == {"a.zip": before, "b": b"b"}
    (tmp_path / "l").symlink_to(".")
    for arguments in (("pack", "a.zip/", "l/a.zip"), ("unpack", "a.zip", "l/a.zip/sub")):
        assert run(*arguments)[0] == 1, arguments
        assert (tmp_path / "a.zip").read_bytes() == before


def test_pipes_at_the_target_are_neither_written_to_nor_waited_for(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/x": b"", "s/y": b"y", "t/z": b"z"})
    os.mkfifo(tmp_path / "t/x")
    (tmp_path / "t/y").symlink_to("x")
    assert run("pack", "s", "s.zip")[0] == 0
    for command in (
        ("sync", "--checksum", "s", "t"),
        ("cp", "-r", "s/", "t"),
        ("cp", "-r", "-f", "--backup-dir", "b", "s/", "t"),
        ("cp", "-r", "-f", "s.zip/", "t"),
        ("mv", "--exclude", "y", "s/", "t"),
        ("unpack", "s.zip", "t"),
    ):
        code, _, err = run(*command)
        assert (code, "a pipe, a socket or a device is not replaced" in err) == (1, True), (command, err)
    source = Memory()
    source.write_bytes("x", b"x")
    with pytest.raises(OSError, match="a pipe, a socket or a device is not replaced") as caught:
        source.copy_tree("", "t", Local(tmp_path))
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, (tmp_path / "t/x").as_uri())
    assert run("cp", "-r", "-n", "s/", "t")[0] == 0
    assert stat.S_ISFIFO((tmp_path / "t/x").stat().st_mode)
    make_tree(tmp_path, {"u/y": b"y", "u/z": b"z"})
    code, _, err = run("sync", "--delete", "--backup-dir", "b", "u", "t")
    assert (code, "a pipe, a socket or a device is not copied" in err) == (1, True)
    assert run("sync", "--delete", "u", "t")[0] == 0
    assert everything(tmp_path / "t") == {"y": "y", "z": "z"}


def test_pipes_are_compared_by_their_kind(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/x": b"x", "t/x": b"x", "t/q": b""})
    for name in ("s/p", "t/p", "s/q"):
        os.mkfifo(tmp_path / name)
    assert run("diff", "s", "t") == (1, "! q\n", "")


def test_one_file_is_written_to_a_pipe_or_a_device(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"x": b"content", "empty": b""})
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    thread.start()
    assert run("cp", "x", "pipe")[0] == 0
    thread.join()
    assert received == [b"content"]  # it was not read back
    (tmp_path / "null").symlink_to("/dev/null")
    for target in ("/dev/null", "null"):
        assert run("cp", "x", target)[::2] == (0, "copied 1 (7 B), skipped 0, failed 0, retried 0\n")
        assert run("cp", "--checksum", "empty", target)[::2] == (0, "copied 1, skipped 0, failed 0, retried 0\n")
    code, out, err = run("cp", "-v", "--dry-run", "x", "pipe")
    assert (code, out) == (0, "would copy pipe\n"), err
    code, _, err = run("cp", "-n", "x", "pipe")
    assert (code, err) == (0, "copied 0, skipped 1, failed 0, retried 0\n")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_link_that_is_replaced_is_backed_up_once(run: Run, tmp_path: Path) -> None:
    make_tree(tmp_path, {"s/a": b"new", "s/d/b": b"b", "t/kept": b"kept"})
    (tmp_path / "t/a").symlink_to("kept")
    (tmp_path / "t/d").symlink_to("nothing")
    assert run("sync", "--backup-dir", "b", "s", "t")[::2] == (0, "copied 2 (4 B), skipped 0, failed 0, retried 0\n")
    assert everything(tmp_path / "t") == {"a": "new", "d": "d", "d/b": "b", "kept": "kept"}
    assert everything(tmp_path / "b") == {"a": "-> kept", "d": "-> nothing"}


@pytest.mark.parametrize("command", [("cp", "-r", "s/", "t"), ("sync", "--delete", "s", "t"), ("mv", "-v", "s/", "t")])
def test_a_dry_run_says_what_can_not_be_done(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    make_tree(tmp_path, {"s/a": b"a", "s/d/x": b"x", "s/e/x": b"x", "s/l": b"l", "s/new": b"n"})
    make_tree(tmp_path, {"t/a/b": b"b", "t/d": b"d", "t/e/y": b"y", "t/f/g": b"g", "t/k/x/y": b"y"})
    (tmp_path / "t/l").symlink_to("f")
    (tmp_path / "s/k").mkdir()
    (tmp_path / "s/k/x").write_bytes(b"")
    before = everything(tmp_path)

    def done(*options: str) -> tuple[int, list[str], int]:
        code, out, err = run(*command, "--json", *options)
        return code, sorted(json.loads(line).get("url", "") for line in out.splitlines()), err.count("fsabs: ")

    foreseen = done("--dry-run")
    assert everything(tmp_path) == before
    assert foreseen == done()
    assert foreseen[0] == 1


class Late(Memory):
    """The scheme `late://`: a store that lists, for whoever counts its files, when all of them are copied."""

    counting, over = threading.Event(), threading.Event()

    def __init__(self, name: str = "", path: str = "") -> None:
        super().__init__(f"late {name}", path)

    def _walk(self, key: str) -> Iterator[FileStat]:
        if threading.current_thread().name == "fsabs-count":
            self.counting.set()
            self.over.wait(30)
            raise ConnectionResetError("it is closed by now")
        return super()._walk(key)


def test_a_count_that_outlasts_its_copy_says_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsabs.register_backend("late", Late)
    Late("x").write_bytes("a", b"a")
    faults: list[object] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    assert run("cp", "-r", "--progress", "plain", "late://x/", "t")[0] == 0
    assert Late.counting.wait(30)
    Late.over.set()
    for thread in threading.enumerate():
        if thread.name == "fsabs-count":
            thread.join(30)
    assert faults == []
    memory.forget("late x")


class Asked(Memory):
    """A store of which a stat is a request."""

    capabilities = Memory.capabilities._replace(stat_is_request=True)
    asked = 0

    def _stat(self, key: str) -> FileStat:
        self.asked += 1
        return super()._stat(key)


def test_many_files_are_listed_at_their_target_and_not_asked_for_one_by_one(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"s/{number:03}": b"%d" % number for number in range(150)})
    source, target = Local(tmp_path), Asked()
    for _ in range(2):
        totals = TransferTotals(None)
        transfer = TreeTransfer(source, "", target, "t", TreePlan(), totals.report, totals.count)
        names = [f"{number:03}" for number in reversed(range(150))]
        sources = keys_of(source, [f"s/{name}" for name in names], "copy")
        transfer.run_files([(key, f"t/{name}") for key, name in zip(sources, names, strict=True)])
        assert target.asked <= 3
    assert (totals.skipped, totals.files) == (150, 0)
    assert len(list(target.list("t"))) == 150


class Folding(Local):
    """A disk on which names that differ in case alone are one."""

    def _path(self, key: str, last: bool = True) -> str:
        path = "/" + self._root
        for part in key[len(self._root) :].split("/")[1:]:
            there = os.listdir(path) if os.path.isdir(path) else []
            path += "/" + next((name for name in there if name.lower() == part.lower()), part)
        return path

    def _place(self, key: str) -> identity.Place:
        return super()._place(self._path(key)[1:])


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_sync_removes_nothing_that_the_target_lists_by_another_name(tmp_path: Path, dry_run: bool) -> None:
    make_tree(tmp_path, {"s/A": b"new", "s/Dir/B": b"B", "t/a": b"old!", "t/dir/b": b"b", "t/dir/c": b"", "t/d": b""})
    totals = TransferTotals(None)
    plan = TreePlan(replace_links=True, dry_run=dry_run)
    source, fs = Local(tmp_path / "s"), Folding(tmp_path / "t")
    keys = (keys_of(one, [""], "sync")[0] for one in (source, fs))
    TreeTransfer(source, next(keys), fs, next(keys), plan, totals.report, totals.count).run(delete=True)
    assert totals.removed == 2
    expected = {"a": "new", "dir": "d", "dir/b": "B"}
    assert everything(tmp_path / "t") == (
        expected | {"a": "old!", "dir/b": "b", "dir/c": "", "d": ""} if dry_run else expected
    )
