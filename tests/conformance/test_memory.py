"""Memory, held to the conformance kit."""

from __future__ import annotations

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
