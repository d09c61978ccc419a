"""Checks of what changes a tree: `mkdir`, `makedirs`, `rename`, `remove`, `copy`; and of whole copies: `copy_tree`,
`sync_tree`, `as_local`.
"""

from __future__ import annotations

import os
import re
import warnings
from contextlib import closing
from errno import EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, ETIMEDOUT

from ..backends.memory import Memory
from ..core.errors import UnnamedKeysWarning
from ..core.fs import FS, TreeCounts
from .asserts import assert_error, assert_raises, assert_same, assert_tree
from .faulty import Fault, FaultyFS, Raise
from .kit import check
from .subjects import LocalSubject, Subject
from .trees import TREE, directories_of, empty_directories, listing, noise


@check("mkdir", needs=("live", "mkdir"))
def mkdir_makes_one_directory(subject: Subject) -> None:
    with subject.make({"a.txt": b"x", "dir/b.txt": b"y"}) as fs:
        fs.mkdir("new")
        fs.mkdir("dir/new/")
        fs.mkdir(fs.cwd.rstrip("/") + "/absolute", 0o755)
        assert_tree(fs, {"a.txt": b"x", "dir/b.txt": b"y"}, ["new", "dir/new", "absolute"])
        for path in ("new", "dir", "dir/new", "a.txt"):
            assert_error(EEXIST, fs.url(path), fs.mkdir, path)
        assert_tree(fs, {"a.txt": b"x", "dir/b.txt": b"y"}, ["new", "dir/new", "absolute"])
    assert_same(subject.files(fs), {"a.txt": b"x", "dir/b.txt": b"y"})


@check("mkdir", needs=("live", "mkdir", "not implied_directories"))
def mkdir_needs_its_parent(subject: Subject) -> None:
    with subject.make({"a.txt": b"x"}) as fs:
        assert_error(ENOENT, fs.url("no/such"), fs.mkdir, "no/such")
        assert_error(ENOTDIR, fs.url("a.txt/x"), fs.mkdir, "a.txt/x")
        assert_error(ENOTDIR, fs.url("a.txt/x/y"), fs.makedirs, "a.txt/x/y")
    assert_same(subject.contents(fs), {"a.txt": b"x"})


@check("makedirs", needs=("live", "mkdir"))
def makedirs_makes_what_is_missing(subject: Subject) -> None:
    files = {"a.txt": b"x", "dir/b.txt": b"y"}
    with subject.make(files) as fs:
        fs.makedirs("new/er/est")
        fs.makedirs("dir/deep", exist_ok=True)
        fs.makedirs("single")
        made = ["new/er/est", "dir/deep", "single"]
        assert_tree(fs, files, made)
        for path in ("dir", "new/er", "new/er/est", ""):
            fs.makedirs(path, exist_ok=True)
        for path in ("dir", "new/er/est", "a.txt"):
            assert_error(EEXIST, fs.url(path), fs.makedirs, path)
        assert_error(EEXIST, fs.url("a.txt"), fs.makedirs, "a.txt", 0o777, True)
        assert_tree(fs, files, made)
        fs.write_bytes("new/er/est/file", b"z")
    assert_same(subject.files(fs), {**files, "new/er/est/file": b"z"})


@check("mkdir", needs=("not live", "mkdir"))
def directories_are_made_in_a_container(subject: Subject) -> None:
    with subject.create() as fs:
        fs.mkdir("void")
        fs.makedirs("new/er/est")
        fs.makedirs("void", exist_ok=True)
        fs.write_bytes("full.txt", b"x")
    assert {"void", "new/er/est"} <= subject.directories(fs)
    assert_same(subject.files(fs), {"full.txt": b"x"})


@check("rename-file", needs=("live", "rename", "write"))
def files_are_renamed(subject: Subject) -> None:
    with subject.make({"a.txt": b"a", "b.txt": b"b", "dir/c.txt": b"c"}) as fs:
        fs.rename("a.txt", "new.txt")
        fs.rename("new.txt", "dir/moved.txt")
        assert_tree(fs, {"b.txt": b"b", "dir/c.txt": b"c", "dir/moved.txt": b"a"})
        fs.rename("dir/moved.txt", "b.txt")
        assert_tree(fs, {"b.txt": b"a", "dir/c.txt": b"c"})
        fs.rename(fs.cwd.rstrip("/") + "/b.txt", "./same.txt")
        fs.rename("same.txt", "same.txt")
    assert_same(subject.files(fs), {"same.txt": b"a", "dir/c.txt": b"c"})


