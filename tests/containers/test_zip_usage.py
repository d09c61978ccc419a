"""`usage` of large zip archives, which sums up columns of the directory and looks at no member."""

from __future__ import annotations

import struct

import pytest

from fsabs import TreeCounts

from .zips import Made, by_hand, extra_field, opened

pytestmark = pytest.mark.quick


def test_usage_of_many_members_is_that_of_a_walk() -> None:
    members = [
        Made(f"{number % 7}/{'ä' * (number % 3)}{number}".encode(), b"x" * (number % 5), flags=0x800)
        for number in range(20_100)
    ]
    zip64 = extra_field(1, struct.pack("<2Q", 1000, 1000))
    members += [Made(b"empty/"), Made(b"0/0", b"replaced")]  # the last entry of a name counts
    members += [Made(b"large", b"y" * 1000, size=2**32, compressed=2**32, crc=1, extra=zip64)]
    archive = opened(by_hand(members))
    for base in ("", "0", "3"):
        files = [stat for stat in archive.list(base, recursive=True, detail=True) if not stat.directory]
        assert archive.usage(base) == TreeCounts(len(files), bytes=sum(stat.size for stat in files)), base
    with pytest.raises(NotADirectoryError):
        archive.usage("0/0")
    windows = [Made(name.encode(), b"" if name[-1] == "\\" else b"x", host=0) for name in ("d\\", "d\\e\\")]
    windows += [Made(b"d\\%d" % number, b"x", host=0) for number in range(20_000)]
    archive = opened(by_hand(windows))
    assert archive.isdir("d/e")
    assert archive.usage() == TreeCounts(20_000, bytes=20_000)
