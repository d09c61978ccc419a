"""The pytest fixtures `moto`, `ceph`, `azurite`, `gcs`, `hdfs`, `dav`, `postgresql`: one server of each for a run,
which the first test that asks for it starts; `own_dav` and `own_postgresql`, for tests that stop theirs; and `hub`, one
for each test.

Nowhere else in the tests is a test skipped: a developer without a server is told the command that installs it, and in
CI (the environment variable CI is set) a missing server is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.servers import guard
from tests.servers import hub as hub_server
from tests.servers.azurite import AzuriteServer
from tests.servers.ceph import CephGateway
from tests.servers.dav import DavServer
from tests.servers.gcs_emulator import GcsEmulator
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer
from tests.servers.postgresql import PostgreSQL
from tests.servers.process import Server
from tests.servers.shared import shared

S = TypeVar("S", bound=Server)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin the run, in the process that controls it."""
    if not hasattr(config, "workerinput"):  # of pytest-xdist
        guard.start()


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


def _shared(server: type[S], doc: str) -> Callable[[], S]:
    """Return the fixture of the run's server of a kind."""

    def found() -> S:
        require(server.missing)
        return shared(server)

    found.__doc__ = doc
    return pytest.fixture(scope="session")(found)


def _own(server: type[S], doc: str) -> Callable[[], Iterator[S]]:
    """Return the fixture of a server of a test's own."""

    def started() -> Iterator[S]:
        require(server.missing)
        with server() as one:
            yield one

    started.__doc__ = doc
    return pytest.fixture(started)


moto = _shared(MotoServer, "moto's imitation of S3, which checks no signature.")
ceph = _shared(CephGateway, "A real S3 service: Ceph's gateway.")
azurite = _shared(AzuriteServer, "Microsoft's own emulator of Azure Blob Storage.")
gcs = _shared(GcsEmulator, "An emulator of Google Cloud Storage.")
hdfs = _shared(HdfsCluster, "A real HDFS: one NameNode and one DataNode.")
dav = _shared(DavServer, "A real HTTP cache: nginx with its DAV module.")
own_dav = _own(DavServer, "One that a test may stop.")
postgresql = _shared(PostgreSQL, "A real PostgreSQL.")
own_postgresql = _own(PostgreSQL, "One that a test may stop.")


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
