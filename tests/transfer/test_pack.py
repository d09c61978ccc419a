"""pack: any tree into any container, the same bytes every time, whole or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time
import tracemalloc
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fsabs import (
    FS,
    CorruptFileError,
    FileStat,
    Local,
    Memory,
    TreeCounts,
)
from fsabs.transfer.pack import pack
from fsabs.transfer.unpack import unpack
from tests.containers.tarballs import contents, opened, tarball

pytestmark = pytest.mark.quick

TREE = {
    "a.txt": b"alpha",
    "d/b.bin": bytes(range(256)) * 20,
    "d/e/big": os.urandom(1_200_000),
    "d/e/small": b"",
    "d-e/x": b"1",
    "ü/ñ €": b"unicode",
}
FORMATS = ["a.tar", "a.tar.gz", "a.tar.zst", "a.zip", "a.h5"]
SLOW = [pytest.param(name, marks=pytest.mark.nightly) for name in ("a.tar.bz2", "a.tar.xz")]


def fill(fs: FS, tree: dict[str, bytes] = TREE) -> FS:
    for name, data in tree.items():
        fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.write_bytes(name, data)
    fs.makedirs("empty/inside", exist_ok=True)
    return fs


@pytest.mark.parametrize("name", [*FORMATS, *SLOW])
def test_everything_is_in_it_and_the_bytes_are_the_same_from_anywhere(name: str, tmp_path: Path) -> None:
    source, target = fill(Memory()), Memory()
    packed = pack(source, target, name)
    size = sum(map(len, TREE.values()))
    assert packed == TreeCounts(len(TREE), 6, size)
    with target.open_container(name) as container:
        assert contents(container) == TREE
        assert list(container.list(recursive=True)) == list(source.list(recursive=True))
        assert container.verify() == []  # type: ignore[attr-defined]
    time.sleep(0.01)
    local = fill(Local(tmp_path / "in", create=True), dict(reversed(TREE.items())))
    os.chmod(tmp_path / "in/a.txt", 0o600)
    pack(local, other := Local(tmp_path), name)
    assert other.read_bytes(name) == target.read_bytes(name)
    assert sorted(os.listdir(tmp_path)) == sorted(["in", name])
    pack(other.open_container(name), target, "again" + name[1:])
    assert target.read_bytes("again" + name[1:]) == target.read_bytes(name)


def test_options_force_type_and_a_part_of_a_tree() -> None:
    source, target = fill(Memory()), Memory()
    pack(source.subfs("d"), target, "odd", force_type="tar", options={"compression": "gz", "timestamp": 5})
    with target.open_container("odd", force_type="tar") as tar:
        assert contents(tar) == {name[2:]: data for name, data in TREE.items() if name.startswith("d/")}
        assert tar.info()["compression"] == "gz"
        assert tar.stat("b.bin").last_modified == 5
    source.cwd = "d"
    pack(source, target, "cwd.tar")
    with target.open_container("cwd.tar") as tar:
        assert list(tar.list(recursive=True)) == ["b.bin", "e/", "e/big", "e/small"]
    for options in ({"unknown": 1}, {"compression": "odd"}):
        with pytest.raises((TypeError, ValueError), match="unknown"):
            pack(source, target, "b.tar", options=options)
    with pytest.raises(ValueError, match="no container has the suffix"):
        pack(source, target, "b.odd")
    assert not target.exists("b.tar")


def test_select_and_progress() -> None:
    source, target = fill(Memory()), Memory()
    seen: list[tuple[int, int]] = []

    def chosen(stat: FileStat) -> bool:
        return stat.isfile() and (stat.size > 1000 or stat.filename.startswith("d-e/"))

    packed = pack(source, target, "a.tar", select=chosen, progress=lambda *done: seen.append(done))
    expected = {name: TREE[name] for name in ("d-e/x", "d/b.bin", "d/e/big")}
    assert contents(target.open_container("a.tar")) == expected
    assert packed == TreeCounts(3, 0, sum(map(len, expected.values())))
    assert seen == sorted(seen)
    assert seen[-1] == (packed.files, packed.bytes)
    assert len(seen) > 3  # a large file tells more than once


def test_modes() -> None:
    source, target = fill(Memory()), Memory()
    pack(source, target, "a.tar", mode="x")
    with pytest.raises(FileExistsError):
        pack(source, target, "a.tar", mode="x")
    pack(source.subfs("d-e"), target, "a.tar")
    assert contents(target.open_container("a.tar")) == {"x": b"1"}
    with pytest.raises(ValueError, match="mode is 'w' or 'x'"):
        pack(source, target, "a.tar", mode="a")


def test_a_container_is_not_packed_into_itself(tmp_path: Path) -> None:
    for fs in (fill(Memory()), fill(Local(tmp_path))):
        for _ in range(2):
            pack(fs, fs, "d/all.tar")
            assert contents(fs.open_container("d/all.tar")) == TREE
        pack(fs.subfs("d"), fs, "d/all.tar")
        assert "all.tar" not in contents(fs.open_container("d/all.tar"))


def test_another_file_of_the_same_name_is_packed() -> None:
    source, target = Memory(), Memory()
    source.write_bytes("a.tar", b"source")
    target.write_bytes("a.tar", b"target")
    pack(source, target, "a.tar")
    assert contents(target.open_container("a.tar")) == {"a.tar": b"source"}


def test_into_a_container_and_out_of_one() -> None:
    source, target = fill(Memory()), Memory()
    with target.open_container("o.tar", "w") as outer:
        pack(source, outer, "i.tar.gz")
        pack(source, outer, "i.h5")
    with target.open_container("o.tar") as outer:
        for name in ("i.tar.gz", "i.h5"):
            assert contents(outer.open_container(name)) == TREE


class Failing(Memory):
    """Fails when it comes to one file."""

    bad = ""

    def _open_blob(self, key: str, *how: Any) -> Any:
        if key == self.bad:
            raise TimeoutError("gone")
        return super()._open_blob(key, *how)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.h5"])
def test_a_failure_in_the_middle_leaves_nothing(name: str, tmp_path: Path) -> None:
    source = fill(Failing(), {**TREE, "d/e/big": bytes(1_200_000)})  # which every format compresses in no time
    assert isinstance(source, Failing)
    target = Local(tmp_path)
    for old in (False, True):
        if old:
            target.write_bytes(name, b"old")
        for bad in TREE:
            source.bad = bad
            with pytest.raises(TimeoutError) as caught:
                pack(source, target, name)
            assert caught.value.filename == source.url(bad)
            assert os.listdir(tmp_path) == [name] * old
    assert target.read_bytes(name) == b"old"


def test_an_exception_of_a_hook_leaves_nothing(tmp_path: Path) -> None:
    source, target = fill(Memory()), Local(tmp_path)

    def stop(files: int, size: int) -> None:
        if files == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(source, target, "a.tar", progress=stop)
    with pytest.raises(ZeroDivisionError):
        pack(source, target, "a.tar", select=lambda stat: bool(1 / 0))
    assert os.listdir(tmp_path) == []


def test_a_link_to_a_directory_above_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a").write_bytes(b"a")
    (tmp_path / "p/loop").symlink_to(".")
    with pytest.raises(OSError, match=r"it leads to a directory that it is in.*file:///.*/p/loop") as caught:
        pack(Local(tmp_path / "p"), Local(tmp_path), "l.zip")
    assert caught.value.errno == errno.ELOOP
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    done = pack(Local(tmp_path / "p"), Local(tmp_path), "l.zip", select=lambda stat: stat.filename != "loop/")
    assert done == TreeCounts(1, 0, 1)


def test_a_damaged_source_is_told() -> None:
    data = tarball({"x": b"1", "y": b"2"})
    with pytest.raises(CorruptFileError):
        pack(opened(data[:1500]), Memory(), "a.tar")


def test_small_files_are_read_together() -> None:
    class Counting(Memory):
        calls: ClassVar[list[tuple[int, int | None]]] = []

        def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
            self.calls.append((len(wanted), how[0]))
            return super()._read_many(wanted, *how)

    source, target = Counting(), Memory()
    expected = {f"f{i:03}": bytes([i]) * 1000 for i in range(200)}
    fill(source, expected)
    pack(source, target, "a.tar", concurrency=7)
    assert contents(target.open_container("a.tar")) == expected
    assert source.calls == [(200, 7)]


def test_memory_is_bounded(tmp_path: Path) -> None:
    source = Local(tmp_path / "in", create=True)
    with source.open("big", "wb") as file:
        for _ in range(60):
            file.write(os.urandom(1 << 20))
    target = Local(tmp_path)
    for name in ("a.tar.zst", "a.h5", "a.zip"):
        tracemalloc.start()
        pack(source, target, name)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50_000_000
        assert target.open_container(name).stat("big").size == 60 << 20


def test_deflated_members_keep_their_order_and_content() -> None:
    """Members are compressed by threads, and the groups that they take end at a number or at a size."""
    source, rng = Memory(), random.Random(3)
    files = {f"d{n % 7}/{n:03}": rng.randbytes(rng.choice([0, 1, 300, 90_000])) + bytes(n) for n in range(400)}
    for number in range(7):
        source.mkdir(f"d{number}")
    source.write_many(files.items())
    pack(source, source, "a.zip", options={"compression": "deflated"})
    with zipfile.ZipFile(source.open("a.zip", "rb")) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        assert names == sorted(files)
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in names} == files
        assert {archive.getinfo(name).compress_type for name in names} == {zipfile.ZIP_DEFLATED}


def _unpack(folder: Path) -> int:
    local = Local(folder)
    with local.open_container("a.zip") as archive:
        return unpack(archive, local, "out", workers=2).files


def test_a_daemonic_process_unpacks_by_itself(tmp_path: Path) -> None:
    """Those of `multiprocessing.Pool` and of a `DataLoader` may have no children."""
    with Local(tmp_path).open_container("a.zip", "w") as archive:
        archive.write_many({f"f{number}": b"x" for number in range(20)})
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_unpack, (tmp_path,)).get(60) == 20
    assert len(os.listdir(tmp_path / "out")) == 20
