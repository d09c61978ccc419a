"""While a trace is on, each FS is what it is without: memory, local files and a zip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fsabs import trace
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.testing import FSConformance, LocalSubject, MemorySubject
from tests.conformance.archives import deflated_zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import WithoutProcesses


@pytest.fixture(scope="class")
def tracing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A trace is on."""
    with trace.record(tmp_path_factory.mktemp("trace")):
        yield


@pytest.mark.usefixtures("tracing")
class TestTracedMemory(WithoutProcesses):
    capabilities = Memory.capabilities
    factory = MemorySubject


@pytest.mark.usefixtures("tracing")
class TestTracedLocal(FSConformance):
    capabilities = Local.capabilities
    factory = LocalSubject


@pytest.mark.usefixtures("tracing")
class TestTracedZip(ContainerConformance):
    made = staticmethod(deflated_zip_in)
