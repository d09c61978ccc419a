"""The kit as such: what selects its checks, what it reports, and that none is lost on the way."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 - what a run of pytest in this process imports first is forgotten after it; NumPy can't be
import numpy as np  # noqa: F401 - imported twice
import pytest

from fsabs.backends.memory import Memory
from fsabs.spi import Capabilities
from fsabs.testing import (
    Check,
    FSConformance,
    LocalSubject,
    MemorySubject,
    SubFSSubject,
    Subject,
    all_checks,
    asserts,
    checks,
    layered,
    lazified,
    run,
)

pytestmark = pytest.mark.quick

EVERYTHING = Capabilities(*[True] * len(Capabilities._fields))
pytest_plugins = ["pytester"]


def names(found: Iterable[Check]) -> set[str]:
    return {check.name for check in found}


def test_what_is_declared_selects() -> None:
    live = names(checks(EVERYTHING))
    others = names(checks(EVERYTHING, live=False))
    real = names(checks(EVERYTHING._replace(implied_directories=False)))
    once = names(checks(EVERYTHING._replace(replace=False)))
    assert live | others | real | once == names(all_checks()), "every check is for somebody"
    assert "files-are-renamed" in live - names(checks(EVERYTHING._replace(rename=False)))
    assert "w-replaces-nothing" in once - live
    assert "container-is-whole-or-not-at-all" in others - live
    assert "a-file-needs-its-directory" in real - live
    assert "an-exit-leaves-nothing" not in names(checks(EVERYTHING, shared=False))
    only_reads = checks(Capabilities(), live=False)
    assert {"nothing-climbs-out", "an-fs-pickles", "what-is-not-declared-is-refused"} <= names(only_reads)
    assert not any({"write", "mkdir", "rename", "remove", "live"} & set(check.needs) for check in only_reads)


def test_a_report_tells_what_ran_and_why_the_rest_did_not() -> None:
    with closing(MemorySubject()) as subject:
        report = run(subject, only=["fs-info", "update", "nothing-climbs-out"])
    assert [check.name for check in report.passed] == ["info", "nothing-climbs-out"]
    assert report.not_applicable == {"r-plus-changes-in-place": ["update"]}
    assert report.ok
    assert str(report) == "2 passed, 0 failed, 1 not applicable"


def test_only_refuses_what_it_does_not_know() -> None:
    with closing(MemorySubject()) as subject, pytest.raises(ValueError, match="fs-inof"):
        run(subject, only=["fs-inof"])


def test_a_failing_check_gives_its_traceback() -> None:
    class Lost(MemorySubject):
        def stored(self, location: str) -> dict[str, bytes]:
            return {}

    with closing(Lost()) as subject:
        report = run(subject, only=["write-contents"])
    assert not report.ok
    assert {failure.check.statements for failure in report.failures} == {("write-contents",)}
    assert "missing" in report.failures[0].trace
    assert "[write-contents]" in str(report).replace("'", "")


# ---- subjects


FILES = {"a.txt": b"a", "deep/er/b.txt": b"b"}


@pytest.mark.parametrize(
    "make",
    [
        MemorySubject,
        LocalSubject,
        lambda: layered(MemorySubject()),
        lambda: lazified(MemorySubject()),
        lambda: SubFSSubject(MemorySubject()),
    ],
)
def test_a_subject_makes_and_sees_by_its_side_channel(make: Callable[[], Subject]) -> None:
    with closing(make()) as subject:
        fs = subject.make(FILES, ["void", "deep/too"])
        assert subject.contents(fs) == {**FILES, "deep/": b"", "deep/er/": b"", "deep/too/": b"", "void/": b""}
        assert subject.files(fs) == FILES
        assert subject.directories(fs) == {"deep", "deep/er", "deep/too", "void"}
        place = subject.location(fs)
        fs.write_bytes("c.txt", b"c")
        assert subject.files(place) == {**FILES, "c.txt": b"c"}
        assert subject.contents(subject.create()) == {}, "each FS is a tree of its own"


def test_a_subfs_subject_sees_what_is_touched_outside() -> None:
    with closing(SubFSSubject(MemorySubject())) as subject:
        fs = subject.make({"a.txt": b"a"})
        Memory(fs.url().partition("://")[2].partition("/")[0]).write_bytes("/sub/dir-beside/x.txt", b"changed")
        with pytest.raises(AssertionError, match="outside"):
            subject.contents(fs)


def test_hidden_leftovers_are_contents_and_no_files() -> None:
    with closing(LocalSubject()) as subject:
        fs = subject.make({"a.txt": b"a"})
        hidden = Path(subject.location(fs)) / ".a.txt.123.fsabs-partial"
        hidden.write_bytes(b"half")
        assert subject.files(fs) == {"a.txt": b"a"}
        assert subject.contents(fs) == {"a.txt": b"a", hidden.name: b"half"}
        assert list(fs.list()) == ["a.txt"]


def test_a_closed_subject_leaves_nothing(tmp_path: Path) -> None:
    subject = LocalSubject(tmp_path)
    subject.make(FILES)
    assert list(tmp_path.iterdir())
    subject.close()
    assert not list(tmp_path.iterdir())


# ---- pytest


PLUGIN_TEST = """
from fsabs.backends.memory import Memory
from fsabs.testing import FSConformance, MemorySubject

