"""`fsabs pfs`, and other commands on its paths: whole outputs, and refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.commands import MTIME, Done, fsabs, make_tree, read_tree

pytestmark = pytest.mark.quick
HOME = "/pfs/datacenter_1/home/wuyi"


class Center:
    """A datacenter on the local disk, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ini = folder / "pfio.ini"
        self.base = make_tree(folder / "srv", {"home/bob/b": b"bob", "common/c": b"all", "home/wuyi/old": b"old"})
        self.ini.write_text(f"[datacenter_1]\npfs = {self.base}\nusername = wuyi\n")

    def run(self, *arguments: str, code: int = 0) -> Done:
        """Run a command in the folder."""
        return fsabs(*arguments, code=code, env={"PFIO_CONFIG_PATH": str(self.ini)}, cwd=self.folder)


@pytest.fixture
def center(tmp_path: Path) -> Center:
    return Center(tmp_path)


def test_copies_up_and_down(center: Center) -> None:
    make_tree(center.folder, {f"images-0000{at}-of-00001": b"%d" % at for at in range(2)})
    done = center.run("pfs", "cp", "-v", "images-*-of-*", f"{HOME}/images/")
    names = ["images-00000-of-00001", "images-00001-of-00001"]
    assert done.out == "".join(f"upload {name} to {HOME}/images/{name}\n" for name in names)
    assert done.err == "copied 2 (2 B), skipped 0, failed 0, retried 0\n"
    assert center.run("pfs", "cp", "images-*-of-*", f"{HOME}/images/").err.startswith("copied 0, skipped 2")
    assert center.run("pfs", "ls", f"{HOME}/images").out == ("".join(f"2023-11-14 22:13:20 {name}\n" for name in names))
    done = center.run("pfs", "cp", "-v", "-r", f"{HOME}/images", "down")
    assert done.out == "".join(sorted(f"download {HOME}/images/{name} to down/{name}\n" for name in names))
    assert sorted(read_tree(center.folder / "down")) == names
    assert {int(path.stat().st_mtime) for path in (center.folder / "down").iterdir()} == {MTIME}
    done = center.run("pfs", "cp", "-v", f"{HOME}/old", f"{HOME}/images/../new")
    assert done.out == f"copy {HOME}/old to {HOME}/images/../new\n"
    assert center.run("pfs", "cp", "-v", "/pfs/datacenter_1/common/c", ".").out.endswith(" to ./c\n")
    assert center.run("cat", f"{HOME}/new").out == "old"


def test_the_last_of_force_and_no_clobber_counts(center: Center) -> None:
    make_tree(center.folder, {"old": b"other"})
    assert center.run("pfs", "cp", "-f", "-n", "old", f"{HOME}/").err.startswith("copied 0, skipped 1")
    assert (center.base / "home/wuyi/old").read_bytes() == b"old"
    assert center.run("pfs", "cp", "-n", "-f", "old", f"{HOME}/").err.startswith("copied 1")
    assert (center.base / "home/wuyi/old").read_bytes() == b"other"


def test_listing_making_and_removing(center: Center) -> None:
    assert center.run("pfs", "mkdir", f"{HOME}/a/b", f"{HOME}/a/b", f"{HOME}/c") == ("", "", 0)
    assert center.run("pfs", "ls", "-r", "--json", HOME).out.count('"type": "directory"') == 3
    assert center.run("pfs", "rm", f"{HOME}/a", code=1).err == f"fsabs: {HOME}/a is a directory; -r removes it\n"
    assert center.run("pfs", "rm", "-r", "-v", f"{HOME}/a").out == f"removed {HOME}/a\n"
    assert center.run("pfs", "rm", f"{HOME}/o*") == ("", "", 0)
    for nothing in (f"{HOME}/none", f"{HOME}/none*"):
        assert "None" not in center.run("pfs", "ls", nothing, code=1).err
        assert nothing in center.run("pfs", "rm", nothing, code=1).err.replace("pfs://", "/pfs/")
    assert sorted(os.listdir(center.base / "home/wuyi")) == ["c"]


