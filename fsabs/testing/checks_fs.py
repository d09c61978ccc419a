"""Checks of an FS as an object: what it says of itself, what it refuses, and how it ends."""

from __future__ import annotations

import io
import json
import pickle
import time
from errno import EOPNOTSUPP

import pytest

from ..core import identity
from ..core.blobs import Blob
from ..core.fs import FS
from ..core.stats import Capabilities
from .asserts import Interruption, assert_named, assert_raises, assert_same, operations
from .children import forked
from .kit import check
from .subjects import Subject
from .trees import TREE


@check("fs-info", needs=())
def info(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        about = fs.info()
        assert (about["type"], about["scheme"], about["url"]) == (type(fs).__name__, fs.scheme, fs.url(""))
        assert about["capabilities"] == fs.capabilities._asdict()
        assert json.loads(json.dumps(about)) == about


@check("fs-repr", needs=())
def representation(subject: Subject) -> None:
    for fs in (subject.make(TREE), subject.create()):
        with fs:
            text = repr(fs)
            assert "(" in text
            assert text.endswith(")")
            assert "\n" not in text
            assert " object at 0x" not in text
            assert repr(fs) == text


@check("fs-close", needs=())
def close_twice(subject: Subject) -> None:
    for fs in (subject.make(TREE), subject.create()):
        fs.close()
        fs.close()


@check("fs-context", needs=())
def context_manager(subject: Subject) -> None:
    fs = subject.make(TREE)
    with pytest.raises(Interruption), fs as same:
        assert same is fs
        raise Interruption
    fs.close()


@check("fs-subfs-borrows")
def closing_a_subfs(subject: Subject) -> None:
    with subject.make(TREE) as fs:
        with fs.subfs("foo") as sub:
            assert sub.read_bytes("inside.txt") == TREE["foo/inside.txt"]
        sub.close()
        assert fs.read_bytes("foo/inside.txt") == TREE["foo/inside.txt"]


@check("capabilities", needs=())
def declared_alike(subject: Subject) -> None:
    with subject.make(TREE) as made, subject.make({}) as again, subject.create() as created:
        assert isinstance(made.capabilities, Capabilities)
        assert made.capabilities == again.capabilities
        assert made.capabilities.read
        both = [one or other for one, other in zip(made.capabilities, created.capabilities, strict=True)]
        assert Capabilities(*both) == subject.capabilities
        assert created.capabilities == made.capabilities or not subject.live


@check("capabilities", "error-attributes", needs=())
def what_is_not_declared_is_refused(subject: Subject) -> None:
    for fs in (subject.make(TREE), subject.create()):
        with fs:
            before = subject.contents(fs) if subject.live else {}
            for capability, call in operations(fs, "a.txt"):
                if capability and not getattr(fs.capabilities, capability):
                    exc = assert_raises(io.UnsupportedOperation, call)
                    assert_named(exc)
                    assert exc.errno == EOPNOTSUPP
                    assert exc.filename.startswith(fs.url(""))
                    assert type(fs).__name__ in str(exc)
            assert_same(subject.contents(fs) if subject.live else {}, before)


@check("identity", needs=("read", "versions"))
def identities_tell_contents_apart(subject: Subject) -> None:
    with subject.make({"a.txt": b"same size", "b.txt": b"size same"}) as fs:
        first, second = _blob(fs, "a.txt").identity, _blob(fs, "b.txt").identity
        assert first is not None
        assert second is not None
        assert first != second
        assert _blob(fs, "a.txt").identity == _blob(fs.subfs(""), "a.txt").identity == first
        assert identity.store(fs.subfs("")) == identity.store(fs)
        for other in (pickle.loads(pickle.dumps(fs)), subject.reopen(fs.url("")) if subject.shared else None):
            if other is not None:
                with other:
                    assert _blob(other, "a.txt").identity == first
                    assert identity.store(other) == identity.store(fs)


@check("identity", needs=("live", "versions", "replace"))
def another_content_has_another_identity(subject: Subject) -> None:
    with subject.make({"a.txt": b"content 1"}) as fs:
        before = _blob(fs, "a.txt").identity
        while not _blob(fs, "a.txt").has_strong_version:  # else both contents may be of one tick of a clock
            time.sleep(0.01)
        fs.write_bytes("a.txt", b"content 2")
        assert _blob(fs, "a.txt").identity != before


def _blob(fs: FS, path: str) -> Blob:
    """Return the blob of a file, for what is known of it after it is closed."""
    with fs.open(path, "rb") as file:
        return file.raw.blob


@check("whole-container", needs=("not live", "write"))
def container_is_whole_or_not_at_all(subject: Subject) -> None:
    with pytest.raises(Interruption), subject.create() as fs:
        location = subject.location(fs)
        fs.write_bytes("a.txt", b"lost with the container")
        raise Interruption
    assert subject.contents(location) == {}
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"kept")
        assert subject.contents(fs) == {}
    assert subject.files(fs) == {"a.txt": b"kept"}


@check("whole-container", needs=("not live", "write"), start_methods=("fork",))
def a_child_has_no_part_in_its_parents_container(subject: Subject) -> None:
    with subject.create() as fs:
        fs.write_bytes("a.txt", b"the parent's")
        endings = [fs.close, lambda: fs.__exit__(ValueError, ValueError(), None)]
        forked("a child with a container that its parent writes", endings, subject.timeout)
        assert subject.contents(fs) == {}
        fs.write_bytes("b.txt", b"the parent's, too")
    assert subject.files(fs) == {"a.txt": b"the parent's", "b.txt": b"the parent's, too"}


@check("whole-container", "pickle-writer", needs=("not live", "write"))
def container_being_written_has_one_owner(subject: Subject) -> None:
    with subject.create() as fs:
        assert_raises(TypeError, pickle.dumps, fs)
        fs.write_bytes("a.txt", b"whole")
    for _ in range(2):
        assert subject.files(fs) == {"a.txt": b"whole"}
        fs.close()
