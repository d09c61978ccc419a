"""The conformance kit over moto, which imitates S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import S3
from fsabs.testing import Subject
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import S3Subject


class TestMoto(WithoutProcesses):
    capabilities = S3.capabilities

    @pytest.fixture
    def subject(self, moto: Any) -> Iterator[Subject]:
        with closing(S3Subject(moto)) as subject:
            subject.refused_characters = "\n"
            yield subject
