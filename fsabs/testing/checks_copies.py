"""Checks of what moves whole contents: `copy_tree`, `sync_tree`, `as_local`."""

from __future__ import annotations

import os
import re
from contextlib import closing
from errno import EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR

from ..core.fs import FS, TreeCounts
from .asserts import assert_error, assert_raises, assert_same
from .kit import check
from .subjects import LocalSubject, Subject
from .trees import TREE, empty_directories, listing, noise

_LARGE = {"large/one.bin": noise(3_000_001), "large/two.bin": noise(1_100_000)}


@check("copy-tree")
def a_tree_is_copied_out(subject: Subject) -> None:
    files = {**TREE, **_LARGE}
    with subject.make(files, empty_directories(subject)) as fs, closing(LocalSubject()) as place:
        local = place.make({"here/a.txt": b"old", "here/b": b"b"})
        counts: list[tuple[int, int]] = []
        copied = fs.copy_tree("", "here", local, progress=lambda *count: counts.append(count), concurrency=3)
        assert_same(place.files(local), {"here/b": b"b", **{f"here/{key}": files[key] for key in files}})
        names = listing(files, empty_directories(subject))
        assert sorted(local.list("here", recursive=True)) == sorted([*names, "b"])
        directories = sum(name.endswith("/") for name in names)
        total = sum(map(len, files.values()))
        assert copied == TreeCounts(len(files), directories, total)
        assert counts[-1] == (copied.files, copied.bytes)
        assert counts == sorted(counts)
        fs.copy_tree("foo", "there/new", local, concurrency=1)
        assert local.isfile("there/new/deep/er/leaf.bin")
        assert_error(ENOENT, fs.url("none"), fs.copy_tree, "none", "x", local)
        assert_error((ENOTDIR, ENOENT), fs.url("a.txt"), fs.copy_tree, "a.txt", "x", local)
        assert not local.exists("x")


@check("copy-tree", needs=("write",))
def a_tree_is_copied_in(subject: Subject) -> None:
    files = {**TREE, **_LARGE}
    with closing(LocalSubject()) as place:
        local = place.make(files)
        local.makedirs("void")
        with subject.create() as fs:
            copied = local.copy_tree("", "in/side", fs, concurrency=2)
            assert (copied.files, copied.bytes) == (len(files), sum(map(len, files.values())))
        assert_same(subject.files(fs), {f"in/side/{key}": files[key] for key in files})
        if fs.capabilities.mkdir:
            assert "in/side/void" in subject.directories(fs)


@check("copy-tree", needs=("live", "write", "replace"))
def a_tree_is_copied_within(subject: Subject) -> None:
    with subject.make({**TREE, "to/a.txt": b"old", "to/stays": b"s"}) as fs:
        copied = fs.copy_tree("foo", "to/foo", concurrency=2)
        assert copied.files == 3
        fs.copy_tree("numbers", "to")
        inside = {f"to/{key}": data for key, data in TREE.items() if key.startswith("foo/")}
        numbers = {"to/9.txt": b"9", "to/10.txt": b"10", "to/a.txt": b"old", "to/stays": b"s"}
        assert_same(subject.files(fs), {**TREE, **inside, **numbers})
        for path in ("foo", "foo/below", ""):
            source = "" if path == "" else "foo"
            assert_error(EINVAL, fs.url(source), fs.copy_tree, source, path)


@check("as-local")
def a_file_is_read_by_path(subject: Subject) -> None:
    long = "n" * 190 + ".npy"
    with subject.make({**TREE, **_LARGE, long: b"long"}) as fs:
        for name in ("a.txt", "empty.bin", "large/one.bin", long):
            with fs.as_local(name) as path, open(path, "rb") as file:
                assert file.read() == {**TREE, **_LARGE, long: b"long"}[name]
                assert os.path.splitext(path)[1] == os.path.splitext(name)[1]
            folder = os.path.dirname(path)
            if re.fullmatch("fsabs-[0-9a-f]{16}", os.path.basename(folder)):
                assert not os.path.exists(folder)
        _refused(FileNotFoundError, ENOENT, fs, "none.txt", "r")
        _refused(IsADirectoryError, EISDIR, fs, "foo", "r")
        assert_raises(ValueError, fs.as_local, "a.txt", "a")


