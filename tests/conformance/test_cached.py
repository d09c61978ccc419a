"""The conformance kit over the caching layers: on local files, memory, S3, zips; with small blocks, and the cache full.

What the side channel makes is old, as files are that were not written just now: such alone are cached.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from fsabs import FS, S3
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS, HTTPCachedFS
from fsabs.core import identity
from fsabs.spi import Capabilities
from fsabs.testing import FSConformance, LocalSubject, MemorySubject, SubFSSubject, Subject, WrappedSubject
from fsabs.testing.kit import MODULES
from fsabs.testing.subjects import Files
from tests.conformance.archives import deflated_zip_in, zip_in
from tests.conformance.selections import WithoutProcesses
from tests.conformance.stores import moto_subject
from tests.servers.shared import unique

CONTAINER = Capabilities(
    write=True, exclusive=True, mkdir=True, implied_directories=True, last_modified=True, versions=True
)


@pytest.fixture(autouse=True)
def _quick_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are old sooner: a clock of Linux ticks each 10 ms at the slowest."""
    monkeypatch.setattr(identity, "TICK", 0.02)


class OldFilesSubject(LocalSubject):
    """Local files that were not written just now, so that they are kept."""

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Make the tree, and wait until its files' versions are strong."""
        fs = super().make(files, directories)
        if files:
            time.sleep(1.5 * identity.TICK)
        return fs


class CachedSubject(WrappedSubject):
    """A caching layer around the FS of another subject; each test has a cache of its own."""

    def __init__(self, inner: Subject, **options: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="fsabs-cached-")
        super().__init__(inner, lambda fs: CachedFS(fs, self._folder, **options))

    def close(self) -> None:
        """Removes the cache."""
        super().close()
        shutil.rmtree(self._folder)


def _small(inner: Subject) -> Subject:
    """Everything above a few KB is read by blocks: a few in memory, and on the disk not all of a large file."""
    options = {"block_size": 16_384, "whole_file_size": 5000, "memory_bytes": 80_000, "max_bytes": 1_000_000}
    return CachedSubject(inner, min_free=0, **options)


def _lasting(inner: Subject) -> Subject:
    """Nothing is asked for twice: what the FS changes by itself has to show all the same."""
    return CachedSubject(inner, check_interval=3600.0, offline=True)


def _cached_local() -> Subject:
    return CachedSubject(OldFilesSubject())


def _small_local() -> Subject:
    return _small(OldFilesSubject())


def _lasting_local() -> Subject:
    return _lasting(OldFilesSubject())


def _cached_memory() -> Subject:
    return CachedSubject(MemorySubject())


def _cached_subfs() -> Subject:
    return CachedSubject(SubFSSubject(OldFilesSubject()))


def _subfs_of_cached() -> Subject:
    return SubFSSubject(CachedSubject(OldFilesSubject()))


class OneProcess(WithoutProcesses):
    """The checks that make no processes: other classes have the same machinery, and run them all."""

    modules = tuple(name for name in MODULES if name != "checks_tree")
    """Listings go round most of the layers."""


class TestCachedLocalBySmallBlocks(FSConformance):
    capabilities = Local.capabilities
    factory = _small_local


class TestCachedLocal(OneProcess):
    capabilities = Local.capabilities
    factory = _cached_local


class TestLastingLocal(OneProcess):
    capabilities = Local.capabilities
    modules = MODULES
    factory = _lasting_local


class TestCachedMemory(OneProcess):
    capabilities = Memory.capabilities
    factory = _cached_memory


class TestCachedSubFS(OneProcess):
    capabilities = Local.capabilities
    factory = _cached_subfs


class TestSubFSOfCached(OneProcess):
    capabilities = Local.capabilities
    factory = _subfs_of_cached


def _old_zip(opener: Callable[[Subject], Subject]) -> Iterator[Subject]:
    with closing(opener(OldFilesSubject())) as subject:
        yield subject


class TestCachedZip(FSConformance):
    """The layer is around the archive: what is kept is its members."""

    capabilities = CONTAINER
    live = False

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        yield from _old_zip(lambda outer: CachedSubject(deflated_zip_in(outer)))


class TestZipInCached(OneProcess):
    """The layer is below the archive: what is kept is its blocks."""

    capabilities = CONTAINER
    live = False

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        yield from _old_zip(lambda outer: zip_in(_small(outer)))


class TestCachedMoto(OneProcess):
    """What goes through the layer; the rest of the kit is slow on moto, and LayerFS's."""

    capabilities = S3.capabilities
    modules = ("checks_files", "checks_whole")

    @pytest.fixture
    def subject(self, moto: Any) -> Iterator[Subject]:
        with closing(CachedSubject(moto_subject(moto))) as subject:
            yield subject


def _http_cached(inner: Subject, server: Any) -> Iterator[Subject]:
    url = f"{server.url}/{unique('kit')}"
    with closing(WrappedSubject(inner, lambda fs: HTTPCachedFS(url, fs))) as subject:
        yield subject


class TestHTTPCachedLocal(FSConformance):
    capabilities = Local.capabilities

    @pytest.fixture
    def subject(self, dav: Any) -> Iterator[Subject]:
        yield from _http_cached(OldFilesSubject(), dav)


class TestHTTPCachedMemory(OneProcess):
    capabilities = Memory.capabilities

    @pytest.fixture
    def subject(self, dav: Any) -> Iterator[Subject]:
        yield from _http_cached(MemorySubject(), dav)
