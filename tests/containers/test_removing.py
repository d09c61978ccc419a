"""Members are removed from archives that are added to: by an FS and by the command."""

from __future__ import annotations

import contextlib
import io
import os
import random
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

import fsabs
from fsabs.cli import main
from fsabs.testing import checks_errors

from .tarballs import tarball

pytestmark = pytest.mark.quick

SUFFIXES = ("zip", "tar", "h5")
FILES = {"x": b"x", "d/1": b"one" * 500, "d/2": b"", "d/e/3": b"three", "f/g/4": b"four", "y": b"y" * 70_000}


@pytest.fixture(params=SUFFIXES)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An archive with FILES and an empty directory `own`."""
    name = f"a.{request.param}"
    with fsabs.from_url(tmp_path) as fs, fs.open_container(name, "w") as made:
        for path, data in FILES.items():
            made.write_bytes(path, data)
        made.mkdir("own")
    return str(tmp_path / name)


def content(archive: str) -> dict[str, bytes]:
    with fsabs.from_url(archive) as fs:
        assert {problem.kind for problem in fs.verify()} <= {"duplicate"}  # type: ignore[attr-defined]
        return {path: fs.read_bytes(path) for path in fs.list("", recursive=True) if path[-1] != "/"}


def without(*paths: str) -> dict[str, bytes]:
    return {path: data for path, data in FILES.items() if path not in paths}


def test_members_are_left_out_of_what_is_written(archive: str) -> None:
    with fsabs.from_url(archive, mode="a") as fs:
        assert fs.capabilities.remove
        fs.remove("x")
        fs.remove("d", recursive=True)
        fs.rmdir("own")
        for path in ("x", "d", "d/1", "d/e", "own"):
            assert not fs.exists(path)
        assert "x" not in list(fs.list())
        assert content(archive) == FILES  # until the commit
    assert content(archive) == without("x", "d/1", "d/2", "d/e/3")
    assert not fsabs.from_url(archive).exists("own")


def test_the_table_of_errors_holds_for_what_is_added_to(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        with fsabs.from_url(tmp_path / f"b.{suffix}", mode="w") as fs:
            fs.write_many(checks_errors.FILES)
        with fsabs.from_url(tmp_path / f"b.{suffix}", mode="a") as fs:
            cases = checks_errors.cases_for(fs.capabilities)
            assert len(cases) >= 22
            for case in cases:
                with pytest.raises(case.kind) as caught:
                    case.call(fs)
                assert (case.name, caught.value.errno) == (case.name, case.code)
                assert caught.value.filename


def test_an_exception_leaves_the_archive_as_it_was(archive: str) -> None:
    before = Path(archive).read_bytes()
    with pytest.raises(ZeroDivisionError), fsabs.from_url(archive, mode="a") as fs:
        fs.remove("x")
        raise ZeroDivisionError
    assert Path(archive).read_bytes() == before


def test_what_is_removed_can_be_written_again_and_what_was_just_written_removed(archive: str) -> None:
    with fsabs.from_url(archive, mode="a") as fs:
        fs.remove("x")
        fs.remove("d", recursive=True)
        with pytest.raises(FileNotFoundError):
            fs.remove("x")
        fs.write_bytes("x/inside", b"a file below what was a file")
        fs.write_bytes("d", b"a file, where a directory was")
        fs.write_bytes("new", b"new")
        if archive.endswith(".tar"):  # whose members follow each other in the order in which they are added
            with pytest.raises(io.UnsupportedOperation, match="before the first one is added"):
                fs.remove("new")
        else:
            fs.remove("new")
    expected = {
        **without("x", "d/1", "d/2", "d/e/3"),
        "x/inside": b"a file below what was a file",
        "d": b"a file, where a directory was",
    }
    assert content(archive) == (expected | {"new": b"new"} if archive.endswith(".tar") else expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (0, 2))])
def test_random_members(tmp_path: Path, suffix: str, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"{rng.choice('abc')}/{rng.choice(['', 'deep/', 'ü x/'])}{n}" for n in range(60)]
    model = {name: rng.randbytes(rng.choice([0, 1, 511, 512, 513, 5000])) for name in names}
    archive = str(tmp_path / f"a.{suffix}")
    with fsabs.from_url(archive, mode="w") as fs:
        assert fs.write_many(model) == len(model)
    for _ in range(6):
        with fsabs.from_url(archive, mode="a") as fs:
            for path in rng.sample(sorted(model), min(8, len(model))):
                fs.remove(path)
                del model[path]
            if rng.random() < 0.3 and fs.exists("b"):
                fs.remove("b", recursive=True)
                model = {path: data for path, data in model.items() if not path.startswith("b/")}
            for n in range(3):
                path = f"{rng.choice('abc')}/new{rng.randrange(9)}"
                model[path] = rng.randbytes(n * 700)
                fs.write_bytes(path, model[path])
            assert sorted(path for path in fs.list("", recursive=True) if path[-1] != "/") == sorted(model)
        assert content(archive) == model
    if suffix == "tar":
        with tarfile.open(archive) as tar:
            assert {name for name in tar.getnames() if tar.getmember(name).isfile()} == set(model)
    if suffix == "zip":
        assert {name for name in zipfile.ZipFile(archive).namelist() if name[-1] != "/"} == set(model)


def test_of_several_entries_of_a_name_none_comes_back(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for path, data in (("x", b"1"), ("y", b"2"), ("./x", b"3"), ("x", b"4"), ("é", b"5")):
            with pytest.warns(UserWarning, match="Duplicate name") if data == b"4" else contextlib.nullcontext():
                made.writestr(path, data)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "of all"}) as tar:
        for path, data in (("x", b"1"), ("y", b"2"), ("./x", b"3"), ("x", b"4"), ("z" * 300, b"5"), ("é", b"6")):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    for suffix in ("zip", "tar"):
        with fsabs.from_url(tmp_path / f"a.{suffix}", mode="a") as fs:
            fs.remove("x")
            fs.remove("é")
        left = {"y": b"2"} if suffix == "zip" else {"y": b"2", "z" * 300: b"5"}
        assert content(str(tmp_path / f"a.{suffix}")) == left
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == ["y", "z" * 300]
        assert tar.pax_headers == {"comment": "of all"}


def test_the_content_of_a_hard_link_stays(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("data")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"data"))
        for name, kind in (("hard", tarfile.LNKTYPE), ("soft", tarfile.SYMTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "data"
            tar.addfile(link)
    with (
        pytest.raises(io.UnsupportedOperation, match="data has the content of hard, a hard link to it"),
        fsabs.from_url(tmp_path / "a.tar", mode="a") as fs,
    ):
        fs.remove("data")
    with fsabs.from_url(tmp_path / "a.tar", mode="a") as fs:
        fs.remove("soft")
        fs.remove("hard")
    assert content(str(tmp_path / "a.tar")) == {"data": b"data"}


def test_the_command(archive: str, capsys: pytest.CaptureFixture[str]) -> None:
    inode = os.stat(archive).st_ino
    assert main(["rm", "--dry-run", f"{archive}/x"]) == 0
    assert "would remove" in capsys.readouterr().out
    assert os.stat(archive).st_ino == inode
    assert main(["rm", "-v", f"{archive}/x", f"{archive}/nosuch", f"{archive}/f/*/4"]) == 1
    shown = capsys.readouterr()
    assert [line.split("/")[-1] for line in shown.out.splitlines()] == ["x", "4"]
    assert "nosuch" in shown.err
    assert content(archive) == without("x", "f/g/4")
    assert main(["rm", f"{archive}/d"]) == 1
    assert main(["rm", "-r", f"{archive}/d"]) == 0
    assert content(archive) == {"y": FILES["y"]}
    capsys.readouterr()


@pytest.mark.nightly
def test_many_members_are_removed_in_time() -> None:
    """Each by itself, from an archive without directories."""
    memory = fsabs.Memory()
    memory.write_bytes("a.tar", tarball({str(number): b"" for number in range(20_000)}))
    with memory.open_container("a.tar", "a") as fs:
        begin = time.monotonic()
        for number in range(10_000):
            fs.remove(str(number))
        assert time.monotonic() - begin < 20
    with memory.open_container("a.tar") as fs:
        assert len(list(fs.list())) == 10_000
