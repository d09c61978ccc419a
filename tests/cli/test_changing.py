"""`cp`, `mv`, `rm`, `mkdir`, `sync` and `diff`: the whole output of each, from and to every kind of store."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

import fsabs as library
from tests.cli.commands import FILES, MTIME, fsabs, make_tree, read_tree
from tests.cli.stores import CLOUDS, Store
from tests.cli.stores import store as store


def copied(count: int, size: str = "", skipped: int = 0, failed: int = 0, verb: str = "copied") -> str:
    return f"{verb} {count}{size and f' ({size})'}, skipped {skipped}, failed {failed}, retried 0\n"


def test_copies_from_a_store(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    done = fsabs("cp", "-r", "-v", store.url, str(target))
    assert done == ("".join(sorted(f"copied {target}/{name}\n" for name in FILES)), copied(4, "2.1 kB"), 0)
    assert read_tree(target) == FILES
    assert fsabs("cp", "-r", store.url, str(target)) == ("", copied(0, skipped=4), 0)
    (target / "a.txt").write_text("changed")
    os.remove(target / "z.txt")
    events = [json.loads(line) for line in fsabs("sync", "--json", store.url, str(target)).out.splitlines()]
    assert [(one["action"], one["url"].rpartition("/")[2]) for one in events[:-1] if one["action"] != "skipped"] == [
        ("copied", "a.txt"),
        ("copied", "z.txt"),
    ]
    assert events[-1] == {"summary": {"copied": 2, "skipped": 2, "failed": 0, "retried": 0, "bytes": 19}}
    assert read_tree(target) == FILES
    assert fsabs("diff", store.url, str(target)) == ("", "", 0)
    (target / "a.txt").write_text("One\ntwo\nthree\n")
    (target / "more").write_text("")
    os.remove(target / "z.txt")
    assert fsabs("diff", store.url, str(target), code=1).out == "! a.txt\n+ more\n- z.txt\n"


def test_copies_to_a_store(store: Store, tmp_path: Path) -> None:
    source, url = make_tree(tmp_path / "source", {**FILES, "new/é": b"e" * 3000}), store.url
    (source / "a.txt").write_text("changed")
    for name in ("a.txt", "new/é"):  # not in the second in which it is copied, which is all that some stores know
        os.utime(source / name, (MTIME, MTIME + 1))
    if not store.writable:
        where = f"{tmp_path}/fresh{'.zip/in.zip' if 'zip' in store.kind else '.tar.gz'}/"
        assert fsabs("cp", "-r", f"{source}/", where).err == copied(5, "5.1 kB")
        assert fsabs("diff", str(source), where) == ("", "", 0)
        assert "can't move" in fsabs("mv", f"{url}a.txt", str(tmp_path), code=1).err
        return
    expected = 5 if store.kind == "hdfs" else 2  # what was not copied there has other times, and no checksum
    done = fsabs("sync", "--dry-run", "--delete", str(source), url)
    assert done.err.startswith(f"dry run: copied {expected}")
    done = fsabs("sync", str(source), url)
    assert done.err.startswith(f"copied {expected} (")
    assert fsabs("sync", str(source), url).err == copied(0, skipped=5)
    assert fsabs("diff", str(source), url) == ("", "", 0)
    os.remove(source / "sub/b.bin")
    assert fsabs("sync", "-v", "--delete", str(source), url).out == f"removed {url}sub/b.bin\n"
    assert fsabs("diff", str(source), url) == ("", "", 0)
    done = fsabs("sync", str(source), f"{url}a.txt", code=1)
    assert f"{url}a.txt" in done.err.splitlines()[-1]


WRITABLE = pytest.mark.parametrize(
    "store",
    ["local", "s3", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in (*CLOUDS, "hdfs") if kind != "s3")],
    indirect=True,
)


@WRITABLE
def test_moves_and_removals(store: Store, tmp_path: Path) -> None:
    url, outside = store.url, tmp_path / "outside"
    assert fsabs("mv", url, str(outside)).err.startswith("moved 4")
    assert read_tree(outside) == FILES
    assert fsabs("mv", f"{outside}/", url).err.startswith("moved 4")
    assert not list(outside.rglob("*.txt"))
    parent = url.rstrip("/").rpartition("/")[0]
    assert fsabs("mv", url.rstrip("/"), f"{parent}/moved").err.startswith("moved ")
    assert fsabs("find", f"{parent}/moved", "--type", "f", "--json").out.count("\n") == 4
    assert fsabs("mkdir", "-p", f"{parent}/empty/deep") == ("", "", 0)
    done = fsabs("cp", f"{parent}/moved/a.txt", f"{parent}/moved/z.txt", f"{parent}/empty/deep")
    assert done.err == copied(2, "19 B")
    assert fsabs("rm", "-v", f"{parent}/empty/deep/*.txt").out == (
        f"removed {parent}/empty/deep/a.txt\nremoved {parent}/empty/deep/z.txt\n"
    )
    done = fsabs("rm", f"{parent}/moved", f"{parent}/none", code=1)
    assert done.err.splitlines()[0] == f"fsabs: {parent}/moved is a directory; -r removes it"
    assert fsabs("rm", "-r", f"{parent}/moved") == ("", "", 0)
    assert fsabs("rm", "-f", f"{parent}/moved") == ("", "", 0)


@WRITABLE
def test_pipes_and_containers(store: Store, tmp_path: Path) -> None:
    url = store.url
    assert fsabs("cp", "-", f"{url}piped", input=b"from a pipe") == ("", "", 0)
    assert fsabs("cp", f"{url}piped", "-") == ("from a pipe", "", 0)
    assert fsabs("cp", "-r", url, f"{tmp_path}/made.zip/").err.startswith("copied 5")
    assert fsabs("cp", f"{tmp_path}/made.zip", url).err.startswith("copied 1")
    assert fsabs("cat", f"{url}made.zip/a.txt").out == "one\ntwo\nthree\n"


# ---- on local files


@pytest.mark.quick
def test_what_the_target_means(tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {"a": b"a"})
    for command, expected in (
        (("cp", "d/a", "copy"), {"copy"}),
        (("cp", "d/a", "into/"), {"into/a"}),
        (("cp", "d/a", "into"), {"into/a"}),
        (("cp", "-r", "d", "e"), {"e/a"}),
        (("cp", "-r", "d", "e"), {"e/a"}),
        (("cp", "-r", "d", "e/"), {"e/a", "e/d/a"}),
        (("cp", "-r", "d/", "f/"), {"f/a"}),
        (("cp", "-r", "d", "copy", "g"), {"g/d/a", "g/copy"}),
        (("mv", "f", "h"), {"h/a"}),
        (("mv", "h", "g/"), {"g/d/a", "g/copy", "g/h/a"}),
    ):
        fsabs(*command, cwd=tmp_path)
        top = command[-1].rstrip("/").split("/")[0]
        found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert {name for name in found if name.split("/")[0] == top} == expected, command
    assert not (tmp_path / "f").exists()


@pytest.mark.quick
def test_force_no_clobber_checksum_include_and_exclude(tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {"a.txt": b"new", "b.bin": b"b", "skip/c.txt": b"c", "s/d.txt": b"d"})
    make_tree(tmp_path / "e", {"a.txt": b"old"})
    assert fsabs("cp", "-r", "-n", "d", "e", cwd=tmp_path).err == copied(3, "3 B", skipped=1)
    assert (tmp_path / "e/a.txt").read_bytes() == b"old"
    assert fsabs("cp", "-r", "d", "e", cwd=tmp_path).err == copied(0, skipped=4)  # of one size and one time
    assert fsabs("cp", "-r", "--checksum", "d", "e", cwd=tmp_path).err == copied(1, "3 B", skipped=3)
    assert fsabs("cp", "-r", "-f", "d", "e", cwd=tmp_path).err == copied(4, "6 B")
    fsabs("cp", "-r", "-f", "-n", "d", "e", cwd=tmp_path, code=2)
    fsabs("cp", "-r", "--exclude", "skip", "--include", "*.txt", "d", "f", cwd=tmp_path)
    assert read_tree(tmp_path / "f") == {"a.txt": b"new", "s/d.txt": b"d"}
    fsabs("sync", "--delete", "--exclude", "s/*", "d", "f", cwd=tmp_path)
    assert set(read_tree(tmp_path / "f")) == {"a.txt", "b.bin", "skip/c.txt", "s/d.txt"}
    assert (tmp_path / "f/a.txt").stat().st_mtime == MTIME


@pytest.mark.quick
def test_one_file_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    make_tree(tmp_path / "d", {f"{number}": b"%d" % number for number in range(9)})
    (tmp_path / "d/5").unlink()
    (tmp_path / "d/5").symlink_to("missing")
    (tmp_path / "e/7").mkdir(parents=True)
    done = fsabs("cp", "-r", "d", "e", cwd=tmp_path, code=1)
    assert sorted(line.split(": ")[1] for line in done.err.splitlines()[:-1]) == [
        "Is a directory [copy]",
        "No such file or directory [copy]",
    ]
    assert done.err.splitlines()[-1] + "\n" == copied(7, "7 B", failed=2)
    assert len(read_tree(tmp_path / "e")) == 7
    assert fsabs("cp", "d", "d/0", "f/", cwd=tmp_path, code=1).err.splitlines()[0] == (
        "fsabs: d is a directory; -r copies it"
    )


@pytest.mark.quick
def test_a_link_to_a_home_is_no_way_around_its_protection(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_tree(tmp_path / "home", {"kept": b"kept"})
    (tmp_path / "link").symlink_to("home")
    done = fsabs("sync", "--delete", "empty", "link", code=1, cwd=tmp_path, env={"HOME": str(tmp_path / "home")})
    assert "link is a home, or above it" in done.err
    assert read_tree(tmp_path / "home") == {"kept": b"kept"}


@pytest.mark.quick
def test_a_backup_takes_the_place_of_no_other_file(tmp_path: Path) -> None:
    for number in "12":
        make_tree(tmp_path, {f"s{number}/x": b"new" + number.encode(), f"t/s{number}/x": b"old" + number.encode()})
    done = fsabs("cp", "-rf", "--backup-dir", "kept", "s1", "s2", "t/", code=1, cwd=tmp_path)
    assert "would take the place of another file" in done.err
    found = [*read_tree(tmp_path / "t").values(), *read_tree(tmp_path / "kept").values()]
    assert sorted(found) in ([b"new1", b"old1", b"old2"], [b"new2", b"old1", b"old2"])
    make_tree(tmp_path, {"f": b"newer", "d/f": b"old"})
    done = fsabs("cp", "-f", "--backup-dir", "d", "f", "d/f", code=1, cwd=tmp_path)
    assert "would take the place of another file" in done.err
    assert read_tree(tmp_path / "d") == {"f": b"old"}


@pytest.mark.quick
def test_no_spelling_of_a_path_removes_what_it_does_not_name(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": b"f"})
    assert "Not a directory" in fsabs("rm", "f/", code=1, cwd=tmp_path).err
    local = library.Local(str(tmp_path))
    for recursive in (False, True):
        with pytest.raises(NotADirectoryError):
            local.remove("f/", recursive)
    with pytest.raises(NotADirectoryError):
        local.rename("f/", "g")
    assert read_tree(tmp_path) == {"f": b"f"}
    (tmp_path / "above/below").mkdir(parents=True)
    done = fsabs("rm", "-r", "--dry-run", f"file://{tmp_path}/above/below/%2e%2e", code=1)
    assert "is a directory by the name '..'" in done.err


@pytest.mark.quick
def test_an_archive_is_not_copied_into_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("a", b"a")
    before = (tmp_path / "x.zip").read_bytes()
    for command in ("cp", "mv"):
        for target in ("x.zip/", "x.zip/y"):
            assert "can't be copied into itself" in fsabs(command, "x.zip", target, code=1, cwd=tmp_path).err
    assert (tmp_path / "x.zip").read_bytes() == before
