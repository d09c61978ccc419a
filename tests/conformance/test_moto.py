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
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, moto: Any) -> Iterator[Subject]:
        with closing(moto_subject(moto)) as subject:
            yield subject
