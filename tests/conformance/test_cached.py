"""The kit over the caching layers: around stores and archives, with small blocks, and the cache full."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import FS, GCS
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS, HTTPCachedFS
from fsabs.core import identity
from fsabs.testing import LocalSubject, MemorySubject, Subject, WrappedSubject
from fsabs.testing.subjects import Files
from tests.conformance.archives import deflated_zip_in, zip_in
from tests.conformance.cells import ARCHIVE, Cell
from tests.servers.dav import DavServer
from tests.servers.shared import unique


class CachedSubject(WrappedSubject):
    """A caching layer around the FS of another subject; each test has a cache of its own."""

    def __init__(self, inner: Subject, **options: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="fsabs-cached-")
        super().__init__(inner, lambda fs: CachedFS(fs, self._folder, **options))

    def close(self) -> None:
        """Removes the cache."""
        super().close()
        shutil.rmtree(self._folder)


def in_small_blocks(inner: Subject) -> Subject:
    """Everything above a few KB is read by blocks: a few in memory, and on the disk not all of a large file."""
    options = {"block_size": 16_384, "whole_file_size": 5000, "memory_bytes": 80_000, "max_bytes": 1_000_000}
    return CachedSubject(inner, min_free=0, **options)


def lasting(inner: Subject) -> Subject:
    """Nothing is asked for twice: what the FS changes by itself has to show all the same."""
    return CachedSubject(inner, check_interval=3600.0, offline=True)


class TestCachedMemory(Cell):
    capabilities = Memory.capabilities
    over = "memory"
    made = CachedSubject


class TestCachedGCS(Cell):
    """What goes through the layer, of a store whose versions each response has."""

    capabilities = GCS.capabilities
    over = "gcs_store"
    made = in_small_blocks
    modules = ("checks_files", "checks_whole")
    processes = False


# ---- of local files


class OldFilesSubject(LocalSubject):
    """Local files that were not written just now: such alone are cached."""

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Make the tree, and wait until its files' versions are strong."""
        fs = super().make(files, directories)
        if files:
            time.sleep(1.5 * identity.TICK)
        return fs


class OverOldFiles(Cell):
    """Around local files, or around an archive that is one."""

    wrapped: Callable[..., Subject]

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        with closing(type(self).wrapped(OldFilesSubject())) as subject:
            yield subject


@pytest.mark.nightly
class TestCachedLocalBySmallBlocks(OverOldFiles):
    capabilities = Local.capabilities
    wrapped = in_small_blocks


@pytest.mark.nightly
class TestLastingLocal(OverOldFiles):
    capabilities = Local.capabilities
    wrapped = lasting
    processes = False


@pytest.mark.nightly
class TestCachedZip(OverOldFiles):
    """The layer is around the archive: what is kept is its members."""

    capabilities = ARCHIVE
    live = False
    wrapped = staticmethod(lambda outer: CachedSubject(deflated_zip_in(outer)))


@pytest.mark.nightly
class TestZipInCached(OverOldFiles):
    """The layer is below the archive: what is kept is its blocks."""

    capabilities = ARCHIVE
    live = False
    wrapped = staticmethod(lambda outer: zip_in(in_small_blocks(outer)))
    processes = False


# ---- on an HTTP server


def http_cached(inner: Subject, server: DavServer) -> Iterator[Subject]:
    url = f"{server.url}/{unique('kit')}"
    with closing(WrappedSubject(inner, lambda fs: HTTPCachedFS(url, fs))) as subject:
        yield subject


class TestHTTPCachedMemory(Cell):
    capabilities = Memory.capabilities

    @pytest.fixture
    def subject(self, dav: DavServer) -> Iterator[Subject]:
        yield from http_cached(MemorySubject(), dav)


@pytest.mark.nightly
class TestHTTPCachedLocal(Cell):
    capabilities = Local.capabilities

    @pytest.fixture
    def subject(self, dav: DavServer) -> Iterator[Subject]:
        yield from http_cached(OldFilesSubject(), dav)
