"""`ls`, `find`, `du`, `stat`, `cat`, `head` and `tail`: the whole output of each, on every kind of store."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.cli.commands import ALL_NAMES, FILES, MTIME, NAMES, fsabs, make_tree
from tests.cli.stores import Store
from tests.cli.stores import store as store

pytestmark = pytest.mark.timeout(240)  # each test runs some processes, on a machine that may be busy


def test_ls(store: Store) -> None:
    assert fsabs("ls", store.url, env=store.env) == ("a.txt\nsub/\nz.txt\n", "", 0)
    lines = fsabs("ls", "-lR", store.url, env=store.env).out.splitlines()
    assert [line[36:] for line in lines] == ALL_NAMES
    assert [line[:13].strip() for line in lines] == ["14", "-", "2048", "-", "0", "5"]
    times = {line[15:34].strip() for line in lines if line[12] != "-"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time) for time in times)
    objects = [json.loads(line) for line in fsabs("ls", "-R", "--json", store.url, env=store.env).out.splitlines()]
    assert [one["name"] for one in objects] == ALL_NAMES
    assert {one["name"]: one["size"] for one in objects if one["type"] == "file"} == {
        k: len(v) for k, v in FILES.items()
    }
    assert all(one["url"].endswith("/" + one["name"].rstrip("/").replace(" ", "%20")) for one in objects)


def test_ls_of_files_of_what_is_missing_and_of_a_pattern(store: Store) -> None:
    url = store.url
    done = fsabs("ls", f"{url}*.txt", f"{url}a.txt/", f"{url}none", f"{url}*.png", env=store.env, code=1)
    assert done.out == f"{url}a.txt\n{url}z.txt\n"
    assert [line.split(":")[1] for line in done.err.splitlines()] == [
        " Not a directory [list]",
        " No such file or directory [stat]",
        " nothing matches [glob]",
    ]


def test_find(store: Store) -> None:
    found = fsabs("find", store.url, "--name", "*.txt", "--size", "-1k", "--type", "f", env=store.env)
    space = "%20" if "://" in store.url else " "
    assert found == (f"{store.url}a.txt\n{store.url}sub/deep/c{space}d.txt\n{store.url}z.txt\n", "", 0)


def test_a_tree_may_be_deeper_than_python_recurses(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("d/" * 1500 + "x", "")
    lines = fsabs("ls", "-R", "a.zip/", cwd=tmp_path).out.splitlines()
    assert (len(lines), lines[-1]) == (1501, "d/" * 1500 + "x")


def test_du_and_stat(store: Store) -> None:
    assert fsabs("du", store.url, f"{store.url}a.txt", env=store.env).out == (
        f"{2067:>15}  {4:>12} files  {store.url}\n{14:>15}  {1:>12} files  {store.url}a.txt\n"
    )
    lines = dict(line.split(None, 1) for line in fsabs("stat", f"{store.url}a.txt", env=store.env).out.splitlines())
    assert list(lines) == ["url:", "type:", "size:", "modified:", "mode:", "version:"]
    assert (lines["type:"], lines["size:"]) == ("file", "14 (14 B)")
    assert lines["url:"].endswith("/a.txt")


def test_contents(store: Store) -> None:
    url, env = store.url, store.env
    assert fsabs("cat", f"{url}a.txt", "-", f"{url}z*", input=b"in\n", env=env) == ("one\ntwo\nthree\nin\nzzzzz", "", 0)
    assert fsabs("head", "-n", "2", f"{url}a.txt", env=env).out == "one\ntwo\n"
    assert fsabs("tail", "-n", "2", f"{url}a.txt", env=env).out == "two\nthree\n"
    done = fsabs("cat", f"{url}none", f"{url}sub", f"{url}z.txt", env=env, code=1)
    assert done.out == "zzzzz"
    missing, directory = done.err.splitlines()
    assert missing.startswith("fsabs: No such file or directory [open]: '")
    assert missing.endswith("/none'")
    assert directory.endswith("/sub'")


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
    assert fsabs("ls", "-l", "-h", "sub", "a.txt", cwd=tmp_path).out == (
        "sub:\n       2.0 kB  2023-11-14 22:13:20  b.bin\n"
        f"            -  {_now(tmp_path / 'sub/deep')}  deep/\n"
        "         14 B  2023-11-14 22:13:20  a.txt\n"
    )
    assert fsabs("find", ".", "--older", "2024-01-01", "--type", "f", "--path", "*/c*", cwd=tmp_path).out == (
        "./sub/deep/c d.txt\n"
    )
    assert fsabs("find", ".", "--newer", "1h", "--type", "f", cwd=tmp_path).out == ""
    assert fsabs("ls", cwd=tmp_path).out.split() == NAMES
    assert (tmp_path / "a.txt").stat().st_mtime == MTIME


@pytest.mark.quick
@pytest.mark.parametrize("mtime", [1_700_000_000_000, 2**60])
def test_times_that_no_calendar_has(tmp_path: Path, mtime: int) -> None:
    member = tarfile.TarInfo("late")
    member.mtime = mtime
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(member)
        tar.addfile(tarfile.TarInfo("x"))
    assert [line.split()[-1] for line in fsabs("ls", "-l", "a.tar/", cwd=tmp_path).out.splitlines()] == ["late", "x"]
    late, x = map(json.loads, fsabs("ls", "--json", "a.tar/", cwd=tmp_path).out.splitlines())
    assert (late["modified"], x["modified"]) == (None, "1970-01-01T00:00:00Z")
    assert json.loads(fsabs("stat", "--json", "a.tar/late", cwd=tmp_path).out)["modified"] is None


def _now(path: Path) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(path.stat().st_mtime))
