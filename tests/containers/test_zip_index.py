"""Zip: what is read of a store to open an archive and its members; large archives; the index in processes."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import resource
import zlib
from pathlib import Path

import pytest

from fsabs import Local, Memory, StaleFileError
from fsabs.containers.zip import Zip, records

from .forks import all_end_well, forked
from .stores import CountingFS, counting
from .zips import DEFLATED, STORED, Made, by_hand, contents, extra_field, many_entries, opened, packed, walked, zipped

# ---- requests


def test_a_small_archive_is_opened_by_one_read() -> None:
    store = counting(zipped({f"{n}": b"x" * n for n in range(500)}, STORED, b"with a comment"))
    archive = Zip(store, "a.zip")
    assert len(store.taken()) == 1
    assert len(list(archive.list(recursive=True, detail=True))) == 500
    assert archive.exists("400")
    assert not archive.exists("x/y")
    assert store.taken() == []


def test_a_large_directory_takes_two_reads_and_a_huge_one_is_read_in_parts() -> None:
    for count in (12, 90):
        names = [f"{n:060000}" for n in range(count)]
        store = counting(zipped(dict.fromkeys(names, b"")))
        archive = Zip(store, "a.zip")
        first, *parts = store.taken()
        assert len(parts) == (1 if count == 12 else 6)
        assert sum(size for size, _ in parts) + first[0] <= count * 60_046 + 22 + first[0]
        assert list(archive.list()) == names


@pytest.mark.parametrize("compression", [STORED, DEFLATED])
def test_a_small_member_is_one_read(compression: int) -> None:
    members_ = {f"{n}.jpg": os.urandom(20_000) for n in range(50)}
    store = counting(zipped(members_, compression))
    archive = Zip(store, "a.zip")
    store.taken()
    for name, data in list(members_.items())[::7]:
        assert archive.read_bytes(name) == data
        assert len(store.reads) == 1
        assert store.taken()[0][0] < 20_000 + 300
        with archive.open(name, "rb") as file:
            assert file.read() == data
        assert len(store.taken()) == 1
    assert list(archive.read_many(members_)) == list(members_.values())
    (ranges,) = store.taken()
    assert len(ranges) == 50
    assert sum(size for size, _ in ranges) < 50 * 20_300


def test_a_wrong_guess_costs_one_more_read() -> None:
    padding = extra_field(0x9999, bytes(4000))
    data = os.urandom(10_000)
    for member, content in (
        (Made(b"x", data, local_extra=padding), data),
        (packed("x", data, local_extra=padding), data),
    ):
        store = counting(by_hand([member, Made(b"last", bytes(200_000))]))
        archive = Zip(store, "a.zip")
        store.taken()
        assert archive.read_bytes("x") == content
        assert len(store.taken()) == 2
        with archive.open("x", "rb") as file:
            assert file.read() == content
        assert len(store.taken()) == 2
        assert list(archive.read_many(["x"])) == [content]
        assert len(store.taken()) == 2


def test_a_small_member_is_one_read_and_the_rest_if_its_header_is_long() -> None:
    """Read by `read_bytes`, for the first time and again, and by `read_many`."""
    for method, local_extra in itertools.product((STORED, DEFLATED), (0, 60, 61, 200)):
        data = random.Random(local_extra).randbytes(500)
        member = packed("x", data) if method else Made(b"x", data)
        member = member._replace(local_extra=extra_field(0x9999, bytes(local_extra)))
        store = counting(by_hand([Made(b"a", b"before"), member, Made(b"z", b"behind")]))
        archive = Zip(store, "a.zip")
        store.taken()
        more = max(0, 4 + local_extra - records.SLACK)  # what doesn't fit into the first read
        for read in (archive.read_bytes, archive.read_bytes, lambda path, fs=archive: next(fs.read_many([path]))):
            assert read("x") == data
            taken = store.taken()
            first = taken[0][0] if isinstance(taken[0], list) else taken[0]
            assert first[0] < len(data) + 200
            assert [size for size, _ in taken[1:]] == ([more] if more else [])


def test_a_large_stored_member_is_read_where_it_is() -> None:
    data = os.urandom(3 << 20)
    store = counting(zipped({"x": data, "y": b"y"}))
    archive = Zip(store, "a.zip")
    store.taken()
    assert archive.read_bytes("x") == data
    header, body = store.taken()
    assert header[0] < 200
    assert body[0] == len(data)
    with archive.open("x", "rb") as file:
        file.seek(2 << 20)
        assert file.read(100) == data[2 << 20 : (2 << 20) + 100]
        assert sum(size for size, _ in store.taken()) < 200_000
        file.seek(1 << 20)
        assert file.read(100) == data[1 << 20 : (1 << 20) + 100]
        assert len(store.taken()) == 1  # the local header is known


def test_opening_a_member_reads_nothing() -> None:
    store = counting(zipped({"x": b"x" * 1000, "d/y": b"y" * 1000}, DEFLATED))
    archive = Zip(store, "a.zip")
    store.taken()
    for name in ("x", "d/y"):
        with archive.open(name, "rb"):
            assert store.taken() == []


def test_a_nested_archive_costs_as_little() -> None:
    files = {f"{n}": os.urandom(1000) for n in range(200)}
    store = counting(zipped({"i.zip": zipped(files), "other": os.urandom(3 << 20)}))
    outer = Zip(store, "a.zip")
    assert len(store.taken()) == 1
    archive = outer.open_zip("i.zip")
    assert len(store.taken()) == 2  # its local header, and its tail
    assert archive.read_bytes("7") == files["7"]
    assert len(store.taken()) == 1
    assert list(archive.read_many(list(files))) == list(files.values())
    (ranges,) = store.taken()
    assert len(ranges) == 200


def test_read_many_keeps_the_order_and_the_bounds() -> None:
    files = {f"{n}": os.urandom(n * 100) for n in range(100)} | {"big": os.urandom(2 << 20)}
    store = counting(zipped(files))
    archive = Zip(store, "a.zip")
    store.taken()
    wanted = ["99", "big", *[f"{n}" for n in range(100)], "5", "5", "big"]
    for concurrency in (1, 7, None):
        assert list(archive.read_many(wanted, concurrency=concurrency)) == [files[name] for name in wanted]
    assert max(len(read) for read in store.taken() if isinstance(read, list)) > 90
    many = archive.read_many(["1", "2", "no", "3"])
    assert [next(many), next(many)] == [files["1"], files["2"]]
    with pytest.raises(FileNotFoundError) as caught:
        next(many)
    assert caught.value.filename == "memory:///a.zip/no"
    large = {f"{n}": bytes(3 << 20) for n in range(12)}
    store = counting(zipped(large))
    assert list(Zip(store, "a.zip").read_many(large)) == list(large.values())
    batches = [read for read in store.taken() if isinstance(read, list)]
    assert sum(len(read) for read in batches) == 12
    assert max(sum(size for size, _ in read) for read in batches) <= 32 << 20


# ---- large archives


@pytest.mark.parametrize("keep", [True, False])
def test_100_000_entries_take_little_memory(tmp_path: Path, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache") if keep else "")
    (tmp_path / "a.zip").write_bytes(many_entries(100_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    archive = Zip(Local(tmp_path), "a.zip")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KB; the directory is of 6,700
    assert archive.read_bytes("train/123/0000123.jpg") == b"abc"
    assert list(archive.read_many(["train/999/0099999.jpg", "train/000/0000000.jpg"])) == [b"abc"] * 2
    assert not archive.exists("train/123/0000124.jpg")
    assert len(list(archive.list("train"))) == 1000
    assert list(archive.list("train/123")) == [f"{n:07}.jpg" for n in range(123, 100_000, 1000)]
    assert archive.isdir("train/999")
    assert sum(1 for _ in archive.list(recursive=True)) == 101_001


def test_names_come_in_the_order_of_their_code_points() -> None:
    names = ["a", "B", "é", "漢", "😀", "\uffff", "a b", "a-b", "a/b", "a.b", "Z/é/1", "Z/é0", "Z/é-"]
    archive = opened(zipped(dict.fromkeys(names, b"")))
    assert [name for name in archive.list(recursive=True) if not name.endswith("/")] == sorted(names)
    assert list(archive.list(recursive=True, detail=True)) == walked(archive)
    odd = ["a/b/c/d.txt", "a/b/", "a/b/e", "a.txt", "./odd//name", "z/", "z/z/z/z", "b\\c", "caf\u00e9/x", "a/b/c-d"]
    archive = opened(by_hand([Made(name.encode(), flags=0x800) for name in odd]))
    for key in ("", "a", "a/b", "z"):
        found = list(archive.list(key, recursive=True))
        assert found == [stat.filename for stat in archive.list(key, recursive=True, detail=True)]
        assert len(set(found)) == len(found) >= 2


def test_names_with_one_hash_are_told_apart() -> None:
    names = ("plumless", "buckeroo")
    assert len({zlib.crc32(name.encode()) for name in names}) == 1
    members = [Made(f"{n}".encode(), f"{n}".encode()) for n in range(20)]
    numbers = {f"{n}": f"{n}".encode() for n in range(20)}
    both = [Made(name.encode(), name.encode()) for name in names]
    archive = opened(by_hand([*both, *members, Made(b"plumless", b"last")]))
    assert contents(archive) == {**numbers, "buckeroo": b"buckeroo", "plumless": b"last"}
    for there, other in (names, names[::-1]):
        archive = opened(by_hand([*members, Made(there.encode(), b"alone")]))
        assert archive.read_bytes(there) == b"alone"
        assert not archive.exists(other)
    archive = opened(by_hand([Made(b"d\\a", b"content", host=0)]))  # which is not found by the name that it had
    assert contents(archive) == {"d/a": b"content"}
    with pytest.raises(FileNotFoundError):
        archive.read_bytes("d\\a")


# ---- processes


def test_the_index_is_inherited_by_a_fork_and_left_behind_by_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"x": b"x", "d/y": b"y"}, DEFLATED))
    store = CountingFS(Local(tmp_path))
    archive = Zip(store, "a.zip")
    store.taken()

    def right() -> bool:
        return contents(archive) == {"x": b"x", "d/y": b"y"} and all(size < 300 for size, _ in store.reads[:2])

    assert all_end_well(forked(right))
    assert right()
    text = pickle.dumps(archive)
    assert len(text) < 1500
    assert contents(pickle.loads(text)) == {"x": b"x", "d/y": b"y"}
    sub = archive.subfs("d")
    store.taken()
    assert sub.read_bytes("y") == b"y"
    assert len(store.taken()) == 1


def test_as_many_reads_at_once_as_the_store_can_do() -> None:
    class Wide(Memory):
        default_concurrency = 8

    files = {f"{n}": os.urandom(5000) for n in range(50)}
    parent = Wide()
    parent.write_bytes("a.zip", zipped({"i.zip": zipped(files), "s.zip": zipped(files, DEFLATED)}, DEFLATED))
    parent.write_bytes("b.zip", zipped({"i.zip": zipped(files)}))
    for name, inner, width in (("b.zip", "i.zip", 8), ("a.zip", "s.zip", 8)):
        archive = Zip(parent, name).open_zip(inner)
        assert archive.default_concurrency == width
        assert list(archive.read_many(files)) == list(files.values())
    store = CountingFS(parent)
    archive = Zip(store, "b.zip").open_zip("i.zip")
    store.taken()
    assert list(archive.read_many(files, concurrency=4)) == list(files.values())
    assert [len(read) for read in store.taken() if isinstance(read, list)] == [*[4] * 12, 2]


def test_a_streamed_archive_is_read_by_one_thread() -> None:
    parent = Memory()
    parent.default_concurrency = 8
    parent.write_bytes("a.zip", zipped({"o.zip": zipped({"i.zip": zipped({"x": bytes(9 << 20)})})}, DEFLATED))
    archive = Zip(parent, "a.zip").open_zip("o.zip").open_zip("i.zip")
    assert archive.default_concurrency == 1
    assert archive.read_bytes("x") == bytes(9 << 20)


def test_a_pickled_archive_is_the_same_version(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({"x": b"one"}))
    archive = Zip(Local(tmp_path), "a.zip")
    file = archive.open("x", "rb")
    texts = pickle.dumps(archive), pickle.dumps(file)
    assert [pickle.loads(texts[0]).read_bytes("x"), pickle.loads(texts[1]).read()] == [b"one", b"one"]
    os.replace(tmp_path / "a.zip", tmp_path / "old.zip")
    path.write_bytes(zipped({"x": b"two"}))
    for text in texts:
        with pytest.raises(StaleFileError):
            pickle.loads(text)
