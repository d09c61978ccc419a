"""The conformance kit over Google Cloud Storage: an emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import GCS
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.archives import tar_in, zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import gcs_subject


class TestGCS(FSConformance):
    capabilities = GCS.capabilities

    @pytest.fixture
    def subject(self, gcs: Any) -> Iterator[Subject]:
        with closing(gcs_subject(gcs)) as subject:
            yield subject


class TestSubFSOfGCS(WithoutProcesses):
    capabilities = GCS.capabilities

    @pytest.fixture
    def subject(self, gcs: Any) -> Iterator[Subject]:
        with closing(SubFSSubject(gcs_subject(gcs))) as subject:
            yield subject


class TestZipInZipOnGCS(ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "gcs"


class TestTarOnGCS(WithoutProcesses, ContainerConformance):
    made = tar_in
    over = "gcs"
