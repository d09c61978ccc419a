"""The index of a tar that is kept: who opens the archive next reads no headers, and sees what the first one saw."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsabs
from fsabs.containers.base import NameTree, Problem
from fsabs.containers.decoding import SeekPoint, SeekPoints
from fsabs.containers.tar import Tar
from fsabs.containers.tar import index as tar_index
from fsabs.containers.tar.compression import codec_of_name
from fsabs.containers.tar.index import Member, TarIndex
from fsabs.testing import Delay, Fault, FaultyFS

from .tarballs import contents

pytestmark = pytest.mark.quick

MEMBERS = {f"folder{at % 7}/file{at:03}": os.urandom(20 + at) for at in range(100)}


@pytest.fixture(autouse=True)
def _kept(cache: Path) -> None:
    """Indexes are kept."""


def make(path: Path, members: dict[str, bytes], age: float = 60) -> None:
    """A tar written `age` seconds ago."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "folder1/file001"
        tar.addfile(link)
    os.utime(path, (time.time() - age,) * 2)


def opened(path: Path) -> tuple[Tar, int]:
    """The archive, and how many reads opening it took."""
    reads = Fault("read", Delay(0))
    below = FaultyFS(fsabs.from_url(path.parent), reads)
    tar = below.open_container(path.name)
    assert isinstance(tar, Tar)
    return tar, below.met[reads]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_the_second_who_opens_an_archive_reads_no_headers(tmp_path: Path, name: str) -> None:
    make(tmp_path / name, MEMBERS)
    first, reads = opened(tmp_path / name)
    assert reads >= 2
    second, reads = opened(tmp_path / name)
    assert reads == 0
    for tar in (first, second, pickle.loads(pickle.dumps(second))):
        assert contents(tar) == {**MEMBERS, "link": MEMBERS["folder1/file001"]}
        assert tar.stat("folder2").isdir()
        with pytest.raises(FileNotFoundError):
            tar.stat("folder2/none")
        with pytest.raises(NotADirectoryError):
            tar.stat("folder1/file001/below")


def test_names_of_one_hash_are_told_apart(tmp_path: Path) -> None:
    numbers = sorted(map(str, range(300)), key=lambda name: zlib.crc32(name.encode()))
    same = ("plumless", "buckeroo")
    assert len({zlib.crc32(name.encode()) for name in same}) == 1
    for names in (same, same[:1], same[1:]):
        there = {*names, *numbers[1:-1]}
        make(tmp_path / "a.tar", {name: name.encode() for name in there}, age=60 + len(names))
        opened(tmp_path / "a.tar")
        tar, reads = opened(tmp_path / "a.tar")
        assert reads == 0
        assert len(pickle.dumps(tar)) < 10_000  # which leaves the index where it is
        assert {name for name in (*same, *numbers) if tar.exists(name)} == there
        assert list(tar.read_many(names)) == [name.encode() for name in names]


def test_another_version_or_a_damaged_index_is_passed_over_anew(tmp_path: Path, cache: Path) -> None:
    make(tmp_path / "a.tar", MEMBERS)
    opened(tmp_path / "a.tar")
    other = {name: data[::-1] for name, data in MEMBERS.items()}
    make(tmp_path / "a.tar", other, age=50)
    tar, reads = opened(tmp_path / "a.tar")
    assert reads
    assert tar.read_bytes("folder1/file001") == other["folder1/file001"]
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-7])
    tar, reads = opened(tmp_path / "a.tar")
    assert reads
    assert contents(tar)["folder3/file003"] == other["folder3/file003"]


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=()), min_size=1, max_size=8)
EXTRA = st.none() | st.text(max_size=5) | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))).map(tuple)
MEMBER = st.builds(
    Member, st.integers(0, 2**60), st.integers(0, 2**60), st.none() | st.floats(0, 2e9), st.integers(0, 2**16), EXTRA
)


# The first text of a Python's life takes Hypothesis seconds: it makes a table of that Python's characters.
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, MEMBER, max_size=20), st.booleans())
def test_an_index_comes_back_as_it_was(entries: dict[str, Member], links: bool) -> None:
    index = TarIndex(NameTree(entries), links, {"a": "../a"}, (Problem("p", "duplicate", "twice"),), 1234)
    points = (SeekPoint(0, 0), SeekPoint(5, 7), SeekPoint(9, 11, b"a block"))
    decoding = tar_index.Decoding(codec_of_name("xz"), 99, SeekPoints(points, 4))
    found, how = tar_index.unpack(memoryview(b"".join(tar_index.pack(index, decoding))))
    assert dict(found.tree.entries) == entries
    assert found[1:] == index[1:]
    assert how is not None
    assert how[:2] == decoding[:2]
    assert how.points.lasting() == points
    assert how.points.spacing == 4
    for name in entries:
        assert found.tree.entries[name] == entries[name]
        assert found.tree.entries.get(name + "\0") is None
    assert list(found.tree.children("")) == list(index.tree.children(""))


@given(st.integers(0, 400), st.binary(max_size=30))
def test_any_other_bytes_are_refused(at: int, data: bytes) -> None:
    good = b"".join(tar_index.pack(TarIndex(NameTree({"a": Member(1, 2, 3.0, 4)}), False, {}, (), 5), None))
    for bad in (data, good[:at] if at < len(good) else good + b"x"):
        with pytest.raises(ValueError):
            tar_index.unpack(memoryview(bad))
