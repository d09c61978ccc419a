"""Checks of paths: names of every kind, `cwd`, the jail, `subfs`, and URLs."""

from __future__ import annotations

import errno
import functools
import os
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from ..core import keys
from ..core.fs import FS
from . import expect
from .agreement import check_tree, listed
from .kit import check
from .subject import Subject
from .trees import TREE, members, walked

# fmt: off
_NAMES = (
    "with space", " space in front", "space behind ", "plus+sign", "a+b c%20d", "per%cent", "%2e%2e", "%2F", "%",
    "hash#tag", "question?mark", "a&b=c", "semi;colon", "colon:name", "at@name", "comma,name", "quote'name",
    'double"quote', "back\\slash", "back`tick", "star*", "[brackets]", "{braces}", "(parens)", "<angles>", "pipe|name",
    "tilde~", "$dollar", "!bang", "^caret", "-dash", "--option", "...", "..dots", "dots..", ".leading", "trailing.",
    "tab\tname", "new\nline", "\x7f", "ünïcödé", unicodedata.normalize("NFD", "ünïcödé"), "日本語", "😀", "ﬁ",
    "\u202eright to left", "x" * 200, "CON",
)
# fmt: on


def _names(subject: Subject) -> list[str]:
    return [name for name in _NAMES if not set(name) & set(subject.refused_characters)]


@check("path-names")
def odd_names_are_read(subject: Subject) -> None:
    names = _names(subject)
    files = {name: name.encode() for name in names if "d" not in name} | {"dir/" + name: b"in" for name in names}
    files |= {f"{name}/inside": name.encode() for name in names if "d" in name}
    with subject.make(files) as fs:
        check_tree(fs, files)


@check("path-names", needs=("write",))
def odd_names_are_written(subject: Subject) -> None:
    files = {name: name.encode() for name in _names(subject)}
    with subject.create() as fs:
        for name, data in files.items():
            fs.write_bytes(name, data)
        for char in subject.refused_characters:
            what = f"a name with {char!r}, which the store can't have"
            expect.raises((OSError, ValueError), what, fs.write_bytes, f"a{char}b", b"refused")
    expect.equal(subject.files(fs), files, "files of odd names that were written")


