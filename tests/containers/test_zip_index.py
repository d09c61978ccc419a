"""Zip: what is read of a store to open an archive and its members; large archives; the index in processes."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import resource
import threading
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsabs import Local, Memory, StaleFileError
from fsabs.containers.zip import Zip, directory, index, members, records, table

from .stores import CountingFS
from .zips import DEFLATED, STORED, Made, by_hand, contents, extra_field, opened, packed, walked, zipped


def counting(data: bytes) -> CountingFS:
    """A store that counts, with the archive `a.zip`."""
    parent = Memory()
    parent.write_bytes("a.zip", data)
    return CountingFS(parent)


# ---- requests


def test_a_small_archive_is_opened_by_one_read() -> None:
    store = counting(zipped({f"{n}": b"x" * n for n in range(500)}, STORED, b"with a comment"))
    archive = Zip(store, "a.zip")
    assert len(store.taken()) == 1
    assert len(list(archive.list(recursive=True, detail=True))) == 500
    assert archive.exists("400")
    assert not archive.exists("x/y")
    assert store.taken() == []


def test_a_large_directory_takes_two_reads() -> None:
    store = counting(zipped({f"{n:0200}": b"" for n in range(3000)}))
    archive = Zip(store, "a.zip")
    assert len(store.taken()) == 2
    assert len(list(archive.list())) == 3000


def test_a_huge_directory_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "PIECE", 100_000)
    store = counting(zipped({f"{n:0200}": b"" for n in range(3000)}))
    archive = Zip(store, "a.zip")
    first, *parts = store.taken()
    assert len(parts) > 5
    assert 3000 * 246 <= sum(size for size, _ in parts) + first[0] <= 3000 * 246 + 22 + first[0]
    assert len(list(archive.list())) == 3000


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


@pytest.mark.parametrize("local_extra", [0, 60, 61, 200])
@pytest.mark.parametrize("method", [0, DEFLATED])
def test_a_small_member_is_one_read_and_the_rest_if_its_header_is_long(method: int, local_extra: int) -> None:
    """Read by `read_bytes`, for the first time and again, and by `read_many`."""
    data = random.Random(local_extra).randbytes(500)
    member = packed("x", data) if method else Made(b"x", data)
    member = member._replace(local_extra=extra_field(0x9999, bytes(local_extra)))
    store = counting(by_hand([Made(b"a", b"before"), member, Made(b"z", b"behind")]))
    archive = Zip(store, "a.zip")
    store.taken()
    more = max(0, 4 + local_extra - records.SLACK)  # what doesn't fit into the first read
    for read in (archive.read_bytes, archive.read_bytes, lambda path: next(archive.read_many([path]))):
        assert read("x") == data
        taken = store.taken()
        first = taken[0][0] if isinstance(taken[0], list) else taken[0]
        assert first[0] < len(data) + 200
        assert [size for size, _ in taken[1:]] == ([more] if more else [])


@pytest.mark.quick
def test_the_first_members_are_remembered_and_all_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "REMEMBERED", 3)
    files = {f"{n}": f"{n}".encode() * 3 for n in range(10)}
    archive = opened(zipped(files))
    for _ in range(2):
        assert [archive.read_bytes(name) for name in files] == list(files.values())
        assert list(archive.read_many(files)) == list(files.values())
        assert [archive.open(name, "rb").read() for name in files] == list(files.values())
        assert list(archive._index().small_reads) == ["0", "1", "2"]


@pytest.mark.quick
def test_a_closed_archive_reads_nothing_that_it_remembers() -> None:
    outer = opened(zipped({"i.zip": zipped({"x": b"content"})}))
    for failed in (False, True):
        inner = outer.open_zip("i.zip")
        assert inner.read_bytes("x") == b"content"
        with contextlib.suppress(ZeroDivisionError), inner:
            if failed:
                raise ZeroDivisionError
        with pytest.raises(ValueError, match="closed container: memory:///a.zip/i.zip"):
            inner.read_bytes("x")


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


def test_read_many_keeps_the_order_and_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{n}": os.urandom(n * 100) for n in range(100)} | {"big": os.urandom(2 << 20)}
    store = counting(zipped(files))
    archive = Zip(store, "a.zip")
    store.taken()
    wanted = ["99", "big", *[f"{n}" for n in range(100)], "5", "5", "big"]
    for concurrency in (1, 7, None):
        assert list(archive.read_many(wanted, concurrency=concurrency)) == [files[name] for name in wanted]
    assert max(len(read) for read in store.taken() if isinstance(read, list)) > 90
    from fsabs.containers import zip as package

    monkeypatch.setattr(package, "BATCH_BYTES", 20_000)
    assert list(archive.read_many(wanted)) == [files[name] for name in wanted]
    for read in store.taken():
        if isinstance(read, list) and len(read) > 1:
            assert sum(size for size, _ in read) <= 20_000
    many = archive.read_many(["1", "2", "no", "3"])
    assert [next(many), next(many)] == [files["1"], files["2"]]
    with pytest.raises(FileNotFoundError) as caught:
        next(many)
    assert caught.value.filename == "memory:///a.zip/no"


# ---- large archives


def many_entries(count: int) -> bytes:
    """An archive of so many small members, not in the order of their names."""
    template = zipped({"train/000/0000000.jpg": b"abc"})
    local, central = template[: template.index(b"PK\1\2")], template[template.index(b"PK\1\2") : -22]
    numbers = np.random.default_rng(0).permutation(count)
    names = [b"train/%03d/%07d.jpg" % (n % 1000, n) for n in numbers]
    body = b"".join(local[:30] + name + local[30 + len(name) :] for name in names)
    directory = b"".join(central[:42] + (at * len(local)).to_bytes(4, "little") + name for at, name in enumerate(names))
    end = by_hand([], zip64=True)
    record = bytearray(end)
    for at, value in (
        (24, count),
        (32, count),
        (40, len(directory)),
        (48, len(body)),
        (64, len(body) + len(directory)),
    ):
        record[at : at + 8] = value.to_bytes(8, "little")
    return body + directory + bytes(record)


@pytest.mark.parametrize("keep", [True, False])
def test_100_000_entries_take_little_memory(tmp_path: Path, keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", str(tmp_path / "cache") if keep else "")
    (tmp_path / "a.zip").write_bytes(many_entries(100_000))
    parent = Local(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    archive = Zip(parent, "a.zip")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KB; the directory is of 6,700
    assert archive.read_bytes("train/123/0000123.jpg") == b"abc"
    assert list(archive.read_many(["train/999/0099999.jpg", "train/000/0000000.jpg"])) == [b"abc"] * 2
    assert not archive.exists("train/123/0000124.jpg")
    assert len(list(archive.list("train"))) == 1000
    names = list(archive.list("train/123"))
    assert names == [f"{n:07}.jpg" for n in range(123, 100_000, 1000)]
    assert archive.isdir("train/999")
    assert sum(1 for _ in archive.list(recursive=True)) == 101_001


def test_names_come_in_the_order_of_their_code_points() -> None:
    names = ["a", "B", "é", "漢", "😀", "\uffff", "a b", "a-b", "a/b", "a.b", "Z/é/1", "Z/é0", "Z/é-"]
    archive = opened(zipped(dict.fromkeys(names, b"")))
    found = [name for name in archive.list(recursive=True) if not name.endswith("/")]
    assert found == sorted(names)
    assert list(archive.list(recursive=True, detail=True)) == walked(archive)


def test_names_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "crc32", lambda name: 7)
    monkeypatch.setattr(directory, "zlib", types.SimpleNamespace(crc32=lambda name: 7))
    files = {f"{n}": f"{n}".encode() for n in range(20)}
    archive = opened(by_hand([*[Made(name.encode(), data) for name, data in files.items()], Made(b"3", b"last")]))
    assert contents(archive) == {**files, "3": b"last"}
    assert not archive.exists("x")
    # A name that is changed is not found by what it was, though nothing but the names tells them apart.
    archive = opened(by_hand([Made(b"d\\a", b"content", host=0)]))
    assert contents(archive) == {"d/a": b"content"}
    with pytest.raises(FileNotFoundError):
        archive.read_bytes("d\\a")


# ---- processes


def test_the_index_is_inherited_by_a_fork_and_left_behind_by_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"x": b"x", "d/y": b"y"}, DEFLATED))
    store = CountingFS(Local(tmp_path))
    archive = Zip(store, "a.zip")
    store.taken()
    child = os.fork()
    if not child:
        right = contents(archive) == {"x": b"x", "d/y": b"y"} and all(size < 300 for size, _ in store.reads[:2])
        os._exit(0 if right else 1)
    assert contents(archive) == {"x": b"x", "d/y": b"y"}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    text = pickle.dumps(archive)
    assert len(text) < 1500
    copy = pickle.loads(text)
    assert contents(copy) == {"x": b"x", "d/y": b"y"}
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


def test_a_streamed_archive_is_read_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SMALL", 1000)
    parent = Memory()
    parent.default_concurrency = 8
    parent.write_bytes("a.zip", zipped({"o.zip": zipped({"i.zip": zipped({"x": bytes(5000)})})}, DEFLATED))
    archive = Zip(parent, "a.zip").open_zip("o.zip").open_zip("i.zip")
    assert archive.default_concurrency == 1
    assert archive.read_bytes("x") == bytes(5000)


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


def test_open_files_go_on_in_parent_and_child_at_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    inner = zipped({"x": data, "s": data[::-1]}, DEFLATED)
    (tmp_path / "a.zip").write_bytes(zipped({"i.zip": inner, "stored": data}))
    archive = Zip(Local(tmp_path), "a.zip")
    files = [archive.open("stored", "rb", 512), archive.open_zip("i.zip").open("x", "rb", 512)]
    lines = archive.open_zip("i.zip").open("s", "rt", encoding="latin-1", newline="\n")
    first = next(lines)
    heads = [file.read(1000) for file in files]
    assert heads == [data[:1000], data[:1000]]
    many = archive.read_many(["stored", "i.zip", "stored"])
    assert next(many) == data
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            right = all(file.read() == data[1000:] for file in files)
            right = right and list(many) == [inner, data]
            right = right and first + lines.read() == data[::-1].decode("latin-1")
            os._exit(0 if right else 1)
        children.append(child)
    assert [file.read() for file in files] == [data[1000:], data[1000:]]
    assert first + lines.read() == data[::-1].decode("latin-1")
    assert list(many) == [inner, data]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4


def test_threads_share_an_archive_and_a_blob() -> None:
    files = {f"{n}": os.urandom(1 + n * 997) for n in range(60)}
    archive = opened(zipped({"i.zip": zipped(files, DEFLATED)})).open_zip("i.zip")
    blobs: dict[str, Any] = {name: archive.open_blob(name) for name in files}
    copy = pickle.loads(pickle.dumps(archive))  # its index is loaded by whichever thread is first
    wrong: list[str] = []

    def read(step: int) -> None:
        for n in range(60):
            name = f"{n * step % 60}"
            found = (archive.read_bytes(name), copy.read_bytes(name), blobs[name].pread(10**6, 0))
            if found != (files[name],) * 3 or len(list(archive.list())) != 60:
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 7, 11, 13, 17, 19)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_member_is_small_or_streamed_by_its_size() -> None:
    data = zipped({"x": bytes(range(256)) * (9 << 12), "y": bytes(100)}, DEFLATED)
    archive = opened(data)
    assert type(archive.open_blob("x")) is members.Streamed
    assert type(archive.open_blob("y")) is members.Inflated
    assert archive.read_bytes("x") == bytes(range(256)) * (9 << 12)


@pytest.mark.parametrize("key", ["", "a", "a/b", "z"])
def test_names_are_those_of_the_stats(key: str) -> None:
    names = ["a/b/c/d.txt", "a/b/", "a/b/e", "a.txt", "./odd//name", "z/", "z/z/z/z", "b\\c", "caf\u00e9/x", "a/b/c-d"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name in names:
            made.writestr(name, b"")
    archive = opened(buffer.getvalue())
    found = list(archive.list(key, recursive=True))
    assert found == [stat.filename for stat in archive.list(key, recursive=True, detail=True)]
    assert len(found) >= 2
    assert len(set(found)) == len(found)
