"""The conformance kit over S3: a real Ceph gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import S3
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.selections import BelowARoot
from tests.conformance.stores import S3Subject


class TestCeph(FSConformance):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, ceph: Any) -> Iterator[Subject]:
        with closing(S3Subject(ceph)) as subject:
            yield subject


class TestSubFSOfCeph(BelowARoot):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, ceph: Any) -> Iterator[Subject]:
        with closing(SubFSSubject(S3Subject(ceph))) as subject:
            yield subject
