"""The kit finds what is wrong: each statement is broken by a filesystem that is made for it."""

from __future__ import annotations

import gc
import warnings
from contextlib import closing

import pytest

from fsabs.testing import all_checks, run

from . import broken_trees, broken_writes
from .broken import ALL, Broken

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


def test_a_child_that_hangs_is_named_with_its_stack(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(broken_trees.Impatient()) as subject:
        report = run(subject, only=["fork-threads"])
    text = str(report)
    assert "a child forked while threads read" in text
    assert "hangs, and was killed" in text
    assert "broken_trees.py" in capfd.readouterr().err, "the stack of the child, which stands in the lock"
