"""Zip: the index that is kept in the cache directory: what it saves, and that it is never trusted too far."""

from __future__ import annotations

import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsabs import (
    FS,
    CorruptFileError,
    Local,
    Memory,
)
from fsabs.containers.zip import Zip
from fsabs.core import hooks
from fsabs.disk import indexes

from .forks import all_end_well, forked
from .stores import CountingFS
from .zips import DEFLATED, Made, by_hand, contents, extra_field, many_entries, packed, zipped

MANY = {f"train/{n % 7}/{n:06}.jpg": b"%d" % n * 3 for n in range(6000)}


class Far(Memory):
    """A store whose reads take long, so that every index is worth being kept."""

    default_concurrency = 8


@pytest.fixture(autouse=True)
def folder(cache: Path) -> Path:
    """The folder of the kept indexes of one test."""
    return cache / "indexes"


@pytest.fixture(scope="module")
def many() -> bytes:
    """An archive whose index is mapped."""
    return zipped(MANY)


def far(data: bytes) -> CountingFS:
    """A store far away, with the archive `a.zip`."""
    parent = Far()
    parent.write_bytes("a.zip", data)
    return CountingFS(parent)


def kept(folder: Path, kind: str = "zip-1") -> list[Path]:
    return [path for path in folder.glob("*") if path.name.startswith(kind + "-")]


# ---- what it saves


@pytest.mark.quick
def test_an_archive_far_away_is_opened_again_without_a_read(folder: Path) -> None:
    files = {"a": b"alpha", "d/b": b"beta" * 100, "d/e/": b""}
    store = far(zipped(files, DEFLATED))
    for reads in (1, 0, 0):
        archive = Zip(store, "a.zip")
        assert len(store.taken()) == reads
        assert archive.read_bytes("d/b") == files["d/b"]
        assert len(store.taken()) == 1
        assert list(archive.list(recursive=True)) == ["a", "d/", "d/b", "d/e/"]
        assert not archive.exists("d/c")
        assert store.taken() == []
    assert len(kept(folder)) == 1
    store.inner.write_bytes("a.zip", zipped({"a": b"ALPHA"}))
    archive = Zip(store, "a.zip")
    assert len(store.taken()) == 1
    assert contents(archive) == {"a": b"ALPHA"}
    assert len(kept(folder)) == 1


def test_random_members_of_a_large_archive_cost_their_own_bytes() -> None:
    size = 20_000
    files = {f"train/{n % 100:03}/{n:07}.jpg": random.Random(n).randbytes(size) for n in range(2000)}
    data = zipped(files)
    directory = len(data) - data.index(b"PK\1\2")
    store = far(data)
    wanted = random.Random(0).sample(list(files), 100)
    for spare, more in ((directory, 2), (0, 0)):
        archive = Zip(store, "a.zip")
        assert list(archive.read_many(wanted)) == [files[name] for name in wanted]
        assert store.fetched <= spare + 1.05 * 100 * size
        assert sum(len(read) if isinstance(read, list) else 1 for read in store.taken()) <= 100 + more
    assert [archive.read_bytes(name) for name in wanted] == [files[name] for name in wanted]
    assert store.fetched <= 1.05 * 100 * size
    assert len(store.taken()) == 100


def test_a_nested_archive_has_an_index_of_its_own(folder: Path) -> None:
    files = {f"{n}": os.urandom(500) for n in range(50)}
    store = far(zipped({"i.zip": zipped(files), "s.zip": zipped(files, DEFLATED)}, DEFLATED))
    for name in ("i.zip", "s.zip"):
        for _ in range(2):
            assert contents(Zip(store, "a.zip").open_zip(name)) == files
    assert len(kept(folder)) == 3
    store = far(zipped({"i.zip": zipped(files)}))
    Zip(store, "a.zip").open_zip("i.zip")
    store.taken()
    inner = Zip(store, "a.zip").open_zip("i.zip")
    assert store.taken() == []
    assert list(inner.read_many(files)) == list(files.values())
    header, ranges = store.taken()  # the inner archive's own header tells where it starts
    assert header[0] < 200
    assert len(ranges) == 50