def test_refusals(center: Center) -> None:
    make_tree(center.folder, {"x": b"x", "y": b"y", "d/z": b"z"})
    before = read_tree(center.base)
    for arguments, code, reason in (
        (("cp", "x", "/pfs/datacenter_1/common/"), 1, "common is read by all and written by none"),
        (("cp", "-r", "d", "/pfs/datacenter_1/home/bob/d"), 1, f"the home of bob: wuyi writes to {HOME}"),
        (("cp", "x", f"{HOME}/../bob/x"), 1, "the home of bob"),
        (("cp", "x", "/pfs/datacenter_1/../../x"), 1, "climbs above the root"),
        (("cp", "x", "y"), 2, "x should be a pfs path: /pfs/DATACENTER/home/USER/..."),
        (("cp", "x", "y", f"{HOME}/none"), 1, "is no directory: several sources need one"),
        (("cp", "d", f"{HOME}/"), 1, "d is a directory; -r copies it"),
        (("rm", "/pfs/datacenter_1/common/c"), 1, "written by none"),
        (("rm", "-r", "/pfs/datacenter_1/home"), 1, "no home: wuyi writes to"),
        (("rm", "-r", HOME), 1, "is a home: it can't be replaced or removed"),
        (("rm", "x"), 2, "x should be a pfs path"),
        (("mkdir", "/pfs/datacenter_1/new"), 1, "no home"),
        (("ls", "x"), 2, "x should be a pfs path"),
        (("ls", "/pfs/datacenter_2/home"), 1, "no datacenter 'datacenter_2'"),
        (("ls",), 2, "arguments are required: PATHS"),
        (("rm",), 2, "arguments are required: PATHS"),
    ):
        done = center.run("pfs", *arguments, code=code)
        assert reason in done.err, done
        assert "Traceback" not in done.err
    for arguments in (
        ("rm", "-r", "/pfs/datacenter_1/common/"),
        ("mv", "/pfs/datacenter_1/common/c", "."),
        ("mv", "/pfs/datacenter_1/home/bob/b", HOME + "/"),
        ("sync", "--delete", "d", "/pfs/datacenter_1/home/bob"),
        ("pack", "d", "/pfs/datacenter_1/common/d.zip"),
        ("cp", "-", "/pfs/datacenter_1/common/piped"),
    ):
        done = center.run(*arguments, code=1)
        assert "writes to" in done.err, done
    assert read_tree(center.base) == before


def test_other_commands_take_the_paths(center: Center) -> None:
    center.run("pack", str(center.base / "common"), f"{HOME}/a.zip")
    assert center.run("ls", f"{HOME}/a.zip/").out == "c\n"
    assert center.run("cat", f"{HOME}/a.zip/c").out == "all"
    assert center.run("du", "/pfs/datacenter_1/common/").out.split()[:3] == ["3", "1", "files"]
    assert center.run("find", "/pfs/datacenter_1/home", "--name", "b").out == "/pfs/datacenter_1/home/bob/b\n"
    assert center.run("stat", f"{HOME}/old").out.startswith("url:      pfs://datacenter_1/home/wuyi/old\n")
    explained = center.run("explain", HOME).out
    assert "[datacenter_1]" in explained
    assert "home of wuyi" in explained
    assert center.run("config", "check").out.endswith("1 sections, nothing is wrong\n")
    assert "username = wuyi" in center.run("config", "list").out
    assert "fault" not in center.run("doctor", HOME).out.replace("default", "")


def test_commands_below_a_prefix(center: Center) -> None:
    """A path of a custom scheme with a prefix, or of a datacenter, does not begin at the root of its store."""
    center.ini.write_text(
        f"[team]\nscheme = file\nprefix = {center.base}/home/wuyi\n\n"
        f"[datacenter_1]\npfs = {center.base}\nusername = wuyi\n"
    )
    for top in ("team://", HOME):
        center.run("pack", f"{top}/", f"{top}/a.zip")
        center.run("convert", f"{top}/a.zip", f"{top}/a.tar")
        center.run("verify", f"{top}/a.zip", f"{top}/a.tar")
        center.run("unpack", f"{top}/a.tar", f"{top}/out")
        assert center.run("cat", f"{top}/out/old").out == "old"
        center.run("cp", f"{top}/a.zip", f"{top}/sub/b.zip")
        center.run("manifest", "create", f"{top}/out", f"{top}/m.jsonl")
        center.run("manifest", "check", f"{top}/out", f"{top}/m.jsonl", "--digests")
        center.run("mv", f"{top}/sub", f"{top}/moved")
        assert center.run("ls", "-R", f"{top}/moved/b.zip/").out == "old\n"
        center.run("rm", "-r", f"{top}/moved", f"{top}/out", f"{top}/a.zip", f"{top}/a.tar", f"{top}/m.jsonl")
        assert os.listdir(center.base / "home/wuyi") == ["old"]
