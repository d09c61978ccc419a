"""The disk engine: values by number and by key, removing, space, claims, preserving; and what it refuses to open."""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs.cache.checksums import checksum
from fsabs.cache.items import cachefile, layout
from fsabs.cache.items.engine import RAW, Engine, PutOutcome
from fsabs.errors import CorruptFileError
from fsabs.testing.children import forked, threaded

pytestmark = pytest.mark.quick


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine.temporary(str(tmp_path), length=20, slots=64)
    yield made
    made.close()


def test_what_is_put_is_read(engine: Engine) -> None:
    assert engine.read(3) is None
    assert engine.put(3, b"three") is PutOutcome.STORED
    assert engine.put(4, b"", 7) is PutOutcome.STORED
    assert engine.put(3, b"again") is PutOutcome.PRESENT
    assert engine.read(3) == (RAW, b"three")
    assert engine.read(4) == (7, b"")
    for wrong in (-1, 20, 1 << 70):
        with pytest.raises(IndexError, match="out of range"):
            engine.read(wrong)
        with pytest.raises(IndexError, match="out of range"):
            engine.put(wrong, b"")


def test_keys_are_kept_apart_from_numbers_and_from_each_other(engine: Engine) -> None:
    keys = [b"", b"a", b"3", "ü".encode(), b"k" * layout.LONGEST_KEY, bytes(range(256))]
    for number, key in enumerate(keys):
        assert engine.put_key(key, b"%d" % number, number + 1) is PutOutcome.STORED
        assert engine.put_key(key, b"other") is PutOutcome.PRESENT
    assert [engine.read_key(key) for key in keys] == [(n + 1, b"%d" % n) for n in range(len(keys))]
    assert engine.read_key(b"b") is None
    assert engine.read(3) is None
    with pytest.raises(ValueError, match="at most"):
        engine.put_key(b"k" * 65536, b"")


