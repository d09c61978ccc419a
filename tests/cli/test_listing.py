"""`ls`, `find`, `du`, `stat`, `cat`, `head` and `tail`: the whole output of each, on every kind of store."""

from __future__ import annotations

import json
import re
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.cli.commands import ALL_NAMES, FILES, NAMES, fsabs, make_tree
from tests.cli.stores import OTHERS, SHAPES, Store
from tests.cli.stores import store as store

EVERYWHERE = pytest.mark.parametrize(
    "store", [*SHAPES, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in OTHERS)], indirect=True
)


@EVERYWHERE
def test_directories_are_listed(store: Store) -> None:
    url = store.url
    assert fsabs("ls", url) == ("a.txt\nsub/\nz.txt\n", "", 0)
    lines = fsabs("ls", "-lR", url).out.splitlines()
    assert [line[36:] for line in lines] == ALL_NAMES
    assert [line[:13].strip() for line in lines] == ["14", "-", "2048", "-", "0", "5"]
    times = {line[15:34].strip() for line in lines if line[12] != "-"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time) for time in times)
    objects = [json.loads(line) for line in fsabs("ls", "-R", "--json", url).out.splitlines()]
    assert [one["name"] for one in objects] == ALL_NAMES
    sizes = {one["name"]: one["size"] for one in objects if one["type"] == "file"}
    assert sizes == {name: len(data) for name, data in FILES.items()}
    assert all(one["url"].endswith("/" + one["name"].rstrip("/").replace(" ", "%20")) for one in objects)
    space = "%20" if "://" in url else " "
    found = fsabs("find", url, "--name", "*.txt", "--size", "-1k", "--type", "f")
    assert found == (f"{url}a.txt\n{url}sub/deep/c{space}d.txt\n{url}z.txt\n", "", 0)
    assert fsabs("du", url, f"{url}a.txt").out == (
        f"{2067:>15}  {4:>12} files  {url}\n{14:>15}  {1:>12} files  {url}a.txt\n"
    )
    known = dict(line.split(None, 1) for line in fsabs("stat", f"{url}a.txt").out.splitlines())
    assert list(known) == ["url:", "type:", "size:", "modified:", "mode:", "version:"]
    assert (known["type:"], known["size:"]) == ("file", "14 (14 B)")
    assert known["url:"].endswith("/a.txt")


@EVERYWHERE
def test_files_are_shown_and_what_is_missing_is_named(store: Store) -> None:
    url = store.url
    assert fsabs("cat", f"{url}a.txt", "-", f"{url}z*", input=b"in\n") == ("one\ntwo\nthree\nin\nzzzzz", "", 0)
    assert fsabs("head", "-n", "2", f"{url}a.txt").out == "one\ntwo\n"
    assert fsabs("tail", "-n", "2", f"{url}a.txt").out == "two\nthree\n"
    done = fsabs("cat", f"{url}none", f"{url}sub", f"{url}z.txt", code=1)
    missing, directory = done.err.splitlines()
    assert (done.out, missing[-6:], directory[-5:]) == ("zzzzz", "/none'", "/sub'")
    assert missing.startswith("fsabs: No such file or directory [open]: '")
    done = fsabs("ls", f"{url}*.txt", f"{url}a.txt/", f"{url}none", f"{url}*.png", code=1)
    assert done.out == f"{url}a.txt\n{url}z.txt\n"
    assert [line.split(":")[1] for line in done.err.splitlines()] == [
        " Not a directory [list]",
        " No such file or directory [stat]",
        " nothing matches [glob]",
    ]


def test_a_tree_may_be_deeper_than_python_recurses(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("d/" * 1500 + "x", "")
    lines = fsabs("ls", "-R", "a.zip/", cwd=tmp_path).out.splitlines()
    assert (len(lines), lines[-1]) == (1501, "d/" * 1500 + "x")


@pytest.mark.quick
def test_the_first_and_the_last_bytes_and_lines_of_a_large_file(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(200_000)]
    path = make_tree(tmp_path, {"big": "".join(lines).encode(), "none": b"", "open": b"x\ny"}) / "big"
    for count in (0, 1, 150_000, 300_000):
        assert fsabs("head", "-n", str(count), str(path)).out == "".join(lines[:count])
        assert fsabs("tail", "-n", str(count), str(path)).out == "".join(lines[-count:] if count else [])
    assert fsabs("head", "-c", "11", str(path)).out == "line 0\nline"
    assert fsabs("tail", "-c", "4", str(path)).out == "999\n"
    assert fsabs("tail", "-n", "1", f"{tmp_path}/open").out == "y"
    assert fsabs("tail", f"{tmp_path}/none").out == ""


@pytest.mark.quick
def test_a_long_listing_of_local_files_has_their_times(tmp_path: Path) -> None:
    make_tree(tmp_path)
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime((tmp_path / "sub/deep").stat().st_mtime))
    assert fsabs("ls", "-l", "-h", "sub", "a.txt", cwd=tmp_path).out == (
        "sub:\n       2.0 kB  2023-11-14 22:13:20  b.bin\n"
        f"            -  {made}  deep/\n"
        "         14 B  2023-11-14 22:13:20  a.txt\n"
    )
    found = fsabs("find", ".", "--older", "2024-01-01", "--type", "f", "--path", "*/c*", cwd=tmp_path)
    assert found.out == "./sub/deep/c d.txt\n"
    assert fsabs("find", ".", "--newer", "1h", "--type", "f", cwd=tmp_path).out == ""
    assert fsabs("ls", cwd=tmp_path).out.split() == NAMES


@pytest.mark.quick
def test_times_that_no_calendar_has_are_shown_as_unknown(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, mtime in (("late", 1_700_000_000_000), ("later", 2**60), ("x", 0)):
            member = tarfile.TarInfo(name)
            member.mtime = mtime
            tar.addfile(member)
    listed = fsabs("ls", "-l", "a.tar/", cwd=tmp_path).out.splitlines()
    assert [line.split()[-1] for line in listed] == ["late", "later", "x"]
    objects = map(json.loads, fsabs("ls", "--json", "a.tar/", cwd=tmp_path).out.splitlines())
    assert [one["modified"] for one in objects] == [None, None, "1970-01-01T00:00:00Z"]
    assert json.loads(fsabs("stat", "--json", "a.tar/late", cwd=tmp_path).out)["modified"] is None
