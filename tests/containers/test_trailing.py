"""Bytes behind compressed data whose content is proved by its size and checksum: read, and reported."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from fsabs import CorruptFileError, Memory
from fsabs.adapters.torch import ShardedDataset
from fsabs.containers.zip import Zip, records

from .zips import BZIP2, DEFLATED, Made, by_hand, deflated

pytestmark = pytest.mark.quick

CONTENT = b"content of a member " * 50
LINES = b"".join(b"%d\n" % number for number in range(2000))
MEMBERS: dict[int, Callable[[bytes], bytes]] = {
    DEFLATED: deflated,
    BZIP2: bz2.compress,
    93: lambda content: zstandard.ZstdCompressor().compress(content),
}
FILES: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": MEMBERS[93],
}


@pytest.mark.parametrize("small", [records.SMALL, 10], ids=["read whole", "streamed"])
@pytest.mark.parametrize("method", MEMBERS)
def test_bytes_behind_a_members_data(method: int, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SMALL", small)
    data = MEMBERS[method](CONTENT)
    fields: dict[str, Any] = {"method": method, "size": len(CONTENT), "crc": zlib.crc32(CONTENT)}
    with Memory() as fs:
        fs.write_bytes("a.zip", by_hand([Made(b"x", data + b"junk", **fields), Made(b"y", data, **fields)]))
        with Zip(fs, "a.zip") as archive:
            assert archive.read_bytes("x") == CONTENT
            with archive.open("x", "rb") as file:
                assert b"".join(iter(lambda: file.read(7), b"")) == CONTENT
            assert list(archive.read_many(["x", "y", "x"])) == [CONTENT] * 3
            (problem,) = archive.verify()
            assert problem[:2] == ("x", "trailing data")
            assert problem.detail.startswith("4 bytes behind the ")


def test_bytes_behind_an_empty_members_data() -> None:
    with Memory() as fs:
        fs.write_bytes("a.zip", by_hand([Made(b"x", deflated(b"") + b"junk", method=DEFLATED, size=0, crc=0)]))
        with Zip(fs, "a.zip") as archive:
            assert archive.read_bytes("x") == b""
            assert [(problem.path, problem.kind) for problem in archive.verify()] == [("x", "trailing data")]


def test_a_member_that_the_bytes_behind_belong_to_is_damaged() -> None:
    """Its size or checksum is not that of the content."""
    data = bz2.compress(CONTENT)
    for size, crc in ((len(CONTENT) + 4, zlib.crc32(CONTENT)), (len(CONTENT), 0)):
        with Memory() as fs:
            fs.write_bytes("a.zip", by_hand([Made(b"x", data + b"junk", method=BZIP2, size=size, crc=crc)]))
            with fs.open_container("a.zip") as archive, pytest.raises(CorruptFileError):
                archive.read_bytes("x")


@pytest.mark.parametrize("kind", FILES)
def test_bytes_behind_the_data_of_a_file_of_lines(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(FILES[kind](LINES) + b"junk that is no frame")
    for _ in range(2):  # its index is made, and kept
        with pytest.warns(UserWarning, match=rf"a\.jsonl\.{kind}: bytes behind its {kind} data are not read"):
            assert list(ShardedDataset(path)) == [json.loads(line) for line in LINES.splitlines()]
    path.write_bytes(FILES[kind](LINES) + bytes(20))  # which means nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(ShardedDataset(path))) == 2000


@pytest.mark.parametrize("kind", FILES)
def test_bytes_in_place_of_the_next_frame_are_damage(kind: str, tmp_path: Path) -> None:
    frame = FILES[kind](LINES)
    changed = bytes([frame[0] ^ 0x10]) + frame[1:]
    for content in (frame + changed + frame, frame + changed, FILES[kind](LINES[:-3]) + b"junk"):
        path = tmp_path / f"a.jsonl.{kind}"
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match="bytes behind the"):
            list(ShardedDataset(path))