@check("as-local", needs=("write",))
def a_file_is_written_by_path(subject: Subject) -> None:
    folders = []
    with subject.create() as fs:
        for mode, name in (("w", "new.npy"), ("x", "other.npy")):
            with fs.as_local(name, mode) as path:
                assert not os.path.exists(path)
                _fill(path, noise(70_000))
                folders.append(os.path.dirname(path))
        for code in ("raise ValueError", "nothing"):
            try:
                with fs.as_local("failed.npy", "w") as path:
                    folders.append(os.path.dirname(path))
                    if code != "nothing":
                        _fill(path, b"half")
                        raise ValueError
            except (ValueError, FileNotFoundError):
                pass
    assert_same(subject.files(fs), {"new.npy": noise(70_000), "other.npy": noise(70_000)})
    assert [folder for folder in folders if os.path.exists(folder)] == []


@check("as-local", needs=("live", "write", "replace"))
def a_file_is_changed_by_path(subject: Subject) -> None:
    with subject.make({"a.bin": b"0123456789", "stays": b"s"}) as fs:
        with fs.as_local("a.bin", "r+") as path, open(path, "r+b") as file:
            assert file.read() == b"0123456789"
            file.seek(3)
            file.write(b"xyz")
        with fs.as_local("stays", "w") as path:
            _fill(path, b"replaced")
        _refused(FileExistsError, EEXIST, fs, "stays", "x")
        _refused(FileNotFoundError, ENOENT, fs, "none", "r+")
    assert_same(subject.files(fs), {"a.bin": b"012xyz6789", "stays": b"replaced"})


def _fill(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)


def _refused(kind: type[OSError], code: int, fs: FS, name: str, mode: str) -> None:
    def enter() -> None:
        with fs.as_local(name, mode):
            pass

    assert_error(code, fs.url(name), enter)


@check("sync-tree")
def a_tree_is_synchronized_out(subject: Subject) -> None:
    with subject.make(TREE) as fs, closing(LocalSubject()) as place:
        local = place.make({})
        size = sum(map(len, TREE.values()))
        first, second = fs.sync_tree("", "here", local), fs.sync_tree("", "here", local)
        assert first._replace(directories=0) == TreeCounts(len(TREE), bytes=size)
        assert second == TreeCounts(skipped=len(TREE))
        local.write_bytes("here/more", b"more")
        local.write_bytes("here/a.txt", b"x" * len(TREE["a.txt"]))
        done = fs.sync_tree("", "here", local, delete=True, content=True)
        changed = TreeCounts(1, 0, len(TREE["a.txt"]), len(TREE) - 1, 1)
        assert done == changed
        assert_same(place.files(local), {f"here/{key}": data for key, data in TREE.items()})


@check("sync-tree", needs=("live", "write", "replace", "remove"))
def a_tree_is_synchronized_in(subject: Subject) -> None:
    with closing(LocalSubject()) as place, subject.create() as fs:
        local = place.make(TREE)
        content = not fs.capabilities.settable_times  # else the times show it
        first = local.sync_tree("", "in/side", fs, concurrency=3)
        assert (first.files, first.skipped) == (len(TREE), 0)
        second = local.sync_tree("", "in/side", fs, content=content)
        assert second == TreeCounts(skipped=len(TREE))
        local.remove("foo", recursive=True)
        gone = sum(key.startswith("foo/") for key in TREE)
        third = local.sync_tree("", "in/side", fs, content=content, delete=True)
        assert third == TreeCounts(skipped=len(TREE) - gone, removed=gone)
        left = {f"in/side/{key}": data for key, data in TREE.items() if not key.startswith("foo/")}
        assert_same(subject.files(fs), left)
