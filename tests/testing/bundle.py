"""A container format that is as simple as can be, right in every way, for the kit's own tests: one JSON object with the
members in base64. A directory's name ends in a slash.
"""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterable, Iterator

from fsabs.containers.base import READ_ONLY, Container, NameTree
from fsabs.core import keys
from fsabs.core.blobs import Blob, BytesBlob
from fsabs.core.fs import (
    FS,
    Capabilities,
    FileStat,
    StrPath,
)
from fsabs.core.writing import Writer
from fsabs.testing import ContainerSubject, Subject
from fsabs.testing.subjects import Files

WRITE_ONLY = Capabilities(read=False, write=True, mkdir=True, implied_directories=True)
BOTH = READ_ONLY._replace(write=True, mkdir=True)


class Bundle(Container):
    modes = "rwx"

    def __init__(self, parent: FS, path: StrPath, mode: str = "r") -> None:
        super().__init__(parent, path, mode)
        self.capabilities = READ_ONLY if mode == "r" else WRITE_ONLY
        self.members: dict[str, bytes] = parse(self._blob.read_all()) if self._blob else {}
        self._names = NameTree(self.members) if mode == "r" else None

    @property
    def _tree(self) -> NameTree[bytes]:
        return self._names or NameTree(self.members)

    def _stat(self, key: str) -> FileStat:
        if self._tree.isdir(key):
            return FileStat.of_directory(keys.name(key))
        return FileStat(keys.name(key), len(self._tree.file(key)), version=self._version(key))

    def _version(self, key: str) -> str:
        return f"{self._blob.version if self._blob else 'new'} {key}"

    def _list(self, key: str) -> Iterator[FileStat]:
        for name, data in self._tree.children(key):
            if name.endswith("/"):
                yield FileStat.of_directory(name[:-1])
            else:
                yield FileStat(name, len(data or b""), version=self._version(keys.join(key, name)))

    def _open_blob(self, key: str) -> Blob:
        self._reader()
        return BytesBlob(self, key, self._tree.file(key), self._version(key))

    def _create(self, key: str, exclusive: bool) -> Writer:
        self._writer()
        if key in self.members:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return self._member(key, BundleWriter(self, key))

    def _mkdir(self, key: str, mode: int) -> None:
        if key in self.members or key + "/" in self.members:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.members[key + "/"] = b""

    def _finish(self) -> None:
        self._writer().write(build_members(self.members))


class BundleWriter(Writer):
    def __init__(self, bundle: Bundle, key: str) -> None:
        self._bundle = bundle
        self._key = key
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def commit(self) -> None:
        self._bundle.members[self._key] = b"".join(self._parts)

    def abort(self) -> None:
        self._parts = []


def build_members(members: Files) -> bytes:
    return json.dumps({key: base64.b64encode(data).decode() for key, data in members.items()}).encode()


def build(files: Files, directories: Iterable[str]) -> bytes:
    return build_members({**{f"{key}/": b"" for key in directories}, **files})


def parse(data: bytes) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in json.loads(data).items()}


class BundleSubject(ContainerSubject):
    """Bundles in the FS of another subject, opened as `kind`."""

    def __init__(self, outer: Subject, kind: type[Bundle] = Bundle) -> None:
        super().__init__("a.bundle", build, parse, outer, kind)

    def reopen(self, url: str) -> FS | None:
        """Nothing: no suffix is registered for bundles."""
        return None
