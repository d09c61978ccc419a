"""A second sync of local files to a store that keeps no times of theirs: sizes and times come first, then checksums."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fsabs
from fsabs import FileStat, Local, Memory
from fsabs.core.blobs import Blob, BytesBlob
from tests import disks

pytestmark = pytest.mark.quick

SIZE = 1000


class Store(Memory):
    """A store that has the content of a file in its version, and counts what is read to compare it."""

    compared = 0

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        self.compared += 1
        return self.read_bytes(f"copy/{stat.filename}") == blob.pread(blob.size, 0)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Local:
    disks.ticking(monkeypatch, -1e-9)  # as if the files were old
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(os.urandom(SIZE))
    return Local(tmp_path)


def test_nothing_is_read_twice(source: Local) -> None:
    store = Store()
    assert source.sync_tree("", "copy", dst_fs=store).files == 3
    done = source.sync_tree("", "copy", dst_fs=store)
    assert (done.files, done.skipped, store.compared) == (0, 3, 0)


def test_what_was_changed_since_is_compared(source: Local, tmp_path: Path) -> None:
    store = Store()
    source.sync_tree("", "copy", dst_fs=store)
    written = store.stat("copy/a").last_modified or 0
    for name, content in (("a", os.urandom(SIZE)), ("b", (tmp_path / "b").read_bytes())):
        while os.stat(tmp_path / name).st_ctime <= written:
            (tmp_path / name).write_bytes(content)
            os.utime(tmp_path / name, (0, 0))  # as `cp -p` of an older file leaves it
    done = source.sync_tree("", "copy", dst_fs=store)
    assert (done.files, done.skipped, store.compared) == (1, 2, 2)
    assert store.read_bytes("copy/a") == source.read_bytes("a")


def test_content_alone_counts_where_it_is_asked_for(source: Local) -> None:
    store = Store()
    source.sync_tree("", "copy", dst_fs=store)
    store.write_bytes("copy/a", bytes(SIZE))  # later
    assert source.sync_tree("", "copy", dst_fs=store).files == 0
    assert source.sync_tree("", "copy", dst_fs=store, content=True).files == 1


class Counted(BytesBlob):
    """A blob that counts the bytes that are read of it."""

    read = 0

    def _pread(self, size: int, offset: int) -> bytes:
        self.read += size
        return super()._pread(size, offset)


def test_parts_of_one_size_are_hashed_once() -> None:
    bucket = fsabs.from_url("s3://bucket", endpoint="http://127.0.0.1:1", anonymous=True)
    blob = Counted(Memory(), "a", bytes(SIZE), None)
    assert bucket._has_content(FileStat("a", SIZE, version=f"{'0' * 32}-1"), blob) is None
    assert blob.read == SIZE