@pytest.mark.quick
def test_what_is_not_worth_it_or_not_wanted_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bytes
) -> None:
    (tmp_path / "few.zip").write_bytes(zipped({"x": b"x"}))
    (tmp_path / "many.zip").write_bytes(many)
    assert contents(Zip(Local(tmp_path), "few.zip")) == {"x": b"x"}
    assert kept(folder) == []
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    assert Zip(Local(tmp_path), "many.zip").info()["entries"] == 6000
    assert Zip(far(many), "a.zip").read_bytes("train/1/000001.jpg") == b"111"
    assert kept(folder) == []
    monkeypatch.setenv("FSABS_CACHE_DIR", str(folder.parent))
    assert Zip(Local(tmp_path), "many.zip").info()["entries"] == 6000
    assert len(kept(folder)) == 1


def test_the_order_is_kept_too(folder: Path) -> None:
    store = far(many_entries(12_000))
    first = list(Zip(store, "a.zip").list(recursive=True, detail=True))
    assert [stat.filename for stat in first] == sorted(stat.filename for stat in first)
    (file,) = kept(folder, "zip-order-1")
    assert list(Zip(store, "a.zip").list(recursive=True, detail=True)) == first
    right = file.read_bytes()
    file.write_bytes(right[:-2000] + b"?" + right[-1999:])
    assert list(Zip(store, "a.zip").list(recursive=True, detail=True)) == first
    assert file.read_bytes() == right


# ---- it says what the archive says

ODD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: zipped({}),
    "names": lambda: by_hand(
        [
            Made(b"caf\x82", b"1", host=0),
            Made("漢字/é".encode(), b"2", flags=0x800),
            Made(b"./a//b", b"3"),
            Made(b"../out", b"4"),
            Made(b"d\\e", b"5", host=0),
            Made(b"twice", b"6"),
            Made(b"twice", b"7"),
            Made(b"dir/", b""),
            Made(b"u", b"8", extra=extra_field(0x7075, b"\1" + struct.pack("<L", zlib.crc32(b"u")) + "ü".encode())),
        ],
        comment=b"\0\xff comment",
    ),
    "numbers": lambda: (
        b"prefix"
        + by_hand(
            [
                Made(b"x", b"abc", extra=extra_field(0x5455, b"\1" + struct.pack("<l", -5)), attributes=0o100640 << 16),
                packed("y", b"content" * 9, local_extra=extra_field(0x9999, bytes(300))),
                Made(b"z", b"big", offset=2**32, extra=extra_field(1, struct.pack("<Q", 0))),
            ],
            zip64=True,
        )
        + b"junk"
    ),
}


def told(archive: FS) -> Any:
    """All that an archive tells, and gives."""
    found: dict[str, Any] = {}
    for stat in archive.list(recursive=True, detail=True):
        try:
            found[stat.filename] = (stat, stat.directory or archive.read_bytes(stat.filename))
        except CorruptFileError as exc:
            found[stat.filename] = (stat, str(exc))
    for name in ("../out", "no", "dir", "twice"):
        try:
            found[name] = archive.stat(name), archive.open_blob(name).version
        except OSError as exc:
            found[name] = type(exc), str(exc)
    return found, archive.info()


