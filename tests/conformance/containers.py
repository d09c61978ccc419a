"""What the tests of the kit over containers share: the FS that a container lies in, and what containers declare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest

from fsabs.spi import Capabilities
from fsabs.testing import Check, FSConformance, LocalSubject, Subject
from tests.conformance.selections import module_of
from tests.conformance.stores import HdfsSubject, S3Subject, azure_subject, gcs_subject

WRITE_ONCE = Capabilities(
    write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True, versions=True
)
_SUBJECTS: dict[str, Any] = {"hdfs": HdfsSubject, "azurite": azure_subject, "gcs_store": gcs_subject}
HDF5 = WRITE_ONCE._replace(replace=True, last_modified=False)


_OF_THE_INDEX = ("checks_tree", "checks_errors", "checks_change")


class ContainerConformance(FSConformance):
    """A container, `made(outer)`, in an FS of the outer subject, which `over` names.

    What there is in an archive, and what a mistake is, its index says, wherever the archive lies: the checks of these
    are for those on local files. All others read, write, open by a URL or make processes: they reach the store.
    """

    capabilities = WRITE_ONCE
    live = False
    over: ClassVar[str] = "local"
    made: ClassVar[Any]
    """A function of the outer subject."""

    @classmethod
    def checks(cls) -> list[Check]:
        """Return the checks, for a container in a store without those of the archive's index."""
        found = super().checks()
        return found if cls.over == "local" else [one for one in found if module_of(one) not in _OF_THE_INDEX]

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Iterator[Subject]:
        if self.over == "local":
            outer: Subject = LocalSubject()
        else:
            outer = _SUBJECTS.get(self.over, S3Subject)(request.getfixturevalue(self.over))
        with closing(outer):
            yield type(self).made(outer)
