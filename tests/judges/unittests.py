"""`python -m tests.judges.unittests patched|opened MODULE...`: the interpreter's own tests, and the outcome of each.

`patched` runs them with Python's own modules patched, where files that no URL names must be what they were; `opened`
has what opens local files by name open them through an FS.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import sys
import unittest
import warnings
from typing import Any

import fsabs
from tests.judges import recording

PATCHES = ("builtins", "os", "shutil", "glob", "pathlib")


class Result(unittest.TextTestResult):
    """Records outcomes; a test of which one subtest fails has failed."""

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        recording.record(name(test), "passed")

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        recording.record(name(test), "failed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        recording.record(name(test), "failed")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            recording.record(name(test), "failed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        recording.record(name(test), "skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addExpectedFailure(test, err)
        recording.record(name(test), "skipped")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addUnexpectedSuccess(test)
        recording.record(name(test), "failed")


def name(test: unittest.TestCase) -> str:
    """Return a test's name as pytest's are: the module, the class and the method."""
    return "::".join(test.id().removeprefix("test.").rsplit(".", 2))


def open_by_fs() -> None:
    """Replace `open` in builtins and io: a regular file is opened, or made, by an FS."""
    local, bare = fsabs.Local(), open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **named: Any) -> Any:
        if isinstance(file, str) and (os.path.isfile(file) or not os.path.exists(file)):
            return local.open(os.path.abspath(file), mode, buffering, *arguments, **named)
        return bare(file, mode, buffering, *arguments, **named)

    builtins.open = io.open = opened


def main() -> int:
    """Run the modules; return the exit status."""
    support: Any = importlib.import_module("test.support")
    result: Any = Result
    support.use_resources = []  # neither the network nor what takes minutes
    warnings.simplefilter("default")
    cases = unittest.defaultTestLoader.loadTestsFromNames([f"test.{module}" for module in sys.argv[2:]])
    if sys.argv[1] == "patched":
        fsabs.patch(*PATCHES)
    else:
        open_by_fs()
    unittest.TextTestRunner(resultclass=result, verbosity=0).run(cases)
    recording.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
