"""The conformance kit over Azure Blob Storage: Azurite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import Azure
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.archives import tar_in, zip_in
from tests.conformance.containers import ContainerConformance
from tests.conformance.selections import BelowARoot, WithoutProcesses
from tests.conformance.stores import azure_subject


class TestAzure(FSConformance):
    capabilities = Azure.capabilities

    @pytest.fixture
    def subject(self, azurite: Any) -> Iterator[Subject]:
        with closing(azure_subject(azurite)) as subject:
            yield subject


class TestSubFSOfAzure(BelowARoot):
    capabilities = Azure.capabilities

    @pytest.fixture
    def subject(self, azurite: Any) -> Iterator[Subject]:
        with closing(SubFSSubject(azure_subject(azurite))) as subject:
            yield subject


class TestZipInZipOnAzure(WithoutProcesses, ContainerConformance):
    made = staticmethod(lambda outer: zip_in(zip_in(outer, "outer.zip")))
    over = "azurite"


class TestTarOnAzure(WithoutProcesses, ContainerConformance):
    made = tar_in
    over = "azurite"
