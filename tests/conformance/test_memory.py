"""Memory, held to the conformance kit."""

from __future__ import annotations

import inspect
import sys

import pytest

from fsabs.backends.memory import Memory
from fsabs.testing import FSConformance, MemorySubject, SubFSSubject, model_test
from tests.conformance.selections import WithoutProcesses


def _subfs() -> SubFSSubject:
    return SubFSSubject(MemorySubject())


class TestMemory(FSConformance):
    capabilities = Memory.capabilities
    factory = MemorySubject
    in_process = True


class TestMemorySubFS(WithoutProcesses):
    capabilities = Memory.capabilities
    factory = _subfs
    in_process = True


TestMemoryModel = model_test(MemorySubject)
TestMemorySubFSModel = model_test(_subfs, max_examples=20)


def test_a_deep_tree_takes_no_deep_stack() -> None:
    path, limit = "/".join("d" * 300), sys.getrecursionlimit()
    fs = Memory()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        fs.makedirs(path)
        fs.makedirs(path, exist_ok=True)
        with pytest.raises(FileExistsError):
            fs.makedirs(path)
        assert fs.isdir(path)
    finally:
        sys.setrecursionlimit(limit)
