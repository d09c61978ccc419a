"""The conformance kit over a web server whose files a manifest lists: real nginx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fsabs.spi import Capabilities
from fsabs.testing import FSConformance, Subject
from tests.conformance.stores import WebSubject
from tests.servers.dav import DavServer


class TestWeb(FSConformance):
    capabilities = Capabilities(implied_directories=True, versions=True)

    @pytest.fixture
    def subject(self, dav: DavServer) -> Iterator[Subject]:
        with closing(WebSubject(dav)) as subject:
            yield subject
