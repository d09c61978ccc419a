"""Compressions that can't be read are named, and are no damage."""

from __future__ import annotations

import io
import lzma

import pytest

from fsabs import CorruptFileError, Memory
from fsabs.readers.data import JsonLinesDataReader

from .tarballs import tarball

pytestmark = pytest.mark.quick

TAR = tarball({"x": b"content"})
FILES = {
    "lzma": lzma.compress(TAR, format=lzma.FORMAT_ALONE),
    "lz4": b"\x04\x22\x4d\x18\x64\x40\xa7" + TAR,
    "compress": b"\x1f\x9d\x90" + TAR,
    "lzip": b"LZIP\x01\x0c" + TAR,
    "lzop": b"\x89LZO\0\r\n\x1a\n" + TAR,
    "snappy": b"\xff\x06\0\0sNaPpY" + TAR,
}


@pytest.mark.parametrize("name", FILES)
def test_a_tar_compressed_by_others_names_the_compression(name: str) -> None:
    with Memory() as fs:
        fs.write_bytes("a.tar", FILES[name])
        with pytest.raises(io.UnsupportedOperation, match=rf"compressed by {name}.*gz, bz2, xz, zst") as caught:
            fs.open_container("a.tar")
        assert caught.value.filename == "memory:///a.tar"


@pytest.mark.parametrize("name", FILES)
def test_so_do_json_lines(name: str) -> None:
    with Memory() as fs:
        fs.write_bytes("a.jsonl.gz", FILES[name])
        with pytest.raises(io.UnsupportedOperation, match=f"compressed by {name}") as caught:
            JsonLinesDataReader(fs.subfs("")).create_shards()
        assert caught.value.filename == "memory:///a.jsonl.gz"


def test_what_is_no_tar_is_damage() -> None:
    with Memory() as fs:
        fs.write_bytes("a.tar", b"no tar at all" * 100)
        with pytest.raises(CorruptFileError, match="not a tar"):
            fs.open_container("a.tar")
        fs.write_bytes("a.tar", tarball({"LZIP": b"content"}))
        with fs.open_container("a.tar") as tar:
            assert tar.read_bytes("LZIP") == b"content"
