"""The table of numbered items in a file: damage, preserving, leftovers; and what it refuses to open."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs.cache.frames import checksum
from fsabs.cache.items import table as tables
from fsabs.cache.items.table import RAW, ItemTable, PutOutcome
from fsabs.core.errors import CorruptFileError
from fsabs.testing.children import forked, threaded

pytestmark = pytest.mark.quick
ENTRY = struct.Struct("@QQQIHBB")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ItemTable]:
    made = ItemTable.temporary(str(tmp_path), length=20)
    yield made
    made.close()


def test_what_is_put_is_read(table: ItemTable) -> None:
    assert table.read(3) is None
    assert table.put(3, b"three") is PutOutcome.STORED
    assert table.put(4, b"", 7) is PutOutcome.STORED
    assert table.put(3, b"again") is PutOutcome.PRESENT
    assert table.read(3) == (RAW, b"three")
    assert table.read(4) == (7, b"")


@pytest.mark.parametrize("field", range(5))
def test_a_half_written_entry_is_no_entry(table: ItemTable, field: int) -> None:
    """Each field of an entry missing, as a reader may see it for a moment."""
    table.put(0, b"")
    table.put(1, b"value")
    for number in (0, 1):
        at = tables.SLOTS_START + number * tables.SLOT_SIZE
        fields = list(ENTRY.unpack(os.pread(table.fd, 32, at)))
        expected = fields[5], b"value" if number else b""
        position = (0, 1, 3, 5, 6)[field]
        fields[position] = 0
        os.pwrite(table.fd, ENTRY.pack(*fields), at)
        found = table.read(number)
        assert found in (None, expected)
        assert found is None or field in (0, 1, 4), "only what does not matter may be missing"


def test_damage_is_a_miss_and_can_be_put_again(table: ItemTable) -> None:
    table.put(1, b"x" * 1000)
    table.put(2, b"y" * 1000)
    data = table.header.data_start
    for offset in (data + 500, data + 1500):
        os.pwrite(table.fd, b"!", offset)
    assert table.read(1) is None
    assert table.read(2) is None
    assert table.usage() == {"entries": 0, "bytes": 0, "disk_bytes": table.usage()["disk_bytes"], "damaged": 2}
    assert table.put(1, b"right") is table.put(2, b"right") is PutOutcome.STORED
    assert table.read(1) == table.read(2) == (RAW, b"right")


@pytest.mark.parametrize("damage", ["empty", "short", "magic", "bit", "version", "cut", "folder", "live"])
def test_what_is_no_whole_cache_is_refused_when_it_is_opened(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "kept"
    live = ItemTable.temporary(str(tmp_path), length=10)
    live.put(3, b"three")
    if damage == "live":
        path = Path(live.path)
    else:
        assert live.preserve(str(path))
        whole = path.read_bytes()
        version = struct.pack("@I", 99)
        changed = {
            "empty": b"",
            "short": whole[:90],
            "magic": b"PK\x03\x04" + whole[4:],
            "bit": whole[:20] + bytes([whole[20] ^ 1]) + whole[21:],
            "cut": whole[:-1],
            "folder": whole,
        }.get(damage)
        if damage == "version":
            head = whole[:8] + version + whole[12 : tables.HEADER.size]
            changed = head + struct.pack("@I", checksum(head)) + whole[tables.HEADER.size + 4 :]
        assert changed is not None
        path.unlink()
        path.write_bytes(changed) if damage != "folder" else path.mkdir()
    with pytest.raises(OSError) as caught:
        ItemTable.preserved(str(path))
    assert isinstance(caught.value, PermissionError if damage == "folder" else CorruptFileError)
    assert caught.value.filename == str(path)
    live.close()


def test_preserving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = str(tmp_path / "kept")
    first = ItemTable.temporary(str(tmp_path), length=10)
    first.put(1, b"first")
    assert first.preserve(kept)
    assert first.put(2, b"late") is PutOutcome.FROZEN
    second = ItemTable.temporary(str(tmp_path), length=10)
    second.put(1, b"second")
    assert not second.preserve(kept), "it is there"

    def fails(*_: object) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no space") as caught:
            second.preserve(kept, overwrite=True)
        assert caught.value.filename == kept
    assert second.put(2, b"it goes on") is PutOutcome.STORED
    old = ItemTable.preserved(kept)
    assert second.preserve(kept, overwrite=True)
    assert old.read(1) == (RAW, b"first"), "who has the old one open goes on with it"
    new = ItemTable.preserved(kept)
    assert new.read(1) == (RAW, b"second")
    assert new.preserve(kept, overwrite=True), "over itself"
    for table in (first, second, old, new):
        table.close()
    assert os.listdir(tmp_path) == ["kept"]
    last = ItemTable.preserved(kept)
    assert last.read(2) == (RAW, b"it goes on")
    assert last.put(3, b"") is PutOutcome.FROZEN
    last.close()


def test_preserving_what_was_removed_says_so(tmp_path: Path) -> None:
    table = ItemTable.temporary(str(tmp_path), length=10)
    table.put(1, b"one")
    os.unlink(table.path)
    assert table.read(1) == (RAW, b"one")
    assert table.put(2, b"two") is PutOutcome.STORED
    with pytest.raises(FileNotFoundError):
        table.preserve(str(tmp_path / "kept"))
    table.close()


def test_after_close_there_is_nothing(table: ItemTable) -> None:
    table.put(1, b"one")
    table.close()
    table.close()
    assert table.closed
    assert table.read(1) is None
    assert table.put(2, b"") is PutOutcome.FROZEN
    assert table.fd == -1


def test_puts_of_threads_do_not_mix(table: ItemTable) -> None:
    def puts(thread: int) -> list[PutOutcome]:
        return [table.put(number, b"%d" % thread * 999) for number in range(20)]

    stored = threaded("puts", [functools.partial(puts, thread) for thread in range(4)], 20)
    assert sum(outcome is PutOutcome.STORED for outcomes in stored for outcome in outcomes) == 20
    for number in range(20):
        found = table.read(number)
        assert found is not None
        assert len(set(found[1])) == 1
        assert len(found[1]) == 999


def test_a_leftover_is_removed_and_a_live_file_is_not(tmp_path: Path) -> None:
    left: list[ItemTable] = []

    def leave() -> str:
        left.append(ItemTable.temporary(str(tmp_path), length=1))
        return left[0].path

    [path] = forked("killed", [leave], 20)
    assert os.path.exists(path), "as its process was killed"
    (tmp_path / "fsabs-other").write_text("not ours")
    live = ItemTable.temporary(str(tmp_path), length=1)
    assert not os.path.exists(path)
    ItemTable.temporary(str(tmp_path), length=1).close()
    assert os.path.exists(live.path)
    live.close()
    assert os.listdir(tmp_path) == ["fsabs-other"]
