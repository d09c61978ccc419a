"""The kit finds what is wrong: each statement is broken by a filesystem that is made for it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import closing

import pytest

from fsabs.testing import MemorySubject, Subject, all_checks, layered, run

from . import broken_trees, broken_writes
from .broken import ALL, Broken
from .bundle import BundleSubject
from .implied import implied

MODULES = (broken_trees, broken_writes)  # which add theirs to ALL
CASES = [pytest.param(broken, statement, id=f"{broken.name}-{statement}") for broken in ALL for statement in broken.ids]


@pytest.mark.parametrize(("broken", "statement"), CASES)
def test_what_is_broken_is_found(broken: Broken, statement: str) -> None:
    with warnings.catch_warnings(), closing(broken.subject()) as subject:
        warnings.simplefilter("ignore", ResourceWarning)  # a check that fails leaves files open
        report = run(subject, only=[statement])
        gc.collect()
    assert any(statement in failure.check.statements for failure in report.failures), f"nothing found: {report}"
    assert "pytest-timeout" not in str(report), "it is the test's own time that ended a check"


def test_every_statement_is_broken_by_a_filesystem() -> None:
    held = {statement for check in all_checks() for statement in check.statements}
    broken = {statement for one in ALL for statement in one.ids}
    assert held - broken == set(), "statements whose checks were never seen to fail"
    assert broken - held == set(), "statements that no check holds"


@pytest.mark.parametrize("factory", [MemorySubject, implied])
def test_what_is_whole_passes(factory: Callable[[], Subject]) -> None:
    """By `run`; the classes of tests/conformance run the same checks over all other FS."""
    with closing(factory()) as subject:
        report = run(subject)
    assert report.ok, str(report)
    assert len(report.passed) + len(report.not_applicable) == len(all_checks())


@pytest.mark.parametrize("wrap", [layered, BundleSubject])
def test_a_whole_container_passes(wrap: Callable[[Subject], Subject]) -> None:
    """The last is a container in a container."""
    with closing(wrap(BundleSubject(MemorySubject()))) as subject:
        report = run(subject)
    assert report.ok, str(report)


def test_the_reason_is_told() -> None:
    [unsorted] = [one for one in ALL if one.name == "Unsorted"]
    with closing(unsorted.subject()) as subject:
        report = run(subject, only=["list-order"])
    text = str(report)
    assert "list-order" in text
    assert "checks_tree.py" in text
    assert "At index 0 diff: " in text


def test_a_child_that_hangs_is_named_with_its_stack(capfd: pytest.CaptureFixture[str]) -> None:
    [hanging] = [one for one in ALL if one.name == "HoldsALock"]
    with closing(hanging.subject()) as subject:
        report = run(subject, only=["fork-threads"])
    text = str(report)
    assert "a child forked while threads read" in text
    assert "hangs, and was killed" in text
    assert "broken_trees.py" in capfd.readouterr().err, "the stack of the child, which stands in the lock"
