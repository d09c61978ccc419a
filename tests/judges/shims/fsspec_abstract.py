"""fsspec's abstract suites on `fsabs+SCHEME://` filesystems; on a zip those that read."""

from __future__ import annotations

import os

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests import abstract

import fsabs
from tests.adapters import stores
from tests.judges.recording import PLACE

stores.register_entry_points()


class Fixtures(abstract.AbstractFixtures):
    """The filesystem of the URL, and a directory of it."""

    @pytest.fixture
    def fs(self, judged_url):
        fs, path = fsspec.url_to_fs(f"fsabs+{judged_url}")
        if PLACE not in stores.READ_ONLY:
            fs.makedirs(path, exist_ok=True)
        return fs

    @pytest.fixture
    def fs_path(self, judged_url):
        return judged_url.partition("://")[2]

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class Packed(Fixtures):
    """Trees are made on disk, and read from a zip of them."""

    @pytest.fixture
    def packed(self, judged_url, tmp_path):
        def pack(make):
            folder = tmp_path / "packed"
            folder.mkdir()
            source = make(LocalFileSystem(auto_mkdir=True), os.path.join, str(folder))
            parent, _, name = judged_url.rpartition("/")
            with fsabs.from_url(str(folder)) as files, fsabs.from_url(parent) as target:
                fsabs.pack(files, target, name)
            return "/".join((judged_url.partition("://")[2], os.path.relpath(source, folder)))

        return pack

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, packed):
        return packed(self._bulk_operations_scenario_0)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, packed):
        return packed(self._glob_edge_cases_files)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, packed):
        return packed(self._dir_and_file_with_same_name_prefix)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, packed):
        return packed(self._10_files_with_hashed_names)


if PLACE in stores.READ_ONLY:

    class TestGet(abstract.AbstractGetTests, Packed):
        """fsspec's."""

else:

    class TestCopy(abstract.AbstractCopyTests, Fixtures):
        """fsspec's."""

    class TestGet(abstract.AbstractGetTests, Fixtures):
        """fsspec's."""

    class TestOpen(abstract.AbstractOpenTests, Fixtures):
        """fsspec's."""

    class TestPipe(abstract.AbstractPipeTests, Fixtures):
        """fsspec's."""

    class TestPut(abstract.AbstractPutTests, Fixtures):
        """fsspec's."""
