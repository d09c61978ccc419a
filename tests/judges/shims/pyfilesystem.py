"""PyFilesystem2's suite, on a filesystem of its kind over an FS: the few methods that it asks for, nothing more."""

from __future__ import annotations

import contextlib
import errno
import unittest

import pytest
from fs import errors
from fs.base import FS
from fs.info import Info
from fs.path import basename, dirname, relpath
from fs.subfs import SubFS
from fs.test import FSTestCases

ERRORS = {
    FileNotFoundError: errors.ResourceNotFound,
    FileExistsError: errors.FileExists,
    IsADirectoryError: errors.FileExpected,
    NotADirectoryError: errors.DirectoryExpected,
}


@contextlib.contextmanager
def translated(path):
    """Raise PyFilesystem's errors."""
    try:
        yield
    except tuple(ERRORS) as exc:
        raise ERRORS[type(exc)](path) from exc
    except OSError as exc:
        if exc.errno == errno.ENOTEMPTY:
            raise errors.DirectoryNotEmpty(path) from exc
        raise


class Adapted(FS):
    """An FS under PyFilesystem's interface."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self._meta = {"invalid_path_chars": "\0", "read_only": False, "supports_rename": False}

    def key(self, path):
        return relpath(self.validatepath(path))

    def getinfo(self, path, namespaces=None):
        self.check()
        namespaces = namespaces or ()
        try:
            stat = self.inner.stat(self.key(path))
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise errors.ResourceNotFound(path) from exc
        raw = {"basic": {"name": basename(path.rstrip("/")), "is_dir": stat.directory}}
        if "details" in namespaces:
            kind = 1 if stat.directory else 2
            raw["details"] = {"_write": [], "type": kind, "size": stat.size or 0, "modified": stat.last_modified}
        return Info(raw)

    def listdir(self, path):
        self.check()
        with translated(path):
            return [name.rstrip("/") for name in self.inner.list(self.key(path))]

    def makedir(self, path, permissions=None, recreate=False):
        self.check()
        key = self.key(path)
        if not self.isdir(dirname(f"/{key}")):
            raise errors.ResourceNotFound(path)
        if key and not (recreate and self.isdir(path)):
            try:
                with translated(path):
                    self.inner.mkdir(key)
            except errors.FileExists:
                raise errors.DirectoryExists(path) from None
        elif not recreate:
            raise errors.DirectoryExists(path)
        return SubFS(self, path)

    def openbin(self, path, mode="r", buffering=-1, **options):
        self.check()
        key = self.key(path)
        mode = mode.replace("b", "")
        if not mode or set(mode) - set("rwxa+"):
            raise ValueError(mode)
        if mode[0] != "r" and not self.isdir(dirname(f"/{key}")):
            raise errors.ResourceNotFound(path)
        if not key or self.isdir(path):
            raise errors.FileExpected(path)
        try:
            with translated(path):
                return self.inner.open(key, f"{mode}b", buffering)
        except errors.DirectoryExpected:  # what is above is a file
            raise errors.ResourceNotFound(path) from None

    def remove(self, path):
        self.check()
        key = self.key(path)
        if self.getinfo(path).is_dir:
            raise errors.FileExpected(path)
        with translated(path):
            self.inner.remove(key)

    def removedir(self, path):
        self.check()
        key = self.key(path)
        if not key:
            raise errors.RemoveRootError
        with translated(path):
            self.inner.rmdir(key)

    def setinfo(self, path, info):
        self.getinfo(path)


class TestFS(FSTestCases, unittest.TestCase):
    """PyFilesystem's."""

    @pytest.fixture(autouse=True)
    def _judged(self, judged_fs):
        type(self).judged = judged_fs

    def make_fs(self):
        return Adapted(self.judged)
