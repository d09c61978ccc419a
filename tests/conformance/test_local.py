"""Local files, held to the conformance kit."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fsabs.backends.local import Local
from fsabs.testing import FSConformance, LocalSubject, SubFSSubject, model_test
from tests.conformance.selections import WithoutProcesses


def _subfs() -> SubFSSubject:
    return SubFSSubject(LocalSubject())


class TestLocal(FSConformance):
    capabilities = Local.capabilities
    factory = LocalSubject
    in_process = True


class TestLocalSubFS(WithoutProcesses):
    capabilities = Local.capabilities
    factory = _subfs
    in_process = True


class TestLocalWithoutUnnamedFiles(TestLocal):
    """Where half-written files have names, which listings leave out."""

    in_process = False

    @pytest.fixture(autouse=True)
    def named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = os.open

        def without_unnamed(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return inner(path, flags, *rest, **keywords)

        monkeypatch.setattr(os, "open", without_unnamed)


TestLocalModel = model_test(LocalSubject)
