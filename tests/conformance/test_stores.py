"""The kit over each store."""

from __future__ import annotations

import errno
import inspect
import os
import sys
from typing import Any

import pytest

from fsabs import GCS, S3, Azure, Hdfs
from fsabs.backends.fsspec import Fsspec
from fsabs.backends.hub.repository import WRITES
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.spi import Capabilities
from fsabs.testing import Check, LocalSubject, MemorySubject, SubFSSubject, model_test
from tests.conformance.cells import BELOW_A_ROOT, Cell


class TestLocal(Cell):
    capabilities = Local.capabilities
    in_process = True


class TestMemory(Cell):
    capabilities = Memory.capabilities
    over = "memory"
    in_process = True


class TestFsspec(Cell):
    capabilities = Fsspec("memory").capabilities
    over = "fsspec"
    shared = False  # a dictionary of this process
    in_process = True


class TestCeph(Cell):
    capabilities = S3.capabilities
    over = "ceph"


class TestGCS(Cell):
    capabilities = GCS.capabilities
    over = "gcs_store"


class TestAzure(Cell):
    capabilities = Azure.capabilities
    over = "azure_store"


class TestAzureDirectories(Cell):
    """An account whose directories are real: they don't go with their files."""

    capabilities = Azure.capabilities
    over = "azure_directories"

    @classmethod
    def checks(cls) -> list[Check]:
        return [one for one in super().checks() if one.name != "implied-directories-go-with-their-files"]


class TestHub(Cell):
    capabilities = WRITES
    over = "hub"


class TestHdfs(Cell):
    capabilities = Hdfs.capabilities
    over = "hdfs"


class TestWeb(Cell):
    """A manifest lists what nginx has."""

    capabilities = Capabilities(implied_directories=True, versions=True)
    over = "dav"


class TestAzuriteWhole(Cell):
    """What Microsoft's own emulator makes of the requests that write; the other checks of it are nightly."""

    capabilities = Azure.capabilities
    over = "azurite"
    modules = ("checks_whole",)
    processes = False


class TestGCSEmulatorWhole(Cell):
    """The same of an emulator of Google Cloud Storage."""

    capabilities = GCS.capabilities
    over = "gcs"
    modules = ("checks_whole",)
    processes = False


# ---- other servers


@pytest.mark.nightly
class TestAzurite(Cell):
    capabilities = Azure.capabilities
    over = "azurite"


@pytest.mark.nightly
class TestMoto(Cell):
    """moto looks at all objects for each listing."""

    capabilities = S3.capabilities
    over = "moto"
    modules = ("checks_fs", "checks_files", "checks_write", "checks_whole", "checks_change")
    processes = False


@pytest.mark.nightly
class TestGCSEmulator(Cell):
    """The emulator takes long for each request, and breaks connections where many are removed at once."""

    capabilities = GCS.capabilities
    over = "gcs"
    modules = ("checks_fs", "checks_files", "checks_write", "checks_errors", "checks_change")
    processes = False

    @classmethod
    def checks(cls) -> list[Check]:
        return [one for one in super().checks() if "remove-directory" not in one.statements]


# ---- other roots


class TestSubFSOfMemory(Cell):
    capabilities = Memory.capabilities
    over = "memory"
    made = SubFSSubject
    modules = BELOW_A_ROOT
    processes = False
    in_process = True


@pytest.mark.nightly
class TestSubFSOfLocal(Cell):
    capabilities = Local.capabilities
    made = SubFSSubject
    processes = False


@pytest.mark.nightly
class TestSubFSOfCeph(Cell):
    capabilities = S3.capabilities
    over = "ceph"
    made = SubFSSubject
    modules = BELOW_A_ROOT
    processes = False


@pytest.mark.nightly
class TestSubFSOfHdfs(Cell):
    capabilities = Hdfs.capabilities
    over = "hdfs"
    made = SubFSSubject
    modules = BELOW_A_ROOT
    processes = False


# ---- one store alone


@pytest.mark.nightly
class TestLocalWithoutUnnamedFiles(Cell):
    """Where half-written files have names, which listings leave out."""

    capabilities = Local.capabilities

    @pytest.fixture(autouse=True)
    def named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = os.open

        def without_unnamed(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return inner(path, flags, *rest, **keywords)

        monkeypatch.setattr(os, "open", without_unnamed)


TestMemoryModel = model_test(MemorySubject, max_examples=20)
TestLocalModel = pytest.mark.nightly(model_test(LocalSubject))
TestSubFSOfMemoryModel = pytest.mark.nightly(model_test(lambda: SubFSSubject(MemorySubject())))


def test_a_deep_tree_in_memory_takes_no_deep_stack() -> None:
    path, limit = "/".join("d" * 300), sys.getrecursionlimit()
    fs = Memory()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        fs.makedirs(path)
        fs.makedirs(path, exist_ok=True)
        with pytest.raises(FileExistsError):
            fs.makedirs(path)
        assert fs.isdir(path)
    finally:
        sys.setrecursionlimit(limit)
