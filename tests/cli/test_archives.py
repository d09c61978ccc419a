"""`pack`, `unpack`, `verify`, `repair` and `convert`: whole outputs, hostile archives, and damage."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

import fsabs as library
from fsabs import Local
from fsabs.core import identity
from fsabs.readers import RecordWriter
from fsabs.transfer import unpack as unpacking
from tests.cli.commands import FILES, MTIME, fsabs, make_tree, read_tree
from tests.cli.stores import OTHERS, SHAPES, Store
from tests.cli.stores import store as store


@pytest.mark.parametrize(
    "store", [*SHAPES, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in OTHERS)], indirect=True
)
def test_on_every_store(store: Store, tmp_path: Path) -> None:
    target = f"{store.url}packed.zip" if store.writable else "packed.zip"
    if store.writable:
        make_tree(tmp_path / "data")
        done = fsabs("pack", "data", target, cwd=tmp_path)
    else:
        done = fsabs("convert", store.url, target, cwd=tmp_path)
    assert done == (f"{target}: 4 files (2.1 kB)\n", "", 0)
    assert fsabs("verify", target, cwd=tmp_path) == ("", "verified 1, damaged 0\n", 0)
    assert fsabs("unpack", target, "out", cwd=tmp_path) == ("out: 4 files (2.1 kB)\n", "", 0)
    assert read_tree(tmp_path / "out") == FILES
    done = fsabs("unpack", f"{target}/sub", "part", "--json", cwd=tmp_path)
    assert json.loads(done.out) == {"target": "part", "files": 2, "directories": 1, "bytes": 2048, "left_out": 0}
    assert sorted(read_tree(tmp_path / "part")) == ["b.bin", "deep/c d.txt"]
    if store.writable:
        fsabs("unpack", target, f"{store.url}again", cwd=tmp_path)
        with library.from_url(f"{store.url}again") as fs:
            assert {name: fs.read_bytes(name) for name in FILES} == FILES


@pytest.mark.quick
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".h5", ".zip"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    files = {name: data for name, data in FILES.items() if data}
    make_tree(tmp_path / "data", files)
    fsabs("pack", "data", f"a{suffix}", cwd=tmp_path)
    first = (tmp_path / f"a{suffix}").read_bytes()
    refused = fsabs("pack", "data", f"a{suffix}", "-n", cwd=tmp_path, code=1)
    assert "File exists" in refused.err
    fsabs("convert", f"a{suffix}", "b.zip", cwd=tmp_path)
    fsabs("convert", "b.zip", f"c{suffix}", cwd=tmp_path)
    if suffix != ".tar.gz":
        assert (tmp_path / f"c{suffix}").read_bytes() == first
    fsabs("unpack", f"c{suffix}", "out", cwd=tmp_path)
    assert read_tree(tmp_path / "out") == files


@pytest.mark.quick
def test_times_and_many_members_by_several_processes(tmp_path: Path) -> None:
    files = {f"d{at % 7}/{at:04}": b"%d" % at for at in range(2000)} | {"large": os.urandom(3_000_000)}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(make_tree(tmp_path / "data", files), arcname=".")
    for jobs in ("1", "3"):
        done = fsabs("unpack", "a.tar", f"out{jobs}", "--jobs", jobs, cwd=tmp_path)
        assert done == (f"out{jobs}: 2,001 files (3.0 MB)\n", "", 0)
        assert read_tree(tmp_path / f"out{jobs}") == files
        assert {int(path.stat().st_mtime) for path in (tmp_path / f"out{jobs}").rglob("*") if path.is_file()} == {MTIME}


MODES = {
    "run": (0o755, 0o750),
    "secret": (0o600, 0o600),
    "shared": (0o666, 0o640),
    "root": (0o4755, 0o750),
    "group": (0o2770, 0o750),
    "dir/": (0o1777, 0o750),
    "ro/": (0o555, 0o750),
}
"""The mode of each member, and that of what is unpacked with the umask 027."""


@pytest.mark.quick
@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_permissions_are_those_of_the_members(tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"a{suffix}"
    with zipfile.ZipFile(archive, "w") if suffix == ".zip" else tarfile.open(archive, "w") as file:
        for name, (mode, _) in MODES.items():
            if isinstance(file, zipfile.ZipFile):
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (mode | (0o040000 if name.endswith("/") else 0o100000)) << 16
                file.writestr(entry, b"")
            else:
                member = tarfile.TarInfo(name)
                member.mode, member.type = mode, tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
                file.addfile(member)
    before = os.umask(0o027)
    try:
        for _ in range(2):
            with library.from_url(archive) as fs:
                library.unpack(fs, Local(tmp_path), "out")
    finally:
        os.umask(before)
    found = {name: os.stat(tmp_path / "out" / name).st_mode & 0o7777 for name in MODES}
    assert found == {name: mode for name, (_, mode) in MODES.items()}


# ---- hostile archives


def _hostile_zip(path: Path) -> None:
    names = ["../up", "/absolute", "sub/../../up", "C:\\windows", "good", "..", "a/./b"]
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"content of " + name.encode())
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")


def _hostile_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for name in ("../up", "/absolute", "sub/../../up", "good"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"good"))
        for name, kind, target in (
            ("link", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard", tarfile.LNKTYPE, "../../etc/passwd"),
            ("folder", tarfile.SYMTYPE, ".."),
            ("null", tarfile.CHRTYPE, ""),
            ("disk", tarfile.BLKTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
        info = tarfile.TarInfo("folder/through-the-link")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"evil"))


@pytest.mark.quick
@pytest.mark.parametrize("suffix", [".zip", ".tar"])
def test_nothing_is_written_outside(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "here/in").mkdir(parents=True)
    archive = tmp_path / f"a{suffix}"
    (_hostile_zip if suffix == ".zip" else _hostile_tar)(archive)
    before = read_tree(tmp_path)
    done = fsabs("unpack", str(archive), "in/out", cwd=tmp_path / "here", code=1)
    after = read_tree(tmp_path)
    assert {name for name in after if name not in before} == {name for name in after if name.startswith("here/in/out/")}
    assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in tmp_path.rglob("*"))
    assert after["here/in/out/good"].endswith(b"good")
    assert b"root:" not in b"".join(after.values())
    assert "fsabs: left out '../up': unsafe name" in done.err
    if suffix == ".tar":
        assert "fsabs: left out 'null': special file" in done.err


@pytest.mark.quick
def test_members_are_left_out_through_layers(tmp_path: Path) -> None:
    _hostile_tar(tmp_path / "a.tar")
    with library.from_url(tmp_path / "a.tar", cache=tmp_path / "cache") as fs:
        assert library.unpack(fs, Local(tmp_path), "out") == library.TreeCounts(2, 1, 8)
    assert read_tree(tmp_path / "out") == {"good": b"good", "folder/through-the-link": b"evil"}


@pytest.mark.quick
def test_links_in_the_target_lead_nowhere(tmp_path: Path) -> None:
    make_tree(tmp_path / "data", {"sub/file": b"new", "other": b"new"})
    fsabs("pack", "data", "a.zip", cwd=tmp_path)
    outside = make_tree(tmp_path / "outside", {"file": b"old", "target": b"old"})
    (tmp_path / "out").mkdir()
    (tmp_path / "out/sub").symlink_to(outside)
    done = fsabs("unpack", "a.zip", "out", cwd=tmp_path, code=1)
    assert "a link in the target leads out of it" in done.err
    (tmp_path / "out/sub").unlink()
    assert read_tree(tmp_path / "out") == {"other": b"new"}
    (tmp_path / "out/other").unlink()
    (tmp_path / "out/other").symlink_to(outside / "target")
    done = fsabs("unpack", "a.zip", "out", cwd=tmp_path, code=1)
    assert "there is a link of that name" in done.err
    assert read_tree(outside) == {"file": b"old", "target": b"old"}


@pytest.mark.quick
def test_no_archive_that_a_member_is_in_is_replaced(tmp_path: Path) -> None:
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("outer.zip", b"evil")
        archive.writestr("other", b"new")
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    make_tree(tmp_path / "d", {"outer.zip": outer.getvalue()})
    (tmp_path / "link.zip").symlink_to("d/outer.zip")
    for url in ("d/outer.zip/inner.zip", "link.zip/inner.zip"):
        make_tree(tmp_path / "d", {"other": b"old"})
        done = fsabs("unpack", url, "d", cwd=tmp_path, code=1)
        assert "the member would replace its archive" in done.err
        assert read_tree(tmp_path / "d") == {"outer.zip": outer.getvalue(), "other": b"new"}
    target = library.Memory()
    target.write_bytes("outer.zip", outer.getvalue())
    with target.open_container("outer.zip") as fs, pytest.raises(OSError, match="the member would replace its archive"):
        library.unpack(fs.open_container("inner.zip"), target)
    assert target.read_bytes("outer.zip") == outer.getvalue()


@pytest.fixture
def listed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """List the members of an archive again for their stats, as if there were a hundred thousand of them."""
    monkeypatch.setattr(unpacking, "MOST_LISTED", 0)


@pytest.mark.quick
@pytest.mark.parametrize("many", [False, True])
def test_a_directory_that_cannot_be_made_costs_what_is_in_it(
    tmp_path: Path, request: pytest.FixtureRequest, many: bool
) -> None:
    if many:
        request.getfixturevalue("listed_twice")
    long = "n" * 300
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("a/x", f"{long}/x", f"{long}/deep/er/x", f"{long}x", "taken/x", "z"):
            archive.writestr(name, b"new")
    make_tree(tmp_path / "out", {"taken": b"old"})
    found: list[OSError | ValueError] = []
    with library.from_url(tmp_path / "a.zip") as fs:
        with pytest.raises(OSError, match="File name too long"):
            library.unpack(fs, Local(tmp_path / "raised", create=True))
        for workers in (1, 2):
            done = library.unpack(fs, Local(tmp_path), "out", workers=workers, failed=found.append)
            assert done == library.TreeCounts(2, 1, 6)
    codes = sorted(error.errno or 0 for error in found if isinstance(error, OSError))
    assert codes == [errno.EEXIST] * 2 + [errno.ENAMETOOLONG] * 4
    assert all("[unpack]" in str(error) for error in found), found
    assert read_tree(tmp_path / "out") == {"a/x": b"new", "taken": b"old", "z": b"new"}
    assert "left out 3" in fsabs("unpack", "a.zip", "out", cwd=tmp_path, code=1).out


@pytest.mark.quick
def test_names_that_the_target_does_not_tell_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert identity.tells_names_apart(Local(folder), str(folder).lstrip("/"))
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(identity, "tells_names_apart", lambda *_: False)
    for one, other in (("a/x", "A/y"), ("caf\u00e9", "cafe\u0301"), ("read.me", "README"), ("Stra\u00dfe", "STRASSE")):
        path = tmp_path / f"{len(one)}{one[0]}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(one, b"1")
            archive.writestr(other, b"2")
        with library.from_url(path) as fs:
            if one == "read.me":
                assert unpacking.unpack(fs, Local(folder)).files == 2
                continue
            with pytest.raises(FileExistsError, match="are one name on this filesystem"):
                unpacking.unpack(fs, Local(folder), "x")
            assert list((folder / "x").iterdir()) == []


class Growing(library.Memory):
    """Gets a member between the two listings of `unpack`."""

    def info(self) -> dict[str, object]:
        self.write_bytes("new", b"")
        return super().info()


@pytest.mark.quick
@pytest.mark.usefixtures("listed_twice")
def test_members_that_change_while_they_are_unpacked_are_an_error(tmp_path: Path) -> None:
    source = Growing()
    source.write_bytes("old", b"1")
    with pytest.raises(library.StaleFileError):
        library.unpack(source, Local(tmp_path), "out")


def test_damage_is_an_error_that_names_the_member(tmp_path: Path) -> None:
    make_tree(tmp_path / "data", {f"{at:04}": b"content %d" % at for at in range(1500)})
    fsabs("pack", "data", "a.zip", cwd=tmp_path)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.index(b"content 777")
    data[at] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    done = fsabs("unpack", "a.zip", "out", "--jobs", "2", cwd=tmp_path, code=1)
    assert "a.zip/0777'" in done.err
    done = fsabs("verify", "a.zip", cwd=tmp_path, code=1)
    assert done.out.startswith("a.zip/0777: damaged: ")
    assert done.err == "verified 1, damaged 1\n"


@pytest.mark.quick
def test_recordio_is_verified_and_repaired(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for shard in range(2):
        with RecordWriter(Local(tmp_path / "set"), f"x-0000{shard}-of-00001", max_chunk_bytes=40) as writer:
            for at in range(20):
                writer.write(b"record %d" % at)
    assert fsabs("verify", "set", cwd=tmp_path) == ("", "verified 2, damaged 0\n", 0)
    path = tmp_path / "set/x-00001-of-00001"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done = fsabs("verify", "set", "--json", cwd=tmp_path, code=1)
    problem, summary = map(json.loads, done.out.splitlines())
    assert (problem["url"], problem["kind"]) == (f"file://{path}", "damaged")
    assert summary["summary"]["damaged"] == 1
    done = fsabs("repair", "set", cwd=tmp_path)
    assert done.out.startswith("lost: ")
    assert done.err == "checked 2, repaired 1\n"
    assert fsabs("verify", "set", cwd=tmp_path).code == 0
    done = fsabs("repair", "a.zip", cwd=tmp_path, code=1)
    assert done.err == "fsabs: a.zip: only RecordIO files are repaired; unpack what is good of a container\n"
