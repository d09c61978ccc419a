"""What the tests of the kit over containers share: the FS that a container lies in, and what containers declare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest

from fsabs.spi import Capabilities
from fsabs.testing import FSConformance, LocalSubject, Subject
from tests.conformance.stores import HdfsSubject, S3Subject, azure_subject, gcs_subject

WRITE_ONCE = Capabilities(
    write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True, versions=True
)
_SUBJECTS: dict[str, Any] = {"hdfs": HdfsSubject, "azurite": azure_subject, "gcs_store": gcs_subject}
HDF5 = WRITE_ONCE._replace(replace=True, last_modified=False)


class ContainerConformance(FSConformance):
    """A container, `made(outer)`, in an FS of the outer subject, which `over` names."""

    capabilities = WRITE_ONCE
    live = False
    over: ClassVar[str] = "local"
    made: ClassVar[Any]
    """A function of the outer subject."""

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Iterator[Subject]:
        if self.over == "local":
            outer: Subject = LocalSubject()
        else:
            outer = _SUBJECTS.get(self.over, S3Subject)(request.getfixturevalue(self.over))
        with closing(outer):
            yield type(self).made(outer)
