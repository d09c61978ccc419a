"""The conformance kit over moto, which imitates S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import S3
from fsabs.testing import Subject
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import moto_subject


class TestMoto(WithoutProcesses):
    """What a store answers when files are read, written and changed; S3 as a whole is held to the kit on Ceph."""

    capabilities = S3.capabilities
    modules = ("checks_fs", "checks_files", "checks_write", "checks_whole", "checks_change")

    @pytest.fixture
    def subject(self, moto: Any) -> Iterator[Subject]:
        with closing(moto_subject(moto)) as subject:
            yield subject
