"""The conformance kit over a real HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fsabs import Hdfs
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.selections import BelowARoot
from tests.conformance.stores import HdfsSubject
from tests.servers.hdfs import HdfsCluster


class TestHdfs(FSConformance):
    capabilities = Hdfs.capabilities

    @pytest.fixture
    def subject(self, hdfs: HdfsCluster) -> Iterator[Subject]:
        with closing(HdfsSubject(hdfs)) as subject:
            yield subject


class TestSubFSOfHdfs(BelowARoot):
    capabilities = Hdfs.capabilities

    @pytest.fixture
    def subject(self, hdfs: HdfsCluster) -> Iterator[Subject]:
        with closing(SubFSSubject(HdfsSubject(hdfs))) as subject:
            yield subject
