"""Zip, written and added to: what comes out is read by zipfile; whole or not at all; nested; several at once."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs import FS, Local, Memory
from fsabs.containers import base
from fsabs.containers.zip import Zip, records, writing

from .zips import (
    METHODS,
    STORED,
    contents,
    opened,
    read_by_zipfile,
    zipped,
)

pytestmark = pytest.mark.quick

NAMES = {"stored": 0, "deflated": 8, "bzip2": 12, "lzma": 14}
TREE = {"a.txt": b"alpha" * 50, "dir/b.bin": bytes(range(256)) * 10, "dir/sub/c": b"", "ü/ñ €.txt": b"unicode"}


def written(files: dict[str, bytes], **options: Any) -> bytes:
    """The bytes of an archive that we write."""
    parent = Memory()
    with Zip(parent, "a.zip", "w", **options) as archive:
        for name, data in files.items():
            archive.write_bytes(name, data)
    return parent.read_bytes("a.zip")


@pytest.mark.parametrize("compression", NAMES)
def test_zipfile_reads_what_we_write(compression: str) -> None:
    data = written(TREE, compression=compression)
    assert read_by_zipfile(data) == TREE
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            assert info.compress_type == NAMES[compression]
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == 0o100644
            assert not info.flag_bits & 8  # the local headers have sizes and CRC: readers of streams need them
    archive_ = opened(data)
    assert contents(archive_) == TREE
    assert archive_.verify() == []


@pytest.mark.parametrize("compression", ["stored", "deflated", "bzip2"])
def test_other_readers_read_what_we_write(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(written(TREE, compression=compression))
    readers = [[sys.executable, "-m", "zipfile", "-t"]]
    if program := shutil.which("unzip"):  # where it is there
        readers.append([program, "-tqq"])
    for reader in readers:
        done = subprocess.run([*reader, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_stream_of_it_is_read_without_the_directory() -> None:
    data = written(TREE, compression="deflated")
    found: dict[str, bytes] = {}
    at = 0
    while data[at : at + 4] == b"PK\3\4":
        crc, compressed, size, name, extra = struct.unpack_from("<3L2H", data, at + 14)
        start = at + 30 + name + extra
        content = zlib.decompress(data[start : start + compressed], -15)
        assert (zlib.crc32(content), len(content)) == (crc, size)
        found[data[at + 30 : at + 30 + name].decode()] = content
        at = start + compressed
    assert found == TREE


def test_the_same_input_gives_the_same_bytes() -> None:
    for options in ({}, {"compression": "deflated", "compresslevel": 1}, {"timestamp": 1_700_000_000.0}):
        assert written(TREE, **options) == written(TREE, **options)
    assert len(written(TREE, compression="deflated", compresslevel=0)) > len(written(TREE, compression="deflated"))
    stamped = opened(written(TREE, timestamp=1_700_000_001.9))
    assert stamped.stat("a.txt").last_modified == 1_700_000_000


def test_options_are_checked_before_anything_is_made() -> None:
    parent = Memory()
    parent.write_bytes("a.zip", b"old")
    options: list[dict[str, Any]] = [
        {"compression": "zip"},
        {"compression": "deflated", "compresslevel": 10},
        {"compression": "bzip2", "compresslevel": 0},
        {"compresslevel": 6},
        {"timestamp": 0.0},
        {"timestamp": 1e12},
        {"timestamp": float("nan")},
    ]
    for wrong in options:
        with pytest.raises(ValueError):
            Zip(parent, "a.zip", "w", **wrong)
    with pytest.raises(ValueError, match="mode"):
        Zip(parent, "a.zip", "rw")
    with pytest.raises(TypeError):
        parent.open_zip("a.zip", "w", compresion="stored")
    assert parent.read_bytes("a.zip") == b"old"


def test_modes() -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "x") as archive:
        archive.write_bytes("x", b"1")
    with pytest.raises(FileExistsError):
        Zip(parent, "a.zip", "x")
    with Zip(parent, "a.zip", "w"):
        pass
    assert contents(Zip(parent, "a.zip")) == {}
    with Zip(parent, "new.zip", "a") as archive:
        archive.write_bytes("x", b"1")
        archive.write_bytes("x", b"2")
    assert contents(Zip(parent, "new.zip")) == {"x": b"2"}
    parent.mkdir("d.zip")
    for mode in "rwxa":
        with pytest.raises((IsADirectoryError, FileExistsError)):
            Zip(parent, "d.zip", mode)


# ---- what is there while it is written


def test_what_was_written_is_listed_and_not_read() -> None:
    parent = Memory()
    archive = Zip(parent, "a.zip", "w", timestamp=1_700_000_000)
    archive.write_bytes("d/e/x", b"123")
    archive.mkdir("m")
    with archive.open("open", "wb") as file:
        file.write(b"x")
        assert not archive.exists("open")
    assert list(archive.list(recursive=True)) == ["d/", "d/e/", "d/e/x", "m/", "open"]
    assert list(archive.list("d")) == ["e/"]
    assert list(archive.list("m")) == []
    assert [member.size for member in archive.list("d/e", detail=True)] == [3]
    assert archive.stat("d/e/x").last_modified == 1_700_000_000
    assert archive.isdir("d/e")
    assert archive.isdir("")
    assert list(archive.glob("**/x")) == ["d/e/x"]
    for path, kind in (("no", FileNotFoundError), ("open/x", NotADirectoryError), ("open", NotADirectoryError)):
        with pytest.raises(kind):
            archive.list(path)
    for path, error in (("no", FileNotFoundError), ("d/e/x/y", NotADirectoryError)):
        with pytest.raises(error):
            archive.stat(path)
    for read in (archive.open, archive.read_bytes, lambda path: list(archive.read_many([path])), archive.open_zip):
        with pytest.raises(io.UnsupportedOperation):
            read("d/e/x")
    for change in (archive.remove, lambda path: archive.rename(path, "y"), lambda path: archive.copy(path, "y")):
        with pytest.raises(io.UnsupportedOperation):
            change("d/e/x")
    with pytest.raises(io.UnsupportedOperation):
        archive.verify()
    assert archive.capabilities.read is False
    assert archive.info()["capabilities"]["replace"] is False
    archive.close()
    for use in (lambda: archive.write_bytes("y", b""), archive.list, lambda: archive.mkdir("y")):
        with pytest.raises(ValueError, match="closed"):
            use()
    archive.close()


def test_a_name_is_written_once() -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w") as archive:
        archive.write_bytes("d/x", b"1")
        for mode in ("wb", "xb"):
            with pytest.raises(FileExistsError):
                archive.open("d/x", mode)
        with pytest.raises(IsADirectoryError):
            archive.open("d", "wb")
        with pytest.raises(NotADirectoryError):
            archive.write_bytes("d/x/y", b"")
        with pytest.raises(NotADirectoryError):
            archive.mkdir("d/x/y")
        for path in ("d", "d/x", ""):
            with pytest.raises(FileExistsError):
                archive.mkdir(path)
        archive.makedirs("d/e/f")
        archive.makedirs("d/e/f", exist_ok=True)
        archive.mkdir("d/new", 0o700)
        first, second = archive.open("same", "wb"), archive.open("same", "wb")
        first.write(b"first")
        second.write(b"second")
        second.close()
        with pytest.raises(FileExistsError) as caught:
            first.close()
        assert caught.value.filename == "memory:///a.zip/same"
    found = Zip(parent, "a.zip")
    assert contents(found) == {"d/x": b"1", "same": b"second"}
    assert found.isdir("d/e/f")
    assert oct(found.stat("d/new").mode) == "0o40700"
    assert oct(found.stat("d/e/f").mode) == "0o40755"


@pytest.mark.parametrize("name", ["C:/x", "a/..\\b", "\\x", "x" * 65_536, "\udc80"])
def test_names_that_can_not_be_stored(name: str) -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w") as archive:
        for make in (lambda: archive.write_bytes(name, b""), lambda: archive.mkdir(name)):
            with pytest.raises(OSError, match="name") as caught:
                make()
            assert caught.value.filename == archive.url(name)
        archive.write_bytes("good", b"good")
    assert contents(Zip(parent, "a.zip")) == {"good": b"good"}


# ---- whole or not at all


class _Mine(Exception):
    pass


def test_an_exception_in_a_member_leaves_no_member() -> None:
    parent = Memory()

    def interrupted(archive: FS, size: int) -> None:
        with archive.open("lost", "wb") as file:
            file.write(bytes(size))
            raise _Mine

    with Zip(parent, "a.zip", "w") as archive:
        archive.write_bytes("first", b"1")
        for size in (0, 10, 10 << 20):
            with pytest.raises(_Mine):
                interrupted(archive, size)
        archive.write_bytes("last", b"2")
    data = parent.read_bytes("a.zip")
    assert read_by_zipfile(data) == {"first": b"1", "last": b"2"}
    assert len(data) < 1000


def test_an_exception_in_the_archive_leaves_the_old_one() -> None:
    parent = Memory()
    parent.write_bytes("a.zip", zipped(TREE))

    def interrupted(mode: str, name: str) -> None:
        with Zip(parent, name, mode) as archive:
            archive.write_bytes("lost", b"x" * 100_000)
            raise _Mine

    for mode, name in (("w", "a.zip"), ("a", "a.zip"), ("x", "new.zip"), ("w", "new.zip"), ("a", "new.zip")):
        with pytest.raises(_Mine):
            interrupted(mode, name)
    assert contents(Zip(parent, "a.zip")) == TREE
    assert list(parent.list()) == ["a.zip"]


def test_members_that_are_still_open() -> None:
    parent = Memory()
    archive = Zip(parent, "a.zip", "w")
    archive.write_bytes("x", b"x")
    file = archive.open("open", "wb")
    file.write(b"1")
    with pytest.raises(OSError, match="1 members are still open for writing.*: open"):
        archive.close()
    assert not parent.exists("a.zip")
    with pytest.raises(ValueError, match="closed"):
        file.close()
    archive.close()


def test_a_child_has_no_part_in_its_parents_archive(tmp_path: Path) -> None:
    parent = Local(tmp_path)
    archive = Zip(parent, "a.zip", "w")
    archive.write_bytes("x", b"x")
    file = archive.open("y", "wb")
    file.write(b"y" * 100)

    def write() -> None:
        file.write(b"z")
        file.flush()

    child = os.fork()
    if not child:
        right = 0
        for use in (lambda: archive.write_bytes("z", b"z"), lambda: archive.mkdir("z"), write, file.close):
            try:
                use()
            except io.UnsupportedOperation:
                right += 1
        archive.close()
        os._exit(0 if right == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(parent.list()) == []
    file.close()
    archive.close()
    assert contents(Zip(parent, "a.zip")) == {"x": b"x", "y": b"y" * 100}


def test_a_store_that_fails() -> None:
    class Full(Memory):
        def _create(self, key: str, exclusive: bool) -> Any:
            writer = super()._create(key, exclusive)
            writer.write = self._fail  # type: ignore[method-assign]
            return writer

        def _fail(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    parent = Full()

    def fill() -> None:
        with Zip(parent, "a.zip", "w") as archive:
            archive.write_bytes("x", bytes(3 << 20))

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert caught.value.errno == 28
    assert not parent.exists("a.zip")


# ---- several at once, and nested


def test_several_members_at_once_and_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_IN_MEMORY", 1000)
    parent = Memory()
    files = {f"{n % 5}/{n}": os.urandom(n * 371) for n in range(100)}
    with Zip(parent, "a.zip", "w", compression="deflated") as archive:
        names = iter(files)
        lock = threading.Lock()

        def write() -> None:
            while True:
                with lock:
                    name = next(names, None)
                if name is None:
                    return
                with archive.open(name, "wb") as one, archive.open(f"empty/{name}", "wb"):
                    for at in range(0, len(files[name]), 1000):
                        one.write(files[name][at : at + 1000])

        threads = [threading.Thread(target=write) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = files | {f"empty/{name}": b"" for name in files}
    assert read_by_zipfile(parent.read_bytes("a.zip")) == expected
    assert contents(Zip(parent, "a.zip")) == expected


def test_archives_in_archives() -> None:
    parent = Memory()
    with parent.open_zip("o.zip", "w") as outer:
        with outer.open_zip("i.zip", "w", compression="deflated") as inner, outer.open_zip("d/j.zip", "w") as other:
            outer.write_bytes("beside", b"b")
            with inner.open_zip("k.zip", "w") as third:
                third.write_bytes("deep", b"d" * 1000)
            inner.write_bytes("x", b"x")
            other.write_bytes("y", b"y")
        with pytest.raises(_Mine), outer.open_zip("lost.zip", "w") as lost:
            lost.write_bytes("z", b"z")
            raise _Mine
        with outer.subfs("sub").open_zip("s.zip", "w") as inner:
            inner.write_bytes("s", b"s")
    archive = Zip(parent, "o.zip")
    assert list(archive.list(recursive=True)) == ["beside", "d/", "d/j.zip", "i.zip", "sub/", "sub/s.zip"]
    assert archive.open_zip("i.zip").open_zip("k.zip").read_bytes("deep") == b"d" * 1000
    assert archive.open_zip("d/j.zip").read_bytes("y") == b"y"
    assert archive.open_zip("sub/s.zip").read_bytes("s") == b"s"
    assert archive.verify() == []


def test_an_inner_archive_that_is_still_open() -> None:
    parent = Memory()
    outer = parent.open_zip("o.zip", "w")
    inner = outer.open_zip("i.zip", "w")
    with pytest.raises(OSError, match=r"still open for writing.*: i\.zip"):
        outer.close()
    assert not parent.exists("o.zip")
    with pytest.raises(ValueError, match="closed"):
        inner.close()


# ---- zip64


def test_zip64_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LIMIT32", 1000)
    monkeypatch.setattr(writing, "LIMIT16", 4)
    files = {f"{n}": bytes(n * 300) for n in range(8)}
    for compression in ("stored", "deflated"):
        data = written(files, compression=compression)
        assert b"PK\6\6" in data
        assert read_by_zipfile(data) == files
        found = opened(data)
        assert contents(found) == files
        assert found.verify() == []
        parent = Memory()
        parent.write_bytes("a.zip", b"prefix" + data)
        with Zip(parent, "a.zip", "a") as archive:
            archive.write_bytes("new", bytes(5000))
        assert read_by_zipfile(parent.read_bytes("a.zip")) == {**files, "new": bytes(5000)}
        assert contents(Zip(parent, "a.zip")) == {**files, "new": bytes(5000)}


def test_more_than_65535_members() -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w") as archive:
        for n in range(65_540):
            archive.mkdir(f"{n}")
    with zipfile.ZipFile(io.BytesIO(parent.read_bytes("a.zip"))) as found:
        assert len(found.infolist()) == 65_540
    assert sum(1 for _ in Zip(parent, "a.zip").list()) == 65_540


# ---- Hypothesis

_SEGMENT = st.text(st.characters(codec="utf-8", exclude_characters="/\0\\:"), min_size=1, max_size=12).filter(
    lambda text: text not in (".", "..")
)
_FILES = st.dictionaries(st.lists(_SEGMENT, min_size=1, max_size=3).map("/".join), st.binary(max_size=2000), max_size=8)


def _without_conflicts(files: dict[str, bytes]) -> dict[str, bytes]:
    """No file in the place of a directory."""
    return {name: data for name, data in files.items() if not any(other.startswith(name + "/") for other in files)}


@settings(max_examples=60, deadline=None)
@given(_FILES.map(_without_conflicts), st.sampled_from(list(NAMES)), st.integers(0, 3))
def test_any_archive_that_we_write(files: dict[str, bytes], compression: str, appended: int) -> None:
    parent = Memory()
    names = list(files)
    with Zip(parent, "a.zip", "w", compression=compression) as archive:
        for name in names[appended:]:
            archive.write_bytes(name, files[name])
    with Zip(parent, "a.zip", "a") as archive:
        for name in names[:appended]:
            archive.write_bytes(name, files[name])
    assert read_by_zipfile(parent.read_bytes("a.zip")) == files
    found = Zip(parent, "a.zip")
    assert contents(found) == files
    assert found.verify() == []


@settings(max_examples=60, deadline=None)
@given(_FILES, st.sampled_from(METHODS), st.binary(max_size=30), st.binary(max_size=30))
def test_any_archive_that_zipfile_writes(files: dict[str, bytes], method: int, prefix: bytes, comment: bytes) -> None:
    found = opened(prefix.replace(b"PK", b"pk") + zipped(files, method, comment))
    assert contents(found) == files
    kinds = {problem.kind for problem in found.verify()}
    assert kinds <= {"conflict"}
    assert STORED == 0
