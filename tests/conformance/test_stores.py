"""The conformance kit over stores that need a server: moto, a real Ceph gateway, a real HDFS; and over fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import S3, Capabilities, Hdfs
from fsabs.backends.fsspec import Fsspec
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import FsspecSubject, HdfsSubject, S3Subject
from tests.servers.hdfs import HdfsCluster


class TestMoto(WithoutProcesses):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, moto: Any) -> Iterator[Subject]:
        with closing(S3Subject(moto)) as subject:
            subject.refused_characters = "\n"
            yield subject


class TestCeph(FSConformance):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, ceph: Any) -> Iterator[Subject]:
        with closing(S3Subject(ceph)) as subject:
            yield subject


class TestSubFSOfCeph(WithoutProcesses):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, ceph: Any) -> Iterator[Subject]:
        with closing(SubFSSubject(S3Subject(ceph))) as subject:
            yield subject


class TestHdfs(FSConformance):
    capabilities = Hdfs.capabilities

    @pytest.fixture
    def subject(self, hdfs: HdfsCluster) -> Iterator[Subject]:
        with closing(HdfsSubject(hdfs)) as subject:
            yield subject


class TestSubFSOfHdfs(WithoutProcesses):
    capabilities = Hdfs.capabilities

    @pytest.fixture
    def subject(self, hdfs: HdfsCluster) -> Iterator[Subject]:
        with closing(SubFSSubject(HdfsSubject(hdfs))) as subject:
            yield subject


FSSPEC: Capabilities = Fsspec("memory").capabilities


class TestFsspec(FSConformance):
    capabilities = FSSPEC
    shared = False  # a dictionary of this process
    serverless = True

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        with closing(FsspecSubject()) as subject:
            yield subject


class TestSubFSOfFsspec(WithoutProcesses):
    capabilities = FSSPEC
    shared = False  # a dictionary of this process

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        with closing(SubFSSubject(FsspecSubject())) as subject:
            yield subject
