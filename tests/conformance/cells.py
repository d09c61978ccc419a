"""A cell of the matrix of stores, containers, layers and checks: the kit, or a part of it, over one FS.

What a fork, a spawn or a pickle may do to an FS depends on what it holds: a client, an index, locks, descriptors, a
blob of one kind. Each kind of these has one cell with all checks. A `subfs`, a layer or one more container around it
holds nothing else: `processes = False`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest

from fsabs.spi import Capabilities
from fsabs.testing import Check, FSConformance, LocalSubject, MemorySubject, Subject
from fsabs.testing.kit import MODULES
from tests.conformance import stores

STORES_WITHOUT_A_SERVER: dict[str, Callable[[], Subject]] = {
    "fsspec": stores.FsspecSubject,
    "local": LocalSubject,
    "memory": MemorySubject,
}
STORES: dict[str, Callable[[Any], Subject]] = {
    "azure_directories": stores.azure_subject,
    "azure_store": stores.azure_subject,
    "azurite": stores.azurite_subject,
    "ceph": stores.s3_subject,
    "dav": stores.WebSubject,
    "gcs": stores.gcs_emulator_subject,
    "gcs_store": stores.gcs_subject,
    "hdfs": stores.HdfsSubject,
    "hub": stores.HubSubject,
    "moto": stores.moto_subject,
}
"""The subjects on servers, by the fixtures of these."""
BELOW_A_ROOT = ("checks_tree", "checks_paths", "checks_errors", "checks_change", "checks_processes")
"""What depends on an FS's root: names, trees and what changes them."""
BEYOND_AN_INDEX = tuple({*MODULES} - {"checks_tree", "checks_errors", "checks_change"})
"""What a container asks its store for: what there is in an archive, and what a mistake is, its index says."""
ARCHIVE = Capabilities(
    write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True, versions=True
)


class Cell(FSConformance):
    """The kit over `made(subject)` of the subject of the store that `over` names."""

    over: ClassVar[str] = "local"
    made: ClassVar[Callable[..., Subject]] = staticmethod(lambda outer: outer)
    modules: ClassVar[Collection[str]] = MODULES
    """The modules of the kit whose checks are run."""
    processes: ClassVar[bool] = True
    """Whether the checks that make processes or take seconds are run."""

    @classmethod
    def checks(cls) -> list[Check]:
        """Return the cell's part of the checks for its FS."""
        found = [one for one in super().checks() if one.function.__module__.rpartition(".")[2] in cls.modules]
        return [one for one in found if cls.processes or not (one.start_methods or one.slow)]

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Iterator[Subject]:
        if self.over in STORES_WITHOUT_A_SERVER:
            outer = STORES_WITHOUT_A_SERVER[self.over]()
        else:
            outer = STORES[self.over](request.getfixturevalue(self.over))
        with closing(type(self).made(outer)) as subject:
            yield subject
