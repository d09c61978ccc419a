"""Checks of what is said about a tree: listings, walks, globs, stats, and that they agree."""

from __future__ import annotations

import glob
import time
from contextlib import closing
from errno import ENOENT, ENOTDIR

from ..core.stats import TreeCounts
from .asserts import assert_error, assert_raises, assert_tree, listed
from .kit import check
from .subjects import LocalSubject, Subject
from .trees import TREE, empty_directories, inside, listing, members, walked


@check("list-names", "list-recursive", "list-detail", "stat", "exists", "walk", "agree")
def every_route_tells_the_same(subject: Subject) -> None:
    empty = empty_directories(subject)
    with subject.make(TREE, empty) as fs:
        assert_tree(fs, TREE, empty)


@check("agree")
def every_route_tells_the_same_below_a_directory(subject: Subject) -> None:
    below = inside(TREE, "foo")
    with subject.make(TREE) as fs:
        assert_tree(fs, below, base="foo")
        assert_tree(fs.subfs("foo"), below)
        fs.cwd = "foo"
        assert_tree(fs, below)


@check("list-empty", needs=("read", "empty_directories"))
def empty_directories_are_there(subject: Subject) -> None:
    files, empty = {"a.txt": b"x", "full/b.txt": b"y"}, ["void", "full/void", "nest/of/voids"]
    with subject.make(files, empty) as fs:
        assert_tree(fs, files, empty)


@check("usage")
def usage_is_the_sum_of_the_files(subject: Subject) -> None:
    with subject.make(TREE, empty_directories(subject)) as fs:
        for base in ("", "foo", "foo/deep"):
            sizes = [len(data) for data in inside(TREE, base).values()]
            assert fs.usage(base) == TreeCounts(len(sizes), bytes=sum(sizes))
        assert_error(ENOENT, fs.url("none"), fs.usage, "none")


@check("list-names", "list-order")
def names_are_relative_and_ordered(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for base in ("", "foo", "foo/deep", "foo/deep/er"):
            for path in (base, f"./{base}/", f"{fs.cwd}/{base}"):
                assert listed(fs, path) == members(TREE, base=base)
                assert listed(fs, path, recursive=True) == listing(TREE, base=base)
        assert listed(fs, None) == listed(fs) == members(TREE)


@check("list-order", needs=("ordered",))
def order_is_by_code_point(subject: Subject) -> None:
    wanted = [*"-0AZ_abz~éüﬁ日😀", "a b", "a-b", "a.b", "a0", "aa", "ab"]
    names = [name for name in wanted if not set(name) & set(subject.refused_characters)]
    files = {path: b"x" for name in names for path in (f"a/{name}", name) if path != "a"}
    with subject.make(files) as fs:
        assert list(fs.list()) == members(files)
        assert list(fs.list(recursive=True)) == listing(files)
        assert list(fs.glob("*")) == [name.rstrip("/") for name in members(files)]


@check("list-large")
def a_thousand_entries(subject: Subject) -> None:
    files = {f"many/{n:04}": b"" for n in range(1000)} | {"many0": b"after it", "man": b"before it"}
    with subject.make(files) as fs:
        assert listed(fs, "many") == members(files, base="many")
        assert listed(fs, "", recursive=True) == listing(files)
        assert len(list(fs.glob("many/*7"))) == 100
        found = fs.list("many", detail=True)
        first = next(found).filename
        assert first == "0000" or not fs.capabilities.ordered
        assert fs.exists("many/0999")
        assert len({first, *(stat.filename for stat in found)}) == 1000


@check("stat-modified", needs=("read", "last_modified"))
def files_tell_when_they_were_written(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for stat in [*fs.list(recursive=True, detail=True), fs.stat("a.txt")]:
            if not stat.directory:
                assert isinstance(stat.last_modified, float)
                assert abs(time.time() - stat.last_modified) < 600 or not subject.live


@check("stat-version", needs=("read", "versions"))
def versions_tell_files_apart(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for stat in fs.list(recursive=True, detail=True):
            assert stat.directory or isinstance(stat.version, str)
            assert stat.directory or fs.stat(stat.filename).version == stat.version != ""


@check("list-missing")
def what_is_missing_raises_at_the_call(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for recursive, detail in ((False, False), (True, False), (False, True)):
            for path in ("no such", "foo/no such", "fo", "foo/dee"):
                assert_error(ENOENT, fs.url(path), fs.list, path, recursive, detail)
            for path in ("a.txt", "foo.txt", "foo/inside.txt"):
                assert_error(ENOTDIR, fs.url(path), fs.list, path, recursive, detail)
        assert_raises(FileNotFoundError, list, fs.walk("no such"))
        assert_raises(NotADirectoryError, list, fs.walk("a.txt"))


@check("walk")
def walks_go_top_down(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for top in ("", "foo", "foo/deep/er"):
            assert list(fs.walk(top)) == walked(TREE, base=top)
        seen = []
        for path, folders, _ in fs.walk():
            seen.append(path)
            folders[:] = [name for name in folders if name == "foo"]
        assert seen == ["", "foo"]


@check("exists")
def siblings_that_start_alike(subject: Subject) -> None:
    files = {"foo-bar": b"1", "foo.txt": b"2", "fooo/x": b"3", "dir-beside/x": b"4", "dir/x": b"5", "x/foo-bar/y": b"6"}
    with subject.make(files) as fs:
        for path in ("foo", "fo", "foo-ba", "dir-", "di", "x/foo", "foo.tx"):
            assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (False, False, False), path
        assert_raises(FileNotFoundError, fs.stat, "foo")
        assert_raises(FileNotFoundError, fs.open, "foo", "rb")
        assert_tree(fs, files)


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
    with closing(LocalSubject()) as local, subject.make(TREE, empty) as fs:
        folder = local.location(local.make(TREE, empty))
        for pattern in _PATTERNS:
            found = [path.rstrip("/") for path in fs.glob(pattern)]
            expected = {path.rstrip("/") for path in glob.glob(pattern, root_dir=folder, recursive=True)}
            assert sorted(found) == sorted(expected), pattern
            if "**" not in pattern:
                assert found == sorted(found, key=lambda path: path + "/" if fs.isdir(path) else path), pattern
            absolute = fs.cwd.rstrip("/") + "/"
            found = [path.rstrip("/") for path in fs.glob(absolute + pattern)]
            assert sorted(found) == sorted(absolute + path for path in expected), pattern


@check("glob")
def globs_take_names_as_they_are(subject: Subject) -> None:
    wanted = ("a[1].txt", "a1.txt", "b*c", "bxc", "new\nline", "d?", "de")
    names = [name for name in wanted if not set(name) & set(subject.refused_characters)]
    with subject.make(dict.fromkeys(names, b"")) as fs:
        for name in names:
            assert list(fs.glob(glob.escape(name))) == [name]
        assert sorted(fs.glob("*")) == sorted(names)
