"""Sharded data sets: Paddle's names and rules, whole or not at all, checked and repaired."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs.adapters.splits import plan_splits
from fsabs.readers import decode
from fsabs.readers.data import RecordIODataReader
from fsabs.readers.paddle import creator
from fsabs.readers.recordio import RecordReader, RecordWriter
from fsabs.readers.sharded import convert, convert_lines, progress_bar, repair, verify
from fsabs.testing.faulty import Fault, FaultyFS, Raise

from . import minimal


def numbers(count: int) -> Any:
    """A reader of so many instances."""
    return lambda: iter(range(count))


def contents(fs: fsabs.FS) -> dict[str, list[Any]]:
    """The instances in each file."""
    return {name: [decode(record) for record in minimal.records(fs.read_bytes(name))] for name in fs.list()}


@pytest.mark.quick
def test_names_and_rules_of_paddle() -> None:
    fs = fsabs.Memory()
    names = convert(fs, numbers(10), 4, "random_images")
    assert names == [f"random_images-{number:05}-of-00003" for number in range(4)]  # the largest index, not the count
    assert contents(fs) == {name: list(range(number, 10, 4)) for number, name in enumerate(names)}


@pytest.mark.quick
def test_shards_that_get_nothing_are_written() -> None:
    fs = fsabs.Memory()
    convert(fs, numbers(2), 5, "few")
    assert [fs.stat(name).size > 0 for name in sorted(fs.list())] == [True, True, False, False, False]
    convert(fs.subfs(""), numbers(0), 1, "none")
    assert contents(fs)["none-00000-of-00000"] == []
    assert verify(fs).ok


def test_threads_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    one, many = fsabs.Memory(), fsabs.Memory()
    convert(one, numbers(2000), 7, "p", progress=progress_bar(2000))
    assert "2.00k/2.00k" in capsys.readouterr().err
    for workers in (2, 8):
        seen: list[int] = []
        convert(many, numbers(2000), 7, "p", workers=workers, progress=seen.append)
        assert contents(one) == contents(many)
        assert seen == sorted(seen)
        assert seen[-1] == 2000
    assert not [thread for thread in threading.enumerate() if thread.name == "fsabs-convert"]


def broken(after: int) -> Any:
    """A reader that fails."""
    return lambda: itertools.chain(range(after), (1 // zero for zero in [0]))


@pytest.mark.parametrize("workers", [1, 3])
def test_what_fails_leaves_what_was_there(workers: int) -> None:
    fs = fsabs.Memory()
    convert(fs, numbers(6), 3, "p")
    before = contents(fs)
    with pytest.raises(ZeroDivisionError):
        convert(fs, broken(3000), 3, "p", workers=workers)
    with pytest.raises(TypeError, match="allow_pickle"):
        convert(fs, lambda: iter([1] * 2000 + [object()] + [1] * 3000), 3, "p", workers=workers)
    failing = FaultyFS(fs, Fault("write", Raise(OSError(errno.ENOSPC, "full"))))
    with pytest.raises(OSError, match="full"):
        convert(failing, numbers(1000), 3, "p", workers=workers, compressor="none", max_chunk_bytes=10)
    assert contents(fs) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "fsabs-convert"]


def test_an_encoding_of_ones_own() -> None:
    fs = fsabs.Memory()
    convert(fs, numbers(3), 1, "p", encode=lambda number: b"%d" % number)
    assert list(RecordReader(fs, "p-00000-of-00000")) == [b"0", b"1", b"2"]


@pytest.mark.quick
def test_lines() -> None:
    for count, expected in ((0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])):
        fs = fsabs.Memory()
        seen: list[int] = []
        names = convert_lines(fs, numbers(count), 3, "p", progress=seen.append)
        assert names == [f"p-{number:05}" for number in range(len(expected))]
        assert [len(RecordReader(fs, name)) for name in names] == expected
        assert list(itertools.chain.from_iterable(contents(fs)[name] for name in names)) == list(range(count))
        assert seen[-1] == count
        assert verify(fs).ok


def test_lines_of_a_longer_run_are_an_error() -> None:
    fs = fsabs.Memory()
    convert_lines(fs, numbers(7), 3, "p")
    assert convert_lines(fs, numbers(8), 3, "p") == ["p-00000", "p-00001", "p-00002"]
    with pytest.raises(FileExistsError, match="an earlier run with more shards") as caught:
        convert_lines(fs, numbers(4), 4, "p")
    assert str(caught.value.filename).endswith("p-00001")
    fs.remove("p-00001")
    assert verify(fs).missing == ("memory:///p-00001",)
    other = fsabs.Memory()
    with pytest.raises(ZeroDivisionError):
        convert_lines(other, broken(5), 3, "p")
    assert contents(other) == {"p-00000": [0, 1, 2]}  # each file is whole when it is there


def test_arguments_that_are_refused() -> None:
    fs = fsabs.Memory()
    for wrong in ("", "a/b", ".p"):
        for function in (convert, convert_lines):
            with pytest.raises(ValueError):
                function(fs, numbers(1), 1, wrong)
    for shards in (0, 100_001):
        with pytest.raises(ValueError):
            convert(fs, numbers(1), shards, "p")
    with pytest.raises(ValueError):
        convert_lines(fs, numbers(1), 0, "p")
    assert not list(fs.list())


def test_a_directory_by_its_url(tmp_path: Path) -> None:
    convert(tmp_path / "new" / "set", numbers(10), 2, "p")
    convert(f"file://{tmp_path}/new/set", numbers(4), 1, "q")
    folder = tmp_path / "new" / "set"
    assert verify(folder).records == verify(f"{folder}/").records == 14
    assert verify(f"{folder}/p-*-of-*").records == 10
    assert verify([folder / "p-00000-of-00001", folder / "q-*"]).records == 9
    assert verify(fsabs.from_url(folder)).ok
    for nothing in (folder / "r-*", folder / "none", tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError):
            verify(nothing)


# ---- verify and repair


@pytest.fixture
def fs() -> Iterator[fsabs.FS]:
    """Four shards of 10 chunks with 5 records each."""
    fs = fsabs.Memory()
    for name in (f"p-{number:05}-of-00003" for number in range(4)):
        with RecordWriter(fs, name, compressor="none", max_chunk_bytes=50) as writer:
            for number in range(50):
                writer.write(f"{name[2:7]}.{number:04}".encode())
    yield fs
    fs.close()


def flip(fs: fsabs.FS, name: str, at: int) -> None:
    """Damage a file."""
    data = bytearray(fs.read_bytes(name))
    data[at] ^= 0x10
    fs.write_bytes(name, data)


def test_a_good_set(fs: fsabs.FS) -> None:
    report = verify(fs)
    assert report.ok
    assert [(shard.chunks, shard.records, shard.ok) for shard in report.shards] == [(10, 50, True)] * 4
    assert str(report) == "4 shards, 0 of them damaged; 200 good records"
    before = {name: fs.stat(name).version for name in fs.list()}
    assert repair(fs).ok
    assert {name: fs.stat(name).version for name in fs.list()} == before


@pytest.mark.quick
def test_what_is_damaged_missing_or_stale_is_named(fs: fsabs.FS) -> None:
    flip(fs, "p-00001-of-00003", 115)
    fs.write_bytes("p-00002-of-00003", fs.read_bytes("p-00002-of-00003") + bytes(77))
    fs.remove("p-00003-of-00003")
    fs.write_bytes("p-00001-of-00007", b"")
    fs.write_bytes(".hidden", b"no shard")
    for workers in (1, 4):
        report = verify(fs, workers=workers)
        assert not report.ok
        assert [shard.url[-16:] for shard in report.shards if not shard.ok] == ["p-00001-of-00003", "p-00002-of-00003"]
        assert [one.records for shard in report.shards for one in shard.damage] == [5, None]
        assert report.missing == ("memory:///p-00003-of-00003",)
        assert report.stale == ("memory:///p-00001-of-00007",)
        assert report.records == 145
        for text in ("p-00001-of-00003: chunk 1 at offset", "p-00003-of-00003: missing", "00007: of an earlier run"):
            assert text in str(report)


def test_of_two_whole_runs_the_older_is_stale(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    convert(fs, numbers(4), 3, "p")
    convert(fs, numbers(4), 2, "q")
    for name in ("00000-of-00001", "00001-of-00001"):
        fs.rename(f"q-{name}", f"p-{name}")
    for name in list(fs.list()):
        age = 100 if name.endswith("00002") else 0
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert [url[-8:] for url in verify(fs).stale] == ["of-00002"] * 3


def test_a_second_run_with_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    convert(tmp_path, numbers(10), 10, "p")
    convert(tmp_path, numbers(10), 4, "p2")
    with pytest.raises(FileExistsError, match="another run, with another number: 'p-0000"):
        convert(tmp_path, lambda: pytest.fail("it is read"), 5, "p")
    convert(tmp_path, numbers(7), 10, "p")
    assert len(list(creator.RecordIO(f"{tmp_path}/p-*-of-*")())) == 7
    with fsabs.from_url(tmp_path) as fs:
        fs.write_bytes("p-00000-of-00004", fs.read_bytes("p-00000-of-00009"))
    for read in (
        lambda: creator.RecordIO(f"{tmp_path}/p-*-of-*"),
        lambda: creator.RecordIO(tmp_path),
        lambda: RecordIODataReader(tmp_path).create_shards(),
        lambda: plan_splits(str(tmp_path)),
    ):
        with pytest.raises(OSError, match=r"shards of two runs, .*p-\*-of-0000[49] and ") as caught:
            read()
        assert caught.value.errno == errno.EINVAL
    assert len(list(creator.RecordIO(f"{tmp_path}/p-*-of-00009")())) == 7


class Lost(ConnectionError):
    """The store is gone."""


def test_shards_that_are_completed_in_part_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(tmp_path, numbers(9), 3, "p")
    close = RecordWriter.close
    closed: list[RecordWriter] = []

    def close_two(writer: RecordWriter) -> None:
        if len(closed) == 2:
            raise Lost
        closed.append(writer)
        close(writer)

    with monkeypatch.context() as patch, pytest.raises(Lost):
        patch.setattr(RecordWriter, "close", close_two)
        convert(tmp_path, numbers(30), 3, "p")
    for read in (
        lambda: creator.RecordIO(f"{tmp_path}/p-*-of-*"),
        lambda: RecordIODataReader(tmp_path).create_shards(),
        lambda: RecordIODataReader(f"{tmp_path}/p-*-of-*").create_shards(),
        lambda: verify(tmp_path),
    ):
        with pytest.raises(OSError, match="was interrupted") as caught:
            read()
        assert caught.value.errno == errno.EBUSY
    convert(tmp_path, numbers(30), 3, "p")
    assert len(list(creator.RecordIO(f"{tmp_path}/p-*-of-*")())) == 30
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
    (tmp_path / ".fsabs-publishing").touch()  # as `fsabs prepare` marks a directory
    for refused in (creator.RecordIO, lambda pattern: RecordIODataReader(pattern).create_shards()):
        with pytest.raises(OSError, match="was interrupted"):
            refused(f"{tmp_path}/p-*-of-*")


@pytest.mark.quick
def test_repair_keeps_all_that_is_good(fs: fsabs.FS) -> None:
    def records(name: str) -> list[bytes]:
        return minimal.records(fs.read_bytes(name))

    names = sorted(fs.list())
    before = {name: records(name) for name in names}
    chunk = len(fs.read_bytes(names[0])) // 10
    flip(fs, names[0], 3 * chunk + 40)  # a payload
    flip(fs, names[1], 5 * chunk + 1)  # a magic number
    fs.write_bytes(names[2], fs.read_bytes(names[2])[:-7] + b"")  # a cut
    damaged = bytearray(fs.read_bytes(names[3]))
    damaged[16] = 4  # a number of records: the payload tells the right one
    fs.write_bytes(names[3], damaged)
    report = repair(fs)
    assert [len(shard.damage) for shard in report.shards] == [1, 1, 1, 1]
    assert verify(fs).ok
    assert records(names[0]) == before[names[0]][:15] + before[names[0]][20:]
    assert records(names[1]) == before[names[1]][:25] + before[names[1]][30:]
    assert records(names[2]) == before[names[2]][:45]
    assert records(names[3]) == before[names[3]]


def test_what_is_no_shard_is_not_repaired_away(fs: fsabs.FS) -> None:
    flip(fs, "p-00001-of-00003", 100)
    fs.write_bytes("notes.txt", b"not a shard")
    assert repair(fs).skipped == (fs.url("notes.txt"),)
    assert fs.read_bytes("notes.txt") == b"not a shard"
    assert verify(fs).ok


def test_another_layout_is_damage_with_a_name() -> None:
    import struct
    import zlib

    fs = fsabs.Memory()
    payload = struct.pack("<I", 3) + b"abc"
    fs.write_bytes("p", struct.pack("<5I", 0x01020304, 1, zlib.crc32(payload), 0, len(payload)) + payload)
    (shard,) = verify(fs).shards
    assert "Paddle's C++" in shard.damage[0].reason
    with pytest.raises(OSError):
        repair(fs)
