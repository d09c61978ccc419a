"""Parts of the kit, for classes whose other checks another class already has.

What a fork, a spawn or a pickle may do to an FS depends on what it holds: a client, an index, locks, descriptors, a
blob of one kind. Each kind of these has one class with all checks. A `subfs`, a layer or one more container around it
holds nothing else, and gets the checks that make no processes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from fsabs.testing import Check, FSConformance
from fsabs.testing.kit import MODULES


class WithoutProcesses(FSConformance):
    """The checks of some modules of the kit that make no processes."""

    modules: ClassVar[Collection[str]] = MODULES

    @classmethod
    def checks(cls) -> list[Check]:
        """Return those of the FS's checks that make no processes, of these modules."""
        quick = [one for one in super().checks() if not (one.start_methods or one.slow)]
        return [one for one in quick if module_of(one) in cls.modules]


class BelowARoot(WithoutProcesses):
    """The checks of names, trees and what changes them, for `subfs` of a store whose own FS has a root, too.

    A `subfs` has another root, and no other code: what is read from a file and written to one does not depend on it.
    """

    modules = ("checks_tree", "checks_paths", "checks_errors", "checks_change", "checks_processes")


def module_of(check: Check) -> str:
    """Return the name of the kit's module that a check stands in."""
    return check.function.__module__.rpartition(".")[2]
