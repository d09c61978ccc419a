"""Checks of what is said about a tree: listings, walks, globs, stats, and that they agree."""

from __future__ import annotations

import errno
import glob
import os
import tempfile
import time

from ..core.fs import FileStat, TreeCounts
from . import expect
from .agreement import check_tree, listed
from .kit import check
from .subject import Subject
from .trees import TREE, directories_of, empty_directories, listing, members, walked


@check("list-names", "list-recursive", "list-detail", "stat", "exists", "walk", "agree")
def every_route_tells_the_same(subject: Subject) -> None:
    empty = empty_directories(subject)
    with subject.make(TREE, empty) as fs:
        check_tree(fs, TREE, empty)


@check("usage")
def usage_is_the_sum_of_the_files(subject: Subject) -> None:
    with subject.make(TREE, empty_directories(subject)) as fs:
        for base in ("", "foo", "foo/deep"):
            sizes = [len(data) for key, data in TREE.items() if not base or key.startswith(f"{base}/")]
            expect.equal(fs.usage(base), TreeCounts(len(sizes), bytes=sum(sizes)), f"usage({base!r})")
        expect.os_error(FileNotFoundError, errno.ENOENT, (fs, "none"), fs.usage, "none")


@check("agree")
def every_route_tells_the_same_below_a_directory(subject: Subject) -> None:
    below = {key[len("foo/") :]: data for key, data in TREE.items() if key.startswith("foo/")}
    with subject.make(TREE) as fs:
        check_tree(fs, below, base="foo")
        check_tree(fs.subfs("foo"), below)
        fs.cwd = "foo"
        check_tree(fs, below)