@pytest.mark.parametrize("name", ODD)
def test_the_same_from_memory_and_from_the_cache(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    store = far(ODD[name]())
    with monkeypatch.context() as patch:
        patch.setenv("FSABS_CACHE_DIR", "")
        expected = told(Zip(store, "a.zip"))
    for _ in range(2):
        assert told(Zip(store, "a.zip")) == expected
    assert len(kept(folder)) == 1


# ---- it is never trusted too far


def check_many(archive: FS, some: int) -> bool:
    names = random.Random(some).sample(list(MANY), 5)
    assert not archive.exists(f"train/no{some}")
    assert [archive.read_bytes(name) for name in names] == [MANY[name] for name in names]
    assert list(archive.read_many(names)) == [MANY[name] for name in names]
    assert [archive.stat(name).size for name in names] == [len(MANY[name]) for name in names]
    assert len(list(archive.list("train/3"))) == 857
    return True


def test_a_damaged_index_is_never_believed(folder: Path, many: bytes) -> None:
    store = far(many)
    check_many(Zip(store, "a.zip"), 0)
    (file,) = kept(folder)
    right = file.read_bytes()
    assert len(right) > indexes.SMALL  # it is mapped
    rand = random.Random(1)
    for some in range(12):
        damaged = bytearray(right)
        at = rand.randrange(len(right)) if some % 3 else len(right) - 1 - rand.randrange(200)
        damaged[at : at + 1 + some % 2 * 1000] = rand.randbytes(1 + some % 2 * 1000)
        del damaged[len(right) :]
        file.unlink()
        file.write_bytes(damaged)
        file.chmod(0o600)
        check_many(Zip(store, "a.zip"), some)
    file.write_bytes(right[:-1])
    check_many(Zip(store, "a.zip"), 0)
    assert file.read_bytes() == right


def test_all_members_are_read_by_an_index_that_is_checked_block_by_block(many: bytes) -> None:
    store = far(many)
    Zip(store, "a.zip")
    archive = Zip(store, "a.zip")
    assert archive.read_bytes("train/1/000001.jpg") == b"111"
    for _ in range(2):
        assert list(archive.read_many(MANY)) == list(MANY.values())
        assert not archive.exists("train/no")


def test_one_flipped_bit_in_every_entry(folder: Path, many: bytes) -> None:
    """Each entry that is found is right, without anything missing being asked for."""
    store = far(many)
    Zip(store, "a.zip")
    (file,) = kept(folder)
    data = bytearray(file.read_bytes())
    start = data.index(b"PK\1\2")
    for at in range(start, start + 67 * 6000, 67):
        data[at + 24] ^= 1  # sizes
    file.unlink()
    file.write_bytes(data)
    file.chmod(0o600)
    archive = Zip(store, "a.zip")
    assert archive.stat("train/5/000005.jpg").size == 3
    assert archive.read_bytes("train/6/000006.jpg") == b"666"


def test_an_index_of_another_content_is_found_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that gives two contents one version, as a file that is written twice within a tick of the clock."""

    class Careless(Far):
        def _open_blob(self, key: str, *how: Any) -> Any:
            blob = super()._open_blob(key, *how)
            blob.version = "1"
            return blob

    store = Careless()
    before = {f"{n}": b"%08d" % n for n in range(100)}
    after = {f"{n}": b"%08d" % (n + 50) for n in range(99, -1, -1)}
    for files in (before, after, before):
        store.write_bytes("a.zip", zipped(files))
        assert {name: Zip(store, "a.zip").read_bytes(name) for name in before} == files
    store.write_bytes("a.zip", zipped(after))
    assert list(Zip(store, "a.zip").read_many(before)) == [after[name] for name in before]
    # Where the index is right, it is the archive's fault, and that is told.
    damaged = bytearray(zipped(after))
    damaged[damaged.index(b"00000099")] ^= 1
    store.write_bytes("a.zip", bytes(damaged))
    archive = Zip(store, "a.zip")
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="CRC-32"):
            archive.read_bytes("49")
        with pytest.raises(CorruptFileError, match="CRC-32"):
            list(archive.read_many(["1", "49"]))


def test_children_and_threads_share_a_mapped_index(folder: Path, many: bytes) -> None:
    store = far(many)
    Zip(store, "a.zip")
    archive = Zip(store, "a.zip")
    children = [forked(lambda: check_many(archive, 1))]
    kept(folder)[0].unlink()
    children.append(forked(lambda: check_many(archive, 2)))
    assert check_many(archive, 3)
    assert all_end_well(*children)


def test_a_closed_archive_holds_no_mapping(tmp_path: Path, many: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(many)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        archive = Zip(Local(tmp_path), "a.zip")
        check_many(archive, 1)
        archive.close()
        with pytest.raises(ValueError, match="closed"):
            archive.exists("x")
    assert len(os.listdir("/proc/self/fd")) == before


# ---- instruments


@pytest.mark.quick
def test_decompression_and_batches_are_told() -> None:
    told: list[tuple[Any, ...]] = []

    class Notes(hooks.Instrument):
        def record_span(self, kind: str, name: str, begin: int, *more: Any, **others: Any) -> None:
            told.append((kind, name, *more[1:]))

        def record_event(self, kind: str, name: str, *more: Any, **others: Any) -> None:
            told.append((kind, name))

    store = far(zipped({"x": b"x" * 1000, "y": b"y" * 2000}, DEFLATED))
    before = hooks.install(Notes())
    try:
        archive = Zip(store, "a.zip")
        archive.read_bytes("x")
        list(archive.read_many(["x", "y"]))
    finally:
        hooks.install(before)
    inflated = [("decompress", "zip.inflate", f"memory:///a.zip/{name}") for name in "xxy"]
    assert told[:3] == [("miss", "index_cache.zip-1"), ("hit", "index_cache.zip-1"), inflated[0]]
    assert [one for one in told if one[0] == "decompress"] == inflated
    assert ("batch", "zip.read_many", "memory:///a.zip") in told
