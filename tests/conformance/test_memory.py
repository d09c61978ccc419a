"""Memory, held to the conformance kit."""

from __future__ import annotations

import pytest

from fsabs.backends.memory import Memory
from fsabs.testing import FSConformance, MemorySubject, SubFSSubject, model_test


def _subfs() -> SubFSSubject:
    return SubFSSubject(MemorySubject())


class TestMemory(FSConformance):
    capabilities = Memory.capabilities
    factory = MemorySubject
    serverless = True


class TestMemorySubFS(FSConformance):
    capabilities = Memory.capabilities
    factory = _subfs
    serverless = True


TestMemoryModel = model_test(MemorySubject)
TestMemorySubFSModel = model_test(_subfs)


def test_a_deep_tree_takes_no_deep_stack() -> None:
    path = "/".join("d" * 1000)
    fs = Memory()
    fs.makedirs(path)
    fs.makedirs(path, exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs(path)
    assert fs.isdir(path)
