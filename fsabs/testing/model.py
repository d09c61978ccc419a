"""Random operations on a live FS and on a plain dictionary, which must agree at every step. Needs Hypothesis."""

from __future__ import annotations

import pickle
import unittest
from collections.abc import Callable
from errno import EINVAL, ENOENT
from typing import Any

from ..core import errors
from ..core.fs import FS
from .subjects import Subject
from .trees import Reference, paths_of

try:
    from hypothesis import HealthCheck, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

    from .asserts import Interruption, assert_named, assert_raises, assert_same, listed_stats
except ImportError as exc:
    raise errors.missing("hypothesis", "testing", "fsabs.testing.model_test") from exc

_NAMES = ("a", "b", "b-c", "ü x")
_PATTERNS = ("*", "*/*", "**", "b*", "**/b*", "a/**/b", "b/*", "*/b/**", "?", "[ab]*")
_START = {"a": b"first", "b/a": b"second", "b/b-c/a": b"third"}
# Where directories are implied, a name is a file's or a directory's for good: such a store can have both of one name.
_APART = tuple(f"{folder}{name}" for folder in ("", "d/", "d/e/", "d-f/") for name in _NAMES)
_APART_START = {"a": b"first", "d/a": b"second", "d/e/a": b"third"}

_contents = st.sampled_from([b"", b"x", b"some content", bytes(range(256)) * 40, b"y" * 300_000])
_data = st.data()


