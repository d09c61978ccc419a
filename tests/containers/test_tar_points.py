"""Seek points inside of long frames: of gzip by `indexed_gzip`, of xz by its blocks; kept for other processes."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import cast

import pytest

from fsabs import CorruptFileError, Local, Memory
from fsabs.backends import local
from fsabs.containers import decoding
from fsabs.containers.tar import Tar, compression

from .blocks import GZ, MEMBERS, PLAIN, XZ, blocks_of_xz, seeded
from .conftest import decode_by_steps
from .forks import all_end_well, forked
from .stores import CountingFS
from .tarballs import contents, tarball


@pytest.fixture(autouse=True)
def _small_steps(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode_by_steps(monkeypatch, 16)


@functools.cache
def compressed(kind: str) -> bytes:
    """The archive."""
    return {**GZ, **XZ}[kind](PLAIN)


def made(path: Path, kind: str) -> Path:
    """An archive written a while ago."""
    path.write_bytes(compressed(kind))
    os.utime(path, (time.time() - 60,) * 2)
    return path


def opened(path: Path) -> tuple[Tar, CountingFS]:
    """The archive, and what counts the bytes."""
    fs = CountingFS(Local(path.parent))
    return Tar(fs, path.name), fs


def kept_indexes(cache: Path) -> list[Path]:
    return list((cache / "indexes").glob("gzip-*"))


def jump(tar: Tar) -> None:
    """Read at the end, as a process does that has no seek points of its own."""
    assert tar.read_bytes("folder0/member15") == MEMBERS["folder0/member15"]


# ---- the right bytes


RARE = ("best", "small blocks", "fixed and stored", "flushed", "flushed fully", "streams of xz")
KINDS = [pytest.param(kind, marks=pytest.mark.nightly) if kind in RARE else kind for kind in (*GZ, *XZ)]


@pytest.mark.parametrize("kind", KINDS)
def test_members_in_any_order_are_what_tarfile_reads(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "a.tar.gz", kind)
    with tarfile.open(path) as peer:
        expected = {name: cast(io.BufferedReader, peer.extractfile(name)).read() for name in peer.getnames()}
    order = random.Random(kind)
    for _ in range(3):  # by the pass's own points; by those that are looked for, and kept; by those that were kept
        tar = opened(path)[0]
        for name in order.sample(sorted(expected), len(expected)):
            assert tar.read_bytes(name) == expected[name]
            with tar.open(name, "rb") as file:
                offset, size = order.randrange(len(expected[name])), order.randrange(50_000)
                file.seek(offset)
                assert file.read(size) == expected[name][offset : offset + size]


@pytest.mark.parametrize("kind", ["usual", "members"])
def test_without_the_library_the_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, kind: str
) -> None:
    monkeypatch.setitem(sys.modules, "indexed_gzip.indexed_gzip", None)
    path = made(tmp_path / "a.tar.gz", kind)
    for _ in range(2):
        tar = opened(path)[0]
        for name in reversed(MEMBERS):
            assert tar.read_bytes(name) == MEMBERS[name]
    assert not kept_indexes(cache)


def test_a_long_way_between_two_seek_points_is_decoded_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "GZIP_UNIT", 40_000)
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    tar = opened(path)[0]
    jump(tar)
    assert contents(tar) == MEMBERS


def test_bytes_behind_the_last_member_that_look_like_another(tmp_path: Path) -> None:
    """The library takes them for one, and fails; what the archive holds is read without it."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(GZ["usual"](PLAIN) + b"x\x1f\x8bno member" * 100)
    opened(path)
    tar = opened(path)[0]
    jump(tar)
    assert contents(tar) == MEMBERS


# ---- other processes

READ_ONE = """
import json, sys
from fsabs import Local
from tests.containers.stores import CountingFS
from fsabs.containers.tar import Tar
fs = CountingFS(Local(sys.argv[1]))
data = Tar(fs, "a.tar.gz").read_bytes(sys.argv[2])
print(json.dumps([fs.fetched, data[:1000].hex(), len(data)]))
"""


@pytest.mark.parametrize("kind", ["gz", pytest.param("xz", marks=pytest.mark.nightly)])
def test_a_new_process_reads_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With the distances and sizes that are usual: a member in the middle, and not the half before it."""
    decode_by_steps(monkeypatch, 1)
    members = {f"{at:02}": seeded.randbytes(300_000) + bytes(1_700_000) for at in range(14)}
    plain, path = tarball(members), tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(plain, 1) if kind == "gz" else blocks_of_xz(plain))
    _, fs = opened(path)
    assert fs.fetched >= path.stat().st_size
    if kind == "gz":  # a process that jumps has the whole file looked at, once
        tar, fs = opened(path)
        assert fs.fetched == 0
        assert tar.read_bytes("13") == members["13"]
        assert fs.fetched >= path.stat().st_size
        (kept,) = kept_indexes(Path(os.environ["FSABS_CACHE_DIR"]))  # deflated, as the file is
        assert kept.stat().st_size < path.stat().st_size * 0.07
    done = subprocess.run(
        [sys.executable, "-c", READ_ONE, str(tmp_path), "07"], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    read, start, size = json.loads(done.stdout)
    assert (start, size) == (members["07"][:1000].hex(), 2_000_000)
    assert 300_000 < read < path.stat().st_size / 2


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "keep"), [("usual", True), ("xz", True), ("xz", False)])
def test_a_pickle_finds_the_points_again(
    tmp_path: Path, kind: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is spawned gets one."""
    if not keep:
        monkeypatch.setenv("FSABS_CACHE_DIR", "")
    path = made(tmp_path / "a.tar.gz", kind)
    opened(path)
    tar = opened(path)[0]
    jump(tar)
    pickled = pickle.dumps(tar)
    assert len(pickled) < 10_000
    twin = pickle.loads(pickled)
    twin.parent.taken()
    assert twin.read_bytes("folder0/member12") == MEMBERS["folder0/member12"]
    if keep:
        assert twin.parent.fetched < path.stat().st_size / 3


