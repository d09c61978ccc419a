"""TracedFS while a trace is on, and while none is: it is what it is around, over memory, local files and a zip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fsabs import trace
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.testing import FSConformance, LocalSubject, MemorySubject, Subject, WrappedSubject
from fsabs.trace import TracedFS
from tests.conformance.archives import deflated_zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import WithoutProcesses


def _over_memory() -> Subject:
    return WrappedSubject(MemorySubject(), TracedFS)


def _over_local() -> Subject:
    return WrappedSubject(LocalSubject(), TracedFS)


@pytest.fixture(scope="class")
def tracing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A trace is on."""
    with trace.trace(tmp_path_factory.mktemp("trace")):
        yield


@pytest.mark.usefixtures("tracing")
class TestTracedMemory(WithoutProcesses):
    capabilities = Memory.capabilities
    factory = _over_memory


@pytest.mark.usefixtures("tracing")
class TestTracedLocal(FSConformance):
    capabilities = Local.capabilities
    factory = _over_local


@pytest.mark.usefixtures("tracing")
class TestTracedZip(ContainerConformance):
    made = staticmethod(lambda outer: WrappedSubject(deflated_zip_in(outer), TracedFS))


class TestUntracedMemory(WithoutProcesses):
    capabilities = Memory.capabilities
    factory = _over_memory