class TestIt(FSConformance):
    capabilities = Memory.capabilities{changes}
    factory = MemorySubject
    {more}
"""


def _collected(pytester: pytest.Pytester, changes: str = "", more: str = "", *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(PLUGIN_TEST.format(changes=changes, more=more))
    pytester.makeini("[pytest]\nmarkers = quick: quick")
    # zarr's plugin, which the tests don't load either, has a mark that would have to be declared.
    return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:zarr", *arguments)


@pytest.mark.parametrize("quick", [False, True])
def test_every_selected_check_is_collected(pytester: pytest.Pytester, quick: bool) -> None:
    chosen = ("-m", "quick") if quick else ()
    result = _collected(pytester, "", "in_process = True", "--collect-only", *chosen)
    found = {line.partition("[")[2].rstrip("]") for line in result.outlines if "::test_check[" in line}
    expected = [one for one in checks(Memory.capabilities) if not quick or not (one.slow or one.start_methods)]
    assert found == names(expected)
    assert any(line.endswith("::test_declared") for line in result.outlines) is not quick


def test_declaring_less_than_there_is_fails(pytester: pytest.Pytester) -> None:
    result = _collected(pytester, "._replace(rename=False)", "", "-k", "test_declared")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the subject has *rename=True*, and the test class declares *rename=False*"])


def test_declaring_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="TestForgetful must declare the `capabilities`"):
        type("TestForgetful", (FSConformance,), {})


# ---- without what is optional


@pytest.mark.parametrize(("name", "package"), [("run", "pytest"), ("model_test", "hypothesis")])
def test_a_missing_package_names_the_extra(name: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import fsabs.testing\n"
        f"try: fsabs.testing.{name}(None)\n"
        "except fsabs.MissingDependencyError as exc: print(exc)"
    )
    assert "pip install 'fsabs[testing]'" in _printed(code)


def test_importing_the_kit_needs_neither_pytest_nor_hypothesis() -> None:
    code = "import fsabs.testing, sys; print([m for m in ('pytest', 'hypothesis', 'numpy') if m in sys.modules])"
    assert _printed(code) == "[]"


def test_the_kit_is_refused_where_python_leaves_asserts_out() -> None:
    code = (
        "from fsabs.testing import MemorySubject, run\n"
        "try: run(MemorySubject())\n"
        "except RuntimeError as exc: print(exc)"
    )
    assert "python -O" in _printed(code, "-O")


def _printed(code: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


# ---- assertions


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        (b"abxd", b"abcde", "4 bytes, expected 5; at offset 2 there is b'xd', expected b'cde'"),
        (b"abcd", b"abcde", "4 bytes, expected 5; at offset 4 there is b'', expected b'e'"),
        ({"a": b"", "b": b"x"}, {"a": b"", "b": b"y"}, "'b': 1 bytes, expected 1; at offset 0"),
        ({"a": b""}, {"a": b"", "b": b"y"}, "'b': 'missing', expected b'y'"),
        ({"c": b"z"}, {}, "'c': b'z', expected 'nothing'"),
        (["a", "b"], ["a", "c", "d"], "at index 1: 'b', expected 'c'"),
        (["a"], ["a", "c"], "1 items, expected 2"),
    ],
)
def test_assertions_say_what_was_found(found: Any, expected: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=f"^{re.escape(told)}"):
        asserts.assert_same(found, expected)


def test_an_error_without_a_url_or_of_another_library_is_found() -> None:
    class Foreign(OSError):
        operation = "read"

    for wrong in (OSError(errno.EIO, "no URL"), Foreign(errno.EIO, "of another library", "memory://x/a")):
        with pytest.raises(AssertionError):
            asserts.assert_named(wrong)
