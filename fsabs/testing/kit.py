"""The conformance kit: the checks, which of them apply to an FS, and two ways to run them: `FSConformance`, and `run`.

A check is a function of a `Subject` whose assertions are pytest's. It names the statements of `docs/semantics.md` that
it holds an FS to, and what the FS must be able to do. The checks that don't apply to an FS are not collected: a skipped
test of the kit is always a mistake.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from typing import ClassVar, NamedTuple

from ..core import errors
from ..core.stats import Capabilities
from .subjects import Subject

try:
    import pytest
except ImportError as exc:
    raise errors.missing("pytest", "testing", "the conformance kit") from exc

MODULES = (
    "checks_fs",
    "checks_files",
    "checks_tree",
    "checks_paths",
    "checks_errors",
    "checks_write",
    "checks_whole",
    "checks_change",
    "checks_processes",
)
"""The modules of this package that define checks."""
pytest.register_assert_rewrite(*(f"{__package__}.{name}" for name in ("asserts", *MODULES)))


class Check(NamedTuple):
    """One check: a function, and what is known of it beforehand."""

    name: str
    statements: tuple[str, ...]
    """The ids of the statements in `docs/semantics.md` that it holds an FS to."""
    needs: tuple[str, ...]
    """Names of capabilities, `live`, `shared` (see `Subject`) or `empty_directories`; `not x`: without `x`."""
    slow: bool
    """Whether it takes seconds, wherever the files are."""
    start_methods: tuple[str, ...]
    """How it starts processes: `fork`, `spawn`, `forkserver`; empty if it starts none."""
    function: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> None:
        """Hold the subject's FS to the statements; raises what a failing test of pytest raises."""
        self.function(subject)

    def unmet(self, capabilities: Capabilities, live: bool, shared: bool) -> list[str]:
        """Return the needs of the check that such an FS doesn't meet."""
        can = {**capabilities._asdict(), "live": live, "shared": shared}
        can["empty_directories"] = capabilities.mkdir or not capabilities.implied_directories
        return [need for need in self.needs if can[need.removeprefix("not ")] is need.startswith("not ")]


_checks: dict[str, Check] = {}


def check(
    *statements: str, needs: Iterable[str] = ("read",), slow: bool = False, start_methods: Iterable[str] = ()
) -> Callable[[Callable[[Subject], None]], Check]:
    """Make a function a check that holds an FS to the `statements`; its name is the function's, with dashes."""

    def make(function: Callable[[Subject], None]) -> Check:
        name = function.__name__.replace("_", "-")
        assert name not in _checks, f"two checks are named {name!r}"
        _checks[name] = Check(name, statements, tuple(needs), slow, tuple(start_methods), function)
        return _checks[name]

    return make


def all_checks() -> list[Check]:
    """Return every check of the kit."""
    for module in MODULES:
        importlib.import_module(f"{__package__}.{module}")
    return list(_checks.values())


def checks(what: Subject | Capabilities, live: bool = True, shared: bool = True) -> list[Check]:
    """Return the checks for a subject, or for its capabilities and whether it is live and shared."""
    declared = (what.capabilities, what.live, what.shared) if isinstance(what, Subject) else (what, live, shared)
    return [one for one in all_checks() if not one.unmet(*declared)]


class FSConformance:
    """One FS held to all that it declares, as a test class:

        class TestMine(FSConformance):
            capabilities = Mine.capabilities
            factory = MySubject

    The checks are chosen when tests are collected, by what the class declares; that the FS itself says the same is a
    test, too. Override the fixture `subject` where making one takes other fixtures, such as a server.
    """

    capabilities: ClassVar[Capabilities]
    """What the FS declares; for a container, what its FS that reads and its FS that writes do together."""
    live: ClassVar[bool] = True
    """See `Subject.live`."""
    shared: ClassVar[bool] = True
    """See `Subject.shared`."""
    factory: ClassVar[Callable[[], Subject]]
    """Gives a new subject, for each test."""
    in_process: ClassVar[bool] = False
    """Whether the FS needs no server: its checks that are not slow and start no processes are marked `quick`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__name__.startswith("Test") and not isinstance(getattr(cls, "capabilities", None), Capabilities):
            raise TypeError(f"{cls.__name__} must declare the `capabilities` of its FS, which select its checks")

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        """The FS under test."""
        with closing(type(self).factory()) as subject:
            yield subject

    @classmethod
    def checks(cls) -> list[Check]:
        """Return the checks that are run; override it to leave some out."""
        return checks(cls.capabilities, cls.live, cls.shared)

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Make a test of each check."""
        if "check" in metafunc.fixturenames:
            parameters = []
            for one in cls.checks():
                marks = [pytest.mark.quick] if cls.in_process and not one.slow and not one.start_methods else []
                parameters.append(pytest.param(one, id=one.name, marks=marks))
            metafunc.parametrize("check", parameters)

    def test_declared(self, subject: Subject) -> None:
        """The capabilities that selected the checks are those of the FS: none was left out."""
        declared = (self.capabilities, self.live, self.shared)
        found = (subject.capabilities, subject.live, subject.shared)
        assert found == declared, f"the subject has {found}, and the test class declares {declared}"

    def test_check(self, check: Check, subject: Subject) -> None:
        """One check."""
        check(subject)


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
        parts = [f"{one.check.name} {list(one.check.statements)}\n{one.trace}" for one in self.failures]
        counts = f"{len(self.passed)} passed, {len(self.failures)} failed, {len(self.not_applicable)} not applicable"
        return "\n".join([*parts, counts])


def run(subject: Subject, only: Collection[str] = ()) -> Report:
    """Run the subject's checks in a program; with `only`, those with one of these names or statements."""
    if not __debug__:
        raise RuntimeError("the checks are assert statements, which `python -O` leaves out")
    known = {name for one in all_checks() for name in (one.name, *one.statements)}
    if unknown := set(only) - known:
        raise ValueError(f"neither a check nor a statement is named {', '.join(sorted(unknown))}")
    report = Report([], [], {})
    for one in all_checks():
        if only and not {one.name, *one.statements} & set(only):
            continue
        if unmet := one.unmet(subject.capabilities, subject.live, subject.shared):
            report.not_applicable[one.name] = unmet
            continue
        try:
            one(subject)
        except (Exception, pytest.fail.Exception):  # whatever is raised is the FS's failure, and stands in the report
            report.failures.append(Failure(one, traceback.format_exc()))
        else:
            report.passed.append(one)
    return report
