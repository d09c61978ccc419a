"""The kit as pytest's: a base class whose tests are the checks that a declared FS gets. Needs pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import ClassVar

import pytest

from ..core.fs import Capabilities
from . import expect
from .kit import Check, Declared, checks, declared_by
from .subject import Subject


class FSConformance:
    """One FS held to all that it declares, as a test class:

        class TestMine(FSConformance):
            capabilities = Mine.capabilities
            factory = MySubject

    Which checks there are is settled when tests are collected, by what the class declares; that the FS itself says the
    same is a test, too. Override the fixture `subject` where making one takes other fixtures, such as a server.
    """

    capabilities: ClassVar[Capabilities]
    """What the FS declares: for a container, the reading and the writing one together."""
    live: ClassVar[bool] = True
    """As `Subject.live`."""
    shared: ClassVar[bool] = True
    """As `Subject.shared`."""
    factory: ClassVar[Callable[[], Subject]]
    """Gives a new subject, for each test."""
    serverless: ClassVar[bool] = False
    """Whether nothing but this machine is needed: then what is neither slow nor makes processes is marked `quick`."""

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
    def marks(cls, check: Check) -> Iterable[pytest.MarkDecorator]:
        """The marks of a check's test."""
        return [pytest.mark.quick] if cls.serverless and not check.slow and not check.processes else []

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Make a test of each check."""
        if "check" in metafunc.fixturenames:
            selected = checks(cls.capabilities, cls.live, cls.shared)
            metafunc.parametrize(
                "check", [pytest.param(one, id=one.name, marks=list(cls.marks(one))) for one in selected]
            )

    def test_declared(self, subject: Subject) -> None:
        """The capabilities that selected the checks are those of the FS: none was left out."""
        declared = Declared(self.capabilities, self.live, self.shared)
        expect.equal(declared_by(subject), declared, "what the subject declares, against the test class")

    def test_check(self, check: Check, subject: Subject) -> None:
        """One check."""
        check(subject)
