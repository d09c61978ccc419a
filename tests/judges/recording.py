"""The plugin of pytest for others' suites: it writes the outcome of each test, and offers the store that is judged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters import stores

pytest_plugins = ["tests.servers.fixtures"]
PLACE = os.environ["FSABS_JUDGES_PLACE"]
OUTCOMES = Path(os.environ["FSABS_JUDGES_OUTCOMES"])
WORST_LAST = ("passed", "skipped", "failed")
outcomes: dict[str, str] = {}


def record(name: str, outcome: str) -> None:
    """Keep the worst outcome of a test: it may fail again when it is torn down."""
    outcomes[name] = max(outcome, outcomes.get(name, "passed"), key=WORST_LAST.index)


def write() -> None:
    """Write all outcomes, for the process that started this one."""
    OUTCOMES.write_text(json.dumps(outcomes))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a test; one that its suite expects to fail counts as skipped by it."""
    file, _, test = report.nodeid.partition("::")
    record(f"{Path(file).name}::{test}", report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that can't be imported."""
    if report.failed:
        record(f"{Path(report.nodeid).name}::", "failed")


def pytest_sessionfinish() -> None:
    """Write the outcomes."""
    write()


@pytest.fixture
def judged_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty or missing directory of the store, or of a zip that is not there yet."""
    with stores.opened(PLACE, request, tmp_path) as url:
        yield url


@pytest.fixture
def judged_fs(judged_url: str) -> Iterator[Any]:
    """The FS of an empty directory of the store."""
    import fsabs

    with fsabs.from_url(judged_url, create=True) as fs:
        yield fs
