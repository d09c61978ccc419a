"""Parts of the kit, for classes whose other checks another class already has.

What a fork, a spawn or a pickle may do to an FS depends on what it holds: a client, an index, locks, descriptors, a
blob of one kind. Each kind of these has one class with all checks. A `subfs`, a layer or one more container around it
holds nothing else, and gets the checks that make no processes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pytest

from fsabs.testing import FSConformance
from fsabs.testing.kit import MODULES, Check, checks


class WithoutProcesses(FSConformance):
    """The checks of some modules of the kit that make no processes."""

    modules: ClassVar[Collection[str]] = MODULES

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Make a test of each of these checks."""
        if "check" in metafunc.fixturenames:
            applicable = checks(cls.capabilities, cls.live, cls.shared)
            chosen = [one for one in applicable if not (one.processes or one.slow) and module_of(one) in cls.modules]
            parameters = [pytest.param(one, id=one.name, marks=list(cls.marks(one))) for one in chosen]
            metafunc.parametrize("check", parameters)


def module_of(check: Check) -> str:
    """Return the name of the kit's module that a check stands in."""
    return check.function.__module__.rpartition(".")[2]
