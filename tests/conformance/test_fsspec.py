"""The conformance kit over a filesystem of fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fsabs.backends.fsspec import Fsspec
from fsabs.spi import Capabilities
from fsabs.testing import FSConformance, Subject
from fsabs.testing.subjects import SubFSSubject
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import FsspecSubject

FSSPEC: Capabilities = Fsspec("memory").capabilities


class TestFsspec(FSConformance):
    capabilities = FSSPEC
    shared = False  # a dictionary of this process
    in_process = True

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