@check("list-names", "list-order")
def names_are_relative_and_ordered(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for base in ("", "foo", "foo/deep", "foo/deep/er"):
            for path in (base, f"./{base}/", f"{fs.cwd}/{base}"):
                expect.equal(listed(fs, path), members(TREE, base=base), f"list({path!r})")
                expect.equal(listed(fs, path, recursive=True), listing(TREE, base=base), f"list({path!r}) of all")
        expect.equal(listed(fs, None), members(TREE), "list(None)")
        expect.equal(listed(fs), members(TREE), "list()")


@check("list-order", needs=("ordered",))
def order_is_by_code_point(subject: Subject) -> None:
    wanted = [
        "-",
        "0",
        "A",
        "Z",
        "_",
        "a",
        "a b",
        "a-b",
        "a.b",
        "a0",
        "aa",
        "ab",
        "b",
        "z",
        "~",
        "é",
        "ü",
        "ﬁ",
        "日",
        "😀",
    ]
    names = [name for name in wanted if not set(name) & set(subject.refused_characters)]
    files = dict.fromkeys(reversed(names), b"x")
    files.update({f"a/{name}": b"y" for name in names if name != "a"})
    del files["a"]
    with subject.make(files) as fs:
        expect.equal(listed(fs), members(files), "list()")
        expect.equal(listed(fs, recursive=True), listing(files), "list(recursive=True)")
        expect.equal(list(fs.glob("*")), [name.rstrip("/") for name in members(files)], "glob('*')")


@check("list-large")
def a_thousand_entries(subject: Subject) -> None:
    files = {f"many/{n:04}": b"" for n in range(1000)} | {"many0": b"after it", "man": b"before it"}
    with subject.make(files) as fs:
        expect.equal(listed(fs, "many"), members(files, base="many"), "a directory of 1000 files")
        expect.equal(listed(fs, "", recursive=True), listing(files), "the tree around it")
        expect.equal(len(list(fs.glob("many/*7"))), 100, "the number of names that match many/*7")
        found = fs.list("many", detail=True)
        first = next(found).filename
        expect.true(first == "0000" or not fs.capabilities.ordered, f"the first of many is {first}")
        expect.equal(fs.exists("many/0999"), True, "another question, while a listing is half-used")
        expect.equal(len({first, *(stat.filename for stat in found)}), 1000, "the number of names, as it goes on")


@check("list-empty", needs=("read", "empty_directories"))
def empty_directories_are_there(subject: Subject) -> None:
    with subject.make({"a.txt": b"x", "full/b.txt": b"y"}, ["void", "full/void", "nest/of/voids"]) as fs:
        for path in ("void", "full/void", "nest/of/voids"):
            expect.equal(listed(fs, path), [], f"list({path!r})")
            expect.equal(listed(fs, path, recursive=True), [], f"list({path!r}, recursive=True)")
            expect.equal(list(fs.walk(path)), [(path, [], [])], f"walk({path!r})")
            expect.equal(
                (fs.exists(path), fs.isdir(path), fs.isfile(path)), (True, True, False), f"asking for {path!r}"
            )
        expect.equal(listed(fs), ["a.txt", "full/", "nest/", "void/"], "list()")
        everything = ["a.txt", "full/", "full/b.txt", "full/void/", "nest/", "nest/of/", "nest/of/voids/", "void/"]
        expect.equal(listed(fs, recursive=True), everything, "list(recursive=True)")


@check("list-detail", "stat")
def details_are_filestats(subject: Subject) -> None:
    with subject.make(TREE, empty_directories(subject)) as fs:
        for stat in [*fs.list(detail=True), *fs.list(recursive=True, detail=True), fs.stat("a.txt"), fs.stat("foo")]:
            expect.true(isinstance(stat, FileStat), f"{stat!r} is no FileStat")
            expect.true(stat.size >= 0 and (not stat.directory or stat.size == 0), f"the size in {stat!r}")
            expect.true(stat.version is None or isinstance(stat.version, str), f"the version in {stat!r}")
            expect.equal((stat.isdir(), stat.isfile()), (stat.directory, not stat.directory), f"the kind of {stat!r}")


@check("stat-modified", needs=("read", "last_modified"))
def files_tell_when_they_were_written(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        now = time.time()
        for stat in [*fs.list(recursive=True, detail=True), fs.stat("a.txt")]:
            if stat.directory:
                continue
            modified = stat.last_modified
            expect.true(isinstance(modified, float), f"`last_modified` is declared, and {stat!r} has none")
            expect.true(
                not subject.live or abs(now - (modified or 0)) < 600, f"{stat!r} was written just now, at {now}"
            )


@check("stat-version", needs=("read", "versions"))
def versions_tell_files_apart(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        listed = {stat.filename: stat.version for stat in fs.list(recursive=True, detail=True) if stat.isfile()}
        for name, version in listed.items():
            expect.true(isinstance(version, str) and version, f"`versions` is declared, and {name!r} has {version!r}")
            expect.equal(fs.stat(name).version, version, f"the version of {name!r}, asked again")


@check("list-missing")
def what_is_missing_raises_at_the_call(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for recursive, detail in ((False, False), (True, False), (False, True)):
            for path in ("no such", "foo/no such", "fo", "foo/dee"):
                expect.os_error(FileNotFoundError, errno.ENOENT, (fs, path), fs.list, path, recursive, detail)
            for path in ("a.txt", "foo.txt", "foo/inside.txt"):
                expect.os_error(NotADirectoryError, errno.ENOTDIR, (fs, path), fs.list, path, recursive, detail)
        expect.raises(FileNotFoundError, "a walk of what is missing", list, fs.walk("no such"))
        expect.raises(NotADirectoryError, "a walk of a file", list, fs.walk("a.txt"))


@check("walk")
def walks_go_top_down(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for top in ("", "foo", "foo/deep/er"):
            expect.equal(list(fs.walk(top)), walked(TREE, base=top), f"walk({top!r})")
        seen = []
        for path, folders, names in fs.walk():
            seen += [f"{path}/{name}" for name in names]
            folders[:] = [name for name in folders if name == "foo"]
        expect.equal([name for name in seen if "foo" not in name and name[0] != "/"], [], "what was pruned from a walk")
        expect.equal("foo/inside.txt" in seen, True, "what was left in a walk")


@check("exists")
def siblings_that_start_alike(subject: Subject) -> None:
    files = {"foo-bar": b"1", "foo.txt": b"2", "fooo/x": b"3", "dir-beside/x": b"4", "dir/x": b"5", "x/foo-bar/y": b"6"}
    with subject.make(files) as fs:
        for path in ("foo", "fo", "fooo/", "foo-ba", "dir-", "di", "x/foo", "foo.tx"):
            there = path == "fooo/"
            asked = (fs.exists(path), fs.isdir(path), fs.isfile(path))
            expect.equal(asked, (there, there, False), f"exists, isdir and isfile of {path!r}")
        expect.raises(FileNotFoundError, "stat of a name that others start with", fs.stat, "foo")
        expect.raises(FileNotFoundError, "opening a name that others start with", fs.open, "foo", "rb")
        expect.equal(listed(fs, "dir"), ["x"], "list('dir') beside dir-beside")
        expect.equal(listed(fs, "dir", recursive=True), ["x"], "list('dir', recursive=True) beside dir-beside")
        expect.equal(list(fs.glob("dir/*")), ["dir/x"], "glob('dir/*') beside dir-beside")


# fmt: off
_PATTERNS = (
    "*", "*.txt", "foo*", "fo?", "[a-f]*", "[!f]*", "*/*", "foo/*", "foo/*/*", "*/inside.txt", "foo", "foo.txt",
    "no such", "no such/*", "a.txt/*", ".*", ".hidden*/*", "**", "**/*.txt", "**/inside.txt", "foo/**/leaf.bin",
    "**/.hid*", "**/deep/*", "*/", "foo/*/", "a.txt/", "**/", "numbers/[0-9].txt", "numbers/??.*", "**/**",
    "foo/deep/../*", "f**", "*/../a.txt",
)
# fmt: on


@check("glob")
def globs_are_pythons(subject: Subject) -> None:
    """Held against `glob.glob` on a local copy."""
    empty = empty_directories(subject)
    with tempfile.TemporaryDirectory() as folder, subject.make(TREE, empty) as fs:
        for directory in directories_of(TREE, empty):
            os.makedirs(os.path.join(folder, directory), exist_ok=True)
        for name in TREE:
            open(os.path.join(folder, name), "w").close()
        for pattern in _PATTERNS:
            found = [path.rstrip("/") for path in fs.glob(pattern)]
            expected = {path.rstrip("/") for path in glob.glob(pattern, root_dir=folder, recursive=True)}
            expect.equal(sorted(found), sorted(expected), f"glob({pattern!r}), as glob.glob has it")
            if "**" not in pattern:
                ordered = sorted(found, key=lambda path: path + "/" if fs.isdir(path) else path)
                expect.equal(found, ordered, f"the order of glob({pattern!r})")
            absolute = fs.cwd.rstrip("/") + "/"
            found = [path.rstrip("/") for path in fs.glob(absolute + pattern)]
            expect.equal(sorted(found), sorted(absolute + path for path in expected), f"glob({absolute + pattern!r})")


@check("glob")
def globs_take_names_as_they_are(subject: Subject) -> None:
    wanted = {"a[1].txt": b"1", "a1.txt": b"2", "b*c": b"3", "bxc": b"4", "new\nline": b"5", "d?": b"6", "de": b"7"}
    files = {name: data for name, data in wanted.items() if not set(name) & set(subject.refused_characters)}
    with subject.make(files) as fs:
        for name in files:
            expect.equal(list(fs.glob(glob.escape(name))), [name], f"glob of {name!r}, escaped")
        expect.equal(sorted(fs.glob("*")), sorted(files), "glob('*')")
