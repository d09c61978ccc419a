"""The pytest fixtures `moto`, `ceph`, `azurite`, `gcs`, `hdfs`, `dav`, `postgresql`: one server of each a session,
which the first test that asks for it starts; and `hub`, one for each test.

Nowhere else in the tests is a test skipped: a developer without a server is told the command that installs it, and in
CI (the environment variable CI is set) a missing server is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers import azurite as azurite_server
from tests.servers import ceph as ceph_server
from tests.servers import dav as dav_server
from tests.servers import gcs_emulator as gcs_server
from tests.servers import hdfs as hdfs_server
from tests.servers import hub as hub_server
from tests.servers import moto as moto_server
from tests.servers import postgresql as postgresql_server

S = TypeVar("S")


def in_ci() -> bool:
    """Whether a missing server is a failure."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def require(missing: Callable[[], str | None]) -> None:
    """Goes on if the server can start here; else fails in CI, and skips elsewhere, with the command to run."""
    if (reason := missing()) is None:
        return
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _fixture(
    missing: Callable[[], str | None], server: Callable[[], AbstractContextManager[S]], doc: str
) -> Callable[[], Iterator[S]]:
    """Return the fixture of a server that the session's first test to ask for it starts."""

    def started() -> Iterator[S]:
        require(missing)
        with server() as one:
            yield one

    started.__doc__ = doc
    return pytest.fixture(scope="session")(started)


moto = _fixture(moto_server.missing, moto_server.MotoServer, "moto's imitation of S3, which checks no signature.")
ceph = _fixture(ceph_server.missing, ceph_server.CephGateway, "A real S3 service: Ceph's gateway.")
azurite = _fixture(
    azurite_server.missing, azurite_server.AzuriteServer, "Microsoft's own emulator of Azure Blob Storage."
)
gcs = _fixture(gcs_server.missing, gcs_server.GcsEmulator, "An emulator of Google Cloud Storage.")
hdfs = _fixture(hdfs_server.missing, hdfs_server.HdfsCluster, "A real HDFS: one NameNode and one DataNode.")
dav = _fixture(dav_server.missing, dav_server.DavServer, "A real HTTP cache: nginx with its DAV module.")
postgresql = _fixture(postgresql_server.missing, postgresql_server.PostgreSQL, "A real PostgreSQL.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[hub_server.HubServer]:
    """A Hugging Face hub, for clients that have no token and an empty cache."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "huggingface"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "fsabs-cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with hub_server.HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server
