"""The model test finds what is wrong, and the reference is right where it can be told by hand."""

from __future__ import annotations

import errno
import unittest
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

from fsabs.backends.memory import Memory
from fsabs.core.fs import FS
from fsabs.core.layers import LayerFS
from fsabs.testing import MemorySubject, Subject, WrappedSubject, model_test
from fsabs.testing.trees import Reference

from .broken_writes import AddsToWhatIsThere, PublishesOnException, RenameCopies, RenameLoses
from .implied import implied


class SortsWrongly(LayerFS):
    def list(self, *arguments: Any, **keywords: Any) -> Any:
        return iter(sorted(super().list(*arguments, **keywords), reverse=True))


class ForgetsOnPickling(LayerFS):
    def __reduce__(self) -> tuple[object, ...]:
        return Memory, ()


BROKEN = [AddsToWhatIsThere, PublishesOnException, RenameCopies, RenameLoses, SortsWrongly, ForgetsOnPickling]


def _outcome(factory: Callable[[], Subject], examples: int = 100) -> unittest.TestResult:
    case: Any = model_test(factory, max_examples=examples)
    case.settings = settings(case.settings, phases=[Phase.generate], database=None, derandomize=True)
    result = unittest.TestResult()
    case("runTest").run(result)
    return result


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_found(kind: type[LayerFS]) -> None:
    result = _outcome(lambda: WrappedSubject(MemorySubject(), kind))
    assert result.failures or result.errors


def test_what_is_whole_passes() -> None:
    """Where directories are implied; the others are in tests/conformance."""
    result = _outcome(implied, 40)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.failures + result.errors


class OnlyReads(LayerFS):
    @property
    def capabilities(self):  # type: ignore[no-untyped-def, override]
        return self.inner.capabilities._replace(write=False, mkdir=False, rename=False, remove=False, append=False)


def test_what_is_not_declared_is_not_tried() -> None:
    def wrap(fs: FS) -> FS:
        return OnlyReads(fs)

    assert _outcome(lambda: WrappedSubject(MemorySubject(), wrap), 20).wasSuccessful()


def test_the_reference_knows_what_is_wrong() -> None:
    tree = Reference(Memory.capabilities)
    tree.make("dir/sub")
    tree.write("dir/file", b"x")
    assert tree.absent("dir") == tree.absent("dir/file") == tree.absent("") == set()
    assert tree.absent("none") == tree.absent("none/below") == {errno.ENOENT}
    assert tree.absent("dir/file/below") == {errno.ENOTDIR}
    assert tree.unreadable("dir") == {errno.EISDIR}
    assert tree.unlistable("dir/file") == {errno.ENOTDIR}
    assert tree.unwritable("dir/file") == set()
    assert tree.unwritable("dir/file", "x") == {errno.EEXIST}
    assert tree.unwritable("none/file") == {errno.ENOENT}
    assert tree.unmovable("dir", "dir/sub/dir") == {errno.EINVAL}
    assert tree.unmovable("dir/file", "dir/sub") == {errno.EISDIR}
    assert tree.unmovable("dir/sub", "dir/file") == {errno.ENOTDIR}
    assert tree.listed("") == ["dir/", "dir/file", "dir/sub/"]
    assert tree.glob("**") == {"dir", "dir/file", "dir/sub"}
    assert tree.glob("*/s*") == {"dir/sub"}


def test_the_reference_moves_and_removes() -> None:
    tree = Reference(Memory.capabilities)
    tree.make("dir/sub")
    tree.write("dir/file", b"x")
    tree.move("dir", "moved")
    assert tree.listed("") == ["moved/", "moved/file", "moved/sub/"]
    tree.write("other", b"other")
    tree.move("other", "moved/file")
    assert tree.files == {"moved/file": b"other"}
    tree.remove("moved/file")
    assert tree.listed("") == ["moved/", "moved/sub/"]
    tree.remove("moved")
    assert tree.listed("") == []


def test_directories_that_are_implied_come_and_go() -> None:
    tree = Reference(Memory.capabilities._replace(implied_directories=True))
    assert tree.unwritable("none/file") == set()
    tree.write("none/file", b"x")
    assert tree.listed("") == ["none/", "none/file"]
    tree.remove("none/file")
    assert tree.listed("") == []
