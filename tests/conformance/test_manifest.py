"""ManifestFS over memory, local files and a zip: the conformance kit of what is read."""

from __future__ import annotations

import itertools
import shutil
import tempfile

from fsabs import FS
from fsabs.manifest import ManifestFS, create
from fsabs.spi import Capabilities
from fsabs.testing import FSConformance, LocalSubject, MemorySubject, Subject, WrappedSubject
from tests.conformance.archives import deflated_zip_in
from tests.conformance.selections import WithoutProcesses


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


class TestPinnedMemory(WithoutProcesses):
    capabilities = Capabilities(versions=True, content_versions=True)
    factory = staticmethod(lambda: PinnedSubject(MemorySubject()))


class TestPinnedLocal(FSConformance):
    capabilities = Capabilities(versions=True)
    factory = staticmethod(lambda: PinnedSubject(LocalSubject()))


class TestPinnedZip(WithoutProcesses):
    live = False
    capabilities = Capabilities(implied_directories=True, versions=True)
    factory = staticmethod(lambda: PinnedSubject(deflated_zip_in(MemorySubject())))
