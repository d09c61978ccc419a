"""What `python -m tests.judges` makes of the outcomes of a suite."""

from __future__ import annotations

import pytest

from tests.judges import suites
from tests.judges.__main__ import Expected, Run, compare, load

pytestmark = pytest.mark.quick
OUTCOMES = {"a.py::test[1-*]": "failed", "a.py::test[2-x]": "failed", "a.py::good": "passed", "a.py::left": "skipped"}


def problems(*lines: str, places: list[str] | None = None) -> list[str]:
    """What is found if the list names these."""
    run = Run("zarr", "s3", OUTCOMES, "", 0.0)
    return compare(run, [Expected("zarr", "reason", list(lines), places), Expected("arrow", "another suite", ["*"])])


def test_the_list_has_to_name_what_fails_and_nothing_else() -> None:
    assert problems("a.py::test[*]") == problems("a.py::test[1-*]", "a.py::test[2-x]", places=["s3"]) == []
    assert problems("a.py::test[1-*]") == ["fails: a.py::test[2-x]"]
    assert problems("a.py::test[*]", "a.py::good") == ["is passed, and listed: a.py::good"]
    assert problems("a.py::test[*]", "a.py::left") == ["is skipped, and listed: a.py::left"]
    assert problems("a.py::test[*]", "a.py::gone") == ["is listed, and no test: a.py::gone"]
    assert len(problems("a.py::test[*]", places=["local"])) == 2


def test_the_list_is_of_suites_and_stores_that_are_run() -> None:
    for listed in load():
        assert listed.reason
        assert {*(listed.places or [])} <= {*suites.SUITES[listed.suite].places}
