"""A file of items that is damaged under its users."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from fsabs.cache import FileCache
from fsabs.cache.items import table as tables
from fsabs.cache.items.table import ItemTable

RUBBISH = [(1 << 63, 100), (4096, 1 << 62), (1 << 62, 1 << 62), ((1 << 64) - 1, (1 << 64) - 1), (0, 4096)]


@pytest.mark.parametrize(("offset", "length"), RUBBISH)
def test_an_entry_that_points_nowhere_is_dropped(tmp_path: Path, offset: int, length: int) -> None:
    with FileCache(10, dir=tmp_path) as cache:
        for number in range(10):
            cache.put(number, b"%d" % number * 1000)
        file = cache._table
        assert file is not None
        os.pwrite(file.fd, struct.pack("@QQ", offset, length), tables.SLOTS_START + 3 * tables.SLOT_SIZE)
        with pytest.warns(RuntimeWarning, match="checksum"):
            assert cache.get(3) is None
        assert cache.put(3, b"again")
        assert [cache.get(n) for n in range(10)] == [b"again" if n == 3 else b"%d" % n * 1000 for n in range(10)]


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a private file"):
        ItemTable.preserved(str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "fsabs-0.live")
    FileCache(10, dir=tmp_path).close()