@check("rename-directory", needs=("live", "rename"))
def directories_are_renamed(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        fs.rename("foo", "moved")
        expected = {key.replace("foo/", "moved/", 1) if key.startswith("foo/") else key: TREE[key] for key in TREE}
        assert_tree(fs, expected)
        fs.rename("moved/deep", "numbers/deep")
        expected = {key.replace("moved/deep/", "numbers/deep/", 1): data for key, data in expected.items()}
        assert_tree(fs, expected)
        fs.rename("moved", "moved")
        assert_tree(fs, expected)
    assert_same(subject.files(fs), expected)


@check("rename-errors", needs=("live", "rename"))
def renames_that_cant_be(subject: Subject) -> None:
    files = {"a.txt": b"a", "dir/b.txt": b"b", "other/c.txt": b"c"}
    with subject.make(files) as fs:
        for source, target in (("no such", "x"), ("no such", "no such"), ("dir/no such", "a.txt")):
            assert_error(ENOENT, fs.url(source), fs.rename, source, target)
        both = [fs.url("dir"), fs.url("dir/in"), fs.url("dir/in/it")]
        for target in ("dir/in", "dir/in/it"):
            assert_error(EINVAL, both, fs.rename, "dir", target)
        urls = [fs.url("a.txt"), fs.url("dir"), fs.url("other")]
        assert_error(EISDIR, urls, fs.rename, "a.txt", "dir")
        assert_error(ENOTDIR, urls, fs.rename, "dir", "a.txt")
        assert_error((ENOTEMPTY, EEXIST), urls, fs.rename, "dir", "other")
        assert_tree(fs, files)
    assert_same(subject.files(fs), files)


@check("rename-errors", needs=("live", "rename", "not implied_directories"))
def renaming_to_where_no_directory_is(subject: Subject) -> None:
    with subject.make({"a.txt": b"a", "b.txt": b"b"}) as fs:
        urls = [fs.url(path) for path in ("a.txt", "no/such", "b.txt/x")]
        assert_error(ENOENT, urls, fs.rename, "a.txt", "no/such")
        assert_error(ENOTDIR, urls, fs.rename, "a.txt", "b.txt/x")
        assert_error(ENOTDIR, [fs.url("b.txt/x")], fs.rename, "b.txt/x", "y")
    assert_same(subject.contents(fs), {"a.txt": b"a", "b.txt": b"b"})


@check("rename-directory", needs=("live", "rename", "mkdir", "not implied_directories"))
def an_empty_directory_gives_way(subject: Subject) -> None:
    with subject.make({"dir/b.txt": b"b"}, ["void", "nil"]) as fs:
        fs.rename("dir", "void")
        assert_tree(fs, {"void/b.txt": b"b"}, ["nil"])
        fs.rename("nil", "void/nil")
        assert_tree(fs, {"void/b.txt": b"b"}, ["void/nil"])
    assert_same(subject.files(fs), {"void/b.txt": b"b"})


@check("remove", needs=("live", "remove"))
def files_are_removed(subject: Subject) -> None:
    kept = {key: data for key, data in TREE.items() if key not in ("a.txt", "foo.txt", "foo/deep/second.txt")}
    with subject.make(TREE) as fs:
        fs.remove("a.txt")
        fs.remove("foo.txt", recursive=True)
        fs.remove("foo/deep/second.txt")
        assert_tree(fs, kept)
        for path in ("a.txt", "no such", "foo/no such", "no/such", "fo"):
            assert_error(ENOENT, fs.url(path), fs.remove, path)
            assert_error(ENOENT, fs.url(path), fs.remove, path, True)
        assert_tree(fs, kept)
    assert_same(subject.files(fs), kept)


@check("remove-directory", needs=("live", "remove"))
def directories_are_removed_on_demand(subject: Subject) -> None:
    many = {f"foo/many/{n % 7}/{n:03}.txt": b"x" for n in range(300)}
    kept = {key: data for key, data in TREE.items() if not key.startswith("foo/")}
    with subject.make({**TREE, **many}) as fs:
        for path in ("foo", "foo/", "foo/deep"):
            assert_error(EISDIR, fs.url(path), fs.remove, path)
        assert_same(subject.files(fs), {**TREE, **many})
        fs.remove("foo", recursive=True)
        assert_tree(fs, kept)
        assert_error(ENOENT, fs.url("foo"), fs.remove, "foo", True)
    assert_same(subject.files(fs), kept)
    assert [name for name in subject.directories(fs) if name == "foo" or name.startswith("foo/")] == []


@check("remove-directory", needs=("live", "remove", "empty_directories"))
def empty_directories_are_removed_on_demand(subject: Subject) -> None:
    with subject.make({"a.txt": b"x"}, ["void", "nest/of/voids"]) as fs:
        assert_error(EISDIR, fs.url("void"), fs.remove, "void")
        assert_tree(fs, {"a.txt": b"x"}, ["void", "nest/of/voids"])
        fs.remove("void", recursive=True)
        fs.remove("nest", recursive=True)
        assert_tree(fs, {"a.txt": b"x"})


@check("directories-stay", needs=("live", "write", "remove", "not implied_directories"))
def directories_outlive_their_files(subject: Subject) -> None:
    with subject.make({"dir/sub/a.txt": b"x"}) as fs:
        fs.remove("dir/sub/a.txt")
        assert_tree(fs, {}, ["dir/sub"])
        fs.write_bytes("dir/sub/b.txt", b"y")
        assert_tree(fs, {"dir/sub/b.txt": b"y"})
    assert_same(subject.files(fs), {"dir/sub/b.txt": b"y"})


@check("directories-stay", needs=("live", "write", "remove", "implied_directories"))
def implied_directories_go_with_their_files(subject: Subject) -> None:
    with subject.make({"keep.txt": b"k"}) as fs:
        fs.write_bytes("dir/sub/a.txt", b"x")
        fs.write_bytes("dir/b.txt", b"y")
        assert_tree(fs, {"keep.txt": b"k", "dir/sub/a.txt": b"x", "dir/b.txt": b"y"})
        fs.remove("dir/sub/a.txt")
        assert_tree(fs, {"keep.txt": b"k", "dir/b.txt": b"y"})
        fs.remove("dir/b.txt")
        assert_tree(fs, {"keep.txt": b"k"})
    assert_same(subject.contents(fs), {"keep.txt": b"k"})


@check("remove-root", needs=("live", "write", "remove"))
def the_root_is_emptied_and_stays(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        fs.cwd = "foo"
        for path in ("/" + fs._root, ".."):
            assert_error(EISDIR, fs.url(".."), fs.remove, path)
        fs.cwd = ".."
        sub = fs.subfs("foo")
        for remove in (sub.remove, sub.rmdir, lambda path: sub.remove(path, recursive=True)):
            assert_raises(FileNotFoundError, remove, "")
        sub.remove(".", recursive=True)
        assert_same(subject.files(fs), {key: TREE[key] for key in TREE if key[:4] != "foo/"})
        fs.remove(".", recursive=True)
        assert_same(subject.files(fs), {})
        fs.write_bytes("new", b"new")
        assert list(fs.list()) == ["new"]


@check("unnamed", needs=("read",))
def what_no_path_names_is_listed_raw(subject: Subject) -> None:
    with subject.make(TREE) as fs, warnings.catch_warnings():
        warnings.simplefilter("error", UnnamedKeysWarning)
        assert list(fs.unnamed()) == []
        assert len(list(fs.list(recursive=True))) == len(listing(TREE))


@check("copy", needs=("live", "write", "replace"))
def files_are_copied(subject: Subject) -> None:
    data = noise(3_000_001)
    with subject.make({"a.bin": data, "empty": b"", "dir/b.txt": b"b"}) as fs:
        fs.copy("a.bin", "copied.bin")
        fs.copy("a.bin", "dir/b.txt")
        fs.copy("empty", "dir/empty")
        fs.copy("empty", "copied.bin")
        assert_error(EINVAL, fs.url("a.bin"), fs.copy, "a.bin", "a.bin")
        assert_tree(fs, {"a.bin": data, "empty": b"", "dir/b.txt": data, "dir/empty": b"", "copied.bin": b""})
        for path, code in (("no such", ENOENT), ("dir", EISDIR)):
            assert_error(code, fs.url(path), fs.copy, path, "x")
        assert not fs.exists("x")
    expected = {"a.bin": data, "empty": b"", "dir/b.txt": data, "dir/empty": b"", "copied.bin": b""}
    assert_same(subject.files(fs), expected)


@check("copy")
def files_are_copied_to_another_fs(subject: Subject) -> None:
    memory = Memory()
    with subject.make(TREE) as fs:
        for directory in sorted(directories_of(TREE)):
            memory.makedirs(directory)
        for name in TREE:
            fs.copy(name, name, memory)
        assert_tree(memory, TREE)
        assert_tree(fs, TREE)
        url = memory.url("no/such")
        assert_error(ENOENT, [url], fs.copy, "a.txt", "no/such", memory)


@check("copy", needs=("write",))
def files_are_copied_from_another_fs(subject: Subject) -> None:
    memory = Memory()
    files = {f"{n}.bin": noise(n) for n in (0, 1, 100_000, 9_000_001)}
    for name, data in files.items():
        memory.write_bytes(name, data)
    with subject.create() as fs:
        for name in files:
            memory.copy(name, name, fs)
        assert_error(ENOENT, memory.url("no such"), memory.copy, "no such", "lost.bin", fs)
        fault = Fault("read", Raise(TimeoutError(ETIMEDOUT, "no answer")), at=2)
        failing = FaultyFS(memory, fault)
        big = "9000001.bin"
        assert_error(ETIMEDOUT, memory.url(big), failing.copy, big, "lost.bin", fs)
        assert failing.injected == {fault: 1}
    assert_same(subject.files(fs), files)


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
                assert_same({name: file.read()}, {name: {**TREE, **_LARGE, long: b"long"}[name]})
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
