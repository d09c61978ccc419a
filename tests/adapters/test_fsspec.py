"""fsspec's interface over an FS: fsspec's own abstract suites, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from tests.adapters import stores

stores.register_entry_points()


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    """The abstract suites' subject: an FS, a local one and one of an object store."""

    @pytest.fixture(params=["memory", "s3"])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
        with stores.opened(request.param, request, tmp_path) as url:
            stores.fill(url, {".keep": b""})
            yield url

    @pytest.fixture
    def fs(self, url: str) -> Any:
        return fsspec.url_to_fs(f"fsabs+{url}")[0]

    @pytest.fixture
    def fs_path(self, url: str) -> str:
        return url.partition("://")[2]

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *args: "/".join(args)

    @pytest.fixture
    def supports_empty_directories(self, url: str) -> bool:
        return not url.startswith("s3")


class TestCopy(AbstractCopyTests, Fixtures):  # type: ignore[misc]
    """fsspec's."""


class TestGet(AbstractGetTests, Fixtures):  # type: ignore[misc]
    """fsspec's."""


class TestPut(AbstractPutTests, Fixtures):  # type: ignore[misc]
    """fsspec's."""


class TestPipe(AbstractPipeTests, Fixtures):  # type: ignore[misc]
    """fsspec's."""


class TestOpen(AbstractOpenTests, Fixtures):  # type: ignore[misc]
    """fsspec's."""