def test_keys_of_one_hash_are_all_found(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsabs.cache.items.engine.key_hash", lambda key: 7)
    for number in range(layout.WINDOW):
        assert engine.put_key(b"%d" % number, b"value %d" % number) is PutOutcome.STORED
    assert engine.put_key(b"one more", b"") is PutOutcome.FULL
    assert engine.read_key(b"127") == (RAW, b"value 127")


@pytest.mark.parametrize("field", range(5))
def test_a_half_written_entry_is_no_entry(engine: Engine, field: int) -> None:
    """Each field of an entry missing, as a reader may see it for a moment."""
    engine.put(0, b"")
    engine.put(1, b"value")
    for number in (0, 1):
        at = layout.ITEMS_START + number * layout.ENTRY_SIZE
        fields = list(layout.ENTRY.unpack(os.pread(engine.fd, 32, at)))
        expected = fields[5], b"value" if number else b""
        position = (0, 1, 3, 5, 6)[field]
        fields[position] = 0
        os.pwrite(engine.fd, layout.ENTRY.pack(*fields), at)
        found = engine.read(number)
        assert found in (None, expected)
        assert found is None or field in (0, 1, 4), "only what does not matter may be missing"


def test_damage_is_a_miss_and_can_be_put_again(engine: Engine) -> None:
    engine.put(1, b"x" * 1000)
    engine.put_key(b"key", b"y" * 1000)
    data = engine.layout.data_start
    for offset in (data + 500, data + 1500):
        os.pwrite(engine.fd, b"!", offset)
    assert engine.read(1) is None
    assert engine.read_key(b"key") is None
    assert engine.usage() == {"entries": 0, "bytes": 0, "disk_bytes": engine.usage()["disk_bytes"], "damaged": 2}
    assert engine.put(1, b"right") is engine.put_key(b"key", b"right") is PutOutcome.STORED
    assert engine.read(1) == engine.read_key(b"key") == (RAW, b"right")


def test_a_damaged_key_is_not_taken_for_another(engine: Engine) -> None:
    engine.put_key(b"key", b"value")
    os.pwrite(engine.fd, b"K", engine.layout.data_start + 5)
    assert engine.read_key(b"key") is engine.read_key(b"Key") is None


@pytest.mark.parametrize("damage", ["empty", "short", "magic", "bit", "version", "cut", "longer", "folder", "live"])
def test_what_is_no_whole_cache_is_refused_when_it_is_opened(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "kept"
    live = Engine.temporary(str(tmp_path), length=10)
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
            "longer": whole + b"x",
            "folder": whole,
        }.get(damage)
        if damage == "version":
            head = whole[:8] + version + whole[12 : layout.HEADER.size]
            changed = head + struct.pack("@I", checksum(head)) + whole[layout.HEADER.size + 4 :]
        assert changed is not None
        path.unlink()
        path.write_bytes(changed) if damage != "folder" else path.mkdir()
    with pytest.raises(OSError) as caught:
        Engine.preserved(str(path))
    assert isinstance(caught.value, CorruptFileError)
    assert caught.value.filename == str(path)
    live.close()


def test_preserving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = str(tmp_path / "kept")
    first = Engine.temporary(str(tmp_path), length=10)
    first.put(1, b"first")
    assert first.preserve(kept)
    assert first.put(2, b"late") is PutOutcome.FROZEN
    second = Engine.temporary(str(tmp_path), length=10)
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
    old = Engine.preserved(kept)
    assert second.preserve(kept, overwrite=True)
    assert old.read(1) == (RAW, b"first"), "who has the old one open goes on with it"
    new = Engine.preserved(kept)
    assert new.read(1) == (RAW, b"second")
    assert new.preserve(kept, overwrite=True), "over itself"
    for engine in (first, second, old, new):
        engine.close()
    assert os.listdir(tmp_path) == ["kept"]
    last = Engine.preserved(kept)
    assert last.read(2) == (RAW, b"it goes on")
    assert last.put(3, b"") is PutOutcome.FROZEN
    last.close()


def test_preserving_what_was_removed_says_so(tmp_path: Path) -> None:
    engine = Engine.temporary(str(tmp_path), length=10)
    engine.put(1, b"one")
    os.unlink(engine.path)
    assert engine.read(1) == (RAW, b"one")
    assert engine.put(2, b"two") is PutOutcome.STORED
    with pytest.raises(FileNotFoundError):
        engine.preserve(str(tmp_path / "kept"))
    engine.close()


def test_after_close_there_is_nothing(engine: Engine) -> None:
    engine.put(1, b"one")
    engine.close()
    engine.close()
    assert engine.closed
    assert engine.read(1) is engine.read_key(b"a") is None
    assert engine.put(2, b"") is engine.put_key(b"a", b"") is PutOutcome.FROZEN
    assert engine.fd == -1


def test_puts_of_threads_do_not_mix(engine: Engine) -> None:
    def puts(thread: int) -> list[PutOutcome]:
        return [engine.put(number, b"%d" % thread * 999) for number in range(20)]

    stored = threaded("puts", [functools.partial(puts, thread) for thread in range(4)], 20)
    assert sum(outcome is PutOutcome.STORED for outcomes in stored for outcome in outcomes) == 20
    for number in range(20):
        found = engine.read(number)
        assert found is not None
        assert len(set(found[1])) == 1
        assert len(found[1]) == 999


def test_a_claim_is_one_process_s_and_ends_with_it(engine: Engine) -> None:
    assert engine.lease(5)
    assert forked("claiming", [lambda: engine.lease(5), lambda: engine.lease(6)], 20) == [False, True]
    assert forked("claiming what a dead process had", [lambda: engine.lease(6)], 20) == [True]
    engine.release(5)
    assert forked("claiming what was released", [lambda: engine.lease(5)], 20) == [True]


MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 0:41 / /home/local\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /data rw - ext4 /dev/sdc rw
33 22 0:43 / /data rw master:1 propagate_from:2 - nfs server:/data rw
a line that is no mount
"""


def test_a_leftover_is_removed_and_a_live_file_is_not(tmp_path: Path) -> None:
    path, fd = cachefile.make(str(tmp_path), layout.SlotTableLayout(1, 0, 1, b"", bytes(32), 1))
    os.close(fd)  # as when the process was killed
    (tmp_path / "fsabs-other").write_text("not ours")
    live = Engine.temporary(str(tmp_path), length=1)
    assert not os.path.exists(path)
    Engine.temporary(str(tmp_path), length=1).close()
    assert os.path.exists(live.path)
    live.close()
    assert os.listdir(tmp_path) == ["fsabs-other"]
