"""Checks of an FS as an object: what it says of itself, what it refuses, and how it ends."""

from __future__ import annotations

import errno
import io
import json
import pickle
import time
from collections.abc import Callable, Iterator

from ..core.fs import FS, Capabilities
from ..core.identity import Identity
from . import expect
from .children import forked
from .kit import check
from .subject import Subject
from .trees import TREE


@check("fs-info", needs=())
def info(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        about = fs.info()
        expect.true({"type", "scheme", "url", "capabilities"} <= set(about), f"info() lacks a key: {about!r}")
        expect.equal(about["type"], type(fs).__name__, "info()['type']")
        expect.equal(about["scheme"], fs.scheme, "info()['scheme']")
        expect.equal(about["url"], fs.url(""), "info()['url']")
        expect.equal(about["capabilities"], fs.capabilities._asdict(), "info()['capabilities']")
        expect.equal(json.loads(json.dumps(about)), about, "info() through JSON")


@check("fs-repr", needs=())
def representation(subject: Subject) -> None:
    for fs in (subject.make(TREE), subject.create()):
        with fs:
            text = repr(fs)
            expect.true("(" in text and text.endswith(")") and "\n" not in text, f"repr is no expression: {text!r}")
            expect.true(" object at 0x" not in text, f"repr says nothing: {text!r}")
            expect.equal(repr(fs), text, "repr, asked twice")


@check("fs-close", needs=())
def close_twice(subject: Subject) -> None:
    for fs in (subject.make(TREE), subject.create()):
        fs.close()
        fs.close()


@check("fs-context", needs=())
def context_manager(subject: Subject) -> None:
    fs = subject.make(TREE)
    with fs as same:
        expect.true(same is fs, "entering an FS gives the FS itself")
    fs.close()

    class Mine(Exception):
        pass

    def fail() -> None:
        with subject.make(TREE):
            raise Mine

    expect.raises(Mine, "an exception in an FS's with block", fail)


@check("fs-subfs-borrows")
def closing_a_subfs(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        sub = fs.subfs("foo")
        with sub:
            expect.equal(sub.read_bytes("inside.txt"), TREE["foo/inside.txt"], "through a subfs")
        sub.close()
        expect.equal(fs.read_bytes("foo/inside.txt"), TREE["foo/inside.txt"], "after its subfs was closed")


@check("capabilities", needs=())
def declared_alike(subject: Subject) -> None:
    made, again, created = subject.make(TREE), subject.make({}), subject.create()
    with made, again, created:
        expect.true(isinstance(made.capabilities, Capabilities), f"capabilities are {made.capabilities!r}")
        expect.equal(made.capabilities, again.capabilities, "the capabilities of two FS of a kind")
        expect.true(made.capabilities.read, "what is put there beforehand can't be read: `read` is not declared")
        both = [one or other for one, other in zip(made.capabilities, created.capabilities, strict=True)]
        expect.equal(Capabilities(*both), subject.capabilities, "the subject's capabilities")
        if subject.live:
            expect.equal(created.capabilities, made.capabilities, "a live FS's capabilities, empty and not")


@check("capabilities", "error-attributes", needs=())
def what_is_not_declared_is_refused(subject: Subject) -> None:
    for fs in _both(subject):
        before = subject.contents(fs) if subject.live else {}
        for capability, operation, call in _undeclared(fs):
            if getattr(fs.capabilities, capability):
                continue
            what = f"{operation} without `{capability}`"
            exc = expect.raises(io.UnsupportedOperation, what, call)
            expect.named(exc, what)
            expect.equal(exc.errno, errno.EOPNOTSUPP, f"the errno of {what}")
            expect.true(str(exc.filename).startswith(fs.url("")), f"{what} names {exc.filename!r} and not the FS")
            expect.true(type(fs).__name__ in str(exc), f"{what} says nothing of the FS: {exc}")
        if subject.live:
            expect.equal(subject.contents(fs), before, "what is stored after refused operations")


def _both(subject: Subject) -> Iterator[FS]:
    with subject.make(TREE) as fs:
        yield fs
    with subject.create() as fs:
        yield fs


def _undeclared(fs: FS) -> list[tuple[str, str, Callable[[], object]]]:
    def opening(mode: str, path: str = "a.txt") -> Callable[[], object]:
        return lambda: fs.open(path, mode)

    return [
        ("read", "open for reading", opening("rb")),
        ("read", "open for reading", opening("r")),
        ("write", "open for writing", opening("wb", "new.txt")),
        ("write", "open for writing", opening("w")),
        ("write", "open for writing", opening("x", "new.txt")),
        ("write", "write_bytes", lambda: fs.write_bytes("new.txt", b"")),
        ("write", "copy", lambda: fs.copy("a.txt", "new.txt")),
        ("append", "open for appending", opening("ab")),
        ("append", "open for appending", opening("a", "new.txt")),
        ("update", "open for update", opening("r+b")),
        ("update", "open for update", opening("r+")),
        ("mkdir", "mkdir", lambda: fs.mkdir("new")),
        ("mkdir", "makedirs", lambda: fs.makedirs("new/er")),
        ("rename", "rename", lambda: fs.rename("a.txt", "new.txt")),
        ("remove", "remove", lambda: fs.remove("a.txt")),
        ("remove", "remove", lambda: fs.remove("foo", recursive=True)),
    ]


@check("identity", needs=("read", "versions"))
def identities_tell_contents_apart(subject: Subject) -> None:
    with subject.make({"a.txt": b"same size", "b.txt": b"size same"}) as fs:
        first, second = _identity(fs, "a.txt"), _identity(fs, "b.txt")
        expect.true(first is not None and second is not None, "the blob of a store with versions has no identity")
        expect.true(first != second, f"two files have the identity {first!r}")
        expect.equal(_identity(fs, "a.txt"), first, "the identity of a file, asked twice")
        expect.equal(_identity(pickle.loads(pickle.dumps(fs)), "a.txt"), first, "the identity, from an unpickled FS")
        expect.equal(fs.subfs("")._resolved_store(), fs._resolved_store(), "the resolved store of a subfs")
        if subject.shared and (again := subject.reopen(fs.url(""))) is not None:
            with again:
                expect.equal(again._resolved_store(), fs._resolved_store(), "the resolved store, opened by its URL")


@check("identity", needs=("live", "versions", "replace"))
def another_content_has_another_identity(subject: Subject) -> None:
    with subject.make({"a.txt": b"content 1"}) as fs:
        before = _identity(fs, "a.txt")
        while not _settled(fs, "a.txt"):  # else both contents may be of one tick of a clock
            time.sleep(0.01)
        fs.write_bytes("a.txt", b"content 2")
        expect.true(_identity(fs, "a.txt") != before, f"two contents of a file have the identity {before!r}")


def _identity(fs: FS, path: str) -> Identity | None:
    with fs.open(path, "rb") as file:
        return file.raw.blob.identity


def _settled(fs: FS, path: str) -> bool:
    with fs.open(path, "rb") as file:
        return file.raw.blob.settled


@check("whole-container", needs=("not live", "write"))
def container_is_whole_or_not_at_all(subject: Subject) -> None:
    class Mine(Exception):
        pass

    def fail() -> str:
        with subject.create() as fs:
            made.append(subject.location(fs))
            fs.write_bytes("a.txt", b"lost with the container")
            raise Mine

    made: list[str] = []
    expect.raises(Mine, "an exception in a container's with block", fail)
    expect.equal(subject.contents(made[0]), {}, "a container whose with block raised")
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"kept")
        expect.equal(subject.contents(fs), {}, "a container before it is closed")
    expect.equal(subject.files(fs), {"a.txt": b"kept"}, "a container once it is closed")


@check("whole-container", needs=("not live", "write"), processes=("fork",))
def a_child_has_no_part_in_its_parents_container(subject: Subject) -> None:
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"the parent's")

        def closing() -> None:
            fs.close()

        def failing() -> None:
            fs.__exit__(ValueError, ValueError(), None)

        forked("a child with a container that its parent writes", [closing, failing], subject.timeout)
        expect.equal(subject.contents(fs), {}, "what is stored after a child closed its parent's container")
        fs.write_bytes("b.txt", b"the parent's, too")
    expected = {"a.txt": b"the parent's", "b.txt": b"the parent's, too"}
    expect.equal(subject.files(fs), expected, "what is stored once the parent has closed the container")


@check("whole-container", "pickle-writer", needs=("not live", "write"))
def container_being_written_has_one_owner(subject: Subject) -> None:
    with subject.create() as fs:
        expect.raises(TypeError, "pickling a container that is being written", pickle.dumps, fs)
        fs.write_bytes("a.txt", b"whole")
    expect.equal(subject.files(fs), {"a.txt": b"whole"}, "a container once it is closed")
    fs.close()
    expect.equal(subject.files(fs), {"a.txt": b"whole"}, "a container closed twice")
