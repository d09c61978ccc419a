"""universal_pathlib's cases, on its own paths over `register_fsspec` and on `fsabs.Path`; on a zip those that read."""

from __future__ import annotations

import shutil

import pytest
from fsspec.registry import _registry
from upath import UPath
from upath.tests import cases

import fsabs
from tests.adapters import stores
from tests.judges.recording import PLACE

READ_ONLY = (cases.JoinablePathTests, cases.ReadablePathTests, cases.NonWritablePathTests)
BASES = READ_ONLY if PLACE in stores.READ_ONLY else (cases.BaseTests,)


class Prepared(*BASES):
    """A directory of the store with the files of the cases."""

    @pytest.fixture(autouse=True)
    def path(self, judged_url, local_testdir, tmp_path_factory):
        if PLACE in stores.READ_ONLY:
            parent, _, name = judged_url.rpartition("/")
            packed = tmp_path_factory.mktemp("packed")
            shutil.copytree(local_testdir, packed / "tree")
            with fsabs.from_url(str(packed)) as files, fsabs.from_url(parent) as target:
                fsabs.pack(files, target, name)
            judged_url += "/tree"
        before = dict(_registry)
        self.path = self.made(f"file://{local_testdir}" if PLACE == "local" else judged_url)
        if PLACE not in stores.READ_ONLY:
            self.prepare_file_system()
        yield
        _registry.clear()
        _registry.update(before)


class TestUPath(Prepared):
    """Its own paths."""

    def made(self, url):
        fsabs.register_fsspec(url.partition(":")[0])
        return UPath(url)

    def test_is_correct_class(self):
        assert isinstance(self.path, UPath)


class TestPath(Prepared):
    """Ours."""

    def made(self, url):
        return fsabs.Path(url)

    def test_is_correct_class(self):
        assert isinstance(self.path, fsabs.Path)