@check("path-relative")
def spellings_of_a_path(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in (
            "foo/inside.txt",
            "./foo/inside.txt",
            "foo//inside.txt",
            "foo/./inside.txt",
            "foo/deep/../inside.txt",
        ):
            expect.equal(fs.read_bytes(path), TREE["foo/inside.txt"], f"read_bytes({path!r})")
        expect.equal(fs.read_bytes("a.txt/../foo.txt"), TREE["foo.txt"], "`..` takes a segment away, whatever it is")
        expect.equal(fs.read_bytes(PurePosixPath("foo/inside.txt")), TREE["foo/inside.txt"], "an os.PathLike")
        expect.equal(listed(fs, PurePosixPath("foo")), members(TREE, base="foo"), "an os.PathLike, listed")
        expect.raises(TypeError, "a path of bytes", fs.read_bytes, b"a.txt")
        expect.raises(TypeError, "a path that is an int", fs.open, 0)


@check("path-relative")
def nothing_else_is_a_path(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in (b"a.txt", b"", 0, 7, 1.5, False, ["a.txt"]):
            for what, call in _calls(fs, path):  # type: ignore[arg-type]
                expect.raises(TypeError, f"{what} of {path!r}", call)
        check_tree(fs, TREE)


@check("path-directory")
def a_path_with_a_slash_at_its_end_names_a_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("a.txt/", "foo/inside.txt/", "a.txt/."):
            place = (fs, path.rstrip("/."))
            for what in (fs.read_bytes, fs.open, fs.open_blob, fs.stat):
                expect.os_error(NotADirectoryError, errno.ENOTDIR, place, what, path)
            expect.os_error(NotADirectoryError, errno.ENOTDIR, place, lambda path=path: list(fs.read_many([path])))
            expect.equal((fs.exists(path), fs.isfile(path), fs.isdir(path)), (False, False, False), path)
        expect.equal((fs.exists("foo/"), fs.isfile("foo/"), fs.isdir("foo/")), (True, False, True), "a directory")
        expect.equal(fs.stat("foo/").directory, True, "whether a directory is one")
        expect.os_error(IsADirectoryError, errno.EISDIR, (fs, "foo"), fs.read_bytes, "foo/")


@check("path-absolute", "path-cwd", "walk")
def cwd_is_where_relative_paths_start(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        root = fs.cwd
        expect.true(root.startswith("/"), f"cwd is absolute, not {root!r}")
        expect.equal(fs.read_bytes(f"{root}/a.txt"), TREE["a.txt"], "an absolute path inside of the root")
        fs.cwd = "foo"
        expect.equal(fs.cwd, root.rstrip("/") + "/foo", "cwd, once set")
        expect.equal(fs.read_bytes("inside.txt"), TREE["foo/inside.txt"], "a relative path, from cwd")
        expect.equal(fs.read_bytes("../a.txt"), TREE["a.txt"], "a path through `..`, above cwd and inside of the root")
        expect.equal(fs.read_bytes(f"{root}/a.txt"), TREE["a.txt"], "an absolute path, with cwd set")
        expect.equal(list(fs.glob("deep/*")), ["deep/er", "deep/second.txt"], "glob, from cwd")
        absolute = [os.path.join(root, path).rstrip("/") or "/" for path, _, _ in walked(TREE)]
        expect.equal([path.rstrip("/") or "/" for path, _, _ in fs.walk(root)], absolute, "walk from the root, by cwd")
        fs.cwd = "deep"
        expect.equal(listed(fs), ["er/", "second.txt"], "list(), from cwd")
        fs.cwd = root
        expect.equal(listed(fs), members(TREE), "list(), back at the root")
        sub = fs.subfs("foo")
        for path in (f"{sub.cwd}/deep/second.txt", f"{sub.cwd}/deep/../deep/second.txt"):
            expect.equal(sub.read_bytes(path), b"2", "an absolute path starts at the backend's root, in a subfs too")


@check("path-jail")
def nothing_climbs_out(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        check_jail(fs, ["..", "../x", "foo/../..", "foo/../../x", "a/b/../../../c", "/..", f"{fs.cwd}/../x"])
        if fs.cwd != "/":
            check_jail(fs, ["/", "/etc/passwd", keys.parent(fs.cwd) or "/", fs.cwd + "-beside/x.txt"])
        sub = fs.subfs("foo")
        inside = f"{sub.cwd}/inside.txt"
        expect.equal(sub.read_bytes(inside), TREE["foo/inside.txt"], "an absolute path in a subfs")
        check_jail(
            sub, ["..", "../a.txt", "/", f"{sub.cwd}/../a.txt", sub.cwd + "-bar/x.txt", sub.cwd + ".txt", fs.cwd]
        )
        expect.equal(listed(sub), members(TREE, base="foo"), "the subfs, after all that")


def check_jail(fs: FS, paths: list[str]) -> None:
    """Hold every operation of `fs` to refusing paths that lead out of it."""
    for path in paths:
        for what, call in _calls(fs, path):
            exc = expect.raises(PermissionError, f"{what} of {path!r}, with the root {fs.url()}", call)
            expect.named(exc, what)
            expect.equal(exc.errno, errno.EACCES, f"the errno of {what} outside of the root")


def _calls(fs: FS, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    methods: list[Callable[[str], Any]] = [fs.stat, fs.exists, fs.isdir, fs.isfile, fs.list, fs.read_bytes]
    methods += [fs.open, fs.url, fs.open_zip]
    for method in methods:
        yield method.__name__, functools.partial(method, path)
    yield "open(mode='rb')", lambda: fs.open(path, "rb")
    yield "a subfs", lambda: fs.subfs(path).stat("")  # one that is lazy knows only now
    yield "walk", lambda: list(fs.walk(path))
    yield "glob", lambda: list(fs.glob(path))
    if isinstance(path, str):
        yield "glob of all", lambda: list(fs.glob(path.rstrip("/") + "/*"))
    yield "read_many", lambda: list(fs.read_many([path]))
    yield "cwd", lambda: setattr(fs, "cwd", path)
    yield "copy from there", lambda: fs.copy(path, "new.txt")
    if fs.capabilities.write:
        yield "open(mode='w')", lambda: fs.open(path, "w")
        yield "open(mode='xb')", lambda: fs.open(path, "xb")
        yield "write_bytes", lambda: fs.write_bytes(path, b"")
        yield "copy to there", lambda: fs.copy("inside.txt", path)
    if fs.capabilities.mkdir:
        yield "mkdir", lambda: fs.mkdir(path)
        yield "makedirs", lambda: fs.makedirs(path, exist_ok=True)
    if fs.capabilities.rename:
        yield "rename from there", lambda: fs.rename(path, "new.txt")
        yield "rename to there", lambda: fs.rename("inside.txt", path)
    if fs.capabilities.remove:
        yield "remove", lambda: fs.remove(path)
        yield "remove(recursive=True)", lambda: fs.remove(path, recursive=True)


@check("path-jail", needs=("write",))
def nothing_is_written_outside(subject: Subject) -> None:
    with subject.create() as fs:
        for path in ("../x", "/../x", "a/../../x"):
            expect.raises(PermissionError, f"open of {path!r}", fs.open, path, "wb")
            expect.raises(PermissionError, f"write_bytes of {path!r}", fs.write_bytes, path, b"outside")
        fs.write_bytes("a/../x", b"inside")
    expect.equal(subject.files(fs), {"x": b"inside"}, "what was written")


@check("path-nul")
def no_path_has_a_nul(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("a\0b", "\0", "foo/in\0side.txt"):
            for what, call in _calls(fs, path):
                expect.raises(ValueError, f"{what} of a path with a NUL", call)


@check("subfs")
def subfs_is_a_tree_of_its_own(subject: Subject) -> None:
    inner = {key[len("foo/deep/") :]: data for key, data in TREE.items() if key.startswith("foo/deep/")}
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        expect.equal(sub.cwd, fs.cwd.rstrip("/") + "/foo", "a subfs's cwd")
        expect.equal(sub.url(), fs.url("foo"), "a subfs's URL")
        expect.equal(sub.url("inside.txt"), fs.url("foo/inside.txt"), "a URL in a subfs")
        expect.equal(type(sub), type(fs), "a subfs's type")
        expect.equal(sub.capabilities, fs.capabilities, "a subfs's capabilities")
        for nested in (sub.subfs("deep"), fs.subfs("foo/deep"), fs.subfs(fs.cwd + "/foo/deep/"), sub.subfs("deep/.")):
            check_tree(nested, inner)
        sub.cwd = "deep"
        expect.equal(fs.read_bytes("foo/inside.txt"), TREE["foo/inside.txt"], "an FS whose subfs moved")
        expect.equal(sub.read_bytes("second.txt"), b"2", "a subfs that moved")
        expect.equal(listed(fs.subfs("")), members(TREE), "the subfs of the root")
        fs.cwd = "foo"
        check_tree(fs.subfs("deep"), inner)


@check("subfs", needs=("live", "write"))
def subfs_writes_below_its_root(subject: Subject) -> None:
    with subject.make({"dir/old": b"old", "dir-beside/x": b"beside"}) as fs:
        sub = fs.subfs("dir")
        sub.write_bytes("new", b"new")
        sub.write_bytes(f"{sub.cwd}/absolute", b"absolute")
    written = {"dir/new": b"new", "dir/absolute": b"absolute"}
    expect.equal(subject.files(fs), {"dir/old": b"old", "dir-beside/x": b"beside", **written}, "the FS around a subfs")


@check("url")
def urls_lead_back(subject: Subject) -> None:
    names = _names(subject)
    files = {f"{name}/inside.txt": name.encode() for name in names} | {"a.txt": b"a", "deep/er/b.txt": b"b"}
    with subject.make(files) as fs:
        urls = {fs.url(name) for name in names}
        expect.equal(len(urls), len(names), "the number of different URLs")
        for name in names:
            expect.true(fs.url(name).isprintable() and " " not in fs.url(name), f"{fs.url(name)!r} is no URL")
            expect.equal(fs.url(f"{name}/inside.txt"), fs.url(name) + "/inside.txt", "a URL below another")
            _check_reopened(subject, fs, name, {"inside.txt": name.encode()})
        _check_reopened(subject, fs, "deep", {"er/b.txt": b"b"})
        _check_reopened(subject, fs, "", files)


def _check_reopened(subject: Subject, fs: FS, path: str, files: dict[str, bytes]) -> None:
    again = subject.reopen(fs.url(path))
    if again is None:
        return
    with again:
        expect.equal(again.url(), fs.url(path), f"the URL of what {fs.url(path)!r} leads to")
        found = {name: again.read_bytes(name) for name in again.list(recursive=True) if not name.endswith("/")}
        expect.equal(found, files, f"the files that {fs.url(path)!r} leads to")
