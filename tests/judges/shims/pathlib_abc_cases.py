"""pathlib-abc's cases of paths that read, write and copy, on `fsabs.Path`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import unittest
from pathlib import Path

import pytest
from pathlib_abc import _ReadablePath, _WritablePath

import fsabs
from tests.judges.recording import PLACE

SOURCE = Path(sys.path[[Path(path).name.startswith("pathlib") for path in sys.path].index(True)])


def cases(name):
    """Return a module of the suite, whose package is called `tests`, as ours is."""
    if "pathlib_abc_tests" not in sys.modules:
        where = SOURCE / "tests"
        spec = importlib.util.spec_from_file_location(
            "pathlib_abc_tests", where / "__init__.py", submodule_search_locations=[str(where)]
        )
        sys.modules["pathlib_abc_tests"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["pathlib_abc_tests"])
    return importlib.import_module(f"pathlib_abc_tests.{name}")


class Openable(fsabs.Path):
    """A path with the methods by which pathlib-abc opens one."""

    def __open_reader__(self):
        return self.open("rb")

    def __open_writer__(self, mode):
        return self.open(f"{mode}b")

    if PLACE != "local":
        __fspath__ = None  # `open` of a path that is not on the local disk isn't tried


_ReadablePath.register(Openable)
_WritablePath.register(Openable)


class Ground:
    """What the suite makes, and looks at, beside the paths: by the FS."""

    can_symlink = PLACE == "local"
    url = ""

    def setup(self, local_suffix=""):
        self.fs = fsabs.from_url(self.url, create=True)
        root = Openable(f"{self.url}/root{local_suffix}")
        self.fs.mkdir(f"root{local_suffix}")
        return root

    def teardown(self, root):
        self.fs.remove(root.name, recursive=True)

    def key(self, path):
        return str(path).removeprefix(f"{self.url}/")

    def create_file(self, path, data=b""):
        self.fs.write_bytes(self.key(path), data)

    def create_dir(self, path):
        self.fs.mkdir(self.key(path))

    def create_symlink(self, path, target):
        Path(str(path).removeprefix("file://")).symlink_to(target)

    def create_hierarchy(self, path):
        for name in ("dirA", "dirB", "dirC", "dirC/dirD"):
            self.create_dir(path / name)
        for name, text in {
            "fileA": "this is file A\n",
            "dirB/fileB": "this is file B\n",
            "dirC/fileC": "this is file C\n",
            "dirC/novel.txt": "this is a novel\n",
            "dirC/dirD/fileD": "this is file D\n",
        }.items():
            self.create_file(path / name, text.encode())
        if self.can_symlink:
            for name, target in {
                "linkA": "fileA",
                "brokenLink": "non-existing",
                "linkB": "dirB",
                "dirA/linkC": "../dirB",
                "brokenLinkLoop": "brokenLinkLoop",
            }.items():
                self.create_symlink(path / name, target)

    def isdir(self, path):
        return self.fs.isdir(self.key(path))

    def isfile(self, path):
        return self.fs.isfile(self.key(path))

    def islink(self, path):
        return path.is_symlink()

    def readlink(self, path):
        return str(path.readlink())

    def readtext(self, path):
        return self.readbytes(path).decode()

    def readbytes(self, path):
        return self.fs.read_bytes(self.key(path))


class Judged:
    """The directory of the store."""

    ground = source_ground = target_ground = Ground()

    @pytest.fixture(autouse=True)
    def _judged(self, judged_url):
        Ground.url = judged_url


class TestRead(Judged, cases("test_read").ReadTestBase, unittest.TestCase):
    """pathlib-abc's."""


class TestWrite(Judged, cases("test_write").WriteTestBase, unittest.TestCase):
    """pathlib-abc's."""


class TestCopy(Judged, cases("test_copy").CopyTestBase, unittest.TestCase):
    """pathlib-abc's."""
