"""The model test finds what is wrong, and nothing where all is right."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

from fsabs.backends.memory import Memory
from fsabs.core.fs import FS
from fsabs.core.layers import LayerFS
from fsabs.testing import MemorySubject, Subject, WrappedSubject, model_test

from .broken_writes import AddsToWhatIsThere, PublishesOnException, RenameCopies, RenameLoses


class SortsWrongly(LayerFS):
    def list(self, *arguments: Any, **keywords: Any) -> Any:
        return iter(sorted(super().list(*arguments, **keywords), reverse=True))


class ForgetsOnPickling(LayerFS):
    def __reduce__(self) -> tuple[object, ...]:
        return Memory, ()


BROKEN = [AddsToWhatIsThere, PublishesOnException, RenameCopies, RenameLoses, SortsWrongly, ForgetsOnPickling]


def _outcome(factory: Callable[[], Subject], examples: int = 100) -> unittest.TestResult:
    case: Any = model_test(factory, max_examples=examples)
    case.settings = settings(case.settings, phases=[Phase.generate], database=None, derandomize=True)
    result = unittest.TestResult()
    case("runTest").run(result)
    return result


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_found(kind: type[LayerFS]) -> None:
    result = _outcome(lambda: WrappedSubject(MemorySubject(), kind))
    assert result.failures or result.errors


class OnlyReads(LayerFS):
    @property
    def capabilities(self):  # type: ignore[no-untyped-def, override]
        return self.inner.capabilities._replace(write=False, mkdir=False, rename=False, remove=False, append=False)


def test_what_is_not_declared_is_not_tried() -> None:
    def wrap(fs: FS) -> FS:
        return OnlyReads(fs)

    assert _outcome(lambda: WrappedSubject(MemorySubject(), wrap), 8).wasSuccessful()
