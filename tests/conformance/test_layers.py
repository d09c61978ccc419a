"""The kit over layers: a layer that does nothing, `lazify` and `FaultyFS` without faults, traces, manifests.

That a layer forwards everything is held by `tests/testing/test_layer_rule.py`, too, which counts what it forwards.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from fsabs import FS, trace
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.manifest import ManifestFS, create
from fsabs.spi import Capabilities
from fsabs.testing import FaultyFS, Subject, WrappedSubject, layered, lazified
from tests.conformance.archives import deflated_zip_in
from tests.conformance.cells import ARCHIVE, Cell


@pytest.mark.nightly
class TestLayer(Cell):
    capabilities = Local.capabilities
    made = layered


class TestLazy(Cell):
    capabilities = Memory.capabilities
    over = "memory"
    made = lazified


@pytest.mark.nightly
class TestFaultless(Cell):
    capabilities = Memory.capabilities
    over = "memory"
    made = staticmethod(lambda inner: WrappedSubject(inner, FaultyFS))
    processes = False


@pytest.mark.nightly
class TestLazyZip(Cell):
    capabilities = ARCHIVE
    live = False
    made = staticmethod(lambda outer: lazified(deflated_zip_in(outer)))
    processes = False


# ---- while a trace is on


@pytest.fixture(scope="class")
def tracing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A trace is on."""
    with trace.record(tmp_path_factory.mktemp("trace")):
        yield


@pytest.mark.usefixtures("tracing")
class TestTracedMemory(Cell):
    capabilities = Memory.capabilities
    over = "memory"


@pytest.mark.nightly
@pytest.mark.usefixtures("tracing")
class TestTracedLocal(Cell):
    capabilities = Local.capabilities


@pytest.mark.nightly
@pytest.mark.usefixtures("tracing")
class TestTracedZip(Cell):
    capabilities = ARCHIVE
    live = False
    made = deflated_zip_in


# ---- as a manifest has it


class PinnedSubject(WrappedSubject):
    """The FS of another subject, pinned to a manifest of what is in it."""

    def __init__(self, inner: Subject) -> None:
        self._folder = tempfile.mkdtemp(prefix="fsabs-manifests-")
        self._numbers = itertools.count()
        super().__init__(inner, self._pin)

    def _pin(self, fs: FS) -> FS:
        path = f"{self._folder}/{next(self._numbers)}.jsonl"
        create(fs, path)
        return ManifestFS(fs, path)

    def create(self) -> FS:
        """As of an empty tree: it can't be written."""
        return self.make({})

    def close(self) -> None:
        """Removes the manifests."""
        super().close()
        shutil.rmtree(self._folder)


class TestPinnedMemory(Cell):
    capabilities = Capabilities(versions=True, content_versions=True)
    over = "memory"
    made = PinnedSubject


@pytest.mark.nightly
class TestPinnedLocal(Cell):
    capabilities = Capabilities(versions=True)
    made = PinnedSubject


@pytest.mark.nightly
class TestPinnedZip(Cell):
    capabilities = Capabilities(implied_directories=True, versions=True)
    live = False
    over = "memory"
    made = staticmethod(lambda outer: PinnedSubject(deflated_zip_in(outer)))
    processes = False
