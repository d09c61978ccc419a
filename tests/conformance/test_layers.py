"""A layer that does nothing, `lazify`, and `FaultyFS` without faults: each is what it is around."""

from __future__ import annotations

from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.testing import (
    FaultyFS,
    FSConformance,
    LocalSubject,
    MemorySubject,
    SubFSSubject,
    Subject,
    WrappedSubject,
    layered,
    lazified,
    model_test,
)
from tests.conformance.selections import WithoutProcesses


def _layer_over_local() -> Subject:
    return layered(LocalSubject())


def _layer_over_memory() -> Subject:
    return layered(MemorySubject())


def _subfs_of_layer() -> Subject:
    return SubFSSubject(layered(MemorySubject()))


def _layer_over_subfs() -> Subject:
    return layered(SubFSSubject(MemorySubject()))


def _lazy_over_local() -> Subject:
    return lazified(LocalSubject())


def _lazy_over_memory() -> Subject:
    return lazified(MemorySubject())


def _lazy_over_subfs() -> Subject:
    return lazified(SubFSSubject(MemorySubject()))


def _subfs_of_lazy() -> Subject:
    return SubFSSubject(lazified(MemorySubject()))


def _faultless() -> Subject:
    return WrappedSubject(MemorySubject(), FaultyFS)


class TestLayerOverLocal(FSConformance):
    capabilities = Local.capabilities
    factory = _layer_over_local
    in_process = True


class TestLazyOverLocal(TestLayerOverLocal):
    in_process = False
    factory = _lazy_over_local


class TestLayerOverMemory(WithoutProcesses):
    capabilities = Memory.capabilities
    factory = _layer_over_memory
    in_process = True


class TestSubFSOfLayer(TestLayerOverMemory):
    in_process = False  # as the rest: quick means those above

    factory = _subfs_of_layer


class TestLayerOverSubFS(TestSubFSOfLayer):
    factory = _layer_over_subfs


class TestLazyOverMemory(TestSubFSOfLayer):
    factory = _lazy_over_memory


class TestLazyOverSubFS(TestSubFSOfLayer):
    factory = _lazy_over_subfs


class TestSubFSOfLazy(TestSubFSOfLayer):
    factory = _subfs_of_lazy


class TestFaultless(TestSubFSOfLayer):
    factory = _faultless


TestLazyModel = model_test(_lazy_over_local, max_examples=20)
TestFaultlessModel = model_test(_faultless, max_examples=20)