class _Machine(RuleBasedStateMachine):
    """The FS and the reference, side by side."""

    factory: Callable[[], Subject]

    def __init__(self) -> None:
        super().__init__()
        self.subject = type(self).factory()
        self.can = self.subject.capabilities
        start = _APART_START if self.can.implied_directories else _START
        self.fs: FS = self.subject.make(start)
        self.location = self.subject.location(self.fs)
        self.reference = Reference(self.can)
        for key, content in start.items():
            self.reference.write(key, content)

    def teardown(self) -> None:
        """Check that the stored files are those of the reference."""
        try:
            assert_same(self.subject.files(self.location), self.reference.files)
        finally:
            self.fs.close()
            self.subject.close()

    def _path(self, data: st.DataObject) -> str:
        """Return a path: most often one that is there."""
        there = [name.rstrip("/") for name in self.reference.listed("")]
        others = _APART if self.can.implied_directories else [*_NAMES, *paths_of(_NAMES, 2), "b/b-c/b", "a/a/a"]
        path: str = data.draw(st.sampled_from([*there * 4, *others]), label="path")
        return path

    def _do(self, problems: set[int], call: Callable[..., Any], *arguments: Any) -> Any:
        """Call, and hold the outcome to `problems`; return None for what failed as it should."""
        what = f"{call.__name__}{arguments!r}, expected an errno of {problems or '{}'}"
        try:
            found = call(*arguments)
        except OSError as exc:
            assert_named(exc)
            if exc.errno not in problems:
                exc.add_note(what)
                raise
            return None
        assert not problems, f"{what}, gave {found!r:.200}"
        return found

    # ---- changes

    @precondition(lambda self: self.can.write)
    @rule(data=_data, content=_contents, mode=st.sampled_from(["w", "w", "x"]))
    def write(self, data: st.DataObject, content: bytes, mode: str) -> None:
        path = self._path(data)
        if self.can.implied_directories and self.reference.isdir(path):
            return
        problems = self.reference.unwritable(path, mode)
        self._do(problems, _write, self.fs, path, mode + "b", content)
        if not problems:
            self.reference.write(path, content)

    @precondition(lambda self: self.can.write)
    @rule(data=_data, content=_contents)
    def write_and_fail(self, data: st.DataObject, content: bytes) -> None:
        path = self._path(data)
        if self.reference.unwritable(path):
            return
        assert_raises(Interruption, _write_and_fail, self.fs, path, content)

    @precondition(lambda self: self.can.append)
    @rule(data=_data, content=_contents)
    def append(self, data: st.DataObject, content: bytes) -> None:
        path = self._path(data)
        problems = self.reference.unwritable(path, "a")
        self._do(problems, _write, self.fs, path, "ab", content)
        if not problems:
            self.reference.write(path, self.reference.files.get(path, b"") + content)

    @precondition(lambda self: self.can.mkdir and not self.can.implied_directories)
    @rule(data=_data)
    def mkdir(self, data: st.DataObject) -> None:
        path = self._path(data)
        problems = self.reference.unmakable(path)
        self._do(problems, self.fs.mkdir, path)
        if not problems:
            self.reference.make(path)

    @precondition(lambda self: self.can.mkdir and not self.can.implied_directories)
    @rule(data=_data, exist_ok=st.booleans())
    def makedirs(self, data: st.DataObject, exist_ok: bool) -> None:
        path = self._path(data)
        problems = self.reference.unmakable(path)
        problems -= {ENOENT}  # a missing parent is what makedirs is for
        if exist_ok and self.reference.isdir(path):
            problems = set()
        self._do(problems, self.fs.makedirs, path, 0o777, exist_ok)
        if not problems:
            self.reference.make(path)

    @precondition(lambda self: self.can.rename)
    @rule(data=_data)
    def rename(self, data: st.DataObject) -> None:
        src, dst = self._path(data), self._path(data)
        if self.can.implied_directories and (self.reference.isdir(src) or self.reference.isdir(dst)):
            return
        problems = self.reference.unmovable(src, dst)
        self._do(problems, self.fs.rename, src, dst)
        if not problems:
            self.reference.move(src, dst)

    @precondition(lambda self: self.can.remove)
    @rule(data=_data, recursive=st.booleans())
    def remove(self, data: st.DataObject, recursive: bool) -> None:
        path = self._path(data)
        problems = self.reference.absent(path) if recursive else self.reference.unreadable(path)
        self._do(problems, self.fs.remove, path, recursive)
        if not problems:
            self.reference.remove(path)

    @precondition(lambda self: self.can.write and self.can.replace)
    @rule(data=_data)
    def copy(self, data: st.DataObject) -> None:
        src, dst = self._path(data), self._path(data)
        if self.can.implied_directories and self.reference.isdir(dst):
            return
        problems = self.reference.unreadable(src) | self.reference.unwritable(dst)
        if src == dst and not self.reference.absent(src):
            problems |= {EINVAL}  # onto itself
        self._do(problems, self.fs.copy, src, dst)
        if not problems:
            self.reference.write(dst, self.reference.files[src])

    @rule()
    def go_on_with_a_pickle(self) -> None:
        self.fs = pickle.loads(pickle.dumps(self.fs))

    # ---- questions

    @rule(data=_data)
    def ask(self, data: st.DataObject) -> None:
        path = self._path(data)
        isfile, isdir = path in self.reference.files, self.reference.isdir(path)
        found = (self.fs.exists(path), self.fs.isfile(path), self.fs.isdir(path))
        assert found == (isfile or isdir, isfile, isdir), f"exists, isfile and isdir of {path!r}"
        stat = self._do(self.reference.absent(path), self.fs.stat, path)
        if stat is not None:
            size = len(self.reference.files.get(path, b""))
            assert (stat.directory, stat.size) == (isdir, size), f"stat({path!r})"

    @rule(data=_data)
    def read(self, data: st.DataObject) -> None:
        path = self._path(data)
        found = self._do(self.reference.unreadable(path), self.fs.read_bytes, path)
        assert found == self.reference.files.get(path)

    @rule(data=_data)
    def list(self, data: st.DataObject) -> None:
        path = self._path(data)
        found = self._do(self.reference.unlistable(path), self.fs.list, path)
        if found is not None:
            names = [name for name in self.reference.listed(path) if "/" not in name[:-1]]
            found = [*found] if self.fs.capabilities.ordered else sorted(found)
            assert found == names, f"list({path!r})"

    @rule(pattern=st.sampled_from(_PATTERNS))
    def glob(self, pattern: str) -> None:
        found = [*self.fs.glob(pattern)]
        assert sorted(found) == sorted(self.reference.glob(pattern))

    @invariant()
    def the_trees_are_the_same(self) -> None:
        """The whole tree, at every step, with the sizes of its files."""
        found = [(stat.filename, stat.size) for stat in listed_stats(self.fs, "", True)]
        expected = [(name, len(self.reference.files.get(name, b""))) for name in self.reference.listed("")]
        assert found == expected


def _write(fs: FS, path: str, mode: str, data: bytes) -> int:
    with fs.open(path, mode) as file:
        return file.write(data)


def _write_and_fail(fs: FS, path: str, data: bytes) -> None:
    with fs.open(path, "wb") as file:
        file.write(data)
        raise Interruption


def model_test(
    subject_factory: Callable[[], Subject], *, max_examples: int = 60, steps: int = 40
) -> type[unittest.TestCase]:
    """Return a test case that holds a live FS against a dictionary under random operations.

    `subject_factory()` gives a new subject, which is closed in the end, for each of `max_examples` sequences of up to
    `steps` operations; what the FS doesn't declare is not tried. Assign the class to a name that starts with `Test`.
    """
    machine: Any = type("Machine", (_Machine,), {"factory": staticmethod(subject_factory)})
    case: type[unittest.TestCase] = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    return case