@pytest.mark.quick
def test_parent_and_forked_children_read_from_the_same_points(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    tar, fs = opened(path)
    jump(tar)
    size = path.stat().st_size

    def right(seed: int) -> bool:
        fs.taken()
        names = random.Random(seed).sample(sorted(MEMBERS), 2)
        return [tar.read_bytes(name) for name in names] == [MEMBERS[name] for name in names] and fs.fetched < 0.7 * size

    assert right(0)
    with tar.open("folder0/member09", "rb") as file:
        assert file.read(100_000) == MEMBERS["folder0/member09"][:100_000]
        children = [forked(lambda: right(1)), forked(lambda: file.read() == MEMBERS["folder0/member09"][100_000:])]
        assert right(2)
        assert file.read() == MEMBERS["folder0/member09"][100_000:]
        assert all_end_well(*children)


# ---- what is kept


@pytest.mark.quick
def test_nothing_is_looked_for_where_no_one_jumps(tmp_path: Path, cache: Path) -> None:
    """The pass has points of its own, and who reads in order needs none."""
    path = made(tmp_path / "a.tar.gz", "usual")
    tar = opened(path)[0]
    for name in reversed(MEMBERS):
        assert tar.read_bytes(name) == MEMBERS[name]
    tar, fs = opened(path)
    assert list(tar.read_many(MEMBERS)) == list(MEMBERS.values())
    assert fs.fetched <= path.stat().st_size
    assert not kept_indexes(cache)


def test_a_damaged_index_is_as_good_as_none(tmp_path: Path, cache: Path) -> None:
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    jump(opened(path)[0])
    (kept,) = kept_indexes(cache)
    data = kept.read_bytes()
    for damaged in (data[:-300] + bytes([data[-300] ^ 0x10]) + data[-299:], data[:-100], b""):
        kept.write_bytes(damaged)
        tar = opened(path)[0]
        for name in reversed(MEMBERS):
            assert tar.read_bytes(name) == MEMBERS[name]


def test_seek_points_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(decoding, "MAX_POINTS", 16)
    path = made(tmp_path / "a.tar.gz", "small blocks")
    opened(path)
    tar = opened(path)[0]
    jump(tar)
    assert contents(tar) == MEMBERS
    (kept,) = kept_indexes(cache)
    assert kept.stat().st_size < 20 * 2**15  # each has 32 KiB of text before it


# ---- damage


@pytest.mark.parametrize("kind", ["stored", "usual", "members"])
def test_damage_is_found_by_the_pass(tmp_path: Path, kind: str) -> None:
    data = compressed(kind).rstrip(b"\0")
    order = random.Random(kind)
    for _ in range(6):
        at = order.randrange(10, len(data))  # behind a header's time and system
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            (tmp_path / "a.tar.gz").write_bytes(bad)
            with pytest.raises(CorruptFileError):
                opened(tmp_path / "a.tar.gz")


@pytest.mark.quick
@pytest.mark.parametrize("before", [True, False])
def test_damage_behind_a_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """Be it there before seek points are looked for, or only after."""
    monkeypatch.setattr(local, "version_of", lambda status: "00-0-0-0")  # as a disk would do it: nothing tells of it
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    if not before:
        jump(opened(path)[0])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(random.Random(1).randbytes(size // 4))
    tar = opened(path)[0]
    with pytest.raises(CorruptFileError) as caught:
        tar.read_bytes("folder1/member10")
    assert "a.tar.gz" in caught.value.filename
    assert tar.read_bytes("folder0/member00") == MEMBERS["folder0/member00"]


@pytest.mark.quick
@pytest.mark.parametrize("failure", [TimeoutError("the store is away"), KeyboardInterrupt()])
def test_a_failed_read_is_raised_as_it_is_and_got_over(tmp_path: Path, failure: BaseException) -> None:
    """While seek points are looked for, and while a member behind one is read."""
    path = made(tmp_path / "a.tar.gz", "usual")
    opened(path)
    for _ in range(2):
        tar, fs = opened(path)
        fs.failure = failure
        for name in ("folder0/member15", "folder1/member10"):
            with pytest.raises(type(failure)):
                tar.read_bytes(name)
        fs.failure = None
        jump(tar)
        fs.failure = failure
        with pytest.raises(type(failure)):
            tar.read_bytes("folder2/member11")
        fs.failure = None
        assert contents(tar) == MEMBERS


@pytest.mark.quick
def test_the_end_of_xz_blocks_is_that_of_the_content() -> None:
    """Behind the last block is the stream's index, and no more."""
    fs = Memory()
    fs.write_bytes("a.tar.xz", compressed("xz"))
    tar = Tar(fs, "a.tar.xz")
    jump(tar)
    fs.write_bytes("b.tar.xz", compressed("xz") + b"junk")
    assert [problem.kind for problem in Tar(fs, "b.tar.xz").verify()] == ["trailing data"]
