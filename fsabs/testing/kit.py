"""The kit: what a check is, which checks an FS gets, and a run of them without pytest.

A check is a function of a `Subject` that raises `AssertionError`. It names the statements of `docs/semantics.md` that
it holds an FS to, and what the FS must be able to do; what an FS can't do selects its checks beforehand, so that none
is ever skipped.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from ..core.fs import Capabilities
from .subject import Subject

MODULES = (
    "checks_fs",
    "checks_files",
    "checks_text",
    "checks_many",
    "checks_tree",
    "checks_paths",
    "checks_errors",
    "checks_write",
    "checks_write_many",
    "checks_whole",
    "checks_change",
    "checks_copies",
    "checks_threads",
    "checks_fork",
    "checks_pickle",
)
"""The modules of this package that define checks."""


class Declared(NamedTuple):
    """The declared properties of an FS, which select its checks."""

    capabilities: Capabilities
    live: bool = True
    """As `Subject.live`."""
    shared: bool = True
    """As `Subject.shared`."""

    def has(self, need: str) -> bool:
        """Return whether it meets a need of a check; `ValueError` for an unknown one."""
        if need.startswith("not "):
            return not self.has(need[4:])
        if need == "empty_directories":
            return self.capabilities.mkdir or not self.capabilities.implied_directories
        if need in ("live", "shared"):
            return self.live if need == "live" else self.shared
        if need not in Capabilities._fields:
            raise ValueError(f"a check can't need {need!r}: it is no capability")
        return bool(getattr(self.capabilities, need))


class Check(NamedTuple):
    """One check: a function, and what is known of it beforehand."""

    name: str
    holds: tuple[str, ...]
    """The ids of the statements in `docs/semantics.md` that it holds an FS to."""
    needs: tuple[str, ...]
    """Capabilities, and of `live`, `shared` and `empty_directories`; `not x` needs `x` to be lacking."""
    slow: bool
    """Whether it takes seconds, wherever the files are."""
    processes: tuple[str, ...]
    """How it makes processes: of `fork`, `spawn`, `forkserver`; none if it makes none."""
    function: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> None:
        """Hold the subject's FS to the statements; `AssertionError`."""
        self.function(subject)

    def unmet(self, declared: Declared) -> list[str]:
        """Return the needs of the check that such an FS doesn't meet."""
        return [need for need in self.needs if not declared.has(need)]


class Failure(NamedTuple):
    """A check that failed."""

    check: Check
    trace: str
    """The traceback, as text."""


class Report(NamedTuple):
    """The results of a run."""

    passed: list[Check]
    failures: list[Failure]
    not_applicable: dict[str, list[str]]
    """What was not run, by name, and the needs that the FS doesn't meet."""

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return not self.failures

    def __str__(self) -> str:
        parts = [f"{one.check.name} {list(one.check.holds)}\n{one.trace}" for one in self.failures]
        counts = f"{len(self.passed)} passed, {len(self.failures)} failed, {len(self.not_applicable)} not applicable"
        return "\n".join([*parts, counts])


_checks: dict[str, Check] = {}


def check(
    *holds: str, needs: Iterable[str] = ("read",), slow: bool = False, processes: Iterable[str] = ()
) -> Callable[[Callable[[Subject], None]], Check]:
    """Make a function a check that holds an FS to the statements `holds`; its name is the function's, with dashes."""

    def make(function: Callable[[Subject], None]) -> Check:
        name = function.__name__.replace("_", "-")
        found = Check(name, holds, tuple(needs), slow, tuple(processes), function)
        for need in found.needs:
            Declared(Capabilities()).has(need)
        if not holds or name in _checks:
            raise ValueError(f"the check {name!r} holds nothing, or its name is taken")
        _checks[name] = found
        return found

    return make


def all_checks() -> list[Check]:
    """Every check of the kit."""
    for module in MODULES:
        importlib.import_module(f"{__package__}.{module}")
    return list(_checks.values())


def checks(what: Subject | Capabilities, live: bool = True, shared: bool = True) -> list[Check]:
    """The checks for a subject, or for what one declares: its capabilities, and whether it is live and shared."""
    declared = declared_by(what) if isinstance(what, Subject) else Declared(what, live, shared)
    return [one for one in all_checks() if not one.unmet(declared)]


def declared_by(subject: Subject) -> Declared:
    """Return the declared properties of a subject."""
    return Declared(subject.capabilities, subject.live, subject.shared)


def run(subject: Subject, only: Collection[str] = ()) -> Report:
    """Run the subject's checks; with `only`, those of that name, or that hold the statement of that id."""
    known = {name for one in all_checks() for name in (one.name, *one.holds)}
    if unknown := set(only) - known:
        raise ValueError(f"no check is called, and none holds, {sorted(unknown)}")
    declared = declared_by(subject)
    report = Report([], [], {})
    for one in all_checks():
        if only and not {one.name, *one.holds} & set(only):
            continue
        if unmet := one.unmet(declared):
            report.not_applicable[one.name] = unmet
            continue
        try:
            one(subject)
        except Exception:  # whatever is raised is the FS's failure, and the report's business
            report.failures.append(Failure(one, traceback.format_exc()))
        else:
            report.passed.append(one)
    return report
