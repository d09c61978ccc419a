"""Forked children of a test end with it: one that raises would return into pytest and run the other tests, too.

As a worker of pytest-xdist it would report them to the controlling process, beside its parent, and end that with an
internal error.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator

import pytest

EXIT_STATUS = 70
"""The exit status of a child that raised or returned."""


def _ending_children() -> Generator[None, object, object]:
    process = os.getpid()
    try:
        return (yield)
    except BaseException:
        if os.getpid() != process:
            traceback.print_exc()
        raise
    finally:
        if os.getpid() != process:
            os._exit(EXIT_STATUS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """End the children of fixtures."""
    return (yield from _ending_children())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """End the children of a test."""
    return (yield from _ending_children())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """End the children of what ends fixtures."""
    return (yield from _ending_children())
