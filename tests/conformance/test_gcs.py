"""The conformance kit over Google Cloud Storage: a store in memory, and an emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import GCS
from fsabs.testing import Check, FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.archives import tar_in, zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import BelowARoot, WithoutProcesses
from tests.conformance.stores import gcs_subject
from tests.servers.gcs_store import GcsStore


@pytest.fixture(scope="session")
def gcs_store() -> Iterator[GcsStore]:
    """The store in memory, in this process."""
    with GcsStore(listed=False) as store:
        yield store


class TestGCS(FSConformance):
    capabilities = GCS.capabilities

    @pytest.fixture
    def subject(self, gcs_store: GcsStore) -> Iterator[Subject]:
        with closing(gcs_subject(gcs_store)) as subject:
            yield subject


class TestSubFSOfGCS(BelowARoot):
    capabilities = GCS.capabilities

    @pytest.fixture
    def subject(self, gcs_store: GcsStore) -> Iterator[Subject]:
        with closing(SubFSSubject(gcs_subject(gcs_store))) as subject:
            yield subject


class TestGCSEmulator(WithoutProcesses):
    """A part of the kit: the emulator takes long for each request."""

    capabilities = GCS.capabilities
    modules = ("checks_fs", "checks_files", "checks_write", "checks_whole", "checks_errors", "checks_change")

    @classmethod
    def checks(cls) -> list[Check]:
        """Return the checks but those of many removals at once, in which the emulator breaks connections."""
        return [one for one in super().checks() if "remove-directory" not in one.statements]

    @pytest.fixture
    def subject(self, gcs: Any) -> Iterator[Subject]:
        with closing(gcs_subject(gcs)) as subject:
            yield subject


class TestZipInZipOnGCS(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "gcs_store"


class TestTarOnGCS(WithoutProcesses, ContainerConformance):
    made = tar_in
    over = "gcs_store"
