"""The stores in memory, in the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.azure_store import AzureStore
from tests.servers.gcs_store import GcsStore


@pytest.fixture(scope="session")
def gcs_store() -> Iterator[GcsStore]:
    """A Google Cloud Storage."""
    with GcsStore(listed=False) as store:
        yield store


@pytest.fixture(scope="session")
def azure_store() -> Iterator[AzureStore]:
    """An Azure Blob Storage."""
    with AzureStore(listed=False) as store:
        yield store


@pytest.fixture(scope="session")
def azure_directories() -> Iterator[AzureStore]:
    """An Azure Blob Storage with a hierarchical namespace."""
    with AzureStore(listed=False, hierarchical=True) as store:
        yield store
