"""Checks of paths: names of every kind, `cwd`, the jail, `subfs`, and URLs."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from errno import EACCES, EISDIR, ENOTDIR
from pathlib import PurePosixPath
from typing import Any

from ..core import keys
from ..core.fs import FS
from .asserts import assert_error, assert_named, assert_raises, assert_tree, listed, operations
from .kit import check
from .subjects import Subject
from .trees import TREE, inside, members, walked

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
    files = {f"{name}/inside" if "d" in name else name: name.encode() for name in names}
    files |= {f"dir/{name}": b"in" for name in names}
    with subject.make(files) as fs:
        assert_tree(fs, files)


@check("path-names", needs=("write",))
def odd_names_are_written(subject: Subject) -> None:
    files = {name: name.encode() for name in _names(subject)}
    with subject.create() as fs:
        for name, data in files.items():
            fs.write_bytes(name, data)
        for char in subject.refused_characters:
            assert_raises((OSError, ValueError), fs.write_bytes, f"a{char}b", b"refused")
    assert subject.files(fs) == files


@check("path-relative")
def spellings_of_a_path(subject: Subject) -> None:
    spelled = ("foo/inside.txt", "./foo/inside.txt", "foo//inside.txt", "foo/./inside.txt", "foo/deep/../inside.txt")
    with subject.make(TREE) as fs:
        for path in (*spelled, "a.txt/../foo/inside.txt", PurePosixPath("foo/inside.txt")):
            assert fs.read_bytes(path) == TREE["foo/inside.txt"], path
        assert listed(fs, PurePosixPath("foo")) == members(TREE, base="foo")


@check("path-relative")
def nothing_else_is_a_path(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        _assert_refused(fs, (b"a.txt", b"", 0, 7, 1.5, False, ["a.txt"]), TypeError)
        assert_tree(fs, TREE)


@check("path-nul")
def no_path_has_a_nul_or_is_a_url(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        _assert_refused(fs, ("a\0b", "\0", "foo/in\0side.txt", "s3://bucket/a.txt", "file:///a.txt"), ValueError)


@check("path-directory")
def a_path_with_a_slash_at_its_end_names_a_directory(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        for path in ("a.txt/", "foo/inside.txt/", "a.txt/."):
            calls = (fs.read_bytes, fs.open, fs.open_blob, fs.stat, lambda path: list(fs.read_many([path])))
            for call in calls:
                assert_error(ENOTDIR, fs.url(path.rstrip("/.")), call, path)
            assert (fs.exists(path), fs.isfile(path), fs.isdir(path)) == (False, False, False)
        assert (fs.exists("foo/"), fs.isfile("foo/"), fs.isdir("foo/")) == (True, False, True)
        assert fs.stat("foo/").directory
        assert_error(EISDIR, fs.url("foo"), fs.read_bytes, "foo/")


@check("path-absolute", "path-cwd", "walk")
def cwd_is_where_relative_paths_start(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        root = fs.cwd
        assert root.startswith("/")
        assert fs.read_bytes(f"{root}/a.txt") == TREE["a.txt"]
        fs.cwd = "foo"
        assert fs.cwd == root.rstrip("/") + "/foo"
        assert fs.read_bytes("inside.txt") == TREE["foo/inside.txt"]
        assert fs.read_bytes("../a.txt") == fs.read_bytes(f"{root}/a.txt") == TREE["a.txt"]
        assert list(fs.glob("deep/*")) == ["deep/er", "deep/second.txt"]
        absolute = [os.path.join(root, path).rstrip("/") or "/" for path, _, _ in walked(TREE)]
        assert [path.rstrip("/") or "/" for path, _, _ in fs.walk(root)] == absolute
        fs.cwd = "deep"
        assert listed(fs) == ["er/", "second.txt"]
        fs.cwd = root
        assert listed(fs) == members(TREE)
        sub = fs.subfs("foo")
        for path in (f"{sub.cwd}/deep/second.txt", f"{sub.cwd}/deep/../deep/second.txt"):
            assert sub.read_bytes(path) == b"2"


@check("path-jail")
def nothing_climbs_out(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        outside = ["..", "../x", "foo/../..", "foo/../../x", "a/b/../../../c", "/..", f"{fs.cwd}/../x"]
        if fs.cwd != "/":
            outside += ["/", "/etc/passwd", keys.parent(fs.cwd) or "/", fs.cwd + "-beside/x.txt"]
        _assert_refused(fs, outside, PermissionError)
        sub = fs.subfs("foo")
        outside = ["..", "../a.txt", "/", f"{sub.cwd}/../a.txt", sub.cwd + "-bar/x.txt", sub.cwd + ".txt", fs.cwd]
        _assert_refused(sub, outside, PermissionError)
        assert sub.read_bytes(f"{sub.cwd}/inside.txt") == TREE["foo/inside.txt"]
        assert listed(sub) == members(TREE, base="foo")


def _assert_refused(fs: FS, paths: Iterable[Any], kind: type[Exception]) -> None:
    """Assert that every operation refuses these paths."""
    for path in paths:
        for capability, call in operations(fs, path):
            if capability and not getattr(fs.capabilities, capability):
                continue
            exc = assert_raises(kind, call)
            if isinstance(exc, OSError):
                assert_named(exc)
                assert exc.errno == EACCES


@check("path-jail", needs=("write",))
def nothing_is_written_outside(subject: Subject) -> None:
    with subject.create() as fs:
        for path in ("../x", "/../x", "a/../../x"):
            assert_raises(PermissionError, fs.open, path, "wb")
            assert_raises(PermissionError, fs.write_bytes, path, b"outside")
        fs.write_bytes("a/../x", b"inside")
    assert subject.files(fs) == {"x": b"inside"}


@check("subfs")
def subfs_is_a_tree_of_its_own(subject: Subject) -> None:
    inner = inside(TREE, "foo/deep")
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        assert sub.cwd == fs.cwd.rstrip("/") + "/foo"
        assert (sub.url(), sub.url("inside.txt")) == (fs.url("foo"), fs.url("foo/inside.txt"))
        assert type(sub) is type(fs)
        assert sub.capabilities == fs.capabilities
        for nested in (sub.subfs("deep"), fs.subfs("foo/deep"), fs.subfs(fs.cwd + "/foo/deep/"), sub.subfs("deep/.")):
            assert_tree(nested, inner)
        sub.cwd = "deep"
        assert fs.read_bytes("foo/inside.txt") == TREE["foo/inside.txt"]
        assert sub.read_bytes("second.txt") == b"2"
        assert listed(fs.subfs("")) == members(TREE)
        fs.cwd = "foo"
        assert_tree(fs.subfs("deep"), inner)


@check("subfs", needs=("live", "write"))
def subfs_writes_below_its_root(subject: Subject) -> None:
    files = {"dir/old": b"old", "dir-beside/x": b"beside"}
    with subject.make(files) as fs:
        sub = fs.subfs("dir")
        sub.write_bytes("new", b"new")
        sub.write_bytes(f"{sub.cwd}/absolute", b"absolute")
    assert subject.files(fs) == {**files, "dir/new": b"new", "dir/absolute": b"absolute"}


@check("url")
def urls_lead_back(subject: Subject) -> None:
    names = _names(subject)
    files = {f"{name}/inside.txt": name.encode() for name in names} | {"a.txt": b"a", "deep/er/b.txt": b"b"}
    with subject.make(files) as fs:
        assert len({fs.url(name) for name in names}) == len(names)
        for name in names:
            assert fs.url(name).isprintable()
            assert " " not in fs.url(name)
            assert fs.url(f"{name}/inside.txt") == fs.url(name) + "/inside.txt"
        for path in (*names, "deep", ""):
            if (again := subject.reopen(fs.url(path))) is not None:
                with again:
                    assert again.url() == fs.url(path)
                    found = [name for name in again.list(recursive=True) if not name.endswith("/")]
                    assert {name: again.read_bytes(name) for name in found} == inside(files, path)
