"""The conformance kit over the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fsabs.backends.hub.repository import WRITES
from fsabs.testing import FSConformance, Subject
from tests.conformance.stores import HubSubject
from tests.servers.hub import HubServer


class TestHub(FSConformance):
    capabilities = WRITES

    @pytest.fixture
    def subject(self, hub: HubServer) -> Iterator[Subject]:
        with closing(HubSubject(hub)) as subject:
            yield subject
