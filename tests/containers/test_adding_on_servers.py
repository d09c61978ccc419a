"""Adding to a container in an object store and on HDFS, whose files change meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs import FS
from tests.adapters import stores

from .test_adding import (  # noqa: F401 - run with the stores of this module
    test_a_container_that_another_has_made_meanwhile_stays,
    test_of_two_that_add_the_first_to_close_wins,
    test_what_was_replaced_or_removed_meanwhile_is_not_restored,
)


@pytest.fixture(params=["s3", "ceph", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FS]:
    with stores.opened(request.param, request, tmp_path) as url, fsabs.from_url(url, create=True) as fs:
        yield fs
