"""What a failed run says last: each failed test's room, the command that repeats it with its seed, and the stacks."""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

STACKS = "Other threads at the failure"
SHOWN = 5
"""Of so many failures the stacks are shown once more."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a run for Hypothesis, which the workers are given, too."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.getrandbits(32))


def _stacks() -> str:
    """Return the stacks of the threads of this process but its own, which a failure's traceback shows."""
    frames, names = sys._current_frames(), defaultdict[str, list[str]](list)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident in frames:
            names["".join(traceback.format_stack(frames[thread.ident]))].append(thread.name)
    return "\n".join(f"{', '.join(some)}:\n{stack}" for stack, some in names.items())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the stacks with the report of a failure."""
    report = yield
    if report.failed:
        report.sections.append((STACKS, _stacks()))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Write them below the summary."""
    yield
    config = session.config
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(terminal, TerminalReporter) or hasattr(config, "workerinput"):
        return
    failed = [*terminal.stats.get("failed", ()), *terminal.stats.get("error", ())]
    for number, report in enumerate(failed):
        path = report.nodeid.partition("::")[0]
        terminal.write_line(f"\nroom {path.rpartition('/')[0]}, seed {config.option.hypothesis_seed}; to repeat:")
        terminal.write_line(f"  pytest '{report.nodeid}' --hypothesis-seed={config.option.hypothesis_seed}")
        stacks = dict(report.sections).get(STACKS)
        if stacks and number < SHOWN:
            terminal.write_line(f"{STACKS}: {stacks}")
